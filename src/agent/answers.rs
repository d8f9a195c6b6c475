//! The agent's side of [echoes](super::echo): who asks gets an answer, up to a number of answers in a second.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::agent::echo::{ECHO_GROUP, Echo, EchoKind};
use crate::agent::interface;
use crate::agent::multicast::Membership;
use crate::agent::port::{Came, HeldPort};

/// Most echoes that are looked at in a second. An answer takes some 10 microseconds.
const MOST: u32 = 5000;

/// Most of them in one turn of the agent's loop: clients wait meanwhile.
const MOST_A_TURN: u32 = 16;

/// How long a host listens for announcements after a request that wants it to.
const LISTENS: Duration = Duration::from_secs(10);

/// Most addresses at which it listens at a time.
const MOST_ADDRESSES: usize = 16;

/// Most announcements that are remembered.
const MOST_HEARD: usize = 256;

/// Echoes that have come, and announcements that may come.
pub(crate) struct Answers {
    budget: Budget,
    /// Nonces of the last announcements.
    heard: VecDeque<u64>,
    listening: Vec<Listening>,
}

/// An address of this host at which it takes in announcements.
struct Listening {
    at: Ipv4Addr,
    until: Instant,
    _membership: Membership,
}

impl Answers {
    pub(crate) fn new(now: Instant) -> Self {
        Self { budget: Budget::new(now), heard: VecDeque::new(), listening: Vec::new() }
    }

    /// Whether echoes may be looked at now.
    pub(crate) fn may_work(&self, now: Instant) -> bool {
        self.budget.left(now) > 0
    }

    /// When there is something to do without any echo.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        let renewed = (!self.may_work(now)).then(|| self.budget.renewed_at());
        self.listening.iter().map(|listening| listening.until).chain(renewed).min()
    }

    /// Forgets the memberships whose time is over.
    pub(crate) fn tend(&mut self, now: Instant) {
        self.listening.retain(|listening| listening.until > now);
    }

    /// Answers what has come to the port.
    pub(crate) fn work(&mut self, port: &HeldPort) {
        for _ in 0..MOST_A_TURN {
            let now = Instant::now();
            if !self.budget.take(now) {
                return;
            }
            let Some(came) = port.receive() else { return };
            if let Some(reply) = self.reply(&came, now) {
                port.answer(&came, &reply.encode());
            }
        }
    }

    /// The reply to a datagram, if it gets one.
    fn reply(&mut self, came: &Came, now: Instant) -> Option<Echo> {
        let echo = Echo::decode(&came.start)?;
        match echo.kind {
            EchoKind::Reply => None,
            EchoKind::Announcement => {
                if !self.heard.contains(&echo.nonce) {
                    self.heard.truncate(MOST_HEARD - 1);
                    self.heard.push_front(echo.nonce);
                }
                None
            }
            EchoKind::Request => {
                let mut reply = Echo::new(EchoKind::Reply, echo.nonce, echo.sequence);
                reply.heard = self.heard.contains(&echo.nonce);
                reply.bytes = u32::try_from(came.bytes).ok()?;
                if echo.tell {
                    reply.tell = true;
                    reply.mtu = interface::by_index(came.interface).map_or(0, |found| found.mtu);
                    self.listen(came.to, now);
                }
                Some(reply)
            }
        }
    }

    /// Takes in announcements at an address for a while.
    fn listen(&mut self, at: Ipv4Addr, now: Instant) {
        let until = now + LISTENS;
        if let Some(listening) = self.listening.iter_mut().find(|listening| listening.at == at) {
            listening.until = until;
        } else if self.listening.len() < MOST_ADDRESSES {
            match Membership::new(ECHO_GROUP, at) {
                Ok(membership) => {
                    self.listening.push(Listening { at, until, _membership: membership });
                }
                Err(error) => log::debug!("no multicast at {at}: {error}"),
            }
        }
    }
}

/// A number of echoes for each second.
struct Budget {
    second: Instant,
    taken: u32,
}

impl Budget {
    const SECOND: Duration = Duration::from_secs(1);

    fn new(now: Instant) -> Self {
        Self { second: now, taken: 0 }
    }

    fn renewed_at(&self) -> Instant {
        self.second + Self::SECOND
    }

    fn left(&self, now: Instant) -> u32 {
        if now >= self.renewed_at() { MOST } else { MOST - self.taken }
    }

    fn take(&mut self, now: Instant) -> bool {
        if now >= self.renewed_at() {
            *self = Self::new(now);
        }
        let may = self.taken < MOST;
        self.taken += u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;

    use super::*;
    use crate::agent::echo::ECHO_BYTES;

    fn came(echo: &Echo, bytes: usize) -> Came {
        let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);
        Came { start: echo.encode().into(), bytes, from, to: Ipv4Addr::LOCALHOST, interface: 1 }
    }

    #[test]
    fn requests_alone_are_answered() {
        let now = Instant::now();
        let mut answers = Answers::new(now);
        let mut reply = |kind| answers.reply(&came(&Echo::new(kind, 7, 3), 1472), now);
        assert_eq!(reply(EchoKind::Reply), None);
        let first = reply(EchoKind::Request).unwrap();
        assert_eq!((first.kind, first.nonce, first.sequence), (EchoKind::Reply, 7, 3));
        assert_eq!((first.bytes, first.mtu, first.heard), (1472, 0, false));
        assert_eq!(reply(EchoKind::Announcement), None);
        assert!(reply(EchoKind::Request).unwrap().heard);
        assert!(!answers.reply(&came(&Echo::new(EchoKind::Request, 8, 3), 64), now).unwrap().heard);
        let short = Came { start: vec![0; ECHO_BYTES - 1], ..came(&first, 63) };
        assert_eq!(answers.reply(&short, now), None);
    }

    #[test]
    fn the_last_announcements_are_remembered() {
        let now = Instant::now();
        let mut answers = Answers::new(now);
        for nonce in 0..2 * MOST_HEARD as u64 {
            for _twice in 0..2 {
                answers.reply(&came(&Echo::new(EchoKind::Announcement, nonce, 0), 64), now);
            }
        }
        let heard = |nonce| answers.heard.contains(&nonce);
        let most = MOST_HEARD as u64;
        assert_eq!([most - 1, most, 2 * most - 1].map(heard), [false, true, true]);
    }

    #[test]
    fn a_second_has_so_many_answers() {
        let start = Instant::now();
        let mut answers = Answers::new(start);
        assert!((0..MOST).all(|_| answers.budget.take(start)));
        assert!(!answers.budget.take(start) && !answers.may_work(start));
        let later = answers.due(start).unwrap();
        assert!(answers.may_work(later) && answers.due(later).is_none());
        assert!(answers.budget.take(later));
    }
}

//! The way to the keepers of a group's other members: datagrams, and connections as well to a keeper that does not
//! answer datagrams.
//!
//! A member that waits for long may wait for one that computes, or for one that its datagrams do not reach. So
//! its keeper asks the others' by a HELLO. They answer at once, whatever their ranks do.
#![allow(unsafe_code)]

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::userspace_hook::Datagrams;
use super::{Contact, FRAME, Keeper};
use crate::bindings as b;
use crate::wire::Identity;

/// A keeper that has answered is not asked again for so long. A network that begins to drop datagrams is noticed after
/// so long and [`SILENT`], 2.5 s.
const FRESH: Duration = Duration::from_secs(2);
/// A keeper that has not answered for so long gets frames by a connection, too, until it answers. Among 64 busy threads
/// of one CPU a thread that is woken runs within 19 ms (Linux 6.18), so one that is there answers in time.
const SILENT: Duration = Duration::from_millis(500);
/// How often it is asked then, as long as there are frames for it.
const AGAIN: Duration = Duration::from_secs(1);
/// The sequence number of a HELLO that asks for an answer; and of the answer.
const ASKS: u64 = 1;
const ANSWERS: u64 = 2;

/// The way to the other members' keepers.
pub struct Peers {
    keeper: Arc<Keeper>,
    identity: Identity,
    /// By member; none for ourselves, and where there is no keeper.
    peers: Vec<Option<Peer>>,
    begin: Instant,
}

/// Times are in milliseconds since `begin`, and not 0.
struct Peer {
    contact: Contact,
    /// When it last answered; when it was first asked after that, and last.
    answered: AtomicU64,
    asked: AtomicU64,
    asked_last: AtomicU64,
    /// It does not answer.
    silent: AtomicBool,
}

impl Peers {
    /// The way to `peers`, by member.
    pub(super) fn new(
        keeper: &Arc<Keeper>,
        identity: &Identity,
        peers: Vec<Option<Contact>>,
    ) -> Self {
        let peer = |contact| Peer {
            contact,
            answered: AtomicU64::default(),
            asked: AtomicU64::default(),
            asked_last: AtomicU64::default(),
            silent: AtomicBool::default(),
        };
        let peers = peers.into_iter().map(|contact| contact.map(peer)).collect();
        let (keeper, identity) = (Arc::clone(keeper), identity.clone());
        Self { keeper, identity, peers, begin: Instant::now() }
    }

    fn now(&self) -> u64 {
        1 + self.begin.elapsed().as_millis() as u64
    }

    fn peer(&self, member: u8) -> Option<&Peer> {
        self.peers.get(usize::from(member))?.as_ref()
    }

    fn say(&self, to: SocketAddrV4, what: u64) {
        let hello = b::fb_frame { seq: what, ..self.identity.frame(b::FB_KIND_HELLO) };
        let sealed = self.identity.seal.sealed(hello, &[]);
        let _ = self.keeper.socket.send_to(bytes_of(&sealed), to);
    }

    fn ask(&self, peer: &Peer, now: u64) {
        peer.asked_last.store(now, Ordering::Relaxed);
        self.say(peer.contact.at, ASKS);
    }

    /// A member's HELLO has come in a datagram.
    pub(super) fn heard(&self, hello: &b::fb_frame) {
        let Some(peer) = self.peer(hello.source) else { return };
        if hello.seq == ASKS {
            self.say(peer.contact.at, ANSWERS);
        } else {
            peer.answered.store(self.now(), Ordering::Relaxed);
            peer.silent.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
impl Peers {
    /// Whether a member's keeper has ever answered; whether it does not answer.
    pub(super) fn known(&self, member: u8) -> (bool, bool) {
        let peer = self.peer(member).expect("a peer");
        (peer.answered.load(Ordering::Relaxed) > 0, peer.silent.load(Ordering::Relaxed))
    }
}

fn bytes_of(frame: &b::fb_frame) -> &[u8] {
    // SAFETY: a frame is FRAME bytes without holes (bpf/wire.h).
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(frame).cast::<u8>(), FRAME) }
}

fn warn(peer: SocketAddrV4) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        log::warn!(
            "{} does not answer datagrams: sending by TCP too, over any network there is, which is slower. Is UDP \
             filtered, the network down, or the process stopped?",
            peer.ip()
        );
    }
}

impl Datagrams for Peers {
    fn send(&self, member: u8, frame: &b::fb_frame, payload: &[u8]) {
        let Some(peer) = self.peer(member) else { return };
        let datagram = [bytes_of(frame), payload].concat();
        // A failure is a lost frame, which is legal. A send that would block does not wait.
        let _ = self.keeper.socket.send_to(&datagram, peer.contact.at);
        let needed = peer.silent.load(Ordering::Relaxed);
        if needed {
            let now = self.now();
            if now > peer.asked_last.load(Ordering::Relaxed) + AGAIN.as_millis() as u64 {
                self.ask(peer, now);
            }
        }
        if needed || self.keeper.streams.iter().any(|streams| !streams.is_empty()) {
            self.keeper.stream(&peer.contact, &datagram, needed);
        }
    }

    fn take_in(&self) {
        self.keeper.look();
    }

    fn by_all_means(&self) {
        let now = self.now();
        for peer in self.peers.iter().flatten() {
            let answered = peer.answered.load(Ordering::Relaxed);
            if answered > 0 && now < answered + FRESH.as_millis() as u64 {
                continue;
            }
            let asked = peer.asked.load(Ordering::Relaxed);
            if asked <= answered {
                peer.asked.store(now.max(answered + 1), Ordering::Relaxed);
            } else if now > asked + SILENT.as_millis() as u64 {
                warn(peer.contact.at);
                peer.silent.store(true, Ordering::Relaxed);
            }
            self.ask(peer, now);
        }
    }
}

//! The owner of a TC filter, and whether that process still lives.
//!
//! A clsact filter outlives the process that made it. So every filter of ours bears its owner's
//! mark. The owner listens at the abstract socket of that name as long as it lives. The name goes
//! with the process, however it ends, and is seen in the network namespace of the filter alone. No
//! file, no process id that may mean another process by now.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::geteuid;

use crate::agent::address::SocketAddress;
use crate::agent::error::{Context, ErrorKind, Result};
use crate::agent::socket::Socket;

/// The mark in the name of a filter: `fb_tc_ingress/<uid>/<16 hex digits>[/qdisc]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) uid: u32,
    pub(crate) id: u64,
    /// The owner also made the qdisc.
    pub(crate) made_qdisc: bool,
}

/// A living owner: this process, until dropped.
pub(crate) struct Owner {
    uid: u32,
    id: u64,
    _alive: Socket,
}

impl Owner {
    pub(crate) fn new() -> Result<Self> {
        let doing = || "marking this process as alive".to_string();
        let mut id = [0; 8];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut id))
            .context(ErrorKind::Kernel, doing)?;
        let id = u64::from_ne_bytes(id);
        let alive = Socket::listen(&address(id)).context(ErrorKind::Kernel, doing)?;
        Ok(Self { uid: geteuid().as_raw(), id, _alive: alive })
    }

    pub(crate) fn mark(&self, made_qdisc: bool) -> Mark {
        Mark { uid: self.uid, id: self.id, made_qdisc }
    }
}

impl Mark {
    /// Name of a filter with this mark.
    pub(crate) fn name(&self, program: &str) -> String {
        let qdisc = if self.made_qdisc { "/qdisc" } else { "" };
        format!("{program}/{}/{:016x}{qdisc}", self.uid, self.id)
    }

    /// Reads the mark of a filter; `None`: not one of ours.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('/');
        if !parts.next()?.starts_with("fb_tc_") {
            return None;
        }
        let uid = parts.next()?.parse().ok()?;
        let id = u64::from_str_radix(parts.next()?, 16).ok()?;
        let made_qdisc = match (parts.next(), parts.next()) {
            (None, _) => false,
            (Some("qdisc"), None) => true,
            _ => return None,
        };
        Some(Self { uid, id, made_qdisc })
    }

    /// Whether the owner lives. Somebody else who took a dead owner's name does not count.
    pub(crate) fn owner_lives(&self) -> bool {
        match Socket::connect(&address(self.id), Duration::ZERO) {
            Ok(socket) => socket.peer().is_ok_and(|peer| peer.uid == 0 || peer.uid == self.uid),
            // It does not accept: its queue is full of earlier connections.
            Err(Errno::EAGAIN) => true,
            Err(_) => false,
        }
    }
}

fn address(id: u64) -> SocketAddress {
    SocketAddress::Abstract(format!("foldback/owner/{id:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_the_round_trip_and_strangers_have_none() {
        for made_qdisc in [false, true] {
            let mark = Mark { uid: 1000, id: 0xabc, made_qdisc };
            assert_eq!(Mark::parse(&mark.name("fb_tc_egress")), Some(mark));
        }
        for name in [
            "",
            "fb_tc_ingress",
            "cil_from_netdev",
            "x/0/00",
            "fb_tc_ingress:[12]",
            "fb_tc_x/0/z",
            "fb_tc_x/0/1/2",
        ] {
            assert_eq!(Mark::parse(name), None, "{name}");
        }
    }

    #[test]
    fn an_owner_lives_until_dropped() {
        let owner = Owner::new().unwrap();
        let mark = owner.mark(true);
        for _ in 0..300 {
            assert!(mark.owner_lives(), "also when asked more often than its queue is long");
        }
        drop(owner);
        assert!(!mark.owner_lives());
    }
}

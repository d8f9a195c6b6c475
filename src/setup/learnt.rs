//! Facts about the network that a process learns in one set-up, and needs in later ones.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::bindings::FB_CHUNK_BYTES;

/// The trials that have failed in this process. A trial takes up to seconds, so one of each kind is enough.
#[derive(Default)]
pub struct Learnt {
    /// This host does not hear what is sent to all at once.
    deaf: AtomicBool,
    /// Chunks longer than usual do not come through: a router on the way has a smaller MTU, say.
    no_jumbo: AtomicBool,
    /// Frames do not come through by ordinary sockets alone.
    no_sockets: AtomicBool,
}

impl Learnt {
    /// This host has not heard what all others sent to all at once.
    pub fn set_deaf(&self) {
        self.deaf.store(true, Ordering::Relaxed);
    }

    /// Whether this host may hear what is sent to all at once.
    pub fn may_hear(&self) -> bool {
        !self.deaf.load(Ordering::Relaxed)
    }

    /// Long chunks have not come through.
    pub fn set_no_jumbo(&self) {
        self.no_jumbo.store(true, Ordering::Relaxed);
    }

    /// Most bytes of a chunk, where the link has room for `most`.
    pub fn chunk_bytes(&self, most: u16) -> u16 {
        if self.no_jumbo.load(Ordering::Relaxed) { most.min(FB_CHUNK_BYTES as u16) } else { most }
    }

    /// A group without programs has failed.
    pub fn set_no_sockets(&self) {
        self.no_sockets.store(true, Ordering::Relaxed);
    }

    /// Whether a group that nobody has asked to be without programs may be so.
    pub fn may_do_without_programs(&self) -> bool {
        !self.no_sockets.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failed_trial_rules_out_one_thing() {
        let (usual, long) = (FB_CHUNK_BYTES as u16, 8192);
        let all = |learnt: &Learnt| {
            (learnt.may_hear(), learnt.chunk_bytes(long), learnt.may_do_without_programs())
        };
        let learnt = Learnt::default();
        assert_eq!(all(&learnt), (true, long, true));
        learnt.set_deaf();
        assert_eq!(all(&learnt), (false, long, true));
        learnt.set_no_jumbo();
        assert_eq!(all(&learnt), (false, usual, true));
        assert_eq!(learnt.chunk_bytes(1024), 1024);
        learnt.set_no_sockets();
        assert_eq!(all(&learnt), (false, usual, false));
    }
}

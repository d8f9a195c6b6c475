//! A host's place in a group, and the frames that begin with it.

use super::Seal;
use crate::bindings as b;

/// A host's place in a group.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The group's random token.
    pub token: u64,
    /// Seals the group's frames.
    pub seal: Seal,
    /// Number of members, 2 to `FB_MAX_MEMBERS`.
    pub members: u8,
    /// Index of this host among the members.
    pub me: u8,
    /// Most payload of a frame, a multiple of 8.
    pub chunk_bytes: u16,
    /// The members have an address in common, though perhaps not all hear it.
    pub multicast: bool,
}

impl Identity {
    /// A frame of this host, of which only the kind is said. It has no seal yet.
    #[inline]
    pub fn frame(&self, kind: b::fb_kind) -> b::fb_frame {
        b::fb_frame {
            magic: b::FB_WIRE_MAGIC,
            version: b::FB_WIRE_VERSION as u8,
            kind: kind as u8,
            token: self.token,
            source: self.me,
            ..Default::default()
        }
    }

    /// All members but this one.
    pub fn others(&self) -> impl Iterator<Item = u8> + use<> {
        let me = self.me;
        (0..self.members).filter(move |member| *member != me)
    }

    /// Any member but us, to address frames to that our own egress program takes.
    pub(super) fn any_other(&self) -> u8 {
        (self.me + 1) % self.members
    }

    /// Whether the members of a mask, one bit each, are all, or all but this one.
    pub(super) fn is_all_others(&self, members: u64) -> bool {
        members | 1 << self.me == u64::MAX >> (64 - u32::from(self.members))
    }
}

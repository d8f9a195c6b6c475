//! The protocol of the programs, run by this process (`bpf/native.c`).
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::Identity;
use super::cells::{Memory, extent_of};
use super::table::TableMemory;
use crate::bindings as b;

/// The frame that a hook sends. Of the payload only the frame's length is written, mostly far less than there is
/// room for. On the heap, since the program's stack may be small.
pub struct Reply(Box<MaybeUninit<b::fb_native_reply>>);

impl Reply {
    /// Members to send to, one bit each.
    pub fn mask(&self) -> u64 {
        // SAFETY: all in front of the payload has been written, if only by zeroes.
        unsafe { (*self.0.as_ptr()).mask }
    }

    /// Nothing yet: TC must see the frame too.
    pub fn to_tc(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.0.as_ptr()).to_tc != 0 }
    }

    /// The frame to be sent.
    pub fn frame(&self) -> &b::fb_frame {
        // SAFETY: as above.
        unsafe { &(*self.0.as_ptr()).frame }
    }

    /// Its payload.
    pub fn payload(&self) -> &[u8] {
        let length = usize::from(self.frame().length);
        // SAFETY: so much of the payload has been written.
        unsafe {
            let payload = &raw const (*self.0.as_ptr()).payload;
            std::slice::from_raw_parts(payload.cast::<u8>(), length)
        }
    }
}

/// Whether a contribution or a broadcast of this host's is to go to another member: see `fb_receivers()` in `bpf/cell.h`.
pub fn goes_to(frame: &b::fb_frame, member: u8) -> bool {
    u32::from(frame.flags) != b::FB_FLAG_SOME || frame.consumed >> member & 1 == 1
}

/// The group, as the code of the cells needs it: without its members' addresses.
pub struct Group {
    group: b::fb_group,
    identity: Identity,
}

impl Group {
    /// The group of a member, with so many cells in its window.
    pub fn new(identity: &Identity, window: u32) -> Self {
        let group = b::fb_group {
            window,
            chunk_bytes: identity.chunk_bytes,
            members: identity.members,
            self_: identity.me,
            ..Default::default()
        };
        Self { group, identity: identity.clone() }
    }

    /// The member's place in it.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether a frame that came in a datagram of `bytes` bytes, from the member that it names, is to be taken
    /// in by this host, if its seal is right.
    pub fn admits(&self, frame: &b::fb_frame, bytes: usize) -> bool {
        // SAFETY: reads both.
        unsafe { b::fb_native_admits(frame, bytes as u64, &raw const self.group) != 0 }
    }
}

/// Sees to the cell of `frame` as a hook would, which `can_send` if it is TC. Panics unless the payload is as
/// long as the frame says, and the group is of the memory's window.
pub fn enter<M: Memory>(
    memory: &M,
    group: &Group,
    counters: &mut b::fb_counters,
    frame: &b::fb_frame,
    payload: &[u8],
    can_send: bool,
) -> Reply {
    assert_eq!(payload.len(), usize::from(frame.length));
    assert!(u64::from(frame.length).max(extent_of(frame)) <= memory.most_bytes().into());
    assert_eq!(group.group.window, memory.window());
    let mut reply = Reply(Box::new_uninit());
    // SAFETY: the memory has 1 + window elements (contract of `Memory`), which are changed under the cell's
    // lock, or by one word, as the programs do, and have room for what the frame speaks of; the reply is written
    // as far as it is read.
    unsafe {
        b::fb_native_cell(
            frame,
            payload.as_ptr().cast(),
            &raw const group.group,
            group.identity.seal.key(),
            memory.base(),
            memory.cell(frame.seq),
            counters,
            i32::from(can_send),
            reply.0.as_mut_ptr(),
        );
    }
    reply
}

/// Whether a frame concerns a table of pairs, and not a cell: see `fb_is_tabled()` in `bpf/frame.h`.
pub fn is_tabled(frame: &b::fb_frame) -> bool {
    [b::FB_KIND_PAIRS, b::FB_KIND_HELD].contains(&frame.kind.into())
}

/// Sees to the group's table as TC would, for a frame that concerns pairs. Panics unless the payload is as long as the
/// frame says, and length and part are as the group admits.
pub fn enter_table(
    table: &dyn TableMemory,
    group: &Group,
    counters: &mut b::fb_counters,
    frame: &b::fb_frame,
    payload: &[u8],
) -> Reply {
    assert!(is_tabled(frame) && frame.detail < b::FB_PARTS.into());
    assert_eq!(payload.len(), usize::from(frame.length));
    assert!(u32::from(frame.length) <= b::FB_CHUNK_BYTES);
    let mut reply = Reply(Box::new_uninit());
    // SAFETY: the memory has 1 + FB_PARTS elements (contract of `TableMemory`), which are changed under the part's
    // lock, or by one word, as the programs do; the reply has room for what the frame brings, and is written as far as
    // it is read.
    unsafe {
        b::fb_native_table(
            frame,
            payload.as_ptr().cast(),
            &raw const group.group,
            group.identity.seal.key(),
            table.base(),
            counters,
            reply.0.as_mut_ptr(),
        );
    }
    reply
}

//! The protocol of the programs, run by this process (`bpf/native.c`).
#![allow(unsafe_code)]

use super::Identity;
use super::cells::Memory;
use crate::bindings as b;

/// Whether a frame that came in a datagram of `bytes` bytes, from the member that it names, is to be taken
/// in by this host.
pub fn admits(frame: &b::fb_frame, bytes: usize, group: &b::fb_group) -> bool {
    // SAFETY: reads both.
    unsafe { b::fb_native_admits(frame, bytes as u64, group) != 0 }
}

/// What the code of the cells wants to know of a group: not where its members are.
pub fn group(identity: &Identity, window: u32) -> b::fb_group {
    b::fb_group {
        window,
        chunk_bytes: identity.chunk_bytes,
        members: identity.members,
        self_: identity.me,
        ..Default::default()
    }
}

/// Sees to the cell of `frame` as a hook would, which `can_send` if it is TC. Panics unless the payload is as
/// long as the frame says, and the group is of the memory's window.
pub fn enter<M: Memory>(
    memory: &M,
    group: &b::fb_group,
    counters: &mut b::fb_counters,
    frame: &b::fb_frame,
    payload: &[u8],
    can_send: bool,
) -> b::fb_native_reply {
    assert!(payload.len() == usize::from(frame.length) && frame.length <= b::FB_CHUNK_BYTES as u16);
    assert!(payload.len() <= memory.most_bytes());
    assert_eq!(group.window, memory.window());
    let mut reply = std::mem::MaybeUninit::<b::fb_native_reply>::zeroed();
    // SAFETY: the memory has 1 + window elements (contract of `Memory`), which are changed under the cell's
    // lock, or by one word, as the programs do; the reply is plain integers.
    unsafe {
        b::fb_native_cell(
            frame,
            payload.as_ptr().cast(),
            group,
            memory.base(),
            memory.cell(frame.seq),
            counters,
            i32::from(can_send),
            reply.as_mut_ptr(),
        );
        reply.assume_init()
    }
}

//! The programs' protocol, compiled for user space (`bpf/native.c`).
#![allow(unsafe_code)]

use foldback::bindings as b;

/// Sees to the cell of `frame` as a hook would.
pub fn cell(
    frame: &b::fb_frame,
    payload: &[u8],
    group: &mut b::fb_group,
    cells: *mut b::fb_cell,
    counters: &mut b::fb_counters,
    can_send: bool,
) -> b::fb_native_reply {
    assert_eq!(payload.len(), usize::from(frame.length));
    let index = 1 + (frame.seq & u64::from(group.window - 1)) as usize;
    let mut reply = std::mem::MaybeUninit::<b::fb_native_reply>::zeroed();
    // SAFETY: `cells` has 1 + window elements; the reply is plain integers.
    unsafe {
        b::fb_native_cell(
            frame,
            payload.as_ptr().cast(),
            group,
            cells.cast(),
            cells.add(index),
            counters,
            i32::from(can_send),
            reply.as_mut_ptr(),
        );
        reply.assume_init()
    }
}

/// The programs' fold.
pub fn fold(into: &[u8], from: &[u8], op: u8, element: u8) -> Vec<u8> {
    #[repr(C, align(8))]
    struct Padded([u8; b::FB_CHUNK_BYTES as usize]);
    let pad = |data: &[u8]| {
        let mut padded = Padded([0x5a; b::FB_CHUNK_BYTES as usize]);
        padded.0[..data.len()].copy_from_slice(data);
        padded
    };
    let (mut x, y) = (pad(into), pad(from));
    // SAFETY: both are of the size of struct fb_payload.
    let result = unsafe {
        let (x, y) = ((&raw mut x).cast(), (&raw const y).cast());
        b::fb_fold(x, y, op.into(), element.into(), into.len() as u32)
    };
    assert_eq!(result, 0);
    x.0[..into.len()].to_vec()
}

//! The programs' fold, compiled for user space (`bpf/native.c`).
#![allow(unsafe_code)]

use foldback::bindings as b;
use foldback::leaf::arithmetic::Arithmetic;

/// The programs' fold.
pub fn fold(into: &[u8], from: &[u8], Arithmetic { op, element }: Arithmetic) -> Vec<u8> {
    #[repr(C, align(8))]
    struct Padded([u8; b::FB_JUMBO_BYTES as usize]);
    let pad = |data: &[u8]| {
        let mut padded = Padded([0x5a; b::FB_JUMBO_BYTES as usize]);
        padded.0[..data.len()].copy_from_slice(data);
        padded
    };
    let (mut x, y) = (pad(into), pad(from));
    // SAFETY: both are of the size of struct fb_payload.
    let result = unsafe {
        let (x, y) = ((&raw mut x).cast(), (&raw const y).cast());
        b::fb_fold(x, y, op as u32, element as u32, into.len() as u32)
    };
    assert_eq!(result, 0);
    x.0[..into.len()].to_vec()
}

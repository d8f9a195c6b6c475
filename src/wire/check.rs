//! The checksum of a frame and its payload, as the programs compute it (`bpf/check.h`).
#![allow(unsafe_code)]

use crate::bindings::fb_frame;

/// `frame` with the checksum of itself and `payload`: ready to be sent.
#[inline]
pub fn sealed(mut frame: fb_frame, payload: &[u8]) -> fb_frame {
    frame.check = 0;
    frame.check = check(&frame, payload);
    frame
}

fn check(frame: &fb_frame, payload: &[u8]) -> u32 {
    const { assert!(size_of::<fb_frame>() == 64 && align_of::<fb_frame>() == 8) };
    // SAFETY: a frame is 64 bytes without holes (bpf/wire.h), all of them integers, and aligned.
    let header = unsafe { &*std::ptr::from_ref(frame).cast::<[[u8; 16]; 4]>() };
    let (mut a, mut b) = ([0u64; 2], [0u64; 2]);
    let mut add = |pair: &[u8; 16]| {
        let (words, _) = pair.as_chunks::<8>();
        for lane in 0..2 {
            a[lane] = a[lane].wrapping_add(u64::from_ne_bytes(words[lane]));
            b[lane] = b[lane].wrapping_add(a[lane]);
        }
    };
    header.iter().for_each(&mut add);
    let (whole, rest) = payload.as_chunks::<16>();
    whole.iter().for_each(&mut add);
    if !rest.is_empty() {
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        add(&last);
    }
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let even = (a[0] ^ b[0].rotate_left(32)).wrapping_mul(MIX);
    let odd = (a[1] ^ b[1].rotate_left(32)).wrapping_add(even.rotate_left(32));
    (odd.wrapping_mul(MIX) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings as b;

    fn example(length: usize) -> (fb_frame, Vec<u8>) {
        let payload: Vec<u8> = (0..length).map(|at| (at * 167 + 13) as u8).collect();
        let frame = fb_frame {
            magic: b::FB_WIRE_MAGIC,
            token: 0x0123_4567_89ab_cdef,
            seq: u64::MAX / 3,
            length: length as u16,
            extent: 0xfedc,
            ..Default::default()
        };
        (sealed(frame, &payload), payload)
    }

    /// The programs', compiled for user space. What lies behind the payload is no part of it.
    fn by_the_programs(frame: &fb_frame, payload: &[u8]) -> u32 {
        let mut padded = b::fb_payload { data: [0xa5; b::FB_JUMBO_BYTES as usize] };
        padded.data[..payload.len()].copy_from_slice(payload);
        // SAFETY: both live, and the payload has the room that is asked for.
        unsafe { b::fb_check(frame, &raw const padded, payload.len() as u32) }
    }

    #[test]
    fn it_is_that_of_the_programs() {
        for length in 0..=b::FB_JUMBO_BYTES as usize {
            let (frame, payload) = example(length);
            assert_eq!(frame.check, by_the_programs(&frame, &payload), "{length} bytes");
        }
    }

    #[test]
    fn every_flipped_bit_shows() {
        for length in [0, 4, 8, 63, 64, 65, b::FB_JUMBO_BYTES as usize] {
            let (frame, payload) = example(length);
            // SAFETY: plain integers without holes.
            let header: [u8; 64] = unsafe { std::mem::transmute(frame) };
            for bit in 0..8 * header.len() {
                let mut header = header;
                header[bit / 8] ^= 1 << (bit % 8);
                // SAFETY: likewise.
                let frame: fb_frame = unsafe { std::mem::transmute(header) };
                assert_ne!(frame.check, sealed(frame, &payload).check, "bit {bit} of the frame");
            }
            for bit in 0..8 * payload.len() {
                let mut payload = payload.clone();
                payload[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(frame.check, sealed(frame, &payload).check, "bit {bit} of {length}");
            }
        }
    }

    #[test]
    fn words_that_change_places_show() {
        let (frame, mut payload) = example(1024);
        payload.rotate_left(8);
        assert_ne!(frame.check, sealed(frame, &payload).check);
    }
}

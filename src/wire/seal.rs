//! The seal of a frame and its payload, as the programs compute it (`bpf/seal.h`). With the group's key it is a code,
//! which only members of the group can make. Without a key it is a checksum.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::offset_of;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use crate::bindings::{FB_FRAME_BYTES, FB_KEY_WORDS, fb_frame, fb_key};

/// The source of a group's key: 128 random bits. They travel between ranks by the real MPI only, and from a rank to its
/// host's agent.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u64; 2]);

impl Secret {
    /// From random bits.
    pub const fn new(random: [u64; 2]) -> Self {
        Self(random)
    }
}

impl fmt::Debug for Secret {
    /// It is not to be in any log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Words of the key in front of NH's.
const FIRST: usize = offset_of!(fb_key, nh) / 8;
/// Words of a frame that are sealed: all but the seal, which is the last.
const SEALED: usize = FB_FRAME_BYTES as usize / 8 - 1;

/// Seals a group's frames, and tells whether a frame that has come is as a member sent it.
#[derive(Clone)]
pub struct Seal {
    secret: Option<Secret>,
    /// `struct fb_key`.
    words: Arc<[u64]>,
}

impl Seal {
    /// By the key that is made of `secret`: SipHash of the numbers from 0 on. Without one, a checksum.
    pub fn new(secret: Option<Secret>) -> Self {
        let word = |at: usize| match (secret, at) {
            (None, _) => 0,
            (Some(_), 0) => 1,
            (Some(Secret([first, second])), _) => {
                let sip = SipHasher24::new_with_keys(first, second);
                sip.hash(&(at as u64 - 1).to_ne_bytes())
            }
        };
        Self { secret, words: (0..FIRST + FB_KEY_WORDS as usize).map(word).collect() }
    }

    /// The key's source; `None`: there is no key.
    pub fn secret(&self) -> Option<Secret> {
        self.secret
    }

    /// Whether it takes a key to make one.
    #[inline]
    pub fn is_keyed(&self) -> bool {
        self.secret.is_some()
    }

    /// The key, as the programs have it.
    pub fn key(&self) -> &fb_key {
        const { assert!(size_of::<fb_key>() == 8 * (FIRST + FB_KEY_WORDS as usize)) };
        // SAFETY: as many words as the key has (`new`), which is made of these alone (bpf/intf.h).
        unsafe { &*self.words.as_ptr().cast::<fb_key>() }
    }

    /// The first bytes of the same, as a map holds it.
    pub fn key_bytes(&self, count: usize) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).take(count).collect()
    }

    /// `frame` with the seal of itself and `payload`: ready to be sent.
    #[inline]
    pub fn sealed(&self, frame: fb_frame, payload: &[u8]) -> fb_frame {
        let seal = self.of(&frame, payload);
        fb_frame { seal, ..frame }
    }

    /// Whether a member sent the frame, with that payload.
    pub fn holds(&self, frame: &fb_frame, payload: &[u8]) -> bool {
        frame.seal == self.of(frame, payload)
    }

    fn of(&self, frame: &fb_frame, payload: &[u8]) -> u64 {
        const { assert!(size_of::<fb_frame>() == 8 * (SEALED + 1) && align_of::<fb_frame>() == 8) };
        const { assert!(offset_of!(fb_frame, seal) == 8 * SEALED) };
        // SAFETY: a frame is 64 bytes without holes (bpf/wire.h), all of them integers, and aligned.
        let header = unsafe { &*std::ptr::from_ref(frame).cast::<[u64; SEALED]>() };
        if self.is_keyed() { self.code(header, payload) } else { checksum(header, payload) }
    }

    fn code(&self, header: &[u64; SEALED], payload: &[u8]) -> u64 {
        let keys = &self.words[FIRST..];
        let mut sums = [0; 2];
        let (whole, rest) = payload.as_chunks::<8>();
        nh(&mut sums, header.iter().copied(), keys);
        nh(&mut sums, whole.iter().map(|word| u64::from_ne_bytes(*word)), &keys[SEALED..]);
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            let last = u64::from_ne_bytes(last);
            nh(&mut sums, std::iter::once(last), &keys[SEALED + whole.len()..]);
        }
        let mut bytes = [0; 40];
        let words = [sums[0], sums[1], header[0], header[2], header[4]];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        SipHasher24::new_with_keys(self.words[1], self.words[2]).hash(&bytes)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_keyed() { "Seal(code)" } else { "Seal(checksum)" })
    }
}

/// Adds words to NH under both keys. In 32-bit halves, for which every x86-64 has vectors.
#[inline]
fn nh(sums: &mut [u64; 2], words: impl Iterator<Item = u64>, keys: &[u64]) {
    let term = |word: u64, key: u64| {
        let low = (word as u32).wrapping_add(key as u32);
        let high = ((word >> 32) as u32).wrapping_add((key >> 32) as u32);
        u64::from(low) * u64::from(high)
    };
    for ((word, first), second) in words.zip(keys).zip(&keys[1..]) {
        sums[0] = sums[0].wrapping_add(term(word, *first));
        sums[1] = sums[1].wrapping_add(term(word, *second));
    }
}

fn checksum(header: &[u64; SEALED], payload: &[u8]) -> u64 {
    let (mut a, mut b) = ([0u64; 2], [0u64; 2]);
    let mut add = |pair: [u64; 2]| {
        for lane in 0..2 {
            a[lane] = a[lane].wrapping_add(pair[lane]);
            b[lane] = b[lane].wrapping_add(a[lane]);
        }
    };
    let (pairs, last) = header.as_chunks::<2>();
    pairs.iter().copied().for_each(&mut add);
    add([last[0], 0]);
    let (whole, rest) = payload.as_chunks::<16>();
    let words = |pair: &[u8; 16]| {
        let (words, _) = pair.as_chunks::<8>();
        [u64::from_ne_bytes(words[0]), u64::from_ne_bytes(words[1])]
    };
    whole.iter().map(words).for_each(&mut add);
    if !rest.is_empty() {
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        add(words(&last));
    }
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let even = (a[0] ^ b[0].rotate_left(32)).wrapping_mul(MIX);
    let odd = (a[1] ^ b[1].rotate_left(32)).wrapping_add(even.rotate_left(32));
    odd.wrapping_mul(MIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings as b;

    fn both() -> [Seal; 2] {
        [Seal::new(None), Seal::new(Some(Secret::new([0x0123_4567_89ab_cdef, 42])))]
    }

    fn example(seal: &Seal, length: usize) -> (fb_frame, Vec<u8>) {
        let payload: Vec<u8> = (0..length).map(|at| (at * 167 + 13) as u8).collect();
        let frame = fb_frame {
            magic: b::FB_WIRE_MAGIC,
            token: 0x0123_4567_89ab_cdef,
            seq: u64::MAX / 3,
            length: length as u16,
            extent: 0xfedc,
            ..Default::default()
        };
        (seal.sealed(frame, &payload), payload)
    }

    /// The programs', compiled for user space. What lies behind the payload is no part of it.
    fn by_the_programs(seal: &Seal, frame: &fb_frame, payload: &[u8]) -> u64 {
        let mut padded = b::fb_payload { data: [0xa5; b::FB_JUMBO_BYTES as usize] };
        padded.data[..payload.len()].copy_from_slice(payload);
        // SAFETY: all live, and the payload has the room that is asked for.
        unsafe { b::fb_seal(frame, &raw const padded, payload.len() as u32, seal.key()) }
    }

    #[test]
    fn it_is_that_of_the_programs() {
        for seal in both() {
            for length in 0..=b::FB_JUMBO_BYTES as usize {
                let (frame, payload) = example(&seal, length);
                let theirs = by_the_programs(&seal, &frame, &payload);
                assert_eq!(frame.seal, theirs, "{length} bytes, {seal:?}");
            }
        }
    }

    #[test]
    fn every_flipped_bit_shows() {
        for seal in both() {
            for length in [0, 4, 8, 63, 64, 65, 1408] {
                let (frame, payload) = example(&seal, length);
                // SAFETY: plain integers without holes.
                let header: [u8; 64] = unsafe { std::mem::transmute(frame) };
                for bit in 0..8 * header.len() {
                    let mut header = header;
                    header[bit / 8] ^= 1 << (bit % 8);
                    // SAFETY: likewise.
                    let frame: fb_frame = unsafe { std::mem::transmute(header) };
                    assert!(!seal.holds(&frame, &payload), "bit {bit} of the frame, {seal:?}");
                }
                for bit in 0..8 * payload.len() {
                    let mut payload = payload.clone();
                    payload[bit / 8] ^= 1 << (bit % 8);
                    assert!(!seal.holds(&frame, &payload), "bit {bit} of {length}, {seal:?}");
                }
                assert!(seal.holds(&frame, &payload));
            }
        }
    }

    #[test]
    fn words_that_change_places_show() {
        for seal in both() {
            let (frame, mut payload) = example(&seal, 1024);
            payload.rotate_left(8);
            assert!(!seal.holds(&frame, &payload), "{seal:?}");
        }
    }

    /// One of a group's frames says nothing in another, whose secret differs by a bit.
    #[test]
    fn a_code_takes_the_groups_secret() {
        let secret = [0x0123_4567_89ab_cdef, 42];
        let (frame, payload) = example(&Seal::new(Some(Secret::new(secret))), 100);
        for bit in 0..128 {
            let mut other = secret;
            other[bit / 64] ^= 1 << (bit % 64);
            assert!(!Seal::new(Some(Secret::new(other))).holds(&frame, &payload), "bit {bit}");
        }
        let mut words: Vec<u64> = Seal::new(Some(Secret::new(secret))).words.to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), FIRST + b::FB_KEY_WORDS as usize, "no word comes twice");
    }

    /// The official one of 15 bytes, and by that definition the one that the programs finish with: the key is the bytes
    /// from 0 to 15, the message those from 0 on (Aumasson, Bernstein, INDOCRYPT 2012, appendix A).
    #[test]
    fn siphash_is_the_papers() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let message: [u8; 15] = std::array::from_fn(|at| at as u8);
        let hash = SipHasher24::new_with_keys(key[0], key[1]).hash(&message);
        assert_eq!(hash, 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn a_secret_is_not_told_to_logs() {
        let secret = Secret::new([0xdead_beef, 0xdead_beef]);
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        let told = serde_json::to_string(&secret).unwrap();
        assert_eq!(serde_json::from_str::<Secret>(&told).unwrap(), secret);
    }
}

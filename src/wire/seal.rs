//! The seal of a frame and its payload, as the programs compute it (`bpf/seal.h`). With the group's key it is a code,
//! which only members of the group can make. Without a key it is a checksum.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::offset_of;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bindings::{
    FB_FRAME_BYTES, FB_KEY_WORDS, FB_KIND_BROADCAST, FB_KIND_PIECE, fb_counters, fb_frame, fb_key,
};

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
            (Some(Secret([first, second])), _) => siphash([first, second], [at as u64 - 1]),
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

    /// `frame` with the seal of itself and `payload`: ready to be sent. If it is a broadcast or a piece, the seal is of
    /// the frame alone, and the frame is to be one [`Seal::with_payload`].
    #[inline]
    pub fn sealed(&self, frame: fb_frame, payload: &[u8]) -> fb_frame {
        let seal = self.of(&frame, payload);
        fb_frame { seal, ..frame }
    }

    /// A broadcast or a piece with the seal of its payload.
    #[inline]
    pub fn with_payload(&self, frame: fb_frame, payload: &[u8]) -> fb_frame {
        let detail = self.of_payload(&frame, payload);
        fb_frame { detail, ..frame }
    }

    /// Whether a member sent the frame, with that payload, as far as the seal of the frame is of it.
    pub fn holds(&self, frame: &fb_frame, payload: &[u8]) -> bool {
        frame.seal == self.of(frame, payload)
    }

    /// Whether the payload of a broadcast or a piece is as a member sent it.
    #[inline]
    pub fn holds_payload(&self, frame: &fb_frame, payload: &[u8]) -> bool {
        frame.detail == self.of_payload(frame, payload)
    }

    /// The counter of frames that are not as a member sent them.
    pub fn counter<'a>(&self, counters: &'a mut fb_counters) -> &'a mut u64 {
        if self.is_keyed() { &mut counters.drop_forged } else { &mut counters.drop_corrupt }
    }

    fn of(&self, frame: &fb_frame, payload: &[u8]) -> u64 {
        let is_deposited = [FB_KIND_BROADCAST, FB_KIND_PIECE].contains(&frame.kind.into());
        let (header, payload) = (header(frame), if is_deposited { &[] } else { payload });
        if self.is_keyed() {
            self.code(header, payload, frame.kind)
        } else {
            checksum(header, payload)
        }
    }

    /// Of the frame it takes the words that finish the code, and a kind that no frame has. So the seal of a payload is
    /// none of a frame.
    fn of_payload(&self, frame: &fb_frame, payload: &[u8]) -> u64 {
        let header = header(frame);
        if self.is_keyed() {
            let said = [0, 0, header[2], 0, header[4], 0, 0];
            self.code(&said, payload, !frame.kind)
        } else {
            checksum(&[0; SEALED], payload)
        }
    }

    fn code(&self, header: &[u64; SEALED], payload: &[u8], kind: u8) -> u64 {
        let keys = &self.words[FIRST..];
        let mut sums = [0; 2];
        let (whole, rest) = payload.as_chunks::<8>();
        nh(&mut sums, header.iter().copied(), &keys[..=SEALED]);
        nh_of_bytes(&mut sums, whole, &keys[SEALED..]);
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            nh_of_bytes(&mut sums, &[last], &keys[SEALED + whole.len()..]);
        }
        let words = [sums[0], sums[1], header[2] ^ u64::from(kind) << 56, header[4]];
        siphash([self.words[1], self.words[2]], words)
    }
}

/// The words of a frame that are sealed.
fn header(frame: &fb_frame) -> &[u64; SEALED] {
    const { assert!(size_of::<fb_frame>() == 8 * (SEALED + 1) && align_of::<fb_frame>() == 8) };
    const { assert!(offset_of!(fb_frame, seal) == 8 * SEALED) };
    // SAFETY: a frame is 64 bytes without holes (bpf/wire.h), all of them integers, and aligned.
    unsafe { &*std::ptr::from_ref(frame).cast::<[u64; SEALED]>() }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_keyed() { "Seal(code)" } else { "Seal(checksum)" })
    }
}

/// SipHash-2-4 of whole words.
#[inline]
fn siphash<const WORDS: usize>(key: [u64; 2], words: [u64; WORDS]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let round = |v: &mut [u64; 4]| {
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32).wrapping_add(v[3]);
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    };
    let bytes_hashed = (8 * WORDS as u64) << 56;
    for word in words.into_iter().chain([bytes_hashed]) {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// Adds words to NH under both keys, by the vectors that this CPU has.
#[inline]
fn nh_of_bytes(sums: &mut [u64; 2], words: &[[u8; 8]], keys: &[u64]) {
    let words = || words.iter().map(|word| u64::from_ne_bytes(*word));
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn by_avx2(sums: &mut [u64; 2], words: impl Iterator<Item = u64>, keys: &[u64]) {
            nh(sums, words, keys);
        }
        if words().len() >= LONG && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: this CPU has AVX2.
            return unsafe { by_avx2(sums, words(), keys) };
        }
    }
    nh(sums, words(), keys);
}

/// Words from which on vectors are worth a look whether there are any.
const LONG: usize = 16;

/// Adds words to NH under both keys. The compiler makes vectors of it.
#[inline(always)]
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
            detail: 0xfedc,
            ..Default::default()
        };
        (seal.sealed(frame, &payload), payload)
    }

    /// The programs' seal, compiled for user space. Bytes behind the payload are no part of it.
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
                    // SAFETY: as above.
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

    /// The seal of a frame that is deposited is of the frame, and `detail` of the payload.
    #[test]
    fn payloads_of_broadcasts_and_pieces_are_sealed_by_themselves() {
        for seal in both() {
            for (kind, length) in [(FB_KIND_BROADCAST, 1408), (FB_KIND_PIECE, 13)] {
                let (frame, payload) = example(&seal, length);
                let frame = fb_frame { kind: kind as u8, ..frame };
                let frame = seal.sealed(seal.with_payload(frame, &payload), &payload);
                assert!(seal.holds(&frame, &[]) && seal.holds_payload(&frame, &payload));
                for bit in 0..8 * payload.len() {
                    let mut payload = payload.clone();
                    payload[bit / 8] ^= 1 << (bit % 8);
                    assert!(
                        !seal.holds_payload(&frame, &payload),
                        "bit {bit} of {length}, {seal:?}"
                    );
                }
                assert!(!seal.holds(&fb_frame { detail: frame.detail ^ 1, ..frame }, &payload));
                if seal.is_keyed() {
                    for other in [
                        fb_frame { seq: frame.seq + 1, ..frame },
                        fb_frame { source: 1, ..frame },
                        fb_frame { target: 1, ..frame },
                        fb_frame { kind: 6 + 3 - kind as u8, ..frame },
                    ] {
                        assert!(!seal.holds_payload(&other, &payload), "{other:?}");
                    }
                    let as_a_frame = fb_frame { detail: 0, seal: frame.detail, ..frame };
                    assert!(!seal.holds(&as_a_frame, &[]));
                }
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

    /// The standard library has a SipHash-2-4, which it calls deprecated since its name does not say so.
    #[test]
    #[expect(deprecated, reason = "see above")]
    fn siphash_is_that_of_the_standard_library() {
        use std::hash::{Hasher, SipHasher};
        let words = [1, 0xffff_ffff_0000_0000, 3, u64::MAX, 0x0123_4567_89ab_cdef];
        for key in [[0, 0], [1, 2], [u64::MAX, 1 << 63]] {
            let mut theirs = SipHasher::new_with_keys(key[0], key[1]);
            words.iter().for_each(|word| theirs.write(&word.to_le_bytes()));
            assert_eq!(siphash(key, words), theirs.finish());
        }
    }

    #[test]
    fn a_secret_is_not_told_to_logs() {
        let secret = Secret::new([0xdead_beef, 0xdead_beef]);
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        let told = serde_json::to_string(&secret).unwrap();
        assert_eq!(serde_json::from_str::<Secret>(&told).unwrap(), secret);
    }
}

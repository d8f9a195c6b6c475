//! Buckets of a cache line. A key is looked for in all slots of a bucket at once, without a branch that the CPU would
//! have to guess.
#![allow(unsafe_code)]

use super::zeroed::{Zero, Zeroed};

/// Buckets of a table.
pub(super) type Buckets = Zeroed<Bucket>;

/// Slots of a bucket.
pub(super) const SLOTS: usize = 4;

/// Slots of a cache line; key 0 marks a free one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    pub(super) keys: [u64; SLOTS],
    pub(super) words: [u64; SLOTS],
}

// SAFETY: numbers only.
unsafe impl Zero for Bucket {}

impl Bucket {
    /// The first slot with a key.
    #[inline(always)]
    pub(super) fn find(&self, key: u64) -> Option<usize> {
        let found = self.found(key);
        (found != 0).then(|| found.trailing_zeros() as usize / 4 % SLOTS)
    }

    /// Bits of the slots with a key: each has four, of which the first one counts.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn found(&self, key: u64) -> u32 {
        use std::arch::x86_64 as sse2;
        let [a, b, c, d] = self.keys.map(u64::cast_signed);
        // SAFETY: every CPU of this kind has SSE2.
        let halves = unsafe {
            let key = sse2::_mm_set1_epi64x(key.cast_signed());
            let first = sse2::_mm_cmpeq_epi32(sse2::_mm_set_epi64x(b, a), key);
            let last = sse2::_mm_cmpeq_epi32(sse2::_mm_set_epi64x(d, c), key);
            sse2::_mm_movemask_epi8(sse2::_mm_packs_epi32(first, last)).cast_unsigned()
        };
        // Both halves of a key have to be equal.
        halves & halves >> 2 & 0x1111
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn found(&self, key: u64) -> u32 {
        let is_here = |(slot, own): (usize, &u64)| u32::from(*own == key) << (4 * slot);
        self.keys.iter().enumerate().map(is_here).fold(0, |all, one| all | one)
    }

    /// The records that are here.
    pub(super) fn records(&self) -> impl Iterator<Item = [u64; 2]> {
        let all = self.keys.into_iter().zip(self.words);
        all.filter(|(key, _)| *key != 0).map(|(key, word)| [key, word])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of a key is none.
    #[test]
    fn keys_are_found_in_any_slot() {
        let halves = Bucket { keys: [5, 6 << 32, 5 << 32, 6 << 32 | 5], words: [0; SLOTS] };
        assert_eq!(halves.find(6 << 32 | 5), Some(3));
        assert_eq!(halves.find(5 << 32 | 5), None);
        let bucket = Bucket { keys: [9, u64::MAX, 0, 9], words: [1, 2, 3, 4] };
        assert_eq!(bucket.find(9), Some(0));
        assert_eq!(bucket.find(u64::MAX), Some(1));
        assert_eq!(bucket.find(0), Some(2));
        assert_eq!(bucket.find(8), None);
        assert!(bucket.records().eq([[9, 1], [u64::MAX, 2], [9, 4]]));
    }
}

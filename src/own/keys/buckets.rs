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
    pub(super) fn find<W: Width>(&self, key: u64) -> Option<usize> {
        let found = W::found(&self.keys, key);
        (found != 0).then(|| found.trailing_zeros() as usize / W::BITS % SLOTS)
    }

    /// The records that are here.
    pub(super) fn records(&self) -> impl Iterator<Item = [u64; 2]> {
        let all = self.keys.into_iter().zip(self.words);
        all.filter(|(key, _)| *key != 0).map(|(key, word)| [key, word])
    }

    /// Appends the records to `words`. They have the first slots, so the CPU need not guess at each whether it is free.
    #[inline(always)]
    pub(super) fn append(&self, words: &mut Vec<u64>) {
        let records: [_; SLOTS] = std::array::from_fn(|slot| [self.keys[slot], self.words[slot]]);
        let used: usize = self.keys.iter().map(|key| usize::from(*key != 0)).sum();
        let end = words.len() + 2 * used;
        words.extend_from_slice(records.as_flattened());
        words.truncate(end);
    }
}

/// The instructions by which a key is looked for.
pub(super) trait Width {
    /// Bits of each slot.
    const BITS: usize;

    /// The bits of slots with a key, of which the first one counts.
    fn found(keys: &[u64; SLOTS], key: u64) -> u32;
}

/// Instructions that all CPUs have.
pub(super) struct Narrow;

impl Width for Narrow {
    const BITS: usize = 4;

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn found(keys: &[u64; SLOTS], key: u64) -> u32 {
        use std::arch::x86_64 as sse2;
        let [a, b, c, d] = keys.map(u64::cast_signed);
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
    fn found(keys: &[u64; SLOTS], key: u64) -> u32 {
        let is_here = |(slot, own): (usize, &u64)| u32::from(*own == key) << (4 * slot);
        keys.iter().enumerate().map(is_here).fold(0, |all, one| all | one)
    }
}

/// AVX2 and BMI.
#[cfg(target_arch = "x86_64")]
struct Wide;

#[cfg(target_arch = "x86_64")]
impl Width for Wide {
    const BITS: usize = 1;

    #[inline(always)]
    fn found(keys: &[u64; SLOTS], key: u64) -> u32 {
        use std::arch::x86_64 as avx2;
        // SAFETY: only `by_widest` uses this, if the CPU has AVX2; four words are read.
        unsafe {
            let key = avx2::_mm256_set1_epi64x(key.cast_signed());
            let equal =
                avx2::_mm256_cmpeq_epi64(avx2::_mm256_loadu_si256(keys.as_ptr().cast()), key);
            avx2::_mm256_movemask_pd(avx2::_mm256_castsi256_pd(equal)).cast_unsigned()
        }
    }
}

/// Work that uses some width.
pub(super) trait Job {
    /// Does it. To be inlined always.
    fn run<W: Width>(self);
}

/// Does a job by the widest instructions that the CPU has.
pub(super) fn by_widest(job: impl Job) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
        fn run(job: impl Job) {
            job.run::<Wide>();
        }
        if has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt") {
            // SAFETY: the CPU has them.
            return unsafe { run(job) };
        }
    }
    job.run::<Narrow>();
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Finds;

    impl Job for Finds {
        /// Half of a key is none.
        #[inline(always)]
        fn run<W: Width>(self) {
            let halves = Bucket { keys: [5, 6 << 32, 5 << 32, 6 << 32 | 5], words: [0; SLOTS] };
            assert_eq!(halves.find::<W>(6 << 32 | 5), Some(3));
            assert_eq!(halves.find::<W>(5 << 32 | 5), None);
            let bucket = Bucket { keys: [9, u64::MAX, 0, 9], words: [1, 2, 3, 4] };
            assert_eq!(bucket.find::<W>(9), Some(0));
            assert_eq!(bucket.find::<W>(u64::MAX), Some(1));
            assert_eq!(bucket.find::<W>(0), Some(2));
            assert_eq!(bucket.find::<W>(8), None);
        }
    }

    #[test]
    fn keys_are_found_in_any_slot() {
        Finds.run::<Narrow>();
        by_widest(Finds);
    }

    #[test]
    fn a_bucket_has_the_records_of_its_keys() {
        let bucket = Bucket { keys: [9, u64::MAX, 0, 9], words: [1, 2, 3, 4] };
        assert!(bucket.records().eq([[9, 1], [u64::MAX, 2], [9, 4]]));
    }
}

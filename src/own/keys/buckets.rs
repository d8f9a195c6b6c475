//! Memory of a table: zeroed, and in huge pages where the system has them.
//!
//! Buckets lie in buckets of a cache line. A key is looked for in all slots of a bucket at once, without a branch that
//! the CPU would have to guess.
#![allow(unsafe_code)]

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;

use memmap2::{Advice, MmapMut, UncheckedAdvice};

/// Slots of a bucket.
pub(super) const SLOTS: usize = 4;

/// Slots of a cache line; key 0 marks a free one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    pub(super) keys: [u64; SLOTS],
    pub(super) words: [u64; SLOTS],
}

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

/// Bytes that are worth a call of the system's.
const LARGE: usize = 2 << 20;
/// Bytes of the largest page that is not a huge one: madvise wants whole pages.
const PAGE: usize = 1 << 16;

/// Buckets, at first zero.
pub(super) struct Buckets {
    memory: Option<MmapMut>,
    /// Its address.
    start: NonNull<Bucket>,
    count: usize,
}

impl Buckets {
    /// Without memory.
    pub(super) const NONE: Self = Self { memory: None, start: NonNull::dangling(), count: 0 };

    /// So many.
    pub(super) fn new(count: usize) -> Self {
        let bytes = count * size_of::<Bucket>();
        let failed = || handle_alloc_error(Layout::array::<Bucket>(count).expect("a size"));
        let Ok(mut memory) = MmapMut::map_anon(bytes) else { failed() };
        let Some(start) = NonNull::new(memory.as_mut_ptr().cast()) else { failed() };
        if bytes >= LARGE {
            // Without huge pages it is only slower, and without all at once, too.
            let _ = memory.advise(Advice::HugePage);
            let _ = memory.advise(Advice::PopulateWrite);
        }
        Self { memory: Some(memory), start, count }
    }

    /// Has the CPU fetch one that is written soon, if it is here.
    #[inline(always)]
    pub(super) fn prefetch(&self, at: usize) {
        let bucket = self.start.as_ptr().wrapping_add(at);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which reads nothing and faults nowhere.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(bucket.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = bucket;
    }

    /// Zeroes some, and gives their memory back if they are many. Returns the bytes that were given back.
    pub(super) fn clear(&mut self, range: Range<usize>) -> usize {
        let bytes = range.start * size_of::<Bucket>()..range.end * size_of::<Bucket>();
        let pages = bytes.start.next_multiple_of(PAGE)..bytes.end / PAGE * PAGE;
        let (Some(memory), true) = (&self.memory, pages.end >= pages.start + LARGE) else {
            self[range].fill(Bucket::default());
            return 0;
        };
        // SAFETY: private memory without a file, to which nobody has a reference, reads as zeros from then on.
        let given = unsafe {
            memory.unchecked_advise_range(UncheckedAdvice::DontNeed, pages.start, pages.len())
        };
        if given.is_err() {
            self[range].fill(Bucket::default());
            return 0;
        }
        let slot = |byte: usize| byte / size_of::<Bucket>();
        self[range.start..slot(pages.start)].fill(Bucket::default());
        self[slot(pages.end)..range.end].fill(Bucket::default());
        pages.len()
    }
}

impl Deref for Buckets {
    type Target = [Bucket];

    #[inline]
    fn deref(&self) -> &[Bucket] {
        // SAFETY: page-aligned memory of so many buckets, zeroed or written, which lives as long as this; or of none.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl DerefMut for Buckets {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Bucket] {
        // SAFETY: as above; nobody else has it.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_zero_until_they_are_written_and_after_they_are_cleared() {
        let used = Bucket { keys: [1, 0, 3, 4], words: [7; SLOTS] };
        for count in [1, 64, 1 << 17] {
            let mut buckets = Buckets::new(count);
            assert_eq!(buckets.len(), count);
            assert!(buckets.iter().all(|bucket| *bucket == Bucket::default()));
            for range in [0..count, count / 3..count / 2 + 1, count..count] {
                buckets.fill(used);
                let given = buckets.clear(range.clone());
                let bytes = range.len() * size_of::<Bucket>();
                assert!(given <= bytes && (given > 0) == (bytes >= LARGE + 2 * PAGE));
                for (at, bucket) in buckets.iter().enumerate() {
                    assert_eq!(
                        *bucket == Bucket::default(),
                        range.contains(&at),
                        "{at} of {range:?}"
                    );
                }
            }
        }
        assert!(Buckets::NONE.is_empty());
    }

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

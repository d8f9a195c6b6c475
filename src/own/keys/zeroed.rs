//! Memory of tables: zeroed, and in huge pages where the system has them.
#![allow(unsafe_code)]

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;

use memmap2::{Advice, MmapMut, UncheckedAdvice};

/// Bytes that are worth a call of the system's.
const LARGE: usize = 2 << 20;
/// Bytes of the largest page that is not a huge one: madvise wants whole pages.
const PAGE: usize = 1 << 16;

/// Items whose bytes may all be zero.
///
/// # Safety
/// Zeros are their default value.
pub(super) unsafe trait Zero: Copy + Default {}

// SAFETY: numbers only.
unsafe impl Zero for [u64; 2] {}

/// Has the CPU fetch an item that is written soon, if it is here.
#[inline(always)]
pub(super) fn prefetch<T>(items: &[T], at: usize) {
    let item = items.as_ptr().wrapping_add(at);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads nothing and faults nowhere.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(item.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = item;
}

/// Items, at first zero.
pub(super) struct Zeroed<T> {
    memory: Option<MmapMut>,
    /// Its address.
    start: NonNull<T>,
    count: usize,
}

impl<T: Zero> Zeroed<T> {
    /// Without memory.
    pub(super) const NONE: Self = Self { memory: None, start: NonNull::dangling(), count: 0 };

    /// So many.
    pub(super) fn new(count: usize) -> Self {
        let bytes = count * size_of::<T>();
        let failed = || handle_alloc_error(Layout::array::<T>(count).expect("a size"));
        let Ok(mut memory) = MmapMut::map_anon(bytes) else { failed() };
        let Some(start) = NonNull::new(memory.as_mut_ptr().cast()) else { failed() };
        if bytes >= LARGE {
            // Without huge pages it is only slower, and without all at once, too.
            let _ = memory.advise(Advice::HugePage);
            let _ = memory.advise(Advice::PopulateWrite);
        }
        Self { memory: Some(memory), start, count }
    }

    /// Zeroes some, and gives their memory back if they are many. Returns the bytes that were given back.
    pub(super) fn clear(&mut self, range: Range<usize>) -> usize {
        let bytes = range.start * size_of::<T>()..range.end * size_of::<T>();
        let pages = bytes.start.next_multiple_of(PAGE)..bytes.end / PAGE * PAGE;
        let (Some(memory), true) = (&self.memory, pages.end >= pages.start + LARGE) else {
            self[range].fill(T::default());
            return 0;
        };
        // SAFETY: private memory without a file, to which nobody has a reference, reads as zeros from then on.
        let given = unsafe {
            memory.unchecked_advise_range(UncheckedAdvice::DontNeed, pages.start, pages.len())
        };
        if given.is_err() {
            self[range].fill(T::default());
            return 0;
        }
        let slot = |byte: usize| byte / size_of::<T>();
        self[range.start..slot(pages.start)].fill(T::default());
        self[slot(pages.end)..range.end].fill(T::default());
        pages.len()
    }
}

impl<T: Zero> Deref for Zeroed<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: page-aligned memory of so many items, zeroed or written, which lives as long as this; or of none.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T: Zero> DerefMut for Zeroed<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; nobody else has it.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::buckets::{Bucket, SLOTS};
    use super::*;

    #[test]
    fn buckets_are_zero_until_they_are_written_and_after_they_are_cleared() {
        let used = Bucket { keys: [1, 0, 3, 4], words: [7; SLOTS] };
        for count in [1, 64, 1 << 17] {
            let mut buckets = Zeroed::<Bucket>::new(count);
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
        assert!(Zeroed::<Bucket>::NONE.is_empty());
    }
}

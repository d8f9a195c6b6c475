//! One rank's part in a sum.
#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr;
use std::slice;

use crate::gate::{Ends, Share};

/// The numbers that a rank brings to a sum, and the place for the sums that it gets: alike on all ranks but for the
/// memory and the share. A complex element is two numbers.
#[derive(Clone)]
pub struct Addends {
    brings: *const u8,
    count: usize,
    /// Bytes of a number.
    width: usize,
    /// The place for this rank's share, if it gets something.
    gets: Option<*mut u8>,
    /// The share, in numbers.
    share: Share,
}

// SAFETY: the pointers are to the program's buffers, which are promised (`crate::mpi`) until the call is over.
unsafe impl Send for Addends {}
// SAFETY: the pointers are to the program's buffers, and followed by the one thread that takes a script's step.
unsafe impl Sync for Addends {}

impl Addends {
    /// The addends of a call whose arguments are right, of which this rank gets a share of elements. `None`: it brings
    /// nothing.
    pub fn of(ends: &Ends, share: &Share, width: usize) -> Option<Self> {
        let brings = ends.brings.filter(|brings| brings.bytes() > 0)?;
        let own = share.bytes(brings.shape.size);
        Some(Self {
            brings: brings.data.cast_const().cast(),
            count: brings.bytes() / width,
            width,
            gets: ends.gets.map(|gets| gets.data.cast()),
            share: Share { elements: own.start / width..own.end / width, ranks: share.ranks },
        })
    }

    /// Numbers that the rank brings.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of a number.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of ranks, from the first one on, whose numbers this rank's share sums.
    pub fn ranks(&self) -> usize {
        self.share.ranks
    }

    /// So many numbers from one on, or all that are left.
    pub fn some(&self, first: usize, most: usize) -> Range<usize> {
        first..self.count.min(first + most)
    }

    /// The place of the first of some numbers.
    pub fn at(&self, numbers: &Range<usize>) -> *const u8 {
        self.brings.wrapping_add(numbers.start * self.width)
    }

    /// Some of the numbers that this rank brings.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi). Nobody writes there as long as the slice is used: in place, sums of
    /// numbers lie before all numbers that are still to be read.
    pub unsafe fn brought(&self, numbers: &Range<usize>) -> &[u8] {
        // SAFETY: elements of the program's, contiguous as predefined types are.
        unsafe { slice::from_raw_parts(self.at(numbers), numbers.len() * self.width) }
    }

    /// The place of the sums of some numbers that this rank gets, room of the program's; and the first one's place
    /// among the numbers. `None`: the rank gets none of them.
    pub fn place_of(&self, numbers: &Range<usize>) -> Option<(*mut [u8], usize)> {
        let own = &self.share.elements;
        let (start, end) = (own.start.max(numbers.start), own.end.min(numbers.end));
        let data = self.gets.filter(|_| start < end)?;
        let data = data.wrapping_add((start - own.start) * self.width);
        let place = ptr::slice_from_raw_parts_mut(data, (end - start) * self.width);
        Some((place, start - numbers.start))
    }
}

//! A transfer's memory.

use std::ops::Range;

use crate::leaf::arithmetic::Arithmetic;
use crate::leaf::fold::fold;

/// The memory of contributions and results: the two may be the same.
pub trait Buffers {
    /// Bytes `range` of our contribution or broadcast.
    fn read(&self, range: Range<usize>) -> &[u8];
    /// Stores a result from byte `at`.
    fn write(&mut self, at: usize, data: &[u8]);
    /// Bytes `range` of the result.
    fn result(&self, range: Range<usize>) -> &[u8];
    /// Folds `data` into the result from byte `at`: result = result op data.
    fn fold(&mut self, at: usize, data: &[u8], arithmetic: Arithmetic);
    /// Whether contribution and result are the same memory.
    fn in_place(&self) -> bool;
    /// If they are not: makes our contribution the result, of bytes `range`.
    fn begin_with_own(&mut self, range: Range<usize>);
    /// If they are not: folds our contribution into the result, as `fold`.
    fn fold_own(&mut self, range: Range<usize>, arithmetic: Arithmetic);

    /// Our parcel to a member, of an exchange; empty: it gets none.
    fn parcel(&self, _to: u8) -> &[u8] {
        &[]
    }

    /// Bytes of a member's parcel to us; 0: it sends none.
    fn expects(&self, _from: u8) -> usize {
        0
    }

    /// Stores what has come of a member's parcel, from its byte `at`.
    fn take_parcel(&mut self, _from: u8, _at: usize, _data: &[u8]) {}
}

/// Contribution and result in one place.
impl Buffers for Vec<u8> {
    fn read(&self, range: Range<usize>) -> &[u8] {
        &self[range]
    }

    fn write(&mut self, at: usize, data: &[u8]) {
        self[at..at + data.len()].copy_from_slice(data);
    }

    fn result(&self, range: Range<usize>) -> &[u8] {
        &self[range]
    }

    fn fold(&mut self, at: usize, data: &[u8], arithmetic: Arithmetic) {
        fold(&mut self[at..at + data.len()], data, arithmetic);
    }

    fn in_place(&self) -> bool {
        true
    }

    fn begin_with_own(&mut self, _: Range<usize>) {}

    fn fold_own(&mut self, _: Range<usize>, _: Arithmetic) {}
}

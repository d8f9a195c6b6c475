//! Calls that the real MPI refuses before it communicates: they have one buffer for both ends.
//!
//! A refused call never happened, for any rank: a program may make up for it by a right one. So it is the real MPI's
//! before it is counted and before a route is taken.
#![allow(unsafe_code)]

use super::judge::Bench;
use super::{Alone, Facts, Refused};
use crate::call::{Call, Counts, Side};

impl<F: Facts> Bench<'_, F> {
    /// Refuses a reduction to `root`, or to all, whose two buffers are one, if the real MPI does.
    ///
    /// # Errors
    /// It does.
    #[inline]
    pub(super) fn refuse_one_buffer_of_reduction(
        &self,
        root: Option<usize>,
        alone: Alone,
    ) -> Result<(), Refused> {
        let Call { send, recv, .. } = self.call;
        // A rank that gets nothing may have one buffer.
        let is_one = send.data == recv.data
            && self.has_two_buffers()
            && root.is_none_or(|root| root == self.rank);
        if is_one && self.mpi.refuses_alias(self.call, alone) { Err(Refused) } else { Ok(()) }
    }

    /// Refuses a call that moves data from a buffer to the same one, if the real MPI does.
    ///
    /// # Errors
    /// It does.
    pub fn refuse_one_buffer(&self) -> Result<(), Refused> {
        let Call { send, recv, .. } = self.call;
        self.refuse_if(send.data == recv.data && self.are_alike())
    }

    /// Refuses a call in which this rank's `part` is where it belongs in the `whole`, and all else is alike too: it
    /// should have been in place.
    ///
    /// # Errors
    /// The real MPI refuses it.
    pub fn refuse_own_part(&self, part: &Side, whole: &Side) -> Result<(), Refused> {
        self.refuse_if(self.are_alike() && self.is_own_part(part, whole))
    }

    /// Refuses a call in which the `part` of this rank is where it belongs in the `whole`, by the arrays of that: it
    /// should have been in place. MPICH and its like count the whole in sizes of its type, not in extents.
    ///
    /// # Errors
    /// The real MPI refuses it.
    pub fn refuse_own_part_by_arrays(&self, part: &Side, whole: &Side) -> Result<(), Refused> {
        let is_there = |counts: &Counts| !counts.counts.is_null() && !counts.displs.is_null();
        let Some(counts) = whole.counts.filter(is_there) else { return Ok(()) };
        let is_own = || {
            let size = self.mpi.shape(whole.datatype).map_or(0, |shape| shape.size);
            // SAFETY: arguments of the program's, as promised for this: both arrays have an element for each rank.
            let (at, count) =
                unsafe { (counts.displacement(self.rank).unwrap_or(0), counts.count(self.rank)) };
            let place = whole.data.wrapping_byte_offset(at.wrapping_mul(size as isize));
            part.count != 0 && count != 0 && place == part.data
        };
        self.refuse_if(
            self.has_two_buffers() && self.mpi.are_same(part.datatype, whole.datatype) && is_own(),
        )
    }

    /// Refuses a call whose sides have one buffer, and one array of counts, and of types if there are any.
    ///
    /// # Errors
    /// The real MPI refuses it.
    pub fn refuse_one_buffer_by_arrays(&self) -> Result<(), Refused> {
        let Call { send, recv, .. } = self.call;
        let counts = |side: &Side| side.counts.map(|counts| counts.counts);
        let is_one_type = match (send.types, recv.types) {
            (Some(one), Some(other)) => one.handles == other.handles,
            _ => self.mpi.are_same(send.datatype, recv.datatype),
        };
        let is_one = send.data == recv.data && counts(send) == counts(recv) && is_one_type;
        self.refuse_if(is_one && self.has_two_buffers())
    }

    fn refuse_if(&self, is_alias: bool) -> Result<(), Refused> {
        if is_alias && self.mpi.refuses_aliases() { Err(Refused) } else { Ok(()) }
    }

    /// Neither end is in place, or nothing.
    #[inline]
    fn has_two_buffers(&self) -> bool {
        let Call { send, recv, .. } = self.call;
        [send.data, recv.data].iter().all(|data| !data.is_null() && !self.is_in_place(*data))
    }

    /// Both ends have as many elements of one type.
    fn are_alike(&self) -> bool {
        let Call { send, recv, .. } = self.call;
        self.has_two_buffers()
            && send.count == recv.count
            && self.mpi.are_same(send.datatype, recv.datatype)
    }

    fn is_own_part(&self, part: &Side, whole: &Side) -> bool {
        let Some(shape) = self.mpi.shape(whole.datatype) else { return false };
        let bytes = (whole.count as isize).wrapping_mul(shape.extent);
        let distance = (part.data as isize).wrapping_sub(whole.data as isize);
        bytes != 0 && distance % bytes == 0 && distance / bytes == self.rank as isize
    }
}

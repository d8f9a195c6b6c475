//! Calls that the real MPI refuses before it communicates: they have one buffer for both ends.
//!
//! A refused call never happened, for any rank: a program may make up for it by a right one. So it is the real MPI's
//! before it is counted and before a route is taken.

use super::judge::Bench;
use super::{Alone, Facts, Refused};
use crate::call::{Call, Side};

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

    /// Refuses a call in which this rank's `part` is where it belongs in the `whole`, and all else is alike too: it should
    /// have been in place.
    ///
    /// # Errors
    /// The real MPI refuses it.
    pub fn refuse_own_part(&self, part: &Side, whole: &Side) -> Result<(), Refused> {
        self.refuse_if(self.are_alike() && self.is_own_part(part, whole))
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

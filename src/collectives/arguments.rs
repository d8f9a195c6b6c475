//! The arguments of a call, as its collective has them.
#![allow(unsafe_code)]

use std::ffi::c_int;

use super::At;
use crate::call::{Call, Side};
use crate::mpi::Mpi;
use crate::mpi::pmpi::Pmpi;

impl Call {
    /// Whether the datatypes of the two sides mean something on `rank`. They do not for a side that is in place.
    pub fn significant(&self, rank: usize, in_place: usize) -> (bool, bool) {
        let (send, recv) = self.collective.significant();
        let here = |at, side: &Side| match at {
            At::Nowhere => false,
            At::Root => usize::try_from(self.root) == Ok(rank),
            At::Everywhere => true,
        } && side.data as usize != in_place;
        (here(send, &self.send), here(recv, &self.recv))
    }

    /// Length of its arrays, which have an element for each rank of the communicator. On an intercommunicator data that
    /// is moved comes from the other group, and the array has an element for each rank of that.
    pub fn parts(&self, mpi: &Pmpi) -> usize {
        let (mut between, mut size): (c_int, c_int) = (0, 0);
        let others = !self.collective.is_reduction()
            // SAFETY: the program's communicator; one int is written.
            && unsafe { (mpi.comm_test_inter)(self.comm, &raw mut between) == 0 && between != 0 };
        let ask = if others { mpi.comm_remote_size } else { mpi.comm_size };
        // SAFETY: the program's communicator; one int is written.
        unsafe { ask(self.comm, &raw mut size) };
        size.max(0) as usize
    }

    /// Elements of all ranks, where each has its own count.
    ///
    /// # Safety
    /// *Arguments* of the [program](crate::mpi).
    pub unsafe fn elements_of_all(&self, mpi: &Mpi) -> Option<u64> {
        let counts = self.recv.counts.filter(|counts| !counts.counts.is_null())?;
        // SAFETY: ranks of the communicator.
        let count = |rank| unsafe { u64::try_from(counts.count(rank)).unwrap_or(0) };
        Some((0..self.parts(&mpi.pmpi)).map(count).sum())
    }
}

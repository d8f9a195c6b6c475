//! The arguments of a call, as its collective has them.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::At;
use super::descriptor::Arrays;
use crate::call::{Call, Side};
use crate::mpi::Mpi;
use crate::mpi::abi::Family;
use crate::mpi::pmpi::Pmpi;

impl Side {
    /// Whether it has this array.
    fn has(&self, array: *const c_void) -> bool {
        self.counts.is_some_and(|counts| [counts.counts, counts.displs].contains(&array))
    }
}

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

    /// Length of one of its arrays, nothing where that means nothing. `None`: it depends on the family of the MPI,
    /// which is unknown.
    pub fn parts(&self, mpi: &Pmpi, family: Option<Family>, array: *const c_void) -> Option<usize> {
        match self.collective.arrays() {
            _ if family.is_some_and(|family| self.ignores(family, array)) => Some(0),
            Arrays::Ranks => Some(self.ranks_with_parts(mpi)),
            Arrays::RanksAtRoot => {
                Some(if self.is_root(mpi, family?) { self.ranks_with_parts(mpi) } else { 0 })
            }
            Arrays::Neighbors => Some(self.neighbors_with_parts(mpi, family?, array)),
        }
    }

    /// Ranks of the communicator. On an intercommunicator data that is moved goes between the groups, and there are
    /// parts for the ranks of the other one.
    fn ranks_with_parts(&self, mpi: &Pmpi) -> usize {
        let others = !self.collective.is_reduction() && self.is_between(mpi);
        let ask = if others { mpi.comm_remote_size } else { mpi.comm_size };
        let mut size: c_int = 0;
        // SAFETY: the program's communicator; one int is written.
        unsafe { ask(self.comm, &raw mut size) };
        size.max(0) as usize
    }

    /// Whether the communicator is between two groups.
    fn is_between(&self, mpi: &Pmpi) -> bool {
        let mut between: c_int = 0;
        // SAFETY: the program's communicator; one int is written.
        unsafe { (mpi.comm_test_inter)(self.comm, &raw mut between) == 0 && between != 0 }
    }

    fn is_root(&self, mpi: &Pmpi, family: Family) -> bool {
        if self.is_between(mpi) {
            return self.root == family.root();
        }
        let mut rank: c_int = 0;
        // SAFETY: the program's communicator; one int is written.
        unsafe { (mpi.comm_rank)(self.comm, &raw mut rank) == 0 && rank == self.root }
    }

    /// Neighbours on the side that an array is of. Of an array of both sides, those on the side that has more.
    fn neighbors_with_parts(&self, mpi: &Pmpi, family: Family, array: *const c_void) -> usize {
        // Without a topology the MPI refuses the call.
        let neighbors = mpi.neighbors(family, self.comm).unwrap_or_default();
        let sides = [(&self.send, neighbors.destinations), (&self.recv, neighbors.sources)];
        let of_array = sides.iter().filter(|(side, _)| side.has(array));
        of_array.map(|(_, ranks)| ranks.len()).max().unwrap_or(0)
    }

    /// Whether an array is of a side that is in place, and of no other.
    fn ignores(&self, family: Family, array: *const c_void) -> bool {
        let is_in_place = self.send.data as usize == family.in_place();
        is_in_place && self.send.has(array) && !self.recv.has(array)
    }

    /// Elements of all ranks, where each has its own count, which all ranks know.
    ///
    /// # Safety
    /// *Arguments* of the [program](crate::mpi).
    #[inline(never)]
    pub unsafe fn elements_of_all(&self, mpi: &Mpi) -> Option<u64> {
        let counts = self.recv.counts.filter(|_| !self.collective.is_of_pairs())?;
        if counts.counts.is_null() {
            return Some(0);
        }
        // SAFETY: ranks of the communicator.
        let count = |rank| unsafe { u64::try_from(counts.count(rank)).unwrap_or(0) };
        Some((0..self.ranks_with_parts(&mpi.pmpi)).map(count).sum())
    }
}

//! Arguments that have an element for each rank, or for each neighbour.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use crate::mpi::pmpi::FromFortran;

/// Arrays with an element for each rank, or for each neighbour: of `int`, or in the large forms of MPI_Count and
/// MPI_Aint.
#[derive(Clone, Copy)]
pub struct Counts {
    /// The program's array, of the width that its function has.
    pub counts: *const c_void,
    /// The beginnings of the parts, in elements, or in bytes where each part has its type; null: one after the other.
    pub displs: *const c_void,
    /// Counts of 64 bits each.
    pub wide: bool,
    /// The beginnings, too.
    pub wide_displs: bool,
}

/// An array of datatypes, with an element for each rank, or for each neighbour.
#[derive(Clone, Copy)]
pub struct Types {
    /// The program's array, of handles as C has them, or of Fortran's INTEGERs.
    pub handles: *const c_void,
    /// The MPI's function that makes handles of these INTEGERs; `None`: they are handles.
    pub from_fortran: Option<FromFortran>,
}

/// An array of C's.
impl From<*const c_void> for Types {
    fn from(handles: *const c_void) -> Self {
        Self { handles, from_fortran: None }
    }
}

impl Counts {
    /// The element of `rank`.
    ///
    /// # Safety
    /// The array is live, and has one.
    unsafe fn at(array: *const c_void, wide: bool, rank: usize) -> i64 {
        // SAFETY: as demanded of this function.
        unsafe {
            if wide {
                *array.cast::<i64>().add(rank)
            } else {
                i64::from(*array.cast::<c_int>().add(rank))
            }
        }
    }

    /// Elements of a rank.
    ///
    /// # Safety
    /// *Arguments* of the [program](crate::mpi), on a communicator that has the rank.
    pub(crate) unsafe fn count(&self, rank: usize) -> i64 {
        // SAFETY: an array of the program's, with an element for each rank.
        unsafe { Self::at(self.counts, self.wide, rank) }
    }

    /// The beginning of a rank's part; `None`: it follows the part of the rank before.
    ///
    /// # Safety
    /// As [`Counts::count`].
    pub(crate) unsafe fn displacement(&self, rank: usize) -> Option<isize> {
        // SAFETY: an array of the program's, with an element for each rank.
        (!self.displs.is_null())
            .then(|| unsafe { Self::at(self.displs, self.wide_displs, rank) as isize })
    }

    /// Copies for a call that outlives the program's arrays. The result points into the copies.
    ///
    /// # Safety
    /// *Arguments* of the [program](crate::mpi), on a communicator of `ranks` ranks.
    pub unsafe fn copy(&self, ranks: usize) -> (Self, [Vec<i64>; 2]) {
        let copy = |array: *const c_void, wide| {
            // SAFETY: an array of the program's, with an element for each rank.
            (0..ranks).map(|rank| unsafe { Self::at(array, wide, rank) }).collect::<Vec<_>>()
        };
        let counts = copy(self.counts, self.wide);
        let displs =
            if self.displs.is_null() { Vec::new() } else { copy(self.displs, self.wide_displs) };
        let displs_copy =
            if displs.is_empty() { std::ptr::null() } else { displs.as_ptr().cast::<c_void>() };
        let copies = Self {
            counts: counts.as_ptr().cast(),
            displs: displs_copy,
            wide: true,
            wide_displs: true,
        };
        (copies, [counts, displs])
    }
}

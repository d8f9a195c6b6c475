//! What all ranks brought, folded by this process: reductions that the kernel does not fold.
//!
//! Always in the order of ranks, from the left, whatever the op: so all ranks get the same bits, though
//! floating point does not associate and the program's own ops need not commute.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

use crate::collective::eligibility::{By, Reduction};
use crate::collective::finish::SUCCESS;
use crate::group::Image;
use crate::leaf::fold::fold;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;

/// Everyone's contribution, and what is to become of it here.
pub struct Deposits {
    /// Where the parts are.
    pub image: Arc<Image>,
    /// Whose are folded.
    pub ranks: Range<usize>,
    /// Which bytes of each.
    pub piece: Range<usize>,
    /// The buffer.
    pub to: *mut c_void,
    /// How.
    pub fold: Reduction,
    /// Op and type of elements, as they were passed.
    pub handles: (Handle, Handle),
}

impl Deposits {
    /// Folds the parts that lie from `from` on. Returns what MPI is to return.
    ///
    /// # Safety
    /// The parts are there, and the buffer is the program's to be written.
    pub unsafe fn fold(&self, from: *const u8, mpi: &Mpi) -> c_int {
        if self.piece.is_empty() || self.ranks.is_empty() {
            return SUCCESS;
        }
        // SAFETY: the caller's promise.
        unsafe {
            match self.fold.by {
                By::Own { op, element } | By::Kernel { op, element, .. } => {
                    self.by_ourselves(from, op, element);
                    SUCCESS
                }
                By::Mpi => self.by_mpi(from, mpi),
            }
        }
    }

    /// SAFETY of callers: as [`Deposits::fold`].
    unsafe fn part(&self, from: *const u8, rank: usize) -> &[u8] {
        let start = self.image.part(rank).start + self.piece.start;
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(from.add(start), self.piece.len()) }
    }

    /// SAFETY of callers: as [`Deposits::fold`].
    unsafe fn by_ourselves(&self, from: *const u8, op: u8, element: u8) {
        // SAFETY: a buffer of as many elements, which lie as they are sent, is no part of what came.
        unsafe {
            let into = std::slice::from_raw_parts_mut(self.to.cast::<u8>(), self.piece.len());
            into.copy_from_slice(self.part(from, self.ranks.start));
            for rank in self.ranks.clone().skip(1) {
                fold(into, self.part(from, rank), op, element);
            }
        }
    }

    /// Not in the program's buffer, which may have gaps that are to stay as they are; nor where the parts
    /// lie, which is not aligned.
    ///
    /// SAFETY of callers: as [`Deposits::fold`].
    unsafe fn by_mpi(&self, from: *const u8, mpi: &Mpi) -> c_int {
        const FAILED: c_int = 1;
        let ((op, datatype), shape) = (self.handles, self.fold.shape);
        let elements = || mpi.elements(datatype, shape, self.piece.len() / shape.size);
        let (Some(mut left), Some(mut right)) = (elements(), elements()) else { return FAILED };
        // SAFETY: the caller's promise; the MPI took the op on this type.
        unsafe {
            let mut code = left.load(mpi, self.part(from, self.ranks.start));
            for rank in self.ranks.clone().skip(1) {
                if code == SUCCESS {
                    code = right.load(mpi, self.part(from, rank));
                }
                if code == SUCCESS {
                    code = mpi.reduce(&left, &mut right, op);
                }
                std::mem::swap(&mut left, &mut right);
            }
            if code == SUCCESS { left.store(mpi, self.to) } else { code }
        }
    }
}

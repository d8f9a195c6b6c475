//! Folds of all ranks' contributions by this process: reductions that the kernel does not fold.
//!
//! Always in the order of ranks, from the left, whatever the op, so all ranks get the same bits. Floating
//! point does not associate, and the program's own ops need not commute. Exact sums need no order.
#![allow(unsafe_code)]

use std::ffi::c_int;

use super::SUCCESS;
use crate::gate::eligibility::{FoldedBy, Keys};
use crate::leaf::arithmetic::{Arithmetic, Real};
use crate::leaf::exact;
use crate::leaf::fold::fold;
use crate::mpi::Mpi;
use crate::plan::Deposits;

/// Folds the parts that lie from `from` on. Returns what MPI is to return.
///
/// # Safety
/// `from` spans the parts of all ranks, which are there; *buffers* of the [program](crate::mpi).
pub unsafe fn fold_parts(deposits: &Deposits, from: *const u8, mpi: &Mpi) -> c_int {
    if deposits.piece.is_empty() || deposits.ranks.is_empty() {
        return SUCCESS;
    }
    // SAFETY: as demanded of this function.
    unsafe {
        match deposits.fold.by {
            FoldedBy::Kernel { arithmetic, keys: Some(Keys::Reals { format, .. }) } => {
                let arithmetic = Arithmetic { element: format.into(), ..arithmetic };
                by_ourselves(deposits, from, arithmetic);
                SUCCESS
            }
            FoldedBy::Own(arithmetic) | FoldedBy::Kernel { arithmetic, .. } => {
                by_ourselves(deposits, from, arithmetic);
                SUCCESS
            }
            FoldedBy::Exact { real, .. } => {
                exactly(deposits, from, real);
                SUCCESS
            }
            FoldedBy::Quantized(_) | FoldedBy::Mpi => by_mpi(deposits, from, mpi),
        }
    }
}

/// # Safety
/// As [`fold_parts`].
unsafe fn contribution_of(deposits: &Deposits, from: *const u8, rank: usize) -> &[u8] {
    let start = deposits.image.part(rank).start + deposits.piece.start;
    // SAFETY: within the part of that rank.
    unsafe { std::slice::from_raw_parts(from.add(start), deposits.piece.len()) }
}

/// # Safety
/// As [`fold_parts`].
unsafe fn by_ourselves(deposits: &Deposits, from: *const u8, arithmetic: Arithmetic) {
    // SAFETY: a buffer of as many elements, which lie as they are sent, is no part of what came.
    unsafe {
        let into = std::slice::from_raw_parts_mut(deposits.to.cast::<u8>(), deposits.piece.len());
        into.copy_from_slice(contribution_of(deposits, from, deposits.ranks.start));
        for rank in deposits.ranks.clone().skip(1) {
            fold(into, contribution_of(deposits, from, rank), arithmetic);
        }
    }
}

/// # Safety
/// As [`fold_parts`].
unsafe fn exactly(deposits: &Deposits, from: *const u8, format: Real) {
    // SAFETY: as in `by_ourselves`.
    unsafe {
        let into = std::slice::from_raw_parts_mut(deposits.to.cast::<u8>(), deposits.piece.len());
        let parts: Vec<_> =
            deposits.ranks.clone().map(|rank| contribution_of(deposits, from, rank)).collect();
        exact::sum(into, &parts, format);
    }
}

/// Folds by MPI, in memory of its own. The program's buffer may have gaps that are to stay as they
/// are, and the parts are not aligned.
///
/// # Safety
/// As [`fold_parts`].
unsafe fn by_mpi(deposits: &Deposits, from: *const u8, mpi: &Mpi) -> c_int {
    const FAILED: c_int = 1;
    let ((op, datatype), shape) = (deposits.handles, deposits.fold.shape);
    let elements = || mpi.elements(datatype, shape, deposits.piece.len() / shape.size);
    let (Some(mut left), Some(mut right)) = (elements(), elements()) else { return FAILED };
    // SAFETY: parts that are there, of a type that the MPI took the op on, and the program's buffer.
    unsafe {
        let mut code = left.load(mpi, contribution_of(deposits, from, deposits.ranks.start));
        for rank in deposits.ranks.clone().skip(1) {
            if code == SUCCESS {
                code = right.load(mpi, contribution_of(deposits, from, rank));
            }
            if code == SUCCESS {
                code = mpi.reduce(&left, &mut right, op);
            }
            std::mem::swap(&mut left, &mut right);
        }
        if code == SUCCESS { left.store(mpi, deposits.to) } else { code }
    }
}

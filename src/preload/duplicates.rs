//! Duplicates of communicators that are made without blocking, MPI-4.1 section 7.4.2.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::real;
use crate::guard;
use crate::mpi::pmpi::{Handle, Optional};
use crate::process;

/// The program is about to duplicate `comm`.
pub(super) fn hold(comm: Handle) {
    if let Some(process) = process::get() {
        guard::shielded_or_abort(|| process.hold(comm));
    }
}

/// MPI_Comm_idup.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Comm_idup(
    comm: Handle,
    new: *mut c_void,
    request: *mut c_void,
) -> c_int {
    hold(comm);
    // SAFETY: passed on unchanged.
    unsafe { (real().comm_idup)(comm, new.cast(), request.cast()) }
}

/// MPI_Comm_idup_with_info. Open MPI 4 does not have it: there nobody heeds the hints.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Comm_idup_with_info(
    comm: Handle,
    info: Handle,
    new: *mut c_void,
    request: *mut c_void,
) -> c_int {
    type WithInfo = unsafe extern "C-unwind" fn(Handle, Handle, *mut c_void, *mut c_void) -> c_int;
    // SAFETY: the type that the standard gives it.
    static REAL: Optional<WithInfo> = unsafe { Optional::new(c"PMPI_Comm_idup_with_info") };
    let Some(real) = REAL.get() else {
        // SAFETY: passed on, but for the hints.
        return unsafe { MPI_Comm_idup(comm, new, request) };
    };
    hold(comm);
    // SAFETY: passed on unchanged.
    unsafe { real(comm, info, new, request) }
}

//! Hints of the program for a communicator, MPI-4.1 section 7.4.4.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::real;
use crate::guard;
use crate::mpi::pmpi::Handle;
use crate::process;

/// The real MPI has given `comm` the hints in `info`.
fn take_hints(comm: Handle, info: Handle) {
    if let Some(process) = process::get() {
        guard::shielded_or_abort(|| process.take_hints(comm, info));
    }
}

/// MPI_Comm_set_info.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Comm_set_info(comm: Handle, info: Handle) -> c_int {
    // SAFETY: passed on unchanged.
    let code = unsafe { (real().comm_set_info)(comm, info) };
    if code == 0 {
        take_hints(comm, info);
    }
    code
}

/// MPI_Comm_dup_with_info.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Comm_dup_with_info(
    comm: Handle,
    info: Handle,
    new: *mut c_void,
) -> c_int {
    // SAFETY: passed on unchanged.
    let code = unsafe { (real().comm_dup_with_info)(comm, info, new.cast()) };
    if code == 0 {
        let made = |process: &process::Process| {
            // SAFETY: the MPI has just written a handle there.
            unsafe { process.mpi.abi.handle_at(new) }
        };
        if let Some(new) = process::get().map(made) {
            take_hints(new, info);
        }
    }
    code
}

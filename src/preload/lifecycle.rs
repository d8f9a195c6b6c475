//! The beginning of MPI. Its end is heard of by an attribute of MPI_COMM_SELF ([`crate::mpi::lifetime`]).
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use super::real;
use crate::guard;
use crate::process;

/// MPI_Init, MPI-4.1 section 11.2.1.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
    // SAFETY: passed on unchanged.
    let code = unsafe { (real().init)(argc, argv) };
    after_init();
    code
}

/// MPI_Init_thread, MPI-4.1 section 11.2.1.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Init_thread(
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> c_int {
    // SAFETY: passed on unchanged.
    let code = unsafe { (real().init_thread)(argc, argv, required, provided) };
    after_init();
    code
}

/// The real MPI has been asked to start.
pub fn after_init() {
    if let Some(process) = process::get()
        && process.mpi.is_initialized()
    {
        guard::shielded_or_abort(|| process.after_init());
    }
}

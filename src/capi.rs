//! The C interface of the library itself: `include/foldback.h` is made of this file by cbindgen.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use crate::{guard, process};

/// Release of foldback, such as "0.1.0". Static; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn foldback_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Whether collectives on MPI_COMM_WORLD are folded in the kernel: 1 or 0.
///
/// 0 before MPI_Init, after MPI_Finalize, with FOLDBACK=off, and wherever the set-up found a reason
/// to leave the job to MPI (which it logged). The answer is the same on all ranks.
#[unsafe(no_mangle)]
pub extern "C" fn foldback_is_active() -> c_int {
    guard::shielded(0, || c_int::from(process::get().is_some_and(process::Process::world_folds)))
}

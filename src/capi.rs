//! The C interface of the library itself: `include/foldback.h` is made of this file by cbindgen.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

use crate::{guard, process};

/// A communicator's handle, of whichever MPI.
#[allow(non_camel_case_types)]
pub type MPI_Comm = usize;

/// Release of foldback, such as "0.1.0". Static; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn foldback_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Whether collectives on MPI_COMM_WORLD are folded in the kernel: 1 or 0.
///
/// It is 0 before MPI_Init, before enough calls have made a group (FOLDBACK_SETUP_CALLS), after MPI_Finalize, and with
/// FOLDBACK=off. It is also 0 where the set-up found a reason to leave the job to MPI (which it logged). The answer is
/// the same on all ranks after the same collective call.
#[unsafe(no_mangle)]
pub extern "C" fn foldback_is_active() -> c_int {
    guard::shielded(0, || c_int::from(process::get().is_some_and(process::Process::world_folds)))
}

/// Has sums of floating point on a communicator quantized from now on: `how` is what FOLDBACK_QUANTIZE may
/// be, such as "int16,block=64", or "off"; NULL: as the environment says.
///
/// Collective over `comm`. The remainder of earlier sums (`,error_feedback`) is forgotten. MPI_Comm_set_info and
/// MPI_Comm_dup_with_info do the same by the key "foldback_quantize".
///
/// Returns 0; or, on all ranks alike, 1 if nothing has changed: `how` is nonsense, or not the same on all
/// ranks (a line in the log says so), or `comm` is left to MPI.
///
/// # Safety
/// `comm` is a communicator of the program's MPI, `how` a string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foldback_comm_set_quantize(comm: MPI_Comm, how: *const c_char) -> c_int {
    // SAFETY: a string, as demanded of this function.
    let how = (!how.is_null()).then(|| unsafe { CStr::from_ptr(how) }.to_string_lossy());
    let Some(process) = process::get() else { return 1 };
    guard::shielded_or_abort(|| c_int::from(!process.set_quantize(comm, how.as_deref())))
}

/// Forgets, on this rank, what sums on a communicator have left out so far (`,error_feedback`), as where a
/// model is loaded anew.
#[unsafe(no_mangle)]
pub extern "C" fn foldback_comm_clear_error_feedback(comm: MPI_Comm) {
    if let Some(process) = process::get() {
        guard::shielded((), || process.clear_error_feedback(comm));
    }
}

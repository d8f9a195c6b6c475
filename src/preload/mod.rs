//! Between the program and its MPI: the functions that a program calls in place of its MPI's.
//!
//! Each asks the [`Process`](crate::process::Process) and, if the answer is no, passes the call on unchanged. None is
//! exported whose presence tells a program something about its MPI (`MPI_Get_version`, `MPI_Abi_*`, …).

#![allow(unsafe_code)]

mod collectives;
mod duplicates;
mod fortran;
mod freeing;
mod get_status;
mod hints;
pub mod lifecycle;
pub mod own;
mod topologies;
mod waits;

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use crate::call::{Call, Form};
use crate::dispatch::{self, After};
use crate::guard;
use crate::mpi::abi::Family;
use crate::mpi::pmpi::Pmpi;
use crate::process;

/// A C string from what `concat!` makes. Panics, when compiled, if it does not end with a zero.
const fn symbol(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(symbol) => symbol,
        Err(_) => panic!("no C string"),
    }
}

/// Functions of the real MPI, for a process that foldback otherwise leaves alone.
fn real() -> &'static Pmpi {
    static REAL: OnceLock<Pmpi> = OnceLock::new();
    match process::get() {
        Some(process) => &process.mpi.pmpi,
        None => REAL.get_or_init(|| {
            Pmpi::load().unwrap_or_else(|missing| {
                log::error!("{missing}");
                std::process::abort()
            })
        }),
    }
}

/// The family of the real MPI; `None`: it is unknown.
fn family() -> Option<Family> {
    static FAMILY: OnceLock<Option<Family>> = OnceLock::new();
    match process::get() {
        Some(process) => Some(process.mpi.abi.family),
        None => *FAMILY.get_or_init(|| Family::of(real(), &real().library_version())),
    }
}

/// Folds a collective; `Err` if it is the real MPI's: [`after_mpi`] wants to hear of its end.
///
/// # Safety
/// *Arguments* and *buffers* of the [program](crate::mpi).
#[inline(never)]
unsafe fn fold(form: Form, call: &Call, request: *mut c_void) -> Result<c_int, AfterMpi> {
    let Some(process) = process::get() else { return Err(None) };
    // A panic before anything was sent would be a call for MPI; but nobody can tell from here.
    let folded =
        // SAFETY: as demanded of this function.
        guard::shielded_or_abort(|| unsafe { dispatch::collective(process, form, call, request) });
    // One that does not block lets others come to their end.
    if folded.as_ref().is_ok_and(|code| *code != 0 || form != Form::Blocking) {
        process.mpi.handle_errors();
    }
    folded
}

/// The work that is left when the real MPI has done a call, if there is any.
type AfterMpi = Option<Box<After>>;

/// The real MPI has done it, and returned `code`.
#[inline]
fn after_mpi(after: AfterMpi, code: c_int) {
    if let Some(after) = after {
        finish(after, code);
    }
}

/// Does it. Seldom, so no exported function has this in it.
#[inline(never)]
fn finish(after: Box<After>, code: c_int) {
    guard::shielded_or_abort(|| after.finish(code));
}

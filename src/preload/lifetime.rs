//! Hearing of the end of communicators, and of MPI: by attributes, whose delete callbacks MPI calls.
//!
//! MPI-4.1 sections 7.7.2 and 11.4.1: an attribute of MPI_COMM_SELF is deleted first thing in
//! MPI_Finalize, when MPI still works. That holds for every language and every path to it.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use super::guard;
use crate::mpi::pmpi::Handle;
use crate::runtime::{self, Runtime};

static KEYVAL: OnceLock<Option<c_int>> = OnceLock::new();

/// Has [`Runtime::forget`] called when `comm` is freed. `None`: that cannot be had.
pub fn watch(runtime: &Runtime, comm: Handle) -> Option<()> {
    if comm == runtime.mpi.abi.comm_world || comm == runtime.mpi.abi.comm_self {
        return Some(());
    }
    attach(runtime, comm)
}

/// Has [`Runtime::finishing`] called when MPI is finalised.
pub fn watch_self(runtime: &Runtime) {
    if attach(runtime, runtime.mpi.abi.comm_self).is_none() {
        log::warn!("the end of the job will go unnoticed: no attribute on MPI_COMM_SELF");
    }
}

fn attach(runtime: &Runtime, comm: Handle) -> Option<()> {
    let keyval = (*KEYVAL.get_or_init(|| {
        let mut keyval: c_int = 0;
        // SAFETY: the callbacks have MPI's signatures and live as long as the process.
        let code = unsafe {
            (runtime.mpi.pmpi.comm_create_keyval)(copy, delete, &raw mut keyval, null_mut())
        };
        (code == 0).then_some(keyval)
    }))?;
    // SAFETY: a live communicator and our own keyval; the value is never looked at.
    let code = unsafe { (runtime.mpi.pmpi.comm_set_attr)(comm, keyval, null_mut()) };
    (code == 0).then_some(())
}

/// A duplicate is a communicator of its own: nothing is passed on.
extern "C" fn copy(
    _comm: Handle,
    _keyval: c_int,
    _extra: *mut c_void,
    _value: *mut c_void,
    _out: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: MPI passes an int to be written.
    unsafe { *flag = 0 };
    0
}

extern "C" fn delete(
    comm: Handle,
    _keyval: c_int,
    _value: *mut c_void,
    _extra: *mut c_void,
) -> c_int {
    guard::shielded((), || {
        let Some(runtime) = runtime::get() else { return };
        let comm = runtime.mpi.abi.handle(comm);
        if comm == runtime.mpi.abi.comm_self {
            runtime.finishing();
        } else {
            runtime.forget(comm);
        }
    });
    0
}

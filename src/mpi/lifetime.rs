//! Hearing of the end of communicators, and of MPI: by attributes, whose delete callbacks MPI calls.
//!
//! MPI-4.1 sections 7.7.2 and 11.4.1: an attribute of MPI_COMM_SELF is deleted first thing in
//! MPI_Finalize, when MPI still works. That holds for every language and every path to it.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::Mpi;
use super::pmpi::Handle;
use crate::guard;

/// Called with a communicator that is being freed; MPI_COMM_SELF: MPI is being finalised.
pub type Ended = fn(Handle);

impl Mpi {
    /// Has `ended`, always the same function, called when `comm` is freed. `None`: that cannot be had.
    pub fn watch(&self, comm: Handle, ended: Ended) -> Option<()> {
        let keyval = (*self.keyval.get_or_init(|| {
            let mut keyval: c_int = 0;
            let (keyval_, extra) = (&raw mut keyval, ended as *mut c_void);
            // SAFETY: the callbacks have MPI's signatures and live as long as the process.
            let code = unsafe { (self.pmpi.comm_create_keyval)(copy, delete, keyval_, extra) };
            (code == 0).then_some(keyval)
        }))?;
        // SAFETY: a live communicator and our own keyval; the value is never looked at.
        let code = unsafe { (self.pmpi.comm_set_attr)(comm, keyval, null_mut()) };
        (code == 0).then_some(())
    }
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
    extra: *mut c_void,
) -> c_int {
    // SAFETY: MPI hands back what the keyval was made with in `watch`, an `Ended`.
    let ended = unsafe { std::mem::transmute::<*mut c_void, Ended>(extra) };
    guard::shielded((), || ended(comm));
    0
}

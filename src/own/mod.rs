//! foldback's own collectives: made of MPI's, as a program calls them.
//!
//! So foldback folds these where that is faster, and the real MPI makes them elsewhere. The answers are the same with a
//! group, without one, and where foldback is off.

pub mod keys;
pub mod neighbors;
mod reduction;

use std::ffi::c_int;
use std::sync::OnceLock;

use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::mpi::types::Shape;
use crate::process;

/// A class of errors that has this number in every MPI: MPI_ERR_BUFFER.
const ERR_BUFFER: c_int = 1;
/// MPI_ERR_COUNT, in every MPI.
const ERR_COUNT: c_int = 2;
/// MPI_ERR_TYPE, in every MPI.
const ERR_TYPE: c_int = 3;

/// The MPI of this process, also where foldback is off; `None`: it is unknown.
fn mpi() -> Option<&'static Mpi> {
    static OWN: OnceLock<Option<Mpi>> = OnceLock::new();
    let load = || {
        let mpi = Mpi::load().ok()?;
        mpi.abi.learn_types();
        mpi.begin_asking();
        Some(mpi)
    };
    match process::get() {
        Some(process) => Some(&process.mpi),
        None => OWN.get_or_init(load).as_ref(),
    }
}

/// Tells the program's error handler of an error. Returns its code.
fn refuse(mpi: &Mpi, comm: Handle, code: c_int) -> c_int {
    mpi.handle_error(mpi.abi.handle(comm), code);
    mpi.handle_errors();
    code
}

/// Memory for bytes or words that the MPI writes. It has an address of its own also if there are none: where an empty
/// vector of Rust's would be, Open MPI has MPI_IN_PLACE.
fn room<T: Clone + Default>(length: usize) -> Vec<T> {
    let mut room = Vec::with_capacity(length.max(1));
    room.resize(length, T::default());
    room
}

/// How elements of a datatype lie in memory; `None`: the MPI refuses it.
fn shape_of(mpi: &Mpi, datatype: Handle) -> Option<Shape> {
    match mpi.abi.datatype(datatype) {
        Some(info) => Some(info.shape()),
        None => mpi.shape_of_derived(mpi.abi.handle(datatype)),
    }
}

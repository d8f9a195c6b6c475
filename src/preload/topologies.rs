//! Communicators that are made with a topology, MPI-4.1 section 8.5.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::fortran::no_function;
use super::symbol;
use crate::guard;
use crate::mpi::pmpi::{Handle, Optional};
use crate::process;

/// The real MPI has made `comm`, or MPI_COMM_NULL.
pub(super) fn made(comm: Handle) {
    if let Some(process) = process::get() {
        guard::shielded_or_abort(|| process.give_group(comm));
    }
}

/// An array of the program's.
type Ints = *const c_int;

macro_rules! makes {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {$(
        #[doc = concat!(stringify!($name), ".")]
        ///
        /// # Safety
        /// What MPI demands of the [program](crate::mpi).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $type,)* new: *mut c_void) -> c_int {
            static REAL: Optional<unsafe extern "C-unwind" fn($($type,)* *mut c_void) -> c_int> =
                // SAFETY: the type that the standard gives it.
                unsafe { Optional::new(symbol(concat!("P", stringify!($name), "\0"))) };
            let Some(real) = REAL.get() else { no_function(stringify!($name)) };
            // SAFETY: passed on unchanged.
            let code = unsafe { real($($arg,)* new) };
            if code == 0 && let Some(process) = process::get() {
                // SAFETY: the MPI has just written a handle there.
                made(unsafe { process.mpi.abi.handle_at(new) });
            }
            code
        }
    )*};
}

makes! {
    MPI_Cart_create(old: Handle, dimensions: c_int, sizes: Ints, wraps: Ints, reorder: c_int);
    MPI_Graph_create(old: Handle, nodes: c_int, index: Ints, edges: Ints, reorder: c_int);
    MPI_Dist_graph_create(
        old: Handle, nodes: c_int, sources: Ints, degrees: Ints, destinations: Ints, weights: Ints,
        info: Handle, reorder: c_int
    );
    MPI_Dist_graph_create_adjacent(
        old: Handle, sources: c_int, from: Ints, from_weights: Ints, destinations: c_int, to: Ints,
        to_weights: Ints, info: Handle, reorder: c_int
    );
}

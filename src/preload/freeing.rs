//! Communicators that the program frees, MPI-4.1 sections 7.4.3 and 11.10.4.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::fortran::no_function;
use super::symbol;
use crate::comm;
use crate::mpi::pmpi::Optional;
use crate::process;

macro_rules! frees {
    ($($name:ident;)*) => {$(
        #[doc = concat!(stringify!($name), ".")]
        ///
        /// # Safety
        /// What MPI demands of the [program](crate::mpi).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(comm: *mut c_void) -> c_int {
            static REAL: Optional<unsafe extern "C-unwind" fn(*mut c_void) -> c_int> =
                // SAFETY: the type that the standard gives it.
                unsafe { Optional::new(symbol(concat!("P", stringify!($name), "\0"))) };
            let Some(real) = REAL.get() else { no_function(stringify!($name)) };
            // SAFETY: passed on unchanged.
            let free = || unsafe { real(comm) };
            match process::get() {
                Some(process) if !comm.is_null() => {
                    // SAFETY: an argument of the program's: a handle.
                    let handle = unsafe { process.mpi.abi.handle_at(comm) };
                    comm::freeing(process.mpi.abi.handle(handle), free)
                }
                _ => free(),
            }
        }
    )*};
}

frees! {
    MPI_Comm_free;
    MPI_Comm_disconnect;
}

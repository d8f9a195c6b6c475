//! Persistent collectives that foldback does not take on, for Open MPI 4, which has them by the names of
//! an extension (`MPIX_…_init`) only.
//!
//! A program that looks for the standard's names there finds foldback's, of the collectives that it takes on. It
//! expects the others as well (mpi4py looks for one of them and uses all).
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::process::abort;

use super::symbol;
use crate::mpi::pmpi::{Handle, Optional};

type Buf = *const c_void;
/// Of counts or displacements.
type Array = *const c_void;
/// A program's array of datatypes.
type Types = *const c_void;
type Request = *mut c_void;

/// One function, which calls the standard's, or else the extension's.
macro_rules! pass_on {
    ($function:ident = $name:literal, ($($arg:ident: $type:ty),*)) => {
        /// As MPI-4.1 chapters 6 and 8 have it.
        ///
        /// # Safety
        /// What MPI demands of the [program](crate::mpi).
        #[unsafe(export_name = concat!("MPI_", $name, "_init"))]
        pub unsafe extern "C-unwind" fn $function(
            $($arg: $type,)* comm: Handle, info: Handle, request: Request
        ) -> c_int {
            static REAL: Optional<
                unsafe extern "C-unwind" fn($($type,)* Handle, Handle, Request) -> c_int,
            // SAFETY: the type that the standard gives both.
            > = unsafe {
                Optional::either(
                    symbol(concat!("PMPI_", $name, "_init\0")),
                    symbol(concat!("PMPIX_", $name, "_init\0")),
                )
            };
            let Some(real) = REAL.get() else {
                log::error!("the MPI of this program has no MPI_{}_init", $name);
                abort()
            };
            // SAFETY: passed on unchanged.
            unsafe { real($($arg,)* comm, info, request) }
        }
    };
}

pass_on!(gatherv = "Gatherv", (
    send: Buf, send_count: c_int, send_type: Handle,
    recv: Buf, counts: Array, displs: Array, recv_type: Handle, root: c_int
));
pass_on!(scatterv = "Scatterv", (
    send: Buf, counts: Array, displs: Array, send_type: Handle,
    recv: Buf, recv_count: c_int, recv_type: Handle, root: c_int
));
pass_on!(alltoallv = "Alltoallv", (
    send: Buf, send_counts: Array, send_displs: Array, send_type: Handle,
    recv: Buf, recv_counts: Array, recv_displs: Array, recv_type: Handle
));
pass_on!(alltoallw = "Alltoallw", (
    send: Buf, send_counts: Array, send_displs: Array, send_types: Types,
    recv: Buf, recv_counts: Array, recv_displs: Array, recv_types: Types
));
pass_on!(neighbor_allgather = "Neighbor_allgather", (
    send: Buf, send_count: c_int, send_type: Handle,
    recv: Buf, recv_count: c_int, recv_type: Handle
));
pass_on!(neighbor_allgatherv = "Neighbor_allgatherv", (
    send: Buf, send_count: c_int, send_type: Handle,
    recv: Buf, counts: Array, displs: Array, recv_type: Handle
));
pass_on!(neighbor_alltoall = "Neighbor_alltoall", (
    send: Buf, send_count: c_int, send_type: Handle,
    recv: Buf, recv_count: c_int, recv_type: Handle
));
pass_on!(neighbor_alltoallv = "Neighbor_alltoallv", (
    send: Buf, send_counts: Array, send_displs: Array, send_type: Handle,
    recv: Buf, recv_counts: Array, recv_displs: Array, recv_type: Handle
));
pass_on!(neighbor_alltoallw = "Neighbor_alltoallw", (
    send: Buf, send_counts: Array, send_displs: Array, send_types: Types,
    recv: Buf, recv_counts: Array, recv_displs: Array, recv_types: Types
));

//! The MPI functions that a program calls in place of its MPI's.
//!
//! Each asks [`crate::dispatch`] and, if the answer is no, passes the call on unchanged.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::process::abort;

use crate::config::Collective;
use crate::guard;
use crate::mpi::pmpi::{Handle, Pmpi};
use crate::runtime::{self, Runtime};
use crate::stats::{Reason, Way};

/// Functions of the real MPI, for a process that foldback otherwise leaves alone.
fn real() -> &'static Pmpi {
    static REAL: std::sync::OnceLock<Pmpi> = std::sync::OnceLock::new();
    match runtime::get() {
        Some(runtime) => &runtime.mpi.pmpi,
        None => REAL.get_or_init(|| {
            Pmpi::load().unwrap_or_else(|missing| {
                log::error!("{missing}");
                abort()
            })
        }),
    }
}

/// Dispatches a collective; `None` if it is the real MPI's. Bytes are counted for folds, and for
/// what was too large for one.
#[inline]
fn dispatch(
    collective: Collective,
    call: impl FnOnce(&Runtime) -> Result<c_int, Reason>,
    bytes: impl FnOnce(&Runtime) -> usize,
) -> Option<c_int> {
    let runtime = runtime::get()?;
    // A panic before anything was sent would be a call for MPI; but nobody can tell from here.
    let result = guard::shielded_or_abort(|| call(runtime));
    let way: Way = result.map(|_| ());
    let counted = matches!(way, Ok(()) | Err(Reason::TooLarge | Reason::NotYet | Reason::NoGroup));
    runtime.calls.count(collective, way, if counted { bytes(runtime) } else { 0 });
    result.ok()
}

fn bytes_of(runtime: &Runtime, count: c_int, datatype: Handle) -> usize {
    let size = match runtime.mpi.abi.datatype(datatype) {
        Some(known) => usize::from(known.size),
        None => runtime.mpi.type_size(runtime.mpi.abi.handle(datatype)).unwrap_or(0),
    };
    usize::try_from(count).unwrap_or(0) * size
}

/// MPI_Init, MPI-4.1 section 11.2.1.
///
/// # Safety
/// As the standard says; so for all functions here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
    // SAFETY: passed on unchanged.
    let code = unsafe { (real().init)(argc, argv) };
    started(code);
    code
}

/// MPI_Init_thread, MPI-4.1 section 11.2.1.
///
/// # Safety
/// See [`MPI_Init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Init_thread(
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> c_int {
    // SAFETY: passed on unchanged.
    let code = unsafe { (real().init_thread)(argc, argv, required, provided) };
    started(code);
    code
}

fn started(code: c_int) {
    if code == 0
        && let Some(runtime) = runtime::get()
    {
        guard::shielded_or_abort(|| runtime.started());
    }
}

/// MPI_Allreduce, MPI-4.1 section 6.9.6.
///
/// # Safety
/// See [`MPI_Init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Allreduce(
    send: *const c_void,
    recv: *mut c_void,
    count: c_int,
    datatype: Handle,
    op: Handle,
    comm: Handle,
) -> c_int {
    dispatch(
        Collective::Allreduce,
        // SAFETY: the program's arguments.
        |runtime| unsafe { runtime.allreduce((send, recv), count, datatype, op, comm) },
        |runtime| bytes_of(runtime, count, datatype),
    )
    // SAFETY: passed on unchanged.
    .unwrap_or_else(|| unsafe { (real().allreduce)(send, recv, count, datatype, op, comm) })
}

/// MPI_Reduce, MPI-4.1 section 6.9.1.
///
/// # Safety
/// See [`MPI_Init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Reduce(
    send: *const c_void,
    recv: *mut c_void,
    count: c_int,
    datatype: Handle,
    op: Handle,
    root: c_int,
    comm: Handle,
) -> c_int {
    dispatch(
        Collective::Reduce,
        // SAFETY: the program's arguments.
        |runtime| unsafe { runtime.reduce((send, recv), count, datatype, op, root, comm) },
        |runtime| bytes_of(runtime, count, datatype),
    )
    // SAFETY: passed on unchanged.
    .unwrap_or_else(|| unsafe { (real().reduce)(send, recv, count, datatype, op, root, comm) })
}

/// MPI_Bcast, MPI-4.1 section 6.4.
///
/// # Safety
/// See [`MPI_Init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Bcast(
    data: *mut c_void,
    count: c_int,
    datatype: Handle,
    root: c_int,
    comm: Handle,
) -> c_int {
    dispatch(
        Collective::Bcast,
        // SAFETY: the program's arguments.
        |runtime| unsafe { runtime.bcast(data, count, datatype, root, comm) },
        |runtime| bytes_of(runtime, count, datatype),
    )
    // SAFETY: passed on unchanged.
    .unwrap_or_else(|| unsafe { (real().bcast)(data, count, datatype, root, comm) })
}

/// MPI_Barrier, MPI-4.1 section 6.3.
///
/// # Safety
/// See [`MPI_Init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Barrier(comm: Handle) -> c_int {
    dispatch(Collective::Barrier, |runtime| runtime.barrier(comm), |_| 0)
        // SAFETY: passed on unchanged.
        .unwrap_or_else(|| unsafe { (real().barrier)(comm) })
}

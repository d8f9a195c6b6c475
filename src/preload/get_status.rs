//! `MPI_Request_get_status_any`, `_all` and `_some`, MPI-4.1 section 3.7.6.
//!
//! A program that spins on one has to see folded requests complete. Programs that look for these functions find them
//! even with MPIs older than MPI-4.1, because foldback exports them. There each is made of the MPI's
//! `MPI_Request_get_status`, as mpi4py does for itself. It cannot tell a persistent request that is not active from one
//! that is complete.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::process::abort;
use std::sync::OnceLock;

use super::real;
use super::waits::progress_once;
use crate::mpi::abi::Abi;
use crate::mpi::pmpi::{Handle, Optional};
use crate::process;

type Requests = *const c_void;
type Statuses = *mut c_void;

/// MPI_UNDEFINED, of all MPIs.
const UNDEFINED: c_int = -32766;

fn abi() -> &'static Abi {
    static ABI: OnceLock<Abi> = OnceLock::new();
    match process::get() {
        Some(process) => &process.mpi.abi,
        None => ABI.get_or_init(|| {
            Abi::detect(real()).unwrap_or_else(|error| {
                log::error!("MPI_Request_get_status: {error}");
                abort()
            })
        }),
    }
}

/// An MPI error, not 0.
type Failure = c_int;

/// The requests of a call, and where their statuses go: arrays of the program's, as [`Asked::new`] demands.
struct Asked {
    abi: &'static Abi,
    requests: Requests,
    statuses: Statuses,
    count: usize,
}

impl Asked {
    /// # Safety
    /// *Arguments* of the [program](crate::mpi): as many requests, and as many statuses, or one for all, or none.
    unsafe fn new(count: c_int, requests: Requests, statuses: Statuses) -> Self {
        Self { abi: abi(), requests, statuses, count: usize::try_from(count).unwrap_or(0) }
    }

    /// The requests that are not null, with their indices.
    fn real(&self) -> impl Iterator<Item = (usize, Handle)> {
        let all = (0..self.count).map(|index| (index, self.handle(index)));
        all.filter(|&(_, request)| request != self.abi.request_null)
    }

    fn handle(&self, index: usize) -> Handle {
        // SAFETY: the array has so many.
        let request = unsafe { self.abi.request_at(self.requests, index) };
        self.abi.handle(usize::try_from(request).unwrap_or(usize::MAX))
    }

    /// Status `index` of the array.
    fn status(&self, index: usize) -> Statuses {
        if self.statuses as usize == self.abi.status_ignore {
            return self.statuses;
        }
        self.statuses.wrapping_byte_add(index * self.abi.status_size)
    }
}

/// Whether a request is complete, with its status if so.
///
/// # Safety
/// A request and a status, or none, of the [program](crate::mpi).
unsafe fn is_complete(request: Handle, status: Statuses) -> Result<bool, Failure> {
    let mut flag: c_int = 0;
    // SAFETY: as demanded of this function; a flag of ours.
    match unsafe { (real().request_get_status)(request, &raw mut flag, status) } {
        0 => Ok(flag != 0),
        code => Err(code),
    }
}

/// The first that is complete, or MPI_UNDEFINED if there is none to wait for. None: none yet.
fn any(asked: &Asked) -> Result<Option<c_int>, Failure> {
    let mut waits = false;
    for (index, request) in asked.real() {
        // SAFETY: a request of the call's, and its only status.
        if unsafe { is_complete(request, asked.statuses) }? {
            return Ok(c_int::try_from(index).ok());
        }
        waits = true;
    }
    if waits {
        return Ok(None);
    }
    // An empty status is that of the null request, where Open MPI leaves the error out.
    // SAFETY: the call's only status.
    unsafe { is_complete(asked.abi.request_null, asked.statuses) }?;
    if asked.statuses as usize != asked.abi.status_ignore {
        // SAFETY: a status of the program's, which has its error there.
        unsafe { *asked.statuses.byte_add(asked.abi.status_error).cast::<c_int>() = 0 };
    }
    Ok(Some(UNDEFINED))
}

/// Whether all are complete. Statuses are written then only.
fn all(asked: &Asked) -> Result<bool, Failure> {
    let ignored = std::ptr::without_provenance_mut(asked.abi.status_ignore);
    for (_, request) in asked.real() {
        // SAFETY: a request of the call's.
        if !unsafe { is_complete(request, ignored) }? {
            return Ok(false);
        }
    }
    for index in 0..asked.count {
        // SAFETY: a request of the call's, and its status.
        unsafe { is_complete(asked.handle(index), asked.status(index)) }?;
    }
    Ok(true)
}

/// The number of complete requests, with their indices; or MPI_UNDEFINED if there is none to wait for.
///
/// # Safety
/// There is room for as many indices as requests.
unsafe fn some(asked: &Asked, indices: *mut c_int) -> Result<c_int, Failure> {
    let (mut waits, mut done) = (false, 0);
    for (index, request) in asked.real() {
        waits = true;
        // SAFETY: a request of the call's, and the next status.
        if unsafe { is_complete(request, asked.status(done)) }? {
            // SAFETY: no more have been found than there are requests.
            unsafe { *indices.add(done) = c_int::try_from(index).unwrap_or(c_int::MAX) };
            done += 1;
        }
    }
    Ok(if waits { c_int::try_from(done).unwrap_or(c_int::MAX) } else { UNDEFINED })
}

/// MPI_Request_get_status_any.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Request_get_status_any(
    count: c_int,
    requests: Requests,
    index: *mut c_int,
    flag: *mut c_int,
    status: Statuses,
) -> c_int {
    type ReportAny =
        unsafe extern "C-unwind" fn(c_int, Requests, *mut c_int, *mut c_int, Statuses) -> c_int;
    // SAFETY: the type that the standard gives it.
    static REAL: Optional<ReportAny> = unsafe { Optional::new(c"PMPI_Request_get_status_any") };

    progress_once();
    if let Some(real) = REAL.get() {
        // SAFETY: passed on unchanged.
        return unsafe { real(count, requests, index, flag, status) };
    }
    // SAFETY: the program's arguments.
    match any(&unsafe { Asked::new(count, requests, status) }) {
        Ok(found) => {
            // SAFETY: the program's own two integers.
            unsafe { (*flag, *index) = (c_int::from(found.is_some()), found.unwrap_or(UNDEFINED)) };
            0
        }
        Err(code) => code,
    }
}

/// MPI_Request_get_status_all.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Request_get_status_all(
    count: c_int,
    requests: Requests,
    flag: *mut c_int,
    statuses: Statuses,
) -> c_int {
    type ReportAll = unsafe extern "C-unwind" fn(c_int, Requests, *mut c_int, Statuses) -> c_int;
    // SAFETY: the type that the standard gives it.
    static REAL: Optional<ReportAll> = unsafe { Optional::new(c"PMPI_Request_get_status_all") };

    progress_once();
    if let Some(real) = REAL.get() {
        // SAFETY: passed on unchanged.
        return unsafe { real(count, requests, flag, statuses) };
    }
    // SAFETY: the program's arguments.
    match all(&unsafe { Asked::new(count, requests, statuses) }) {
        Ok(complete) => {
            // SAFETY: the program's own integer.
            unsafe { *flag = c_int::from(complete) };
            0
        }
        Err(code) => code,
    }
}

/// MPI_Request_get_status_some.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Request_get_status_some(
    count: c_int,
    requests: Requests,
    done: *mut c_int,
    indices: *mut c_int,
    statuses: Statuses,
) -> c_int {
    type ReportSome =
        unsafe extern "C-unwind" fn(c_int, Requests, *mut c_int, *mut c_int, Statuses) -> c_int;
    // SAFETY: the type that the standard gives it.
    static REAL: Optional<ReportSome> = unsafe { Optional::new(c"PMPI_Request_get_status_some") };

    progress_once();
    if let Some(real) = REAL.get() {
        // SAFETY: passed on unchanged.
        return unsafe { real(count, requests, done, indices, statuses) };
    }
    // SAFETY: the program's own array, as long as the standard says.
    match unsafe { some(&Asked::new(count, requests, statuses), indices) } {
        Ok(complete) => {
            // SAFETY: the program's own integer.
            unsafe { *done = complete };
            0
        }
        Err(code) => code,
    }
}

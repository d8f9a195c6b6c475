//! Starting, waiting and testing. Requests of folded collectives are real requests, which the real MPI waits for
//! as it does for others; but somebody has to complete them, and that is done here.
//!
//! While nothing folded is under way, calls are passed on. Else a wait is a loop of tests, between which
//! what is under way goes on. MPI-4.1 sections 3.7.3 and 3.7.5.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::real;
use crate::dispatch::{free_persistent, start_persistent};
use crate::guard;
use crate::process::{self, Process};

/// The process, if folded collectives are under way in this process.
#[inline]
pub fn process_with_requests() -> Option<&'static Process> {
    process::get().filter(|process| process.requests.any())
}

/// Lets what is under way go on, once.
#[inline]
pub fn progress_once() {
    if let Some(process) = process_with_requests() {
        progress(process);
    }
}

/// Lets collectives go on, and has errors handled. Returns the number that ended, and whether anything moved.
fn progress(process: &Process) -> (usize, bool) {
    let (ended, moved) = guard::shielded_or_abort(|| process.requests.progress(&process.mpi));
    if ended > 0 {
        process.mpi.handle_errors();
    }
    (ended, moved)
}

/// Turns of a wait from one test of the real MPI to the next. Tests let it progress, which costs. An MPI_Iallreduce of
/// 8 KiB between 4 hosts takes 44 µs with one in 8 or in 64, and 46 with one in each.
const TURNS: u32 = 8;

/// Calls `test` until it says that the wait is over, or until nothing folded is under way any more:
/// then the real wait does as well.
pub fn wait_by_tests(mut test: impl FnMut() -> Option<c_int>) -> Option<c_int> {
    process_with_requests()?;
    let mut waiter =
        guard::shielded_or_abort(|| process_with_requests().and_then(Process::waiter))?;
    let mut turns = 0u32;
    while let Some(process) = process_with_requests() {
        let (ended, moved) = progress(process);
        if (ended > 0 || turns.is_multiple_of(TURNS))
            && let Some(code) = test()
        {
            return Some(code);
        }
        turns = turns.wrapping_add(1);
        if moved {
            waiter.made_progress();
        }
        waiter.wait_a_turn();
    }
    None
}

type Statuses = *mut c_void;
type Requests = *mut u64;

/// Waits until no request of an array is of a folded collective that is still under way. All else is left
/// for the real MPI to look at: MPICH 4.0's MPI_Testall does not take inactive requests, and MPICH 5.0's
/// MPI_Request_get_status forgets what a persistent receive has brought.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi): as many requests.
unsafe fn await_folded(count: c_int, requests: *mut c_void) {
    wait_by_tests(|| {
        let process = process::get()?;
        let open = process.requests.open_ones();
        let over = (0..usize::try_from(count).unwrap_or(0)).all(|index| {
            // SAFETY: one of the requests.
            let request = unsafe { process.mpi.abi.request_at(requests, index) };
            !open.handles.contains(&request)
        });
        over.then_some(0)
    });
}

/// MPI_Wait, MPI-4.1 section 3.7.3.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Wait(request: Requests, status: Statuses) -> c_int {
    // SAFETY: the program's request; it is passed on unchanged.
    unsafe {
        await_folded(1, request.cast());
        (real().wait)(request, status)
    }
}

/// MPI_Waitall, MPI-4.1 section 3.7.5.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Waitall(
    count: c_int,
    requests: Requests,
    statuses: Statuses,
) -> c_int {
    // SAFETY: the program's requests; they are passed on unchanged.
    unsafe {
        await_folded(count, requests.cast());
        (real().waitall)(count, requests, statuses)
    }
}

/// MPI_Waitany, MPI-4.1 section 3.7.5.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Waitany(
    count: c_int,
    requests: Requests,
    index: *mut c_int,
    status: Statuses,
) -> c_int {
    wait_by_tests(|| {
        let mut flag: c_int = 0;
        // SAFETY: the program's arguments, and a flag of ours.
        let code = unsafe { (real().testany)(count, requests, index, &raw mut flag, status) };
        (code != 0 || flag != 0).then_some(code)
    })
    // SAFETY: passed on unchanged.
    .unwrap_or_else(|| unsafe { (real().waitany)(count, requests, index, status) })
}

/// MPI_Waitsome, MPI-4.1 section 3.7.5.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Waitsome(
    count: c_int,
    requests: Requests,
    done: *mut c_int,
    indices: *mut c_int,
    statuses: Statuses,
) -> c_int {
    wait_by_tests(|| {
        // SAFETY: the program's arguments; `done` is written: 0 if none was, MPI_UNDEFINED if there
        // is nothing to wait for.
        unsafe {
            let code = (real().testsome)(count, requests, done, indices, statuses);
            (code != 0 || *done != 0).then_some(code)
        }
    })
    // SAFETY: passed on unchanged.
    .unwrap_or_else(|| unsafe { (real().waitsome)(count, requests, done, indices, statuses) })
}

/// A function that tests.
macro_rules! test {
    ($name:ident, $real:ident($($arg:ident: $type:ty),*)) => {
        /// MPI-4.1 section 3.7.
        ///
        /// # Safety
        /// What MPI demands of the [program](crate::mpi).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
            progress_once();
            // SAFETY: passed on unchanged.
            unsafe { (real().$real)($($arg),*) }
        }
    };
}

test!(MPI_Test, test(request: Requests, flag: *mut c_int, status: Statuses));
test!(MPI_Testall, testall(count: c_int, requests: Requests, flag: *mut c_int, statuses: Statuses));
test!(MPI_Testany, testany(
    count: c_int, requests: Requests, index: *mut c_int, flag: *mut c_int, status: Statuses
));
test!(MPI_Testsome, testsome(
    count: c_int, requests: Requests, done: *mut c_int, indices: *mut c_int, statuses: Statuses
));
test!(MPI_Request_get_status, request_get_status(
    request: usize, flag: *mut c_int, status: Statuses
));

/// MPI_Start, MPI-4.1 sections 3.9 and 6.13.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Start(request: Requests) -> c_int {
    // SAFETY: the program's request, which is passed on unchanged if it is no folded collective's.
    unsafe { start(request).unwrap_or_else(|| (real().start)(request)) }
}

/// Starts a persistent collective that is folded.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi): a request.
pub unsafe fn start(request: Requests) -> Option<c_int> {
    let process = process::get()?;
    let code =
        // SAFETY: as demanded of this function.
        guard::shielded_or_abort(|| unsafe { start_persistent(process, request.cast()) })?;
    // Others may have come to their end.
    process.mpi.handle_errors();
    Some(code)
}

/// MPI_Startall, MPI-4.1 section 3.9.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Startall(count: c_int, requests: Requests) -> c_int {
    let Some(process) = process::get().filter(|process| process.requests.persistent.any()) else {
        // SAFETY: passed on unchanged.
        return unsafe { (real().startall)(count, requests) };
    };
    for index in 0..usize::try_from(count).unwrap_or(0) {
        let request = process.mpi.abi.request_address(requests.cast(), index);
        // SAFETY: one of the program's requests.
        let code = unsafe { MPI_Start(request.cast()) };
        if code != 0 {
            return code;
        }
    }
    0
}

/// MPI_Request_free, MPI-4.1 sections 3.7.3 and 6.13.
///
/// # Safety
/// What MPI demands of the [program](crate::mpi).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Request_free(request: Requests) -> c_int {
    if let Some(process) = process::get() {
        // SAFETY: the program's request.
        guard::shielded_or_abort(|| unsafe { free_persistent(process, request.cast()) });
    }
    // SAFETY: passed on unchanged.
    unsafe { (real().request_free)(request) }
}

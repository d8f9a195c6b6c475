//! The calls of Fortran, which passes addresses of INTEGERs, for handles as for counts.
//!
//! Open MPI's Fortran never calls the C functions that programs call, not even to initialise, so its own
//! functions are interposed: `mpi_allreduce_` (mpif.h and `use mpi`) and `mpi_allreduce_f08_` (`use
//! mpi_f08`). MPICH's calls them, but for some of `use mpi_f08`: those without buffers.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use super::duplicates::hold;
use super::freeing::{MPI_Comm_disconnect, MPI_Comm_free};
use super::hints::{MPI_Comm_dup_with_info, MPI_Comm_set_info};
use super::lifecycle::after_init;
use super::symbol;
use super::topologies::made;
use super::waits::{
    process_with_requests, progress_once, start as start_persistent, wait_by_tests,
};
use crate::call::Types;
use crate::dispatch::free_persistent;
use crate::guard;
use crate::mpi::abi::Family;
use crate::mpi::pmpi::{FromFortran, Handle, Optional, variable};
use crate::process::{self, Process};

/// An INTEGER, or a handle of `use mpi_f08`, which is one.
pub type Integer = *const c_int;
/// One that is written. `use mpi_f08` passes null where the program leaves `ierror` out.
pub type IntegerOut = *mut c_int;

/// Handles and constants of Fortran, as C has them.
pub struct Fortran {
    /// `None`: an INTEGER is the handle.
    convert: Option<Converters>,
    in_place: usize,
    bottom: usize,
}

struct Converters {
    comm: FromFortran,
    datatype: FromFortran,
    op: FromFortran,
    info: FromFortran,
    request: FromFortran,
    comm_to: unsafe extern "C-unwind" fn(Handle) -> c_int,
    request_to: unsafe extern "C-unwind" fn(Handle) -> c_int,
}

/// The Fortran binding that a call comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// mpif.h and `use mpi`.
    Old,
    /// `use mpi_f08`.
    F08,
}

impl Fortran {
    /// For a call that the real function would not make by the C functions that we interpose; else
    /// `None`: that one is for the C function to look at.
    pub fn of(binding: Binding) -> Option<(&'static Process, &'static Self)> {
        static FORTRAN: OnceLock<Option<Fortran>> = OnceLock::new();
        let process = process::get()?;
        if binding == Binding::Old && process.mpi.abi.family != Family::OpenMpi {
            return None;
        }
        let fortran = FORTRAN.get_or_init(|| Self::load(process));
        Some((process, fortran.as_ref()?))
    }

    fn load(process: &Process) -> Option<Self> {
        let convert = match process.mpi.abi.family {
            Family::Mpich => None,
            // The standard ABI has other functions for this, and no Fortran library to try them on.
            Family::Standard => return None,
            Family::OpenMpi => {
                let from = |symbol| {
                    // SAFETY: the type that the standard gives these functions.
                    unsafe { Optional::<FromFortran>::new(symbol) }.get()
                };
                // SAFETY: the type that the standard gives them.
                let (request_to, comm_to) = unsafe {
                    let comm_to = Optional::new(c"PMPI_Comm_c2f").get()?;
                    (Optional::new(c"PMPI_Request_c2f").get()?, comm_to)
                };
                Some(Converters {
                    comm: from(c"PMPI_Comm_f2c")?,
                    datatype: from(c"PMPI_Type_f2c")?,
                    op: from(c"PMPI_Op_f2c")?,
                    info: from(c"PMPI_Info_f2c")?,
                    request: from(c"PMPI_Request_f2c")?,
                    comm_to,
                    request_to,
                })
            }
        };
        let constant = |symbol| variable(symbol).unwrap_or(0);
        let in_place = constant(c"mpi_fortran_in_place_");
        Some(Self { convert, in_place, bottom: constant(c"mpi_fortran_bottom_") })
    }

    fn convert(&self, handle: c_int, by: impl FnOnce(&Converters) -> FromFortran) -> Handle {
        match &self.convert {
            // SAFETY: the MPI checks the number.
            Some(converters) => unsafe { by(converters)(handle) },
            None => handle as u32 as Handle,
        }
    }

    pub fn comm(&self, handle: c_int) -> Handle {
        self.convert(handle, |converters| converters.comm)
    }

    pub fn datatype(&self, handle: c_int) -> Handle {
        self.convert(handle, |converters| converters.datatype)
    }

    /// An array of datatypes.
    pub fn types(&self, handles: *const c_void) -> Types {
        let from_fortran = self.convert.as_ref().map(|converters| converters.datatype);
        Types { handles, from_fortran }
    }

    pub fn op(&self, handle: c_int) -> Handle {
        self.convert(handle, |converters| converters.op)
    }

    fn request(&self, handle: c_int) -> u64 {
        self.convert(handle, |converters| converters.request) as u64
    }

    fn info(&self, handle: c_int) -> Handle {
        self.convert(handle, |converters| converters.info)
    }

    /// A communicator that C has made.
    fn comm_to(&self, comm: u64) -> c_int {
        match &self.convert {
            // SAFETY: a live communicator.
            Some(converters) => unsafe { (converters.comm_to)(comm as Handle) },
            None => comm as u32 as c_int,
        }
    }

    /// A request that C has made.
    pub fn request_to(&self, request: u64) -> c_int {
        match &self.convert {
            // SAFETY: a live request.
            Some(converters) => unsafe { (converters.request_to)(request as Handle) },
            None => request as u32 as c_int,
        }
    }

    /// A buffer. Fortran's MPI_IN_PLACE and MPI_BOTTOM are variables.
    pub fn buffer(&self, process: &Process, address: *mut c_void) -> *mut c_void {
        match address as usize {
            0 => address,
            at if at == self.in_place => process.mpi.abi.in_place as *mut c_void,
            at if at == self.bottom => std::ptr::null_mut(),
            _ => address,
        }
    }
}

/// Stores what a function returns, if the program wants to know.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi).
pub unsafe fn store(ierror: IntegerOut, code: c_int) {
    if !ierror.is_null() {
        // SAFETY: an argument of the program's: room for one integer.
        unsafe { *ierror = code };
    }
}

/// A function's return code, if the program wants to know it; else the MPI has ended the job where it failed.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi); the function has returned.
pub unsafe fn return_code(ierror: IntegerOut) -> c_int {
    // SAFETY: an argument of the program's, which the function has written, or null.
    unsafe { ierror.as_ref() }.copied().unwrap_or(0)
}

/// Ends the program, which could not have been linked.
pub fn no_function(name: &str) -> ! {
    log::error!("the MPI of this program has no {name}");
    std::process::abort()
}

/// One exported function: `before` runs first and may answer; else the real one does, and then `after`.
macro_rules! fortran {
    (
        $binding:ident, $function:ident = $export:expr, $real:expr,
        ($($arg:ident: $type:ty),*), $before:expr, $after:expr
    ) => {
        /// As the standard's Fortran binding has it.
        ///
        /// # Safety
        /// What MPI demands of the [program](crate::mpi).
        #[unsafe(export_name = $export)]
        pub unsafe extern "C-unwind" fn $function($($arg: $type),*) {
            static REAL: Optional<unsafe extern "C-unwind" fn($($type),*)> =
                // SAFETY: the type that the MPI's Fortran binding gives it.
                unsafe { Optional::fortran(symbol($real)) };
            // SAFETY: the program's arguments, which some look at.
            #[allow(unused_unsafe)]
            let answered: bool = unsafe { ($before)(Binding::$binding, $($arg),*) };
            if !answered {
                let Some(real) = REAL.get() else { no_function($export) };
                // SAFETY: passed on unchanged.
                unsafe { real($($arg),*) };
                // SAFETY: as above, when the real one has returned.
                #[allow(unused_unsafe)]
                unsafe {
                    ($after)(Binding::$binding, $($arg),*);
                }
            }
        }
    };
}

/// The same by the names that compilers give it: gfortran's, the name of g77 and f2c, and the name of `use mpi_f08`.
macro_rules! bindings {
    ($name:ident, ($($arg:ident: $type:ty),*), $before:expr) => {
        bindings!(
            $name, ($($arg: $type),*), $before, |_, $($arg: $type),*| { $(let _ = $arg;)* }
        );
    };
    ($name:ident, ($($arg:ident: $type:ty),*), $before:expr, $after:expr) => {
        mod $name {
            use super::*;
            fortran!(
                Old, old = concat!("mpi_", stringify!($name), "_"),
                concat!("mpi_", stringify!($name), "_\0"), ($($arg: $type),*), $before, $after
            );
            fortran!(
                Old, older = concat!("mpi_", stringify!($name), "__"),
                concat!("mpi_", stringify!($name), "_\0"), ($($arg: $type),*), $before, $after
            );
            fortran!(
                F08, f08 = concat!("mpi_", stringify!($name), "_f08_"),
                concat!("mpi_", stringify!($name), "_f08_\0"), ($($arg: $type),*), $before, $after
            );
        }
    };
}

type Status = *mut c_void;

/// Calls by which a loop waits.
type TestAny =
    unsafe extern "C-unwind" fn(Integer, IntegerOut, IntegerOut, IntegerOut, Status, IntegerOut);
type TestSome =
    unsafe extern "C-unwind" fn(Integer, IntegerOut, IntegerOut, IntegerOut, Status, IntegerOut);

/// Of which there are two, by binding.
struct Both<F>(Optional<F>, Optional<F>);

impl<F: Copy> Both<F> {
    fn get(&self, binding: Binding) -> Option<F> {
        if binding == Binding::Old { self.0.get() } else { self.1.get() }
    }
}

// SAFETY: the types that the MPI's Fortran binding gives them.
static TEST_ANY: Both<TestAny> =
    unsafe { Both(Optional::fortran(c"mpi_testany_"), Optional::fortran(c"mpi_testany_f08_")) };
// SAFETY: the types that the MPI's Fortran binding gives them.
static TEST_SOME: Both<TestSome> =
    unsafe { Both(Optional::fortran(c"mpi_testsome_"), Optional::fortran(c"mpi_testsome_f08_")) };

/// Waits until none of `count` requests is of a folded collective under way.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi): as many requests.
unsafe fn await_all(binding: Binding, count: c_int, requests: Integer) {
    if process_with_requests().is_some()
        && let Some((process, fortran)) = Fortran::of(binding)
    {
        wait_by_tests(|| {
            let open = process.requests.open_ones();
            let over = (0..usize::try_from(count).unwrap_or(0)).all(|index| {
                // SAFETY: arguments of the program's: `count` requests.
                let request = unsafe { *requests.add(index) };
                !open.handles.contains(&fortran.request(request))
            });
            over.then_some(0)
        });
    }
}

bindings!(wait, (request: IntegerOut, _status: Status, _ierror: IntegerOut),
|binding, request: IntegerOut, _, _| {
    await_all(binding, 1, request);
    false
});

bindings!(waitall, (count: Integer, requests: IntegerOut, _statuses: Status, _ierror: IntegerOut),
|binding, count: Integer, requests: IntegerOut, _, _| {
    await_all(binding, *count, requests);
    false
});

bindings!(waitany, (
    count: Integer, requests: IntegerOut, index: IntegerOut, status: Status, ierror: IntegerOut
), |binding, count, requests, index, status, ierror| {
    let (Some(_), Some(test)) = (process_with_requests().and(Fortran::of(binding)), TEST_ANY.get(binding)) else {
        return false;
    };
    wait_by_tests(|| {
        let mut flag: c_int = 0;
        test(count, requests, index, &raw mut flag, status, ierror);
        (flag != 0).then_some(0)
    })
    .is_some()
});

bindings!(waitsome, (
    count: Integer, requests: IntegerOut, done: IntegerOut, indices: IntegerOut, statuses: Status,
    ierror: IntegerOut
), |binding, count, requests, done: IntegerOut, indices, statuses, ierror| {
    let (Some(_), Some(test)) = (process_with_requests().and(Fortran::of(binding)), TEST_SOME.get(binding)) else {
        return false;
    };
    wait_by_tests(|| {
        test(count, requests, done, indices, statuses, ierror);
        (*done != 0).then_some(0)
    })
    .is_some()
});

/// Functions that test: what is under way goes on, and then they do.
macro_rules! tests {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {$(
        bindings!($name, ($($arg: $type),*), |binding, $($arg: $type),*| {
            $(let _ = $arg;)*
            if Fortran::of(binding).is_some() {
                progress_once();
            }
            false
        });
    )*};
}

tests! {
    test(a: IntegerOut, b: IntegerOut, c: Status, d: IntegerOut);
    testall(a: Integer, b: IntegerOut, c: IntegerOut, d: Status, e: IntegerOut);
    testany(a: Integer, b: IntegerOut, c: IntegerOut, d: IntegerOut, e: Status, f: IntegerOut);
    testsome(a: Integer, b: IntegerOut, c: IntegerOut, d: IntegerOut, e: Status, f: IntegerOut);
    request_get_status(a: Integer, b: IntegerOut, c: Status, d: IntegerOut);
    request_get_status_any(
        a: Integer, b: Integer, c: IntegerOut, d: IntegerOut, e: Status, f: IntegerOut
    );
    request_get_status_all(a: Integer, b: Integer, c: IntegerOut, d: Status, e: IntegerOut);
    request_get_status_some(
        a: Integer, b: Integer, c: IntegerOut, d: IntegerOut, e: Status, f: IntegerOut
    );
}

/// Starts a persistent collective that is folded.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi): a request, as Fortran has it.
unsafe fn start_folded(binding: Binding, request: c_int) -> Option<c_int> {
    let (process, fortran) = Fortran::of(binding)?;
    if !process.requests.persistent.any() {
        return None;
    }
    // As C has it; starting leaves it as it is.
    let mut request = fortran.request(request);
    // SAFETY: as demanded of this function; the request is in memory of ours.
    unsafe { start_persistent(&raw mut request) }
}

bindings!(start, (request: IntegerOut, ierror: IntegerOut),
|binding, request: IntegerOut, ierror: IntegerOut| {
    let code = start_folded(binding, *request);
    if let Some(code) = code {
        store(ierror, code);
    }
    code.is_some()
});

bindings!(startall, (count: Integer, requests: IntegerOut, ierror: IntegerOut),
|binding, count: Integer, requests: IntegerOut, ierror: IntegerOut| {
    let Some((process, fortran)) = Fortran::of(binding) else { return false };
    if !process.requests.persistent.any() {
        return false;
    }
    for index in 0..usize::try_from(*count).unwrap_or(0) {
        let request = *requests.add(index);
        let code = start_folded(binding, request).unwrap_or_else(|| {
            let mut request = fortran.request(request);
            (process.mpi.pmpi.start)(&raw mut request)
        });
        store(ierror, code);
        if code != 0 {
            return true;
        }
    }
    store(ierror, 0);
    true
});

bindings!(request_free, (request: IntegerOut, _ierror: IntegerOut),
|binding, request: IntegerOut, _: IntegerOut| {
    if let Some((process, fortran)) = Fortran::of(binding) {
        let mut request = fortran.request(*request);
        guard::shielded_or_abort(|| {
            free_persistent(process, (&raw mut request).cast());
        });
    }
    false
});

bindings!(comm_set_info, (comm: Integer, info: Integer, ierror: IntegerOut),
|binding, comm: Integer, info: Integer, ierror: IntegerOut| {
    let Some((_, fortran)) = Fortran::of(binding) else { return false };
    store(ierror, MPI_Comm_set_info(fortran.comm(*comm), fortran.info(*info)));
    true
});

bindings!(comm_dup_with_info, (
    comm: Integer, info: Integer, new: IntegerOut, ierror: IntegerOut
), |binding, comm: Integer, info: Integer, new: IntegerOut, ierror: IntegerOut| {
    let Some((_, fortran)) = Fortran::of(binding) else { return false };
    let (comm, info) = (fortran.comm(*comm), fortran.info(*info));
    let mut made: u64 = 0;
    let code = MPI_Comm_dup_with_info(comm, info, (&raw mut made).cast());
    if code == 0 {
        *new = fortran.comm_to(made);
    }
    store(ierror, code);
    true
});

/// Functions that free a communicator.
macro_rules! frees {
    ($($name:ident: $by:ident;)*) => {$(
        bindings!($name, (comm: IntegerOut, ierror: IntegerOut),
        |binding, comm: IntegerOut, ierror: IntegerOut| {
            let Some((_, fortran)) = Fortran::of(binding) else { return false };
            // As C has it, in room for any MPI's handle.
            let mut handle = fortran.comm(*comm) as u64;
            let code = $by((&raw mut handle).cast());
            *comm = fortran.comm_to(handle);
            store(ierror, code);
            true
        });
    )*};
}

frees! {
    comm_free: MPI_Comm_free;
    comm_disconnect: MPI_Comm_disconnect;
}

bindings!(comm_idup, (
    comm: Integer, _new: IntegerOut, _request: IntegerOut, _ierror: IntegerOut
), |binding, comm: Integer, _: IntegerOut, _: IntegerOut, _: IntegerOut| {
    if let Some((_, fortran)) = Fortran::of(binding) {
        hold(fortran.comm(*comm));
    }
    false
});

bindings!(comm_idup_with_info, (
    comm: Integer, _info: Integer, _new: IntegerOut, _request: IntegerOut, _ierror: IntegerOut
), |binding, comm: Integer, _: Integer, _: IntegerOut, _: IntegerOut, _: IntegerOut| {
    if let Some((_, fortran)) = Fortran::of(binding) {
        hold(fortran.comm(*comm));
    }
    false
});

/// Functions that make a communicator with a topology.
macro_rules! makes {
    ($($name:ident($($arg:ident),*);)*) => {$(
        bindings!($name, ($($arg: Integer,)* new: IntegerOut, ierror: IntegerOut),
        |_, $($arg: Integer,)* _: IntegerOut, _: IntegerOut| {
            $(let _ = $arg;)*
            false
        },
        |binding, $($arg: Integer,)* new: IntegerOut, ierror: IntegerOut| {
            $(let _ = $arg;)*
            if return_code(ierror) == 0
                && let Some((_, fortran)) = Fortran::of(binding)
            {
                made(fortran.comm(*new));
            }
        });
    )*};
}

makes! {
    cart_create(a, b, c, d, e);
    graph_create(a, b, c, d, e);
    dist_graph_create(a, b, c, d, e, f, g, h);
    dist_graph_create_adjacent(a, b, c, d, e, f, g, h, i);
}

bindings!(init, (_ierror: IntegerOut), |_, _: IntegerOut| false, |_, _: IntegerOut| after_init());

bindings!(init_thread, (_required: Integer, _provided: IntegerOut, _ierror: IntegerOut),
    |_, _: Integer, _: IntegerOut, _: IntegerOut| false,
    |_, _: Integer, _: IntegerOut, _: IntegerOut| after_init());

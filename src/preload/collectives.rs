//! The collectives, in every form: blocking, non-blocking (`MPI_I…`), and with large counts (`…_c`).
//!
//! MPI-4.1 chapter 6. One line of the table at the end makes all forms of a collective.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::fortran::{Binding, Fortran, no_function, store};
use crate::mpi::pmpi::{Handle, Optional};
use crate::process;

/// What MPI_ERR_COUNT is in every MPI.
const ERR_COUNT: c_int = 2;

/// Argument types of the forms with counts of type `int`.
mod plain {
    use std::ffi::{c_int, c_void};
    pub type Buf = *const c_void;
    pub type MutBuf = *mut c_void;
    pub type Count = c_int;
    pub type Counts = *const c_int;
    pub type Displs = *const c_int;
    pub type Root = c_int;
    pub type Type = crate::mpi::pmpi::Handle;
    pub type Op = crate::mpi::pmpi::Handle;
    pub type Comm = crate::mpi::pmpi::Handle;
    pub type Info = crate::mpi::pmpi::Handle;
    pub const WIDE: bool = false;
}

/// Those of the forms with counts of type `MPI_Count`, displacements of `MPI_Aint`.
mod large {
    pub use super::plain::{Buf, Comm, Info, MutBuf, Op, Root, Type};
    pub type Count = i64;
    pub type Counts = *const i64;
    pub type Displs = *const isize;
    pub const WIDE: bool = true;
}

/// A C string from what `concat!` makes. Panics, when compiled, if it does not end with a zero.
pub const fn symbol(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(symbol) => symbol,
        Err(_) => panic!("no C string"),
    }
}

/// An argument of a large form, as a plain one, for an MPI that has no large forms.
trait Narrow {
    /// What holds it during the call.
    type Held;
    /// As it is passed.
    type Plain;
    /// `None`: it does not fit. `ranks`: length of arrays.
    fn narrow(self, ranks: usize) -> Option<Self::Held>;
    fn pass(held: &Self::Held) -> Self::Plain;
    /// What must stay until the request is complete.
    fn keep(_: Self::Held) -> Option<Vec<c_int>> {
        None
    }
}

/// Keeps narrowed arrays until their request is complete: at the latest when there is another request of
/// its name. So there are never more than there ever were requests at a time.
fn keep_until_over(request: u64, arrays: Vec<Vec<c_int>>) {
    static KEPT: LazyLock<Mutex<HashMap<u64, Vec<Vec<c_int>>>>> = LazyLock::new(Mutex::default);
    if !arrays.is_empty() {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(request, arrays);
    }
}

impl Narrow for i64 {
    type Held = c_int;
    type Plain = c_int;
    fn narrow(self, _: usize) -> Option<c_int> {
        c_int::try_from(self).ok()
    }
    fn pass(held: &c_int) -> c_int {
        *held
    }
}

macro_rules! narrow_array {
    ($($type:ty),*) => {$(
        impl Narrow for *const $type {
            type Held = Vec<c_int>;
            type Plain = *const c_int;
            fn narrow(self, ranks: usize) -> Option<Vec<c_int>> {
                // SAFETY: the program's array, with an element for each rank.
                let element = |rank| unsafe { *self.add(rank) };
                (0..ranks).map(|rank| c_int::try_from(element(rank)).ok()).collect()
            }
            fn pass(held: &Vec<c_int>) -> *const c_int {
                held.as_ptr()
            }
            fn keep(held: Vec<c_int>) -> Option<Vec<c_int>> {
                Some(held)
            }
        }
    )*};
}

narrow_array!(i64, isize);

macro_rules! same_when_narrow {
    ($($type:ty),*) => {$(
        impl Narrow for $type {
            type Held = Self;
            type Plain = Self;
            fn narrow(self, _: usize) -> Option<Self> {
                Some(self)
            }
            fn pass(held: &Self) -> Self {
                *held
            }
        }
    )*};
}

same_when_narrow!(*const std::ffi::c_void, *mut std::ffi::c_void, c_int, Handle);

/// Number of ranks, for arrays that have to be copied.
fn ranks(comm: Handle) -> usize {
    process::get().map_or(0, |process| process.mpi.size(comm))
}

/// The request that the real MPI has made.
///
/// # Safety
/// `request` is the program's.
unsafe fn made(request: *const u64) -> u64 {
    // SAFETY: the caller's promise; it is of the width of this MPI's handles.
    process::get().map_or(0, |process| unsafe { process.mpi.abi.request_at(request.cast(), 0) })
}

/// One exported function: `export`, which dispatches `call` and else calls the `real` one, or does
/// `missing` if the MPI has none.
macro_rules! function {
    (
        $function:ident = $export:expr, $form:ident,
        [$($arg:ident: $type:ty),*], $request:expr, $call:expr, $missing:expr
    ) => {
        /// A collective, as MPI-4.1 chapter 6 has it.
        ///
        /// # Safety
        /// As the standard says.
        #[unsafe(export_name = $export)]
        pub unsafe extern "C" fn $function($($arg: $type),*) -> c_int {
            let call = $call;
            let request: *mut u64 = $request;
            // SAFETY: the program's arguments.
            let folded = unsafe { super::super::super::fold(Form::$form, &call, request.cast()) };
            let passed = match folded {
                Ok(code) => return code,
                Err(passed) => passed,
            };
            let code = match real::$function.get() {
                // SAFETY: passed on unchanged.
                Some(real) => unsafe { real($($arg),*) },
                None => $missing,
            };
            super::super::super::over(passed);
            code
        }
    };
}

/// A real function of one width, by the name of ours.
macro_rules! real {
    ($function:ident = $symbol:expr, $other:expr, [$($type:ty),*]) => {
        #[allow(non_upper_case_globals)]
        pub static $function: Optional<unsafe extern "C" fn($($type),*) -> c_int> =
            // SAFETY: the type that the standard gives it.
            unsafe { Optional::either(symbol($symbol), symbol($other)) };
    };
}

macro_rules! missing {
    ($name:expr) => {{
        log::error!("the MPI of this program has no {}", $name);
        std::process::abort()
    }};
}

/// Passes a call of a large form on by the plain one, of an MPI that has no large forms.
macro_rules! narrow {
    ($real:expr, $name:expr, $comm:ident, [$($arg:ident: $type:ty),*], [$($extra:ident),*]) => {{
        let ranks = ranks($comm);
        $(let Some($arg) = <$type as Narrow>::narrow($arg, ranks) else { return ERR_COUNT };)*
        let Some(real) = $real.get() else { missing!($name) };
        // SAFETY: passed on with the same meaning.
        let code = unsafe { real($(<$type as Narrow>::pass(&$arg),)* $($extra),*) };
        narrow!(@keep code, [$($arg: $type),*], [$($extra),*]);
        code
    }};
    (@keep $code:ident, [$($arg:ident: $type:ty),*], []) => {};
    (@keep $code:ident, [$($arg:ident: $type:ty),*], [$request:ident]) => {
        narrow!(@keep_for $request, $code, [$($arg: $type),*])
    };
    (@keep $code:ident, [$($arg:ident: $type:ty),*], [$info:ident, $request:ident]) => {
        narrow!(@keep_for $request, $code, [$($arg: $type),*])
    };
    (@keep_for $request:ident, $code:ident, [$($arg:ident: $type:ty),*]) => {
        if $code == 0 {
            let arrays = [$(<$type as Narrow>::keep($arg)),*];
            // SAFETY: the real MPI has just written it.
            let request = unsafe { made(&raw const *$request) };
            keep_until_over(request, arrays.into_iter().flatten().collect());
        }
    };
}

/// What an argument of Fortran's is in C. Shadows it in the code that follows.
macro_rules! from_fortran {
    (Buf, $arg:ident, $fortran:ident, $process:ident) => {
        $fortran.buffer($process, $arg).cast_const()
    };
    (MutBuf, $arg:ident, $fortran:ident, $process:ident) => {
        $fortran.buffer($process, $arg)
    };
    (Type, $arg:ident, $fortran:ident, $process:ident) => {
        $fortran.datatype(*$arg.cast())
    };
    (Op, $arg:ident, $fortran:ident, $process:ident) => {
        $fortran.op(*$arg.cast())
    };
    (Comm, $arg:ident, $fortran:ident, $process:ident) => {
        $fortran.comm(*$arg.cast())
    };
    // Arrays stay where they are.
    (Counts, $arg:ident, $fortran:ident, $process:ident) => {
        $arg.cast::<c_int>().cast_const()
    };
    (Displs, $arg:ident, $fortran:ident, $process:ident) => {
        $arg.cast::<c_int>().cast_const()
    };
    // Count, Root
    ($number:ident, $arg:ident, $fortran:ident, $process:ident) => {
        *$arg.cast::<c_int>()
    };
}

/// A function of Fortran, by one of its names. Whatever the arguments are, they are addresses.
macro_rules! fortran_function {
    (
        $binding:ident, $form:ident, $function:ident = $export:expr, $real:expr,
        [$($arg:ident: $type:ident),*], [$($extra:ident),*], $request:expr, $call:expr
    ) => {
        /// As the standard's Fortran binding has it.
        ///
        /// # Safety
        /// As the standard says.
        #[unsafe(export_name = $export)]
        pub unsafe extern "C" fn $function(
            $($arg: *mut c_void,)* $($extra: *mut c_void,)* ierror: *mut c_int
        ) {
            static REAL: Optional<unsafe extern "C" fn(
                $(fortran_function!(@address $arg),)* $(fortran_function!(@address $extra),)* *mut c_int
            )> =
                // SAFETY: the type that the MPI's Fortran binding gives it.
                unsafe { Optional::fortran(symbol($real)) };
            let mut passed = None;
            if let Some((process, fortran)) = Fortran::of(Binding::$binding) {
                // SAFETY: the program's arguments.
                unsafe {
                    let _ = process;
                    let call = {
                        $(let $arg = from_fortran!($type, $arg, fortran, process);)*
                        $call
                    };
                    let mut request = 0u64;
                    let made = (&raw mut request).cast();
                    match super::super::super::fold(Form::$form, &call, made) {
                        Ok(code) => {
                            let into: *mut c_void = $request;
                            if !into.is_null() {
                                *into.cast::<c_int>() = fortran.request_to(request);
                            }
                            return store(ierror, code);
                        }
                        Err(stopwatch) => passed = stopwatch,
                    }
                }
            }
            let Some(real) = REAL.get() else { no_function($export) };
            // SAFETY: passed on unchanged.
            unsafe { real($($arg,)* $($extra,)* ierror) };
            super::super::super::over(passed);
        }
    };
    (@address $arg:ident) => { *mut c_void };
}

/// All functions of Fortran of a collective, but for those with large counts.
macro_rules! fortran_collective {
    ($lower:ident ($($arg:ident: $type:ident),*), $call:expr) => {
        pub mod fortran {
            #[allow(unused_imports)]
            use super::super::plain::WIDE;
            use super::super::{Binding, Fortran, Optional, no_function, store, symbol};
            use crate::call::{Call, Collective, Form, Side};
            use std::ffi::{c_int, c_void};

            fortran_function!(Old, Blocking, blocking = concat!("mpi_", stringify!($lower), "_"),
                concat!("mpi_", stringify!($lower), "_\0"),
                [$($arg: $type),*], [], std::ptr::null_mut(), $call);
            fortran_function!(Old, Blocking, blocking_older = concat!("mpi_", stringify!($lower), "__"),
                concat!("mpi_", stringify!($lower), "_\0"),
                [$($arg: $type),*], [], std::ptr::null_mut(), $call);
            fortran_function!(F08, Blocking, blocking_f08 = concat!("mpi_", stringify!($lower), "_f08_"),
                concat!("mpi_", stringify!($lower), "_f08_\0"),
                [$($arg: $type),*], [], std::ptr::null_mut(), $call);
            fortran_function!(Old, Nonblocking, nonblocking = concat!("mpi_i", stringify!($lower), "_"),
                concat!("mpi_i", stringify!($lower), "_\0"),
                [$($arg: $type),*], [request], request, $call);
            fortran_function!(Old, Nonblocking,
                nonblocking_older = concat!("mpi_i", stringify!($lower), "__"),
                concat!("mpi_i", stringify!($lower), "_\0"),
                [$($arg: $type),*], [request], request, $call);
            fortran_function!(F08, Nonblocking,
                nonblocking_f08 = concat!("mpi_i", stringify!($lower), "_f08_"),
                concat!("mpi_i", stringify!($lower), "_f08_\0"),
                [$($arg: $type),*], [request], request, $call);
            fortran_function!(Old, Persistent,
                persistent = concat!("mpi_", stringify!($lower), "_init_"),
                concat!("mpi_", stringify!($lower), "_init_\0"),
                [$($arg: $type),*], [info, request], request, $call);
            fortran_function!(F08, Persistent,
                persistent_f08 = concat!("mpi_", stringify!($lower), "_init_f08_"),
                concat!("mpi_", stringify!($lower), "_init_f08_\0"),
                [$($arg: $type),*], [info, request], request, $call);
            fortran_function!(Old, Persistent,
                extension = concat!("mpix_", stringify!($lower), "_init_"),
                concat!("mpix_", stringify!($lower), "_init_\0"),
                [$($arg: $type),*], [info, request], request, $call);
            fortran_function!(F08, Persistent,
                extension_f08 = concat!("mpix_", stringify!($lower), "_init_f08_"),
                concat!("mpix_", stringify!($lower), "_init_f08_\0"),
                [$($arg: $type),*], [info, request], request, $call);
        }
    };
}

/// All forms of a collective: blocking, non-blocking and persistent ones; and those with large counts, if
/// `$forms` says that it has a `count`. `$lower` is the name as it comes after "MPI_I".
macro_rules! collective {
    (
        $lower:ident = $name:ident ($($arg:ident: $type:ident),*), $comm:ident, $forms:tt, $call:expr
    ) => {
        mod $lower {
            pub mod plain {
                use super::super::{symbol, Optional};
                use super::super::plain::*;
                use crate::call::{Call, Collective, Form, Side};
                use std::ffi::c_int;

                pub mod real {
                    use super::*;
                    real!(blocking = concat!("PMPI_", stringify!($name), "\0"), "\0", [$($type),*]);
                    real!(nonblocking = concat!("PMPI_I", stringify!($lower), "\0"), "\0",
                        [$($type,)* *mut u64]);
                }
                function!(
                    blocking = concat!("MPI_", stringify!($name)), Blocking,
                    [$($arg: $type),*], std::ptr::null_mut(), $call, missing!(stringify!($name))
                );
                function!(
                    nonblocking = concat!("MPI_I", stringify!($lower)), Nonblocking,
                    [$($arg: $type,)* request: *mut u64], request, $call,
                    missing!(concat!("MPI_I", stringify!($lower)))
                );
            }
            fortran_collective!($lower ($($arg: $type),*), $call);
            collective!(@persistent $name ($($arg: $type),*), $call);
            collective!(@large $forms $lower $name ($($arg: $type),*), $comm, $call);
        }
    };
    (
        @persistent $name:ident ($($arg:ident: $type:ident),*), $call:expr
    ) => {
        /// `MPI_…_init`; and by the name that it has in Open MPI 4.
        pub mod persistent {
            use super::super::{symbol, Optional};
            use super::super::plain::*;
            use crate::call::{Call, Collective, Form, Side};
            use std::ffi::c_int;

            pub mod real {
                use super::*;
                real!(standard = concat!("PMPI_", stringify!($name), "_init\0"),
                    concat!("PMPIX_", stringify!($name), "_init\0"),
                    [$($type,)* Info, *mut u64]);
                real!(extension = concat!("PMPIX_", stringify!($name), "_init\0"),
                    concat!("PMPI_", stringify!($name), "_init\0"),
                    [$($type,)* Info, *mut u64]);
            }
            function!(
                standard = concat!("MPI_", stringify!($name), "_init"), Persistent,
                [$($arg: $type,)* info: Info, request: *mut u64], request, $call,
                missing!(concat!("MPI_", stringify!($name), "_init"))
            );
            function!(
                extension = concat!("MPIX_", stringify!($name), "_init"), Persistent,
                [$($arg: $type,)* info: Info, request: *mut u64], request, $call,
                missing!(concat!("MPIX_", stringify!($name), "_init"))
            );
        }
    };
    (@large [] $($rest:tt)*) => {};
    (
        @large [count] $lower:ident $name:ident ($($arg:ident: $type:ident),*), $comm:ident,
        $call:expr
    ) => {
        pub mod large {
            use super::super::{ERR_COUNT, Narrow, Optional, keep_until_over, made, ranks, symbol};
            use super::super::large::*;
            use super::{persistent as plain_persistent, plain as plain_forms};
            use crate::call::{Call, Collective, Form, Side};
            use std::ffi::c_int;

            pub mod real {
                use super::*;
                real!(blocking = concat!("PMPI_", stringify!($name), "_c\0"), "\0", [$($type),*]);
                real!(nonblocking = concat!("PMPI_I", stringify!($lower), "_c\0"), "\0",
                    [$($type,)* *mut u64]);
                real!(standard = concat!("PMPI_", stringify!($name), "_init_c\0"), "\0",
                    [$($type,)* Info, *mut u64]);
            }
            function!(
                blocking = concat!("MPI_", stringify!($name), "_c"), Blocking,
                [$($arg: $type),*], std::ptr::null_mut(), $call,
                narrow!(plain_forms::real::blocking, concat!("MPI_", stringify!($name)), $comm,
                    [$($arg: $type),*], [])
            );
            function!(
                nonblocking = concat!("MPI_I", stringify!($lower), "_c"), Nonblocking,
                [$($arg: $type,)* request: *mut u64], request, $call,
                narrow!(plain_forms::real::nonblocking, concat!("MPI_I", stringify!($lower)), $comm,
                    [$($arg: $type),*], [request])
            );
            function!(
                standard = concat!("MPI_", stringify!($name), "_init_c"), Persistent,
                [$($arg: $type,)* info: Info, request: *mut u64], request, $call,
                narrow!(plain_persistent::real::standard, concat!("MPI_", stringify!($name), "_init"),
                    $comm, [$($arg: $type),*], [info, request])
            );
        }
    };
}

/// A reduction.
macro_rules! reduction {
    ($name:ident, $send:expr, $recv:expr, $op:expr, $root:expr, $comm:expr) => {
        Call {
            collective: Collective::$name,
            send: Side::new($send, 0, 0),
            recv: $recv,
            op: $op,
            root: $root,
            comm: $comm,
        }
    };
}

/// A collective that moves.
macro_rules! movement {
    ($name:ident, $send:expr, $recv:expr, $root:expr, $comm:expr) => {
        Call {
            collective: Collective::$name,
            send: $send,
            recv: $recv,
            op: 0,
            root: $root,
            comm: $comm,
        }
    };
}

collective!(allreduce = Allreduce(
    send: Buf, recv: MutBuf, count: Count, datatype: Type, op: Op, comm: Comm
), comm, [count],
reduction!(Allreduce, send, Side::new(recv, count, datatype), op, 0, comm));

collective!(reduce = Reduce(
    send: Buf, recv: MutBuf, count: Count, datatype: Type, op: Op, root: Root, comm: Comm
), comm, [count],
reduction!(Reduce, send, Side::new(recv, count, datatype), op, root, comm));

collective!(bcast = Bcast(
    data: MutBuf, count: Count, datatype: Type, root: Root, comm: Comm
), comm, [count],
movement!(Bcast, Side::NONE, Side::new(data, count, datatype), root, comm));

collective!(barrier = Barrier(comm: Comm), comm, [],
movement!(Barrier, Side::NONE, Side::NONE, 0, comm));

collective!(allgather = Allgather(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, recv_count: Count, recv_type: Type, comm: Comm
), comm, [count],
movement!(Allgather, Side::new(send, send_count, send_type),
    Side::new(recv, recv_count, recv_type), 0, comm));

collective!(allgatherv = Allgatherv(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, counts: Counts, displs: Displs, recv_type: Type, comm: Comm
), comm, [count],
movement!(Allgatherv, Side::new(send, send_count, send_type),
    Side::each(recv, crate::call::Counts { counts: counts.cast(), displs: displs.cast(), wide: WIDE }, recv_type),
    0, comm));

collective!(gather = Gather(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, recv_count: Count, recv_type: Type, root: Root, comm: Comm
), comm, [count],
movement!(Gather, Side::new(send, send_count, send_type),
    Side::new(recv, recv_count, recv_type), root, comm));

collective!(scatter = Scatter(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, recv_count: Count, recv_type: Type, root: Root, comm: Comm
), comm, [count],
movement!(Scatter, Side::new(send, send_count, send_type),
    Side::new(recv, recv_count, recv_type), root, comm));

collective!(reduce_scatter = Reduce_scatter(
    send: Buf, recv: MutBuf, counts: Counts, datatype: Type, op: Op, comm: Comm
), comm, [count],
reduction!(Reduce_scatter, send,
    Side::each(recv, crate::call::Counts { counts: counts.cast(), displs: std::ptr::null(), wide: WIDE }, datatype),
    op, 0, comm));

collective!(reduce_scatter_block = Reduce_scatter_block(
    send: Buf, recv: MutBuf, count: Count, datatype: Type, op: Op, comm: Comm
), comm, [count],
reduction!(Reduce_scatter_block, send, Side::new(recv, count, datatype), op, 0, comm));

collective!(scan = Scan(
    send: Buf, recv: MutBuf, count: Count, datatype: Type, op: Op, comm: Comm
), comm, [count],
reduction!(Scan, send, Side::new(recv, count, datatype), op, 0, comm));

collective!(exscan = Exscan(
    send: Buf, recv: MutBuf, count: Count, datatype: Type, op: Op, comm: Comm
), comm, [count],
reduction!(Exscan, send, Side::new(recv, count, datatype), op, 0, comm));

collective!(alltoall = Alltoall(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, recv_count: Count, recv_type: Type, comm: Comm
), comm, [count],
movement!(Alltoall, Side::new(send, send_count, send_type),
    Side::new(recv, recv_count, recv_type), 0, comm));

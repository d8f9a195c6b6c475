//! The functions of Fortran, one macro for all forms of a collective.

/// An argument of Fortran's, as C has it. Shadows it in the code that follows.
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
    (Aints, $arg:ident, $fortran:ident, $process:ident) => {
        $arg.cast_const()
    };
    (Types, $arg:ident, $fortran:ident, $process:ident) => {
        $fortran.types($arg)
    };
    // Count, Root
    ($number:ident, $arg:ident, $fortran:ident, $process:ident) => {
        *$arg.cast::<c_int>()
    };
}

/// A function of Fortran, by one of its names. All its arguments are addresses.
macro_rules! fortran_function {
    (
        $binding:ident, $form:ident, $function:ident = $export:expr, $real:expr,
        [$($arg:ident: $type:ident),*], [$($extra:ident),*], $request:expr, $call:expr
    ) => {
        /// As the standard's Fortran binding has it.
        ///
        /// # Safety
        /// What MPI demands of the [program](crate::mpi).
        #[unsafe(export_name = $export)]
        pub unsafe extern "C-unwind" fn $function(
            $($arg: *mut c_void,)* $($extra: *mut c_void,)* ierror: *mut c_int
        ) {
            static REAL: Optional<unsafe extern "C-unwind" fn(
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
                    match crate::preload::fold(Form::$form, &call, made) {
                        Ok(code) => {
                            let into: *mut c_void = $request;
                            if !into.is_null() {
                                *into.cast::<c_int>() = fortran.request_to(request);
                            }
                            return store(ierror, code);
                        }
                        Err(after) => passed = after,
                    }
                }
            }
            let Some(real) = REAL.get() else { no_function($export) };
            // SAFETY: passed on unchanged.
            unsafe { real($($arg,)* $($extra,)* ierror) };
            // SAFETY: an argument of the program's.
            crate::preload::after_mpi(passed, unsafe { return_code(ierror) });
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
            use super::super::{Binding, Fortran, Optional, no_function, store, return_code, symbol};
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

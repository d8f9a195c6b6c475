//! The functions of C, one macro for all forms of a collective.

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
        /// What MPI demands of the [program](crate::mpi).
        #[unsafe(export_name = $export)]
        pub unsafe extern "C-unwind" fn $function($($arg: $type),*) -> c_int {
            let call = $call;
            let request: *mut u64 = $request;
            // SAFETY: the program's arguments.
            let folded = unsafe { crate::preload::fold(Form::$form, &call, request.cast()) };
            let passed = match folded {
                Ok(code) => return code,
                Err(passed) => passed,
            };
            let code = match real::$function.get() {
                // SAFETY: passed on unchanged.
                Some(real) => unsafe { real($($arg),*) },
                None => $missing,
            };
            crate::preload::after_mpi(passed, code);
            code
        }
    };
}

/// A real function of one width, by the name of ours.
macro_rules! real {
    ($function:ident = $symbol:expr, $other:expr, [$($type:ty),*]) => {
        #[allow(non_upper_case_globals)]
        pub static $function: Optional<unsafe extern "C-unwind" fn($($type),*) -> c_int> =
            // SAFETY: the type that the standard gives it.
            unsafe { Optional::either(symbol($symbol), symbol($other)) };
    };
}

/// All forms of a collective: blocking, non-blocking and persistent ones; and those with large counts, if
/// `$forms` says that it has a `count`. `$lower` is the name as it comes after "MPI_I".
macro_rules! collective {
    (
        $lower:ident = $name:ident ($($arg:ident: $type:ident),*), $forms:tt, $call:expr
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
            collective!(@large $forms $lower $name ($($arg: $type),*), $call);
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
        @large [count] $lower:ident $name:ident ($($arg:ident: $type:ident),*), $call:expr
    ) => {
        pub mod large {
            use super::super::{Narrow, Optional, does_not_fit, keep_until_over, made, symbol};
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
                narrow!(plain_forms::real::blocking, concat!("MPI_", stringify!($name)), $call,
                    [$($arg: $type),*], [])
            );
            function!(
                nonblocking = concat!("MPI_I", stringify!($lower), "_c"), Nonblocking,
                [$($arg: $type,)* request: *mut u64], request, $call,
                narrow!(plain_forms::real::nonblocking, concat!("MPI_I", stringify!($lower)), $call,
                    [$($arg: $type),*], [request])
            );
            function!(
                standard = concat!("MPI_", stringify!($name), "_init_c"), Persistent,
                [$($arg: $type,)* info: Info, request: *mut u64], request, $call,
                narrow!(plain_persistent::real::standard, concat!("MPI_", stringify!($name), "_init"),
                    $call, [$($arg: $type),*], [info, request])
            );
        }
    };
}

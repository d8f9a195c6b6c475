//! Calls with large counts, for an MPI that has none of them.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::super::real;
use crate::mpi::pmpi::Handle;
use crate::process;

/// The value of MPI_ERR_COUNT in every MPI.
const ERR_COUNT: c_int = 2;

/// An argument of a large form, as a plain one, for an MPI that has no large forms.
pub trait Narrow {
    /// The memory that holds it during the call.
    type Held;
    /// The plain argument.
    type Plain;
    /// `None`: it does not fit. `parts`: length of an array; `None`: nobody knows.
    ///
    /// # Safety
    /// *Arguments* of the [program](crate::mpi): an array has that length.
    unsafe fn narrow(self, parts: impl Fn(*const c_void) -> Option<usize>) -> Option<Self::Held>;
    fn pass(held: &Self::Held) -> Self::Plain;
    /// The arrays that must stay until the request is complete.
    fn keep(_: Self::Held) -> Option<Vec<c_int>> {
        None
    }
}

/// Keeps narrowed arrays until their request is complete: at the latest when there is another request of
/// its name. So there are never more than there ever were requests at a time. Without a `request` they stay.
pub fn keep_until_over(request: Option<u64>, arrays: Vec<Vec<c_int>>) {
    static KEPT: LazyLock<Mutex<HashMap<u64, Vec<Vec<c_int>>>>> = LazyLock::new(Mutex::default);
    match request {
        _ if arrays.is_empty() => {}
        Some(request) => {
            KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(request, arrays);
        }
        None => std::mem::forget(arrays),
    }
}

impl Narrow for i64 {
    type Held = c_int;
    type Plain = c_int;
    unsafe fn narrow(self, _: impl Fn(*const c_void) -> Option<usize>) -> Option<c_int> {
        c_int::try_from(self).ok()
    }
    fn pass(held: &c_int) -> c_int {
        *held
    }
}

macro_rules! narrow_array {
    ($($type:ty),*) => {$(
        impl Narrow for *const $type {
            /// `None`: there is none, which the MPI refuses.
            type Held = Option<Vec<c_int>>;
            type Plain = *const c_int;
            unsafe fn narrow(
                self,
                parts: impl Fn(*const c_void) -> Option<usize>,
            ) -> Option<Self::Held> {
                if self.is_null() {
                    return Some(None);
                }
                // SAFETY: an array of that length, as demanded of this function.
                let element = |part| unsafe { *self.add(part) };
                let narrow = |part| c_int::try_from(element(part)).ok();
                (0..parts(self.cast())?).map(narrow).collect::<Option<_>>().map(Some)
            }
            fn pass(held: &Self::Held) -> *const c_int {
                held.as_ref().map_or(std::ptr::null(), Vec::as_ptr)
            }
            fn keep(held: Self::Held) -> Option<Vec<c_int>> {
                held
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
            unsafe fn narrow(self, _: impl Fn(*const c_void) -> Option<usize>) -> Option<Self> {
                Some(self)
            }
            fn pass(held: &Self) -> Self {
                *held
            }
        }
    )*};
}

same_when_narrow!(*const c_void, *mut c_void, c_int, Handle);

/// The request that the real MPI has made; `None` in a process that foldback leaves alone, where nobody has asked
/// how the MPI writes requests.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi).
pub unsafe fn made(request: *const u64) -> Option<u64> {
    // SAFETY: an argument of the program's: one request.
    process::get().map(|process| unsafe { process.mpi.abi.request_at(request.cast(), 0) })
}

/// Refuses a count that the plain form cannot take.
#[cold]
pub fn does_not_fit(comm: Handle) -> c_int {
    // SAFETY: the program's communicator.
    unsafe { (real().comm_call_errhandler)(comm, ERR_COUNT) };
    ERR_COUNT
}

macro_rules! missing {
    ($name:expr) => {{
        log::error!("the MPI of this program has no {}", $name);
        std::process::abort()
    }};
}

/// Passes a call of a large form on by the plain one, of an MPI that has no large forms.
macro_rules! narrow {
    ($real:expr, $name:expr, $call:expr, [$($arg:ident: $type:ty),*], [$($extra:ident),*]) => {{
        let call = $call;
        let (mpi, family) = (crate::preload::real(), crate::preload::family());
        let parts = |array| call.parts(mpi, family, array);
        // SAFETY: arguments of the program's.
        let held = (|| unsafe { Some(($(<$type as Narrow>::narrow($arg, parts)?,)*)) })();
        let Some(($($arg,)*)) = held else { return does_not_fit(call.comm) };
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

#[cfg(test)]
mod tests;

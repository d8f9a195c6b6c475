//! Calls with large counts, for an MPI that has none of them.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::mpi::pmpi::Handle;
use crate::process;

/// What MPI_ERR_COUNT is in every MPI.
pub const ERR_COUNT: c_int = 2;

/// An argument of a large form, as a plain one, for an MPI that has no large forms.
pub trait Narrow {
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
pub fn keep_until_over(request: u64, arrays: Vec<Vec<c_int>>) {
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
pub fn ranks(comm: Handle) -> usize {
    process::get().map_or(0, |process| process.mpi.size(comm))
}

/// The request that the real MPI has made.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi).
pub unsafe fn made(request: *const u64) -> u64 {
    // SAFETY: an argument of the program's: one request.
    process::get().map_or(0, |process| unsafe { process.mpi.abi.request_at(request.cast(), 0) })
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

//! No panic unwinds into C, and errno stays as the program left it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{process, thread};

use nix::errno::Errno;

/// Runs `body`; if it panics, logs that and gives `fallback`.
pub fn shielded<R>(fallback: R, body: impl FnOnce() -> R) -> R {
    let _errno = KeptErrno(Errno::last_raw());
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        log::error!("a bug in foldback: {text}");
        fallback
    })
}

/// Runs `body`, which may call the program's own functions: their exceptions pass. If it panics, ends the process,
/// since going on would mean that ranks disagree.
#[inline]
pub fn shielded_or_abort<R>(body: impl FnOnce() -> R) -> R {
    let _errno = KeptErrno(Errno::last_raw());
    let _abort = AbortOnPanic;
    body()
}

struct KeptErrno(i32);

impl Drop for KeptErrno {
    fn drop(&mut self) {
        Errno::set_raw(self.0);
    }
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    #[inline]
    fn drop(&mut self) {
        // An exception of another language is no panic.
        if thread::panicking() {
            abort();
        }
    }
}

#[cold]
fn abort() -> ! {
    log::error!("a bug in foldback, which has panicked");
    process::abort();
}

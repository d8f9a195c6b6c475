//! Nothing unwinds into C, and errno stays as the program left it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno;

/// Runs `body`; if it panics, logs that and gives `fallback`.
pub fn shielded<R>(fallback: R, body: impl FnOnce() -> R) -> R {
    let errno = Errno::last_raw();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        log::error!("a bug in foldback: {text}");
        fallback
    });
    Errno::set_raw(errno);
    result
}

/// Like [`shielded`], where going on would mean that ranks disagree: ends the process instead.
pub fn shielded_or_abort<R>(body: impl FnOnce() -> R) -> R {
    shielded(None, || Some(body())).unwrap_or_else(|| std::process::abort())
}

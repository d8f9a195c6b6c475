//! Threads of foldback's own in the program's process.
#![allow(unsafe_code)]

use std::io;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::{Pid, getpid};

/// Stack of a thread, beside what the C library takes for itself.
const STACK: usize = 128 << 10;

/// Starts a thread that takes none of the program's signals.
///
/// # Errors
/// What the system says.
pub(crate) fn start(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let mut builder = Builder::new().name(name.into());
    // Else Rust's own 2 MiB.
    if let Some(least) = least_stack() {
        builder = builder.stack_size(least + STACK);
    }
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).ok();
    let thread = builder.spawn(body);
    if let Some(before) = before {
        let _ = before.thread_set_mask();
    }
    thread
}

/// Waits at the end of the process for a thread that clears something away, which nobody is to wait for before.
pub(crate) fn join_at_exit(thread: JoinHandle<()>) {
    static THREADS: Mutex<Vec<(Pid, JoinHandle<()>)>> = Mutex::new(Vec::new());
    fn threads() -> MutexGuard<'static, Vec<(Pid, JoinHandle<()>)>> {
        THREADS.lock().unwrap_or_else(PoisonError::into_inner)
    }
    extern "C" fn join_all() {
        let all = std::mem::take(&mut *threads());
        // In a forked child the threads are not there.
        for (_, thread) in all.into_iter().filter(|(process, _)| *process == getpid()) {
            let _ = thread.join();
        }
    }
    static ONCE: Once = Once::new();
    threads().push((getpid(), thread));
    ONCE.call_once(|| at_exit(join_all));
}

/// Has a function called at the end of the process; or now, if the C library has no room to note it.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: a function of this library, which is never unloaded.
    if unsafe { libc::atexit(function) } != 0 {
        function();
    }
}

/// Stack that the C library takes of every thread: thread-local storage of the program and of its libraries. It may
/// have any size (Intel's and the sanitizers' runtimes have 100 KB). The C library tells it by a function that Rust and
/// Java use, too.
fn least_stack() -> Option<usize> {
    type MinStack = unsafe extern "C" fn(*const libc::pthread_attr_t) -> libc::size_t;
    // SAFETY: the name is a C string; glibc gives the function this type. It only reads the attributes.
    unsafe {
        let function = libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr());
        if function.is_null() {
            return None;
        }
        let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
        if libc::pthread_attr_init(&raw mut attributes) != 0 {
            return None;
        }
        let least =
            std::mem::transmute::<*mut libc::c_void, MinStack>(function)(&raw const attributes);
        libc::pthread_attr_destroy(&raw mut attributes);
        Some(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes between the end of this thread's stack and here: thread-local storage is on the other side.
    fn left() -> usize {
        // SAFETY: all zeroes is what pthread_getattr_np fills in, for a thread that lives.
        unsafe {
            let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
            assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes), 0);
            let (mut end, mut size) = (std::ptr::null_mut(), 0);
            libc::pthread_attr_getstack(&raw const attributes, &raw mut end, &raw mut size);
            libc::pthread_attr_destroy(&raw mut attributes);
            (&raw const size).addr() - end.addr()
        }
    }

    #[test]
    fn thread_local_storage_takes_none_of_the_stack() {
        let (send, receive) = std::sync::mpsc::channel();
        start("test", move || send.send(left()).unwrap()).unwrap().join().unwrap();
        let left = receive.recv().unwrap();
        assert!(left >= STACK, "{left}");
    }
}

//! Options and states of sockets that `nix` has no names for.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

/// setsockopt(2).
///
/// # Errors
/// What the system says.
pub(crate) fn set<T>(socket: &impl AsRawFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` outlives the call, which reads `length` bytes of it.
    let result = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, name, value, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes of memory that wait in this system to be sent from a socket (SIOCOUTQ, udp(7)); 0 if it does not say.
pub(crate) fn queued(socket: &impl AsRawFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request, by another of its names, writes one int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

//! The UDP port of all frames, held so that nobody else can have it.
//!
//! A frame that no program takes (its group is gone, or the programs are) goes up to the socket at the port.
//! The frame bears the group's token, and with it anybody can name the group in a forged frame. So the agent
//! binds the port and drops what arrives. It gives nobody a descriptor: a holder could let others in. While no
//! agent is there the kernel keeps the port for root, if it is a privileged one, as the default is.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt::ReusePort,
};

use crate::agent::error::{Context, Error, ErrorKind, Result};
use crate::sockopt;

/// A socket that has the port at all addresses, and never has anything to read. None if this process may not have
/// the port, as no other without privileges may.
pub(crate) struct HeldPort {
    _socket: Option<OwnedFd>,
}

impl HeldPort {
    /// Binds the port, in the network namespace of the calling thread. Other agents of this user may have
    /// it too; nobody else may.
    ///
    /// # Errors
    /// `ErrorKind::Kernel`: somebody else has it.
    pub(crate) fn new(port: u16) -> Result<Self> {
        let doing = || format!("holding UDP port {port}");
        let held = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
            .context(ErrorKind::Kernel, doing)?;
        // Before the port is bound, so that nothing ever gets in.
        drop_all(held.as_fd()).context(ErrorKind::Kernel, doing)?;
        // Shared among sockets of one user (SO_REUSEADDR would share it with everybody).
        setsockopt(&held, ReusePort, &true).context(ErrorKind::Kernel, doing)?;
        let everywhere = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
        match bind(held.as_raw_fd(), &everywhere) {
            Err(Errno::EADDRINUSE) => {
                let message = format!(
                    "UDP port {port} is taken by another program (`ss -ulpn` says which): end it, or set FOLDBACK_PORT on all hosts"
                );
                Err(Error::new(ErrorKind::Kernel, message))
            }
            Err(Errno::EACCES) => Ok(Self { _socket: None }),
            other => other.context(ErrorKind::Kernel, doing).map(|()| Self { _socket: Some(held) }),
        }
    }
}

/// Whether any user may have the port while no agent does (ip_unprivileged_port_start in ip-sysctl.rst of Linux).
pub(crate) fn is_anybodys(port: u16) -> bool {
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    port >= first.ok().and_then(|first| first.trim().parse().ok()).unwrap_or(1024)
}

/// Lets nothing into a socket, for good: no holder of a descriptor can undo it.
fn drop_all(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut program =
        [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
    sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &1i32)
}

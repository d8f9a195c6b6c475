//! The UDP port of all frames, held so that nobody else can have it.
//!
//! A frame that no program takes (its group is gone, or the programs are) goes up to the socket at the port.
//! The frame bears the group's token, and with it anybody can name the group in a forged frame. So the agent
//! binds the port and drops frames that arrive. It takes [echoes](super::echo) alone, or nothing. It gives nobody a
//! descriptor: a holder could let others in. While no agent is there the kernel keeps the port for root, if it is a
//! privileged one, as the default is.

use std::fs;
use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrIn,
    bind, recvmsg, sendmsg, setsockopt, socket,
    sockopt::{Ipv4PacketInfo, ReusePort},
};

use crate::agent::echo::{ECHO_BYTES, ECHO_MAGIC};
use crate::agent::error::{Context, Error, ErrorKind, Result};
use crate::sockopt;

/// A socket that has the port at all addresses.
pub(crate) struct HeldPort {
    socket: OwnedFd,
}

/// The beginning of a datagram that has come, and its way.
pub(crate) struct Came {
    pub(crate) start: Vec<u8>,
    /// Bytes of the whole datagram.
    pub(crate) bytes: usize,
    pub(crate) from: SocketAddrV4,
    /// The address of this host that it was sent to, or by which the kernel answers one that went to many.
    pub(crate) to: Ipv4Addr,
    /// The index of the interface at which it arrived.
    pub(crate) interface: u32,
}

impl HeldPort {
    /// Binds the port, in the network namespace of the calling thread. Other agents of this user may have
    /// it too; nobody else may. Echoes alone get in, or nothing. None if this process may not have the port, as no
    /// other without privileges may.
    ///
    /// # Errors
    /// `ErrorKind::Kernel`: somebody else has it.
    pub(crate) fn new(port: u16, takes_echoes: bool) -> Result<Option<Self>> {
        let doing = || format!("holding UDP port {port}");
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let held = socket(AddressFamily::Inet, SockType::Datagram, flags, None)
            .context(ErrorKind::Kernel, doing)?;
        // Before the port is bound, so that no frame ever gets in.
        let filter = if takes_echoes { ECHOES.as_slice() } else { &NOTHING };
        let_in(held.as_fd(), filter).context(ErrorKind::Kernel, doing)?;
        setsockopt(&held, Ipv4PacketInfo, &true).context(ErrorKind::Kernel, doing)?;
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
            Err(Errno::EACCES) => Ok(None),
            other => other.context(ErrorKind::Kernel, doing).map(|()| Some(Self { socket: held })),
        }
    }

    /// A datagram, if one is there.
    pub(crate) fn receive(&self) -> Option<Came> {
        let mut start = vec![0; ECHO_BYTES];
        let mut control = nix::cmsg_space!(libc::in_pktinfo);
        let mut parts = [IoSliceMut::new(&mut start)];
        // MSG_TRUNC: the length is the datagram's, however much of it is wanted.
        let flags = MsgFlags::MSG_TRUNC;
        let came =
            recvmsg::<SockaddrIn>(self.socket.as_raw_fd(), &mut parts, Some(&mut control), flags);
        let came = came.ok()?;
        let bytes = came.bytes;
        let from = came.address.map(|from| SocketAddrV4::new(from.ip(), from.port()))?;
        let way = came.cmsgs().ok()?.find_map(|message| match message {
            ControlMessageOwned::Ipv4PacketInfo(way) => Some(way),
            _ => None,
        })?;
        let to = Ipv4Addr::from(way.ipi_spec_dst.s_addr.to_ne_bytes());
        let interface = u32::try_from(way.ipi_ifindex).ok()?;
        start.truncate(bytes);
        Some(Came { start, bytes, from, to, interface })
    }

    /// Answers a datagram from the address that it went to. An answer that fails is a lost one.
    pub(crate) fn answer(&self, came: &Came, answer: &[u8]) {
        let way = libc::in_pktinfo {
            ipi_ifindex: 0,
            ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(came.to.octets()) },
            ipi_addr: libc::in_addr { s_addr: 0 },
        };
        let _ = sendmsg(
            self.socket.as_raw_fd(),
            &[IoSlice::new(answer)],
            &[ControlMessage::Ipv4PacketInfo(&way)],
            MsgFlags::MSG_DONTWAIT,
            Some(&SockaddrIn::from(came.from)),
        );
    }
}

impl AsFd for HeldPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether any user may have the port while no agent does (ip_unprivileged_port_start in ip-sysctl.rst of Linux).
pub(crate) fn is_anybodys(port: u16) -> bool {
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    port >= first.ok().and_then(|first| first.trim().parse().ok()).unwrap_or(1024)
}

const fn step(code: u32, k: u32, otherwise: u8) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: otherwise, k }
}

/// Lets nothing in.
const NOTHING: [sock_filter; 1] = [step(BPF_RET | BPF_K, 0, 0)];

/// Lets in echoes, by the word behind the header of UDP.
const ECHOES: [sock_filter; 4] = [
    step(BPF_LD | BPF_W | BPF_ABS, 8, 0),
    step(BPF_JMP | BPF_JEQ | BPF_K, ECHO_MAGIC, 1),
    step(BPF_RET | BPF_K, u32::MAX, 0),
    step(BPF_RET | BPF_K, 0, 0),
];

/// Filters a socket, for good: no holder of a descriptor can undo it.
fn let_in(socket: BorrowedFd<'_>, filter: &[sock_filter]) -> io::Result<()> {
    // The kernel reads the program alone.
    let filter = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
    sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &1i32)
}

//! Frames out through UDP sockets, where the egress program meets them.
#![allow(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

use super::Fabric;
use crate::bindings::fb_frame;

/// One connected socket for each peer: connected, since that saves the route look-up at each send.
pub struct Sockets {
    /// By member; none for ourselves.
    peers: Vec<Option<UdpSocket>>,
}

impl Sockets {
    /// Sockets from `members[me]` to every other member's `port`.
    ///
    /// # Errors
    /// What the system says: the address is not ours, too many open files, …
    pub fn new(members: &[Ipv4Addr], me: usize, port: u16) -> io::Result<Self> {
        let peer = |(index, address): (usize, &Ipv4Addr)| {
            if index == me { Ok(None) } else { connect(members[me], *address, port).map(Some) }
        };
        Ok(Self { peers: members.iter().enumerate().map(peer).collect::<io::Result<_>>()? })
    }
}

fn connect(from: Ipv4Addr, to: Ipv4Addr, port: u16) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddrV4::new(from, 0))?;
    // The programs rewrite payloads; a UDP checksum would only have to be taken out again.
    set_option(&socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)?;
    // A frame is never fragmented: the programs would not know it.
    set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
    // Nothing is ever received here: whatever slips past the hooks is dropped at once.
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)?;
    socket.connect(SocketAddrV4::new(to, port))?;
    Ok(socket)
}

fn set_option(socket: &UdpSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` outlives the call, which reads `length` bytes of it.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Fabric for Sockets {
    fn send(&mut self, member: u8, frame: &fb_frame, payload: &[u8]) {
        let Some(Some(socket)) = self.peers.get(usize::from(member)) else { return };
        let mut parts = [
            libc::iovec {
                iov_base: std::ptr::from_ref(frame).cast_mut().cast(),
                iov_len: size_of::<fb_frame>(),
            },
            libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() },
        ];
        // SAFETY: all zeroes is a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = if payload.is_empty() { 1 } else { 2 };
        for _ in 0..2 {
            // SAFETY: the parts point to live memory that sendmsg only reads.
            let sent = unsafe {
                libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT)
            };
            // A frame that met a host without hooks earned an ICMP error, which is reported here
            // and now, in place of sending. Any other failure is a lost frame, which is legal.
            if sent >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ECONNREFUSED) {
                break;
            }
        }
    }
}

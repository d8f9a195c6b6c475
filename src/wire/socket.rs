//! Frames out through UDP sockets, where the egress program meets them.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::Transport;
use crate::bindings::{FB_CHUNK_BYTES, fb_frame};
use crate::sockopt;

/// The sockets of a process, to each peer one, whatever the number of groups that use it: descriptors
/// belong to the program. One for all peers would have the kernel look the route up at each send, which is
/// 0.4 of 2.8 microseconds.
#[derive(Default)]
pub struct SocketPool {
    /// By our address and the peer's.
    peers: Mutex<HashMap<(Ipv4Addr, SocketAddrV4), Weak<Peer>>>,
}

impl SocketPool {
    /// Ways from `members[me]` to every other member's `port`.
    ///
    /// # Errors
    /// A system error: the address is not ours, too many open files, …
    pub fn sockets(&self, members: &[Ipv4Addr], me: usize, port: u16) -> io::Result<Sockets> {
        let mut pool = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        pool.retain(|_, peer| peer.strong_count() > 0);
        let mut peer = |(index, address): (usize, &Ipv4Addr)| {
            if index == me {
                return Ok(None);
            }
            let (from, to) = (members[me], SocketAddrV4::new(*address, port));
            if let Some(peer) = pool.get(&(from, to)).and_then(Weak::upgrade) {
                return Ok(Some(peer));
            }
            let peer = Arc::new(Peer::new(from, to)?);
            pool.insert((from, to), Arc::downgrade(&peer));
            Ok(Some(peer))
        };
        Ok(Sockets { peers: members.iter().enumerate().map(&mut peer).collect::<io::Result<_>>()? })
    }
}

/// A group's ways out.
pub struct Sockets {
    /// By member; none for ourselves.
    peers: Vec<Option<Arc<Peer>>>,
}

/// Sockets to a peer: connected, since that saves the route look-up at each send.
struct Peer {
    from: Ipv4Addr,
    to: SocketAddrV4,
    /// For frames one by one. The programs rewrite payloads; a UDP checksum would only have to be taken
    /// out again.
    single: UdpSocket,
    /// For super-frames, which the kernel takes with checksums only. Made when it is needed.
    many: OnceLock<UdpSocket>,
    /// The kernel has refused one: no offload here.
    one_by_one: AtomicBool,
}

fn connect(from: Ipv4Addr, to: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddrV4::new(from, 0))?;
    // A frame is never fragmented: the programs would not know it.
    sockopt::set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_DO)?;
    // Nothing is ever received here: whatever slips past the hooks is dropped at once.
    sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &0i32)?;
    socket.connect(to)?;
    Ok(socket)
}

/// Bytes of a payload that is copied behind its frame: a chunk, where the MTU is 1500.
const SHORT: usize = FB_CHUNK_BYTES as usize;

/// Memory that a socket may have on its way out: some super-frames on a slow link, as far as the system
/// allows.
const SEND_BUFFER: i32 = 1 << 20;

impl Peer {
    fn new(from: Ipv4Addr, to: SocketAddrV4) -> io::Result<Self> {
        let single = connect(from, to)?;
        sockopt::set(&single, libc::SOL_SOCKET, libc::SO_NO_CHECK, &1i32)?;
        let (many, one_by_one) = (OnceLock::new(), AtomicBool::new(false));
        Ok(Self { from, to, single, many, one_by_one })
    }

    /// Sends a datagram of these parts, cut into segments of so many bytes.
    fn send(socket: &UdpSocket, parts: &[libc::iovec], segment: Option<u16>) -> io::Result<()> {
        /// Room for a control message of 16 bits, aligned as one.
        #[repr(C, align(8))]
        struct Control([u8; 24]);
        let mut control = Control([0; 24]);
        // SAFETY: all zeroes is a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_ptr().cast_mut();
        message.msg_iovlen = parts.len();
        if let Some(segment) = segment {
            message.msg_control = control.0.as_mut_ptr().cast();
            // SAFETY: the buffer has room for the one control message, of 2 bytes, that is written.
            unsafe {
                message.msg_controllen = libc::CMSG_SPACE(2) as usize;
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                (*header).cmsg_level = libc::SOL_UDP;
                (*header).cmsg_type = libc::UDP_SEGMENT;
                (*header).cmsg_len = libc::CMSG_LEN(2) as usize;
                libc::CMSG_DATA(header).cast::<u16>().write_unaligned(segment);
            }
        }
        // SAFETY: the parts point to live memory that sendmsg only reads.
        maybe_again(|| unsafe {
            libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT)
        })
    }

    /// Sends a frame that is short enough in one piece, which spares the kernel to gather it.
    #[inline]
    fn send_short(&self, frame: &fb_frame, payload: &[u8]) {
        let mut whole = [MaybeUninit::<u8>::uninit(); size_of::<fb_frame>() + SHORT];
        let at = whole.as_mut_ptr().cast::<u8>();
        let length = size_of::<fb_frame>() + payload.len();
        // SAFETY: there is room for both, and as much is sent as was written.
        let _ = maybe_again(|| unsafe {
            at.copy_from_nonoverlapping(std::ptr::from_ref(frame).cast(), size_of::<fb_frame>());
            at.add(size_of::<fb_frame>()).copy_from_nonoverlapping(payload.as_ptr(), payload.len());
            libc::send(self.single.as_raw_fd(), at.cast(), length, libc::MSG_DONTWAIT)
        });
    }

    /// Sends a frame. A failure is a lost frame, which is legal.
    fn send_one(&self, frame: &fb_frame, payload: &[u8]) {
        if payload.len() <= SHORT {
            return self.send_short(frame, payload);
        }
        let _ = Self::send(&self.single, &[iovec_of_frame(frame), iovec_of_payload(payload)], None);
    }

    /// Sends frames, all with as much payload but for the last, which may have less.
    fn send_super(&self, frames: &[(fb_frame, &[u8])]) {
        let [(_, first), _, ..] = frames else {
            frames.iter().for_each(|(frame, payload)| self.send_one(frame, payload));
            return;
        };
        let segment = size_of::<fb_frame>() + first.len();
        let mut parts = Vec::with_capacity(2 * frames.len());
        for (frame, payload) in frames {
            parts.extend([iovec_of_frame(frame), iovec_of_payload(payload)]);
        }
        let sent =
            self.segmenting().and_then(|socket| Self::send(socket, &parts, Some(segment as u16)));
        let Err(error) = sent else { return };
        // They are lost: the way out is full, or nobody is there.
        let lost = [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM, libc::ECONNREFUSED];
        if error.raw_os_error().is_some_and(|error| lost.contains(&error)) {
            return;
        }
        if !self.one_by_one.swap(true, Ordering::Relaxed) {
            log::debug!("no super-frames to {}: {error}", self.to);
        }
        frames.iter().for_each(|(frame, payload)| self.send_one(frame, payload));
    }

    /// Whether something of what was sent has not left this host yet.
    fn is_queued(&self) -> bool {
        let many = self.many.get();
        std::iter::once(&self.single).chain(many).any(|socket| sockopt::queued(socket) > 0)
    }

    fn segmenting(&self) -> io::Result<&UdpSocket> {
        if let Some(socket) = self.many.get() {
            return Ok(socket);
        }
        let socket = connect(self.from, self.to)?;
        sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER)?;
        Ok(self.many.get_or_init(|| socket))
    }
}

/// Sends, once more if the first time reports what became of an earlier frame.
#[inline]
fn maybe_again(send: impl Fn() -> isize) -> io::Result<()> {
    let mut result = Ok(());
    for _ in 0..2 {
        if send() >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // A frame that met a host without hooks earned an ICMP error, which is reported here and
        // now, in place of sending; and forgotten by that.
        let again = error.raw_os_error() == Some(libc::ECONNREFUSED);
        result = Err(error);
        if !again {
            break;
        }
    }
    result
}

fn iovec_of_frame(frame: &fb_frame) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::from_ref(frame).cast_mut().cast(),
        iov_len: size_of::<fb_frame>(),
    }
}

fn iovec_of_payload(payload: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() }
}

impl Transport for Sockets {
    fn is_queued(&self) -> bool {
        self.peers.iter().flatten().any(|peer| peer.is_queued())
    }

    fn send(&mut self, member: u8, frame: &fb_frame, payload: &[u8]) {
        if let Some(Some(peer)) = self.peers.get(usize::from(member)) {
            peer.send_one(frame, payload);
        }
    }

    fn send_many(&mut self, member: u8, frames: &[(fb_frame, &[u8])]) {
        let Some(Some(peer)) = self.peers.get(usize::from(member)) else { return };
        let mut rest = frames;
        while let [(_, first), ..] = rest {
            // As far as they are of one size, and one shorter one.
            let full = rest.iter().take_while(|(_, payload)| payload.len() == first.len()).count();
            let short = rest.get(full).is_some_and(|(_, payload)| payload.len() < first.len());
            let most = if peer.one_by_one.load(Ordering::Relaxed) { 1 } else { rest.len() };
            let (now, later) = rest.split_at((full + usize::from(short)).min(most));
            peer.send_super(now);
            rest = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_share_their_sockets_and_leave_none() {
        let pool = SocketPool::default();
        let members: Vec<Ipv4Addr> = (1..=4).map(|host| Ipv4Addr::new(127, 0, 0, host)).collect();
        let count = || pool.peers.lock().unwrap().values().map(Weak::strong_count).sum::<usize>();
        let groups: Vec<_> =
            (0..30).map(|_| pool.sockets(&members, 0, 1).expect("a loopback")).collect();
        assert_eq!(pool.peers.lock().unwrap().len(), 3);
        assert_eq!(count(), 30 * 3);
        let other = pool.sockets(&members[..2], 1, 1).unwrap();
        assert_eq!(pool.peers.lock().unwrap().len(), 4, "from another address");
        drop((groups, other));
        assert_eq!(count(), 0);
    }
}

//! Unix sockets that keep packets apart and carry descriptors.
#![allow(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixAddr, accept4, bind, connect, getsockname, getsockopt, listen, recvmsg, sendmsg, socket,
    sockopt,
};

use crate::agent::address::SocketAddress;

const FLAGS: SockFlag = SockFlag::SOCK_CLOEXEC.union(SockFlag::SOCK_NONBLOCK);
const RETRY: Duration = Duration::from_millis(2);

/// The process at the other end, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) pid: i32,
}

/// A connected or listening socket; never blocks.
pub(crate) struct Socket(OwnedFd);

/// A packet that came in.
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fd: Option<OwnedFd>,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    fn new() -> nix::Result<Self> {
        socket(AddressFamily::Unix, SockType::SeqPacket, FLAGS, None).map(Self)
    }

    /// Listens at an address that is free.
    pub(crate) fn listen(address: &SocketAddress) -> nix::Result<Self> {
        Self::listen_unix(&unix_address(address)?)
    }

    /// Listens at an abstract address that the kernel picks.
    pub(crate) fn listen_anywhere() -> nix::Result<(Self, SocketAddress)> {
        let socket = Self::listen_unix(&UnixAddr::new_unnamed())?;
        let address: UnixAddr = getsockname(socket.raw())?;
        let name = address.as_abstract().ok_or(Errno::EADDRNOTAVAIL)?;
        let name = std::str::from_utf8(name).map_err(|_| Errno::EADDRNOTAVAIL)?;
        Ok((socket, SocketAddress::Abstract(name.to_string())))
    }

    fn listen_unix(address: &UnixAddr) -> nix::Result<Self> {
        let socket = Self::new()?;
        bind(socket.raw(), address)?;
        listen(&socket.0, Backlog::new(128)?)?;
        Ok(socket)
    }

    /// Connects. A listener whose queue is full is asked again until the time is up.
    pub(crate) fn connect(address: &SocketAddress, patience: Duration) -> nix::Result<Self> {
        let address = unix_address(address)?;
        let end = Instant::now() + patience;
        let socket = Self::new()?;
        loop {
            match connect(socket.raw(), &address) {
                Ok(()) => return Ok(socket),
                Err(Errno::EAGAIN | Errno::EINTR) if Instant::now() < end => {
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The next connection of a listener.
    pub(crate) fn accept(&self) -> nix::Result<Self> {
        let fd = accept4(self.raw(), FLAGS)?;
        // SAFETY: accept4 just made this descriptor, and nobody else knows of it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The process that connected or, at the connecting end, that listens.
    pub(crate) fn peer(&self) -> nix::Result<Peer> {
        let credentials = getsockopt(&self.0, sockopt::PeerCredentials)?;
        Ok(Peer { uid: credentials.uid(), pid: credentials.pid() })
    }

    /// Sends a packet, or fails with `EAGAIN`.
    pub(crate) fn send(&self, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> nix::Result<()> {
        let raw: Option<[RawFd; 1]> = fd.map(|fd| [fd.as_raw_fd()]);
        let rights: Vec<_> = raw.iter().map(|raw| ControlMessage::ScmRights(raw)).collect();
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        sendmsg::<UnixAddr>(self.raw(), &[IoSlice::new(bytes)], &rights, flags, None).map(drop)
    }

    /// Takes the next packet, or fails with `EAGAIN`. `None` is the end of the connection.
    /// Descriptors are taken only if `fds` says so; else the kernel closes them.
    pub(crate) fn receive(&self, limit: usize, fds: bool) -> nix::Result<Option<Packet>> {
        // The kernel looks for a packet, and then whether the other end is closed: a packet sent and closed
        // in between reads as the end. Nothing comes after that, so a second look finds the packet.
        match self.receive_once(limit, fds)? {
            None => self.receive_once(limit, fds),
            packet => Ok(packet),
        }
    }

    fn receive_once(&self, limit: usize, fds: bool) -> nix::Result<Option<Packet>> {
        let mut bytes = vec![0; limit];
        let mut control = nix::cmsg_space!(RawFd);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
        let control = if fds { Some(control.as_mut_slice()) } else { None };
        let message = recvmsg::<UnixAddr>(self.raw(), &mut parts, control, flags)?;
        let mut received = Vec::new();
        if fds {
            for item in message.cmsgs()? {
                if let ControlMessageOwned::ScmRights(list) = item {
                    // SAFETY: the kernel just installed these descriptors for us alone.
                    received.extend(list.iter().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }));
                }
            }
        }
        let (length, flags) = (message.bytes, message.flags);
        if flags.contains(MsgFlags::MSG_TRUNC) {
            return Err(Errno::EMSGSIZE);
        }
        if length == 0 {
            return Ok(None);
        }
        bytes.truncate(length);
        Ok(Some(Packet { bytes, fd: received.pop() }))
    }

    /// Whether there is something to read, or the other end has hung up.
    pub(crate) fn is_readable(&self) -> bool {
        let ready = poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO);
        ready.is_ok_and(|ready| ready > 0)
    }

    /// Waits for something to read, or to be able to write.
    pub(crate) fn wait(&self, flags: PollFlags, end: Instant) -> nix::Result<()> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // Rounded up: a wait must not turn into a spin in its last millisecond.
            let timeout =
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.as_fd(), flags)], timeout) {
                Ok(0) if left.is_zero() => return Err(Errno::ETIMEDOUT),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn unix_address(address: &SocketAddress) -> nix::Result<UnixAddr> {
    match address {
        SocketAddress::Path(path) => UnixAddr::new(path.as_path()),
        SocketAddress::Abstract(name) => UnixAddr::new_abstract(name.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTIONS: usize = 20_000;

    fn pair() -> (Socket, Socket) {
        let (listener, address) = Socket::listen_anywhere().unwrap();
        let client = Socket::connect(&address, Duration::from_secs(5)).unwrap();
        (listener.accept().unwrap(), client)
    }

    #[test]
    fn packets_stay_apart_and_long_ones_are_refused() {
        let (server, client) = pair();
        client.send(b"one", None).unwrap();
        client.send(b"three", None).unwrap();
        assert_eq!(server.receive(16, false).unwrap().unwrap().bytes, b"one");
        assert_eq!(server.receive(2, false).err(), Some(Errno::EMSGSIZE));
        assert_eq!(server.receive(16, false).err(), Some(Errno::EAGAIN));
        drop(client);
        assert!(server.receive(16, false).unwrap().is_none());
    }

    #[test]
    fn descriptors_travel_only_where_they_are_wanted() {
        let (server, client) = pair();
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        for wanted in [true, false] {
            client.send(b"x", Some(reader.as_fd())).unwrap();
            assert_eq!(server.receive(16, wanted).unwrap().unwrap().fd.is_some(), wanted);
        }
    }

    #[test]
    fn what_is_sent_comes_before_the_end() {
        let (listener, address) = Socket::listen_anywhere().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let receive = |_| {
            let client = Socket::connect(&address, Duration::from_secs(60)).unwrap();
            loop {
                match client.receive(16, false) {
                    Err(Errno::EAGAIN) => {}
                    packet => return packet.unwrap(),
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..CONNECTIONS {
                    listener.wait(PollFlags::POLLIN, end).unwrap();
                    listener.accept().unwrap().send(b"last words", None).unwrap();
                }
            });
            let came = (0..CONNECTIONS).map(receive).filter(Option::is_some).count();
            assert_eq!(came, CONNECTIONS);
        });
    }

    #[test]
    fn the_kernel_names_the_peer() {
        let (server, client) = pair();
        let me = Peer { uid: nix::unistd::geteuid().as_raw(), pid: nix::unistd::getpid().as_raw() };
        assert_eq!(server.peer().unwrap(), me);
        assert_eq!(client.peer().unwrap(), me);
    }

    #[test]
    fn waiting_ends() {
        let (server, _client) = pair();
        let end = Instant::now() + Duration::from_millis(10);
        assert_eq!(server.wait(PollFlags::POLLIN, end).err(), Some(Errno::ETIMEDOUT));
    }
}

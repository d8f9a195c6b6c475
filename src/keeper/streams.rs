//! TCP between keepers, for networks that datagrams do not come through.
//!
//! A keeper listens at the address and port of its UDP socket, and connects from there too. So there is at
//! most one connection between two keepers, and its address names the peer, as with datagrams. No other
//! user can have made it: the port is shared by SO_REUSEPORT, which is for sockets of one user.
//!
//! A host may have other addresses, in networks that it shares with the other's. From each there may be a connection
//! too: the network of the group may be down while the MPI's own is not. A connection ends if data is not acknowledged
//! for some time, so that frames do not go on into one that leads nowhere.
//!
//! The connection carries the datagrams, one behind the other: a frame tells how long it is. A frame that
//! would have to wait is dropped; the protocol asks again.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, connect, listen, setsockopt,
    socket, sockopt,
};

use super::{FRAME, LONGEST_DATAGRAM, frame_of};
use crate::bindings::{FB_JUMBO_BYTES, FB_WIRE_MAGIC, fb_frame};

/// A connection that nobody here has had need of for so long is closed. An open one takes [`INBOX`] bytes.
const IDLE: Duration = Duration::from_secs(30);
/// A connection whose peer's system acknowledges nothing for so long is closed. Linux has sent the data three times
/// more by then: 0.2, 0.6 and 1.4 s later.
const UNACKNOWLEDGED: Duration = Duration::from_secs(2);
/// Bytes that are read at once, and times that this is done: a rank has its own call to see to. Reading 64 KiB takes
/// some 11 µs.
const INBOX: usize = 64 << 10;
const READS: usize = 4;
/// Connections that may wait to be accepted: more than a group has members.
const BACKLOG: i32 = 128;

/// The connections of a keeper.
pub(super) struct Streams {
    own: SocketAddrV4,
    listener: TcpListener,
    all: Mutex<HashMap<SocketAddrV4, Arc<Stream>>>,
    /// Their number, to be read without the lock.
    count: AtomicUsize,
}

/// The fate of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// A connection was begun for it.
    pub(super) made: bool,
    /// The system has it.
    pub(super) taken: bool,
}

/// A connection with another keeper.
pub(super) struct Stream {
    peer: SocketAddrV4,
    socket: TcpStream,
    inbox: Mutex<Inbox>,
    /// The rest of a frame that has been sent in part, and when the connection was last needed.
    outbox: Mutex<(Vec<u8>, Instant)>,
}

struct Inbox {
    bytes: Box<[u8]>,
    filled: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket at `own`, which others of this user may share.
fn bound(own: SocketAddrV4) -> io::Result<std::os::fd::OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    setsockopt(&fd, sockopt::ReusePort, &true)?;
    // Data still on its way at the end is of no use, and the pair of ports may be needed again at once.
    setsockopt(&fd, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
    setsockopt(&fd, sockopt::TcpUserTimeout, &(UNACKNOWLEDGED.as_millis() as u32))?;
    bind(fd.as_raw_fd(), &SockaddrIn::from(own))?;
    Ok(fd)
}

impl Stream {
    fn new(peer: SocketAddrV4, socket: TcpStream) -> Self {
        let inbox = Inbox { bytes: vec![0; INBOX].into(), filled: 0 };
        let outbox = (Vec::new(), Instant::now());
        Self { peer, socket, inbox: Mutex::new(inbox), outbox: Mutex::new(outbox) }
    }

    /// Hands what has come to `take`, unless somebody does so already. An error ends the connection.
    fn receive(&self, mut take: impl FnMut(&fb_frame, &[u8])) -> io::Result<()> {
        let Ok(mut inbox) = self.inbox.try_lock() else { return Ok(()) };
        let Inbox { bytes, filled } = &mut *inbox;
        for _ in 0..READS {
            match (&self.socket).read(&mut bytes[*filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => *filled += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let mut at = 0;
            while let Some(frame) = bytes[at..*filled].get(..FRAME).map(frame_of) {
                let end = at + FRAME + usize::from(frame.length);
                if frame.magic != FB_WIRE_MAGIC || u32::from(frame.length) > FB_JUMBO_BYTES {
                    return Err(ErrorKind::InvalidData.into());
                }
                if end > *filled {
                    break;
                }
                take(&frame, &bytes[at + FRAME..end]);
                at = end;
            }
            bytes.copy_within(at..*filled, 0);
            *filled -= at;
        }
        Ok(())
    }

    /// Sends a frame, or none of it, and says whether it has. An error ends the connection.
    fn send(&self, datagram: &[u8], needed: bool) -> io::Result<bool> {
        let mut outbox = lock(&self.outbox);
        let (rest, last) = &mut *outbox;
        if needed {
            *last = Instant::now();
        }
        let write = |bytes: &[u8]| match (&self.socket).write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            other => other,
        };
        if !rest.is_empty() {
            let sent = write(rest)?;
            rest.drain(..sent);
        }
        if !rest.is_empty() {
            return Ok(false);
        }
        let sent = write(datagram)?;
        if sent > 0 {
            rest.extend(&datagram[sent..]);
        }
        Ok(sent > 0)
    }

    fn is_idle(&self) -> bool {
        lock(&self.outbox).1.elapsed() > IDLE
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Streams {
    /// Listens at `own`; port 0: at one that is free.
    ///
    /// # Errors
    /// A system error: the port is taken, too many open files.
    pub(super) fn at(own: SocketAddrV4) -> io::Result<Self> {
        let fd = bound(own)?;
        listen(&fd, Backlog::new(BACKLOG)?)?;
        let listener = TcpListener::from(fd);
        let own = SocketAddrV4::new(*own.ip(), listener.local_addr()?.port());
        Ok(Self { own, listener, all: Mutex::default(), count: AtomicUsize::new(0) })
    }

    /// The address at which it listens, and from which it connects.
    pub(super) fn own(&self) -> SocketAddrV4 {
        self.own
    }

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// All connections except idle ones.
    pub(super) fn all(&self) -> Vec<Arc<Stream>> {
        let mut all = lock(&self.all);
        all.retain(|_, stream| !stream.is_idle());
        self.count.store(all.len(), Ordering::Relaxed);
        all.values().cloned().collect()
    }

    fn insert(&self, stream: Stream) -> Arc<Stream> {
        let (mut all, stream) = (lock(&self.all), Arc::new(stream));
        all.insert(stream.peer, Arc::clone(&stream));
        self.count.store(all.len(), Ordering::Relaxed);
        stream
    }

    fn remove(&self, stream: &Arc<Stream>) {
        let mut all = lock(&self.all);
        if all.get(&stream.peer).is_some_and(|there| Arc::ptr_eq(there, stream)) {
            all.remove(&stream.peer);
        }
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// Takes the connections of keepers that `knows` knows.
    ///
    /// # Errors
    /// A system error that will come again: too many open files.
    pub(super) fn accept(&self, knows: impl Fn(SocketAddrV4) -> bool) -> io::Result<()> {
        loop {
            let (socket, peer) = match self.listener.accept() {
                Ok((socket, SocketAddr::V4(peer))) => (socket, peer),
                Ok(_) => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            if knows(peer)
                && socket.set_nonblocking(true).is_ok()
                && socket.set_nodelay(true).is_ok()
            {
                self.insert(Stream::new(peer, socket));
            }
        }
    }

    /// Hands what has come from each keeper to `take`.
    pub(super) fn receive(&self, mut take: impl FnMut(&fb_frame, &[u8], SocketAddrV4)) {
        for stream in self.all() {
            if stream.receive(|frame, payload| take(frame, payload, stream.peer)).is_err() {
                self.remove(&stream);
            }
        }
    }

    /// Sends a frame to a keeper, if there is a connection; `needed`: or makes one, which takes a while.
    pub(super) fn send(&self, to: SocketAddrV4, datagram: &[u8], needed: bool) -> Sent {
        debug_assert!(datagram.len() <= LONGEST_DATAGRAM);
        let there = lock(&self.all).get(&to).cloned();
        let (stream, made) = match there {
            Some(stream) => (stream, false),
            None if !needed => return Sent::default(),
            None => match self.connect(to) {
                Ok(stream) => (stream, true),
                // Its own may be on the way here.
                Err(_) => return Sent::default(),
            },
        };
        let taken = stream.send(datagram, needed);
        if taken.is_err() {
            self.remove(&stream);
        }
        Sent { made, taken: taken.unwrap_or(false) }
    }

    fn connect(&self, to: SocketAddrV4) -> io::Result<Arc<Stream>> {
        let fd = bound(self.own)?;
        match connect(fd.as_raw_fd(), &SockaddrIn::from(to)) {
            Ok(()) | Err(nix::errno::Errno::EINPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.insert(Stream::new(to, TcpStream::from(fd))))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;
    use crate::wire::Seal;

    /// For hangs alone.
    const MOST: Duration = Duration::from_secs(120);

    fn frame(seq: u64, payload: &[u8]) -> Vec<u8> {
        let (magic, length) = (FB_WIRE_MAGIC, payload.len() as u16);
        let frame = fb_frame { magic, seq, length, ..Default::default() };
        let frame = Seal::new(None).sealed(frame, payload);
        // SAFETY: a frame is FRAME bytes without holes (bpf/wire.h).
        let header = unsafe { *(&raw const frame).cast::<[u8; FRAME]>() };
        [&header, payload].concat()
    }

    fn at(host: u8) -> Streams {
        let address = Ipv4Addr::new(127, 0, 0, host);
        let (_, _, streams) = super::super::sockets(address).expect("ports");
        streams.expect("a port for connections")
    }

    /// Accepts and receives until it has so many frames, which `others` send again and again, since one that has
    /// to wait is dropped.
    fn take(streams: &Streams, count: usize, mut others: impl FnMut()) -> Vec<(u64, Vec<u8>)> {
        let (begin, mut taken) = (Instant::now(), Vec::new());
        while taken.len() < count {
            assert!(begin.elapsed() < MOST, "stuck after {} frames", taken.len());
            others();
            streams.accept(|_| true).unwrap();
            streams.receive(|frame, payload, _| taken.push((frame.seq, payload.to_vec())));
        }
        taken
    }

    #[test]
    fn frames_come_whole_and_in_order() {
        let (one, other) = (at(1), at(2));
        let payload = |seq: u64| vec![seq as u8; (seq as usize * 37) % 1409];
        let mut seq = 0;
        let taken = take(&other, 3000, || {
            for _ in 0..50 {
                seq += 1;
                one.send(other.own, &frame(seq, &payload(seq)), true);
            }
        });
        assert!(taken.is_sorted_by(|(a, _), (b, _)| a < b));
        assert!(taken.iter().all(|(seq, data)| *data == payload(*seq)));
        // The other way, by the same connection.
        let back = frame(1, &[7; 8]);
        let taken =
            take(&one, 1, || assert!(!other.send(one.own, &back, true).made, "one is enough"));
        assert_eq!(taken[0], (1, vec![7; 8]));
    }

    #[test]
    fn both_may_begin_at_once() {
        for _ in 0..50 {
            let (one, other) = (at(1), at(2));
            let word = frame(1, &[]);
            let made = [one.send(other.own, &word, true), other.send(one.own, &word, true)];
            assert!(made.iter().any(|sent| sent.made), "{made:?}");
            // A keeper that does not accept the other's connection has none of its own.
            let both = || {
                one.send(other.own, &word, true);
                other.send(one.own, &word, true);
                one.accept(|_| true).unwrap();
                other.accept(|_| true).unwrap();
            };
            take(&one, 1, both);
            take(&other, 1, both);
        }
    }

    #[test]
    fn strangers_and_nonsense_are_hung_up_on() {
        let streams = at(1);
        let stranger = TcpStream::connect(streams.own).unwrap();
        stranger.set_read_timeout(Some(MOST)).unwrap();
        streams.accept(|_| false).unwrap();
        assert!(streams.is_empty());
        assert!(matches!((&stranger).read(&mut [0]), Ok(0) | Err(_)));

        let friend = TcpStream::connect(streams.own).unwrap();
        friend.set_read_timeout(Some(MOST)).unwrap();
        (&friend).write_all(&[0x55; 3 * FRAME]).unwrap();
        let begin = Instant::now();
        let mut met = false;
        while !met || !streams.is_empty() {
            assert!(begin.elapsed() < MOST);
            streams.accept(|_| true).unwrap();
            met |= !streams.is_empty();
            streams.receive(|_, _, _| panic!("nonsense"));
        }
        assert!(matches!((&friend).read(&mut [0]), Ok(0) | Err(_)));
    }

    #[test]
    fn a_connection_that_has_ended_is_made_again() {
        let (one, mut other) = (at(1), at(2));
        for _ in 0..3 {
            let word = frame(1, &[1; 8]);
            take(&other, 1, || {
                one.send(other.own, &word, true);
            });
            // The other process ends, another takes its port.
            let own = other.own;
            drop(other);
            let begin = Instant::now();
            other = loop {
                assert!(begin.elapsed() < MOST);
                if let Ok(streams) = Streams::at(own) {
                    break streams;
                }
            };
        }
    }

    #[test]
    fn other_programs_keep_their_ports() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(at) = taken.local_addr().unwrap() else { panic!("of IPv4") };
        assert!(Streams::at(at).is_err());
        assert!(UdpSocket::bind(at).is_ok(), "that is another port");
    }
}

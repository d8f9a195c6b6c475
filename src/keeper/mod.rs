//! The second transport: the cells of a group, worked by this process over ordinary UDP sockets.
//!
//! The programs may be gone (an agent was killed, somebody has detached them), or what they send may not arrive
//! (a port is filtered). The protocol works whether the programs, this process or both work a cell. So a leader
//! that has asked in vain sends by this way too ([`transports`]), and nobody has to agree on it. A *keeper*, a thread
//! that sleeps in its socket, takes in the frames that come by this way. It answers for a rank that computes,
//! or waits in a receive of the MPI's.
//!
//! If datagrams do not come through either, frames take a TCP connection as well ([`streams`]), over any network
//! that two hosts share.
//!
//! A group may also have no programs at all (`FOLDBACK_TRANSPORT=sockets`), which takes no privilege. Then a rank that
//! waits receives for itself, since waking the keeper for every frame costs more than all else, and the
//! keeper sleeps meanwhile.
#![allow(unsafe_code)]

mod peers;
mod streams;
pub mod transports;
pub mod userspace_hook;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::bindings::{FB_FRAME_BYTES, FB_JUMBO_BYTES, FB_KIND_HELLO, fb_frame};
use crate::sockopt;
use crate::threads;
use crate::wire::Identity;
use crate::wire::cells::Mapped;
pub use peers::Peers;
use streams::Streams;
use userspace_hook::UserspaceHook;

const FRAME: usize = FB_FRAME_BYTES as usize;
/// Longest datagram that makes sense.
const LONGEST_DATAGRAM: usize = FRAME + FB_JUMBO_BYTES as usize;
/// Frames that may wait for the keeper: a window of them, as far as the system allows.
const RECEIVE_BUFFER: i32 = 4 << 20;
/// Datagrams that are taken in at once, at most: a rank has its own call to see to.
const AT_ONCE: usize = 64;
/// How long the keeper leaves the socket to the ranks, as long as they look into it.
const AWAY: Duration = Duration::from_millis(1);
/// How often the keeper looks for idle connections, if there are any.
const TIDY_MS: u16 = 10_000;
/// Ports tried for one that is free for datagrams and connections.
const PORTS: usize = 16;
/// Pause after an error of the socket's, so that errors do not loop.
const PAUSE: Duration = Duration::from_millis(100);

/// Stands in for the programs, for a group of this process.
pub type KeptHook = UserspaceHook<Mapped, Peers>;

/// The keepers of a process: one for each of its addresses that groups use.
#[derive(Default)]
pub struct Keepers {
    by_address: Mutex<HashMap<Ipv4Addr, Arc<Keeper>>>,
}

/// A socket of this process and the thread that sleeps in it, for all groups at one address.
pub struct Keeper {
    socket: UdpSocket,
    own: SocketAddrV4,
    /// Connections from its own address, and from others of this host; none from where there are no ports, or
    /// files, for them.
    streams: Vec<Streams>,
    groups: Mutex<HashMap<u64, KeptGroup>>,
    /// How often ranks have looked into the socket.
    looks: AtomicU32,
}

struct KeptGroup {
    /// The keeper of each member.
    peers: Vec<Option<Contact>>,
    hook: Weak<KeptHook>,
}

/// The addresses of a member's keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    /// Its address in the group, for datagrams, and for connections from ours.
    pub at: SocketAddrV4,
    /// Its other addresses, for connections, each with this host's address in the same network.
    pub elsewhere: Vec<(Ipv4Addr, SocketAddrV4)>,
}

impl Contact {
    /// Whether that keeper sends datagrams from `from`. At its other addresses it holds the port for connections alone,
    /// so another user of its host may send datagrams from there.
    fn sends_from(&self, from: SocketAddrV4) -> bool {
        self.at == from
    }

    /// Whether that keeper has connections from `from`.
    fn connects_from(&self, from: SocketAddrV4) -> bool {
        self.at == from || self.elsewhere.iter().any(|(_, at)| *at == from)
    }
}

impl Keepers {
    /// The keeper at `address`, which also has connections from `elsewhere`. It is made if it is not there yet: the
    /// first group mostly has all ranks.
    ///
    /// # Errors
    /// A system error: the address is not ours, too many open files, no thread to be had.
    pub fn at(&self, address: Ipv4Addr, elsewhere: &[Ipv4Addr]) -> io::Result<Arc<Keeper>> {
        let mut keepers = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keeper) = keepers.get(&address) {
            return Ok(Arc::clone(keeper));
        }
        let keeper = Arc::new(Keeper::new(address, elsewhere)?);
        let at_work = Arc::clone(&keeper);
        threads::start("foldback-keeper", move || at_work.keep())?;
        keepers.insert(address, Arc::clone(&keeper));
        Ok(keeper)
    }
}

impl Keeper {
    fn new(address: Ipv4Addr, elsewhere: &[Ipv4Addr]) -> io::Result<Self> {
        let (socket, own, streams) = sockets(address)?;
        let others = elsewhere.iter().map(|other| Streams::at(SocketAddrV4::new(*other, 0)));
        let streams = streams.into_iter().chain(others.flatten()).collect();
        sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, own, streams, groups: Mutex::default(), looks: AtomicU32::new(0) })
    }

    /// The port of its socket, for its peers.
    pub fn port(&self) -> u16 {
        self.own.port()
    }

    /// Its other addresses for connections, for its peers.
    pub fn elsewhere(&self) -> Vec<SocketAddrV4> {
        self.streams.iter().map(Streams::own).filter(|at| at.ip() != self.own.ip()).collect()
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<u64, KeptGroup>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a group on, whose members have their keepers at `peers` (`None`: this one, or it has none), for
    /// as long as the result lives.
    pub fn add_group(
        self: &Arc<Self>,
        identity: &Identity,
        peers: Vec<Option<Contact>>,
        memory: Mapped,
    ) -> Arc<KeptHook> {
        let way = Peers::new(self, identity, peers.clone());
        let hook = Arc::new(UserspaceHook::new(identity, memory, way));
        let mut groups = self.groups();
        groups.retain(|_, group| group.hook.strong_count() > 0);
        groups.insert(identity.token, KeptGroup { peers, hook: Arc::downgrade(&hook) });
        hook
    }

    /// The hook of the group that a frame names. The frame must come from the keeper of the member that it names,
    /// as `comes_from` says.
    fn find(
        &self,
        frame: &fb_frame,
        comes_from: impl FnOnce(&Contact) -> bool,
    ) -> Option<Arc<KeptHook>> {
        let groups = self.groups();
        let group = groups.get(&frame.token)?;
        let named = group.peers.get(usize::from(frame.source))?.as_ref()?;
        if comes_from(named) { group.hook.upgrade() } else { None }
    }

    /// Whether a group has a member's keeper there.
    fn knows(&self, peer: SocketAddrV4) -> bool {
        let groups = self.groups();
        let live = groups.values().filter(|group| group.hook.strong_count() > 0);
        live.flat_map(|group| &group.peers).flatten().any(|known| known.connects_from(peer))
    }

    /// Takes in what comes, as long as the process lives.
    fn keep(&self) {
        let mut looks = 0;
        loop {
            if self.accept().is_err() {
                thread::sleep(PAUSE);
            }
            let now = self.looks.load(Ordering::Relaxed);
            if now != looks {
                looks = now;
                thread::sleep(AWAY);
                continue;
            }
            self.sleep();
            if self.take_in().is_err() {
                thread::sleep(PAUSE);
            }
        }
    }

    fn accept(&self) -> io::Result<()> {
        self.streams.iter().try_for_each(|streams| streams.accept(|peer| self.knows(peer)))
    }

    /// Sends a frame to a keeper by the first connection that takes it, if there is one; `needed`: or makes
    /// connections, which takes a while.
    fn stream(&self, to: &Contact, datagram: &[u8], needed: bool) {
        let mut made = false;
        let home = std::iter::once((self.own.ip(), &to.at));
        for (own, at) in home.chain(to.elsewhere.iter().map(|(own, at)| (own, at))) {
            let Some(streams) = self.streams.iter().find(|streams| streams.own().ip() == own)
            else {
                continue;
            };
            let sent = streams.send(*at, datagram, needed);
            made |= sent.made;
            if sent.taken {
                break;
            }
        }
        if made {
            self.wake();
        }
    }

    /// Until something has come.
    fn sleep(&self) {
        let all = self.streams.iter().flat_map(Streams::all).collect::<Vec<_>>();
        let fds = self.streams.iter().map(Streams::listener).chain(all.iter().map(|s| s.as_fd()));
        let fds = fds.chain([self.socket.as_fd()]);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let _ = poll(&mut fds, if all.is_empty() { PollTimeout::NONE } else { TIDY_MS.into() });
    }

    /// Has the keeper look what there is to wait for.
    fn wake(&self) {
        let _ = self.socket.send_to(&[], self.own);
    }

    /// Takes in what has come, in place of the keeper, which sleeps as long as somebody does.
    fn look(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        // An error is a lost frame; the keeper meets it too, and pauses.
        let _ = self.take_in();
    }

    /// Takes in what has come, or a good deal of it.
    fn take_in(&self) -> io::Result<()> {
        for streams in self.streams.iter().filter(|streams| !streams.is_empty()) {
            streams.receive(|frame, payload, from| {
                if let Some(hook) = self.find(frame, |named| named.connects_from(from)) {
                    hook.take_in(frame, payload);
                }
            });
        }
        self.take_in_datagrams()
    }

    fn take_in_datagrams(&self) -> io::Result<()> {
        // On the heap, since the stack may be a program's thread's.
        let mut datagram = vec![0; LONGEST_DATAGRAM + 1];
        for _ in 0..AT_ONCE {
            let (bytes, from) = match self.socket.recv_from(&mut datagram) {
                Ok((bytes, SocketAddr::V4(from))) => (bytes, from),
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let Some((frame, payload)) = datagram[..bytes].split_at_checked(FRAME) else {
                continue;
            };
            let frame = frame_of(frame);
            let Some(hook) = self.find(&frame, |named| named.sends_from(from)) else { continue };
            if u32::from(frame.kind) == FB_KIND_HELLO {
                if hook.admits_hello(&frame, payload) {
                    hook.out().heard(&frame);
                }
            } else {
                hook.take_in(&frame, payload);
            }
        }
        Ok(())
    }
}

/// A port of `address` for datagrams, and for connections if there is one for both.
fn sockets(address: Ipv4Addr) -> io::Result<(UdpSocket, SocketAddrV4, Option<Streams>)> {
    let any = SocketAddrV4::new(address, 0);
    for _ in 0..PORTS {
        let socket = UdpSocket::bind(any)?;
        let own = SocketAddrV4::new(address, socket.local_addr()?.port());
        match Streams::at(own) {
            Ok(streams) => return Ok((socket, own, Some(streams))),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(_) => return Ok((socket, own, None)),
        }
    }
    let socket = UdpSocket::bind(any)?;
    let own = SocketAddrV4::new(address, socket.local_addr()?.port());
    Ok((socket, own, None))
}

/// The frame that these bytes are, as many as it has.
fn frame_of(bytes: &[u8]) -> fb_frame {
    assert_eq!(bytes.len(), FRAME);
    // SAFETY: so many bytes as a frame has, which is integers.
    unsafe { bytes.as_ptr().cast::<fb_frame>().read_unaligned() }
}

#[cfg(test)]
mod tests;

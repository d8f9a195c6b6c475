//! The second transport: the cells of a group, worked by this process over ordinary UDP sockets.
//!
//! The programs may be gone (an agent was killed, somebody has detached them), or what they send may not
//! arrive (a port is filtered). The protocol does not mind who works a cell, nor that both do, so a leader that
//! has asked in vain sends by this way too ([`ways`]), and nobody has to agree on it. A *keeper*, a thread that
//! sleeps in its socket, takes in what comes to this process by this way: so a rank is answered for while it
//! computes, or sits in a receive of the MPI's.
//!
//! A group may also have no programs at all (`FOLDBACK_HOOK=none`), which takes no privilege. Then a rank that
//! waits receives for itself, since waking the keeper for every frame costs more than all else, and the
//! keeper sleeps meanwhile.
#![allow(unsafe_code)]

pub mod deputy;
pub mod ways;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow};

use crate::bindings::{FB_CHUNK_BYTES, FB_FRAME_BYTES, fb_frame};
use crate::sockopt;
use crate::wire::Identity;
use crate::wire::cells::Mapped;
use deputy::{Datagrams, Deputy};

const FRAME: usize = FB_FRAME_BYTES as usize;
/// Longest datagram that makes sense.
const MOST: usize = FRAME + FB_CHUNK_BYTES as usize;
/// Frames that may wait for the keeper: a window of them, as far as the system allows.
const RECEIVE_BUFFER: i32 = 4 << 20;
/// Datagrams that are taken in at once, at most: a rank has its own call to see to.
const AT_ONCE: usize = 64;
/// How long the keeper leaves the socket to the ranks, as long as they look into it.
const AWAY: Duration = Duration::from_millis(1);
/// Pause after an error of the socket's, lest it come in a loop.
const PAUSE: Duration = Duration::from_millis(100);

/// Stands in for the programs, for a group of this process.
pub type Seat = Deputy<Mapped, Peers>;

/// The keepers of a process: one for each of its addresses that groups use.
#[derive(Default)]
pub struct Keepers(Mutex<HashMap<Ipv4Addr, Arc<Keeper>>>);

/// A socket of this process and the thread that sleeps in it, for all groups at one address.
pub struct Keeper {
    socket: UdpSocket,
    port: u16,
    seats: Mutex<HashMap<u64, Seated>>,
    /// How often ranks have looked into the socket.
    looks: AtomicU32,
}

struct Seated {
    /// Where each member's keeper is.
    peers: Vec<Option<SocketAddrV4>>,
    seat: Weak<Seat>,
}

/// The way to the other members' keepers.
pub struct Peers {
    keeper: Arc<Keeper>,
    peers: Vec<Option<SocketAddrV4>>,
}

impl Keepers {
    /// The keeper at `address`.
    ///
    /// # Errors
    /// What the system says: the address is not ours, too many open files, no thread to be had.
    pub fn at(&self, address: Ipv4Addr) -> io::Result<Arc<Keeper>> {
        let mut keepers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keeper) = keepers.get(&address) {
            return Ok(Arc::clone(keeper));
        }
        let keeper = Arc::new(Keeper::new(address)?);
        // The program's signals are for its own threads.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).ok();
        let at_work = Arc::clone(&keeper);
        let thread = thread::Builder::new().name("foldback-keeper".into()).stack_size(128 << 10);
        let started = thread.spawn(move || at_work.keep());
        if let Some(before) = before {
            let _ = before.thread_set_mask();
        }
        started?;
        keepers.insert(address, Arc::clone(&keeper));
        Ok(keeper)
    }
}

impl Keeper {
    fn new(address: Ipv4Addr) -> io::Result<Self> {
        let socket = UdpSocket::bind(SocketAddrV4::new(address, 0))?;
        sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER)?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        Ok(Self { socket, port, seats: Mutex::default(), looks: AtomicU32::new(0) })
    }

    /// The port of its socket, which peers are to be told.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<u64, Seated>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a group on, whose members have their keepers at `peers` (`None`: this one, or it has none), for
    /// as long as the result lives.
    pub fn seat(
        self: &Arc<Self>,
        identity: &Identity,
        peers: Vec<Option<SocketAddrV4>>,
        memory: Mapped,
    ) -> Arc<Seat> {
        let way = Peers { keeper: Arc::clone(self), peers: peers.clone() };
        let seat = Arc::new(Deputy::new(identity, memory, way));
        let mut seats = self.seats();
        seats.retain(|_, seated| seated.seat.strong_count() > 0);
        seats.insert(identity.token, Seated { peers, seat: Arc::downgrade(&seat) });
        seat
    }

    /// The seat that a frame from `from` is for: of the group that it names, if that is where the member that it
    /// names has its keeper.
    fn find(&self, frame: &fb_frame, from: SocketAddrV4) -> Option<Arc<Seat>> {
        let seats = self.seats();
        let seated = seats.get(&frame.token)?;
        let named = seated.peers.get(usize::from(frame.source)).copied().flatten();
        if named == Some(from) { seated.seat.upgrade() } else { None }
    }

    /// Takes in what comes, as long as the process lives.
    fn keep(&self) {
        let mut looks = 0;
        loop {
            let now = self.looks.load(Ordering::Relaxed);
            if now != looks {
                looks = now;
                thread::sleep(AWAY);
                continue;
            }
            let mut sockets = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut sockets, PollTimeout::NONE);
            if self.take_in().is_err() {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Takes in what has come, in place of the keeper, which sleeps as long as somebody does.
    fn look(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        // An error is a lost frame; the keeper meets it too, and pauses.
        let _ = self.take_in();
    }

    /// Takes in what has come, or a good deal of it.
    fn take_in(&self) -> io::Result<()> {
        let mut datagram = Datagram([0; MOST + 1]);
        for _ in 0..AT_ONCE {
            let (bytes, from) = match self.socket.recv_from(&mut datagram.0) {
                Ok((bytes, SocketAddr::V4(from))) => (bytes, from),
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let Some((frame, payload)) = datagram.0[..bytes].split_at_checked(FRAME) else {
                continue;
            };
            // SAFETY: as many bytes as a frame has, which is integers; the buffer is aligned as one is.
            let frame = unsafe { frame.as_ptr().cast::<fb_frame>().read() };
            if let Some(seat) = self.find(&frame, from) {
                seat.take_in(&frame, payload);
            }
        }
        Ok(())
    }
}

/// Room for a datagram, with the frame where it can be read as one.
#[repr(C, align(8))]
struct Datagram([u8; MOST + 1]);

impl Datagrams for Peers {
    fn send(&self, member: u8, frame: &fb_frame, payload: &[u8]) {
        let Some(Some(to)) = self.peers.get(usize::from(member)) else { return };
        // SAFETY: a frame is FRAME bytes without holes (bpf/wire.h).
        let header =
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(frame).cast::<u8>(), FRAME) };
        let mut datagram = [0; MOST];
        let bytes = FRAME + payload.len();
        datagram[..FRAME].copy_from_slice(header);
        datagram[FRAME..bytes].copy_from_slice(payload);
        // A failure is a lost frame, which is legal. Who would block waits for no one.
        let _ = self.keeper.socket.send_to(&datagram[..bytes], *to);
    }

    fn take_in(&self) {
        self.keeper.look();
    }
}

#[cfg(test)]
mod tests;

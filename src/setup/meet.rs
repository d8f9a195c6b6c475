//! The ranks of one host meet: the leader hands the shared segment to the others. It does so over a socket of the
//! network namespace, so that nothing is left in the file system, whatever happens.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;

use crate::agent::SocketAddress;
use crate::agent::socket::Socket;
use crate::leaf::Leaf;
use crate::leaf::segment::Segment;

/// All come from the same exchange, so nobody is far behind, but where there are many more threads than CPUs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The leader's side of the meeting.
pub struct Host {
    listener: Socket,
    address: SocketAddress,
    segment: Option<Segment>,
    file: OwnedFd,
}

impl Host {
    /// Makes the segment for `ranks` ranks, and a place to ask for it.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(ranks: usize) -> io::Result<Self> {
        let (listener, address) = Socket::listen_anywhere()?;
        let (segment, file) = Segment::create(ranks)?;
        Ok(Self { listener, address, segment: Some(segment), file })
    }

    /// The address at which the others ask.
    pub fn address(&self) -> SocketAddress {
        self.address.clone()
    }

    /// Gives the segment to all `ranks` - 1 others, who are of this user.
    ///
    /// # Errors
    /// What the system says, or that somebody did not come.
    pub fn receive(&mut self, ranks: usize) -> io::Result<Leaf> {
        let end = Instant::now() + PATIENCE;
        let me = nix::unistd::geteuid().as_raw();
        let mut given = 1;
        while given < ranks {
            match self.listener.accept() {
                Ok(rank) if rank.peer()?.uid == me => {
                    rank.send(b"segment", Some(self.file.as_fd()))?;
                    given += 1;
                }
                Ok(_stranger) => {}
                Err(Errno::EAGAIN) => self.listener.wait(PollFlags::POLLIN, end)?,
                Err(Errno::EINTR | Errno::ECONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let segment = self.segment.take().ok_or_else(|| io::Error::other("given already"))?;
        Ok(Leaf::new(segment, 0, ranks))
    }
}

/// Local rank `place` of `ranks` asks the leader for the segment.
///
/// # Errors
/// What the system says, or that the leader is none of ours.
pub fn join(address: &SocketAddress, place: usize, ranks: usize) -> io::Result<Leaf> {
    let socket = Socket::connect(address, PATIENCE)?;
    if socket.peer()?.uid != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::other("the leader is of another user"));
    }
    let end = Instant::now() + PATIENCE;
    loop {
        match socket.receive(64, true) {
            Ok(Some(packet)) => {
                let file = packet.fd.ok_or_else(|| io::Error::other("no descriptor came"))?;
                return Ok(Leaf::new(Segment::open(&file, ranks)?, place, ranks));
            }
            Ok(None) => return Err(io::Error::other("the leader hung up")),
            Err(Errno::EAGAIN) => socket.wait(PollFlags::POLLIN, end)?,
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

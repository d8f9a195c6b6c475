//! One client of the agent: one request at a time, and no waiting for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;

use crate::agent::error::{Error, ErrorKind, Result};
use crate::agent::host::{ConnectionId, Host};
use crate::agent::protocol::{
    Hello, MAX_REQUEST, Reply, Request, Versions, Welcome, decode, encode,
};
use crate::agent::socket::{Peer, Socket};
use crate::bindings::fb_counters;

/// A client says hello within this time.
pub(crate) const GREETING: Duration = Duration::from_secs(5);

/// A reply that did not fit the socket yet.
struct Pending {
    bytes: Vec<u8>,
    fd: Option<OwnedFd>,
}

/// One client of the agent, with what it may and what it holds.
pub(crate) struct Connection {
    pub(crate) peer: Peer,
    id: ConnectionId,
    socket: Socket,
    /// When something was last heard of it.
    heard: Instant,
    greeted: bool,
    /// The job of the client, by its own word.
    job: Option<String>,
    groups: usize,
    pending: Option<Pending>,
}

/// The fate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Lives,
    Ends,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, peer: Peer, socket: Socket) -> Self {
        let heard = Instant::now();
        Self { peer, id, socket, heard, greeted: false, job: None, groups: 0, pending: None }
    }

    /// It has ended: takes its groups away, and tells the log what they did.
    pub(crate) fn end(self, host: &mut Host) {
        let Some(account) = host.disconnected(self.id) else { return };
        let Peer { uid, pid, .. } = self.peer;
        let job = self.job.map(|job| format!(" of job {job}")).unwrap_or_default();
        let fb_counters { contributions_folded, frames_in, frames_out, .. } = account.counters;
        log::info!(
            "process {pid}{job} of user {uid} has gone; groups {}, contributions folded \
             {contributions_folded}, frames in {frames_in}, frames out {frames_out}",
            account.groups
        );
    }

    /// The events that it waits for. Nothing more is read from a client that does not take its reply.
    pub(crate) fn interest(&self) -> PollFlags {
        if self.pending.is_some() { PollFlags::POLLOUT } else { PollFlags::POLLIN }
    }

    /// When it is ended if nothing is heard of it. A client without groups that is `idle` so long has to
    /// connect again.
    pub(crate) fn deadline(&self, idle: Duration) -> Option<Instant> {
        match (self.greeted, self.groups) {
            (false, _) => Some(self.heard + GREETING),
            (true, 0) => Some(self.heard + idle),
            (true, _) => None,
        }
    }

    /// Takes one step: sends what waits, or answers one request.
    pub(crate) fn step(&mut self, host: &mut Host, welcome: &Welcome) -> Fate {
        if self.pending.is_some() {
            return self.flush();
        }
        let packet = match self.socket.receive(MAX_REQUEST, false) {
            Ok(Some(packet)) => packet,
            Err(Errno::EAGAIN | Errno::EINTR) => return Fate::Lives,
            Ok(None) => return Fate::Ends,
            Err(error) => {
                log::debug!("process {}: {}", self.peer.pid, error.desc());
                return Fate::Ends;
            }
        };
        if self.greeted {
            self.heard = Instant::now();
        }
        let (reply, fd) = self.answer(host, welcome, &packet.bytes).unwrap_or_else(|error| {
            log::debug!("process {}: {error}", self.peer.pid);
            (Reply::Error { kind: error.kind(), message: error.to_string() }, None)
        });
        match encode(&reply) {
            Ok(bytes) => self.pending = Some(Pending { bytes, fd }),
            Err(_) => return Fate::Ends,
        }
        match self.flush() {
            // Somebody who cannot greet is told why, and that is all.
            Fate::Lives if self.greeted => Fate::Lives,
            _ => Fate::Ends,
        }
    }

    fn flush(&mut self) -> Fate {
        let Some(pending) = self.pending.take() else { return Fate::Lives };
        match self.socket.send(&pending.bytes, pending.fd.as_ref().map(AsFd::as_fd)) {
            Ok(()) => Fate::Lives,
            Err(Errno::EAGAIN | Errno::EINTR) => {
                self.pending = Some(pending);
                Fate::Lives
            }
            Err(_) => Fate::Ends,
        }
    }

    fn answer(
        &mut self,
        host: &mut Host,
        welcome: &Welcome,
        packet: &[u8],
    ) -> Result<(Reply, Option<OwnedFd>)> {
        if !self.greeted {
            let hello: Hello = decode(packet)
                .map_err(|error| Error::new(ErrorKind::Connection, error.to_string()))?;
            hello.versions.check("library")?;
            self.greeted = true;
            self.job = hello.sound_job();
            return Ok((Reply::Welcome(welcome.clone()), None));
        }
        let uid = self.peer.uid;
        let reply = match decode(packet)? {
            Request::CreateGroup(spec) => {
                let (group, cells) =
                    host.create_group(self.id, self.peer, self.job.as_deref(), spec)?;
                self.groups += 1;
                return Ok((Reply::Group(group), Some(cells)));
            }
            Request::CreateTable { slot } => {
                return Ok((Reply::Done, Some(host.create_table(self.id, slot)?)));
            }
            Request::DestroyGroup { slot } => {
                host.destroy_group(self.id, slot)?;
                self.groups -= 1;
                Reply::Done
            }
            Request::Counters { slot } => Reply::Counters(host.counters(uid, slot)?),
            Request::Interface { address, window } => {
                Reply::Interface(host.interface(address, window)?)
            }
            Request::Status => Reply::Status(host.status()?.into()),
            Request::Groups { from } => Reply::Groups(host.list(uid, from)?),
            Request::Users { from } => Reply::Users(host.users(uid, from)?),
        };
        Ok((reply, None))
    }
}

pub(crate) fn welcome(port: u16, embedded: bool) -> Welcome {
    Welcome {
        versions: Versions::CURRENT,
        release: env!("CARGO_PKG_VERSION").to_string(),
        pid: nix::unistd::getpid().as_raw(),
        port,
        embedded,
    }
}

//! The agent's loop: one thread, no call that waits for a client.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;

use crate::agent::connection::{Connection, Fate, welcome};
use crate::agent::error::{Context, Error, ErrorKind, Result};
use crate::agent::host::{ConnectionId, Host};
use crate::agent::options::{Limits, Options};
use crate::agent::protocol::{Reply, Welcome, encode};
use crate::agent::service::Service;
use crate::agent::socket::{Peer, Socket};

/// Rest after the process ran out of descriptors: new clients stay in the queue.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Whom an agent serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    Everybody,
    /// Its own user, and root.
    OwnUser,
}

/// Those who have something to do: the connections by their order.
#[derive(Default)]
struct Ready {
    stop: bool,
    connections: Vec<bool>,
    listener: bool,
    echoes: bool,
}

/// A loaded agent and its clients.
pub(crate) struct Server {
    /// None when it drains.
    listener: Option<Socket>,
    audience: Audience,
    welcome: Welcome,
    host: Host,
    connections: BTreeMap<ConnectionId, Connection>,
    next_id: ConnectionId,
    accept_after: Option<Instant>,
    service: Option<Service>,
}

impl Server {
    /// Loads the programs; the listener's queue fills meanwhile.
    pub(crate) fn new(listener: Socket, audience: Audience, options: Options) -> Result<Self> {
        let embedded = audience == Audience::OwnUser;
        Ok(Self {
            listener: Some(listener),
            audience,
            welcome: welcome(options.port, embedded),
            host: Host::new(options)?,
            connections: BTreeMap::new(),
            next_id: 0,
            accept_after: None,
            service: None,
        })
    }

    /// It is a service of systemd's, which is told how it is.
    pub(crate) fn set_service(&mut self, service: Service) {
        self.service = Some(service);
    }

    /// Serves until `stop` can be read from.
    pub(crate) fn run(&mut self, stop: BorrowedFd<'_>) -> Result<()> {
        while !self.turn(stop, None)? {}
        Ok(())
    }

    /// Serves the groups that there are, and takes no client and no group more, until none is left, or `limit` has
    /// passed, or `stop` can be read from.
    pub(crate) fn drain(&mut self, stop: BorrowedFd<'_>, limit: Duration) -> Result<()> {
        self.listener = None;
        self.host.set_ending();
        if let Some(service) = &self.service {
            service.stopping(self.host.groups(), limit);
        }
        let end = Instant::now() + limit;
        while self.host.groups() > 0 && Instant::now() < end && !self.turn(stop, Some(end))? {}
        Ok(())
    }

    /// Waits until there is something to do, at most until `end`, and does it. Returns whether to stop.
    fn turn(&mut self, stop: BorrowedFd<'_>, end: Option<Instant>) -> Result<bool> {
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        let ready = self.wait(stop, end).context(ErrorKind::Kernel, || "waiting".into())?;
        if ready.stop {
            return Ok(true);
        }
        let now = Instant::now();
        let idle = !(ready.listener || ready.echoes || ready.connections.contains(&true));
        if idle && self.host.due().is_some_and(|at| at <= now) {
            self.host.tend(now);
        }
        for (id, ready) in ids.iter().zip(ready.connections) {
            self.step(*id, ready);
        }
        if ready.listener {
            self.accept();
        }
        if ready.echoes {
            self.host.answer_echoes();
        }
        if let Some(service) = &mut self.service {
            service.beat(self.host.groups());
        }
        Ok(false)
    }

    /// Waits until somebody has something to do, and returns who.
    fn wait(&self, stop: BorrowedFd<'_>, end: Option<Instant>) -> nix::Result<Ready> {
        let now = Instant::now();
        let accept_after = self.accept_after.filter(|at| *at > now);
        let accepting = if accept_after.is_some() { PollFlags::empty() } else { PollFlags::POLLIN };
        let mut fds = vec![PollFd::new(stop, PollFlags::POLLIN)];
        for connection in self.connections.values() {
            fds.push(PollFd::new(connection.as_fd(), connection.interest()));
        }
        fds.extend(self.listener.as_ref().map(|socket| PollFd::new(socket.as_fd(), accepting)));
        fds.extend(self.host.echoes(now).map(|port| PollFd::new(port, PollFlags::POLLIN)));
        let idle = self.host.options().limits.idle;
        let deadlines = self.connections.values().filter_map(|c| c.deadline(idle));
        let due = self.service.as_ref().and_then(Service::due);
        let deadline =
            deadlines.chain(accept_after).chain(due).chain(self.host.due()).chain(end).min();
        let timeout = match deadline {
            // Rounded up, so that the last millisecond is not spent spinning.
            Some(at) => {
                PollTimeout::try_from(at.saturating_duration_since(now) + Duration::from_millis(1))
                    .unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        };
        match poll(&mut fds, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Ready::default()),
            Err(error) => return Err(error),
        }
        let mut ready = fds.iter().map(|fd| fd.revents().is_some_and(|e| !e.is_empty()));
        Ok(Ready {
            stop: ready.next().unwrap_or(false),
            connections: ready.by_ref().take(self.connections.len()).collect(),
            listener: self.listener.is_some() && ready.next().unwrap_or(false),
            echoes: ready.next().unwrap_or(false),
        })
    }

    fn step(&mut self, id: ConnectionId, ready: bool) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let fate = match connection.deadline(self.host.options().limits.idle) {
            _ if ready => connection.step(&mut self.host, &self.welcome),
            Some(deadline) if deadline <= Instant::now() => Fate::Ends,
            _ => Fate::Lives,
        };
        if fate == Fate::Ends
            && let Some(connection) = self.connections.remove(&id)
        {
            connection.end(&mut self.host);
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        let socket = match listener.accept() {
            Ok(socket) => socket,
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNABORTED) => return,
            Err(error) => {
                log::warn!("no new clients for a moment: {}", error.desc());
                self.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                return;
            }
        };
        let Ok(peer) = socket.peer() else { return };
        if let Err(error) = self.admit(peer) {
            log::info!("process {} is refused: {error}", peer.pid);
            let reply = Reply::Error { kind: error.kind(), message: error.to_string() };
            // Into an empty socket; if it fails all the same, the client learns only the fact.
            let _ = encode(&reply).map(|bytes| socket.send(&bytes, None));
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.connections.insert(id, Connection::new(id, peer, socket));
    }

    /// Whether another connection may come from there.
    fn admit(&self, peer: Peer) -> Result<()> {
        let own = geteuid().as_raw();
        if self.audience == Audience::OwnUser && peer.uid != own && peer.uid != 0 {
            let message = format!("the embedded agent of user {own} serves no user {}", peer.uid);
            return Err(Error::new(ErrorKind::Denied, message));
        }
        let limits = &self.host.options().limits;
        let all = self.connections.len();
        let own = self.connections.values().filter(|c| c.peer.uid == peer.uid).count();
        if own >= limits.connections_per_user
            || !Limits::leaves_a_share(own, all, limits.connections)
        {
            let message =
                format!("user {} has {own} connections of {all}, which is the limit", peer.uid);
            return Err(Error::new(ErrorKind::Limit, message));
        }
        Ok(())
    }
}

//! A rank's side of the agent's socket.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;

use crate::agent::address::SocketAddress;
use crate::agent::error::{Context, Error, ErrorKind, Result};
use crate::agent::hook::Hook;
use crate::agent::protocol::{
    GroupStatus, Hello, InterfaceReply, MAX_REPLY, Reply, Request, Status, UserStatus, Versions,
    Welcome, decode, encode,
};
use crate::agent::simd::Fold;
use crate::agent::socket::{Packet, Socket};
use crate::agent::spec::GroupSpec;
use crate::agent::trust::{may_serve, why_not};
use crate::bindings::fb_counters;
use crate::config::job;

/// An agent that just starts is still loading its programs. On a machine with many more threads than CPUs it gets
/// little of them, and waits for locks of the kernel that others hold meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// One in a process of this job stands still only with the job: seconds were not enough for it beside ranks that never
/// yield.
const PATIENCE_WITH_OWN: Duration = Duration::from_secs(300);

/// The programs' counters are worth no more.
const PATIENCE_FOR_COUNTERS: Duration = Duration::from_secs(20);

/// A connection to an agent. Groups live as long as it does.
pub struct Client {
    line: Mutex<Line>,
    /// How long it may take to answer.
    patience: Duration,
    welcome: Welcome,
}

struct Line {
    socket: Socket,
    /// The request whose reply has not come yet, and since when.
    asked: Option<(Request, Instant)>,
    /// Nothing more is asked, nor waited for. The socket stays: groups live with it.
    broken: bool,
}

/// A connection to an agent that has yet to answer the [`Hello`].
pub struct Opening {
    socket: Socket,
    patience: Duration,
    since: Instant,
}

/// A group of this process.
#[derive(Debug)]
pub struct Group {
    /// Index into the agent's maps.
    pub slot: u32,
    /// The hook that takes its frames in.
    pub hook: Hook,
    /// Name of the interface that its frames take.
    pub interface: String,
    /// UDP port of its frames.
    pub port: u16,
    /// Array map that can be mapped: `struct fb_control`, in the place of a cell, and the cells.
    pub cells: OwnedFd,
    /// From one of them to the next.
    pub cell_bytes: u32,
    /// The instructions by which the programs fold its long chunks.
    pub fold: Fold,
}

impl Client {
    /// Connects and compares versions.
    pub fn connect(address: &SocketAddress) -> Result<Self> {
        Self::connect_as(address, Versions::CURRENT)
    }

    /// Connects to an agent that a process of this job embeds.
    pub fn connect_to_own(address: &SocketAddress) -> Result<Self> {
        Self::connect_within(address, Versions::CURRENT, PATIENCE_WITH_OWN)
    }

    /// Connects and claims to be of some version.
    #[doc(hidden)]
    pub fn connect_as(address: &SocketAddress, versions: Versions) -> Result<Self> {
        Self::connect_within(address, versions, PATIENCE)
    }

    fn connect_within(
        address: &SocketAddress,
        versions: Versions,
        patience: Duration,
    ) -> Result<Self> {
        Opening::new(address, versions, patience)?.wait()
    }

    /// The agent's words of itself when the connection was made.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Makes a group on this host; it lives until it is dropped or the connection ends.
    pub fn create_group(&self, spec: &GroupSpec) -> Result<Group> {
        match self.ask(&Request::CreateGroup(spec.clone()))? {
            (Reply::Group(group), Some(cells)) => Ok(Group {
                slot: group.slot,
                hook: group.hook,
                interface: group.interface,
                port: group.port,
                cells,
                cell_bytes: group.cell_bytes,
                fold: group.fold,
            }),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Makes the table of pairs of a group of this connection. Returns an array map that can be mapped: `struct
    /// fb_table`, in the place of a part, and the parts.
    pub fn create_table(&self, slot: u32) -> Result<OwnedFd> {
        match self.ask(&Request::CreateTable { slot })? {
            (Reply::Done, Some(table)) => Ok(table),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Destroys a group of this connection. Its cells stay where they are mapped, but no frame
    /// reaches them any more.
    pub fn destroy_group(&self, slot: u32) -> Result<()> {
        match self.ask(&Request::DestroyGroup { slot })? {
            (Reply::Done, _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// The programs' counters of a group, over all CPUs.
    pub fn counters(&self, slot: u32) -> Result<fb_counters> {
        match self.ask_within(&Request::Counters { slot }, PATIENCE_FOR_COUNTERS)? {
            (Reply::Counters(counters), _) => Ok(counters),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// The interface that has an address, and the chunks it can carry. The agent answers once all is there for a group
    /// to come, with this window and chunks of the usual size.
    pub fn interface(&self, address: Ipv4Addr, window: u32) -> Result<InterfaceReply> {
        self.ask(&Request::Interface { address, window }).and_then(interface_of)
    }

    /// The same within `patience`, else `None`: the agent goes on meanwhile, and is not asked anew the next time.
    ///
    /// # Errors
    /// `Unreachable`, too: it has not answered for so long that it will not.
    pub fn interface_within(
        &self,
        address: Ipv4Addr,
        window: u32,
        patience: Duration,
    ) -> Result<Option<InterfaceReply>> {
        let mut line = self.line();
        let answer = line.ask(&Request::Interface { address, window }, patience)?;
        let since = line.asked.as_ref().map(|(_, since)| *since);
        if since.is_some_and(|since| since.elapsed() >= self.patience) {
            line.broken = true;
            return Err(silent(self.patience));
        }
        answer.map(interface_of).transpose()
    }

    /// Whether no answer is awaited, or it has come, or it is not awaited any longer.
    pub fn has_answer(&self) -> bool {
        let line = self.line();
        let Some((_, since)) = &line.asked else { return true };
        line.socket.is_readable() || since.elapsed() >= self.patience
    }

    /// The agent and its interfaces.
    pub fn status(&self) -> Result<Status> {
        match self.ask(&Request::Status)? {
            (Reply::Status(status), _) => Ok(*status),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// All groups that this user may see: his own, or root all.
    pub fn groups(&self) -> Result<Vec<GroupStatus>> {
        let mut groups = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            match self.ask(&Request::Groups { from })? {
                (Reply::Groups(page), _) => {
                    groups.extend(page.groups);
                    next = page.next.filter(|next| *next > from);
                }
                (other, _) => return Err(unexpected(&other)),
            }
        }
        Ok(groups)
    }

    /// The counts of groups since the agent began, of the users whom this user may see: himself, or root all.
    pub fn users(&self) -> Result<Vec<UserStatus>> {
        let mut users = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            match self.ask(&Request::Users { from })? {
                (Reply::Users(page), _) => {
                    users.extend(page.users);
                    next = page.next.filter(|next| *next > from);
                }
                (other, _) => return Err(unexpected(&other)),
            }
        }
        Ok(users)
    }

    fn ask(&self, request: &Request) -> Result<(Reply, Option<OwnedFd>)> {
        self.ask_within(request, self.patience)
    }

    fn ask_within(
        &self,
        request: &Request,
        patience: Duration,
    ) -> Result<(Reply, Option<OwnedFd>)> {
        let begin = Instant::now();
        let mut line = self.line();
        if let Some(reply) = line.ask(request, patience)? {
            return Ok(reply);
        }
        line.broken = true;
        let message = format!(
            "the agent (process {}) has not answered for {} s, and is not asked any more",
            self.welcome.pid,
            begin.elapsed().as_secs()
        );
        log::warn!("{message}");
        Err(Error::new(ErrorKind::Connection, message))
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opening {
    /// Begins to connect to an agent.
    pub fn begin(address: &SocketAddress) -> Result<Self> {
        Self::new(address, Versions::CURRENT, PATIENCE)
    }

    fn new(address: &SocketAddress, versions: Versions, patience: Duration) -> Result<Self> {
        let socket = Socket::connect(address, patience)
            .context(ErrorKind::Unreachable, || format!("no agent at {address}"))?;
        let peer = socket
            .peer()
            .context(ErrorKind::Connection, || format!("asking who serves {address}"))?;
        if !may_serve(peer.uid, address) {
            let user = peer.uid;
            let why = why_not(address);
            let message = format!("{address} is served by user {user}, not by root or you{why}");
            return Err(Error::new(ErrorKind::Denied, message));
        }
        send(&socket, &encode(&Hello { versions, job: job() })?, Instant::now() + patience)?;
        Ok(Self { socket, patience, since: Instant::now() })
    }

    /// Whether the agent has answered, or its answer is not awaited any longer.
    pub fn has_answer(&self) -> bool {
        self.socket.is_readable() || self.since.elapsed() >= self.patience
    }

    /// The connection, when the agent answers.
    ///
    /// # Errors
    /// As of [`Opening::finish`], or it does not answer.
    pub fn wait(self) -> Result<Client> {
        let patience = self.patience;
        self.finish(patience)?.map_err(|_| silent(patience))
    }

    /// The connection, if the agent answers within `patience`.
    ///
    /// # Errors
    /// It is of another version, or has hung up, or not answered for so long that it will not.
    pub fn finish(self, patience: Duration) -> Result<std::result::Result<Client, Self>> {
        match receive(&self.socket, Instant::now() + patience)? {
            Some((Reply::Welcome(welcome), None)) => {
                welcome.versions.check("agent")?;
                let Self { socket, patience, .. } = self;
                let line = Mutex::new(Line { socket, asked: None, broken: false });
                Ok(Ok(Client { line, patience, welcome }))
            }
            Some((other, _)) => Err(unexpected(&other)),
            None if self.since.elapsed() >= self.patience => Err(silent(self.patience)),
            None => Ok(Err(self)),
        }
    }
}

impl Line {
    /// Asks, unless that was asked before, and waits for the reply; `None`: it does not come within `patience`. After
    /// an error of kind `connection` the two sides may be out of step, so that nothing more is asked.
    fn ask(
        &mut self,
        request: &Request,
        patience: Duration,
    ) -> Result<Option<(Reply, Option<OwnedFd>)>> {
        if self.broken {
            return Err(Error::new(ErrorKind::Connection, "the agent did not answer before"));
        }
        let answer = self.ask_until(request, Instant::now() + patience);
        self.broken = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Connection);
        answer
    }

    fn ask_until(
        &mut self,
        request: &Request,
        end: Instant,
    ) -> Result<Option<(Reply, Option<OwnedFd>)>> {
        loop {
            if self.asked.is_none() {
                send(&self.socket, &encode(request)?, end)?;
                self.asked = Some((request.clone(), Instant::now()));
            }
            let answer = receive(&self.socket, end);
            if matches!(answer, Ok(None)) {
                return Ok(None);
            }
            // Nobody wants the answer to an earlier question any more.
            if self.asked.take().is_some_and(|(asked, _)| asked == *request) {
                return answer;
            }
        }
    }
}

fn send(socket: &Socket, request: &[u8], end: Instant) -> Result<()> {
    loop {
        match socket.send(request, None) {
            // EPIPE: it may have said why before it hung up.
            Ok(()) | Err(Errno::EPIPE) => return Ok(()),
            Err(Errno::EAGAIN) => talk(socket.wait(PollFlags::POLLOUT, end))?,
            Err(Errno::EINTR) => {}
            error => return talk(error),
        }
    }
}

/// The next reply; `None`: it does not come until `end`.
fn receive(socket: &Socket, end: Instant) -> Result<Option<(Reply, Option<OwnedFd>)>> {
    let packet = loop {
        match socket.receive(MAX_REPLY, true) {
            Err(Errno::EAGAIN) => match socket.wait(PollFlags::POLLIN, end) {
                Err(Errno::ETIMEDOUT) => return Ok(None),
                waited => talk(waited)?,
            },
            // ECONNRESET: it hung up with something of ours unread; what it said comes next.
            Err(Errno::EINTR | Errno::ECONNRESET) => {}
            packet => break talk(packet)?,
        }
    };
    let closed = || Error::new(ErrorKind::Connection, "the agent closed the connection");
    let Packet { bytes, fd } = packet.ok_or_else(closed)?;
    let reply: Reply = decode(&bytes).map_err(|error| {
        Error::new(ErrorKind::Connection, format!("the agent's reply: {error}"))
    })?;
    match reply {
        Reply::Error { kind, message } => Err(Error::new(kind, message)),
        reply => Ok(Some((reply, fd))),
    }
}

/// The outcome of a system call that talks to the agent.
fn talk<T>(outcome: nix::Result<T>) -> Result<T> {
    outcome.context(ErrorKind::Connection, || "talking to the agent".into())
}

fn silent(patience: Duration) -> Error {
    let message = format!("the agent has not answered for {} s", patience.as_secs());
    Error::new(ErrorKind::Unreachable, message)
}

fn interface_of((reply, _): (Reply, Option<OwnedFd>)) -> Result<InterfaceReply> {
    match reply {
        Reply::Interface(interface) => Ok(interface),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(reply: &Reply) -> Error {
    let text = format!("{reply:?}");
    let start: String = text.chars().take(60).collect();
    Error::new(ErrorKind::Connection, format!("the agent answered something else: {start}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent that answers the hello, and what comes next as the test says.
    fn connected() -> (Client, Socket) {
        let (listener, address) = Socket::listen_anywhere().unwrap();
        let agent = std::thread::spawn(move || {
            let end = Instant::now() + PATIENCE;
            listener.wait(PollFlags::POLLIN, end).unwrap();
            let socket = listener.accept().unwrap();
            let hello =
                socket.wait(PollFlags::POLLIN, end).and_then(|()| socket.receive(4096, false));
            assert!(hello.unwrap().is_some());
            let welcome = encode(&Reply::Welcome(crate::agent::connection::welcome(1, true)));
            socket.send(&welcome.unwrap(), None).unwrap();
            socket
        });
        let client = Client::connect(&address).unwrap();
        (client, agent.join().unwrap())
    }

    #[test]
    fn a_late_reply_is_not_taken_for_the_next_ones_and_nobody_waits_twice() {
        let (client, agent) = connected();
        let request = Request::DestroyGroup { slot: 1 };
        let late = client.ask_within(&request, Duration::from_millis(20)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Connection);
        agent.send(&encode(&Reply::Done).unwrap(), None).unwrap();
        assert_eq!(client.destroy_group(2).unwrap_err().kind(), ErrorKind::Connection);
        // The agent was not even asked.
        assert!(agent.receive(4096, false).unwrap().is_some());
        assert_eq!(agent.receive(4096, false).err(), Some(Errno::EAGAIN));
    }

    #[test]
    fn an_error_that_the_agent_reports_breaks_nothing() {
        let (client, agent) = connected();
        for reply in [Reply::Error { kind: ErrorKind::NotFound, message: "no".into() }, Reply::Done]
        {
            agent.send(&encode(&reply).unwrap(), None).unwrap();
            let is_done = matches!(reply, Reply::Done);
            assert_eq!(client.destroy_group(1).is_ok(), is_done);
        }
    }

    #[test]
    fn nobody_waits_for_an_answer_that_is_taken_later() {
        let (client, agent) = connected();
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let ask = || client.interface_within(address, 256, Duration::from_millis(1));
        assert_eq!((ask().unwrap(), ask().unwrap()), (None, None));
        // Once, though it was wanted twice.
        assert!(agent.receive(4096, false).unwrap().is_some());
        assert_eq!(agent.receive(4096, false).err(), Some(Errno::EAGAIN));
        let interface = InterfaceReply { name: "v0".into(), mtu: 1500, max_chunk_bytes: 1408 };
        agent.send(&encode(&Reply::Interface(interface.clone())).unwrap(), None).unwrap();
        assert_eq!(ask().unwrap(), Some(interface.clone()));
        // The answer to another question is not taken for the answer to this one.
        assert_eq!(ask().unwrap(), None);
        for reply in [Reply::Interface(interface), Reply::Done] {
            agent.send(&encode(&reply).unwrap(), None).unwrap();
        }
        client.destroy_group(1).unwrap();
    }

    #[test]
    fn an_agent_that_does_not_answer_is_given_up() {
        let (mut client, _agent) = connected();
        client.patience = Duration::from_millis(20);
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let end = Instant::now() + PATIENCE;
        let error = loop {
            match client.interface_within(address, 256, Duration::from_millis(1)) {
                Ok(None) => assert!(Instant::now() < end),
                answer => break answer.unwrap_err(),
            }
        };
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert_eq!(client.destroy_group(1).unwrap_err().kind(), ErrorKind::Connection);
    }
}

//! The agent that this process uses: the host's, another rank's, or its own.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::hosts;
use crate::agent::{
    self, Client, Embedded, ErrorKind, InterfaceReply, Opening, Options, SocketAddress, capable,
    default_address,
};
use crate::config::Network;

/// For so long a rank waits for its host's agent where the job need not have a group at once. An agent that has its
/// programs on the interface answers in less; to attach them takes it 20 to 60 ms.
const SOON: Duration = Duration::from_millis(3);

/// For so long this host's addresses are taken to stay as they are. The kernel tells nobody while an agent attaches
/// programs (the lock of its interfaces), and then the ranks look again and again.
const FRESH: Duration = Duration::from_secs(1);

/// Finds an agent once, and keeps it.
#[derive(Default)]
pub struct AgentAccess {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    client: Option<Arc<Client>>,
    /// A connection to the host's agent, which has yet to answer.
    opening: Option<Opening>,
    embedded: Option<Embedded>,
    /// The agent that another rank of this host embeds.
    neighbour: Option<SocketAddress>,
    /// This host's, and when that was so.
    addresses: Option<(Instant, Vec<Network>)>,
}

/// How long a rank waits for an agent, and what one that may be its own agent does where its host has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Haste {
    /// It waits [shortly](SOON), and loads no programs: that takes 300 ms of a CPU.
    None,
    /// It waits shortly, and loads programs while the job goes on by MPI.
    Loads,
    /// It waits as long as it takes, and loads programs, while the job waits.
    Waits,
}

/// How soon a rank may try again that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Later {
    /// As soon as the answer [is there](AgentAccess::has_answer).
    Answered,
    /// When more calls have shown that it is worth it to load programs.
    WorthIt,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// There will be one.
    Yet(Later),
    /// One line that says what is missing.
    Ever(String),
}

impl<E: ToString> From<E> for NoAnswer {
    fn from(error: E) -> Self {
        Self::Ever(error.to_string())
    }
}

impl State {
    fn connect(&mut self, haste: Haste) -> Result<Client, NoAnswer> {
        if let Some(embedded) = &self.embedded {
            if haste < Haste::Waits && !embedded.is_known() {
                return Err(NoAnswer::Yet(Later::Answered));
            }
            if let Err(error) = embedded.wait() {
                self.embedded = None;
                return Err(error.into());
            }
            return Ok(Client::connect_to_own(&embedded.address())?);
        }
        if let Some(neighbour) = &self.neighbour {
            return Ok(Client::connect_to_own(neighbour)?);
        }
        match self.open(haste) {
            Ok(client) => client.ok_or(NoAnswer::Yet(Later::Answered)),
            Err(error) if !capable() => Err(NoAnswer::Ever(format!(
                "{error}, and this process lacks CAP_BPF and CAP_NET_ADMIN to do without: start \
                 `foldback agent` as root"
            ))),
            Err(_) if haste == Haste::None => Err(NoAnswer::Yet(Later::WorthIt)),
            Err(_) => {
                self.embedded = Some(Embedded::begin(Options::of_process()?)?);
                self.connect(haste)
            }
        }
    }

    /// Connects to the host's agent; `None`: it has yet to answer.
    fn open(&mut self, haste: Haste) -> agent::Result<Option<Client>> {
        let opening = match self.opening.take() {
            Some(opening) => opening,
            None => Opening::begin(&default_address()?)?,
        };
        match haste {
            Haste::Waits => opening.wait().map(Some),
            Haste::None | Haste::Loads => {
                Ok(opening.finish(SOON)?.map_err(|later| self.opening = Some(later)).ok())
            }
        }
    }
}

/// The interface of a group of an address and a window, when the agent has what it needs; `None`: it has not, yet.
fn interface(
    client: &Client,
    haste: Haste,
    (address, window): (Ipv4Addr, u32),
) -> agent::Result<Option<InterfaceReply>> {
    // One in a process of this job serves nobody else, and is there because the job has shown that it needs it.
    let waits = haste == Haste::Waits || client.welcome().embedded;
    match waits {
        true => client.interface(address, window).map(Some),
        false => client.interface_within(address, window, SOON),
    }
}

impl AgentAccess {
    /// Asks this host's agent for the needs of a group of an address and a window: the interface, with the programs
    /// there, and cells. Returns the connection, too. If no agent answers and this process may, it starts one in
    /// this process. An old connection may have ended since, or its agent, or that is about to: then another is made.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn interface(
        &self,
        haste: Haste,
        group: (Ipv4Addr, u32),
    ) -> Result<(Arc<Client>, InterfaceReply), NoAnswer> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = state.client.clone() {
            match interface(&client, haste, group) {
                Err(error) if matches!(error.kind(), ErrorKind::Connection | ErrorKind::Ending) => {
                    log::debug!("a new connection to the agent: {error}");
                    state.client = None;
                }
                answer => return Ok((client, answer?.ok_or(NoAnswer::Yet(Later::Answered))?)),
            }
        }
        let client = Arc::new(state.connect(haste)?);
        state.client = Some(Arc::clone(&client));
        let answer = interface(&client, haste, group)?;
        Ok((client, answer.ok_or(NoAnswer::Yet(Later::Answered))?))
    }

    /// Whether no answer is awaited that was not there in time.
    pub fn has_answer(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.opening.as_ref().is_none_or(Opening::has_answer)
            && state.client.as_ref().is_none_or(|client| client.has_answer())
            && state.embedded.as_ref().is_none_or(Embedded::is_known)
    }

    /// This host's [addresses](hosts::addresses).
    pub fn addresses(&self, wanted: &[Network]) -> Vec<Network> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = state.addresses.as_ref().filter(|(when, _)| when.elapsed() < FRESH);
        if let Some((_, addresses)) = fresh {
            return addresses.clone();
        }
        let addresses = hosts::addresses(wanted);
        state.addresses = Some((Instant::now(), addresses.clone()));
        addresses
    }

    /// Address of the agent that this process embeds.
    pub fn embedded_address(&self) -> Option<SocketAddress> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.embedded.as_ref().map(Embedded::address)
    }

    /// Another rank of this host embeds an agent.
    pub fn set_neighbour(&self, address: SocketAddress) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.embedded.is_none() {
            state.neighbour = Some(address);
        }
    }

    /// Lets go of the agent, and stops it if it is our own. Waits for nothing.
    pub fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { client, embedded, .. } = std::mem::take(&mut *state);
        drop(client);
        if let Some(embedded) = embedded {
            embedded.end();
        }
    }
}

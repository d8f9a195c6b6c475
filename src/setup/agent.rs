//! The agent that this process uses: the host's, another rank's, or its own.

use std::sync::{Arc, Mutex, PoisonError};

use crate::agent::{
    self, Client, Embedded, ErrorKind, Options, SocketAddress, capable, default_address,
};

/// Finds an agent once, and keeps it.
#[derive(Default)]
pub struct AgentAccess {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    client: Option<Arc<Client>>,
    embedded: Option<Embedded>,
    /// Where another rank of this host embeds one.
    neighbour: Option<SocketAddress>,
}

/// What a rank that may be its own agent does where its host has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Haste {
    /// It does without programs, for now: loading them takes 300 ms of a CPU.
    None,
    /// It loads programs, and the job goes on by MPI.
    Loads,
    /// It loads programs, and the job waits.
    Waits,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// This process has yet to load programs.
    Yet,
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
                return Err(NoAnswer::Yet);
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
        match Client::connect(&default_address()) {
            Ok(client) => Ok(client),
            Err(error) if !capable() => Err(NoAnswer::Ever(format!(
                "{error}, and this process lacks CAP_BPF and CAP_NET_ADMIN to do without: start \
                 `foldback agent` as root"
            ))),
            Err(_) if haste == Haste::None => Err(NoAnswer::Yet),
            Err(_) => {
                self.embedded = Some(Embedded::begin(Options::from_environment()?)?);
                self.connect(haste)
            }
        }
    }
}

impl AgentAccess {
    /// Asks this host's agent something; returns the connection, too. Where none answers, and if this
    /// process may, starts one in this process. A connection of long ago may have ended since, or its
    /// agent, or that is about to: then another is made.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask<T>(
        &self,
        haste: Haste,
        question: impl Fn(&Client) -> agent::Result<T>,
    ) -> Result<(Arc<Client>, T), NoAnswer> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = state.client.clone() {
            match question(&client) {
                Err(error) if matches!(error.kind(), ErrorKind::Connection | ErrorKind::Ending) => {
                    log::debug!("a new connection to the agent: {error}");
                    state.client = None;
                }
                answer => return Ok((client, answer?)),
            }
        }
        let client = Arc::new(state.connect(haste)?);
        state.client = Some(Arc::clone(&client));
        let answer = question(&client)?;
        Ok((client, answer))
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

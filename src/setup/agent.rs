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

impl State {
    fn connect(&mut self) -> Result<Client, String> {
        if let Some(embedded) = &self.embedded {
            return Client::connect_to_own(&embedded.address()).map_err(|error| error.to_string());
        }
        if let Some(neighbour) = &self.neighbour {
            return Client::connect_to_own(neighbour).map_err(|error| error.to_string());
        }
        match Client::connect(&default_address()) {
            Ok(client) => Ok(client),
            Err(error) if !capable() => Err(format!(
                "{error}, and this process lacks CAP_BPF and CAP_NET_ADMIN to do without: start \
                 `foldback agent` as root"
            )),
            Err(_) => {
                let options = Options::from_environment().map_err(|error| error.to_string())?;
                let embedded = Embedded::start(options).map_err(|error| error.to_string())?;
                let client = Client::connect_to_own(&embedded.address());
                self.embedded = Some(embedded);
                client.map_err(|error| error.to_string())
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
    /// One line that says what is missing.
    pub fn ask<T>(
        &self,
        question: impl Fn(&Client) -> agent::Result<T>,
    ) -> Result<(Arc<Client>, T), String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = state.client.clone() {
            match question(&client) {
                Err(error) if matches!(error.kind(), ErrorKind::Connection | ErrorKind::Ending) => {
                    log::debug!("a new connection to the agent: {error}");
                    state.client = None;
                }
                answer => return answer.map(|a| (client, a)).map_err(|error| error.to_string()),
            }
        }
        let client = Arc::new(state.connect()?);
        state.client = Some(Arc::clone(&client));
        let answer = question(&client).map_err(|error| error.to_string())?;
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

    /// Lets go of the agent, and stops it if it is our own.
    pub fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State::default();
    }
}

//! The agent that this process uses: the host's, another rank's, or its own.

use std::sync::{Arc, Mutex, PoisonError};

use crate::agent::{Client, Embedded, Options, SocketAddress, capable, default_address};

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

impl AgentAccess {
    /// A connection to this host's agent. Without one, and if `embed` says so and the process may,
    /// starts one in this process.
    ///
    /// # Errors
    /// One line that says what is missing.
    pub fn client(&self, embed: bool) -> Result<Arc<Client>, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &state.client {
            return Ok(Arc::clone(client));
        }
        let address = state.neighbour.clone().unwrap_or_else(default_address);
        let client = match Client::connect(&address) {
            Ok(client) => client,
            Err(error) if !embed || state.neighbour.is_some() => return Err(error.to_string()),
            Err(error) if !capable() => {
                return Err(format!(
                    "{error}, and this process lacks CAP_BPF and CAP_NET_ADMIN to do without: \
                     start `foldback agent` as root"
                ));
            }
            Err(_) => {
                let options = Options::from_environment().map_err(|error| error.to_string())?;
                let embedded = Embedded::start(options).map_err(|error| error.to_string())?;
                let client = Client::connect(&embedded.address());
                state.embedded = Some(embedded);
                client.map_err(|error| error.to_string())?
            }
        };
        let client = Arc::new(client);
        state.client = Some(Arc::clone(&client));
        Ok(client)
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

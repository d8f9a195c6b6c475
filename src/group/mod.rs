//! A group: foldback's state of one communicator, in one rank.

pub mod report;

use std::sync::Arc;

use crate::agent::{Client, Hook};
use crate::engine::{Engine, Raw};
use crate::keeper::Peers;
use crate::keeper::ways::Ways;
use crate::wire::Wire;
use crate::wire::cells::Mapped;
use crate::wire::socket::Sockets;
use report::{HostLine, named};

/// The ways out of a group: by sockets that the programs meet, and without the programs.
pub type GroupWays = Ways<Sockets, Mapped, Peers>;

/// The protocol, on real cells and sockets.
pub type GroupWire = Wire<Mapped, GroupWays, Raw>;

/// A group that works.
pub struct Group {
    /// What is under way in it.
    pub engine: Engine<Mapped, GroupWays>,
    /// Present in the leader of each host.
    member: Option<Member>,
}

impl Group {
    /// One in which nothing is under way.
    pub fn new(engine: Engine<Mapped, GroupWays>, member: Option<Member>) -> Self {
        Self { engine, member }
    }

    /// What the kernel of this host did for the group, if this rank leads.
    pub fn report(&self) -> Option<HostLine> {
        let member = self.member.as_ref()?;
        let kernel = member.client.counters(member.slot).map(|c| named(&c)).unwrap_or_default();
        Some(HostLine {
            host: member.host.clone(),
            interface: member.interface.clone(),
            hook: member.hook.to_string(),
            groups: 1,
            asked_again: self.engine.asked(),
            rescued: self.engine.fabric().map_or(0, Ways::rescued),
            kernel,
        })
    }
}

/// This host as a member of a group, which the agent has made; gone when its leader drops it.
pub struct Member {
    /// Where the group was made, and will be destroyed.
    pub client: Arc<Client>,
    pub slot: u32,
    /// What takes frames in.
    pub hook: Hook,
    pub interface: String,
    /// Name of this host, for people.
    pub host: String,
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Err(error) = self.client.destroy_group(self.slot) {
            log::debug!("destroying group {}: {error}", self.slot);
        }
    }
}

//! All that an agent tells of itself at one moment.

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::agent::{Client, GroupStatus, SocketAddress, Status, UserStatus, Welcome};
use crate::bindings::fb_counters;

/// An agent, as far as a user may see it.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) socket: SocketAddress,
    pub(super) agent: Welcome,
    pub(super) status: Status,
    /// In order of their slots.
    pub(super) groups: Vec<GroupStatus>,
    /// In order of their uids.
    pub(super) users: Vec<UserStatus>,
}

impl Snapshot {
    /// Asks the agent at an address.
    pub(super) fn take(socket: &SocketAddress) -> Result<Self> {
        Self::of(&Client::connect(socket)?, socket)
    }

    /// Asks it by a connection.
    pub(super) fn of(client: &Client, socket: &SocketAddress) -> Result<Self> {
        Ok(Self {
            socket: socket.clone(),
            agent: client.welcome().clone(),
            status: client.status()?,
            groups: client.groups()?,
            users: client.users()?,
        })
    }

    /// For programs.
    pub(super) fn document(&self) -> serde_json::Result<Value> {
        let groups = self.groups.iter().map(|group| with_counters(group, &group.counters));
        let users = self.users.iter().map(|user| with_counters(user, &user.counters));
        Ok(json!({
            "socket": self.socket,
            "agent": self.agent,
            "age_seconds": self.status.age_seconds,
            "interfaces": self.status.interfaces,
            "fold": self.status.fold,
            "programs": self.status.programs,
            "groups_of_all_users": self.status.groups,
            "groups_made": self.status.groups_made,
            "groups": groups.collect::<serde_json::Result<Vec<_>>>()?,
            "users": users.collect::<serde_json::Result<Vec<_>>>()?,
            "counters": self.status.counters,
            "host_counters": self.status.host_counters,
        }))
    }
}

/// Something with its counters by name: to an agent's client they travel as a list.
fn with_counters(of: &impl serde::Serialize, counters: &fb_counters) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(of)?;
    value["counters"] = serde_json::to_value(counters)?;
    Ok(value)
}

/// Counters of frames that were not taken, or not sent, have names that begin so.
pub(super) const DROPPED: &str = "drop_";

/// Counters by name, in the order of the C header.
pub(super) fn named(counters: &fb_counters) -> Map<String, Value> {
    match serde_json::to_value(counters) {
        Ok(Value::Object(counters)) => counters,
        _ => Map::new(),
    }
}

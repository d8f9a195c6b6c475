//! A group: foldback's state of one communicator, in one rank.

pub mod combiner;
#[cfg(test)]
pub(crate) mod pair;
pub mod report;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::agent::simd::Fold;
use crate::agent::{Client, Hook};
use crate::engine::{Engine, Raw};
use crate::keeper::Peers;
use crate::keeper::transports::Transports;
use crate::wire::Wire;
use crate::wire::cells::Mapped;
use crate::wire::socket::Sockets;
use combiner::Combiner;
use report::{HostLine, named};

/// The ways out of a group: by sockets that the programs meet, and without the programs.
pub type GroupTransports = Transports<Sockets, Mapped, Peers>;

/// The protocol, on real cells and sockets.
pub type GroupWire = Wire<Mapped, GroupTransports, Raw>;

/// A group that works.
pub struct Group {
    /// Its operations under way.
    pub engine: Engine<Mapped, GroupTransports>,
    /// Present in the leader of each host.
    member: Option<Member>,
    /// Somebody will want to know what the programs counted.
    counted: bool,
    /// Why it has no programs, though they were wanted.
    pub no_programs: Option<String>,
    /// Combines pairs, once that was wanted.
    combiner: Option<Combiner>,
    /// Chunks started, and rescued, when [`Group::has_lost_programs`] was asked last.
    seen: (u64, u64),
}

/// Chunks rescued from one look to the next, at least, for a group to be made anew.
const WORTH_A_NEW_GROUP: u64 = 16;
/// And more than one of so many chunks that were started: a network that loses frames rescues some, too
/// (docs/decisions/30-new-group-for-lost-programs.md).
const RESCUED_OF: u64 = 8;

impl Group {
    /// One in which nothing is under way, whose programs' counters somebody will want to know, or nobody.
    pub fn new(
        engine: Engine<Mapped, GroupTransports>,
        member: Option<Member>,
        counted: bool,
    ) -> Self {
        let (no_programs, combiner) = (None, None);
        Self { engine, member, counted, no_programs, combiner, seen: (0, 0) }
    }

    /// The process makes no more collectives: the end of its connection is the group's, too.
    pub fn leave(mut self) {
        if let Some(served) = self.member.as_mut().and_then(|member| member.served.as_mut()) {
            served.ends = true;
        }
    }

    /// Chunks that came to their end here by the second transport, if this rank leads.
    fn rescued(&self) -> u64 {
        self.engine.wire().map_or(0, |wire| wire.transport.rescued())
    }

    /// Another call is left to MPI, which the agent can show if this rank leads.
    #[inline]
    pub fn is_left_to_mpi(&self) {
        if let Some(wire) = self.engine.wire() {
            wire.cells.tell_left();
        }
    }

    /// Whether the second transport has had to bring much of what went through the group since this was asked
    /// last: the programs are gone, and more than frames are lost.
    pub fn has_lost_programs(&mut self) -> bool {
        let Some(started) = self.engine.wire().map(Wire::started) else { return false };
        let rescued = self.rescued();
        let [chunks, saved] = [started - self.seen.0, rescued - self.seen.1];
        self.seen = (started, rescued);
        if let Some(wire) = self.engine.wire() {
            wire.cells.tell_rescued(rescued);
        }
        saved >= WORTH_A_NEW_GROUP && saved > chunks / RESCUED_OF
    }

    /// The work of this host for the group, by the kernel if it has programs, if this rank leads.
    pub fn report(&self) -> Option<HostLine> {
        let member = self.member.as_ref()?;
        let counters = match &member.served {
            Some(served) if self.counted => served.client.counters(served.slot).ok(),
            Some(_) => None,
            None => self.engine.wire().map(|wire| wire.transport.counters()),
        };
        let counters = counters.map(|mut counters| {
            if let Some(wire) = self.engine.wire() {
                *wire.identity().seal.counter(&mut counters) += wire.unsound;
            }
            counters
        });
        Some(HostLine {
            host: member.host.clone(),
            interface: member.interface.clone(),
            hook: member.hook(),
            fold: member.fold(),
            groups: 1,
            asked_again: self.engine.asked(),
            rescued: self.rescued(),
            kernel: counters.map(|counters| named(&counters)).unwrap_or_default(),
        })
    }
}

/// This host as a member of a group.
pub struct Member {
    /// `None`: without programs.
    pub served: Option<Served>,
    pub interface: String,
    /// Name of this host, for people.
    pub host: String,
}

impl Member {
    /// The hook that takes frames in, for people.
    pub fn hook(&self) -> String {
        self.served.as_ref().map_or_else(|| "none".into(), |served| served.hook.to_string())
    }

    /// The instructions that fold long chunks here, for people.
    fn fold(&self) -> String {
        self.served.as_ref().map_or_else(|| "processes".into(), |served| served.fold.to_string())
    }
}

/// A group that the agent has made, gone when its leader drops it.
pub struct Served {
    /// The agent that has made the group, and will destroy it.
    pub client: Arc<Client>,
    pub slot: u32,
    /// The hook that takes frames in.
    pub hook: Hook,
    /// The instructions by which the programs fold long chunks.
    pub fold: Fold,
    /// The process is about to end its connection.
    pub ends: bool,
}

impl Drop for Served {
    fn drop(&mut self) {
        // With the connection the agent destroys all that was made by it, and nobody waits.
        if !self.ends
            && let Err(error) = self.client.destroy_group(self.slot)
        {
            log::debug!("destroying group {}: {error}", self.slot);
        }
    }
}

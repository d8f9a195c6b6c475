//! A group: foldback's state of one communicator, in one rank, and the collectives under way on it.
#![allow(unsafe_code)]

pub mod operation;
pub mod report;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::agent::{Client, Hook};
use crate::leaf::Leaf;
use crate::topology::Place;
use crate::wire::cells::Mapped;
use crate::wire::socket::Sockets;
use crate::wire::{Algorithm, Mismatch, Wire};
pub use operation::{Job, Outcome, Pattern};
use operation::{Operation, Raw};
use report::{HostLine, named};

/// Longest messages that are folded in the kernel, and that a root sends to everyone itself
/// (docs/benchmarks.md).
const SHARDS_FROM: usize = 4096;
const SCATTER_FROM: usize = 32 << 10;

/// The protocol, on real cells and sockets.
pub type GroupWire = Wire<Mapped, Sockets, Raw>;

/// The leader's part: this host's member of the group.
pub struct Member {
    /// The protocol.
    pub wire: GroupWire,
    /// Where the group was made, and will be destroyed.
    pub client: Arc<Client>,
    /// Its slot there.
    pub slot: u32,
    /// What takes frames in.
    pub hook: Hook,
    /// Where.
    pub interface: String,
    /// Name of this host, for people.
    pub host: String,
}

impl Member {
    /// What the kernel of this host did for the group.
    pub fn report(&self) -> HostLine {
        let kernel = self.client.counters(self.slot).map(|c| named(&c)).unwrap_or_default();
        HostLine {
            host: self.host.clone(),
            interface: self.interface.clone(),
            hook: self.hook.to_string(),
            groups: 1,
            asked_again: self.wire.asked,
            kernel,
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Err(error) = self.client.destroy_group(self.slot) {
            log::debug!("destroying group {}: {error}", self.slot);
        }
    }
}

/// A group that works.
pub struct Group {
    /// Where we are.
    pub place: Place,
    /// Present in the leader of each host.
    member: Option<Member>,
    /// Present where several ranks share a host.
    leaf: Option<Leaf>,
    /// What is under way, oldest first; it ends in this order.
    operations: VecDeque<Operation>,
    /// Operations started, and over.
    started: u64,
    ended: u64,
    /// Of those that ended in one, and whose starter asks for it by their number.
    mismatches: Vec<(u64, Mismatch)>,
    out_of_step: bool,
}

// SAFETY: the group's raw memory is its own, and used by whoever holds the group; buffers of the
// program's are promised to it until their operation is over.
unsafe impl Send for Group {}

/// Names an operation of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

impl Group {
    /// A group in which nothing is under way.
    pub fn new(place: Place, member: Option<Member>, leaf: Option<Leaf>) -> Self {
        let (operations, mismatches) = (VecDeque::new(), Vec::new());
        let (started, ended, out_of_step) = (0, 0, false);
        Self { place, member, leaf, operations, started, ended, mismatches, out_of_step }
    }

    /// Starts a collective: sends what can be sent now. The rest is [`Group::poll`]'s. `over` is set
    /// when it has ended on this rank.
    ///
    /// # Safety
    /// `job`'s pointers are as its fields say, until it is over.
    pub unsafe fn start(
        &mut self,
        job: Job,
        algorithm: Algorithm,
        over: Option<Outcome>,
    ) -> Ticket {
        let mut operation = Operation::new(job, algorithm, over);
        if let (None, Some(member)) = (&self.leaf, &mut self.member) {
            // SAFETY: the caller's promise.
            unsafe { operation.submit(&self.place, &mut member.wire) };
        }
        self.operations.push_back(operation);
        self.started += 1;
        Ticket(self.started)
    }

    /// Whether an operation is over on this rank.
    pub fn is_over(&self, ticket: Ticket) -> bool {
        ticket.0 <= self.ended
    }

    /// How an operation ended that is over, to whoever asks first.
    ///
    /// # Errors
    /// In what the ranks differ.
    pub fn outcome(&mut self, ticket: Ticket) -> Result<(), Mismatch> {
        match self.mismatches.iter().position(|(number, _)| *number == ticket.0) {
            Some(at) => Err(self.mismatches.swap_remove(at).1),
            None => Ok(()),
        }
    }

    /// Whether the ranks are in different collectives, so that nothing that is under way will end.
    pub fn is_out_of_step(&self) -> bool {
        self.out_of_step || self.member.as_ref().is_some_and(|member| member.wire.out_of_step)
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.operations.is_empty()
    }

    /// Does what can be done now; never waits. Says whether anything moved.
    pub fn poll(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let Self { place, member, leaf, operations, ended, mismatches, out_of_step, .. } = self;
        let (mut now, mut moved) = (Some(now), false);
        while let Some(operation) = operations.front_mut() {
            if let Some(leaf) = leaf {
                let mut wire = member.as_mut().map(|member| &mut member.wire);
                // SAFETY: promised to `start`.
                while unsafe { operation.step(place, leaf, wire.as_deref_mut()) } {
                    moved = true;
                }
                *out_of_step |= operation.is_out_of_step();
            }
            if let Some(member) = member
                && !operation.is_over()
            {
                if !member.wire.has_over() {
                    match now.take() {
                        Some(now) => moved |= member.wire.poll(now),
                        None => return moved,
                    }
                }
                let Some(over) = member.wire.take_over() else { return moved };
                moved = true;
                operation.transferred(leaf.as_ref(), place, over.mismatch);
            }
            if operation.is_over() {
                *ended += 1;
                mismatches.extend(operation.untold().map(|mismatch| (*ended, mismatch)));
                operations.pop_front();
            } else if member.is_none() {
                return moved;
            }
        }
        moved
    }

    /// How a job goes if nothing has been measured.
    pub fn usual_algorithm(&self, job: &Job) -> Algorithm {
        match job.pattern {
            Pattern::FoldToAll if job.is_for_user_space() => Algorithm::Shards,
            Pattern::FoldToAll => self.usual_fold(job.bytes),
            Pattern::Broadcast(_) if job.bytes > SCATTER_FROM => Algorithm::Shards,
            _ => Algorithm::best(self.place.layout.hosts.len()),
        }
    }

    /// Likewise, a fold of so many bytes to all.
    pub fn usual_fold(&self, bytes: usize) -> Algorithm {
        let long = bytes > SHARDS_FROM;
        if long { Algorithm::Shards } else { Algorithm::best(self.place.layout.hosts.len()) }
    }

    /// Takes leave; to be called, when nothing is under way, until it says true.
    pub fn farewell(&mut self) -> bool {
        self.member.as_mut().is_none_or(|member| member.wire.farewell(Instant::now))
    }

    /// What the kernel of this host did for the group, if this rank leads.
    pub fn report(&self) -> Option<HostLine> {
        self.member.as_ref().map(Member::report)
    }
}

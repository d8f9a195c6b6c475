//! The engine: the collectives under way of one rank in one group, as machines that are stepped and
//! never wait. It drives the ranks of its host ([`crate::leaf`]) and, on a leader, the wire.
#![allow(unsafe_code)]

mod bundled;
mod operation;
mod parcels;
mod script;
mod turns;

use std::collections::VecDeque;
use std::time::Instant;

use crate::leaf::Leaf;
use crate::topology::Place;
use crate::wire::cells::Memory;
use crate::wire::{Algorithm, Mismatch, Transport, Wire};
use operation::Operation;
pub use operation::{Job, Outcome, Pattern, Raw};
pub use parcels::{Parcel, Parcels};
pub use script::{Script, Step, Ways};
use turns::Turns;

/// Longest messages that are folded in the kernel, and that a root sends to everyone itself
/// (docs/benchmarks.md).
pub const SHARDS_FROM: usize = 4096;
const SCATTER_FROM: usize = 32 << 10;

/// One rank's side of a group, with all that is under way.
pub struct Engine<M, F> {
    /// Its rank and host in the group.
    pub place: Place,
    /// Present in the leader of each host.
    wire: Option<Wire<M, F, Raw>>,
    /// Present where several ranks share a host.
    leaf: Option<Leaf>,
    /// Operations under way, oldest first; they end in this order.
    operations: VecDeque<Operation>,
    /// Scripts under way, and the collectives behind them.
    turns: Turns,
    /// Operations started, and over.
    started: u64,
    ended: u64,
    /// The mismatches of ended operations whose starters ask for them by number.
    mismatches: Vec<(u64, Mismatch)>,
    out_of_step: bool,
}

// SAFETY: the raw memory is the group's own, and used by whoever holds the engine; a job's pointers are
// promised (`Job`) until its operation is over.
unsafe impl<M: Send, F: Send> Send for Engine<M, F> {}

/// Names an operation of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

impl<M: Memory, F: Transport> Engine<M, F> {
    /// One in which nothing is under way.
    pub fn new(place: Place, wire: Option<Wire<M, F, Raw>>, leaf: Option<Leaf>) -> Self {
        let (operations, turns, mismatches) = (VecDeque::new(), Turns::default(), Vec::new());
        let (started, ended, out_of_step) = (0, 0, false);
        Self { place, wire, leaf, operations, turns, started, ended, mismatches, out_of_step }
    }

    /// Starts a collective at once: sends what can be sent now. [`Engine::poll`] does the rest. `over` is set when it
    /// has ended on this rank. No script is under way ([`Engine::has_scripts`]), or the collective is a script's step.
    ///
    /// # Safety
    /// What [`Job`] says of its pointers.
    pub unsafe fn start(
        &mut self,
        job: Job,
        algorithm: Algorithm,
        over: Option<Outcome>,
    ) -> Ticket {
        // SAFETY: as demanded of this function.
        let mut operation = unsafe { Operation::new(job, algorithm, over) };
        if let (None, Some(wire)) = (&self.leaf, &mut self.wire) {
            operation.submit(&self.place, wire);
        }
        self.operations.push_back(operation);
        self.started += 1;
        if let Some(wire) = &self.wire {
            wire.cells.tell_calls(self.started, wire.asked);
        }
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
        self.out_of_step || self.wire.as_ref().is_some_and(|wire| wire.out_of_step)
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.operations.is_empty() && !self.has_scripts()
    }

    /// Does what can be done now; never waits. Says whether anything moved.
    #[inline]
    pub fn poll(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let moved = self.poll_operations(now);
        if self.has_scripts() { self.take_turns() || moved } else { moved }
    }

    #[inline]
    fn poll_operations(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let Self { place, wire, leaf, operations, ended, mismatches, out_of_step, .. } = self;
        let (mut now, mut moved) = (Some(now), false);
        while let Some(operation) = operations.front_mut() {
            if let Some(leaf) = leaf {
                while operation.step(place, leaf, wire.as_mut()) {
                    moved = true;
                }
                *out_of_step |= operation.is_out_of_step();
            }
            if let Some(wire) = wire
                && !operation.is_over()
            {
                if !wire.has_over() {
                    match now.take() {
                        Some(now) => moved |= wire.poll(now),
                        None => return moved,
                    }
                }
                let Some(over) = wire.take_over() else { return moved };
                moved = true;
                operation.transferred(leaf.as_ref(), place, over.mismatch);
            }
            if operation.is_over() {
                *ended += 1;
                mismatches.extend(operation.untold().map(|mismatch| (*ended, mismatch)));
                operations.pop_front();
            } else if wire.is_none() {
                return moved;
            }
        }
        moved
    }

    /// How a job goes if nothing has been measured.
    pub fn usual_algorithm(&self, job: &Job) -> Algorithm {
        match job.pattern {
            Pattern::FoldToAll(_) if job.is_for_user_space() => Algorithm::Shards,
            Pattern::FoldToAll(_) => self.usual_fold(job.bytes),
            Pattern::Broadcast(_) if job.bytes > SCATTER_FROM => Algorithm::Shards,
            _ => Algorithm::best(self.place.layout.hosts.len()),
        }
    }

    /// How a job goes whose ways are not compared. `only` is the algorithm of jobs that kernels can fold, if there is
    /// but one to be used.
    pub fn algorithm(&self, job: &Job, only: Option<Algorithm>) -> Algorithm {
        let usual = self.usual_algorithm(job);
        if job.is_for_user_space() { usual } else { only.unwrap_or(usual) }
    }

    /// How a fold to all of so many bytes goes if nothing has been measured.
    pub fn usual_fold(&self, bytes: usize) -> Algorithm {
        let long = bytes > SHARDS_FROM;
        if long { Algorithm::Shards } else { Algorithm::best(self.place.layout.hosts.len()) }
    }

    /// Takes leave; to be called, when nothing is under way, until it says true.
    pub fn farewell(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.wire.as_mut().is_none_or(|wire| wire.farewell(now))
    }

    /// The wire of this rank's host, on its leader.
    pub fn wire(&self) -> Option<&Wire<M, F, Raw>> {
        self.wire.as_ref()
    }

    /// The same, to send by it.
    pub fn wire_mut(&mut self) -> Option<&mut Wire<M, F, Raw>> {
        self.wire.as_mut()
    }

    /// Times this rank asked for something again.
    pub fn asked(&self) -> u64 {
        self.wire.as_ref().map_or(0, |wire| wire.asked)
    }
}

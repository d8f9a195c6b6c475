//! A group: foldback's state of one communicator, in one rank.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::agent::{Client, Hook};
use crate::leaf::fold::fold;
use crate::leaf::{Leaf, segment};
use crate::setup::hosts::Layout;
use crate::stats::{HostLine, named};
use crate::wait::Waiter;
use crate::wire::cells::Mapped;
use crate::wire::socket::Sockets;
use crate::wire::{Buffers, Kind, Transfer, Wire};

/// What a collective does, in terms of ranks of the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Allreduce; with no bytes, Barrier.
    FoldToAll,
    /// Reduce to a rank.
    FoldToRoot(usize),
    /// Bcast from a rank.
    Broadcast(usize),
}

/// A collective whose arguments have been found valid.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// What it does.
    pub pattern: Pattern,
    /// `enum fb_op`.
    pub op: u8,
    /// `enum fb_type`.
    pub element: u8,
    /// Bytes of the message.
    pub bytes: usize,
    /// Contribution. Valid for reads of `bytes` bytes where the pattern asks for one.
    pub send: *const u8,
    /// Result. Valid for writes of `bytes` bytes where the pattern gives one. May equal `send`.
    pub recv: *mut u8,
}

/// The leader's part: this host's member of the group.
pub struct Member {
    /// The protocol.
    pub wire: Wire<Mapped, Sockets>,
    /// Where the group was made, and will be destroyed.
    pub client: Arc<Client>,
    /// Its slot there.
    pub slot: u32,
    /// What takes frames in.
    pub hook: Hook,
    /// Where.
    pub interface: String,
}

impl Member {
    /// What the kernel of this host did for the group.
    pub fn report(&self) -> HostLine {
        let kernel = self.client.counters(self.slot).map(|c| named(&c)).unwrap_or_default();
        HostLine {
            host: crate::setup::hosts::host_name(),
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
    /// Which ranks are where.
    pub layout: Layout,
    /// Our rank.
    pub rank: usize,
    /// Most payload of a frame, on all hosts.
    pub chunk_bytes: u16,
    /// Present in the leader of each host.
    pub member: Option<Member>,
    /// Present where several ranks share a host.
    pub leaf: Option<Leaf>,
}

// SAFETY: the group's raw memory is its own, and used by whoever holds the group.
unsafe impl Send for Group {}

impl Group {
    /// Runs a collective to its end on this rank.
    ///
    /// # Safety
    /// `job`'s pointers are as its fields say.
    pub unsafe fn run(&mut self, job: &Job, waiter: &mut Waiter<'_>) {
        let kind = kind(&self.layout, job.pattern);
        let Some(leaf) = &mut self.leaf else {
            let member = self.member.as_mut().expect("a rank without a leaf leads its host");
            let mut buffers = Raw { send: job.send, recv: job.recv };
            let transfer = Transfer::new(kind, job.op, job.element, job.bytes);
            return run_wire(&mut member.wire, transfer, &mut buffers, waiter);
        };
        // Whole chunks to a round, so that hosts with one rank, which do it all at once, cut alike.
        let chunk = usize::from(self.chunk_bytes);
        let most = segment::BLOCK / chunk * chunk;
        let mut at = 0;
        loop {
            let bytes = (job.bytes - at).min(most);
            let (send, recv) = (job.send.wrapping_add(at), job.recv.wrapping_add(at));
            let round = Job { bytes, send, recv, ..*job };
            leaf.begin();
            // SAFETY: the caller's promise, for a part of the buffers.
            unsafe {
                match &mut self.member {
                    Some(member) => {
                        let transfer = Transfer::part(kind, job.op, job.element, bytes, at / chunk);
                        let place = (&self.layout, self.rank);
                        lead(leaf, &mut member.wire, transfer, place, &round, waiter);
                    }
                    None => follow(leaf, self.rank, &round, waiter),
                }
            }
            at += bytes;
            if at == job.bytes {
                break;
            }
        }
    }
}

/// The pattern in terms of members.
fn kind(layout: &Layout, pattern: Pattern) -> Kind {
    let member = |rank| layout.place(rank).map_or(0, |(member, _)| member as u8);
    match pattern {
        Pattern::FoldToAll => Kind::FoldToAll,
        Pattern::FoldToRoot(root) => Kind::FoldToRoot(member(root)),
        Pattern::Broadcast(root) => Kind::Broadcast(member(root)),
    }
}

/// The program's buffers, or a block of the leaf's.
struct Raw {
    send: *const u8,
    recv: *mut u8,
}

impl Buffers for Raw {
    fn read(&self, range: Range<usize>) -> &[u8] {
        if range.is_empty() {
            return &[];
        }
        // SAFETY: made from a `Job`, whose buffers span the transfer.
        unsafe { std::slice::from_raw_parts(self.send.add(range.start), range.len()) }
    }

    fn write(&mut self, at: usize, data: &[u8]) {
        if !data.is_empty() {
            // SAFETY: likewise; `data` is in a cell, which is nobody else's memory.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.recv.add(at), data.len()) }
        }
    }
}

fn run_wire(
    wire: &mut Wire<Mapped, Sockets>,
    mut transfer: Transfer,
    buffers: &mut Raw,
    waiter: &mut Waiter<'_>,
) {
    while !wire.poll(&mut transfer, buffers, || waiter.now()) {
        waiter.turn();
    }
}

/// A round of the leader. SAFETY of callers: as [`Group::run`].
unsafe fn lead(
    leaf: &mut Leaf,
    wire: &mut Wire<Mapped, Sockets>,
    transfer: Transfer,
    (layout, rank): (&Layout, usize),
    job: &Job,
    waiter: &mut Waiter<'_>,
) {
    let block = leaf.take_result(&mut || waiter.turn());
    let mut buffers = Raw { send: block, recv: block };
    let give = |to: *mut u8, from: *const u8| {
        if job.bytes > 0 {
            // SAFETY: a block and a buffer of the program, of `bytes` bytes each.
            unsafe { std::ptr::copy_nonoverlapping(from, to, job.bytes) };
        }
    };
    match job.pattern {
        Pattern::FoldToAll | Pattern::FoldToRoot(_) => {
            give(block, job.send);
            for local in 1..leaf.ranks() {
                let slot = leaf.await_slot(local, job.bytes, &mut || waiter.turn());
                // SAFETY: only the leader writes the result block now.
                let into = unsafe { std::slice::from_raw_parts_mut(block, job.bytes) };
                fold(into, slot, job.op, job.element);
            }
            leaf.folded();
            run_wire(wire, transfer, &mut buffers, waiter);
            if job.pattern == Pattern::FoldToAll || job.pattern == Pattern::FoldToRoot(rank) {
                give(job.recv, block);
            }
        }
        Pattern::Broadcast(root) => {
            match layout.place(root) {
                _ if root == rank => give(block, job.send),
                Some((member, place)) if member == usize::from(wire.identity().me) => {
                    let slot = leaf.await_slot(place, job.bytes, &mut || waiter.turn());
                    give(block, slot.as_ptr());
                }
                _ => {}
            }
            leaf.folded();
            run_wire(wire, transfer, &mut buffers, waiter);
            if root != rank {
                give(job.recv, block);
            }
        }
    }
    leaf.done();
}

/// A round of a rank that does not lead. SAFETY of callers: as [`Group::run`].
unsafe fn follow(leaf: &mut Leaf, rank: usize, job: &Job, waiter: &mut Waiter<'_>) {
    let (gives, gets) = match job.pattern {
        Pattern::FoldToAll => (true, true),
        Pattern::FoldToRoot(root) => (true, root == rank),
        Pattern::Broadcast(root) => (root == rank, root != rank),
    };
    // SAFETY: the caller's promise, for the buffers that the pattern asks for.
    unsafe {
        if gives {
            leaf.give(job.send, job.bytes, &mut || waiter.turn());
        }
        if gets {
            leaf.get(job.recv, job.bytes, &mut || waiter.turn());
        }
    }
    leaf.end();
}

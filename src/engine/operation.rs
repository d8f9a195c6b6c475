//! One collective under way on one rank, as a machine that is stepped and never waits.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::bundled::{self, Bundled};
use super::parcels::{Parcel, Parcels, parcel};
use crate::leaf::arithmetic::Arithmetic;
use crate::leaf::fold::fold;
use crate::leaf::{Leaf, segment};
use crate::topology::{Image, Place};
use crate::wire::cells::Memory;
use crate::wire::{self, Algorithm, Buffers, Kind, Mismatch, Part, Transfer, Transport, Wire};

/// The work of a collective, in terms of ranks of the communicator. A gather to a rank is of one chunk. No parcel of an
/// exchange has more bytes than [`Place::parcel_bytes`] says.
pub type Pattern = wire::Pattern<usize, Arc<Image>, Arc<Parcels>>;

/// A collective whose arguments have been found valid. Its pointers are as the fields say until the
/// operation is over; nobody else writes there meanwhile, nor reads `recv`. `unsafe` code that works with
/// them relies on that.
#[derive(Clone, Debug)]
pub struct Job {
    /// The ranks that bring data, and the ranks that get some. A fold of floating point is to all, by shards.
    pub pattern: Pattern,
    /// Bytes of the message; of a gather, of this rank's part. An exchange has its own, and its own pointers.
    pub bytes: usize,
    /// Contribution. Valid for reads of `bytes` bytes where the pattern asks for one.
    pub send: *const u8,
    /// Result. Valid for writes of `bytes` bytes (of a gather, of the image's) where the pattern
    /// gives one. May equal `send`, but in gathers.
    pub recv: *mut u8,
}

impl Job {
    /// Whether the kernel has no arithmetic for its elements.
    pub fn is_for_user_space(&self) -> bool {
        let arithmetic = self.pattern.arithmetic();
        arithmetic.is_some_and(|arithmetic| arithmetic.element.real().is_some())
    }
}

/// The memory of a transfer: the program's buffers, or a block of the leaf's.
pub struct Raw {
    send: *const u8,
    recv: *mut u8,
    /// Of an exchange, which has nothing else.
    parcels: Option<Arc<Parcels>>,
}

impl Raw {
    /// Contribution and result.
    ///
    /// # Safety
    /// `send` is valid for reads of the transfer's bytes, if its [`Kind`] takes some from this member. `recv` is valid
    /// for writes, if it gives some. Both are so until the transfer is over, or nobody polls its wire any more. Until
    /// then nobody else writes to either or reads `recv`. Of a fold the two are the same, or do not overlap.
    pub unsafe fn new(send: *const u8, recv: *mut u8) -> Self {
        Self { send, recv, parcels: None }
    }

    /// Of a transfer without data.
    pub fn nothing() -> Self {
        let nothing = std::ptr::NonNull::dangling().as_ptr();
        Self { send: nothing, recv: nothing, parcels: None }
    }

    /// Of an exchange.
    ///
    /// # Safety
    /// What [`Parcels`] says, until the transfer is over, or nobody polls its wire any more.
    pub unsafe fn exchange(parcels: Arc<Parcels>) -> Self {
        Self { parcels: Some(parcels), ..Self::nothing() }
    }
}

impl Buffers for Raw {
    fn read(&self, range: Range<usize>) -> &[u8] {
        if range.is_empty() {
            return &[];
        }
        // SAFETY: the contract of `new`; the range is in the transfer.
        unsafe { std::slice::from_raw_parts(self.send.add(range.start), range.len()) }
    }

    fn write(&mut self, at: usize, data: &[u8]) {
        if !data.is_empty() {
            // SAFETY: the contract of `new`; the data go into the transfer. They are in a cell, which is other memory.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.recv.add(at), data.len()) }
        }
    }

    fn result(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: the contract of `new`; the range is in the transfer.
        unsafe { std::slice::from_raw_parts(self.recv.add(range.start), range.len()) }
    }

    fn fold(&mut self, at: usize, data: &[u8], arithmetic: Arithmetic) {
        // SAFETY: the contract of `new`; the data are folded into the transfer.
        let into = unsafe { std::slice::from_raw_parts_mut(self.recv.add(at), data.len()) };
        fold(into, data, arithmetic);
    }

    fn in_place(&self) -> bool {
        self.send == self.recv.cast_const()
    }

    fn begin_with_own(&mut self, range: Range<usize>) {
        let own = self.send.wrapping_add(range.start);
        // SAFETY: the contract of `new`; the range is in the transfer, and the two do not overlap where they differ.
        unsafe { std::ptr::copy_nonoverlapping(own, self.recv.add(range.start), range.len()) };
    }

    fn fold_own(&mut self, range: Range<usize>, arithmetic: Arithmetic) {
        // SAFETY: the contract of `new`; the range is in the transfer, and the result does not overlap it.
        let own = unsafe { std::slice::from_raw_parts(self.send.add(range.start), range.len()) };
        self.fold(range.start, own, arithmetic);
    }

    fn parcel(&self, to: u8) -> &[u8] {
        match self.parcels.as_ref().and_then(|parcels| parcel(&parcels.to, to)) {
            // SAFETY: the contract of `exchange`.
            Some(Parcel { data, bytes, .. }) if *bytes > 0 => unsafe {
                std::slice::from_raw_parts(*data, *bytes)
            },
            _ => &[],
        }
    }

    fn expects(&self, from: u8) -> usize {
        let parcels = self.parcels.as_ref();
        parcels.and_then(|parcels| parcel(&parcels.from, from)).map_or(0, |parcel| parcel.bytes)
    }

    fn take_parcel(&mut self, from: u8, at: usize, data: &[u8]) {
        let parcels = self.parcels.as_ref();
        let Some(into) = parcels.and_then(|parcels| parcel(&parcels.from, from)) else { return };
        assert!(at + data.len() <= into.bytes, "more than was expected");
        // SAFETY: the contract of `exchange`; the data go into the parcel. They are in a cell, which is other memory.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), into.data.add(at), data.len()) };
    }
}

/// The progress of an operation.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// A round begins, or (without a leaf) nothing has been submitted.
    Begin,
    /// Leader: waits for the result block of this round.
    Block,
    /// Leader: has the block; contributions of the local ranks before this one are in it.
    Collect {
        block: *mut u8,
        local: usize,
    },
    /// So many transfers are on the wire; leader: the block.
    Wire {
        block: *mut u8,
        transfers: usize,
    },
    /// Not the leader: has given, if it gives.
    Get,
    Over,
}

/// A collective under way.
pub struct Operation {
    /// Its pointers are as [`Job`] says, which [`Operation::new`] demands.
    job: Job,
    algorithm: Algorithm,
    stage: Stage,
    /// Of folds and broadcasts on a leaf: bytes of the rounds before; and of this one.
    at: usize,
    round: usize,
    /// Of an exchange where some host has several ranks, once it has begun.
    bundled: Option<Box<Bundled>>,
    /// Tells whoever started it that it is over.
    over: Option<Outcome>,
    /// The length of the message, as far as this rank knows it, see `struct fb_frame`.
    message: u64,
    mismatch: Option<Mismatch>,
}

/// How an operation ended, once it has.
pub type Outcome = Arc<OnceLock<Result<(), Mismatch>>>;

impl Operation {
    /// One that has not begun.
    ///
    /// # Safety
    /// What [`Job`] says of its pointers.
    pub unsafe fn new(job: Job, algorithm: Algorithm, over: Option<Outcome>) -> Self {
        let message = job.pattern.parts().map_or(job.bytes, |image| image.message()) as u64;
        let (stage, bundled, mismatch) = (Stage::Begin, None, None);
        Self { job, algorithm, stage, at: 0, round: 0, bundled, over, message, mismatch }
    }

    /// Whether the ranks are in different collectives.
    pub fn is_out_of_step(&self) -> bool {
        self.mismatch == Some(Mismatch::OutOfStep)
    }

    /// In what the ranks differed, if nobody has been told.
    pub fn untold(&self) -> Option<Mismatch> {
        self.mismatch.filter(|_| self.over.is_none())
    }

    /// Whether it is over on this rank.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    fn end(&mut self) {
        self.stage = Stage::Over;
        if let Some(over) = &self.over {
            let _ = over.set(self.mismatch.map_or(Ok(()), Err));
        }
    }

    /// Puts everything on the wire, on a host with one rank.
    #[inline]
    pub fn submit<M: Memory, F: Transport>(&mut self, place: &Place, wire: &mut Wire<M, F, Raw>) {
        let job = &self.job;
        let transfers = match job.pattern.parts() {
            Some(image) => {
                let part = image.part(place.rank);
                let apart = image.bytes() > usize::from(place.chunk_bytes);
                if apart && !part.is_empty() {
                    // SAFETY: the job's pointers. The parts of others are put beside it.
                    unsafe { std::ptr::copy(job.send, job.recv.add(part.start), part.len()) };
                }
                // SAFETY: the job's pointers.
                unsafe { self.submit_gather(image, place, wire, job.send, job.recv) }
            }
            None if matches!(job.pattern, Pattern::Exchange(_)) => {
                self.submit_exchange(place, wire)
            }
            None => {
                // By shards, stripes begin with rounds: those of hosts with several ranks, if any has.
                let several = || place.layout.hosts.iter().any(|ranks| ranks.len() > 1);
                let rounds = self.algorithm == Algorithm::Shards && several();
                let most = if rounds { most_of_round(place) } else { usize::MAX };
                let (mut at, mut transfers) = (0, 0);
                while at < job.bytes || transfers == 0 {
                    let bytes = (job.bytes - at).min(most);
                    let (send, recv) = (job.send.wrapping_add(at), job.recv.wrapping_add(at));
                    // SAFETY: the job's pointers; a part of what they span.
                    let buffers = unsafe { Raw::new(send, recv) };
                    wire.submit(self.transfer_of(place, at, bytes), buffers);
                    (at, transfers) = (at + bytes, transfers + 1);
                }
                transfers
            }
        };
        self.stage = Stage::Wire { block: std::ptr::null_mut(), transfers };
    }

    /// Puts an exchange on the wire, on a host with one rank. Returns the number of transfers.
    #[inline(never)]
    fn submit_exchange<M: Memory, F: Transport>(
        &mut self,
        place: &Place,
        wire: &mut Wire<M, F, Raw>,
    ) -> usize {
        let Pattern::Exchange(parcels) = &self.job.pattern else { return 0 };
        if place.has_bundles() {
            self.begin_bundled(place);
            self.submit_bundles(place, wire);
        } else {
            // SAFETY: the job's parcels. Each rank's number is its host's.
            unsafe { bundled::submit(Arc::clone(parcels), wire) };
        }
        1
    }

    fn begin_bundled(&mut self, place: &Place) {
        if let Pattern::Exchange(parcels) = &self.job.pattern {
            // SAFETY: the job's parcels.
            self.bundled = Some(Box::new(unsafe { Bundled::new(place, parcels) }));
        }
    }

    fn submit_bundles<M: Memory, F: Transport>(
        &mut self,
        place: &Place,
        wire: &mut Wire<M, F, Raw>,
    ) {
        if let Some(bundled) = &mut self.bundled {
            bundled.submit(place, wire);
        }
    }

    /// The oldest transfer on the wire is over.
    pub fn transferred(&mut self, leaf: Option<&Leaf>, place: &Place, mismatch: Option<Mismatch>) {
        // A bundle that is not as expected concerns those who get some of it.
        if let Some(mismatch) = mismatch.filter(|_| self.bundled.is_none()) {
            self.message = mismatch.word();
            self.mismatch.get_or_insert(mismatch);
        }
        let Stage::Wire { block, transfers } = &mut self.stage else { return };
        *transfers -= 1;
        if *transfers > 0 {
            return;
        }
        let block = *block;
        if let Some(bundled) = &self.bundled {
            // SAFETY: the job's parcels; ranks that get something wait for the end of this round.
            let delivered = unsafe { bundled.deliver(place, leaf) };
            self.mismatch = self.mismatch.or(delivered.err());
        }
        let Some(leaf) = leaf else { return self.end() };
        if self.bundled.is_none() && self.job.pattern.gets(place.rank) && self.mismatch.is_none() {
            // SAFETY: the block of this round, and as much of what the job's pointer spans.
            unsafe { copy(block, self.job.recv.wrapping_add(self.at), self.received()) };
        }
        leaf.publish_result(self.message);
        self.next_round();
    }

    /// Bytes that this round brings to a rank that gets something.
    fn received(&self) -> usize {
        self.job.pattern.parts().map_or(self.round, |image| image.bytes())
    }

    fn next_round(&mut self) {
        self.at += self.round;
        let ended = self.job.pattern.parts().is_some() || self.at == self.job.bytes;
        // Such messages are of one round.
        if ended || self.mismatch.is_some() {
            self.end();
        } else {
            self.stage = Stage::Begin;
        }
    }

    /// Does what can be done now, on a host with several ranks. True: something was.
    pub fn step<M: Memory, F: Transport>(
        &mut self,
        place: &Place,
        leaf: &mut Leaf,
        wire: Option<&mut Wire<M, F, Raw>>,
    ) -> bool {
        match self.stage {
            Stage::Begin => {
                self.round = (self.job.bytes - self.at).min(most_of_round(place));
                leaf.begin_round();
                self.begin_bundled(place);
                self.stage = Stage::Block;
                true
            }
            Stage::Block if leaf.leads() => {
                let Some(block) = leaf.take_result() else { return false };
                if self.bundled.is_none() && self.job.pattern.brings(place.rank) {
                    let own =
                        self.job.pattern.parts().map_or(0, |image| image.part(place.rank).start);
                    let send = self.job.send.wrapping_add(self.at);
                    // SAFETY: as much of what the job's pointer spans, and this rank's place in the block of this
                    // round.
                    unsafe { copy(send, block.wrapping_add(own), self.round) };
                }
                self.stage = Stage::Collect { block, local: 1 };
                true
            }
            Stage::Block => {
                let (send, bytes) = match &self.bundled {
                    Some(bundled) => (bundled.slip().as_ptr(), bundled.slip().len()),
                    None => (self.job.send.wrapping_add(self.at), self.round),
                };
                // SAFETY: the job's pointers, a part of what they span; or memory of this operation.
                let given = !self.job.pattern.brings(place.rank)
                    || unsafe { leaf.give_contribution(send, bytes, self.message) };
                if !given {
                    return false;
                }
                self.stage = Stage::Get;
                let gets = match &self.bundled {
                    Some(bundled) => bundled.gets(),
                    None => self.job.pattern.gets(place.rank),
                };
                if !gets {
                    leaf.leave_result();
                    self.next_round();
                }
                true
            }
            Stage::Collect { block, local } => {
                let Some(wire) = wire else { return false };
                if local < leaf.ranks() {
                    // SAFETY: the block of this round, in which the leader collects.
                    if !unsafe { self.collect(place, leaf, block, local) } {
                        return false;
                    }
                    self.stage = Stage::Collect { block, local: local + 1 };
                    return true;
                }
                leaf.free_slots();
                // SAFETY: the block of this round, which stays the leader's until the transfers are over.
                let transfers = unsafe { self.submit_round(place, block, wire) };
                self.stage = Stage::Wire { block, transfers };
                true
            }
            Stage::Get if self.bundled.is_some() => {
                let Some((came, delivery)) = leaf.delivered() else { return false };
                self.take_delivery(came, delivery);
                leaf.leave_result();
                self.next_round();
                true
            }
            Stage::Get => {
                let recv = self.job.recv.wrapping_add(self.at);
                // SAFETY: the job's pointers; a part of what they span.
                let came = unsafe { leaf.get_result(recv, self.received(), self.message) };
                let Some(came) = came else { return false };
                self.compare(place, came);
                leaf.leave_result();
                self.next_round();
                true
            }
            Stage::Wire { .. } | Stage::Over => false,
        }
    }

    /// Takes what the leader has handed this rank, in a round of a message.
    fn take_delivery(&mut self, message: u64, delivery: &[u8]) {
        let Some(bundled) = &self.bundled else { return };
        let taken = match message == self.message {
            // SAFETY: the job's parcels.
            true => unsafe { bundled.take(delivery) },
            false => Err(Mismatch::OutOfStep),
        };
        self.mismatch = taken.err();
    }

    /// Notes it if a message elsewhere is of another length than here.
    fn compare(&mut self, place: &Place, elsewhere: u64) {
        if elsewhere != self.message {
            let most = u64::from(place.chunk_bytes);
            self.mismatch = Some(Mismatch::of(self.message, elsewhere, true, most));
        }
    }

    /// The leader takes in what another local rank gives, if that has come.
    ///
    /// # Safety
    /// `block` is the leaf's of this round, and nobody else reads or writes it now.
    unsafe fn collect(&mut self, place: &Place, leaf: &Leaf, block: *mut u8, local: usize) -> bool {
        let rank = place.layout.hosts[place.member][local];
        let is_broadcast = matches!(self.job.pattern, Pattern::Broadcast(_));
        if !self.job.pattern.brings(rank) {
            return true;
        }
        let Some(message) = leaf.arrived_message(local) else { return false };
        if let Some(bundled) = &mut self.bundled {
            let slip = leaf.slot(local, segment::BLOCK);
            if message != self.message || !bundled.add(place, rank, slip) {
                self.mismatch = Some(Mismatch::OutOfStep);
            }
            return true;
        }
        self.compare(place, message);
        match self.mismatch {
            None => {}
            // The root's word holds.
            Some(Mismatch::Length { elsewhere, .. }) if is_broadcast => {
                (self.message, self.round) = (message, elsewhere as usize);
            }
            Some(mismatch) => {
                self.message = mismatch.word();
                return true;
            }
        }
        let part = self.job.pattern.parts().map_or(0..self.round, |image| image.part(rank));
        let slot = leaf.slot(local, part.len());
        if let Some(arithmetic) = self.job.pattern.arithmetic() {
            // SAFETY: the round is no longer than a block, which only the leader writes now.
            let into = unsafe { std::slice::from_raw_parts_mut(block, self.round) };
            fold(into, slot, arithmetic);
        } else {
            // SAFETY: the slot of a rank, and its place in the block.
            unsafe { copy(slot.as_ptr(), block.wrapping_add(part.start), slot.len()) };
        }
        true
    }

    /// Puts a round on the wire. Returns the number of transfers.
    ///
    /// # Safety
    /// `block` is the leaf's of this round, and nobody else reads or writes it until the transfers are over.
    unsafe fn submit_round<M: Memory, F: Transport>(
        &mut self,
        place: &Place,
        block: *mut u8,
        wire: &mut Wire<M, F, Raw>,
    ) -> usize {
        if self.bundled.is_some() {
            self.submit_bundles(place, wire);
            return 1;
        }
        let job = &self.job;
        if let Some(image) = job.pattern.parts() {
            let own = block.wrapping_add(image.member(place.member).start);
            // SAFETY: the block has room for the image, with this member's part.
            return unsafe { self.submit_gather(image, place, wire, own, block) };
        }
        let transfer = self.transfer_of(place, self.at, self.round);
        // SAFETY: as demanded of this function; the round is no longer than a block.
        wire.submit(transfer, unsafe { Raw::new(block, block) });
        1
    }

    /// So many bytes of the message, from byte `at`, a multiple of a chunk.
    fn transfer_of(&self, place: &Place, at: usize, bytes: usize) -> Transfer {
        let first = at / usize::from(place.chunk_bytes);
        Transfer::part_of_message(self.kind(place), bytes, first)
            .of(self.message)
            .by(self.algorithm)
    }

    /// The pattern in terms of members, if a gather is of one chunk.
    fn kind(&self, place: &Place) -> Kind {
        let member = |rank| place.layout.place(rank).map_or(0, |(member, _)| member as u8);
        let part = |image: &Arc<Image>| {
            let offset = image.member(place.member).start as u16;
            Part { offset, extent: image.bytes() as u16 }
        };
        self.job.pattern.map(member, part, |parcels| parcels.parties.map(member))
    }

    /// Puts a gather on the wire: as one chunk if it fits, else as a broadcast of each member. `own` is
    /// this member's part, `into` the image. Returns the number of transfers.
    ///
    /// # Safety
    /// Until the transfers are over, both are valid and nobody else's, but for the reading of `own`.
    unsafe fn submit_gather<M: Memory, F: Transport>(
        &self,
        image: &Image,
        place: &Place,
        wire: &mut Wire<M, F, Raw>,
        own: *const u8,
        into: *mut u8,
    ) -> usize {
        let mine = image.member(place.member);
        if image.bytes() <= usize::from(place.chunk_bytes) {
            let transfer = Transfer::new(self.kind(place), mine.len()).of(self.message);
            // SAFETY: as demanded of this function.
            wire.submit(transfer.by(self.algorithm), unsafe { Raw::new(own, into) });
            return 1;
        }
        let mut transfers = 0;
        for member in 0..image.members() {
            let range = image.member(member);
            if !range.is_empty() {
                let send = if member == place.member { own } else { std::ptr::null() };
                let kind = Kind::Broadcast(member as u8);
                let transfer = Transfer::new(kind, range.len()).of(self.message);
                // SAFETY: as demanded of this function; only the member itself needs its part.
                let buffers = unsafe { Raw::new(send, into.wrapping_add(range.start)) };
                wire.submit(transfer, buffers);
                transfers += 1;
            }
        }
        transfers
    }
}

/// # Safety
/// What [`std::ptr::copy_nonoverlapping`] demands, unless there are no bytes.
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: as demanded of this function.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

/// Whole chunks to a round, so that hosts with one rank, which do it all at once, cut alike.
fn most_of_round(place: &Place) -> usize {
    let chunk = usize::from(place.chunk_bytes);
    segment::BLOCK / chunk * chunk
}

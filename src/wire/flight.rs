//! Transfers under way: their chunks started, their results harvested, in order.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use super::buffers::Buffers;
use super::cells::Memory;
use super::pairs::{Pairs, Parties};
use super::patience::Turn;
use super::stripe::Stripe;
use super::{
    Algorithm, Kind, Mismatch, Part, Transfer, Transport, Wire, chunks_in_flight, exchanges,
    most_frames,
};
use crate::bindings as b;

/// A transfer under way.
pub(super) struct Flight<B> {
    pub(super) transfer: Transfer,
    pub(super) buffers: B,
    /// Chunks started, and all there are.
    pub(super) started: usize,
    chunks: usize,
    /// Chunks that are waited for.
    pub(super) awaited: usize,
    way: Way,
    /// By shards: what was started; and this member's contribution to its own shard of each, where the
    /// result takes its place.
    pub(super) stripes: Vec<Stripe>,
    pub(super) stash: Vec<Vec<u8>>,
    pub(super) mismatch: Option<Mismatch>,
}

/// The way of a transfer's chunks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One after the other.
    Single,
    Shards,
    /// An exchange: all at once.
    Pairs(Parties<u8>),
}

/// The next thing to start of a transfer.
enum Next {
    Chunk,
    Stripe(Stripe),
    Exchange(Pairs),
}

/// A transfer that is over.
pub struct Over<B> {
    /// Its memory, with all results, unless there is a mismatch.
    pub buffers: B,
    /// The members did not agree on it.
    pub mismatch: Option<Mismatch>,
}

impl<B> Flight<B> {
    /// Of an exchange: what all know of its ends.
    pub(super) fn parties(&self) -> Option<Parties<u8>> {
        match self.way {
            Way::Pairs(parties) => Some(parties),
            Way::Single | Way::Shards => None,
        }
    }

    fn is_over(&self) -> bool {
        self.started == self.chunks && self.awaited == 0
    }
}

/// An expected chunk or piece, under a number of the sequence.
#[derive(Clone, Copy)]
pub(super) struct Awaited {
    pub(super) seq: u64,
    pub(super) flight: u64,
    pub(super) chunk: usize,
    /// By shards: its place among the flight's.
    pub(super) stripe: usize,
    pub(super) coming: Coming,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Coming {
    /// The chunk, to be written to its place.
    Chunk,
    /// A member's part of the chunk.
    Piece(u8),
    /// The chunk, which is here already: it says that another has it.
    Word,
    /// A piece of a member's parcel; its chunk is the row.
    Parcel(u8),
}

/// Transfers under way, in the order in which they were submitted.
pub(super) struct Flights<B> {
    queue: VecDeque<Flight<B>>,
    /// Number of the first in the queue; and of the first whose chunks have not all been started.
    first: u64,
    pub(super) starting: u64,
    pub(super) awaited: VecDeque<Awaited>,
}

impl<B> Default for Flights<B> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), first: 0, starting: 0, awaited: VecDeque::new() }
    }
}

impl<B> Flights<B> {
    pub(super) fn get(&mut self, number: u64) -> Option<&mut Flight<B>> {
        self.queue.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// The first chunk that is waited for.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.awaited.front().map(|awaited| awaited.seq)
    }
}

impl<M: Memory, F: Transport, B: Buffers> Wire<M, F, B> {
    /// Puts a transfer behind the transfers under way. All members submit the same ones in the same
    /// order. Nothing is sent before [`Wire::poll`].
    pub fn submit(&mut self, transfer: Transfer, buffers: B) {
        let chunks = transfer.chunks(usize::from(self.identity.chunk_bytes));
        let (members, window) = (self.identity.members, self.cells.window());
        let way = match transfer.kind {
            Kind::Exchange(parties) => Way::Pairs(parties),
            _ if transfer.is_by_shards(members, window) => Way::Shards,
            _ => Way::Single,
        };
        debug_assert!(!matches!(way, Way::Pairs(_)) || chunks <= exchanges(members.into(), window));
        let (stripes, stash) = (Vec::new(), Vec::new());
        let flight = Flight {
            transfer,
            buffers,
            started: 0,
            chunks,
            awaited: 0,
            way,
            stripes,
            stash,
            mismatch: None,
        };
        self.flights.queue.push_back(flight);
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.flights.queue.is_empty()
    }

    /// Whether the oldest transfer is over on this member.
    pub fn has_over(&self) -> bool {
        self.flights.queue.front().is_some_and(Flight::is_over)
    }

    /// Takes the oldest transfer, if it is over on this member.
    #[inline]
    pub fn take_over(&mut self) -> Option<Over<B>> {
        if !self.has_over() {
            return None;
        }
        self.flights.first += 1;
        let Flight { buffers, mismatch, .. } = self.flights.queue.pop_front()?;
        Some(Over { buffers, mismatch })
    }

    /// Does what can be done now; says whether anything moved. `now` is asked for only if nothing did.
    #[inline]
    pub fn poll(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let started = self.start();
        self.transport.take_in();
        let harvested = self.harvest();
        if harvested {
            self.transport.made_progress();
        }
        let moved = started || harvested;
        if moved || (self.flights.awaited.is_empty() && self.is_started()) {
            self.patience.reset();
        } else if let Some(turn) = self.out_of_patience(now()) {
            // Chunks that come out of order are progress, too.
            let ready = self.count_ready();
            if self.patience.has_more(ready) {
                self.transport.made_progress();
            } else {
                self.ask_for_missing(turn);
            }
        }
        moved
    }

    fn is_started(&self) -> bool {
        self.flights.starting == self.flights.first + self.flights.queue.len() as u64
    }

    fn start(&mut self) -> bool {
        let mut moved = false;
        while let Some(flight) = self.flights.get(self.flights.starting) {
            if flight.started == flight.chunks {
                self.flights.starting += 1;
                continue;
            }
            let (transfer, chunk, of) = (flight.transfer, flight.started, flight.chunks);
            let next = match flight.way {
                Way::Single => Next::Chunk,
                Way::Shards => Next::Stripe(self.next_stripe(&transfer, chunk, of)),
                Way::Pairs(parties) => Next::Exchange(self.next_pairs(of, parties)),
            };
            // Counted from the oldest that is waited for: what others learn of us must not fall
            // behind (docs/contributing/protocol.md).
            let room = match &next {
                Next::Stripe(stripe) => self.room_for(stripe.numbers(), stripe.root.is_none()),
                Next::Exchange(pairs) => self.room_for(pairs.numbers(), false),
                Next::Chunk => {
                    let under_way = self.next_seq - 1 - self.done;
                    (under_way < chunks_in_flight(self.cells.window())).then_some(1)
                }
            };
            let Some(numbers) = room else { break };
            // A receiver of a broadcast starts nothing: it only notes what is to come.
            let passive = matches!(next, Next::Chunk)
                && matches!(transfer.kind, Kind::Broadcast(root) if root != self.identity.me);
            if self.sync_is_due(transfer.kind, numbers) {
                moved |= self.harvest_sync();
                if self.open_sync.is_some() || !self.may_start(1) {
                    break;
                }
                // Earlier chunks are still awaited here, but the others need not wait for them: our
                // `consumed` tells them how far they may go.
                self.start_sync();
                // The numbers of a stripe or an exchange begin behind the sync's.
                continue;
            }
            if !passive && !self.may_start(numbers) {
                moved |= self.harvest_sync();
                if !self.may_start(numbers) {
                    break;
                }
            }
            match next {
                Next::Stripe(stripe) => self.start_stripe(&transfer, stripe),
                Next::Exchange(pairs) => self.start_exchange(pairs),
                Next::Chunk => {
                    let seq = self.next_seq;
                    self.next_seq += 1;
                    self.start_chunk(&transfer, seq, chunk);
                }
            }
            moved = true;
        }
        self.flush();
        moved
    }

    /// Bytes of our contribution that are in a chunk; in some chunks.
    pub(super) fn range(&self, transfer: &Transfer, chunk: usize) -> Range<usize> {
        self.bytes(transfer, chunk..chunk + 1)
    }

    pub(super) fn bytes(&self, transfer: &Transfer, chunks: Range<usize>) -> Range<usize> {
        let start_of = |chunk| transfer.bytes.min(chunk * usize::from(self.identity.chunk_bytes));
        start_of(chunks.start)..start_of(chunks.end)
    }

    fn chunk_frame(&self, transfer: &Transfer, seq: u64, chunk: usize) -> b::fb_frame {
        let (kind, target, flags) = match transfer.kind {
            Kind::Barrier | Kind::FoldToAll(_) | Kind::GatherToAll(_) => {
                let aggregator = self.aggregator(transfer.first + chunk);
                let (target, flag) = match transfer.algorithm {
                    Algorithm::Direct => (0, b::FB_FLAG_DIRECT),
                    // Parts of a chunk that are put side by side are no fold, to be passed on whole.
                    Algorithm::Ring if transfer.kind.parts().is_none() => {
                        (aggregator, b::FB_FLAG_RING)
                    }
                    _ => (aggregator, b::FB_FLAG_RESULT_TO_ALL),
                };
                (b::FB_KIND_CONTRIBUTION, target, flag)
            }
            Kind::FoldToRoot(root, _) | Kind::GatherToRoot(root, _) => {
                (b::FB_KIND_CONTRIBUTION, root, 0)
            }
            Kind::Broadcast(root) => (b::FB_KIND_BROADCAST, root, 0),
            Kind::Exchange(_) => unreachable!("its pieces have frames of their own"),
        };
        let Part { offset, extent } = transfer.kind.parts().copied().unwrap_or_default();
        let ((op, type_), flags) = (transfer.codes(), flags as u8);
        let length = self.range(transfer, chunk).len() as u16;
        let message = transfer.message;
        b::fb_frame {
            seq,
            target,
            op,
            type_,
            flags,
            length,
            offset,
            detail: extent.into(),
            message,
            ..self.frame(kind)
        }
    }

    fn start_chunk(&mut self, transfer: &Transfer, seq: u64, chunk: usize) {
        let me = self.identity.me;
        let frame = self.chunk_frame(transfer, seq, chunk);
        let range = self.range(transfer, chunk);
        let number = self.flights.starting;
        // Taken from `self`, since the frame is sent with its payload borrowed from there.
        let mut flights = std::mem::take(&mut self.flights);
        let flight = flights.get(number).expect("it is being started");
        let payload = flight.buffers.read(range);
        let awaited = match transfer.kind {
            Kind::Barrier | Kind::FoldToAll(_) | Kind::GatherToAll(_) => {
                self.last_sync = seq;
                self.contribute(frame, payload);
                true
            }
            Kind::FoldToRoot(root, _) | Kind::GatherToRoot(root, _) => {
                self.contribute(frame, payload);
                root == me
            }
            Kind::Broadcast(root) if root == me => {
                let frame = self.identity.seal.with_payload(frame, payload);
                self.cells.post_broadcast(&frame, payload);
                self.outbox.push(frame);
                if self.outbox.len() == most_frames(self.identity.chunk_bytes) {
                    self.flush();
                }
                false
            }
            Kind::Broadcast(_) => true,
            Kind::Exchange(_) => unreachable!("it starts all at once"),
        };
        flight.started += 1;
        if awaited {
            flight.awaited += 1;
            flights.awaited.push_back(Awaited {
                seq,
                flight: number,
                chunk,
                stripe: 0,
                coming: Coming::Chunk,
            });
        }
        // Chunks that are not waited for are released. The cell keeps what a peer may ask for. It
        // is not taken again before all members, the root too, have released the chunk.
        self.update_done(&flights);
        self.flights = flights;
    }

    /// Sends what has been put into the outbox: broadcasts, which go out many at a time.
    fn flush(&mut self) {
        if !self.outbox.is_empty() {
            let frames = std::mem::take(&mut self.outbox);
            self.fan_out(&frames);
            self.outbox = frames;
            self.outbox.clear();
        }
    }

    /// Sends broadcasts from their cells.
    pub(super) fn fan_out(&mut self, frames: &[b::fb_frame]) {
        let other = self.identity.any_other();
        for frames in frames.chunks(most_frames(self.identity.chunk_bytes)) {
            let posted = |frame: &b::fb_frame| {
                let payload = self.cells.posted(frame);
                (self.identity.seal.sealed(*frame, payload), payload)
            };
            let frames: Vec<_> = frames.iter().map(posted).collect();
            self.transport.send_many(other, &frames);
        }
    }

    fn harvest(&mut self) -> bool {
        // At nearly every poll.
        if self.flights.oldest().is_none_or(|seq| !self.cells.is_ready(seq)) {
            return false;
        }
        let mut flights = std::mem::take(&mut self.flights);
        let mut moved = false;
        while let Some(&awaited) = flights.awaited.front() {
            let Awaited { seq, flight: number, chunk, coming, .. } = awaited;
            if !self.cells.is_ready(seq) {
                break;
            }
            let flight = flights.get(number).expect("it is waited for");
            let transfer = flight.transfer;
            if !self.is_sound(seq, coming) {
                // It is as if it had been lost.
                self.cells.discard(seq);
                self.unsound += 1;
                break;
            }
            let mismatch = self.mismatch(seq, flight, coming);
            flight.mismatch = flight.mismatch.or(mismatch);
            if mismatch == Some(Mismatch::OutOfStep) {
                self.out_of_step = true;
                break;
            }
            if let Coming::Piece(source) = coming {
                self.take_piece(&mut flights, awaited, source);
            } else if let Coming::Parcel(source) = coming {
                self.take_parcel(&mut flights, awaited, source, mismatch);
            } else {
                let range = self.range(&transfer, chunk);
                let length = transfer.kind.parts().map_or(range.len(), |p| usize::from(p.extent));
                let (data, cleared) = self.cells.result(seq, length);
                if coming == Coming::Chunk && mismatch.is_none() {
                    flight.buffers.write(range.start, data);
                }
                if transfer.kind.is_to_all() {
                    self.saw_cleared(cleared);
                }
            }
            let flight = flights.get(number).expect("it is waited for");
            flight.awaited -= 1;
            flights.awaited.pop_front();
            moved = true;
        }
        self.update_done(&flights);
        self.flights = flights;
        moved
    }

    /// Whether the payload that came is as a member sent it. The programs have made sure of all but the payload of
    /// broadcasts and pieces.
    #[inline]
    fn is_sound(&self, seq: u64, coming: Coming) -> bool {
        let source = match coming {
            // Its payload is not taken.
            Coming::Word => return true,
            Coming::Chunk => None,
            Coming::Piece(source) | Coming::Parcel(source) => Some(source),
        };
        self.cells
            .deposit(seq, source)
            .is_none_or(|(frame, payload)| self.identity.seal.holds_payload(&frame, payload))
    }

    /// Whether what came is of another message than ours.
    #[inline]
    fn mismatch(&self, seq: u64, flight: &Flight<B>, coming: Coming) -> Option<Mismatch> {
        let kind = match (coming, flight.transfer.kind) {
            (Coming::Parcel(source), _) => return self.parcel_mismatch(seq, flight, source),
            (Coming::Piece(_), _) => b::FB_KIND_PIECE,
            (Coming::Word, _) | (_, Kind::Broadcast(_)) => b::FB_KIND_BROADCAST,
            _ if flight.way == Way::Shards => b::FB_KIND_BROADCAST,
            _ => b::FB_KIND_CONTRIBUTION,
        };
        let message = flight.transfer.message;
        let (came, elsewhere) = self.cells.terms(seq);
        if came == kind && elsewhere == message {
            return None;
        }
        let most = u64::from(self.identity.chunk_bytes);
        Some(Mismatch::of(message, elsewhere, came == kind, most))
    }

    /// The number of awaited chunks that have come, in whatever order.
    fn count_ready(&self) -> usize {
        let awaited = self.flights.awaited.iter();
        awaited.filter(|awaited| self.cells.is_ready(awaited.seq)).count()
    }

    /// Asks for every chunk that has not come. A frame is 106 bytes without its payload, so asking
    /// for the lot costs little, and waiting for one after the other would cost a lot.
    fn ask_for_missing(&mut self, turn: Turn) {
        self.out_of_step |= self.cells.out_of_step();
        let mut flights = std::mem::take(&mut self.flights);
        for at in 0..flights.awaited.len() {
            let awaited = flights.awaited[at];
            let Awaited { seq, flight, chunk, coming, .. } = awaited;
            let flight = flights.get(flight).expect("it is waited for");
            if self.cells.is_ready(seq) {
                // A chunk that came before its turn may tell why the rest does not come.
                let mismatch = self.mismatch(seq, flight, coming);
                self.out_of_step |= mismatch == Some(Mismatch::OutOfStep);
                continue;
            }
            match coming {
                // The sender of a piece waits for the result of it.
                Coming::Piece(_) => continue,
                _ if flight.way != Way::Single && turn == Turn::Aggregator => continue,
                Coming::Parcel(source) => {
                    self.ask_for_parcel(&mut flights, awaited, source);
                    continue;
                }
                _ if flight.way == Way::Shards => {
                    self.ask_for_shard(&mut flights, awaited);
                    continue;
                }
                _ => {}
            }
            let frame = self.chunk_frame(&flight.transfer, seq, chunk);
            if !self.has_turn(turn, &frame) {
                continue;
            }
            if let Kind::Broadcast(root) = flight.transfer.kind {
                self.ask(root, seq, frame.target, frame.flags);
            } else {
                let payload = flight.buffers.read(self.range(&flight.transfer, chunk));
                self.ask_for_fold(&frame, payload);
            }
        }
        self.flights = flights;
        self.ask_for_sync(turn);
    }
}

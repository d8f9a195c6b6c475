//! Long messages by shards: each member folds a part of the message for all.
//!
//! A message is cut into stripes, each of a shard for every member. In a stripe every member sends each
//! other member its part of the other's shard (*pieces*). It folds the pieces for its own shard, in the
//! order of the members, and broadcasts the result. So the bytes on the wire are the same as on a ring,
//! in two ways over it. The fold runs in user space, with vectors, over data that is in the cache.
//!
//! A broadcast goes the same way: its root sends each member a shard, which that one broadcasts. So
//! the root's link carries the message twice, and not once for each member.
//!
//! Pieces are not posted: their sender waits for the broadcast that they end in, keeps them until
//! then, and sends them again when it asks for that.

use super::cells::Memory;
use super::flight::{Awaited, Coming, Flights};
use super::stripe::{Stripe, most_under_way};
use super::transfer::{Kind, Transfer};
use super::{Buffers, Mismatch, Transport, Wire, most_frames};
use crate::bindings as b;

impl<M: Memory, F: Transport, B: Buffers> Wire<M, F, B> {
    /// The stripe that the transfer goes on with.
    pub(super) fn next_stripe(&self, transfer: &Transfer, started: usize, of: usize) -> Stripe {
        let (members, window) = (usize::from(self.identity.members), self.cells.window());
        let root = match transfer.kind {
            Kind::Broadcast(root) => Some(root),
            _ => None,
        };
        Stripe::new(self.next_seq, started..of, members, root, window)
    }

    /// So much of the sequence, of a stripe or an exchange, if it may be under way beside what is.
    pub(super) fn room_for(&self, numbers: u64, is_to_all: bool) -> Option<u64> {
        // If nothing is awaited, there is room even behind a sync that `done` does not count yet.
        let under_way = self.flights.oldest().map_or(0, |oldest| self.next_seq - oldest);
        let most = most_under_way(is_to_all, self.cells.window());
        (under_way == 0 || under_way + numbers <= most).then_some(numbers)
    }

    /// Sends this member's pieces, and notes what is to come. The sequence has room for it all.
    pub(super) fn start_stripe(&mut self, transfer: &Transfer, mut stripe: Stripe) {
        let me = self.identity.me;
        stripe.consumed = self.consumed();
        self.next_seq += stripe.numbers();
        if stripe.root.is_none() {
            // Its broadcasts say what all have released, as results do.
            self.last_sync = self.next_seq - 1;
        }
        // Taken from `self`, since frames are sent with payloads borrowed from there.
        let mut flights = std::mem::take(&mut self.flights);
        let number = flights.starting;
        let flight = flights.get(number).expect("it is being started");
        let index = flight.stripes.len();
        flight.stripes.push(stripe);
        flight.started += stripe.chunks;
        if stripe.root.is_none_or(|root| root == me) {
            for member in self.identity.others() {
                self.send_pieces(transfer, &stripe, member, &flight.buffers);
            }
        }
        let own = stripe.shard(me);
        let mut awaited = Vec::with_capacity(stripe.numbers() as usize);
        let mut note = |seq, chunk, coming| {
            awaited.push(Awaited { seq, flight: number, chunk, stripe: index, coming });
        };
        let is_root = stripe.root == Some(me);
        if !own.is_empty() && !is_root {
            let sources = match stripe.root {
                Some(root) => root..root + 1,
                None => 0..self.identity.members,
            };
            for source in sources.filter(|source| *source != me) {
                for (row, chunk) in own.clone().enumerate() {
                    note(stripe.piece(source, row), chunk, Coming::Piece(source));
                }
            }
        }
        let all = stripe.first..stripe.first + stripe.chunks;
        for chunk in all.filter(|chunk| !own.contains(chunk)) {
            // To the root it says that the member that broadcasts it has got it.
            let coming = if is_root { Coming::Word } else { Coming::Chunk };
            note(stripe.broadcast(chunk), chunk, coming);
        }
        if stripe.root.is_none() && flight.buffers.in_place() {
            flight.stash.push(flight.buffers.read(self.bytes(transfer, own)).to_vec());
        }
        if is_root {
            self.publish(transfer, &stripe, &flight.buffers);
        }
        flight.awaited += awaited.len();
        flights.awaited.extend(awaited);
        self.update_done(&flights);
        self.flights = flights;
    }

    fn send_pieces(&mut self, transfer: &Transfer, stripe: &Stripe, to: u8, buffers: &B) {
        let shard = stripe.shard(to);
        let frames: Vec<_> = shard
            .enumerate()
            .map(|(row, chunk)| {
                let payload = buffers.read(self.range(transfer, chunk));
                let seq = stripe.piece(self.identity.me, row);
                let length = payload.len() as u16;
                let kind = b::FB_KIND_PIECE;
                let message = transfer.message;
                let frame = b::fb_frame { seq, target: to, length, message, ..self.frame(kind) };
                let frame = self.identity.seal.with_payload(frame, payload);
                (self.identity.seal.sealed(frame, payload), payload)
            })
            .collect();
        for frames in frames.chunks(most_frames(self.identity.chunk_bytes)) {
            self.transport.send_many(to, frames);
        }
    }

    /// Broadcasts this member's shard.
    fn publish(&mut self, transfer: &Transfer, stripe: &Stripe, buffers: &B) {
        let me = self.identity.me;
        let mut frames = Vec::with_capacity(stripe.rows);
        for chunk in stripe.shard(me) {
            let range = self.range(transfer, chunk);
            let payload = match stripe.root {
                Some(root) if root == me => buffers.read(range),
                _ => buffers.result(range),
            };
            let (seq, consumed) = (stripe.broadcast(chunk), stripe.consumed);
            let length = payload.len() as u16;
            let kind = b::FB_KIND_BROADCAST;
            let message = transfer.message;
            let frame =
                b::fb_frame { seq, consumed, target: me, length, message, ..self.frame(kind) };
            let frame = self.identity.seal.with_payload(frame, payload);
            self.cells.post_broadcast(&frame, payload);
            frames.push(frame);
        }
        self.fan_out(&frames);
    }

    /// Takes a piece in: folds it, in the order of the members, this one's own contribution among them.
    pub(super) fn take_piece(&mut self, flights: &mut Flights<B>, awaited: Awaited, source: u8) {
        let Awaited { seq, flight, chunk, stripe: index, .. } = awaited;
        let flight = flights.get(flight).expect("it is waited for");
        let transfer = flight.transfer;
        let range = self.range(&transfer, chunk);
        let (data, consumed) = self.cells.result(seq, range.len());
        let stripe = &mut flight.stripes[index];
        stripe.consumed = stripe.consumed.min(consumed);
        let (me, at) = (self.identity.me, range.start);
        let own = stripe.shard(me);
        if let Some(arithmetic) = transfer.kind.arithmetic() {
            let stash = flight.stash.get_mut(index).map(std::mem::take);
            let first = self.bytes(&transfer, own.clone()).start;
            let kept = stash.as_deref().map(|stash| &stash[at - first..range.end - first]);
            if source == 0 {
                flight.buffers.write(at, data);
            } else {
                if me == 0 && source == 1 && kept.is_none() {
                    flight.buffers.begin_with_own(range.clone());
                }
                flight.buffers.fold(at, data, arithmetic);
            }
            if source + 1 == me {
                match kept {
                    Some(kept) => flight.buffers.fold(at, kept, arithmetic),
                    None => flight.buffers.fold_own(range, arithmetic),
                }
            }
            if let Some(stash) = stash {
                flight.stash[index] = stash;
            }
        } else {
            flight.buffers.write(at, data);
        }
        let last_source = match stripe.root {
            Some(root) => root,
            None if me + 1 == self.identity.members => me - 1,
            None => self.identity.members - 1,
        };
        if source == last_source && chunk + 1 == own.end {
            let stripe = *stripe;
            if let Some(stash) = flight.stash.get_mut(index) {
                *stash = Vec::new();
            }
            if stripe.root.is_none() {
                self.saw_cleared(stripe.consumed);
            }
            let told = flight.mismatch.map_or(transfer.message, Mismatch::word);
            self.publish(&transfer.of(told), &stripe, &flight.buffers);
        }
    }

    /// Asks for a broadcast of a stripe. Its owner may still miss this member's pieces, so they are sent
    /// again, once for each shard. If nothing of a shard has come, its owner has hardly sent any of it.
    pub(super) fn ask_for_shard(&mut self, flights: &mut Flights<B>, awaited: Awaited) {
        let Awaited { seq, flight, chunk, stripe, .. } = awaited;
        let flight = flights.get(flight).expect("it is waited for");
        let stripe = flight.stripes[stripe];
        let owner = stripe.owner(chunk);
        let shard = stripe.shard(owner);
        let come = |chunk| self.cells.is_ready(stripe.broadcast(chunk));
        if chunk == shard.start || shard.clone().any(come) {
            self.ask(owner, seq, owner, 0);
        }
        let sends = stripe.root.is_none_or(|root| root == self.identity.me);
        if sends && self.is_first_missing(&stripe, chunk) {
            self.send_pieces(&flight.transfer, &stripe, owner, &flight.buffers);
        }
    }

    fn is_first_missing(&self, stripe: &Stripe, chunk: usize) -> bool {
        let before = stripe.shard(stripe.owner(chunk)).start..chunk;
        before.into_iter().all(|chunk| self.cells.is_ready(stripe.broadcast(chunk)))
    }
}

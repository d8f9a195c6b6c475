//! Exchanges: each member's parcels to others, of sizes that only the two ends of each know.
//!
//! Every member uses up the same numbers of the sequence, whatever the sizes are. Under each number a host has at most
//! one piece, an outgoing or an incoming one. So the sender keeps a piece in its own cell, as a broadcast is kept, and
//! its kernel answers for it. The receiver asks for what is missing. An empty parcel goes nowhere, and nobody waits for
//! it.

use std::ops::Range;

use super::cells::Memory;
use super::flight::{Awaited, Coming, Flight, Flights};
use super::pairs::{Pairs, Parties};
use super::{Buffers, Mismatch, Transport, Wire, most_frames};
use crate::bindings as b;

impl<M: Memory, F: Transport, B: Buffers> Wire<M, F, B> {
    /// The numbers of an exchange that starts now.
    pub(super) fn next_pairs(&self, rows: usize, parties: Parties<u8>) -> Pairs {
        Pairs { base: self.next_seq, rows, members: self.identity.members, parties }
    }

    /// Sends this member's parcels, and notes what is to come. The sequence has room for it all.
    #[inline(never)]
    pub(super) fn start_exchange(&mut self, pairs: Pairs) {
        let me = self.identity.me;
        self.next_seq += pairs.numbers();
        // Taken from `self`, since frames are sent with payloads borrowed from there.
        let mut flights = std::mem::take(&mut self.flights);
        let number = flights.starting;
        let flight = flights.get(number).expect("it is being started");
        flight.started += pairs.rows;
        // Each begins with another member, or all would send to the first one at once.
        let members = usize::from(self.identity.members);
        let others = (1..members).map(|step| ((usize::from(me) + step) % members) as u8);
        let filled = others.filter(|to| !flight.buffers.parcel(*to).is_empty());
        if pairs.parties == Parties::Vectors {
            let mask = filled.clone().fold(0, |mask, to| mask | 1 << to);
            if let Some(first) = filled.min() {
                self.send_vector(&pairs, mask, flight.buffers.parcel(first));
            }
        } else {
            filled.for_each(|to| self.send_parcel(&pairs, to, flight.buffers.parcel(to)));
        }
        let mut awaited = Vec::new();
        for source in self.identity.others() {
            for row in 0..self.rows(flight.buffers.expects(source)) {
                let (seq, coming) = (pairs.piece(source, me, row), Coming::Parcel(source));
                awaited.push(Awaited { seq, flight: number, chunk: row, stripe: 0, coming });
            }
        }
        awaited.sort_unstable_by_key(|awaited| awaited.seq);
        flight.awaited += awaited.len();
        flights.awaited.extend(awaited);
        // A parcel that is sent is released. Its cells keep it, as the cells of a broadcast do.
        self.update_done(&flights);
        self.flights = flights;
    }

    /// Frames of a parcel of so many bytes.
    fn rows(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.identity.chunk_bytes.into())
    }

    /// The frames of some data for `to`, one a row, and their payloads. `like` has all else that they have in common.
    fn rows_for<'a>(
        &self,
        pairs: &Pairs,
        to: u8,
        data: &'a [u8],
        like: b::fb_frame,
    ) -> impl Iterator<Item = (b::fb_frame, &'a [u8])> {
        debug_assert!(self.rows(data.len()) <= pairs.rows, "{} bytes", data.len());
        let payloads = data.chunks(self.identity.chunk_bytes.into()).enumerate();
        payloads.map(move |(row, payload)| {
            let frame = b::fb_frame {
                seq: pairs.piece(self.identity.me, to, row),
                target: to,
                length: payload.len() as u16,
                message: data.len() as u64,
                ..like
            };
            (self.identity.seal.with_payload(frame, payload), payload)
        })
    }

    /// Posts a parcel and sends it.
    fn send_parcel(&mut self, pairs: &Pairs, to: u8, parcel: &[u8]) {
        let flags = b::FB_FLAG_POSTED as u8;
        let like = b::fb_frame { flags, ..self.frame(b::FB_KIND_PIECE) };
        let posted = |(frame, payload): (b::fb_frame, _)| {
            let posted = self.cells.post_piece(&frame, payload);
            (self.identity.seal.sealed(frame, posted), posted)
        };
        let frames: Vec<_> = self.rows_for(pairs, to, parcel, like).map(posted).collect();
        for frames in frames.chunks(most_frames(self.identity.chunk_bytes)) {
            self.transport.send_many(to, frames);
        }
    }

    /// Posts a vector and sends it to the members of `mask`, as a broadcast to these.
    fn send_vector(&mut self, pairs: &Pairs, mask: u64, vector: &[u8]) {
        let flags = b::FB_FLAG_SOME as u8;
        let like = b::fb_frame { consumed: mask, flags, ..self.frame(b::FB_KIND_BROADCAST) };
        let posted = |(frame, payload): (b::fb_frame, _)| {
            self.cells.post_broadcast(&frame, payload);
            frame
        };
        let me = self.identity.me;
        let frames: Vec<_> = self.rows_for(pairs, me, vector, like).map(posted).collect();
        self.fan_out(&frames);
    }

    /// The part of a parcel of so many bytes that a row has.
    fn row_of(&self, bytes: usize, row: usize) -> Range<usize> {
        let chunk = usize::from(self.identity.chunk_bytes);
        bytes.min(row * chunk)..bytes.min((row + 1) * chunk)
    }

    /// Takes in a piece of a parcel. If it is of another length than ours, none of the rest is waited for: the sender
    /// may have sent less.
    #[inline(never)]
    pub(super) fn take_parcel(
        &self,
        flights: &mut Flights<B>,
        awaited: Awaited,
        source: u8,
        mismatch: Option<Mismatch>,
    ) {
        let Awaited { seq, flight: number, chunk: row, coming, .. } = awaited;
        let flight = flights.get(number).expect("it is waited for");
        if mismatch.is_none() {
            let range = self.row_of(flight.buffers.expects(source), row);
            let (data, _) = self.cells.result(seq, range.len());
            flight.buffers.take_parcel(source, range.start, data);
            return;
        }
        let rest =
            |other: &Awaited| other.flight == number && other.coming == coming && other.seq > seq;
        let before = flights.awaited.len();
        flights.awaited.retain(|other| !rest(other));
        let dropped = before - flights.awaited.len();
        flights.get(number).expect("it is waited for").awaited -= dropped;
    }

    /// Whether what came is of another parcel than the one that `source` is to send. The numbers to come do not depend
    /// on its length, so all can go on.
    #[inline(never)]
    pub(super) fn parcel_mismatch(
        &self,
        seq: u64,
        flight: &Flight<B>,
        source: u8,
    ) -> Option<Mismatch> {
        let expected = flight.buffers.expects(source) as u64;
        let (kind, message) = self.cells.terms(seq);
        let own = match flight.parties() {
            Some(Parties::Vectors) => b::FB_KIND_BROADCAST,
            _ => b::FB_KIND_PIECE,
        };
        let same_kind = kind == own;
        (!same_kind || message != expected)
            .then(|| Mismatch::of(expected, message, same_kind, u64::MAX))
    }

    /// Asks for a piece of a parcel. If nothing of the parcel has come, its sender has hardly sent any of it, so its
    /// first piece alone is asked for. The target is this member: the sender, which may not have got there yet, must
    /// not ask back.
    #[inline(never)]
    pub(super) fn ask_for_parcel(
        &mut self,
        flights: &mut Flights<B>,
        awaited: Awaited,
        source: u8,
    ) {
        let Awaited { seq, flight, chunk: row, .. } = awaited;
        let first = seq - row as u64;
        let bytes = flights.get(flight).expect("it is waited for").buffers.expects(source);
        let has_come = |row: usize| self.cells.is_ready(first + row as u64);
        let is_under_way = flights.oldest().is_some_and(|oldest| oldest > first)
            || (0..self.rows(bytes)).any(has_come);
        if row == 0 || is_under_way {
            self.ask(source, seq, self.identity.me, 0);
        }
    }
}

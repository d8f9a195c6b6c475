//! One collective's data on the wire: its chunks started, their results harvested.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use super::cells::Memory;
use super::{Algorithm, Fabric, IN_FLIGHT, Wire};
use crate::bindings as b;

/// What a transfer does. `root` is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everyone contributes, everyone gets the result (Allreduce; with no data, Barrier).
    FoldToAll,
    /// Everyone contributes, the root gets the result (Reduce).
    FoldToRoot(u8),
    /// The root's data goes to everyone (Bcast).
    Broadcast(u8),
}

/// Where contributions are read and results are written: the two may be the same memory.
pub trait Buffers {
    /// Bytes `range` of our contribution or broadcast.
    fn read(&self, range: Range<usize>) -> &[u8];
    /// Stores a result from byte `at`.
    fn write(&mut self, at: usize, data: &[u8]);
}

/// A transfer under way.
pub struct Transfer {
    kind: Kind,
    op: u8,
    element: u8,
    bytes: usize,
    /// Index of the first chunk in the message that this is a part of.
    first: usize,
    /// Byte from which the next chunk starts.
    started: usize,
    /// Whether the one chunk of an empty transfer has been started.
    started_empty: bool,
    /// Chunks that are waited for: number and bytes.
    awaited: VecDeque<(u64, Range<usize>)>,
}

impl Transfer {
    /// A transfer of `bytes`. `op` and `element` are of `enum fb_op` and `enum fb_type`.
    pub fn new(kind: Kind, op: u8, element: u8, bytes: usize) -> Self {
        Self::part(kind, op, element, bytes, 0)
    }

    /// A part of a message, from its chunk `first`. Parts of whole chunks, one after the other, put
    /// on the wire what the message in one piece would: members may divide it as they like.
    pub fn part(kind: Kind, op: u8, element: u8, bytes: usize, first: usize) -> Self {
        let (started, started_empty, awaited) = (0, false, VecDeque::new());
        Self { kind, op, element, bytes, first, started, started_empty, awaited }
    }

    fn all_started(&self) -> bool {
        self.started == self.bytes && (self.bytes > 0 || self.started_empty)
    }
}

impl<M: Memory, F: Fabric> Wire<M, F> {
    /// Does what can be done for `transfer` now. True: it is over on this member. `now` is asked for
    /// only when nothing moved.
    pub fn poll(
        &mut self,
        transfer: &mut Transfer,
        buffers: &mut dyn Buffers,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        let started = self.start(transfer, buffers);
        let harvested = self.harvest(transfer, buffers);
        if transfer.all_started() && transfer.awaited.is_empty() {
            self.made_progress();
            return true;
        }
        if started || harvested {
            self.made_progress();
        } else if self.out_of_patience(now()) {
            self.ask_for_missing(transfer, buffers);
        }
        false
    }

    fn start(&mut self, transfer: &mut Transfer, buffers: &dyn Buffers) -> bool {
        let mut moved = false;
        let fold_to_all = transfer.kind == Kind::FoldToAll;
        // A receiver of a broadcast starts nothing: it only notes what is to come.
        let passive = matches!(transfer.kind, Kind::Broadcast(root) if root != self.identity.me);
        while !transfer.all_started() && (transfer.awaited.len() as u64) < IN_FLIGHT {
            if !fold_to_all && self.sync_is_due() {
                moved |= self.harvest_sync();
                if self.open_sync.is_some() || !self.may_start() {
                    break;
                }
                // What was started before is still awaited here, but the others need not wait for
                // that: our `consumed` tells them how far they may go.
                self.start_sync();
            }
            if !passive && !self.may_start() {
                moved |= self.harvest_sync();
                if !self.may_start() {
                    break;
                }
            }
            let end = transfer.bytes.min(transfer.started + usize::from(self.identity.chunk_bytes));
            let range = transfer.started..end;
            let seq = self.next_seq;
            self.next_seq += 1;
            self.start_chunk(transfer, seq, range.clone(), buffers);
            transfer.started = end;
            transfer.started_empty = true;
            moved = true;
        }
        moved
    }

    fn chunk_frame(&self, transfer: &Transfer, seq: u64, range: &Range<usize>) -> b::fb_frame {
        let index = transfer.first + range.start / usize::from(self.identity.chunk_bytes);
        let (kind, target, flags) = match transfer.kind {
            Kind::FoldToAll => match self.identity.algorithm {
                Algorithm::Direct => (b::FB_KIND_CONTRIBUTION, 0, b::FB_FLAG_DIRECT),
                Algorithm::Star => {
                    (b::FB_KIND_CONTRIBUTION, self.aggregator(index), b::FB_FLAG_RESULT_TO_ALL)
                }
            },
            Kind::FoldToRoot(root) => (b::FB_KIND_CONTRIBUTION, root, 0),
            Kind::Broadcast(root) => (b::FB_KIND_BROADCAST, root, 0),
        };
        let (op, type_, flags) = (transfer.op, transfer.element, flags as u8);
        b::fb_frame { seq, target, op, type_, flags, ..self.frame(kind) }
    }

    fn start_chunk(
        &mut self,
        transfer: &mut Transfer,
        seq: u64,
        range: Range<usize>,
        buffers: &dyn Buffers,
    ) {
        let me = self.identity.me;
        let frame = self.chunk_frame(transfer, seq, &range);
        let awaited = match transfer.kind {
            Kind::FoldToAll => {
                self.last_sync = seq;
                self.contribute(frame, buffers.read(range.clone()));
                true
            }
            Kind::FoldToRoot(root) => {
                self.contribute(frame, buffers.read(range.clone()));
                root == me
            }
            Kind::Broadcast(root) if root == me => {
                let payload = buffers.read(range.clone());
                let frame = b::fb_frame { length: payload.len() as u16, ..frame };
                let posted = self.cells.post_broadcast(&frame, payload);
                self.fabric.send((me + 1) % self.identity.members, &frame, posted);
                false
            }
            Kind::Broadcast(_) => true,
        };
        if awaited {
            transfer.awaited.push_back((seq, range));
        } else if transfer.awaited.is_empty() {
            // Nothing to wait for. The cell keeps what a peer may ask for; it is not taken again
            // before all members, the root among them, are done with the chunk.
            self.set_done(seq);
        }
    }

    fn harvest(&mut self, transfer: &mut Transfer, buffers: &mut dyn Buffers) -> bool {
        let mut moved = false;
        while let Some((seq, range)) = transfer.awaited.front().cloned() {
            if !self.cells.is_ready(seq) {
                break;
            }
            let (data, cleared) = self.cells.result(seq, range.len());
            buffers.write(range.start, data);
            if transfer.kind == Kind::FoldToAll {
                self.saw_cleared(cleared);
            }
            transfer.awaited.pop_front();
            self.set_done(seq);
            moved = true;
        }
        moved
    }

    /// Asks for every chunk that has not come. A frame is 106 bytes without its payload, so asking
    /// for the lot costs little, and waiting for one after the other would cost a lot.
    fn ask_for_missing(&mut self, transfer: &Transfer, buffers: &dyn Buffers) {
        for (seq, range) in &transfer.awaited {
            if self.cells.is_ready(*seq) {
                continue;
            }
            let frame = self.chunk_frame(transfer, *seq, range);
            let (own, arrived) = (frame.target == self.identity.me, self.cells.arrived(*seq));
            if u32::from(frame.flags) == b::FB_FLAG_DIRECT {
                // Whoever misses ours does not ask for it: only we can send it again, and whoever
                // has all can tell the result.
                self.contribute(frame, buffers.read(range.clone()));
                for member in (0..self.identity.members).filter(|m| arrived >> m & 1 == 0) {
                    if member != self.identity.me {
                        self.ask(*seq, member, frame.flags);
                    }
                }
                continue;
            }
            if own && arrived >> frame.target & 1 == 0 {
                self.contribute(frame, buffers.read(range.clone()));
            }
            self.ask(*seq, frame.target, frame.flags);
        }
        if let Some(seq) = self.open_sync.filter(|seq| !self.cells.is_ready(*seq)) {
            self.ask_for_sync(seq);
        }
    }
}

//! The user-space side of the protocol: chunks, windows, waiting, asking again.
//!
//! One [`Wire`] is one member of one group. It sends frames through a [`Transport`] and finds what comes
//! back in [`cells::Cells`]; everything between is done by the kernel (`bpf/cell.h`). It never blocks:
//! transfers are queued by [`Wire::submit`], and [`Wire::poll`] does all that can be done now. So the
//! same code serves blocking and non-blocking calls, and a simulated cluster in one thread.
//!
//! The rules (proofs in `docs/contributing/protocol.md`):
//!
//! * Chunks of all transfers of a group are numbered by one sequence, alike on every member.
//! * A chunk is *started* here (sent, posted) only if its cell is free on every member:
//!   `seq <= cleared + window`. The last seen result says that all members have released the chunks
//!   up to `cleared`.
//! * Chunks whose result does not come to everyone (Reduce, Bcast, exchanges) teach nobody `cleared`.
//!   So after half a window of them a *sync* is put in: an empty chunk whose result goes to all. It is
//!   waited for only when the next one is due, or the window is used up.

mod buffers;
pub mod cells;
mod exchange;
mod flight;
mod identity;
mod lock;
mod mismatch;
pub mod native;
mod pairs;
mod patience;
mod pattern;
mod seal;
mod shards;
pub mod socket;
mod stream;
mod stripe;
pub mod table;
mod transfer;

pub use buffers::Buffers;
pub use flight::Over;
pub use identity::Identity;
pub use mismatch::Mismatch;
pub use pairs::Parties;
pub use pattern::Pattern;
pub use stream::{Delivery, Means, Sheaf, Stream};
pub use transfer::{Kind, Part, Transfer};

use flight::Flights;
use patience::{Frames, Patience, Turn};

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::bindings as b;
use cells::{Cells, Memory};
pub use seal::{Seal, Secret};

/// Sends frames, which bear their seal. Losing one is no error; the protocol asks again.
pub trait Transport {
    /// Sends `frame` and `payload` towards `member`.
    fn send(&mut self, member: u8, frame: &b::fb_frame, payload: &[u8]);

    /// Sends many of one kind, at most [`most_frames`] of them; at once, if the way allows it.
    fn send_many(&mut self, member: u8, frames: &[(b::fb_frame, &[u8])]) {
        for (frame, payload) in frames {
            self.send(member, frame, payload);
        }
    }

    /// Takes in what has come, on a way where nobody else does.
    #[inline]
    fn take_in(&mut self) {}

    /// Whether something of what was sent has not left this host yet.
    fn is_queued(&self) -> bool {
        false
    }

    /// The number of frames that came by another way than the programs' and were known already.
    fn came_twice(&self) -> u64 {
        0
    }

    /// Something was asked for, and did not come.
    fn asked_in_vain(&mut self) {}

    /// Something came that was waited for.
    #[inline]
    fn made_progress(&mut self) {}
}

/// Most chunks of a parcel of an exchange, in groups of so many members and a window of so many cells. 0: they have no
/// exchanges.
pub fn exchanges(members: usize, window: u64) -> usize {
    pairs::most_rows(members, window)
}

/// Frames with so much payload that can be sent at once: as many as a datagram holds.
pub fn most_frames(chunk_bytes: u16) -> usize {
    let frames = b::FB_SUPER_BYTES / (b::FB_FRAME_BYTES + u32::from(chunk_bytes));
    frames.min(b::FB_MOST_FRAMES) as usize
}

/// The place where a fold to all is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// At one member for each chunk, which sends the result to all: two ways over the wire, and two
    /// frames for each member but one.
    Star,
    /// At every member, to which all others send their contribution: one way over the wire, and a
    /// frame for each pair of members in both directions.
    Direct,
    /// Along a ring, which begins and ends elsewhere for each chunk. Every member adds its contribution to the
    /// frame from the one before it, and the result goes on the same way. Every member sends to one other only, and
    /// the way is as long as there are members, twice.
    Ring,
    /// By shards of the message, each folded in user space, at one member: for long ones. For single chunks it
    /// never pays, but it serves them.
    Shards,
}

impl Algorithm {
    /// Whether groups of so many members have what [`Algorithm::Shards`] needs of the window.
    pub fn has_shards(members: usize, window: u64) -> bool {
        stripe::serves(members, window)
    }

    /// Two members send as many frames either way, so they take the shorter one. With more, `Star`:
    /// of 3 members and up `Direct` sends more frames.
    pub fn best(members: usize) -> Self {
        if members == 2 { Self::Direct } else { Self::Star }
    }
}

/// Most chunks under way at once. More would only fill the receivers' queues, where the
/// surplus is dropped.
const MOST_IN_FLIGHT: u64 = 64;
/// Least cells in a window that is asked for: fewer hold up what is under way.
pub const LEAST_WINDOW: u32 = 4 * MOST_IN_FLIGHT as u32;
/// Least cells with which the protocol comes to its end (docs/contributing/protocol.md, "Syncs").
const SMALLEST_WINDOW: u64 = 8;

/// Chunks that may be under way at once: a quarter of the window at most.
fn chunks_in_flight(window: u64) -> u64 {
    MOST_IN_FLIGHT.min(window / 4)
}

/// Cells in a window, where there would be `cells` of the usual size: of longer chunks fewer are as many bytes, and
/// carry a frame each all the same.
pub fn window_for(cells: u32, chunk_bytes: u16) -> u32 {
    let is_jumbo = u32::from(chunk_bytes) > b::FB_CHUNK_BYTES;
    if is_jumbo { (cells / 4).max(LEAST_WINDOW) } else { cells }
}
/// The member that aggregates syncs.
const SYNC_AGGREGATOR: u8 = 0;

/// One member of a group.
pub struct Wire<M, F, B> {
    /// Cells of this host.
    pub cells: Cells<M>,
    /// Sends frames to the other members.
    pub transport: F,
    identity: Identity,
    /// The group, as the cells' own code needs it.
    group: native::Group,
    flights: Flights<B>,
    /// The next chunk's number.
    next_seq: u64,
    /// The last chunk whose result goes to all.
    last_sync: u64,
    /// A sync that has not been seen to end yet.
    open_sync: Option<u64>,
    /// All members have released every chunk up to here.
    cleared: u64,
    /// This host has released every chunk up to here, a pending sync apart.
    done: u64,
    patience: Patience,
    /// Broadcasts that have been posted, and not sent.
    outbox: Vec<b::fb_frame>,
    /// The last sync of all, once [`Wire::farewell`] has started it.
    parting: Option<u64>,
    /// Times something was asked for again.
    pub asked: u64,
    /// Payloads that came and were not as a member sent them.
    pub unsound: u64,
    /// Set once nothing more can come of it all ([`Mismatch::OutOfStep`]).
    pub out_of_step: bool,
}

impl<M: Memory, F: Transport, B: Buffers> Wire<M, F, B> {
    /// A member that has not sent anything yet. Panics if the window is so small that what is in
    /// flight could fill it before anybody reports progress (docs/contributing/protocol.md), or cells do not hold a
    /// chunk.
    pub fn new(cells: Cells<M>, transport: F, identity: Identity) -> Self {
        assert!(cells.window() >= SMALLEST_WINDOW, "a window of {} cells", cells.window());
        assert!(identity.chunk_bytes <= cells.memory().most_bytes());
        let group = native::Group::new(&identity, cells.window() as u32);
        Self {
            cells,
            transport,
            identity,
            group,
            flights: Flights::default(),
            next_seq: 1,
            last_sync: 0,
            open_sync: None,
            cleared: 0,
            done: 0,
            patience: Patience::default(),
            outbox: Vec::new(),
            parting: None,
            asked: 0,
            unsound: 0,
            out_of_step: false,
        }
    }

    /// This member's place in its group.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// This member's place, and its way to the others.
    pub fn way(&mut self) -> (&Identity, &mut F) {
        (&self.identity, &mut self.transport)
    }

    /// A collective of one chunk has been seen to take `round_trip`: nothing is asked for in less than twice that, by
    /// an aggregator in less than that.
    pub fn expect(&mut self, round_trip: Duration) {
        self.patience.expect(round_trip);
    }

    /// Numbers of the sequence that have been given out.
    pub fn started(&self) -> u64 {
        self.next_seq - 1
    }

    /// Announces this member to all others. They learn its MAC address from the frame, and whether they hear frames
    /// to all.
    pub fn hello(&mut self) {
        let hello = b::fb_frame { seq: 1, ..self.frame(b::FB_KIND_HELLO) };
        if self.identity.multicast {
            // Before the others, so that it has mostly come where those have.
            let flags = b::FB_FLAG_DIRECT as u8;
            self.transport.send(
                self.identity.any_other(),
                &self.identity.seal.sealed(b::fb_frame { flags, ..hello }, &[]),
                &[],
            );
        }
        let hello = self.identity.seal.sealed(hello, &[]);
        for member in self.identity.others() {
            self.transport.send(member, &hello, &[]);
        }
    }

    /// Whether every other member's frame to all has arrived.
    pub fn overheard_all(&self) -> bool {
        self.identity.is_all_others(self.cells.overheard())
    }

    /// Whether every other member's HELLO has arrived.
    pub fn heard_all(&self) -> bool {
        self.identity.is_all_others(self.cells.heard())
    }

    /// Takes leave of the group: one more sync, by which all members learn that all have released
    /// everything. To be called until it says true; nothing may be submitted after it.
    pub fn farewell(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.transport.take_in();
        let moved = self.harvest_sync();
        if self.open_sync.is_none() {
            match self.parting {
                Some(_) => return true,
                None if self.may_start(1) => {
                    self.parting = Some(self.next_seq);
                    self.start_sync();
                }
                None => {}
            }
        }
        if moved {
            self.transport.made_progress();
            self.patience.reset();
        } else if let Some(turn) = self.out_of_patience(now()) {
            self.ask_for_sync(turn);
        }
        false
    }

    fn frame(&self, kind: b::fb_kind) -> b::fb_frame {
        b::fb_frame { consumed: self.consumed(), ..self.identity.frame(kind) }
    }

    /// This host has released every chunk up to here.
    fn consumed(&self) -> u64 {
        self.open_sync.map_or(self.done, |sync| self.done.min(sync - 1))
    }

    /// Tells the programs what this host has released, now that `flights` are under way.
    fn update_done(&mut self, flights: &Flights<B>) {
        self.done = flights.oldest().unwrap_or(self.next_seq) - 1;
        self.cells.set_consumed(self.consumed());
    }

    fn saw_cleared(&mut self, cleared: u64) {
        self.cleared = self.cleared.max(cleared);
    }

    /// The member that aggregates chunk `index` of a transfer. The chunks of a long transfer are
    /// spread over all. A single chunk always goes to the same member, whose own contribution costs
    /// it no way over the wire. So in a run of small collectives it is ready for the next before the
    /// others are, and each takes one round trip of theirs. If members took turns, each took two.
    fn aggregator(&self, index: usize) -> u8 {
        (index % usize::from(self.identity.members)) as u8
    }

    /// Whether the cells of the next `numbers` chunks are free everywhere, and rule S of docs/contributing/protocol.md
    /// lets them start. While a sync is open this member says of itself what was true before the sync. That must not be
    /// too old to move the window on.
    fn may_start(&self, numbers: u64) -> bool {
        let window = self.cells.window();
        let last = self.next_seq + numbers - 1;
        let is_recent = |sync| last - sync < window / 2 - 1;
        last <= self.cleared + window && self.open_sync.is_none_or(is_recent)
    }

    /// Whether a sync comes before the next `numbers` chunks. A single chunk whose result goes to all is as good as a
    /// sync. Many chunks of that kind end too far beyond the last result to all, so a sync precedes them.
    fn sync_is_due(&self, kind: Kind, numbers: u64) -> bool {
        let is_as_good = kind.is_to_all() && numbers == 1;
        !is_as_good && self.next_seq + numbers - 1 - self.last_sync > self.cells.window() / 2
    }

    /// Contributes to a chunk that is folded.
    fn contribute(&mut self, frame: b::fb_frame, payload: &[u8]) {
        if u32::from(frame.flags) == b::FB_FLAG_RING {
            self.add_to_ring(frame, payload);
        } else if frame.target == self.identity.me || u32::from(frame.flags) == b::FB_FLAG_DIRECT {
            self.transport.send(
                self.identity.any_other(),
                &self.identity.seal.sealed(frame, payload),
                payload,
            );
        } else {
            let posted = self.cells.post_contribution(&frame, payload);
            let sealed = self.identity.seal.sealed(frame, posted);
            self.transport.send(frame.target, &sealed, posted);
        }
    }

    /// Adds our contribution to what has come along the ring, and passes on what is complete by that. The egress
    /// program does not do so: if it is gone, a frame meant for it goes to the next member unchanged.
    fn add_to_ring(&mut self, frame: b::fb_frame, payload: &[u8]) {
        let mut counters = b::fb_counters::default();
        let (memory, group) = (self.cells.memory(), &self.group);
        let reply = native::enter(memory, group, &mut counters, &frame, payload, true);
        if reply.mask() != 0 {
            self.transport.send(self.identity.any_other(), reply.frame(), reply.payload());
        }
    }

    fn sync_frame(&self, seq: u64) -> b::fb_frame {
        b::fb_frame {
            seq,
            target: SYNC_AGGREGATOR,
            flags: b::FB_FLAG_RESULT_TO_ALL as u8,
            ..self.frame(b::FB_KIND_CONTRIBUTION)
        }
    }

    fn start_sync(&mut self) {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.last_sync = seq;
        self.contribute(self.sync_frame(seq), &[]);
        self.open_sync = Some(seq);
    }

    /// Sees whether the pending sync has ended.
    fn harvest_sync(&mut self) -> bool {
        match self.open_sync {
            Some(seq) if self.cells.is_ready(seq) => {
                let (_, cleared) = self.cells.result(seq, 0);
                self.saw_cleared(cleared);
                self.open_sync = None;
                self.cells.set_consumed(self.consumed());
                true
            }
            _ => false,
        }
    }

    /// Whether it is time to ask for what is missing, and whose turn it is.
    fn out_of_patience(&mut self, now: Instant) -> Option<Turn> {
        let Self { patience, transport, cells, asked, .. } = self;
        let frames = || Frames {
            asked_for: *asked,
            came_again: cells.repeated(),
            came_both_ways: transport.came_twice(),
        };
        let turn = patience.ends(now, frames, || transport.is_queued());
        if turn == Some(Turn::Others) {
            transport.asked_in_vain();
        }
        turn
    }

    /// Whether it is this host's turn to ask for a fold, whose frames are like this one.
    fn has_turn(&self, turn: Turn, frame: &b::fb_frame) -> bool {
        let is_star = !matches!(u32::from(frame.flags), b::FB_FLAG_DIRECT | b::FB_FLAG_RING);
        let aggregates = frame.target == self.identity.me && is_star;
        aggregates == (turn == Turn::Aggregator)
    }

    /// Asks for what is missing of the pending sync, if there is one.
    fn ask_for_sync(&mut self, turn: Turn) {
        let Some(seq) = self.open_sync.filter(|seq| !self.cells.is_ready(*seq)) else { return };
        let frame = self.sync_frame(seq);
        if self.has_turn(turn, &frame) {
            self.ask_for_fold(&frame, &[]);
        }
    }

    /// Asks `member` for what it holds of chunk `seq`, whose frames have these flags and this target.
    fn ask(&mut self, member: u8, seq: u64, target: u8, flags: u8) {
        self.asked += 1;
        let flags = if self.cells.is_deaf() { flags | b::FB_FLAG_DEAF as u8 } else { flags };
        let frame = b::fb_frame { seq, target, flags, ..self.frame(b::FB_KIND_PULL) };
        self.transport.send(member, &self.identity.seal.sealed(frame, &[]), &[]);
    }

    /// Asks for what is missing of a fold that this host waits for: its aggregator, or else the members
    /// themselves.
    fn ask_for_fold(&mut self, frame: &b::fb_frame, payload: &[u8]) {
        if u32::from(frame.flags) == b::FB_FLAG_RING {
            return self.ask_along_ring(frame, payload);
        }
        let (me, target) = (self.identity.me, frame.target);
        let direct = u32::from(frame.flags) == b::FB_FLAG_DIRECT;
        if target != me && !direct {
            return self.ask(target, frame.seq, target, frame.flags);
        }
        let arrived = self.cells.arrived(frame.seq);
        // Directly, whoever misses ours does not ask for it: only we can send it again, and whoever has
        // all can tell the result.
        if direct || arrived >> me & 1 == 0 {
            self.contribute(*frame, payload);
        }
        let missing = |member: &u8| arrived >> member & 1 == 0;
        for member in self.identity.others().filter(missing) {
            self.ask(member, frame.seq, if direct { member } else { me }, frame.flags);
        }
    }

    /// Asks the member before this one on the ring for what it has not passed on, or what was lost on the way.
    fn ask_along_ring(&mut self, frame: &b::fb_frame, payload: &[u8]) {
        let Identity { me, members, .. } = self.identity;
        let before = (me + members - 1) % members;
        let arrived = self.cells.arrived(frame.seq);
        if arrived >> me & 1 == 0 {
            self.contribute(*frame, payload);
        }
        let is_first = me == (frame.target + 1) % members;
        let misses_result = is_first || arrived >> before & 1 == 1;
        let result = if misses_result { b::FB_FLAG_RESULT_TO_ALL } else { 0 };
        self.ask(before, frame.seq, frame.target, frame.flags | result as u8);
    }
}

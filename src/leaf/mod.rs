//! The ranks of one host: they meet in shared memory, and one of them, the leader, goes on the wire.
//!
//! Collectives proceed in rounds of at most [`segment::BLOCK`] bytes, numbered alike by all local
//! ranks. In a round, contributions go up (slots), are folded by the leader, folded with the other
//! hosts' on the wire, and the result comes down. Nothing here waits: a step that cannot be done yet
//! says so. Order is kept by counters that only grow:
//!
//! * a rank fills its slot in round r only when the leader has read what it put there before;
//! * the leader fills a result block, used every other round, only when every rank is done with it.
#![allow(unsafe_code)]

pub mod arithmetic;
pub mod exact;
pub mod fold;
pub mod order;
pub mod quantize;
pub mod segment;

use segment::{Counter, Segment};

/// This rank's part in the exchange on its host.
pub struct Leaf {
    segment: Segment,
    /// Our index; the leader's is 0.
    me: usize,
    ranks: usize,
    round: u64,
    /// Last round in which we used our slot.
    slot_used: u64,
}

impl Leaf {
    /// Rank `me` of `ranks`, on memory that all of them have.
    pub fn new(segment: Segment, me: usize, ranks: usize) -> Self {
        Self { segment, me, ranks, round: 0, slot_used: 0 }
    }

    /// Starts the next round. All local ranks do so for the same round of the same collective.
    pub fn begin_round(&mut self) {
        self.round += 1;
    }

    /// A rank that is not the leader gives its contribution to a message, if its slot is free.
    ///
    /// # Safety
    /// `send` points to `bytes` readable bytes.
    pub unsafe fn give_contribution(
        &mut self,
        send: *const u8,
        bytes: usize,
        message: u64,
    ) -> bool {
        assert!(bytes <= segment::BLOCK);
        if self.segment.get(Counter::Folded) < self.slot_used {
            return false;
        }
        if bytes > 0 {
            // SAFETY: `bytes` to read, and a slot of a block; the leader does not read the slot now.
            unsafe { std::ptr::copy_nonoverlapping(send, self.segment.slot(self.me), bytes) };
        }
        self.slot_used = self.round;
        self.segment.set_message(Counter::Arrived(self.me), self.round, message);
        self.segment.set(Counter::Arrived(self.me), self.round);
        true
    }

    /// A rank that is not the leader gets the result, if it is there and of its `message`. Returns
    /// the message that it is of.
    ///
    /// # Safety
    /// `recv` points to `bytes` writable bytes.
    pub unsafe fn get_result(&self, recv: *mut u8, bytes: usize, message: u64) -> Option<u64> {
        assert!(bytes <= segment::BLOCK);
        if self.segment.get(Counter::Done) < self.round {
            return None;
        }
        let came = self.segment.get_message(Counter::Done, self.round);
        if bytes > 0 && came == message {
            // SAFETY: `bytes` to write, and a block that has as many; the leader leaves the block alone until we have
            // read it.
            unsafe { std::ptr::copy_nonoverlapping(self.segment.result(self.round), recv, bytes) };
        }
        Some(came)
    }

    /// A rank that is not the leader has read the result, or needs none: its part of the round ends.
    pub fn leave_result(&self) {
        self.segment.set(Counter::Read(self.me), self.round);
    }

    /// The leader takes the block of this round's result, if nobody reads what was in it any more.
    pub fn take_result(&self) -> Option<*mut u8> {
        let free = |rank| self.segment.get(Counter::Read(rank)) + 2 >= self.round;
        (1..self.ranks).all(free).then(|| self.segment.result(self.round))
    }

    /// To the leader: of what message the contribution of `rank` is, if that has come.
    pub fn arrived_message(&self, rank: usize) -> Option<u64> {
        let arrived = Counter::Arrived(rank);
        (self.segment.get(arrived) >= self.round)
            .then(|| self.segment.get_message(arrived, self.round))
    }

    /// The leader reads `bytes` bytes of `rank`'s contribution, which has arrived; until
    /// [`Leaf::free_slots`].
    pub fn slot(&self, rank: usize, bytes: usize) -> &[u8] {
        assert!(bytes <= segment::BLOCK);
        // SAFETY: the slot has a block's bytes, and its rank leaves it alone until `free_slots`.
        unsafe { std::slice::from_raw_parts(self.segment.slot(rank), bytes) }
    }

    /// The leader has read all contributions of the round.
    pub fn free_slots(&self) {
        self.segment.set(Counter::Folded, self.round);
    }

    /// The leader puts something for `rank` into that rank's slot, from byte `at`.
    ///
    /// # Safety
    /// The rank has given its contribution, which has been read, and waits for the end of the round.
    pub unsafe fn deliver(&self, rank: usize, at: usize, data: &[u8]) {
        assert!(at + data.len() <= segment::BLOCK);
        // SAFETY: inside the slot, which the rank leaves alone until the end of the round.
        unsafe {
            let slot = self.segment.slot(rank).add(at);
            std::ptr::copy_nonoverlapping(data.as_ptr(), slot, data.len());
        }
    }

    /// To a rank that is not the leader, if the round is over: of what message it was, and the rank's slot, with what
    /// the leader has put there.
    pub fn delivered(&self) -> Option<(u64, &[u8])> {
        let is_over = self.segment.get(Counter::Done) >= self.round;
        // SAFETY: the slot has a block's bytes, and the leader leaves it alone until the rank gives again.
        is_over.then(|| unsafe {
            let slot = std::slice::from_raw_parts(self.segment.slot(self.me), segment::BLOCK);
            (self.segment.get_message(Counter::Done, self.round), slot)
        })
    }

    /// The leader ends the round: the result, if there is one, is there, and is of a message.
    pub fn publish_result(&self, message: u64) {
        self.segment.set_message(Counter::Done, self.round, message);
        self.segment.set(Counter::Done, self.round);
    }

    /// Number of local ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Whether this rank leads.
    pub fn leads(&self) -> bool {
        self.me == 0
    }
}

//! The time that a member waits before it asks for what it misses, and whose turn it is then. Pure.

use std::mem;
use std::time::{Duration, Instant};

/// How long to wait before asking another host for a missing chunk, at first and at most. Half way through it the
/// aggregator of a fold asks for what it misses: all wait for that, and would ask for it.
const PATIENCE: Duration = Duration::from_millis(2);
/// At first, if round trips are known to be long; and at most so long. A round trip that was measured on a busy host
/// may be far too long.
const PATIENCE_AFAR: Duration = Duration::from_millis(32);
const PATIENCE_MAX: Duration = Duration::from_millis(128);
/// This many repeated frames, and half of the frames asked for, show that this member asked too early. They were
/// not lost, but in the queue of a slow link. Fewer may be the network's doing.
const TOO_EARLY: u64 = 4;

/// The members that ask for a fold that does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The aggregator, if its process is not away.
    Aggregator,
    /// All others; and everybody for all else.
    Others,
}

/// Frames so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Frames {
    pub(super) asked_for: u64,
    pub(super) came_again: u64,
    /// Frames that came both ways: they come again without having been asked for.
    pub(super) came_both_ways: u64,
}

/// The patience of one member.
pub(super) struct Patience {
    patience: Duration,
    /// The first patience: the longer, the more often it was too short; and its least value.
    base_patience: Duration,
    least: Duration,
    /// The frames at the last judgement.
    judged: Frames,
    ask_at: Option<Instant>,
    /// The side whose turn it is to ask then.
    turn: Turn,
    /// The number of awaited chunks that had come at the last look.
    ready: usize,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            patience: PATIENCE,
            base_patience: PATIENCE,
            least: PATIENCE,
            judged: Frames::default(),
            ask_at: None,
            turn: Turn::Aggregator,
            ready: 0,
        }
    }
}

impl Patience {
    /// A chunk has been seen to take `round_trip`: no member asks in less than twice that, and no aggregator in less
    /// than that.
    pub(super) fn expect(&mut self, round_trip: Duration) {
        self.least = (2 * round_trip).clamp(PATIENCE, PATIENCE_AFAR);
        self.base_patience = self.least;
        self.reset();
    }

    /// Something came, or nothing is missing: the next wait begins anew.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.patience = self.base_patience;
        self.ask_at = None;
        self.turn = Turn::Aggregator;
        self.ready = 0;
    }

    /// Begins anew if more of the awaited chunks have come than at the last look, in whatever order.
    pub(super) fn has_more(&mut self, ready: usize) -> bool {
        let has_more = ready > self.ready;
        if has_more {
            self.reset();
            self.ready = ready;
        }
        has_more
    }

    /// Whether it is time to ask for what is missing, and whose turn it is. `is_queued`: frames of this member have
    /// not left its host. If the others have their turn, the aggregator has asked in vain.
    #[inline]
    pub(super) fn ends(
        &mut self,
        now: Instant,
        frames: impl FnOnce() -> Frames,
        is_queued: impl FnOnce() -> bool,
    ) -> Option<Turn> {
        let begins = match self.ask_at {
            Some(at) if now < at => return None,
            at => at.is_none(),
        };
        let asks = !begins && !self.is_too_early(frames(), is_queued);
        let turn = asks.then_some(self.turn);
        match turn {
            None => {}
            Some(Turn::Aggregator) => self.turn = Turn::Others,
            Some(Turn::Others) => {
                self.lengthen();
                self.turn = Turn::Aggregator;
            }
        }
        self.ask_at = Some(now + self.patience / 2);
        turn
    }

    fn lengthen(&mut self) {
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
    }

    /// Whether to wait longer before asking, since the way is slow: its own frames are still on this host, or the
    /// frames that it last asked for have come twice. Not for ever: the way may have come to an end.
    fn is_too_early(&mut self, frames: Frames, is_queued: impl FnOnce() -> bool) -> bool {
        if self.was_too_early(frames) {
            self.patience = self.patience.max(self.base_patience);
            return true;
        }
        let waits = self.patience < PATIENCE_MAX && is_queued();
        if waits {
            self.lengthen();
        }
        waits
    }

    /// Whether the frames that it last asked for have come twice. If so, patience becomes longer, else shorter.
    fn was_too_early(&mut self, now: Frames) -> bool {
        let before = mem::replace(&mut self.judged, now);
        let asked_for = now.asked_for - before.asked_for;
        let came_both_ways = now.came_both_ways - before.came_both_ways;
        let came_again = (now.came_again - before.came_again).saturating_sub(came_both_ways);
        if came_again < TOO_EARLY || 2 * came_again < asked_for {
            if asked_for > 0 {
                self.base_patience = (self.base_patience / 2).max(self.least);
            }
            return false;
        }
        let may_be_longer = self.base_patience < PATIENCE_MAX;
        if may_be_longer {
            self.base_patience *= 2;
        }
        may_be_longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A member that sees its patience out, again and again.
    struct Member {
        patience: Patience,
        now: Instant,
        frames: Frames,
        is_queued: bool,
    }

    impl Member {
        fn new() -> Self {
            let (patience, frames) = (Patience::default(), Frames::default());
            Self { patience, now: Instant::now(), frames, is_queued: false }
        }

        fn look(&mut self) -> Option<Turn> {
            self.patience.ends(self.now, || self.frames, || self.is_queued)
        }

        /// The time until the next look that may say something, and what it says.
        fn wait(&mut self) -> (Duration, Option<Turn>) {
            assert_eq!(self.look(), None, "a wait begins");
            let left = self.patience.ask_at.expect("a time to ask") - self.now;
            self.now += left - Duration::from_nanos(1);
            assert_eq!(self.look(), None, "it is not over");
            self.now += Duration::from_nanos(1);
            (left, self.look())
        }

        /// The time until the aggregator asks for the first time.
        fn first_wait(&mut self) -> Duration {
            self.patience.reset();
            let (wait, turn) = self.wait();
            assert_eq!(turn, Some(Turn::Aggregator));
            wait
        }
    }

    #[test]
    fn the_aggregator_asks_first_and_both_wait_twice_as_long_the_next_time_up_to_a_bound() {
        let mut member = Member::new();
        for milliseconds in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            assert_eq!(member.wait(), (milliseconds * MS, Some(Turn::Aggregator)));
            assert_eq!(member.wait(), (milliseconds * MS, Some(Turn::Others)));
        }
    }

    #[test]
    fn what_comes_ends_the_wait() {
        let mut member = Member::new();
        for _ in 0..5 {
            member.wait();
        }
        member.patience.reset();
        assert_eq!(member.wait(), (MS, Some(Turn::Aggregator)));
        assert!(member.patience.has_more(2));
        assert_eq!(member.wait(), (MS, Some(Turn::Aggregator)));
        assert!(!member.patience.has_more(2));
        assert_eq!(member.wait(), (MS, Some(Turn::Others)));
    }

    #[test]
    fn a_long_way_is_waited_for_within_reason() {
        let mut member = Member::new();
        for (round_trip, wait) in [(MS / 10, MS), (5 * MS, 5 * MS), (1000 * MS, 16 * MS)] {
            member.patience.expect(round_trip);
            assert_eq!(member.first_wait(), wait);
        }
    }

    #[test]
    fn what_came_twice_was_asked_for_too_early() {
        let mut member = Member::new();
        let repeat = |member: &mut Member, asked_for, came_again, came_both_ways| {
            member.patience.reset();
            member.frames.asked_for += asked_for;
            member.frames.came_again += came_again;
            member.frames.came_both_ways += came_both_ways;
            member.wait()
        };
        assert_eq!(repeat(&mut member, 8, 4, 0), (MS, None));
        assert_eq!(member.first_wait(), 2 * MS);
        // Too few; too few of the frames asked for; and nobody's fault.
        for (asked_for, came_again, both_ways) in [(0, 3, 0), (0, 0, 0), (0, 9, 6)] {
            repeat(&mut member, asked_for, came_again, both_ways);
            assert_eq!(member.first_wait(), 2 * MS);
        }
        assert_eq!(repeat(&mut member, 9, 4, 0), (2 * MS, Some(Turn::Aggregator)));
        assert_eq!(member.first_wait(), MS);
    }

    #[test]
    fn nobody_asks_while_its_own_frames_are_queued_but_not_for_ever() {
        let mut member = Member { is_queued: true, ..Member::new() };
        for milliseconds in [1, 2, 4, 8, 16, 32] {
            assert_eq!(member.wait(), (milliseconds * MS, None));
        }
        assert_eq!(member.wait(), (64 * MS, Some(Turn::Aggregator)));
    }
}

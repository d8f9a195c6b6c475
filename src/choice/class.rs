//! The choice for one collective and class of sizes on one communicator.
//!
//! ```text
//!   usual way, 16 calls ──▶ trial: two turns of 4 calls by each way ──▶ settled ─┐
//!                             ▲                                                  │
//!                             └──── 256 to 8192 calls later, or at once if ◀─────┘
//!                                   the chosen way takes twice or half as long
//! ```
//!
//! Counted in calls and decided by agreed sums, so that all ranks do the same at the same call. In integers
//! throughout: a program may have floating point trap, or round in another way, in the thread that this runs in.
//!
//! The constants are choices. docs/decisions/14-router-by-measurement.md has the cost of measuring by them.

use super::kind::Pace;
use super::way::{ORDER, WAYS, Way};

/// Calls before the first trial.
const WARM: u32 = 16;
/// Calls by one way in one turn; the first is not timed: it pays for the change.
const BLOCK: u32 = 4;
const TURNS: u32 = 2;
/// A way that takes so many times as long as the best in the first turn has no second one.
const HOPELESS: u64 = 2;
/// One that took so many times as long as the best is tried again in one trial of so many.
const FAR: u64 = 3;
const FAR_TRIALS: u64 = 8;
/// Another way must take less than so many hundredths of the time to be chosen instead.
const HYSTERESIS: u64 = 90;
/// Calls from one look at the chosen way to the next, the last of which are timed.
const CHECK: u32 = 256;
const CHECKED: u32 = 7;
/// Most calls from a look to the next, if ranks run ahead by the MPI: twice as many each time that nothing has changed.
/// A look makes ranks wait for each other (docs/decisions/14-router-by-measurement.md has figures).
const FARTHEST: u32 = 8192;
/// The chosen way has changed if it takes so many times as long as it did, or the inverse.
const CHANGED: u64 = 2;
/// A new measurement of the chosen way is one part of so many of its time, so that one disturbed look changes little.
const NEWEST: u64 = 4;
/// Calls from a trial to the next: as long as the choice stays, twice as many each time.
const SOONEST: u32 = 256;
const LATEST: u32 = 8192;
/// Calls until the first trial where the ways were measured before.
const LEARNT: u32 = 1024;

/// The work of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its way.
    pub way: Way,
    /// Whether [`SizeClass::record_time`] wants to know how long it took.
    pub timed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Warm {
        calls: u32,
    },
    /// By the `at`-th of the ways that are in it, its `call`-th.
    Trial {
        turn: u32,
        at: usize,
        call: u32,
    },
    /// `look`: calls from the last look to the next.
    Settled {
        calls: u32,
        look: u32,
        until_trial: u32,
    },
}

pub struct SizeClass {
    ways: Vec<Way>,
    ranks: usize,
    pace: Pace,
    chosen: Way,
    phase: Phase,
    /// The ways that the trial tries.
    tried: Vec<Way>,
    /// Nanoseconds that this rank has measured since the ranks last agreed, and whether they are to.
    sums: [u64; WAYS],
    due: bool,
    /// Mean nanoseconds of a call: of the first turn; and as agreed last.
    first: [Option<u64>; WAYS],
    costs: [Option<u64>; WAYS],
    interval: u32,
    calls: u64,
    trials: u64,
    changes: u64,
}

impl SizeClass {
    /// With these ways, of which `usual` is taken at first.
    pub(super) fn new(ways: Vec<Way>, usual: Way, ranks: usize, pace: Pace) -> Self {
        let chosen = if ways.contains(&usual) { usual } else { ways[0] };
        Self {
            ways,
            ranks,
            pace,
            chosen,
            phase: Phase::Warm { calls: 0 },
            tried: Vec::new(),
            sums: [0; WAYS],
            due: false,
            first: [None; WAYS],
            costs: [None; WAYS],
            interval: SOONEST,
            calls: 0,
            trials: 0,
            changes: 0,
        }
    }

    /// With what was measured before: which way was the best, and what each took, in nanoseconds. That is looked at
    /// like any choice.
    pub(super) fn from_costs(
        ways: Vec<Way>,
        (chosen, costs): (Way, [Option<u64>; WAYS]),
        ranks: usize,
        pace: Pace,
    ) -> Self {
        let phase = Phase::Settled { calls: 0, look: CHECK, until_trial: LEARNT };
        Self { phase, costs, interval: LEARNT, ..Self::new(ways, chosen, ranks, pace) }
    }

    /// The measurements that the ranks are to add up before the next call, if it is time to.
    pub fn due(&self) -> Option<[u64; WAYS]> {
        self.due.then_some(self.sums)
    }

    /// Counts the next call, and returns its work.
    pub fn next(&mut self) -> Step {
        self.calls += 1;
        match &mut self.phase {
            Phase::Warm { calls } => {
                *calls += 1;
                if *calls == WARM {
                    self.begin_trial(true);
                }
                Step { way: self.chosen, timed: false }
            }
            Phase::Trial { at, call, .. } => {
                let step = Step { way: self.tried[*at], timed: *call > 0 };
                *call += 1;
                if *call == BLOCK {
                    (*at, *call) = (*at + 1, 0);
                    self.due = *at == self.tried.len();
                }
                step
            }
            Phase::Settled { calls, look, until_trial } => {
                *calls += 1;
                *until_trial = until_trial.saturating_sub(1);
                let timed = *calls > *look - CHECKED;
                self.due = *calls == *look;
                Step { way: self.chosen, timed }
            }
        }
    }

    /// Records the time of a call on this rank.
    pub fn record_time(&mut self, way: Way, nanoseconds: u64) {
        let sum = &mut self.sums[way.index()];
        *sum = sum.saturating_add(nanoseconds);
    }

    /// Takes the measurements of all ranks, added up.
    pub fn take_agreed(&mut self, sums: [u64; WAYS]) {
        (self.sums, self.due) = ([0; WAYS], false);
        match self.phase {
            Phase::Warm { .. } => {}
            Phase::Trial { turn, .. } => self.end_turn(turn, sums),
            Phase::Settled { look, until_trial, .. } => {
                let now = self.mean(sums[self.chosen.index()], CHECKED);
                let cost = &mut self.costs[self.chosen.index()];
                let before = cost.unwrap_or(now);
                *cost = Some(before - before / NEWEST + now / NEWEST);
                let changed =
                    now > before.saturating_mul(CHANGED) || now.saturating_mul(CHANGED) < before;
                if changed || until_trial == 0 {
                    *cost = Some(now);
                    self.begin_trial(changed);
                } else {
                    let apart = self.pace == Pace::Ahead && self.chosen == Way::Mpi;
                    let look = if apart { (look * 2).min(FARTHEST) } else { CHECK };
                    self.phase = Phase::Settled { calls: 0, look, until_trial };
                }
            }
        }
    }

    fn mean(&self, sum: u64, calls: u32) -> u64 {
        sum / (u64::from(calls) * self.ranks as u64)
    }

    /// `all`: the trial includes ways that were far behind.
    fn begin_trial(&mut self, all: bool) {
        let all = all || self.trials.is_multiple_of(FAR_TRIALS);
        let most =
            self.costs.iter().flatten().min().map_or(u64::MAX, |best| best.saturating_mul(FAR));
        let near = |way: &Way| {
            let cost = self.costs[way.index()];
            all || *way == self.chosen || cost.is_none_or(|cost| cost <= most)
        };
        self.tried = self.ways.iter().copied().filter(near).collect();
        self.trials += 1;
        self.phase = Phase::Trial { turn: 0, at: 0, call: 0 };
    }

    fn end_turn(&mut self, turn: u32, sums: [u64; WAYS]) {
        let mut means = [None; WAYS];
        for way in &self.tried {
            means[way.index()] = Some(self.mean(sums[way.index()], BLOCK - 1));
        }
        if turn == 0 {
            self.first = means;
        }
        // Disturbances make a turn longer, never shorter.
        for way in ORDER.map(Way::index) {
            if let Some(mean) = means[way] {
                let first = self.first[way].filter(|_| turn > 0);
                self.costs[way] = Some(first.map_or(mean, |first| first.min(mean)));
            }
        }
        let cost = |way: &Way| self.costs[way.index()].unwrap_or(u64::MAX);
        let best = self.tried.iter().map(cost).min().unwrap_or(u64::MAX);
        let hopeful: Vec<Way> = self
            .tried
            .iter()
            .copied()
            .filter(|way| cost(way) <= best.saturating_mul(HOPELESS))
            .collect();
        if turn + 1 < TURNS && hopeful.len() > 1 {
            self.tried = hopeful;
            // The other way round, so that what changes meanwhile does not favour the same.
            self.tried.reverse();
            self.phase = Phase::Trial { turn: turn + 1, at: 0, call: 0 };
            return;
        }
        let found = hopeful.iter().copied().find(|way| cost(way) == best).unwrap_or(self.chosen);
        let better = best.saturating_mul(100) < cost(&self.chosen).saturating_mul(HYSTERESIS);
        if better && found != self.chosen {
            (self.chosen, self.interval) = (found, SOONEST);
            self.changes += 1;
        } else {
            self.interval = (self.interval * 2).min(LATEST);
        }
        self.phase = Phase::Settled { calls: 0, look: CHECK, until_trial: self.interval };
    }

    /// The way that is taken.
    pub fn chosen(&self) -> Way {
        self.chosen
    }

    /// Mean nanoseconds of a call by a way, when it was last measured.
    pub fn cost(&self, way: Way) -> Option<u64> {
        self.costs[way.index()]
    }

    /// Calls of this rank.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Times that the ways were compared.
    pub fn trials(&self) -> u64 {
        self.trials
    }

    /// Times that this changed the choice.
    pub fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Algorithm::{Direct, Shards, Star};

    /// All that are tried unasked.
    const ALL: usize = WAYS - 1;

    /// Runs calls whose cost by each way is as given, and counts those by each.
    fn run(class: &mut SizeClass, calls: u32, costs: [u64; ALL]) -> [u32; ALL] {
        run_and_look(class, calls, costs).0
    }

    /// The same; and how often the ranks add up what they have measured.
    fn run_and_look(class: &mut SizeClass, calls: u32, costs: [u64; ALL]) -> ([u32; ALL], usize) {
        let (mut taken, mut looks) = ([0; ALL], 0);
        for _ in 0..calls {
            if let Some(sums) = class.due() {
                class.take_agreed(sums.map(|sum| sum * 2));
                looks += 1;
            }
            let step = class.next();
            taken[step.way.index()] += 1;
            if step.timed {
                class.record_time(step.way, costs[step.way.index()]);
            }
        }
        (taken, looks)
    }

    fn class() -> SizeClass {
        class_of(Pace::Together)
    }

    fn class_of(pace: Pace) -> SizeClass {
        SizeClass::new(ORDER[..ALL].to_vec(), Way::Fold(Star), 2, pace)
    }

    #[test]
    fn the_best_way_is_found_and_costs_of_measuring_shrink() {
        let mut class = class();
        run(&mut class, 60, [400, 300, 900, 250]);
        assert_eq!(class.chosen(), Way::Mpi);
        assert_eq!(class.cost(Way::Fold(Direct)), Some(300));
        let taken = run(&mut class, 100_000, [400, 300, 900, 250]);
        let others: u32 = taken[..3].iter().sum();
        assert!(others < 1000, "{taken:?}");
        assert!(taken[2] < taken[0], "the hopeless one most rarely: {taken:?}");
    }

    #[test]
    fn a_little_better_is_not_better() {
        let mut class = class();
        run(&mut class, 10_000, [300, 290, 280, 275]);
        assert_eq!((class.chosen(), class.changes()), (Way::Fold(Star), 0));
    }

    #[test]
    fn a_way_that_became_slow_is_left_within_a_bounded_number_of_calls() {
        let mut class = class();
        run(&mut class, 50_000, [100, 300, 900, 250]);
        assert_eq!(class.chosen(), Way::Fold(Star));
        run(&mut class, 2 * CHECK + 40, [2000, 1500, 700, 900]);
        assert_eq!(class.chosen(), Way::Fold(Shards));
        run(&mut class, 2 * CHECK + 40, [100, 300, 900, 250]);
        run(&mut class, LATEST + CHECK, [100, 300, 900, 250]);
        assert_eq!(class.chosen(), Way::Fold(Star));
    }

    #[test]
    fn ranks_that_run_ahead_by_the_mpi_are_seldom_made_to_wait() {
        let looks = |pace, costs| {
            let mut class = class_of(pace);
            run(&mut class, 50_000, costs);
            let (_, looks) = run_and_look(&mut class, 100_000, costs);
            (class, looks)
        };
        let (by_mpi, by_star) = ([300, 300, 900, 100], [100, 300, 900, 250]);
        let (mut ahead, seldom) = looks(Pace::Ahead, by_mpi);
        assert!(seldom < 70, "{seldom}");
        for (pace, costs) in
            [(Pace::Together, by_mpi), (Pace::Together, by_star), (Pace::Ahead, by_star)]
        {
            let (_, often) = looks(pace, costs);
            assert!(often > 300, "{pace:?}: {often}");
        }
        // It is left all the same when it becomes slow.
        run(&mut ahead, 2 * FARTHEST, by_star);
        assert_eq!(ahead.chosen(), Way::Fold(Star));
    }

    #[test]
    fn what_was_measured_before_is_taken_on_trust_and_looked_at() {
        let learnt = || {
            let costs = [Some(100), Some(300), Some(900), Some(250), None];
            SizeClass::from_costs(
                ORDER[..ALL].to_vec(),
                (Way::Fold(Star), costs),
                2,
                Pace::Together,
            )
        };
        let mut class = learnt();
        let taken = run(&mut class, LEARNT, [100, 300, 900, 250]);
        assert_eq!(taken, [LEARNT, 0, 0, 0]);
        run(&mut class, CHECK, [100, 300, 900, 250]);
        assert_eq!((class.chosen(), class.trials()), (Way::Fold(Star), 1));
        // On another network.
        let mut class = learnt();
        run(&mut class, CHECK + 40, [2000, 300, 900, 250]);
        assert_eq!(class.chosen(), Way::Mpi);
    }
}

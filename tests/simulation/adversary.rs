//! The source of faults of frames and hosts: chance, by a seed, or a list of deviations from the usual.

use std::cell::RefCell;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use crate::random::Rng;

/// One copy of a frame that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Microseconds from now.
    pub delay: u64,
    /// The bit that is flipped.
    pub flipped: Option<usize>,
}

/// The faults of a frame on the wire, and of the hosts before that.
#[derive(Debug, Default)]
pub struct Fate {
    /// A host that moves: what is for its old address is lost from then on.
    pub moved: Option<usize>,
    /// A host whose programs end, or come back.
    pub crashed: Option<usize>,
    pub copies: [Option<Arrival>; 2],
}

pub trait Adversary {
    /// A frame of so many bits is sent, with so many hosts on the network.
    fn befall(&mut self, hosts: usize, bits: usize) -> Fate;

    /// Whether a frame to a host's own cell finds it locked.
    fn is_busy(&mut self) -> bool;
}

/// The rates of faults of frames, in thousandths; delays in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub loss: u64,
    pub duplication: u64,
    pub delay: u64,
    pub most_delay: u64,
    /// Frames with a bit flipped.
    pub flips: u64,
    /// Frames to a host's own cell that find it locked.
    pub busy: u64,
    /// Frames at whose sending some host moves.
    pub moves: u64,
    /// Frames at whose sending the programs of some host end, or come back.
    pub crashes: u64,
    /// Hosts whose programs are gone from the beginning, one bit each.
    pub dead: u64,
}

/// Chance.
pub struct Seeded {
    rng: Rng,
    fault: Fault,
}

impl Seeded {
    pub fn new(seed: u64, fault: Fault) -> Self {
        Self { rng: Rng(seed ^ 0xfab), fault }
    }

    fn happens(&mut self, thousandths: u64) -> bool {
        self.rng.below(1000) < thousandths
    }

    fn copy(&mut self, bits: usize) -> Arrival {
        let late = self.happens(self.fault.delay);
        let delay = if late { self.rng.below(self.fault.most_delay + 1) } else { 1 };
        let flips = self.happens(self.fault.flips);
        let flipped = flips.then(|| self.rng.below(bits as u64) as usize);
        Arrival { delay, flipped }
    }
}

impl Adversary for Seeded {
    fn befall(&mut self, hosts: usize, bits: usize) -> Fate {
        let mut fate = Fate::default();
        if self.happens(self.fault.moves) {
            fate.moved = Some(self.rng.below(hosts as u64) as usize);
        }
        if self.happens(self.fault.crashes) {
            fate.crashed = Some(self.rng.below(hosts as u64) as usize);
        }
        if !self.happens(self.fault.loss) {
            fate.copies[0] = Some(self.copy(bits));
            if self.happens(self.fault.duplication) {
                fate.copies[1] = Some(self.copy(bits));
            }
        }
        fate
    }

    fn is_busy(&mut self) -> bool {
        self.happens(self.fault.busy)
    }
}

/// At choice number `.0`, not the usual but alternative `.1`, counted from 1.
pub type Deviation = (usize, usize);

/// Choices, each with the usual and some alternatives; the usual is taken but for the deviations.
#[derive(Default)]
pub struct Choices {
    deviations: Vec<Deviation>,
    taken: usize,
    /// The number of alternatives of each choice.
    pub alternatives: Vec<usize>,
}

impl Choices {
    /// `deviations`: by the number of the choice.
    pub fn new(deviations: &[Deviation]) -> Self {
        Self { deviations: deviations.to_vec(), ..Self::default() }
    }

    /// Takes a choice: 0 is the usual.
    pub fn choose(&mut self, alternatives: usize) -> usize {
        let number = self.alternatives.len();
        self.alternatives.push(alternatives);
        match self.deviations.get(self.taken) {
            Some(&(at, which)) if at == number => {
                self.taken += 1;
                assert!(which <= alternatives, "the same choices lead to the same choices");
                which
            }
            _ => 0,
        }
    }
}

/// Microseconds by which a frame is late: overtaken by the next ones; by some collectives; or so much that it has
/// been asked for again.
pub const LATE: [u64; 3] = [3, 30, 20_000];

impl Adversary for Rc<RefCell<Choices>> {
    fn befall(&mut self, hosts: usize, _: usize) -> Fate {
        let arrival = |delay| Some(Arrival { delay, flipped: None });
        let usual = Fate { copies: [arrival(1), None], ..Fate::default() };
        let late = LATE.len();
        match self.borrow_mut().choose(1 + 2 * late + 2 * hosts) {
            0 => usual,
            1 => Fate::default(),
            which if which < 2 + late => Fate { copies: [arrival(LATE[which - 2]), None], ..usual },
            which if which < 2 + 2 * late => {
                Fate { copies: [arrival(1), arrival(LATE[which - 2 - late])], ..usual }
            }
            which => {
                let host = which - 2 - 2 * late;
                let (moved, crashed) =
                    if host < hosts { (Some(host), None) } else { (None, Some(host - hosts)) };
                Fate { moved, crashed, ..usual }
            }
        }
    }

    fn is_busy(&mut self) -> bool {
        self.borrow_mut().choose(1) == 1
    }
}

/// The cost of an exploration.
#[derive(Default, Debug)]
pub struct Took {
    pub runs: u64,
    pub steps: u64,
}

/// A run with some deviations; returns the number of alternatives of each of its choices, and its steps.
type Run<'a> = &'a dyn Fn(&[Deviation]) -> (Vec<usize>, u64);

/// All runs with up to so many deviations, which the first `among` choices may have.
pub fn explore(setting: &dyn Debug, deviations: usize, among: usize, run: Run) -> Took {
    let mut took = Took::default();
    explore_from(setting, &mut Vec::new(), deviations, among, run, &mut took);
    println!("{setting:?}: {took:?}");
    took
}

/// All runs with these deviations and up to `left` later ones.
fn explore_from(
    setting: &dyn Debug,
    deviations: &mut Vec<Deviation>,
    left: usize,
    among: usize,
    run: Run,
    took: &mut Took,
) {
    let ran = catch_unwind(AssertUnwindSafe(|| run(deviations)));
    let (alternatives, steps) = ran.unwrap_or_else(|panic| {
        eprintln!("in {setting:?} with the deviations {deviations:?}");
        resume_unwind(panic)
    });
    took.runs += 1;
    took.steps += steps;
    if left == 0 {
        return;
    }
    let from = deviations.last().map_or(0, |(at, _)| at + 1);
    for (at, alternatives) in alternatives.into_iter().enumerate().take(among).skip(from) {
        for which in 1..=alternatives {
            deviations.push((at, which));
            explore_from(setting, deviations, left - 1, among, run, took);
            deviations.pop();
        }
    }
}

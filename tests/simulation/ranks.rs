//! Whole groups with several ranks on a host: engine, shared memory and wire of every rank, in one thread.
//!
//! Checked: every collective ends, on every rank, with the right value. Nobody needs a rank that has
//! its own answer: it may be away, for example in the real MPI, until all others have theirs.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldback::engine::{Engine, Job, Outcome, Parcel, Parcels, Pattern, Script, Step, Ways};
use foldback::leaf::Leaf;
use foldback::leaf::fold::fold;
use foldback::leaf::segment::Segment;
use foldback::topology::{Image, Layout, Place};
use foldback::wire::Algorithm::{self, Direct, Ring, Shards, Star};
use foldback::wire::cells::Mapped;
use foldback::wire::{Mismatch, Parties, exchanges};

use crate::adversary::Fault;
use crate::network::{Network, Out, Shape};
use crate::random::Rng;
use crate::{CALM, CELLS, CHUNK, GHOSTS, LONG_SUM, MOST, ROUGH, arithmetic, parties};

/// One run.
#[derive(Clone, Copy)]
pub struct Setting {
    pub seed: u64,
    pub hosts: u64,
    most_ranks_per_host: u64,
    collectives: usize,
    most_bytes: u64,
    /// Collectives that a rank has under way at once, at most.
    depth: usize,
    /// After so many collectives each, no rank does anything before all have their answers.
    rest: usize,
    /// Whether the results of some go to everyone, by which all learn how far they may go.
    to_all: bool,
    /// Whether some are exchanges.
    exchanges: bool,
    /// Whether some follow each other as the steps of a script.
    scripts: bool,
    window: u32,
    /// `None`: as usual for the size.
    algorithm: Option<Algorithm>,
    pub fault: Fault,
}

/// The host of each rank: all hosts have at least one, in any order.
fn layout(setting: &Setting, rng: &mut Rng) -> Layout {
    let mut names: Vec<String> = Vec::new();
    for host in 0..setting.hosts {
        let ranks = 1 + rng.below(setting.most_ranks_per_host);
        names.extend((0..ranks).map(|_| format!("h{host}")));
    }
    for at in (1..names.len()).rev() {
        names.swap(at, rng.below(at as u64 + 1) as usize);
    }
    Layout::new(names.iter().map(String::as_str))
}

/// A collective that all ranks run.
#[derive(Debug)]
struct Collective {
    pattern: Pattern,
    /// Of the message; of a gather, nothing; of an exchange, most bytes of a parcel.
    bytes: usize,
    in_place: bool,
}

fn collective(setting: &Setting, layout: &Layout, rng: &mut Rng) -> Collective {
    let root = rng.below(layout.ranks() as u64) as usize;
    // Most are small; few take several rounds in a host's memory.
    let most = if rng.below(8) == 0 { setting.most_bytes } else { setting.most_bytes.min(2048) };
    let bytes = if rng.below(6) == 0 { 0 } else { 8 * rng.below(most / 8 + 1) as usize };
    let seed = rng.next();
    let parties = parties(rng, root);
    let limit = place(setting.window, layout, 0).parcel_bytes(parties.hub().is_some());
    if let Some(limit) = limit.filter(|_| setting.exchanges && rng.below(2) == 0) {
        let most = 1 + rng.below(limit as u64) as usize;
        let (to, from) = (Vec::new(), Vec::new());
        let parcels = Parcels { most, parties, to, from };
        let pattern = Pattern::Exchange(Arc::new(parcels));
        return Collective { pattern, bytes: most, in_place: false };
    }
    // The first rank has something, or there would be nothing to do.
    let parts = |most: u64| {
        let length = |rank: usize| {
            let drawn = Rng(seed ^ rank as u64).below(most + 1) as usize;
            if rank == 0 { drawn.max(1) } else { drawn }
        };
        Arc::new(Image::new(layout, length))
    };
    let of_a_chunk = CHUNK as u64 / layout.ranks() as u64 - 8;
    let pattern = match rng.below(if setting.to_all { 6 } else { 3 }) {
        0 => Pattern::FoldToRoot(root, arithmetic(rng)),
        1 => Pattern::Broadcast(root),
        2 => Pattern::GatherToRoot(root, parts(of_a_chunk)),
        3 => Pattern::GatherToAll(parts([of_a_chunk, 2000][rng.below(2) as usize])),
        _ => Pattern::FoldToAll(arithmetic(rng)),
    };
    let in_place = pattern.arithmetic().is_some() && rng.below(2) == 0;
    Collective { pattern, bytes, in_place }
}

impl Collective {
    fn image(&self) -> Option<&Image> {
        self.pattern.parts().map(Arc::as_ref)
    }

    /// A rank's contribution, a function of all that names it.
    fn brings(&self, seed: u64, number: usize, rank: usize) -> Vec<u8> {
        let bytes = self.image().map_or(self.bytes, |image| image.part(rank).len());
        let mut rng = Rng(seed ^ (number as u64) << 20 ^ (rank as u64) << 50);
        (0..bytes).map(|_| rng.next() as u8).collect()
    }

    /// A rank's parcel for another one, of an exchange.
    fn parcel(&self, seed: u64, number: usize, from: usize, to: usize) -> Vec<u8> {
        let of_sender = Rng(seed ^ (number as u64) << 20 ^ (from as u64) << 50);
        let mut rng = Rng(of_sender.0 ^ (to as u64) << 56);
        let Pattern::Exchange(parcels) = &self.pattern else { unreachable!("of an exchange") };
        let end = if number.is_multiple_of(2) { from } else { to };
        let is_of_hub = parcels.parties.hub().is_none_or(|hub| hub == end);
        let some = from != to && is_of_hub && rng.below(2) == 0;
        if parcels.parties == Parties::Vectors {
            rng = of_sender;
        }
        let bytes = if some { rng.below(self.bytes as u64 + 1) as usize } else { 0 };
        (0..bytes).map(|_| rng.next() as u8).collect()
    }

    /// The results of a rank; of gathers, with the gaps as in `got`.
    fn answer(&self, seed: u64, number: usize, place: &Place, got: &[u8]) -> Vec<u8> {
        let ranks = place.layout.ranks();
        match &self.pattern {
            Pattern::Broadcast(root) => self.brings(seed, number, *root),
            Pattern::Barrier => Vec::new(),
            Pattern::Exchange(_) => {
                let from = |other| self.parcel(seed, number, other, place.rank);
                (0..ranks).flat_map(from).collect()
            }
            Pattern::FoldToAll(arithmetic) | Pattern::FoldToRoot(_, arithmetic) => {
                let mut all = self.brings(seed, number, 0);
                for rank in 1..ranks {
                    fold(&mut all, &self.brings(seed, number, rank), *arithmetic);
                }
                all
            }
            Pattern::GatherToAll(image) | Pattern::GatherToRoot(_, image) => {
                let mut all = got.to_vec();
                for rank in 0..ranks {
                    all[image.part(rank)].copy_from_slice(&self.brings(seed, number, rank));
                }
                all
            }
        }
    }
}

/// A collective under way on a rank.
struct Under {
    number: usize,
    /// The engine's input.
    send: Vec<u8>,
    /// The engine's output, unless it is the same memory.
    recv: Vec<u8>,
    over: Outcome,
}

/// The number of collectives, from one on, that are the steps of a script: alike on all ranks. One is no script.
fn steps_from(setting: &Setting, first: usize, all: usize) -> usize {
    let mut rng = Rng(setting.seed ^ (first as u64) << 30);
    let drawn = if setting.scripts && rng.below(3) == 0 { 2 + rng.below(3) as usize } else { 1 };
    drawn.min(all - first)
}

/// A script whose steps are collectives.
struct Steps {
    jobs: VecDeque<(Job, Outcome)>,
    under_way: Option<Outcome>,
}

// SAFETY: all ranks of the simulation are in one thread.
unsafe impl Send for Steps {}

impl Script for Steps {
    unsafe fn next(&mut self, outcome: Result<(), Mismatch>) -> Step {
        if let Some(over) = self.under_way.take() {
            assert!(over.set(outcome).is_ok());
        }
        let Some((job, over)) = self.jobs.pop_front() else { return Step::Over(outcome) };
        self.under_way = Some(over);
        Step::Job(job, Ways::Usual)
    }
}

struct Rank {
    engine: Engine<Mapped, Out>,
    begun: usize,
    under_way: VecDeque<Under>,
    /// Microseconds until which it is away.
    away: u64,
}

impl Rank {
    fn over(&self) -> usize {
        self.begun - self.under_way.len()
    }

    /// Begins the next collective, or a script whose steps are the next ones.
    fn begin(&mut self, setting: &Setting, plan: &[Collective], rank: usize) {
        let steps = steps_from(setting, self.begun, plan.len());
        let mut jobs: VecDeque<_> = (0..steps).map(|_| self.job(setting, plan, rank)).collect();
        if steps > 1 {
            let script = Steps { jobs, under_way: None };
            // SAFETY: the memory of all jobs is kept, and left alone, until they are over.
            unsafe { self.engine.run(Box::new(script), setting.algorithm, Outcome::default()) };
        } else if let Some((job, over)) = jobs.pop_front() {
            let algorithm = setting.algorithm.unwrap_or_else(|| self.engine.usual_algorithm(&job));
            // SAFETY: the memory is kept, and left alone, until the operation is over.
            unsafe { self.engine.start_in_turn(job, algorithm, over) };
        }
    }

    /// The job of the next collective.
    fn job(&mut self, setting: &Setting, plan: &[Collective], rank: usize) -> (Job, Outcome) {
        let (number, c) = (self.begun, &plan[self.begun]);
        if let Pattern::Exchange(parcels) = &c.pattern {
            return self.exchange(setting, c, parcels.parties);
        }
        let mut send = c.brings(setting.seed, number, rank);
        let gets = if c.pattern.gets(rank) { c.image().map_or(c.bytes, Image::bytes) } else { 0 };
        let mut recv = if c.in_place { Vec::new() } else { vec![0xee; gets] };
        let over = Outcome::default();
        let job = Job {
            pattern: c.pattern.clone(),
            bytes: send.len(),
            recv: if c.in_place { send.as_mut_ptr() } else { recv.as_mut_ptr() },
            send: send.as_ptr(),
        };
        // A broadcast is of so many bytes on all ranks, whoever brings them.
        let job = Job { bytes: if c.image().is_some() { job.bytes } else { c.bytes }, ..job };
        self.under_way.push_back(Under { number, send, recv, over: Arc::clone(&over) });
        self.begun += 1;
        (job, over)
    }

    /// The job of the next collective, an exchange.
    fn exchange(
        &mut self,
        setting: &Setting,
        c: &Collective,
        parties: Parties<usize>,
    ) -> (Job, Outcome) {
        let (number, me) = (self.begun, self.engine.place.rank);
        let ranks = 0..self.engine.place.layout.ranks();
        let to = ranks.clone().map(|other| c.parcel(setting.seed, number, me, other));
        let from = ranks.map(|other| c.parcel(setting.seed, number, other, me));
        let sizes = |all: &[Vec<u8>]| all.iter().map(Vec::len).collect::<Vec<_>>();
        let (to, from): (Vec<_>, Vec<_>) = (to.collect(), from.collect());
        let mut send = to.concat();
        let mut recv = vec![0xee; from.concat().len()];
        let parcels = |sizes: Vec<usize>, mut data: *mut u8| {
            let mut all = Vec::new();
            for (peer, bytes) in sizes.into_iter().enumerate() {
                // Those without bytes may be there, or not.
                if bytes > 0 || peer % 2 == 0 && peer != me {
                    all.push(Parcel { peer, data, bytes });
                }
                data = data.wrapping_add(bytes);
            }
            all
        };
        let to = parcels(sizes(&to), send.as_mut_ptr());
        let from = parcels(sizes(&from), recv.as_mut_ptr());
        let pattern = Pattern::Exchange(Arc::new(Parcels { most: c.bytes, parties, to, from }));
        let (nothing, over) = (std::ptr::NonNull::dangling().as_ptr(), Outcome::default());
        self.under_way.push_back(Under { number, send, recv, over: Arc::clone(&over) });
        self.begun += 1;
        (Job { pattern, bytes: c.bytes, send: nothing, recv: nothing }, over)
    }

    /// Checks the oldest collective, if it is over.
    fn end(&mut self, setting: &Setting, plan: &[Collective], rank: usize) -> bool {
        if self.under_way.front().is_none_or(|under| under.over.get().is_none()) {
            return false;
        }
        let Some(Under { number, send, recv, over }) = self.under_way.pop_front() else {
            return false;
        };
        assert_eq!(over.get(), Some(&Ok(())), "seed {}", setting.seed);
        let c = &plan[number];
        let got = if c.in_place { &send } else { &recv };
        if c.pattern.gets(rank) {
            let right = *got == c.answer(setting.seed, number, &self.engine.place, got);
            assert!(right, "wrong, seed {}, rank {rank}, number {number}: {c:?}", setting.seed);
        }
        true
    }
}

/// The place of a rank in a group with so many cells.
fn place(window: u32, layout: &Layout, rank: usize) -> Place {
    let (members, window) = (layout.hosts.len(), window.into());
    let has_shards = Algorithm::has_shards(members, window);
    let place = Place::new(layout.clone(), rank, CHUNK as u16, has_shards);
    place.expect("the rank is on a host").with_parcels(exchanges(members, window))
}

/// The ranks of a layout, on a network.
fn ranks(layout: &Layout, network: &Network, window: u32) -> Vec<Rank> {
    let mut ranks: Vec<Option<Rank>> = (0..layout.ranks()).map(|_| None).collect();
    for (me, host) in layout.hosts.iter().enumerate() {
        let me = me as u8;
        let (mut first, file) = match Segment::create(host.len()) {
            Ok((segment, file)) => (Some(segment), file),
            Err(error) => panic!("no memory to share: {error}"),
        };
        for (local, &rank) in host.iter().enumerate() {
            let segment = first.take().map_or_else(|| Segment::open(&file, host.len()), Ok);
            let segment = segment.expect("memory that is shared");
            let leaf = (host.len() > 1).then(|| Leaf::new(segment, local, host.len()));
            let place = place(window, layout, rank);
            let engine = Engine::new(place, (local == 0).then(|| network.wire(me)), leaf);
            ranks[rank] = Some(Rank { engine, begun: 0, under_way: VecDeque::new(), away: 0 });
        }
    }
    ranks.into_iter().flatten().collect()
}

/// Runs all collectives on all ranks; returns the steps that it took.
pub fn run(setting: &Setting) -> u64 {
    let seed = setting.seed;
    let mut rng = Rng(seed ^ 0x5eed);
    let layout = layout(setting, &mut rng);
    let plan: Vec<_> =
        (0..setting.collectives).map(|_| collective(setting, &layout, &mut rng)).collect();
    let members = layout.hosts.len() as u8;
    let cells = Shape { window: setting.window, ..CELLS };
    let network = Network::new(seed, cells, members, seed.is_multiple_of(2), setting.fault);
    let mut all = ranks(&layout, &network, setting.window);
    let count = all.len();
    let start = Instant::now();
    let clock = |network: &Network| start + Duration::from_micros(network.now());
    let (mut idle, mut steps) = (0u64, 0u64);
    // Leave is taken behind the last collective.
    let mut gone = vec![false; count];
    while !gone.iter().all(|gone| *gone) {
        steps += 1;
        assert!(
            idle < 2_000_000 && (!steps.is_multiple_of(1024) || start.elapsed() < MOST),
            "stuck, seed {seed}: {:?} on {:?}, {:?}",
            all.iter().map(Rank::over).collect::<Vec<_>>(),
            layout.hosts,
            network.counters(),
        );
        if rng.below(2) == 0 && network.deliver() {
            idle = 0;
            continue;
        }
        let at = rng.below(count as u64) as usize;
        let least = all.iter().map(Rank::over).min().unwrap_or(0);
        let rank = &mut all[at];
        let rests = rank.begun.is_multiple_of(setting.rest) && least < rank.begun;
        let may_begin = rank.begun < plan.len() && !rests && network.now() >= rank.away;
        if rank.under_way.len() < setting.depth
            && may_begin
            && (rank.under_way.is_empty() || rng.below(2) == 0)
        {
            rank.begin(setting, &plan, at);
        }
        // A rank with nothing under way does not look.
        if !rank.under_way.is_empty() {
            rank.engine.poll(|| clock(&network));
            assert!(!rank.engine.is_out_of_step(), "seed {seed}");
        } else if least == plan.len() {
            gone[at] |= rank.engine.farewell(|| clock(&network));
        }
        if rank.end(setting, &plan, at) {
            idle = 0;
            if rng.below(20) == 0 {
                rank.away = network.now() + rng.below(50_000);
            }
        } else {
            idle += 1;
            network.pass_time();
        }
    }
    steps
}

const USUAL: Setting = Setting {
    seed: 0,
    hosts: 2,
    most_ranks_per_host: 3,
    collectives: 200,
    most_bytes: 8192,
    depth: 1,
    rest: 10,
    to_all: true,
    exchanges: false,
    scripts: false,
    window: CELLS.window,
    algorithm: None,
    fault: CALM,
};

/// One of many: its size and ways vary with the seed.
pub fn drawn(seed: u64) -> Setting {
    Setting {
        seed,
        hosts: 2 + seed % 4,
        most_ranks_per_host: 1 + seed % 3,
        depth: 1 + (seed % 4) as usize * 2,
        rest: [7, 10, 50][(seed % 3) as usize],
        exchanges: (seed / 5).is_multiple_of(2),
        window: [256, 8, 64, 16][(seed / 3 % 4) as usize],
        algorithm: [None, Some(Star), Some(Direct), Some(Shards), Some(Ring)]
            [(seed / 2 % 5) as usize],
        ..USUAL
    }
}

#[test]
fn ranks_that_share_hosts_get_their_answers() {
    for seed in 0..12 {
        run(&drawn(seed));
    }
}

#[test]
fn a_rank_that_has_its_answer_may_be_away() {
    for seed in 1000..1060 {
        run(&Setting { fault: ROUGH, ..drawn(seed) });
    }
}

/// Steps of a script come at other times on each rank, and all ranks start the collectives behind it in one order.
#[test]
fn collectives_wait_for_the_script_before_them() {
    for seed in 7000u64..7060 {
        let fault = if seed.is_multiple_of(2) { CALM } else { ROUGH };
        run(&Setting { scripts: true, depth: 4 + (seed % 7) as usize, fault, ..drawn(seed) });
    }
}

/// Kernels and leaders' hosts have the parcels of ranks that are away.
#[test]
fn ranks_exchange_parcels() {
    for seed in 8000u64..8120 {
        let fault = [CALM, ROUGH, GHOSTS, ROUGH][(seed % 4) as usize];
        run(&Setting {
            most_ranks_per_host: 1 + seed % 5,
            exchanges: true,
            window: [64, 256, 128][(seed % 3) as usize],
            scripts: seed.is_multiple_of(2),
            fault: Fault { crashes: u64::from(seed % 5 == 0), ..fault },
            ..drawn(seed)
        });
    }
}

/// Ranks 0 and 1 are on one host, 2 and 3 on another. Rank `from` has other bytes for rank `to` than that one expects.
/// Rank 0 has something for rank 3 besides, and rank 2 for rank 1.
fn disagree(from: usize, to: usize, [sent, expected]: [usize; 2], seed: u64) {
    let layout = Layout::new(["a", "a", "b", "b"]);
    let network = Network::new(seed, CELLS, 2, seed.is_multiple_of(2), ROUGH);
    let what = format!("{from} to {to}, {sent} for {expected}, seed {seed}");
    let mut all = ranks(&layout, &network, CELLS.window);
    let bytes = |pair, odd| match pair {
        _ if pair == (from, to) => odd,
        (0, 3) | (2, 1) => 40,
        _ => 0,
    };
    let mut memory: Vec<_> = (0..4).map(|_| ([[7u8; 4000]; 4], [[0u8; 4000]; 4], [3u64])).collect();
    let mut outcomes = Vec::new();
    for (me, (rank, (to, from, words))) in all.iter_mut().zip(&mut memory).enumerate() {
        let parcels = |of: &mut [[u8; 4000]; 4], bytes: &dyn Fn(usize) -> usize| {
            let all = of.iter_mut().enumerate();
            all.map(|(peer, of)| Parcel { peer, data: of.as_mut_ptr(), bytes: bytes(peer) })
                .collect()
        };
        let to = parcels(to, &|other| bytes((me, other), sent));
        let from = parcels(from, &|other| bytes((other, me), expected));
        let exchange = Arc::new(Parcels { most: 4000, parties: Parties::Any, to, from });
        let data = words.as_mut_ptr().cast();
        let exchange = (Pattern::Exchange(exchange), 4000);
        for (pattern, bytes) in [exchange, (Pattern::FoldToAll(LONG_SUM), 8)] {
            let (over, job) = (Outcome::default(), Job { pattern, bytes, send: data, recv: data });
            // SAFETY: the memory is kept, and left alone, until all is over.
            unsafe { rank.engine.start_in_turn(job, Star, Arc::clone(&over)) };
            outcomes.push(over);
        }
    }
    let (start, mut steps) = (Instant::now(), 0);
    while outcomes.iter().any(|over| over.get().is_none()) {
        steps += 1;
        assert!(steps < 2_000_000 && start.elapsed() < MOST, "stuck: {what}");
        if !network.deliver() {
            for rank in &mut all {
                rank.engine.poll(|| start + Duration::from_micros(network.now()));
                assert!(!rank.engine.is_out_of_step(), "{what}");
                network.pass_time();
            }
        }
    }
    let host = |rank| layout.place(rank).expect("a rank").0;
    for me in 0..4 {
        // What comes in one bundle with the odd parcel has its fate.
        let other = [None, Some(2), None, Some(0)][me];
        let is_beside = |other| (host(from), host(to)) == (host(other), host(me));
        let is_told = me == to || other.is_some_and(is_beside);
        let told = outcomes[2 * me].get().expect("it is over");
        assert_eq!(matches!(told, Err(Mismatch::Length { .. })), is_told, "{me}: {told:?}, {what}");
        assert!(is_told || told.is_ok(), "{me}: {told:?}, {what}");
        if let Some(other) = other.filter(|_| !is_told) {
            assert_eq!(memory[me].1[other][..40], [7; 40], "{me}: {what}");
        }
        assert_eq!(outcomes[2 * me + 1].get(), Some(&Ok(())), "{me}: {what}");
        assert_eq!(memory[me].2, [12], "{me}: {what}");
    }
}

#[test]
fn ranks_that_do_not_agree_on_a_parcel_go_on() {
    for seed in 0..10 {
        for (from, to) in [(0, 2), (1, 3), (1, 2), (3, 0), (0, 1), (3, 2)] {
            for lengths in [[8, 16], [16, 8], [8, 4000], [4000, 8]] {
                disagree(from, to, lengths, seed);
            }
        }
    }
}

/// The keepers of those who are away answer for them.
#[test]
fn so_it_may_while_programs_end() {
    for seed in 6000u64..6060 {
        let dead = Rng(seed).below(1 << 5);
        let fault = Fault { crashes: seed % 2, dead: dead | 1, ..ROUGH };
        run(&Setting { fault, ..drawn(seed) });
    }
}

#[test]
fn so_it_may_while_frames_return_after_seconds() {
    for seed in 2000..2012 {
        run(&Setting { fault: GHOSTS, ..drawn(seed) });
    }
}

#[test]
fn messages_of_several_rounds_come_whole() {
    for seed in 3000..3008 {
        run(&Setting { collectives: 24, most_bytes: 200 << 10, fault: ROUGH, ..drawn(seed) });
    }
}

/// Without results that go to all, the window moves on by syncs alone.
#[test]
fn nobody_needs_to_wait_for_a_sync_to_let_others_see_it() {
    for seed in 4000..4010 {
        let setting = drawn(seed);
        run(&Setting {
            collectives: 1000,
            most_bytes: 64,
            rest: [131, 200, 400][(seed % 3) as usize],
            to_all: false,
            fault: ROUGH,
            ..setting
        });
    }
}

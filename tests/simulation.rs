//! Whole groups in one thread: user space's protocol code and the programs' (compiled natively) over a
//! simulated network that loses, doubles, delays, reorders and spoils frames, driven by a seed.
//!
//! Checked: every collective ends, on every member, with the right value.

#[path = "simulation/adversary.rs"]
mod adversary;
#[path = "simulation/anything.rs"]
mod anything;
#[path = "simulation/deliveries.rs"]
mod deliveries;
#[path = "simulation/exchange.rs"]
mod exchange;
#[path = "simulation/explore.rs"]
mod explore;
#[path = "simulation/explore_pairs.rs"]
mod explore_pairs;
#[path = "simulation/native.rs"]
mod native;
#[path = "simulation/network.rs"]
mod network;
#[path = "simulation/pairs.rs"]
mod pairs;
#[path = "common/random.rs"]
mod random;
#[path = "simulation/ranks.rs"]
mod ranks;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use adversary::Fault;
use foldback::bindings as b;
use foldback::leaf::arithmetic::{Arithmetic, Element, Operator};
use foldback::leaf::fold::fold;
use foldback::wire::Algorithm::{self, Direct, Ring, Shards, Star};
use foldback::wire::cells::Mapped;
use foldback::wire::{Buffers, Kind, Mismatch, Over, Part, Parties, Transfer, Wire};
use network::{Network, Out, Shape};
use random::Rng;

/// Bytes of one member's contribution, a function of everything that names it.
fn contribution(seed: u64, op: usize, member: u8, bytes: usize) -> Vec<u8> {
    let mut rng = Rng(seed ^ (op as u64) << 20 ^ u64::from(member) << 50);
    (0..bytes).map(|_| rng.next() as u8).collect()
}

/// A collective that all members run.
#[derive(Clone, Copy, Debug)]
struct Collective {
    pattern: Pattern,
    /// Of the message; of a gather: most bytes of a part; of an exchange: most bytes of a parcel.
    bytes: usize,
}

type Pattern = foldback::wire::Pattern<u8, (), Parties<u8>>;

/// The arithmetic where any will do.
const LONG_SUM: Arithmetic = Arithmetic { op: Operator::Sum, element: Element::I64 };

/// Any arithmetic that programs have.
fn arithmetic(rng: &mut Rng) -> Arithmetic {
    let op = Operator::ALL[rng.below(10) as usize];
    Arithmetic { op, element: Element::INTEGERS[rng.below(8) as usize] }
}

/// The order of patterns.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// Any after any.
    Mixed,
    /// Runs of one pattern and root, of any length up to so many.
    Runs(u64),
    /// One pattern and root all the time. A fold to all comes after so many, and after so many more, as the looks do by
    /// which ranks learn whether all is well.
    Looks([usize; 2]),
    /// Exchanges of so many rows at most: among others, or alone, so that syncs alone move the window on.
    Parcels { rows: usize, alone: bool },
}

fn collectives(
    seed: u64,
    members: u8,
    count: usize,
    most_bytes: usize,
    order: Order,
) -> Vec<Collective> {
    let mut rng = Rng(seed);
    let mut run = (0, Pattern::Barrier);
    let draw = |rng: &mut Rng, kinds: u64| {
        let root = rng.below(u64::from(members)) as u8;
        match rng.below(kinds) {
            0 => Pattern::FoldToRoot(root, LONG_SUM),
            1 => Pattern::Broadcast(root),
            2 => Pattern::GatherToRoot(root, ()),
            3 => Pattern::FoldToAll(LONG_SUM),
            _ => Pattern::GatherToAll(()),
        }
    };
    (0..count)
        .map(|index| {
            let pattern = match order {
                Order::Mixed => draw(&mut rng, 5),
                Order::Parcels { alone, .. } if alone || rng.below(2) == 0 => {
                    let hub = rng.below(u64::from(members)) as u8;
                    Pattern::Exchange(parties(&mut rng, hub))
                }
                Order::Parcels { .. } => draw(&mut rng, 5),
                Order::Looks([first, second])
                    if [first - 1, first + second - 1].contains(&(index % (first + second))) =>
                {
                    Pattern::FoldToAll(LONG_SUM)
                }
                Order::Looks(_) | Order::Runs(_) if run.0 > 0 => {
                    run.0 -= 1;
                    run.1
                }
                Order::Runs(most) => {
                    run = (rng.below(most), draw(&mut rng, 5));
                    run.1
                }
                Order::Looks(_) => {
                    run = (u64::MAX, draw(&mut rng, 3));
                    run.1
                }
            };
            let barrier = matches!(pattern, Pattern::FoldToAll(_)) && rng.below(4) == 0;
            let most = match (pattern, order) {
                (Pattern::Exchange(_), Order::Parcels { rows, .. }) => most_bytes.min(rows * CHUNK),
                _ if pattern.parts().is_some() => CHUNK / usize::from(members),
                _ => most_bytes,
            };
            let bytes = if barrier { 0 } else { 8 * (1 + rng.below(most as u64 / 8)) as usize };
            let pattern = match pattern {
                _ if barrier => Pattern::Barrier,
                Pattern::FoldToAll(_) => Pattern::FoldToAll(arithmetic(&mut rng)),
                Pattern::FoldToRoot(root, _) => Pattern::FoldToRoot(root, arithmetic(&mut rng)),
                other => other,
            };
            Collective { pattern, bytes }
        })
        .collect()
}

/// Bytes of a member's part of a gather: any, also none.
fn part_bytes(c: &Collective, index: usize, member: u8) -> usize {
    Rng(index as u64 ^ u64::from(member) << 32).below(c.bytes as u64 + 1) as usize
}

/// Any of them.
fn parties<R>(rng: &mut Rng, hub: R) -> Parties<R> {
    match rng.below(4) {
        0 => Parties::Hub(hub),
        1 => Parties::Vectors,
        _ => Parties::Any,
    }
}

/// Bytes of a parcel of an exchange: half of them have none. With a hub, they go to it or come from it, by turns. A
/// vector is as long for all.
fn parcel_bytes(c: &Collective, index: usize, from: u8, to: u8) -> usize {
    let mut rng = Rng(index as u64 ^ u64::from(from) << 32 ^ u64::from(to) << 40);
    let Pattern::Exchange(parties) = c.pattern else { unreachable!("of an exchange") };
    let end = if index.is_multiple_of(2) { from } else { to };
    match rng.below(8) {
        _ if from == to || parties.hub().is_some_and(|hub| hub != end) => 0,
        0..4 => 0,
        _ if parties == Parties::Vectors => part_bytes(c, index, from),
        4 => c.bytes,
        _ => rng.below(c.bytes as u64 + 1) as usize,
    }
}

fn parcel(seed: u64, c: &Collective, index: usize, from: u8, to: u8) -> Vec<u8> {
    let is_vector = c.pattern == Pattern::Exchange(Parties::Vectors);
    let of = if is_vector { seed } else { seed ^ u64::from(to) };
    contribution(of, index, from, parcel_bytes(c, index, from, to))
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(8)
}

/// The right result of `member` at the end of collective number `index`; `None`: nothing in particular.
fn expected(seed: u64, index: usize, c: &Collective, members: u8, member: u8) -> Option<Vec<u8>> {
    match c.pattern {
        Pattern::Broadcast(root) => Some(contribution(seed, index, root, c.bytes)),
        Pattern::FoldToRoot(root, _) | Pattern::GatherToRoot(root, ()) if root != member => None,
        Pattern::Barrier => Some(Vec::new()),
        Pattern::Exchange(_) => {
            Some((0..members).flat_map(|other| parcel(seed, c, index, other, member)).collect())
        }
        Pattern::GatherToAll(()) | Pattern::GatherToRoot(..) => {
            let part = |other| contribution(seed, index, other, part_bytes(c, index, other));
            Some((0..members).flat_map(part).collect())
        }
        Pattern::FoldToAll(arithmetic) | Pattern::FoldToRoot(_, arithmetic) => {
            let mut all = contribution(seed, index, 0, c.bytes);
            for other in 1..members {
                fold(&mut all, &contribution(seed, index, other, c.bytes), arithmetic);
            }
            Some(all)
        }
    }
}

/// The data that one transfer reads and writes.
#[derive(Default)]
struct Data {
    index: usize,
    send: Vec<u8>,
    recv: Vec<u8>,
    /// Of an exchange: parcels, by member.
    to: Vec<Vec<u8>>,
    from: Vec<Vec<u8>>,
}

impl Buffers for Data {
    fn read(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.send[range]
    }

    fn write(&mut self, at: usize, data: &[u8]) {
        self.recv[at..][..data.len()].copy_from_slice(data);
    }

    fn result(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.recv[range]
    }

    fn fold(&mut self, at: usize, data: &[u8], arithmetic: Arithmetic) {
        fold(&mut self.recv[at..][..data.len()], data, arithmetic);
    }

    fn in_place(&self) -> bool {
        false
    }

    fn begin_with_own(&mut self, range: std::ops::Range<usize>) {
        self.recv[range.clone()].copy_from_slice(&self.send[range]);
    }

    fn fold_own(&mut self, range: std::ops::Range<usize>, arithmetic: Arithmetic) {
        fold(&mut self.recv[range.clone()], &self.send[range], arithmetic);
    }

    fn parcel(&self, to: u8) -> &[u8] {
        &self.to[usize::from(to)]
    }

    fn expects(&self, from: u8) -> usize {
        self.from[usize::from(from)].len()
    }

    fn take_parcel(&mut self, from: u8, at: usize, data: &[u8]) {
        self.from[usize::from(from)][at..][..data.len()].copy_from_slice(data);
    }
}

/// Most payload of a frame, at the usual MTU.
const CHUNK: usize = b::FB_CHUNK_BYTES as usize;
/// The least cells that there may be.
const CELLS: Shape = Shape { window: 256, chunk_bytes: CHUNK as u16 };

/// The transfers of a collective at one member. Hosts with several ranks divide messages: here odd
/// members do so, and the others' must fit. By shards, all divide alike.
fn transfers(
    seed: u64,
    index: usize,
    c: &Collective,
    (members, me): (u8, u8),
    algorithm: Algorithm,
    chunk: usize,
) -> Vec<(Transfer, Data)> {
    let all = |until| (0..until).map(|other| padded(part_bytes(c, index, other))).sum();
    let (offset, extent): (usize, usize) = (all(me), all(members));
    let part = Part { offset: offset as u16, extent: extent.max(8) as u16 };
    let kind = c.pattern.map(|root| root, |()| part, |parties| *parties);
    if let Pattern::Exchange(_) = c.pattern {
        let to = (0..members).map(|other| parcel(seed, c, index, me, other)).collect();
        let from = (0..members).map(|other| vec![0xee; parcel_bytes(c, index, other, me)]);
        let data = Data { index, to, from: from.collect(), ..Data::default() };
        return vec![(Transfer::new(kind, c.bytes), data)];
    }
    if c.pattern.parts().is_some() {
        let send = contribution(seed, index, me, part_bytes(c, index, me));
        let transfer = Transfer::new(kind, send.len()).of(extent as u64);
        let recv = vec![0xee; extent.max(8)];
        return vec![(transfer, Data { index, send, recv, ..Data::default() })];
    }
    let divides = if algorithm == Shards { seed } else { u64::from(me) } % 2 == 1;
    let step = if divides { 2 * chunk } else { usize::MAX };
    let message = contribution(seed, index, me, c.bytes);
    let mut from = 0;
    let mut all = Vec::new();
    while from < c.bytes || all.is_empty() {
        let send = message[from..c.bytes.min(from.saturating_add(step))].to_vec();
        let transfer = Transfer::part_of_message(kind, send.len(), from / chunk);
        let transfer = transfer.of(c.bytes as u64);
        from += send.len();
        let recv = vec![0xee; send.len()];
        all.push((transfer, Data { index, send, recv, ..Data::default() }));
    }
    all
}

/// One member: where it is in the plan.
#[derive(Default)]
struct Member {
    /// Transfers not submitted yet, and collectives whose transfers have been made.
    ahead: VecDeque<(Transfer, Data)>,
    planned: usize,
    under_way: usize,
    /// The collective whose results come in, and what has come.
    over: usize,
    got: Vec<u8>,
}

impl Member {
    /// A transfer is over: checks the collective if that was its last.
    fn take(&mut self, data: Data, plan: &[Collective], seed: u64, members: u8, me: u8) {
        self.under_way -= 1;
        let c = &plan[data.index];
        match c.pattern {
            Pattern::GatherToAll(()) | Pattern::GatherToRoot(..) => {
                let mut at = 0;
                for other in 0..members {
                    let bytes = part_bytes(c, data.index, other);
                    self.got.extend(&data.recv[at..at + bytes]);
                    at += padded(bytes);
                }
            }
            Pattern::Broadcast(root) if root == me => self.got.extend(&data.send),
            Pattern::Exchange(_) => self.got.extend(data.from.concat()),
            _ => self.got.extend(&data.recv),
        }
        let last = self.ahead.front().is_none_or(|(_, next)| next.index != data.index);
        let want = expected(seed, data.index, c, members, me);
        let complete = match &want {
            Some(want) => self.got.len() == want.len(),
            None => last,
        };
        if complete {
            assert!(
                want.is_none_or(|want| want == self.got),
                "wrong, seed {seed}, member {me}, number {}: {c:?}",
                data.index
            );
            self.got.clear();
            self.over = data.index + 1;
        }
    }
}

#[derive(Clone, Copy)]
struct Setting {
    seed: u64,
    members: u8,
    collectives: usize,
    most_bytes: usize,
    window: u32,
    /// Most payload of a frame.
    chunk: usize,
    /// Transfers that a member has under way at once, at most.
    depth: usize,
    algorithm: Algorithm,
    /// Microseconds that set-up has measured; 0: nothing.
    round_trip: u64,
    order: Order,
    xdp: bool,
    fault: Fault,
}

/// The cost of a run.
struct Took {
    steps: u64,
    /// Microseconds, of the simulated clock.
    time: u64,
    /// Put on the wire: with data, and without.
    frames: [u64; 2],
    /// Chunks that came to their end by the second transport.
    rescued: u64,
    /// Frames dropped for their checksum.
    spoilt: u64,
    /// Payloads of broadcasts and pieces among them that their receivers found to be spoilt.
    unsound: u64,
}

/// Runs all collectives on all members, in an order that the seed chooses.
fn run(setting: &Setting) -> Took {
    let Setting { seed, members, window, .. } = *setting;
    let (count, most_bytes) = (setting.collectives, setting.most_bytes);
    let plan = collectives(seed, members, count, most_bytes, setting.order);
    let cells = Shape { window, chunk_bytes: setting.chunk as u16 };
    let network = Network::new(seed, cells, members, setting.xdp, setting.fault);
    let mut wires: Vec<_> = (0..members).map(|me| network.wire(me)).collect();
    let round_trip = Duration::from_micros(setting.round_trip);
    wires.iter_mut().for_each(|wire| wire.expect(round_trip));
    let mut all: Vec<_> = (0..members).map(|_| Member::default()).collect();
    let mut rng = Rng(!seed);
    let start = Instant::now();
    let mut steps = 0u64;
    let mut idle = 0u64;
    while all.iter().any(|member| member.over < plan.len()) {
        steps += 1;
        assert!(
            idle < 2_000_000 && (!steps.is_multiple_of(1024) || start.elapsed() < MOST),
            "stuck, seed {seed}, {:?}, window {window}: {:?}, {:?}",
            setting.order,
            all.iter().map(|member| member.over).collect::<Vec<_>>(),
            network.counters(),
        );
        if rng.below(2) == 0 && network.deliver() {
            idle = 0;
            continue;
        }
        let me = rng.below(u64::from(members)) as usize;
        let (member, wire) = (&mut all[me], &mut wires[me]);
        if member.ahead.is_empty() && member.planned < plan.len() {
            let (index, me, algorithm) = (member.planned, me as u8, setting.algorithm);
            let (c, who) = (&plan[index], (members, me));
            member.ahead.extend(transfers(seed, index, c, who, algorithm, setting.chunk));
            member.planned += 1;
        }
        if member.under_way < setting.depth
            && (member.under_way == 0 || rng.below(2) == 0)
            && let Some((transfer, data)) = member.ahead.pop_front()
        {
            member.under_way += 1;
            wire.submit(transfer.by(setting.algorithm), data);
        }
        wire.poll(|| start + Duration::from_micros(network.now()));
        match wire.take_over() {
            Some(over) => {
                assert_eq!(over.mismatch, None, "seed {seed}");
                idle = 0;
                member.take(over.buffers, &plan, seed, members, me as u8);
            }
            None => {
                idle += 1;
                network.pass_time();
            }
        }
    }
    let rescued = wires.iter().map(|wire| wire.transport.rescued()).sum::<u64>();
    let counters = network.counters();
    let spoilt: u64 = counters.iter().map(|host| host.drop_forged + host.drop_corrupt).sum();
    let unsound = wires.iter().map(|wire| wire.unsound).sum::<u64>();
    assert!(spoilt + unsound == 0 || setting.fault.flips > 0, "seed {seed}");
    Took { steps, time: network.now(), frames: network.frames(), rescued, spoilt, unsound }
}

/// Far more than any run takes; a hang must end as a failure.
const MOST: Duration = Duration::from_secs(120);

const CALM: Fault = Fault {
    loss: 0,
    duplication: 0,
    delay: 0,
    most_delay: 0,
    flips: 0,
    busy: 0,
    moves: 0,
    crashes: 0,
    dead: 0,
};
const ROUGH: Fault = Fault {
    loss: 20,
    duplication: 20,
    delay: 50,
    most_delay: 3_000,
    flips: 20,
    busy: 20,
    moves: 0,
    crashes: 0,
    dead: 0,
};
/// Frames that come back after seconds.
const GHOSTS: Fault =
    Fault { loss: 50, duplication: 100, delay: 100, most_delay: 2_000_000, flips: 50, ..ROUGH };

const USUAL: Setting = Setting {
    seed: 1,
    members: 4,
    collectives: 300,
    most_bytes: 8192,
    window: 256,
    chunk: CHUNK,
    depth: 1,
    algorithm: Star,
    round_trip: 0,
    order: Order::Mixed,
    xdp: false,
    fault: ROUGH,
};

/// One of many: its size and ways vary with the seed.
fn drawn(seed: u64) -> Setting {
    Setting {
        seed,
        members: 2 + (seed % 7) as u8,
        depth: 1 + (seed % 5) as usize * 7,
        algorithm: [Direct, Star, Shards, Ring, Shards, Star][(seed % 6) as usize],
        xdp: seed.is_multiple_of(2),
        ..USUAL
    }
}

#[test]
fn a_calm_network_needs_no_repair() {
    for (members, algorithm, xdp) in [
        (2, Star, false),
        (2, Direct, true),
        (3, Star, true),
        (8, Star, false),
        (8, Direct, false),
        (64, Star, true),
        (2, Shards, false),
        (3, Shards, true),
        (16, Shards, false),
        (2, Ring, false),
        (5, Ring, true),
        (64, Ring, false),
    ] {
        let took =
            run(&Setting { algorithm, members, most_bytes: 4096, xdp, fault: CALM, ..USUAL });
        assert!(took.steps > 300);
    }
}

/// With one frame in ten lost, fewer than twice the frames are sent. Questions count too, though they carry no data.
#[test]
fn what_is_lost_is_sent_again_and_little_else() {
    let ways = [(2, Star), (2, Direct), (4, Star), (8, Star), (4, Shards), (2, Ring), (4, Ring)];
    for (members, algorithm) in ways {
        let most_bytes = if algorithm == Shards { 65536 } else { 4096 };
        let frames = |loss| {
            let fault = Fault { loss, delay: 1000, most_delay: 100, ..CALM };
            let setting = Setting { members, algorithm, most_bytes, fault, ..USUAL };
            let all = (1..5).map(|seed| run(&Setting { seed, ..setting }).frames);
            all.fold([0, 0], |sum, frames| [sum[0] + frames[0], sum[1] + frames[1]])
        };
        let ([without, _], [data, asked]) = (frames(0), frames(100));
        let percent = |frames: u64| 100 * frames / without;
        println!("{members} {algorithm:?}: {} % {} %", percent(data), percent(data + asked));
        assert!(percent(data + asked) < 200, "{members} {algorithm:?}: {data}, {asked}, {without}");
    }
}

/// If frames take longer than a member's patience at first, it soon waits longer.
#[test]
fn what_is_only_slow_is_hardly_asked_for() {
    for (members, algorithm) in [(2, Star), (4, Star), (8, Star), (3, Ring)] {
        let took = |most_delay| {
            let fault = Fault { delay: 1000, most_delay, ..CALM };
            let setting = Setting { members, algorithm, most_bytes: 262_144, fault, ..USUAL };
            run(&Setting { collectives: 60, depth: 8, ..setting }).frames.iter().sum::<u64>()
        };
        let [fast, slow] = [took(100), took(20_000)];
        println!("{members} {algorithm:?}: {} %", 100 * slow / fast);
        assert!(slow < 2 * fast, "{members} {algorithm:?}: {slow}, {fast}");
    }
}

/// If set-up has measured a long way, nothing is asked for in less than a round trip. That includes collectives
/// of a chunk each, which ask for too little at a time to learn from it.
#[test]
fn a_way_that_is_known_to_be_long_is_given_its_time() {
    for (members, algorithm) in [(2, Star), (2, Direct), (4, Star), (8, Star)] {
        let fault = Fault { delay: 1000, most_delay: 12_000, ..CALM };
        let setting = Setting { members, algorithm, most_bytes: 8, fault, ..USUAL };
        let asked = |round_trip| run(&Setting { round_trip, ..setting }).frames[1];
        let [unknown, known] = [asked(0), asked(14_000)];
        println!("{members} {algorithm:?}: {unknown}, {known}");
        assert!(4 * known < unknown, "{members} {algorithm:?}: {unknown}, {known}");
    }
}

/// If some host's programs are gone, all frames are sent both ways. Lost ones are waited for as long as ever, since
/// a frame that comes twice was not asked for too early. Simulated time.
#[test]
fn what_comes_both_ways_makes_nobody_wait_longer() {
    for (members, algorithm) in [(4, Star), (4, Shards), (3, Ring)] {
        let most_bytes = if algorithm == Shards { 65536 } else { 4096 };
        let took = |dead| {
            let fault = Fault { loss: 100, delay: 1000, most_delay: 100, dead, ..CALM };
            let setting = Setting { members, algorithm, most_bytes, fault, ..USUAL };
            (1..5).map(|seed| run(&Setting { seed, ..setting }).time).sum::<u64>()
        };
        let [one_way, both_ways] = [took(0), took(0b10)];
        println!("{members} {algorithm:?}: {} %", 100 * both_ways / one_way);
        assert!(both_ways < 3 * one_way, "{members} {algorithm:?}: {both_ways}, {one_way}");
    }
}

#[test]
fn lost_doubled_and_reordered_frames_are_repaired() {
    let mut unsound = 0;
    for seed in 0..50 {
        let took = run(&drawn(seed));
        assert!(took.spoilt > 0, "seed {seed}");
        unsound += took.unsound;
    }
    assert!(unsound > 0, "no payload of a broadcast or a piece was spoilt");
}

#[test]
fn frames_that_return_after_seconds_do_no_harm() {
    for seed in 100..120 {
        run(&Setting {
            members: 4,
            collectives: 1000,
            most_bytes: 3000,
            algorithm: [Direct, Star, Shards, Ring][(seed % 4) as usize],
            fault: GHOSTS,
            ..drawn(seed)
        });
    }
}

/// Bonds fail over, virtual machines move. Kernels send frames to where they last heard of a host, and
/// only its next frame tells them.
#[test]
fn hosts_may_move_in_mid_run() {
    for seed in 300u64..360 {
        let fault = if seed.is_multiple_of(4) { CALM } else { ROUGH };
        run(&Setting { fault: Fault { moves: 20, ..fault }, ..drawn(seed) });
    }
}

/// Programs are detached and come back, on any host at any time; the second transport works the same cells
/// meanwhile, or with them.
#[test]
fn programs_may_end_in_mid_run() {
    let mut rescued = 0;
    for seed in 400u64..460 {
        let fault = if seed.is_multiple_of(4) { CALM } else { ROUGH };
        rescued += run(&Setting { fault: Fault { crashes: 1, ..fault }, ..drawn(seed) }).rescued;
    }
    assert!(rescued > 0);
}

#[test]
fn programs_may_be_gone_for_good() {
    for seed in 500u64..560 {
        let fault = if seed.is_multiple_of(4) { CALM } else { ROUGH };
        let setting = drawn(seed);
        let all = (1 << setting.members) - 1;
        let dead = if seed.is_multiple_of(3) { all } else { Rng(seed).below(all) + 1 };
        let took = run(&Setting { fault: Fault { dead, ..fault }, ..setting });
        assert!(took.rescued > 0, "seed {seed}");
    }
}

/// A window of few cells that is used up ten times and more, with folds to all at any distance from the syncs between
/// and from each other. In every state that comes, a member that may not start a chunk has something to ask for.
/// Otherwise no member would go on.
#[test]
fn a_fold_to_all_may_come_anywhere_between_syncs() {
    for (window, ways) in [(8, &[Star, Direct, Ring][..]), (16, &[Star]), (32, &[Shards])] {
        let most = window as usize + 2;
        for gaps in (1..most * most).map(|pair| [1 + pair / most, 1 + pair % most]) {
            for algorithm in ways {
                let seed = (gaps[0] * most + gaps[1]) as u64;
                run(&Setting {
                    seed,
                    members: 2,
                    collectives: 12 * window as usize,
                    most_bytes: 8,
                    window,
                    depth: [1, 20][gaps[0] % 2],
                    algorithm: *algorithm,
                    order: Order::Looks(gaps),
                    fault: CALM,
                    ..USUAL
                });
            }
        }
    }
}

/// Tiny windows in long runs of one pattern, under any fault; stripes take their numbers of the sequence at once.
#[test]
fn tiny_windows_wrap_in_any_order() {
    for seed in 700u64..900 {
        let fault = [CALM, ROUGH, ROUGH, GHOSTS][(seed % 4) as usize];
        let window = [8, 16, 32, 64, 128][(seed / 4 % 5) as usize];
        run(&Setting {
            collectives: 12 * window as usize,
            most_bytes: 2 * CHUNK,
            window,
            order: Order::Runs(window.into()),
            fault: Fault { crashes: u64::from(seed % 7 == 0), ..fault },
            ..drawn(seed)
        });
    }
}

#[test]
fn long_messages_wrap_the_window_many_times() {
    for seed in 200u64..206 {
        run(&Setting {
            members: 2 + (seed % 3) as u8,
            collectives: 12,
            most_bytes: 1 << 20,
            window: if seed.is_multiple_of(2) { 256 } else { 1024 },
            algorithm: [Direct, Shards, Star, Ring][(seed % 4) as usize],
            xdp: false,
            ..drawn(seed)
        });
    }
}

/// The chunks of jumbo frames, which are sent seven at once, in as few cells as there may be.
#[test]
fn long_chunks_are_repaired_as_others_are() {
    for seed in 600u64..624 {
        let fault = if seed.is_multiple_of(4) { CALM } else { ROUGH };
        let chunk = if seed.is_multiple_of(3) { 4000 } else { b::FB_JUMBO_BYTES as usize };
        let second = Fault { crashes: u64::from(seed.is_multiple_of(5)), ..fault };
        run(&Setting { chunk, collectives: 40, most_bytes: 200_000, fault: second, ..drawn(seed) });
    }
}

#[test]
fn the_programs_fold_as_user_space_does() {
    let mut rng = Rng(5);
    for op in Operator::ALL {
        for element in Element::INTEGERS {
            let arithmetic = Arithmetic { op, element };
            for bytes in [8, 56, 64, 72, 1400, 1408, 8896] {
                // Small values too: logical ops must meet zeroes, comparisons equals.
                let small = rng.below(2) == 0;
                let mut draw = || {
                    let mut bytes: Vec<u8> = (0..bytes).map(|_| rng.next() as u8).collect();
                    if small {
                        bytes.iter_mut().for_each(|x| *x &= *x >> 1 & *x >> 3 & 0x81);
                    }
                    bytes
                };
                let (x, y) = (draw(), draw());
                let mut want = x.clone();
                fold(&mut want, &y, arithmetic);
                assert_eq!(native::fold(&x, &y, arithmetic), want, "{arithmetic:?}");
            }
        }
    }
}

/// A member, and its transfers that are over.
type Stepped<B> = (Wire<Mapped, Out, B>, Vec<Over<B>>);

/// Moves the members of a group on until `is_over` says that they have got where they should.
fn step_until<B: Buffers>(
    network: &Network,
    members: &mut [Stepped<B>],
    is_over: impl Fn(&[Stepped<B>]) -> bool,
    what: &str,
) {
    let start = Instant::now();
    let mut idle = 0;
    while !is_over(members) {
        idle += 1;
        assert!(idle < 2_000_000 && start.elapsed() < MOST, "stuck: {what}");
        if network.deliver() {
            continue;
        }
        for (wire, over) in &mut *members {
            wire.poll(|| start + Duration::from_micros(network.now()));
            over.extend(wire.take_over());
            network.pass_time();
        }
    }
}

/// A wrong program: member `odd` has another length than all others. A member that gets another's data
/// is told, no member waits for ever, and the next collective is right.
fn disagree(
    kind: Kind,
    algorithm: Algorithm,
    members: u8,
    odd: u8,
    lengths: [usize; 2],
    seed: u64,
) {
    let network = Network::new(seed, CELLS, members, seed.is_multiple_of(2), ROUGH);
    let what =
        format!("{kind:?} by {algorithm:?}, {odd} of {members} odd, {lengths:?}, seed {seed}");
    let mut wires: Vec<_> = (0..members)
        .map(|me| {
            let mut wire = network.wire(me);
            let bytes = lengths[usize::from(me == odd)];
            wire.submit(Transfer::new(kind, bytes).by(algorithm), vec![1; bytes]);
            wire.submit(Transfer::new(Kind::FoldToAll(LONG_SUM), 8), vec![1; 8]);
            (wire, Vec::new())
        })
        .collect();
    step_until(&network, &mut wires, |all| all.iter().all(|(_, over)| over.len() == 2), &what);
    for (me, (wire, over)) in (0..members).zip(wires) {
        assert!(!wire.out_of_step, "{what}");
        let differs_from = |other: u8| (me == odd) != (other == odd);
        let concerned = match kind {
            // A member that passes a shard on may tell another that is alike.
            Kind::Broadcast(root) if algorithm == Shards && !differs_from(root) => None,
            Kind::Broadcast(root) => Some(differs_from(root)),
            Kind::FoldToRoot(root, _) => Some(root == me),
            _ => Some(true),
        };
        let here = lengths[usize::from(me == odd)] as u64;
        let told = over[0].mismatch;
        assert!(concerned.is_none_or(|concerned| concerned == told.is_some()), "{me}: {what}");
        if let Some(Mismatch::Length { here: said, elsewhere }) = told {
            let most = lengths.iter().max().copied().unwrap() as u64;
            assert!(said == here && elsewhere <= most, "{me}: {told:?}, {what}");
        }
        assert_eq!(over[1].mismatch, None, "{me}: {what}");
        assert_eq!(over[1].buffers, [members; 8], "{me}: {what}");
    }
}

/// Of many chunks: a member that finds it out says so, and at least one does.
#[test]
fn members_that_do_not_agree_on_a_long_message_are_out_of_step() {
    for seed in 0..10 {
        for kind in [Kind::FoldToAll(LONG_SUM), Kind::FoldToRoot(0, LONG_SUM), Kind::Broadcast(0)] {
            for (lengths, ways) in [
                ([8, 4000], [Star, Star]),
                ([4000, 8], [Star, Star]),
                ([4000, 40_000], [Star, Shards]),
                ([40_000, 4000], [Shards, Star]),
            ] {
                let network = Network::new(seed, CELLS, 3, seed.is_multiple_of(2), ROUGH);
                let mut wires: Vec<_> = (0..3)
                    .map(|me| {
                        let mut wire = network.wire(me);
                        let odd = usize::from(me == 2);
                        let transfer = Transfer::new(kind, lengths[odd]);
                        wire.submit(transfer.by(ways[odd]), vec![1; lengths[odd]]);
                        for _ in 0..20 {
                            wire.submit(Transfer::new(Kind::FoldToAll(LONG_SUM), 8), vec![1; 8]);
                        }
                        (wire, Vec::new())
                    })
                    .collect();
                let found = |all: &[Stepped<_>]| all.iter().any(|(wire, _)| wire.out_of_step);
                let what = format!("{kind:?}, {lengths:?}, seed {seed}");
                step_until(&network, &mut wires, found, &what);
            }
        }
    }
}

#[test]
fn members_that_do_not_agree_on_a_length_go_on() {
    for seed in 0..10 {
        for (kind, algorithms) in [
            (Kind::FoldToAll(LONG_SUM), &[Star, Direct, Shards, Ring][..]),
            (Kind::FoldToRoot(1, LONG_SUM), &[Star]),
            (Kind::Broadcast(1), &[Star, Shards]),
        ] {
            for algorithm in algorithms {
                for members in [2, 3, 5] {
                    for odd in [0, 1, members - 1] {
                        for lengths in [[8, 16], [16, 8], [1400, 8]] {
                            disagree(kind, *algorithm, members, odd, lengths, seed);
                        }
                    }
                }
            }
        }
    }
}

/// Groups under non-blocking collectives: hundreds under way, some of them late.
#[test]
fn many_transfers_are_under_way_at_once() {
    for seed in 300..320 {
        run(&Setting {
            members: 2 + (seed % 4) as u8,
            collectives: 1500,
            most_bytes: 4096,
            depth: 200,
            algorithm: [Direct, Star, Shards, Ring][(seed % 4) as usize],
            ..drawn(seed)
        });
    }
}

//! Small configurations, exhaustively: every run that deviates from a deterministic order a few times at most.
//!
//! Without deviations frames arrive in the order in which they were sent, and members take turns. Deviations
//! are a lost, doubled or late frame, a locked cell, a moving host, programs that end or come back, and a
//! member that is away until all others wait. (Delay-bounded scheduling: Emmi, Qadeer and Rakamarić, POPL
//! 2011.)
//!
//! Checked: every collective ends, on every member, with the right value.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use foldback::wire::Algorithm::{self, Direct, Ring, Shards, Star};
use foldback::wire::{Kind, Parties, Transfer};

use crate::adversary::{self, Choices, Deviation, Took};
use crate::network::{Network, Shape};
use crate::{
    CELLS, CHUNK, Collective, Data, LONG_SUM, Member, Order, Pattern, collectives, parcel_bytes,
    transfers,
};

#[derive(Clone, Copy, Debug)]
struct Setting {
    members: u8,
    algorithm: Algorithm,
    xdp: bool,
    depth: usize,
    window: u32,
    /// The number of deviations of a run, and of first choices that may have them.
    deviations: usize,
    among: usize,
}

/// Six collectives of one chunk, of every pattern; by shards, which is for long messages, of some chunks.
fn six(algorithm: Algorithm) -> Vec<Collective> {
    let bytes = if algorithm == Shards { 2 * CHUNK } else { 16 };
    let of = |pattern, bytes| Collective { pattern, bytes };
    vec![
        of(Pattern::FoldToAll(LONG_SUM), bytes),
        of(Pattern::Broadcast(0), bytes),
        of(Pattern::FoldToRoot(1, LONG_SUM), bytes),
        of(Pattern::GatherToAll(()), 16),
        of(Pattern::Broadcast(1), bytes),
        of(Pattern::FoldToAll(LONG_SUM), bytes),
    ]
}

/// Far more rounds than any run takes.
const MOST_ROUNDS: u64 = 20_000;
const SEED: u64 = 1;

/// One run; returns the number of alternatives of each of its choices, and its steps.
fn run(setting: &Setting, plan: &[Collective], deviations: &[Deviation]) -> (Vec<usize>, u64) {
    let Setting { members, algorithm, window, .. } = *setting;
    let choices = Rc::new(RefCell::new(Choices::new(deviations)));
    let cells = Shape { window, ..CELLS };
    let network = Network::under(Box::new(choices.clone()), cells, members, setting.xdp, true);
    let mut wires: Vec<_> = (0..members).map(|me| network.wire(me)).collect();
    let mut all: Vec<_> = (0..members).map(|_| Member::default()).collect();
    let start = Instant::now();
    let (mut rounds, mut steps) = (0u64, 0);
    let mut away = vec![false; members.into()];
    while all.iter().any(|member| member.over < plan.len()) {
        rounds += 1;
        assert!(rounds < MOST_ROUNDS, "stuck: {:?}", network.counters());
        let mut moved = false;
        while network.deliver() {
            steps += 1;
            moved = true;
        }
        for me in 0..members {
            let (member, wire) = (&mut all[usize::from(me)], &mut wires[usize::from(me)]);
            if member.over == plan.len() || away[usize::from(me)] {
                continue;
            }
            if choices.borrow_mut().choose(1) == 1 {
                away[usize::from(me)] = true;
                continue;
            }
            steps += 1;
            while member.planned < plan.len() && member.ahead.len() < setting.depth {
                let index = member.planned;
                member.ahead.extend(transfers(
                    SEED,
                    index,
                    &plan[index],
                    (members, me),
                    algorithm,
                    CHUNK,
                ));
                member.planned += 1;
            }
            while member.under_way < setting.depth
                && let Some((transfer, data)) = member.ahead.pop_front()
            {
                member.under_way += 1;
                wire.submit(transfer.by(algorithm), data);
            }
            moved |= wire.poll(|| start + Duration::from_micros(network.now()));
            while let Some(over) = wire.take_over() {
                assert_eq!(over.mismatch, None);
                member.take(over.buffers, plan, SEED, members, me);
                moved = true;
            }
        }
        if moved {
            network.pass_time();
        } else {
            away.fill(false);
            network.skip();
        }
    }
    drop(wires);
    drop(network);
    let choices = Rc::into_inner(choices).expect("the network is gone").into_inner();
    (choices.alternatives, steps)
}

fn explore(setting: &Setting, plan: &[Collective]) -> Took {
    let Setting { deviations, among, .. } = *setting;
    adversary::explore(setting, deviations, among, &|deviations| run(setting, plan, deviations))
}

/// One reduction to all, of which only the last member waits for the result: the others have begun it and are
/// elsewhere. Returns the number of alternatives of each choice.
fn only_the_last_waits(algorithm: Algorithm, members: u8, deviations: &[Deviation]) -> Vec<usize> {
    let choices = Rc::new(RefCell::new(Choices::new(deviations)));
    let network = Network::under(Box::new(choices.clone()), CELLS, members, false, true);
    let start = Instant::now();
    let mut wires: Vec<_> = (0..members)
        .map(|me| {
            let mut wire = network.wire(me);
            wire.submit(Transfer::new(Kind::FoldToAll(LONG_SUM), 8).by(algorithm), vec![1; 8]);
            wire.poll(|| start);
            wire
        })
        .collect();
    let last = wires.last_mut().expect("some member");
    for round in 0.. {
        assert!(
            round < MOST_ROUNDS,
            "{algorithm:?} stuck with {deviations:?}: {:?}",
            network.counters()
        );
        while network.deliver() {}
        last.poll(|| start + Duration::from_micros(network.now()));
        if let Some(over) = last.take_over() {
            assert_eq!(over.buffers, [members; 8], "{deviations:?}");
            break;
        }
        network.skip();
    }
    choices.borrow().alternatives.clone()
}

/// The choices, from one on, that are frames'.
fn frames(choices: &[usize], from: usize) -> Vec<usize> {
    let all = choices.iter().enumerate().skip(from);
    all.filter(|(_, alternatives)| **alternatives > 1).map(|(at, _)| at).collect()
}

/// Their kernels have what they gave, and are asked for it by the aggregator's, whose rank is away, too. So is what
/// one more loss keeps them from saying.
#[test]
fn a_lost_frame_is_repaired_without_those_who_are_away() {
    for (members, algorithm) in [(2, Star), (3, Star), (5, Star), (2, Ring), (3, Ring), (5, Ring)] {
        let run = |deviations: &[Deviation]| only_the_last_waits(algorithm, members, deviations);
        let mut lost = 0;
        for first in frames(&run(&[]), 0) {
            lost += 1;
            // The first alternative of a frame is its loss.
            let choices = run(&[(first, 1)]);
            for second in frames(&choices, first + 1) {
                run(&[(first, 1), (second, 1)]);
            }
        }
        assert!(lost >= 2 * (u32::from(members) - 1), "{lost}");
    }
}

/// All members but the last have a parcel of two rows for it, expect nothing, and have left their calls. Returns the
/// number of alternatives of each choice.
fn only_the_last_gets_parcels(
    members: u8,
    parties: Parties<u8>,
    deviations: &[Deviation],
) -> Vec<usize> {
    let choices = Rc::new(RefCell::new(Choices::new(deviations)));
    let network = Network::under(Box::new(choices.clone()), CELLS, members, false, true);
    let start = Instant::now();
    let (last, most) = (members - 1, CHUNK + 8);
    let parcel = |from: u8| if from == last { Vec::new() } else { vec![from + 1; most] };
    let submit = |me: u8| {
        let mut wire = network.wire(me);
        let to = |other| if other == last { parcel(me) } else { Vec::new() };
        let from = |other| if me == last { vec![0; parcel(other).len()] } else { Vec::new() };
        let [to, from] = [(0..members).map(to).collect(), (0..members).map(from).collect()];
        let data = Data { to, from, ..Data::default() };
        wire.submit(Transfer::new(Kind::Exchange(parties), most), data);
        wire.poll(|| start);
        wire
    };
    // They are kept: their keepers' hooks answer, as their kernels do.
    let mut left: Vec<_> = (0..last).map(submit).collect();
    assert!(left.iter_mut().all(|wire| wire.take_over().is_some() && wire.is_idle()));
    let mut waits = submit(last);
    for round in 0.. {
        assert!(round < MOST_ROUNDS, "stuck with {deviations:?}: {:?}", network.counters());
        while network.deliver() {}
        waits.poll(|| start + Duration::from_micros(network.now()));
        if let Some(over) = waits.take_over() {
            let all: Vec<_> = (0..members).map(parcel).collect();
            assert!(over.buffers.from == all && over.mismatch.is_none(), "{deviations:?}");
            break;
        }
        network.skip();
    }
    choices.borrow().alternatives.clone()
}

/// Their kernels have the parcels, whatever two frames are lost: also a question, or its answer.
#[test]
fn a_lost_parcel_is_repaired_without_those_who_have_left() {
    use Parties::{Any, Hub, Vectors};
    let all = |members| [Any, Hub(members - 1), Vectors].map(|parties| (members, parties));
    for (members, parties) in [2, 3, 5].into_iter().flat_map(all) {
        let mut lost = 0;
        let of =
            |deviations: &[Deviation]| only_the_last_gets_parcels(members, parties, deviations);
        for first in frames(&of(&[]), 0) {
            lost += 1;
            // The first alternative of a frame is its loss.
            for second in frames(&of(&[(first, 1)]), first + 1) {
                of(&[(first, 1), (second, 1)]);
            }
        }
        assert_eq!(lost, 2 * (u32::from(members) - 1));
    }
}

const TWO: Setting = Setting {
    members: 2,
    algorithm: Star,
    xdp: false,
    depth: 2,
    window: CELLS.window,
    deviations: 2,
    among: usize::MAX,
};

#[test]
fn two_members_bear_any_two_deviations() {
    for algorithm in [Star, Direct, Ring] {
        for xdp in [false, true] {
            let took = explore(&Setting { algorithm, xdp, ..TWO }, &six(algorithm));
            assert!(took.runs > 10_000, "{took:?}");
        }
    }
}

#[test]
fn three_members_bear_any_two_deviations() {
    let setting = Setting { members: 3, deviations: 2, ..TWO };
    explore(&setting, &six(Star));
    for xdp in [false, true] {
        explore(&Setting { algorithm: Ring, xdp, ..setting }, &six(Ring));
    }
}

#[test]
fn shards_bear_any_deviation() {
    for members in [2, 3] {
        let setting = Setting { members, algorithm: Shards, deviations: 1, ..TWO };
        explore(&setting, &six(Shards));
    }
}

/// Exchanges of a few rows, between other collectives.
#[test]
fn exchanges_bear_any_two_deviations() {
    let of = |pattern, bytes| Collective { pattern, bytes };
    let (exchange, sum) = (Pattern::Exchange(Parties::Any), Pattern::FoldToAll(LONG_SUM));
    let mut plan = vec![of(exchange, 2 * CHUNK + 8); 6];
    plan[4] = of(Pattern::Exchange(Parties::Vectors), 2 * CHUNK + 8);
    plan[5] = of(Pattern::Exchange(Parties::Hub(1)), 2 * CHUNK + 8);
    plan[0] = of(sum, 16);
    plan[3] = of(Pattern::Broadcast(1), 16);
    for (members, deviations, least) in [(2, 2, 4), (3, 1, 10)] {
        let pairs = |c: &Collective, index| {
            let all = (0..members).flat_map(|from| (0..members).map(move |to| (from, to)));
            all.filter(|(from, to)| parcel_bytes(c, index, *from, *to) > 0).count()
        };
        let of_exchanges =
            plan.iter().enumerate().filter(|(_, c)| matches!(c.pattern, Pattern::Exchange(_)));
        let parcels = of_exchanges.map(|(index, c)| pairs(c, index)).sum::<usize>();
        assert!(parcels >= least, "{members}: {parcels}");
        for xdp in [false, true] {
            explore(&Setting { members, deviations, xdp, ..TWO }, &plan);
        }
    }
}

/// More collectives than cells, so that each cell is taken again, ten times and more.
#[test]
fn a_window_may_wrap_under_any_deviation() {
    for (window, order) in [(8, Order::Mixed), (8, Order::Runs(12)), (16, Order::Looks([12, 9]))] {
        let plan = collectives(SEED, 2, 12 * window as usize, 16, order);
        for depth in [1, 20] {
            explore(&Setting { window, depth, deviations: 1, ..TWO }, &plan);
        }
    }
}

/// A fold to all at each distance from a sync, up to the edge of the window.
#[test]
fn a_tiny_window_bears_any_two_deviations() {
    for every in 6..=9 {
        let plan = collectives(SEED, 2, 14, 8, Order::Looks([every; 2]));
        let took = explore(&Setting { window: 8, depth: 1, ..TWO }, &plan);
        assert!(took.runs > 1_000, "{took:?}");
    }
}

/// A member that is away must find the first broadcast when it comes back. Another one may miss a broadcast, say so in
/// the next sync, and then be away. The roots run ahead, but must not take the cell of what it will ask for. So they may
/// take neither each other's word nor the last member's in a sync for all members'.
#[test]
fn broadcasts_may_run_ahead_of_a_member() {
    let broadcast = |root| Collective { pattern: Pattern::Broadcast(root), bytes: 16 };
    let setting = Setting { members: 3, depth: 8, ..TWO };
    let plan: Vec<_> = (0..512).map(|index| broadcast((index % 2) as u8)).collect();
    explore(&Setting { among: 8, ..setting }, &plan);
    let plan: Vec<_> = (0..28).map(|index| broadcast((index % 2 * 2) as u8)).collect();
    let took = explore(&Setting { window: 16, among: 40, ..setting }, &plan);
    assert!(took.runs > 5_000, "{took:?}");
}

/// Minutes: for `make test-long`.
#[test]
#[ignore = "long: minutes"]
fn two_members_bear_any_three_deviations() {
    for algorithm in [Star, Direct] {
        explore(&Setting { algorithm, xdp: true, deviations: 3, ..TWO }, &six(algorithm));
    }
}

//! Exchanges: every member's parcels to others, of any sizes, also none.
//!
//! Checked: as in the other runs. Besides, a member that has left its call need do nothing more for its parcels to
//! arrive.

use foldback::bindings as b;
use foldback::wire::Algorithm::{Direct, Ring, Shards, Star};
use foldback::wire::{Kind, Mismatch, Parties, Transfer, exchanges};

use crate::adversary::Fault;
use crate::network::Network;
use crate::{
    CALM, CELLS, CHUNK, Data, GHOSTS, LONG_SUM, Order, ROUGH, Setting, drawn, run, step_until,
};

/// Exchanges among other collectives, of as many rows as there may be, but no more than so many.
fn of_parcels(setting: Setting, most_rows: usize, alone: bool) -> Setting {
    let rows = exchanges(setting.members.into(), setting.window.into()).min(most_rows);
    assert!(rows > 0, "{} members, {} cells", setting.members, setting.window);
    let most_bytes = rows * CHUNK;
    Setting { order: Order::Parcels { rows, alone }, most_bytes, ..setting }
}

#[test]
fn parcels_of_any_size_come_whole() {
    for (members, window) in [(2, 256), (3, 256), (5, 1024), (8, 1024), (64, 1024)] {
        for fault in [CALM, ROUGH] {
            let collectives = if members == 64 { 12 } else { 100 };
            let setting = Setting { members, window, collectives, fault, ..drawn(members.into()) };
            run(&of_parcels(setting, usize::MAX, false));
        }
    }
}

/// A quarter of these windows holds one or a few rows. Between exchanges alone, only syncs move a window on.
#[test]
fn they_do_in_the_smallest_windows() {
    for (members, window) in [(2, 16), (2, 32), (3, 32), (4, 32), (5, 64), (8, 64), (8, 256)] {
        for seed in 0u64..12 {
            let fault = [CALM, ROUGH, GHOSTS][(seed % 3) as usize];
            let algorithm = [Direct, Star, Shards, Ring][(seed % 4) as usize];
            let depth = [1, 2, 20][(seed / 2 % 3) as usize];
            let drawn = Setting { members, window, algorithm, depth, fault, ..drawn(seed) };
            run(&of_parcels(Setting { collectives: 60, ..drawn }, 4, seed.is_multiple_of(2)));
        }
    }
}

#[test]
fn they_do_while_programs_end_and_hosts_move() {
    let mut rescued = 0;
    for seed in 0u64..24 {
        let fault = Fault { crashes: seed % 2, moves: 20 * (seed / 2 % 2), ..ROUGH };
        let dead = if seed.is_multiple_of(3) { 0b10 } else { 0 };
        let setting = Setting { fault: Fault { dead, ..fault }, collectives: 60, ..drawn(seed) };
        rescued += run(&of_parcels(Setting { window: 256, ..setting }, 3, false)).rescued;
    }
    assert!(rescued > 0);
}

/// The chunks of jumbo frames, which are sent seven at once.
#[test]
fn they_do_in_long_chunks() {
    for seed in 0u64..8 {
        let chunk = b::FB_JUMBO_BYTES as usize;
        let setting = Setting { chunk, collectives: 30, window: 1024, ..drawn(seed) };
        let setting = of_parcels(setting, usize::MAX, false);
        run(&Setting { most_bytes: 100_000, ..setting });
    }
}

/// Frames of some runs of long exchanges, with data and without.
fn frames(members: u8, fault: Fault) -> [u64; 2] {
    let took = |seed| {
        let base = Setting { seed, members, window: 1024, collectives: 60, fault, ..drawn(seed) };
        run(&of_parcels(Setting { depth: 8, ..base }, usize::MAX, true)).frames
    };
    (1..5).map(took).fold([0, 0], |sum, took| [sum[0] + took[0], sum[1] + took[1]])
}

/// With one frame in ten lost, fewer than twice the frames are sent. Questions count too, though they carry no data.
#[test]
fn what_is_lost_of_parcels_is_sent_again_and_little_else() {
    for members in [2, 4, 8] {
        let of = |loss| frames(members, Fault { loss, delay: 1000, most_delay: 100, ..CALM });
        let ([without, _], [data, asked]) = (of(0), of(100));
        println!("{members}: {} % {} %", 100 * data / without, 100 * (data + asked) / without);
        assert!(data + asked < 2 * without, "{members}: {data}, {asked}, {without}");
    }
}

/// If frames take longer than a member's patience at first, it soon waits longer.
#[test]
fn parcels_that_are_only_slow_are_hardly_asked_for() {
    for members in [2, 4, 8] {
        let of = |most_delay| frames(members, Fault { delay: 1000, most_delay, ..CALM });
        let [fast, slow] = [of(100), of(20_000)].map(|frames| frames.iter().sum::<u64>());
        println!("{members}: {} %", 100 * slow / fast);
        assert!(slow < 2 * fast, "{members}: {slow}, {fast}");
    }
}

/// Member `from` has a parcel for member `to`, of other bytes than that one expects. Nobody has another.
fn disagree((from, to): (u8, u8), parties: Parties<u8>, [sent, expected]: [usize; 2], seed: u64) {
    let members = 3;
    let network = Network::new(seed, CELLS, members, seed.is_multiple_of(2), ROUGH);
    let what = format!("{from} to {to}, {sent} for {expected}, seed {seed}");
    let mut wires: Vec<_> = (0..members)
        .map(|me| {
            let mut wire = network.wire(me);
            let parcels = |end: u8, other: u8, bytes: usize| {
                let has = |member| if me == end && member == other { bytes } else { 0 };
                (0..members).map(|member| vec![1; has(member)]).collect()
            };
            let (to, from) = (parcels(from, to, sent), parcels(to, from, expected));
            let most = sent.max(expected);
            let exchange = Data { to, from, ..Data::default() };
            wire.submit(Transfer::new(Kind::Exchange(parties), most), exchange);
            let fold = Data { send: vec![1; 8], recv: vec![0; 8], ..Data::default() };
            wire.submit(Transfer::new(Kind::FoldToAll(LONG_SUM), 8), fold);
            (wire, Vec::new())
        })
        .collect();
    step_until(&network, &mut wires, |all| all.iter().all(|(_, over)| over.len() == 2), &what);
    for (me, (wire, over)) in (0..members).zip(wires) {
        assert!(!wire.out_of_step, "{what}");
        let (here, elsewhere) = (expected as u64, sent as u64);
        let told = (me == to).then_some(Mismatch::Length { here, elsewhere });
        assert_eq!(over[0].mismatch, told, "{me}: {what}");
        assert_eq!(over[1].mismatch, None, "{me}: {what}");
        assert_eq!(over[1].buffers.recv, [members; 8], "{me}: {what}");
    }
}

/// All members use up the same numbers, whatever the lengths are.
#[test]
fn members_that_do_not_agree_on_a_parcel_go_on() {
    for seed in 0..10 {
        for (from, to) in [(0, 1), (2, 1), (1, 0)] {
            for lengths in [[8, 16], [16, 8], [8, 4000], [4000, 8], [4000, 4001]] {
                disagree((from, to), Parties::Any, lengths, seed);
                disagree((from, to), Parties::Vectors, lengths, seed);
            }
        }
    }
}

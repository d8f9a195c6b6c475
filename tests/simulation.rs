//! Whole groups in one thread: the shim's protocol code and the programs' (compiled natively) over a
//! simulated network that loses, doubles, delays and reorders, driven by a seed.
//!
//! Checked: every collective ends, on every member, with the right value.

#[path = "simulation/native.rs"]
mod native;
#[path = "simulation/network.rs"]
mod network;

use std::time::{Duration, Instant};

use foldback::bindings as b;
use foldback::leaf::fold::fold;
use foldback::wire::Algorithm::{self, Direct, Star};
use foldback::wire::cells::Cells;
use foldback::wire::{Buffers, Identity, Kind, Transfer, Wire};
use network::{Fault, Network, Rng};

/// Bytes of one member's contribution, a function of everything that names it.
fn contribution(seed: u64, op: usize, member: u8, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed ^ (op as u64) << 20 ^ u64::from(member) << 50);
    (0..bytes).map(|_| rng.next() as u8).collect()
}

/// A collective that all members run.
#[derive(Clone, Copy, Debug)]
struct Collective {
    kind: Kind,
    op: u8,
    element: u8,
    bytes: usize,
}

fn collectives(seed: u64, members: u8, count: usize, most_bytes: usize) -> Vec<Collective> {
    let mut rng = Rng::new(seed);
    (0..count)
        .map(|_| {
            let root = rng.below(u64::from(members)) as u8;
            let kind = match rng.below(3) {
                0 => Kind::FoldToAll,
                1 => Kind::FoldToRoot(root),
                _ => Kind::Broadcast(root),
            };
            let barrier = kind == Kind::FoldToAll && rng.below(4) == 0;
            let bytes =
                if barrier { 0 } else { 8 * (1 + rng.below(most_bytes as u64 / 8)) as usize };
            let fold = kind != Kind::Broadcast(root) && !barrier;
            let op = if fold { 1 + rng.below(10) as u8 } else { 0 };
            let element = if fold { rng.below(8) as u8 } else { 0 };
            Collective { kind, op, element, bytes }
        })
        .collect()
}

/// What `member` must find at the end of collective number `index`; `None`: nothing in particular.
fn expected(seed: u64, index: usize, c: &Collective, members: u8, member: u8) -> Option<Vec<u8>> {
    match c.kind {
        Kind::Broadcast(root) => Some(contribution(seed, index, root, c.bytes)),
        Kind::FoldToRoot(root) if root != member => None,
        _ => {
            let mut all = contribution(seed, index, 0, c.bytes);
            for other in 1..members {
                fold(&mut all, &contribution(seed, index, other, c.bytes), c.op, c.element);
            }
            Some(all)
        }
    }
}

/// A message of one member, and from where its current part begins.
struct Data {
    bytes: Vec<u8>,
    from: usize,
}

impl Buffers for Data {
    fn read(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.bytes[self.from..][range]
    }

    fn write(&mut self, at: usize, data: &[u8]) {
        self.bytes[self.from + at..][..data.len()].copy_from_slice(data);
    }
}

/// Most payload of a frame.
const CHUNK: usize = b::FB_CHUNK_BYTES as usize;

/// The part of a message from byte `from`, and its end. Hosts with several ranks divide messages,
/// here those of odd members; the others' must fit.
fn part(c: &Collective, member: usize, from: usize) -> (Transfer, usize) {
    let end = if member % 2 == 1 { c.bytes.min(from + 2 * CHUNK) } else { c.bytes };
    (Transfer::part(c.kind, c.op, c.element, end - from, from / CHUNK), end)
}

struct Setting {
    seed: u64,
    members: u8,
    collectives: usize,
    most_bytes: usize,
    window: u32,
    algorithm: Algorithm,
    xdp: bool,
    fault: Fault,
}

/// Runs all collectives on all members, in an order that the seed chooses. Returns the steps taken.
fn run(setting: &Setting) -> u64 {
    let Setting { seed, members, window, .. } = *setting;
    let plan = collectives(seed, members, setting.collectives, setting.most_bytes);
    let network = Network::new(seed, members, window, setting.xdp, setting.fault);
    let mut wires: Vec<_> = (0..members)
        .map(|me| {
            let (chunk_bytes, algorithm) = (CHUNK as u16, setting.algorithm);
            let identity = Identity { token: 7, members, me, chunk_bytes, algorithm };
            Wire::new(Cells::new(network.memory(me)), network.port(me), identity)
        })
        .collect();
    let mut at: Vec<_> = (0..members).map(|_| (0, None::<((Transfer, usize), Data)>)).collect();
    let mut rng = Rng::new(!seed);
    let start = Instant::now();
    let mut steps = 0u64;
    let mut idle = 0u64;
    while at.iter().any(|(index, _)| *index < plan.len()) {
        steps += 1;
        assert!(
            idle < 2_000_000 && (!steps.is_multiple_of(1024) || start.elapsed() < MOST),
            "stuck, seed {seed}: {:?}, {:?}",
            at.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
            network.counters(),
        );
        if rng.below(2) == 0 && network.deliver() {
            idle = 0;
            continue;
        }
        let me = rng.below(u64::from(members)) as usize;
        let (index, current) = &mut at[me];
        if *index == plan.len() {
            idle += 1;
            network.pass_time();
            continue;
        }
        let c = plan[*index];
        let ((transfer, end), data) = current.get_or_insert_with(|| {
            let mine = contribution(seed, *index, me as u8, c.bytes);
            let leaf = matches!(c.kind, Kind::Broadcast(root) if usize::from(root) != me);
            let bytes = if leaf { vec![0xee; c.bytes] } else { mine };
            (part(&c, me, 0), Data { bytes, from: 0 })
        });
        let now = || start + Duration::from_micros(network.now());
        if wires[me].poll(transfer, data, now) {
            idle = 0;
            if *end < c.bytes {
                data.from = *end;
                (*transfer, *end) = part(&c, me, *end);
                continue;
            }
            if let Some(want) = expected(seed, *index, &c, members, me as u8) {
                assert!(
                    data.bytes == want,
                    "wrong, seed {seed}, member {me}, number {index}: {c:?}"
                );
            }
            *current = None;
            *index += 1;
        } else {
            idle += 1;
            network.pass_time();
        }
    }
    steps
}

/// Far more than any run takes; a hang must end as a failure.
const MOST: Duration = Duration::from_secs(120);

const CALM: Fault = Fault { loss: 0, duplication: 0, delay: 0, most_delay: 0 };
const ROUGH: Fault = Fault { loss: 20, duplication: 20, delay: 50, most_delay: 3_000 };
/// Frames that come back after seconds.
const GHOSTS: Fault = Fault { loss: 50, duplication: 100, delay: 100, most_delay: 2_000_000 };

#[test]
fn a_calm_network_needs_no_repair() {
    for (members, algorithm, xdp) in [
        (2, Star, false),
        (2, Direct, true),
        (3, Star, true),
        (8, Star, false),
        (8, Direct, false),
        (64, Star, true),
    ] {
        let steps = run(&Setting {
            seed: 1,
            algorithm,
            members,
            collectives: 300,
            most_bytes: 4096,
            window: 256,
            xdp,
            fault: CALM,
        });
        assert!(steps > 300);
    }
}

#[test]
fn lost_doubled_and_reordered_frames_are_repaired() {
    for seed in 0..40 {
        let members = 2 + (seed % 7) as u8;
        run(&Setting {
            seed,
            members,
            collectives: 300,
            most_bytes: 8192,
            window: 256,
            algorithm: if seed % 3 == 0 { Direct } else { Star },
            xdp: seed % 2 == 0,
            fault: ROUGH,
        });
    }
}

#[test]
fn frames_that_return_after_seconds_do_no_harm() {
    for seed in 100..120 {
        run(&Setting {
            seed,
            members: 4,
            collectives: 1000,
            most_bytes: 3000,
            window: 256,
            algorithm: if seed % 4 < 2 { Direct } else { Star },
            xdp: seed % 2 == 0,
            fault: GHOSTS,
        });
    }
}

#[test]
fn long_messages_wrap_the_window_many_times() {
    for seed in 200..204 {
        run(&Setting {
            seed,
            members: 3,
            collectives: 12,
            most_bytes: 2 << 20,
            window: 256,
            algorithm: if seed % 2 == 0 { Direct } else { Star },
            xdp: false,
            fault: ROUGH,
        });
    }
}

#[test]
fn the_programs_fold_as_user_space_does() {
    let mut rng = Rng::new(5);
    for op in 1..b::FB_OP_COUNT as u8 {
        for element in 0..b::FB_TYPE_COUNT as u8 {
            for bytes in [8, 56, 64, 72, 1400, 1408] {
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
                fold(&mut want, &y, op, element);
                assert_eq!(native::fold(&x, &y, op, element), want, "op {op}, type {element}");
            }
        }
    }
}

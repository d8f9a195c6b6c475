//! Pairs of keys and values on their way to their owners, over a network that loses, doubles, reorders and spoils
//! frames.
//!
//! Checked: every delivery ends, and each owner has the reduction of all that was sent to it, once each.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use foldback::bindings as b;
use foldback::leaf::arithmetic::{Element, Operator};
use foldback::wire::table::{MappedTable, Table};
use foldback::wire::{Delivery, Identity, Means, Seal, Secret, Sheaf, Stream, Transport, native};

use crate::random::Rng;

pub type Packet = (u8, b::fb_frame, Vec<u8>);

/// The faults of a network: frames of a thousand.
#[derive(Clone, Copy)]
struct Faults {
    lost: u64,
    doubled: u64,
    spoilt: u64,
    /// Others may overtake a frame.
    reordered: u64,
}

const CALM: Faults = Faults { lost: 0, doubled: 0, spoilt: 0, reordered: 0 };
const ROUGH: Faults = Faults { lost: 100, doubled: 100, spoilt: 20, reordered: 300 };

/// Frames that a member has sent, in their order.
#[derive(Default)]
pub struct Out(pub Vec<Packet>);

impl Transport for Out {
    fn send(&mut self, member: u8, frame: &b::fb_frame, payload: &[u8]) {
        self.0.push((member, *frame, payload.to_vec()));
    }
}

pub struct Member {
    pub identity: Identity,
    group: native::Group,
    pub memory: MappedTable,
    pub table: Table<MappedTable>,
    pub stream: Stream,
    pub out: Out,
    pub counters: b::fb_counters,
}

impl Member {
    pub fn new(members: u8, me: u8) -> Self {
        let seal = Seal::new(Some(Secret::new([7, 7])));
        let identity =
            Identity { token: 7, seal, members, me, chunk_bytes: 1408, multicast: false };
        let memory = MappedTable::own().expect("memory for a table");
        let table = Table::new(memory.clone());
        Self {
            group: native::Group::new(&identity, 256),
            stream: Stream::new(members, &table),
            table,
            memory,
            out: Out::default(),
            counters: b::fb_counters::default(),
            identity,
        }
    }

    /// A frame has come. The programs admit it, or not.
    pub fn take_in(&mut self, (_, frame, payload): &Packet) -> Option<Packet> {
        let bytes = size_of::<b::fb_frame>() + payload.len();
        if !self.group.admits(frame, bytes) {
            return None;
        }
        let (group, counters) = (&self.group, &mut self.counters);
        let reply = native::enter_table(&self.memory, group, counters, frame, payload);
        (reply.mask() != 0).then(|| {
            let member = reply.mask().trailing_zeros() as u8;
            (member, *reply.frame(), reply.payload().to_vec())
        })
    }
}

struct Network {
    rng: Rng,
    faults: Faults,
    frames: Vec<Packet>,
}

impl Network {
    fn happens(&mut self, of_thousand: u64) -> bool {
        self.rng.below(1000) < of_thousand
    }

    fn carry(&mut self, mut packet: Packet) {
        if self.happens(self.faults.lost) {
            return;
        }
        if self.happens(self.faults.doubled) {
            self.frames.push(packet.clone());
        }
        if self.happens(self.faults.spoilt) {
            let bytes = packet.2.len();
            match bytes {
                0 => packet.1.seal ^= 1,
                _ => packet.2[self.rng.below(bytes as u64) as usize] ^= 0x10,
            }
        }
        self.frames.push(packet);
    }

    fn next(&mut self) -> Option<Packet> {
        if self.frames.is_empty() {
            return None;
        }
        let is_late = self.happens(self.faults.reordered);
        let at = if is_late { self.rng.below(self.frames.len() as u64) as usize } else { 0 };
        Some(self.frames.remove(at))
    }
}

/// Pairs of one member for another.
#[derive(Clone, Copy)]
struct Load {
    pairs: u64,
    keys: u64,
    /// The parts of a table that are used.
    parts: u64,
}

/// Deliveries of all members to all, one after the other.
fn deliver(seed: u64, members: u8, load: Load, faults: Faults, deliveries: usize) -> [u64; 3] {
    let mut rng = Rng(seed);
    let mut all: Vec<_> = (0..members).map(|me| Member::new(members, me)).collect();
    let mut network = Network { rng: Rng(seed ^ 1), faults, frames: Vec::new() };
    let mut now = Instant::now();
    for number in 0..deliveries {
        let op = Operator::ALL[(seed as usize + number) % Operator::ALL.len()];
        let element = [Element::I64, Element::U64][number % 2];
        let fold = |a: u64, b: u64| reference(op, element, a, b);
        let mut expected = vec![BTreeMap::new(); members.into()];
        let mut messages = Vec::new();
        for from in 0..members {
            let (mut words, mut sheaves) = (Vec::new(), Vec::new());
            for owner in (0..members).filter(|owner| *owner != from) {
                let mut left = rng.below(load.pairs + 1);
                while left > 0 {
                    let (start, count) = (words.len(), rng.below(left) + 1);
                    for _ in 0..count {
                        // The least and the greatest among them.
                        let key = rng.below(load.keys).wrapping_sub(1);
                        let value = rng.next();
                        words.extend([key, value]);
                        let all: &mut BTreeMap<u64, u64> = &mut expected[usize::from(owner)];
                        all.entry(key)
                            .and_modify(|held| *held = fold(*held, value))
                            .or_insert(value);
                    }
                    let part = rng.below(load.parts) as u8;
                    sheaves.push(Sheaf { owner, part, words: start..words.len() });
                    left -= count;
                }
            }
            messages.push((words, sheaves));
        }
        let mut coming = vec![vec![0; members.into()]; members.into()];
        for (from, (_, sheaves)) in messages.iter().enumerate() {
            for sheaf in sheaves {
                coming[usize::from(sheaf.owner)][from] += sheaf.frames() as u64;
            }
        }
        let mut under_way: Vec<_> = all
            .iter_mut()
            .zip(&messages)
            .zip(coming)
            .map(|((member, (_, sheaves)), coming)| {
                member.stream.expect(coming);
                Some(Delivery::new(op, element, sheaves, members, &mut member.stream))
            })
            .collect();
        let mut taken = vec![Vec::new(); members.into()];
        let mut turns = 0;
        while under_way.iter().any(Option::is_some) {
            turns += 1;
            let counters = || all.iter().map(|member| member.counters).collect::<Vec<_>>();
            assert!(
                turns < 200_000,
                "seed {seed}: delivery {number} does not end: {:?}",
                counters()
            );
            let me = rng.below(members.into()) as usize;
            let member = &mut all[me];
            if let Some(delivery) = &mut under_way[me] {
                let Member { identity, out, stream, table, .. } = member;
                let mut means = Means { identity, transport: out, stream, table };
                let is_sent = delivery.poll(&messages[me].0, &mut means, now);
                table.take(false, &mut taken[me]);
                if is_sent && stream.is_complete(table) {
                    under_way[me] = None;
                    stream.end(table, &mut taken[me]);
                }
            }
            std::mem::take(&mut member.out.0).into_iter().for_each(|packet| network.carry(packet));
            for _ in 0..rng.below(60) {
                let Some(packet) = network.next() else { break };
                if let Some(answer) = all[usize::from(packet.0)].take_in(&packet) {
                    network.carry(answer);
                }
            }
            now += Duration::from_micros(rng.below(500));
        }
        for (me, words) in taken.into_iter().enumerate() {
            let mut got = BTreeMap::new();
            for [key, value] in words.as_chunks::<2>().0 {
                got.entry(*key).and_modify(|held| *held = fold(*held, *value)).or_insert(*value);
            }
            assert_eq!(
                got, expected[me],
                "seed {seed}: delivery {number} at {me}, {op:?} of {element:?}"
            );
        }
    }
    let sum = |count: fn(&b::fb_counters) -> u64| all.iter().map(|m| count(&m.counters)).sum();
    [sum(|c| c.pairs_folded), sum(|c| c.pairs_spilt), sum(|c| c.duplicates)]
}

fn reference(op: Operator, element: Element, a: u64, b: u64) -> u64 {
    let is_signed = element == Element::I64;
    match op {
        Operator::Sum => a.wrapping_add(b),
        Operator::Prod => a.wrapping_mul(b),
        Operator::Min if is_signed => (a as i64).min(b as i64) as u64,
        Operator::Max if is_signed => (a as i64).max(b as i64) as u64,
        Operator::Min => a.min(b),
        Operator::Max => a.max(b),
        Operator::Band => a & b,
        Operator::Bor => a | b,
        Operator::Bxor => a ^ b,
        Operator::Land => u64::from(a != 0 && b != 0),
        Operator::Lor => u64::from(a != 0 || b != 0),
        Operator::Lxor => u64::from((a != 0) != (b != 0)),
    }
}

#[test]
fn pairs_come_to_their_owners_once() {
    for seed in 0..40 {
        let load = Load { pairs: 3000, keys: [2, 300, 1 << 40][seed as usize % 3], parts: 64 };
        let members = 2 + (seed % 4) as u8;
        for faults in [CALM, ROUGH] {
            let [folded, _, duplicates] = deliver(seed, members, load, faults, 10);
            assert!(folded > 0);
            assert!((duplicates > 0) == (faults.lost > 0), "{duplicates} frames came again");
        }
    }
}

/// One part, so that buckets are full at once, and frames are refused until the owner has made room.
#[test]
fn a_full_part_loses_nothing() {
    for seed in 0..10 {
        let load = Load { pairs: 20_000, keys: u64::MAX, parts: 1 };
        for faults in [CALM, ROUGH] {
            let [_, spilt, _] = deliver(seed, 3, load, faults, 2);
            assert!(spilt > 0);
        }
    }
}

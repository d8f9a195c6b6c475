//! Pairs of two members on their way to a third one, exhaustively: every run that deviates from a deterministic order a
//! few times at most.
//!
//! Without deviations frames arrive in the order in which they were sent, and members take turns. Deviations are a lost,
//! doubled, late or spoilt frame, a locked part, and a member that is away until all others wait.
//!
//! Checked: every delivery ends, and the owner has each pair once.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use foldback::bindings as b;
use foldback::leaf::arithmetic::{Element, Operator};
use foldback::wire::table::TableMemory;
use foldback::wire::{Delivery, Means, Sheaf};

use crate::adversary::{Choices, Deviation, LATE, explore};
use crate::deliveries::{Member, Packet};

const MEMBERS: u8 = 3;
const OWNER: usize = 0;
/// Deliveries, one after the other: frames of one may come in the next.
const DELIVERIES: usize = 2;
/// Parts of the frames of each member, which are of one pair. Two frames are for one part.
const PARTS: [u8; 3] = [4, 9, 4];
/// Microseconds from a look that finds nothing to do to the next.
const IDLE: u64 = 500;
/// Far more rounds than any run takes.
const MOST_ROUNDS: u64 = 5000;

/// Frames under way, by the time of their arrival and their number.
#[derive(Default)]
struct Network {
    now: u64,
    frames: BTreeMap<(u64, u64), Packet>,
    sent: u64,
}

impl Network {
    fn arrives(&mut self, packet: Packet, delay: u64) {
        self.sent += 1;
        self.frames.insert((self.now + delay, self.sent), packet);
    }

    fn carry(&mut self, mut packet: Packet, choices: &mut Choices) {
        let late = LATE.len();
        match choices.choose(2 + 2 * late) {
            0 => self.arrives(packet, 1),
            1 => {}
            2 => {
                packet.1.seal ^= 1;
                self.arrives(packet, 1);
            }
            which if which < 3 + late => self.arrives(packet, LATE[which - 3]),
            which => {
                self.arrives(packet.clone(), 1);
                self.arrives(packet, LATE[which - 3 - late]);
            }
        }
    }

    fn next(&mut self) -> Option<Packet> {
        let first = self.frames.first_entry().filter(|first| first.key().0 <= self.now)?;
        Some(first.remove())
    }
}

/// A frame has come: its part may be locked meanwhile.
fn take_in(member: &mut Member, packet: &Packet, choices: &mut Choices) -> Option<Packet> {
    let frame = &packet.1;
    if packet.2.is_empty() || frame.kind != b::FB_KIND_PAIRS as u8 || choices.choose(1) == 0 {
        return member.take_in(packet);
    }
    // SAFETY: an element of the member's table. This test has one thread.
    let lock = unsafe {
        let part = member.memory.base().cast::<b::fb_part>().add(1 + frame.detail as usize);
        &raw mut (*part).lock
    };
    // SAFETY: as above.
    unsafe { lock.write(1) };
    let answer = member.take_in(packet);
    // SAFETY: as above.
    unsafe { lock.write(0) };
    answer
}

/// Pairs of a member for the owner: keys that others have, too, and one of its own. All values tell their origin.
fn message(me: u8, delivery: usize) -> (Vec<u64>, Vec<Sheaf>) {
    if usize::from(me) == OWNER {
        return (Vec::new(), Vec::new());
    }
    let keys = [u64::MAX, u64::from(me), 0];
    let value = |number| 1_u64 << (16 * delivery + 4 * usize::from(me) + number);
    let words = keys.into_iter().enumerate().flat_map(|(at, key)| [key, value(at)]).collect();
    let sheaf = |(at, part)| Sheaf { owner: OWNER as u8, part, words: 2 * at..2 * at + 2 };
    (words, PARTS.into_iter().enumerate().map(sheaf).collect())
}

/// The work of a member at present.
#[derive(Default)]
struct Doing {
    /// Deliveries that it has ended. Members do not wait for each other.
    ended: usize,
    under_way: Option<Delivery>,
    taken: Vec<u64>,
    is_away: bool,
}

impl Doing {
    /// A turn of a member. Returns whether it has got further.
    fn turn(&mut self, me: u8, member: &mut Member, now: Instant) -> bool {
        let (words, sheaves) = message(me, self.ended);
        let Member { identity, out, stream, table, .. } = member;
        let delivery = self.under_way.get_or_insert_with(|| {
            if usize::from(me) == OWNER {
                let frames = |from| message(from, self.ended).1.len() as u64;
                stream.expect((0..MEMBERS).map(frames));
            }
            Delivery::new(Operator::Sum, Element::U64, &sheaves, MEMBERS, stream)
        });
        let mut means = Means { identity, transport: out, stream, table };
        let is_sent = delivery.poll(&words, &mut means, now);
        table.take(false, &mut self.taken);
        let is_over = is_sent && stream.is_complete(table);
        if is_over {
            stream.end(table, &mut self.taken);
            self.check(me);
            (self.under_way, self.ended) = (None, self.ended + 1);
        }
        is_over || !member.out.0.is_empty()
    }

    /// Looks at the pairs of a delivery.
    fn check(&mut self, me: u8) {
        let sums = |words: &[u64]| {
            let mut sums = BTreeMap::<u64, u64>::new();
            for [key, value] in words.as_chunks().0 {
                *sums.entry(*key).or_default() += value;
            }
            sums
        };
        let is_owner = usize::from(me) == OWNER;
        let sent =
            (0..if is_owner { MEMBERS } else { 0 }).flat_map(|from| message(from, self.ended).0);
        let expected: Vec<_> = sent.collect();
        assert_eq!(sums(&self.taken), sums(&expected), "delivery {} at {me}", self.ended);
        self.taken.clear();
    }
}

/// One run; returns the number of alternatives of each of its choices, and its steps.
fn run(deviations: &[Deviation]) -> (Vec<usize>, u64) {
    let (mut choices, mut network) = (Choices::new(deviations), Network::default());
    let mut all: Vec<_> = (0..MEMBERS).map(|me| Member::new(MEMBERS, me)).collect();
    let mut doing: Vec<_> = all.iter().map(|_| Doing::default()).collect();
    let (start, mut steps) = (Instant::now(), 0);
    for round in 0.. {
        assert!(round < MOST_ROUNDS, "a delivery does not end");
        let mut moved = false;
        while let Some(packet) = network.next() {
            (steps, moved) = (steps + 1, true);
            let member = &mut all[usize::from(packet.0)];
            if let Some(answer) = take_in(member, &packet, &mut choices) {
                network.carry(answer, &mut choices);
            }
        }
        for (me, (member, doing)) in (0..).zip(all.iter_mut().zip(&mut doing)) {
            if doing.ended == DELIVERIES || doing.is_away {
                continue;
            }
            if choices.choose(1) == 1 {
                doing.is_away = true;
                continue;
            }
            steps += 1;
            moved |= doing.turn(me, member, start + Duration::from_micros(network.now));
            let frames = std::mem::take(&mut member.out.0);
            frames.into_iter().for_each(|packet| network.carry(packet, &mut choices));
        }
        if doing.iter().all(|doing| doing.ended == DELIVERIES) {
            return (choices.alternatives, steps);
        }
        if moved {
            network.now += 1;
        } else if doing.iter().any(|doing| doing.is_away) {
            doing.iter_mut().for_each(|doing| doing.is_away = false);
        } else {
            network.now += IDLE;
        }
    }
    unreachable!("rounds have a bound");
}

#[test]
fn pairs_of_two_members_bear_any_two_deviations() {
    let took = explore(&"pairs of two members", 2, usize::MAX, &run);
    assert!(took.runs > 10_000, "{took:?}");
}

/// Minutes: for `make test-long`.
#[test]
#[ignore = "long: minutes"]
fn pairs_of_two_members_bear_any_three_deviations() {
    explore(&"pairs of two members", 3, usize::MAX, &run);
}

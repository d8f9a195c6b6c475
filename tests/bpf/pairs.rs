//! Pairs of keys and values: folded by key at their owner, each once.

use std::collections::BTreeMap;

use foldback::bindings as b;
use libbpf_rs::MapHandle;

use crate::host::{Host, TC_NEXT, TC_REDIRECT, TC_TAKEN, XDP_PASS, address};
use crate::kernel::{Hook, Kernel, bytes_at, element, set_element};
use crate::namespace::{Peer, in_namespace};
use crate::packet::Packet;
use crate::random::Rng;
use crate::reference::fold_all;

const SUM: u8 = b::FB_OP_SUM as u8;
const U64: u8 = b::FB_TYPE_U64 as u8;
const EPOCH: u64 = 3;
const MOST: usize = b::FB_FRAME_PAIRS as usize;
/// The tests' host, the owner.
const ME: u8 = 1;

type Pair = (u64, u64);

/// A host whose group has a table, in the epoch of the tests.
struct Owner {
    host: Host,
    table: MapHandle,
}

/// A frame of pairs, as its fields say it.
#[derive(Clone, Copy)]
struct Said {
    source: u8,
    part: u64,
    seq: u64,
    op: u8,
    element: u8,
}

const FIRST: Said = Said { source: 2, part: 5, seq: 1, op: SUM, element: U64 };

impl Said {
    fn frame(&self) -> b::fb_frame {
        b::fb_frame {
            magic: b::FB_WIRE_MAGIC,
            version: b::FB_WIRE_VERSION as u8,
            kind: b::FB_KIND_PAIRS as u8,
            op: self.op,
            type_: self.element,
            seq: self.seq,
            target: ME,
            detail: self.part,
            message: EPOCH,
            ..Default::default()
        }
    }
}

fn bytes(pairs: &[Pair]) -> Vec<u8> {
    pairs
        .iter()
        .flat_map(|(key, value)| [key.to_ne_bytes(), value.to_ne_bytes()].concat())
        .collect()
}

fn numbered(range: std::ops::Range<u64>) -> Vec<Pair> {
    range.map(|key| (key, 1)).collect()
}

impl Owner {
    fn new() -> Self {
        Self::of(Host::new(4, ME))
    }

    fn of(host: Host) -> Self {
        let table = host.kernel.add_table(host.token, host.slot);
        let owner = Self { host, table };
        owner.set_epoch(EPOCH);
        owner
    }

    fn table(&self) -> b::fb_table {
        element(&self.table, 0)
    }

    fn set_epoch(&self, epoch: u64) {
        set_element(&self.table, 0, &b::fb_table { epoch, ..self.table() });
    }

    fn part(&self, part: u64) -> b::fb_part {
        element(&self.table, 1 + part as u32)
    }

    fn change_part(&self, at: u64, change: impl FnOnce(&mut b::fb_part)) {
        let mut part = self.part(at);
        change(&mut part);
        set_element(&self.table, 1 + at as u32, &part);
    }

    fn pairs(&self, said: Said, pairs: &[Pair]) -> Packet {
        self.host.other(said.source, said.frame(), &bytes(pairs))
    }

    fn question(&self, source: u8, seq: u64) -> Packet {
        self.pairs(Said { source, part: 0, seq, op: 0, element: 0 }, &[])
    }

    fn held_frame(source: u8, target: u8, seq: u64) -> b::fb_frame {
        let said = Said { source, part: 0, seq, op: 0, element: 0 };
        b::fb_frame { kind: b::FB_KIND_HELD as u8, target, ..said.frame() }
    }

    fn held(&self, source: u8, seq: u64, of_part: impl Fn(u64) -> u64) -> Packet {
        self.host.other(source, Self::held_frame(source, ME, seq), &held_bytes(of_part))
    }

    /// Nothing comes of it but one count.
    fn refuses(&self, packet: &Packet, counted: &str) {
        let before = self.words();
        assert_eq!(self.host.ingress(packet).code, TC_TAKEN);
        assert_eq!(self.host.counted(), counted, "{:?}", packet.frame);
        assert!(self.words() == before, "{counted}: something has changed");
    }

    /// The whole table.
    fn words(&self) -> Vec<Vec<u8>> {
        (0..=b::FB_PARTS).map(|at| bytes_at(&self.table, at)).collect()
    }

    /// The pairs of a part: in slots, and spilt.
    fn contents(&self, at: u64) -> (Vec<Pair>, Vec<Pair>) {
        let part = self.part(at);
        let slots = part.slot.iter().enumerate();
        let is_taken = |at: usize| {
            part.taken[at / b::FB_BUCKET_SLOTS as usize] >> (at % b::FB_BUCKET_SLOTS as usize) & 1
                == 1
        };
        let pair = |pair: &b::fb_pair| (pair.key, pair.value);
        let slots: Vec<Pair> =
            slots.filter(|(at, _)| is_taken(*at)).map(|(_, slot)| pair(slot)).collect();
        assert_eq!((slots.len() as u32, part.lock), (part.pairs, 0));
        (slots, part.spill[..part.spilt as usize].iter().map(pair).collect())
    }
}

fn held_bytes(of_part: impl Fn(u64) -> u64) -> Vec<u8> {
    (0..u64::from(b::FB_PARTS)).flat_map(|part| of_part(part).to_ne_bytes()).collect()
}

/// Folds by key, the plain way.
fn fold_into(into: &mut BTreeMap<u64, u64>, pairs: &[Pair], op: u8, element: u8) {
    for (key, value) in pairs {
        let folded = match into.get(key) {
            None => *value,
            Some(old) => {
                let both = [old, value].map(|value| value.to_le_bytes().to_vec());
                let folded = fold_all(&both, op, element);
                u64::from_le_bytes(folded.try_into().expect("a word"))
            }
        };
        into.insert(*key, folded);
    }
}

/// Of few keys, the least and the greatest among them.
fn drawn(rng: &mut Rng, count: usize, keys: u64) -> Vec<Pair> {
    let word = |rng: &mut Rng, few: u64| match rng.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << 63,
        3 => rng.next(),
        _ => rng.below(few),
    };
    (0..count).map(|_| (word(rng, keys), word(rng, 4))).collect()
}

fn every_fold_on(kernel: &'static Kernel) {
    for op in b::FB_OP_SUM as u8..=b::FB_OP_LXOR as u8 {
        for element in [b::FB_TYPE_I64 as u8, U64] {
            let owner = Owner::of(Host::on(kernel, 4, ME));
            let mut rng = Rng(u64::from(op));
            let (mut all, mut sent) = (BTreeMap::new(), 0);
            for (seq, count) in [1, 2, 7, 40, MOST, MOST].into_iter().enumerate() {
                for source in [0, 2, 3] {
                    let pairs = drawn(&mut rng, count, 50);
                    let said = Said { source, seq: 1 + seq as u64, op, element, ..FIRST };
                    assert_eq!(owner.host.ingress(&owner.pairs(said, &pairs)).code, TC_TAKEN);
                    fold_into(&mut all, &pairs, op, element);
                    sent += count;
                }
            }
            let counted = format!("frames_in 18, pairs_folded {sent}");
            assert_eq!(owner.host.counted(), counted, "op {op}, type {element}");
            let (slots, spilt) = owner.contents(5);
            assert_eq!((slots.len(), spilt.len()), (all.len(), 0), "op {op}, type {element}");
            assert_eq!(BTreeMap::from_iter(slots), all, "op {op}, type {element}");
            assert_eq!(owner.part(5).held[..4], [6, 0, 6, 6]);
            assert_eq!(owner.contents(4).0.len() + owner.contents(6).0.len(), 0);
        }
    }
}

#[test]
fn every_op_combines_values_of_equal_keys() {
    in_namespace(|| every_fold_on(Kernel::shared()));
}

#[test]
fn so_does_every_op_of_the_programs_for_jumbo_frames() {
    in_namespace(|| every_fold_on(Kernel::jumbo()));
}

#[test]
fn one_key_takes_one_slot() {
    in_namespace(|| {
        for key in [0, 1, u64::MAX] {
            let owner = Owner::new();
            for seq in 1..=3 {
                owner.host.ingress(&owner.pairs(Said { seq, ..FIRST }, &[(key, 2); MOST]));
            }
            assert_eq!(owner.contents(5), (vec![(key, 6 * MOST as u64)], vec![]));
        }
    });
}

/// Different keys fill the slots, then wait for the owner, and then none is taken before it has made room.
#[test]
fn a_frame_is_folded_whole_or_not_at_all() {
    in_namespace(|| {
        let owner = Owner::new();
        let (mut all, mut seq) = (BTreeMap::new(), 0);
        let full = loop {
            let pairs = numbered(1000 * seq..1000 * seq + MOST as u64);
            let packet = owner.pairs(Said { seq: seq + 1, ..FIRST }, &pairs);
            if owner.part(5).spilt as usize + MOST > b::FB_SPILL as usize {
                break packet;
            }
            assert_eq!(owner.host.ingress(&packet).code, TC_TAKEN);
            fold_into(&mut all, &pairs, SUM, U64);
            seq += 1;
        };
        let counters = owner.host.kernel.counters(owner.host.slot);
        let (slots, spilt) = owner.contents(5);
        assert!(slots.len() > 256 && !spilt.is_empty(), "{} and {}", slots.len(), spilt.len());
        assert_eq!(
            (counters.pairs_folded, counters.pairs_spilt),
            (all.len() as u64, spilt.len() as u64)
        );
        assert_eq!(slots.len() + spilt.len(), all.len());
        assert_eq!(slots.iter().chain(&spilt).copied().collect::<BTreeMap<_, _>>(), all);
        owner.host.counted();
        for _ in 0..2 {
            owner.refuses(&full, "drop_full 1, frames_in 1");
        }
        // A shorter one finds room. Its keys are in slots, or wait already, and wait once more.
        let room = b::FB_SPILL as usize - spilt.len();
        let known: Vec<Pair> = all.keys().map(|key| (*key, 5)).take(room).collect();
        owner.host.ingress(&owner.pairs(Said { seq: seq + 1, ..FIRST }, &known));
        fold_into(&mut all, &known, SUM, U64);
        let (mut folded, (slots, spilt)) = (BTreeMap::new(), owner.contents(5));
        fold_into(&mut folded, &slots, SUM, U64);
        fold_into(&mut folded, &spilt, SUM, U64);
        assert_eq!(folded, all);
        // The owner makes room, and the frame is the next.
        owner.change_part(5, |part| {
            (part.pairs, part.spilt, part.taken) = (0, 0, [0; b::FB_BUCKETS as usize]);
        });
        owner.host.counted();
        owner.host.ingress(&full.with(|p| p.frame.seq = seq + 2));
        assert_eq!(owner.contents(5).0.len() + owner.contents(5).1.len(), MOST);
    });
}

/// A leader may write anything into the table of its group: it spoils no more than that.
#[test]
fn a_spoilt_part_leads_nowhere_else() {
    in_namespace(|| {
        let owner = Owner::new();
        for spilt in [b::FB_SPILL + 1, u32::MAX] {
            owner.change_part(5, |part| part.spilt = spilt);
            owner.refuses(&owner.pairs(FIRST, &[(1, 1)]), "drop_full 1, frames_in 1");
        }
        owner.change_part(5, |part| {
            (part.spilt, part.pairs) = (0, u32::MAX);
            part.taken = [u8::MAX; b::FB_BUCKETS as usize];
        });
        owner.host.ingress(&owner.pairs(FIRST, &[(1, 7)]));
        let part = owner.part(5);
        assert_eq!((part.spilt, part.spill[0].key, part.spill[0].value), (1, 1, 7));
    });
}

#[test]
fn frames_of_a_part_are_folded_in_order_and_once() {
    in_namespace(|| {
        let owner = Owner::new();
        let frame = |source, seq| owner.pairs(Said { source, seq, ..FIRST }, &[(seq, 1)]);
        let folded = "frames_in 1, pairs_folded 1";
        owner.refuses(&frame(2, 2), "drop_window 1, frames_in 1");
        owner.host.ingress(&frame(2, 1));
        assert_eq!(owner.host.counted(), folded);
        owner.refuses(&frame(2, 1), "duplicates 1, frames_in 1");
        owner.refuses(&frame(2, 3), "drop_window 1, frames_in 1");
        owner.host.ingress(&frame(2, 2));
        owner.host.ingress(&frame(2, 3));
        owner.host.counted();
        for seq in 1..=3 {
            owner.refuses(&frame(2, seq), "duplicates 1, frames_in 1");
        }
        // Each member and each part has numbers of its own.
        owner.host.ingress(&frame(3, 1));
        assert_eq!(owner.host.counted(), folded);
        owner.host.ingress(&owner.pairs(Said { part: 127, ..FIRST }, &[(1, 1)]));
        assert_eq!(owner.host.counted(), folded);
        assert_eq!(owner.part(5).held[..4], [0, 0, 3, 1]);
        assert_eq!(owner.part(127).held[..4], [0, 0, 1, 0]);
        assert_eq!(
            BTreeMap::from_iter(owner.contents(5).0),
            BTreeMap::from([(1, 2), (2, 1), (3, 1)])
        );
    });
}

#[test]
fn pairs_of_another_epoch_are_not_taken() {
    in_namespace(|| {
        let owner = Owner::new();
        let of = |epoch| owner.pairs(FIRST, &[(1, 1)]).with(|p| p.frame.message = epoch);
        owner.refuses(&of(EPOCH - 1), "drop_stale 1, frames_in 1");
        owner.refuses(&of(EPOCH + 1), "drop_window 1, frames_in 1");
    });
}

/// Members end an epoch at different times.
#[test]
fn questions_and_answers_may_be_of_any_epoch() {
    in_namespace(|| {
        let owner = Owner::new();
        for (epoch, number) in [(EPOCH - 1, 1), (EPOCH + 1, 2)] {
            let question = owner.question(2, number).with(|p| p.frame.message = epoch);
            assert_eq!(owner.host.ingress(&question).code, TC_REDIRECT);
            let answer = owner.held(2, number, |_| 9).with(|p| p.frame.message = epoch);
            owner.host.ingress(&answer);
            assert_eq!(owner.table().answered[2], number);
        }
    });
}

#[test]
fn a_locked_part_is_left_alone() {
    in_namespace(|| {
        let owner = Owner::new();
        owner.change_part(5, |part| part.lock = 1);
        owner.refuses(&owner.pairs(FIRST, &[(1, 1)]), "drop_lock 1, frames_in 1");
        owner.host.ingress(&owner.pairs(Said { part: 6, ..FIRST }, &[(1, 1)]));
        assert_eq!(owner.contents(6).0, [(1, 1)]);
    });
}

#[test]
fn a_frame_that_makes_no_sense_is_malformed() {
    type Spoil = fn(&mut b::fb_frame);
    let of_all: &'static [Spoil] = &[
        |f| f.flags = b::FB_FLAG_DIRECT as u8,
        |f| f.flags = b::FB_FLAG_RESULT_TO_ALL as u8,
        |f| f.flags = b::FB_FLAG_RING as u8,
        |f| f.flags = b::FB_FLAG_POSTED as u8,
        |f| f.offset = 8,
        |f| f.consumed = 1,
        |f| f.reserved = 1,
        |f| f.seq = 0,
        |f| f.source = 4,
        |f| f.target = 0,
        |f| f.target = 4,
        |f| f.kind = 9,
    ];
    let of_pairs: &'static [Spoil] = &[
        |f| f.detail = b::FB_PARTS.into(),
        |f| f.detail = 1 << 32,
        |f| f.op = b::FB_OP_NONE as u8,
        |f| f.op = b::FB_OP_PLACE as u8,
        |f| f.op = b::FB_OP_COUNT as u8,
        |f| f.type_ = b::FB_TYPE_U32 as u8,
        |f| f.type_ = b::FB_TYPE_I8 as u8,
        |f| f.type_ = b::FB_TYPE_COUNT as u8,
    ];
    in_namespace(move || {
        for kernel in [Kernel::shared(), Kernel::jumbo()] {
            let owner = Owner::of(Host::on(kernel, 4, ME));
            let malformed = |packet: Packet| owner.refuses(&packet, "drop_malformed 1");
            let pairs = || owner.pairs(FIRST, &[(1, 1)]);
            let question = || owner.question(2, 1);
            let held = || owner.held(2, 1, |_| 1);
            for spoil in of_all {
                malformed(pairs().with(|p| spoil(&mut p.frame)));
                malformed(question().with(|p| spoil(&mut p.frame)));
                malformed(held().with(|p| spoil(&mut p.frame)));
            }
            for spoil in of_pairs {
                malformed(pairs().with(|p| spoil(&mut p.frame)));
            }
            malformed(question().with(|p| p.frame.detail = 1));
            malformed(held().with(|p| p.frame.detail = 1));
            malformed(held().with(|p| p.frame.op = SUM));
            malformed(held().with(|p| p.frame.type_ = U64));
            for length in [8, 24, 16 * MOST + 16] {
                malformed(owner.host.other(2, FIRST.frame(), &vec![0; length]));
            }
            for length in [0, 8, 1016, 1032] {
                let frame = Owner::held_frame(2, ME, 1);
                malformed(owner.host.other(2, frame, &vec![0; length]));
            }
        }
    });
}

#[test]
fn only_members_are_believed() {
    in_namespace(|| {
        for (owner, drop) in
            [(Owner::new(), "drop_forged"), (Owner::of(Host::without_key(4, ME)), "drop_corrupt")]
        {
            for packet in [
                owner.pairs(FIRST, &[(1, 1), (2, 2)]),
                owner.question(2, 1),
                owner.held(2, 1, |_| 9),
            ] {
                let last = 8 * (b::FB_FRAME_BYTES as usize + packet.payload.len()) - 1;
                for bit in [8 * 16 + 1, 8 * 48, last] {
                    owner.refuses(&packet.clone().flipped(bit), &format!("{drop} 1, frames_in 1"));
                }
                let elsewhere = packet.with(|p| p.ip.from = address(3));
                owner.refuses(&elsewhere, "drop_stranger 1");
            }
        }
    });
}

#[test]
fn a_group_without_a_table_takes_none() {
    in_namespace(|| {
        let (owner, bare) = (Owner::new(), Host::new(4, ME));
        // A table that was another group's.
        let stale = Owner::new();
        set_element(&stale.table, 0, &b::fb_table { token: 1, ..stale.table() });
        let asked = |host: &Host, packet: Packet| {
            assert_eq!(host.ingress(&packet).code, TC_TAKEN);
            assert_eq!(host.counted(), "drop_window 1, frames_in 1");
        };
        for host in [&bare, &stale.host] {
            asked(host, host.other(2, FIRST.frame(), &bytes(&[(1, 1)])));
            asked(
                host,
                host.other(2, owner.question(2, 1).frame, &[]).with(|p| p.frame.token = host.token),
            );
            let held = Owner::held_frame(2, ME, 1);
            asked(host, host.other(2, held, &held_bytes(|_| 1)));
        }
        assert_eq!(stale.part(5).held, [0; 64]);
    });
}

#[test]
fn a_question_is_answered_by_what_each_part_holds() {
    in_namespace(|| {
        for host in [Host::new(4, ME), Host::without_key(4, ME), Host::on(Kernel::jumbo(), 4, ME)] {
            let (owner, peer) = (Owner::of(host), Peer::listen());
            let holds = |part: u64| part * part + (part << 40);
            for part in 0..b::FB_PARTS.into() {
                owner.change_part(part, |at| (at.held[2], at.held[3]) = (holds(part), 77));
            }
            for seq in [1, 9] {
                let question = owner.question(2, seq);
                assert_eq!(owner.host.xdp(&question).code, XDP_PASS);
                let before = owner.words();
                let verdict = owner.host.ingress(&question);
                assert_eq!((verdict.code, verdict.mark), (TC_REDIRECT, b::FB_MARK));
                let frame = Owner::held_frame(ME, 2, seq);
                assert!(verdict.packet == owner.host.sent_frame(2, frame, &held_bytes(holds)));
                assert_eq!(owner.host.counted(), "frames_in 1, frames_out 1");
                assert!(owner.words() == before);
            }
            assert!(peer.frames(0).is_empty());
        }
    });
}

#[test]
fn an_answer_says_what_its_sender_holds() {
    in_namespace(|| {
        for kernel in [Kernel::shared(), Kernel::jumbo()] {
            let owner = Owner::of(Host::on(kernel, 4, ME));
            assert_eq!(owner.host.xdp(&owner.held(2, 1, |_| 1)).code, XDP_PASS);
            assert_eq!(owner.host.counted(), "");
            let known = |member: usize| -> Vec<u64> {
                (0..b::FB_PARTS.into()).map(|part| owner.part(part).known[member]).collect()
            };
            let all = |of: fn(u64) -> u64| (0..b::FB_PARTS.into()).map(of).collect::<Vec<_>>();
            assert_eq!(owner.host.ingress(&owner.held(2, 4, |part| 100 + part)).code, TC_TAKEN);
            assert_eq!(owner.host.counted(), "frames_in 1");
            assert_eq!((known(2), owner.table().answered[2]), (all(|part| 100 + part), 4));
            // Late, and so of what was held before; but for one part it says more.
            let late = owner.held(2, 3, |part| if part == 7 { 500 } else { 50 });
            assert_eq!(owner.host.ingress(&late).code, TC_TAKEN);
            assert_eq!(owner.host.counted(), "duplicates 1, frames_in 1");
            assert_eq!(known(2), all(|part| if part == 7 { 500 } else { 100 + part }));
            assert_eq!(owner.table().answered[..4], [0, 0, 4, 0]);
            owner.host.ingress(&owner.held(2, 5, |_| 500));
            assert_eq!((known(2), known(3)), (all(|_| 500), all(|_| 0)));
            assert_eq!((owner.table().answered[2], owner.table().epoch), (5, EPOCH));
        }
    });
}

#[test]
fn xdp_leaves_them_to_tc() {
    in_namespace(|| {
        let owner = Owner::new();
        let packet = owner.pairs(FIRST, &[(1, 1)]);
        let verdict = owner.host.xdp(&packet);
        assert_eq!((verdict.code, owner.host.counted()), (XDP_PASS, String::new()));
        assert!(verdict.packet == packet.bytes());
    });
}

#[test]
fn a_leader_sends_pairs_and_questions_and_no_answers() {
    in_namespace(|| {
        let owner = Owner::new();
        let out = |packet: Packet| packet.with(|p| p.frame.target = 2);
        let mine = Said { source: ME, ..FIRST };
        for packet in [out(owner.pairs(mine, &[(1, 1)])), out(owner.question(ME, 1))] {
            let verdict = owner.host.egress(&packet);
            assert_eq!((verdict.code, verdict.mark), (TC_NEXT, 0));
            assert!(verdict.packet == packet.let_out().bytes());
            assert_eq!(owner.host.counted(), "frames_out 1");
        }
        let held = owner.host.other(ME, Owner::held_frame(ME, 2, 1), &held_bytes(|_| 1));
        for wrong in [
            held,
            owner.pairs(mine, &[(1, 1)]),
            owner.question(ME, 1),
            out(owner.pairs(Said { op: 0, ..mine }, &[(1, 1)])),
            out(owner.pairs(Said { source: 3, ..mine }, &[(1, 1)])).with(|p| p.udp.from = 40_000),
        ] {
            assert_eq!(owner.host.egress(&wrong).code, TC_TAKEN);
            assert_eq!(owner.host.counted(), "drop_malformed 1");
        }
        assert_eq!(owner.part(5).held, [0; 64]);
    });
}

/// As many frames as a super-frame has, for parts by turns; what a test run takes is short.
#[test]
fn each_frame_of_a_super_frame_goes_to_its_part() {
    in_namespace(|| {
        for kernel in [Kernel::shared(), Kernel::jumbo()] {
            let owner = Owner::of(Host::on(kernel, 4, ME));
            let count = u64::from(b::FB_MOST_FRAMES);
            let frame = |number: u64, source| {
                let said = Said { source, part: number % 4, seq: 1 + number / 4, ..FIRST };
                owner.pairs(said, &[(number % 3, number)])
            };
            let whole = |source| {
                let mut frames = (0..count).map(|number| frame(number, source));
                let first = frames.next().expect("a frame");
                first.and(&frames.collect::<Vec<_>>())
            };
            let verdict = owner.host.segmented(Hook::Ingress, &whole(2), count as u32, 16);
            assert_eq!(verdict.code, TC_TAKEN);
            assert_eq!(owner.host.counted(), format!("frames_in {count}, pairs_folded {count}"));
            for part in 0..4 {
                let mut all = BTreeMap::new();
                for number in (0..count).filter(|number| number % 4 == part) {
                    fold_into(&mut all, &[(number % 3, number)], SUM, U64);
                }
                assert_eq!(BTreeMap::from_iter(owner.contents(part).0), all);
                assert_eq!(owner.part(part).held[2], count / 4);
            }
            owner.host.segmented(Hook::Ingress, &whole(2), count as u32, 16);
            assert_eq!(owner.host.counted(), format!("duplicates {count}, frames_in {count}"));

            let verdict = owner.host.segmented(
                Hook::Egress,
                &whole(ME).with(|p| p.frame.target = ME),
                count as u32,
                16,
            );
            assert_eq!(
                (verdict.code, owner.host.counted().as_str()),
                (TC_TAKEN, "drop_malformed 1")
            );
        }
    });
}

/// A spoilt frame takes no other with it. But no later one of its part is folded.
#[test]
fn each_frame_of_a_super_frame_is_judged_by_itself() {
    in_namespace(|| {
        let owner = Owner::new();
        let said = |part, seq| Said { part, seq, ..FIRST };
        let pair = |said| owner.pairs(said, &[(1, 1)]);
        let spoilt = pair(said(5, 1)).sealed().with(|p| p.frame.consumed = 1);
        let forged = pair(said(6, 1)).sealed().with(|p| p.frame.message += 1);
        let all = [spoilt, pair(said(5, 2)), forged, pair(said(7, 1)), owner.question(2, 1)];
        let whole = pair(said(4, 1)).and(&all);
        assert_eq!(owner.host.segmented(Hook::Ingress, &whole, 6, 16).code, TC_TAKEN);
        assert_eq!(
            owner.host.counted(),
            "drop_forged 1, drop_malformed 2, drop_window 1, frames_in 4, pairs_folded 2"
        );
        assert_eq!([4, 5, 6, 7].map(|part| owner.part(part).held[2]), [1, 0, 0, 1]);
        // Of a super-frame whose frames are no longer: nothing is answered.
        let question = owner.question(2, 1);
        let two = owner.host.segmented(Hook::Ingress, &question.clone().and(&[question]), 2, 0);
        assert_eq!((two.code, owner.host.counted().as_str()), (TC_TAKEN, "drop_malformed 2"));

        let ours = |owner_of: u8| {
            let mine = |part| Said { source: ME, part, ..FIRST };
            let to = |packet: Packet, to| packet.with(|p: &mut Packet| p.frame.target = to);
            let last = to(owner.pairs(mine(2), &[(1, 1)]), owner_of);
            to(owner.pairs(mine(1), &[(1, 1)]), 2).and(&[last])
        };
        let out = owner.host.segmented(Hook::Egress, &ours(2), 2, 16);
        assert_eq!((out.code, owner.host.counted().as_str()), (TC_NEXT, "frames_out 2"));
        let out = owner.host.segmented(Hook::Egress, &ours(3), 2, 16);
        assert_eq!((out.code, owner.host.counted().as_str()), (TC_TAKEN, "drop_malformed 1"));
    });
}

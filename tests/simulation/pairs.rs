//! Pairs of keys and values at the table of their owner, as user space folds them: by the code of the programs.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Mutex;

use foldback::bindings as b;
use foldback::keeper::userspace_hook::{Datagrams, UserspaceHook};
use foldback::wire::cells::Mapped;
use foldback::wire::table::TableMemory;
use foldback::wire::{Identity, Seal, Secret};

use crate::random::Rng;

const MEMBERS: u8 = 4;
/// The member whose table it is.
const OWNER: u8 = 0;
/// Parts that are used: the first and the last among them.
const PARTS: [u64; 3] = [0, 1, b::FB_PARTS as u64 - 1];
/// Frames of each member for each part, in each epoch.
const FRAMES: u64 = 25;
const EPOCHS: u64 = 3;

/// A table in memory of this process, for as long as that lives.
#[derive(Clone, Copy)]
struct Leaked(*mut b::fb_table);

// SAFETY: whoever has the table changes it by the rules of the programs, on any thread.
unsafe impl Send for Leaked {}
// SAFETY: as above.
unsafe impl Sync for Leaked {}
// SAFETY: as many elements, of zeroes, which are never freed.
unsafe impl TableMemory for Leaked {
    fn base(&self) -> *mut b::fb_table {
        self.0
    }
}

impl Leaked {
    fn new() -> Self {
        let words = (1 + b::FB_PARTS as usize) * size_of::<b::fb_part>() / 8;
        Self(vec![0_u64; words].leak().as_mut_ptr().cast())
    }

    fn set_epoch(&self, epoch: u64) {
        // SAFETY: the first element. The tests have one thread.
        unsafe { (*self.0).epoch = epoch }
    }

    fn answered(&self, member: u8) -> u64 {
        // SAFETY: as above.
        unsafe { (*self.0).answered[usize::from(member)] }
    }

    fn part(&self, part: u64) -> *mut b::fb_part {
        // SAFETY: one of the elements.
        unsafe { self.0.cast::<b::fb_part>().add(1 + part as usize) }
    }

    fn held(&self, part: u64, member: u8) -> u64 {
        // SAFETY: an element. The tests have one thread.
        unsafe { (*self.part(part)).held[usize::from(member)] }
    }

    fn known(&self, part: u64, member: u8) -> u64 {
        // SAFETY: as above.
        unsafe { (*self.part(part)).known[usize::from(member)] }
    }

    /// Takes all pairs out of a part.
    fn take(&self, at: u64, into: &mut BTreeMap<(u64, u64), u64>) {
        // SAFETY: as above.
        let part = unsafe { &mut *self.part(at) };
        assert_eq!(part.lock, 0);
        let slots = part.slot.as_chunks::<{ b::FB_BUCKET_SLOTS as usize }>().0;
        let mut pairs: Vec<b::fb_pair> = Vec::new();
        for (slots, taken) in slots.iter().zip(part.taken) {
            pairs.extend(
                slots
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| taken >> at & 1 == 1)
                    .map(|(_, pair)| pair),
            );
        }
        assert_eq!(pairs.len(), part.pairs as usize);
        pairs.extend(&part.spill[..part.spilt as usize]);
        for pair in pairs {
            add(into, at, pair.key, pair.value);
        }
        (part.pairs, part.spilt, part.taken) = (0, 0, [0; b::FB_BUCKETS as usize]);
    }
}

fn add(into: &mut BTreeMap<(u64, u64), u64>, part: u64, key: u64, value: u64) {
    let sum = into.entry((part, key)).or_default();
    *sum = sum.wrapping_add(value);
}

/// Keeps what is sent.
#[derive(Default)]
struct Kept(Mutex<Vec<(u8, b::fb_frame, Vec<u8>)>>);

impl Datagrams for Kept {
    fn send(&self, member: u8, frame: &b::fb_frame, payload: &[u8]) {
        self.0.lock().unwrap().push((member, *frame, payload.to_vec()));
    }
}

struct Host {
    identity: Identity,
    hook: UserspaceHook<Mapped, Kept>,
    table: Leaked,
}

impl Host {
    fn new(me: u8) -> Self {
        let seal = Seal::new(Some(Secret::new([7, 7])));
        let chunk_bytes = b::FB_CHUNK_BYTES as u16;
        let identity =
            Identity { token: 7, seal, members: MEMBERS, me, chunk_bytes, multicast: false };
        let cells = Mapped::own(8, chunk_bytes).expect("memory for cells");
        let hook = UserspaceHook::new(&identity, cells, Kept::default());
        Self { identity, hook, table: Leaked::new() }
    }

    fn frame(&self, epoch: u64, seq: u64) -> b::fb_frame {
        b::fb_frame { seq, target: OWNER, message: epoch, ..self.identity.frame(b::FB_KIND_PAIRS) }
    }

    fn sent(&self) -> Vec<(u8, b::fb_frame, Vec<u8>)> {
        std::mem::take(&mut self.hook.out().0.lock().unwrap())
    }
}

/// A frame of pairs with its payload.
type Sent = (b::fb_frame, Vec<u8>);

/// All frames of a member for a part. Keys are few, or all different.
fn frames(
    host: &Host,
    part: u64,
    rng: &mut Rng,
    sums: &mut [BTreeMap<(u64, u64), u64>],
) -> Vec<Sent> {
    let mut frames = Vec::new();
    for (epoch, sums) in (0..).zip(sums) {
        for number in 0..FRAMES {
            let keys = if rng.below(2) == 0 { 100 } else { u64::MAX };
            let count = 1 + rng.below(b::FB_FRAME_PAIRS.into());
            let mut payload = Vec::new();
            for _ in 0..count {
                let (key, value) = (rng.below(keys).wrapping_sub(1), rng.next());
                add(sums, part, key, value);
                payload.extend([key.to_ne_bytes(), value.to_ne_bytes()].concat());
            }
            let frame = b::fb_frame {
                op: b::FB_OP_SUM as u8,
                type_: b::FB_TYPE_U64 as u8,
                length: payload.len() as u16,
                detail: part,
                ..host.frame(epoch, 1 + epoch * FRAMES + number)
            };
            frames.push((host.identity.seal.sealed(frame, &payload), payload));
        }
    }
    frames
}

/// Frames come in any order, some of them often, some spoilt, some of the epoch to come.
#[test]
fn each_pair_is_folded_once() {
    for seed in 0..10 {
        let mut rng = Rng(seed);
        let mut expected = vec![BTreeMap::new(); EPOCHS as usize];
        let hosts: Vec<Host> = (0..MEMBERS).map(Host::new).collect();
        let owner = &hosts[usize::from(OWNER)];
        owner.hook.set_table(Box::new(owner.table));
        let mut streams = BTreeMap::new();
        for member in owner.identity.others() {
            for part in PARTS {
                let host = &hosts[usize::from(member)];
                streams.insert((member, part), frames(host, part, &mut rng, &mut expected));
            }
        }
        for (epoch, expected) in (0..).zip(&expected) {
            owner.table.set_epoch(epoch);
            let (mut sums, mut steps) = (BTreeMap::new(), 0);
            let all =
                |(member, part): (u8, u64)| owner.table.held(part, member) == (1 + epoch) * FRAMES;
            while !streams.keys().all(|stream| all(*stream)) {
                steps += 1;
                assert!(steps < 100_000, "seed {seed}, epoch {epoch}");
                let part = PARTS[rng.below(3) as usize];
                let stream = &streams[&(1 + rng.below(3) as u8, part)];
                let near = owner.table.held(part, stream[0].0.source) + rng.below(5);
                let (frame, payload) = &stream[(near.max(2) - 2).min(EPOCHS * FRAMES - 1) as usize];
                let mut frame = *frame;
                if rng.below(10) == 0 {
                    frame.seq += 1;
                }
                owner.hook.take_in(&frame, payload);
                if rng.below(150) == 0 {
                    owner.table.take(part, &mut sums);
                }
            }
            PARTS.into_iter().for_each(|part| owner.table.take(part, &mut sums));
            assert!(sums == *expected, "seed {seed}, epoch {epoch}");
        }
        let counters = owner.hook.counters();
        let pairs =
            streams.values().flatten().map(|(_, payload)| payload.len() as u64 / 16).sum::<u64>();
        assert_eq!(counters.pairs_folded, pairs);
        let trouble = [
            counters.pairs_spilt,
            counters.duplicates,
            counters.drop_window,
            counters.drop_full,
            counters.drop_forged,
        ];
        assert!(trouble.iter().all(|count| *count > 0), "{trouble:?}");
        assert!(owner.sent().is_empty(), "nothing is answered unasked");
    }
}

#[test]
fn who_asks_gets_to_know_what_is_held() {
    let (owner, asker) = (Host::new(OWNER), Host::new(2));
    let mut rng = Rng(1);
    let frames = frames(&asker, 1, &mut rng, &mut [BTreeMap::new()]);
    let ask = |seq| {
        let question = asker.frame(0, seq);
        owner.hook.take_in(&asker.identity.seal.sealed(question, &[]), &[]);
        owner.sent()
    };
    assert!(ask(1).is_empty(), "without a table");
    assert_eq!(owner.hook.counters().drop_window, 1);
    owner.hook.set_table(Box::new(owner.table));
    asker.hook.set_table(Box::new(asker.table));
    for (frame, payload) in frames.iter().take(3) {
        asker.hook.let_out(OWNER, frame, payload);
        for (to, frame, payload) in asker.sent() {
            assert_eq!(to, OWNER);
            owner.hook.take_in(&frame, &payload);
        }
    }
    let answers = ask(2);
    assert_eq!(answers.len(), 1);
    for (to, frame, payload) in &answers {
        assert_eq!((*to, frame.target, frame.source), (2, 2, OWNER));
        asker.hook.take_in(frame, payload);
    }
    let known = [0, 1, 2].map(|part| asker.table.known(part, OWNER));
    assert_eq!((known, asker.table.answered(OWNER)), ([0, 3, 0], 2));
    // An answer that comes twice says nothing new.
    let (_, frame, payload) = &answers[0];
    asker.hook.take_in(frame, payload);
    assert_eq!(asker.hook.counters().duplicates, 1);
    // A member that has ended the epoch still answers one that has not.
    owner.table.set_epoch(1);
    assert_eq!(ask(3).len(), 1);
}

//! Pairs on their way to the owners of their keys, whose kernels combine them (`bpf/pairs.h`).
//!
//! The frames of a member for one part of an owner's table have numbers without gaps. The owner's kernel folds frame n
//! if it holds those up to n - 1, and nothing else, so each frame is folded once. It says nothing unasked. The sender
//! asks it after some frames, and sends again what it does not hold then.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::table::{PARTS, Table, TableMemory, bytes};
use super::{Identity, Transport};
use crate::bindings as b;
use crate::leaf::arithmetic::{Element, Operator};

/// Frames after which the owner is asked, and the times this is done before an answer has to be there.
const FRAMES: usize = b::FB_MOST_FRAMES as usize;
const QUESTIONS: usize = 2;
/// Words of the pairs of a frame, at most.
const WORDS: usize = 2 * b::FB_FRAME_PAIRS as usize;
/// The time after which a question is repeated, at first and at most.
const PATIENCE: Duration = Duration::from_millis(2);
const PATIENCE_MAX: Duration = Duration::from_millis(128);

/// The number of the first delivery: a table that was just made takes no frames.
const FIRST_EPOCH: u64 = 1;

/// The numbers of a member's frames of pairs, for as long as its group lives.
pub struct Stream {
    /// By owner and part.
    sent: Vec<[u64; PARTS]>,
    /// By owner.
    questions: Vec<u64>,
    /// Frames that each member sends here by the end of this delivery, since the first one.
    expected: Vec<u64>,
    epoch: u64,
}

impl Stream {
    /// Nothing is sent yet. The table, which was made for that, takes frames from now on.
    pub fn new<M: TableMemory>(members: u8, table: &Table<M>) -> Self {
        table.set_epoch(FIRST_EPOCH);
        let members = usize::from(members);
        let (sent, zeroes) = (vec![[0; PARTS]; members], vec![0; members]);
        Self { sent, questions: zeroes.clone(), expected: zeroes, epoch: FIRST_EPOCH }
    }

    /// Each member's next delivery brings so many frames here.
    pub fn expect(&mut self, frames: impl IntoIterator<Item = u64>) {
        self.expected.iter_mut().zip(frames).for_each(|(all, more)| *all += more);
    }

    /// Whether the table holds all frames that were expected.
    pub fn is_complete<M: TableMemory>(&self, table: &Table<M>) -> bool {
        self.expected.iter().zip(0..).all(|(frames, member)| table.held(member) >= *frames)
    }

    /// Ends a delivery: all frames of this member, and to it, are held. Takes out all that is left in the table, which
    /// then takes frames of the next delivery.
    pub fn end<M: TableMemory>(&mut self, table: &Table<M>, into: &mut Vec<u64>) {
        table.take(true, into);
        self.epoch += 1;
        table.set_epoch(self.epoch);
    }
}

/// Pairs that are to be combined in one part of their owner's table.
#[derive(Clone, Debug)]
pub struct Sheaf {
    /// The member that has their keys.
    pub owner: u8,
    /// The part.
    pub part: u8,
    /// Their place in a message of keys and values by turns.
    pub words: Range<usize>,
}

impl Sheaf {
    /// Frames that it takes.
    pub fn frames(&self) -> usize {
        self.words.len().div_ceil(WORDS)
    }
}

/// Pairs on their way from one member to all others.
pub struct Delivery {
    op: u8,
    type_: u8,
    ways: Vec<Way>,
}

/// The pairs of one owner.
struct Way {
    owner: u8,
    frames: Vec<Planned>,
    /// Frames to send, in their order.
    waiting: BTreeSet<usize>,
    /// Frames that were sent, and asked about.
    asked: VecDeque<Asked>,
    /// Frames that the owner is not known to hold.
    open: usize,
    patience: Duration,
    /// Nothing is sent before that.
    rests_until: Option<Instant>,
}

struct Planned {
    part: u8,
    seq: u64,
    words: Range<usize>,
}

struct Asked {
    question: u64,
    frames: Vec<usize>,
    when: Instant,
}

/// The means by which a delivery moves.
pub struct Means<'a, M, F> {
    /// The member that sends.
    pub identity: &'a Identity,
    /// Its way to the others.
    pub transport: &'a mut F,
    /// The numbers of its frames.
    pub stream: &'a mut Stream,
    /// Its own table, where answers come.
    pub table: &'a Table<M>,
}

impl Delivery {
    /// Values of words that are combined by `op`, as `element`: integers of 64 bits.
    pub fn new(
        op: Operator,
        element: Element,
        sheaves: &[Sheaf],
        members: u8,
        stream: &mut Stream,
    ) -> Self {
        let mut ways: Vec<_> = (0..members).map(Way::new).collect();
        let before = stream.sent.clone();
        for sheaf in sheaves {
            let way = &mut ways[usize::from(sheaf.owner)];
            let last = &mut stream.sent[usize::from(sheaf.owner)][usize::from(sheaf.part)];
            for start in sheaf.words.clone().step_by(WORDS) {
                *last += 1;
                let words = start..(start + WORDS).min(sheaf.words.end);
                way.frames.push(Planned { part: sheaf.part, seq: *last, words });
            }
        }
        for (way, before) in ways.iter_mut().zip(before) {
            // Parts take turns: all frames of one at once would overflow it.
            way.frames.sort_by_key(|frame| frame.seq - before[usize::from(frame.part)]);
            way.open = way.frames.len();
            way.waiting = (0..way.open).collect();
        }
        Self { op: op as u8, type_: element as u8, ways }
    }

    /// Frames that their owners are not known to hold.
    pub fn open(&self) -> usize {
        self.ways.iter().map(|way| way.open).sum()
    }

    /// Does all that can be done now. Returns whether the owners hold all of it.
    pub fn poll<M: TableMemory, F: Transport>(
        &mut self,
        words: &[u64],
        means: &mut Means<'_, M, F>,
        now: Instant,
    ) -> bool {
        let (op, type_) = (self.op, self.type_);
        for way in &mut self.ways {
            way.hear(means, now);
            way.send(words, (op, type_), means, now);
        }
        self.open() == 0
    }
}

impl Way {
    fn new(owner: u8) -> Self {
        Self {
            owner,
            frames: Vec::new(),
            waiting: BTreeSet::new(),
            asked: VecDeque::new(),
            open: 0,
            patience: PATIENCE,
            rests_until: None,
        }
    }

    /// Takes answers, and asks again if one does not come.
    fn hear<M: TableMemory, F: Transport>(&mut self, means: &mut Means<'_, M, F>, now: Instant) {
        let answered = means.table.answered(self.owner);
        while self.asked.front().is_some_and(|asked| asked.question <= answered) {
            let frames = self.asked.pop_front().expect("one is there").frames;
            let is_held = |at: &usize| {
                let Planned { part, seq, .. } = self.frames[*at];
                means.table.known(part, self.owner) >= seq
            };
            let (held, missing): (Vec<_>, Vec<_>) = frames.into_iter().partition(is_held);
            self.open -= held.len();
            if held.is_empty() {
                // The owner has no room, or the network none: neither gets any sooner if it is pressed.
                self.rests_until = Some(now + self.patience);
                self.patience = (2 * self.patience).min(PATIENCE_MAX);
            } else {
                means.transport.made_progress();
                self.patience = PATIENCE;
            }
            self.waiting.extend(missing);
        }
        let patience = self.patience;
        let Some(asked) = self.asked.front_mut().filter(|asked| now >= asked.when + patience)
        else {
            return;
        };
        // An answer to this one says all that the missing one would.
        (asked.question, asked.when) = (ask(self.owner, means), now);
        let question = asked.question;
        self.asked.iter_mut().skip(1).for_each(|later| later.question = question);
        self.patience = (2 * patience).min(PATIENCE_MAX);
        means.transport.asked_in_vain();
    }

    /// Sends as much as may be under way.
    fn send<M: TableMemory, F: Transport>(
        &mut self,
        words: &[u64],
        (op, type_): (u8, u8),
        means: &mut Means<'_, M, F>,
        now: Instant,
    ) {
        if self.rests_until.is_some_and(|until| now < until) {
            return;
        }
        self.rests_until = None;
        while self.asked.len() < QUESTIONS && !self.waiting.is_empty() {
            let frames: Vec<usize> = self.waiting.iter().copied().take(FRAMES).collect();
            frames.iter().for_each(|at| {
                self.waiting.remove(at);
            });
            let sent = frames.iter().map(|at| {
                let Planned { part, seq, words: range } = &self.frames[*at];
                let payload = bytes(&words[range.clone()]);
                let frame = b::fb_frame {
                    op,
                    type_,
                    seq: *seq,
                    target: self.owner,
                    length: payload.len() as u16,
                    detail: u64::from(*part),
                    message: means.stream.epoch,
                    ..means.identity.frame(b::FB_KIND_PAIRS)
                };
                (means.identity.seal.sealed(frame, payload), payload)
            });
            let sent: Vec<_> = sent.collect();
            means.transport.send_many(self.owner, &sent);
            let question = ask(self.owner, means);
            self.asked.push_back(Asked { question, frames, when: now });
        }
    }
}

/// Asks an owner for what it holds.
fn ask<M, F: Transport>(owner: u8, means: &mut Means<'_, M, F>) -> u64 {
    let question = &mut means.stream.questions[usize::from(owner)];
    *question += 1;
    let frame = b::fb_frame {
        seq: *question,
        target: owner,
        message: means.stream.epoch,
        ..means.identity.frame(b::FB_KIND_PAIRS)
    };
    let frame = means.identity.seal.sealed(frame, &[]);
    means.transport.send(owner, &frame, &[]);
    *question
}

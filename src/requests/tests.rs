//! Requests of one rank, on a stand-in for the MPI. Their operations are sums in groups of two hosts in one process.
//! The test is the other host, and brings its part when it pleases.
#![allow(unsafe_code)]

use std::time::Instant;

use super::work::Work;
use super::*;
use crate::call::{Call, Form, Message, Side};
use crate::codec::prepare;
use crate::collectives::{admit, fit, judge, plan};
use crate::comm::{Communicator, Folding};
use crate::config::Config;
use crate::engine::{Job, Pattern, Script, Step, Ticket, Ways};
use crate::group::Group;
use crate::group::pair::pair;
use crate::leaf::arithmetic::{Arithmetic, Element, Operator};
use crate::mpi::stand_in;
use crate::plan::Case;
use crate::random::Rng;
use crate::wire::{Algorithm, Mismatch};

/// For hangs alone.
const MOST: Duration = Duration::from_secs(120);
const BY: Algorithm = Algorithm::Direct;

/// A rank of two, and the other side of each of its groups.
struct Rank {
    mpi: Mpi,
    requests: &'static Requests,
    homes: Vec<Arc<Communicator>>,
    peers: Vec<Group>,
}

/// A request, with the word that its operation sums.
#[derive(Clone, Copy)]
struct Begun {
    request: u64,
    tag: Tag,
    sum: *const u64,
}

impl Begun {
    fn is_complete(&self) -> bool {
        stand_in::is_complete(self.request)
    }

    fn sum(&self) -> u64 {
        // SAFETY: a word of `words`.
        unsafe { *self.sum }
    }
}

/// Words that stay, and the sum of them in their place.
fn words(words: &[u64]) -> (Job, *const u64) {
    let words: &'static mut [u64] = words.to_vec().leak();
    let (bytes, data) = (size_of_val(words), words.as_mut_ptr());
    let pattern = Pattern::FoldToAll(Arithmetic { op: Operator::Sum, element: Element::U64 });
    (Job { pattern, bytes, send: data.cast(), recv: data.cast() }, data)
}

impl Rank {
    fn new(groups: usize) -> Self {
        let mpi = stand_in::mpi(&stand_in::World::new(2), 0);
        let (mut homes, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..groups {
            let [own, other] = pair(false);
            let folding = Folding::new(own, &Config::default().shared, "stand-in", false);
            homes.push(Arc::new(Communicator::new((0, 2), None, Some(Box::new(folding)))));
            peers.push(other);
        }
        Self { mpi, requests: Box::leak(Box::default()), homes, peers }
    }

    /// Has an operation of a group begun, and opens its request.
    fn add(&self, group: usize, sum: *const u64, begin: impl FnOnce(&mut Group, Outcome)) -> Begun {
        let (slot, mut request, over) = (self.homes[group].slot(), 0u64, Outcome::default());
        // SAFETY: room for a request.
        let open = unsafe { self.requests.open(&self.mpi, (&raw mut request).cast()) };
        let mut held = slot.folding();
        begin(&mut held.as_mut().expect("a group").group, Arc::clone(&over));
        drop(held);
        let tag = open.tag;
        self.requests.add(&self.mpi, Arc::clone(slot), over, Prepared::script(), open);
        Begun { request, tag, sum }
    }

    /// Begins a sum.
    fn begin(&self, group: usize, of: &[u64]) -> Begun {
        let (job, sum) = words(of);
        // SAFETY: the words stay.
        self.add(group, sum, |group, over| unsafe { group.engine.start_in_turn(job, BY, over) })
    }

    /// Has the other side take part in the next sum of a group.
    fn bring(&mut self, group: usize, of: &[u64]) -> Ticket {
        // SAFETY: the words stay.
        unsafe { self.peers[group].engine.start(words(of).0, BY, None) }
    }

    /// Goes on, on both sides, and sees that a request is not complete.
    fn stays_open(&mut self, begun: &Begun) {
        for _ in 0..100 {
            self.go_on();
            assert!(!begun.is_complete(), "its operation is not over");
        }
        assert!(self.requests.open_ones().handles.contains(&begun.request));
    }

    fn go_on(&mut self) {
        self.requests.progress(&self.mpi);
        for peer in &mut self.peers {
            peer.engine.poll(Instant::now);
        }
    }

    /// Goes on until a request is complete.
    fn complete(&mut self, begun: &Begun) {
        let begin = Instant::now();
        while !begun.is_complete() {
            assert!(begin.elapsed() < MOST, "stuck");
            self.go_on();
            thread::yield_now();
        }
        assert!(!self.requests.open_ones().handles.contains(&begun.request));
    }

    /// As many free tags as these are.
    fn as_many_tags(&self, tags: &HashSet<Tag>) -> HashSet<Tag> {
        let mut open = self.requests.open_ones();
        tags.iter().map(|_| open.tags.take(|_| None).expect("a tag")).collect()
    }
}

#[test]
fn a_request_is_complete_when_its_operation_is_over_and_not_before() {
    let mut rank = Rank::new(1);
    let begun = rank.begin(0, &[3]);
    assert!(rank.requests.any());
    rank.stays_open(&begun);
    rank.bring(0, &[4]);
    rank.complete(&begun);
    assert_eq!(begun.sum(), 7);
    assert!(!rank.requests.any());
    stand_in::wait(begun.request);
    assert_eq!(stand_in::errors(), []);
}

#[test]
fn operations_of_two_groups_end_in_any_order() {
    let mut rank = Rank::new(2);
    let [first, second] = [rank.begin(0, &[1]), rank.begin(1, &[10])];
    rank.bring(1, &[20]);
    rank.complete(&second);
    rank.stays_open(&first);
    rank.bring(0, &[2]);
    rank.complete(&first);
    assert_eq!([first.sum(), second.sum()], [3, 30]);
}

/// The stand-in gives a free handle again at once, and takes no message for which there is no receive.
#[test]
fn handles_and_tags_are_given_back_once() {
    let (mut rank, mut rng) = (Rank::new(3), Rng(1));
    let (mut under_way, mut used) = (Vec::new(), HashSet::new());
    for round in 0..300 {
        if under_way.len() < 8 && rng.below(2) == 0 {
            let group = rng.below(3) as usize;
            let begun = rank.begin(group, &[round]);
            let is_of = |other: &(usize, Begun)| other.1.tag == begun.tag;
            assert!(!under_way.iter().any(is_of), "the tag of another request");
            used.insert(begun.tag);
            under_way.push((group, begun));
        } else if !under_way.is_empty() {
            // The oldest one of some group: its operations end in their order.
            let group = under_way[rng.below(under_way.len() as u64) as usize].0;
            let oldest = under_way.iter().position(|(of, _)| *of == group).expect("one");
            let (_, begun) = under_way.remove(oldest);
            rank.bring(group, &[1]);
            rank.complete(&begun);
            stand_in::wait(begun.request);
        }
        let handles: HashSet<_> = under_way.iter().map(|(_, begun)| begun.request).collect();
        assert_eq!(handles, rank.requests.open_ones().handles);
    }
    for (group, begun) in under_way {
        rank.bring(group, &[1]);
        rank.complete(&begun);
    }
    assert!(used.len() <= 8, "no more tags than requests at a time");
    assert_eq!(rank.as_many_tags(&used), used);
}

/// Sums of some words, one after the other.
struct Sums(Vec<u64>);

impl Script for Sums {
    unsafe fn next(&mut self, outcome: Result<(), Mismatch>) -> Step {
        match self.0.pop() {
            Some(word) if outcome.is_ok() => Step::Job(words(&[word]).0, Ways::Usual),
            _ => Step::Over(outcome),
        }
    }
}

impl Rank {
    fn begin_script(&self, group: usize, of: &[u64]) -> Begun {
        let script = Box::new(Sums(of.iter().rev().copied().collect()));
        // SAFETY: the words of its jobs stay.
        let run = |group: &mut Group, over| unsafe { group.engine.run(script, Some(BY), over) };
        self.add(group, std::ptr::null(), run)
    }
}

#[test]
fn the_request_of_a_script_is_complete_after_its_last_step() {
    let mut rank = Rank::new(1);
    let begun = rank.begin_script(0, &[1, 2, 3]);
    for _ in 0..3 {
        rank.stays_open(&begun);
        rank.bring(0, &[1]);
    }
    rank.complete(&begun);
    // One without a job is over at once.
    assert!(rank.begin_script(0, &[]).is_complete());
}

#[test]
fn calls_behind_a_script_wait_for_their_turn() {
    let mut rank = Rank::new(1);
    let script = rank.begin_script(0, &[1, 2]);
    let behind = rank.begin(0, &[100]);
    let (next, last) = (rank.begin_script(0, &[3]), rank.begin(0, &[1000]));
    let bring = |rank: &mut Rank, word: u64, want: u64| {
        let (job, sum) = words(&[word]);
        // SAFETY: the words stay.
        let ticket = unsafe { rank.peers[0].engine.start(job, BY, None) };
        let begin = Instant::now();
        while !rank.peers[0].engine.is_over(ticket) {
            assert!(begin.elapsed() < MOST, "stuck");
            rank.go_on();
        }
        // SAFETY: a word of `words`.
        assert_eq!(unsafe { *sum }, want);
    };
    bring(&mut rank, 10, 11);
    rank.stays_open(&script);
    bring(&mut rank, 20, 22);
    rank.complete(&script);
    rank.stays_open(&behind);
    bring(&mut rank, 200, 300);
    rank.complete(&behind);
    bring(&mut rank, 30, 33);
    rank.complete(&next);
    rank.stays_open(&last);
    bring(&mut rank, 2000, 3000);
    rank.complete(&last);
    assert_eq!([behind.sum(), last.sum()], [300, 3000]);
}

/// The request is complete all the same: the program may wait for it.
#[test]
fn an_error_of_an_operation_reaches_the_error_handler() {
    let mut rank = Rank::new(1);
    let begun = rank.begin(0, &[1, 2]);
    rank.bring(0, &[1]);
    rank.complete(&begun);
    assert_eq!(stand_in::errors(), [], "while something may be held");
    rank.mpi.handle_errors();
    assert_eq!(stand_in::errors(), [(rank.mpi.abi.comm_world, stand_in::TRUNCATED)]);
    let begun = rank.begin(0, &[5]);
    rank.bring(0, &[6]);
    rank.complete(&begun);
    rank.mpi.handle_errors();
    assert_eq!((begun.sum(), stand_in::errors()), (11, vec![]));
}

#[test]
#[should_panic(expected = "MPI_Abort")]
fn ranks_in_different_collectives_end_the_job() {
    let mut rank = Rank::new(1);
    let begun = rank.begin(0, &[1]);
    rank.bring(0, &[1; 1000]);
    rank.complete(&begun);
}

impl Rank {
    /// Makes the request of a persistent sum of a word in its place.
    fn initialise(&self, word: *mut u64) -> u64 {
        let Mpi { abi, .. } = &self.mpi;
        let word = word.cast_const().cast();
        let call = Call {
            collective: "Allreduce".parse().expect("a collective"),
            send: Side::new(abi.in_place as *const c_void, 0, 0),
            recv: Side::new(word, 1, abi.word),
            op: abi.sum,
            root: 0,
            comm: abi.comm_world,
        };
        let (config, mut seen, mut request) = (Config::default(), Message::default(), 0u64);
        let form = Form::Persistent;
        let admitted = admit(&self.mpi, &config, || false, form, &call, &mut seen);
        let admitted = admitted.expect("a call that is folded");
        // SAFETY: arguments of this test's.
        let ends = unsafe { judge(&self.mpi, &call, admitted.shape(), (0, 2)) }.expect("right");
        let home = &self.homes[0];
        let mut held = home.folding();
        let place = &mut held.as_mut().expect("a group").group.engine.place;
        let case = Case { call: &call, admitted: &admitted, ends: &ends };
        let work = Work::Planned(fit(case, place).expect("one that fits"));
        let (call, about) = ((call, (0, 2)), (admitted, work, seen));
        let group = (Arc::clone(home.slot()), Arc::clone(home));
        // SAFETY: arguments of this test's.
        unsafe {
            let request = (&raw mut request).cast();
            self.requests.add_persistent(&self.mpi, call, about, group, request);
        }
        request
    }
}

#[test]
fn a_persistent_request_keeps_its_tag_until_it_is_freed() {
    let mut rank = Rank::new(1);
    let word: *mut u64 = vec![1].leak().as_mut_ptr();
    let request = rank.initialise(word);
    let persistent = rank.requests.persistent.get(request).expect("it is known");
    let tag = persistent.open(request).tag;
    for round in 0..10 {
        // A request of the program's that is complete first has another tag.
        let beside = rank.begin(0, &[5]);
        assert!(beside.tag != tag);
        let Work::Planned(fit) = &persistent.work else { panic!("folded") };
        let plan = plan(persistent.case(), fit.clone());
        // SAFETY: a request, and a word that stays.
        let (job, prepared) = unsafe {
            assert_eq!((rank.mpi.pmpi.start)(&mut { request }), 0);
            prepare(&rank.mpi, plan)
        };
        let over = Outcome::default();
        let mut held = persistent.group.folding();
        let engine = &mut held.as_mut().expect("a group").group.engine;
        // SAFETY: a word that stays.
        unsafe { engine.start_in_turn(job, BY, Arc::clone(&over)) };
        drop(held);
        let (slot, open) = (Arc::clone(&persistent.group), persistent.open(request));
        rank.requests.add(&rank.mpi, slot, over, prepared, open);
        let begun = Begun { request, tag, sum: word };
        rank.bring(0, &[6]);
        rank.complete(&beside);
        rank.stays_open(&begun);
        rank.bring(0, &[1]);
        rank.complete(&begun);
        assert_eq!((begun.sum(), beside.sum()), (round + 2, 11));
        [begun, beside].iter().for_each(|begun| stand_in::wait(begun.request));
    }
    let free = || rank.requests.free_persistent(&rank.mpi, request);
    assert!(free().is_some_and(|(_, home)| Arc::ptr_eq(&home, &rank.homes[0])));
    assert!(free().is_none() && !rank.requests.persistent.any());
    let tags = HashSet::from([tag, Tag { tag: tag.tag + 1, ..tag }]);
    assert_eq!(rank.as_many_tags(&tags), tags);
}

//! Collectives of two ranks in one process, on a stand-in for the MPI. Each rank is a thread, with a process of its own
//! in the sense of this library. They fold in a group of two hosts without programs.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::call::{Counts, Side};
use crate::choice::ClassId;
use crate::comm::{Alike, Folding};
use crate::config::{Policy, Sum};
use crate::group::pair::pair;
use crate::mpi::pmpi::Handle;
use crate::mpi::stand_in::{self, Laid, World};
use crate::process::stand_in::started;

/// For hangs alone.
const MOST: Duration = Duration::from_secs(120);
/// Calls that are folded before the first trial, and calls by each way in that, at least.
const WARM: u64 = 16;
const TRIAL: u64 = 4;
/// A communicator without a group.
const BARE: Handle = 0x2000;

struct Rank {
    rank: usize,
    process: &'static Process,
    world: Handle,
}

/// The way of calls, and their number: the reason, and whether they were quantized.
type Counted = (Option<String>, bool, u64);

/// Folds whatever it can.
fn folds() -> Config {
    let mut config = Config::default();
    config.shared.policy = Policy::Fold;
    config
}

/// Runs both ranks, and returns what they do. If one panics, the other is not waited for.
fn ranks<T: Send + 'static>(
    config: &Config,
    run: impl Fn(&Rank) -> T + Clone + Send + 'static,
) -> [T; 2] {
    let world = World::new(2);
    let (tell, told) = mpsc::channel();
    for (rank, group) in pair(false).into_iter().enumerate() {
        let (config, run, world, tell) = (config.clone(), run.clone(), world.clone(), tell.clone());
        thread::spawn(move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let folding = Folding::new(group, &config.shared, "stand-in", false);
                let process = started(stand_in::mpi(&world, rank), Ok(config));
                let rank = Rank { rank, process, world: process.mpi.abi.comm_world };
                let alike = Alike { completes: true, ordered: true };
                process.communicators.set_alike(alike);
                let folds = Communicator::new((rank.rank, 2), None, Some(Box::new(folding)));
                process.communicators.add(rank.world, folds);
                let bare = Communicator::new((rank.rank, 2), None, None);
                bare.meets();
                process.communicators.add(BARE, bare);
                run(&rank)
            }));
            let _ = tell.send((rank, outcome));
        });
    }
    drop(tell);
    let mut all = [None, None];
    for _ in 0..2 {
        let (rank, outcome) = told.recv_timeout(MOST).expect("both ranks come to their end");
        all[rank] = Some(outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    }
    all.map(|one| one.expect("both ranks"))
}

/// The same of ranks that do the same.
fn alike<T: Send + PartialEq + std::fmt::Debug + 'static>(
    config: &Config,
    run: impl Fn(&Rank) -> T + Clone + Send + 'static,
) -> T {
    let [one, other] = ranks(config, run);
    assert_eq!(one, other);
    one
}

/// A datatype by its size, an integer with a sign or a number of floating point.
trait Element: Copy {
    const IS_REAL: bool;

    fn handle(rank: &Rank) -> Handle {
        match (Self::IS_REAL, size_of::<Self>()) {
            (true, 4) => 0x210,
            (true, _) => 0x214,
            (false, bytes) => rank.process.mpi.abi.signed(bytes).expect("an integer"),
        }
    }
}

impl Element for i32 {
    const IS_REAL: bool = false;
}
impl Element for f32 {
    const IS_REAL: bool = true;
}
impl Element for f64 {
    const IS_REAL: bool = true;
}

impl Rank {
    fn call<T: Element>(&self, name: &str, send: &[T], recv: &mut [T], comm: Handle) -> Call {
        Call {
            collective: name.parse().expect("a collective"),
            send: Side::new(send.as_ptr().cast(), 0, 0),
            recv: Side::new(recv.as_mut_ptr().cast(), recv.len() as i64, T::handle(self)),
            op: self.process.mpi.abi.sum,
            root: 0,
            comm,
        }
    }

    /// A call that blocks.
    fn blocks(&self, call: &Call) -> Result<c_int, Option<Box<After>>> {
        // SAFETY: buffers of this test's, or arguments that are refused.
        unsafe { collective(self.process, Form::Blocking, call, std::ptr::null_mut()) }
    }

    /// The sum of both ranks' elements; `None`: it is left to the MPI.
    fn sum<T: Element + Default>(&self, send: &[T], comm: Handle) -> Option<Vec<T>> {
        let mut recv = vec![T::default(); send.len()];
        let code = self.blocks(&self.call("Allreduce", send, &mut recv, comm)).ok()?;
        assert_eq!(code, SUCCESS);
        Some(recv)
    }

    fn counted(&self) -> Vec<Counted> {
        let mut all = BTreeMap::new();
        for line in self.process.calls.lines() {
            *all.entry((line.reason, line.quantized)).or_default() += line.calls;
        }
        all.into_iter().map(|((reason, quantized), calls)| (reason, quantized, calls)).collect()
    }
}

fn folded(calls: u64) -> Counted {
    (None, false, calls)
}

fn left(reason: Reason, calls: u64) -> Counted {
    (Some(reason.text().into()), false, calls)
}

#[test]
fn a_blocking_call_has_the_right_result_on_both_ranks() {
    let counted = alike(&folds(), |rank| {
        for round in 0..20 {
            let own = [rank.rank as i32 + 1, round, -5];
            assert_eq!(rank.sum(&own, rank.world), Some(vec![3, 2 * round, -10]));
        }
        let all = [1.5, rank.rank as f64];
        assert_eq!(rank.sum(&all, rank.world), Some(vec![3.0, 1.0]));
        let long: Vec<i32> = (0..5000).map(|i| i * (rank.rank as i32 + 1)).collect();
        let want = (0..5000).map(|i| 3 * i).collect();
        assert_eq!(rank.sum(&long, rank.world), Some(want));
        // The sum of the ranks up to this one.
        let mut upto = [0];
        let scan = rank.call("Scan", &[rank.rank as i32 + 1], &mut upto, rank.world);
        assert_eq!(rank.blocks(&scan).ok(), Some(SUCCESS));
        assert_eq!(upto, [2 * rank.rank as i32 + 1]);
        let mut own = [7 * (1 - rank.rank as i32)];
        let bcast = rank.call("Bcast", &[0], &mut own, rank.world);
        assert_eq!(rank.blocks(&Call { send: Side::NONE, op: 0, ..bcast }).ok(), Some(SUCCESS));
        assert_eq!(own, [7]);
        assert!(rank.process.calls.lines().iter().all(|line| line.reason.is_none()));
        rank.process.calls.lines().iter().map(|line| line.calls).sum::<u64>()
    });
    assert_eq!(counted, 24);
}

#[test]
fn a_reason_leaves_a_call_to_the_mpi_on_both_ranks() {
    let mut config = folds();
    config.shared.max_bytes.fill(8);
    let counted = alike(&config, |rank| {
        assert_eq!(rank.sum(&[1, 2, 3], rank.world), None);
        assert_eq!(rank.sum::<i32>(&[], rank.world), None);
        assert_eq!(rank.sum(&[1, 2], rank.world), Some(vec![2, 4]));
        rank.counted()
    });
    assert_eq!(counted, [folded(1), left(Reason::Empty, 1), left(Reason::TooLarge, 1)]);
    config.shared.policy = Policy::Mpi;
    let counted = alike(&config, |rank| {
        assert_eq!(rank.sum(&[1], rank.world), None);
        rank.counted()
    });
    assert_eq!(counted, [left(Reason::Routed, 1)]);
}

/// One rank of two that have not met, with a communicator.
fn stranger(config: Result<Config, String>) -> (Rank, Arc<Communicator>) {
    let process = started(stand_in::mpi(&World::new(2), 0), config);
    let rank = Rank { rank: 0, process, world: process.mpi.abi.comm_world };
    let bare = Communicator::new((0, 2), None, None);
    (rank, process.communicators.add(BARE, bare))
}

#[test]
fn nothing_is_folded_with_settings_that_make_no_sense() {
    let (rank, _) = stranger(Err("nonsense".into()));
    assert_eq!(rank.sum(&[1], BARE), None);
    assert_eq!(rank.counted(), [left(Reason::Off, 1)]);
}

#[test]
fn ranks_meet_at_the_end_of_the_first_call_that_none_completes_alone() {
    let (rank, bare) = stranger(Ok(folds()));
    let (own, mut sum) = ([1], [0]);
    let call = rank.call("Allreduce", &own, &mut sum, BARE);
    let empty = Call { recv: Side { count: 0, ..call.recv }, ..call };
    let bcast = Call { collective: "Bcast".parse().expect("a collective"), ..call };
    for of_some in [empty, bcast] {
        assert!(matches!(rank.blocks(&of_some), Err(None)));
    }
    let Err(Some(after)) = rank.blocks(&call) else { panic!("a meeting") };
    // Others may not have made a call that has failed here.
    after.finish(1);
    assert!(!bare.is_met());
    assert!(bare.meets());
    assert!(matches!(rank.blocks(&call), Err(None)));
    assert_eq!(bare.count(), 3, "calls that are eligible");
    assert_eq!(rank.counted(), [left(Reason::Empty, 1), left(Reason::NotYet, 3)]);
}

#[test]
fn a_communicator_without_a_group_is_counted_and_left() {
    let counted = alike(&folds(), |rank| {
        let bare = rank.process.communicators.get(BARE).expect("it is known");
        for calls in 0..3 {
            assert_eq!(rank.sum(&[1], BARE), None);
            assert_eq!(bare.count(), 2 * calls + 1);
        }
        bare.decline(Reason::NoGroup);
        assert_eq!(rank.sum(&[1], BARE), None);
        assert_eq!(bare.count(), 6, "it is left for good");
        rank.counted()
    });
    assert_eq!(counted, [left(Reason::NotYet, 3), left(Reason::NoGroup, 1)]);
}

/// The other ranks know nothing of them: a program may make up for one by a right call.
#[test]
fn refused_arguments_are_not_counted_with_the_other_ranks() {
    let counted = ranks(&folds(), |rank| {
        let bare = rank.process.communicators.get(BARE).expect("it is known");
        for comm in [BARE, rank.world] {
            let (own, mut sum) = ([1], [0]);
            let right = rank.call("Allreduce", &own, &mut sum, comm);
            let nowhere = Side { data: std::ptr::null_mut(), ..right.recv };
            let wrong = [
                Call { recv: nowhere, ..right },
                Call { send: nowhere, ..right },
                Call { send: right.recv, ..right },
                Call { recv: Side { count: -1, ..right.recv }, ..right },
                Call { recv: Side { datatype: 0x200, ..right.recv }, ..right },
            ];
            // One rank alone has them.
            for wrong in wrong.iter().filter(|_| rank.rank == 1) {
                assert!(matches!(rank.blocks(wrong), Err(None)));
            }
            let code = rank.blocks(&right);
            assert!(if comm == BARE { code.is_err() } else { code.is_ok() && sum == [2] });
        }
        assert_eq!(bare.count(), 1, "the right one");
        rank.counted()
    });
    let [right, mut also_wrong] = counted;
    also_wrong.retain(|(reason, ..)| reason.as_deref() != Some("argument"));
    assert_eq!(right, [folded(1), left(Reason::NotYet, 1)]);
    assert_eq!(also_wrong, right);
}

/// The names of collectives in which each pair of ranks has data of its own.
const OF_PAIRS: [&str; 9] = [
    "Gatherv",
    "Scatterv",
    "Alltoallv",
    "Alltoallw",
    "Neighbor_allgather",
    "Neighbor_allgatherv",
    "Neighbor_alltoall",
    "Neighbor_alltoallv",
    "Neighbor_alltoallw",
];

/// The elements that a rank of two has after each of [`OF_PAIRS`], on a line of both; -1: untouched.
const GOT_BY_PAIRS: [[[i32; 4]; 2]; 9] = [
    [[0, -1, 10, -1], [-1; 4]],
    [[0, -1, -1, -1], [2, -1, -1, -1]],
    [[0, -1, 10, -1], [2, -1, 12, -1]],
    [[0, -1, 10, -1], [2, -1, 12, -1]],
    [[-1, 10, -1, -1], [0, -1, -1, -1]],
    [[-1, -1, 10, -1], [0, -1, -1, -1]],
    [[-1, 10, -1, -1], [1, -1, -1, -1]],
    [[-1, -1, 10, -1], [2, -1, -1, -1]],
    [[-1, -1, 10, -1], [2, -1, -1, -1]],
];

#[test]
fn pairs_of_ranks_have_their_data_in_all_forms_that_do_not_persist() {
    let [root, other] = ranks(&folds(), |rank| {
        stand_in::lay_out(rank.world, Laid::Grid(vec![(2, false)]));
        let own = [0, 1, 2, 3].map(|number| 10 * rank.rank as i32 + number);
        let (ones, places, byte_places) = ([1; 2], [0, 2], [0isize, 8]);
        let types = [i32::handle(rank); 2];
        let (counts, displs) = (ones.as_ptr().cast(), places.as_ptr().cast());
        let counts = Counts { counts, displs, wide: false, wide_displs: false };
        let of_bytes = Counts { displs: byte_places.as_ptr().cast(), wide_displs: true, ..counts };
        let side = |side: Side, name: &str, of_arrays: &[&str]| match name {
            "Alltoallw" | "Neighbor_alltoallw" => {
                Side::typed(side.data, of_bytes, types.as_ptr().cast::<c_void>())
            }
            _ if of_arrays.contains(&name) => Side::each(side.data, counts, i32::handle(rank)),
            _ => Side { count: 1, datatype: i32::handle(rank), ..side },
        };
        let call = |name: &str, all: &mut [i32]| {
            let call = rank.call(name, &own, all, rank.world);
            let sends = ["Scatterv", "Alltoallv", "Neighbor_alltoallv"];
            let receives = ["Gatherv", "Alltoallv", "Neighbor_allgatherv", "Neighbor_alltoallv"];
            let (send, recv) = (side(call.send, name, &sends), side(call.recv, name, &receives));
            Call { send, recv, op: 0, ..call }
        };
        // The first one that does not block finds no communicator for messages, and may not wait for one.
        assert!(begin(rank, &call("Alltoallv", &mut [-1; 4])).is_none());
        for (name, got) in OF_PAIRS.iter().zip(GOT_BY_PAIRS) {
            let mut all = [-1; 4];
            let call = call(name, &mut all);
            assert_eq!(rank.blocks(&call).ok(), Some(SUCCESS), "{name}");
            // One rank alone is wrong.
            let wrong = Call { recv: Side { data: std::ptr::null_mut(), ..call.recv }, ..call };
            if rank.rank == 0 {
                assert!(matches!(rank.blocks(&wrong), Err(None)), "{name}");
            }
            assert_eq!(all, got[rank.rank], "{name}");
        }
        for (name, got) in OF_PAIRS.iter().zip(GOT_BY_PAIRS) {
            let mut all = [-1; 4];
            let request = begin(rank, &call(name, &mut all));
            wait(rank, request.expect("a call of its group"));
            assert_eq!(all, got[rank.rank], "{name}");
        }
        rank.counted()
    });
    assert_eq!(other, [folded(18), left(Reason::NotYet, 1)]);
    assert_eq!(root, [folded(18), (Some("argument".into()), false, 9), left(Reason::NotYet, 1)]);
}

/// A communicator of which the MPI makes a duplicate: it gets no group, and its group no communicator for messages.
#[test]
fn a_communicator_that_is_held_gets_nothing_new() {
    let counted = alike(&folds(), |rank| {
        rank.process.communicators.hold(BARE);
        rank.process.communicators.hold(rank.world);
        assert_eq!(rank.sum(&[1], BARE), None);
        let own = [rank.rank as i32; 2];
        let (ones, places) = ([1; 2], [0, 1]);
        let (counts, displs) = (ones.as_ptr().cast(), places.as_ptr().cast());
        let counts = Counts { counts, displs, wide: false, wide_displs: false };
        let mut all = [-1; 2];
        let call = rank.call("Alltoallv", &own, &mut all, rank.world);
        let [send, recv] =
            [call.send, call.recv].map(|side| Side::each(side.data, counts, i32::handle(rank)));
        let call = Call { send, recv, op: 0, ..call };
        assert!(matches!(rank.blocks(&call), Err(None)));
        assert!(begin(rank, &call).is_none());
        assert_eq!(rank.sum(&[1], rank.world), Some(vec![2]), "its group serves other calls");
        assert_eq!(all, [-1; 2]);
        rank.counted()
    });
    assert_eq!(counted, [folded(1), left(Reason::NotYet, 3)]);
}

/// Elements of a part, of which a chunk has no two.
const LONG: usize = 300;

/// Alltoall of parts of [`LONG`] elements: by one that blocks, in place, and by one that does not block.
#[test]
fn a_long_alltoall_goes_as_parcels_in_all_forms() {
    let counted = alike(&folds(), |rank| {
        let of = |from: usize| move |at: usize| (from * 1000 + at) as i32;
        let own: Vec<_> = (0..2 * LONG).map(of(rank.rank)).collect();
        let mine = rank.rank * LONG..(rank.rank + 1) * LONG;
        let want: Vec<_> = (0..2).flat_map(|from| mine.clone().map(of(from))).collect();
        let call = |send: &[i32], recv: &mut [i32]| {
            let call = rank.call("Alltoall", send, recv, rank.world);
            let [send, recv] = [call.send, call.recv].map(|side| Side {
                count: LONG as i64,
                datatype: i32::handle(rank),
                ..side
            });
            Call { send, recv, op: 0, ..call }
        };
        let mut all = vec![-1; 2 * LONG];
        assert_eq!(rank.blocks(&call(&own, &mut all)).ok(), Some(SUCCESS));
        assert_eq!(all, want);
        all.copy_from_slice(&own);
        let in_place = std::ptr::without_provenance(rank.process.mpi.abi.in_place);
        let there = call(&own, &mut all);
        let in_place = Call { send: Side::new(in_place, 0, 0), ..there };
        assert_eq!(rank.blocks(&in_place).ok(), Some(SUCCESS));
        assert_eq!(all, want);
        all.fill(-1);
        // It needs no communicator for messages, unlike one of pairs of any size.
        let request = begin(rank, &call(&own, &mut all));
        wait(rank, request.expect("a call of its group"));
        assert_eq!(all, want);
        rank.counted()
    });
    assert_eq!(counted, [folded(3)]);
}

/// The ways of a Gather of more than a chunk are the MPI and parcels.
#[test]
fn a_long_gather_goes_as_parcels_where_its_ways_are_compared() {
    let [at_root, elsewhere] = ranks(&Config::default(), |rank| {
        let (mut by_parcels, rounds) = (0, 100);
        for round in 0..rounds {
            let of = |from: usize| move |at: usize| round + (from * 1000 + at) as i32;
            let own: Vec<_> = (0..LONG).map(of(rank.rank)).collect();
            let want: Vec<_> = (0..2).flat_map(|from| (0..LONG).map(of(from))).collect();
            let mut all = vec![-1; 2 * LONG];
            let call = rank.call("Gather", &own, &mut all, rank.world);
            let count = LONG as i64;
            let send = Side { count, datatype: i32::handle(rank), ..call.send };
            let recv = Side { count, ..call.recv };
            match rank.blocks(&Call { send, recv, op: 0, root: 1, ..call }) {
                Ok(code) => {
                    assert_eq!(code, SUCCESS);
                    by_parcels += 1;
                    let untouched = vec![-1; 2 * LONG];
                    assert_eq!(all, if rank.rank == 1 { want } else { untouched }, "{round}");
                }
                Err(after) => after.into_iter().for_each(|after| after.finish(SUCCESS)),
            }
        }
        by_parcels
    });
    assert_eq!(at_root, elsewhere);
    assert!(at_root >= TRIAL, "{at_root}");
}

/// Both ranks are told, by the error handler and by what the call returns.
#[test]
fn lengths_that_differ_are_an_error_on_both_ranks() {
    alike(&folds(), |rank| {
        let (own, mut sum) = ([1; 2], [0; 2]);
        let call = rank.call("Allreduce", &own[rank.rank..], &mut sum[rank.rank..], rank.world);
        assert_eq!(rank.blocks(&call).ok(), Some(stand_in::TRUNCATED));
        assert_eq!(stand_in::errors(), []);
        rank.process.mpi.handle_errors();
        assert_eq!(stand_in::errors(), [(rank.world, stand_in::TRUNCATED)]);
        assert_eq!(rank.sum(&[1], rank.world), Some(vec![2]), "the next call");
    });
}

/// The program's part of calls whose ways are compared: it has the stand-in sum what foldback leaves.
fn compared(rank: &Rank, own: i32) -> (i32, bool) {
    let (send, mut recv) = ([own], [0]);
    let call = rank.call("Allreduce", &send, &mut recv, rank.world);
    let after = match rank.blocks(&call) {
        Ok(code) => {
            assert_eq!(code, SUCCESS);
            return (recv[0], false);
        }
        Err(after) => after,
    };
    let before = rank.counted();
    // The MPI may go from one of its functions to another, further down the stack.
    assert!(matches!(further_down(rank, &call), Err(None)));
    assert_eq!(rank.counted(), before, "the call that is under way");
    let mut bytes = own.to_ne_bytes();
    let code = rank.process.mpi.add_up(rank.world, 4, &mut bytes);
    if let Some(after) = after {
        after.finish(code);
    }
    (i32::from_ne_bytes(bytes), true)
}

#[inline(never)]
fn further_down(rank: &Rank, call: &Call) -> Result<c_int, Option<Box<After>>> {
    rank.blocks(black_box(&Call { ..*call }))
}

#[test]
fn calls_whose_ways_are_compared_go_alike_on_both_ranks() {
    let (ways, counted) = alike(&Config::default(), |rank| {
        let mut ways = Vec::new();
        for round in 0..600 {
            let (sum, is_left) = compared(rank, round + rank.rank as i32);
            assert_eq!(sum, 2 * round + 1);
            ways.push(is_left);
        }
        (ways, rank.counted())
    });
    let is_left = ways.iter().filter(|is_left| **is_left).count() as u64;
    assert!((TRIAL..=600 - WARM).contains(&is_left), "{is_left} calls by the MPI, of 600");
    assert_eq!(counted, [folded(600 - is_left), left(Reason::Faster, is_left)]);
}

#[test]
fn a_stopwatch_runs_for_its_own_call_alone() {
    #[inline(never)]
    fn deeper(call: &Call) -> bool {
        is_running(black_box(&Call { ..*call }))
    }
    let (rank, _) = stranger(Ok(folds()));
    let (own, mut sum, mut other) = ([1], [0], [0]);
    let call = rank.call("Allreduce", &own, &mut sum, rank.world);
    let start = || {
        let communicator = Arc::new(Communicator::new((0, 2), None, None));
        Stopwatch::start(communicator, ClassId::new(call.collective as usize, 4), None, &call)
    };
    assert!(!deeper(&call), "none has begun");
    let stopwatch = start();
    assert!(deeper(&call) && deeper(&call));
    stopwatch.stop();
    assert!(!deeper(&call), "it is over");
    // A call of other buffers, or not further down the stack: an error handler has jumped out of the one before.
    let left_behind = start();
    assert!(!deeper(&rank.call("Allreduce", &own, &mut other, rank.world)));
    assert!(!deeper(&call));
    drop(left_behind);
    let left_behind = start();
    assert!(!is_running(&call));
    drop(left_behind);
}

fn quantizes() -> Config {
    let mut config = folds();
    config.shared.quantize = "int16,min=1024".parse().ok();
    config
}

#[test]
fn a_quantized_sum_is_near_the_exact_one() {
    let counted = alike(&quantizes(), |rank| {
        let own: Vec<f32> = (0..1000).map(|i| i as f32 * (rank.rank as f32 + 0.5)).collect();
        let sum = rank.sum(&own, rank.world).expect("a folded sum");
        let is_near = |(i, sum): (usize, &f32)| (sum - 2.0 * i as f32).abs() < 0.2;
        assert!(sum.iter().enumerate().all(is_near));
        // A shorter one is exact.
        assert_eq!(rank.sum(&own[..4], rank.world), Some(vec![0.0, 2.0, 4.0, 6.0]));
        rank.counted()
    });
    assert_eq!(counted, [folded(1), (None, true, 1)]);
}

#[test]
fn a_quantized_sum_that_is_not_finite_goes_another_way() {
    let counted = alike(&quantizes(), |rank| {
        let mut own: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        (own[3], own[5]) = (f32::INFINITY, if rank.rank == 1 { f32::NAN } else { 1.0 });
        let sum = rank.sum(&own, rank.world).expect("a folded sum");
        assert!(sum[3] == f32::INFINITY && sum[5].is_nan());
        assert!((6..1000).all(|i| sum[i] == 2.0 * i as f32));
        rank.counted()
    });
    assert_eq!(counted, [folded(1)]);
}

/// Longer than what is folded else, of a call that was to be quantized alone.
#[test]
fn a_sum_that_is_too_long_and_not_quantized_is_left() {
    let mut config = quantizes();
    config.shared.max_bytes.fill(2048);
    let counted = alike(&config, |rank| {
        let mut own = vec![1_f32; 1000];
        assert_eq!(rank.sum(&own, rank.world), Some(vec![2.0; 1000]));
        own[0] = f32::NAN;
        assert_eq!(rank.sum(&own, rank.world), None);
        rank.counted()
    });
    assert_eq!(counted, [(None, true, 1), left(Reason::TooLarge, 1)]);
}

#[test]
fn the_mpi_may_add_up_the_integers_of_a_quantized_sum() {
    let mut config = quantizes();
    config.shared.policy = Policy::Auto;
    let (counted, collectives) = alike(&config, |rank| {
        for round in 0..100 {
            let own = vec![round as f32; 1000];
            assert_eq!(rank.sum(&own, rank.world), Some(vec![2.0 * round as f32; 1000]));
        }
        (rank.counted(), stand_in::collectives())
    });
    assert_eq!(counted, [(None, true, 100)]);
    let range = TRIAL as usize..=100 - WARM as usize;
    assert!(range.contains(&collectives), "{collectives} sums by the MPI");
}

fn exact() -> Config {
    let mut config = folds();
    config.shared.sum = Sum::Exact;
    config
}

/// Numbers of which both ranks have some, for more than one step.
fn many(rank: usize) -> (Vec<f64>, Vec<f64>) {
    let of = |rank: usize| (0..10_000).map(move |i| f64::from(i) / 3.0 + rank as f64 * 1e9);
    (of(rank).collect(), of(0).zip(of(1)).map(|(one, other)| one + other).collect())
}

#[test]
fn a_long_exact_sum_goes_in_steps_and_is_counted_once() {
    let (counted, collectives) = alike(&exact(), |rank| {
        let (own, want) = many(rank.rank);
        assert!(rank.sum(&own, rank.world) == Some(want));
        let lines = rank.process.calls.lines();
        assert!(lines.iter().all(|line| line.bytes == 80_000));
        (rank.counted(), stand_in::collectives())
    });
    assert_eq!((counted, collectives), (vec![folded(1)], 0));
}

/// All ranks agree on the reason. The MPI gathers, and each rank sums.
#[test]
fn an_exact_sum_that_is_left_is_made_of_what_the_mpi_gathers() {
    let (counted, collectives) = alike(&exact(), |rank| {
        let (own, want) = many(rank.rank);
        assert!(rank.sum(&own, BARE) == Some(want));
        // No sum of floating point: it is left as ever.
        assert_eq!(rank.sum(&[1], BARE), None);
        (rank.counted(), stand_in::collectives())
    });
    assert_eq!(counted, [left(Reason::NotYet, 2)]);
    assert!(collectives > 0);
}

#[test]
fn an_exact_sum_whose_ranks_may_not_agree_is_the_mpis() {
    for reason in [Reason::Foreign, Reason::Intercommunicator] {
        let (counted, collectives) = alike(&exact(), move |rank| {
            rank.process.communicators.get(BARE).expect("it is known").decline(reason);
            assert_eq!(rank.sum(&[1.0], BARE), None);
            (rank.counted(), stand_in::collectives())
        });
        assert_eq!((counted, collectives), (vec![left(reason, 1)], 0));
    }
}

/// A call that does not block, to its end.
fn begin(rank: &Rank, call: &Call) -> Option<u64> {
    let mut request = 0u64;
    let to = (&raw mut request).cast();
    // SAFETY: buffers of this test's, that stay.
    let code = unsafe { collective(rank.process, Form::Nonblocking, call, to) };
    assert_eq!(code.ok()?, SUCCESS);
    Some(request)
}

fn wait(rank: &Rank, request: u64) {
    while !stand_in::is_complete(request) {
        rank.process.requests.progress(&rank.process.mpi);
        thread::yield_now();
    }
    stand_in::wait(request);
}

#[test]
fn calls_that_do_not_block_end_in_waits() {
    let counted = alike(&quantizes(), |rank| {
        let (own, mut sum) = ([rank.rank as i32], [0]);
        let (mut special, mut sums) = (vec![1_f32; 1000], vec![0_f32; 1000]);
        special[1] = f32::NAN;
        let mut third = [0];
        let calls = [
            rank.call("Allreduce", &own, &mut sum, rank.world),
            rank.call("Allreduce", &special, &mut sums, rank.world),
            rank.call("Allreduce", &[3], &mut third, rank.world),
        ];
        let requests = calls.map(|call| begin(rank, &call).expect("a folded call"));
        requests.into_iter().rev().for_each(|request| wait(rank, request));
        assert_eq!((sum, third), ([1], [6]));
        assert!(sums[1].is_nan() && sums.iter().enumerate().all(|(i, sum)| i == 1 || *sum == 2.0));
        // Without a group it is left at once: nobody may wait for others here.
        assert!(begin(rank, &rank.call("Allreduce", &own, &mut sum, BARE)).is_none());
        rank.counted()
    });
    // A sum that is to be quantized stays in the group, as it is.
    assert_eq!(counted, [folded(2), (None, true, 1), left(Reason::NotYet, 1)]);
}

#[test]
fn a_long_exact_sum_that_does_not_block_goes_in_steps_too() {
    let counted = alike(&exact(), |rank| {
        let ((own, want), mut sum, mut behind) = (many(rank.rank), vec![0.0; 10_000], [0]);
        let request = begin(rank, &rank.call("Allreduce", &own, &mut sum, rank.world));
        let next = begin(rank, &rank.call("Allreduce", &[5], &mut behind, rank.world));
        wait(rank, next.expect("a folded call"));
        wait(rank, request.expect("a folded sum"));
        assert!(sum == want && behind == [10]);
        rank.counted()
    });
    assert_eq!(counted, [folded(2)]);
}

#[test]
fn calls_that_do_not_block_are_left_where_waits_are_not_seen() {
    let (rank, _) = stranger(Ok(folds()));
    rank.process.communicators.set_alike(Alike { completes: false, ordered: true });
    assert!(begin(&rank, &rank.call("Allreduce", &[1], &mut [0], BARE)).is_none());
    assert_eq!(rank.counted(), [left(Reason::Waits, 1)]);
}

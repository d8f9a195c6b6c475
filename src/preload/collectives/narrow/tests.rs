//! Large calls for an MPI that has plain ones alone: a function of this test takes these.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;

use super::*;
use crate::call::{Call, Collective, Counts, Side};
use crate::mpi::stand_in::{self, BETWEEN, Laid, REMOTE, World};
use crate::process::stand_in::set;

const RANKS: usize = 3;
const COMM: Handle = 0x2000;
/// The requests that the plain function writes are this one and those after it, as many as are sent.
const REQUEST: u64 = 0x7_0000_0000;
/// More than an int holds.
const WIDE: i64 = 1 << 31;

/// Arguments of a plain call; its arrays, and where they are.
#[derive(Debug, PartialEq, Eq)]
struct Came {
    sent: c_int,
    counts: Option<Vec<c_int>>,
    displs: Option<Vec<c_int>>,
    at: *const c_int,
}

thread_local! {
    static CAME: RefCell<Vec<Came>> = const { RefCell::new(Vec::new()) };
}

fn came() -> Vec<Came> {
    CAME.take()
}

fn ints(array: *const c_int, parts: usize) -> Option<Vec<c_int>> {
    // SAFETY: an array of a call of this test's.
    (!array.is_null()).then(|| unsafe { std::slice::from_raw_parts(array, parts) }.to_vec())
}

/// A plain Iallgatherv, as far as it matters here. It fails where nothing is sent.
unsafe extern "C-unwind" fn plain(
    sent: c_int,
    counts: *const c_int,
    displs: *const c_int,
    comm: Handle,
    request: *mut u64,
) -> c_int {
    let parts = if comm == BETWEEN { REMOTE } else { RANKS };
    let (counts, displs, at) = (ints(counts, parts), ints(displs, parts), counts);
    CAME.with_borrow_mut(|came| came.push(Came { sent, counts, displs, at }));
    if sent == 0 {
        return 1;
    }
    // SAFETY: room for a request.
    unsafe { *request = REQUEST + sent as u64 };
    0
}

type Plain =
    unsafe extern "C-unwind" fn(c_int, *const c_int, *const c_int, Handle, *mut u64) -> c_int;

/// The MPI's plain function.
struct Real;

impl Real {
    fn get(&self) -> Option<Plain> {
        Some(plain)
    }
}

fn call(counts: *const i64, displs: *const isize, comm: Handle) -> Call {
    let collective: Collective = "Allgatherv".parse().expect("a collective");
    let counts =
        Counts { counts: counts.cast(), displs: displs.cast(), wide: true, wide_displs: true };
    let recv = Side::each(std::ptr::null::<c_void>(), counts, 0);
    Call { collective, send: Side::NONE, recv, op: 0, root: 0, comm }
}

/// The large form, by the plain one.
fn large(sent: i64, counts: *const i64, displs: *const isize, comm: Handle) -> (c_int, u64) {
    set(stand_in::mpi(&World::new(RANKS), 0));
    let mut written = 0;
    let request = &raw mut written;
    let pass = || -> c_int {
        narrow!(
            Real,
            "MPI_Iallgatherv",
            call(counts, displs, comm),
            [sent: i64, counts: *const i64, displs: *const isize, comm: Handle],
            [request]
        )
    };
    (pass(), written)
}

#[test]
fn counts_that_fit_an_int_are_passed_on() {
    let (counts, displs) = ([1, 0, i64::from(c_int::MAX)], [0, -4, 1 << 20]);
    let (code, request) = large(7, counts.as_ptr(), displs.as_ptr(), COMM);
    assert_eq!((code, request), (0, REQUEST + 7));
    let [Came { sent, counts, displs, .. }] = &came()[..] else { panic!("one call") };
    assert_eq!((*sent, counts), (7, &Some(vec![1, 0, c_int::MAX])));
    assert_eq!(displs, &Some(vec![0, -4, 1 << 20]));
    assert_eq!(stand_in::errors(), []);
}

#[test]
fn a_count_that_does_not_fit_is_an_error_and_not_passed_on() {
    let (right, displs) = ([1, 2, 3], [0, 1, 3]);
    for wrong in [WIDE, -WIDE - 1, 1 << 32, i64::MAX] {
        let calls = [
            (wrong, right, displs),
            (1, [1, wrong, 3], displs),
            (1, [1, 2, wrong], displs),
            (1, right, [0, 1, wrong as isize]),
        ];
        for (sent, counts, displs) in calls {
            let (code, request) = large(sent, counts.as_ptr(), displs.as_ptr(), COMM);
            assert_eq!((code, request), (ERR_COUNT, 0));
            assert_eq!(stand_in::errors(), [(COMM, ERR_COUNT)]);
            assert_eq!(came(), []);
        }
    }
}

/// The MPI refuses it, or takes displacements that are not there for one part after the other.
#[test]
fn an_array_that_is_not_there_is_passed_on_as_it_is() {
    let counts = [1, 2, 3];
    assert_eq!(large(1, counts.as_ptr(), std::ptr::null(), COMM).0, 0);
    assert_eq!(large(1, std::ptr::null(), std::ptr::null(), COMM).0, 0);
    let arrays: Vec<_> = came().into_iter().map(|came| (came.counts, came.displs)).collect();
    assert_eq!(arrays, [(Some(vec![1, 2, 3]), None), (None, None)]);
}

/// An element more would not fit.
#[test]
fn arrays_have_an_element_for_each_rank_of_the_other_side() {
    let (counts, displs) = ([1, 2, 3, 4, 5, WIDE], [0; REMOTE]);
    assert_eq!(large(1, counts.as_ptr(), displs.as_ptr(), BETWEEN).0, 0);
    assert_eq!(came()[0].counts, Some(vec![1, 2, 3, 4, 5]));
    let counts = [1, 2, 3, WIDE];
    assert_eq!(large(1, counts.as_ptr(), displs.as_ptr(), COMM).0, 0);
    assert_eq!(came()[0].counts, Some(vec![1, 2, 3]));
}

#[test]
fn arrays_stay_as_long_as_the_request_and_not_if_there_is_none() {
    let (counts, displs) = ([1, 2, 3], [0; RANKS]);
    // No other test has this request.
    assert_eq!(large(99, counts.as_ptr(), displs.as_ptr(), COMM), (0, REQUEST + 99));
    let at = came()[0].at;
    assert_eq!(large(0, counts.as_ptr(), displs.as_ptr(), COMM), (1, 0));
    // Other memory may have been asked for meanwhile.
    let others: Vec<Vec<c_int>> = (0..64).map(|_| vec![9; RANKS]).collect();
    assert_eq!(ints(at, RANKS), Some(vec![1, 2, 3]), "beside {}", others.len());
}

thread_local! {
    /// Elements of the arrays that the plain function of pairs reads.
    static READ: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// A plain function of pairs, as far as it matters here: counts of what is sent and of what comes.
unsafe extern "C-unwind" fn plain_of_pairs(
    sent: *const c_int,
    received: *const c_int,
    _: Handle,
) -> c_int {
    let (of_sent, of_received) = READ.get();
    let (counts, displs) = (ints(sent, of_sent), ints(received, of_received));
    CAME.with_borrow_mut(|came| came.push(Came { sent: 0, counts, displs, at: sent }));
    0
}

type PlainOfPairs = unsafe extern "C-unwind" fn(*const c_int, *const c_int, Handle) -> c_int;

struct RealOfPairs;

impl RealOfPairs {
    fn get(&self) -> Option<PlainOfPairs> {
        Some(plain_of_pairs)
    }
}

/// A large call of pairs by the plain one, which reads so many elements of each array: what comes there, or the code of
/// an error. The sender is in place if it `stays`.
fn of_pairs(
    (name, root, comm): (&str, c_int, Handle),
    (sent, received): (&[i64], &[i64]),
    read: (usize, usize),
    stays: bool,
) -> Result<(Vec<c_int>, Vec<c_int>), c_int> {
    READ.set(read);
    let data = if stays { std::ptr::without_provenance(1) } else { std::ptr::null::<c_void>() };
    let side = |data, counts: &[i64]| {
        let (counts, displs) = (counts.as_ptr().cast(), std::ptr::null());
        Side::each(data, Counts { counts, displs, wide: true, wide_displs: true }, 0)
    };
    let collective: Collective = name.parse().expect("a collective");
    let (send, recv) = (side(data, sent), side(std::ptr::null(), received));
    let call = Call { collective, send, recv, op: 0, root, comm };
    let (sent, received) = (sent.as_ptr(), received.as_ptr());
    let pass = || -> c_int {
        narrow!(
            RealOfPairs,
            "a function",
            call,
            [sent: *const i64, received: *const i64, comm: Handle],
            []
        )
    };
    match pass() {
        0 => {
            let Came { counts, displs, .. } = came().pop().expect("a call");
            Ok((counts.expect("an array"), displs.expect("an array")))
        }
        code => Err(code),
    }
}

/// An element more would not fit.
#[test]
fn arrays_of_neighbours_have_an_element_for_each_on_their_side() {
    set(stand_in::mpi(&World::new(RANKS), 0));
    stand_in::lay_out(COMM, Laid::Distributed(vec![1, 2, 1, 0], vec![1, 2]));
    let (sent, received) = ([1, 2, WIDE], [3, 4, 5, 6, WIDE]);
    for name in ["Neighbor_allgatherv", "Neighbor_alltoallv", "Neighbor_alltoallw"] {
        let call = (name, 0, COMM);
        let came = of_pairs(call, (&sent, &received), (2, 4), false);
        assert_eq!(came, Ok((vec![1, 2], vec![3, 4, 5, 6])), "{name}");
        let both = of_pairs(call, (&received, &received), (2, 4), false);
        assert_eq!(both, Ok((vec![3, 4], vec![3, 4, 5, 6])), "{name}");
        assert_eq!(of_pairs(call, (&[WIDE, 1], &received), (2, 4), false), Err(ERR_COUNT));
    }
    // The MPI refuses it.
    let nothing = of_pairs(("Neighbor_alltoallv", 0, BETWEEN), (&sent, &received), (0, 0), false);
    assert_eq!(nothing, Ok((vec![], vec![])));
}

#[test]
fn arrays_of_the_root_are_read_there_alone() {
    set(stand_in::mpi(&World::new(RANKS), 1));
    // MPI_ROOT and MPI_PROC_NULL of the standard ABI.
    for (root, comm, length) in [(1, COMM, RANKS), (-4, BETWEEN, REMOTE)] {
        let right = [[1; REMOTE].as_slice(), &[WIDE]].concat();
        let counts = &right[REMOTE - length..];
        for name in ["Gatherv", "Scatterv"] {
            let came = of_pairs((name, root, comm), (counts, counts), (length, length), false);
            assert_eq!(came, Ok((vec![1; length], vec![1; length])), "{name} on {comm:#x}");
        }
    }
    for (root, comm) in [(0, COMM), (2, COMM), (-3, BETWEEN), (1, BETWEEN)] {
        let wide = [WIDE];
        let came = of_pairs(("Gatherv", root, comm), (&wide, &wide), (0, 0), false);
        assert_eq!(came, Ok((vec![], vec![])), "{root} on {comm:#x}");
    }
}

#[test]
fn arrays_of_a_side_that_is_in_place_are_not_read() {
    set(stand_in::mpi(&World::new(RANKS), 0));
    let (wide, right) = ([WIDE], [1, 2, 3]);
    let came = of_pairs(("Alltoallv", 0, COMM), (&wide, &right), (0, RANKS), true);
    assert_eq!(came, Ok((vec![], vec![1, 2, 3])));
    let both = of_pairs(("Alltoallw", 0, COMM), (&right, &right), (RANKS, RANKS), true);
    assert_eq!(both, Ok((vec![1, 2, 3], vec![1, 2, 3])));
}

//! Large calls for an MPI that has plain ones alone: a function of this test takes these.

use std::cell::RefCell;
use std::ffi::c_void;

use super::*;
use crate::call::{Call, Collective, Counts, Side};
use crate::mpi::stand_in::{self, BETWEEN, REMOTE, World};
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
    let counts = Counts { counts: counts.cast(), displs: displs.cast(), wide: true };
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

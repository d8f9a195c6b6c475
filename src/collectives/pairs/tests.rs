//! The edges of each collective, on a stand-in for the MPI.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use crate::call::{COLLECTIVES, Call, Collective, Counts, Form, Message, Side, Types};
use crate::collectives::{admit, fit, judge, plan};
use crate::config::Config;
use crate::gate::Refused;
use crate::gate::exchange::{Edge, Edges};
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::mpi::stand_in::{self, Laid, World};
use crate::plan::{Case, Fit, Source};
use crate::topology::{Layout, Place};

const RANKS: usize = 3;
const COMM: Handle = 0x2000;
const SEND: usize = 0x10_0000;
const RECV: usize = 0x80_0000;
const INT: Handle = 0x209;
const SHORT: Handle = 0x208;
/// 6 bytes of data in 8.
const SHORT_INT: Handle = 0x22c;
const NO_TYPE: Handle = 0x200;
const IN_PLACE: usize = 1;

/// An edge as rank, address, count and type.
type Seen = (usize, usize, usize, Handle);

fn address(at: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(at)
}

fn seen(edges: &[Edge]) -> Vec<Seen> {
    let one = |edge: &Edge| {
        let elements = edge.elements;
        (edge.rank, elements.data as usize, elements.count, elements.datatype)
    };
    edges.iter().map(one).collect()
}

/// Arrays of a side, which live as long as the test wants.
fn arrays<const N: usize>(counts: &[c_int; N], displs: &[c_int; N]) -> Counts {
    let (counts, displs) = (counts.as_ptr().cast(), displs.as_ptr().cast());
    Counts { counts, displs, wide: false, wide_displs: false }
}

/// Arrays that are not there.
const NO_ARRAYS: Counts =
    Counts { counts: null(), displs: null(), wide: false, wide_displs: false };

fn side(data: usize, count: i64, datatype: Handle) -> Side {
    Side::new(address(data), count, datatype)
}

fn each<const N: usize>(data: usize, (counts, displs): &([c_int; N], [c_int; N])) -> Side {
    Side::each(address(data), arrays(counts, displs), INT)
}

fn call(collective: Collective, send: Side, recv: Side, root: c_int) -> Call {
    Call { collective, send, recv, op: 0, root, comm: COMM }
}

/// The edges of a call that `rank` makes on this MPI.
fn edges_on(mpi: &Mpi, rank: usize, call: &Call) -> Result<Edges, Refused> {
    // SAFETY: the arrays of these tests have an element for each rank, or are not looked at.
    let ends = unsafe { judge(mpi, call, None, (rank, RANKS)) }?;
    Ok(Edges::clone(&ends.edges.expect("edges")))
}

/// The same on an MPI of its own, where the communicator has a topology, if any is given.
fn edges_in(laid: Option<Laid>, rank: usize, call: &Call) -> Result<Edges, Refused> {
    let mpi = stand_in::mpi(&World::new(RANKS), rank);
    if let Some(laid) = laid {
        stand_in::lay_out(COMM, laid);
    }
    edges_on(&mpi, rank, call)
}

/// The edges to others, and the edges from them.
fn exchanged(laid: Option<Laid>, rank: usize, call: &Call) -> (Vec<Seen>, Vec<Seen>) {
    let edges = edges_in(laid, rank, call).expect("a right call");
    (seen(&edges.to), seen(&edges.from))
}

fn is_refused(laid: Option<Laid>, rank: usize, call: &Call) -> bool {
    edges_in(laid, rank, call).is_err()
}

#[test]
fn gatherv_has_an_edge_to_the_root_and_arrays_there_alone() {
    let recv = ([2, 0, 1], [4, 7, -1]);
    let right = |rank: usize| {
        let there = if rank == 1 { each(RECV, &recv) } else { Side::each(null(), NO_ARRAYS, 0) };
        call(Collective::Gatherv, side(SEND, rank as i64, INT), there, 1)
    };
    assert_eq!(exchanged(None, 0, &right(0)), (vec![], vec![]));
    assert_eq!(exchanged(None, 2, &right(2)), (vec![(1, SEND, 2, INT)], vec![]));
    let from = vec![(0, RECV + 16, 2, INT), (2, RECV - 4, 1, INT)];
    assert_eq!(exchanged(None, 1, &right(1)), (vec![(1, SEND, 1, INT)], from));

    let recv = ([2, 3, 1], [4, 7, -1]);
    let in_place = call(Collective::Gatherv, side(IN_PLACE, 9, NO_TYPE), each(RECV, &recv), 1);
    let from = vec![(0, RECV + 16, 2, INT), (2, RECV - 4, 1, INT)];
    assert_eq!(exchanged(None, 1, &in_place), (vec![], from));
    assert!(is_refused(None, 0, &in_place), "in place, not at the root");
}

#[test]
fn scatterv_has_an_edge_from_the_root_and_arrays_there_alone() {
    let send = ([2, 1, 0], [4, 7, 9]);
    let right = |rank: usize| {
        let there = if rank == 1 { each(SEND, &send) } else { Side::each(null(), NO_ARRAYS, 0) };
        call(Collective::Scatterv, there, side(RECV, [2, 1, 0][rank], INT), 1)
    };
    assert_eq!(exchanged(None, 0, &right(0)), (vec![], vec![(1, RECV, 2, INT)]));
    assert_eq!(exchanged(None, 2, &right(2)), (vec![], vec![]));
    let to = vec![(0, SEND + 16, 2, INT), (1, SEND + 28, 1, INT)];
    assert_eq!(exchanged(None, 1, &right(1)), (to, vec![(1, RECV, 1, INT)]));

    let in_place = call(Collective::Scatterv, each(SEND, &send), side(IN_PLACE, 9, NO_TYPE), 1);
    assert_eq!(exchanged(None, 1, &in_place), (vec![(0, SEND + 16, 2, INT)], vec![]));
    assert!(is_refused(None, 2, &in_place), "in place, not at the root");
}

#[test]
fn alltoallv_has_edges_by_the_arrays_of_both_sides() {
    let (send, recv) = (([1, 0, 2], [5, 6, 0]), ([0, 3, 4], [9, 1, 20]));
    let right = call(Collective::Alltoallv, each(SEND, &send), each(RECV, &recv), 0);
    let to = vec![(0, SEND + 20, 1, INT), (2, SEND, 2, INT)];
    let from = vec![(1, RECV + 4, 3, INT), (2, RECV + 80, 4, INT)];
    assert_eq!(exchanged(None, 0, &right), (to, from));
    let edges = edges_in(None, 0, &right).expect("a right call");
    assert_eq!((edges.in_place, edges.bytes_sent()), (false, 12));
}

#[test]
fn what_is_sent_in_place_is_what_comes() {
    let recv = ([0, 3, 4], [9, 1, 20]);
    let ignored = Side::each(address(IN_PLACE), NO_ARRAYS, NO_TYPE);
    let call = call(Collective::Alltoallv, ignored, each(RECV, &recv), 0);
    let edges = edges_in(None, 2, &call).expect("a right call");
    assert!(edges.in_place);
    assert_eq!(seen(&edges.to), [(1, RECV + 4, 3, INT), (2, RECV + 80, 4, INT)]);
    assert_eq!(seen(&edges.from), seen(&edges.to));
}

#[test]
fn alltoallw_has_types_of_its_own_and_places_in_bytes() {
    let (counts, displs) = ([1, 0, 2], [64, 8, 0]);
    let types = [INT, NO_TYPE, SHORT];
    let typed = |data, handles: *const c_void| {
        Side::typed(address(data), arrays(&counts, &displs), handles)
    };
    let handles = types.as_ptr().cast();
    let right = call(Collective::Alltoallw, typed(SEND, handles), typed(RECV, handles), 0);
    let at = |data| vec![(0, data + 64, 1, INT), (2, data, 2, SHORT)];
    assert_eq!(exchanged(None, 1, &right), (at(SEND), at(RECV)));

    // All addresses are in the displacements.
    let (counts, displs) = ([1, 0, 0], [0x7000, 0, 0]);
    let bottom = Side::typed(null_mut(), arrays(&counts, &displs), handles);
    let from_bottom = call(Collective::Alltoallw, bottom, typed(RECV, handles), 0);
    assert_eq!(exchanged(None, 1, &from_bottom).0, [(0, 0x7000, 1, INT)]);
    let nowhere = call(Collective::Alltoallw, typed(0, handles), typed(RECV, handles), 0);
    assert!(is_refused(None, 1, &nowhere));
    let no_types = call(Collective::Alltoallw, typed(SEND, null()), typed(RECV, handles), 0);
    assert!(is_refused(None, 1, &no_types));
}

#[test]
fn fortrans_integers_are_made_handles_of() {
    unsafe extern "C-unwind" fn handle_of(integer: c_int) -> Handle {
        [INT, SHORT][integer as usize - 7]
    }
    let (counts, displs, integers): (_, _, [c_int; RANKS]) = ([1; RANKS], [0; RANKS], [7, 8, 7]);
    let types = Types { handles: integers.as_ptr().cast(), from_fortran: Some(handle_of) };
    let typed = |data| Side::typed(address(data), arrays(&counts, &displs), types);
    let call = call(Collective::Alltoallw, typed(SEND), typed(RECV), 0);
    let types: Vec<_> = exchanged(None, 0, &call).0.iter().map(|edge| edge.3).collect();
    assert_eq!(types, [INT, SHORT, INT]);
}

#[test]
fn neighbours_get_one_block_or_one_each() {
    // The program's order, with an edge to itself and two from one rank.
    let laid = || Some(Laid::Distributed(vec![2, 0, 2], vec![1, 0]));
    let allgather = call(Collective::Neighbor_allgather, side(SEND, 2, INT), side(RECV, 2, INT), 0);
    let from = vec![(2, RECV, 2, INT), (0, RECV + 8, 2, INT), (2, RECV + 16, 2, INT)];
    let to = vec![(1, SEND, 2, INT), (0, SEND, 2, INT)];
    assert_eq!(exchanged(laid(), 0, &allgather), (to, from.clone()));
    let alltoall = Call { collective: Collective::Neighbor_alltoall, ..allgather };
    let to = vec![(1, SEND, 2, INT), (0, SEND + 8, 2, INT)];
    assert_eq!(exchanged(laid(), 0, &alltoall), (to, from));

    let recv = ([1, 0, 2], [4, 2, 0]);
    let allgatherv =
        call(Collective::Neighbor_allgatherv, side(SEND, 2, INT), each(RECV, &recv), 0);
    let from = vec![(2, RECV + 16, 1, INT), (2, RECV, 2, INT)];
    let to = vec![(1, SEND, 2, INT), (0, SEND, 2, INT)];
    assert_eq!(exchanged(laid(), 0, &allgatherv), (to, from.clone()));
    let send = ([3, 1], [1, 0]);
    let alltoallv = call(Collective::Neighbor_alltoallv, each(SEND, &send), each(RECV, &recv), 0);
    let to = vec![(1, SEND + 4, 3, INT), (0, SEND, 1, INT)];
    assert_eq!(exchanged(laid(), 0, &alltoallv), (to, from));
}

#[test]
fn neighbor_alltoallw_has_places_of_64_bits() {
    let laid = Some(Laid::Graph(vec![vec![1], vec![0, 0], vec![]]));
    let (counts, displs): ([c_int; 2], [isize; 2]) = ([1, 2], [1 << 40, 0]);
    let types = [SHORT, SHORT_INT];
    let typed = |data| {
        let (counts, displs) = (counts.as_ptr().cast(), displs.as_ptr().cast());
        let counts = Counts { counts, displs, wide: false, wide_displs: true };
        Side::typed(address(data), counts, types.as_ptr().cast::<c_void>())
    };
    let call = call(Collective::Neighbor_alltoallw, typed(SEND), typed(RECV), 0);
    let at = |data| vec![(0, data + (1 << 40), 1, SHORT), (0, data, 2, SHORT_INT)];
    assert_eq!(exchanged(laid, 1, &call), (at(SEND), at(RECV)));
}

/// Elements of 6 bytes lie 8 apart.
#[test]
fn blocks_of_nobody_are_skipped_and_both_neighbours_of_a_pair_are_swapped() {
    let call =
        call(Collective::Neighbor_alltoall, side(SEND, 1, SHORT_INT), side(RECV, 1, SHORT_INT), 0);
    let block = |rank: usize, data: usize, block: usize| (rank, data + block * 8, 1, SHORT_INT);
    let line = || Some(Laid::Grid(vec![(3, false)]));
    let (to, from) = exchanged(line(), 0, &call);
    assert_eq!((to, from), (vec![block(1, SEND, 1)], vec![block(1, RECV, 1)]));
    let pair = || Some(Laid::Grid(vec![(2, true)]));
    let (to, from) = exchanged(pair(), 0, &call);
    assert_eq!(to, [block(1, SEND, 0), block(1, SEND, 1)]);
    assert_eq!(from, [block(1, RECV, 1), block(1, RECV, 0)]);
    let alone = || Some(Laid::Grid(vec![(1, true)]));
    let (to, from) = exchanged(alone(), 0, &call);
    assert_eq!(to, [block(0, SEND, 0), block(0, SEND, 1)]);
    assert_eq!(from, [block(0, RECV, 1), block(0, RECV, 0)]);
}

#[test]
fn a_rank_without_neighbours_has_no_edges_and_needs_no_arrays() {
    let nothing = Side::each(null(), NO_ARRAYS, NO_TYPE);
    let alone = call(Collective::Neighbor_alltoallv, nothing, nothing, 0);
    let laid = Some(Laid::Distributed(vec![], vec![]));
    assert_eq!(exchanged(laid, 1, &alone), (vec![], vec![]));
    assert!(is_refused(None, 1, &alone), "there is no topology");
}

#[test]
fn wrong_arguments_are_the_mpis_to_refuse() {
    let (right, wrong) = (([1, 1, 1], [0, 1, 2]), ([1, -1, 1], [0, 1, 2]));
    let one = || side(SEND, 1, INT);
    let alltoallv = |send, recv| call(Collective::Alltoallv, send, recv, 0);
    let gatherv = |send, recv, root| call(Collective::Gatherv, send, recv, root);
    let wrongs = [
        alltoallv(each(SEND, &wrong), each(RECV, &right)),
        alltoallv(each(SEND, &right), each(RECV, &wrong)),
        alltoallv(each(SEND, &right), each(IN_PLACE, &right)),
        alltoallv(each(SEND, &right), Side::each(address(RECV), NO_ARRAYS, INT)),
        alltoallv(Side::each(address(SEND), NO_ARRAYS, INT), each(RECV, &right)),
        alltoallv(each(0, &right), each(RECV, &right)),
        alltoallv(Side { datatype: NO_TYPE, ..each(SEND, &right) }, each(RECV, &right)),
        // It should be in place.
        alltoallv(each(RECV, &right), each(RECV, &right)),
        gatherv(side(RECV, 1, INT), each(RECV, &right), 0),
        gatherv(side(SEND, -1, INT), each(RECV, &right), 0),
        gatherv(one(), each(RECV, &wrong), 0),
        gatherv(one(), each(RECV, &right), 3),
        gatherv(one(), each(RECV, &right), -1),
        call(Collective::Scatterv, each(SEND, &right), side(SEND, 1, INT), 0),
        call(Collective::Scatterv, each(SEND, &right), side(RECV, -1, INT), 0),
    ];
    for (number, wrong) in wrongs.iter().enumerate() {
        assert!(is_refused(None, 0, wrong), "{} {number}", wrong.collective.name());
    }
    let neighbors = [
        call(Collective::Neighbor_allgather, side(IN_PLACE, 1, INT), side(RECV, 1, INT), 0),
        call(Collective::Neighbor_alltoall, side(SEND, 1, INT), side(IN_PLACE, 1, INT), 0),
        call(Collective::Neighbor_alltoall, side(SEND, -1, INT), side(RECV, 1, INT), 0),
    ];
    for (number, wrong) in neighbors.iter().enumerate() {
        let laid = Some(Laid::Grid(vec![(3, true)]));
        assert!(is_refused(laid, 0, wrong), "of neighbours: {number}");
    }
}

/// One buffer for both sides is refused where the MPI sees it: the arrays of counts are one, too.
#[test]
fn one_buffer_with_arrays_of_each_side_is_taken() {
    let (one, other) = (([1, 1, 1], [0, 1, 2]), ([1, 1, 1], [0, 1, 2]));
    let call = |send, recv| call(Collective::Alltoallv, send, recv, 0);
    assert!(!is_refused(None, 0, &call(each(RECV, &one), each(RECV, &other))));
    let other_type = Side { datatype: SHORT, ..each(RECV, &one) };
    assert!(!is_refused(None, 0, &call(each(RECV, &one), other_type)));
}

#[test]
fn calls_are_admitted_in_all_forms_and_compared_where_they_block() {
    let mpi = stand_in::mpi(&World::new(RANKS), 0);
    let counts = ([1; RANKS], [0; RANKS]);
    let config = Config::default();
    let admit = |form, collective| {
        let (call, mut seen) =
            (call(collective, each(SEND, &counts), each(RECV, &counts), 0), Message::default());
        let admitted = admit(&mpi, &config, || false, form, &call, &mut seen);
        (admitted.map(|admitted| admitted.measured).map_err(Some), seen.datatype)
    };
    let int = mpi.abi.datatype(INT).expect("a type").row + 1;
    let of_pairs = || COLLECTIVES.iter().copied().filter(|one| one.is_of_pairs());
    assert_eq!(of_pairs().count(), 9);
    for collective in of_pairs() {
        assert_eq!(admit(Form::Blocking, collective), (Ok(true), int));
        for form in [Form::Nonblocking, Form::Persistent] {
            assert_eq!(admit(form, collective), (Ok(false), int));
        }
    }
}

/// The edges of the plan of a call that `rank` makes, of parts of so many bytes.
fn planned(rank: usize, call: &Call, bytes: usize) -> (Vec<Seen>, Vec<Seen>, Option<usize>, bool) {
    let mpi = stand_in::mpi(&World::new(RANKS), rank);
    let config = Config::default();
    let mut message = Message::default();
    let admitted = admit(&mpi, &config, || false, Form::Blocking, call, &mut message);
    let Ok(admitted) = admitted else { panic!("a right call") };
    // SAFETY: a call without arrays.
    let ends = unsafe { judge(&mpi, call, None, (rank, RANKS)) }.expect("right arguments");
    let case = Case { call, admitted: &admitted, ends: &ends };
    let layout = Layout::new(["a", "b", "c"]);
    let mut place = Place::new(layout, rank, 1408, true).expect("a place").with_parcels(8);
    let fit = fit(case, &mut place).expect("it fits");
    assert_eq!(fit, Fit::ShortPairs(bytes));
    let Source::Edges(edges, of) = plan(case, fit).source else { panic!("edges") };
    assert_eq!(of, rank);
    (seen(&edges.to), seen(&edges.from), edges.parties.hub(), edges.in_place)
}

#[test]
fn a_long_alltoall_has_edges_to_all_and_from_all() {
    let right = call(Collective::Alltoall, side(SEND, 500, INT), side(RECV, 500, INT), 0);
    let blocks = |base: usize| (0..RANKS).map(|of| (of, base + of * 2000, 500, INT)).collect();
    assert_eq!(planned(1, &right, 2000), (blocks(SEND), blocks(RECV), None, false));
    let right = call(Collective::Alltoall, side(IN_PLACE, 7, NO_TYPE), side(RECV, 500, INT), 0);
    assert_eq!(planned(1, &right, 2000), (blocks(RECV), blocks(RECV), None, true));
    // MPI_BOTTOM on both sides, with datatypes of the program's that have addresses.
    let right = call(Collective::Alltoall, side(0, 250, SHORT_INT), side(0, 250, SHORT_INT), 0);
    let (to, from, _, in_place) = planned(1, &right, 1500);
    assert_eq!((to[2], from[2]), ((2, 4000, 250, SHORT_INT), (2, 4000, 250, SHORT_INT)));
    assert!(!in_place);
}

#[test]
fn a_long_gather_has_edges_to_the_root() {
    let of = |rank: usize, send: Side| {
        let recv = if rank == 1 { side(RECV, 500, INT) } else { side(0, -1, NO_TYPE) };
        planned(rank, &call(Collective::Gather, send, recv, 1), 2000)
    };
    let to_root = vec![(1, SEND, 500, INT)];
    assert_eq!(of(0, side(SEND, 500, INT)), (to_root.clone(), vec![], Some(1), false));
    let block = |of: usize| (of, RECV + of * 2000, 500, INT);
    let from: Vec<_> = (0..RANKS).map(block).collect();
    assert_eq!(of(1, side(SEND, 500, INT)), (to_root, from, Some(1), false));
    let others = vec![block(0), block(2)];
    assert_eq!(of(1, side(IN_PLACE, 0, NO_TYPE)), (vec![], others, Some(1), false));
}

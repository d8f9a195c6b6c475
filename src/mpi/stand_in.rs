//! A stand-in for the MPI, for tests: as much of one as foldback calls. A rank is a thread, which has its own. Ranks of
//! one world meet in collectives. A message that nobody waits for is an error, and so is a call of any other function.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::abi::{Abi, Family};
use super::pmpi::{Handle, Pmpi};
use super::types::Op;
use super::{FAILED, Mpi};
use crate::leaf::arithmetic::Arithmetic;
use crate::leaf::fold::fold;

/// The values of MPI_ERR_TRUNCATE and MPI_ERR_OP here.
pub(crate) const TRUNCATED: c_int = 15;
const WRONG_OP: c_int = 9;
/// An intercommunicator, and the number of ranks on its other side.
pub(crate) const BETWEEN: Handle = 0x3000;
pub(crate) const REMOTE: usize = 5;
/// The first communicator of one rank that is made, and the first request.
const FIRST_COMM: Handle = 0x4000;
/// The communicator that `MPI_Comm_split` makes.
const PRIVATE: Handle = 0x3000;
const FIRST_REQUEST: u64 = 0x8000;
/// For hangs alone.
const MOST: Duration = Duration::from_secs(120);

thread_local! {
    /// The MPI of this thread.
    static RANK: RefCell<Option<Rank>> = const { RefCell::new(None) };
}

/// The ranks of a job, which meet in collectives.
pub(crate) struct World {
    ranks: usize,
    meeting: Mutex<Meeting>,
    changed: Condvar,
}

/// Bytes that all ranks bring together.
#[derive(Default)]
struct Meeting {
    /// Meetings that are over.
    over: usize,
    brought: Vec<(usize, Vec<u8>)>,
    /// The bytes of the last one, by rank.
    all: Vec<Vec<u8>>,
}

/// A topology of a communicator of the world.
#[derive(Clone)]
pub(crate) enum Laid {
    /// Ranks in each dimension, and whether it is periodic; the last dimension runs fastest.
    Grid(Vec<(usize, bool)>),
    /// The neighbours of each rank.
    Graph(Vec<Vec<usize>>),
    /// The sources of this rank's data, and their destinations.
    Distributed(Vec<usize>, Vec<usize>),
}

/// One rank.
struct Rank {
    rank: usize,
    world: Arc<World>,
    abi: Abi,
    /// Communicators of this rank alone that were made.
    comms: usize,
    /// By handle; the lowest that is free is given next.
    requests: Vec<Option<Request>>,
    /// Receives posted so far.
    posted: usize,
    errors: Vec<(Handle, c_int)>,
    collectives: usize,
    laid: HashMap<Handle, Laid>,
}

/// A receive of no bytes from this rank itself.
struct Request {
    from: (Handle, c_int),
    is_persistent: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Inactive,
    /// With the number of its post.
    Posted(usize),
    Complete,
}

impl World {
    pub(crate) fn new(ranks: usize) -> Arc<Self> {
        Arc::new(Self { ranks, meeting: Mutex::default(), changed: Condvar::new() })
    }

    /// The bytes of all ranks, by rank. Collective.
    fn gather(&self, rank: usize, mine: &[u8]) -> Vec<Vec<u8>> {
        let mut meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        let number = meeting.over;
        meeting.brought.push((rank, mine.to_vec()));
        if meeting.brought.len() == self.ranks {
            let mut brought = std::mem::take(&mut meeting.brought);
            brought.sort_unstable();
            meeting.all = brought.into_iter().map(|(_, bytes)| bytes).collect();
            meeting.over += 1;
            self.changed.notify_all();
        }
        while meeting.over == number {
            let waited = self.changed.wait_timeout(meeting, MOST);
            let timeout;
            (meeting, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            assert!(!timeout.timed_out(), "not all ranks come to a collective");
        }
        meeting.all.clone()
    }
}

/// Makes this thread a rank of a world. Returns its MPI, which has been started.
pub(crate) fn mpi(world: &Arc<World>, rank: usize) -> Mpi {
    let abi = || {
        let abi = Abi::standard("stand-in".into());
        abi.learn_types();
        abi
    };
    RANK.set(Some(Rank {
        rank,
        world: Arc::clone(world),
        abi: abi(),
        comms: 0,
        requests: Vec::new(),
        posted: 0,
        errors: Vec::new(),
        collectives: 0,
        laid: HashMap::new(),
    }));
    let mpi = Mpi::of(functions(), abi());
    assert!(mpi.begin_asking());
    mpi
}

/// Whether a request is complete, as a test of the program's finds.
pub(crate) fn is_complete(request: u64) -> bool {
    with(|rank| rank.request(request).state == State::Complete)
}

/// The program's wait for a request, which must be complete.
pub(crate) fn wait(request: u64) {
    with(|rank| {
        let at = (request - FIRST_REQUEST) as usize;
        let one = rank.request(request);
        assert!(one.state == State::Complete, "the program would wait");
        one.state = State::Inactive;
        if !one.is_persistent {
            rank.requests[at] = None;
        }
    });
}

/// Gives a communicator a topology.
pub(crate) fn lay_out(comm: Handle, laid: Laid) {
    with(|rank| rank.laid.insert(comm, laid));
}

/// Takes the errors that error handlers have seen, with their communicators.
pub(crate) fn errors() -> Vec<(Handle, c_int)> {
    with(|rank| std::mem::take(&mut rank.errors))
}

/// Collectives of the whole world so far.
pub(crate) fn collectives() -> usize {
    with(|rank| rank.collectives)
}

fn with<T>(ask: impl FnOnce(&mut Rank) -> T) -> T {
    RANK.with_borrow_mut(|rank| ask(rank.as_mut().expect("a thread that is a rank")))
}

/// Writes a result where the caller wants it.
fn put<T>(to: *mut T, value: T) -> c_int {
    // SAFETY: MPI's callers pass room for what is written.
    unsafe { *to = value };
    0
}

impl Rank {
    fn request(&mut self, request: u64) -> &mut Request {
        let at = request.checked_sub(FIRST_REQUEST).expect("a request") as usize;
        self.requests.get_mut(at).and_then(Option::as_mut).expect("a live request")
    }

    /// A new request, with the lowest handle that is free.
    fn receive(&mut self, from: (Handle, c_int), is_persistent: bool) -> u64 {
        let at = self.requests.iter().position(Option::is_none).unwrap_or(self.requests.len());
        if at == self.requests.len() {
            self.requests.push(None);
        }
        self.requests[at] = Some(Request { from, is_persistent, state: State::Inactive });
        FIRST_REQUEST + at as u64
    }

    fn post(&mut self, request: u64) {
        self.posted += 1;
        let number = self.posted;
        let request = self.request(request);
        assert!(request.state == State::Inactive, "the request is active");
        request.state = State::Posted(number);
    }

    /// Completes the oldest receive for a message.
    fn send(&mut self, to: (Handle, c_int)) {
        let posted = |request: &&mut Request| match request.state {
            State::Posted(number) if request.from == to => number,
            _ => usize::MAX,
        };
        let oldest = self.requests.iter_mut().flatten().min_by_key(posted);
        let oldest = oldest.filter(|oldest| posted(oldest) < usize::MAX);
        oldest.expect("a receive that the message is for").state = State::Complete;
    }

    /// Whether a communicator has this rank alone.
    fn is_alone_in(&self, comm: Handle) -> bool {
        comm == self.abi.comm_self || (FIRST_COMM..FIRST_COMM + self.comms).contains(&comm)
    }

    fn size_of(&self, datatype: Handle) -> usize {
        let known = self.abi.datatype(datatype).expect("a datatype of the standard");
        usize::from(known.size)
    }
}

/// The functions of this thread's rank.
fn functions() -> Pmpi {
    Pmpi {
        abort,
        comm_rank,
        comm_size,
        comm_test_inter,
        comm_remote_size,
        topo_test,
        cartdim_get,
        cart_shift,
        graph_neighbors_count,
        graph_neighbors,
        dist_graph_neighbors_count,
        dist_graph_neighbors,
        comm_dup,
        comm_idup,
        comm_split,
        comm_free,
        comm_set_errhandler,
        comm_call_errhandler,
        irecv: receive::<false>,
        recv_init: receive::<true>,
        start,
        send,
        sendrecv,
        request_get_status,
        allreduce,
        allgather,
        ..Pmpi::absent()
    }
}

extern "C-unwind" fn abort(_: Handle, _: c_int) -> c_int {
    panic!("MPI_Abort")
}

extern "C-unwind" fn comm_rank(comm: Handle, rank: *mut c_int) -> c_int {
    put(rank, with(|one| if one.is_alone_in(comm) { 0 } else { one.rank }) as c_int)
}

extern "C-unwind" fn comm_size(comm: Handle, size: *mut c_int) -> c_int {
    put(size, with(|one| if one.is_alone_in(comm) { 1 } else { one.world.ranks }) as c_int)
}

extern "C-unwind" fn comm_test_inter(comm: Handle, flag: *mut c_int) -> c_int {
    put(flag, (comm == BETWEEN).into())
}

extern "C-unwind" fn comm_remote_size(comm: Handle, size: *mut c_int) -> c_int {
    assert!(comm == BETWEEN, "an intercommunicator");
    put(size, REMOTE as c_int)
}

/// The topology of a communicator.
fn laid(comm: Handle) -> Option<Laid> {
    with(|rank| rank.laid.get(&comm).cloned())
}

extern "C-unwind" fn topo_test(comm: Handle, status: *mut c_int) -> c_int {
    let value = match laid(comm) {
        None => -32766,
        Some(Laid::Grid(_)) => 211,
        Some(Laid::Graph(_)) => 212,
        Some(Laid::Distributed(..)) => 213,
    };
    assert_eq!(with(|rank| rank.abi.family), Family::Standard);
    put(status, value)
}

extern "C-unwind" fn cartdim_get(comm: Handle, dimensions: *mut c_int) -> c_int {
    let Some(Laid::Grid(sizes)) = laid(comm) else { panic!("no grid") };
    put(dimensions, sizes.len() as c_int)
}

extern "C-unwind" fn cart_shift(
    comm: Handle,
    dimension: c_int,
    by: c_int,
    before: *mut c_int,
    behind: *mut c_int,
) -> c_int {
    const PROC_NULL: c_int = -3;
    let Some(Laid::Grid(sizes)) = laid(comm) else { panic!("no grid") };
    let stride: usize = sizes[dimension as usize + 1..].iter().map(|(size, _)| size).product();
    let (size, periodic) = sizes[dimension as usize];
    let rank = with(|one| one.rank);
    let at = (rank / stride % size) as c_int;
    let (stride, size) = (stride as c_int, size as c_int);
    let neighbor = |at_neighbor: c_int| {
        let is_there = periodic || (0..size).contains(&at_neighbor);
        let moved = (at_neighbor.rem_euclid(size) - at) * stride;
        if is_there { rank as c_int + moved } else { PROC_NULL }
    };
    put(before, neighbor(at - by)) | put(behind, neighbor(at + by))
}

/// Writes ranks into an array.
fn put_ranks(to: *mut c_int, most: c_int, ranks: &[usize]) -> c_int {
    assert_eq!(most as usize, ranks.len());
    for (at, rank) in ranks.iter().enumerate() {
        put(to.wrapping_add(at), *rank as c_int);
    }
    0
}

extern "C-unwind" fn graph_neighbors_count(comm: Handle, rank: c_int, count: *mut c_int) -> c_int {
    let Some(Laid::Graph(neighbors)) = laid(comm) else { panic!("no graph") };
    put(count, neighbors[rank as usize].len() as c_int)
}

extern "C-unwind" fn graph_neighbors(
    comm: Handle,
    rank: c_int,
    most: c_int,
    ranks: *mut c_int,
) -> c_int {
    let Some(Laid::Graph(neighbors)) = laid(comm) else { panic!("no graph") };
    put_ranks(ranks, most, &neighbors[rank as usize])
}

extern "C-unwind" fn dist_graph_neighbors_count(
    comm: Handle,
    ins: *mut c_int,
    outs: *mut c_int,
    weighted: *mut c_int,
) -> c_int {
    let Some(Laid::Distributed(from, to)) = laid(comm) else { panic!("no graph") };
    put(ins, from.len() as c_int) | put(outs, to.len() as c_int) | put(weighted, 0)
}

extern "C-unwind" fn dist_graph_neighbors(
    comm: Handle,
    ins: c_int,
    sources: *mut c_int,
    _: *mut c_int,
    outs: c_int,
    destinations: *mut c_int,
    _: *mut c_int,
) -> c_int {
    let Some(Laid::Distributed(from, to)) = laid(comm) else { panic!("no graph") };
    put_ranks(sources, ins, &from) | put_ranks(destinations, outs, &to)
}

extern "C-unwind" fn comm_dup(comm: Handle, copy: *mut u64) -> c_int {
    let new = with(|rank| {
        assert!(rank.is_alone_in(comm), "others would have to come");
        rank.comms += 1;
        FIRST_COMM + rank.comms - 1
    });
    put(copy, new as u64)
}

extern "C-unwind" fn comm_idup(_: Handle, _: *mut u64, _: *mut u64) -> c_int {
    unreachable!("the library makes none")
}

/// Of all ranks, which no test sends anything by.
extern "C-unwind" fn comm_split(_: Handle, _: c_int, _: c_int, own: *mut u64) -> c_int {
    put(own, PRIVATE as u64)
}

extern "C-unwind" fn comm_free(comm: *mut u64) -> c_int {
    // SAFETY: MPI's callers pass a communicator.
    assert_eq!(unsafe { *comm }, PRIVATE as u64);
    0
}

extern "C-unwind" fn comm_set_errhandler(_: Handle, _: Handle) -> c_int {
    0
}

extern "C-unwind" fn comm_call_errhandler(comm: Handle, code: c_int) -> c_int {
    with(|rank| rank.errors.push((comm, code)));
    0
}

/// `MPI_Recv_init`; or `MPI_Irecv`, a receive that is started at once and not again.
extern "C-unwind" fn receive<const IS_PERSISTENT: bool>(
    _: *mut c_void,
    _: c_int,
    _: Handle,
    _: c_int,
    tag: c_int,
    comm: Handle,
    request: *mut u64,
) -> c_int {
    put(request, with(|rank| rank.receive((comm, tag), IS_PERSISTENT)));
    if IS_PERSISTENT { 0 } else { start(request) }
}

extern "C-unwind" fn start(request: *mut u64) -> c_int {
    // SAFETY: MPI's callers pass a request.
    let request = unsafe { *request };
    with(|rank| rank.post(request));
    0
}

extern "C-unwind" fn send(
    _: *const c_void,
    _: c_int,
    _: Handle,
    _: c_int,
    tag: c_int,
    comm: Handle,
) -> c_int {
    with(|rank| rank.send((comm, tag)));
    0
}

/// To itself, of which foldback asks here whether it is too long.
extern "C-unwind" fn sendrecv(
    _: *const c_void,
    sent: c_int,
    _: Handle,
    _: c_int,
    _: c_int,
    _: *mut c_void,
    most: c_int,
    _: Handle,
    _: c_int,
    _: c_int,
    _: Handle,
    _: *mut c_void,
) -> c_int {
    assert!(sent > most, "nothing is copied here");
    TRUNCATED
}

extern "C-unwind" fn request_get_status(
    request: Handle,
    flag: *mut c_int,
    _: *mut c_void,
) -> c_int {
    put(flag, is_complete(request as u64).into())
}

/// The data that a rank brings to a collective.
fn brought<'a>(data: *const c_void, bytes: usize) -> &'a [u8] {
    // SAFETY: MPI's callers pass as much.
    unsafe { std::slice::from_raw_parts(data.cast(), bytes) }
}

/// The room for the data that a rank gets.
fn room<'a>(data: *mut c_void, bytes: usize) -> &'a mut [u8] {
    // SAFETY: MPI's callers pass as much.
    unsafe { std::slice::from_raw_parts_mut(data.cast(), bytes) }
}

/// Integers of the world. Of a rank alone, the answer whether it would be done.
extern "C-unwind" fn allreduce(
    from: *const c_void,
    to: *mut c_void,
    count: c_int,
    datatype: Handle,
    op: Handle,
    comm: Handle,
) -> c_int {
    let (rank, world, in_place, size, known, op, is_alone) = with(|rank| {
        let (known, op) = (rank.abi.datatype(datatype), rank.abi.op(op));
        let is_alone = rank.is_alone_in(comm);
        rank.collectives += usize::from(!is_alone);
        let (in_place, size) = (rank.abi.in_place, rank.size_of(datatype));
        (rank.rank, Arc::clone(&rank.world), in_place, size, known, op, is_alone)
    });
    if from == to.cast_const() {
        return FAILED;
    }
    if is_alone {
        let taken = known.zip(op).is_none_or(|(known, op)| known.allows(op));
        return if taken { 0 } else { WRONG_OP };
    }
    let (element, op) = (known.and_then(|known| known.integer()), op);
    let (Some(element), Some(Op::Fold(op))) = (element, op) else { panic!("integers alone") };
    let bytes = count as usize * size;
    let from = if from as usize == in_place { to.cast_const() } else { from };
    let all = world.gather(rank, brought(from, bytes));
    let sum = all.into_iter().reduce(|mut sum, one| {
        fold(&mut sum, &one, Arithmetic { op, element });
        sum
    });
    room(to, bytes).copy_from_slice(&sum.expect("a rank"));
    0
}

/// Of the world. Of a rank alone, the answer whether it would be done.
extern "C-unwind" fn allgather(
    from: *const c_void,
    sent: c_int,
    datatype: Handle,
    to: *mut c_void,
    most: c_int,
    _: Handle,
    comm: Handle,
) -> c_int {
    if from == to.cast_const() {
        return FAILED;
    }
    if sent > most {
        return TRUNCATED;
    }
    let (rank, world, size, is_alone) = with(|rank| {
        let is_alone = rank.is_alone_in(comm);
        rank.collectives += usize::from(!is_alone);
        (rank.rank, Arc::clone(&rank.world), rank.size_of(datatype), is_alone)
    });
    if is_alone {
        return 0;
    }
    let all = world.gather(rank, brought(from, sent as usize * size)).concat();
    room(to, all.len()).copy_from_slice(&all);
    0
}

//! Reductions over neighbours whose vectors change little from one call to the next.
//!
//! Each rank keeps what it has sent. A call first tells the neighbours the number of blocks that have changed
//! ([`Notice`]), then sends these alone. If the op can be undone, a block travels as the
//! difference to what was there, and the receiver adds it to the reduction that it keeps. Else the receiver keeps the
//! vector of each neighbour, and reduces the changed blocks anew. So a kept reduction is never older than the vectors.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::reduction::{Elements, Reduction};
use super::super::{ERR_BUFFER, ERR_COUNT, mpi, refuse, room, shape_of};
use super::Arguments;
use super::blocks::{Cut, Notice};
use super::kept::{Kept, Sent};
use crate::bindings::FB_CHUNK_BYTES;
use crate::codec::SUCCESS;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::preload::own;
use crate::process;
use crate::stats::CachedLine;

/// Bytes of a block, if the program leaves that to foldback: as much as a name of a block costs, some 60 times.
const BLOCK: usize = 256;

/// The blocks of this rank's vector that have changed since the call before.
#[derive(Clone, Copy)]
pub enum Changed<'a> {
    /// The blocks that differ from what was sent.
    Compare,
    /// By number, in any order.
    Blocks(&'a [c_int]),
}

/// `foldback_neighbor_cache`.
pub struct Cache(Arc<Shared>);

/// A cache, and what is under way in it.
pub(super) struct Shared {
    pub(super) mpi: &'static Mpi,
    /// A duplicate of the program's communicator, since a call may make its second exchange in a test of the program's.
    pub(super) comm: Handle,
    reduction: Reduction,
    count: usize,
    cut: Cut,
    /// The number of in-neighbours, MPI_PROC_NULL among them.
    sources: usize,
    /// The number of out-neighbours.
    destinations: usize,
    state: Mutex<State>,
}

struct State {
    sent: Sent,
    kept: Kept,
    calls: u64,
    is_under_way: bool,
    /// A call has failed, so ranks may have different vectors.
    is_broken: bool,
    counts: CachedLine,
}

/// A call under way. The MPI may work with its buffers.
pub(super) struct Round {
    pub(super) notice: Vec<u64>,
    pub(super) notices: Vec<u64>,
    pub(super) changes: Vec<u8>,
    pub(super) incoming: Vec<u8>,
    pub(super) counts: Vec<c_int>,
    pub(super) places: Vec<c_int>,
    result: Elements,
}

impl Cache {
    /// One for vectors of `count` elements in blocks of `block`; 0: foldback chooses. Buffers do not count. Collective.
    ///
    /// # Errors
    /// An argument is wrong, which the program's error handler has been told.
    ///
    /// # Safety
    /// *Arguments* of the [program](crate::mpi).
    pub unsafe fn new(arguments: Arguments, block: c_int) -> Result<Self, c_int> {
        let Arguments { count, datatype, op, comm, .. } = arguments;
        let Some(mpi) = mpi() else { return Err(ERR_BUFFER) };
        let refused = |code| refuse(mpi, comm, code);
        let Some(neighbors) = mpi.pmpi.neighbors(mpi.abi.family, mpi.abi.handle(comm)) else {
            log::error!("foldback_neighbor_cache_create: the communicator has no topology");
            return Err(refused(ERR_BUFFER));
        };
        let (Ok(count), Ok(block)) = (usize::try_from(count), usize::try_from(block)) else {
            return Err(refused(ERR_COUNT));
        };
        let Some(shape) = shape_of(mpi, datatype) else { return Err(refused(ERR_BUFFER)) };
        let reduction = Reduction::new(mpi, datatype, shape, op).map_err(refused)?;
        let size = reduction.size().max(1);
        let block = if block == 0 { BLOCK.div_ceil(size) } else { block };
        let (bytes, block) = (count.checked_mul(reduction.size()), block.checked_mul(size));
        let (Some(bytes), Some(block)) = (bytes, block) else { return Err(refused(ERR_COUNT)) };
        let cut = Cut { bytes, block };
        let ranks = neighbors.sources.len();
        // The MPI counts bytes of all neighbours in ints.
        let all = ranks.max(1).checked_mul(cut.most());
        if all.is_none_or(|all| c_int::try_from(all).is_err()) {
            log::error!(
                "foldback_neighbor_cache_create: {bytes} bytes of {ranks} neighbours are too many"
            );
            return Err(refused(ERR_COUNT));
        }
        let sources = neighbors.sources.iter().map(Option::is_some).collect();
        let state = State {
            sent: Sent::new(cut),
            kept: Kept::new(cut, sources, reduction.invertible()),
            calls: 0,
            is_under_way: false,
            is_broken: false,
            counts: CachedLine::default(),
        };
        let mut duplicate: u64 = 0;
        // SAFETY: the program's communicator; one handle is written.
        match unsafe { (mpi.pmpi.comm_dup)(mpi.abi.handle(comm), &raw mut duplicate) } {
            SUCCESS => Ok(Self(Arc::new(Shared {
                mpi,
                comm: duplicate as Handle,
                reduction,
                count,
                cut,
                sources: ranks,
                destinations: neighbors.destinations.iter().flatten().count(),
                state: Mutex::new(state),
            }))),
            code => Err(code),
        }
    }

    /// Reduces the vectors of the in-neighbours. Collective over the communicator.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi), for the elements of the cache.
    pub unsafe fn reduce(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        changed: Changed<'_>,
    ) -> c_int {
        let Self(shared) = self;
        let (mpi, comm) = (shared.mpi, shared.comm);
        let (byte, word, words) = (mpi.abi.byte, mpi.abi.word, Notice::WORDS as c_int);
        // SAFETY: the program's buffers, and the round's.
        unsafe {
            let mut round = match shared.begin(send, recv, changed) {
                Ok(round) => round,
                Err(code) => return code,
            };
            let (from, to) = (round.notice.as_ptr().cast(), round.notices.as_mut_ptr().cast());
            let code = own::neighbor_allgather(from, words, word, to, words, word, comm);
            if let Err(code) = shared.expect(&mut round, code) {
                return code;
            }
            let bytes = round.changes.len() as c_int;
            let (from, to) = (round.changes.as_ptr().cast(), round.incoming.as_mut_ptr().cast());
            let (counts, places) = (round.counts.as_ptr(), round.places.as_ptr());
            let code = own::neighbor_allgatherv(from, bytes, byte, to, counts, places, byte, comm);
            shared.finish(&round, code)
        }
    }

    /// The part that a call under way needs.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Calls on this rank, and the bytes that the cache has saved.
    pub fn counts(&self) -> CachedLine {
        self.0.state().counts
    }

    /// Frees it. Collective, as MPI_Comm_free.
    ///
    /// # Errors
    /// A call is under way.
    pub fn free(self) -> Result<(), (Self, c_int)> {
        let Self(shared) = &self;
        if shared.state().is_under_way {
            log::error!("foldback_neighbor_cache_free: a request is still under way");
            let code = refuse(shared.mpi, shared.comm, ERR_BUFFER);
            return Err((self, code));
        }
        let mut comm = shared.comm as u64;
        // SAFETY: made by `new`, and used by no call.
        match unsafe { own::MPI_Comm_free((&raw mut comm).cast()) } {
            SUCCESS => Ok(()),
            code => Err((self, code)),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call: what this rank has to tell and to send.
    ///
    /// # Errors
    /// The call cannot be made, which the program's error handler has been told.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi), for the elements of the cache.
    pub(super) unsafe fn begin(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        changed: Changed<'_>,
    ) -> Result<Round, c_int> {
        // SAFETY: as demanded of this function.
        let begun = unsafe { self.try_begin(send, changed) };
        let (notice, changes) = begun.map_err(|code| refuse(self.mpi, self.comm, code))?;
        let sources = self.sources;
        Ok(Round {
            notice: notice.words().to_vec(),
            notices: vec![0; sources * Notice::WORDS],
            changes,
            incoming: room(0),
            counts: vec![0; sources],
            places: vec![0; sources],
            result: Elements { data: recv, count: self.count },
        })
    }

    /// # Safety
    /// As [`Shared::begin`].
    unsafe fn try_begin(
        &self,
        send: *const c_void,
        changed: Changed<'_>,
    ) -> Result<(Notice, Vec<u8>), c_int> {
        let mut state = self.state();
        if state.is_broken || state.is_under_way {
            let why =
                if state.is_broken { "a call on it has failed" } else { "a call is under way" };
            log::error!("this foldback_neighbor_cache takes no call: {why}");
            return Err(ERR_BUFFER);
        }
        // SAFETY: as demanded of this function.
        let packed = unsafe { self.reduction.pack(send, self.count) }?;
        let vector = match &packed {
            Some(packed) => packed.as_slice(),
            None if self.cut.bytes == 0 => &[],
            // SAFETY: elements that lie in memory as they are sent.
            None => unsafe { slice::from_raw_parts(send.cast::<u8>(), self.cut.bytes) },
        };
        let changed = match changed {
            // All begin with zeros, whatever the program says.
            Changed::Blocks(blocks) if state.calls > 0 => {
                self.cut.named(blocks).ok_or_else(|| {
                    log::error!(
                        "a block beyond the {} of this foldback_neighbor_cache",
                        self.cut.blocks()
                    );
                    ERR_COUNT
                })?
            }
            _ => state.sent.compare(vector),
        };
        let by = state.kept.by();
        let changes = state.sent.changes(vector, &changed, by);
        state.is_under_way = true;
        state.calls += 1;
        let words = size_of_val(&Notice::default().words());
        let (sent, whole) = ((words + changes.len()) as u64, self.cut.bytes as u64);
        let to = self.destinations as u64;
        let frames = |bytes: usize| bytes.div_ceil(FB_CHUNK_BYTES as usize) as u64;
        let line = CachedLine {
            reductions: 1,
            reused: 0,
            bytes: to * whole,
            bytes_sent: to * sent,
            frames: frames(self.cut.bytes),
            frames_sent: frames(words) + frames(changes.len()),
        };
        state.counts.add(&line);
        if let Some(process) = process::get() {
            process.cached.add(&line);
        }
        let (blocks, bytes) = (changed.len() as u64, changes.len() as u64);
        Ok((Notice { call: state.calls, blocks, bytes }, changes))
    }

    /// Looks at the neighbours' notices, which an exchange with this code has brought, and makes room for what follows.
    ///
    /// # Errors
    /// The call has failed, which the program has been told.
    pub(super) fn expect(&self, round: &mut Round, code: c_int) -> Result<(), c_int> {
        if code != SUCCESS {
            return Err(self.failed(code, false));
        }
        let own = Notice::of(&round.notice);
        let is_there = self.state().kept.sources().to_vec();
        let mut place = 0;
        for (at, words) in round.notices.chunks_exact(Notice::WORDS).enumerate() {
            round.places[at] = place as c_int;
            if !is_there[at] {
                continue;
            }
            let notice = Notice::of(words);
            let is_as_expected = notice.call == own.call && notice.bytes <= self.cut.most() as u64;
            if !is_as_expected {
                return Err(self.out_of_step());
            }
            round.counts[at] = notice.bytes as c_int;
            place += notice.bytes as usize;
        }
        round.incoming = room(place);
        Ok(())
    }

    /// The changes have come, by an exchange with this code. Returns the code of the whole.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi).
    pub(super) unsafe fn finish(&self, round: &Round, code: c_int) -> c_int {
        if code != SUCCESS {
            return self.failed(code, false);
        }
        // SAFETY: as demanded of this function.
        match unsafe { self.apply(round) } {
            None => self.out_of_step(),
            Some(SUCCESS) => SUCCESS,
            Some(code) => self.failed(code, true),
        }
    }

    /// `None`: some neighbour has sent something else.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi).
    unsafe fn apply(&self, round: &Round) -> Option<c_int> {
        let mut state = self.state();
        let mut is_same = true;
        for (at, words) in round.notices.chunks_exact(Notice::WORDS).enumerate() {
            let place = round.places[at] as usize;
            let text = &round.incoming[place..place + round.counts[at] as usize];
            let blocks = Notice::of(words).blocks;
            state.kept.take(at, blocks, text)?;
            is_same &= blocks == 0;
        }
        if is_same {
            let line = CachedLine { reused: 1, ..CachedLine::default() };
            state.counts.add(&line);
            if let Some(process) = process::get() {
                process.cached.add(&line);
            }
        }
        state.is_under_way = false;
        match state.kept.reduction(|vectors, into| self.reduction.reduce(vectors, into)) {
            // SAFETY: the program's buffer for a vector.
            Ok(Some(vector)) if !vector.is_empty() => unsafe {
                Some(self.reduction.unpack(vector, round.result))
            },
            Ok(_) => Some(SUCCESS),
            Err(code) => Some(code),
        }
    }

    /// A call has failed; the program has to be `told` unless the MPI has done so.
    pub(super) fn failed(&self, code: c_int, is_to_be_told: bool) -> c_int {
        let mut state = self.state();
        (state.is_broken, state.is_under_way) = (true, false);
        drop(state);
        if is_to_be_told { refuse(self.mpi, self.comm, code) } else { code }
    }

    fn out_of_step(&self) -> c_int {
        log::error!("the ranks of a foldback_neighbor_cache are in different calls");
        self.failed(ERR_BUFFER, true)
    }
}

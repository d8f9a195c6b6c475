//! Reductions over neighbours that do not block.
//!
//! They have requests of their own: local work is left when the MPI is done, and where foldback is off there is nobody
//! in the MPI's waits to do it.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::blocks::Notice;
use super::cache::{Cache, Changed, Round, Shared};
use super::{Arguments, Vectors};
use crate::codec::SUCCESS;
use crate::mpi::Mpi;
use crate::preload::own;

/// `foldback_request`.
pub struct Request {
    mpi: &'static Mpi,
    /// The MPI's, of the exchange under way.
    request: u64,
    stage: Stage,
}

/// The exchange under way.
enum Stage {
    Vectors(Vectors),
    Notices(Arc<Shared>, Round),
    Changes(Arc<Shared>, Round),
    Over,
}

impl Request {
    /// `foldback_ineighbor_reduce`.
    ///
    /// # Errors
    /// What the MPI says; an argument is wrong.
    ///
    /// # Safety
    /// *Arguments* and *buffers* of the [program](crate::mpi), until the request is over.
    pub unsafe fn reduce(arguments: Arguments) -> Result<Self, c_int> {
        // SAFETY: as demanded of this function; the buffers stay, since the request keeps them.
        unsafe {
            let mut vectors = Vectors::new(arguments)?;
            let (mpi, mut request) = (vectors.mpi, 0);
            let (bytes, byte, comm) = (vectors.bytes, mpi.abi.byte, arguments.comm);
            let (from, to) = (vectors.outgoing(), vectors.all.as_mut_ptr().cast());
            let ask = &raw mut request;
            match own::ineighbor_allgather(from, bytes, byte, to, bytes, byte, comm, ask) {
                SUCCESS => Ok(Self { mpi, request, stage: Stage::Vectors(vectors) }),
                code => Err(code),
            }
        }
    }

    /// `foldback_neighbor_cache_ireduce`.
    ///
    /// # Errors
    /// What the MPI says; an argument is wrong.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi), until the request is over.
    pub unsafe fn cached(
        cache: &Cache,
        send: *const c_void,
        recv: *mut c_void,
        changed: Changed<'_>,
    ) -> Result<Self, c_int> {
        let shared = Arc::clone(cache.shared());
        let (mpi, mut request) = (shared.mpi, 0);
        let (word, words) = (mpi.abi.word, Notice::WORDS as c_int);
        // SAFETY: as demanded of this function; the round's buffers stay, since the request keeps them.
        unsafe {
            let mut round = shared.begin(send, recv, changed)?;
            let (from, to) = (round.notice.as_ptr().cast(), round.notices.as_mut_ptr().cast());
            let ask = &raw mut request;
            let code =
                own::ineighbor_allgather(from, words, word, to, words, word, shared.comm, ask);
            match code {
                SUCCESS => Ok(Self { mpi, request, stage: Stage::Notices(shared, round) }),
                code => Err(shared.failed(code, false)),
            }
        }
    }

    /// Goes on as far as that is possible, or to the end if it `waits`. Returns whether it is over.
    ///
    /// # Errors
    /// The call has failed, and is over.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi).
    pub unsafe fn advance(&mut self, waits: bool) -> Result<bool, c_int> {
        loop {
            if matches!(self.stage, Stage::Over) {
                return Ok(true);
            }
            let (mut flag, status): (c_int, _) = (1, self.mpi.abi.status_ignore as *mut c_void);
            let request = &raw mut self.request;
            // SAFETY: the request of the exchange under way; an int is written.
            let code = unsafe {
                match waits {
                    true => own::MPI_Wait(request, status),
                    false => own::MPI_Test(request, &raw mut flag, status),
                }
            };
            if code == SUCCESS && flag == 0 {
                return Ok(false);
            }
            // SAFETY: the program's buffers.
            unsafe { self.next(code) }?;
        }
    }

    /// The exchange under way has ended with this code: finishes, or starts the next one.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi).
    unsafe fn next(&mut self, code: c_int) -> Result<(), c_int> {
        // SAFETY: as demanded of this function; the round's buffers stay, since the request keeps them.
        let code = unsafe {
            match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Over => SUCCESS,
                Stage::Vectors(vectors) if code == SUCCESS => vectors.finish(),
                Stage::Vectors(_) => code,
                Stage::Notices(shared, mut round) => {
                    shared.expect(&mut round, code)?;
                    let (byte, bytes) = (self.mpi.abi.byte, round.changes.len() as c_int);
                    let from = round.changes.as_ptr().cast();
                    let to = round.incoming.as_mut_ptr().cast();
                    let (counts, places) = (round.counts.as_ptr(), round.places.as_ptr());
                    let (comm, ask) = (shared.comm, &raw mut self.request);
                    let code = own::ineighbor_allgatherv(
                        from, bytes, byte, to, counts, places, byte, comm, ask,
                    );
                    if code != SUCCESS {
                        return Err(shared.failed(code, false));
                    }
                    self.stage = Stage::Changes(shared, round);
                    SUCCESS
                }
                Stage::Changes(shared, round) => shared.finish(&round, code),
            }
        };
        if code == SUCCESS { Ok(()) } else { Err(code) }
    }
}

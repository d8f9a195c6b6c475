//! What is to be done with what a group brought, by the program's own thread: an operation may come to
//! its end in any, but only here the real MPI is called, to unpack and to fold.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ops::Range;

use crate::collective::deposits::Deposits;
use crate::collective::eligibility::Pair;
use crate::collective::prepare::Prepared;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::mpi::types::{self, Shape};

/// What MPI returns for success.
pub const SUCCESS: c_int = 0;

/// What is left to do when the group is done.
pub enum Finish {
    /// Nothing: the result is where it belongs.
    Done,
    /// Bytes to elements of the program's.
    Deliver {
        /// Where the bytes are.
        from: *const u8,
        /// What goes where.
        pieces: Vec<Piece>,
        /// The buffer.
        to: *mut c_void,
        /// Type of its elements, as it was passed, and its shape.
        datatype: (Handle, Shape),
    },
    /// Keys back to pairs (MPI_MINLOC, MPI_MAXLOC).
    Pairs {
        /// The keys.
        from: *const u8,
        /// The buffer.
        to: *mut u8,
        /// Bytes of either.
        bytes: usize,
        /// How they are keys.
        pair: Pair,
    },
    /// Everyone's parts to their fold.
    Fold(Deposits),
}

/// A run of bytes that become elements.
pub struct Piece {
    /// Where, in what came.
    pub bytes: Range<usize>,
    /// At which element of the buffer.
    pub at: isize,
    /// So many.
    pub count: usize,
}

impl Prepared {
    /// Does what is left, once the operation is over. Returns what MPI is to return.
    ///
    /// # Safety
    /// The job is over; the program's buffers are still there.
    pub unsafe fn finish(self, mpi: &Mpi) -> c_int {
        // SAFETY: the caller's promise.
        let code = unsafe { self.bring(mpi) };
        if let Some(copy) = self.type_copy {
            mpi.free_type(copy);
        }
        code
    }

    /// SAFETY of callers: as [`Prepared::finish`].
    unsafe fn bring(&self, mpi: &Mpi) -> c_int {
        let mut code = SUCCESS;
        match &self.finish {
            Finish::Done => {}
            Finish::Deliver { from, pieces, to, datatype: (datatype, shape) } => {
                for piece in pieces.iter().filter(|piece| !piece.bytes.is_empty()) {
                    let to = to.wrapping_byte_offset(piece.at * shape.extent);
                    // SAFETY: `from` spans what came; the elements are the program's to be written.
                    unsafe {
                        let from = from.add(piece.bytes.start);
                        if shape.contiguous {
                            std::ptr::copy(from, to.cast(), piece.bytes.len());
                        } else {
                            let bytes = std::slice::from_raw_parts(from, piece.bytes.len());
                            let result = mpi.unpack(bytes, to, piece.count, *datatype);
                            code = if code == SUCCESS { result } else { code };
                        }
                    }
                }
            }
            Finish::Pairs { from, to, bytes, pair } => {
                // SAFETY: `bytes` bytes of keys, and a buffer of as many pairs.
                unsafe {
                    let keys = std::slice::from_raw_parts(*from, *bytes);
                    let pairs = std::slice::from_raw_parts_mut(*to, *bytes);
                    types::unkey(keys, pairs, *pair);
                }
            }
            // SAFETY: the image is there, and the buffer is the program's.
            Finish::Fold(deposits) => code = unsafe { deposits.fold(mpi) },
        }
        code
    }

    /// For a call that returns before [`Prepared::finish`]: the program may free its datatype
    /// meanwhile.
    pub fn keep_type(&mut self, mpi: &Mpi) {
        if let Finish::Deliver { datatype: (datatype, shape), .. } = &mut self.finish
            && !shape.contiguous
            && let Some(copy) = mpi.copy_type(*datatype)
        {
            *datatype = copy;
            self.type_copy = Some(copy);
        }
    }
}

//! The last step of a call, by the program's own thread, with the data that a group brought. An
//! operation may end in any thread, but only here the real MPI is called, to unpack and to fold.
#![allow(unsafe_code)]

use std::ffi::c_int;

use super::{SUCCESS, deposits, keys};
use crate::call::Elements;
use crate::mpi::Mpi;
use crate::plan::{Finish, Piece};

/// Delivers what lies from `from` on to the program. Returns what MPI is to return.
///
/// # Safety
/// `from` spans what the plan says comes, all of which is there; *buffers* of the [program](crate::mpi).
pub unsafe fn deliver_result(finish: &Finish, from: *const u8, mpi: &Mpi) -> c_int {
    match finish {
        Finish::Done => SUCCESS,
        Finish::Deliver { pieces, to } => {
            let mut code = SUCCESS;
            for piece in pieces {
                // SAFETY: a piece of what came, for the program's buffer.
                let result = unsafe { deliver(piece, from, to, mpi) };
                code = if code == SUCCESS { result } else { code };
            }
            code
        }
        Finish::Unkey { at, to, bytes, keys } => {
            // SAFETY: `bytes` bytes of keys, and a buffer of as many elements.
            unsafe {
                let came = std::slice::from_raw_parts(from.add(*at), *bytes);
                let elements = std::slice::from_raw_parts_mut(*to, *bytes);
                keys::unkey(came, elements, *keys);
            }
            SUCCESS
        }
        // SAFETY: the parts of all are there, and the program's buffer is.
        Finish::Fold(deposits) => unsafe { deposits::fold_parts(deposits, from, mpi) },
    }
}

/// Writes a piece into the program's buffer. Data beyond its room is left out: an error.
///
/// # Safety
/// As [`deliver_result`].
pub(super) unsafe fn deliver(piece: &Piece, from: *const u8, to: &Elements, mpi: &Mpi) -> c_int {
    let Elements { data, datatype, shape, .. } = *to;
    let room = piece.count * shape.size;
    let bytes = piece.bytes.len().min(room);
    if bytes == 0 {
        return if piece.bytes.is_empty() { SUCCESS } else { mpi.truncated() };
    }
    let data = data.wrapping_byte_offset(piece.at * shape.extent);
    // SAFETY: `from` spans what came; the elements are the program's to be written.
    let code = unsafe {
        let from = from.add(piece.bytes.start);
        if shape.contiguous {
            std::ptr::copy(from, data.cast(), bytes);
            SUCCESS
        } else {
            let count = bytes / shape.size;
            let packed = std::slice::from_raw_parts(from, count * shape.size);
            mpi.unpack(packed, data, count, datatype)
        }
    };
    if code == SUCCESS && bytes < piece.bytes.len() { mpi.truncated() } else { code }
}

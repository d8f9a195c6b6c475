//! Reductions over neighbours: each rank gets the reduction of the vectors of the ranks that send to it.
//!
//! MPI has no such collective; PINCH does it in XDP. Here the vectors come by MPI_Neighbor_allgather, as if the program
//! had called that. Foldback folds it where that is faster, and the real MPI makes it elsewhere. Each rank then reduces
//! for itself. So the answers are the same with a group, without one, and where foldback is off.
#![allow(unsafe_code)]

mod blocks;
mod cache;
mod kept;
mod request;

use std::ffi::{c_int, c_void};

pub use cache::{Cache, Changed};
pub use request::Request;

use super::reduction::{Elements, Reduction};
use super::{ERR_BUFFER, ERR_COUNT, mpi, refuse, room, shape_of};
use crate::codec::SUCCESS;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::preload::own;

/// The arguments of a reduction over neighbours, as the program passes them.
#[derive(Clone, Copy)]
pub struct Arguments {
    pub send: *const c_void,
    pub recv: *mut c_void,
    pub count: c_int,
    pub datatype: Handle,
    pub op: Handle,
    pub comm: Handle,
}

/// A reduction of this rank's, whose arguments are right.
struct Vectors {
    mpi: &'static Mpi,
    reduction: Reduction,
    comm: Handle,
    /// By block of the receive buffer, whether there is a neighbour that sends it (else MPI_PROC_NULL).
    sources: Vec<bool>,
    /// This rank's vector, if it had to be packed.
    packed: Option<Vec<u8>>,
    send: *const c_void,
    /// Bytes of a packed vector.
    bytes: c_int,
    /// The neighbours' vectors, packed.
    all: Vec<u8>,
    result: Elements,
}

impl Vectors {
    /// # Errors
    /// An argument is wrong, which the program's error handler has been told.
    ///
    /// # Safety
    /// *Arguments* and *buffers* of the [program](crate::mpi).
    unsafe fn new(arguments: Arguments) -> Result<Self, c_int> {
        let Arguments { send, recv, count, datatype, op, comm } = arguments;
        let Some(mpi) = mpi() else { return Err(ERR_BUFFER) };
        // The MPI finds most wrong arguments, and has words for them.
        // SAFETY: the program's arguments.
        let ask_mpi = || unsafe {
            match own::neighbor_allgather(send, count, datatype, recv, count, datatype, comm) {
                SUCCESS => refuse(mpi, comm, ERR_BUFFER),
                code => code,
            }
        };
        let handle = mpi.abi.handle(comm);
        let neighbors = mpi.pmpi.neighbors(mpi.abi.family, handle);
        let shape = shape_of(mpi, datatype);
        let (Some(neighbors), Some(shape), Ok(elements)) =
            (neighbors, shape, usize::try_from(count))
        else {
            return Err(ask_mpi());
        };
        if send as usize == mpi.abi.in_place || recv as usize == mpi.abi.in_place {
            return Err(refuse(mpi, comm, ERR_BUFFER));
        }
        let reduction =
            Reduction::new(mpi, datatype, shape, op).map_err(|code| refuse(mpi, comm, code))?;
        let sources: Vec<_> = neighbors.sources.iter().map(Option::is_some).collect();
        let bytes = elements.checked_mul(shape.size).and_then(|bytes| c_int::try_from(bytes).ok());
        let all = bytes.and_then(|bytes| sources.len().checked_mul(bytes as usize));
        let (Some(bytes), Some(all)) = (bytes, all) else {
            return Err(refuse(mpi, comm, ERR_COUNT));
        };
        let result = Elements { data: recv, count: elements };
        // SAFETY: the program's vector.
        let packed = unsafe { reduction.pack(send, elements) };
        let packed = packed.map_err(|code| refuse(mpi, comm, code))?;
        let all = room(all);
        Ok(Self { mpi, reduction, comm, sources, packed, send, bytes, all, result })
    }

    /// This rank's vector, packed.
    fn outgoing(&self) -> *const c_void {
        self.packed.as_ref().map_or(self.send, |packed| packed.as_ptr().cast())
    }

    /// All vectors have come. Returns the code of the whole.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi).
    unsafe fn finish(self) -> c_int {
        let Self { mpi, reduction, comm, sources, bytes, all, result, .. } = self;
        let mut vectors = Vec::new();
        if bytes > 0 {
            let each = all.chunks_exact(bytes as usize).zip(&sources);
            vectors.extend(each.filter(|(_, is_there)| **is_there).map(|(vector, _)| vector));
        }
        if vectors.is_empty() {
            return SUCCESS;
        }
        // SAFETY: the program's buffer for a vector.
        match unsafe { reduction.to_buffer(&vectors, result) } {
            SUCCESS => SUCCESS,
            code => refuse(mpi, comm, code),
        }
    }
}

/// `foldback_neighbor_reduce`.
///
/// # Safety
/// *Arguments* and *buffers* of the [program](crate::mpi).
pub unsafe fn reduce(arguments: Arguments) -> c_int {
    // SAFETY: as demanded of this function.
    unsafe {
        let mut vectors = match Vectors::new(arguments) {
            Ok(vectors) => vectors,
            Err(code) => return code,
        };
        let (bytes, byte) = (vectors.bytes, vectors.mpi.abi.byte);
        let (from, to) = (vectors.outgoing(), vectors.all.as_mut_ptr().cast());
        match own::neighbor_allgather(from, bytes, byte, to, bytes, byte, arguments.comm) {
            SUCCESS => vectors.finish(),
            code => code,
        }
    }
}

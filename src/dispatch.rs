//! The one place that chooses between the fold and the real MPI.
//!
//! Each function answers `Ok(code)` if the collective is over, or why it is the real MPI's.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use crate::config::Collective;
use crate::eligibility::{bounded, reduction};
use crate::group::{Group, Job, Pattern};
use crate::mpi::abi::Family;
use crate::mpi::pmpi::Handle;
use crate::runtime::Runtime;
use crate::stats::Reason;

/// What MPI returns for success.
const SUCCESS: c_int = 0;

impl Runtime {
    /// `MPI_Allreduce`.
    ///
    /// # Safety
    /// The arguments are the program's.
    pub unsafe fn allreduce(
        &self,
        (send, recv): (*const c_void, *mut c_void),
        count: c_int,
        datatype: Handle,
        op: Handle,
        comm: Handle,
    ) -> Result<c_int, Reason> {
        let (datatype, op) = (self.mpi.abi.datatype(datatype), self.mpi.abi.op(op));
        let bytes = reduction(count, datatype, op, self.max_bytes(Collective::Allreduce))?;
        let (send, recv) = self.buffers(send, recv)?;
        // SAFETY: buffers of `bytes` bytes, as MPI demands of the program.
        let job = unsafe { fold(Pattern::FoldToAll, op, datatype, bytes, send, recv) };
        // SAFETY: likewise.
        self.with_group(self.mpi.abi.handle(comm), |group, waiter| unsafe {
            group.run(&job, waiter);
            SUCCESS
        })
    }

    /// `MPI_Reduce`.
    ///
    /// # Safety
    /// The arguments are the program's.
    pub unsafe fn reduce(
        &self,
        (send, recv): (*const c_void, *mut c_void),
        count: c_int,
        datatype: Handle,
        op: Handle,
        root: c_int,
        comm: Handle,
    ) -> Result<c_int, Reason> {
        let (datatype, op) = (self.mpi.abi.datatype(datatype), self.mpi.abi.op(op));
        let bytes = reduction(count, datatype, op, self.max_bytes(Collective::Reduce))?;
        let root = usize::try_from(root).map_err(|_| Reason::Argument)?;
        self.with_group(self.mpi.abi.handle(comm), |group, waiter| {
            let (send, recv) = if root == group.rank {
                self.buffers(send, recv)?
            } else if send.is_null() || send as usize == self.mpi.abi.in_place {
                return Err(Reason::Argument);
            } else {
                (send.cast(), std::ptr::null_mut())
            };
            check_root(group, root)?;
            // SAFETY: buffers of `bytes` bytes where they are significant.
            unsafe {
                let job = fold(Pattern::FoldToRoot(root), op, datatype, bytes, send, recv);
                group.run(&job, waiter);
            }
            Ok(SUCCESS)
        })?
    }

    /// `MPI_Bcast`. All that is equal on all ranks is the amount of data: types may differ, so every
    /// type takes part, if need be through a packed copy.
    ///
    /// # Safety
    /// The arguments are the program's.
    pub unsafe fn bcast(
        &self,
        data: *mut c_void,
        count: c_int,
        datatype: Handle,
        root: c_int,
        comm: Handle,
    ) -> Result<c_int, Reason> {
        let known = self.mpi.abi.datatype(datatype);
        let size = match known {
            Some(known) => usize::from(known.size),
            None => self.mpi.type_size(self.mpi.abi.handle(datatype)).ok_or(Reason::Argument)?,
        };
        let count_ = usize::try_from(count).map_err(|_| Reason::Argument)?;
        let bytes = bounded(count_ * size, self.max_bytes(Collective::Bcast))?;
        if known.is_some() && data.is_null() {
            return Err(Reason::Argument);
        }
        let root = usize::try_from(root).map_err(|_| Reason::Argument)?;
        let comm = self.mpi.abi.handle(comm);
        self.with_group(comm, |group, waiter| {
            check_root(group, root)?;
            let pattern = Pattern::Broadcast(root);
            if known.is_some() {
                // SAFETY: a buffer of `bytes` bytes.
                unsafe { group.run(&move_only(pattern, bytes, data.cast()), waiter) };
                return Ok(SUCCESS);
            }
            // SAFETY: the program's buffer, count and type.
            let packed = unsafe {
                if root == group.rank {
                    self.mpi.pack(data, count, datatype, bytes, comm)
                } else {
                    Some(vec![0; bytes])
                }
            };
            let mut packed = packed.ok_or(Reason::Argument)?;
            // SAFETY: our own buffer; then the program's, as above.
            unsafe {
                group.run(&move_only(pattern, bytes, packed.as_mut_ptr()), waiter);
                if root == group.rank {
                    return Ok(SUCCESS);
                }
                Ok(self.mpi.unpack(&packed, data, count, datatype, comm))
            }
        })?
    }

    /// `MPI_Barrier`.
    pub fn barrier(&self, comm: Handle) -> Result<c_int, Reason> {
        if self.max_bytes(Collective::Barrier) == 0 {
            return Err(Reason::TooLarge);
        }
        self.with_group(self.mpi.abi.handle(comm), |group, waiter| {
            // SAFETY: no bytes, so the pointers are never followed.
            unsafe { group.run(&move_only(Pattern::FoldToAll, 0, std::ptr::null_mut()), waiter) };
            SUCCESS
        })
    }

    /// Where a reduction reads and writes.
    fn buffers(
        &self,
        send: *const c_void,
        recv: *mut c_void,
    ) -> Result<(*const u8, *mut u8), Reason> {
        let in_place = self.mpi.abi.in_place;
        if send.is_null() || recv.is_null() || recv as usize == in_place {
            return Err(Reason::Argument);
        }
        if send as usize == in_place {
            return Ok((recv.cast_const().cast(), recv.cast()));
        }
        // MPICH refuses aliased buffers before it communicates; Open MPI takes them for in-place.
        if send == recv.cast_const() && self.mpi.abi.family == Family::Mpich {
            return Err(Reason::Argument);
        }
        Ok((send.cast(), recv.cast()))
    }
}

fn check_root(group: &Group, root: usize) -> Result<(), Reason> {
    group.layout.place(root).map(|_| ()).ok_or(Reason::Argument)
}

/// A job that folds. SAFETY of callers: `send` and `recv` span `bytes` where they are significant.
unsafe fn fold(
    pattern: Pattern,
    op: Option<u8>,
    datatype: Option<crate::mpi::types::TypeInfo>,
    bytes: usize,
    send: *const u8,
    recv: *mut u8,
) -> Job {
    let element = datatype.map_or(0, crate::mpi::types::TypeInfo::element);
    Job { pattern, op: op.unwrap_or(0), element, bytes, send, recv }
}

/// A job that folds nothing.
fn move_only(pattern: Pattern, bytes: usize, data: *mut u8) -> Job {
    Job { pattern, op: 0, element: 0, bytes, send: data, recv: data }
}

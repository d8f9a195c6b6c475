//! The one place that chooses between the fold and the real MPI.
//!
//! Each function answers `Ok(code)` if the collective is over, or why it is the real MPI's.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use crate::config::Collective;
use crate::eligibility::{bounded, reduction};
use crate::group::{Group, Job, Pattern};
use crate::mpi::pmpi::Handle;
use crate::mpi::types::TypeInfo;
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
        let fold = self.reduction(count, datatype, op, Collective::Allreduce)?;
        let mut ends = self.ends(send, recv, &fold)?;
        let job = fold.job(Pattern::FoldToAll, ends.send, ends.recv());
        // SAFETY: buffers of `bytes` bytes, as MPI demands of the program.
        self.with_group(self.mpi.abi.handle(comm), |group, waiter| unsafe {
            group.run(&job, waiter);
        })?;
        ends.outcome()
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
        let fold = self.reduction(count, datatype, op, Collective::Reduce)?;
        let root = usize::try_from(root).map_err(|_| Reason::Argument)?;
        self.with_group(self.mpi.abi.handle(comm), |group, waiter| {
            let mut ends = if root == group.rank {
                self.ends(send, recv, &fold)?
            } else if send.is_null() || send as usize == self.mpi.abi.in_place {
                return Err(Reason::Argument);
            } else {
                Ends { send: send.cast(), recv: std::ptr::null_mut(), refused: None }
            };
            check_root(group, root)?;
            let job = fold.job(Pattern::FoldToRoot(root), ends.send, ends.recv());
            // SAFETY: buffers of `bytes` bytes where they are significant.
            unsafe { group.run(&job, waiter) };
            ends.outcome()
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

    /// What a reduction folds, if the kernel can.
    fn reduction(
        &self,
        count: c_int,
        datatype: Handle,
        op: Handle,
        collective: Collective,
    ) -> Result<Reduction, Reason> {
        let known = (self.mpi.abi.datatype(datatype), self.mpi.abi.op(op));
        let bytes = reduction(count, known.0, known.1, self.max_bytes(collective))?;
        let (element, op_) = (known.0.map_or(0, TypeInfo::element), known.1.unwrap_or(0));
        Ok(Reduction { element, op: op_, bytes, arguments: (count, datatype, op) })
    }

    /// Where a reduction reads and writes.
    fn ends(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        fold: &Reduction,
    ) -> Result<Ends, Reason> {
        let in_place = self.mpi.abi.in_place;
        if send.is_null() || recv.is_null() || recv as usize == in_place {
            return Err(Reason::Argument);
        }
        if send as usize == in_place {
            return Ok(Ends { send: recv.cast_const().cast(), recv: recv.cast(), refused: None });
        }
        // SAFETY: the program's buffer, count, type and op.
        let refused = send == recv.cast_const()
            && unsafe { self.mpi.refuses_one_buffer(recv, fold.arguments) };
        let refused = refused.then(|| vec![0; fold.bytes]);
        Ok(Ends { send: send.cast(), recv: recv.cast(), refused })
    }
}

/// What a reduction folds.
struct Reduction {
    op: u8,
    element: u8,
    bytes: usize,
    /// Count, datatype and op as the program gave them.
    arguments: (c_int, Handle, Handle),
}

impl Reduction {
    fn job(&self, pattern: Pattern, send: *const u8, recv: *mut u8) -> Job {
        Job { pattern, op: self.op, element: self.element, bytes: self.bytes, send, recv }
    }
}

/// Buffers of a reduction.
struct Ends {
    send: *const u8,
    recv: *mut u8,
    /// The real MPI will refuse the buffers, on this rank. The others cannot know and fold; so this
    /// one takes part, to here, and then lets the real MPI report the error.
    refused: Option<Vec<u8>>,
}

impl Ends {
    fn recv(&mut self) -> *mut u8 {
        self.refused.as_mut().map_or(self.recv, Vec::as_mut_ptr)
    }

    fn outcome(&self) -> Result<c_int, Reason> {
        if self.refused.is_some() { Err(Reason::Argument) } else { Ok(SUCCESS) }
    }
}

fn check_root(group: &Group, root: usize) -> Result<(), Reason> {
    group.layout.place(root).map(|_| ()).ok_or(Reason::Argument)
}

/// A job that folds nothing.
fn move_only(pattern: Pattern, bytes: usize, data: *mut u8) -> Job {
    Job { pattern, op: 0, element: 0, bytes, send: data, recv: data }
}

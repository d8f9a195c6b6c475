//! The MPI under the program: its functions, its handles, and what of it foldback calls.
#![allow(unsafe_code)]

pub mod abi;
pub mod lifetime;
pub mod pmpi;
pub mod types;

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use abi::Abi;
use pmpi::{Handle, Pmpi};

/// The real MPI of this process, recognised.
pub struct Mpi {
    /// Its functions.
    pub pmpi: Pmpi,
    /// Its handles.
    pub abi: Abi,
    /// A communicator of this process alone that returns errors; made when first needed.
    private_self: OnceLock<Option<Handle>>,
    /// The attribute of [`Mpi::watch`].
    keyval: OnceLock<Option<c_int>>,
}

/// Size in bytes of a datatype; `None` if the MPI refuses it.
pub(crate) fn type_size(pmpi: &Pmpi, datatype: Handle) -> Option<usize> {
    let mut size: c_int = 0;
    // SAFETY: the MPI checks the handle and writes one int.
    let code = unsafe { (pmpi.type_size)(datatype, &raw mut size) };
    (code == 0 && size > 0).then_some(size as usize)
}

impl Mpi {
    /// Finds and recognises the MPI of this process.
    ///
    /// # Errors
    /// One line that says why this MPI is left alone.
    pub fn load() -> Result<Self, String> {
        let pmpi = Pmpi::load()?;
        let abi = Abi::detect(&pmpi)?;
        Ok(Self { pmpi, abi, private_self: OnceLock::new(), keyval: OnceLock::new() })
    }

    /// Size in bytes of a datatype that is not in the table.
    pub fn type_size(&self, datatype: Handle) -> Option<usize> {
        type_size(&self.pmpi, datatype)
    }

    /// This process's rank in `comm`.
    pub fn rank(&self, comm: Handle) -> usize {
        let mut rank: c_int = 0;
        // SAFETY: the caller's communicator; one int is written.
        unsafe { (self.pmpi.comm_rank)(comm, &raw mut rank) };
        rank.max(0) as usize
    }

    /// Number of ranks of `comm`.
    pub fn size(&self, comm: Handle) -> usize {
        let mut size: c_int = 0;
        // SAFETY: as above.
        unsafe { (self.pmpi.comm_size)(comm, &raw mut size) };
        size.max(0) as usize
    }

    /// Whether `comm` is an intercommunicator; errors count as one (the real MPI will tell).
    pub fn is_intercomm(&self, comm: Handle) -> bool {
        let mut flag: c_int = 1;
        // SAFETY: as above.
        let code = unsafe { (self.pmpi.comm_test_inter)(comm, &raw mut flag) };
        code != 0 || flag != 0
    }

    /// A communicator of all ranks that nobody else knows, on which probing finds nothing.
    /// Collective, and without a bound on the time.
    ///
    /// Not one of this process alone: MPICH does not progress the network when it probes there.
    pub fn private_world(&self) -> Option<Handle> {
        let mut comm: u64 = 0;
        // SAFETY: one handle is written, of 4 or 8 bytes.
        let code = unsafe { (self.pmpi.comm_dup)(self.abi.comm_world, &raw mut comm) };
        (code == 0).then_some(comm as Handle)
    }

    /// Whether the MPI refuses a reduction whose send and receive buffers are one. Which do, from
    /// how many elements on, depends on its version and on how it was built and started, so it is
    /// asked, in a collective of this process alone, which leaves the buffer as it is.
    ///
    /// # Safety
    /// `buffer`, count, datatype and op are what the program handed to MPI, and valid together.
    pub unsafe fn refuses_one_buffer(
        &self,
        buffer: *mut c_void,
        (count, datatype, op): (c_int, Handle, Handle),
    ) -> bool {
        let private_self = self.private_self.get_or_init(|| {
            let mut comm: u64 = 0;
            // SAFETY: one handle is written, of 4 or 8 bytes; then it is a live communicator.
            unsafe {
                let made = (self.pmpi.comm_dup)(self.abi.comm_self, &raw mut comm) == 0;
                let comm = comm as Handle;
                let tame =
                    made && (self.pmpi.comm_set_errhandler)(comm, self.abi.errors_return) == 0;
                tame.then_some(comm)
            }
        });
        // SAFETY: the caller's promise.
        private_self.is_some_and(|comm| unsafe {
            (self.pmpi.allreduce)(buffer, buffer, count, datatype, op, comm) != 0
        })
    }

    /// Lets the MPI make progress: messages posted earlier go on while we wait for something else.
    /// `nothing` is a communicator without messages; a probe that finds one need not progress.
    pub fn progress(&self, nothing: Handle) {
        let mut flag: c_int = 0;
        // SAFETY: a live communicator; one int is written, the status is ignored.
        unsafe {
            (self.pmpi.iprobe)(
                self.abi.any_source,
                0,
                nothing,
                &raw mut flag,
                self.abi.status_ignore as *mut c_void,
            );
        }
    }

    /// Starts gathering `mine` of every rank of `comm`, all of one length, at all.
    pub fn start_gather(&self, comm: Handle, mine: Vec<u8>) -> Gather<'_> {
        let all = vec![0; mine.len() * self.size(comm)];
        let mut gather = Gather { mpi: self, comm, mine, all, request: 0, stage: Stage::Gathering };
        let (bytes, byte) = (gather.mine.len() as c_int, self.abi.byte);
        // SAFETY: both buffers are owned by the result and do not move (heap) until the request is
        // over, which `Gather` sees to.
        let code = unsafe {
            let (from, to) = (gather.mine.as_ptr(), gather.all.as_mut_ptr());
            let request = &raw mut gather.request;
            let (from, to) = (from.cast(), to.cast());
            (self.pmpi.igather)(from, bytes, byte, to, bytes, byte, 0, comm, request)
        };
        if code != 0 {
            gather.stage = Stage::Failed;
        }
        gather
    }

    /// Ends the job, for a reason already told.
    pub fn abort(&self, comm: Handle) -> ! {
        // SAFETY: aborting asks for nothing.
        unsafe { (self.pmpi.abort)(comm, 1) };
        std::process::abort()
    }

    /// Packs `count` elements at `data` into bytes, in type-map order, without gaps.
    ///
    /// # Safety
    /// `data`, `count` and `datatype` are what the program handed to MPI for reading.
    pub unsafe fn pack(
        &self,
        data: *const c_void,
        count: c_int,
        datatype: Handle,
        bytes: usize,
        comm: Handle,
    ) -> Option<Vec<u8>> {
        let mut packed = vec![0u8; bytes];
        let (length, mut position) = (c_int::try_from(bytes).ok()?, 0);
        // SAFETY: the caller's promise; the buffer has `length` bytes.
        let code = unsafe {
            (self.pmpi.pack)(
                data,
                count,
                datatype,
                packed.as_mut_ptr().cast(),
                length,
                &raw mut position,
                comm,
            )
        };
        (code == 0 && position == length).then_some(packed)
    }

    /// The reverse of [`Mpi::pack`].
    ///
    /// # Safety
    /// As there, for writing.
    pub unsafe fn unpack(
        &self,
        packed: &[u8],
        data: *mut c_void,
        count: c_int,
        datatype: Handle,
        comm: Handle,
    ) -> c_int {
        let (length, mut position) = (packed.len() as c_int, 0);
        // SAFETY: the caller's promise; `packed` is read only.
        unsafe {
            let packed = packed.as_ptr().cast();
            (self.pmpi.unpack)(packed, length, &raw mut position, data, count, datatype, comm)
        }
    }
}

/// A gather under way: to rank 0, and from there to all. Not MPI_Iallgather, for which Open MPI
/// connects every rank to every other.
pub struct Gather<'a> {
    mpi: &'a Mpi,
    comm: Handle,
    mine: Vec<u8>,
    all: Vec<u8>,
    request: u64,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Gathering,
    Spreading,
    Over,
    Failed,
}

impl Gather<'_> {
    /// Whether it is over; drives the MPI's progress.
    pub fn is_over(&mut self) -> bool {
        if matches!(self.stage, Stage::Over | Stage::Failed) {
            return true;
        }
        let (mut flag, status): (c_int, _) = (0, self.mpi.abi.status_ignore as *mut c_void);
        // SAFETY: our own request; one int is written, the status is ignored.
        let code = unsafe { (self.mpi.pmpi.test)(&raw mut self.request, &raw mut flag, status) };
        self.stage = match self.stage {
            _ if code != 0 => Stage::Failed,
            stage if flag == 0 => stage,
            Stage::Gathering => self.spread(),
            _ => Stage::Over,
        };
        matches!(self.stage, Stage::Over | Stage::Failed)
    }

    fn spread(&mut self) -> Stage {
        let Ok(bytes) = c_int::try_from(self.all.len()) else { return Stage::Failed };
        let (all, byte) = (self.all.as_mut_ptr().cast(), self.mpi.abi.byte);
        // SAFETY: as for the gather.
        let code = unsafe {
            (self.mpi.pmpi.ibcast)(all, bytes, byte, 0, self.comm, &raw mut self.request)
        };
        if code == 0 { Stage::Spreading } else { Stage::Failed }
    }

    /// Every rank's bytes, in rank order; `None` if the MPI failed. Panics if it is not over.
    pub fn finish(mut self) -> Option<Vec<Vec<u8>>> {
        if self.stage == Stage::Failed {
            return None;
        }
        assert!(self.stage == Stage::Over, "the gather is still under way");
        let all = std::mem::take(&mut self.all);
        Some(all.chunks(self.mine.len().max(1)).map(<[u8]>::to_vec).collect())
    }
}

impl Drop for Gather<'_> {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Gathering | Stage::Spreading) {
            // The MPI may still write there.
            std::mem::forget(std::mem::take(&mut self.mine));
            std::mem::forget(std::mem::take(&mut self.all));
        }
    }
}

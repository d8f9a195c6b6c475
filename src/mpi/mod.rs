//! The MPI under the program: its functions, its handles, and what of it foldback calls.
//!
//! # What a program promises
//! `unsafe` code from the program's call down to the engine relies on what MPI demands of its callers, and
//! cites it by two names:
//!
//! * **Arguments** (MPI-4.1, 2.4 to 2.6): handles are live, or the MPI refuses them. An array has as many
//!   elements as the call says or the communicator has ranks. A pointer other than a buffer has room for
//!   all that is written through it. So for as long as the call lasts.
//! * **Buffers** (MPI-4.1, 5.2, 6.2 and 6.12): the buffers of a call that MPI does not refuse span its elements.
//!   Until the operation is complete on this rank, the program writes to none of them, and leaves
//!   receive buffers alone.
#![allow(unsafe_code)]

pub mod abi;
pub mod lifetime;
pub mod messages;
pub mod pmpi;
mod progress;
pub mod reduce;
#[cfg(test)]
pub(crate) mod stand_in;
pub mod topology;
pub mod types;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use abi::Abi;
use pmpi::{Handle, Optional, Pmpi};
use types::Shape;

/// Tag of messages that this process sends itself to copy; lower ones complete requests.
const COPY_TAG: c_int = 32_767;
/// Time in which a launcher takes in the message that says why the job ends. The launcher of MPICH 5 drops what it has
/// not read when `MPI_Abort` arrives.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// The code that is returned where the MPI could not even be asked.
const FAILED: c_int = 1;

thread_local! {
    /// Errors that error handlers have not seen yet: communicator and code.
    static ERRORS: RefCell<VecDeque<(Handle, c_int)>> = const { RefCell::new(VecDeque::new()) };
}

/// The real MPI of this process, recognised.
pub struct Mpi {
    pub pmpi: Pmpi,
    pub abi: Abi,
    /// Set by [`Mpi::begin_asking`].
    is_asked: AtomicBool,
    /// A communicator of this process alone that returns errors; made when first needed.
    private_self: OnceLock<Option<Handle>>,
    /// Whether it refuses one buffer for both ends, see [`Mpi::refuses_aliases`].
    refuses_aliases: OnceLock<bool>,
    /// Held while this process talks to itself: threads would get each other's messages.
    alone: Mutex<()>,
    /// The ops that it takes on each type.
    accepted: reduce::Accepted,
    /// The attribute of [`Mpi::watch`].
    keyval: OnceLock<Option<c_int>>,
    /// A request that is never complete, see [`Mpi::progress`].
    never: progress::Never,
}

/// Size in bytes of a datatype; `None` if the MPI refuses it. Not MPI_Type_size, by which one beyond the largest
/// int is MPI_UNDEFINED: a rank may bring no elements of that, and takes part.
pub(crate) fn type_size(datatype: Handle) -> Option<usize> {
    static TYPE_SIZE: Optional<unsafe extern "C-unwind" fn(Handle, *mut i64) -> c_int> =
        // SAFETY: the type that the standard gives both: MPI_Count has 64 bits.
        unsafe { Optional::either(c"PMPI_Type_size_c", c"PMPI_Type_size_x") };
    let mut size = 0;
    // SAFETY: the MPI checks the handle and writes one MPI_Count.
    let code = unsafe { TYPE_SIZE.get()?(datatype, &raw mut size) };
    (code == 0).then(|| usize::try_from(size).ok())?
}

impl Mpi {
    /// Finds and recognises the MPI of this process.
    ///
    /// # Errors
    /// One line that says why this MPI is left alone.
    pub fn load() -> Result<Self, String> {
        let pmpi = Pmpi::load()?;
        let abi = Abi::detect(&pmpi)?;
        Ok(Self::of(pmpi, abi))
    }

    /// The MPI of these functions, whose handles are as `abi` says.
    fn of(pmpi: Pmpi, abi: Abi) -> Self {
        Self {
            pmpi,
            abi,
            is_asked: AtomicBool::new(false),
            private_self: OnceLock::new(),
            refuses_aliases: OnceLock::new(),
            alone: Mutex::new(()),
            accepted: reduce::Accepted::default(),
            keyval: OnceLock::new(),
            never: progress::Never::default(),
        }
    }

    /// How elements of one of the program's own datatypes lie in memory; `None`: it is none, or one that is
    /// not committed.
    #[cold]
    pub fn shape_of_derived(&self, datatype: Handle) -> Option<Shape> {
        // An MPI may call the error handler, which by default ends the job.
        if datatype == self.abi.datatype_null {
            return None;
        }
        let size = type_size(datatype)?;
        let (mut lower, mut extent) = (0isize, 0isize);
        // SAFETY: a datatype that the MPI has just said the size of; two MPI_Aint are written.
        let code =
            unsafe { (self.pmpi.type_get_extent)(datatype, &raw mut lower, &raw mut extent) };
        // A datatype that is not committed is refused by the real collectives on every rank; it must
        // not come to light on the ranks alone that have to pack. (One of no bytes is never packed, and
        // MPICH 4 divides by its size.)
        let (mut nothing, mut position): (u64, c_int) = (0, 0);
        let mut committed = || {
            // SAFETY: no elements are unpacked, from and to memory of our own.
            self.private_self().is_some_and(|comm| unsafe {
                let buffer = (&raw mut nothing).cast();
                (self.pmpi.unpack)(buffer, 8, &raw mut position, buffer, 0, datatype, comm) == 0
            })
        };
        let is_taken = size == 0 || !self.is_asked() || committed();
        (code == 0 && is_taken).then_some(Shape { size, extent, contiguous: false })
    }

    /// Whether MPI_Init has succeeded.
    pub fn is_initialized(&self) -> bool {
        let mut flag: c_int = 0;
        // SAFETY: may be called at any time; one int is written.
        unsafe { (self.pmpi.initialized)(&raw mut flag) };
        flag != 0
    }

    /// Whether one thread alone calls MPI, as the program has promised (MPI-4.1 section 11.6.2).
    pub fn is_of_one_thread(&self) -> bool {
        let mut level = self.abi.thread_serialized;
        // SAFETY: MPI is initialised; one int is written.
        let code = unsafe { (self.pmpi.query_thread)(&raw mut level) };
        code == 0 && level < self.abi.thread_serialized
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
        // SAFETY: the caller's communicator; one int is written.
        unsafe { (self.pmpi.comm_size)(comm, &raw mut size) };
        size.max(0) as usize
    }

    /// Whether `comm` is an intercommunicator; errors count as one (the real MPI will tell).
    pub fn is_intercomm(&self, comm: Handle) -> bool {
        let mut flag: c_int = 1;
        // SAFETY: the caller's communicator; one int is written.
        let code = unsafe { (self.pmpi.comm_test_inter)(comm, &raw mut flag) };
        code != 0 || flag != 0
    }

    /// Whether `comm` is revoked: Open MPI 5 tells (ULFM), the others are not asked.
    #[inline]
    pub fn is_revoked(&self, comm: Handle) -> bool {
        static IS_REVOKED: Optional<unsafe extern "C-unwind" fn(Handle, *mut c_int) -> c_int> =
            // SAFETY: the type that the MPI's header gives it.
            unsafe { Optional::new(c"PMPIX_Comm_is_revoked") };
        let Some(is_revoked) = IS_REVOKED.get() else { return false };
        let mut flag: c_int = 0;
        // SAFETY: a live communicator.
        unsafe { is_revoked(comm, &raw mut flag) == 0 && flag != 0 }
    }

    /// The ranks of `comm`, an intracommunicator, in MPI_COMM_WORLD; `None`: some are not of it. Of those alone is
    /// it known that foldback is loaded there: spawned ones (MPI-4.1 section 11.8) may be without.
    pub fn ranks_of_world(&self, comm: Handle) -> Option<Vec<c_int>> {
        const UNDEFINED: c_int = -32766;
        let ranks: Vec<c_int> = (0..self.size(comm) as c_int).collect();
        let mut there = vec![UNDEFINED; ranks.len()];
        let (mut group, mut world): (u64, u64) = (0, 0);
        // SAFETY: live communicators; handles of 4 or 8 bytes are written, and one int for each rank.
        let code = unsafe {
            let code = (self.pmpi.comm_group)(comm, &raw mut group)
                | (self.pmpi.comm_group)(self.abi.comm_world, &raw mut world)
                | (self.pmpi.group_translate_ranks)(
                    group as Handle,
                    ranks.len() as c_int,
                    ranks.as_ptr(),
                    world as Handle,
                    there.as_mut_ptr(),
                );
            (self.pmpi.group_free)(&raw mut group);
            (self.pmpi.group_free)(&raw mut world);
            code
        };
        (code == 0 && !there.contains(&UNDEFINED)).then_some(there)
    }

    /// Whether the MPI refuses collectives other than reductions whose buffers are one.
    pub fn refuses_aliases(&self) -> bool {
        self.is_asked()
            && *self.refuses_aliases.get_or_init(|| {
                let (mut one, byte) = ([0u8; 2], self.abi.byte);
                let buffer = one.as_mut_ptr().cast::<c_void>();
                // SAFETY: a collective of this process alone, on a buffer of its own.
                self.private_self().is_some_and(|comm| unsafe {
                    let _alone = self.alone();
                    (self.pmpi.allgather)(buffer, 2, byte, buffer, 2, byte, comm) != 0
                })
            })
    }

    /// From now on the MPI is asked what it takes of a call's arguments. Before, it is said to take all. Open MPI 4
    /// looks at its connections just once in 10 ms until it has one. So its first message takes 10 ms if a collective
    /// of one process alone comes before that. Returns whether it can be asked.
    pub fn begin_asking(&self) -> bool {
        self.is_asked.store(true, Ordering::Relaxed);
        self.private_self().is_some()
    }

    /// Whether the MPI is asked what it takes of a call's arguments.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// A communicator of this process alone that nobody else knows, and that returns errors.
    pub fn private_self(&self) -> Option<Handle> {
        *self.private_self.get_or_init(|| {
            let comm = self.duplicate(self.abi.comm_self)?;
            // SAFETY: a live communicator.
            let code = unsafe { (self.pmpi.comm_set_errhandler)(comm, self.abi.errors_return) };
            (code == 0).then_some(comm)
        })
    }

    /// Another, of whose messages nobody else knows.
    pub fn another_private_self(&self) -> Option<Handle> {
        let one = self.private_self()?;
        let _alone = self.alone();
        self.duplicate(one)
    }

    /// Taken for every message and collective on [`Mpi::private_self`], none of which waits for anybody.
    pub fn alone(&self) -> MutexGuard<'_, ()> {
        self.alone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn duplicate(&self, comm: Handle) -> Option<Handle> {
        let mut copy: u64 = 0;
        // SAFETY: one handle is written, of 4 or 8 bytes.
        let code = unsafe { (self.pmpi.comm_dup)(comm, &raw mut copy) };
        (code == 0).then_some(copy as Handle)
    }

    /// The value that an info object has for a key, of up to 255 bytes; `None`: it has none.
    pub fn info(&self, info: Handle, key: &CStr) -> Option<String> {
        const LONGEST: usize = 255;
        type InfoGet = unsafe extern "C-unwind" fn(
            Handle,
            *const c_char,
            c_int,
            *mut c_char,
            *mut c_int,
        ) -> c_int;
        static INFO_GET: Optional<InfoGet> =
            // SAFETY: the type that the standard gives it.
            unsafe { Optional::new(c"PMPI_Info_get") };
        let get = INFO_GET.get().filter(|_| info != self.abi.info_null)?;
        let (mut value, mut flag): (_, c_int) = ([0u8; LONGEST + 1], 0);
        // SAFETY: the program's info object; room for the longest value that is asked for, and its zero.
        let code = unsafe {
            get(info, key.as_ptr(), LONGEST as c_int, value.as_mut_ptr().cast(), &raw mut flag)
        };
        let value = CStr::from_bytes_until_nul(&value).ok().filter(|_| code == 0 && flag != 0)?;
        Some(value.to_string_lossy().into_owned())
    }

    /// The bits that all ranks of `comm` have in their words; `None` if the MPI failed. Collective.
    pub fn bits_of_all(&self, comm: Handle, own: u64) -> Option<u64> {
        let mut all: u64 = 0;
        let (from, to) = ((&raw const own).cast(), (&raw mut all).cast());
        // Not bytes, which take Open MPI 4 twice as long.
        let (word, band) = (self.abi.word, self.abi.band);
        // SAFETY: a live communicator, and a word at either end.
        let code = unsafe { (self.pmpi.allreduce)(from, to, 1, word, band, comm) };
        (code == 0).then_some(all)
    }

    /// Adds up integers of all ranks of `comm`, with a sign and `width` bytes each, in their place. Returns what MPI
    /// does. Collective.
    pub fn add_up(&self, comm: Handle, width: usize, integers: &mut [u8]) -> c_int {
        let count = c_int::try_from(integers.len() / width);
        let (Ok(count), Some(integer)) = (count, self.abi.signed(width)) else { return FAILED };
        let (from, to) = (self.abi.in_place as *const c_void, integers.as_mut_ptr().cast());
        // SAFETY: a live communicator, and as many integers, which are nobody else's.
        unsafe { (self.pmpi.allreduce)(from, to, count, integer, self.abi.sum, comm) }
    }

    /// Gathers `bytes` bytes of every rank of `comm` at all. Returns what MPI does. Collective.
    ///
    /// # Safety
    /// `from` points to as many bytes, and is no part of `all`, which is for the bytes of all ranks.
    pub unsafe fn gather_at_all(
        &self,
        comm: Handle,
        from: *const c_void,
        bytes: usize,
        all: &mut [u8],
    ) -> c_int {
        let Ok(count) = c_int::try_from(bytes) else { return FAILED };
        let (to, byte) = (all.as_mut_ptr().cast(), self.abi.byte);
        // SAFETY: a live communicator, and the promised memory at either end.
        unsafe { (self.pmpi.allgather)(from, count, byte, to, count, byte, comm) }
    }

    /// Starts gathering `own` of every rank of `comm`, all of one length, at all.
    pub fn start_gather(&self, comm: Handle, own: Vec<u8>) -> Gather<'_> {
        let all = vec![0; own.len() * self.size(comm)];
        let mut gather = Gather { mpi: self, comm, own, all, request: 0, stage: Stage::Gathering };
        let (bytes, byte) = (gather.own.len() as c_int, self.abi.byte);
        // SAFETY: both buffers are owned by the result and do not move (heap) until the request is
        // over, which `Gather` sees to.
        let code = unsafe {
            let (from, to) = (gather.own.as_ptr().cast(), gather.all.as_mut_ptr().cast());
            let request = &raw mut gather.request;
            (self.pmpi.igather)(from, bytes, byte, to, bytes, byte, 0, comm, request)
        };
        if code != 0 {
            gather.stage = Stage::Failed;
        }
        gather
    }

    /// Ends the job, for a reason already told.
    pub fn abort(&self, comm: Handle) -> ! {
        thread::sleep(LAST_WORDS);
        // SAFETY: aborting asks for nothing.
        unsafe { (self.pmpi.abort)(comm, 1) };
        std::process::abort()
    }

    /// A copy of a datatype, which lives on when that is freed.
    pub fn copy_type(&self, datatype: Handle) -> Option<Handle> {
        let mut copy: u64 = 0;
        // SAFETY: the program's datatype; one handle is written, of 4 or 8 bytes.
        let code = unsafe { (self.pmpi.type_dup)(datatype, &raw mut copy) };
        (code == 0).then_some(copy as Handle)
    }

    pub fn free_type(&self, copy: Handle) {
        let mut copy = copy as u64;
        // SAFETY: made by `copy_type`.
        unsafe { (self.pmpi.type_free)(&raw mut copy) };
    }

    /// Packs `count` elements at `data` into bytes, in type-map order, without gaps.
    ///
    /// # Errors
    /// What the MPI returned.
    ///
    /// # Safety
    /// *Buffers* of the [program](self): `count` of `datatype` at `data`, for reading.
    pub unsafe fn pack(
        &self,
        data: *const c_void,
        count: usize,
        datatype: Handle,
        bytes: usize,
    ) -> Result<Vec<u8>, c_int> {
        let mut packed = vec![0u8; bytes];
        if data.is_null() {
            let (into, length) = (packed.as_mut_ptr().cast(), bytes);
            // SAFETY: the program's buffer, and one of `length` bytes.
            let code = unsafe { self.copy((data, count, datatype), (into, length, self.abi.byte)) };
            return if code == 0 { Ok(packed) } else { Err(code) };
        }
        // Any communicator will do where all ranks are of one kind. The program's may be gone by now.
        let (Ok(length), Ok(count), Some(comm)) =
            (c_int::try_from(bytes), c_int::try_from(count), self.private_self())
        else {
            return Err(FAILED);
        };
        let mut position = 0;
        // SAFETY: the program's buffer, and one of `length` bytes.
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
        match code {
            0 if position == length => Ok(packed),
            0 => Err(FAILED),
            code => Err(code),
        }
    }

    /// The code that this MPI returns where more came than there is room for (MPI_ERR_TRUNCATE): found by having it
    /// happen. Open MPI does not mind in messages to oneself, MPICH 5 not in collectives of one process.
    #[cold]
    pub fn truncated(&self) -> c_int {
        let (from, mut to, byte) = ([0u8; 2], 0u8, self.abi.byte);
        let (from, to) = (from.as_ptr().cast(), (&raw mut to).cast());
        // SAFETY: two bytes to send; no more are received than there is room for.
        let code = unsafe { self.copy((from, 2, byte), (to, 1, byte)) };
        if code != 0 {
            return code;
        }
        let (Some(comm), _alone) = (self.private_self(), self.alone()) else { return FAILED };
        // SAFETY: two bytes to send; no more are received than there is room for.
        let code = unsafe { (self.pmpi.allgather)(from, 2, byte, to, 1, byte, comm) };
        if code == 0 { FAILED } else { code }
    }

    /// Leaves an error to the communicator's error handler, which [`Mpi::handle_errors`] calls.
    #[cold]
    pub fn handle_error(&self, comm: Handle, code: c_int) {
        ERRORS.with_borrow_mut(|errors| errors.push_back((comm, code)));
    }

    /// Has error handlers see to the errors of this thread. They may throw, or jump, and not come back: the last act of
    /// a function of MPI, with nothing held.
    pub fn handle_errors(&self) {
        while let Some((comm, code)) = ERRORS.with_borrow_mut(VecDeque::pop_front) {
            // SAFETY: the program's communicator.
            unsafe { (self.pmpi.comm_call_errhandler)(comm, code) };
        }
    }

    /// The reverse of [`Mpi::pack`].
    ///
    /// # Safety
    /// *Buffers* of the [program](self): `count` of `datatype` at `data`, for writing.
    pub unsafe fn unpack(
        &self,
        packed: &[u8],
        data: *mut c_void,
        count: usize,
        datatype: Handle,
    ) -> c_int {
        if data.is_null() {
            let from = (packed.as_ptr().cast(), packed.len(), self.abi.byte);
            // SAFETY: the program's buffer, and `packed`.
            return unsafe { self.copy(from, (data, count, datatype)) };
        }
        // Counts were ints, or were packed by one.
        let (length, count, mut position) = (packed.len() as c_int, count as c_int, 0);
        // SAFETY: the program's buffer; `packed` is read only.
        unsafe {
            let packed = packed.as_ptr().cast();
            let comm = self.private_self().unwrap_or(self.abi.comm_self);
            (self.pmpi.unpack)(packed, length, &raw mut position, data, count, datatype, comm)
        }
    }

    /// Copies by a message to this process: for MPI_BOTTOM, which MPICH does not take in MPI_Pack.
    ///
    /// # Safety
    /// Buffers, counts and types are valid together, for reading and for writing.
    unsafe fn copy(
        &self,
        (from, from_count, from_type): (*const c_void, usize, Handle),
        (to, to_count, to_type): (*mut c_void, usize, Handle),
    ) -> c_int {
        let (Ok(from_count), Ok(to_count), Some(comm)) =
            (c_int::try_from(from_count), c_int::try_from(to_count), self.private_self())
        else {
            return FAILED;
        };
        let (tag, status) = (COPY_TAG, self.abi.status_ignore as *mut c_void);
        let _alone = self.alone();
        // SAFETY: valid together, as demanded; on a communicator of this process alone.
        unsafe {
            (self.pmpi.sendrecv)(
                from, from_count, from_type, 0, tag, to, to_count, to_type, 0, tag, comm, status,
            )
        }
    }
}

/// A gather under way: to rank 0, and from there to all. Not MPI_Iallgather, for which Open MPI
/// connects every rank to every other.
pub struct Gather<'a> {
    mpi: &'a Mpi,
    comm: Handle,
    own: Vec<u8>,
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

impl Stage {
    fn ended(self) -> bool {
        matches!(self, Self::Over | Self::Failed)
    }
}

impl Gather<'_> {
    /// Whether it is over; drives the MPI's progress.
    pub fn is_over(&mut self) -> bool {
        if self.stage.ended() {
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
        self.stage.ended()
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
        Some(all.chunks(self.own.len().max(1)).map(<[u8]>::to_vec).collect())
    }
}

impl Drop for Gather<'_> {
    fn drop(&mut self) {
        if !self.stage.ended() {
            // The MPI may still write there.
            std::mem::forget(std::mem::take(&mut self.own));
            std::mem::forget(std::mem::take(&mut self.all));
        }
    }
}

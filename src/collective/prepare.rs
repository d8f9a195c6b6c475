//! From a call to a job: what the group reads and writes, and what is left to do afterwards.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

use crate::collective::eligibility::{Reduction, bounded, reduction, size};
use crate::collective::finish::{Finish, Piece};
use crate::collective::{Call, Collective, Counts, Side};
use crate::config::Config;
use crate::group::{Group, Image, Job, Pattern};
use crate::leaf::segment;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::mpi::types;
use crate::stats::Reason;

/// Most bytes of an image: on hosts with several ranks it has to fit into a block of theirs.
const MOST_IMAGE: usize = segment::BLOCK - 4096;

/// A call that may be folded, as far as can be said without a group: alike on all ranks.
pub struct Admitted {
    /// Bytes of the message; of gathers, of the part of one rank.
    pub bytes: usize,
    fold: Option<Reduction>,
}

/// What a call that is folded needs besides its job.
pub struct Prepared {
    /// For afterwards.
    pub finish: Finish,
    /// The real MPI will refuse the buffers, on this rank. The others cannot know and fold; so this
    /// one takes part, and then lets the real MPI report the error.
    pub refused: bool,
    /// A datatype of our own, see [`Prepared::keep_type`].
    pub type_copy: Option<Handle>,
    /// Memory that the job and this point to.
    _staging: Vec<Vec<u8>>,
}

// SAFETY: the pointers are to memory of its own, and to buffers that the program promised to leave
// alone until the collective is over.
unsafe impl Send for Prepared {}

/// Looks at a call without its group.
///
/// # Errors
/// Why it is the real MPI's; the same on all ranks, or nobody's but the MPI's to judge.
pub fn admit(mpi: &Mpi, config: &Config, call: &Call) -> Result<Admitted, Reason> {
    let most = config.shared.max_bytes[call.collective as usize];
    let (datatype, op) = (mpi.abi.datatype(call.recv.datatype), mpi.abi.op(call.op));
    let folded = |count| {
        let fold = reduction(count, datatype, op, most)?;
        Ok(Admitted { bytes: fold.bytes, fold: Some(fold) })
    };
    let in_place = |side: &Side| side.data as usize == mpi.abi.in_place;
    let moved = |side: &Side| {
        let bytes = bounded(size(side.count, mpi.shape(side.datatype)?.size)?, most)?;
        Ok(Admitted { bytes, fold: None })
    };
    match call.collective {
        Collective::Barrier if most == 0 => Err(Reason::TooLarge),
        Collective::Barrier => Ok(Admitted { bytes: 0, fold: None }),
        Collective::Allreduce | Collective::Reduce => folded(call.recv.count),
        Collective::Reduce_scatter_block => folded(call.recv.count),
        Collective::Scan | Collective::Exscan => {
            folded(call.recv.count).and_then(|admitted| match admitted.fold {
                Some(Reduction { pair: Some(_), .. }) => Err(Reason::Datatype),
                _ => Ok(admitted),
            })
        }
        // How many elements there are takes the group's size to say; one will do.
        Collective::Reduce_scatter => folded(1),
        Collective::Bcast | Collective::Allgather | Collective::Alltoall => moved(&call.recv),
        // One side is significant at the root alone, and there not if it is in place.
        Collective::Gather => moved(if in_place(&call.send) { &call.recv } else { &call.send }),
        Collective::Scatter => moved(if in_place(&call.recv) { &call.send } else { &call.recv }),
        Collective::Allgatherv => {
            mpi.shape(call.recv.datatype).map(|shape| Admitted { bytes: shape.size, fold: None })
        }
    }
}

/// What a call moves in all, if it is not too much, and where every rank's part lies in that; where each
/// rank has its own count, this is left to [`prepare`].
///
/// # Errors
/// Why it is the real MPI's; the same on all ranks.
fn fits(
    config: &Config,
    call: &Call,
    admitted: &Admitted,
    group: &mut Group,
) -> Result<Option<Arc<Image>>, Reason> {
    let most = config.shared.max_bytes[call.collective as usize];
    let (bytes, ranks) = (admitted.bytes, group.place.layout.ranks());
    let whole = || bounded(bytes.checked_mul(ranks).ok_or(Reason::TooLarge)?, most);
    let image = match call.collective {
        Collective::Scan | Collective::Exscan | Collective::Allgather => group.even_image(bytes),
        Collective::Gather => {
            let chunk = usize::from(group.place.chunk_bytes);
            return small(group.even_image(bytes), most.min(chunk)).map(Some);
        }
        Collective::Alltoall => group.even_image(whole()?),
        Collective::Scatter | Collective::Reduce_scatter_block => return whole().map(|_| None),
        _ => return Ok(None),
    };
    small(image, most).map(Some)
}

/// Makes the job of an admitted call.
///
/// # Errors
/// Why it is the real MPI's, as [`admit`].
///
/// # Safety
/// The call's buffers are as MPI demands of the program.
pub unsafe fn prepare(
    mpi: &Mpi,
    config: &Config,
    call: &Call,
    admitted: &Admitted,
    group: &mut Group,
) -> Result<(Job, Prepared), Reason> {
    let most = config.shared.max_bytes[call.collective as usize];
    let (me, ranks) = (group.place.rank, group.place.layout.ranks());
    let image = fits(config, call, admitted, group)?;
    let staging = Vec::new();
    let mut make = Make { mpi, call, admitted, me, ranks, staging, refused: false };
    // SAFETY: the caller's promise, for all of them.
    unsafe {
        let (job, finish) = match (call.collective, admitted.fold) {
            (Collective::Barrier, _) => {
                (job(Pattern::FoldToAll, 0, std::ptr::null(), std::ptr::null_mut()), Finish::Done)
            }
            (Collective::Allreduce, Some(fold)) => make.fold(Pattern::FoldToAll, fold, true)?,
            (Collective::Reduce, Some(fold)) => {
                let root = make.root()?;
                make.fold(Pattern::FoldToRoot(root), fold, root == me)?
            }
            (Collective::Reduce_scatter_block, Some(fold)) => {
                make.reduce_scatter(fold, most, |_| call.recv.count)?
            }
            (Collective::Reduce_scatter, Some(fold)) => {
                let counts = call.recv.counts.ok_or(Reason::Argument)?;
                make.reduce_scatter(fold, most, |rank| counts.count(rank))?
            }
            (Collective::Bcast, _) => make.bcast(admitted.bytes)?,
            (Collective::Scatter, _) => make.scatter(admitted.bytes)?,
            (Collective::Allgatherv, _) => {
                let counts = call.recv.counts.ok_or(Reason::Argument)?;
                let lengths = (0..ranks).map(|rank| size(counts.count(rank), admitted.bytes));
                let lengths = lengths.collect::<Result<Vec<_>, _>>()?;
                if lengths.iter().any(|length| *length > most) {
                    return Err(Reason::TooLarge);
                }
                let image = Image::new(&group.place.layout, |rank| lengths[rank]);
                make.allgather(small(Arc::new(image), most)?)?
            }
            (collective, fold) => match (collective, image.ok_or(Reason::Argument)?, fold) {
                (Collective::Scan | Collective::Exscan, image, Some(fold)) => {
                    make.scan(fold, image)?
                }
                (Collective::Allgather, image, _) => make.allgather(image)?,
                (Collective::Gather, image, _) => make.gather(image)?,
                (Collective::Alltoall, image, _) => make.alltoall(image, admitted.bytes)?,
                _ => return Err(Reason::Argument),
            },
        };
        let Make { refused, staging: _staging, .. } = make;
        Ok((job, Prepared { finish, refused, type_copy: None, _staging }))
    }
}

/// Whether the real MPI refuses a call, on this rank, for one buffer at both ends of a reduction.
/// SAFETY of callers: as [`prepare`].
unsafe fn refused(mpi: &Mpi, call: &Call, admitted: &Admitted) -> bool {
    let Call { send, recv, op, .. } = call;
    let count = c_int::try_from(recv.count.max(1)).unwrap_or(c_int::MAX);
    // SAFETY: the program's buffer, type and op.
    admitted.fold.is_some()
        && send.data == recv.data
        && unsafe { mpi.refuses_one_buffer(recv.data, (count, recv.datatype, *op)) }
}

fn small(image: Arc<Image>, most: usize) -> Result<Arc<Image>, Reason> {
    bounded(image.bytes(), most.min(MOST_IMAGE))?;
    Ok(image)
}

/// A job that folds nothing.
fn job(pattern: Pattern, bytes: usize, send: *const u8, recv: *mut u8) -> Job {
    Job { pattern, op: 0, element: 0, bytes, send, recv }
}

impl Counts {
    /// Of a rank.
    ///
    /// # Safety
    /// The array has an element for it.
    unsafe fn at(array: *const c_void, wide: bool, rank: usize) -> i64 {
        // SAFETY: the caller's promise.
        unsafe {
            if wide {
                *array.cast::<i64>().add(rank)
            } else {
                i64::from(*array.cast::<c_int>().add(rank))
            }
        }
    }

    /// Elements of a rank. SAFETY of callers: the program's arrays span the communicator.
    unsafe fn count(&self, rank: usize) -> i64 {
        // SAFETY: the caller's promise.
        unsafe { Self::at(self.counts, self.wide, rank) }
    }

    /// Where they begin; `None`: behind those of the rank before.
    unsafe fn displacement(&self, rank: usize) -> Option<isize> {
        // SAFETY: as above.
        (!self.displs.is_null()).then(|| unsafe { Self::at(self.displs, self.wide, rank) as isize })
    }

    /// Copies for a call that outlives the program's arrays. The result points into the copies.
    ///
    /// # Safety
    /// The arrays have `ranks` elements.
    pub unsafe fn copy(&self, ranks: usize) -> (Self, [Vec<i64>; 2]) {
        let copy = |array: *const c_void| {
            // SAFETY: the caller's promise.
            (0..ranks).map(|rank| unsafe { Self::at(array, self.wide, rank) }).collect::<Vec<_>>()
        };
        let counts = copy(self.counts);
        let displs = if self.displs.is_null() { Vec::new() } else { copy(self.displs) };
        let displs_copy =
            if displs.is_empty() { std::ptr::null() } else { displs.as_ptr().cast::<c_void>() };
        let copies = Self { counts: counts.as_ptr().cast(), displs: displs_copy, wide: true };
        (copies, [counts, displs])
    }
}

/// A job in the making.
struct Make<'a> {
    mpi: &'a Mpi,
    call: &'a Call,
    admitted: &'a Admitted,
    me: usize,
    ranks: usize,
    staging: Vec<Vec<u8>>,
    refused: bool,
}

type Made = Result<(Job, Finish), Reason>;

impl Make<'_> {
    fn is_in_place(&self, data: *const c_void) -> bool {
        data as usize == self.mpi.abi.in_place
    }

    fn root(&self) -> Result<usize, Reason> {
        let root = usize::try_from(self.call.root).map_err(|_| Reason::Argument)?;
        if root < self.ranks { Ok(root) } else { Err(Reason::Argument) }
    }

    /// Memory of our own, zeroed.
    fn stage(&mut self, bytes: usize) -> *mut u8 {
        self.staging.push(vec![0; bytes]);
        self.staging.last_mut().map_or(std::ptr::null_mut(), Vec::as_mut_ptr)
    }

    /// Send and receive buffers of a reduction, `recv` where this rank gets something.
    unsafe fn ends(
        &mut self,
        fold: &Reduction,
        receives: bool,
    ) -> Result<(*const u8, *mut u8), Reason> {
        let (send, recv) = (self.call.send.data, self.call.recv.data);
        if !receives {
            let wrong = send.is_null() || self.is_in_place(send);
            return if wrong { Err(Reason::Argument) } else { Ok((send.cast(), recv.cast())) };
        }
        if send.is_null() || recv.is_null() || self.is_in_place(recv) {
            return Err(Reason::Argument);
        }
        if self.is_in_place(send) {
            return Ok((recv.cast_const().cast(), recv.cast()));
        }
        // SAFETY: the caller's promise.
        self.refused = unsafe { refused(self.mpi, self.call, self.admitted) };
        let recv = if self.refused { self.stage(fold.bytes) } else { recv.cast() };
        Ok((send.cast(), recv))
    }

    /// Allreduce and Reduce.
    unsafe fn fold(&mut self, pattern: Pattern, fold: Reduction, receives: bool) -> Made {
        // SAFETY: the caller's promise, here and below.
        let (mut send, mut recv) = unsafe { self.ends(&fold, receives)? };
        let mut finish = Finish::Done;
        if let Some(pair) = fold.pair {
            // SAFETY: a buffer of that many bytes.
            let pairs = unsafe { std::slice::from_raw_parts(send, fold.bytes) };
            self.staging.push(types::keys(pairs, pair));
            let keys = self.staging.last_mut().map_or(std::ptr::null_mut(), Vec::as_mut_ptr);
            if receives {
                finish = Finish::Pairs { from: keys, to: recv, bytes: fold.bytes, pair };
            }
            (send, recv) = (keys, keys);
        }
        let Reduction { op, element, bytes, .. } = fold;
        Ok((Job { pattern, op, element, bytes, send, recv }, finish))
    }

    /// Both kinds: everything is folded to everyone, and each takes its own.
    unsafe fn reduce_scatter(
        &mut self,
        fold: Reduction,
        most: usize,
        count: impl Fn(usize) -> i64,
    ) -> Made {
        let element = self.mpi.abi.datatype(self.call.recv.datatype).ok_or(Reason::Datatype)?;
        let (mut all, mut mine) = (0usize, 0..0);
        for rank in 0..self.ranks {
            let bytes = size(count(rank), element.extent())?;
            if rank == self.me {
                mine = all..all + bytes;
            }
            all = all.checked_add(bytes).ok_or(Reason::TooLarge)?;
        }
        let fold = Reduction { bytes: bounded(all, most)?, ..fold };
        let (send, recv) = if mine.is_empty() && !self.is_in_place(self.call.send.data) {
            (self.call.send.data.cast_const().cast(), std::ptr::null_mut())
        } else {
            // SAFETY: the caller's promise: the send buffer (in place: the receive buffer) has it all.
            unsafe { self.ends(&fold, true)? }
        };
        if send.is_null() {
            return Err(Reason::Argument);
        }
        let (op, type_) = (fold.op, fold.element);
        let (mut source, into) = (send, self.stage(all));
        let count = mine.len() / element.extent().max(1);
        let finish = match fold.pair {
            None => Finish::Deliver {
                from: into,
                pieces: vec![Piece { bytes: mine, at: 0, count }],
                to: recv.cast(),
                datatype: (self.call.recv.datatype, element.shape()),
            },
            Some(pair) => {
                // SAFETY: a buffer of that many bytes.
                let pairs = unsafe { std::slice::from_raw_parts(send, all) };
                self.staging.push(types::keys(pairs, pair));
                source = self.staging.last().map_or(send, |keys| keys.as_ptr());
                let from = into.wrapping_add(mine.start);
                Finish::Pairs { from, to: recv, bytes: mine.len(), pair }
            }
        };
        let pattern = Pattern::FoldToAll;
        Ok((Job { pattern, op, element: type_, bytes: all, send: source, recv: into }, finish))
    }

    unsafe fn scan(&mut self, fold: Reduction, image: Arc<Image>) -> Made {
        // SAFETY: the caller's promise.
        let (send, to) = unsafe { self.ends(&fold, true)? };
        let inclusive = self.call.collective == Collective::Scan;
        let ranks = 0..self.me + usize::from(inclusive);
        let from = self.stage(image.bytes());
        let finish = Finish::Prefix { from, image: Arc::clone(&image), ranks, to, fold };
        Ok((job(Pattern::GatherToAll(image), fold.bytes, send, from), finish))
    }

    /// Bytes of `count` elements of a buffer from element `at` on: where they lie, or packed.
    unsafe fn gathered(
        &mut self,
        data: *mut c_void,
        at: isize,
        count: i64,
        datatype: Handle,
        bytes: usize,
    ) -> Result<*const u8, Reason> {
        let shape = self.mpi.shape(datatype)?;
        if size(count, shape.size)? != bytes || self.is_in_place(data) {
            return Err(Reason::Argument);
        }
        let data = data.wrapping_byte_offset(at * shape.extent);
        if shape.contiguous || bytes == 0 {
            let wrong = data.is_null() && bytes > 0;
            return if wrong { Err(Reason::Argument) } else { Ok(data.cast_const().cast()) };
        }
        let count = usize::try_from(count).map_err(|_| Reason::Argument)?;
        // SAFETY: the program's buffer, count and type.
        let packed = unsafe { self.mpi.pack(data, count, datatype, bytes) };
        self.staging.push(packed.ok_or(Reason::Argument)?);
        Ok(self.staging.last().map_or(std::ptr::null(), Vec::as_ptr))
    }

    /// Where bytes for elements of `side` go first: to the elements, if they are one run and lie as
    /// they come, else to memory of our own.
    fn deliver(
        &mut self,
        side: &Side,
        pieces: Vec<Piece>,
        bytes: usize,
    ) -> Result<(*mut u8, Finish), Reason> {
        let shape = self.mpi.shape(side.datatype)?;
        if self.is_in_place(side.data) || (shape.contiguous && side.data.is_null() && bytes > 0) {
            return Err(Reason::Argument);
        }
        let lies_so = |piece: &Piece| piece.bytes.start as isize == piece.at * shape.extent;
        let run: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
        if shape.contiguous && !self.refused && run == bytes && pieces.iter().all(lies_so) {
            return Ok((side.data.cast(), Finish::Done));
        }
        let from = self.stage(bytes);
        let (to, datatype) = (side.data, (side.datatype, shape));
        Ok((from, Finish::Deliver { from, pieces, to, datatype }))
    }

    unsafe fn bcast(&mut self, bytes: usize) -> Made {
        let (root, side) = (self.root()?, &self.call.recv);
        let pattern = Pattern::Broadcast(root);
        if root == self.me {
            // SAFETY: the caller's promise.
            let from = unsafe { self.gathered(side.data, 0, side.count, side.datatype, bytes)? };
            return Ok((job(pattern, bytes, from, std::ptr::null_mut()), Finish::Done));
        }
        let whole = Piece { bytes: 0..bytes, at: 0, count: elements(side.count)? };
        let (into, finish) = self.deliver(side, vec![whole], bytes)?;
        Ok((job(pattern, bytes, into, into), finish))
    }

    /// The root's whole buffer goes to everyone; each takes its own.
    unsafe fn scatter(&mut self, bytes: usize) -> Made {
        let (root, Call { send, recv, .. }) = (self.root()?, self.call);
        let whole = bytes * self.ranks;
        let pattern = Pattern::Broadcast(root);
        let mine = self.me * bytes..(self.me + 1) * bytes;
        let own = |count| -> Result<_, Reason> {
            Ok(Piece { bytes: mine.clone(), at: 0, count: elements(count)? })
        };
        if root != self.me {
            let pieces = vec![own(recv.count)?];
            // Never in place: the whole does not fit there.
            let shape = self.mpi.shape(recv.datatype)?;
            if self.is_in_place(recv.data) || (shape.contiguous && recv.data.is_null()) {
                return Err(Reason::Argument);
            }
            let from = self.stage(whole);
            let finish =
                Finish::Deliver { from, pieces, to: recv.data, datatype: (recv.datatype, shape) };
            return Ok((job(pattern, whole, from, from), finish));
        }
        let count = send.count.checked_mul(self.ranks as i64).ok_or(Reason::TooLarge)?;
        // SAFETY: the caller's promise.
        let from = unsafe { self.gathered(send.data, 0, count, send.datatype, whole)? };
        let job = job(pattern, whole, from, std::ptr::null_mut());
        if self.is_in_place(recv.data) {
            return Ok((job, Finish::Done));
        }
        self.mind_alias(recv.data, send, self.me as isize * send.count as isize)?;
        let shape = self.mpi.shape(recv.datatype)?;
        if size(recv.count, shape.size)? != bytes || (shape.contiguous && recv.data.is_null()) {
            return Err(Reason::Argument);
        }
        let pieces = vec![own(recv.count)?];
        let datatype = (recv.datatype, shape);
        Ok((job, Finish::Deliver { from, pieces, to: recv.data, datatype }))
    }

    /// One buffer for both ends, which some MPIs refuse where all else is alike too, as in a call that
    /// should have been in place.
    fn mind_alias(&mut self, one: *mut c_void, side: &Side, at: isize) -> Result<(), Reason> {
        let Call { send, recv, .. } = self.call;
        let alike = recv.counts.is_none()
            && send.count == recv.count
            && self.mpi.abi.handle(send.datatype) == self.mpi.abi.handle(recv.datatype);
        let extent = self.mpi.shape(side.datatype)?.extent;
        if alike && !one.is_null() && one == side.data.wrapping_byte_offset(at * extent) {
            self.refused = self.mpi.refuses_aliases();
        }
        Ok(())
    }

    /// Elements and place of each rank's part on the receiving side.
    unsafe fn place(&self, rank: usize) -> Result<(isize, i64), Reason> {
        let recv = &self.call.recv;
        let Some(counts) = &recv.counts else {
            return Ok((rank as isize * recv.count as isize, recv.count));
        };
        // SAFETY: the program's arrays span the communicator.
        unsafe {
            let at = counts.displacement(rank).ok_or(Reason::Argument)?;
            Ok((at, counts.count(rank)))
        }
    }

    unsafe fn gather_ends(
        &mut self,
        image: &Image,
        receives: bool,
    ) -> Result<(*const u8, *mut u8, Finish), Reason> {
        let Call { send, recv, .. } = self.call;
        let bytes = image.part(self.me).len();
        // SAFETY: the caller's promise.
        let from = unsafe {
            if self.is_in_place(send.data) && receives {
                let (at, count) = self.place(self.me)?;
                self.gathered(recv.data, at, count, recv.datatype, bytes)?
            } else {
                if receives && !self.is_in_place(recv.data) {
                    let (at, _) = self.place(self.me)?;
                    self.mind_alias(send.data, recv, at)?;
                }
                self.gathered(send.data, 0, send.count, send.datatype, bytes)?
            }
        };
        if !receives {
            return Ok((from, std::ptr::null_mut(), Finish::Done));
        }
        let piece = |rank: usize| -> Result<Piece, Reason> {
            // SAFETY: as above.
            let (at, count) = unsafe { self.place(rank)? };
            Ok(Piece { bytes: image.part(rank), at, count: elements(count)? })
        };
        let pieces = (0..self.ranks).map(piece).collect::<Result<Vec<_>, _>>()?;
        let (into, finish) = self.deliver(recv, pieces, image.bytes())?;
        Ok((from, into, finish))
    }

    /// Both kinds.
    unsafe fn allgather(&mut self, image: Arc<Image>) -> Made {
        // SAFETY: the caller's promise.
        let (send, recv, finish) = unsafe { self.gather_ends(&image, true)? };
        let bytes = image.part(self.me).len();
        Ok((job(Pattern::GatherToAll(image), bytes, send, recv), finish))
    }

    unsafe fn gather(&mut self, image: Arc<Image>) -> Made {
        let root = self.root()?;
        // SAFETY: the caller's promise.
        let (send, recv, finish) = unsafe { self.gather_ends(&image, root == self.me)? };
        let bytes = image.part(self.me).len();
        Ok((job(Pattern::GatherToRoot(root, image), bytes, send, recv), finish))
    }

    /// Everything goes to everyone; each takes its own column.
    unsafe fn alltoall(&mut self, image: Arc<Image>, bytes: usize) -> Made {
        let Call { send, recv, .. } = self.call;
        let side = if self.is_in_place(send.data) { recv } else { send };
        if !self.is_in_place(send.data) {
            self.mind_alias(send.data, recv, 0)?;
        }
        let count = side.count.checked_mul(self.ranks as i64).ok_or(Reason::TooLarge)?;
        let whole = image.part(self.me).len();
        // SAFETY: the caller's promise.
        let from = unsafe { self.gathered(side.data, 0, count, side.datatype, whole)? };
        let column = |rank: usize| -> Range<usize> {
            let start = image.part(rank).start + self.me * bytes;
            start..start + bytes
        };
        let count = elements(recv.count)?;
        let pieces = (0..self.ranks)
            .map(|rank| Piece { bytes: column(rank), at: (rank * count) as isize, count })
            .collect();
        let (into, finish) = self.deliver(recv, pieces, image.bytes())?;
        Ok((job(Pattern::GatherToAll(image), whole, from, into), finish))
    }
}

fn elements(count: i64) -> Result<usize, Reason> {
    usize::try_from(count).map_err(|_| Reason::Argument)
}

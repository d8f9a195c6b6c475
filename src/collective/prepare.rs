//! From a call to a job: what the group reads and writes, and what is left to do afterwards.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

use crate::collective::eligibility::{Reduction, bounded, size};
use crate::collective::finish::{Finish, Piece};
use crate::collective::reductions::reduction;
use crate::collective::{Call, Collective, Counts, Form, Side};
use crate::config::Config;
use crate::group::{Group, Image, Job, Pattern};
use crate::leaf::segment;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::mpi::types::{Shape, TypeInfo};
use crate::router::{self, Policy};
use crate::stats::{Message, Reason};

/// Most bytes of an image: on hosts with several ranks it has to fit into a block of theirs.
const MOST_IMAGE: usize = segment::BLOCK - 4096;

/// A call that may be folded, as far as can be said without a group: alike on all ranks.
pub struct Admitted {
    /// Bytes of the message; of gathers, of the part of one rank.
    pub bytes: usize,
    /// Most bytes in all that may be folded.
    pub most: usize,
    /// Whether the ways are compared, see [`crate::router`].
    pub measured: bool,
    /// Of reductions.
    pub(super) fold: Option<Reduction>,
}

/// What a call that is folded needs besides its job.
pub struct Prepared {
    /// For afterwards.
    pub finish: Finish,
    /// A datatype of our own, see [`Prepared::keep_type`].
    pub type_copy: Option<Handle>,
    /// Memory that the job and this point to.
    _staging: Vec<Vec<u8>>,
}

// SAFETY: the pointers are to memory of its own, and to buffers that the program promised to leave
// alone until the collective is over.
unsafe impl Send for Prepared {}

/// Looks at a call without its group. What is seen of it goes to `seen`, also if it is the real MPI's.
///
/// # Errors
/// Why it is the real MPI's; the same on all ranks, or nobody's but the MPI's to judge.
pub fn admit(
    mpi: &Mpi,
    config: &Config,
    form: Form,
    call: &Call,
    seen: &mut Message,
) -> Result<Admitted, Reason> {
    if config.shared.policy == Policy::Mpi {
        return Err(Reason::Routed);
    }
    let may_measure = form == Form::Blocking && config.shared.policy == Policy::Auto;
    let measured = may_measure && router::is_measured(call.collective);
    let most = config.shared.most_bytes(call.collective, measured);
    let folded = |count, seen: &mut Message| {
        let fold = reduction(mpi, form, call, count, most, seen)?;
        let measured = measured && fold.by.is_as_exact_as_mpi();
        let most = config.shared.most_bytes(call.collective, measured);
        Ok(Admitted { bytes: bounded(fold.bytes, most)?, most, measured, fold: Some(fold) })
    };
    let in_place = |side: &Side| side.data as usize == mpi.abi.in_place;
    let element = |side: &Side, seen: &mut Message| {
        let known = mpi.abi.datatype(side.datatype);
        seen.datatype = datatype_number(known);
        mpi.shape_of(known, side.datatype).map(|shape| shape.size)
    };
    let moved = |side: &Side, seen: &mut Message| {
        let bytes = size(side.count, element(side, seen)?)?;
        seen.bytes = bytes as u64;
        Ok(Admitted { bytes: bounded(bytes, most)?, most, measured, fold: None })
    };
    match call.collective {
        Collective::Barrier if most == 0 => Err(Reason::TooLarge),
        Collective::Barrier => Ok(Admitted { bytes: 0, most, measured, fold: None }),
        Collective::Allreduce
        | Collective::Reduce
        | Collective::Reduce_scatter_block
        | Collective::Scan
        | Collective::Exscan => folded(call.recv.count, seen),
        // How many elements there are takes the group's size to say; one will do.
        Collective::Reduce_scatter => folded(1, seen),
        Collective::Bcast | Collective::Allgather | Collective::Alltoall => moved(&call.recv, seen),
        // One side is significant at the root alone, and there not if it is in place.
        Collective::Gather => {
            moved(if in_place(&call.send) { &call.recv } else { &call.send }, seen)
        }
        Collective::Scatter => {
            moved(if in_place(&call.recv) { &call.send } else { &call.recv }, seen)
        }
        Collective::Allgatherv => {
            let bytes = element(&call.recv, seen)?;
            seen.bytes = bytes as u64;
            Ok(Admitted { bytes, most, measured, fold: None })
        }
    }
}

pub(super) fn datatype_number(known: Option<TypeInfo>) -> u8 {
    known.map_or(Message::OWN, |known| known.row + 1)
}

impl Call {
    /// Elements of all ranks, where each has its own count.
    ///
    /// # Safety
    /// The array of counts, if there is one, spans the communicator.
    pub unsafe fn elements_of_all(&self, mpi: &Mpi) -> Option<u64> {
        let counts = self.recv.counts.filter(|counts| !counts.counts.is_null())?;
        // SAFETY: the caller's promise.
        let count = |rank| unsafe { u64::try_from(counts.count(rank)).unwrap_or(0) };
        Some((0..mpi.size(self.comm)).map(count).sum())
    }
}

/// What a call moves in all, if it is not too much, and where every rank's part lies in that; where each
/// rank has its own count, and of reductions, this is left to [`prepare`].
///
/// # Errors
/// Why it is the real MPI's; the same on all ranks.
pub fn fits(
    call: &Call,
    admitted: &Admitted,
    group: &mut Group,
) -> Result<Option<Arc<Image>>, Reason> {
    let most = admitted.most;
    let (bytes, ranks) = (admitted.bytes, group.place.layout.ranks());
    let whole = || bounded(bytes.checked_mul(ranks).ok_or(Reason::TooLarge)?, most);
    let image = match call.collective {
        Collective::Allgather => group.even_image(bytes),
        Collective::Gather => {
            let chunk = usize::from(group.place.chunk_bytes);
            return small(group.even_image(bytes), most.min(chunk)).map(Some);
        }
        Collective::Alltoall => group.even_image(whole()?),
        Collective::Scatter => return whole().map(|_| None),
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
    call: &Call,
    admitted: &Admitted,
    group: &mut Group,
) -> Result<(Job, Prepared), Reason> {
    let most = admitted.most;
    let (me, ranks) = (group.place.rank, group.place.layout.ranks());
    let image = fits(call, admitted, group)?;
    let staging = Vec::new();
    let mut make = Make { mpi, call, admitted, group, me, ranks, staging };
    // SAFETY: the caller's promise, for all of them.
    unsafe {
        let (job, finish) = match (call.collective, image) {
            _ if admitted.fold.is_some() => make.reduction(most)?,
            (Collective::Barrier, _) => {
                (job(Pattern::FoldToAll, 0, std::ptr::null(), std::ptr::null_mut()), Finish::Done)
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
                let image = Image::new(&make.group.place.layout, |rank| lengths[rank]);
                make.allgather(small(Arc::new(image), most)?)?
            }
            (Collective::Allgather, Some(image)) => make.allgather(image)?,
            (Collective::Gather, Some(image)) => make.gather(image)?,
            (Collective::Alltoall, Some(image)) => make.alltoall(image, admitted.bytes)?,
            _ => return Err(Reason::Argument),
        };
        let Make { staging: _staging, .. } = make;
        Ok((job, Prepared { finish, type_copy: None, _staging }))
    }
}

pub(super) fn small(image: Arc<Image>, most: usize) -> Result<Arc<Image>, Reason> {
    bounded(image.bytes(), most.min(MOST_IMAGE))?;
    Ok(image)
}

/// A job that folds nothing.
pub(super) fn job(pattern: Pattern, bytes: usize, send: *const u8, recv: *mut u8) -> Job {
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
    pub(super) unsafe fn count(&self, rank: usize) -> i64 {
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
pub(super) struct Make<'a> {
    pub(super) mpi: &'a Mpi,
    pub(super) call: &'a Call,
    pub(super) admitted: &'a Admitted,
    pub(super) group: &'a mut Group,
    pub(super) me: usize,
    pub(super) ranks: usize,
    pub(super) staging: Vec<Vec<u8>>,
}

pub(super) type Made = Result<(Job, Finish), Reason>;

impl Make<'_> {
    pub(super) fn is_in_place(&self, data: *const c_void) -> bool {
        data as usize == self.mpi.abi.in_place
    }

    pub(super) fn root(&self) -> Result<usize, Reason> {
        let root = usize::try_from(self.call.root).map_err(|_| Reason::Argument)?;
        if root < self.ranks { Ok(root) } else { Err(Reason::Argument) }
    }

    /// Memory of our own, zeroed.
    pub(super) fn stage(&mut self, bytes: usize) -> *mut u8 {
        self.staging.push(vec![0; bytes]);
        self.staging.last_mut().map_or(std::ptr::null_mut(), Vec::as_mut_ptr)
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
        // SAFETY: the caller's promise.
        unsafe { self.gathered_as(data, elements(count)?, (datatype, shape)) }
    }

    /// Bytes of `count` elements of a type of known shape.
    pub(super) unsafe fn gathered_as(
        &mut self,
        data: *mut c_void,
        count: usize,
        (datatype, shape): (Handle, Shape),
    ) -> Result<*const u8, Reason> {
        let bytes = count * shape.size;
        if shape.contiguous || bytes == 0 {
            let wrong = data.is_null() && bytes > 0;
            return if wrong { Err(Reason::Argument) } else { Ok(data.cast_const().cast()) };
        }
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
        if shape.contiguous && run == bytes && pieces.iter().all(lies_so) {
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
        let shape = self.mpi.shape(recv.datatype)?;
        if size(recv.count, shape.size)? != bytes || (shape.contiguous && recv.data.is_null()) {
            return Err(Reason::Argument);
        }
        let pieces = vec![own(recv.count)?];
        let datatype = (recv.datatype, shape);
        Ok((job, Finish::Deliver { from, pieces, to: recv.data, datatype }))
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

pub(super) fn elements(count: i64) -> Result<usize, Reason> {
    usize::try_from(count).map_err(|_| Reason::Argument)
}

//! Jobs of reductions. What the kernel folds goes out as it is, or as keys; of all else every rank's part
//! is brought together, as in a gather, and folded afterwards.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use super::deposits::Deposits;
use super::eligibility::{By, Pair, Reduction, bounded, size, who};
use super::finish::{Finish, Piece};
use super::prepare::{Made, Make, datatype_number, elements, job, small};
use super::{Call, Collective, Form};
use crate::group::{Image, Job, Pattern};
use crate::mpi::Mpi;
use crate::mpi::types::{self, Class};
use crate::stats::{Message, Reason};

/// What a reduction does with the data, in terms of the kernel's folds.
#[derive(Clone, Copy)]
struct Kernel {
    op: u8,
    element: u8,
    pair: Option<Pair>,
}

/// The reduction of `count` elements, if it is one that is folded.
///
/// By the MPI only in the program's own calls that block: no other thread may call it, and the program
/// may free its ops and types before other calls end.
pub(super) fn reduction(
    mpi: &Mpi,
    form: Form,
    call: &Call,
    count: i64,
    most: usize,
    seen: &mut Message,
) -> Result<Reduction, Reason> {
    if count == 0 {
        return Err(Reason::Empty);
    }
    let (handle, op) = (call.recv.datatype, mpi.abi.op(call.op));
    let datatype = mpi.abi.datatype(handle);
    seen.datatype = datatype_number(datatype);
    seen.op = op.map_or(Message::OWN, |op| op.number() as u8);
    let element = datatype.map_or(0, |datatype| datatype.size.into());
    seen.bytes = u64::try_from(count).unwrap_or(0).saturating_mul(element);
    let deposited = matches!(call.collective, Collective::Scan | Collective::Exscan);
    let by = who(datatype, op, deposited)?;
    if by == By::Mpi && form != Form::Blocking {
        return Err(if op.is_none() { Reason::Op } else { Reason::Datatype });
    }
    let shape = mpi.shape_of(datatype, handle)?;
    let bytes = size(count, by.bytes(shape))?;
    seen.bytes = bytes as u64;
    let bytes = bounded(bytes, most)?;
    // Every MPI takes all ops that the standard has for these.
    let integer =
        |class| matches!(class, Class::CInteger | Class::Integer | Class::Byte | Class::Pair);
    let certain = op.is_some() && datatype.is_some_and(|datatype| integer(datatype.class));
    if !certain && !mpi.accepts((handle, shape), call.op) {
        return Err(Reason::Op);
    }
    Ok(Reduction { by, bytes, shape })
}

impl Make<'_> {
    /// All reductions.
    ///
    /// SAFETY of callers: as [`super::prepare::prepare`].
    pub(super) unsafe fn reduction(&mut self, most: usize) -> Made {
        let (call, me) = (self.call, self.me);
        let fold = self.admitted.fold.ok_or(Reason::Argument)?;
        let root = match call.collective {
            Collective::Reduce => Some(self.root()?),
            _ => None,
        };
        let kernel = match fold.by {
            By::Kernel { op, element, pair } => Some(Kernel { op, element, pair }),
            // What is longer than can be deposited is folded by shards, in user space too.
            By::Own { op, element } if self.is_for_shards(&fold)? => {
                Some(Kernel { op, element, pair: None })
            }
            By::Own { .. } | By::Mpi => None,
        };
        // SAFETY: the caller's promise, here and below.
        unsafe {
            match call.collective {
                Collective::Allreduce | Collective::Reduce => match kernel {
                    Some(kernel) => self.fold(root, fold.bytes, kernel),
                    None => {
                        let image = self.one_chunk(fold.bytes, most)?;
                        self.deposit(fold, image, 0..self.ranks, 0..fold.bytes, root)
                    }
                },
                Collective::Reduce_scatter => {
                    let counts = call.recv.counts.ok_or(Reason::Argument)?;
                    self.reduce_scatter(fold, kernel, most, |rank| counts.count(rank))
                }
                Collective::Reduce_scatter_block => {
                    self.reduce_scatter(fold, kernel, most, |_| call.recv.count)
                }
                _ => {
                    let image = small(self.group.even_image(fold.bytes), most)?;
                    let ranks = 0..me + usize::from(call.collective == Collective::Scan);
                    // Rank 0 gets nothing of an Exscan, and may have no buffer for it.
                    let nowhere = ranks.is_empty() && call.recv.data.is_null();
                    let piece = if nowhere { 0..0 } else { 0..fold.bytes };
                    self.deposit(fold, image, ranks, piece, None)
                }
            }
        }
    }

    /// Whether a fold in user space is too long for one chunk, and can go by shards.
    fn is_for_shards(&self, fold: &Reduction) -> Result<bool, Reason> {
        let call = self.call;
        let all = match call.collective {
            Collective::Allreduce => fold.bytes,
            Collective::Reduce_scatter_block => {
                fold.bytes.checked_mul(self.ranks).ok_or(Reason::TooLarge)?
            }
            _ => return Ok(false),
        };
        let one = usize::from(self.group.place.chunk_bytes);
        Ok(self.group.has_shards && all.saturating_mul(self.ranks) > one)
    }

    /// Parts of `bytes` bytes of every rank, if all of them fit into one chunk.
    fn one_chunk(&mut self, bytes: usize, most: usize) -> Result<Arc<Image>, Reason> {
        // Before there is an image for it.
        bounded(bytes.checked_mul(self.ranks).ok_or(Reason::TooLarge)?, most)?;
        let chunk = usize::from(self.group.place.chunk_bytes);
        small(self.group.even_image(bytes), most.min(chunk))
    }

    /// Send and receive buffers of a reduction, `recv` where this rank gets something.
    fn ends(&self, receives: bool) -> Result<(*const u8, *mut u8), Reason> {
        let (send, recv) = (self.call.send.data, self.call.recv.data);
        // MPI_BOTTOM, which a datatype of the program's may be made for.
        let bottom = self.mpi.abi.datatype(self.call.recv.datatype).is_none();
        let nothing = |data: *mut c_void| data.is_null() && !bottom;
        if !receives {
            let wrong = nothing(send) || self.is_in_place(send);
            return if wrong { Err(Reason::Argument) } else { Ok((send.cast(), recv.cast())) };
        }
        if nothing(send) || nothing(recv) || self.is_in_place(recv) {
            return Err(Reason::Argument);
        }
        if self.is_in_place(send) {
            return Ok((recv.cast_const().cast(), recv.cast()));
        }
        Ok((send.cast(), recv.cast()))
    }

    /// Allreduce and Reduce of what the kernel folds.
    unsafe fn fold(&mut self, root: Option<usize>, bytes: usize, kernel: Kernel) -> Made {
        let receives = root.is_none_or(|root| root == self.me);
        let pattern = root.map_or(Pattern::FoldToAll, Pattern::FoldToRoot);
        let (mut send, mut recv) = self.ends(receives)?;
        let mut finish = Finish::Done;
        if let Some(pair) = kernel.pair {
            // SAFETY: a buffer of that many bytes.
            let pairs = unsafe { std::slice::from_raw_parts(send, bytes) };
            self.staging.push(types::keys(pairs, pair));
            let keys = self.staging.last_mut().map_or(std::ptr::null_mut(), Vec::as_mut_ptr);
            if receives {
                finish = Finish::Pairs { from: keys, to: recv, bytes, pair };
            }
            (send, recv) = (keys, keys);
        }
        let Kernel { op, element, .. } = kernel;
        Ok((Job { pattern, op, element, bytes, send, recv }, finish))
    }

    /// Both kinds: everything goes to everyone, folded or not, and each takes its own.
    unsafe fn reduce_scatter(
        &mut self,
        fold: Reduction,
        kernel: Option<Kernel>,
        most: usize,
        count: impl Fn(usize) -> i64,
    ) -> Made {
        let element = fold.by.bytes(fold.shape);
        let (mut all, mut mine) = (0usize, 0..0);
        for rank in 0..self.ranks {
            let bytes = size(count(rank), element)?;
            if rank == self.me {
                mine = all..all + bytes;
            }
            all = all.checked_add(bytes).ok_or(Reason::TooLarge)?;
        }
        let all = bounded(all, most)?;
        let Some(kernel) = kernel else {
            let image = self.one_chunk(all, most)?;
            let (ranks, fold) = (0..self.ranks, Reduction { bytes: all, ..fold });
            // SAFETY: the caller's promise.
            return unsafe { self.deposit(fold, image, ranks, mine, None) };
        };
        // The send buffer (in place: the receive buffer) has it all.
        let (send, recv) = self.ends_of_scatter(&mine)?;
        if send.is_null() {
            return Err(Reason::Argument);
        }
        let (mut source, into) = (send, self.stage(all));
        let count = mine.len() / element.max(1);
        let finish = match kernel.pair {
            None => Finish::Deliver {
                from: into,
                pieces: vec![Piece { bytes: mine, at: 0, count }],
                to: recv.cast(),
                datatype: (self.call.recv.datatype, fold.shape),
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
        let (pattern, Kernel { op, element, .. }) = (Pattern::FoldToAll, kernel);
        Ok((Job { pattern, op, element, bytes: all, send: source, recv: into }, finish))
    }

    /// A rank that gets nothing may have no buffer for it.
    fn ends_of_scatter(&self, mine: &Range<usize>) -> Result<(*const u8, *mut u8), Reason> {
        if mine.is_empty() && !self.is_in_place(self.call.send.data) {
            return Ok((self.call.send.data.cast_const().cast(), std::ptr::null_mut()));
        }
        self.ends(true)
    }

    /// Brings everyone's part together, at the root if there is one, and has `piece` of those of `ranks`
    /// folded.
    unsafe fn deposit(
        &mut self,
        fold: Reduction,
        image: Arc<Image>,
        ranks: Range<usize>,
        piece: Range<usize>,
        root: Option<usize>,
    ) -> Made {
        let Call { recv, op, .. } = self.call;
        let receives = root.is_none_or(|root| root == self.me);
        let count = elements((fold.bytes / fold.shape.size.max(1)) as i64)?;
        let (send, to) = match root {
            Some(_) => self.ends(receives)?,
            None => self.ends_of_scatter(&piece)?,
        };
        let data = send.cast_mut().cast();
        // SAFETY: the caller's promise.
        let from = unsafe { self.gathered_as(data, count, (recv.datatype, fold.shape))? };
        let pattern = match root {
            Some(root) => Pattern::GatherToRoot(root, Arc::clone(&image)),
            None => Pattern::GatherToAll(Arc::clone(&image)),
        };
        if !receives {
            return Ok((job(pattern, fold.bytes, from, std::ptr::null_mut()), Finish::Done));
        }
        let into = self.stage(image.bytes());
        let (to, handles) = (to.cast(), (*op, recv.datatype));
        let deposits = Deposits { from: into, image, ranks, piece, to, fold, handles };
        Ok((job(pattern, fold.bytes, from, into), Finish::Fold(deposits)))
    }
}

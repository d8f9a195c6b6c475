//! The arguments of a call as one rank has them: what it brings and what it gets, or that they are the
//! real MPI's to refuse.
//!
//! A call that the real MPI refuses before it communicates never happened, and a program may make up for
//! it by a right one. So arguments are judged before anything is counted that all ranks count alike;
//! whoever comes through here goes all the way with the other ranks.
#![allow(unsafe_code)]

use std::ffi::c_void;

use super::refusal::is_refused;
use super::{Facts, Refused};
use crate::call::{Call, Collective, Counts, Elements, Side};
use crate::mpi::types::Shape;

/// The places of all ranks' elements in one buffer.
#[derive(Clone)]
pub enum Parts {
    /// So many of each, one rank's after the other's.
    Even(usize),
    /// The first element of each, and the number of its elements.
    Each(Vec<(isize, usize)>),
}

impl Parts {
    /// A rank's first element, and the number of its elements.
    pub fn of(&self, rank: usize) -> (isize, usize) {
        match self {
            Self::Even(count) => (rank as isize * *count as isize, *count),
            Self::Each(parts) => parts[rank],
        }
    }
}

/// Both ends of a call on this rank.
#[derive(Clone)]
pub struct Ends {
    /// This rank's number in the communicator.
    pub rank: usize,
    /// The number of ranks.
    pub ranks: usize,
    /// The root, if there is one.
    pub root: Option<usize>,
    /// The data that this rank brings, all of it; nothing where that is not significant.
    pub brings: Option<Elements>,
    /// The target of the data that it gets; `count` is of one part, where ranks have parts.
    pub gets: Option<Elements>,
    /// Parts of the data that it gets, or of the data that is folded.
    pub parts: Parts,
}

/// Judges the call's arguments; a reduction's elements have `shape`.
///
/// # Errors
/// They are wrong on this rank.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi), on a communicator of `ranks` ranks, of which this is `rank`.
#[inline]
pub unsafe fn judge(
    mpi: &impl Facts,
    call: &Call,
    shape: Option<Shape>,
    (rank, ranks): (usize, usize),
) -> Result<Ends, Refused> {
    if is_refused(mpi, call, rank) {
        return Err(Refused);
    }
    let bench = Bench { mpi, call, rank, ranks };
    let mut ends =
        Ends { rank, ranks, root: None, brings: None, gets: None, parts: Parts::Even(0) };
    match call.collective {
        Collective::Barrier => {}
        Collective::Bcast => bench.bcast(&mut ends)?,
        Collective::Scatter => bench.scatter(&mut ends)?,
        Collective::Gather => bench.gather(&mut ends)?,
        // SAFETY: arguments of the program's.
        Collective::Allgather | Collective::Allgatherv => unsafe { bench.allgather(&mut ends)? },
        Collective::Alltoall => bench.alltoall(&mut ends)?,
        // SAFETY: likewise.
        _ => unsafe { bench.reduction(shape.ok_or(Refused)?, &mut ends)? },
    }
    Ok(ends)
}

/// The place where arguments are judged.
struct Bench<'a, F> {
    mpi: &'a F,
    call: &'a Call,
    rank: usize,
    ranks: usize,
}

impl<F: Facts> Bench<'_, F> {
    fn is_in_place(&self, data: *const c_void) -> bool {
        data as usize == self.mpi.in_place()
    }

    fn root(&self) -> Result<usize, Refused> {
        usize::try_from(self.call.root).ok().filter(|root| *root < self.ranks).ok_or(Refused)
    }

    /// `count` elements of `side` from element `at` on.
    fn elements(&self, side: &Side, at: isize, count: i64) -> Result<Elements, Refused> {
        let shape = self.mpi.shape(side.datatype).ok_or(Refused)?;
        let count = usize::try_from(count).map_err(|_| Refused)?;
        let nowhere = side.data.is_null() && shape.contiguous && count > 0 && shape.size > 0;
        if nowhere || self.is_in_place(side.data) {
            return Err(Refused);
        }
        let data = side.data.wrapping_byte_offset(at.wrapping_mul(shape.extent));
        Ok(Elements { data, count, datatype: side.datatype, shape })
    }

    /// `count` elements for each rank.
    fn of_all(&self, count: i64) -> i64 {
        count.saturating_mul(self.ranks as i64)
    }

    fn bcast(&self, ends: &mut Ends) -> Result<(), Refused> {
        let (root, side) = (self.root()?, &self.call.recv);
        let elements = self.elements(side, 0, side.count)?;
        ends.root = Some(root);
        if root == self.rank {
            ends.brings = Some(elements);
        } else {
            ends.gets = Some(elements);
        }
        Ok(())
    }

    fn scatter(&self, ends: &mut Ends) -> Result<(), Refused> {
        let (root, Call { send, recv, .. }) = (self.root()?, self.call);
        ends.root = Some(root);
        if root == self.rank {
            ends.brings = Some(self.elements(send, 0, self.of_all(send.count))?);
        }
        if root != self.rank || !self.is_in_place(recv.data) {
            ends.gets = Some(self.elements(recv, 0, recv.count)?);
        }
        Ok(())
    }

    fn gather(&self, ends: &mut Ends) -> Result<(), Refused> {
        let (root, Call { send, recv, .. }) = (self.root()?, self.call);
        ends.root = Some(root);
        if root == self.rank {
            let gets = self.elements(recv, 0, recv.count)?;
            ends.parts = Parts::Even(gets.count);
            ends.gets = Some(gets);
        }
        ends.brings = Some(if root == self.rank && self.is_in_place(send.data) {
            let (at, _) = ends.parts.of(self.rank);
            self.elements(recv, at, recv.count)?
        } else {
            self.elements(send, 0, send.count)?
        });
        Ok(())
    }

    /// Allgather and Allgatherv.
    ///
    /// # Safety
    /// As [`judge`].
    unsafe fn allgather(&self, ends: &mut Ends) -> Result<(), Refused> {
        let Call { send, recv, .. } = self.call;
        ends.parts = match &recv.counts {
            Some(counts) if counts.displs.is_null() => return Err(Refused),
            // SAFETY: arguments of the program's.
            Some(counts) => unsafe { self.each(counts)? },
            None => Parts::Even(usize::try_from(recv.count).map_err(|_| Refused)?),
        };
        let (at, count) = ends.parts.of(self.rank);
        let most = (0..self.ranks).map(|rank| ends.parts.of(rank).1).max().unwrap_or(0);
        ends.gets = Some(self.elements(recv, 0, most as i64)?);
        ends.brings = Some(if self.is_in_place(send.data) {
            self.elements(recv, at, count as i64)?
        } else {
            self.elements(send, 0, send.count)?
        });
        Ok(())
    }

    /// # Safety
    /// As [`judge`].
    unsafe fn each(&self, counts: &Counts) -> Result<Parts, Refused> {
        if counts.counts.is_null() {
            return Err(Refused);
        }
        let part = |rank| {
            // SAFETY: arguments of the program's: both arrays have an element for each rank.
            let (at, count) = unsafe { (counts.displacement(rank), counts.count(rank)) };
            Ok((at.unwrap_or(0), usize::try_from(count).map_err(|_| Refused)?))
        };
        Ok(Parts::Each((0..self.ranks).map(part).collect::<Result<_, _>>()?))
    }

    fn alltoall(&self, ends: &mut Ends) -> Result<(), Refused> {
        let Call { send, recv, .. } = self.call;
        let gets = self.elements(recv, 0, recv.count)?;
        ends.parts = Parts::Even(gets.count);
        ends.gets = Some(gets);
        let side = if self.is_in_place(send.data) { recv } else { send };
        ends.brings = Some(self.elements(side, 0, self.of_all(side.count))?);
        Ok(())
    }

    /// All reductions.
    ///
    /// # Safety
    /// As [`judge`].
    #[inline]
    unsafe fn reduction(&self, shape: Shape, ends: &mut Ends) -> Result<(), Refused> {
        let Call { send, recv, collective, .. } = self.call;
        let (mine, all) = match &recv.counts {
            None => {
                let count = usize::try_from(recv.count).map_err(|_| Refused)?;
                ends.parts = Parts::Even(count);
                (count, count.saturating_mul(self.ranks))
            }
            Some(counts) => {
                // SAFETY: arguments of the program's.
                ends.parts = unsafe { self.each(counts)? };
                let count = |rank| ends.parts.of(rank).1;
                (count(self.rank), (0..self.ranks).map(count).fold(0, usize::saturating_add))
            }
        };
        let brought = match collective {
            Collective::Reduce_scatter | Collective::Reduce_scatter_block => all,
            _ => mine,
        };
        let in_place = self.is_in_place(send.data);
        let gets = match collective {
            Collective::Reduce => {
                let root = self.root()?;
                ends.root = Some(root);
                root == self.rank
            }
            // Who gets nothing may have no buffer for it.
            Collective::Reduce_scatter => mine > 0,
            Collective::Exscan => self.rank > 0 || !recv.data.is_null(),
            _ => true,
        };
        // MPI_BOTTOM is null, and a datatype of the program's may be made for it.
        let known = || self.mpi.datatype(recv.datatype).is_some();
        let nowhere = |data: *mut c_void| data.is_null() && known();
        let from = if in_place { recv.data } else { send.data };
        let refused = (in_place && ends.root.is_some() && !gets)
            || (brought > 0 && nowhere(from))
            || self.is_in_place(from)
            || (gets && (nowhere(recv.data) || self.is_in_place(recv.data)));
        if refused {
            return Err(Refused);
        }
        let elements = |data, count| Elements { data, count, datatype: recv.datatype, shape };
        ends.brings = Some(elements(from, brought));
        ends.gets = gets.then(|| elements(recv.data, mine));
        Ok(())
    }
}

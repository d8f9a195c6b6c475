//! The arguments of a call as one rank has them: what it brings and what it gets, or that they are the
//! real MPI's to refuse.
//!
//! A call that the real MPI refuses before it communicates never happened, and a program may make up for
//! it by a right one. So arguments are judged before anything is counted that all ranks count alike;
//! whoever comes through here goes all the way with the other ranks.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use super::exchange::Edges;
use super::{Alone, Facts, Refused};
use crate::call::{Call, Counts, Elements, Side};
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
    /// The part that it brings for itself is in its place already, by MPI_IN_PLACE.
    pub in_place: bool,
    /// The data that it exchanges with others, one by one; nothing of other collectives.
    pub edges: Option<Arc<Edges>>,
}

/// The share of a reduction that a rank gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its elements, among the elements that each rank brings.
    pub elements: Range<usize>,
    /// The number of ranks, from the first one on, whose contributions are folded.
    pub ranks: usize,
}

impl Share {
    /// The bytes of its elements, of `element` bytes each.
    pub fn bytes(&self, element: usize) -> Range<usize> {
        self.elements.start * element..self.elements.end * element
    }
}

/// The place where arguments are judged. Their collective says which of the functions applies.
pub struct Bench<'a, F> {
    pub call: &'a Call,
    pub rank: usize,
    pub ranks: usize,
    pub(super) mpi: &'a F,
    /// How a reduction's elements lie in memory.
    shape: Option<Shape>,
}

impl<'a, F: Facts> Bench<'a, F> {
    /// A reduction's elements have `shape`.
    ///
    /// # Safety
    /// *Arguments* of the [program](crate::mpi), on a communicator of `ranks` ranks, of which this is `rank`.
    #[inline]
    pub unsafe fn new(
        mpi: &'a F,
        call: &'a Call,
        shape: Option<Shape>,
        (rank, ranks): (usize, usize),
    ) -> Self {
        Self { call, rank, ranks, mpi, shape }
    }

    /// The ends of a call of which nothing is known yet.
    #[inline]
    pub fn ends(&self) -> Ends {
        let Self { rank, ranks, .. } = *self;
        Ends {
            rank,
            ranks,
            root: None,
            brings: None,
            gets: None,
            parts: Parts::Even(0),
            in_place: false,
            edges: None,
        }
    }

    #[inline]
    pub fn is_in_place(&self, data: *const c_void) -> bool {
        data as usize == self.mpi.in_place()
    }

    /// The root.
    ///
    /// # Errors
    /// There is no rank of that number.
    pub fn root(&self) -> Result<usize, Refused> {
        usize::try_from(self.call.root).ok().filter(|root| *root < self.ranks).ok_or(Refused)
    }

    /// `count` elements of `side` from element `at` on.
    ///
    /// # Errors
    /// There is no datatype, no buffer, or a negative count.
    pub fn elements(&self, side: &Side, at: isize, count: i64) -> Result<Elements, Refused> {
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
    pub fn of_all(&self, count: i64) -> i64 {
        count.saturating_mul(self.ranks as i64)
    }

    /// The places of the elements that each rank has, by the arrays of the receiving side.
    ///
    /// # Errors
    /// There is no array, or a negative count.
    pub fn parts_of_arrays(&self) -> Result<Parts, Refused> {
        let is_there = |counts: &Counts| !counts.counts.is_null();
        let counts = self.call.recv.counts.filter(is_there).ok_or(Refused)?;
        let part = |rank| {
            // SAFETY: arguments of the program's, as promised for this: both arrays have an element for each rank.
            let (at, count) = unsafe { (counts.displacement(rank), counts.count(rank)) };
            Ok((at.unwrap_or(0), usize::try_from(count).map_err(|_| Refused)?))
        };
        Ok(Parts::Each((0..self.ranks).map(part).collect::<Result<_, _>>()?))
    }

    /// The ends of a gather at all ranks, whose results have these parts.
    ///
    /// # Errors
    /// The arguments are wrong.
    pub fn gathered_at_all(&self, parts: Parts) -> Result<Ends, Refused> {
        let Call { send, recv, .. } = self.call;
        let (at, count) = parts.of(self.rank);
        let most = (0..self.ranks).map(|rank| parts.of(rank).1).max().unwrap_or(0);
        let gets = self.elements(recv, 0, most as i64)?;
        let brings = if self.is_in_place(send.data) {
            self.elements(recv, at, count as i64)?
        } else {
            self.elements(send, 0, send.count)?
        };
        Ok(Ends { parts, gets: Some(gets), brings: Some(brings), ..self.ends() })
    }

    /// The ends of a reduction to `root`, or to all. `gets`: whether this rank gets something, by the number of its
    /// elements.
    ///
    /// # Errors
    /// The arguments are wrong.
    #[inline]
    pub fn reduction(
        &self,
        root: Option<usize>,
        alone: Alone,
        gets: impl FnOnce(usize) -> bool,
    ) -> Result<Ends, Refused> {
        self.refuse_one_buffer_of_reduction(root, alone)?;
        let count = usize::try_from(self.call.recv.count).map_err(|_| Refused)?;
        self.ends_of_reduction(root, Parts::Even(count), (count, count), gets(count))
    }

    /// The ends of a reduction to all, of which each rank gets a part.
    ///
    /// # Errors
    /// The arguments are wrong.
    pub fn reduction_of_parts(
        &self,
        alone: Alone,
        gets: impl FnOnce(usize) -> bool,
    ) -> Result<Ends, Refused> {
        self.refuse_one_buffer_of_reduction(None, alone)?;
        let recv = &self.call.recv;
        let parts = match recv.counts {
            None => Parts::Even(usize::try_from(recv.count).map_err(|_| Refused)?),
            Some(_) => self.parts_of_arrays()?,
        };
        let count = |rank| parts.of(rank).1;
        let (own, all) = (count(self.rank), (0..self.ranks).map(count));
        let all = all.fold(0, usize::saturating_add);
        self.ends_of_reduction(None, parts, (all, own), gets(own))
    }

    /// The ends of a reduction: this rank brings and gets so many elements.
    #[inline]
    fn ends_of_reduction(
        &self,
        root: Option<usize>,
        parts: Parts,
        (brought, own): (usize, usize),
        gets: bool,
    ) -> Result<Ends, Refused> {
        let (Call { send, recv, .. }, shape) = (self.call, self.shape.ok_or(Refused)?);
        // MPI_BOTTOM is null, and a datatype of the program's may be made for it.
        let known = || self.mpi.datatype(recv.datatype).is_some();
        let nowhere = |data: *mut c_void| data.is_null() && known();
        let in_place = self.is_in_place(send.data);
        let from = if in_place { recv.data } else { send.data };
        let refused = (in_place && root.is_some() && !gets)
            || (brought > 0 && nowhere(from))
            || self.is_in_place(from)
            || (gets && (nowhere(recv.data) || self.is_in_place(recv.data)));
        if refused {
            return Err(Refused);
        }
        let elements = |data, count| Elements { data, count, datatype: recv.datatype, shape };
        let brings = Some(elements(from, brought));
        let gets = gets.then(|| elements(recv.data, own));
        Ok(Ends { root, brings, gets, parts, ..self.ends() })
    }
}

//! The data that a rank exchanges with others, one by one.
#![allow(unsafe_code)]

use super::judge::Bench;
use super::{Facts, Refused};
use crate::call::{Elements, Side};
use crate::mpi::pmpi::Handle;
use crate::mpi::topology::{Neighbors, Order};
use crate::wire::Parties;

/// The data that a rank exchanges, edge by edge. Edges without data are left out; an edge may be to the rank itself.
#[derive(Clone, Default)]
pub struct Edges {
    pub to: Vec<Edge>,
    pub from: Vec<Edge>,
    /// Whether one rank is both neighbours in a dimension of a grid: on all ranks alike.
    pub wraps: Wraps,
    /// The data that it sends are in its receive buffer.
    pub in_place: bool,
    /// The ends, as all ranks know them.
    pub parties: Parties<usize>,
}

/// Whether one rank is both neighbours in a dimension of a grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wraps {
    #[default]
    Not,
    /// The edges are in the order of the MPI's collectives that block.
    Ordered,
    /// The MPI's order is not known.
    Unordered,
}

// SAFETY: the pointers are to buffers of the program's, promised (`crate::mpi`) until the call is over.
unsafe impl Send for Edges {}
// SAFETY: as above.
unsafe impl Sync for Edges {}

/// Data for a rank, or from one. Several edges between two ranks are matched in order: the first that the one sends is
/// the first that the other gets.
#[derive(Clone, Copy)]
pub struct Edge {
    pub rank: usize,
    pub elements: Elements,
}

impl Edges {
    /// The same edges of other datatypes, which lie alike.
    pub fn with_types(&self, mut other: impl FnMut(Handle) -> Handle) -> Self {
        let mut edge = |edge: &Edge| {
            let datatype = other(edge.elements.datatype);
            Edge { elements: Elements { datatype, ..edge.elements }, ..*edge }
        };
        let to = self.to.iter().map(&mut edge).collect();
        let from = self.from.iter().map(edge).collect();
        Self { to, from, ..*self }
    }

    /// Bytes that this rank sends.
    pub fn bytes_sent(&self) -> u64 {
        self.to.iter().map(|edge| edge.elements.bytes() as u64).fold(0, u64::saturating_add)
    }
}

/// The other end of an edge; `None`: there is nobody.
pub type Peer = Option<usize>;

impl<F: Facts> Bench<'_, F> {
    /// All ranks, as the other ends of edges.
    pub fn everyone(&self) -> Vec<Peer> {
        (0..self.ranks).map(Some).collect()
    }

    /// This rank's neighbours.
    ///
    /// # Errors
    /// The communicator has no topology.
    pub fn neighbors(&self) -> Result<Neighbors, Refused> {
        self.mpi.neighbors(self.call.comm).ok_or(Refused)
    }

    /// The order in which the MPI places several blocks of one neighbour, in collectives that block; `even`: with one
    /// count for all blocks.
    pub fn order_of_blocks(&self, even: bool) -> Option<Order> {
        self.mpi.order_of_blocks(even)
    }

    /// The edges of a side that has a block for each of `peers`, the blocks in this `order`.
    ///
    /// # Errors
    /// The arguments are wrong.
    pub fn edges(
        &self,
        side: &Side,
        peers: &[Peer],
        order: impl Iterator<Item = usize>,
    ) -> Result<Vec<Edge>, Refused> {
        self.refuse_nothing_where(!peers.is_empty(), side)?;
        let edge = |block: usize| Ok(edge(peers[block], self.block(side, block)?));
        order.filter_map(|block| edge(block).transpose()).collect()
    }

    /// The edges of a side that has one block, which is for each of `peers`.
    ///
    /// # Errors
    /// The arguments are wrong.
    pub fn edges_of_one_block(&self, side: &Side, peers: &[Peer]) -> Result<Vec<Edge>, Refused> {
        self.refuse_nothing_where(true, side)?;
        let block = self.block(side, 0)?;
        Ok(peers.iter().filter_map(|peer| edge(*peer, block)).collect())
    }

    /// Refuses a side that is in place, or that has no array where there are `blocks`.
    fn refuse_nothing_where(&self, blocks: bool, side: &Side) -> Result<(), Refused> {
        let arrays = side.counts.map(|counts| [counts.counts, counts.displs]);
        let mut arrays = arrays.into_iter().flatten().chain(side.types.map(|types| types.handles));
        if self.is_in_place(side.data) || (blocks && arrays.any(|array| array.is_null())) {
            return Err(Refused);
        }
        Ok(())
    }

    /// The elements of a block of a side; `None`: there are none, and then their type does not matter.
    fn block(&self, side: &Side, block: usize) -> Result<Option<Elements>, Refused> {
        // SAFETY: an argument of the program's, as promised for this: it has an element for the block.
        let count = side.counts.map_or(side.count, |counts| unsafe { counts.count(block) });
        let count = usize::try_from(count).map_err(|_| Refused)?;
        if count == 0 {
            return Ok(None);
        }
        if !self.mpi.takes_count(count) {
            return Err(Refused);
        }
        let datatype = self.datatype_of_block(side, block);
        let shape = self.mpi.shape(datatype).ok_or(Refused)?;
        // SAFETY: an argument of the program's, as above.
        let at = match side.counts.and_then(|counts| unsafe { counts.displacement(block) }) {
            Some(at) if side.types.is_some() => at,
            Some(at) => at.wrapping_mul(shape.extent),
            None => shape.extent.wrapping_mul(count.wrapping_mul(block) as isize),
        };
        let data = side.data.wrapping_byte_offset(at);
        let elements = Elements { data, count, datatype, shape };
        if data.is_null() && shape.contiguous && elements.bytes() > 0 {
            return Err(Refused);
        }
        Ok((elements.bytes() > 0).then_some(elements))
    }

    fn datatype_of_block(&self, side: &Side, block: usize) -> Handle {
        let Some(types) = side.types else { return side.datatype };
        match types.from_fortran {
            // SAFETY: an argument of the program's: an INTEGER for each block, of which the MPI makes handles.
            Some(handle_of) => unsafe { handle_of(*types.handles.cast::<i32>().add(block)) },
            // SAFETY: an argument of the program's: a handle for each block.
            None => unsafe { self.mpi.handle_at(types.handles, block) },
        }
    }
}

fn edge(peer: Peer, block: Option<Elements>) -> Option<Edge> {
    Some(Edge { rank: peer?, elements: block? })
}

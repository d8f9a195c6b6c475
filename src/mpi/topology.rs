//! The neighbours of this process in a communicator that has a topology (MPI-4.1 sections 8.5 and 8.6).
//!
//! They are looked up at each call: the MPI answers from memory of its own, and a handle may be another communicator's
//! later.
#![allow(unsafe_code)]

use std::ffi::c_int;

use super::abi::{Family, Topology};
use super::pmpi::{Handle, Pmpi};

/// The ranks that send to this process, and the ranks that it sends to, in the order of the blocks in its buffers.
/// `None`: there is nobody (MPI_PROC_NULL).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbors {
    pub sources: Vec<Option<usize>>,
    pub destinations: Vec<Option<usize>>,
    /// Of a Cartesian grid: in each dimension the neighbour before, and the neighbour behind.
    pub is_grid: bool,
}

/// The order in which an MPI places several blocks that one rank has sent to another.
///
/// In a periodic dimension of 1 or 2 ranks both neighbours are one rank. By the standard, the block that is sent to the
/// neighbour before comes from the neighbour behind (MPI-4.1 section 8.6). MPIs differ, and a program gets from
/// foldback the result that it gets from its MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As the standard has it: a rank sends before and behind, and gets from behind and from before. In a graph, as
    /// sent.
    Standard,
    /// As sent: the first block that comes is the first in the receive buffer.
    Sent,
    /// The first block that comes is the last one in the receive buffer.
    Reversed,
}

impl Order {
    /// The order of the MPI with this name and version, in collectives that block; `even`: with one
    /// count for all blocks (Neighbor_alltoall). `None`: it has not been tried on grids that wrap.
    pub fn of(family: Family, version: &str, even: bool) -> Option<Self> {
        let number = version.split_once("MPICH Version:").map(|(_, number)| number.trim_start());
        match (family, number) {
            (Family::OpenMpi, _) => Some(Self::Standard),
            (_, Some(number)) if number.starts_with("5.") => Some(Self::Standard),
            (_, Some(number)) if number.starts_with("4.0") => {
                Some(if even { Self::Reversed } else { Self::Sent })
            }
            (_, None) if version.starts_with("Intel(R) MPI") => Some(Self::Sent),
            _ => None,
        }
    }
}

impl Neighbors {
    /// The blocks of the receive buffer, in an order in which several blocks of one rank are in that rank's order of
    /// sending.
    pub fn arrivals(&self, order: Order) -> impl Iterator<Item = usize> + use<> {
        let (last, is_grid) = (self.sources.len().wrapping_sub(1), self.is_grid);
        (0..self.sources.len()).map(move |block| match order {
            Order::Standard if is_grid => block ^ 1,
            Order::Standard | Order::Sent => block,
            Order::Reversed => last - block,
        })
    }

    /// Whether it is a grid with a periodic dimension of 1 or 2 ranks, in which both neighbours are one rank. All ranks
    /// say alike.
    pub fn wraps(&self) -> bool {
        let is_one = |pair: &[Option<usize>]| pair[0].is_some() && pair[0] == pair[1];
        self.is_grid && self.sources.chunks_exact(2).any(is_one)
    }

    /// Of ranks as the MPI writes them.
    fn of(sources: &[c_int], destinations: &[c_int], is_grid: bool) -> Self {
        let ranks =
            |ranks: &[c_int]| ranks.iter().map(|rank| usize::try_from(*rank).ok()).collect();
        Self { sources: ranks(sources), destinations: ranks(destinations), is_grid }
    }
}

impl Pmpi {
    /// This process's neighbours in `comm`; `None`: it has no topology, or the MPI fails.
    pub fn neighbors(&self, family: Family, comm: Handle) -> Option<Neighbors> {
        let mut status: c_int = 0;
        // SAFETY: the program's communicator; one int is written.
        let code = unsafe { (self.topo_test)(comm, &raw mut status) };
        match family.topology(status).filter(|_| code == 0)? {
            Topology::Grid => self.neighbors_in_grid(comm),
            Topology::Graph => self.neighbors_in_graph(comm),
            Topology::DistributedGraph => self.neighbors_in_distributed_graph(comm),
        }
    }

    fn neighbors_in_grid(&self, comm: Handle) -> Option<Neighbors> {
        let mut dimensions: c_int = 0;
        // SAFETY: a communicator with a grid; one int is written.
        let mut code = unsafe { (self.cartdim_get)(comm, &raw mut dimensions) };
        let mut ranks = Vec::new();
        for dimension in 0..dimensions {
            let (mut before, mut behind): (c_int, c_int) = (0, 0);
            // SAFETY: one of its dimensions; two ints are written.
            code |=
                unsafe { (self.cart_shift)(comm, dimension, 1, &raw mut before, &raw mut behind) };
            ranks.extend([before, behind]);
        }
        (code == 0).then(|| Neighbors::of(&ranks, &ranks, true))
    }

    fn neighbors_in_graph(&self, comm: Handle) -> Option<Neighbors> {
        let (mut rank, mut count): (c_int, c_int) = (0, 0);
        // SAFETY: a communicator with a graph; an int is written by each, and then as many as there are.
        let (code, ranks) = unsafe {
            let code = (self.comm_rank)(comm, &raw mut rank)
                | (self.graph_neighbors_count)(comm, rank, &raw mut count);
            let mut ranks = vec![0; usize::try_from(count).ok()?];
            (code | (self.graph_neighbors)(comm, rank, count, ranks.as_mut_ptr()), ranks)
        };
        (code == 0).then(|| Neighbors::of(&ranks, &ranks, false))
    }

    fn neighbors_in_distributed_graph(&self, comm: Handle) -> Option<Neighbors> {
        let (mut ins, mut outs, mut weighted): (c_int, c_int, c_int) = (0, 0, 0);
        // SAFETY: a communicator with a graph; three ints are written.
        let counted = unsafe {
            (self.dist_graph_neighbors_count)(comm, &raw mut ins, &raw mut outs, &raw mut weighted)
        };
        let room = |ranks: c_int| usize::try_from(ranks).ok().map(|ranks| vec![0; ranks]);
        let [mut sources, mut destinations] = [room(ins)?, room(outs)?];
        let (mut weights, mut out_weights) = (sources.clone(), destinations.clone());
        // SAFETY: room for as many ranks and weights as there are.
        let code = unsafe {
            (self.dist_graph_neighbors)(
                comm,
                ins,
                sources.as_mut_ptr(),
                weights.as_mut_ptr(),
                outs,
                destinations.as_mut_ptr(),
                out_weights.as_mut_ptr(),
            )
        };
        (counted == 0 && code == 0).then(|| Neighbors::of(&sources, &destinations, false))
    }
}

#[cfg(test)]
mod tests {
    use super::super::stand_in::{self, Laid, World};
    use super::*;

    const COMM: Handle = 0x2000;

    /// The neighbours of `rank` among so many.
    fn neighbors(rank: usize, ranks: usize, laid: Laid) -> Neighbors {
        let mpi = stand_in::mpi(&World::new(ranks), rank);
        assert_eq!(mpi.pmpi.neighbors(mpi.abi.family, COMM), None);
        stand_in::lay_out(COMM, laid);
        mpi.pmpi.neighbors(mpi.abi.family, COMM).expect("a topology")
    }

    /// A message of one of a rank's blocks, by sender and block.
    type Sent = (usize, usize);

    /// The messages that each rank gets of each other, in the order in which they are sent.
    fn sent(all: &[Neighbors]) -> Vec<Vec<Vec<Sent>>> {
        let ranks = 0..all.len();
        let of_pair = |from: usize, to: usize| {
            let blocks = all[from].destinations.iter().enumerate();
            blocks.filter(|(_, rank)| **rank == Some(to)).map(|(block, _)| (from, block)).collect()
        };
        ranks.clone().map(|to| ranks.clone().map(|from| of_pair(from, to)).collect()).collect()
    }

    /// The block of a neighbour's in a grid that comes to this block: of the neighbour before, the one for its
    /// neighbour behind.
    fn opposite(block: usize) -> usize {
        if block.is_multiple_of(2) { block + 1 } else { block - 1 }
    }

    #[test]
    fn both_ends_of_a_grid_have_one_order() {
        let sizes = || [1, 2, 3].into_iter().flat_map(|size| [(size, false), (size, true)]);
        let lines = sizes().map(|one| vec![one]);
        let grids = sizes().flat_map(|one| sizes().map(move |other| vec![one, other]));
        for grid in lines.chain(grids).chain([vec![]]) {
            let ranks = grid.iter().map(|(size, _)| size).product();
            let of = |rank| neighbors(rank, ranks, Laid::Grid(grid.clone()));
            let all: Vec<_> = (0..ranks).map(of).collect();
            let sent = sent(&all);
            for (to, one) in all.iter().enumerate() {
                let mut left = sent[to].clone();
                for block in one.arrivals(Order::Standard) {
                    let Some(from) = one.sources[block] else { continue };
                    let came = left[from].remove(0);
                    assert_eq!(came, (from, opposite(block)), "{grid:?}, rank {to}");
                }
                assert!(left.iter().all(Vec::is_empty), "{grid:?}, rank {to}: {left:?}");
            }
        }
    }

    #[test]
    fn neighbours_at_the_end_of_a_line_are_nobody() {
        let line = neighbors(0, 3, Laid::Grid(vec![(3, false)]));
        assert_eq!(line.sources, [None, Some(1)]);
        assert_eq!(line.sources, line.destinations);
        assert_eq!(line.arrivals(Order::Standard).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn graphs_have_the_order_that_the_program_gave_them() {
        let graph = vec![vec![1, 1, 0], vec![0, 0], vec![]];
        let one = neighbors(0, 3, Laid::Graph(graph.clone()));
        assert_eq!(one.sources, [Some(1), Some(1), Some(0)]);
        assert_eq!(one.sources, one.destinations);
        assert_eq!(one.arrivals(Order::Standard).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(neighbors(2, 3, Laid::Graph(graph)), Neighbors::default());
        let directed = neighbors(1, 3, Laid::Distributed(vec![2, 2], vec![0]));
        assert_eq!(directed.sources, [Some(2), Some(2)]);
        assert_eq!(directed.destinations, [Some(0)]);
        assert!(!directed.is_grid);
    }

    /// As mpi.h of each family has them.
    #[test]
    fn families_have_numbers_of_their_own_for_topologies() {
        let of = |family: Family| [1, 2, 3, 211, 212, 213, -32766].map(|at| family.topology(at));
        let (grid, graph) = (Some(Topology::Grid), Some(Topology::Graph));
        let distributed = Some(Topology::DistributedGraph);
        assert_eq!(of(Family::OpenMpi), [grid, graph, distributed, None, None, None, None]);
        assert_eq!(of(Family::Mpich), [graph, grid, distributed, None, None, None, None]);
        assert_eq!(of(Family::Standard), [None, None, None, grid, graph, distributed, None]);
    }
}

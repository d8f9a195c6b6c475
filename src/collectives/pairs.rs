//! The common part of collectives in which each pair of ranks has data of its own, of a size that no other rank knows.

use std::iter;
use std::sync::Arc;

use super::descriptor::{Amount, Arrays, At, Descriptor};
use crate::call::{Call, Elements, Side};
use crate::choice::Trials;
use crate::engine::{Parcels, Pattern};
use crate::gate::admit::Candidate;
use crate::gate::exchange::{Edge, Edges, Wraps};
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Ends, Facts, Left, Reason, Refused};
use crate::mpi::topology::Order;
use crate::plan::{Case, Fit, Plan, Sink, Source, moving};
use crate::topology::Place;
use crate::wire::Parties;

/// The contract of the file of a collective of pairs: the facts in which these collectives differ.
pub trait OfPairs {
    /// As of a [`Descriptor`].
    const SIGNIFICANT: (At, At) = (At::Everywhere, At::Everywhere);
    /// As of a [`Descriptor`].
    const ARRAYS: Arrays = Arrays::Ranks;

    /// The sides of a call. The first one's datatype is counted, unless that side is in place.
    fn sides(call: &Call) -> (&Side, &Side) {
        (&call.send, &call.recv)
    }

    /// Judges the arguments of this rank.
    ///
    /// # Errors
    /// They are wrong.
    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused>;
}

impl<C: OfPairs> Descriptor for C {
    const HOW: &'static str = "a parcel for each pair; long pairs by messages of MPI";
    const TYPES: &'static str = moving::TYPES;
    const AMOUNT: Amount = Amount::Pairs;
    const TRIALS: Option<Trials> = Some(match <C as OfPairs>::ARRAYS {
        Arrays::RanksAtRoot => Trials::PairsOfRoot,
        Arrays::Ranks | Arrays::Neighbors => Trials::Pairs,
    });
    const SIGNIFICANT: (At, At) = <C as OfPairs>::SIGNIFICANT;
    const ARRAYS: Arrays = <C as OfPairs>::ARRAYS;

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        let has_root = <C as OfPairs>::ARRAYS == Arrays::RanksAtRoot;
        candidate.admit_pairs(C::sides(candidate.call), has_root)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        <C as OfPairs>::judge(bench)
    }

    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        fit(case, place)
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        plan(case, fit)
    }
}

/// Each rank has data for each, and both sides have arrays.
///
/// # Errors
/// The arguments are wrong.
pub fn all_to_all(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
    let (Call { send, recv, .. }, everyone) = (bench.call, bench.everyone());
    bench.refuse_one_buffer_by_arrays()?;
    let in_place = bench.is_in_place(send.data);
    let from = bench.edges(recv, &everyone, 0..bench.ranks)?;
    let to = if in_place { from.clone() } else { bench.edges(send, &everyone, 0..bench.ranks)? };
    Ok(with_edges(bench.ends(), Edges { to, from, in_place, ..Edges::default() }))
}

/// The blocks of a send buffer in a collective of neighbours.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// One, which goes to all neighbours.
    One,
    /// One for each neighbour, all of one size.
    Even,
    /// One for each neighbour, each of its own size.
    Each,
}

/// Each rank has data for its neighbours. Neither side may be in place.
///
/// # Errors
/// The arguments are wrong.
pub fn neighbors(bench: &Bench<'_, impl Facts>, blocks: Blocks) -> Result<Ends, Refused> {
    let (Call { send, recv, .. }, neighbors) = (bench.call, bench.neighbors()?);
    let destinations = &neighbors.destinations;
    let to = match blocks {
        Blocks::One => bench.edges_of_one_block(send, destinations)?,
        Blocks::Even | Blocks::Each => bench.edges(send, destinations, 0..destinations.len())?,
    };
    let order = bench.order_of_blocks(blocks == Blocks::Even);
    let arrivals = neighbors.arrivals(order.unwrap_or(Order::Standard));
    let from = bench.edges(recv, &neighbors.sources, arrivals)?;
    let wraps = match order {
        // All blocks of a neighbour are the same one.
        _ if blocks == Blocks::One || !neighbors.wraps() => Wraps::Not,
        Some(_) => Wraps::Ordered,
        None => Wraps::Unordered,
    };
    let parties = if blocks == Blocks::One { Parties::Vectors } else { Parties::Any };
    Ok(with_edges(bench.ends(), Edges { to, from, wraps, parties, ..Edges::default() }))
}

/// Each rank has data for the root, whose side has arrays.
///
/// # Errors
/// The arguments are wrong.
pub fn to_root(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
    let (root, Call { send, recv, .. }) = (bench.root()?, bench.call);
    let mut edges = Edges { parties: Parties::Hub(root), ..Edges::default() };
    let is_root = root == bench.rank;
    if is_root {
        bench.refuse_own_part_by_arrays(send, recv)?;
        edges.from = bench.edges(recv, &bench.everyone(), 0..bench.ranks)?;
    }
    if is_root && bench.is_in_place(send.data) {
        edges.from.retain(|edge| edge.rank != root);
    } else {
        edges.to = bench.edges_of_one_block(send, &[Some(root)])?;
    }
    Ok(with_edges(Ends { root: Some(root), ..bench.ends() }, edges))
}

/// The root, whose side has arrays, has data for each rank.
///
/// # Errors
/// The arguments are wrong.
pub fn from_root(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
    let (root, Call { send, recv, .. }) = (bench.root()?, bench.call);
    let mut edges = Edges { parties: Parties::Hub(root), ..Edges::default() };
    let is_root = root == bench.rank;
    if is_root {
        bench.refuse_own_part_by_arrays(recv, send)?;
        edges.to = bench.edges(send, &bench.everyone(), 0..bench.ranks)?;
    }
    if is_root && bench.is_in_place(recv.data) {
        edges.to.retain(|edge| edge.rank != root);
    } else {
        edges.from = bench.edges(recv, &[Some(root)], iter::once(0))?;
    }
    Ok(with_edges(Ends { root: Some(root), ..bench.ends() }, edges))
}

fn with_edges(ends: Ends, edges: Edges) -> Ends {
    Ends { edges: Some(Arc::new(edges)), ..ends }
}

/// The form in which they go through the group.
///
/// # Errors
/// There are too few cells for so many hosts or ranks, or the MPI's order of blocks is not known.
fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
    let edges = case.ends.edges.as_ref();
    let wraps = edges.map_or(Wraps::Not, |edges| edges.wraps);
    let has_root = edges.is_some_and(|edges| edges.parties.hub().is_some());
    let is_ordered = match wraps {
        Wraps::Not => true,
        // Open MPI has another order in calls that do not block.
        Wraps::Ordered => case.admitted.blocks,
        Wraps::Unordered => false,
    };
    let most = place.parcel_bytes(has_root).filter(|_| is_ordered).ok_or(Reason::Pairs)?;
    Ok(Fit::Pairs(most.min(place.max_bytes).min(case.admitted.max_bytes)))
}

/// The form of a collective whose pairs all have up to so many bytes, as all ranks know; `None`: that is too much.
pub fn fit_short(bytes: usize, case: Case<'_>, place: &Place) -> Option<Fit> {
    // What has not been measured is of a chunk.
    let chunk = usize::from(place.chunk_bytes);
    let limit = if case.admitted.measured { usize::MAX } else { chunk };
    let has_root = case.ends.root.is_some();
    let most = place.parcel_bytes(has_root)?.min(place.max_bytes).min(limit);
    (bytes <= most.min(case.admitted.max_bytes)).then_some(Fit::ShortPairs(bytes))
}

/// The plan of one that fits.
fn plan(case: Case<'_>, fit: Fit) -> Plan {
    exchange(case.ends, case.ends.edges.clone().unwrap_or_default(), fit.bytes())
}

/// The plan of a collective in which each rank has a part for each.
pub fn plan_all_to_all(ends: &Ends, bytes: usize) -> Plan {
    let mut edges = Edges { in_place: ends.in_place, ..Edges::default() };
    if let (Some(brings), Some(gets)) = (ends.brings, ends.gets) {
        let count = brings.count / ends.ranks;
        edges.to = edges_of(0..ends.ranks, |rank| brings.part((rank * count) as isize, count));
        edges.from = edges_of(0..ends.ranks, |rank| part_of(ends, gets, rank));
    }
    exchange(ends, Arc::new(edges), bytes)
}

/// The plan of a collective in which each rank has a part for the root.
pub fn plan_to_root(ends: &Ends, bytes: usize) -> Plan {
    let parties = ends.root.map_or(Parties::Any, Parties::Hub);
    let mut edges = Edges { parties, ..Edges::default() };
    if let Some(gets) = ends.gets {
        edges.from = edges_of(0..ends.ranks, |rank| part_of(ends, gets, rank));
    }
    if let (Some(root), Some(brings)) = (ends.root, ends.brings) {
        edges.to = edges_of(iter::once(root), |_| brings);
    }
    if ends.in_place {
        edges.to.clear();
        edges.from.retain(|edge| edge.rank != ends.rank);
    }
    exchange(ends, Arc::new(edges), bytes)
}

/// The part of a rank, among the elements that this rank gets.
fn part_of(ends: &Ends, gets: Elements, rank: usize) -> Elements {
    let (at, count) = ends.parts.of(rank);
    gets.part(at, count)
}

fn edges_of(ranks: impl Iterator<Item = usize>, of: impl Fn(usize) -> Elements) -> Vec<Edge> {
    ranks.map(|rank| Edge { rank, elements: of(rank) }).collect()
}

fn exchange(ends: &Ends, edges: Arc<Edges>, bytes: usize) -> Plan {
    // The codec fills them.
    let parcels = Parcels { most: bytes, parties: Parties::Any, to: Vec::new(), from: Vec::new() };
    Plan {
        pattern: Pattern::Exchange(Arc::new(parcels)),
        bytes,
        source: Source::Edges(edges, ends.rank),
        sink: Sink::Nothing,
    }
}

#[cfg(test)]
mod tests;

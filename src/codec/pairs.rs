//! Exchanges by pairs of ranks: short data become parcels of the group's, long ones messages of the real MPI.
//!
//! Both ends of a pair know its bytes, and nobody else does. So a pair is long or short by its own bytes alone.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;

use super::SUCCESS;
use super::finish::deliver;
use super::staging::packed;
use crate::call::Elements;
use crate::engine::{Parcel, Parcels};
use crate::gate::exchange::{Edge, Edges};
use crate::mpi::Mpi;
use crate::mpi::messages::{Buffer, Messages};
use crate::mpi::pmpi::Handle;
use crate::plan::Piece;
use crate::wire::Parties;

/// An exchange of one rank, besides its parcels.
#[derive(Default)]
pub struct Exchange {
    /// Data of long pairs, to and from these ranks.
    to: Vec<(usize, Buffer)>,
    from: Vec<(usize, Buffer)>,
    /// Elements that a parcel does not come straight to, and the place of their bytes.
    deliveries: Vec<(*const u8, Elements)>,
    messages: Messages,
    /// The MPI's first return value that says that something went wrong.
    trouble: c_int,
    /// Datatypes of our own, see [`Exchange::keep_types`].
    type_copies: Vec<Handle>,
    /// Packed data.
    _staging: Vec<Vec<u8>>,
}

// SAFETY: the pointers are to memory of its own, and to the program's buffers, which are promised
// (`crate::mpi`) until the exchange is over.
unsafe impl Send for Exchange {}

/// The edges between this rank and another, in order, and their bytes.
struct Pair<'a> {
    rank: usize,
    edges: &'a [Edge],
    bytes: usize,
}

impl Pair<'_> {
    /// Its first edge alone.
    fn first(&self) -> Self {
        Self { edges: &self.edges[..1], ..*self }
    }

    /// The elements, if they lie as a parcel does.
    fn straight(&self) -> Option<&Elements> {
        match self.edges {
            [Edge { elements, .. }] if elements.shape.contiguous => Some(elements),
            _ => None,
        }
    }
}

/// The pairs of some edges that have data; edges are sorted by rank. A vector goes to a rank once, by however many edges.
fn pairs(edges: &[Edge], are_vectors: bool) -> impl Iterator<Item = Pair<'_>> {
    let bytes = move |edges: &'_ [Edge]| {
        let taken = if are_vectors { 1 } else { edges.len() };
        edges[..taken].iter().map(|edge| edge.elements.bytes()).sum()
    };
    edges.chunk_by(|one, other| one.rank == other.rank).filter_map(move |edges| {
        let pair = Pair { rank: edges[0].rank, edges, bytes: bytes(edges) };
        (pair.bytes > 0).then_some(pair)
    })
}

fn by_rank(edges: &[Edge]) -> Vec<Edge> {
    let mut sorted = edges.to_vec();
    // Stable: edges between two ranks stay in their order.
    sorted.sort_by_key(|edge| edge.rank);
    sorted
}

/// Lays an exchange out: pairs of up to `most` bytes are short. Data of this rank for itself are copied at once.
///
/// # Safety
/// *Buffers* of the [program](crate::mpi), until the exchange is over.
pub unsafe fn lay_out(
    mpi: &Mpi,
    edges: &Edges,
    (rank, most): (usize, usize),
) -> (Arc<Parcels>, Exchange) {
    let mut exchange = Exchange::default();
    let mut parcels = Parcels { most, parties: edges.parties, to: Vec::new(), from: Vec::new() };
    let (to, from) = (by_rank(&edges.to), by_rank(&edges.from));
    let are_vectors = edges.parties == Parties::Vectors;
    // SAFETY: as demanded of this function.
    unsafe {
        for pair in pairs(&to, are_vectors).filter(|pair| pair.rank != rank) {
            if pair.bytes <= most {
                let before = parcels.to.first().filter(|_| are_vectors);
                let parcel = match before {
                    Some(before) => Parcel { peer: pair.rank, ..*before },
                    None if are_vectors => exchange.outgoing(mpi, &pair.first(), false),
                    None => exchange.outgoing(mpi, &pair, edges.in_place),
                };
                parcels.to.push(parcel);
            } else {
                exchange.send_apart(mpi, &pair, edges.in_place);
            }
        }
        for pair in pairs(&from, are_vectors).filter(|pair| pair.rank != rank) {
            if pair.bytes <= most {
                parcels.from.push(exchange.incoming(&pair, are_vectors));
            } else {
                exchange.from.extend(pair.edges.iter().filter_map(buffer));
            }
        }
        if !edges.in_place {
            exchange.keep_own(mpi, &of_rank(&to, rank), &of_rank(&from, rank));
        }
    }
    (Arc::new(parcels), exchange)
}

fn of_rank(edges: &[Edge], rank: usize) -> Vec<Elements> {
    edges.iter().filter(|edge| edge.rank == rank).map(|edge| edge.elements).collect()
}

/// An edge with data, as a message of its own.
fn buffer(edge: &Edge) -> Option<(usize, Buffer)> {
    let Elements { data, count, datatype, .. } = edge.elements;
    (edge.elements.bytes() > 0).then_some((edge.rank, Buffer { data, count, datatype }))
}

impl Exchange {
    /// # Safety
    /// As [`lay_out`].
    unsafe fn outgoing(&mut self, mpi: &Mpi, pair: &Pair<'_>, in_place: bool) -> Parcel {
        let (peer, bytes) = (pair.rank, pair.bytes);
        let data = match pair.straight() {
            Some(elements) if !in_place => elements.data.cast(),
            // SAFETY: as demanded of this function.
            _ => unsafe { self.pack(mpi, pair.edges) },
        };
        Parcel { peer, data, bytes }
    }

    fn incoming(&mut self, pair: &Pair<'_>, is_vector: bool) -> Parcel {
        let (peer, bytes) = (pair.rank, pair.bytes);
        if let Some(elements) = pair.straight() {
            return Parcel { peer, data: elements.data.cast(), bytes };
        }
        let data = self.stage(vec![0; bytes]);
        let mut at = 0;
        for Edge { elements, .. } in pair.edges {
            self.deliveries.push((data.wrapping_add(at).cast_const(), *elements));
            // All edges get the vector.
            at += if is_vector { 0 } else { elements.bytes() };
        }
        Parcel { peer, data, bytes }
    }

    /// Sends the edges of a long pair by messages, one after the other, as the other end receives them.
    ///
    /// # Safety
    /// As [`lay_out`].
    unsafe fn send_apart(&mut self, mpi: &Mpi, pair: &Pair<'_>, in_place: bool) {
        for edge in pair.edges {
            let sent = buffer(edge).map(|(rank, buffer)| {
                if !in_place {
                    return (rank, buffer);
                }
                let count = edge.elements.bytes();
                // SAFETY: as demanded of this function.
                let data = unsafe { self.pack(mpi, std::slice::from_ref(edge)) };
                (rank, Buffer { data: data.cast(), count, datatype: mpi.abi.byte })
            });
            self.to.extend(sent);
        }
    }

    /// Copies what this rank sends itself.
    ///
    /// # Safety
    /// As [`lay_out`].
    unsafe fn keep_own(&mut self, mpi: &Mpi, to: &[Elements], from: &[Elements]) {
        let mut sent = Vec::new();
        for elements in to {
            // SAFETY: a buffer of the program's, for reading.
            let (bytes, code) = unsafe { packed(mpi, elements, elements.bytes()) };
            self.note(code);
            sent.extend(bytes);
        }
        let mut at = 0;
        for elements in from {
            let end = (at + elements.bytes()).min(sent.len());
            let piece = Piece { bytes: at..end, at: 0, count: elements.count };
            // SAFETY: `sent` has the piece; a buffer of the program's, for writing.
            let code = unsafe { deliver(&piece, sent.as_ptr(), elements, mpi) };
            self.note(code);
            at = end;
        }
        if at < sent.len() {
            self.note(mpi.truncated());
        }
    }

    /// Packs edges, one after the other.
    ///
    /// # Safety
    /// As [`lay_out`].
    unsafe fn pack(&mut self, mpi: &Mpi, edges: &[Edge]) -> *mut u8 {
        let mut all = Vec::new();
        for Edge { elements, .. } in edges {
            // SAFETY: a buffer of the program's, for reading.
            let (bytes, code) = unsafe { packed(mpi, elements, elements.bytes()) };
            self.note(code);
            all.extend(bytes);
        }
        self.stage(all)
    }

    /// Keeps memory until the exchange is over.
    fn stage(&mut self, mut bytes: Vec<u8>) -> *mut u8 {
        let data = bytes.as_mut_ptr();
        self._staging.push(bytes);
        data
    }

    fn note(&mut self, code: c_int) {
        if self.trouble == SUCCESS {
            self.trouble = code;
        }
    }

    /// Begins the messages of long pairs, on a communicator of the same ranks.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi), until [`Exchange::end`].
    pub unsafe fn begin(&mut self, mpi: &Mpi, comm: Handle) {
        let messages = &mut self.messages;
        // SAFETY: as demanded of this function.
        unsafe {
            for (rank, buffer) in &self.from {
                mpi.receive_from(comm, *rank, *buffer, messages);
            }
            for (rank, buffer) in &self.to {
                mpi.send_to(comm, *rank, *buffer, messages);
            }
        }
    }

    /// Whether the messages are over.
    pub fn are_messages_over(&mut self, mpi: &Mpi) -> bool {
        mpi.are_over(&mut self.messages)
    }

    /// For a call that returns before [`Exchange::end`]: the program may free its datatypes meanwhile.
    pub fn keep_types(&mut self, mpi: &Mpi) {
        for (_, elements) in &mut self.deliveries {
            if !elements.shape.contiguous
                && let Some(copy) = mpi.copy_type(elements.datatype)
            {
                elements.datatype = copy;
                self.type_copies.push(copy);
            }
        }
    }

    /// Waits for the messages, and delivers the parcels that have come. Returns MPI's return value.
    ///
    /// # Safety
    /// The job is over; *buffers* of the [program](crate::mpi), still.
    pub unsafe fn end(self, mpi: &Mpi) -> c_int {
        let came = mpi.end_messages(self.messages);
        let mut code = if self.trouble == SUCCESS { came } else { self.trouble };
        for (from, elements) in &self.deliveries {
            let piece = Piece { bytes: 0..elements.bytes(), at: 0, count: elements.count };
            // SAFETY: as many bytes have come; a buffer of the program's, for writing.
            let delivered = unsafe { deliver(&piece, *from, elements, mpi) };
            code = if code == SUCCESS { delivered } else { code };
        }
        self.type_copies.iter().for_each(|copy| mpi.free_type(*copy));
        code
    }
}

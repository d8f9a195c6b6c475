//! The parcels of an exchange: what a rank has for each other one, and gets from it.
#![allow(unsafe_code)]

use crate::wire::Parties;

/// The parcels of an exchange on one rank. The pointers are as [`Parcel`] says until the operation is over;
/// nobody else writes there meanwhile, nor reads what `from` names. `unsafe` code that works with them relies on that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcels {
    /// Bytes that a parcel may have at most, alike on all ranks. More of them take more of the group's sequence.
    pub most: usize,
    /// The ends, as all ranks know them alike. Vectors: the data in `to` are the same memory.
    pub parties: Parties<usize>,
    /// To others: at most one to each, by rank.
    pub to: Vec<Parcel>,
    /// From others: at most one from each, by rank. They overlap neither each other nor those in `to`.
    pub from: Vec<Parcel>,
}

/// One of them. The two ranks know its bytes, and no other rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// The other rank. If some host has several ranks, parcels on the wire are bundles, and this is the other host.
    pub peer: usize,
    /// Valid for reads of `bytes` bytes; of a parcel from another, for writes.
    pub data: *mut u8,
    /// None are as good as no parcel.
    pub bytes: usize,
}

// SAFETY: the pointers are promised to whoever works with the job, on any thread, until the operation is over.
unsafe impl Send for Parcels {}
// SAFETY: as above; a shared value gives the pointers only.
unsafe impl Sync for Parcels {}

/// The one of a member, in a list by member.
pub(super) fn parcel(of: &[Parcel], member: u8) -> Option<&Parcel> {
    of.binary_search_by_key(&usize::from(member), |parcel| parcel.peer).ok().map(|at| &of[at])
}

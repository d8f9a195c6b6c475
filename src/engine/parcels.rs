//! The parcels of an exchange: what a host sends to each other one, and gets from it.
#![allow(unsafe_code)]

use crate::wire::Hub;

/// The parcels of an exchange on one rank's host. The pointers are as [`Parcel`] says until the operation is over;
/// nobody else writes there meanwhile, nor reads what `from` names. `unsafe` code that works with them relies on that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcels {
    /// Bytes that a parcel may have at most, alike on all ranks. More of them take more of the group's sequence.
    pub most: usize,
    /// The member at one end of all parcels, alike on all ranks, if there is one. Fewer numbers do then.
    pub hub: Hub,
    /// To other hosts: at most one to each, by member.
    pub to: Vec<Parcel>,
    /// From other hosts: at most one from each, by member. They overlap neither each other nor those in `to`.
    pub from: Vec<Parcel>,
}

/// One of them. The two hosts know its bytes, and no other host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// The other host.
    pub member: u8,
    /// Valid for reads of `bytes` bytes; of a parcel from another host, for writes.
    pub data: *mut u8,
    /// None are as good as no parcel.
    pub bytes: usize,
}

// SAFETY: the pointers are promised to whoever works with the job, on any thread, until the operation is over.
unsafe impl Send for Parcels {}
// SAFETY: as above; a shared value gives the pointers only.
unsafe impl Sync for Parcels {}

/// Its place in a list by member.
pub(super) fn parcel(of: &[Parcel], member: u8) -> Option<&Parcel> {
    of.binary_search_by_key(&member, |parcel| parcel.member).ok().map(|at| &of[at])
}

//! An exchange of one rank where some host has several: what ranks of a host have for others is sent by their leader.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::operation::Raw;
use super::parcels::{Parcel, Parcels};
use crate::leaf::Leaf;
use crate::topology::Place;
use crate::topology::bundles::{self, Bundles};
use crate::wire::cells::Memory;
use crate::wire::{Kind, Mismatch, Parties, Transfer, Transport, Wire};

/// The state of such an exchange. Its parcels are as [`Parcels`] says.
pub(super) struct Bundled {
    parcels: Arc<Parcels>,
    /// Says what this rank has for others, and gets, and has the data.
    slip: Vec<u8>,
    /// Present in the leader.
    bundles: Option<Bundles>,
}

/// Parcels with data, by the other rank.
fn filled(of: &[Parcel]) -> impl Iterator<Item = &Parcel> + Clone {
    of.iter().filter(|parcel| parcel.bytes > 0)
}

impl Bundled {
    /// One that has not begun.
    ///
    /// # Safety
    /// What [`Parcels`] says, until the operation is over.
    pub(super) unsafe fn new(place: &Place, parcels: &Arc<Parcels>) -> Self {
        let data = |parcel: &Parcel| {
            // SAFETY: as demanded of this function.
            (parcel.peer, unsafe { std::slice::from_raw_parts(parcel.data, parcel.bytes) })
        };
        let bytes = |parcel: &Parcel| (parcel.peer, parcel.bytes);
        let (to, from) = (filled(&parcels.to).map(data), filled(&parcels.from).map(bytes));
        let slip = bundles::slip(place.rank, to, from);
        let leads = place.layout.hosts[place.member][0] == place.rank;
        let bundles = leads.then(|| {
            let mut bundles = Bundles::new(place, parcels.most, parcels.parties.hub());
            assert!(bundles.add(place, place.rank, &slip), "parcels beyond the limits");
            bundles
        });
        Self { parcels: Arc::clone(parcels), slip, bundles }
    }

    /// For the leader.
    pub(super) fn slip(&self) -> &[u8] {
        &self.slip
    }

    /// Whether this rank gets something.
    pub(super) fn gets(&self) -> bool {
        filled(&self.parcels.from).next().is_some()
    }

    /// The leader takes in another rank's slip. False: it is none.
    pub(super) fn add(&mut self, place: &Place, rank: usize, slip: &[u8]) -> bool {
        self.bundles.as_mut().is_some_and(|bundles| bundles.add(place, rank, slip))
    }

    /// The leader has all slips. Puts the bundles on the wire.
    pub(super) fn submit<M: Memory, F: Transport>(
        &mut self,
        place: &Place,
        wire: &mut Wire<M, F, Raw>,
    ) {
        let Some(bundles) = &mut self.bundles else { return };
        bundles.close(place.member);
        let (mut to, mut from) = (Vec::new(), Vec::new());
        for (peer, memory) in bundles.memory().enumerate().filter(|(host, _)| *host != place.member)
        {
            for (list, data) in [(&mut to, memory.0), (&mut from, memory.1)] {
                list.push(Parcel { peer, data: data.as_mut_ptr(), bytes: data.len() });
            }
        }
        let host = |rank| place.layout.place(rank).map(|(host, _)| host);
        // What is a vector of a rank's is no vector of its host's.
        let hub = self.parcels.parties.hub();
        let most = place.bundle_bytes(self.parcels.most, hub.is_some());
        let parties = hub.and_then(host).map_or(Parties::Any, Parties::Hub);
        let parcels = Parcels { most, parties, to, from };
        // SAFETY: the memory of the bundles, which is left alone until the transfer is over.
        unsafe { submit(Arc::new(parcels), wire) };
    }

    /// All bundles have come: the leader hands each rank what is for it, and takes its own.
    ///
    /// # Safety
    /// What was demanded of [`Bundled::new`], still; ranks of the leaf that get something wait for the round's end.
    pub(super) unsafe fn deliver(
        &self,
        place: &Place,
        leaf: Option<&Leaf>,
    ) -> Result<(), Mismatch> {
        let Some(bundles) = &self.bundles else { return Ok(()) };
        let mut own = Vec::new();
        let ranks = &place.layout.hosts[place.member];
        bundles.deliver(|rank, at, data| {
            if rank == place.rank {
                own.resize(own.len().max(at + data.len()), 0);
                own[at..at + data.len()].copy_from_slice(data);
            } else if let (Some(leaf), Ok(local)) = (leaf, ranks.binary_search(&rank)) {
                // SAFETY: the rank waits for the end of the round.
                unsafe { leaf.deliver(local, at, data) };
            }
        });
        // SAFETY: as demanded of this function.
        if self.gets() { unsafe { self.take(&own) } } else { Ok(()) }
    }

    /// Takes this rank's parcels from what its leader has handed it.
    ///
    /// # Safety
    /// What was demanded of [`Bundled::new`], still.
    pub(super) unsafe fn take(&self, delivery: &[u8]) -> Result<(), Mismatch> {
        let expected = || filled(&self.parcels.from);
        let came = bundles::parcels(delivery, expected().map(|parcel| parcel.bytes));
        let came = came.ok_or(Mismatch::OutOfStep)?;
        if came.is_empty() {
            let here = expected().map(|parcel| parcel.bytes as u64).sum();
            return Err(Mismatch::Length { here, elsewhere: here });
        }
        for (parcel, data) in expected().zip(came) {
            // SAFETY: as many bytes as the parcel has, from memory that is no parcel's.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), parcel.data, data.len()) };
        }
        Ok(())
    }
}

/// Puts parcels between hosts on the wire.
///
/// # Safety
/// What [`Parcels`] says, until the transfer is over, or nobody polls the wire any more.
pub(super) unsafe fn submit<M: Memory, F: Transport>(
    parcels: Arc<Parcels>,
    wire: &mut Wire<M, F, Raw>,
) {
    let kind = Kind::Exchange(parcels.parties.map(|hub| hub as u8));
    let transfer = Transfer::new(kind, parcels.most);
    // SAFETY: as demanded of this function.
    wire.submit(transfer, unsafe { Raw::exchange(parcels) });
}

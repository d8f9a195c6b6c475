//! Persistent collectives (`MPI_Allreduce_init`, …; MPI-4.1 section 6.13).
//!
//! Ranks may start them in different orders (MPI_Startall starts in any), while what goes on in a group
//! is ordered alike on all its members. So each has a group of its own, made in the call that
//! initialises it, which may wait for the other ranks. Its request is a persistent receive from this
//! process itself, see [`super`].
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::work::Work;
use super::{Open, Requests, Tag};
use crate::call::{Call, Message, Side};
use crate::collectives::judge;
use crate::comm::{Communicator, GroupSlot};
use crate::gate::{Admitted, Ends};
use crate::leaf::quantize::Lender;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::plan::Case;

/// A collective that may be started.
pub struct Persistent {
    /// The call, with datatypes and arrays of our own.
    pub call: Call,
    /// The decision on it that needs no group.
    admitted: Admitted,
    /// Its ends on this rank.
    ends: Ends,
    pub work: Work,
    /// Memory for sums that are quantized.
    pub memory: Lender,
    /// Its message, for the statistics.
    pub message: Message,
    /// The group that it folds in, perhaps of its own.
    pub group: Arc<GroupSlot>,
    /// The communicator that it was made on.
    home: Arc<Communicator>,
    tag: Tag,
    /// Datatypes of `call`.
    types: Vec<Handle>,
    /// Arrays of `call`, which points at them.
    _arrays: Vec<[Vec<i64>; 2]>,
}

// SAFETY: the pointers are to buffers of the program's, promised (`crate::mpi`) while it is active.
unsafe impl Send for Persistent {}
// SAFETY: the pointers are to buffers of the program's, promised (`crate::mpi`) while it is active.
unsafe impl Sync for Persistent {}

impl Persistent {
    /// The call whose arguments are right.
    pub fn case(&self) -> Case<'_> {
        Case { call: &self.call, admitted: &self.admitted, ends: &self.ends }
    }
}

/// All of a process, by their request.
#[derive(Default)]
pub struct Table {
    by_request: Mutex<HashMap<u64, Arc<Persistent>>>,
    /// Length of `by_request`.
    count: AtomicUsize,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Persistent>>> {
        self.by_request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is any.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The one of a request.
    pub fn get(&self, request: u64) -> Option<Arc<Persistent>> {
        self.lock().get(&request).cloned()
    }

    /// Takes all, at the end.
    pub fn drain(&self) -> Vec<Arc<GroupSlot>> {
        let all =
            self.lock().drain().map(|(_, persistent)| Arc::clone(&persistent.group)).collect();
        self.count.store(0, Ordering::Relaxed);
        all
    }
}

impl Requests {
    /// Makes the request of a persistent collective, inactive, where the program wants it.
    ///
    /// # Safety
    /// *Arguments* of the [program](crate::mpi).
    pub unsafe fn add_persistent(
        &self,
        mpi: &Mpi,
        (mut call, place): (Call, (usize, usize)),
        (admitted, work, message): (Admitted, Work, Message),
        (group, home): (Arc<GroupSlot>, Arc<Communicator>),
        request: *mut c_void,
    ) {
        let (mut types, mut arrays) = (Vec::new(), Vec::new());
        let mut own = |side: &mut Side| {
            // The program may free its datatypes as soon as this returns; mpi4py lets go of its arrays too.
            if let Some(counts) = &mut side.counts {
                // SAFETY: arguments of the program's: both arrays have an element for each rank.
                let (copy, array) = unsafe { counts.copy(place.1) };
                *counts = copy;
                arrays.push(array);
            }
            if mpi.abi.datatype(side.datatype).is_none()
                && let Some(copy) = mpi.copy_type(side.datatype)
            {
                side.datatype = copy;
                types.push(copy);
            }
        };
        let (send, recv) = call.significant(place.0, mpi.abi.in_place);
        // The edges of an exchange have all that is in its arrays.
        let is_exchange = work.is_exchange();
        if send && !is_exchange {
            own(&mut call.send);
        }
        if recv && !is_exchange {
            own(&mut call.recv);
        }
        // SAFETY: arguments of the program's, with copies of those that it may free.
        let judged = unsafe { judge(mpi, &call, admitted.shape(), place) };
        let Ok(mut ends) = judged else { super::no_request(mpi) };
        if let Some(edges) = &mut ends.edges {
            *edges = Arc::new(edges.with_types(|datatype| {
                if mpi.abi.datatype(datatype).is_some() {
                    return datatype;
                }
                let copy = mpi.copy_type(datatype);
                types.extend(copy);
                copy.unwrap_or(datatype)
            }));
        }
        let tag = self.take_tag(mpi);
        // SAFETY: nothing is received; the program's request, of the width of this MPI's handles.
        let made = unsafe {
            let (nothing, byte) = (std::ptr::null_mut(), mpi.abi.byte);
            (mpi.pmpi.recv_init)(nothing, 0, byte, 0, tag.tag, tag.comm, request.cast()) == 0
        };
        if !made {
            super::no_request(mpi);
        }
        // SAFETY: just written.
        let handle = unsafe { mpi.abi.request_at(request, 0) };
        let (memory, _arrays) = (Lender::default(), arrays);
        let persistent = Persistent {
            call,
            admitted,
            ends,
            work,
            memory,
            message,
            group,
            home,
            tag,
            types,
            _arrays,
        };
        let mut table = self.persistent.lock();
        table.insert(handle, Arc::new(persistent));
        self.persistent.count.store(table.len(), Ordering::Relaxed);
    }

    /// The program frees a request: if it is a persistent collective's, returns its group, and whose that
    /// is.
    pub fn free_persistent(
        &self,
        mpi: &Mpi,
        request: u64,
    ) -> Option<(Arc<GroupSlot>, Arc<Communicator>)> {
        let mut table = self.persistent.lock();
        let persistent = table.remove(&request)?;
        self.persistent.count.store(table.len(), Ordering::Relaxed);
        drop(table);
        self.open_ones().tags.give_back(persistent.tag);
        persistent.types.iter().for_each(|copy| mpi.free_type(*copy));
        Some((Arc::clone(&persistent.group), Arc::clone(&persistent.home)))
    }
}

impl Persistent {
    /// Its request, once started.
    pub fn open(&self, handle: u64) -> Open {
        Open { tag: self.tag, handle, persistent: true }
    }
}

//! Driving the real MPI's progress while foldback waits.
//!
//! An MPI moves messages when it is asked for something that has not happened. foldback asks about a receive from this
//! process itself to which nothing is sent. A probe would need a communicator of all ranks, made by a collective in
//! MPI_Init: MPICH does not move the network's messages when it probes one of this process alone.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::Mpi;
use super::pmpi::Handle;

/// The receive to which nothing is sent, until MPI ends.
#[derive(Default)]
pub(super) struct Never {
    made: OnceLock<Option<Receive>>,
    /// MPI has ended. Held while the receive is asked about.
    is_over: Mutex<bool>,
}

#[derive(Clone, Copy)]
struct Receive {
    request: u64,
    /// A communicator of its own.
    comm: Handle,
}

impl Mpi {
    /// Lets the MPI make progress: messages posted earlier go on while we wait for something else.
    pub fn progress(&self) {
        let Some(receive) = *self.never.made.get_or_init(|| self.receive_nothing()) else { return };
        // Another thread is at it, or MPI has ended.
        let Ok(is_over) = self.never.is_over.try_lock() else { return };
        if *is_over {
            return;
        }
        let mut flag: c_int = 0;
        let status = self.abi.status_ignore as *mut c_void;
        // SAFETY: a live request of our own; one int is written, the status is ignored.
        unsafe { (self.pmpi.request_get_status)(receive.request as Handle, &raw mut flag, status) };
    }

    fn receive_nothing(&self) -> Option<Receive> {
        let comm = self.another_private_self()?;
        let (byte, mut request) = (self.abi.byte, 0u64);
        // SAFETY: nothing is received; one handle is written, of 4 or 8 bytes.
        let code = unsafe { (self.pmpi.irecv)(null_mut(), 0, byte, 0, 0, comm, &raw mut request) };
        (code == 0).then_some(Receive { request, comm })
    }

    /// Leaves no request behind. There is no progress to drive after that.
    pub fn end_progress(&self) {
        let mut is_over = self.never.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let made = self.never.made.get().copied().flatten();
        if let (Some(Receive { mut request, comm }), false) = (made, *is_over) {
            let (byte, status) = (self.abi.byte, self.abi.status_ignore as *mut c_void);
            // SAFETY: a message of no bytes to this process, and the request that receives it.
            unsafe {
                (self.pmpi.send)(std::ptr::null(), 0, byte, 0, 0, comm);
                (self.pmpi.wait)(&raw mut request, status);
            }
        }
        *is_over = true;
    }
}

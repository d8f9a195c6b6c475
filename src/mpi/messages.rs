//! Messages between two ranks by the real MPI, on communicators that nobody else knows.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::pmpi::{Handle, Optional};
use super::{FAILED, Mpi};

/// The one tag of these messages: between two ranks they come in the order in which they were sent.
const TAG: c_int = 0;

/// Elements in a buffer of the program's, as the MPI takes them.
#[derive(Clone, Copy)]
pub struct Buffer {
    pub data: *mut c_void,
    pub count: usize,
    pub datatype: Handle,
}

/// A communicator of some ranks that nobody else knows, freed with its group, before MPI_Finalize.
pub struct PrivateComm {
    pub comm: Handle,
    free: unsafe extern "C-unwind" fn(*mut u64) -> c_int,
}

impl Drop for PrivateComm {
    fn drop(&mut self) {
        let mut comm = self.comm as u64;
        // SAFETY: a communicator of our own, of which no message is under way.
        unsafe { (self.free)(&raw mut comm) };
    }
}

/// Sends or receives that have begun.
#[derive(Default)]
pub struct Messages {
    requests: Vec<u64>,
    /// The first answer of the MPI that says that it refused one, or that one failed.
    trouble: c_int,
}

/// `MPI_Isend` and `MPI_Irecv`, with counts that fit an int, and with others.
type Begin = unsafe extern "C-unwind" fn(
    *mut c_void,
    c_int,
    Handle,
    c_int,
    c_int,
    Handle,
    *mut u64,
) -> c_int;
type BeginLarge =
    unsafe extern "C-unwind" fn(*mut c_void, i64, Handle, c_int, c_int, Handle, *mut u64) -> c_int;

static ISEND_LARGE: Optional<BeginLarge> =
    // SAFETY: the type that the standard gives it.
    unsafe { Optional::new(c"PMPI_Isend_c") };
static IRECV_LARGE: Optional<BeginLarge> =
    // SAFETY: the type that the standard gives it.
    unsafe { Optional::new(c"PMPI_Irecv_c") };

impl Mpi {
    /// A communicator of the same ranks that nobody else knows, and that returns errors. Collective. Not a duplicate,
    /// for which the MPI would call the program's attribute functions.
    pub fn private_of(&self, comm: Handle, rank: usize) -> Option<PrivateComm> {
        let mut own: u64 = 0;
        // SAFETY: one handle is written, of 4 or 8 bytes.
        let code = unsafe { (self.pmpi.comm_split)(comm, 0, rank as c_int, &raw mut own) };
        let own = (code == 0).then_some(own as Handle)?;
        let own = PrivateComm { comm: own, free: self.pmpi.comm_free };
        // SAFETY: a live communicator.
        let code = unsafe { (self.pmpi.comm_set_errhandler)(own.comm, self.abi.errors_return) };
        (code == 0).then_some(own)
    }

    /// Whether a message may have so many elements.
    pub fn takes_count(&self, count: usize) -> bool {
        c_int::try_from(count).is_ok() || ISEND_LARGE.get().is_some() && IRECV_LARGE.get().is_some()
    }

    /// Begins to send.
    ///
    /// # Safety
    /// *Buffers* of the [program](super), for reading, until [`Mpi::end_messages`].
    pub unsafe fn send_to(&self, comm: Handle, rank: usize, from: Buffer, with: &mut Messages) {
        // SAFETY: as demanded of this function.
        unsafe { begin_message((self.pmpi.isend, &ISEND_LARGE), comm, rank, from, with) }
    }

    /// Begins to receive.
    ///
    /// # Safety
    /// *Buffers* of the [program](super), for writing, until [`Mpi::end_messages`].
    pub unsafe fn receive_from(&self, comm: Handle, rank: usize, to: Buffer, with: &mut Messages) {
        // SAFETY: as demanded of this function.
        unsafe { begin_message((self.pmpi.irecv, &IRECV_LARGE), comm, rank, to, with) }
    }

    /// Whether messages are over.
    pub fn are_over(&self, messages: &mut Messages) -> bool {
        let Messages { requests, trouble } = messages;
        requests.retain_mut(|request| {
            let (mut flag, status) = (0, self.abi.status_ignore as *mut c_void);
            // SAFETY: a live request of our own; one int is written, the status is ignored.
            let code = unsafe { (self.pmpi.test)(request, &raw mut flag, status) };
            *trouble = if *trouble == 0 { code } else { *trouble };
            code == 0 && flag == 0
        });
        requests.is_empty()
    }

    /// Waits for the end of messages. Returns what the MPI says of the first that failed.
    pub fn end_messages(&self, messages: Messages) -> c_int {
        let Messages { requests, mut trouble } = messages;
        for mut request in requests {
            let status = self.abi.status_ignore as *mut c_void;
            // SAFETY: a live request of our own; the status is ignored.
            let code = unsafe { (self.pmpi.wait)(&raw mut request, status) };
            trouble = if trouble == 0 { code } else { trouble };
        }
        trouble
    }
}

/// # Safety
/// *Buffers* of the [program](super), until [`Mpi::end_messages`].
unsafe fn begin_message(
    (plain, large): (Begin, &Optional<BeginLarge>),
    comm: Handle,
    rank: usize,
    buffer: Buffer,
    messages: &mut Messages,
) {
    let Buffer { data, count, datatype } = buffer;
    let (mut request, rank) = (0u64, rank as c_int);
    // SAFETY: as demanded of this function; one handle is written, of 4 or 8 bytes.
    let code = unsafe {
        match (c_int::try_from(count), large.get()) {
            (Ok(count), _) => plain(data, count, datatype, rank, TAG, comm, &raw mut request),
            (Err(_), Some(large)) => {
                large(data, count as i64, datatype, rank, TAG, comm, &raw mut request)
            }
            (Err(_), None) => FAILED,
        }
    };
    if code == 0 {
        messages.requests.push(request);
    } else if messages.trouble == 0 {
        messages.trouble = code;
    }
}

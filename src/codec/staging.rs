//! Between the program's buffers and the group: contributions are packed, or made keys; results are put
//! into their place.
//!
//! Nothing here can make a rank leave the others. An error is kept, and becomes the call's return
//! value. The rank takes part with zeros in place of missing data.
#![allow(unsafe_code)]

use std::ffi::c_int;

use super::SUCCESS;
use super::finish::deliver_result;
use super::keys;
use super::pairs::{self, Exchange};
use crate::call::Elements;
use crate::engine::{Job, Pattern};
use crate::gate::exchange::Edges;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::plan::{Finish, Plan, Sink, Source};
use crate::wire::Mismatch;

/// State of a folded call besides its job.
pub struct Prepared {
    finish: Finish,
    /// The place of the group's data.
    from: *const u8,
    /// MPI's return value, if nothing else goes wrong.
    trouble: c_int,
    /// A datatype of our own, see [`Prepared::keep_type`].
    type_copy: Option<Handle>,
    /// The rest of an exchange.
    exchange: Option<Box<Exchange>>,
    /// Memory that the job and this point to.
    _staging: [Vec<u8>; 2],
}

// SAFETY: the pointers are to memory of its own, and to the program's buffers, which are promised
// (`crate::mpi`) until the collective is over.
unsafe impl Send for Prepared {}

/// Makes the job of a plan.
///
/// # Safety
/// *Buffers* of the [program](crate::mpi), as in the plan, until [`Prepared::end`].
pub unsafe fn prepare(mpi: &Mpi, plan: Plan) -> (Job, Prepared) {
    let Plan { pattern, bytes, source, sink } = plan;
    let (mut brought, mut came, mut trouble) = (Vec::new(), Vec::new(), SUCCESS);
    let brings = !matches!(source, Source::Nothing);
    let mut send: *const u8 = match source {
        Source::Nothing => std::ptr::null(),
        // SAFETY: buffers of the plan's.
        Source::Edges(edges, rank) => return unsafe { exchange(mpi, &edges, (rank, bytes)) },
        Source::Elements(elements) if elements.shape.contiguous && elements.bytes() == bytes => {
            elements.data.cast_const().cast()
        }
        Source::Elements(elements) => {
            // SAFETY: a buffer of the plan's.
            (brought, trouble) = unsafe { packed(mpi, &elements, bytes) };
            brought.as_ptr()
        }
        Source::Keys(elements, how) => {
            // SAFETY: a buffer of that many bytes.
            let elements = unsafe { std::slice::from_raw_parts(elements.cast(), bytes) };
            brought = keys::keys(elements, how);
            brought.as_ptr()
        }
    };
    let (recv, from, finish) = match sink {
        Sink::Nothing => (std::ptr::null_mut(), std::ptr::null(), Finish::Done),
        Sink::Straight(to) => (to.cast(), std::ptr::null(), Finish::Done),
        Sink::OverKeys(finish) => {
            let keys = brought.as_mut_ptr();
            send = keys;
            (keys, keys.cast_const(), finish)
        }
        Sink::Own(finish) => (std::ptr::null_mut(), send, finish),
        Sink::Staged(bytes, finish) => {
            came = vec![0; bytes];
            (came.as_mut_ptr(), came.as_ptr(), finish)
        }
    };
    if !brings {
        send = recv;
    }
    let _staging = [brought, came];
    let prepared = Prepared { finish, from, trouble, type_copy: None, exchange: None, _staging };
    (Job { pattern, bytes, send, recv }, prepared)
}

/// Makes the job of an exchange of this rank, in which pairs of up to so many bytes are short.
///
/// # Safety
/// As [`prepare`].
#[cold]
unsafe fn exchange(mpi: &Mpi, edges: &Edges, (rank, most): (usize, usize)) -> (Job, Prepared) {
    // SAFETY: as demanded of this function.
    let (parcels, exchange) = unsafe { pairs::lay_out(mpi, edges, (rank, most)) };
    let (send, recv) = (std::ptr::null(), std::ptr::null_mut());
    let job = Job { pattern: Pattern::Exchange(parcels), bytes: most, send, recv };
    (job, Prepared { exchange: Some(Box::new(exchange)), ..Prepared::script() })
}

/// `bytes` bytes of elements, and MPI's return value: the elements may have been more, or less, or
/// none that the MPI can pack.
///
/// # Safety
/// *Buffers* of the [program](crate::mpi).
pub(super) unsafe fn packed(mpi: &Mpi, elements: &Elements, bytes: usize) -> (Vec<u8>, c_int) {
    let &Elements { data, count, datatype, shape } = elements;
    let own = elements.bytes();
    // SAFETY: the program's buffer, count and type.
    let packed = unsafe {
        if own == 0 {
            Ok(Vec::new())
        } else if shape.contiguous {
            Ok(std::slice::from_raw_parts(data.cast_const().cast(), own).to_vec())
        } else {
            mpi.pack(data, count, datatype, own)
        }
    };
    let trouble = match &packed {
        Err(code) => *code,
        Ok(_) if own > bytes => mpi.truncated(),
        Ok(_) => SUCCESS,
    };
    let mut packed = packed.unwrap_or_default();
    packed.resize(bytes, 0);
    (packed, trouble)
}

/// Logs a mismatch. Returns the value that MPI is to return for the outcome of a job.
pub fn report_mismatch(mpi: &Mpi, outcome: Result<(), Mismatch>) -> c_int {
    match outcome {
        Ok(()) => SUCCESS,
        Err(mismatch) => {
            log::error!("{mismatch}");
            mpi.truncated()
        }
    }
}

impl Prepared {
    /// State of a call that a script ends.
    pub fn script() -> Self {
        let (from, finish, _staging) = (std::ptr::null(), Finish::Done, [Vec::new(), Vec::new()]);
        Self { finish, from, trouble: SUCCESS, type_copy: None, exchange: None, _staging }
    }

    /// Begins the messages that an exchange has besides its parcels, on a communicator that nobody else knows.
    ///
    /// # Safety
    /// As [`prepare`].
    pub unsafe fn begin_messages(&mut self, mpi: &Mpi, comm: Handle) {
        if let Some(exchange) = &mut self.exchange {
            // SAFETY: as demanded of this function.
            unsafe { exchange.begin(mpi, comm) };
        }
    }

    /// Whether nothing but the group's part may be under way still.
    pub fn are_messages_over(&mut self, mpi: &Mpi) -> bool {
        self.exchange.as_mut().is_none_or(|exchange| exchange.are_messages_over(mpi))
    }

    /// Does the rest, once the operation is over, in whatever way. Returns MPI's return value.
    ///
    /// # Safety
    /// The job is over, or was never begun; *buffers* of the [program](crate::mpi), still.
    pub unsafe fn end(self, mpi: &Mpi, outcome: Result<(), Mismatch>) -> c_int {
        let mut code = report_mismatch(mpi, outcome);
        if code == SUCCESS {
            // SAFETY: what comes has come, and the buffers are there.
            code = unsafe { deliver_result(&self.finish, self.from, mpi) };
        }
        if let Some(exchange) = self.exchange {
            // SAFETY: as demanded of this function.
            let ended = unsafe { exchange.end(mpi) };
            code = if code == SUCCESS { ended } else { code };
        }
        if let Some(copy) = self.type_copy {
            mpi.free_type(copy);
        }
        if code == SUCCESS { self.trouble } else { code }
    }

    /// For a call that returns before [`Prepared::end`]: the program may free its datatype
    /// meanwhile.
    pub fn keep_type(&mut self, mpi: &Mpi) {
        if let Some(exchange) = &mut self.exchange {
            exchange.keep_types(mpi);
        }
        if let Finish::Deliver { to, .. } = &mut self.finish
            && !to.shape.contiguous
            && let Some(copy) = mpi.copy_type(to.datatype)
        {
            to.datatype = copy;
            self.type_copy = Some(copy);
        }
    }
}

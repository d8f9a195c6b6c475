//! The call at whose end the ranks of a communicator meet.

use std::sync::Arc;

use super::After;
use crate::call::{Call, Side};
use crate::codec::SUCCESS;
use crate::collectives::Meets;
use crate::comm::Communicator;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::process::Process;

/// Ranks are about to meet.
pub struct Meeting {
    process: &'static Process,
    comm: Handle,
    communicator: Arc<Communicator>,
}

impl Meeting {
    /// The real MPI has done the call, and returned `code`.
    pub(super) fn begin(self, code: i32) {
        if code == SUCCESS {
            self.process.meet(self.comm, &self.communicator);
        }
    }
}

/// The meeting at the end of a call that blocks, if there is to be one, where not all ranks have met: on all ranks
/// alike, whatever their settings.
#[cold]
pub(super) fn expected(process: &'static Process, call: &Call) -> Option<Box<After>> {
    if !process.is_running() || !is_of_all_by_all(&process.mpi, call) {
        return None;
    }
    let comm = process.mpi.abi.handle(call.comm);
    let communicator = process.communicator(comm)?;
    if communicator.is_met()
        || communicator.unless_declined().is_err()
        || communicator.alike().is_some()
    {
        return None;
    }
    Some(Box::new(After::Meet(Meeting { process, comm, communicator })))
}

/// Whether no rank can complete a call before all have begun it.
fn is_of_all_by_all(mpi: &Mpi, call: &Call) -> bool {
    let has_some = |side: &Side| {
        let datatype = mpi.abi.datatype(side.datatype);
        let size = || mpi.shape_of_derived(side.datatype).map_or(0, |shape| shape.size);
        side.count > 0 && datatype.map_or_else(size, |datatype| datatype.size.into()) > 0
    };
    match call.collective.meets() {
        Meets::Always => true,
        Meets::WithData => has_some(&call.recv),
        Meets::Never => false,
    }
}

//! Communicators that the program makes with a topology. Neighbours exchange on them, mostly without blocking, and such
//! calls must not wait for the other ranks. All ranks are there when it is made.

use super::Process;
use crate::comm::When;
use crate::config::{Config, Policy};
use crate::mpi::pmpi::Handle;

impl Process {
    /// The MPI has just made `comm`, if it is not MPI_COMM_NULL. Gives it a group, and that a communicator for messages,
    /// in a job that is to fold from its first call on. Collective.
    pub fn give_group(&self, comm: Handle) {
        let comm = self.mpi.abi.handle(comm);
        let shared = &Config::or_default(&self.config).shared;
        // The rest is alike on all ranks once they are known to be alike.
        let may_fold = self.is_running()
            && self.communicators.alike().is_some()
            && shared.policy != Policy::Mpi
            && shared.setup_calls == 0
            && comm != self.mpi.abi.comm_null;
        // One function of the MPI may call another, from Fortran to C: then it is known.
        if !may_fold || self.communicators.get(comm).is_some() {
            return;
        }
        let Some(communicator) = self.communicator(comm) else { return };
        if communicator.unless_declined().is_err() {
            return;
        }
        let context = self.context();
        let group = self.communicators.group_for(&context, comm, &communicator, When::Due);
        // Without one, calls are counted.
        let Ok(folding) = group else { return };
        let has_pairs = folding.group.engine.place.parcel_bytes(false).is_some();
        let wants_private = has_pairs && folding.private.is_none();
        *communicator.folding() = Some(folding);
        if wants_private {
            let (rank, slot) = (communicator.rank, communicator.slot());
            // Without one, exchanges that do not block go to the MPI, on all ranks alike.
            drop(self.communicators.with_private(&self.mpi, (comm, rank), slot));
        }
    }
}

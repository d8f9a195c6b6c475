//! The beginning of MPI: MPI_COMM_WORLD gets its group.

use std::sync::atomic::Ordering;

use log::Level;

use super::before::Before;
use super::{Process, Running};
use crate::comm::Communicator;
use crate::config::{Config, settings};
use crate::logging;
use crate::route::Reason;
use crate::setup::{NoGroup, roll_call};

impl Process {
    /// The real MPI has just been initialised: sets COMM_WORLD's group up. Collective.
    pub fn started(&self) {
        // A function of Fortran may have called that of C.
        if self.is_started.swap(true, Ordering::Relaxed) {
            return;
        }
        self.mpi.abi.learn_types(&self.mpi.pmpi);
        let world = self.mpi.abi.comm_world;
        let rank = self.mpi.rank(world);
        logging::set_rank(rank);
        if rank == 0 {
            let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
            settings::unknown(names).iter().for_each(|line| log::warn!("{line}"));
        }
        let defaults = Config::default();
        let patience = self.config.as_ref().unwrap_or(&defaults).setup_timeout;
        let before = match roll_call(&self.mpi, world, &Before::here(), patience) {
            Ok(before) => before,
            Err(why) => {
                log::warn!("everything is passed through: {why}");
                return;
            }
        };
        if before.iter().position(|one| *one != Before::default()) == Some(rank) {
            before[rank].lines().iter().for_each(|line| log::warn!("{line}"));
        }
        if before.iter().any(|one| !one.takes_as(&before[0])) {
            if rank == 0 {
                log::warn!(
                    "everything is passed through: not all ranks have the same libraries before foldback"
                );
            }
            return;
        }
        let completes = before.iter().all(Before::completes);
        let (Some(nothing), Some(_)) = (self.mpi.private_world(), self.mpi.private_self()) else {
            log::warn!("everything is passed through: no communicators of our own");
            return;
        };
        let place = (rank, self.mpi.size(world));
        let context = self.context_with(nothing);
        let (communicator, no_group) =
            match self.communicators.fold_on(&context, world, context.transport()) {
                Ok(mut folding) => {
                    if let Some(why) = folding.group.no_programs.as_ref().filter(|_| rank == 0) {
                        log::warn!("folding by ordinary sockets alone, which is slower: {why}");
                    }
                    self.tell_profile(&context, &mut folding);
                    log::info!("MPI_COMM_WORLD has a group of {} ranks", place.1);
                    (Communicator::new(place, None, Some(folding)), None)
                }
                Err(why) => {
                    if rank == 0 {
                        // Nothing is wrong with a job on one host.
                        let level = if why == NoGroup::OneHost { Level::Info } else { Level::Warn };
                        log::log!(level, "MPI_COMM_WORLD is left to MPI: {why}");
                    }
                    (Communicator::new(place, Some(Reason::NoGroup), None), Some(why.to_string()))
                }
            };
        self.communicators.add(world, communicator);
        let _ = self.running.set(Running { nothing, no_group, completes });
        if self.mpi.watch(self.mpi.abi.comm_self, super::ended).is_none() {
            log::warn!("the end of the job will go unnoticed: no attribute on MPI_COMM_SELF");
        }
    }
}

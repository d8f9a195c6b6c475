//! The beginning of MPI: MPI_COMM_WORLD gets its group.

use std::sync::atomic::Ordering;

use log::Level;

use super::before::Before;
use super::{Process, Running};
use crate::comm::Communicator;
use crate::config::settings;
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
        self.mpi.abi.learn_types();
        let world = self.mpi.abi.comm_world;
        let rank = self.mpi.rank(world);
        logging::set_rank(rank);
        if rank == 0 {
            let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
            settings::unknown(names).iter().for_each(|line| log::warn!("{line}"));
        }
        let answers = roll_call(&self.mpi, world, &self.config, Before::here());
        let before = match answers.and_then(Before::agree) {
            Ok(before) => before,
            Err(why) => {
                let is_known_to_all = !matches!(why, NoGroup::Untold(_));
                if rank == 0 || !is_known_to_all {
                    log::warn!("everything is passed through: {why}");
                }
                if is_known_to_all {
                    self.report_at_end(Some(why));
                }
                return;
            }
        };
        if before.iter().position(|one| *one != Before::default()) == Some(rank) {
            before[rank].lines().iter().for_each(|line| log::warn!("{line}"));
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
                        let level = if why.is_usual() { Level::Info } else { Level::Warn };
                        log::log!(level, "MPI_COMM_WORLD is left to MPI: {why}");
                    }
                    (Communicator::new(place, Some(Reason::NoGroup), None), Some(why))
                }
            };
        self.communicators.add(world, communicator);
        let _ = self.running.set(Running { nothing, completes });
        self.report_at_end(no_group);
    }

    /// Has the job reported when MPI ends; `no_group`: why MPI_COMM_WORLD has none.
    fn report_at_end(&self, no_group: Option<NoGroup>) {
        if let Some(why) = no_group {
            let _ = self.no_group.set(why.to_string());
        }
        if self.mpi.watch(self.mpi.abi.comm_self, super::ended).is_none() {
            log::warn!("the end of the job will go unnoticed: no attribute on MPI_COMM_SELF");
        }
    }
}

//! The beginning of MPI: the ranks find out whether they may fold.

use std::sync::atomic::Ordering;

use log::Level;
use serde::{Deserialize, Serialize};

use super::before::Before;
use super::{Process, Running};
use crate::comm::Communicator;
use crate::config::{Config, settings};
use crate::logging;
use crate::mpi::pmpi::Handle;
use crate::route::Reason;
use crate::setup::{NoGroup, hosts, roll_call};

/// What a rank tells the others in the roll call.
#[derive(Serialize, Deserialize)]
struct Here {
    before: Before,
    host: String,
}

impl Process {
    /// The real MPI has just been initialised. Collective.
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
        let here = Here { before: Before::here(), host: hosts::host_id() };
        let answers = roll_call(&self.mpi, world, &self.config, here);
        let answers = answers.map(|all| all.into_iter().map(|one| (one.before, one.host)).unzip());
        let agreed =
            answers.and_then(|(before, hosts): (_, Vec<_>)| Ok((Before::agree(before)?, hosts)));
        let (before, hosts) = match agreed {
            Ok(agreed) => agreed,
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
        let _ = self.running.set(Running { nothing, completes });
        self.read_profile(rank);
        let no_group = NoGroup::of_hosts(&hosts);
        match &no_group {
            Some(why) => {
                if rank == 0 {
                    let level = if why.is_usual() { Level::Info } else { Level::Warn };
                    log::log!(level, "MPI_COMM_WORLD is left to MPI: {why}");
                }
                let place = (rank, hosts.len());
                let communicator = Communicator::new(place, Some(Reason::NoGroup), None);
                self.communicators.add(world, communicator);
            }
            None => self.fold_at_once(world, nothing),
        }
        self.report_at_end(no_group);
    }

    /// Makes the group of MPI_COMM_WORLD now, if it is not to wait for calls. Collective.
    fn fold_at_once(&self, world: Handle, nothing: Handle) {
        let setup_calls = Config::or_default(&self.config).shared.setup_calls;
        if let (0, Some(communicator)) = (setup_calls, self.communicator(world)) {
            let context = self.context_with(nothing);
            let get = |when| self.communicators.group_for(&context, world, &communicator, when);
            // If there is none, that has been told.
            drop(communicator.folding_or(setup_calls, get));
        }
    }

    /// Has the job reported when MPI ends; `no_group`: why there will be none.
    fn report_at_end(&self, no_group: Option<NoGroup>) {
        if let Some(why) = no_group {
            self.communicators.set_no_group(&why);
        }
        if self.mpi.watch(self.mpi.abi.comm_self, super::ended).is_none() {
            log::warn!("the end of the job will go unnoticed: no attribute on MPI_COMM_SELF");
        }
    }
}

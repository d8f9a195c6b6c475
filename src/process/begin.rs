//! The beginning of MPI. Nothing is sent there, but where the program is to fold from its first call on.

use std::sync::atomic::Ordering;

use super::Process;
use super::meet::RankFacts;
use crate::config::{Config, settings};
use crate::logging;
use crate::mpi::pmpi::Handle;
use crate::setup::{NoGroup, note_user, roll_call};

impl Process {
    /// The real MPI has just been initialised. Collective.
    pub fn after_init(&self) {
        // A function of Fortran may have called that of C.
        if self.is_started.swap(true, Ordering::Relaxed) {
            return;
        }
        self.mpi.abi.learn_types();
        note_user();
        let world = self.mpi.abi.comm_world;
        let rank = self.mpi.rank(world);
        logging::set_rank(rank);
        if rank == 0 {
            settings::warn();
        }
        self.report_at_end();
        if Config::is_at_once()
            && let Err(why) = self.meet_at_once(world)
        {
            return self.leave(rank, &why, true);
        }
        if rank == 0 {
            self.before().warn();
            if let Err(why) = &self.config {
                self.leave(rank, &NoGroup::Settings(format!("rank 0: {why}")), true);
            }
        }
        self.is_running.store(true, Ordering::Relaxed);
        self.read_profile(rank);
        if self.mpi.size(world) == 1 {
            self.is_alone();
        } else if Config::or_default(&self.config).shared.setup_calls == 0 {
            self.fold_at_once(world);
        }
    }

    /// Has all ranks tell each other now what they are, not when they meet. Collective.
    fn meet_at_once(&self, world: Handle) -> Result<(), NoGroup> {
        let answers = roll_call(&self.mpi, world, &self.config, self.rank_facts(), self.patience());
        if !matches!(answers, Err(NoGroup::Untold(_))) {
            self.communicators.set_all_are_here();
        }
        self.communicators.set_alike(RankFacts::agree(&answers?)?);
        Ok(())
    }

    /// Ranks that are not alike, or could not tell each other, leave everything to the real MPI. `rank` is this one's
    /// among them; `are_all`: there are no others.
    pub(super) fn leave(&self, rank: usize, why: &NoGroup, are_all: bool) {
        let is_known_to_all = !matches!(why, NoGroup::Untold(_));
        let is_news = !self.is_left.swap(true, Ordering::Relaxed);
        if is_news && (rank == 0 || !is_known_to_all) {
            log::warn!("everything is passed through: {why}");
        }
        if are_all {
            self.communicators.set_no_group(why);
        }
    }

    /// The job has one rank.
    fn is_alone(&self) {
        let world = self.mpi.abi.comm_world;
        self.communicators.tell_no_group(&self.mpi, world, &NoGroup::one_rank());
        self.communicators.set_all_are_here();
    }

    /// Makes the group of MPI_COMM_WORLD now. Collective.
    fn fold_at_once(&self, world: Handle) {
        let Some(communicator) = self.communicator(world) else { return };
        let context = self.context();
        let get = |when| self.communicators.group_for(&context, world, &communicator, when);
        // If there is none, that has been told.
        drop(communicator.folding_or(0, get));
    }

    /// Has the job reported when MPI ends.
    fn report_at_end(&self) {
        if self.mpi.watch(self.mpi.abi.comm_self, super::communicator_freed).is_none() {
            log::warn!("the end of the job will go unnoticed: no attribute on MPI_COMM_SELF");
        }
    }
}

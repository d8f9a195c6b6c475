//! The ranks of a communicator meet: at the end of the first call on it that none could complete before all had begun
//! it. All are there then, as they are in MPI_Init, and none waits for long. Until then all calls go to the real MPI.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Process;
use super::before::Before;
use super::hints::Wish;
use crate::comm::{Alike, Communicator};
use crate::config::Config;
use crate::gate::Reason;
use crate::mpi::pmpi::Handle;
use crate::setup::{NoGroup, compare, roll_call};

/// Facts that a rank tells the others of itself, beside its settings.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankFacts {
    before: Before,
    /// One thread alone calls MPI.
    ordered: bool,
    /// MPI can be asked what it takes.
    can_ask: bool,
}

impl RankFacts {
    /// Facts that all ranks have in common, if the same collectives come to foldback on all.
    ///
    /// # Errors
    /// Ranks would disagree on which calls are folded.
    pub(super) fn agree(all: &[Self]) -> Result<Alike, NoGroup> {
        if let Some(rank) = all.iter().position(|one| !one.can_ask) {
            return Err(NoGroup::NoCommunicator { rank });
        }
        let what = "set of libraries before foldback";
        match all.iter().position(|one| !one.before.takes_as(&all[0].before)) {
            Some(rank) => Err(NoGroup::Differs { rank, what }),
            None => Ok(Alike {
                completes: all.iter().all(|one| one.before.completes()),
                ordered: all.iter().all(|one| one.ordered),
            }),
        }
    }
}

impl Process {
    pub(super) fn rank_facts(&self) -> RankFacts {
        let (before, ordered) = (self.before().clone(), self.mpi.is_of_one_thread());
        RankFacts { before, ordered, can_ask: self.mpi.begin_asking() }
    }

    /// Facts that the ranks of a communicator have in common, if they are known to be alike.
    #[inline]
    pub fn alike(&self, communicator: &Communicator) -> Option<Alike> {
        self.communicators.alike().or_else(|| communicator.alike())
    }

    /// The time for which ranks wait for each other's words.
    pub(super) fn patience(&self) -> Option<Duration> {
        Some(Config::or_default(&self.config).setup_timeout)
    }

    /// Has the ranks of `comm`, which have just made the same call, meet, unless they have. Collective.
    pub fn meet(&self, comm: Handle, communicator: &Arc<Communicator>) {
        self.meet_within(comm, communicator, self.patience());
    }

    /// The same of ranks that may take their time, without a `patience`: all are known to have foldback.
    pub(super) fn meet_within(
        &self,
        comm: Handle,
        communicator: &Arc<Communicator>,
        patience: Option<Duration>,
    ) {
        if self.communicators.is_held(comm) || !communicator.meets() {
            return;
        }
        let asked = communicator.quantization().asked.take();
        let wish = Wish::of_hint(asked.as_deref());
        let facts = self.rank_facts();
        let mut met = None;
        let agree = |offer| {
            let about = (facts.before.functions(), facts.ordered, facts.can_ask);
            let words = [offer, wish.word()];
            let all = compare(&self.mpi, comm, &self.config, about, words, patience);
            let all = met.insert(all).as_ref().ok()?;
            (all.alike && all.no_group.is_none()).then(|| bits_of_all(&all.words, 0))
        };
        self.communicators.first_group_for(&self.context(), comm, communicator, agree);
        let Some(met) = met else { return };
        let is_of_all = communicator.size == self.mpi.size(self.mpi.abi.comm_world);
        let alike = met.and_then(|all| {
            if is_of_all {
                self.communicators.set_all_are_here();
            }
            let alike = match all.alike {
                true => self.as_all(&facts),
                false => self.tell_more(comm, facts, patience),
            };
            Ok((alike?, all))
        });
        match alike {
            Ok((alike, all)) => {
                if let Some(why) = &all.no_group {
                    self.communicators.tell_no_group(&self.mpi, comm, why);
                    communicator.decline(Reason::NoGroup);
                }
                self.tell(comm, self.agree_on(communicator, &wish, bits_of_all(&all.words, 1)));
                communicator.set_alike(alike);
                if is_of_all && alike.ordered {
                    self.communicators.set_alike(alike);
                }
            }
            Err(why) => {
                self.leave(communicator.rank, &why, is_of_all);
                communicator.decline(Reason::Off);
            }
        }
    }

    /// All are as this rank is.
    fn as_all(&self, facts: &RankFacts) -> Result<Alike, NoGroup> {
        match &self.config {
            Ok(_) => RankFacts::agree(std::slice::from_ref(facts)),
            Err(why) => Err(NoGroup::Settings(format!("rank 0: {why}"))),
        }
    }

    /// Not all are as this rank is: in what, and does it matter? Collective.
    fn tell_more(
        &self,
        comm: Handle,
        facts: RankFacts,
        patience: Option<Duration>,
    ) -> Result<Alike, NoGroup> {
        let all = roll_call(&self.mpi, comm, &self.config, facts, patience)?;
        let first = all.iter().position(|one| one.before != Before::default());
        let is_told = self.mpi.rank(self.mpi.abi.comm_world) == 0;
        if !is_told && first == Some(self.mpi.rank(comm)) {
            self.before().warn();
        }
        RankFacts::agree(&all)
    }
}

/// The bits that all ranks have in a word.
fn bits_of_all(all: &[[u64; 2]], at: usize) -> u64 {
    all.iter().fold(u64::MAX, |bits, one| bits & one[at])
}

//! The end of MPI: the job is reported, and nothing is left behind.

use std::io::Write;
use std::time::Duration;

use super::Process;
use crate::choice::RouteLine;
use crate::config::Report;
use crate::mpi::abi::Family;
use crate::setup::exchange::exchange;
use crate::stats::{JobReport, RankReport};
use crate::threads;

/// The process ends.
extern "C" fn close_agent() {
    if let Some(process) = super::get() {
        process.facilities.agent.close();
    }
}

impl Process {
    /// The real MPI is about to be finalised: reports, and leaves nothing behind. Collective.
    pub fn before_finalize(&self) {
        let report = RankReport {
            calls: self.calls.lines(),
            routes: self.routes(),
            host: None,
            no_group: self.communicators.no_group(),
            cached: self.cached.line(),
            pairs: self.pairs.line(),
        };
        if self.communicators.all_are_here() {
            self.take_leave(report);
        } else {
            // Some ranks may be without foldback, and would not answer. Groups of the others end with their processes.
            if self.mpi.rank(self.mpi.abi.comm_world) == 0 {
                self.write_stats(&[report]);
            }
            threads::at_exit(close_agent);
        }
        self.mpi.end_progress();
    }

    /// Ends all groups, and has rank 0 report of all ranks. Collective.
    fn take_leave(&self, mut report: RankReport) {
        let groups = self.communicators.drain();
        let retired = &self.communicators.retired;
        // Nobody leaves before all are here: a peer may still have to ask us for something. While
        // we wait, the kernel answers.
        let world = self.mpi.abi.comm_world;
        let mut parting = || retired.reap(false);
        let here = exchange(&self.mpi, world, &(), None, &mut parting).is_ok();
        retired.add(groups.into_iter().chain(self.requests.persistent.drain()));
        retired.reap(true);
        report.host = retired.take_report();
        if self.mpi.rank(world) == 0 {
            self.write_profile(retired.take_measured());
        }
        if here {
            match exchange(&self.mpi, world, &report, None, &mut || ()) {
                Ok(reports) if self.mpi.rank(world) == 0 => self.write_stats(&reports),
                Ok(_) => {}
                Err(failure) => log::warn!("no statistics: {failure:?}"),
            }
        }
        self.facilities.agent.close();
        if self.mpi.abi.family != Family::OpenMpi {
            // MPICH before 4.2 over UCX may hang in MPI_Finalize if one rank closes its connections
            // while another still lets MPI progress. All are past that when this is over.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The choices for COMM_WORLD; rank 0's, for all choose alike.
    fn routes(&self) -> Vec<RouteLine> {
        let world = self.mpi.abi.comm_world;
        let known = self.communicators.get(world).filter(|_| self.mpi.rank(world) == 0);
        let lines = known.and_then(|world| Some(world.folding().as_ref()?.router.lines()));
        lines.unwrap_or_default()
    }

    fn write_stats(&self, reports: &[RankReport]) {
        let Ok(config) = &self.config else { return };
        if config.stats.is_none() && config.report == Report::Off {
            return;
        }
        let ranks = self.mpi.size(self.mpi.abi.comm_world);
        let job = JobReport::new(&self.mpi.abi.version, ranks, reports);
        if let Some(path) = &config.stats {
            let written = match serde_json::to_string_pretty(&job) {
                Ok(text) if path == "-" => writeln!(std::io::stdout(), "{text}"),
                Ok(text) => std::fs::write(path, text + "\n"),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = written {
                log::warn!("FOLDBACK_STATS={path}: {error}");
            }
        }
        // Nobody may be there to read it.
        let _ = match config.report {
            Report::Off => Ok(()),
            Report::Line => writeln!(std::io::stderr(), "{}", job.line()),
            Report::Full => write!(std::io::stderr(), "{}", job.tables()),
        };
    }
}

//! Statistics of calls, and of the ways they went. One JSON document for a job.

mod calls;
mod own;
mod report;

use serde::{Deserialize, Serialize};

use crate::choice::RouteLine;
use crate::group::report::HostLine;
pub use crate::group::report::named;

pub(crate) use calls::{CallLine, CallOutcome, Calls, Route};
pub(crate) use own::{Cached, PairsCounts};
pub use own::{CachedLine, PairsLine};

/// The report of one rank at the end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RankReport {
    pub(crate) calls: Vec<CallLine>,
    /// The choices for MPI_COMM_WORLD; rank 0 alone tells.
    pub(crate) routes: Vec<RouteLine>,
    /// Its host's counters, if it led a group.
    pub(crate) host: Option<HostLine>,
    /// Why COMM_WORLD has no group, if it has none.
    pub(crate) no_group: Option<String>,
    /// Its reductions with kept aggregates, if it has made any.
    #[serde(default)]
    pub(crate) cached: Option<CachedLine>,
    /// Its pairs by key, if it has flushed any.
    #[serde(default)]
    pub(crate) pairs: Option<PairsLine>,
}

/// The statistics of a job: what `FOLDBACK_STATS` has written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobReport {
    pub(crate) foldback: String,
    /// The MPI's own name and version.
    pub(crate) mpi: String,
    pub(crate) ranks: usize,
    /// The number of ranks that have reported: all, or rank 0 alone.
    pub(crate) reports: usize,
    /// Why MPI_COMM_WORLD has no group, if it has none.
    pub(crate) no_group: Option<String>,
    /// Calls, by kind and way.
    pub(crate) collectives: Vec<CallLine>,
    /// The choices for MPI_COMM_WORLD.
    pub(crate) routes: Vec<RouteLine>,
    /// The kernels' counters.
    pub(crate) hosts: Vec<HostLine>,
    /// Reductions with kept aggregates, of all ranks that report.
    #[serde(default)]
    pub(crate) cached: Option<CachedLine>,
    /// Pairs by key, of all ranks that report.
    #[serde(default)]
    pub(crate) pairs: Option<PairsLine>,
}

impl JobReport {
    /// The sum of the reports of all `ranks`, or of rank 0, in their order.
    pub(crate) fn new(mpi: &str, ranks: usize, reports: &[RankReport]) -> Self {
        let mut collectives: Vec<CallLine> = Vec::new();
        let mut hosts: Vec<HostLine> = Vec::new();
        let (mut cached, mut pairs) = (None::<CachedLine>, None::<PairsLine>);
        for report in reports {
            for line in &report.calls {
                match collectives.iter_mut().find(|sum| sum.is_like(line)) {
                    Some(sum) => {
                        sum.calls += line.calls;
                        sum.bytes += line.bytes;
                    }
                    None => collectives.push(line.clone()),
                }
            }
            if let Some(line) = &report.cached {
                cached.get_or_insert_default().add(line);
            }
            if let Some(line) = &report.pairs {
                pairs.get_or_insert_default().add(line);
            }
            if let Some(line) = &report.host {
                match hosts.iter_mut().find(|host| host.host == line.host) {
                    Some(sum) => sum.add(line),
                    None => hosts.push(line.clone()),
                }
            }
        }
        collectives.sort_by(|a, b| {
            let key = |line: &CallLine| {
                let order = (line.collective as usize, line.form as usize, line.reason.is_some());
                (
                    order,
                    line.reason.clone(),
                    line.datatype.clone(),
                    line.op.clone(),
                    line.up_to_bytes,
                )
            };
            key(a).cmp(&key(b))
        });
        Self {
            foldback: env!("CARGO_PKG_VERSION").into(),
            mpi: mpi.into(),
            ranks,
            reports: reports.len(),
            no_group: reports.iter().find_map(|report| report.no_group.clone()),
            collectives,
            routes: reports.iter().flat_map(|report| report.routes.clone()).collect(),
            hosts,
            cached,
            pairs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::fb_counters;
    use crate::call::{COLLECTIVES, Form, Message};
    use crate::gate::Reason;

    #[test]
    fn a_job_adds_up_over_ranks_and_hosts() {
        let calls = Calls::default();
        let message = |bytes| Message { datatype: 0, op: 0, bytes };
        calls.count(Form::Blocking, COLLECTIVES[0], CallOutcome::Folded, message(8));
        calls.count(
            Form::Blocking,
            COLLECTIVES[0],
            CallOutcome::Left(Reason::TooLarge),
            message(80),
        );
        let host = HostLine {
            host: "h0".into(),
            interface: "eth0".into(),
            hook: "tc".into(),
            fold: "SWAR in BPF".into(),
            groups: 1,
            asked_again: 0,
            rescued: 0,
            kernel: named(&fb_counters { frames_in: 3, ..Default::default() }),
        };
        let cached = CachedLine {
            reductions: 3,
            reused: 1,
            bytes: 300,
            bytes_sent: 200,
            ..CachedLine::default()
        };
        let (host, cached) = (Some(host), Some(cached));
        let pairs = Some(PairsLine { flushes: 1, added: 50, sent: 20 });
        let report = RankReport { calls: calls.lines(), host, cached, pairs, ..Default::default() };
        let job =
            serde_json::to_value(JobReport::new("Some MPI", 2, &[report.clone(), report])).unwrap();
        assert_eq!(job["ranks"], 2);
        assert_eq!(job["collectives"][0]["collective"], COLLECTIVES[0].name());
        assert_eq!(job["collectives"][0]["route"], "fold");
        assert_eq!(job["collectives"][0]["calls"], 2);
        assert_eq!(job["collectives"][0]["form"], "Blocking");
        assert_eq!(job["collectives"][1]["route"], "mpi");
        assert_eq!(job["collectives"][1]["reason"], "too large");
        assert_eq!(job["collectives"][1]["bytes"], 160);
        assert_eq!(job["collectives"][1]["up_to_bytes"], 128);
        assert_eq!(job["hosts"].as_array().unwrap().len(), 1);
        assert_eq!(job["hosts"][0]["fold"], "SWAR in BPF");
        assert_eq!(job["hosts"][0]["kernel"]["frames_in"], 6);
        assert_eq!(job["cached"]["bytes_sent"], 400);
        assert_eq!(job["pairs"]["added"], 100);
    }
}

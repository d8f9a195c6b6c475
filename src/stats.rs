//! What was called, and which way it went. One JSON document for a job.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::bindings::fb_counters;
use crate::collective::{COLLECTIVES, Collective, Form};
use crate::router::RouteLine;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a call went to the real MPI.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As it stands in the statistics.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// `FOLDBACK=off`, an unknown MPI, or a call before MPI_Init.
    Off = "foldback is off",
    /// The group's set-up failed, or cannot be had here. The log says why.
    NoGroup = "no group",
    /// The communicator has not seen enough calls yet.
    NotYet = "group not set up yet",
    /// The communicator has had all the persistent collectives that are folded.
    Persistent = "too many persistent collectives",
    /// Two groups of processes.
    Intercommunicator = "intercommunicator",
    /// With ranks that another job, or MPI_Comm_spawn, has started.
    Foreign = "ranks from outside MPI_COMM_WORLD",
    /// MPIX_Comm_revoke was called on it.
    Revoked = "revoked communicator",
    /// A type on which MPI defines no op, as far as is known here; or one that MPI has to fold, in a
    /// call that does not block.
    Datatype = "datatype",
    /// An op that MPI does not define on this type, or does not take; or one of the program's own, in a
    /// call that does not block.
    Op = "op",
    /// Longer than the limit of this collective.
    TooLarge = "too large",
    /// Measured: the real MPI is the faster one. Or tried, to see whether it is.
    Faster = "faster by MPI",
    /// `FOLDBACK_ROUTE=mpi`.
    Routed = "routed to MPI",
    /// Nothing to send.
    Empty = "empty",
    /// Arguments that the real MPI shall judge: negative counts, null or aliased buffers, bad roots.
    Argument = "argument",
}

/// Counters of one process: calls and bytes, by collective and way. The last way is the fold.
pub struct Calls {
    counts: [[[Count; WAYS]; COLLECTIVES]; Form::ALL.len()],
}

const WAYS: usize = Reason::ALL.len() + 1;

#[derive(Default)]
struct Count {
    calls: AtomicU64,
    bytes: AtomicU64,
}

/// The way a call went: folded, or to MPI for a reason.
pub type Way = Result<(), Reason>;

impl Calls {
    /// All zero.
    pub fn new() -> Self {
        Self { counts: Default::default() }
    }

    /// Counts a call. Relaxed and not atomic as a whole: it costs two plain additions, and two
    /// threads that count the same at the same time may lose a count.
    #[inline]
    pub fn count(&self, form: Form, collective: Collective, way: Way, bytes: usize) {
        let way = way.map_or_else(|reason| reason as usize, |()| WAYS - 1);
        let count = &self.counts[form as usize][collective as usize][way];
        let add = |to: &AtomicU64, n: u64| {
            to.store(to.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        };
        add(&count.calls, 1);
        add(&count.bytes, bytes as u64);
    }

    /// What has been counted.
    pub fn lines(&self) -> Vec<CallLine> {
        let mut lines = Vec::new();
        for &collective in Collective::ALL {
            for form in Form::ALL {
                for way in (0..WAYS).rev() {
                    let count = &self.counts[form as usize][collective as usize][way];
                    let calls = count.calls.load(Ordering::Relaxed);
                    if calls > 0 {
                        lines.push(CallLine {
                            collective,
                            form,
                            reason: Reason::ALL.get(way).map(|reason| reason.text().to_owned()),
                            calls,
                            bytes: count.bytes.load(Ordering::Relaxed),
                        });
                    }
                }
            }
        }
        lines
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self::new()
    }
}

/// Calls of one kind that went one way.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct CallLine {
    /// Which collective.
    pub collective: Collective,
    /// In which form.
    pub form: Form,
    /// Why to MPI; none: folded.
    pub reason: Option<String>,
    /// Calls, over all ranks.
    pub calls: u64,
    /// Bytes of their buffers, over all ranks.
    pub bytes: u64,
}

/// What the programs of one host counted for this job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostLine {
    /// The host's name.
    pub host: String,
    /// Interface and hook of its first group.
    pub interface: String,
    /// What takes frames in there.
    pub hook: String,
    /// Groups that this host was in.
    pub groups: u64,
    /// Times that a leader of this host asked for something again.
    pub asked_again: u64,
    /// Counters of the programs: names as in `bpf/intf.h`.
    pub kernel: serde_json::Map<String, serde_json::Value>,
}

impl HostLine {
    /// Adds what another leader of the same host, or another group, counted.
    pub fn add(&mut self, other: &Self) {
        self.groups += other.groups;
        self.asked_again += other.asked_again;
        for (name, value) in &other.kernel {
            let sum = value.as_u64().unwrap_or(0)
                + self.kernel.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
            self.kernel.insert(name.clone(), sum.into());
        }
    }
}

/// Counters by name.
pub fn named(counters: &fb_counters) -> serde_json::Map<String, serde_json::Value> {
    match serde_json::to_value(counters) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    }
}

/// What one rank has to tell at the end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RankReport {
    /// Its calls.
    pub calls: Vec<CallLine>,
    /// What was chosen for MPI_COMM_WORLD. Of rank 0.
    pub routes: Vec<RouteLine>,
    /// Its host's counters, if it led a group.
    pub host: Option<HostLine>,
    /// Why COMM_WORLD has no group, if it has none.
    pub no_group: Option<String>,
}

/// The document of a job.
pub fn document(mpi: &str, reports: &[RankReport]) -> serde_json::Value {
    let mut calls: Vec<CallLine> = Vec::new();
    let mut hosts: Vec<HostLine> = Vec::new();
    for report in reports {
        for line in &report.calls {
            let same = |c: &&mut CallLine| {
                (c.collective, c.form, &c.reason) == (line.collective, line.form, &line.reason)
            };
            match calls.iter_mut().find(same) {
                Some(sum) => {
                    sum.calls += line.calls;
                    sum.bytes += line.bytes;
                }
                None => calls.push(line.clone()),
            }
        }
        if let Some(line) = &report.host {
            match hosts.iter_mut().find(|host| host.host == line.host) {
                Some(sum) => sum.add(line),
                None => hosts.push(line.clone()),
            }
        }
    }
    calls.sort_by_key(|line| (line.collective as usize, line.form as usize, line.reason.is_some()));
    let collectives: Vec<_> = calls
        .iter()
        .map(|line| {
            serde_json::json!({
                "collective": line.collective.name(),
                "form": line.form,
                "route": if line.reason.is_none() { "fold" } else { "mpi" },
                "reason": line.reason,
                "calls": line.calls,
                "bytes": line.bytes,
            })
        })
        .collect();
    let routes: Vec<_> = reports
        .iter()
        .flat_map(|report| &report.routes)
        .map(|line| {
            serde_json::json!({
                "collective": line.collective.name(),
                "up_to_bytes": line.up_to_bytes,
                "way": line.way,
                "microseconds": line.microseconds,
                "calls": line.calls,
                "trials": line.trials,
                "changes": line.changes,
            })
        })
        .collect();
    serde_json::json!({
        "foldback": env!("CARGO_PKG_VERSION"),
        "mpi": mpi,
        "ranks": reports.len(),
        "no_group": reports.iter().find_map(|report| report.no_group.clone()),
        "collectives": collectives,
        "routes": routes,
        "hosts": hosts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_adds_up_over_ranks_and_hosts() {
        let calls = Calls::new();
        calls.count(Form::Blocking, Collective::Bcast, Ok(()), 8);
        calls.count(Form::Blocking, Collective::Bcast, Err(Reason::TooLarge), 80);
        let host = HostLine {
            host: "h0".into(),
            interface: "eth0".into(),
            hook: "tc".into(),
            groups: 1,
            asked_again: 0,
            kernel: named(&fb_counters { frames_in: 3, ..Default::default() }),
        };
        let report = RankReport { calls: calls.lines(), host: Some(host), ..Default::default() };
        let job = document("Some MPI", &[report.clone(), report]);
        assert_eq!(job["ranks"], 2);
        assert_eq!(job["collectives"][0]["route"], "fold");
        assert_eq!(job["collectives"][0]["calls"], 2);
        assert_eq!(job["collectives"][0]["form"], "Blocking");
        assert_eq!(job["collectives"][1]["reason"], "too large");
        assert_eq!(job["collectives"][1]["bytes"], 160);
        assert_eq!(job["hosts"].as_array().unwrap().len(), 1);
        assert_eq!(job["hosts"][0]["kernel"]["frames_in"], 6);
    }
}

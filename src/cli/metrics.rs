//! An agent's numbers as Prometheus scrapes them, and their server.

mod server;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value};

use super::snapshot::{DROPPED, Snapshot, named};
use crate::agent::{GroupStatus, ProgramStatus, Work};
use crate::bindings::fb_counters;
pub(super) use server::{Place, Server};

/// Labels of a metric and their values.
type Labels = Vec<(&'static str, String)>;

/// The formats of metrics. Each bears its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics (<https://prometheus.io/docs/specs/om/open_metrics_spec/>), for who asks for it.
    OpenMetrics,
    /// The older text, which every reader of metrics takes.
    Text,
}

impl Format {
    fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// The metrics of all that a snapshot has.
///
/// # Errors
/// None, unless memory is short: it is written to memory.
pub(super) fn document(snapshot: Snapshot, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("foldback");
    registry.register_collector(Box::new(snapshot));
    let mut document = String::new();
    match format {
        Format::OpenMetrics => text::encode(&mut document, &registry)?,
        Format::Text => prometheus_text::encode(&mut document, &registry)?,
    }
    Ok(document)
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self { agent, status, groups, users, .. } = self;
        let about = [
            ("release", agent.release.clone()),
            ("port", agent.port.to_string()),
            ("fold", status.fold.to_string()),
        ];
        gauges(&mut encoder, "agent_info", "The agent", [(about.to_vec(), 1)])?;
        let age = [(Labels::new(), status.age_seconds)];
        gauges(&mut encoder, "agent_age_seconds", "Since the agent began", age)?;

        let interfaces = status.interfaces.iter().map(|interface| {
            let labels = vec![
                ("interface", interface.name.clone()),
                ("hook", interface.hook.to_string()),
                ("tc", interface.tc.to_string()),
            ];
            (labels, interface.groups as u64)
        });
        let help = "Groups of each interface that the programs are attached to";
        gauges(&mut encoder, "interface_groups", help, interfaces)?;

        let of = |program: &ProgramStatus| vec![("program", program.name.clone())];
        let runs = status.programs.iter().map(|program| (of(program), program.runs));
        let help =
            "Runs of the programs, for frames of all kinds, while kernel.bpf_stats_enabled is 1";
        counters(&mut encoder, "program_runs", help, runs)?;
        let seconds = status
            .programs
            .iter()
            .map(|program| (of(program), ConstCounter::new(program.nanoseconds as f64 / 1e9)));
        family(&mut encoder, "program_seconds", "Time of these runs on all CPUs", seconds)?;

        let by_user = users.iter().map(|user| (of_user(user.uid), user.groups as u64));
        gauges(&mut encoder, "groups", "Groups that there are", by_user)?;
        let by_user = users.iter().map(|user| (of_user(user.uid), user.groups_made));
        counters(&mut encoder, "groups_made", "Groups that were made", by_user)?;
        let nobody = (Labels::new(), &status.host_counters);
        let by_user = users.iter().map(|user| (of_user(user.uid), &user.counters));
        kernel(&mut encoder, "", by_user.chain([nobody]))?;

        let by_group = groups.iter().map(|group| {
            let mut labels = of_user(group.uid);
            labels.push(("job", group.job.clone().unwrap_or_default()));
            labels.push(("process", group.pid.to_string()));
            labels.push(("slot", group.slot.to_string()));
            (labels, group)
        });
        let by_group: Vec<(Labels, &GroupStatus)> = by_group.collect();
        for (name, help, of) in WORK {
            let values = by_group
                .iter()
                .filter_map(|(labels, group)| Some((labels.clone(), of(&group.work?))));
            counters(&mut encoder, name, help, values)?;
        }
        let by_group = by_group.into_iter().map(|(labels, group)| (labels, &group.counters));
        kernel(&mut encoder, "group_", by_group)
    }
}

/// The work of a group's leader: name, meaning, number.
type OfWork = (&'static str, &'static str, fn(&Work) -> u64);
const WORK: [OfWork; 4] = [
    ("group_calls", "Operations that each group has begun", |work| work.calls),
    ("group_left", "Calls that its router has left to MPI", |work| work.left),
    ("group_asked", "Times that its leader has asked for something again", |work| work.asked),
    ("group_rescued", "Chunks that the second transport has ended", |work| work.rescued),
];

fn of_user(uid: u32) -> Labels {
    vec![("uid", uid.to_string())]
}

/// The counter that is told in seconds, as Prometheus has times.
const NANOSECONDS: &str = "nanoseconds";

/// The counters of the programs, each of some things. Frames that were dropped are one metric, with reasons.
fn kernel<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    of: impl Iterator<Item = (Labels, &'a fb_counters)>,
) -> fmt::Result {
    let of: Vec<(Labels, Map<String, Value>)> =
        of.map(|(labels, counters)| (labels, named(counters))).collect();
    let value = |counters: &Map<String, Value>, name| counters.get(name)?.as_u64();
    let values = |name| {
        of.iter()
            .filter_map(move |(labels, counters)| Some((labels.clone(), value(counters, name)?)))
    };
    let of_group = if prefix.is_empty() { "" } else { ", of each group that there is" };
    let seconds =
        values(NANOSECONDS).map(|(labels, count)| (labels, ConstCounter::new(count as f64 / 1e9)));
    let help = format!("CPU time of the programs, if FOLDBACK_CPU_TIME is on{of_group}");
    family(encoder, &format!("{prefix}cpu_seconds"), &help, seconds)?;
    let (dropped, others): (Vec<_>, Vec<_>) = names()
        .filter(|(name, _)| *name != NANOSECONDS)
        .partition(|(name, _)| name.starts_with(DROPPED));
    for (name, help) in others {
        counters(encoder, &format!("{prefix}{name}"), &format!("{help}{of_group}"), values(name))?;
    }
    let by_reason = dropped.into_iter().flat_map(|(name, _)| {
        let reason = name.trim_start_matches(DROPPED);
        values(name).map(move |(mut labels, count)| {
            labels.push(("reason", reason.into()));
            (labels, count)
        })
    });
    let help = format!("Frames that were not taken, or not sent{of_group}");
    counters(encoder, &format!("{prefix}dropped"), &help, by_reason)
}

/// Name and meaning of each counter of the programs, as the C header has them.
fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    include_str!("../../bpf/intf.h").lines().filter_map(|line| {
        let (name, rest) = line.trim().strip_prefix("X(")?.split_once(", \"")?;
        Some((name, rest.split_once('"')?.0))
    })
}

fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, u64)>,
) -> fmt::Result {
    family(
        encoder,
        name,
        help,
        values.into_iter().map(|(labels, n)| (labels, ConstCounter::new(n))),
    )
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, u64)>,
) -> fmt::Result {
    family(encoder, name, help, values.into_iter().map(|(labels, n)| (labels, ConstGauge::new(n))))
}

/// A metric with all its labels; nothing, if it has no value.
fn family<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (Labels, M)>,
) -> fmt::Result {
    let mut values = values.peekable();
    let Some((_, first)) = values.peek() else { return Ok(()) };
    let mut family = encoder.encode_descriptor(name, help, None, first.metric_type())?;
    for (labels, value) in values {
        value.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

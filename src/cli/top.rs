//! `foldback top`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use super::snapshot::{DROPPED, Snapshot, named};
use crate::agent::{Client, GroupStatus, SocketAddress, Work, default_address};
use crate::output::print;

/// Show the groups of this host while they work: calls a second, the share that is folded, and losses.
///
/// root sees all groups, all others their own. Busy groups come first. Ends at Ctrl-C.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds from one look to the next
    #[arg(long, short, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=3600))]
    interval: u16,

    /// End after so many looks
    #[arg(long, short, value_name = "LOOKS", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,

    /// Socket of the agent: a path, or @NAME [default: $FOLDBACK_AGENT_SOCKET, or
    /// /run/foldback/agent.sock]
    #[arg(long)]
    socket: Option<SocketAddress>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let socket = args.socket.map_or_else(default_address, Ok)?;
    let client = Client::connect(&socket)?;
    let interval = Duration::from_secs(args.interval.into());
    let clear = if io::stdout().is_terminal() { "\x1b[H\x1b[J" } else { "" };
    let mut before = Snapshot::of(&client, &socket)?;
    let mut last = Instant::now();
    let mut looks = 0;
    while args.count.is_none_or(|count| looks < count) {
        thread::sleep(interval);
        let now = Snapshot::of(&client, &socket)?;
        let took = last.elapsed();
        last = Instant::now();
        print(format_args!("{clear}{}", text(&before, &now, took)))?;
        before = now;
        looks += 1;
    }
    Ok(ExitCode::SUCCESS)
}

/// The groups, as busy as they were between two looks.
fn text(before: &Snapshot, now: &Snapshot, took: Duration) -> String {
    let name = |group: &GroupStatus| (group.slot, group.pid);
    let known: HashMap<_, Seen> =
        before.groups.iter().map(|group| (name(group), seen(group))).collect();
    let mut rows: Vec<Row> = now
        .groups
        .iter()
        .map(|group| {
            let (now, before) = (seen(group), known.get(&name(group)).copied());
            Row { group, done: since(before.unwrap_or_default(), now), took: took.as_secs_f64() }
        })
        .collect();
    rows.sort_by_key(|row| (Reverse(row.done), row.group.slot));
    let (agent, all) = (&now.agent, now.status.groups);
    let hidden = all.saturating_sub(rows.len());
    let others = if hidden > 0 { format!(", {hidden} of other users") } else { String::new() };
    let head = format!("foldback {}, process {}, groups {all}{others}", agent.release, agent.pid);
    let mut lines = vec![head, titles()];
    lines.extend(rows.iter().map(Row::to_string));
    lines.join("\n") + "\n"
}

/// Counts of a group. Of its leader: calls folded, calls left to MPI, questions, chunks rescued. Of the programs: frames
/// in and out, contributions folded, frames dropped.
const COUNTS: usize = 7;
type Seen = [u64; COUNTS];

fn seen(group: &GroupStatus) -> Seen {
    let Work { calls, left, asked, rescued } = group.work.unwrap_or_default();
    let counters = &group.counters;
    let frames = counters.frames_in + counters.frames_out;
    let dropped = named(counters).into_iter().filter(|(name, _)| name.starts_with(DROPPED));
    let dropped = dropped.filter_map(|(_, count)| count.as_u64()).sum();
    [calls, left, asked, rescued, frames, counters.contributions_folded, dropped]
}

/// The counts from one look to the next. If any is lower than before, this is another group in the same slot.
fn since(before: Seen, now: Seen) -> Seen {
    let is_another = before.iter().zip(&now).any(|(before, now)| before > now);
    let before = if is_another { Seen::default() } else { before };
    std::array::from_fn(|at| now[at] - before[at])
}

struct Row<'a> {
    group: &'a GroupStatus,
    /// Its counts since the last look.
    done: Seen,
    /// Seconds since then.
    took: f64,
}

/// The title of each column, with its width.
const COLUMNS: [(&str, usize); 5 + COUNTS] = [
    ("USER", 8),
    ("JOB", 12),
    ("PROCESS", 8),
    ("HOSTS", 5),
    ("CALLS/s", 9),
    ("FOLDED", 6),
    ("LEFT/s", 9),
    ("ASKED/s", 8),
    ("RESCUED/s", 9),
    ("FRAMES/s", 9),
    ("FOLDS/s", 9),
    ("DROPS/s", 8),
];

fn titles() -> String {
    line(COLUMNS.map(|(title, _)| title.to_owned()))
}

fn line(fields: [String; 5 + COUNTS]) -> String {
    let padded = fields.iter().zip(COLUMNS).map(|(field, (_, width))| format!("{field:>width$}"));
    padded.collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, done, took } = self;
        let [calls, left, asked, rescued, frames, folds, dropped] =
            done.map(|count| format!("{:.0}", count as f64 / took));
        let share = match (done[0], done[0] + done[1]) {
            (_, 0) => "-".into(),
            (folded, all) => format!("{:.0}%", 100.0 * folded as f64 / all as f64),
        };
        let (uid, pid) = (group.uid.to_string(), group.pid.to_string());
        let job = group.job.clone().unwrap_or_else(|| "-".into());
        let hosts = group.members.len().to_string();
        let fields =
            [uid, job, pid, hosts, calls, share, left, asked, rescued, frames, folds, dropped];
        to.write_str(&line(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_in_the_slot_of_another_begins_anew() {
        let before = [10, 0, 0, 0, 100, 5, 0];
        assert_eq!(since(before, [30, 1, 0, 0, 150, 5, 2]), [20, 1, 0, 0, 50, 0, 2]);
        assert_eq!(since(before, [11, 0, 0, 0, 7, 5, 0]), [11, 0, 0, 0, 7, 5, 0]);
    }

    #[test]
    fn every_title_fits_its_column() {
        assert!(COLUMNS.iter().all(|(title, width)| title.len() <= *width));
    }
}

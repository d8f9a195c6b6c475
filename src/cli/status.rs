//! `foldback status`.

use std::process::ExitCode;

use super::snapshot::{Snapshot, named};
use crate::agent::{SocketAddress, Work, default_address};
use crate::bindings::fb_counters;
use crate::output::print;

/// Show the agent of this host, its interfaces, its users and its groups.
///
/// root sees all groups, all others their own.
#[derive(clap::Args)]
pub struct Args {
    /// Write JSON
    #[arg(long)]
    json: bool,

    /// Socket of the agent: a path, or @NAME [default: $FOLDBACK_AGENT_SOCKET, or
    /// /run/foldback/agent.sock]
    #[arg(long)]
    socket: Option<SocketAddress>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let snapshot = Snapshot::take(&args.socket.map_or_else(default_address, Ok)?)?;
    if args.json {
        print(format_args!("{:#}\n", snapshot.document()?))?;
    } else {
        print(text(&snapshot))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(Snapshot { socket, agent, status, groups, users }: &Snapshot) -> String {
    let mut lines = vec![format!(
        "agent      foldback {}, process {}, at {socket}, UDP port {}",
        agent.release, agent.pid, agent.port
    )];
    for interface in &status.interfaces {
        lines.push(format!(
            "interface  {}: {} (TC: {}), groups {}",
            interface.name, interface.hook, interface.tc, interface.groups
        ));
    }
    if status.interfaces.is_empty() {
        lines.push("interface  none in use".into());
    }
    lines.push(format!("fold       {}", status.fold));
    for program in status.programs.iter().filter(|program| program.runs > 0) {
        let (seconds, each) =
            (program.nanoseconds as f64 / 1e9, program.nanoseconds / program.runs);
        lines.push(format!(
            "program    {}: {} runs, {seconds:.3} s, {each} ns each",
            program.name, program.runs
        ));
    }
    for user in users {
        lines.push(format!(
            "user {:<5} groups {} of {} in {} s",
            user.uid, user.groups, user.groups_made, status.age_seconds
        ));
        lines.push(format!("           {}", counted(&user.counters)));
    }
    for group in groups {
        let members: Vec<_> = group.members.iter().map(ToString::to_string).collect();
        let job = group.job.as_ref().map(|job| format!(", job {job}")).unwrap_or_default();
        lines.push(format!(
            "group {:<4} user {}{job}, process {}, {} s, {} ({}), chunks of {} bytes, member {} of {}",
            group.slot,
            group.uid,
            group.pid,
            group.age_seconds,
            group.interface,
            group.hook,
            group.chunk_bytes,
            group.self_index,
            members.join(" ")
        ));
        if let Some(Work { calls, left, asked, rescued }) = group.work {
            lines.push(format!(
                "           calls {calls}, left to MPI {left}, asked again {asked}, rescued by sockets {rescued}"
            ));
        }
        lines.push(format!("           {}", counted(&group.counters)));
    }
    let hidden = status.groups.saturating_sub(groups.len());
    if hidden > 0 {
        lines.push(format!("and {hidden} groups of other users"));
    }
    lines.push(format!("no group   {}", counted(&status.host_counters)));
    lines.join("\n") + "\n"
}

/// The counters that are not 0.
fn counted(counters: &fb_counters) -> String {
    let counted: Vec<String> = named(counters)
        .iter()
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if counted.is_empty() { "nothing counted".into() } else { counted.join(", ") }
}

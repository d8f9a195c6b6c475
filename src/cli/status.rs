//! `foldback status`.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::agent::{Client, GroupStatus, SocketAddress, Status, default_address};
use crate::bindings::fb_counters;
use crate::output::print;

/// Show the agent of this host, its interfaces and its groups.
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
    let address = args.socket.unwrap_or_else(default_address);
    let client = Client::connect(&address)?;
    let status = client.status()?;
    let groups = client.groups()?;
    if args.json {
        print(format_args!("{:#}\n", document(&client, &address, &status, &groups)?))?;
    } else {
        print(text(&client, &address, &status, &groups)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn document(
    client: &Client,
    address: &SocketAddress,
    status: &Status,
    groups: &[GroupStatus],
) -> serde_json::Result<Value> {
    let groups = groups
        .iter()
        .map(|group| {
            let mut value = serde_json::to_value(group)?;
            value["counters"] = serde_json::to_value(group.counters)?;
            Ok(value)
        })
        .collect::<serde_json::Result<Vec<Value>>>()?;
    Ok(json!({
        "socket": address,
        "agent": client.welcome(),
        "interfaces": status.interfaces,
        "fold": status.fold,
        "groups_of_all_users": status.groups,
        "groups": groups,
        "host_counters": status.host_counters,
    }))
}

fn text(
    client: &Client,
    address: &SocketAddress,
    status: &Status,
    groups: &[GroupStatus],
) -> serde_json::Result<String> {
    let welcome = client.welcome();
    let mut lines = vec![format!(
        "agent      foldback {}, process {}, at {address}, UDP port {}",
        welcome.release, welcome.pid, welcome.port
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
    for group in groups {
        let members: Vec<_> = group.members.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "group {:<4} user {}, process {}, {} s, {} ({}), chunks of {} bytes, member {} of {}",
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
        lines.push(format!("           {}", counted(&group.counters)?));
    }
    let hidden = status.groups.saturating_sub(groups.len());
    if hidden > 0 {
        lines.push(format!("and {hidden} groups of other users"));
    }
    lines.push(format!("no group   {}", counted(&status.host_counters)?));
    Ok(lines.join("\n") + "\n")
}

/// The counters that are not 0.
fn counted(counters: &fb_counters) -> serde_json::Result<String> {
    let Value::Object(counters) = serde_json::to_value(counters)? else {
        return Ok(String::new());
    };
    let counted: Vec<String> = counters
        .iter()
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    Ok(if counted.is_empty() { "nothing counted".into() } else { counted.join(", ") })
}

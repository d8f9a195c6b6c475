//! The stacks of the ranks of a stuck job.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::processes;
use crate::output::tell;
use crate::places;

/// How long gdb may take for one rank.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long it may take for all of them; ranks not shown by then are counted.
const PATIENCE_FOR_ALL: Duration = Duration::from_secs(90);

/// Prints the stacks of the ranks of a run to stderr, if gdb is there.
pub fn print_stacks(mark: &str) {
    let mut ranks: Vec<(u32, i32)> = processes::marked(mark)
        .unwrap_or_default()
        .iter()
        .filter_map(|(pid, environment)| Some((rank(environment)?, *pid)))
        .filter(|&(_, pid)| !waits_for_a_rank(pid))
        .collect();
    ranks.sort_unstable();
    if places::in_path("gdb").is_none() {
        tell(format_args!("foldback: {} ranks are stuck; install gdb to see where\n", ranks.len()));
        return;
    }
    let end = Instant::now() + PATIENCE_FOR_ALL;
    let count = ranks.len();
    for (shown, (rank, pid)) in ranks.into_iter().enumerate() {
        if Instant::now() > end {
            tell(format_args!("foldback: {} more ranks are stuck\n", count - shown));
            return;
        }
        tell(format_args!("foldback: stack of rank {rank} (process {pid}):\n"));
        print_stack(pid);
    }
}

/// `foldback lab rank`, whose child is the rank.
fn waits_for_a_rank(pid: i32) -> bool {
    places::command()
        .is_ok_and(|own| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == own))
}

/// The rank that the launcher gave to a process with this environment.
fn rank(environment: &[u8]) -> Option<u32> {
    environment.split(|&byte| byte == 0).find_map(|entry| {
        let entry = std::str::from_utf8(entry).ok()?;
        let names = ["OMPI_COMM_WORLD_RANK=", "PMI_RANK="];
        names.iter().find_map(|name| entry.strip_prefix(name))?.parse().ok()
    })
}

fn print_stack(pid: i32) {
    let child = Command::new("gdb")
        .args(["-batch", "-nx", "-iex", "set debuginfod enabled off", "-p"])
        .arg(pid.to_string())
        .args(["-ex", "thread apply all backtrace"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return };
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || output.map(std::io::read_to_string));
    let deadline = Instant::now() + PATIENCE;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            let _ = child.kill();
            tell(format_args!("  gdb takes too long\n"));
        }
        sleep(Duration::from_millis(10));
    }
    if let Ok(Some(Ok(text))) = reader.join() {
        let mut stderr = std::io::stderr().lock();
        for line in text.lines().filter(|line| line.starts_with(['#', 'T'])) {
            let _ = writeln!(stderr, "  {line}");
        }
    }
}

//! Where the ranks of a stuck job are.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{processes, tool};

/// Most ranks whose stacks are shown: the first ones, and enough to see a pattern.
const MOST: usize = 8;

/// How long gdb may take for one rank.
const PATIENCE: Duration = Duration::from_secs(20);

/// Prints the stacks of the ranks of a run to stderr, if gdb is there.
pub fn print_stacks(mark: &str) {
    let mut ranks: Vec<(u32, i32)> = processes::marked(mark)
        .unwrap_or_default()
        .iter()
        .filter_map(|(pid, environment)| Some((rank(environment)?, *pid)))
        .collect();
    ranks.sort_unstable();
    if tool::find("gdb").is_none() {
        eprintln!("foldback: {} ranks are stuck; install gdb to see where", ranks.len());
        return;
    }
    for (rank, pid) in ranks.into_iter().take(MOST) {
        eprintln!("foldback: stack of rank {rank} (process {pid}):");
        print_stack(pid);
    }
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
            eprintln!("  gdb takes too long");
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

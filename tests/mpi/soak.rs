//! A long job under random faults: all answers right, and nothing grows.
//!
//! `make soak HOURS=n`. In `make test-long`, for two minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Job, Mpi, program, succeed, turn};
use crate::random::Rng;
use crate::served::{HOSTS, Served};

/// For commands, of hangs alone.
const SOON: Duration = Duration::from_secs(600);
/// Between a fault and the next, at most.
const CALM_MS: u64 = 6_000;
/// Longest that a fault takes.
const FAULT_MS: u64 = 3_000;
/// Allowed growth from a quarter of the time to the end.
const MORE_KIB: u64 = 8 << 10;
const MORE_FILES: u64 = 8;
const MORE_MAPS: u64 = 8;
/// Shorter runs do not meet each kind of trouble in each quarter, so growth says nothing there.
const SECONDS_FOR_GROWTH: u64 = 600;
/// Limits of shorter runs: twice the most of an hour (docs/running/reliability.md).
const MOST: Usage = Usage { kib: 2 * 27_712, files: 2 * 76, threads: 2 * 6, maps: 2 * 76 };

fn time(rng: &mut Rng, most_ms: u64) -> Duration {
    Duration::from_millis(50 + rng.below(most_ms))
}

/// The job's use of the system: of a rank, the most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Usage {
    kib: u64,
    files: u64,
    threads: u64,
    /// BPF maps, of its agents and groups.
    maps: u64,
}

impl Usage {
    fn max(self, other: Self) -> Self {
        Self {
            kib: self.kib.max(other.kib),
            files: self.files.max(other.files),
            threads: self.threads.max(other.threads),
            maps: self.maps.max(other.maps),
        }
    }
}

/// The processes of which `are` is so, by their number and their directory.
fn processes(are: impl Fn(i32, &Path) -> bool) -> Vec<i32> {
    let all = fs::read_dir("/proc").expect("processes").flatten();
    all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        are(pid, &entry.path()).then_some(pid)
    })
    .collect()
}

/// The processes that run a program.
fn ranks(program: &Path) -> Vec<i32> {
    processes(|_, at| fs::read_link(at.join("exe")).is_ok_and(|exe| exe == program))
}

fn usage(served: &Served, ranks: &[i32]) -> Usage {
    let mut most = Usage::default();
    for rank in ranks {
        let of = |file: &str| format!("/proc/{rank}/{file}");
        let status = fs::read_to_string(of("status")).unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
        };
        let files = fs::read_dir(of("fd")).map_or(0, |all| all.count() as u64);
        let (kib, threads) = (number("VmRSS:"), number("Threads:"));
        most = most.max(Usage { kib, files, threads, maps: 0 });
    }
    Usage { maps: maps(served, ranks), ..most }
}

/// The BPF maps that a process holds by its descriptors.
fn maps_of(pid: i32) -> Vec<u64> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let text = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let number = |text: String| {
        text.lines().find_map(|line| line.strip_prefix("map_id:")?.trim().parse().ok())
    };
    text.filter_map(number).collect()
}

/// The maps, without maps of other tests that run beside this one. A map that no process holds may have been ours.
fn maps(served: &Served, ranks: &[i32]) -> u64 {
    let agents = served.agents.iter().map(|agent| agent.id() as i32);
    let own: Vec<_> = agents.chain(ranks.iter().copied()).collect();
    let held = |pids: &[i32]| pids.iter().flat_map(|pid| maps_of(*pid)).collect::<BTreeSet<_>>();
    let (mine, others) = (held(&own), held(&processes(|pid, _| !own.contains(&pid))));
    let mut list = Command::new("bpftool");
    let (list, _) = succeed(list.args(["map", "list"]), SOON);
    // A map is a line that begins with its number, and others.
    let numbers = list.lines().filter_map(|line| line.split_once(':')?.0.parse::<u64>().ok());
    numbers.filter(|map| mine.contains(map) || !others.contains(map)).count() as u64
}

fn shell(command: &str) {
    succeed(Command::new("sh").args(["-c", command]), SOON);
}

/// Does something to the job, and makes it good. Returns what.
fn trouble(served: &mut Served, ranks: &[i32], rng: &mut Rng) -> &'static str {
    let time = time(rng, FAULT_MS);
    let host = rng.below(HOSTS.into()) as u32;
    let signal = |pid: i32, signal| {
        let _ = kill(Pid::from_raw(pid), signal);
    };
    let agent = |served: &Served, host: u32| served.agents[host as usize].id() as i32;
    let restart = |served: &mut Served, host: u32, by: Signal| {
        signal(agent(served, host), by);
        let _ = served.agents[host as usize].wait();
        sleep(time);
        served.agents[host as usize] = served.start_agent(host);
    };
    let faults = |served: &Served, options: &str| {
        shell(&served.lab.faults(options));
        sleep(time);
        shell(&served.lab.faults(""));
    };
    match rng.below(10) {
        0 => {
            restart(served, host, Signal::SIGKILL);
            "an agent killed"
        }
        1 => {
            (0..HOSTS).for_each(|host| signal(agent(served, host), Signal::SIGTERM));
            (0..HOSTS).for_each(|host| restart(served, host, Signal::SIGTERM));
            "all agents replaced"
        }
        2 => {
            signal(agent(served, host), Signal::SIGSTOP);
            sleep(time);
            signal(agent(served, host), Signal::SIGCONT);
            "an agent stopped"
        }
        3 => {
            let set = |to| {
                let mut link = served.lab.on(host);
                succeed(link.args(["ip", "link", "set", "eth0", to]), SOON);
            };
            set("down");
            sleep(time);
            set("up");
            "a link down"
        }
        4 => {
            faults(served, "--loss 5% --dup 5% --reorder 5% --corrupt 5% --faults-on udp");
            "a bad network"
        }
        5 => {
            faults(served, &format!("--host h{host} --loss 100%"));
            "a deaf host"
        }
        6 => {
            faults(served, "--loss 100%");
            "everything lost"
        }
        7 => {
            let port = foldback::bindings::FB_UDP_PORT;
            faults(served, &format!("--host h{host} --loss 100% --faults-on udp:{port}"));
            "a port filtered"
        }
        8 => {
            faults(served, &format!("--host h{host} --loss 100% --faults-on udp"));
            "datagrams filtered"
        }
        _ => {
            let Some(rank) = ranks.get(host as usize) else { return "nothing" };
            signal(*rank, Signal::SIGSTOP);
            sleep(time);
            signal(*rank, Signal::SIGCONT);
            "a rank stopped"
        }
    }
}

fn soak(mpi: Mpi, seconds: u64, seed: u64) {
    let mut served = Served::new(HOSTS);
    let mut rng = Rng(seed);
    let path = program(mpi, "stream").canonicalize().expect("the program is there");
    let name = served.lab.name.clone();
    let begin = Instant::now();
    let mut did = BTreeMap::new();
    let [mut most, mut early, mut late] = [Usage::default(); 3];
    let outcome = std::thread::scope(|scope| {
        let job = scope.spawn(|| {
            let (time, seed) = (seconds.to_string(), seed.to_string());
            Job::new(mpi, HOSTS)
                .option(&["--name", &name])
                .env("FOLDBACK_LOG", "warn")
                // A new group is tried for that long, at most, where frames are filtered.
                .env("FOLDBACK_PROBE_TIMEOUT", "5")
                .timeout(seconds + SOON.as_secs())
                .run("stream", &["--seconds", &time, "--seed", &seed])
        });
        let mut said = 0;
        while !job.is_finished() {
            sleep(time(&mut rng, CALM_MS));
            let ranks = ranks(&path);
            if ranks.len() < HOSTS as usize {
                continue;
            }
            *did.entry(trouble(&mut served, &ranks, &mut rng)).or_insert(0) += 1;
            let (now, usage) = (begin.elapsed().as_secs(), usage(&served, &ranks));
            most = most.max(usage);
            if now >= seconds / 4 && now < seconds / 2 {
                early = early.max(usage);
            } else if now >= seconds * 3 / 4 {
                late = late.max(usage);
            }
            if now / 60 > said {
                said = now / 60;
                let _ = writeln!(std::io::stderr(), "soak: {mpi:?}, {now} s, {usage:?}");
            }
        }
        job.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let what = format!("seed {seed}, {did:?}, at most {most:?}, from {early:?} to {late:?}");
    let line = outcome.stdout.lines().find(|line| line.contains(" calls ok")).unwrap_or_default();
    let folded = outcome.stderr.lines().find(|line| line.contains("foldback: folded"));
    let _ = writeln!(std::io::stderr(), "soak: {mpi:?}: {line}; {folded:?}; {what}");
    outcome.assert_prints(" calls ok");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    if seconds < SECONDS_FOR_GROWTH {
        assert!(most.max(MOST) == MOST, "more than {MOST:?}: {what}");
        return;
    }
    assert!(late.kib <= early.kib + early.kib / 10 + MORE_KIB, "memory grows: {what}");
    assert!(late.files <= early.files + MORE_FILES, "open files grow: {what}");
    assert!(late.threads <= early.threads + 1, "threads grow: {what}");
    assert!(late.maps <= early.maps + MORE_MAPS, "maps grow: {what}");
}

/// Half the time on each MPI.
#[test]
#[ignore = "long: two minutes, or FOLDBACK_SOAK_HOURS"]
fn a_job_bears_faults_for_hours() {
    let _turn = turn();
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let seconds = number("FOLDBACK_SOAK_HOURS").map_or(120.0, |hours| hours * 3600.0);
    let now = || std::time::UNIX_EPOCH.elapsed().expect("later than 1970").as_secs() as f64;
    let seed = number("FOLDBACK_SOAK_SEED").unwrap_or_else(now) as u64;
    for mpi in [Mpi::Open, Mpi::Mpich] {
        soak(mpi, (seconds / 2.0) as u64, seed);
    }
}

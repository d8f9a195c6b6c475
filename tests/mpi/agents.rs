//! Ranks without any privilege, served by an agent on each host.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{FOLDBACK, Job, Mpi, command, succeed, turn, wait};

pub const HOSTS: u32 = 3;
pub const NOBODY: &str = "65534";
const SOON: Duration = Duration::from_secs(600);

/// A lab that stays, with an agent on each host.
pub struct Served {
    pub name: String,
    agents: Vec<Child>,
}

impl Served {
    pub fn new() -> Self {
        let name = format!("served-{}", std::process::id());
        let mut up = command(FOLDBACK);
        up.args(["lab", "up", "--name", &name, "--hosts", &HOSTS.to_string()]);
        up.args(["--lives-with", &std::process::id().to_string()]);
        succeed(&mut up, SOON);
        let mut served = Self { name, agents: Vec::new() };
        for host in 0..HOSTS {
            let agent = served
                .on(host)
                .args([FOLDBACK, "agent"])
                .stdin(Stdio::null())
                .spawn()
                .expect("the agent starts");
            served.agents.push(agent);
        }
        for host in 0..HOSTS {
            served.await_agent(host);
        }
        served
    }

    /// A command inside a host; the arguments are still to be given.
    pub fn on(&self, host: u32) -> Command {
        let mut command = command(FOLDBACK);
        command.args(["lab", "exec", "--name", &self.name, &format!("h{host}"), "--"]);
        command
    }

    /// A command that sends a signal to the agents of these hosts.
    fn signal(&self, signal: &str, hosts: std::ops::Range<usize>) -> String {
        let ids: Vec<_> = self.agents[hosts].iter().map(|agent| agent.id().to_string()).collect();
        format!("kill -{signal} {}", ids.join(" "))
    }

    fn await_agent(&self, host: u32) {
        let end = Instant::now() + SOON;
        loop {
            let mut status = self.on(host);
            status.args([FOLDBACK, "status"]).stdout(Stdio::null()).stderr(Stdio::null());
            if status.status().expect("foldback status starts").success() {
                return;
            }
            assert!(Instant::now() < end, "no agent answers on h{host}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            let _ = kill(Pid::from_raw(agent.id() as i32), Signal::SIGTERM);
            let _ = wait(agent, Duration::from_secs(10));
        }
        let _ = command(FOLDBACK).args(["lab", "down", "--name", &self.name]).status();
    }
}

#[test]
fn unprivileged_ranks_fold_through_an_agent() {
    let _turn = turn();
    let served = Served::new();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let outcome = Job::new(mpi, HOSTS)
            .option(&["--name", &served.name, "--as-user", NOBODY])
            .readable_by_all()
            .run("histogram", &[]);
        outcome.assert_prints("histogram: OK");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    }
}

#[test]
fn unprivileged_ranks_without_an_agent_run_on_mpi_alone() {
    let _turn = turn();
    let outcome = Job::new(Mpi::Open, 2)
        .option(&["--as-user", NOBODY])
        .readable_by_all()
        .run("histogram", &[]);
    outcome.assert_prints("histogram: OK");
    assert!(outcome.calls("Allreduce", "mpi") > 0, "{:#}", outcome.stats);
    assert_eq!(outcome.calls("Allreduce", "fold"), 0, "{:#}", outcome.stats);
}

/// The last groups that a program frees, too, though it makes and frees no more.
#[test]
fn freed_communicators_leave_no_group_behind() {
    let _turn = turn();
    let served = Served::new();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let groups = format!("{FOLDBACK} status | grep '^group '");
        let outcome = Job::new(mpi, HOSTS)
            .option(&["--name", &served.name])
            .run("freed", &["--groups", &groups]);
        outcome.assert_prints("freed: all gone");
    }
}

/// Killed, or stopped as at every upgrade, on all hosts or on one, with collectives under way.
#[test]
fn a_job_outlives_its_agents() {
    let _turn = turn();
    for (mpi, ranks_per_host, signal, hosts) in [
        (Mpi::Open, 1, "KILL", 0..3),
        (Mpi::Mpich, 2, "KILL", 0..3),
        (Mpi::Open, 2, "TERM", 1..2),
        (Mpi::Mpich, 1, "KILL", 0..1),
    ] {
        let served = Served::new();
        let outcome = Job::new(mpi, HOSTS)
            .ranks_per_host(ranks_per_host)
            .option(&["--name", &served.name])
            .run("orphan", &["--command", &served.signal(signal, hosts)]);
        outcome.assert_prints("orphan: OK");
        assert!(outcome.stderr.contains("going on by ordinary sockets"), "{}", outcome.stderr);
        assert!(outcome.rescued() > 0, "{:#}", outcome.stats);
    }
}

//! Ranks without any privilege, served by an agent on each host.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{FOLDBACK, HANG, Job, Lab, Mpi, Outcome, Scratch, succeed, turn, wait};

pub const HOSTS: u32 = 3;
pub const NOBODY: &str = "65534";
const SOON: Duration = Duration::from_secs(600);

/// A lab with an agent on each host.
pub struct Served {
    pub lab: Lab,
    pub agents: Vec<Child>,
    /// Options of agents that are started.
    options: &'static [&'static str],
}

impl Served {
    pub fn new() -> Self {
        Self::with(&[])
    }

    fn with(options: &'static [&'static str]) -> Self {
        let mut served = Self { lab: Lab::new(HOSTS), agents: Vec::new(), options };
        served.agents = (0..HOSTS).map(|host| served.start_agent(host)).collect();
        for host in 0..HOSTS {
            served.await_agent(host);
        }
        served
    }

    pub fn start_agent(&self, host: u32) -> Child {
        let mut agent = self.lab.on(host);
        agent.args([FOLDBACK, "agent"]).args(self.options).stdin(Stdio::null());
        agent.spawn().expect("the agent starts")
    }

    /// Starts agents anew where they end, until `over` says so.
    fn restart_agents(&mut self, over: impl Fn() -> bool) {
        while !over() {
            for host in 0..HOSTS {
                let agent = &mut self.agents[host as usize];
                if agent.try_wait().expect("the agent can be waited for").is_some() {
                    self.agents[host as usize] = self.start_agent(host);
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A command that sends a signal to the agents of these hosts, and waits until they stand still or have ended:
    /// on a busy machine all calls of a test may be over before.
    fn signal(&self, signal: &str, hosts: std::ops::Range<usize>) -> String {
        let ids: Vec<_> = self.agents[hosts].iter().map(|agent| agent.id().to_string()).collect();
        let ids = ids.join(" ");
        let is_over = "! test -e /proc/$agent || grep -q '^State:.[TZ]' /proc/$agent/status";
        let wait = format!("until {is_over}; do sleep 0.01; done");
        format!("kill -{signal} {ids}; for agent in {ids}; do {wait}; done")
    }

    /// A command that detaches what the agents of these hosts have attached as links.
    fn detach(&self, hosts: std::ops::Range<usize>) -> String {
        let files: Vec<_> = self.agents[hosts]
            .iter()
            .map(|agent| format!("/proc/{}/fdinfo/*", agent.id()))
            .collect();
        let links = format!("sed -n 's/^link_id:[[:space:]]*//p' {}", files.join(" "));
        format!(
            "links=$({links}); test -n \"$links\" && for link in $links; do bpftool link detach id $link; done"
        )
    }

    /// A command that takes all groups out of a map, by its name, of the programs of these hosts.
    fn empty(&self, map: &str, hosts: std::ops::Range<usize>) -> String {
        let of_agent = |agent: &Child| {
            format!(
                "for map in $(sed -n 's/^map_id:[[:space:]]*//p' /proc/{}/fdinfo/*); do \
                   bpftool map show id $map | grep -q 'name {map} ' || continue; \
                   for key in $(bpftool -j map dump id $map | grep -o '\"key\":\\[[^]]*' | tr -d '\" ' | cut -d[ -f2); do \
                     bpftool map delete id $map key $(echo $key | tr , ' ') && gone=1; \
                   done; \
                 done",
                agent.id()
            )
        };
        let commands: Vec<_> = self.agents[hosts].iter().map(of_agent).collect();
        format!("{}; test -n \"$gone\"", commands.join("; "))
    }

    fn await_agent(&self, host: u32) {
        self.await_status(host, |_| true);
    }

    /// Whether the agent of a host answers.
    fn answers(&self, host: u32) -> bool {
        let output = self.lab.on(host).args([FOLDBACK, "status"]).output();
        output.expect("foldback status starts").status.success()
    }

    /// Agents destroy the groups of ranks that are gone.
    pub fn await_no_groups(&self) {
        for host in 0..HOSTS {
            self.await_status(host, |said| !said.lines().any(|line| line.starts_with("group ")));
        }
    }

    /// Waits until the agent of a host answers, and says what is wanted.
    fn await_status(&self, host: u32, is_right: impl Fn(&str) -> bool) {
        let end = Instant::now() + SOON;
        loop {
            let output = self.lab.on(host).args([FOLDBACK, "status"]).output();
            let output = output.expect("foldback status starts");
            let said = String::from_utf8_lossy(&output.stdout);
            if output.status.success() && is_right(&said) {
                return;
            }
            assert!(Instant::now() < end, "the agent of h{host} says {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn end_agents(&mut self) {
        for agent in &mut self.agents {
            // One that has ended already is not there to be told.
            if agent.try_wait().is_ok_and(|status| status.is_none()) {
                for signal in [Signal::SIGTERM, Signal::SIGCONT] {
                    let _ = kill(Pid::from_raw(agent.id() as i32), signal);
                }
            }
            let _ = wait(agent, Duration::from_secs(10));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end_agents();
    }
}

#[test]
fn unprivileged_ranks_fold_through_an_agent() {
    let _turn = turn();
    let served = Served::new();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let outcome = Job::new(mpi, HOSTS)
            .lab(&served.lab)
            .option(&["--as-user", NOBODY])
            .readable_by_all()
            .run("histogram", &[]);
        outcome.assert_prints("histogram: OK");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    }
}

/// Where one host has no agent, all ranks do without.
#[test]
fn a_host_without_an_agent_has_all_fold_by_sockets() {
    let _turn = turn();
    let served = Served::new();
    let end = served.signal("TERM", 1..2);
    succeed(Command::new("sh").args(["-c", &end]), HANG);
    let outcome = Job::new(Mpi::Open, HOSTS)
        .lab(&served.lab)
        .option(&["--as-user", NOBODY])
        .readable_by_all()
        .run("histogram", &[]);
    outcome.assert_prints("histogram: OK");
    outcome.assert_hook("none");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    let why = "folding by ordinary sockets alone, which is slower: rank 1 (host 1): no agent";
    assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
}

/// Of more communicators than there are groups kept for: the last that a program frees, too, though it makes and
/// frees no more.
#[test]
fn freed_communicators_leave_no_more_groups_than_serve_others() {
    let _turn = turn();
    let served = Served::new();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let groups = format!("{FOLDBACK} status | grep '^group '");
        let outcome = Job::new(mpi, HOSTS).lab(&served.lab).run("freed", &["--groups", &groups]);
        outcome.assert_prints("freed: all others gone");
    }
}

/// Those that duplicates leave behind serve the next ones.
#[test]
#[ignore = "long: 10,000 duplicates"]
fn ten_thousand_duplicates_need_few_groups() {
    let _turn = turn();
    let served = Served::new();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let groups = format!("{FOLDBACK} status | grep '^group '");
        let outcome = Job::new(mpi, HOSTS)
            .lab(&served.lab)
            .timeout(1800)
            .env("FOLDBACK_SETUP_CALLS", "")
            .run("duplicates", &["--cycles", "10000", "--groups", &groups]);
        outcome.assert_prints("duplicates: 10000 cycles ok");
        assert_eq!(outcome.calls_for("group not set up yet"), 0, "{:#}", outcome.stats);
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
            .lab(&served.lab)
            .run("orphan", &["--command", &served.signal(signal, hosts)]);
        outcome.assert_prints("orphan: OK");
        outcome.assert_rescued();
    }
}

/// Somebody detaches the programs of running agents, of one host or all, and nobody attaches them again.
#[test]
fn a_job_outlives_its_programs() {
    let _turn = turn();
    for (mpi, ranks_per_host, hosts) in [(Mpi::Open, 2, 1..2), (Mpi::Mpich, 1, 0..3)] {
        let served = Served::new();
        let outcome = Job::new(mpi, HOSTS)
            .ranks_per_host(ranks_per_host)
            .lab(&served.lab)
            .run("orphan", &["--command", &served.detach(hosts)]);
        outcome.assert_prints("orphan: OK");
        outcome.assert_rescued();
    }
}

/// Somebody deletes the groups, or their cells, from the programs' maps.
#[test]
fn a_job_outlives_its_maps() {
    let _turn = turn();
    for (mpi, ranks_per_host, map) in [(Mpi::Open, 2, "groups"), (Mpi::Mpich, 1, "cells")] {
        let served = Served::new();
        let outcome = Job::new(mpi, HOSTS)
            .ranks_per_host(ranks_per_host)
            .lab(&served.lab)
            .run("orphan", &["--command", &served.empty(map, 1..2)]);
        outcome.assert_prints("orphan: OK");
        outcome.assert_rescued();
    }
}

/// Likewise where there are no links: the qdisc goes, and the filters with it.
#[test]
fn a_job_outlives_its_filters() {
    let _turn = turn();
    for (mpi, command) in [
        (Mpi::Open, "tc qdisc del dev eth0 clsact"),
        (Mpi::Mpich, "tc filter del dev eth0 ingress; tc filter del dev eth0 egress"),
    ] {
        let outcome = Job::new(mpi, HOSTS)
            .env("FOLDBACK_TC", "clsact")
            .run("orphan", &["--command", command]);
        outcome.assert_prints("orphan: OK");
        outcome.assert_rescued();
    }
}

/// They stand still when the job ends, and nobody waits long for them, unless for what their programs counted.
#[test]
fn a_job_ends_while_its_agents_stand_still() {
    let _turn = turn();
    for (mpi, ranks_per_host) in [(Mpi::Open, 1), (Mpi::Mpich, 2)] {
        let served = Served::new();
        let outcome = Job::new(mpi, HOSTS)
            .ranks_per_host(ranks_per_host)
            .lab(&served.lab)
            .env("FOLDBACK_STATS", "")
            .run("orphan", &["--command", &served.signal("STOP", 0..3)]);
        outcome.assert_prints("orphan: OK");
        assert!(outcome.stderr.contains("foldback: folded "), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains("has not answered"), "{}", outcome.stderr);
    }
}

/// Runs `orphan`, whose rank 0 kills all agents, each of which is then started anew; returns what came of the job.
fn outlive_an_upgrade(mpi: Mpi, arguments: &[&str]) -> Outcome {
    let mut served = Served::new();
    let kill = served.signal("KILL", 0..3);
    let name = served.lab.name.clone();
    let answers = format!("{FOLDBACK} status >/dev/null 2>&1");
    let outcome = std::thread::scope(|scope| {
        let job = scope.spawn(|| {
            let all = [&["--command", &kill, "--until", &answers], arguments].concat();
            Job::new(mpi, HOSTS).option(&["--name", &name]).run("orphan", &all)
        });
        // Here, since the agents are told to end when the thread that starts them does.
        served.restart_agents(|| job.is_finished());
        job.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    outcome.assert_prints("orphan: OK");
    assert!(outcome.rescued() > 0, "{:#}", outcome.stats);
    // The kernels have folded for the new agents: what was counted for the first ones is gone with them.
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    outcome
}

#[test]
fn a_new_agent_serves_new_communicators() {
    let _turn = turn();
    outlive_an_upgrade(Mpi::Open, &["--dup", "--calls", "400"]);
}

/// After 1,024 calls, that is, when all ranks look whether any of their hosts has lost its programs.
#[test]
fn a_new_agent_serves_old_communicators() {
    let _turn = turn();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let outcome = outlive_an_upgrade(mpi, &["--calls", "900"]);
        assert!(outcome.stderr.contains("a group anew"), "{}", outcome.stderr);
    }
}

/// Agents that drain serve the old communicator, and those that took their addresses the new one.
#[test]
fn agents_change_while_the_old_ones_drain() {
    let _turn = turn();
    let mut served = Served::with(&["--drain", "3600"]);
    let old: Vec<_> = served.agents.iter().map(|agent| agent.id().to_string()).collect();
    let end = format!("kill -TERM {}", old.join(" "));
    // In words of `foldback status`.
    let others = format!("agent .*, process ({}),", old.join("|"));
    let others_serve =
        format!("said=$({FOLDBACK} status) && ! echo \"$said\" | grep -Eq '{others}'");
    // Each host has a group of the new agent, too.
    let new_group = format!("{FOLDBACK} status | grep -q '^group '");
    let name = served.lab.name.clone();
    let outcome = std::thread::scope(|scope| {
        let job = scope.spawn(|| {
            Job::new(Mpi::Open, HOSTS).option(&["--name", &name]).run(
                "orphan",
                &["--command", &end, "--until", &others_serve, "--dup", "--then", &new_group],
            )
        });
        for host in 0..HOSTS {
            while served.answers(host) && !job.is_finished() {
                std::thread::sleep(Duration::from_millis(20));
            }
            let new = served.start_agent(host);
            served.agents.push(new);
        }
        job.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    outcome.assert_prints("orphan: OK");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    assert!(!outcome.stderr.contains("WARN"), "{}", outcome.stderr);
    for agent in &mut served.agents[..HOSTS as usize] {
        let status = wait(agent, HANG).expect("without groups it ends");
        assert!(status.success(), "{status}");
    }
}

/// Nobody brings the agents back, and no rank may be one itself: what is slower than MPI goes to MPI.
#[test]
fn a_job_without_agents_returns_to_mpi() {
    let _turn = turn();
    let mut served = Served::new();
    let (wanted, name) = (Scratch::new("wanted"), served.lab.name.clone());
    let wait = format!(
        "touch {}; while {FOLDBACK} status >/dev/null 2>&1; do sleep 0.05; done",
        wanted.path().display()
    );
    let outcome = std::thread::scope(|scope| {
        let job = scope.spawn(|| {
            Job::new(Mpi::Open, HOSTS)
                .option(&["--name", &name, "--as-user", NOBODY])
                .readable_by_all()
                .run("orphan", &["--command", &wait, "--calls", "2500"])
        });
        while !wanted.path().exists() && !job.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
        }
        served.end_agents();
        job.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    outcome.assert_prints("orphan: OK");
    assert!(outcome.calls_for("group not set up yet") > 0, "{:#}", outcome.stats);
    assert!(outcome.calls("Allreduce", "fold") > 0, "{:#}", outcome.stats);
}

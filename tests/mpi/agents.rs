//! Ranks without any privilege, served by an agent on each host.

use std::process::Command;
use std::time::Duration;

use crate::harness::{FOLDBACK, HANG, Job, Mpi, Outcome, Scratch, succeed, turn, wait};
use crate::served::{HOSTS, NOBODY, Served};

#[test]
fn unprivileged_ranks_fold_through_an_agent() {
    let _turn = turn();
    let served = Served::new(HOSTS);
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

/// A job of few calls asks its agents for nothing. Of a longer one, the group is made after so many calls.
#[test]
fn a_short_job_asks_no_agent() {
    let _turn = turn();
    let served = Served::new(HOSTS);
    let job = |mpi| Job::new(mpi, HOSTS).lab(&served.lab).env("FOLDBACK_SETUP_CALLS", "");
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let outcome = job(mpi).run("histogram", &[]);
        assert_eq!(outcome.all_calls(Some("fold")), 0, "{:#}", outcome.stats);
        assert!(outcome.calls_for("group not set up yet") > 0, "{:#}", outcome.stats);
    }
    served.await_status(0, |said| said.lines().any(|line| line == "interface  none in use"));
    served.attach();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let calls = ["--sizes", "8", "--warmup", "0", "--iterations", "20000"];
        let outcome = job(mpi).run("latency", &calls);
        let early = outcome.calls_for("group not set up yet") / u64::from(HOSTS);
        // At the 300th call; or some times 64 later, where agents do not get to answer in time.
        let late = early.checked_sub(299).expect("not before the 300th call");
        assert!(late.is_multiple_of(64), "{early}: {:#}", outcome.stats);
        assert!(outcome.all_calls(Some("fold")) > 0, "{:#}", outcome.stats);
    }
}

/// Ranks do not wait for agents that stand still. When these answer, new communicators are folded on.
#[test]
fn nobody_waits_for_an_agent_and_it_serves_the_job_later() {
    let _turn = turn();
    let served = Served::new(HOSTS);
    served.attach();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let stop = served.signal("STOP", served.all());
        succeed(Command::new("sh").args(["-c", &stop]), HANG);
        let go_on = served.go_on(served.all());
        let answers = format!("{FOLDBACK} status >/dev/null");
        let job = Job::new(mpi, HOSTS).lab(&served.lab).env("FOLDBACK_SETUP_CALLS", "3");
        let outcome = job.run("orphan", &["--command", &go_on, "--until", &answers, "--dup"]);
        outcome.assert_prints("orphan: OK");
        let early = outcome.calls_for("group not set up yet");
        assert!(early > 0, "{:#}", outcome.stats);
        assert!(outcome.all_calls(Some("fold")) > 0, "{:#}", outcome.stats);
        assert!(!outcome.stderr.contains("WARN"), "{}", outcome.stderr);
    }
}

/// Ranks that bring their own agents load the programs while the job goes on by MPI, and then it folds.
#[test]
fn nobody_waits_for_programs_that_a_rank_loads() {
    let _turn = turn();
    for (mpi, ranks_per_host) in [(Mpi::Open, 2), (Mpi::Mpich, 1)] {
        let job = Job::new(mpi, HOSTS).ranks_per_host(ranks_per_host);
        let job = job.env("FOLDBACK_SETUP_CALLS", "");
        let calls = ["--sizes", "8", "--warmup", "0", "--iterations", "60000"];
        let outcome = job.run("latency", &calls);
        let early = outcome.calls_for("group not set up yet");
        let folded = outcome.all_calls(Some("fold"));
        // At the 9,600th call they begin to, and look 64 calls later whether all have them.
        let ranks = u64::from(HOSTS * ranks_per_host);
        assert!(early >= 9_663 * ranks && folded > 0, "{early} and {folded}: {:#}", outcome.stats);
        let large = outcome.calls_for("too large");
        assert_eq!(early + folded + large, outcome.all_calls(None), "{:#}", outcome.stats);
    }
}

/// If one host has no agent, all ranks do without.
#[test]
fn a_host_without_an_agent_has_all_fold_by_sockets() {
    let _turn = turn();
    let served = Served::new(HOSTS);
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
    let served = Served::new(HOSTS);
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let groups = format!("{FOLDBACK} status | grep '^group '");
        let outcome = Job::new(mpi, HOSTS).lab(&served.lab).run("freed", &["--groups", &groups]);
        outcome.assert_prints("freed: all others gone");
    }
}

/// With the settings that users have: once there have been enough calls on some of them.
#[test]
fn duplicates_of_the_world_are_folded_after_some_calls() {
    let _turn = turn();
    let served = Served::new(HOSTS);
    served.attach();
    for (mpi, ranks_per_host) in [(Mpi::Open, 2), (Mpi::Mpich, 1)] {
        let outcome = Job::new(mpi, HOSTS)
            .lab(&served.lab)
            .ranks_per_host(ranks_per_host)
            .env("FOLDBACK_SETUP_CALLS", "")
            .run("duplicates", &["--cycles", "300"]);
        outcome.assert_prints("duplicates: 300 cycles ok");
        let early = outcome.calls_for("group not set up yet");
        let all = outcome.all_calls(None);
        assert!(early > 0, "{:#}", outcome.stats);
        assert_eq!(outcome.all_calls(Some("fold")) + early, all, "{:#}", outcome.stats);
        outcome.assert_folded(&["Allreduce", "Bcast", "Barrier"]);
    }
}

/// Rows, columns and the like: the first of each set of ranks has a group after some calls, and it serves the others.
#[test]
fn the_same_ranks_are_folded_at_once_the_second_time() {
    let _turn = turn();
    let served = Served::new(4);
    served.attach();
    let outcome = Job::new(Mpi::Open, 4)
        .lab(&served.lab)
        .env("FOLDBACK_SETUP_CALLS", "")
        .run("duplicates", &["--cycles", "300", "--part"]);
    outcome.assert_prints("duplicates: 300 cycles ok");
    let early = outcome.calls_for("group not set up yet");
    assert!(early > 0, "{:#}", outcome.stats);
    outcome.assert_folded(&["Allreduce", "Bcast", "Barrier"]);
}

/// Groups that duplicates leave behind serve the next ones.
#[test]
#[ignore = "long: 10,000 duplicates"]
fn ten_thousand_duplicates_need_few_groups() {
    let _turn = turn();
    let served = Served::new(HOSTS);
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let groups = format!("{FOLDBACK} status | grep '^group '");
        let outcome = Job::new(mpi, HOSTS)
            .lab(&served.lab)
            .timeout(1800)
            .env("FOLDBACK_SETUP_CALLS", "")
            .run("duplicates", &["--cycles", "10000", "--groups", &groups]);
        outcome.assert_prints("duplicates: 10000 cycles ok");
        let early = outcome.calls_for("group not set up yet");
        assert!(early < outcome.all_calls(None) / 10, "{:#}", outcome.stats);
    }
}

/// Of hosts with so many ranks each.
type Setting = (Mpi, u32, u32);

const EVERY_SETTING: [Setting; 6] = [
    (Mpi::Open, 2, 1),
    (Mpi::Open, 4, 2),
    (Mpi::Open, 8, 1),
    (Mpi::Mpich, 2, 1),
    (Mpi::Mpich, 4, 2),
    (Mpi::Mpich, 8, 1),
];

/// Its name, and the command that brings it.
type Trouble = (&'static str, fn(&Served) -> String);

/// Troubles of some hosts' programs, with collectives under way, that nobody repairs.
const TROUBLES: [Trouble; 8] = [
    ("agents killed", |served| served.signal("KILL", served.all())),
    ("an agent killed", |served| served.signal("KILL", 0..1)),
    ("agents stopped as at an upgrade", |served| served.signal("TERM", served.all())),
    ("an agent stopped as at an upgrade", |served| served.signal("TERM", 1..2)),
    ("programs detached", |served| served.detach(served.all())),
    ("a host's programs detached", |served| served.detach(1..2)),
    ("groups deleted", |served| served.empty("groups", 1..2)),
    ("cells deleted", |served| served.empty("cells", 1..2)),
];

/// Runs `orphan` in trouble, by name.
fn outlive((mpi, hosts, ranks_per_host): Setting, trouble: &str, arguments: &[&str]) {
    let served = Served::new(hosts);
    let (_, command) = TROUBLES.iter().find(|(name, _)| *name == trouble).expect("a trouble");
    let command = command(&served);
    let outcome = Job::new(mpi, hosts)
        .ranks_per_host(ranks_per_host)
        .lab(&served.lab)
        .run("orphan", &[&["--command", &command], arguments].concat());
    outcome.assert_prints("orphan: OK");
    outcome.assert_rescued();
    tell_the_end((mpi, hosts, ranks_per_host), trouble, &outcome);
}

/// How long MPI_Finalize took: for who looks, not to be judged.
fn tell_the_end((mpi, hosts, ranks): Setting, trouble: &str, outcome: &Outcome) {
    let took = outcome.stdout.lines().find(|line| line.contains("MPI_Finalize took"));
    eprintln!("{mpi:?}, {hosts} x {ranks}, {trouble}: {}", took.unwrap_or("nothing said"));
}

#[test]
fn a_job_outlives_its_agents() {
    let _turn = turn();
    outlive((Mpi::Open, 3, 1), "agents killed", &[]);
    outlive((Mpi::Mpich, 3, 2), "agents killed", &[]);
    outlive((Mpi::Open, 3, 2), "an agent stopped as at an upgrade", &[]);
    outlive((Mpi::Mpich, 3, 1), "an agent killed", &[]);
}

/// Somebody detaches the programs of running agents, of one host or all, and nobody attaches them again.
#[test]
fn a_job_outlives_its_programs() {
    let _turn = turn();
    outlive((Mpi::Open, 3, 2), "a host's programs detached", &[]);
    outlive((Mpi::Mpich, 3, 1), "programs detached", &[]);
}

/// Somebody deletes the groups, or their cells, from the programs' maps.
#[test]
fn a_job_outlives_its_maps() {
    let _turn = turn();
    outlive((Mpi::Open, 3, 2), "groups deleted", &[]);
    outlive((Mpi::Mpich, 3, 1), "cells deleted", &[]);
}

/// The programs go while a rank that has started a collective computes.
#[test]
#[ignore = "long: a minute each"]
fn a_collective_outlives_them_while_a_rank_computes() {
    let _turn = turn();
    outlive((Mpi::Open, 4, 2), "agents killed", &["--compute", "60"]);
    outlive((Mpi::Mpich, 2, 1), "programs detached", &["--compute", "60"]);
}

#[test]
#[ignore = "long: every trouble in every setting"]
fn a_job_outlives_every_trouble() {
    let _turn = turn();
    for setting @ (mpi, hosts, ranks_per_host) in EVERY_SETTING {
        for (trouble, _) in TROUBLES {
            outlive(setting, trouble, &[]);
        }
        for route in ["fold", "mpi"] {
            let outcome = Job::new(mpi, hosts)
                .ranks_per_host(ranks_per_host)
                .env("FOLDBACK_ROUTE", route)
                .run("orphan", &["--command", "true"]);
            tell_the_end(setting, &format!("none, FOLDBACK_ROUTE={route}"), &outcome);
        }
        for command in FILTERS_GO {
            outlive_filters(setting, command);
        }
        outlive_standstill(setting);
        outlive_an_upgrade(setting, &["--dup", "--calls", "400"]);
    }
}

/// Without links, as of kernels before 6.6: the qdisc goes, and the filters with it, or these alone.
const FILTERS_GO: [&str; 2] = [
    "tc qdisc del dev eth0 clsact",
    "tc filter del dev eth0 ingress; tc filter del dev eth0 egress",
];

fn outlive_filters((mpi, hosts, ranks_per_host): Setting, command: &str) {
    let outcome = Job::new(mpi, hosts)
        .ranks_per_host(ranks_per_host)
        .env("FOLDBACK_TEST_TC", "clsact")
        .run("orphan", &["--command", command]);
    outcome.assert_prints("orphan: OK");
    outcome.assert_rescued();
}

#[test]
fn a_job_outlives_its_filters() {
    let _turn = turn();
    outlive_filters((Mpi::Open, 3, 1), FILTERS_GO[0]);
    outlive_filters((Mpi::Mpich, 3, 1), FILTERS_GO[1]);
}

/// A rank, and all of its threads, is stopped in mid-run, for longer than any timer of the protocol runs.
#[test]
#[ignore = "long: half a minute in every setting"]
fn a_rank_may_be_stopped_for_long() {
    let _turn = turn();
    for setting @ (mpi, hosts, ranks_per_host) in EVERY_SETTING {
        let goes_on = Scratch::new("goes-on");
        let path = goes_on.path().display();
        // The shell's parent is rank 0.
        let stop = "kill -STOP $PPID; sleep 30; kill -CONT $PPID";
        let stop = format!("(sleep 0.1; {stop}; touch {path}) </dev/null >/dev/null 2>&1 &");
        let outcome = Job::new(mpi, hosts).ranks_per_host(ranks_per_host).run(
            "orphan",
            &["--command", &stop, "--calls", "20000", "--until", &format!("test -e {path}")],
        );
        outcome.assert_prints("orphan: OK");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
        tell_the_end(setting, "a rank stopped for 30 s", &outcome);
    }
}

/// They stand still when the job ends, and nobody waits long for them, unless for what their programs counted.
fn outlive_standstill((mpi, hosts, ranks_per_host): Setting) {
    let served = Served::new(hosts);
    let outcome = Job::new(mpi, hosts)
        .ranks_per_host(ranks_per_host)
        .lab(&served.lab)
        .env("FOLDBACK_STATS", "")
        .run("orphan", &["--command", &served.signal("STOP", served.all())]);
    outcome.assert_prints("orphan: OK");
    assert!(outcome.stderr.contains("foldback: folded "), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("has not answered"), "{}", outcome.stderr);
    tell_the_end((mpi, hosts, ranks_per_host), "agents that stand still", &outcome);
}

#[test]
fn a_job_ends_while_its_agents_stand_still() {
    let _turn = turn();
    outlive_standstill((Mpi::Open, 3, 1));
    outlive_standstill((Mpi::Mpich, 3, 2));
}

/// Runs `orphan`, whose rank 0 kills all agents, each of which is then started anew; returns what came of the job.
fn outlive_an_upgrade((mpi, hosts, ranks_per_host): Setting, arguments: &[&str]) -> Outcome {
    let mut served = Served::new(hosts);
    let kill = served.signal("KILL", served.all());
    let name = served.lab.name.clone();
    let prepared = format!("said=$({FOLDBACK} status) && ! echo \"$said\" | grep -q 'none in use'");
    let outcome = std::thread::scope(|scope| {
        let job = scope.spawn(|| {
            let all = [&["--command", &kill, "--until", &prepared], arguments].concat();
            Job::new(mpi, hosts)
                .ranks_per_host(ranks_per_host)
                .option(&["--name", &name])
                .run("orphan", &all)
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
    outlive_an_upgrade((Mpi::Open, HOSTS, 1), &["--dup", "--calls", "400"]);
}

/// After 1,024 calls, that is, when all ranks look whether any of their hosts has lost its programs.
#[test]
fn a_new_agent_serves_old_communicators() {
    let _turn = turn();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let outcome = outlive_an_upgrade((mpi, HOSTS, 1), &["--calls", "900"]);
        assert!(outcome.stderr.contains("a group anew"), "{}", outcome.stderr);
    }
}

/// Draining agents serve the old communicator; agents that took their addresses serve the new one.
#[test]
fn agents_change_while_the_old_ones_drain() {
    let _turn = turn();
    let mut served = Served::with(HOSTS, &["--drain", "3600"]);
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

/// Runs a job whose ranks wait, in the midst of their collectives, while `trouble` befalls its agents.
fn amid_a_job(served: &mut Served, trouble: impl FnOnce(&mut Served)) -> Outcome {
    let (wanted, done) = (Scratch::new("wanted"), Scratch::new("done"));
    let [wanted, done] = [&wanted, &done].map(Scratch::path);
    let (touch, test) = (wanted.display(), done.display());
    let wait = format!("touch {touch}; until test -e {test}; do sleep 0.05; done");
    let name = served.lab.name.clone();
    std::thread::scope(|scope| {
        let job = scope.spawn(|| {
            Job::new(Mpi::Open, HOSTS)
                .option(&["--name", &name, "--as-user", NOBODY])
                .readable_by_all()
                .run("orphan", &["--command", &wait, "--calls", "2500"])
        });
        while !wanted.exists() && !job.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
        }
        trouble(served);
        std::fs::write(done, "").expect("a file can be written");
        job.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Nobody brings the agents back, and no rank may be one itself: what is slower than MPI goes to MPI.
#[test]
fn a_job_without_agents_returns_to_mpi() {
    let _turn = turn();
    let outcome = amid_a_job(&mut Served::new(HOSTS), Served::end_agents);
    outcome.assert_prints("orphan: OK");
    assert!(outcome.calls_for("group not set up yet") > 0, "{:#}", outcome.stats);
    assert!(outcome.calls("Allreduce", "fold") > 0, "{:#}", outcome.stats);
}

/// Agents of another build take the places of a running job's. They serve its ranks nothing, and the job goes on.
#[test]
fn a_job_outlives_an_upgrade_to_another_version() {
    let _turn = turn();
    let outcome = amid_a_job(&mut Served::new(HOSTS), |served| {
        served.end_agents();
        (0..HOSTS).for_each(|host| served.take_place_by_another_version(host));
    });
    outcome.assert_prints("orphan: OK");
    outcome.assert_rescued();
    assert!(outcome.stderr.contains("another version of foldback"), "{}", outcome.stderr);
    assert!(outcome.calls_for("group not set up yet") > 0, "{:#}", outcome.stats);
}

/// While a job folds, `foldback status` and `foldback top` show its calls; and its user's counts stay when it has gone.
#[test]
fn the_agent_shows_the_calls_of_a_job() {
    let _turn = turn();
    let served = Served::new(HOSTS);
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let scratch = Scratch::new("top");
        let told =
            |file: &str| std::fs::read_to_string(scratch.path().join(file)).expect("it was shown");
        // One rank shows what it sees on its host.
        let look = format!(
            "mkdir {0} 2>/dev/null || exit 0; {FOLDBACK} top --count 1 --interval 1 >{0}/top && \
             {FOLDBACK} status --json >{0}/status",
            scratch.path().display()
        );
        let job = Job::new(mpi, HOSTS).lab(&served.lab).env("PBS_JOBID", "12[3].server");
        let outcome = job.run("orphan", &["--until", "true", "--then", &look]);
        outcome.assert_prints("orphan: OK");
        let top = told("top");
        assert!(top.lines().any(|line| line.contains(" 12[3].server ")), "{top}");
        let told: serde_json::Value = serde_json::from_str(&told("status")).expect("JSON");
        let group = &told["groups"][0];
        assert_eq!(group["job"], "12[3].server", "{told:#}");
        assert!(group["work"]["calls"].as_u64() > Some(0), "{told:#}");
        let folded = |of: &serde_json::Value| of["counters"]["frames_in"].as_u64();
        assert!(folded(group) > Some(0), "{told:#}");
        assert!(folded(&told["users"][0]) >= folded(group), "{told:#}");
    }
    served.await_no_groups();
    served.await_status(0, |said| said.contains("\nuser 0     groups 0 of "));
}

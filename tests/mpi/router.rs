//! Routes by measurement: whatever is chosen, and whenever that changes, all ranks choose alike and all
//! answers are right.

use std::thread;
use std::time::Duration;

use crate::harness::{FOLDBACK, HANG, Job, Lab, Mpi, Outcome, Scratch, command, succeed, turn};

fn job(mpi: Mpi, hosts: u32) -> Job {
    Job::new(mpi, hosts).env("FOLDBACK_ROUTE", "auto").env("FOLDBACK_MAX_BYTES", "")
}

/// Calls after which the first trial is over for certain: 16, then two turns of four by each of four
/// ways (`src/choice/class.rs`).
const FIRST_TRIAL: u64 = 16 + 2 * 4 * 4;

/// Every class that had enough calls was measured, by more than one way. One with few, such as the
/// broadcasts by which `drift` ends, may be amid its first trial when the program is over.
fn assert_measured(outcome: &Outcome, collective: &str) {
    let routes = outcome.routes(collective);
    let tried = routes.iter().filter(|route| route["calls"].as_u64() > Some(FIRST_TRIAL));
    let ways: Vec<_> = tried.map(|route| route["nanoseconds"].as_object().unwrap()).collect();
    assert!(!ways.is_empty(), "{collective}: {:#}", outcome.stats["routes"]);
    for ways in ways {
        assert!(ways.len() > 1 && ways.contains_key("mpi"), "{collective}: {ways:?}");
    }
}

#[test]
fn random_collectives_are_right_by_whatever_way() {
    let _turn = turn();
    for (mpi, hosts, ranks) in [(Mpi::Open, 4, 1), (Mpi::Open, 2, 2), (Mpi::Mpich, 2, 1)] {
        let job = job(mpi, hosts).ranks_per_host(ranks);
        let outcome =
            job.run("conformance", &["--calls", "6000", "--compare", "--real-above", "-1"]);
        outcome.assert_prints("conformance: 6000 calls ok");
        outcome.assert_folded(&["Allreduce", "Bcast", "Barrier"]);
        assert!(outcome.calls_for("faster by MPI") > 0, "{:#}", outcome.stats);
    }
}

#[test]
fn the_ways_are_compared_on_the_programs_own_calls() {
    let _turn = turn();
    for bytes in ["4", "100000"] {
        let outcome = job(Mpi::Open, 3).run("drift", &["--bytes", bytes, "--seconds", "1"]);
        outcome.assert_prints("of each ok");
        assert_measured(&outcome, "Allreduce");
        assert_measured(&outcome, "Bcast");
    }
}

#[test]
fn they_are_compared_while_frames_are_lost() {
    let _turn = turn();
    let faults = ["--loss", "1%", "--dup", "1%", "--reorder", "1%", "--faults-on", "udp"];
    for bytes in ["64", "20000"] {
        let job = job(Mpi::Open, 3).option(&faults);
        let outcome = job.run("drift", &["--bytes", bytes, "--seconds", "3"]);
        outcome.assert_prints("of each ok");
        assert_measured(&outcome, "Allreduce");
    }
}

#[test]
fn whoever_wants_the_real_mpi_alone_gets_it() {
    let _turn = turn();
    let job = job(Mpi::Open, 2).env("FOLDBACK_ROUTE", "mpi");
    let outcome = job.run("drift", &["--seconds", "1"]);
    assert!(outcome.calls_for("routed to MPI") > 0);
    let lines = outcome.stats["collectives"].as_array().unwrap();
    assert!(lines.iter().all(|line| line["route"] == "mpi"), "{:#}", outcome.stats);
}

#[test]
fn a_network_may_change_in_mid_run() {
    let _turn = turn();
    let lab = Lab::new(4);
    let name = lab.name.clone();
    let changes = thread::spawn(move || {
        for rate in ["100mbit", "off", "1gbit", "off"] {
            thread::sleep(Duration::from_secs(2));
            let mut set = command(FOLDBACK);
            succeed(set.args(["lab", "rate", rate, "--name", &name]), HANG);
        }
    });
    let job = job(Mpi::Open, 4).lab(&lab);
    let outcome = job.run("drift", &["--bytes", "1024", "--seconds", "10"]);
    changes.join().expect("the rates are set");
    outcome.assert_prints("of each ok");
    assert_measured(&outcome, "Allreduce");
}

/// Nothing of foldback computes with floating point in the program's thread: not to choose, to write down what was
/// measured, or to report it.
#[test]
fn a_program_may_have_all_floating_point_trap() {
    let _turn = turn();
    let profile = Scratch::new("trapped.json");
    let job = job(Mpi::Open, 2).env("FOLDBACK_PROFILE", profile.path().to_str().unwrap());
    let outcome = job.env("FOLDBACK_REPORT", "full").run("surroundings", &["--traps", "--folded"]);
    outcome.assert_prints("surroundings: all ok under traps");
    assert_measured(&outcome, "Allreduce");
    assert!(profile.path().exists());
}

#[test]
fn what_one_job_has_measured_the_next_one_begins_with() {
    let _turn = turn();
    let profile = Scratch::new("profile.json");
    let read = || std::fs::read_to_string(profile.path()).unwrap();
    let run = |hosts| {
        let job = job(Mpi::Open, hosts);
        let job = job.env("FOLDBACK_PROFILE", profile.path().to_str().unwrap());
        // More calls than a trial takes, and fewer than to the first look at what was learnt.
        let arguments = ["--sizes", "8", "--warmup", "50", "--iterations", "100"];
        job.run("latency", &arguments)
    };
    let route = |outcome: &Outcome| {
        let routes = outcome.routes("Allreduce");
        routes.into_iter().find(|route| route["up_to_bytes"] == 8).cloned().unwrap()
    };
    let (first, second) = (route(&run(2)), route(&run(2)));
    assert_eq!((&first["trials"], &second["trials"]), (&1.into(), &0.into()));
    assert_eq!(first["way"], second["way"]);
    assert_eq!(first["nanoseconds"], second["nanoseconds"]);
    // Measurements between two hosts say nothing of three.
    assert_eq!(route(&run(3))["trials"], 1);
    let groups = serde_json::from_str::<serde_json::Value>(&read()).unwrap()["groups"].clone();
    let hosts: Vec<_> = groups.as_array().unwrap().iter().map(|group| &group["hosts"]).collect();
    assert_eq!(hosts, [2, 3]);
    // A file that is no profile stays unchanged.
    std::fs::write(profile.path(), "my thesis").unwrap();
    let outcome = run(2);
    assert_eq!(route(&outcome)["trials"], 1);
    assert_eq!(outcome.stderr.matches("is left alone").count(), 1, "{}", outcome.stderr);
    assert_eq!(read(), "my thesis");
}

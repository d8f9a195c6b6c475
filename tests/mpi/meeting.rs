//! The ranks of a communicator meet when they have made a call together: before that, foldback sends nothing.

use std::path::Path;
use std::process::Command;

use crate::harness::{Job, Mpi, Outcome, Scratch, WITHOUT_FOLDBACK_ON_H1, program, turn};
use crate::served::Served;

/// Collectives that foldback itself makes in one process.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// With other ranks.
    together: u64,
    /// On communicators of this process alone.
    alone: u64,
}

/// Runs `few` as users do, and counts the collectives that foldback itself makes in each process.
fn few(arguments: &str) -> (Outcome, Vec<Counted>) {
    let counter = Scratch::new("counter.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/counter.c");
    let mut compiler = Command::new("mpicc.openmpi");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(counter.path()).arg(source);
    assert!(compiler.status().expect("the compiler").success());
    let (counter, program) = (counter.path().display(), program(Mpi::Open, "few"));
    let script = format!("LD_PRELOAD=$LD_PRELOAD:{counter} exec {} {arguments}", program.display());
    let job = Job::new(Mpi::Open, 2).env("FOLDBACK_SETUP_CALLS", "");
    let outcome = job.run_path(Path::new("/bin/sh"), &["-c", &script]);
    outcome.assert_prints("few: all ok");
    let counted = |line: &str| {
        let counts = line.split_once("counter: ")?.1.strip_suffix(" alone")?;
        let (together, alone) = counts.split_once(" together, ")?;
        Some(Counted { together: together.parse().ok()?, alone: alone.parse().ok()? })
    };
    let counts = outcome.stderr.lines().filter_map(counted).collect();
    (outcome, counts)
}

#[test]
fn foldback_sends_nothing_before_ranks_have_made_a_call_together() {
    let _turn = turn();
    // Ranks, and the launcher's own processes on their hosts. After a collective of one process alone, Open MPI 4 takes
    // 10 ms for the job's first message.
    let (outcome, counts) = few("--maximum");
    assert!(counts.len() >= 2, "{}", outcome.stderr);
    assert!(counts.iter().all(|one| one.together + one.alone == 0), "{counts:?}");
    // Rank 0 reports of itself.
    assert_eq!(outcome.stats["reports"], 1, "{:#}", outcome.stats);
    assert_eq!(outcome.calls_for("group not set up yet"), 6, "{:#}", outcome.stats);
    let (outcome, counts) = few("--maximum --barrier");
    assert!(counts.iter().any(|one| one.together > 0 && one.alone > 0), "{counts:?}");
    assert_eq!(outcome.stats["reports"], 2, "{:#}", outcome.stats);
    assert_eq!(outcome.all_calls(None), 14, "{:#}", outcome.stats);
}

/// One of two ranks has no foldback; the other notices once they have made a call together.
fn without_foldback_on_one(mpi: Mpi, name: &str, arguments: &[&str]) -> (Job, Vec<String>) {
    let program = program(mpi, name);
    let job = Job::new(mpi, 2).env("FOLDBACK_SETUP_CALLS", "").env("FOLDBACK_SETUP_TIMEOUT", "1");
    let words = ["-c", WITHOUT_FOLDBACK_ON_H1, "sh", program.to_str().expect("a plain path")];
    (job, words.iter().chain(arguments).map(|word| (*word).to_owned()).collect())
}

#[test]
fn a_short_job_does_not_notice_that_a_rank_has_no_foldback() {
    let _turn = turn();
    for mpi in Mpi::EVERY.into_iter().filter(|mpi| mpi.installed()) {
        let (job, words) = without_foldback_on_one(mpi, "few", &[]);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        job.run_path(Path::new("/bin/sh"), &words).assert_prints("few: all ok");
    }
}

#[test]
fn a_job_ends_with_a_message_once_it_notices_that_a_rank_has_no_foldback() {
    let _turn = turn();
    for mpi in Mpi::EVERY.into_iter().filter(|mpi| mpi.installed()) {
        let (job, words) = without_foldback_on_one(mpi, "few", &["--barrier"]);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let said = job.run_path_to_failure(Path::new("/bin/sh"), &words);
        assert!(said.contains("did not answer within 1 s"), "{mpi:?}: {said}");
    }
}

/// Groups come while calls of all kinds are under way, on communicators of every making, by one thread and by several.
#[test]
fn answers_are_right_where_groups_come_in_mid_run() {
    let _turn = turn();
    // Ranks that load programs themselves take their time.
    let served = Served::new(3);
    // The first agents attach their programs meanwhile.
    for (mpi, cold) in [(Mpi::Open, true), (Mpi::Open, false), (Mpi::Mpich, false)] {
        if !cold {
            served.attach();
        }
        for (name, arguments, folds) in [
            ("subcomm", ["--cycles", "20"].as_slice(), true),
            ("duplicates", &["--cycles", "60", "--part"], true),
            ("threads", &[], true),
            ("makeup", &[], false),
            ("zoo", &[], false),
        ] {
            let job = Job::new(mpi, 3).lab(&served.lab).env("FOLDBACK_SETUP_CALLS", "3");
            let outcome = job.run(name, arguments);
            assert!(
                cold || !folds || outcome.all_calls(Some("fold")) > 0,
                "{name}: {:#}",
                outcome.stats
            );
            assert!(outcome.calls_for("group not set up yet") > 0, "{name}: {:#}", outcome.stats);
        }
    }
}

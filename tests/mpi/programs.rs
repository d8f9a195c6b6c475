//! The other programs: progress, communicators, errors, what is not ours, and launching.

use std::path::Path;

use crate::harness::{FOLDBACK, HANG, Job, Mpi, Scratch, command, library, program, succeed, turn};

const BOTH: [Mpi; 2] = [Mpi::Open, Mpi::Mpich];

/// Ranks of MPICH do not yield, so there are not more of them than CPUs.
fn hosts(mpi: Mpi) -> u32 {
    if mpi == Mpi::Open { 3 } else { 2 }
}

#[test]
fn waiting_drives_the_real_mpi() {
    let _turn = turn();
    for mpi in BOTH {
        let outcome = Job::new(mpi, hosts(mpi)).run("progress", &[]);
        outcome.assert_prints("progress: all ok");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    }
}

#[test]
fn several_ranks_a_host_drive_the_real_mpi() {
    let _turn = turn();
    let outcome = Job::new(Mpi::Open, 2).ranks_per_host(2).run("progress", &[]);
    outcome.assert_prints("progress: all ok");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
}

#[test]
fn communicators_of_every_making_work() {
    let _turn = turn();
    for mpi in BOTH {
        let outcome = Job::new(mpi, hosts(mpi)).run("subcomm", &["--cycles", "60"]);
        outcome.assert_prints("subcomm: all ok");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    }
    let job = Job::new(Mpi::Open, 2).ranks_per_host(3);
    let outcome = job.run("subcomm", &["--cycles", "60"]);
    outcome.assert_prints("subcomm: all ok");
}

/// Groups take the kernel grace periods of RCU, which are long on a busy machine: time enough for those.
#[test]
#[ignore = "long: 1,000 communicators"]
fn a_thousand_communicators_come_and_go() {
    let _turn = turn();
    let job = Job::new(Mpi::Open, 2).timeout(1800);
    let outcome = job.run("subcomm", &["--cycles", "1000"]);
    outcome.assert_prints("1000 cycles");
}

#[test]
fn what_is_not_ours_goes_to_mpi() {
    let _turn = turn();
    for mpi in BOTH {
        let outcome = Job::new(mpi, hosts(mpi)).run("fallback", &[]);
        outcome.assert_prints("fallback: all ok");
        outcome.assert_folded(&["Allreduce"]);
        for reason in ["datatype", "op", "too large", "intercommunicator"] {
            assert!(outcome.calls_for(reason) > 0, "no {reason:?}: {:#}", outcome.stats);
        }
    }
}

/// Bit for bit, on all ranks, whatever the rounding and whether the op commutes.
#[test]
fn what_the_kernel_does_not_fold_is_folded_in_the_order_of_ranks() {
    let _turn = turn();
    const REDUCTIONS: &[&str] =
        &["Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"];
    for mpi in BOTH {
        for (hosts, ranks) in [(2, 1), (4, 1), (2, 2)] {
            // Ranks of MPICH do not yield, and send each other what they compare with.
            let rounds = if mpi == Mpi::Mpich && hosts * ranks > 2 { "4" } else { "12" };
            let job = Job::new(mpi, hosts).ranks_per_host(ranks);
            let outcome = job.run("order", &["--exact", "--rounds", rounds]);
            outcome.assert_prints("order: all ok");
            outcome.assert_folded(REDUCTIONS);
            for collective in REDUCTIONS {
                let folded = outcome.calls_in_form(collective, "Nonblocking", "fold");
                assert!(folded > 0, "no non-blocking {collective}: {:#}", outcome.stats);
            }
            for reason in ["datatype", "op", "too large", "argument"] {
                assert_eq!(outcome.calls_for(reason), 0, "{reason:?}: {:#}", outcome.stats);
            }
        }
    }
}

/// By shards, each of which its host folds; with one rank on each, in the order of ranks as well.
#[test]
fn long_vectors_of_floating_point_are_folded_in_the_order_of_ranks() {
    let _turn = turn();
    for (mpi, hosts) in [(Mpi::Open, 2), (Mpi::Open, 3), (Mpi::Open, 4), (Mpi::Mpich, 2)] {
        let outcome = Job::new(mpi, hosts).run("order", &["--exact", "--long", "--rounds", "12"]);
        outcome.assert_prints("order: all ok");
        for collective in ["Allreduce", "Reduce_scatter_block"] {
            let folded = outcome.calls_in_form(collective, "Nonblocking", "fold");
            assert!(folded > 0, "no non-blocking {collective}: {:#}", outcome.stats);
        }
        for reason in ["datatype", "op", "too large", "argument"] {
            assert_eq!(outcome.calls_for(reason), 0, "{reason:?}: {:#}", outcome.stats);
        }
    }
}

#[test]
fn foldback_off_folds_nothing() {
    let _turn = turn();
    let outcome = Job::new(Mpi::Open, 2).env("FOLDBACK", "off").run("histogram", &[]);
    outcome.assert_prints("histogram: OK");
    assert_eq!(outcome.calls("Allreduce", "fold"), 0);
}

/// Whoever waits for a frame does not learn that a rank is gone.
/// What one rank has to say at set-up, however long, reaches all.
#[test]
fn one_ranks_long_nonsense_is_told_and_the_job_goes_on() {
    let _turn = turn();
    let program = program(Mpi::Open, "histogram");
    let script = "[ \"$(hostname)\" = h1 ] && export FOLDBACK_NET=\"$0\"; exec \"$@\"";
    let nonsense = "x".repeat(5000);
    let outcome = Job::new(Mpi::Open, 2)
        .run_path(Path::new("/bin/sh"), &["-c", script, &nonsense, program.to_str().unwrap()]);
    outcome.assert_prints("histogram: OK");
    let why = outcome.stats["no_group"].as_str().unwrap_or_default();
    let want = format!("rank 1 (host 1): FOLDBACK_NET={nonsense}: ADDRESS/LENGTH");
    assert_eq!(why, want, "{}", outcome.stderr);
}

#[test]
fn jobs_that_may_lose_ranks_are_left_to_mpi() {
    let _turn = turn();
    let job = Job::new(Mpi::Open, 2).option(&["-x", "OMPI_MCA_mpi_ft_enable=1"]);
    let outcome = job.run("histogram", &[]);
    outcome.assert_prints("histogram: OK");
    assert!(outcome.stats.is_null(), "foldback was there: {:#}", outcome.stats);
    assert!(outcome.stderr.contains("OMPI_MCA_mpi_ft_enable"), "{}", outcome.stderr);
}

/// `foldback run` on this one host: nothing to fold, but the library is there and counts.
#[test]
fn either_launcher_gets_the_library_to_the_ranks() {
    let _turn = turn();
    for (mpi, launcher) in [(Mpi::Open, "mpirun.openmpi"), (Mpi::Mpich, "mpiexec.hydra")] {
        let stats = Scratch::new("run.json");
        let mut command = command(FOLDBACK);
        command.args(["run", "--", launcher, "-n", "2"]).arg(program(mpi, "histogram"));
        command.env("FOLDBACK_LIB", library()).env("FOLDBACK_STATS", stats.path());
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(name, "1");
        }
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        let (stdout, _) = succeed(&mut command, HANG);
        assert!(stdout.contains("histogram: OK"), "{launcher}: {stdout}");
        let text = std::fs::read_to_string(stats.path()).expect("statistics were written");
        let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(stats["ranks"], 2, "{launcher}: {text}");
    }
}

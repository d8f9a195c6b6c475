//! Pairs that are reduced by key, by foldback's own functions, on every MPI.

use crate::harness::{Job, Mpi, Outcome, turn};
use crate::served::{HOSTS, Served};

fn assert_folded(outcome: &Outcome) {
    outcome.assert_prints("keys: all ok");
    let counts = |what: &str| outcome.stats["pairs"][what].as_u64().unwrap_or(0);
    assert!(counts("flushes") > 0 && counts("sent") > 0, "{:#}", outcome.stats);
    assert!(counts("sent") < counts("added"), "{:#}", outcome.stats);
    for collective in ["Allreduce", "Alltoall", "Alltoallv"] {
        assert!(outcome.calls(collective, "fold") > 0, "{:#}", outcome.stats);
    }
}

fn keys(mpi: Mpi) {
    let job = Job::new(mpi, 3).env("FOLDBACK_ROUTE", "fold");
    assert_folded(&job.run("keys", &["--count", "200"]));
}

on_each_mpi! { keys:
    pairs_by_key_on_open_mpi_4: Open;
    pairs_by_key_on_open_mpi_5: Open5;
    pairs_by_key_on_mpich_4: Mpich;
    pairs_by_key_on_mpich_5: Mpich5;
    pairs_by_key_on_mpich_5_with_the_standard_abi: Mpich5Abi;
    pairs_by_key_on_intel_mpi: Intel;
}

/// Two ranks on each of two hosts, more pairs of each, and others.
#[test]
fn pairs_by_key_of_several_ranks_on_a_host() {
    let _turn = turn();
    let job = Job::new(Mpi::Open, 2).ranks_per_host(2).env("FOLDBACK_ROUTE", "fold");
    assert_folded(&job.run("keys", &["--count", "2000", "--seed", "2"]));
}

/// The most hosts that a group may have.
#[test]
fn pairs_by_key_of_sixty_four_hosts() {
    let _turn = turn();
    let job = Job::new(Mpi::Open, 64).env("FOLDBACK_ROUTE", "fold");
    assert_folded(&job.run("keys", &["--count", "20", "--large", "500", "--seed", "6"]));
}

/// Frames are lost, come twice, late and damaged.
#[test]
fn pairs_by_key_come_through_faults() {
    let _turn = turn();
    let faults = ["--loss", "2%", "--dup", "2%", "--reorder", "5%", "--corrupt", "1%"];
    let job = Job::new(Mpi::Open, 3).option(&faults).option(&["--faults-on", "udp"]);
    let job = job.env("FOLDBACK_ROUTE", "fold");
    assert_folded(&job.run("keys", &["--count", "100", "--large", "1000", "--seed", "3"]));
}

/// The kernels of owners combine pairs as they come.
fn combined(mpi: Mpi, hosts: u32) -> Job {
    Job::new(mpi, hosts).env("FOLDBACK_ROUTE", "fold").env("FOLDBACK_PAIRS_BY", "kernel")
}

fn assert_combined(outcome: &Outcome) {
    outcome.assert_prints("keys: all ok");
    assert!(outcome.kernel("pairs_folded") > 0, "{:#}", outcome.stats);
}

#[test]
fn kernels_combine_pairs() {
    let _turn = turn();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let outcome = combined(mpi, 3).run("keys", &["--count", "200"]);
        assert_combined(&outcome);
        // Some buckets are full by chance, however soon the process empties them: 10,000 frames come.
        assert!(outcome.kernel("pairs_spilt") > 0, "{:#}", outcome.stats);
    }
}

#[test]
fn kernels_combine_pairs_through_faults() {
    let _turn = turn();
    let faults = ["--loss", "2%", "--dup", "2%", "--reorder", "5%", "--corrupt", "1%"];
    let job = combined(Mpi::Open, 3).option(&faults).option(&["--faults-on", "udp"]);
    assert_combined(&job.run("keys", &["--count", "100", "--large", "1000", "--seed", "4"]));
}

/// Kernels stop combining while pairs are on their way, since their programs go.
#[test]
fn pairs_outlive_the_programs() {
    let _turn = turn();
    let served = Served::new(HOSTS);
    let command = format!("sleep 0.2; {}", served.detach(served.all()));
    let arguments = ["--count", "200", "--large", "2000000", "--command", &command];
    let outcome = combined(Mpi::Open, HOSTS).lab(&served.lab).run("keys", &arguments);
    // By the flushes before. Of the long exchange the kernels may have had any part.
    assert_combined(&outcome);
    outcome.assert_rescued();
}

/// Several ranks on a host, and no programs: kernels combine nothing there.
#[test]
fn processes_combine_pairs_where_kernels_cannot() {
    let _turn = turn();
    let without_programs = combined(Mpi::Open, 2).env("FOLDBACK_TRANSPORT", "sockets");
    for job in [combined(Mpi::Open, 2).ranks_per_host(2), without_programs] {
        let outcome = job.run("keys", &["--count", "200"]);
        assert_folded(&outcome);
        assert_eq!(outcome.kernel("pairs_folded"), 0);
    }
}

/// The real MPI brings the pairs where foldback is off, and where ranks have no group.
#[test]
fn pairs_by_key_are_the_same_without_a_group() {
    let _turn = turn();
    let arguments = ["--count", "200"];
    for (name, value) in [("FOLDBACK", "off"), ("FOLDBACK_ROUTE", "mpi")] {
        let outcome = Job::new(Mpi::Open, 3).env(name, value).run("keys", &arguments);
        outcome.assert_prints("keys: all ok");
        assert_eq!(outcome.calls("Alltoallv", "fold"), 0, "{:#}", outcome.stats);
    }
    for ranks in [1, 3] {
        let outcome = Job::new(Mpi::Mpich, 1).ranks_per_host(ranks).run("keys", &arguments);
        outcome.assert_prints("keys: all ok");
    }
}

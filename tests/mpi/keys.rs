//! Pairs that are reduced by key, by foldback's own functions, on every MPI.

use crate::harness::{Job, Mpi, Outcome, turn};

fn assert_folded(outcome: &Outcome) {
    outcome.assert_prints("keys: all ok");
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

/// Frames are lost, come twice, late and damaged.
#[test]
fn pairs_by_key_come_through_faults() {
    let _turn = turn();
    let faults = ["--loss", "2%", "--dup", "2%", "--reorder", "5%", "--corrupt", "1%"];
    let job = Job::new(Mpi::Open, 3).option(&faults).option(&["--faults-on", "udp"]);
    let job = job.env("FOLDBACK_ROUTE", "fold");
    assert_folded(&job.run("keys", &["--count", "100", "--large", "1000", "--seed", "3"]));
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

//! Reductions over neighbours by foldback's own functions, on every MPI.

use crate::harness::{Job, Mpi, Outcome, turn};

/// A number of the statistics of caches.
fn cached(outcome: &Outcome, what: &str) -> u64 {
    outcome.stats["cached"][what].as_u64().unwrap_or(0)
}

fn assert_folded(outcome: &Outcome) {
    outcome.assert_prints("neighbors: all ok");
    for collective in ["Neighbor_allgather", "Neighbor_allgatherv"] {
        assert!(outcome.calls(collective, "fold") > 0, "{:#}", outcome.stats);
    }
    assert!(cached(outcome, "reused") > 0, "{:#}", outcome.stats);
    assert!(cached(outcome, "bytes_sent") < cached(outcome, "bytes"), "{:#}", outcome.stats);
}

fn neighbors(mpi: Mpi) {
    let job = Job::new(mpi, 3).env("FOLDBACK_ROUTE", "fold");
    assert_folded(&job.run("neighbors", &["--stream", "300"]));
}

on_each_mpi! { neighbors:
    reductions_over_neighbours_on_open_mpi_4: Open;
    reductions_over_neighbours_on_open_mpi_5: Open5;
    reductions_over_neighbours_on_mpich_4: Mpich;
    reductions_over_neighbours_on_mpich_5: Mpich5;
    reductions_over_neighbours_on_mpich_5_with_the_standard_abi: Mpich5Abi;
    reductions_over_neighbours_on_intel_mpi: Intel;
}

/// 10,000 rounds in which ranks change one of 1,000 blocks, by three caches.
#[test]
fn no_kept_reduction_is_stale() {
    let _turn = turn();
    let job = Job::new(Mpi::Open, 4).env("FOLDBACK_ROUTE", "fold");
    let outcome = job.run("neighbors", &["--rounds", "4"]);
    assert_folded(&outcome);
    assert!(cached(&outcome, "bytes_sent") < cached(&outcome, "bytes") / 50);
    assert!(cached(&outcome, "frames_sent") < cached(&outcome, "frames"), "{:#}", outcome.stats);
}

/// Notices and changes are lost, come twice, late and damaged.
#[test]
fn kept_reductions_come_through_faults() {
    let _turn = turn();
    let faults = ["--loss", "2%", "--dup", "2%", "--reorder", "5%", "--corrupt", "1%"];
    let job = Job::new(Mpi::Open, 3).option(&faults).option(&["--faults-on", "udp"]);
    let job = job.env("FOLDBACK_ROUTE", "fold");
    assert_folded(&job.run("neighbors", &["--rounds", "4", "--stream", "300", "--seed", "2"]));
}

/// The same functions, where foldback is off, and where ranks have no group: the real MPI brings the vectors.
#[test]
fn without_a_group_the_answers_are_the_same() {
    let _turn = turn();
    let arguments = ["--rounds", "4", "--stream", "300"];
    for (name, value) in [("FOLDBACK", "off"), ("FOLDBACK_ROUTE", "mpi")] {
        let outcome = Job::new(Mpi::Open, 3).env(name, value).run("neighbors", &arguments);
        outcome.assert_prints("neighbors: all ok");
        assert_eq!(outcome.calls("Neighbor_allgatherv", "fold"), 0, "{:#}", outcome.stats);
    }
    let outcome = Job::new(Mpi::Mpich, 1).ranks_per_host(3).run("neighbors", &arguments);
    outcome.assert_prints("neighbors: all ok");
}

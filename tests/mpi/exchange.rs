//! Collectives in which each pair of ranks has a block of its own, on every MPI.

use crate::harness::{Job, Mpi, Outcome, turn};

/// The collectives, by MPI's names.
const EXCHANGES: [&str; 9] = [
    "Gatherv",
    "Scatterv",
    "Alltoallv",
    "Alltoallw",
    "Neighbor_allgather",
    "Neighbor_allgatherv",
    "Neighbor_alltoall",
    "Neighbor_alltoallv",
    "Neighbor_alltoallw",
];

/// The number of folded calls of each.
fn folded(outcome: &Outcome) -> [u64; EXCHANGES.len()] {
    EXCHANGES.map(|collective| outcome.calls(collective, "fold"))
}

fn exchange(mpi: Mpi) {
    let outcome = Job::new(mpi, 4).run("exchange", &["--rounds", "1", "--seed", "1"]);
    outcome.assert_prints("exchange: all ok");
    assert!(folded(&outcome).iter().all(|calls| *calls > 0), "{:#}", outcome.stats);
}

/// Leaders carry the parcels of their hosts' ranks. On 3 hosts of 3, halves of the ranks are 1 or 2 on a host. MPICH 4
/// and Intel MPI are wrong here on their own.
#[test]
fn blocks_of_pairs_of_several_ranks_on_a_host() {
    let _turn = turn();
    let mpis = [Mpi::Open, Mpi::Open5, Mpi::Mpich5, Mpi::Mpich5Abi];
    for mpi in mpis.into_iter().filter(|mpi| mpi.installed()) {
        for (hosts, ranks) in [(2, 2), (3, 3)] {
            let job = Job::new(mpi, hosts).ranks_per_host(ranks);
            let outcome = job.run("exchange", &["--rounds", "1", "--seed", "2"]);
            outcome.assert_prints("exchange: all ok");
            let folded = folded(&outcome);
            assert!(folded.iter().all(|calls| *calls > 0), "{folded:?}: {:#}", outcome.stats);
        }
    }
}

/// A rank gets several blocks of one neighbour in the order that its MPI has, whoever brings them.
#[test]
fn several_blocks_of_a_neighbour_come_in_the_order_of_the_mpi() {
    let _turn = turn();
    for mpi in Mpi::EVERY.into_iter().filter(|mpi| mpi.installed()) {
        let lines = |job: Job| {
            let outcome = job.run("wraps", &[]);
            outcome.assert_prints("wraps: all ok");
            let lines = outcome.stdout.lines().filter(|line| line.starts_with("wraps: "));
            (lines.map(str::to_owned).collect::<Vec<_>>(), outcome)
        };
        let (alone, _) = lines(Job::new(mpi, 2).option(&["--off"]));
        let (with, outcome) = lines(Job::new(mpi, 2));
        assert_eq!(with, alone, "{mpi:?}");
        let of_blocks = outcome.calls("Neighbor_alltoall", "fold");
        assert!(of_blocks > 0, "{mpi:?}: {:#}", outcome.stats);
    }
}

/// Its communicators get their groups where they are made, in a job that asks for groups at once.
#[test]
fn halo_exchange_that_never_blocks_is_folded() {
    let _turn = turn();
    let kinds = ["Neighbor_alltoall", "Neighbor_alltoallv", "Neighbor_alltoallw"];
    let run = |job: Job, arguments: &[&str]| {
        let outcome = job.run("halo", arguments);
        outcome.assert_prints("halo: all ok");
        let of = |way| kinds.map(|kind| outcome.calls_in_form(kind, "Nonblocking", way));
        (of("fold"), of("mpi"), outcome.stats)
    };
    for mpi in Mpi::EVERY.into_iter().filter(|mpi| mpi.installed()) {
        let (folded, left, stats) = run(Job::new(mpi, 4), &[]);
        assert!(folded.iter().all(|calls| *calls > 0), "{mpi:?}: {stats:#}");
        assert_eq!(left, [0; 3], "{mpi:?}: {stats:#}");
    }
    let (folded, left, stats) = run(Job::new(Mpi::Open, 4).env("FOLDBACK_SETUP_CALLS", "300"), &[]);
    assert!(folded == [0; 3] && left.iter().all(|calls| *calls > 0), "{stats:#}");
}

/// An Alltoall of long rows, also of MPI_BOTTOM on both sides and in place.
#[test]
fn long_rows_go_as_parcels() {
    let _turn = turn();
    for ranks in [1, 2] {
        let job = Job::new(Mpi::Open, 3).ranks_per_host(ranks).env("FOLDBACK_ROUTE", "fold");
        let arguments =
            ["--batches", "80", "--seed", "3", "--form", "blocking", "--real-above", "-1"];
        let outcome = job.run("collectives", &arguments);
        outcome.assert_prints("collectives: 80 batches ok");
        assert!(outcome.calls("Alltoall", "fold") > 0, "{:#}", outcome.stats);
    }
}

/// Parcels are lost, come twice, late and damaged.
#[test]
fn blocks_of_pairs_come_through_faults() {
    let _turn = turn();
    let faults = ["--loss", "2%", "--dup", "2%", "--reorder", "5%", "--corrupt", "1%"];
    for ranks in [1, 2] {
        let job = Job::new(Mpi::Open, 3).ranks_per_host(ranks);
        let job = job.option(&faults).option(&["--faults-on", "udp"]);
        let outcome = job.run("exchange", &["--rounds", "1", "--seed", "3"]);
        outcome.assert_prints("exchange: all ok");
        assert!(folded(&outcome).iter().all(|calls| *calls > 0), "{:#}", outcome.stats);
    }
}

on_each_mpi! { exchange:
    blocks_of_pairs_on_open_mpi_4: Open;
    blocks_of_pairs_on_open_mpi_5: Open5;
    blocks_of_pairs_on_mpich_4: Mpich;
    blocks_of_pairs_on_mpich_5: Mpich5;
    blocks_of_pairs_on_mpich_5_with_the_standard_abi: Mpich5Abi;
    blocks_of_pairs_on_intel_mpi: Intel;
}

//! Groups without programs: ranks without any privilege, no agent, ordinary sockets.

use crate::harness::{Job, Mpi, turn};
use crate::served::NOBODY;

const BOTH: [Mpi; 2] = [Mpi::Open, Mpi::Mpich];

fn without_agent(mpi: Mpi, hosts: u32) -> Job {
    Job::new(mpi, hosts).option(&["--as-user", NOBODY]).readable_by_all()
}

fn unprivileged(mpi: Mpi, hosts: u32, ranks_per_host: u32) -> Job {
    without_agent(mpi, hosts).ranks_per_host(ranks_per_host).env("FOLDBACK_TRANSPORT", "sockets")
}

#[test]
fn random_collectives_are_right() {
    let _turn = turn();
    // Ranks of MPICH do not yield.
    for (mpi, hosts, ranks, calls) in [
        (Mpi::Open, 2, 1, "1000"),
        (Mpi::Open, 3, 2, "500"),
        (Mpi::Open, 8, 1, "300"),
        (Mpi::Mpich, 2, 1, "500"),
        (Mpi::Mpich, 3, 1, "100"),
    ] {
        let job = unprivileged(mpi, hosts, ranks).env("FOLDBACK_MAX_BYTES", "4194304");
        let arguments = ["--calls", calls, "--seed", "21", "--settle", "16"];
        let outcome = job.run("conformance", &arguments);
        outcome.assert_prints(&format!("conformance: {calls} calls ok"));
        outcome.assert_hook("none");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
        assert_eq!(
            outcome.rescued(),
            0,
            "there is nothing to be rescued from: {:#}",
            outcome.stats
        );
    }
}

#[test]
fn every_form_of_every_collective_is_folded() {
    let _turn = turn();
    for mpi in BOTH {
        let job = unprivileged(mpi, 2, 1);
        let outcome = job.run("collectives", &["--batches", "40", "--real-above", "-1"]);
        outcome.assert_prints("collectives: 40 batches ok");
        outcome.assert_hook("none");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    }
}

/// A root that has left its broadcast sits in a receive of the MPI's: its keeper answers for it.
#[test]
fn a_rank_that_is_elsewhere_is_answered_for() {
    let _turn = turn();
    for mpi in BOTH {
        let outcome = unprivileged(mpi, 3, 1).run("orphan", &["--command", "true"]);
        outcome.assert_prints("orphan: OK");
        outcome.assert_hook("none");
        let outcome = unprivileged(mpi, 2, 1).run("progress", &[]);
        outcome.assert_prints("progress: all ok");
        outcome.assert_hook("none");
    }
}

#[test]
fn datagrams_may_be_lost() {
    let _turn = turn();
    let faults = ["--loss", "1%", "--dup", "1%", "--reorder", "1%", "--corrupt", "1%"];
    for (mpi, hosts) in [(Mpi::Open, 4), (Mpi::Mpich, 2)] {
        let job = unprivileged(mpi, hosts, 1).option(&faults);
        let outcome = job.run("stream", &["--calls", "3000"]);
        outcome.assert_prints("stream: 3000 calls ok");
        outcome.assert_hook("none");
        assert!(outcome.kernel("retransmissions") > 0, "nothing was lost? {:#}", outcome.stats);
        assert!(outcome.kernel("duplicates") > 0, "nothing was doubled? {:#}", outcome.stats);
    }
}

#[test]
fn what_does_not_come_through_is_found_by_the_trial() {
    let _turn = turn();
    let outcome = unprivileged(Mpi::Open, 2, 1)
        .option(&["--loss", "100%", "--faults-on", "udp"])
        .env("FOLDBACK_PROBE_TIMEOUT", "1")
        .run("histogram", &[]);
    outcome.assert_prints("histogram: OK");
    assert_eq!(outcome.calls("Allreduce", "fold"), 0, "{:#}", outcome.stats);
    assert!(outcome.stderr.contains("a first fold did not come back"), "{}", outcome.stderr);
}

/// As the MTU of some link may have it: small messages would pass, and the first large one would never come.
#[test]
fn a_path_that_drops_large_frames_is_found_by_the_trial() {
    let _turn = turn();
    let small = ["--loss", "100%", "--faults-on", "udp", "--faults-above", "1000"];
    for job in [unprivileged(Mpi::Open, 2, 1), Job::new(Mpi::Open, 2)] {
        let outcome = job.option(&small).env("FOLDBACK_PROBE_TIMEOUT", "1").run("histogram", &[]);
        outcome.assert_prints("histogram: OK");
        assert_eq!(outcome.calls("Allreduce", "fold"), 0, "{:#}", outcome.stats);
        assert!(outcome.stderr.contains("a first fold did not come back"), "{}", outcome.stderr);
    }
}

#[test]
fn who_has_no_agent_folds_small_messages() {
    let _turn = turn();
    for (mpi, hosts, ranks) in [(Mpi::Open, 2, 2), (Mpi::Mpich, 2, 1), (Mpi::Open, 4, 1)] {
        let job = without_agent(mpi, hosts).ranks_per_host(ranks).env("FOLDBACK_MAX_BYTES", "");
        let arguments = ["--calls", "500", "--settle", "16", "--real-above", "-1"];
        let outcome = job.run("conformance", &arguments);
        outcome.assert_prints("conformance: 500 calls ok");
        outcome.assert_hook("none");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
        assert!(outcome.calls_for("too large") > 0, "{:#}", outcome.stats);
    }
}

#[test]
fn many_hosts_without_an_agent_are_left_to_mpi() {
    let _turn = turn();
    let outcome = without_agent(Mpi::Open, 5).run("histogram", &[]);
    outcome.assert_prints("histogram: OK");
    assert_eq!(outcome.calls("Allreduce", "fold"), 0, "{:#}", outcome.stats);
    assert!(outcome.stderr.contains("this process lacks CAP_BPF"), "{}", outcome.stderr);
}

/// Not once for each communicator.
#[test]
fn what_nobody_asked_for_is_tried_in_vain_once() {
    let _turn = turn();
    let outcome = without_agent(Mpi::Open, 2)
        .option(&["--loss", "100%", "--faults-on", "udp"])
        .env("FOLDBACK_PROBE_TIMEOUT", "1")
        .run("subcomm", &["--cycles", "6"]);
    outcome.assert_prints("subcomm: all ok");
    assert_eq!(outcome.calls("Allreduce", "fold"), 0, "{:#}", outcome.stats);
    let left = |what, why| {
        let lines = outcome.stderr.lines();
        lines.filter(|line| line.contains(what) && line.contains(why)).count()
    };
    let (world, other) = ("] MPI_COMM_WORLD is left to MPI", "a communicator is left to MPI");
    let (in_vain, no_agent) = ("a first fold did not come back", "this process lacks CAP_BPF");
    assert_eq!(left(world, in_vain), 1, "{}", outcome.stderr);
    assert_eq!(left(other, in_vain), 0, "{}", outcome.stderr);
    assert!(left(other, no_agent) > 0, "{}", outcome.stderr);
}

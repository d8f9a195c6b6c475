//! Networks that lose, double, reorder and spoil frames.

use crate::harness::{Job, Mpi, turn};

const SMALL_FAULTS: &[&str] =
    &["--loss", "1%", "--dup", "1%", "--reorder", "1%", "--corrupt", "1%"];

/// Small collectives as fast as they go.
fn soak(job: Job, calls: u64) {
    let _turn = turn();
    let calls = calls.to_string();
    let outcome = job.option(SMALL_FAULTS).run("stream", &["--calls", &calls]);
    outcome.assert_prints(&format!("stream: {calls} calls ok"));
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    let repaired = outcome.kernel("pulls_sent") + outcome.kernel("retransmissions");
    assert!(repaired > 0, "nothing was lost? {:#}", outcome.stats);
    assert!(outcome.kernel("duplicates") > 0, "nothing was doubled? {:#}", outcome.stats);
    assert!(outcome.kernel("drop_corrupt") > 0, "nothing was spoilt? {:#}", outcome.stats);
}

/// Each setting in a short stream, and in a long one if asked for.
macro_rules! streams {
    ($($name:ident: $job:expr;)*) => {
        mod short {
            use super::*;
            $(
                #[test]
                fn $name() {
                    soak($job, 5_000);
                }
            )*
        }

        mod long {
            use super::*;
            $(
                #[test]
                #[ignore = "long: 100,000 calls"]
                fn $name() {
                    soak($job.timeout(1800), 100_000);
                }
            )*
        }
    };
}

streams! {
    by_tc: Job::new(Mpi::Open, 4).env("FOLDBACK_HOOK", "tc");
    by_xdp: Job::new(Mpi::Open, 3).env("FOLDBACK_HOOK", "xdp");
    by_the_other_algorithm: Job::new(Mpi::Open, 4).env("FOLDBACK_ALGORITHM", "direct");
    of_several_ranks_a_host: Job::new(Mpi::Open, 2).ranks_per_host(2);
    of_mpich: Job::new(Mpi::Mpich, 2);
}

/// Of any size, with far more faults than any network has.
#[test]
fn answers_are_right_whatever_the_network_does() {
    let _turn = turn();
    let outcome = Job::new(Mpi::Open, 3)
        .option(&["--loss", "5%", "--dup", "5%", "--reorder", "10%", "--corrupt", "5%"])
        .env("FOLDBACK_MAX_BYTES", "4194304")
        .run("conformance", &["--calls", "500", "--settle", "16", "--big-every", "200"]);
    outcome.assert_prints("conformance: 500 calls ok");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
}

/// A slow link: queues build up, windows fill.
#[test]
fn a_slow_link_only_takes_longer() {
    let _turn = turn();
    let outcome = Job::new(Mpi::Open, 3)
        .option(&["--rate", "100mbit"])
        .env("FOLDBACK_MAX_BYTES", "4194304")
        .run("conformance", &["--calls", "300", "--settle", "16", "--big-every", "100"]);
    outcome.assert_prints("conformance: 300 calls ok");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
}

/// Of one host, with collectives under way, its MPI's own messages among what is lost.
#[test]
fn a_link_may_be_down_for_a_while() {
    let _turn = turn();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let outcome = Job::new(mpi, 3)
            .run("orphan", &["--command", "ip link set eth0 down; sleep 2; ip link set eth0 up"]);
        outcome.assert_prints("orphan: OK");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    }
}

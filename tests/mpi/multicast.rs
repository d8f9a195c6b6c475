//! Frames to all hosts, at once, if all of them hear multicast.

use crate::harness::{HANG, Job, Lab, Mpi, Outcome, succeed, turn};

/// A shell command, after which the link to a host carries no frames to all.
fn deafen(lab: &Lab, host: u32) -> String {
    let fabric = format!("/run/foldback/lab/{}/fabric", lab.name);
    format!("nsenter --net={fabric} bridge link set dev p{host} mcast_flood off")
}

fn stream(job: Job) -> Outcome {
    let outcome = job.run("stream", &["--calls", "2000", "--seed", "5"]);
    outcome.assert_prints("stream: 2000 calls ok");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    outcome
}

#[test]
fn results_and_broadcasts_go_to_all_at_once() {
    let _turn = turn();
    for (mpi, hosts, hook) in [(Mpi::Open, 4, "tc"), (Mpi::Mpich, 3, "xdp")] {
        for algorithm in ["star", "direct", "shards"] {
            let job = Job::new(mpi, hosts).env("FOLDBACK_HOOK", hook);
            let outcome = stream(job.env("FOLDBACK_ALGORITHM", algorithm));
            let (all, at_once) = (outcome.kernel("fan_outs"), outcome.kernel("multicasts"));
            // But for the trials of groups.
            assert!(at_once > all / 2, "{at_once} of {all}: {:#}", outcome.stats);
        }
    }
}

#[test]
fn on_request_they_go_one_by_one() {
    let _turn = turn();
    let outcome = stream(Job::new(Mpi::Open, 3).env("FOLDBACK_MULTICAST", "off"));
    assert_eq!(outcome.kernel("multicasts"), 0, "{:#}", outcome.stats);
}

#[test]
fn where_one_host_does_not_hear_them_they_go_one_by_one() {
    let _turn = turn();
    let lab = Lab::new(4);
    succeed(std::process::Command::new("sh").args(["-c", &deafen(&lab, 2)]), HANG);
    let outcome = stream(Job::new(Mpi::Open, 4).lab(&lab));
    assert_eq!(outcome.kernel("multicasts"), 0, "{:#}", outcome.stats);
}

/// As where a switch forgets who wants to hear them.
#[test]
fn a_host_may_go_deaf_to_them_in_mid_run() {
    let _turn = turn();
    for (mpi, hosts, ranks_per_host) in [(Mpi::Open, 4, 2), (Mpi::Mpich, 3, 1)] {
        let lab = Lab::new(hosts);
        let job = Job::new(mpi, hosts).ranks_per_host(ranks_per_host).lab(&lab);
        let calls = 4000;
        let command = deafen(&lab, hosts - 1);
        let outcome = job.run("orphan", &["--calls", &calls.to_string(), "--command", &command]);
        outcome.assert_prints("orphan: OK");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
        assert!(outcome.kernel("multicasts") > 0, "{:#}", outcome.stats);
        let again = outcome.kernel("retransmissions");
        assert!(again < calls / 2, "{again} were sent again: {:#}", outcome.stats);
    }
}

//! Networks that lose, double, reorder and spoil frames.

use std::process::Command;
use std::time::Instant;

use crate::harness::{HANG, Job, Lab, Mpi, Outcome, succeed, turn};

const SMALL_FAULTS: &[&str] =
    &["--loss", "1%", "--dup", "1%", "--reorder", "1%", "--corrupt", "1%"];

/// Small collectives as fast as they go.
fn soak(job: Job, calls: u64, keyed: bool) {
    let _turn = turn();
    let calls = calls.to_string();
    let outcome = job.option(SMALL_FAULTS).run("stream", &["--calls", &calls]);
    outcome.assert_prints(&format!("stream: {calls} calls ok"));
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    let repaired = outcome.kernel("pulls_sent") + outcome.kernel("retransmissions");
    assert!(repaired > 0, "nothing was lost? {:#}", outcome.stats);
    assert!(outcome.kernel("duplicates") > 0, "nothing was doubled? {:#}", outcome.stats);
    let spoilt = ["drop_forged", "drop_corrupt"].map(|counter| outcome.kernel(counter) > 0);
    assert_eq!(spoilt, [keyed, !keyed], "nothing was spoilt? {:#}", outcome.stats);
}

/// Each setting in a short stream, and in a long one if asked for.
macro_rules! streams {
    ($($name:ident: $job:expr, $keyed:expr;)*) => {
        mod short {
            use super::*;
            $(
                #[test]
                fn $name() {
                    soak($job, 5_000, $keyed);
                }
            )*
        }

        mod long {
            use super::*;
            $(
                #[test]
                #[ignore = "long: 100,000 calls"]
                fn $name() {
                    soak($job.timeout(1800), 100_000, $keyed);
                }
            )*
        }
    };
}

streams! {
    by_tc: Job::new(Mpi::Open, 4).env("FOLDBACK_HOOK", "tc"), true;
    by_xdp: Job::new(Mpi::Open, 3).env("FOLDBACK_HOOK", "xdp"), true;
    by_the_other_algorithm: Job::new(Mpi::Open, 4).env("FOLDBACK_ALGORITHM", "direct"), true;
    along_a_ring: Job::new(Mpi::Mpich, 4).env("FOLDBACK_ALGORITHM", "ring"), true;
    of_several_ranks_a_host: Job::new(Mpi::Open, 2).ranks_per_host(2), true;
    of_mpich: Job::new(Mpi::Mpich, 2), true;
    in_jumbo_frames: Job::new(Mpi::Open, 3).option(&["--mtu", "9000"]), true;
    with_a_checksum_alone: Job::new(Mpi::Open, 3).env("FOLDBACK_AUTH", "off"), false;
}

/// Each fault alone, from hardly any frame to one in ten, and all of them at once.
#[test]
#[ignore = "long: every fault at every rate"]
fn streams_are_right_at_every_rate_of_faults() {
    let _turn = turn();
    for (mpi, hosts) in [(Mpi::Mpich, 2), (Mpi::Open, 4), (Mpi::Open, 8)] {
        // Of MPI's own frames none: TCP hardly gets on where it loses one in ten.
        let run = |what: &[&str], calls: u64| {
            let started = Instant::now();
            let job = Job::new(mpi, hosts).option(&["--faults-on", "udp"]).option(what);
            let calls = calls.to_string();
            let outcome = job.timeout(3600).run("stream", &["--calls", &calls, "--seed", "29"]);
            outcome.assert_prints(&format!("stream: {calls} calls ok"));
            let met = ["drop_forged", "duplicates", "pulls_sent", "retransmissions"]
                .map(|counter| format!("{counter} {}", outcome.kernel(counter)))
                .join(", ");
            let seconds = started.elapsed().as_secs();
            eprintln!("{mpi:?}, {hosts} hosts, {calls} calls, {what:?}: {met}; {seconds} s");
            outcome
        };
        for rate in ["0.1%", "1%", "10%"] {
            let spoilt = run(&["--corrupt", rate], 100_000);
            assert!(spoilt.kernel("drop_forged") > 0, "nothing was spoilt: {:#}", spoilt.stats);
            let lost = run(&["--loss", rate], 10_000);
            assert!(lost.kernel("retransmissions") > 0, "nothing was lost: {:#}", lost.stats);
            let doubled = run(&["--dup", rate], 10_000);
            assert!(doubled.kernel("duplicates") > 0, "nothing was doubled: {:#}", doubled.stats);
            run(&["--reorder", rate], 10_000);
        }
        run(&["--loss", "5%", "--dup", "5%", "--reorder", "5%", "--corrupt", "5%"], 10_000);
    }
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
        .run(
            "conformance",
            &["--calls", "300", "--settle", "16", "--big-every", "15", "--big-bytes", "1000000"],
        );
    outcome.assert_prints("conformance: 300 calls ok");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    // A frame that waits in a queue is not taken for lost, or hardly ever.
    let [frames, twice] = ["frames_out", "duplicates"].map(|counter| outcome.kernel(counter));
    eprintln!("{frames} frames, {twice} of them in vain");
    assert!(2 * twice < frames, "{twice} of {frames} frames in vain: {:#}", outcome.stats);
}

/// Runs `orphan` with a fault that begins with collectives under way.
fn outlive(setting: (Mpi, u32, u32), fault: fn(&Lab) -> String) -> Outcome {
    let lab = Lab::new(setting.1);
    // UCX, which MPICH 4 goes by, gives a silent connection up after 13 s, and loses what is sent by it.
    let patient = ["-x", "UCX_TCP_KEEPIDLE=inf"];
    outlive_in(&lab, setting, &patient, &fault(&lab))
}

fn outlive_in(
    lab: &Lab,
    (mpi, hosts, ranks_per_host): (Mpi, u32, u32),
    options: &[&str],
    fault: &str,
) -> Outcome {
    let _turn = turn();
    let job = Job::new(mpi, hosts).ranks_per_host(ranks_per_host).lab(lab).option(options);
    let outcome = job.run("orphan", &["--command", fault]);
    outcome.assert_prints("orphan: OK");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    outcome
}

/// Of one host, its MPI's own messages among what is lost.
fn link_down(_: &Lab) -> String {
    "ip link set eth0 down; sleep 2; ip link set eth0 up".to_owned()
}

/// The same in one direction: frames that the host sends arrive.
fn deaf(lab: &Lab) -> String {
    let [begin, end] = ["--host h1 --loss 100%", ""].map(|options| lab.faults(options));
    format!("{begin}; sleep 1; {end}")
}

fn all_lost(lab: &Lab) -> String {
    let [begin, end] = ["--loss 100%", ""].map(|options| lab.faults(options));
    format!("{begin}; sleep 0.05; {end}; sleep 0.2; {begin}; sleep 2; {end}")
}

/// A firewall that comes up, for good: the programs' frames do not reach one host any more.
fn filtered(lab: &Lab) -> String {
    let port = foldback::bindings::FB_UDP_PORT;
    lab.faults(&format!("--host h1 --loss 100% --faults-on udp:{port}"))
}

/// A stricter one: no datagram reaches one host any more, and then none reaches any.
fn no_datagrams(lab: &Lab) -> String {
    let filter = "--loss 100% --faults-on udp";
    let [one, all] = [&format!("--host h1 {filter}"), filter].map(|options| lab.faults(options));
    format!("{one}; (sleep 1; {all}) &")
}

/// A network that is not MPI's, down on one host, for good.
fn without_its_network(setting: (Mpi, u32, u32)) -> Outcome {
    let lab = Lab::with(setting.1, &["--networks", "2"]);
    let options = ["-x", "FOLDBACK_NET=10.77.1.0/24,10.77.0.0/24"];
    outlive_in(&lab, setting, &options, "ip link set eth1 down")
}

/// One of another MTU than its links': a router on the way cannot pass on what they can.
fn of_a_smaller_mtu(setting: (Mpi, u32, u32)) {
    let lab = Lab::with(setting.1, &["--networks", "2", "--mtu", "9000"]);
    let port =
        format!("nsenter --net=/run/foldback/lab/{}/fabric ip link set p1n1 mtu 1500", lab.name);
    succeed(Command::new("sh").args(["-c", &port]), HANG);
    let options = ["-x", "FOLDBACK_NET=10.77.1.0/24,10.77.0.0/24", "-x", "FOLDBACK_LOG=info"];
    let outcome = outlive_in(&lab, setting, &options, "true");
    let (said, ranks) = ("chunks of 8896 bytes do not come through", setting.1 * setting.2);
    assert_eq!(outcome.stderr.matches(said).count(), ranks as usize, "{}", outcome.stderr);
    outcome.assert_hook("tc");
}

fn assert_streamed(outcome: &Outcome) {
    assert!(outcome.stderr.contains("does not answer datagrams"), "{}", outcome.stderr);
    assert!(outcome.rescued() > 0, "{:#}", outcome.stats);
}

#[test]
fn a_link_may_be_down_for_a_while() {
    outlive((Mpi::Open, 3, 1), link_down);
    outlive((Mpi::Mpich, 3, 1), link_down);
}

#[test]
fn a_link_may_be_deaf_for_a_while() {
    outlive((Mpi::Open, 8, 1), deaf);
}

#[test]
fn everything_may_be_lost_for_a_while() {
    outlive((Mpi::Mpich, 2, 1), all_lost);
}

#[test]
fn the_port_may_be_filtered() {
    outlive((Mpi::Open, 4, 2), filtered).assert_rescued();
    outlive((Mpi::Mpich, 2, 1), filtered).assert_rescued();
    // Long chunks are datagrams as others are.
    let jumbo = Lab::with(3, &["--mtu", "9000"]);
    outlive_in(&jumbo, (Mpi::Open, 3, 1), &[], &filtered(&jumbo)).assert_rescued();
}

#[test]
fn datagrams_may_be_filtered() {
    assert_streamed(&outlive((Mpi::Open, 4, 2), no_datagrams));
    assert_streamed(&outlive((Mpi::Mpich, 2, 1), no_datagrams));
}

#[test]
fn its_own_network_may_be_down_for_good() {
    assert_streamed(&without_its_network((Mpi::Open, 4, 2)));
    assert_streamed(&without_its_network((Mpi::Mpich, 2, 1)));
}

#[test]
fn its_network_may_not_carry_what_its_links_do() {
    of_a_smaller_mtu((Mpi::Open, 3, 1));
    of_a_smaller_mtu((Mpi::Mpich, 2, 2));
}

#[test]
#[ignore = "long: every fault in every setting"]
fn a_job_outlives_its_network() {
    for mpi in [Mpi::Open, Mpi::Mpich] {
        for (hosts, ranks_per_host) in [(2, 1), (4, 2), (8, 1)] {
            for fault in [link_down, deaf, all_lost] {
                outlive((mpi, hosts, ranks_per_host), fault);
            }
            outlive((mpi, hosts, ranks_per_host), filtered).assert_rescued();
            assert_streamed(&outlive((mpi, hosts, ranks_per_host), no_datagrams));
            assert_streamed(&without_its_network((mpi, hosts, ranks_per_host)));
            outlive((mpi, hosts, ranks_per_host), |_| {
                "ip link set eth0 down; sleep 20; ip link set eth0 up".to_owned()
            });
        }
    }
}

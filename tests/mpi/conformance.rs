//! Random collectives, every answer compared bit for bit with a reference.

use crate::harness::{Job, Mpi, Outcome, turn};

const ALL: &[&str] = &["Allreduce", "Reduce", "Bcast", "Barrier"];

/// Everything is folded that can be, whatever its size.
fn fold_all(job: Job) -> Job {
    job.env("FOLDBACK_MAX_BYTES", "4194304")
}

fn check(job: Job, calls: u64, seed: u64, more: &[&str]) -> Outcome {
    let (calls, seed) = (calls.to_string(), seed.to_string());
    let mut arguments = vec!["--calls", &calls, "--seed", &seed, "--settle", "16"];
    arguments.extend(more);
    let outcome = job.run("conformance", &arguments);
    outcome.assert_prints(&format!("conformance: {calls} calls ok"));
    outcome
}

/// Hosts, ranks on each and the hook that takes frames in.
fn case(mpi: Mpi, hosts: u32, ranks: u32, hook: &str, calls: u64) {
    let _turn = turn();
    let job = Job::new(mpi, hosts).ranks_per_host(ranks).env("FOLDBACK_HOOK", hook);
    let outcome = check(fold_all(job), calls, u64::from(hosts * 10 + ranks), &[]);
    outcome.assert_folded(ALL);
    outcome.assert_hook(hook);
    assert_eq!(outcome.calls_for("too large"), 0);
}

/// Ranks of MPICH do not yield. If there are more of them than CPUs, each message that is left to
/// it takes milliseconds, so they make fewer calls.
macro_rules! cases {
    ($($name:ident: $mpi:ident, $hosts:literal x $ranks:literal, $hook:literal, $calls:literal;)*) => {
        $(
            #[test]
            fn $name() {
                case(Mpi::$mpi, $hosts, $ranks, $hook, $calls);
            }
        )*
    };
}

cases! {
    open_mpi_2_hosts_tc: Open, 2 x 1, "tc", 3000;
    open_mpi_2_hosts_xdp: Open, 2 x 1, "xdp", 2000;
    open_mpi_3_hosts_tc: Open, 3 x 1, "tc", 3000;
    open_mpi_3_hosts_xdp: Open, 3 x 1, "xdp", 2000;
    open_mpi_4_hosts_tc: Open, 4 x 1, "tc", 2000;
    open_mpi_8_hosts_tc: Open, 8 x 1, "tc", 1000;
    open_mpi_8_hosts_xdp: Open, 8 x 1, "xdp", 500;
    open_mpi_2_hosts_of_3_ranks_tc: Open, 2 x 3, "tc", 2000;
    open_mpi_3_hosts_of_2_ranks_xdp: Open, 3 x 2, "xdp", 1000;
    open_mpi_4_hosts_of_2_ranks_tc: Open, 4 x 2, "tc", 1000;
    mpich_2_hosts_tc: Mpich, 2 x 1, "tc", 3000;
    mpich_2_hosts_xdp: Mpich, 2 x 1, "xdp", 2000;
    mpich_3_hosts_tc: Mpich, 3 x 1, "tc", 300;
    mpich_2_hosts_of_2_ranks_tc: Mpich, 2 x 2, "tc", 200;
    mpich_4_hosts_xdp: Mpich, 4 x 1, "xdp", 100;
}

#[test]
fn the_real_mpis_answers_are_the_same_but_for_their_known_errors() {
    let _turn = turn();
    // With several ranks on a host, communicators come with unlike numbers of them.
    for (mpi, hosts, ranks, calls) in
        [(Mpi::Open, 3, 1, 2000), (Mpi::Mpich, 2, 1, 1000), (Mpi::Mpich, 2, 2, 400)]
    {
        let job = fold_all(Job::new(mpi, hosts)).ranks_per_host(ranks);
        check(job, calls, 5, &["--compare"]).assert_folded(ALL);
    }
}

/// The algorithms that `auto` does not choose.
#[test]
fn every_algorithm_serves_any_number_of_hosts() {
    let _turn = turn();
    for (hosts, ranks, algorithm, hook) in [
        (2, 1, "star", "tc"),
        (4, 1, "direct", "tc"),
        (3, 2, "direct", "xdp"),
        (4, 1, "ring", "tc"),
        (3, 2, "ring", "xdp"),
    ] {
        let job = fold_all(Job::new(Mpi::Open, hosts)).ranks_per_host(ranks);
        let job = job.env("FOLDBACK_ALGORITHM", algorithm).env("FOLDBACK_HOOK", hook);
        let outcome = check(job, 1000, 13, &["--big-every", "200"]);
        outcome.assert_folded(ALL);
        assert_eq!(outcome.kernel("passed_on") > 0, algorithm == "ring", "{:#}", outcome.stats);
    }
}

#[test]
fn calls_beyond_the_limit_go_to_mpi() {
    let _turn = turn();
    let job = Job::new(Mpi::Open, 3).env("FOLDBACK_MAX_BYTES", "2000");
    let outcome = check(job, 2000, 6, &["--real-above", "2000"]);
    outcome.assert_folded(ALL);
    assert!(outcome.calls_for("too large") > 0, "{:#}", outcome.stats);
}

/// Links with an MTU of 9000 have chunks of six times as many bytes.
#[test]
fn jumbo_frames_change_nothing_but_how_many_there_are() {
    let _turn = turn();
    let jumbo = |mpi, hosts, hook| {
        let job = fold_all(Job::new(mpi, hosts)).option(&["--mtu", "9000"]);
        job.env("FOLDBACK_HOOK", hook)
    };
    let big = ["--big-every", "50"];
    let outcome = check(jumbo(Mpi::Open, 3, "tc"), 500, 7, &big);
    outcome.assert_folded(ALL);
    let usual = check(fold_all(Job::new(Mpi::Open, 3)), 500, 7, &big);
    let deposited = [&outcome, &usual].map(|outcome| outcome.kernel("deposited"));
    assert!(2 * deposited[0] < deposited[1], "{deposited:?}");

    check(jumbo(Mpi::Mpich, 2, "xdp").ranks_per_host(2), 500, 8, &big).assert_folded(ALL);
    let job = jumbo(Mpi::Open, 4, "tc").env("FOLDBACK_ALGORITHM", "shards");
    check(job, 300, 9, &["--big-every", "5"]).assert_folded(ALL);
}

/// The lab gives every host the same number of ranks, but the program's own communicators do not.
#[test]
fn hosts_of_unlike_numbers_of_ranks_agree_on_large_messages() {
    let _turn = turn();
    for seed in 9..12 {
        let job = fold_all(Job::new(Mpi::Open, 2)).ranks_per_host(2);
        let more = ["--big-every", "3", "--big-bytes", "300000"];
        check(job, 200, seed, &more).assert_folded(ALL);
    }
}

/// The most hosts that a group may have.
#[test]
fn sixty_four_hosts_fold() {
    let _turn = turn();
    let job = fold_all(Job::new(Mpi::Open, 64));
    check(job, 60, 14, &[]).assert_folded(ALL);
}

#[test]
#[ignore = "long: 100,000 calls"]
fn a_hundred_thousand_calls_on_four_hosts() {
    let _turn = turn();
    let job = fold_all(Job::new(Mpi::Open, 4)).timeout(1800);
    check(job, 100_000, 8, &["--big-every", "2000"]).assert_folded(ALL);
}

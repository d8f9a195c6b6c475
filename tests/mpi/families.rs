//! Every MPI that the lab knows: answers are right, with and without foldback, and foldback folds.

use std::io::Write;
use std::path::Path;

use crate::harness::{Job, Mpi};
use crate::programs::history;

const ALL: &[&str] = &["Allreduce", "Reduce", "Bcast", "Barrier"];
const ALL_BUT_BARRIER: &[&str] = &["Allreduce", "Reduce", "Bcast", "Scan", "Gather", "Scatter"];
const HOSTS: u32 = 2;

/// Said past the test harness, which would hide it when the test succeeds.
pub fn skipped(mpi: Mpi) -> bool {
    if !mpi.installed() {
        let _ = writeln!(
            std::io::stderr(),
            "{} is not installed (make setup-mpis), so its tests are skipped",
            mpi.name()
        );
    }
    !mpi.installed()
}

/// Ranks of all hosts are in one session, else Linux divides CPUs among hosts, and a rank that yields gives way to
/// nobody. The ranks themselves preload nothing for that.
fn one_session(mpi: Mpi) {
    let say = "cut -d ' ' -f 6 /proc/self/stat; echo preload: $LD_PRELOAD";
    let outcome = Job::new(mpi, HOSTS).run_path(Path::new("/bin/sh"), &["-c", say]);
    let (preloads, sessions): (Vec<_>, Vec<_>) =
        outcome.stdout.lines().partition(|line| line.starts_with("preload"));
    assert!(sessions.len() == 2 && sessions[0] == sessions[1], "{}", outcome.stdout);
    let ours = preloads.iter().all(|all| all.contains("foldback") && !all.contains("session"));
    assert!(preloads.len() == 2 && ours, "{}", outcome.stdout);
}

fn random_collectives(mpi: Mpi) {
    let arguments = ["--calls", "400", "--seed", "17", "--settle", "16"];
    let job = Job::new(mpi, HOSTS).env("FOLDBACK_MAX_BYTES", "4194304");
    let outcome = job.run("conformance", &arguments);
    outcome.assert_prints("conformance: 400 calls ok");
    outcome.assert_folded(ALL);
}

fn histogram(mpi: Mpi) {
    let with = Job::new(mpi, HOSTS).run("histogram", &[]);
    let without = Job::new(mpi, HOSTS).option(&["--off"]).run("histogram", &[]);
    with.assert_prints("histogram: OK");
    with.assert_folded(ALL);
    assert_eq!(with.stdout, without.stdout);
    assert!(without.stats.is_null(), "foldback was there with --off");
}

/// Every collective with every datatype, in each form.
fn forms(mpi: Mpi) {
    for (form, name) in
        [("blocking", "Blocking"), ("nonblocking", "Nonblocking"), ("persistent", "Persistent")]
    {
        // Its Iallgatherv in place is sometimes wrong without foldback, its Igather may hang.
        if mpi == Mpi::Intel && form == "nonblocking" {
            continue;
        }
        let arguments = ["--batches", "40", "--form", form, "--real-above", "-1"];
        let outcome = Job::new(mpi, HOSTS).run("collectives", &arguments);
        outcome.assert_prints("collectives: 40 batches ok");
        for collective in ALL {
            let folded = outcome.calls_in_form(collective, name, "fold");
            assert!(folded > 0, "no {form} {collective} was folded: {:#}", outcome.stats);
        }
    }
}

/// Persistent collectives made and freed in a loop, not in step: 100 on each of two communicators, each
/// started twice.
fn again(mpi: Mpi) {
    let outcome = Job::new(mpi, HOSTS).run("again", &[]);
    outcome.assert_prints("again: all ok");
    // MPICH 4 has none.
    if mpi != Mpi::Mpich {
        let folded = outcome.calls_in_form("Allreduce", "Persistent", "fold");
        assert_eq!(folded, u64::from(HOSTS) * 400, "{:#}", outcome.stats);
    }
}

/// Reductions that the kernel does not fold.
fn order(mpi: Mpi) {
    let job = Job::new(mpi, HOSTS).env("FOLDBACK_SUM", "rank-order");
    let outcome = job.run("order", &["--exact", "--rounds", "6"]);
    outcome.assert_prints("order: all ok");
    assert_eq!(outcome.calls_for("datatype") + outcome.calls_for("op"), 0, "{:#}", outcome.stats);
}

/// Sums that are exact.
fn sums(mpi: Mpi) {
    let job = Job::new(mpi, HOSTS).env("FOLDBACK_SUM", "exact");
    let outcome = job.run("sums", &["--calls", "100"]);
    outcome.assert_prints("sums: 100 calls ok");
    outcome.assert_folded(&["Allreduce", "Reduce"]);
}

/// A solver comes to the same bits by every MPI, wherever its ranks are.
fn solver(mpi: Mpi) {
    assert_eq!(history(mpi, HOSTS, ""), history(Mpi::Open, 1, "exact"));
}

/// Wrong calls end alike, with and without foldback.
fn errors(mpi: Mpi) {
    let with = Job::new(mpi, HOSTS).run("errors", &[]);
    let without = Job::new(mpi, HOSTS).option(&["--off"]).run("errors", &[]);
    with.assert_prints("errors: all ok");
    assert_eq!(with.stdout, without.stdout);
}

/// Calls that one rank's MPI refuses never happened, whatever the other ranks have counted.
fn made_up_for(mpi: Mpi) {
    let without = Job::new(mpi, HOSTS).option(&["--off"]).run("makeup", &[]);
    without.assert_prints("makeup: all ok");
    // The ways are compared too.
    let with = Job::new(mpi, HOSTS + 1).env("FOLDBACK_ROUTE", "auto").run("makeup", &[]);
    with.assert_prints("makeup: all ok");
    with.assert_folded(ALL_BUT_BARRIER);
    let folded = Job::new(mpi, HOSTS + 1).run("makeup", &["--folded"]);
    folded.assert_prints("makeup: all ok");
}

/// Ranks that do not agree on the length of a message are told, and go on; if there is no going on, the job
/// ends.
fn of_different_lengths(mpi: Mpi) {
    for (hosts, ranks) in [(HOSTS + 1, 1), (HOSTS, 2)] {
        let told = Job::new(mpi, hosts).ranks_per_host(ranks).run("lengths", &[]);
        told.assert_prints("lengths: 50 calls ok");
        told.assert_folded(&["Bcast", "Reduce", "Allreduce", "Allgather", "Gather", "Scatter"]);
    }
    let job = Job::new(mpi, HOSTS + 1).env("FOLDBACK_MAX_BYTES", "1048576");
    let said = job.run_to_failure("lengths", &["--long"]);
    assert!(!said.contains("no progress") && !said.contains("went on"), "{said}");
}

/// Arguments as odd as MPI allows on one rank. The folded run has more, which some MPI itself does not take.
fn odd(mpi: Mpi) {
    let without = Job::new(mpi, HOSTS).option(&["--off"]).run("odd", &[]);
    without.assert_prints("odd: all ok");
    let with = Job::new(mpi, HOSTS + 1).run("odd", &["--folded"]);
    with.assert_prints("odd: all ok");
    for form in ["Blocking", "Nonblocking", "Persistent"] {
        // MPICH 4 has no persistent ones.
        if mpi != Mpi::Mpich || form != "Persistent" {
            assert!(with.calls_in_form("Exscan", form, "fold") > 0, "{form}: {:#}", with.stats);
        }
    }
    assert_eq!(with.calls_for("argument"), 0, "{:#}", with.stats);
}

/// Operations under way, in sessions and with spawned ranks too, where the MPI can.
fn under_way(mpi: Mpi) {
    let job = || Job::new(mpi, HOSTS);
    let zoo = job().run("zoo", &[]);
    zoo.assert_prints("zoo: all ok");
    let folded = zoo.calls_in_form("Allreduce", "Nonblocking", "fold");
    assert!(folded > 0, "no Iallreduce was folded: {:#}", zoo.stats);
    job().run("sessions", &[]).assert_prints("sessions: ");
    if mpi == Mpi::Open5 {
        let revoke = job().run("revoke", &[]);
        revoke.assert_prints("revoke: all ok");
        assert!(revoke.calls_for("revoked communicator") > 0, "{:#}", revoke.stats);
    }
    // The others cannot spawn ranks in a lab, without foldback either.
    if mpi == Mpi::Intel {
        job().run("spawn", &[]).assert_prints("spawn: all ok");
    }
}

/// Every form between groups of unlike sizes. Foldback makes the forms that the MPI lacks (Open MPI: with large counts)
/// of other forms, also where it is off.
fn across(mpi: Mpi) {
    for switch in ["on", "off"] {
        let outcome = Job::new(mpi, 3).env("FOLDBACK", switch).run("across", &[]);
        // Large ones too, whatever the MPI has.
        outcome.assert_prints("across: 918 calls ok, 450 large");
    }
}

/// All of that, in one job after the other.
fn family(mpi: Mpi) {
    one_session(mpi);
    random_collectives(mpi);
    histogram(mpi);
    forms(mpi);
    again(mpi);
    order(mpi);
    sums(mpi);
    solver(mpi);
    errors(mpi);
    made_up_for(mpi);
    odd(mpi);
    of_different_lengths(mpi);
    under_way(mpi);
    // The others have all forms.
    if matches!(mpi, Mpi::Open | Mpi::Open5) {
        across(mpi);
    }
}

on_each_mpi! { family:
    open_mpi_4: Open;
    open_mpi_5: Open5;
    mpich_4: Mpich;
    mpich_5: Mpich5;
    mpich_5_with_the_standard_abi: Mpich5Abi;
    intel_mpi: Intel;
}

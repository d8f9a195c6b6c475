//! Ranks whose settings differ, or make no sense on one of them: plain MPI, and one line says which.

use std::path::Path;

use crate::harness::{Job, Mpi, Outcome, program, turn};

/// On the second host alone, a program runs with a variable.
const ON_ONE: &str = "[ \"$(hostname)\" = h1 ] && export \"$0\"; exec \"$@\"";

/// A job in which the second host alone has a variable. If `setup_calls` is 0, ranks tell each other in MPI_Init. If it
/// is the users' number, the ranks of each communicator do when they meet.
fn of_one_rank(mpi: Mpi, setup_calls: &str, name: &str, value: &str) -> Outcome {
    let (variable, program) = (format!("{name}={value}"), program(mpi, "settings"));
    let arguments = ["-c", ON_ONE, &variable, program.to_str().expect("a plain path")];
    let job = Job::new(mpi, 2).env("FOLDBACK_SETUP_CALLS", setup_calls);
    let outcome = job.run_path(Path::new("/bin/sh"), &arguments);
    outcome.assert_prints("settings: OK");
    assert_eq!(outcome.all_calls(Some("fold")), 0, "{:#}", outcome.stats);
    outcome
}

/// One warning says why.
fn assert_told(outcome: &Outcome, why: &str) {
    let lines = outcome.stderr.lines().filter(|line| line.contains(" WARN "));
    let lines: Vec<_> = lines.collect();
    let line = format!("everything is passed through: {why}");
    assert!(lines.len() == 1 && lines[0].ends_with(&line), "{line:?}: {}", outcome.stderr);
    assert_eq!(outcome.stats["no_group"], why);
}

#[test]
fn a_setting_of_one_rank_leaves_all_to_mpi() {
    let _turn = turn();
    for (mpi, setup_calls, name, value, first) in [
        (Mpi::Open, "0", "FOLDBACK_SUM", "exact", "not set"),
        (Mpi::Mpich, "0", "FOLDBACK_SUM", "rank-order", "not set"),
        (Mpi::Mpich, "", "FOLDBACK_SUM", "rank-order", "not set"),
        (Mpi::Open, "0", "FOLDBACK_ROUTE", "mpi", "fold"),
        (Mpi::Open, "", "FOLDBACK_ROUTE", "mpi", "fold"),
        (Mpi::Open, "2", "FOLDBACK_SETUP_CALLS", "3", "2"),
        (Mpi::Open, "", "FOLDBACK_TRANSPORT", "sockets", "not set"),
    ] {
        let why = format!(
            "{name} is {value} on rank 1 and {first} on rank 0: all ranks must have it alike (mpirun hands on only \
             what -x names, `foldback run` all)"
        );
        assert_told(&of_one_rank(mpi, setup_calls, name, value), &why);
    }
}

/// However long it is.
#[test]
fn a_setting_that_makes_no_sense_on_one_rank_leaves_all_to_mpi() {
    let _turn = turn();
    for (setup_calls, name, value, form) in [
        (
            "0",
            "FOLDBACK_MAX_BYTES",
            "allreduce=x",
            "a number of bytes, or a list such as allreduce=65536,reduce=65536,bcast=32768",
        ),
        ("", "FOLDBACK_NET", &"x".repeat(5000), "ADDRESS/LENGTH, or several with commas between"),
    ] {
        let why = format!("rank 1: {name}={value}: {form}");
        assert_told(&of_one_rank(Mpi::Open, setup_calls, name, value), &why);
    }
}

/// Some ranks wait in MPI_Init to hear from all others.
#[test]
fn a_rank_that_alone_folds_from_the_first_call_on_ends_the_job_with_a_message() {
    let _turn = turn();
    for (name, value) in [("FOLDBACK_SETUP_CALLS", "0"), ("FOLDBACK_SUM", "exact")] {
        let (variable, program) = (format!("{name}={value}"), program(Mpi::Open, "settings"));
        let job = Job::new(Mpi::Open, 2)
            .env("FOLDBACK_SETUP_CALLS", "")
            .env("FOLDBACK_SETUP_TIMEOUT", "1");
        let arguments = ["-c", ON_ONE, &variable, program.to_str().expect("a plain path")];
        let said = job.run_path_to_failure(Path::new("/bin/sh"), &arguments);
        assert!(said.contains(&format!("{name}={value}")), "{said}");
        assert!(said.contains("did not answer within 1 s"), "{said}");
    }
}

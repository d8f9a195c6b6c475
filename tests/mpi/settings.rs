//! Ranks whose settings differ, or make no sense on one of them: plain MPI, and one line says which.

use std::path::Path;

use crate::harness::{Job, Mpi, Outcome, program, turn};

/// A job in which the second host alone has a variable.
fn of_one_rank(mpi: Mpi, name: &str, value: &str) -> Outcome {
    let script = "[ \"$(hostname)\" = h1 ] && export \"$0\"; exec \"$@\"";
    let (variable, program) = (format!("{name}={value}"), program(mpi, "settings"));
    let arguments = ["-c", script, &variable, program.to_str().expect("a plain path")];
    let outcome = Job::new(mpi, 2).run_path(Path::new("/bin/sh"), &arguments);
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
    for (mpi, name, value, first) in [
        (Mpi::Open, "FOLDBACK_SUM", "exact", "not set"),
        (Mpi::Mpich, "FOLDBACK_SUM", "exact", "not set"),
        (Mpi::Open, "FOLDBACK_ROUTE", "mpi", "fold"),
        (Mpi::Open, "FOLDBACK_SETUP_CALLS", "3", "0"),
        (Mpi::Open, "FOLDBACK_HOOK", "none", "not set"),
    ] {
        let why = format!(
            "{name} is {value} on rank 1 and {first} on rank 0: all ranks must have it alike (mpirun hands on only \
             what -x names, `foldback run` all)"
        );
        assert_told(&of_one_rank(mpi, name, value), &why);
    }
}

/// However long it is.
#[test]
fn a_setting_that_makes_no_sense_on_one_rank_leaves_all_to_mpi() {
    let _turn = turn();
    for (name, value, form) in [
        (
            "FOLDBACK_MAX_BYTES",
            "allreduce=x",
            "a number of bytes, or a list such as allreduce=65536,reduce=65536,bcast=32768",
        ),
        ("FOLDBACK_NET", &"x".repeat(5000), "ADDRESS/LENGTH, or several with commas between"),
    ] {
        let why = format!("rank 1: {name}={value}: {form}");
        assert_told(&of_one_rank(Mpi::Open, name, value), &why);
    }
}

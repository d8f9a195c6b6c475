//! Settings by a file. Ranks whose settings differ, or make no sense on one of them: plain MPI, and one line says
//! which.

use std::path::Path;

use crate::harness::{Job, Mpi, Outcome, Scratch, program, turn};

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

/// A file with these lines, and its path.
fn file(lines: &str) -> (Scratch, String) {
    let file = Scratch::new("conf");
    std::fs::write(file.path(), lines).unwrap();
    let path = file.path().to_str().expect("a plain path").to_owned();
    (file, path)
}

#[test]
fn a_file_sets_what_the_environment_does_not() {
    let _turn = turn();
    let (names, lines) = (
        ["FOLDBACK_SETUP_CALLS", "FOLDBACK_ROUTE"],
        "FOLDBACK_SETUP_CALLS = 0\nFOLDBACK_ROUTE = fold\nFOLDBACK_REPORT = full\n\
         [program few hist*]\nFOLDBACK_ROUTE = mpi\n",
    );
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let conf = Scratch::new("conf");
        let outcome = Job::new(mpi, 2).by_file(&conf, &names, lines).run("order", &[]);
        outcome.assert_folded(&["Allreduce"]);
        assert_eq!(outcome.stats["reports"], 2, "{:#}", outcome.stats);
        assert!(outcome.stderr.contains(", 2 ranks\n\n"), "{}", outcome.stderr);
        // A section counts for its programs, and the environment more than any line.
        let outcome = Job::new(mpi, 2).by_file(&conf, &names, lines).run("histogram", &[]);
        assert_eq!(outcome.all_calls(Some("fold")), 0, "{:#}", outcome.stats);
        let job = Job::new(mpi, 2).by_file(&conf, &names, lines).env("FOLDBACK_ROUTE", "fold");
        job.run("histogram", &[]).assert_folded(&["Allreduce"]);
    }
}

#[test]
fn a_file_may_turn_foldback_off_for_a_program() {
    let _turn = turn();
    let conf = Scratch::new("conf");
    let lines = "[program order]\nFOLDBACK = off\n";
    let of = |name| Job::new(Mpi::Open, 2).by_file(&conf, &["FOLDBACK_LOG"], lines).run(name, &[]);
    let outcome = of("order");
    assert!(outcome.stats.is_null(), "{:#}", outcome.stats);
    assert!(!outcome.stderr.contains("foldback"), "{}", outcome.stderr);
    of("histogram").assert_folded(&["Allreduce"]);
}

#[test]
fn files_of_hosts_that_differ_leave_all_to_mpi() {
    let _turn = turn();
    let (_file, path) = file("# Of this host.\nFOLDBACK_SUM = rank-order\n");
    for (mpi, setup_calls) in [(Mpi::Open, "0"), (Mpi::Open, ""), (Mpi::Mpich, "")] {
        let why = format!(
            "FOLDBACK_SUM is rank-order ({path}:2) on rank 1 and not set on rank 0: all ranks must have it alike \
             (each host reads its own file)"
        );
        assert_told(&of_one_rank(mpi, setup_calls, "FOLDBACK_CONF", &path), &why);
    }
}

#[test]
fn a_wrong_file_leaves_all_to_mpi() {
    let _turn = turn();
    let form = "a line is NAME = VALUE, [program NAME …], [user NAME …] or # with a comment";
    for (lines, why) in [
        ("FOLDBACK_NET = 10.77.0.0/16\nfold everything\n", format!(":2: {form}")),
        (
            "\n\nFOLDBACK_WINDOW=300",
            ":3: FOLDBACK_WINDOW=300: a power of two from 256 to 4096".into(),
        ),
    ] {
        let (_file, path) = file(lines);
        for setup_calls in ["0", ""] {
            let outcome = of_one_rank(Mpi::Open, setup_calls, "FOLDBACK_CONF", &path);
            assert_told(&outcome, &format!("rank 1: {path}{why}"));
        }
        // On all ranks, but not for the command, which would end.
        let job = Job::new(Mpi::Open, 2).option(&["-x", &format!("FOLDBACK_CONF={path}")]);
        let outcome = job.run("settings", &[]);
        outcome.assert_prints("settings: OK");
        let warnings: Vec<_> =
            outcome.stderr.lines().filter(|line| line.contains(" WARN ")).collect();
        let end = format!("everything is passed through: rank 0: {path}{why}");
        assert!(warnings.len() == 1 && warnings[0].ends_with(&end), "{}", outcome.stderr);
    }
}

#[test]
fn the_command_ends_at_a_wrong_file() {
    let _turn = turn();
    let (_file, path) = file("FOLDBACK off\n");
    let said = Job::new(Mpi::Open, 2).env("FOLDBACK_CONF", &path).run_to_failure("settings", &[]);
    assert!(said.contains(&format!("foldback: {path}:1: a line is NAME = VALUE, ")), "{said}");
}

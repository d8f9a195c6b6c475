//! Programs of science, as Debian packages them, unmodified. Nine in ten of their calls on more than one rank are
//! folded. Their results are the real MPI's, up to rounding.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{HANG, Job, Mpi, Outcome, Scratch, succeed, turn};
use crate::{debian, in_path, skip};

const HOSTS: u32 = 4;

/// Runs a command of the shell on 4 hosts, with foldback and without.
fn both(script: &str) -> (Outcome, Outcome) {
    let job = || {
        let job = Job::new(Mpi::Open, HOSTS).timeout(900);
        // As by default, but for what is measured, which depends on the machine, and with groups from the first call
        // on.
        job.env("FOLDBACK_MAX_BYTES", "")
    };
    let run = |job: Job| job.run_path(Path::new("/bin/sh"), &["-c", script]);
    (run(job()), run(job().option(&["--off"])))
}

/// The folded share of the calls on more than one rank.
fn share(outcome: &Outcome) -> f64 {
    let calls: u64 = outcome.all_calls(None);
    let folded = outcome.all_calls(Some("fold"));
    folded as f64 / (calls - outcome.calls_for("one rank")) as f64
}

fn assert_nine_in_ten(what: &str, outcome: &Outcome) {
    let share = share(outcome);
    eprintln!("{what}: {:.1} % of {} calls folded", 100.0 * share, outcome.all_calls(None));
    assert!(share >= 0.9, "{what}: {share}: {:#}", outcome.stats);
}

/// The numbers in the lines that `is_result` picks.
fn numbers(text: &str, is_result: impl Fn(&str) -> bool) -> Vec<f64> {
    let lines = text.lines().filter(|line| is_result(line));
    lines.flat_map(str::split_whitespace).filter_map(|word| word.parse().ok()).collect()
}

/// As many numbers, and the same up to rounding.
fn assert_alike(with: &[f64], without: &[f64]) {
    assert!(!with.is_empty() && with.len() == without.len(), "{with:?}\n{without:?}");
    for (one, other) in with.iter().zip(without) {
        let scale = one.abs().max(other.abs()).max(1e-9);
        assert!((one - other).abs() <= 1e-4 * scale, "{one}, {other}: {with:?}\n{without:?}");
    }
}

/// Molecular dynamics: a Lennard-Jones liquid.
#[test]
#[ignore = "needs `make setup-science`"]
fn lammps() {
    let Some(lammps) = debian("lmp") else { return };
    let _turn = turn();
    let input = Scratch::new("melt");
    fs::write(input.path(), include_str!("melt.lammps")).unwrap();
    let command = format!("{} -log none -in {}", lammps.display(), input.path().display());
    let (with, without) = both(&command);
    // Step, temperature, energies, pressure: six numbers to a line.
    let is_result = |line: &str| {
        line.split_whitespace().filter(|word| word.parse::<f64>().is_ok()).count() == 6
    };
    assert_alike(&numbers(&with.stdout, is_result), &numbers(&without.stdout, is_result));
    assert_nine_in_ten("LAMMPS, melt", &with);
}

/// A sparse direct solver.
#[test]
#[ignore = "needs `make setup-science`"]
fn mumps() {
    let directory = Path::new("/usr/lib/mumps");
    if !directory.join("dsimpletest").is_file() {
        return skip("MUMPS is not installed (make setup-science)");
    }
    let _turn = turn();
    let (with, without) = both("cd /usr/lib/mumps && exec ./dsimpletest < input_simpletest_real");
    let is_result =
        |line: &str| line.contains("Solution is") || line.trim_start().starts_with("0.");
    assert_alike(&numbers(&with.stdout, is_result), &numbers(&without.stdout, is_result));
    assert_nine_in_ten("MUMPS, dsimpletest", &with);
}

/// Dense linear algebra over rows and columns of processes, which checks its own residuals.
#[test]
#[ignore = "needs `make setup-science`"]
fn scalapack() {
    let directory = Path::new("/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests");
    if !directory.join("xdqr").is_file() {
        return skip("ScaLAPACK's tests are not installed (make setup-science)");
    }
    let _turn = turn();
    let (with, without) = both(&format!("cd {} && exec ./xdqr", directory.display()));
    let verdict = |outcome: &Outcome| {
        let lines = outcome.stdout.lines().filter(|line| line.contains("tests "));
        lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(verdict(&with), verdict(&without));
    assert!(
        verdict(&with).iter().any(|line| line == "0 tests completed and failed residual checks.")
    );
    assert_nine_in_ten("ScaLAPACK, xdqr", &with);
}

/// An example of PETSc's, built as its users would.
fn petsc(directory: &str, name: &str, into: &Path) -> Option<PathBuf> {
    let examples = Path::new("/usr/share/petsc/3.18/share/petsc/examples/src");
    let source = examples.join(directory).join(format!("{name}.c"));
    if !source.is_file() || in_path("mpicc.openmpi".as_ref()).is_none() {
        skip("PETSc is not installed (make setup-science)");
        return None;
    }
    let program = into.join(name);
    let build = format!(
        "mpicc.openmpi -O1 -w {} -o {} $(pkg-config --cflags --libs petsc) -lm",
        source.display(),
        program.display()
    );
    succeed(Command::new("sh").args(["-c", &build]), HANG);
    Some(program)
}

/// Non-linear equations by multigrid (ex19), and linear ones by GMRES (ex2).
#[test]
#[ignore = "needs `make setup-science`"]
fn petsc_solves() {
    let _turn = turn();
    for (directory, name, options) in [
        ("snes/tutorials", "ex19", "-da_refine 4 -snes_monitor -pc_type mg"),
        ("ksp/ksp/tutorials", "ex2", "-m 100 -n 100 -ksp_monitor -ksp_rtol 1e-8"),
    ] {
        let built = Scratch::new("petsc");
        fs::create_dir(built.path()).unwrap();
        let Some(program) = petsc(directory, name, built.path()) else { return };
        let (with, without) = both(&format!("exec {} {options}", program.display()));
        // Norms near the end are what rounding left.
        let is_result = |line: &str| line.contains("norm") && !line.contains("e-1");
        assert_alike(&numbers(&with.stdout, is_result), &numbers(&without.stdout, is_result));
        assert_nine_in_ten(&format!("PETSc, {name}"), &with);
    }
}

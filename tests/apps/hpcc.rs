//! The HPC Challenge benchmark: HPL, PTRANS, RandomAccess, FFT, bandwidth, each with checks of its own.

use std::fs;
use std::path::Path;

use crate::harness::{Job, Mpi, Scratch, turn};
use crate::{HOSTS, debian};

/// Problems that are over in two seconds.
const INPUT: &str = include_str!("hpccinf.txt");

/// The beginning of the line with HPL's residual.
const HPL: &str = "||Ax-b||_oo/(eps";

/// The checks, and what they computed.
fn checks(report: &str) -> Vec<&str> {
    let is_check = |line: &&str| {
        let names = ["_residual=", "Errors=", "ErrorsFraction=", "Success="];
        // The residual of HPL; the others' are of random matrices.
        line.starts_with(HPL)
            || line.contains("residual checks")
            || names.iter().any(|name| line.contains(name))
    };
    report.lines().map(str::trim).filter(is_check).collect()
}

fn run(job: Job, program: &Path, what: &str) -> (crate::harness::Outcome, String) {
    let directory = Scratch::new(what);
    fs::create_dir(directory.path()).unwrap();
    fs::write(directory.path().join("hpccinf.txt"), INPUT).unwrap();
    // It reads and writes where it is started.
    let (here, program) = (directory.path().to_str().unwrap(), program.to_str().unwrap());
    let outcome = job.run_path(Path::new("/usr/bin/env"), &["--chdir", here, program]);
    let report = fs::read_to_string(directory.path().join("hpccoutf.txt")).expect("a report");
    (outcome, report)
}

#[test]
fn hpcc_passes_its_checks_with_the_same_residuals() {
    let Some(hpcc) = debian("hpcc") else { return };
    let _turn = turn();
    let job = || {
        let job = Job::new(Mpi::Open, HOSTS);
        job.env("FOLDBACK_MAX_BYTES", "4194304")
    };
    let (outcome, with) = run(job(), &hpcc, "hpcc");
    let (_, without) = run(job().option(&["--off"]), &hpcc, "hpcc-off");

    let checks = checks(&with);
    assert_eq!(checks, self::checks(&without));
    for passed in ["Success=1", "PTRANS_residual=0", "MPIRandomAccess_Errors=0"] {
        assert!(checks.contains(&passed), "no {passed}: {checks:#?}");
    }
    let residual = checks.iter().find(|line| line.starts_with(HPL));
    assert!(residual.is_some_and(|line| line.ends_with("PASSED")), "{checks:#?}");
    assert!(!with.contains("FAILED"), "{with}");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier", "Alltoall"]);
}

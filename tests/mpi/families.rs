//! Every MPI that the lab knows: answers are right, with and without foldback, and foldback folds.

use std::io::Write;

use crate::harness::{Job, Mpi, Outcome, turn};

const ALL: &[&str] = &["Allreduce", "Reduce", "Bcast", "Barrier"];
const HOSTS: u32 = 2;

/// Whether foldback folds on this MPI. If not, it must leave everything to it.
fn folds(mpi: Mpi) -> bool {
    !matches!(mpi, Mpi::Mpich5Abi | Mpi::Intel)
}

/// Said past the test harness, which would keep it from whoever looks at a success.
fn skipped(mpi: Mpi) -> bool {
    if !mpi.installed() {
        let _ = writeln!(
            std::io::stderr(),
            "families: {} is not installed (make setup-mpis), so its tests are skipped",
            mpi.name()
        );
    }
    !mpi.installed()
}

fn assert_folded_if_so(mpi: Mpi, outcome: &Outcome) {
    if folds(mpi) {
        outcome.assert_folded(ALL);
    } else {
        assert_eq!(outcome.calls("Allreduce", "fold"), 0, "{:#}", outcome.stats);
    }
}

fn random_collectives(mpi: Mpi) {
    let mut arguments = vec!["--calls", "400", "--seed", "17", "--settle", "16"];
    if !folds(mpi) {
        // All calls are the real MPI's, with what is known to be wrong in it.
        arguments.extend(["--real-above", "-1"]);
    }
    let job = Job::new(mpi, HOSTS).env("FOLDBACK_MAX_BYTES", "4194304");
    let outcome = job.run("conformance", &arguments);
    outcome.assert_prints("conformance: 400 calls ok");
    assert_folded_if_so(mpi, &outcome);
}

fn histogram(mpi: Mpi) {
    let with = Job::new(mpi, HOSTS).run("histogram", &[]);
    let without = Job::new(mpi, HOSTS).option(&["--off"]).run("histogram", &[]);
    with.assert_prints("histogram: OK");
    assert_folded_if_so(mpi, &with);
    assert_eq!(with.stdout, without.stdout);
}

macro_rules! families {
    ($($name:ident: $mpi:ident;)*) => {
        $(
            #[test]
            fn $name() {
                if skipped(Mpi::$mpi) {
                    return;
                }
                let _turn = turn();
                random_collectives(Mpi::$mpi);
                histogram(Mpi::$mpi);
            }
        )*
    };
}

families! {
    open_mpi_4: Open;
    open_mpi_5: Open5;
    mpich_4: Mpich;
    mpich_5: Mpich5;
    mpich_5_with_the_standard_abi: Mpich5Abi;
    intel_mpi: Intel;
}

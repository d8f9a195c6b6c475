//! Python: mpi4py, which loads its MPI so that nothing else in the process sees it, probes which
//! functions there are, and calls those for large counts wherever there are any.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{COLLECTIVES, Job, Mpi, Outcome, Scratch, turn};
use crate::{HOSTS, skip};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A Python with an mpi4py for this MPI; if there is none, says so.
fn python(mpi: Mpi) -> Option<PathBuf> {
    let environment = if mpi == Mpi::Mpich5Abi { "mpi4py-abi" } else { "mpi4py" };
    let environment = Path::new(ROOT).join("target/apps").join(environment);
    if !mpi.installed() {
        skip(&format!("{} is not installed (make setup-mpis)", mpi.name()));
        return None;
    }
    // The mark that the installation is complete.
    if !environment.join("requirement").is_file() {
        skip(&format!("mpi4py for {} is not installed (make setup-apps)", mpi.name()));
        return None;
    }
    Some(environment.join("bin/python"))
}

/// Runs a script of `mpi-tests/`.
fn run(job: Job, (mpi, python): (Mpi, &Path), script: &str, arguments: &[&str]) -> Outcome {
    let library = match mpi {
        Mpi::Open | Mpi::Open5 => "libmpi.so.40",
        Mpi::Mpich5Abi => "libmpi_abi.so.1",
        Mpi::Mpich | Mpi::Mpich5 | Mpi::Intel => "libmpi.so.12",
    };
    let script = Path::new(ROOT).join("mpi-tests").join(script);
    let mut words = vec![script.to_str().expect("a path in UTF-8")];
    words.extend(arguments);
    job.env("FOLDBACK_MAX_BYTES", "4194304")
        .option(&["-x", &format!("MPI4PY_LIBMPI={library}")])
        .run_path(python, &words)
}

fn collectives(mpi: Mpi) {
    let Some(python) = python(mpi) else { return };
    let _turn = turn();
    let script = "mpi4py_collectives.py";
    let with = run(Job::new(mpi, HOSTS), (mpi, &python), script, &[]);
    let off = Job::new(mpi, HOSTS).option(&["--off"]);
    let without = run(off, (mpi, &python), script, &[]);
    with.assert_prints("mpi4py_collectives: 20 rounds ok");
    assert_eq!(with.stdout, without.stdout);
    with.assert_folded(COLLECTIVES);
    for collective in COLLECTIVES {
        let folded = with.calls_in_form(collective, "Nonblocking", "fold");
        assert!(folded > 0, "no I-form of {collective} was folded: {:#}", with.stats);
    }
    assert!(with.calls_in_form("Allreduce", "Persistent", "fold") > 0, "{:#}", with.stats);
}

/// Of mpi4py's own tests.
const SUITE_HOSTS: u32 = 3;

/// The outcome of each test on a rank, by its name.
type Outcomes = BTreeMap<String, String>;

/// Modules of mpi4py's tests that pass without foldback, on every MPI here and each time. Left out are
/// tests that start processes (spawn, dynproc, util_pool), for which a lab has no place, and mpiabi,
/// of which MPICH 5 fails 8. So are rma, p2p and util, which sometimes hang between hosts on MPICH 5
/// or Open MPI 5 on a machine under load, and io, which takes a minute then.
const MODULES: &str = "test_(address|attributes|buffer|cco|cffi|comm|ctypes|datatype|environ|err|\
                       exceptions|file|grequest|group|handle|info|mpiapi|mpimem|msg|objmodel|op|pack|\
                       pickle|request|session|status|subclass|threads|toplevel|ulfm|win)";

/// Left out on one MPI.
fn left_out(mpi: Mpi) -> &'static [&'static str] {
    match mpi {
        // 12 errors in the tests of windows, without foldback.
        // And see below.
        Mpi::Open => &["-e", "test_(win|ulfm)"],
        // Its MPI_Dist_graph_create hangs between hosts by UCX.
        // Without MPIX_Comm_iagree, mpi4py makes do with an MPI_Iallreduce, which its test calls before
        // a barrier on one rank and after it on the others (docs/contributing/architecture.md, limits).
        Mpi::Mpich5 | Mpi::Mpich5Abi => &["-x", "testDistgraphcomm", "-e", "test_ulfm"],
        _ => &[],
    }
}

fn outcomes(job: Job, target: (Mpi, &Path), what: &str) -> (Outcome, Vec<Outcomes>) {
    let results = Scratch::new(what);
    fs::create_dir(results.path()).unwrap();
    let tests = Path::new(ROOT).join("target/apps/mpi4py-source/test");
    let mut arguments = vec![tests.to_str().unwrap(), results.path().to_str().unwrap()];
    arguments.extend(["-q", "--no-builddir", "-i", MODULES]);
    arguments.extend(left_out(target.0));
    let outcome = run(job, target, "mpi4py_suite.py", &arguments);
    let ranks = (0..SUITE_HOSTS).map(|rank| {
        let path = results.path().join(format!("{rank}.json"));
        let text = fs::read_to_string(path).expect("each rank writes what became of its tests");
        serde_json::from_str(&text).expect("names and outcomes")
    });
    (outcome, ranks.collect())
}

/// Open MPI 4 has persistent collectives by names of its own, foldback by the standard's too: their tests
/// are skipped without it and pass with it.
fn gained(mpi: Mpi, with: Option<&String>, without: Option<&String>) -> bool {
    let skipped = without.is_some_and(|outcome| outcome.starts_with("skipped: mpi-coll-persist"));
    mpi == Mpi::Open && skipped && with.is_some_and(|outcome| outcome == "passed")
}

/// On three hosts, so that groups of intercommunicators differ in size.
fn suite(mpi: Mpi) {
    let Some(python) = python(mpi) else { return };
    let _turn = turn();
    let target = (mpi, python.as_path());
    let job = || Job::new(mpi, SUITE_HOSTS);
    let (_, without) = outcomes(job().option(&["--off"]), target, "without");
    for route in ["auto", "fold"] {
        let (outcome, with) = outcomes(job().env("FOLDBACK_ROUTE", route), target, route);
        compare(mpi, &with, &without);
        outcome.assert_folded(COLLECTIVES);
        for form in ["Blocking", "Nonblocking", "Persistent"] {
            let folded: u64 =
                COLLECTIVES.iter().map(|name| outcome.calls_in_form(name, form, "fold")).sum();
            println!("{mpi:?}, {route}: {folded} calls folded, {form}");
            assert!(folded > 500, "{form}: {folded}: {:#}", outcome.stats);
        }
    }
}

/// The outcomes of the tests on each rank are the same, and no failure.
fn compare(mpi: Mpi, with: &[Outcomes], without: &[Outcomes]) {
    for (rank, (with, without)) in with.iter().zip(without).enumerate() {
        let count = |what: &str| with.values().filter(|outcome| outcome.starts_with(what)).count();
        println!("{mpi:?}, rank {rank}: {} passed, {} skipped", count("passed"), count("skipped"));
        let differ: Vec<_> = with
            .keys()
            .chain(without.keys())
            .filter(|test| with.get(*test) != without.get(*test))
            .filter(|test| !gained(mpi, with.get(*test), without.get(*test)))
            .map(|test| (test, with.get(test), without.get(test)))
            .collect();
        assert!(differ.is_empty(), "rank {rank}, with and without foldback: {differ:#?}");
        let failed: Vec<_> = with.iter().filter(|(_, outcome)| *outcome == "failed").collect();
        assert!(failed.is_empty(), "rank {rank}: {failed:#?}");
        assert!(with.len() > 1000, "rank {rank} ran {} tests", with.len());
    }
}

macro_rules! each {
    ($($collectives:ident, $suite:ident: $mpi:ident;)*) => {
        $(
            #[test]
            fn $collectives() {
                collectives(Mpi::$mpi);
            }

            #[test]
            #[ignore = "minutes: make test-apps"]
            fn $suite() {
                suite(Mpi::$mpi);
            }
        )*
    };
}

// Debian's MPICH has another soname than mpi4py wants.
each! {
    python_folds_on_open_mpi_4, suite_of_mpi4py_on_open_mpi_4: Open;
    python_folds_on_open_mpi_5, suite_of_mpi4py_on_open_mpi_5: Open5;
    python_folds_on_mpich_5, suite_of_mpi4py_on_mpich_5: Mpich5;
    python_folds_with_the_standard_abi, suite_of_mpi4py_with_the_standard_abi: Mpich5Abi;
    python_folds_on_intel_mpi, suite_of_mpi4py_on_intel_mpi: Intel;
}

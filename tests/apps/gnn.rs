//! A network on the graph of apt's packages, whose features go by a cache of foldback's: `examples/gnn/`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Job, Mpi, Outcome, turn};
use crate::skip;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gnn");

/// Debian's own, which has its packages.
const PYTHON: &str = "/usr/bin/python3";

#[test]
fn features_that_do_not_change_are_sent_once() {
    let mut python = Command::new(PYTHON);
    python.args(["-c", "import mpi4py, numpy, scipy"]).stderr(Stdio::null());
    if !python.status().is_ok_and(|status| status.success()) {
        return skip("NumPy, SciPy and mpi4py of Debian are not installed (make setup-gnn)");
    }
    let _turn = turn();
    let folder = std::env::temp_dir().join(format!("foldback-gnn-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the graph");
    let graph = folder.join("graph.npz");
    let made = Command::new(PYTHON)
        .arg(Path::new(EXAMPLE).join("packages.py"))
        .args([&graph, Path::new("3")])
        .status()
        .expect("Python");
    assert!(made.success(), "packages.py");
    let train = |job: Job, way| -> (Outcome, Value) {
        let script = format!("{EXAMPLE}/sage.py");
        let graph = graph.to_str().expect("a path in UTF-8");
        let words = [&script, "--graph", graph, "--way", way, "--epochs", "4"];
        let outcome = job.env("OPENBLAS_NUM_THREADS", "1").run_path(Path::new(PYTHON), &words);
        let said = serde_json::from_str(&outcome.stdout).expect("a line of JSON");
        (outcome, said)
    };
    let (_, plain) = train(Job::new(Mpi::Open, 3).option(&["--off"]), "halo");
    let (outcome, cached) = train(Job::new(Mpi::Open, 3), "cache");
    fs::remove_dir_all(&folder).expect("it is there");
    let losses = |said: &Value| -> Vec<f64> {
        said["losses"].as_array().expect("losses").iter().filter_map(Value::as_f64).collect()
    };
    let (plain, same) = (losses(&plain), losses(&cached));
    assert!(plain.len() == 4 && plain.is_sorted_by(|a, b| a > b), "{plain:?}");
    // The sums of gradients alone may differ.
    assert!(plain.iter().zip(&same).all(|(a, b)| (a - b).abs() < 1e-3), "{plain:?} {same:?}");
    assert_eq!(cached["reused"], 3, "{cached}");
    let counts = &outcome.stats["cached"];
    assert_eq!((&counts["reductions"], &counts["reused"]), (&12.into(), &9.into()), "{counts}");
}

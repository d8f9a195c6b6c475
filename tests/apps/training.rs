//! PyTorch, whose gradients are quantized: `benchmarks/training/train.py` and `examples/ddp_hook.py`.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Job, Mpi, Outcome, turn};
use crate::skip;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Debian's own, which has its packages.
const PYTHON: &str = "/usr/bin/python3";

fn is_there() -> bool {
    let mut python = Command::new(PYTHON);
    python.args(["-c", "import mpi4py, sklearn, torch"]).stderr(Stdio::null());
    let there = python.status().is_ok_and(|status| status.success());
    if !there {
        skip("PyTorch, scikit-learn and mpi4py of Debian are not installed (make setup-training)");
    }
    there
}

fn run(job: Job, script: &str, arguments: &[&str]) -> Outcome {
    let script = Path::new(ROOT).join(script);
    let words = [&[script.to_str().expect("a path in UTF-8")], arguments].concat();
    job.env("FOLDBACK_MAX_BYTES", "").run_path(Path::new(PYTHON), &words)
}

#[test]
fn a_model_learns_from_quantized_gradients() {
    if !is_there() {
        return;
    }
    let _turn = turn();
    let train = |job, quantize| {
        let arguments = ["--epochs", "3", "--quantize", quantize];
        let outcome = run(job, "benchmarks/training/train.py", &arguments);
        let said: Value = serde_json::from_str(&outcome.stdout).expect("a line of JSON");
        assert_eq!(said["alike"], true, "{said}");
        let losses: Vec<f64> =
            said["loss"].as_array().expect("losses").iter().filter_map(Value::as_f64).collect();
        assert!(losses.len() == 3 && losses.is_sorted_by(|a, b| a > b), "{said}");
        (outcome, losses[2])
    };
    let (_, plain) = train(Job::new(Mpi::Open, 2).option(&["--off"]), "off");
    let (exact, same) = train(Job::new(Mpi::Open, 2), "off");
    assert!((same - plain).abs() < 1e-3, "{same} and {plain}");
    assert_eq!(exact.quantized("Allreduce"), 0);
    let (outcome, quantized) = train(Job::new(Mpi::Open, 2), "int8,error_feedback");
    assert!(outcome.quantized("Allreduce") > 100, "{:#}", outcome.stats);
    assert!(quantized != plain && quantized < 1.5 * plain, "{quantized} and {plain}");
}

#[test]
fn a_hook_of_ddp_sums_gradients_by_mpi() {
    if !is_there() {
        return;
    }
    let _turn = turn();
    let outcome = run(Job::new(Mpi::Open, 2), "examples/ddp_hook.py", &["int8,error_feedback"]);
    let losses: Vec<f64> = outcome
        .stdout
        .lines()
        .filter_map(|line| line.split("loss ").nth(1)?.parse().ok())
        .collect();
    assert!(losses.len() == 6 && losses[5] < losses[0] / 4.0, "{}", outcome.stdout);
    assert!(outcome.quantized("Allreduce") >= 2 * 101, "{:#}", outcome.stats);
}

"""Trains by plain MPI and by foldback in every mode of quantization, in turns, on hosts of the lab (as root).

Writes into --out: results.json, a table in results.md, loss.svg and time.svg.

    make training-demo
    python3 benchmarks/training/compare.py [--seeds N] [--epochs N] [--hosts N] [--rate RATE] [--out DIR]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAIN = "plain MPI"
# Name, and what FOLDBACK_QUANTIZE would be.
MODES = {
    PLAIN: "off",
    "foldback": "off",
    "fixed32": "fixed32",
    "int16": "int16",
    "int8": "int8",
    "int8, stochastic": "int8,stochastic",
    "int8, error feedback": "int8,error_feedback",
}
# A run may take so many seconds; for hangs.
PATIENCE = 1800


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="runs of each mode (5)")
    parser.add_argument("--epochs", type=int, default=20, help="times over all data (20)")
    parser.add_argument("--hosts", type=int, default=4, help="of one rank each (4)")
    parser.add_argument("--rate", default="1gbit", help="of the links (1gbit)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/training")
    options = parser.parse_args()
    for name in ("seeds", "epochs", "hosts"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is 1 or more")
    return options


def train(mode, seed, options):
    """One job; what it has printed."""
    command = [ROOT / "target/release/foldback", "lab", "run", "--private", "--timeout", str(PATIENCE)]
    command += ["--hosts", str(options.hosts), "--rate", options.rate, "-x", "FOLDBACK_REPORT=off"]
    command += ["--off"] if mode == PLAIN else []
    command += ["--", sys.executable, ROOT / "benchmarks/training/train.py"]
    command += ["--quantize", MODES[mode], "--seed", str(seed), "--epochs", str(options.epochs)]
    job = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = [line for line in job.stdout.splitlines() if line.startswith("{")]
    if job.returncode != 0 or len(lines) != 1:
        sys.exit(f"training: {mode}, seed {seed}: the job failed: {' '.join(map(str, command))}")
    return json.loads(lines[0])


def mean(runs, key):
    return statistics.mean(run[key] for run in runs)


def table(results):
    """Lines of Markdown: what each mode reached, and its time to that of plain MPI, of the same seeds."""
    lines = [
        "| mode | accuracy, % | to plain MPI | loss at the end | sums, s | to plain MPI | all, s | to plain MPI |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for mode, runs in results.items():
        accuracies = [100 * run["accuracy"] for run in runs]
        pairs = list(zip(runs, results[PLAIN]))
        off = statistics.mean(100 * (run["accuracy"] - plain["accuracy"]) for run, plain in pairs)
        spread = statistics.stdev(accuracies) if len(runs) > 1 else 0.0
        ratio = {
            key: statistics.median(run[key] / plain[key] for run, plain in pairs)
            for key in ("communication", "seconds")
        }
        loss = statistics.mean(run["loss"][-1] for run in runs)
        lines.append(
            f"| {mode} | {statistics.mean(accuracies):.2f} ± {spread:.2f} | {off:+.2f} | {loss:.4f} "
            f"| {mean(runs, 'communication'):.1f} | {ratio['communication']:.2f} "
            f"| {mean(runs, 'seconds'):.1f} | {ratio['seconds']:.2f} |"
        )
    return lines


def draw(results, out):
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for mode, runs in results.items():
        losses = [statistics.mean(epoch) for epoch in zip(*(run["loss"] for run in runs))]
        axes.plot(range(1, len(losses) + 1), losses, label=mode)
    axes.set(xlabel="epoch", ylabel="loss, mean of all seeds", yscale="log")
    axes.legend()
    figure.savefig(out / "loss.svg", bbox_inches="tight")

    figure, axes = pyplot.subplots(figsize=(7, 3))
    at = [0.0] * len(results)
    for part in ("communication", "waiting", "computation"):
        seconds = [
            mean(runs, "seconds") - mean(runs, "communication") - mean(runs, "waiting")
            if part == "computation"
            else mean(runs, part)
            for runs in results.values()
        ]
        axes.barh(list(results), seconds, left=at, label=part)
        at = [before + more for before, more in zip(at, seconds)]
    axes.set(xlabel="seconds, mean of all seeds")
    axes.invert_yaxis()
    axes.legend()
    figure.savefig(out / "time.svg", bbox_inches="tight")


def main():
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    results = {mode: [] for mode in MODES}
    done, all_runs = 0, options.seeds * len(MODES)
    for seed in range(1, options.seeds + 1):
        for mode, runs in results.items():
            run = train(mode, seed, options)
            if not run["alike"]:
                sys.exit(f"training: {mode}, seed {seed}: the ranks' models have parted")
            runs.append(run)
            done += 1
            print(
                f"[{done}/{all_runs}] seed {seed}, {mode}: accuracy {100 * run['accuracy']:.2f} %, "
                f"sums {run['communication']:.1f} s of {run['seconds']:.1f}",
                flush=True,
            )
            (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    lines = table(results)
    (options.out / "results.md").write_text("\n".join(lines) + "\n")
    draw(results, options.out)
    print("\n".join(lines))
    print(f"training: {options.out}: results.json, results.md, loss.svg, time.svg")


main()

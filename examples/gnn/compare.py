"""Trains a network on the graph of apt's packages by plain MPI and by foldback, in turns, on hosts of the lab (as root).

Writes into --out: graph.npz, results.json, a table in results.md, and gnn.svg.

    make gnn-demo
    python3 examples/gnn/compare.py [--seeds N] [--epochs N] [--hosts N] [--rate RATE] [--out DIR]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAIN, CACHED, WORDS = "plain MPI", "foldback, cache", "words alone"
# Name; way of the rows; whether foldback is loaded.
MODES = {PLAIN: ("halo", False), "foldback": ("halo", True), CACHED: ("cache", True), WORDS: ("none", False)}
# A job may take so many seconds; for hangs.
PATIENCE = 1800


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="runs of each mode (5)")
    parser.add_argument("--epochs", type=int, default=60, help="times over the graph (60)")
    parser.add_argument("--hosts", type=int, default=4, help="of one rank each (4)")
    parser.add_argument("--rate", default="1gbit", help="of the links (1gbit)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/gnn")
    options = parser.parse_args()
    for name, least in (("seeds", 1), ("epochs", 1), ("hosts", 2)):
        if getattr(options, name) < least:
            parser.error(f"--{name} is {least} or more")
    return options


def train(mode, seed, options):
    """One job; what it has printed."""
    way, is_loaded = MODES[mode]
    command = [ROOT / "target/release/foldback", "lab", "run", "--private", "--timeout", str(PATIENCE)]
    command += ["--hosts", str(options.hosts), "--rate", options.rate]
    command += ["-x", "FOLDBACK_REPORT=off", "-x", "FOLDBACK_SETUP_CALLS=0"] if is_loaded else ["--off"]
    command += ["--", sys.executable, ROOT / "examples/gnn/sage.py", "--graph", options.out / "graph.npz"]
    command += ["--way", way, "--seed", str(seed), "--epochs", str(options.epochs)]
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    job = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    lines = [line for line in job.stdout.splitlines() if line.startswith("{")]
    if job.returncode != 0 or len(lines) != 1:
        sys.exit(f"gnn: {mode}, seed {seed}: the job failed: {' '.join(map(str, command))}")
    return json.loads(lines[0])


def mean(runs, key):
    return statistics.mean(run[key] for run in runs)


def ratio(results, mode, key):
    """Of a mode to plain MPI: the median over pairs of one seed."""
    pairs = zip(results[mode], results[PLAIN])
    return statistics.median(run[key] / plain[key] for run, plain in pairs)


def table(results, options):
    """Lines of Markdown."""
    lines = [
        "| mode | accuracy, % | an epoch, s | to plain MPI | all epochs, s | to plain MPI | MB an epoch | frames an epoch"
        " | features reused |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for mode, runs in results.items():
        accuracies = [100 * run["accuracy"] for run in runs]
        spread = statistics.stdev(accuracies) if len(runs) > 1 else 0.0
        reused = f"{mean(runs, 'reused'):.0f} of {options.epochs}" if mode == CACHED else "–"
        lines.append(
            f"| {mode} | {statistics.mean(accuracies):.2f} ± {spread:.2f} | {mean(runs, 'epoch'):.3f}"
            f" | {ratio(results, mode, 'epoch'):.2f} | {mean(runs, 'all'):.1f} | {ratio(results, mode, 'all'):.2f}"
            f" | {mean(runs, 'bytes') / 1e6:.1f} | {mean(runs, 'frames'):,.0f} | {reused} |"
        )
    return lines


def chart(results):
    """Bars for each mode: accuracy, time and bytes of an epoch. As SVG."""
    panels = (
        ("accuracy, %", lambda runs: 100 * mean(runs, "accuracy"), "{:.1f}"),
        ("seconds an epoch", lambda runs: mean(runs, "epoch"), "{:.2f}"),
        ("MB sent an epoch", lambda runs: mean(runs, "bytes") / 1e6, "{:.1f}"),
    )
    colours = ("#888888", "#4477aa", "#117733", "#cc9944")
    width, height, bar, left = 300, 40 + 34 * len(results), 22, 110
    text = 'font-family="sans-serif" font-size="12" fill="#222222"'
    parts = []
    for at, (title, value, form) in enumerate(panels):
        values = {mode: value(runs) for mode, runs in results.items()}
        most = max(values.values()) or 1
        parts.append(f'<g transform="translate({at * width},0)"><text x="{left}" y="18" {text}>{title}</text>')
        for row, (mode, number) in enumerate(values.items()):
            top, length = 30 + 34 * row, (width - left - 50) * number / most
            parts.append(f'<text x="{left - 6}" y="{top + 15}" text-anchor="end" {text}>{mode}</text>')
            parts.append(f'<rect x="{left}" y="{top}" width="{length:.1f}" height="{bar}" fill="{colours[row]}"/>')
            parts.append(f'<text x="{left + length + 4:.1f}" y="{top + 15}" {text}>{form.format(number)}</text>')
        parts.append("</g>")
    size = f'width="{width * len(panels)}" height="{height}" viewBox="0 0 {width * len(panels)} {height}"'
    white = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{white}{"".join(parts)}</svg>\n'


def main():
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    graph = [sys.executable, ROOT / "examples/gnn/packages.py", options.out / "graph.npz", str(options.hosts)]
    subprocess.run(graph, check=True)
    results = {mode: [] for mode in MODES}
    begin, all_jobs = time.monotonic(), options.seeds * len(MODES)
    for seed in range(1, options.seeds + 1):
        for mode, runs in results.items():
            runs.append(train(mode, seed, options))
            run, done = runs[-1], sum(map(len, results.values()))
            left = (time.monotonic() - begin) / done * (all_jobs - done)
            print(
                f"gnn: {done} of {all_jobs}, seed {seed}, {mode}: accuracy {100 * run['accuracy']:.2f} %,"
                f" {run['epoch']:.3f} s an epoch; {left:.0f} s left",
                flush=True,
            )
        # Both ways bring the same integers. The sums of gradients alone may differ, in the last bits.
        plain, cached = (results[mode][-1]["losses"][-1] for mode in (PLAIN, CACHED))
        if abs(plain - cached) > 0.01:
            sys.exit(f"gnn: seed {seed}: the losses differ: {plain} and {cached}")
    lines = table(results, options)
    (options.out / "results.json").write_text(json.dumps(results), encoding="utf-8")
    (options.out / "results.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (options.out / "gnn.svg").write_text(chart(results), encoding="utf-8")
    print("\n".join(["", *lines, "", f"gnn: {options.out}/gnn.svg, results.md, results.json"]))


if __name__ == "__main__":
    main()

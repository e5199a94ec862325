#!/usr/bin/env python3
"""Trains all thirteen methods on a small maze through the command line; prints their speed and success rates.

    python benchmarks/methods.py                        # float32 and bfloat16, 20,000 steps each
    python benchmarks/methods.py --methods bc qrl --precisions float32

Networks are small and other hyperparameters are the defaults for the method and task, so the results do not rank the
methods. The exit status is 1 if a logged metric of a seed is not finite. Runs that exist in --out are not repeated, so
the methods can be run one by one or in parallel first. Steps per second exclude compilation, and mean little if runs
shared the machine.
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

from gtrl import console
from gtrl.algorithms import ALGORITHMS
from gtrl.report.tables import comparison
from gtrl.runs.run import Run, display_name

TASK = "pointmaze-mini-navigate"
SMALL = ["--hidden", "64", "64", "--batch-size", "128", "--learning-rate", "1e-3", "--target-rate", "0.02"]
SMALL_LATENT = {"crl": ["--latent", "64"], "qrl": ["--latent", "64"]}


def gtrl(*words: str) -> None:
    """Runs a command of the command line."""
    subprocess.run([sys.executable, "-m", "gtrl", *words], check=True)


def not_finite(run: Run) -> list[str]:
    """Describes the non-finite metrics, each with the step and seed of its first non-finite value."""
    found: dict[str, str] = {}
    for row in run.metrics():
        for name, value in row.items():
            if not (isinstance(value, int | float) and math.isfinite(value)):
                found.setdefault(name, f"{name} at step {row['step']}, seed {row['seed']}")
    return list(found.values())


def speed(run: Run) -> float:
    """Steps per second after the first chunk of steps, which compiles."""
    return json.loads((run.path / "timing.jsonl").read_text().splitlines()[-1])["steps_per_second"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", nargs="+", default=["0", "1"])
    parser.add_argument("--episodes", default="10", help="episodes per goal and seed")
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    args = parser.parse_args()

    data = args.out / "data" / f"{TASK}-v0.npz"
    if not data.exists():
        gtrl("data", "collect", TASK, "--out", str(data))
    problems, lines = [], []
    for precision in args.precisions:
        evaluations, rates = {}, {}
        for method in args.methods:
            run = Run(args.out / precision / method)
            settings = [
                "--precision",
                precision,
                "--steps",
                str(args.steps),
                "--log-every",
                "1000",
                "--seeds",
                *args.seeds,
            ]
            paths = ["--task", TASK, "--data", str(data), "--out", str(run.path), "--resume"]
            if not run.evaluations():  # an existing run is not repeated
                gtrl("train", method, *paths, *settings, *SMALL, *SMALL_LATENT.get(method, []))
                gtrl("evaluate", str(run.path), "--episodes", args.episodes)
            evaluations[str(run.path)] = run.evaluations()
            rates[method] = speed(run)
            problems += [f"{method}, {precision}: {problem}" for problem in not_finite(run)]
        lines += [[display_name(method), precision, f"{rate:,.0f}"] for method, rate in rates.items()]
        console.print_table(comparison(TASK, evaluations))
    console.print_table(console.table("", ["method", "precision", "steps/s"], lines, text=2))
    for problem in problems:
        print(f"not finite: {problem}")
    print(f"{len(problems)} metrics were not finite" if problems else "all metrics are finite")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

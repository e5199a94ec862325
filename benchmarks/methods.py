#!/usr/bin/env python3
"""All thirteen methods on one small maze, through the command line: does any yield NaN, how fast, what do they reach?

    python benchmarks/methods.py                        # float32 and bfloat16, 20,000 steps each
    python benchmarks/methods.py --methods bc qrl --precisions float32

Small networks and the defaults for (method, task) otherwise, so this compares programs, not the methods at their best.
Every logged metric of every seed must be finite; the exit status is 1 if one is not. Runs that are in --out already are
only shown, so parts can be run one by one, or side by side, first. Steps per second leave the compilation out, and mean
little where runs shared the machine.
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
from gtrl.runs.run import Run, shown

TASK = "pointmaze-mini-navigate"
SMALL = ["--hidden", "64", "64", "--batch-size", "128", "--learning-rate", "1e-3", "--target-rate", "0.02"]
NARROW = {"crl": ["--latent", "64"], "qrl": ["--latent", "64"]}


def gtrl(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "gtrl", *words], check=True)


def not_finite(run: Run) -> list[str]:
    """The metrics that were not finite, with the step and seed where they first were not."""
    found: dict[str, str] = {}
    for row in run.metrics():
        for name, value in row.items():
            if not (isinstance(value, int | float) and math.isfinite(value)):
                found.setdefault(name, f"{name} at step {row['step']}, seed {row['seed']}")
    return list(found.values())


def speed(run: Run) -> float:
    """Steps per second, from the first chunk to the end."""
    return json.loads((run.path / "timing.jsonl").read_text().splitlines()[-1])["steps_per_second"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", nargs="+", default=["0", "1"])
    parser.add_argument("--episodes", default="10", help="a goal and seed")
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    args = parser.parse_args()

    data = args.out / "data" / f"{TASK}-v0.npz"
    if not data.exists():
        gtrl("data", "collect", TASK, "--out", str(data))
    faults, lines = [], []
    for precision in args.precisions:
        evaluations, rates = {}, {}
        for method in args.methods:
            run = Run(args.out / precision / method)
            how = ["--precision", precision, "--steps", str(args.steps), "--log-every", "1000", "--seeds", *args.seeds]
            where = ["--task", TASK, "--data", str(data), "--out", str(run.path), "--resume"]
            if not run.evaluations():  # a run that is there already is not run again
                gtrl("train", method, *where, *how, *SMALL, *NARROW.get(method, []))
                gtrl("evaluate", str(run.path), "--episodes", args.episodes)
            evaluations[str(run.path)] = run.evaluations()
            rates[method] = speed(run)
            faults += [f"{method}, {precision}: {fault}" for fault in not_finite(run)]
        lines += [[shown(method), precision, f"{rate:,.0f}"] for method, rate in rates.items()]
        console.print_table(comparison(TASK, evaluations))
    console.print_table(console.table("", ["method", "precision", "steps/s"], lines, text=2))
    for fault in faults:
        print(f"not finite: {fault}")
    print("every metric finite" if not faults else f"{len(faults)} metrics were not finite")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

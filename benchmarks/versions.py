"""Compares two versions of the package: do they train to the same numbers, and at the same speed?

    python benchmarks/versions.py train SOURCE OUT           train every method with the package in SOURCE/src
    python benchmarks/versions.py compare OUT OTHER          compare metrics.jsonl and all policies bit by bit
    python benchmarks/versions.py time SOURCE OTHER [FLAGS]  run `gtrl bench FLAGS` of both alternately

It uses only the command line, so any two versions that have `gtrl train` and `gtrl bench` can be compared.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

TASK = "pointmaze-mini-navigate"
ROUNDS = 3  # timings of each version
METHODS = ("gtrl", "trl", "bc", "fbc", "ivl", "iql", "td", "td-n", "crl", "mc", "qrl", "tdp", "coe")
TRAINING_FLAGS = (
    "--steps 300 --seeds 0 1 --batch-size 256 --hidden 64 64 64 --log-every 50 --checkpoint-every 100 "
    "--precision float32"
)


def command(source: Path, *words: str, **environment: str) -> None:
    """Runs a `gtrl` command with the package in SOURCE/src."""
    path = os.pathsep.join([str(source / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run(
        [sys.executable, "-m", "gtrl", *words], env={**os.environ, "PYTHONPATH": path, **environment}, check=True
    )


def train(source: Path, out: Path) -> None:
    """Collects data, unless it exists, and trains every method on it."""
    data = out / f"{TASK}-v0.npz"
    if not data.exists():
        command(source, "data", "collect", TASK, "--episodes", "30", "--out", str(data), JAX_PLATFORMS="cpu")
    for method in METHODS:
        words = (
            "train",
            method,
            "--task",
            TASK,
            "--data",
            str(data),
            "--out",
            str(out / method),
            *TRAINING_FLAGS.split(),
        )
        command(source, *words, JAX_PLATFORMS="cpu")


def differences(one: Path, other: Path) -> dict[str, float]:
    """The largest absolute difference of any number in each file; 0 where two files agree bit by bit."""
    found = {}
    rows = [[json.loads(line) for line in (run / "metrics.jsonl").open()] for run in (one, other)]
    same_names = [row.keys() for row in rows[0]] == [row.keys() for row in rows[1]]
    pairs = [(a[key], b[key]) for a, b in zip(*rows, strict=True) for key in a] if same_names else []
    found["metrics.jsonl"] = max(abs(a - b) for a, b in pairs) if same_names else float("inf")
    for path in sorted((one / "policies").rglob("*.npz")):
        name = path.relative_to(one)
        arrays = [dict(np.load(run / name)) for run in (one, other)]
        for each in arrays:
            each.pop("header")
        same = arrays[0].keys() == arrays[1].keys()
        gaps = [np.abs(arrays[0][key] - arrays[1][key]).max() for key in arrays[0]] if same else [np.inf]
        found[str(name)] = float(max(gaps))
    return found


def compare(one: Path, other: Path) -> bool:
    """Prints the largest difference of each method and returns whether all are 0."""
    largest = {}
    for method in METHODS:
        found = differences(one / method, other / method)
        name = max(found, key=lambda name: found[name])
        largest[method] = found[name]
        where = f" ({name})" if found[name] else ""
        print(f"{method:6} {len(found)} files, largest difference {found[name]:.1e}{where}")
    return not any(largest.values())


def rates(source: Path, flags: Sequence[str]) -> dict[str, float]:
    """Seed-steps per second of every row of `gtrl bench`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        command(source, "bench", *flags, "--no-reference", "--out", str(out))
        rows = json.loads(out.read_text())["rows"]
    return {
        f"{row['method']} {row['precision']} seeds {row['seeds']} batch {row['batch_size']}": row[
            "seed_steps_per_second"
        ]
        for row in rows
    }


def time_both(one: Path, other: Path, flags: Sequence[str]) -> None:
    """Prints the median speed of both versions, measured alternately, and the range over the rounds."""
    found: dict[Path, list[dict[str, float]]] = {one: [], other: []}
    for _ in range(ROUNDS):
        for source in found:
            found[source].append(rates(source, flags))
            print(json.dumps({"source": source.name, **found[source][-1]}), file=sys.stderr, flush=True)
    print(f"seed-steps/s, median of {ROUNDS} alternating rounds (minimum to maximum)")
    for case in found[one][0]:
        each = [[round_[case] for round_ in rounds] for rounds in found.values()]
        shown = [f"{statistics.median(x):,.1f} ({min(x):,.1f} to {max(x):,.1f})" for x in each]
        ratio = statistics.median(each[1]) / statistics.median(each[0])
        print(f"{case:40} {shown[0]:>32} {shown[1]:>32}   ratio {ratio:.3f}")


if __name__ == "__main__":
    verb, first, second, *flags = sys.argv[1:]
    one, other = Path(first).resolve(), Path(second).resolve()
    if verb == "train":
        train(one, other)
    elif verb == "time":
        time_both(one, other, flags)
    else:
        sys.exit(0 if compare(one, other) else 1)

"""Whether two versions of the package train every method to the same numbers, to the last bit.

    python benchmarks/same_results.py train SOURCE OUT     every method, with the package in SOURCE/src
    python benchmarks/same_results.py compare OUT OTHER    metrics.jsonl and the arrays of all policies

Only the command line is used, so any version that has `gtrl train` can be compared with any other.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

TASK = "pointmaze-mini-navigate"
METHODS = ("gtrl", "trl", "bc", "fbc", "ivl", "iql", "td", "td-n", "crl", "mc", "qrl", "tdp", "coe")
HOW = (
    "--steps 300 --seeds 0 1 --batch-size 256 --hidden 64 64 64 --log-every 50 --checkpoint-every 100 "
    "--precision float32"
)


def command(source: Path, *words: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-m", "gtrl", *words], env=environment, check=True)


def train(source: Path, out: Path) -> None:
    data = out / f"{TASK}-v0.npz"
    if not data.exists():
        command(source, "data", "collect", TASK, "--episodes", "30", "--out", str(data))
    for method in METHODS:
        words = ("train", method, "--task", TASK, "--data", str(data), "--out", str(out / method), *HOW.split())
        command(source, *words)


def differences(one: Path, other: Path) -> dict[str, float]:
    """The largest absolute difference of any number, by file; 0 where two files agree to the last bit."""
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
    worst = {}
    for method in METHODS:
        found = differences(one / method, other / method)
        name = max(found, key=lambda name: found[name])
        worst[method] = found[name]
        print(
            f"{method:6} {len(found)} files, largest difference {found[name]:.1e}{f' ({name})' if found[name] else ''}"
        )
    return not any(worst.values())


if __name__ == "__main__":
    verb, *paths = sys.argv[1:]
    first, second = map(Path, paths)
    if verb == "train":
        train(first.resolve(), second.resolve())
    else:
        sys.exit(0 if compare(first, second) else 1)

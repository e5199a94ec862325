#!/usr/bin/env python3
"""Compares an exported policy with its npz file: actions, size, load time and time per call, all in one run.

    python benchmarks/export.py [--out benchmarks/measured/export/cpu.json]

The policy has random weights, layer norms and scaling, 29 + 2 inputs and 8 actions. A load is timed in a process of its
own, from the file to the first action, without the imports of NumPy, gtrl and onnxruntime. A call is one observation.
Everything runs on one thread.
"""

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # before NumPy loads

import argparse
import itertools
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZES = {"observation_dim": 29, "goal_dim": 2, "action_dim": 8}
INPUTS, BLOCKS, CALLS, LOADS = 1000, 40, 100, 7
FILES = {
    "npz": "policy.npz",
    "Python file": "policy.py",
    "ONNX float32": "float32.onnx",
    "ONNX float16": "float16.onnx",
}
Act = Callable[[np.ndarray, np.ndarray], np.ndarray]


def write_policies(folder: Path, width: int) -> None:
    """Writes a scaled policy with three hidden layers, and its exports."""
    import gtrl
    from gtrl.io import mlp_file
    from gtrl.io.mlp import Layer
    from gtrl.io.scaling import Scaling

    rng = np.random.default_rng(0)
    layers = []
    for before, after in itertools.pairwise([31, width, width, width, 8]):
        norm = (rng.normal(1, 0.1, after), rng.normal(0, 0.1, after)) if after == width else ()
        layers.append(Layer(rng.normal(size=(before, after)) / np.sqrt(before), rng.normal(size=after) / 10, *norm))
    arrays, header = mlp_file.MLP(layers).export()
    scaling = Scaling(
        rng.normal(0, 5, 29), rng.uniform(0.1, 10, 29), np.zeros(2), np.full(2, 3.0), np.zeros(8), np.ones(8)
    )
    header |= {"kind": "gaussian", "algorithm": "gtrl", "task": None, "seed": 0, "step": 0, **SIZES}
    mlp_file.write(folder / "policy.npz", arrays | scaling.to_arrays(), header)
    gtrl.export(folder / "policy.npz", format="numpy")
    for precision in ("float32", "float16"):
        gtrl.export(folder / "policy.npz", folder / f"{precision}.onnx", precision=precision)


def random_inputs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.normal(0, 10, (INPUTS, 29)).astype(np.float32), rng.normal(0, 3, (INPUTS, 2)).astype(np.float32)


def import_for(path: Path) -> Any:
    """Imports what running a file needs, so that it is not timed."""
    if path.suffix == ".npz":
        import gtrl

        return gtrl.load_policy
    if path.suffix == ".onnx":
        import onnxruntime

        return onnxruntime
    import base64  # the imports of the exported file
    import json

    return base64, json


def load(path: Path) -> Act:
    """Returns the policy in a file, as a function of one observation and goal or of a batch."""
    library = import_for(path)
    if path.suffix == ".npz":
        return library(path)
    if path.suffix == ".py":
        sys.path.insert(0, str(path.parent))
        sys.modules.pop("policy", None)
        import policy  # pyright: ignore[reportMissingImports]

        return policy.Policy()
    options = library.SessionOptions()
    options.intra_op_num_threads = 1
    session = library.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def act(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
        rows = {"observation": np.atleast_2d(observation), "goal": np.atleast_2d(goal)}
        return session.run(None, rows)[0]

    return act


def load_seconds(path: Path) -> float:
    """The time from a file to the first action in a fresh process; the fastest of several."""
    command = [sys.executable, "-B", __file__, "--load", str(path)]
    return min(float(subprocess.check_output(command, text=True)) for _ in range(LOADS))


def time_load(path: Path) -> None:
    observation, goal = random_inputs()
    import_for(path)
    start = time.perf_counter()
    load(path)(observation[0], goal[0])
    print(time.perf_counter() - start)


def call_microseconds(policies: dict[str, Act]) -> dict[str, float]:
    """The median time of a call of each policy, which other processes that interrupt some calls hardly change."""
    observation, goal = random_inputs()
    times: dict[str, list[float]] = {name: [] for name in policies}
    for _ in range(BLOCKS):
        for name, act in policies.items():  # they take turns
            for row in range(CALLS):
                start = time.perf_counter()
                act(observation[row], goal[row])
                times[name].append(time.perf_counter() - start)
    return {name: 1e6 * float(np.median(each)) for name, each in times.items()}


def measure(width: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_policies(folder, width)
        policies = {name: load(folder / file) for name, file in FILES.items()}
        expected = policies["npz"](*random_inputs())
        microseconds = call_microseconds(policies)
        return [
            {
                "network": f"{width} x 3",
                "file": name,
                "largest_difference": float(np.abs(policies[name](*random_inputs()) - expected).max()),
                "megabytes": (folder / file).stat().st_size / 1e6,
                "load_milliseconds": 1e3 * load_seconds(folder / file),
                "call_microseconds": microseconds[name],
            }
            for name, file in FILES.items()
        ]


def main(out: Path | None) -> None:
    import onnx
    import onnxruntime

    from gtrl import console

    rows = [row for width in (256, 512) for row in measure(width)]
    cells = [
        [
            row["network"], row["file"], f"{row['largest_difference']:.1e}", f"{row['megabytes']:.2f}",
            f"{row['load_milliseconds']:.1f}", f"{row['call_microseconds']:.0f}",
        ]
        for row in rows
    ]  # fmt: skip
    columns = ["network", "file", "largest difference", "MB", "load (ms)", "call (µs)"]
    console.print_table(console.table(f"{INPUTS:,} inputs", columns, cells, text=2))
    versions = {module.__name__: module.__version__ for module in (np, onnx, onnxruntime)}
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        load = {"load_average": os.getloadavg()[0], "cores": os.cpu_count()}  # other processes slow the calls down
        machine = {"machine": platform.machine(), **load, "python": platform.python_version(), **versions}
        out.write_text(json.dumps({"machine": machine, "inputs": INPUTS, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        time_load(given.load)
    else:
        main(given.out)

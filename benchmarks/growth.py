#!/usr/bin/env python3
"""How time and memory grow: with seeds, batch size, steps, and transitions (in shards of a million).

    python benchmarks/growth.py --out growth.json                # measure, here
    python benchmarks/growth.py --draw growth.png a.json b.json  # a picture of what was measured

Seeds, batch sizes and steps: GTRL at antmaze's shapes on noise; memory is what the compiled program holds. Transitions:
a small network in the point maze's shapes on a folder of shards, each read for a few steps, so that all of them are;
memory is the process's (on a GPU the device's) peak, each size in a process of its own.
"""

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gtrl import bench
from gtrl.data.dataset import Spec, load_dataset
from gtrl.data.shards import Rotation
from gtrl.nn import speed
from gtrl.training import config, driver, loop

ANT, POINT = Spec(29, 8, 2), Spec(2, 2, 2)
SHARD = 1_000_000  # transitions
SHARD_STEPS = 40


def base(precision: str, width: int) -> bench.Case:
    return bench.Case("gtrl", ANT, 4, 1024, precision, speed.best(jax.default_backend()), (width,) * 3)


def sized(case: bench.Case, data: Any, repeats: int) -> dict[str, float]:
    found = bench.measure(case, data, repeats)
    held = bench.memory(case, data)
    return {"milliseconds": 1e3 * found["seconds_per_step"], "gigabytes": sum(held.values()) / 1e9}


def of_steps(case: bench.Case, data: Any, counts: list[int]) -> dict[int, dict[str, float]]:
    """Seconds for so many steps in one call."""
    algorithm, how, keys = case.algorithm, case.update, loop.seed_keys(range(case.seeds))
    states = loop.init(algorithm, how, case.spec, keys, data)
    states = jax.block_until_ready(loop.advance(algorithm, how, states, keys, data, 2))
    found = {}
    for count in counts:
        began = time.perf_counter()
        states = jax.block_until_ready(loop.advance(algorithm, how, states, keys, data, count))
        found[count] = {"seconds": time.perf_counter() - began}
    return found


def write_shards(folder: Path, count: int) -> None:
    """Noise; every file differs, so that nothing can be shared."""
    for index in range(count):
        arrays = bench.synthetic(POINT, SHARD, seed=index)
        terminals = np.ones(len(arrays.ends), bool)
        terminals[np.asarray(arrays.transitions)] = False
        kept = ("observations", "actions", "goals")
        rows: dict[str, Any] = {name: np.asarray(getattr(arrays, name)) for name in kept}
        np.savez(folder / f"shard-{index:03}.npz", terminals=terminals, **rows)


def of_shards(folder: Path, steps: int, width: int) -> dict[str, float]:
    """Train over a folder of shards; milliseconds a step once the first shard's steps are done, and peak memory."""
    case = dataclasses.replace(base("float32", width), spec=POINT, batch_size=256)
    training = config.Training(steps=steps, batch_size=256, shard_steps=SHARD_STEPS, log_every=steps)
    data = load_dataset(folder)
    keys = loop.seed_keys(range(case.seeds))
    states = loop.init(case.algorithm, training.update, POINT, keys, data.train)
    moments: list[tuple[int, float]] = []
    rotation = Rotation(data, SHARD_STEPS)
    del data
    on_step = lambda step: moments.append((step, time.perf_counter()))  # noqa: E731
    driver.fit(case.algorithm, training, states, keys, rotation, on_step=on_step, chunk=SHARD_STEPS)
    rotation.close()
    (first, began), (last, ended) = moments[0], moments[-1]
    stats = jax.devices()[0].memory_stats() or {}
    unit = 1 if sys.platform == "darwin" else 1024
    peak = stats.get("peak_bytes_in_use") or unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"milliseconds": 1e3 * (ended - began) / (last - first), "gigabytes": peak / 1e9}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    case = base(args.precision, args.width)
    result: dict[str, Any] = {"device": jax.devices()[0].device_kind, "precision": args.precision, "width": args.width}
    data = bench.synthetic(ANT, SHARD if {"seeds", "batch", "steps"} & set(args.what) else 1000)
    if "seeds" in args.what:
        cases = {n: dataclasses.replace(case, seeds=n) for n in args.seeds}
        result["seeds"] = {n: sized(each, data, args.repeats) for n, each in cases.items()}
    if "batch" in args.what:
        cases = {n: dataclasses.replace(case, batch_size=n) for n in args.batch_sizes}
        result["batch size"] = {n: sized(each, data, args.repeats) for n, each in cases.items()}
    if "steps" in args.what:
        result["steps"] = of_steps(case, data, args.steps)
    if "transitions" in args.what:
        result["transitions"] = {}
        for count in args.shards:
            with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
                write_shards(Path(folder), count)
                steps = SHARD_STEPS * (max(args.shards) + 1)
                command = [sys.executable, __file__, "--one-folder", folder, str(steps), str(args.width)]
                shared = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # a GPU, with this process
                told = subprocess.run(command, check=True, capture_output=True, text=True, env=shared).stdout
            result["transitions"][count * SHARD] = json.loads(told.splitlines()[-1])
    return result


def draw(path: Path, files: list[Path]) -> None:
    """A panel for each size that was measured: time in blue, memory in orange."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    results = [json.loads(file.read_text()) for file in files]
    panels = [(size, result) for size in ("seeds", "batch size", "steps", "transitions") for result in results]
    panels = [(size, result) for size, result in panels if size in result]
    figure, axes = plt.subplots(1, len(panels), figsize=(3.9 * len(panels), 3.3), squeeze=False, layout="constrained")
    for axis, (size, result) in zip(axes[0], panels, strict=True):
        xs, rows = [int(x) for x in result[size]], result[size].values()
        unit = "seconds" if size == "steps" else "milliseconds"
        times = [row[unit] for row in rows]
        axis.plot(xs, times, "o-", color="tab:blue")
        axis.set(xlabel=size, xticks=xs, xticklabels=[_short(x) for x in xs], ylim=(0, 1.1 * max(times)))
        axis.set_xlim(0, None)
        axis.tick_params(axis="x", labelrotation=60, labelsize=8)
        axis.set_ylabel("seconds in all" if size == "steps" else "ms a step", color="tab:blue")
        axis.set_title(f"{result['device']}, {result['precision']}, {result['width']} × 3", fontsize=9)
        if size != "steps":
            other = axis.twinx()
            held = [row["gigabytes"] for row in rows]
            other.plot(xs, held, "s--", color="tab:orange")
            other.set_ylim(0, 1.1 * max(held))
            other.set_ylabel("GB", color="tab:orange")
    figure.savefig(path, dpi=110)


def _short(number: int) -> str:
    return (
        f"{number // 10**6}M"
        if number >= 10**6
        else f"{number // 1000}K"
        if number >= 1000 and number % 1000 == 0
        else str(number)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", default=["seeds", "batch", "steps", "transitions"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[256, 512, 1024, 2048, 4096])
    parser.add_argument("--steps", nargs="+", type=int, default=[500, 1000, 2000, 4000])
    parser.add_argument("--shards", nargs="+", type=int, default=[1, 10, 30, 100])
    parser.add_argument("--precision", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="where shards are written for a while")
    parser.add_argument("--out", type=Path, default=Path("growth.json"))
    parser.add_argument("--draw", type=Path, help="a picture to make of the files named after it")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--one-folder", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one_folder:
        folder, steps, width = args.one_folder
        print(json.dumps(of_shards(Path(folder), int(steps), int(width))))
    elif args.draw:
        draw(args.draw, args.files)
    else:
        result = measure(args)
        args.out.write_text(json.dumps(result, indent=2) + "\n")
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

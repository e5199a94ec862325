#!/usr/bin/env python3
"""Measures how time and memory grow with seeds, batch size, steps, and transitions (in shards of a million).

    python benchmarks/growth.py --out growth.json                # measures, on this machine
    python benchmarks/growth.py --draw growth.png a.json b.json  # draws what was measured

Seeds, batch sizes and steps: GTRL at antmaze's shapes on random data; memory is what the compiled program needs.
Transitions: a small network at the point maze's shapes on a folder of shards, each used for a few steps, so that all
shards are read; memory is the peak of the process (on a GPU, of the device), and each size runs in its own process.
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
from matplotlib.ticker import NullLocator

from gtrl import bench
from gtrl.data.dataset import Spec
from gtrl.data.load import load_dataset
from gtrl.data.shards import Rotation
from gtrl.nn import speed
from gtrl.report import style
from gtrl.training import config, driver, loop

ANT, POINT = Spec(29, 8, 2), Spec(2, 2, 2)
SHARD_TRANSITIONS = 1_000_000
SHARD_STEPS = 40  # training steps before the next shard is read
SIZES = ("seeds", "batch size", "transitions", "steps")  # keys of the result, in the order of the figure
AXIS_LABELS = {
    "seeds": "seeds trained at once",
    "transitions": "transitions in the dataset",
    "steps": "steps in one call",
}


def base(precision: str, width: int) -> bench.Case:
    """Returns the case whose sizes are varied: GTRL on antmaze's shapes, four seeds, batch 1024."""
    return bench.Case("gtrl", ANT, 4, 1024, precision, speed.defaults_for(jax.default_backend()), (width,) * 3)


def measure_case(case: bench.Case, data: Any, repeats: int) -> dict[str, float]:
    """Measures one case: milliseconds per step, and gigabytes that the compiled program needs."""
    speeds = bench.measure(case, data, repeats)
    memory = bench.memory(case, data)
    return {"milliseconds": 1e3 * speeds["seconds_per_step"], "gigabytes": sum(memory.values()) / 1e9}


def measure_steps(case: bench.Case, data: Any, counts: list[int]) -> dict[int, dict[str, float]]:
    """Measures the seconds of one call that makes so many steps, for each count."""
    algorithm, how, keys = case.algorithm, case.update, loop.seed_keys(range(case.seeds))
    states = loop.init(algorithm, how, case.spec, keys, data)
    states = jax.block_until_ready(loop.advance(algorithm, how, states, keys, data, 2))
    found = {}
    for count in counts:
        start = time.perf_counter()
        states = jax.block_until_ready(loop.advance(algorithm, how, states, keys, data, count))
        found[count] = {"seconds": time.perf_counter() - start}
    return found


def write_shards(folder: Path, count: int) -> None:
    """Writes shards of random data; every file differs, so that none can be shared or cached for another."""
    for index in range(count):
        arrays = bench.synthetic(POINT, SHARD_TRANSITIONS, seed=index)
        terminals = np.ones(len(arrays.ends), bool)
        terminals[np.asarray(arrays.transitions)] = False
        names = ("observations", "actions", "goals")
        rows: dict[str, Any] = {name: np.asarray(getattr(arrays, name)) for name in names}
        np.savez(folder / f"shard-{index:03}.npz", terminals=terminals, **rows)


def measure_shards(folder: Path, steps: int, width: int) -> dict[str, float]:
    """Trains on a folder of shards: milliseconds per step after the first shard's, and peak memory in gigabytes."""
    case = dataclasses.replace(base("float32", width), spec=POINT, batch_size=256)
    training = config.Training(steps=steps, batch_size=256, shard_steps=SHARD_STEPS, log_every=steps)
    data = load_dataset(folder)
    keys = loop.seed_keys(range(case.seeds))
    states = loop.init(case.algorithm, training.update, POINT, keys, data.train)
    moments: list[tuple[int, float]] = []
    rotation = Rotation(data, SHARD_STEPS)
    del data

    def on_step(step: int) -> None:
        moments.append((step, time.perf_counter()))

    driver.fit(case.algorithm, training, states, keys, rotation, on_step=on_step, chunk=SHARD_STEPS)
    rotation.close()
    (first, start), (last, end) = moments[0], moments[-1]
    stats = jax.devices()[0].memory_stats() or {}
    unit = 1 if sys.platform == "darwin" else 1024
    peak = stats.get("peak_bytes_in_use") or unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"milliseconds": 1e3 * (end - start) / (last - first), "gigabytes": peak / 1e9}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Measures each of the sizes that were asked for."""
    case = base(args.precision, args.width)
    result: dict[str, Any] = {"device": jax.devices()[0].device_kind, "precision": args.precision, "width": args.width}
    data = bench.synthetic(ANT, SHARD_TRANSITIONS if {"seeds", "batch", "steps"} & set(args.what) else 1000)
    if "seeds" in args.what:
        cases = {n: dataclasses.replace(case, seeds=n) for n in args.seeds}
        result["seeds"] = {n: measure_case(each, data, args.repeats) for n, each in cases.items()}
    if "batch" in args.what:
        cases = {n: dataclasses.replace(case, batch_size=n) for n in args.batch_sizes}
        result["batch size"] = {n: measure_case(each, data, args.repeats) for n, each in cases.items()}
    if "steps" in args.what:
        result["steps"] = measure_steps(case, data, args.steps)
    if "transitions" in args.what:
        result["transitions"] = {}
        for count in args.shards:
            with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
                write_shards(Path(folder), count)
                steps = SHARD_STEPS * (max(args.shards) + 1)
                command = [sys.executable, __file__, "--one-folder", folder, str(steps), str(args.width)]
                shared = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # this process is on the GPU too
                output = subprocess.run(command, check=True, capture_output=True, text=True, env=shared).stdout
            result["transitions"][count * SHARD_TRANSITIONS] = json.loads(output.splitlines()[-1])
    return result


def draw(path: Path, files: list[Path]) -> None:
    """Draws a column for each size that was measured: time per step above, memory below."""
    results = [json.loads(file.read_text()) for file in files]
    columns = [(size, result) for size in SIZES for result in results if size in result]
    with style.applied():
        figure = style.new_figure(4.6)
        axes = figure.subplots(2, len(columns), sharey="row", squeeze=False)
        for (time_axis, memory_axis), (size, result) in zip(axes.T, columns, strict=True):
            _draw_column(time_axis, memory_axis, size, result)
        axes[0, 0].set_ylabel("time per step (ms)")
        axes[1, 0].set_ylabel("memory (GB)")
        handles, labels = [], []
        for axis in axes.flat:
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                if label not in labels:
                    handles.append(handle)
                    labels.append(label)
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        style.save(figure, path)


def _draw_column(time_axis: Any, memory_axis: Any, size: str, result: dict[str, Any]) -> None:
    """Draws one size's times and, where they were measured, its memory, on logarithmic axes."""
    counts = [int(count) for count in result[size]]
    rows = list(result[size].values())
    times = [row.get("milliseconds") or 1e3 * row["seconds"] / n for n, row in zip(counts, rows, strict=True)]
    on_cpu = result["device"] == "cpu"
    look = style.LINES["TRL" if on_cpu else "GTRL"]
    label = f"{'CPU' if on_cpu else result['device']}, {result['precision']}, width {result['width']} × 3 layers"
    time_axis.plot(counts, times, label=label, **look)
    if size in ("seeds", "batch size"):
        slope = [times[-1] * n / counts[-1] for n in counts]
        time_axis.plot(counts, slope, label="proportional to the horizontal axis", **style.REFERENCE)
    memory = [row["gigabytes"] for row in rows if "gigabytes" in row]
    if memory:
        memory_axis.plot(counts, memory, label=label, **look)
    else:
        memory_axis.set_axis_off()
        memory_axis.text(0.5, 0.5, "memory: not measured", transform=memory_axis.transAxes, ha="center")
    for axis in (time_axis, memory_axis):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.set_xticks(counts, labels=[_short(n) for n in counts])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter("{x:g}")
        axis.grid()
    (memory_axis if memory else time_axis).set_xlabel(AXIS_LABELS.get(size, size))


def _short(number: int) -> str:
    """1M for a million, 2K for two thousand; other numbers in full."""
    if number >= 10**6:
        return f"{number // 10**6}M"
    return f"{number // 1000}K" if number >= 1000 and number % 1000 == 0 else str(number)


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
    parser.add_argument("--scratch", type=Path, help="folder for temporary shards")
    parser.add_argument("--out", type=Path, default=Path("growth.json"))
    parser.add_argument("--draw", type=Path, help="draw the files that follow to this picture")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--one-folder", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one_folder:
        folder, steps, width = args.one_folder
        print(json.dumps(measure_shards(Path(folder), int(steps), int(width))))
    elif args.draw:
        draw(args.draw, args.files)
    else:
        result = measure(args)
        args.out.write_text(json.dumps(result, indent=2) + "\n")
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

"""What a sweep costs: GPU-hours at the measured speed, and disk space."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.table import Table

from gtrl import console
from gtrl.algorithms import Algorithm
from gtrl.data.dataset import Spec
from gtrl.runs.run import Run
from gtrl.sweeps.display import short, words
from gtrl.sweeps.prepare import CheckedRun, Found, data_source, find_state, spec_of
from gtrl.sweeps.status import newest_checkpoint

# Milliseconds per step by (method, precision) and number of seeds: docs/performance.md, "How fast is it on an H200?".
# Networks of 512 × 3, batches of 1024, antmaze's sizes.
MEASURED_SEEDS = (1, 4, 8)
MILLISECONDS = {
    ("gtrl", "float32"): (0.431, 1.200, 2.267),
    ("gtrl", "bfloat16"): (0.270, 0.709, 1.300),
    ("trl", "float32"): (0.413, 1.133, 2.158),
    ("trl", "bfloat16"): (0.260, 0.665, 1.243),
}
NOT_MEASURED = "gtrl"  # the method whose speed is used for those that were not measured
BYTES = 4  # of a parameter; checkpoints hold float32 in both precisions


@dataclass(frozen=True)
class Cost:
    """What is left to do for one run."""

    found: Found  # what its directory holds
    steps: int
    gpu_hours: float
    disk_bytes: int  # of the whole run directory at its end
    is_measured: bool  # whether the speed of this method was measured


def cost_of(run: CheckedRun) -> Cost:
    """Estimates the training time that is left and the size of the run directory."""
    method, precision = run.algorithm.name, run.training.precision
    is_measured = (method, precision) in MILLISECONDS
    times = MILLISECONDS[(method if is_measured else NOT_MEASURED), precision]
    state = find_state(run)
    steps = 0 if state == "finished" else max(0, run.training.steps - newest_checkpoint(Run(run.folder)))
    seconds = steps * step_milliseconds(times, len(run.plan.seeds)) / 1000
    return Cost(state, steps, seconds / 3600, disk_bytes(run), is_measured)


def step_milliseconds(times: Sequence[float], seeds: int) -> float:
    """Returns the time of a step: linear between the measured numbers of seeds, proportional above the largest."""
    if seeds > MEASURED_SEEDS[-1]:
        return times[-1] * seeds / MEASURED_SEEDS[-1]
    return float(np.interp(seeds, MEASURED_SEEDS, times))


def disk_bytes(run: CheckedRun) -> int:
    """Returns the size of a run directory at its end: checkpoints and policies; the logs are small beside them.

    A checkpoint has the networks, Adam's two moments of each parameter, and the targets, of every seed.
    """
    nets, target, policy = parameter_counts(run.algorithm, spec_of(run.task))
    kept = len([step for step in run.training.kept_steps if 0 < step <= run.training.steps])
    checkpoints = kept + run.training.keep
    policies = len(run.training.checkpoint_steps)
    return BYTES * len(run.plan.seeds) * (checkpoints * (3 * nets + target) + policies * policy)


@cache
def parameter_counts(algorithm: Algorithm, spec: Spec) -> tuple[int, int, int]:
    """Returns the number of parameters of the networks, the target networks and the policy, without creating them."""

    def shapes(key_data: Any) -> Any:
        nets = algorithm.init(jax.random.wrap_key_data(key_data), spec)
        return nets, algorithm.targets(nets), algorithm.policy(nets)

    parts = jax.eval_shape(shapes, jax.ShapeDtypeStruct((2,), np.uint32))
    sizes = [sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(part)) for part in parts]
    return sizes[0], sizes[1], sizes[2]


# --- the plan of a dry run ---


def plan_table(runs: Sequence[CheckedRun], costs: Sequence[Cost], out: Path) -> Table:
    """Returns the table of a dry run: what is found, what is left to do, and what it costs. It fits 80 columns."""
    rows = []
    for run, cost in zip(runs, costs, strict=True):
        hours = f"{cost.gpu_hours:.2f}{'' if cost.is_measured else '*'}"
        rows.append([words(run.key), cost.found, short(cost.steps), hours, f"{cost.disk_bytes / 1e9:.2f} GB"])
    columns = ["run", "found", "steps left", "GPU-hours", "disk"]
    return console.table(f"{len(runs)} runs in {out}", columns, rows, text=2)


def plan_notes(runs: Sequence[CheckedRun], costs: Sequence[Cost]) -> list[str]:
    """Returns the lines below the table: sums, what the numbers rest on, and where the data comes from."""
    hours, disk = sum(cost.gpu_hours for cost in costs), sum(cost.disk_bytes for cost in costs)
    lines = [
        f"training: {hours:.1f} GPU-hours at the speed measured on one H200 (512 × 3, batch 1024; docs/performance.md)",
        f"disk: {disk / 1e9:.1f} GB for checkpoints and policies",
    ]
    if not all(cost.is_measured for cost in costs):
        lines.append("* not measured: GTRL's speed is used")
    unfinished = [run for run, cost in zip(runs, costs, strict=True) if cost.found != "finished"]
    lines += [f"data of {task}: {source}" for task, source in _data_sources(unfinished).items()]
    return lines


def _data_sources(runs: Sequence[CheckedRun]) -> dict[str, str]:
    return {run.task.name: str(run.plan.data) if run.plan.data else data_source(run.task) for run in runs}

"""Run directories with known numbers, written without training: for tests of reports."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gtrl.runs.run import Run

Successes = Mapping[tuple[int, int], Sequence[int]]  # (seed, step): successes of each goal


def config(
    task: str | None, method: str, seeds: Sequence[int], steps: int = 1_000_000, **fields: Any
) -> dict[str, Any]:
    """A config like that of training, with what reports read."""
    return {
        "gtrl": "0.1.0",
        "task": task,
        "algorithm": {"name": method, **fields},
        "training": {"steps": steps, "batch_size": 1024, "precision": "bfloat16"},
        "seeds": list(seeds),
        "data": {"source": "/home/somebody/data.npz", "digest": "0123", "observation_dim": 2},
        "versions": {"jax": "0.10.2"},
        "plugins": [],
        "device": "cpu",
    }


def write_run(
    folder: Path,
    task: str,
    method: str,
    successes: Successes,
    *,
    episodes: int = 50,
    steps: int = 1_000_000,
    base_seed: int = 0,
    goal_names: Sequence[str] = ("task1", "task2", "task3", "task4", "task5"),
    **fields: Any,
) -> Run:
    """Writes a run whose policies had the given successes."""
    run = Run(folder)
    seeds = sorted({seed for seed, _ in successes})
    run.save_config(config(task, method, seeds, steps, **fields))
    run.add_evaluations(
        {
            "algorithm": method, "task": task, "seed": seed, "step": step, "goal": goal, "episodes": episodes,
            "successes": count, "base_seed": base_seed,
        }
        for (seed, step), counts in successes.items()
        for goal, count in zip(goal_names, counts, strict=True)
    )  # fmt: skip
    logged = range(100_000, steps + 1, 100_000)
    rows = [{"step": step, "seed": seed, "critic_loss": 0.1} for step in logged for seed in seeds]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    times = [{"step": 1000, "time": 1010.0, "start_up_seconds": 10.0}]
    times += [{"step": step, "time": 1010.0 + step / 1000, "steps_per_second": 1000.0} for step in logged]
    (folder / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in times))
    return run

#!/usr/bin/env python3
"""Compares the speed of evaluation with a conventional loop: one environment, one jitted policy call per step.

    python benchmarks/evaluation.py                                     # 50 episodes of each of five goals
    python benchmarks/evaluation.py --tasks antmaze-large-navigate --episodes 10

Both evaluate the same policy (random weights, 512 x 3; it hardly ever reaches the goal, so episodes have their full
length) in one run. The loop's compilation is not counted, the start of the worker processes is. The exit status is 1 if
the results of `gtrl evaluate` depend on the number of workers.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from gtrl import console
from gtrl.data.dataset import Spec
from gtrl.envs.make import make_environment
from gtrl.evaluation.evaluate import evaluate
from gtrl.io import mlp
from gtrl.nn.networks import Actor
from gtrl.runs.policy import GaussianPolicy, load_policy, save_policy
from gtrl.tasks import GOALS_PER_TASK, OGBenchTask, ogbench_task
from gtrl.workers import default_workers


def policy_file(folder: Path, task: OGBenchTask) -> Path:
    """Writes a policy with random weights for a task."""
    spec = Spec(task.observation_dim, task.action_dim, task.goal_dim)
    actor = Actor.init(jax.random.key(0), spec, (512, 512, 512))
    header = {"algorithm": "bc", "task": task.name, "goal": "oracle", "seed": 0, "step": 0}
    path = folder / f"{task.name}.npz"
    save_policy(path, jax.device_get(actor), {**header, **spec._asdict()})
    return path


def plain_loop(path: Path, task: OGBenchTask, seconds: float) -> float:
    """Environment steps per second of the conventional loop, measured for about this many seconds."""
    policy = load_policy(path)
    assert isinstance(policy, GaussianPolicy)
    layers = policy.network.layers
    act = jax.jit(lambda layers, row: mlp.forward(layers, row[None], jax.numpy)[0].clip(-1, 1))
    env = make_environment(task)
    steps, start_time = 0, None
    for episode in range(10_000):
        observation, info = env.reset(options={"task_id": episode % GOALS_PER_TASK + 1})
        goal, done = info["goal"], False
        while not done:
            action = np.asarray(act(layers, np.concatenate([observation, goal]).astype(np.float32)))
            observation, _, terminated, truncated, _ = env.step(action)
            start_time = start_time or time.perf_counter()  # the first step compiles
            steps += 1
            done = terminated or truncated
            if time.perf_counter() - start_time > seconds:
                return (steps - 1) / (time.perf_counter() - start_time)
    raise AssertionError


def parallel_evaluation(path: Path, task: OGBenchTask, episodes: int, workers: int) -> tuple[float, Sequence[dict]]:
    """Environment steps per second of `evaluate`, including the start of its processes, and its rows."""
    start_time = time.perf_counter()
    rows = evaluate(path, episodes=episodes, workers=workers, show=False)
    seconds = time.perf_counter() - start_time
    return episodes * GOALS_PER_TASK * task.episode_length / seconds, rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = ["pointmaze-large-navigate", "antmaze-large-navigate", "cube-single-play"]
    parser.add_argument("--tasks", nargs="+", default=tasks)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of the conventional loop")
    args = parser.parse_args()
    table, all_same = [], True
    with tempfile.TemporaryDirectory() as folder:
        for task in map(ogbench_task, args.tasks):
            path = policy_file(Path(folder), task)
            plain = plain_loop(path, task, args.seconds)
            rate, rows = parallel_evaluation(path, task, args.episodes, default_workers())
            tables = [evaluate(path, episodes=1, workers=workers, show=False) for workers in (1, 3)]
            same = tables[0] == tables[1]
            all_same &= same
            cells = [f"{plain:,.0f}", f"{rate:,.0f}", f"{rate / plain:.1f} ×", "yes" if same else "NO"]
            table.append([task.name, *cells, sum(row["successes"] for row in rows)])
    columns = ["task", "loop steps/s", "evaluate steps/s", "ratio", "same results", "successes"]
    title = f"{args.episodes} episodes per goal, {default_workers()} of {os.cpu_count()} cores"
    console.print_table(console.table(title, columns, table))
    return 0 if all_same else 1


if __name__ == "__main__":
    sys.exit(main())

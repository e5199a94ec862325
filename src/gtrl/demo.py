"""The whole pipeline in small (`gtrl demo`): runs on a laptop.

Collects data in a small stochastic teleport maze, trains GTRL and TRL on it, evaluates both by the paper's protocol
with fewer episodes, prints the success rate of every seed and draws a picture. Both methods get the same data, network,
number of steps, distance weight and cloning coefficient.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gtrl import console
from gtrl.envs.simulator import require_simulator
from gtrl.evaluation.evaluate import evaluate, success_rate
from gtrl.io.npz import write_npz
from gtrl.runs.run import Run, new_directory
from gtrl.tasks import ogbench_task

TASK = "pointmaze-mini-navigate"
METHODS = ("gtrl", "trl")
SEEDS = 3  # per method
STEPS = 6000
EPISODES = 20  # per goal
# Narrow networks, small batches and a large learning rate, for fast training. The same for both methods.
METHOD_FIELDS: dict[str, Any] = {"hidden": (64, 64, 64), "target_rate": 0.1}
TRAINING_FIELDS: dict[str, Any] = {"batch_size": 256, "learning_rate": 2e-3, "log_every": 500}
PICTURED_GOAL = 2  # number of the evaluation goal whose values and paths are drawn


def demo(
    out: str | Path | None = None,
    *,
    seed: int = 0,
    steps: int = STEPS,
    episodes: int = EPISODES,
    workers: int | None = None,
    show: bool = True,
) -> Path:
    """Runs the demo and returns its directory. The seeds of data, training and evaluation are derived from `seed`."""
    from gtrl.data.collect.files import collect
    from gtrl.data.load import load_dataset
    from gtrl.training.train import train

    require_simulator("the demo")
    folder = Path(out).expanduser() if out else new_directory(Path("runs/demo"))
    task = ogbench_task(TASK)
    path = collect(task, folder / "data" / f"{task.dataset}.npz", seed=seed, workers=workers, show=show)
    data = load_dataset(path, task)
    rows = []
    for method in METHODS:
        run = train(
            method, data, out=folder / method, seeds=range(SEEDS * seed, SEEDS * (seed + 1)), steps=steps, show=show,
            **METHOD_FIELDS, **TRAINING_FIELDS,
        )  # fmt: skip
        rows += evaluate(run, episodes=episodes, workers=workers, base_seed=seed, show=show)
    console.print_table(comparison(rows, episodes))
    picture = draw(folder, rows)
    console.echo(f"picture: {picture}")
    return folder


def comparison(rows: Sequence[dict[str, Any]], episodes: int) -> Any:
    """Returns a table of success rates by method, seed and goal, with the mean over seeds."""
    goals = sorted({row["goal"] for row in rows})
    lines = []
    for method in METHODS:
        method_rows = [row for row in rows if row["algorithm"] == method]
        for seed in sorted({row["seed"] for row in method_rows}):
            seed_rows = [row for row in method_rows if row["seed"] == seed]
            lines.append([method.upper(), seed, *_percentages(seed_rows, goals)])
        lines.append([method.upper(), "mean", *_percentages(method_rows, goals)])
    title = f"success in %, {episodes} episodes per goal and seed"
    return console.table(title, ["method", "seed", *goals, "overall"], lines)


def _percentages(rows: Sequence[dict[str, Any]], goals: Sequence[str]) -> list[str]:
    """The success rates for each goal, then over all goals."""
    by_goal = [[row for row in rows if row["goal"] == goal] for goal in goals]
    return [f"{success_rate(group):.0f}" for group in (*by_goal, rows)]


def draw(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Draws `demo.png`: the maze, the exact values, and the learned values and paths of each method."""
    from gtrl.envs.maze import Maze
    from gtrl.report.figures import maze_picture
    from gtrl.theory.maze import point_maze_grid, point_maze_values

    maze = Maze.from_arrays(np.load(folder / METHODS[0] / "values.npz"))
    values = point_maze_values(maze, maze.goals[PICTURED_GOAL - 1], ogbench_task(TASK).defaults["gamma"])
    write_npz(folder / "exact.npz", {"points": point_maze_grid(maze).points, "values": values})
    rates: dict[str, list[float]] = {}
    for method in METHODS:
        for seed in Run.open(folder / method).seeds:
            seed_rows = [row for row in rows if (row["algorithm"], row["seed"]) == (method, seed)]
            rates.setdefault(method.upper(), []).append(success_rate(seed_rows))
    runs = {method.upper(): folder / method for method in METHODS}
    maze_picture(folder / "demo.png", runs, folder / "exact.npz", PICTURED_GOAL, rates)
    return folder / "demo.png"

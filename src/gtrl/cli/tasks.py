"""`gtrl tasks`: lists the tasks."""

from typing import Any

from gtrl import console
from gtrl.cli.listing import available, cell, print_json
from gtrl.tasks import REGISTERED, TASKS, VALUE_GOALS, Task

# The columns of the table, and their keys in JSON.
COLUMNS = {
    "task": "name", "group": "group", "paper": "paper", "transitions": "transitions", "trajectories": "trajectories",
    "length": "trajectory_length", "obs": "observation_dim", "goal": "goal_dim", "act": "action_dim",
    "episode": "episode_length", "lambda": "lambda", "alpha": "alpha", "gamma": "gamma", "actor goals": "actor_goals",
}  # fmt: skip


def tasks_command(*, json: bool = False) -> None:
    """List the tasks and their hyperparameters: the nineteen of the paper, then all other registered ones.

    Args:
        json: Print JSON instead of a table.
    """
    rows = [_row(task) for task in available(REGISTERED)]
    if json:
        print_json(rows)
        return
    cells = [[_shown(row, key) for key in COLUMNS.values()] for row in rows]
    title = (
        "length: steps per trajectory; obs, goal, act: dimensions; episode: step limit of an evaluation episode.\n"
        f"Goals are drawn with probabilities (current, trajectory, random); value goals with {cell(VALUE_GOALS)}."
    )
    console.print_table(console.table(title, list(COLUMNS), cells, text=3))


def _row(task: Task) -> dict[str, Any]:
    return {**task.to_json(), "paper": TASKS.get(task.name) is task}


def _shown(row: dict[str, Any], key: str) -> str:
    if key == "paper":
        return "yes" if row[key] else "no"
    # A user-defined task has no group; its hyperparameters, if any, are among its defaults.
    defaults = {name.strip("_"): value for name, value in row.get("defaults", {}).items()}
    return cell(row.get(key, "own" if key == "group" else defaults.get(key)))

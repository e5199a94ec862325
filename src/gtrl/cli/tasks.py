"""`gtrl tasks`."""

from typing import Any

from gtrl import console
from gtrl.cli.listing import available, cell, print_json
from gtrl.tasks import REGISTERED, TASKS, VALUE_GOALS, Task

# The columns of the table, and what each is called in JSON.
COLUMNS = {
    "task": "name", "group": "group", "paper": "paper", "transitions": "transitions", "trajectories": "trajectories",
    "length": "trajectory_length", "obs": "observation_dim", "goal": "goal_dim", "act": "action_dim",
    "episode": "episode_length", "lambda": "lambda", "alpha": "alpha", "gamma": "gamma", "actor goals": "actor_goals",
}  # fmt: skip


def tasks_command(*, json: bool = False) -> None:
    """The tasks and their hyperparameters: the nineteen of the paper, then all others that are known here.

    Args:
        json: Print a list of objects instead of a table.
    """
    rows = [_row(task) for task in available(REGISTERED)]
    if json:
        print_json(rows)
        return
    cells = [[_shown(row, key) for key in COLUMNS.values()] for row in rows]
    title = f"value goals are {cell(VALUE_GOALS)} on every task: (current, trajectory, random)"
    console.print_table(console.table(title, list(COLUMNS), cells, text=3))


def _row(task: Task) -> dict[str, Any]:
    return {**task.to_json(), "paper": TASKS.get(task.name) is task}


def _shown(row: dict[str, Any], key: str) -> str:
    if key == "paper":
        return "yes" if row[key] else "no"
    # A task of the user's own has its hyperparameters, if any, among its defaults, and no group.
    defaults = {name.strip("_"): value for name, value in row.get("defaults", {}).items()}
    return cell(row.get(key, "own" if key == "group" else defaults.get(key)))

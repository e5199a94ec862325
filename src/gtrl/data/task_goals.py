"""Computation of the task's goal at every row of a dataset."""

from collections.abc import Mapping

import numpy as np

from gtrl.errors import DataError
from gtrl.registry import resolve
from gtrl.tasks import Task

Arrays = Mapping[str, np.ndarray]


def task_goals(arrays: Arrays, task: Task | None) -> np.ndarray:
    """Returns the goal at every row, (rows, goal_dim), as `Task.goal` defines it.

    Without a task, or if it does not define goals, returns the array `goals`, or whole observations without one.
    """
    goal = task.goal if task else None
    if goal is None:
        return arrays.get("goals", arrays["observations"])
    if isinstance(goal, str):
        goal = resolve(goal)
    if callable(goal):
        return _checked_goals(goal(arrays), arrays, task)
    columns = list(goal)
    width = arrays["observations"].shape[1]
    if not all(-width <= column < width for column in columns):
        raise DataError(f"its observations have {width} columns, but the goal is columns {columns}")
    return arrays["observations"][:, columns]


def _checked_goals(goals: object, arrays: Arrays, task: Task | None) -> np.ndarray:
    found, rows = np.asarray(goals), len(arrays["observations"])
    if found.ndim != 2 or len(found) != rows:
        name = task.name if task else "the task"
        raise DataError(f"the goals that {name} takes from it have the shape {found.shape}, not ({rows}, dimension)")
    return found

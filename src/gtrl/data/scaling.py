"""Which scaling a dataset gets: what is given, what its file says, or what suits the data. Uses NumPy only."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gtrl.data.columns import column_names, learning_warnings
from gtrl.data.description import Bounds, Description, check_bounds
from gtrl.data.task_goals import Arrays
from gtrl.envs.make import action_bounds
from gtrl.errors import DataError, GtrlError
from gtrl.io.scaling import Scaling, bounds_of, fit_scaling
from gtrl.tasks import OGBenchTask, OwnTask, Task

MAX_LISTED = 8  # columns whose bounds are listed


def is_scaled(task: Task | None) -> bool:
    """Whether data is scaled by default: unless the task says otherwise."""
    return task is None or task.scale


def choose_scaling(
    arrays: Arrays,
    goals: np.ndarray,
    description: Description,
    task: Task | None,
    scale: bool | Scaling,
    given_bounds: tuple[Any, Any] | None = None,
) -> tuple[Scaling | None, list[str]]:
    """Returns the scaling to use, None for none, and warnings about it and the data, without their full stop.

    A scaling in the file's description is used for observations and goals. Bounds of actions are those given, else
    those of the description, else those of the task's environment, else those of the data.
    """
    scaling, warnings = None, []
    if isinstance(scale, Scaling):
        scaling = scale
        _check_sizes(scale, sizes_of(arrays, goals))
    elif scale:
        bounds, warnings = _bounds(arrays["actions"], description, task, given_bounds)
        scaling = _fitted(arrays, goals, description, task, bounds)
    if isinstance(task, OGBenchTask):
        return scaling, warnings
    return scaling, warnings + learning_warnings(arrays, goals, description.columns, scaling)


def _fitted(arrays: Arrays, goals: np.ndarray, description: Description, task: Task | None, bounds: Bounds) -> Scaling:
    """Returns the scaling in the file's description, or else one that suits the data, with bounds of actions."""
    fitted = fit_scaling(arrays["observations"], goals, arrays["actions"], bounds)
    stored = description.scaling
    if stored is None or not fits(stored, sizes_of(arrays, goals)):
        return fitted
    kept = ["observation_center", "observation_scale"]
    if task is None or task.goal is None:  # else the task has goals of its own
        kept += ["goal_center", "goal_scale"]
    return dataclasses.replace(fitted, **{name: getattr(stored, name) for name in kept})


# --- bounds of actions ---


def _bounds(
    actions: np.ndarray, description: Description, task: Task | None, given: tuple[Any, Any] | None
) -> tuple[Bounds, list[str]]:
    """Returns the bounds of actions, and a warning if they are not known or those of the environment are of no use."""
    if given is not None:
        return _checked(given, actions.shape[1]), []
    if description.action_bounds:
        return _checked(description.action_bounds, actions.shape[1], may_be_equal=True), []
    found, warnings = _environment_bounds(task, actions.shape[1])
    if found:
        return found, warnings
    return bounds_of(actions), [*warnings, _guessed(bounds_of(actions), description.columns)]


def _checked(bounds: tuple[Any, Any], action_dim: int, may_be_equal: bool = False) -> Bounds:
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise DataError("the bounds of actions must be a pair, the lowest and the highest action.") from None
    try:
        return check_bounds(low, high, action_dim, may_be_equal)
    except ValueError as error:
        raise DataError(f"{error}.") from error


def _environment_bounds(task: Task | None, action_dim: int) -> tuple[Bounds | None, list[str]]:
    """Returns the bounds of the environment's actions, None if there are none, and a warning if they are of no use.

    An environment of the user's own that cannot be made is an error; training needs no other one.
    """
    if task is None or task.environment is None:
        return None, []
    try:
        found = action_bounds(task)
    except GtrlError as error:
        if isinstance(task, OwnTask):
            raise
        reason = str(error).rstrip(".")
        return None, [f"the bounds of actions cannot be taken from the environment: {reason}"]
    if found and len(found[0]) == action_dim:
        return found, []
    problem = f"has {len(found[0])} actions, not {action_dim}" if found else "has no finite bounds of actions"
    return None, [f"the environment of {task.name} {problem}"]


def _guessed(bounds: Bounds, columns: Mapping[str, Sequence[str]]) -> str:
    """Returns the sentence that the bounds of actions come from the data."""
    low, high = bounds
    names = column_names(columns, "action", len(low))
    listed = [f"{name} {a:.4g} to {b:.4g}" for name, a, b in zip(names, low, high, strict=True)]
    more = f" and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
    ranges = ", ".join(listed[:MAX_LISTED]) + more
    advice = "--action-low and --action-high (action_bounds=) give them"
    return f"the bounds of actions are not known, so they are guessed from the data: {ranges}; {advice}"


# --- sizes ---


def sizes_of(arrays: Arrays, goals: np.ndarray) -> dict[str, int]:
    """Returns the number of columns of observations, goals and actions."""
    rows = {"observations": arrays["observations"], "goals": goals, "actions": arrays["actions"]}
    return {name: array.shape[1] for name, array in rows.items()}


def _sizes_of(scaling: Scaling) -> dict[str, int]:
    roles = {"observations": "observation", "goals": "goal", "actions": "action"}
    return {name: len(scaling.of(role)[0]) for name, role in roles.items()}


def fits(scaling: Scaling, sizes: dict[str, int]) -> bool:
    """Whether a scaling is for data of these sizes."""
    return _sizes_of(scaling) == sizes


def _check_sizes(scaling: Scaling, sizes: dict[str, int]) -> None:
    for name, expected in _sizes_of(scaling).items():
        if sizes[name] != expected:
            raise DataError(f"the data has {sizes[name]} columns of {name}, and the scaling is for {expected}.")

"""Datasets: arrays on the device. `gtrl.data.load` reads them from files; `make_dataset` takes arrays in memory."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from gtrl.data.checks import check_arrays
from gtrl.data.task_goals import task_goals
from gtrl.errors import DataError
from gtrl.io.scaling import Scaling
from gtrl.tasks import Task

ACTION_LIMIT = 1 - 1e-5  # actions are clipped to this absolute value


class Spec(NamedTuple):
    """The sizes of a dataset's observations, actions and goals."""

    observation_dim: int
    action_dim: int
    goal_dim: int


class Dataset(NamedTuple):
    """The rows of all trajectories, concatenated. Pass it to jitted functions as an argument, not as a constant.

    Rows with equal `identity` are the same state. In continuous data no state occurs twice, so every row has a
    different number; in a finite process it is the index of the state.
    """

    observations: Array  # (N, observation_dim)
    actions: Array  # (N, action_dim)
    goals: Array  # (N, goal_dim): the task's goal at each row
    starts: Array  # (N,) the index of the first row of each row's trajectory
    ends: Array  # (N,) the index of the last row of each row's trajectory
    transitions: Array  # (M,) the rows that have a successor: all but each trajectory's last
    identity: Array  # (N,)
    has_action: Array | None = None  # (N,) bool: whether an action was logged at each row; None if everywhere

    @property
    def spec(self) -> Spec:
        """The sizes of observations, actions and goals."""
        return Spec(self.observations.shape[-1], self.actions.shape[-1], self.goals.shape[-1])


@dataclasses.dataclass(frozen=True)
class Data:
    """A training set, an optional validation set, and their origin.

    For a dataset in several shards, `train` and `validation` hold one shard, and `shards` lists all of them.
    """

    train: Dataset
    validation: Dataset | None = None
    task: Task | None = None
    source: str = "memory"
    digest: str = ""
    origin: dict[str, Any] = dataclasses.field(default_factory=lambda: {"from": "memory"})
    shards: tuple[Path, ...] = ()
    counts: dict[str, int] = dataclasses.field(default_factory=dict)  # rows, transitions, validation_rows; all shards
    scaling: Scaling | None = None  # from the units of the source to those of `train`; None if they are the same
    columns: dict[str, list[str]] = dataclasses.field(
        default_factory=dict
    )  # names, if known: observation, goal, action
    selection: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # the selectors that chose the columns
    # Where the observation's columns are in that of the log (`observation_indices`), and the number of columns there
    # (`log_observation_dim`); empty if it is all of them, or if that is not known.
    choice: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.counts:
            validation_rows = len(self.validation.observations) if self.validation else 0
            self.counts.update(
                rows=len(self.train.observations),
                transitions=len(self.train.transitions),
                validation_rows=validation_rows,
            )

    @property
    def inputs(self) -> dict[str, Any]:
        """What the header of a policy says of its observations, goals and actions."""
        return {**self.train.spec._asdict(), **({"columns": self.columns} if self.columns else {}), **self.choice}


def make_dataset(observations: Any, actions: Any, terminals: Any, goals: Any = None, identity: Any = None) -> Dataset:
    """Makes a dataset from arrays in memory, after checking them. They are not scaled; `load_dataset` does that.

    Args:
        observations: (N, observation_dim), all trajectories concatenated.
        actions: (N, action_dim), in [-1, 1]; NaN in last rows of trajectories where none was logged.
        terminals: (N,), true at the last row of each trajectory.
        goals: (N, goal_dim); by default the observations.
        identity: (N,) integers: rows with equal numbers are the same state. By default all rows are different states.
    """
    given = {"observations": observations, "actions": actions, "terminals": terminals, "goals": goals}
    arrays = {key: np.asarray(value) for key, value in given.items() if value is not None}
    problems = check_arrays(arrays)
    if identity is not None and not problems:
        identity = np.asarray(identity)
        problems = _identity_problems(identity, len(arrays["observations"]))
    if problems:
        raise DataError(f"the arrays are not a dataset: {problems[0]}.")
    return on_device(arrays, arrays.get("goals"), identity)


def _identity_problems(identity: np.ndarray, rows: int) -> list[str]:
    if identity.shape != (rows,):
        return [f"'identity' has shape {identity.shape}, not ({rows},)"]
    if identity.dtype.kind not in "iu":
        return [f"'identity' is of type {identity.dtype}, not of integers"]
    limits = np.iinfo(np.int32)
    if identity.min() < limits.min or identity.max() > limits.max:
        return ["'identity' holds integers too large for int32"]
    return []


def on_device(
    arrays: dict[str, np.ndarray],
    goals: np.ndarray | None,
    identity: np.ndarray | None = None,
    scaling: Scaling | None = None,
) -> Dataset:
    """Moves checked arrays to the device, scaled if a scaling is given."""
    terminals = arrays["terminals"].astype(bool)
    rows = np.arange(len(terminals))
    last = np.flatnonzero(terminals)
    trajectory = np.searchsorted(last, rows)
    observations, actions = arrays["observations"], arrays["actions"]
    has_action = logged_actions(actions)
    if scaling:
        goals = scaling.goal(observations if goals is None else goals)
        observations, actions = scaling.observation(observations), scaling.action(actions)
    if not has_action.all():
        actions = np.where(has_action[:, None], actions, 0)  # never read: see `has_action`
    on_device = jnp.asarray(observations, jnp.float32)
    return Dataset(
        observations=on_device,
        actions=jnp.clip(jnp.asarray(actions, jnp.float32), -ACTION_LIMIT, ACTION_LIMIT),
        goals=on_device if goals is None else jnp.asarray(goals, jnp.float32),
        starts=jnp.asarray(np.concatenate([[0], last + 1])[trajectory], jnp.int32),
        ends=jnp.asarray(last[trajectory], jnp.int32),
        transitions=jnp.asarray(np.flatnonzero(~terminals), jnp.int32),
        identity=jnp.asarray(rows if identity is None else identity, jnp.int32),
        has_action=None if has_action.all() else jnp.asarray(has_action),
    )


def logged_actions(actions: np.ndarray) -> np.ndarray:
    """Returns the rows at which an action was logged; the others are all NaN."""
    if actions.dtype.kind != "f":
        return np.ones(len(actions), bool)
    return np.logical_not(np.isnan(actions).all(axis=1))


def checked_goals(arrays: dict[str, np.ndarray], task: Task | None, source: str, scaled: bool) -> np.ndarray:
    """Checks the arrays of a dataset and returns their goals."""
    problems = check_arrays(arrays, task, scaled=scaled)
    if problems:
        more = f" (and {len(problems) - 1} more: see 'gtrl data check')" if len(problems) > 1 else ""
        raise DataError(f"{source}: {problems[0]}{more}.")
    return task_goals(arrays, task)

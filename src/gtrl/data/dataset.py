"""Datasets: arrays on the device, made from OGBench files or from arrays in memory."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from gtrl.data.checks import REQUIRED_KEYS, check_arrays, read_arrays, size_problems
from gtrl.data.origin import combined_digest, digest_of, files_of, origin_of, shards_of, validation_path
from gtrl.data.task_goals import task_goals
from gtrl.errors import DataError
from gtrl.io.npz import read_npz, shapes_in
from gtrl.tasks import Task, find_task

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
    ends: Array  # (N,) the index of the last row of each row's trajectory
    transitions: Array  # (M,) the rows that have a successor: all but each trajectory's last
    identity: Array  # (N,)

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

    def __post_init__(self) -> None:
        if not self.counts:
            validation_rows = len(self.validation.observations) if self.validation else 0
            self.counts.update(
                rows=len(self.train.observations),
                transitions=len(self.train.transitions),
                validation_rows=validation_rows,
            )


def make_dataset(observations: Any, actions: Any, terminals: Any, goals: Any = None, identity: Any = None) -> Dataset:
    """Makes a dataset from arrays in memory, after checking them.

    Args:
        observations: (N, observation_dim), all trajectories concatenated.
        actions: (N, action_dim), in [-1, 1].
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
    return _on_device(arrays, arrays.get("goals"), identity)


def _identity_problems(identity: np.ndarray, rows: int) -> list[str]:
    if identity.shape != (rows,):
        return [f"'identity' has shape {identity.shape}, not ({rows},)"]
    if identity.dtype.kind not in "iu":
        return [f"'identity' is of type {identity.dtype}, not of integers"]
    limits = np.iinfo(np.int32)
    if identity.min() < limits.min or identity.max() > limits.max:
        return ["'identity' holds integers too large for int32"]
    return []


def _on_device(arrays: dict[str, np.ndarray], goals: np.ndarray | None, identity: np.ndarray | None = None) -> Dataset:
    """Moves checked arrays to the device."""
    terminals = arrays["terminals"].astype(bool)
    rows = np.arange(len(terminals))
    last = np.flatnonzero(terminals)
    observations = jnp.asarray(arrays["observations"], jnp.float32)
    return Dataset(
        observations=observations,
        actions=jnp.clip(jnp.asarray(arrays["actions"], jnp.float32), -ACTION_LIMIT, ACTION_LIMIT),
        goals=observations if goals is None else jnp.asarray(goals, jnp.float32),
        ends=jnp.asarray(last[np.searchsorted(last, rows)], jnp.int32),
        transitions=jnp.asarray(np.flatnonzero(~terminals), jnp.int32),
        identity=jnp.asarray(rows if identity is None else identity, jnp.int32),
    )


def _read(path: Path, task: Task | None) -> Dataset:
    """Reads and checks one file."""
    arrays = read_arrays(path)
    problems = check_arrays(arrays, task)
    if problems:
        more = f" (and {len(problems) - 1} more: see 'gtrl data check')" if len(problems) > 1 else ""
        raise DataError(f"{path}: {problems[0]}{more}.")
    return _on_device(arrays, task_goals(arrays, task))


def as_data(data: str | os.PathLike[str] | Dataset | Data, task: str | Task | None = None) -> Data:
    """Converts training data to `Data`: loads a path, wraps a `Dataset`, and returns `Data` unchanged.

    With a task, the sizes must match it. Data in memory keeps its goals, which must not be those of another task.
    """
    if isinstance(data, (str, os.PathLike)):
        return load_dataset(data, task)
    if isinstance(data, Dataset):
        data = Data(data)
    if not isinstance(data, Data):
        raise DataError(
            f"data is of type {type(data).__name__}: give the path of a file or folder, a Dataset (gtrl.make_dataset) "
            "or Data (gtrl.load_dataset)."
        )
    if task is None:
        return data
    task = find_task(task) if isinstance(task, str) else task
    if data.task is not None and data.task != task:
        raise DataError(f"the data was loaded for the task {data.task.name}, not for {task.name}.")
    spec = data.train.spec
    problems = size_problems(task, observations=spec.observation_dim, actions=spec.action_dim, goals=spec.goal_dim)
    if problems:
        raise DataError(f"the data does not match the task: {problems[0]}.")
    return dataclasses.replace(data, task=task)


def load_dataset(path: str | os.PathLike[str], task: str | Task | None = None) -> Data:
    """Loads an OGBench file and, if there is one, its `-val` file onto the device; or a folder of such files (shards).

    With a task (a `Task`, its name, or `module:NAME`), the file must match it, and goals are computed by the task.
    Without one, goals are the file's array `goals`, or whole observations if it has none.
    """
    path = Path(path).expanduser()
    task = find_task(task) if isinstance(task, str) else task
    shards = shards_of(path)
    data = load_shard(shards[0], task)
    counts = _counts(shards, data.train.spec) if len(shards) > 1 else data.counts
    digests = [{file.name: digest_of(file) for file in files_of(shard)} for shard in shards]
    return dataclasses.replace(
        data,
        source=str(path),
        digest=combined_digest([digest for files in digests for digest in files.values()]),
        origin=_common_origin([origin_of(shard, files) for shard, files in zip(shards, digests, strict=True)]),
        shards=shards,
        counts=counts,
    )


def _counts(shards: Sequence[Path], spec: Spec) -> dict[str, int]:
    """Returns the total sizes of all shards. Opens each one, so that a damaged shard is found before training."""
    counts = {"rows": 0, "transitions": 0, "validation_rows": 0}
    for shard in shards:
        for file in files_of(shard):
            shapes = shapes_in(file, DataError, REQUIRED_KEYS)
            found = [shapes.get(key, ()) for key in REQUIRED_KEYS]
            rows = found[-1]
            if len(rows) != 1 or found != [(*rows, spec.observation_dim), (*rows, spec.action_dim), rows]:
                raise DataError(f"{file}: its dimensions differ from those of {shards[0].name}.")
            terminals = read_npz(file, DataError, ("terminals",))["terminals"]
            if file == shard:
                counts["rows"] += len(terminals)
                counts["transitions"] += int((~terminals.astype(bool)).sum())
            else:
                counts["validation_rows"] += len(terminals)
    return counts


def _common_origin(origins: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the origin of all shards if it is the same, else that of files of unknown origin."""
    return origins[0] if all(origin == origins[0] for origin in origins) else {"from": "file"}


def load_shard(path: Path, task: Task | None) -> Data:
    """Loads one training file and, if there is one, its validation file."""
    train, *validation = (_read(file, task) for file in files_of(path))
    if validation and validation[0].spec != train.spec:
        raise DataError(f"{validation_path(path)}: its dimensions differ from those of {path.name}.")
    return Data(train, validation[0] if validation else None, task, str(path))

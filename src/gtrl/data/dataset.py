"""A dataset: arrays on the device, and how an OGBench file becomes one."""

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

ACTION_LIMIT = 1 - 1e-5


class Spec(NamedTuple):
    """The sizes a dataset has."""

    observation_dim: int
    action_dim: int
    goal_dim: int


class Dataset(NamedTuple):
    """Rows of all trajectories, one after the other; always an argument of jitted functions.

    `identity` says which rows are the same state: those with the same number. Continuous data never
    comes back to a state, so each row has a number of its own; on a finite process it is the state's
    index.
    """

    observations: Array  # (N, observation_dim)
    actions: Array  # (N, action_dim)
    goals: Array  # (N, goal_dim): the task's goal at each row
    ends: Array  # (N,) the last row of each row's trajectory
    transitions: Array  # (M,) the rows that have a successor: all but each trajectory's last
    identity: Array  # (N,)

    @property
    def spec(self) -> Spec:
        return Spec(self.observations.shape[-1], self.actions.shape[-1], self.goals.shape[-1])


@dataclasses.dataclass(frozen=True)
class Data:
    """A training set, its validation set where there is one, and where they came from.

    Of a set that is kept in several shards, this is one shard; `shards` names them all.
    """

    train: Dataset
    validation: Dataset | None = None
    task: Task | None = None
    source: str = "memory"
    digest: str = ""
    origin: dict[str, Any] = dataclasses.field(default_factory=lambda: {"from": "memory"})
    shards: tuple[Path, ...] = ()
    counts: dict[str, int] = dataclasses.field(default_factory=dict)  # rows, transitions, validation_rows of all shards

    def __post_init__(self) -> None:
        if not self.counts:
            rows, validation = len(self.train.observations), self.validation
            held_out = len(validation.observations) if validation else 0
            counts = {"rows": rows, "transitions": len(self.train.transitions), "validation_rows": held_out}
            self.counts.update(counts)


def make_dataset(observations: Any, actions: Any, terminals: Any, goals: Any = None, identity: Any = None) -> Dataset:
    """A dataset from plain arrays, all of which are checked.

    Goals are whole states unless given. `identity` has an integer for each row: rows with the same one are the same
    state. Without it every row is a state of its own.
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
    """Arrays that passed the checks, moved to the device once."""
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
    arrays = read_arrays(path)
    problems = check_arrays(arrays, task)
    if problems:
        more = f" (and {len(problems) - 1} more: see 'gtrl data check')" if len(problems) > 1 else ""
        raise DataError(f"{path}: {problems[0]}{more}.")
    return _on_device(arrays, task_goals(arrays, task))


def as_data(data: str | os.PathLike[str] | Dataset | Data, task: str | Task | None = None) -> Data:
    """Anything that can be trained on: a path is loaded, a `Dataset` gets no validation set, `Data` stays as it is.

    With a task, the sizes must fit it; what is in memory keeps its goals, and must not be another task's.
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
        raise DataError(f"the data does not fit the task: {problems[0]}.")
    return dataclasses.replace(data, task=task)


def load_dataset(path: str | os.PathLike[str], task: str | Task | None = None) -> Data:
    """Read an OGBench file, and its `-val` file where there is one, onto the device; or a folder of such shards.

    With a task (itself, its name, or `module:NAME`), the file must fit it and goals are the task's slice of the state.
    Without one, goals are the file's `goals` array, or whole observations where it has none.
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
        origin=_common_origin([origin_of(*each) for each in zip(shards, digests, strict=True)]),
        shards=shards,
        counts=counts,
    )


def _counts(shards: Sequence[Path], spec: Spec) -> dict[str, int]:
    """The sizes of all shards together; opening each now spares a long run a failure later."""
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
    return origins[0] if all(origin == origins[0] for origin in origins) else {"from": "file"}


def load_shard(path: Path, task: Task | None) -> Data:
    """One training file and its validation file."""
    train, *validation = (_read(file, task) for file in files_of(path))
    if validation and validation[0].spec != train.spec:
        raise DataError(f"{validation_path(path)}: its dimensions differ from those of {path.name}.")
    return Data(train, validation[0] if validation else None, task, str(path))

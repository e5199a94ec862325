"""Loading of datasets onto the device: dataset files and their shards, logs of other formats, arrays in memory."""

import dataclasses
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.data.checks import ACTION_TOLERANCE, REQUIRED_KEYS, size_problems
from gtrl.data.dataset import Data, Dataset, Spec, checked_goals, on_device
from gtrl.data.origin import combined_digest, digest_of, files_of, origin_of, shards_of, validation_path
from gtrl.data.reading import NO_SELECTION, Contents, Selection, Selectors, is_dataset, read, read_file, selection_of
from gtrl.data.scaling import choose_scaling, fits, is_scaled, sizes_of
from gtrl.envs.make import action_bounds as bounds_in
from gtrl.errors import DataError
from gtrl.io.npz import read_npz, shapes_in
from gtrl.io.scaling import Scaling
from gtrl.tasks import OwnTask, Task, find_task

log = logging.getLogger(__name__)


def as_data(data: Any, task: str | Task | None = None, **options: Any) -> Data:
    """Converts training data to `Data`: loads a path, wraps a `Dataset`, and returns `Data` unchanged.

    With a task, the sizes must match it. Data in memory keeps its goals, which must not be those of another task.
    `options` are those of `load_dataset`.
    """
    if isinstance(data, (str, os.PathLike)) or (isinstance(data, Iterable) and not isinstance(data, Dataset)):
        return load_dataset(data, task, **options)
    if isinstance(data, Dataset):
        data = Data(data)
    if not isinstance(data, Data):
        raise DataError(
            f"data is of type {type(data).__name__}: give the path of a log, arrays, episodes, a Dataset "
            "(gtrl.make_dataset) or Data (gtrl.load_dataset)."
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


def load_dataset(
    source: str | os.PathLike[str] | Iterable[Any],
    task: str | Task | None = None,
    *,
    observation: Selectors = None,
    goal: Selectors = None,
    action: Selectors = None,
    episode: str | None = None,
    scale: bool | Scaling | None = None,
    action_bounds: tuple[Any, Any] | None = None,
) -> Data:
    """Loads a dataset onto the device.

    Observations and goals are standardised and actions mapped from their bounds to [-1, 1], except for the built-in
    tasks, which are trained as in the paper. The scaling is stored in policies, which take and return the data's units.

    Args:
        source: A dataset file (npz) with, if there is one, its `-val` file; a folder of such files (shards); a log in
            another format (docs/data.md lists them); or an iterable of episodes, such as
            {"observations": ..., "actions": ...}.
        task: A `Task`, its name, or `module:NAME`. The data must match it, and goals are computed by the task. Without
            one, goals are the array `goals` of the file, or whole observations if it has none.
        observation: Which columns are the observation: names, `NAME[SLICE]` or slices, such as "0:5".
        goal: Which columns are the goal, in the same form; a slice is one of the observation.
        action: Which columns are the action, in the same form.
        episode: For tables: the column that numbers the episodes.
        scale: Whether to scale the data, or the scaling to use; by default as the task says, and without one it is.
        action_bounds: The lowest and the highest action, as numbers or vectors; by default those that the source
            states, else those of the task's environment, else the smallest and largest logged ones.
    """
    task = find_task(task) if isinstance(task, str) else task
    if scale is None:
        scale = is_scaled(task)
    if isinstance(task, OwnTask) and task.environment is not None and scale is True and action_bounds is None:
        bounds_in(task)  # an environment that cannot be made is an error before the data is read, which may take long
    selection = selection_of(observation=observation, goal=goal, action=action, episode=episode)
    if is_dataset(source, selection, task):
        data = _load_files(Path(source).expanduser(), task, scale, action_bounds)  # pyright: ignore[reportArgumentType]
    else:
        data = _load_log(source, task, selection, scale, action_bounds)
    if isinstance(task, OwnTask):  # the goals to evaluate may have their columns in another order
        data = dataclasses.replace(data, task=task.with_goals_of(data.columns.get("goal", ())))
    return data


# --- dataset files ---


def _load_files(
    path: Path,
    task: Task | None,
    scale: bool | Scaling,
    bounds: tuple[Any, Any] | None,
) -> Data:
    """Loads a dataset file or the first of several shards; the scaling is that of the first."""
    shards = shards_of(path)
    contents = read_file(shards[0])
    train, scaling = _scaled(contents, task, scale, bounds, str(shards[0]))
    columns = contents.description.columns
    del contents  # frees memory before the validation file is read
    data = _with_validation(train, shards[0], task, scaling)
    counts = _counts(shards, data.train.spec) if len(shards) > 1 else data.counts
    digests = [{file.name: digest_of(file) for file in files_of(shard)} for shard in shards]
    return dataclasses.replace(
        data,
        source=str(path),
        digest=combined_digest([digest for files in digests for digest in files.values()]),
        origin=_common_origin([origin_of(shard, files) for shard, files in zip(shards, digests, strict=True)]),
        shards=shards,
        counts=counts,
        columns=columns,
    )


def load_shard(path: Path, task: Task | None, scaling: Scaling | None, first: str) -> Data:
    """Loads one training file and, if there is one, its validation file. `first` names the file of the scaling."""
    return _with_validation(_read(path, task, scaling, first), path, task, scaling)


def _with_validation(
    train: Dataset, path: Path, task: Task | None, scaling: Scaling | None, selection: Selection = NO_SELECTION
) -> Data:
    validation = validation_path(path)
    if not validation.exists():
        return Data(train, None, task, str(path), scaling=scaling)
    held_out = _read(validation, task, scaling, path.name, selection)
    if held_out.spec != train.spec:
        raise DataError(f"{validation}: its dimensions differ from those of {path.name}.")
    return Data(train, held_out, task, str(path), scaling=scaling)


def _read(
    path: Path, task: Task | None, scaling: Scaling | None, first: str, selection: Selection = NO_SELECTION
) -> Dataset:
    """Reads and checks one file. Its dimensions must be those of the scaling, which is that of the file `first`."""
    arrays = read(path, selection, task).arrays
    goals = checked_goals(arrays, task, str(path), scaled=scaling is not None)
    if scaling:
        if not fits(scaling, sizes_of(arrays, goals)):
            raise DataError(f"{path}: its dimensions differ from those of {first}.")
        if np.fmax.reduce(np.abs(scaling.action(arrays["actions"])), axis=None) > 1 + ACTION_TOLERANCE:
            log.warning("%s has actions outside of the bounds of %s; they are clipped.", path, first)
    return on_device(arrays, goals, scaling=scaling)


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


def _scaled(
    contents: Contents, task: Task | None, scale: bool | Scaling, bounds: tuple[Any, Any] | None, name: str
) -> tuple[Dataset, Scaling | None]:
    """Checks and scales what was read from `name`, warns where learning will suffer, and moves it to the device."""
    arrays, description = contents.arrays, contents.description
    goals = checked_goals(arrays, task, name, scaled=scale is not False)
    scaling, warnings = choose_scaling(arrays, goals, description, task, scale, bounds)
    for warning in warnings:
        log.warning("%s.", warning)
    return on_device(arrays, goals, scaling=scaling), scaling


# --- logs in other formats ---


def _load_log(
    source: Any,
    task: Task | None,
    selection: dict[str, list[str]],
    scale: bool | Scaling,
    bounds: tuple[Any, Any] | None,
) -> Data:
    is_path = isinstance(source, (str, os.PathLike))
    name = str(source) if is_path else "memory"
    contents = read(source, selection, task)
    description, choice = contents.description, contents.choice
    for note in description.source.get("notes", ()):
        log.warning("%s: %s.", name, note)
    train, scaling = _scaled(contents, task, scale, bounds, name)
    del contents  # frees memory before the validation file is read
    data = Data(train, None, task, name, scaling=scaling)
    if is_path and Path(source).suffix == ".npz":
        data = _with_validation(train, Path(source).expanduser(), task, scaling, selection)
    return dataclasses.replace(
        data,
        source=name,
        origin={"from": description.source.get("format", "log")},
        columns=description.columns,
        selection=selection,
        choice=choice,
    )

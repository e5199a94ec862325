"""Loading of datasets onto the device: dataset files and their shards, logs of other formats, arrays in memory."""

import dataclasses
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.data.checks import ACTION_TOLERANCE, REQUIRED_KEYS, read_arrays, size_problems
from gtrl.data.columns import column_facts, goal_warnings, unscaled_warnings
from gtrl.data.dataset import Data, Dataset, Spec, checked_goals, on_device
from gtrl.data.description import ROLES, Bounds, Description, check_bounds, read_description
from gtrl.data.origin import combined_digest, digest_of, files_of, origin_of, shards_of, validation_path
from gtrl.envs.make import action_bounds as action_bounds_of
from gtrl.errors import DataError, GtrlError
from gtrl.io.npz import names_in, read_npz, shapes_in
from gtrl.io.scaling import Scaling, bounds_of, fit_scaling
from gtrl.tasks import OGBenchTask, OwnTask, Task, find_task

log = logging.getLogger(__name__)
Selectors = Sequence[str] | str | None
BOUNDS_TOLERANCE = 1e-6  # part of their width by which actions may exceed their bounds without a warning


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
        scale = task is None or task.scale
    # Before the data is read, which may take long: an environment that cannot be made is reported first.
    fallback = _environment_bounds(task) if scale is True and action_bounds is None else None
    selection = _selection(observation=observation, goal=goal, action=action, episode=episode)
    if isinstance(source, (str, os.PathLike)) and not selection and _is_dataset(Path(source).expanduser()):
        return _load_files(Path(source).expanduser(), task, scale, action_bounds, fallback)
    if selection and isinstance(source, (str, os.PathLike)) and _is_folder_of_shards(Path(source).expanduser()):
        advice = "choose them with 'gtrl data convert FILE OUT' for each file first"
        raise DataError(f"{source} is a folder of shards, whose columns cannot be chosen here: {advice}.")
    return _load_log(source, task, selection, scale, action_bounds, fallback)


def _selection(**selectors: Selectors) -> dict[str, list[str]]:
    """The selectors that were given, each as a list."""
    given = {role: [chosen] if isinstance(chosen, (str, int)) else chosen for role, chosen in selectors.items()}
    for role, chosen in given.items():
        if chosen is not None and not isinstance(chosen, Iterable):
            raise DataError(f"{role} is {chosen!r:.60}: give names of columns, or slices such as '0:2'.")
    return {role: [str(selector) for selector in chosen] for role, chosen in given.items() if chosen is not None}


def _is_dataset(path: Path) -> bool:
    """Whether it is a dataset file, a folder of them, or a file that is missing; otherwise it is a log to convert."""
    if path.is_dir():
        return _is_folder_of_shards(path)
    if path.suffix != ".npz":
        return False
    if not path.exists():
        return True
    return not {"timeouts", "next_observations"} & set(names_in(path, DataError))


def _is_folder_of_shards(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.npz"))


# --- dataset files ---


def _load_files(
    path: Path,
    task: Task | None,
    scale: bool | Scaling,
    bounds: tuple[Any, Any] | None,
    fallback: Bounds | None,
) -> Data:
    """Loads a dataset file or the first of several shards; the scaling is that of the first."""
    shards = shards_of(path)
    arrays = read_arrays(shards[0])
    goals = checked_goals(arrays, task, str(shards[0]), scaled=scale is not False)
    description = read_description(shards[0])
    scaling = _scaling(arrays, goals, task, scale, bounds, description, fallback)
    if not isinstance(task, OGBenchTask):
        _warn(arrays, goals, description, scaled=scaling is not None)
    train = on_device(arrays, goals, scaling=scaling)
    del arrays, goals  # frees memory before the validation file is read
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
        columns=description.columns,
    )


def load_shard(path: Path, task: Task | None, scaling: Scaling | None, first: str) -> Data:
    """Loads one training file and, if there is one, its validation file. `first` names the file of the scaling."""
    return _with_validation(_read(path, task, scaling, first), path, task, scaling)


def _with_validation(train: Dataset, path: Path, task: Task | None, scaling: Scaling | None) -> Data:
    validation = validation_path(path)
    if not validation.exists():
        return Data(train, None, task, str(path), scaling=scaling)
    held_out = _read(validation, task, scaling, path.name)
    if held_out.spec != train.spec:
        raise DataError(f"{validation}: its dimensions differ from those of {path.name}.")
    return Data(train, held_out, task, str(path), scaling=scaling)


def _read(path: Path, task: Task | None, scaling: Scaling | None, first: str) -> Dataset:
    """Reads and checks one file. Its dimensions must be those of the scaling, which is that of the file `first`."""
    arrays = read_arrays(path)
    goals = checked_goals(arrays, task, str(path), scaled=scaling is not None)
    if scaling:
        if not _fits(scaling, _sizes(arrays, goals)):
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


# --- logs in other formats ---


def _load_log(
    source: Any,
    task: Task | None,
    selection: dict[str, list[str]],
    scale: bool | Scaling,
    bounds: Any,
    fallback: Bounds | None,
) -> Data:
    from gtrl.data.formats import read_log

    is_path = isinstance(source, (str, os.PathLike))
    name = str(source) if is_path else "memory"
    episode = selection.get("episode", [None])[0]
    choice = {role: selection.get(role) for role in ROLES}
    found = read_log(source, **choice, episode=episode)
    for note in found.source.get("notes", ()):
        log.warning("%s: %s.", name, note)
    goals = checked_goals(found.arrays, task, name, scaled=scale is not False)
    known = None if found.action_low is None or found.action_high is None else (found.action_low, found.action_high)
    description = Description(found.columns, known)
    scaling = _scaling(found.arrays, goals, task, scale, bounds, description, fallback)
    _warn(found.arrays, goals, description, scaled=scaling is not None)
    train, held_out = on_device(found.arrays, goals, scaling=scaling), None
    if is_path and Path(source).suffix == ".npz" and validation_path(Path(source).expanduser()).exists():
        path = validation_path(Path(source).expanduser())
        validation = read_log(path, **choice, episode=episode)
        sizes = _sizes(found.arrays, goals)
        goals = checked_goals(validation.arrays, task, str(path), scaled=scale is not False)
        if _sizes(validation.arrays, goals) != sizes:
            raise DataError(f"{path}: its dimensions differ from those of {Path(source).name}.")
        held_out = on_device(validation.arrays, goals, scaling=scaling)
    return Data(
        train, held_out, task, name, origin={"from": found.source.get("format", "log")}, scaling=scaling,
        columns=found.columns, selection=selection, choice=found.choice,
    )  # fmt: skip


# --- scaling ---


def _warn(arrays: dict[str, np.ndarray], goals: np.ndarray, description: Description, scaled: bool) -> None:
    """Warns where learning on own data will suffer."""
    warnings = goal_warnings(arrays, goals)
    if not scaled:
        warnings += unscaled_warnings(column_facts(arrays, goals, description.columns))
    for warning in warnings:
        log.warning("%s.", warning)


def _scaling(
    arrays: dict[str, np.ndarray],
    goals: np.ndarray,
    task: Task | None,
    scale: bool | Scaling,
    bounds: Any,
    description: Description,
    fallback: Bounds | None,
) -> Scaling | None:
    """Returns the scaling to use: the given one, or one that is computed from the data and the file's description.

    `bounds` are given bounds of actions, `fallback` those of the environment.
    """
    actions = arrays["actions"]
    sizes = _sizes(arrays, goals)
    if scale is False:
        return None
    if isinstance(scale, Scaling):
        _check_sizes(scale, sizes)
        return scale
    if bounds is None:
        fits = fallback is not None and len(fallback[0]) == actions.shape[1]
        bounds = description.action_bounds or (fallback if fits else None)
    fitted = fit_scaling(arrays["observations"], goals, actions, _action_bounds(actions, bounds))
    stored = description.scaling
    if stored is None or not _fits(stored, sizes):
        return fitted
    # The file's scaling of observations and goals is kept, unless the task has goals of its own.
    kept = ["observation_center", "observation_scale"]
    if task is None or task.goal is None:
        kept += ["goal_center", "goal_scale"]
    return dataclasses.replace(fitted, **{name: getattr(stored, name) for name in kept})


def _environment_bounds(task: Task | None) -> Bounds | None:
    """Returns the bounds of the environment's actions; None without an environment or if it has no such bounds.

    An environment of the user's own that cannot be made is an error; training needs no other one.
    """
    if task is None or task.environment is None:
        return None
    try:
        return action_bounds_of(task)
    except GtrlError as error:
        if isinstance(task, OwnTask):
            raise
        log.warning("the bounds of actions cannot be taken from the environment: %s", error)
        return None


def _sizes(arrays: dict[str, np.ndarray], goals: np.ndarray) -> dict[str, int]:
    observations, actions = arrays["observations"], arrays["actions"]
    return {"observations": observations.shape[1], "goals": goals.shape[1], "actions": actions.shape[1]}


def _sizes_of(scaling: Scaling) -> dict[str, int]:
    return {
        "observations": len(scaling.observation_center),
        "goals": len(scaling.goal_center),
        "actions": len(scaling.action_center),
    }


def _fits(scaling: Scaling, sizes: dict[str, int]) -> bool:
    return _sizes_of(scaling) == sizes


def _check_sizes(scaling: Scaling, sizes: dict[str, int]) -> None:
    for name, expected in _sizes_of(scaling).items():
        if sizes[name] != expected:
            raise DataError(f"the data has {sizes[name]} columns of {name}, and the scaling is for {expected}.")


def _action_bounds(actions: np.ndarray, given: tuple[Any, Any] | None) -> Bounds:
    """Returns the bounds of actions; warns if they come from the data or if the data exceeds them."""
    low, high = bounds_of(actions)
    if given is None:
        if np.abs([low, high]).max() > 1:
            log.info(
                "the bounds of actions are not known: the smallest and largest logged ones are used, %s.",
                ", ".join(f"{a:.4g} to {b:.4g}" for a, b in zip(low, high, strict=True)),
            )
        return low, high
    try:
        lower, upper = given
    except (TypeError, ValueError):
        raise DataError("the bounds of actions must be a pair, the lowest and the highest action.") from None
    try:
        lower, upper = check_bounds(lower, upper, action_dim=actions.shape[1])
    except ValueError as error:
        raise DataError(f"{error}.") from error
    lowest, highest = np.nanmin(actions, 0), np.nanmax(actions, 0)
    outside = (lowest < lower - BOUNDS_TOLERANCE * (upper - lower)) | (
        highest > upper + BOUNDS_TOLERANCE * (upper - lower)
    )
    if outside.any():
        column = int(np.argmax(outside))
        found = f"{lowest[column]:.4g} to {highest[column]:.4g}"
        limits = f"{lower[column]:.4g} to {upper[column]:.4g}"
        log.warning("action %s is logged from %s, outside of its bounds %s; it is clipped.", column, found, limits)
    return lower, upper

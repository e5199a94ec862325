"""Reading the arrays of a dataset file, or of a log in another format. Uses NumPy only."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gtrl.data.checks import read_arrays
from gtrl.data.description import ROLES, Description, read_description
from gtrl.data.formats.flat import is_complete
from gtrl.errors import DataError
from gtrl.io.npz import names_in
from gtrl.tasks import OGBenchTask, Task

Selectors = Sequence[str] | str | None
Selection = Mapping[str, list[str]]  # selectors of the columns of observation, goal and action, and of the episode
NO_SELECTION: Selection = {}


class Contents(NamedTuple):
    """The arrays of a dataset, and what is known about them."""

    arrays: dict[str, np.ndarray]
    description: Description
    choice: dict[str, Any] = {}  # of the observation's columns, as `Data.choice`  # noqa: RUF012


def selection_of(**selectors: Selectors) -> dict[str, list[str]]:
    """Returns the selectors that were given, each as a list."""
    given = {role: [chosen] if isinstance(chosen, (str, int)) else chosen for role, chosen in selectors.items()}
    for role, chosen in given.items():
        if chosen is not None and not isinstance(chosen, Iterable):
            raise DataError(f"{role} is {chosen!r:.60}: give names of columns, or slices such as '0:2'.")
    return {role: [str(selector) for selector in chosen] for role, chosen in given.items() if chosen is not None}


def is_dataset(source: Any, selection: Selection = NO_SELECTION, task: Task | None = None) -> bool:
    """Whether it is a dataset file, a folder of them, or a file that is missing; otherwise it is a log to convert.

    A file of a built-in task must be complete; others may have rows after the last mark or one-dimensional actions.
    """
    if selection or not isinstance(source, (str, os.PathLike)):
        return False
    path = Path(source).expanduser()
    if path.is_dir():
        return is_folder_of_shards(path)
    if path.suffix != ".npz":
        return False
    if not path.exists():
        return True
    if {"timeouts", "next_observations"} & set(names_in(path, DataError)):
        return False
    return isinstance(task, OGBenchTask) or is_complete(path)


def is_folder_of_shards(source: Any) -> bool:
    """Whether it is a folder with npz files."""
    if not isinstance(source, (str, os.PathLike)):
        return False
    path = Path(source).expanduser()
    return path.is_dir() and any(path.glob("*.npz"))


def read_file(path: Path) -> Contents:
    """Reads a dataset file."""
    return Contents(read_arrays(path), read_description(path))


def read(source: Any, selection: Selection = NO_SELECTION, task: Task | None = None) -> Contents:
    """Reads a dataset file, whose arrays are to be checked, or a log in any of the formats of `gtrl.data.formats`."""
    if is_dataset(source, selection, task):
        return read_file(Path(source).expanduser())
    if is_folder_of_shards(source):
        advice = "choose them with 'gtrl data convert FILE OUT' for each file first"
        raise DataError(f"{source} is a folder of shards, whose columns cannot be chosen here: {advice}.")
    from gtrl.data.formats import read_log

    choice = {role: selection.get(role) for role in ROLES}
    log = read_log(source, **choice, episode=selection.get("episode", [None])[0])
    bounds = None if log.action_low is None or log.action_high is None else (log.action_low, log.action_high)
    return Contents(log.arrays, Description(log.columns, bounds, None, log.source), log.choice)

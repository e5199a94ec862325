"""Reading logs of other tools: Minari, LeRobot, D4RL, robomimic, npz, CSV, parquet, and episodes in memory.

Each format has a module that makes a `Source`: its fields by name, and a function that reads some of them. Choosing
columns (`columns.py`) and assembling the arrays of a dataset (`log.py`) are the same for all.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gtrl.data.formats import minari
from gtrl.data.formats.flat import arrays_source, npz_source
from gtrl.data.formats.hdf5 import hdf5_source
from gtrl.data.formats.iterables import episodes_source
from gtrl.data.formats.lerobot import is_lerobot, lerobot_source
from gtrl.data.formats.log import Log, Selectors, Source, read_source
from gtrl.data.formats.tables import csv_source, parquet_source
from gtrl.errors import ConfigError, DataError

KNOWN = "an npz, HDF5, parquet or CSV file, a LeRobot or Minari folder, or minari:ID"
CSV_SUFFIXES = (".csv", ".tsv")


def read_log(
    source: Any,
    *,
    observation: Selectors = None,
    goal: Selectors = None,
    action: Selectors = None,
    episode: str | None = None,
) -> Log:
    """Reads a log in any of the supported formats, which is detected.

    Args:
        source: A file, a folder, `minari:ID`, a mapping of arrays, or an iterable of episodes.
        observation: Selectors of columns: NAME, NAME[SLICE] or SLICE; by default those that the format suggests.
        goal: Selectors of the goal's columns; by default the achieved goal if the format has one, else no goals.
        action: Selectors of the action's columns.
        episode: The column of a table that names the episode.
    """
    return read_source(open_source(source, episode), observation, goal, action)


def open_source(source: Any, episode: str | None = None) -> Source:
    """Detects the format of a log and opens it."""
    if isinstance(source, (str, os.PathLike)):
        return _open_path(os.fspath(source), episode)
    if episode is not None:
        raise ConfigError("--episode names a column of a table; this log is not one.")
    if isinstance(source, Mapping):
        return arrays_source(source)
    if isinstance(source, Iterable):
        return episodes_source(source)
    raise DataError(f"a log of type {type(source).__name__} cannot be read: give {KNOWN}, or an iterable of episodes.")


def _open_path(source: str, episode: str | None) -> Source:
    path = Path(source).expanduser()
    if source.startswith(minari.PREFIX) or not path.exists():
        found = _open_id(source)
    elif path.is_dir():
        found = _open_folder(path)
    elif not path.is_file():
        raise DataError(f"{source} is a device or a pipe, not a file.")
    elif table := _table_reader(path):
        return table(path, episode)
    else:
        found = _open_file(path)
    if episode is not None:
        raise ConfigError(f"--episode names a column of a table; {source} is not one.")
    return found


def _open_id(source: str) -> Source:
    if source.startswith(minari.PREFIX):
        return minari.minari_source(source)
    if minari.is_local_id(source):
        return minari.minari_source(minari.PREFIX + source)
    folder = minari.datasets_folder()
    raise DataError(f"there is no file or folder {source}, and no Minari dataset of this name in {folder}.")


def _table_reader(path: Path) -> Callable[[Path, str | None], Source] | None:
    suffix = path.suffix.lower()
    if suffix == ".parquet" or _magic(path).startswith(b"PAR1"):
        return parquet_source
    return csv_source if suffix in CSV_SUFFIXES else None


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)


def _open_file(path: Path) -> Source:
    magic = _magic(path)
    if path.name == minari.MAIN_FILE and minari.data_folder(path.parent):
        return minari.minari_source(str(path.parent))
    if magic == b"\x89HDF\r\n\x1a\n" or path.suffix.lower() in (".hdf5", ".h5"):
        return hdf5_source(path)
    if magic.startswith(b"PK\x03\x04") or path.suffix.lower() == ".npz":
        return npz_source(path)
    raise DataError(f"the format of {path} is not known: give {KNOWN}.")


def _open_folder(folder: Path) -> Source:
    if is_lerobot(folder):
        return lerobot_source(folder)
    if minari.data_folder(folder):
        return minari.minari_source(str(folder))
    raise DataError(
        f"the folder {folder} is neither a LeRobot dataset (meta/info.json) nor a Minari one (data/metadata.json)."
    )

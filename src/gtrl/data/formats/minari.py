"""Minari datasets, in HDF5 and Arrow storage.

They are read with h5py and pyarrow alone: the `minari` package constructs the environment that a dataset names if it
has no spaces, so reading one would run its code, and it reads images that are not needed. Writing uses the package.
"""

import json
import os
import re
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.data.formats import hdf5
from gtrl.data.formats.arrow import arrow_layouts, arrow_rows
from gtrl.data.formats.columns import NO_PIXELS, Catalog
from gtrl.data.formats.flat import Layout, fields_of
from gtrl.data.formats.iterables import belongs, goal_env_defaults, short_names
from gtrl.data.formats.limits import Budget, import_extra, readable
from gtrl.data.formats.log import RawEpisode, Source
from gtrl.errors import DataError

PREFIX = "minari:"
MAIN_FILE = "main_data.hdf5"
METADATA = "metadata.json"
MAX_METADATA_BYTES = 2**26
_ID = re.compile(r"[\w-]+(/[\w-]+)*")  # no dots: an id cannot lead out of the folder of all datasets


def datasets_folder() -> Path:
    """Returns the folder of the local Minari datasets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def folder_of_id(name: str) -> Path:
    """Returns the folder of a dataset by its id; raises a `DataError` if the id is not one."""
    if not _ID.fullmatch(name):
        raise DataError(f"{name!r} is not the id of a Minari dataset: ids are like 'my-robot/reach-v0'.")
    return datasets_folder() / name


def is_local_id(name: str) -> bool:
    """Returns whether a text is the id of a dataset in the local Minari folder."""
    return bool(_ID.fullmatch(name)) and data_folder(datasets_folder() / name) is not None


def data_folder(folder: Path) -> Path | None:
    """Returns the folder with the data of a dataset: itself or its folder `data`; None if it is not a dataset."""
    found = [each for each in (folder / "data", folder) if (each / METADATA).is_file()]
    return next((each for each in found if "data_format" in _metadata(each)), None)


def _metadata(folder: Path) -> dict[str, Any]:
    path = folder / METADATA
    with readable(path, "Minari dataset"):
        if path.stat().st_size > MAX_METADATA_BYTES:
            raise DataError(f"{path} is implausibly large.")
        found = json.loads(path.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}


def minari_source(source: str) -> Source:
    """Opens a dataset by its id (`minari:ID`) or by its folder."""
    if source.startswith(PREFIX):
        name = source.removeprefix(PREFIX)
        folder, origin = folder_of_id(name), {"format": "minari", "id": name}
        if data_folder(folder) is None:
            raise DataError(f"there is no Minari dataset {name!r} in {datasets_folder()}: 'minari download {name}'.")
    else:
        folder, origin = Path(source), {"format": "minari", "path": source}
    data = data_folder(folder)
    if data is None:
        raise DataError(f"{folder} is not a Minari dataset: it has no data/{METADATA}.")
    metadata = _metadata(data)
    spaces = {key: _space(data, metadata.get(f"{key}_space")) for key in ("observation", "action")}
    if metadata["data_format"] == "hdf5":
        return _with_spaces(origin, spaces, *_hdf5(data / MAIN_FILE))
    if metadata["data_format"] == "arrow":
        return _with_spaces(origin, spaces, *_arrow(data))
    raise DataError(f"{data} is stored in the format {metadata['data_format']!r}: only hdf5 and arrow can be read.")


# --- spaces ---


def _space(data: Path, text: Any) -> dict[str, Any]:
    """Parses a serialized space; an absent one is empty."""
    with readable(data / METADATA, "Minari dataset"):
        found = json.loads(text) if isinstance(text, str) else {}
        return found if isinstance(found, dict) else {}


def _leaves(space: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the spaces without subspaces, by the names that their fields have."""
    inner = space.get("subspaces")
    inner = {str(index): each for index, each in enumerate(inner)} if isinstance(inner, list) else inner
    if not isinstance(inner, dict):
        yield name, space
        return
    for key, each in inner.items():
        if isinstance(each, dict):
            yield from _leaves(each, f"{name}/{key}")


def _is_image(space: Mapping[str, Any]) -> bool:
    shape = space.get("shape")
    return space.get("dtype") == "uint8" and isinstance(shape, list) and len(shape) in (2, 3) and min(shape[:2]) >= 32


def _with_spaces(
    origin: dict[str, Any], spaces: Mapping[str, dict[str, Any]], layouts: dict[str, Layout | str], read: Any
) -> Source:
    """Completes a source by what the spaces say: which fields hold pixels, bounds of actions, discrete actions."""
    with readable(origin.get("path", origin.get("id", "")), "Minari dataset"):
        bounds = _apply_spaces(spaces, layouts)
    short = short_names(layouts)
    fields, unusable = fields_of({short[name]: layout for name, layout in layouts.items()})
    observed = [short[name] for name in layouts if belongs(name, "observations")]
    observation, goal = goal_env_defaults([name for name in observed if name in fields] or observed)
    skipped = [name for name in observed if name in unusable and name not in observation]
    notes = [f"{', '.join(skipped)} cannot be used and is not read"] if skipped else []
    action = sorted(name for name in layouts if belongs(name, "actions"))
    long = {name: key for key, name in short.items()}

    def episodes(wanted: Collection[str]) -> Iterator[RawEpisode]:
        for label, rows in read([long[name] for name in wanted]):
            yield RawEpisode(label, {short[name]: values for name, values in rows.items()})

    bounds = {
        name: pair for name, pair in bounds.items() if all(side.size == len(fields.get(name, ())) for side in pair)
    }
    return Source(origin, Catalog(fields, observation, action, goal, unusable), episodes, bounds, notes)


def _apply_spaces(
    spaces: Mapping[str, dict[str, Any]], layouts: dict[str, Layout | str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Marks fields that cannot be used; returns the bounds of the others that are actions."""
    bounds: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name, space in (*_leaves(spaces["observation"], "observations"), *_leaves(spaces["action"], "actions")):
        is_action = belongs(name, "actions")
        if _is_image(space):
            layouts[name] = NO_PIXELS
        elif is_action and space.get("type") in ("Discrete", "MultiDiscrete", "MultiBinary"):
            layouts[name] = f"is {space['type']}, but only continuous actions can be learned"
        elif is_action and space.get("type") == "Box":
            bounds[name] = np.asarray(space["low"], np.float64), np.asarray(space["high"], np.float64)
    return bounds


# --- storages: the layouts of the first episode, and a function that yields the chosen fields of each ---

Layouts = dict[str, Layout | str]


def _plain(name: str) -> str:
    """Returns the name of an array without what marks the entries of tuples in HDF5 storage."""
    return re.sub(r"(?<=/)_index_(\d+)", r"\1", name)


def _hdf5(path: Path) -> tuple[Layouts, Any]:
    with hdf5.opened(path, "minari") as file:
        names = hdf5.numbered(file.root, "episode")
        if not names:
            raise DataError(f"{path} has no episodes.")
        stored = file.arrays(file.group(names[0]))
    original = {_plain(name): name for name in stored}

    def read(wanted: Collection[str]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        with hdf5.opened(path, "minari") as file:
            for name in names:
                yield name, {key: file.read(file.group(name), original[key]) for key in wanted}

    return {_plain(name): layout for name, layout in stored.items()}, read


def _arrow(folder: Path) -> tuple[Layouts, Any]:
    numbers = sorted(int(each.name) for each in folder.iterdir() if re.fullmatch(r"\d{1,12}", each.name))
    files = {number: sorted((folder / str(number)).glob("*.arrow")) for number in numbers}
    if not any(files.values()):
        raise DataError(f"{folder} has no episodes.")
    budget = Budget(folder, sum(file.stat().st_size for each in files.values() for file in each))

    def read(wanted: Collection[str]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        for number in numbers:
            rows = arrow_rows(files[number], wanted, budget)
            # Storage pads actions by one row, so that all columns have as many rows as observations.
            cut = {name: values[:-1] if belongs(name, "actions") else values for name, values in rows.items()}
            yield f"episode_{number}", cut

    return arrow_layouts(files[numbers[0]]), read


# --- writing ---


def check_new(name: str) -> Path:
    """Returns the folder of a dataset that is to be written; raises a `DataError` if the id is invalid or in use."""
    name = name.removeprefix(PREFIX)
    folder = folder_of_id(name)
    if not re.fullmatch(r".+-v\d+", name):
        raise DataError(f"the id of a new Minari dataset ends with its version: {name}-v0.")
    if folder.exists():
        raise DataError(f"there is already a Minari dataset {name!r} in {datasets_folder()}: choose another version.")
    return folder


def write_minari(name: str, arrays: Mapping[str, np.ndarray], low: Any = -np.inf, high: Any = np.inf) -> list[str]:
    """Writes the arrays of a dataset file as a new Minari dataset; returns notes on what it does not hold.

    Args:
        name: The id of the dataset, with or without `minari:`; it is written to the folder of local Minari datasets.
        arrays: `observations`, `actions`, `terminals`, and `goals`, which become `achieved_goal`.
        low: The lowest actions, for the action space; unbounded by default.
        high: The highest actions.
    """
    minari = import_extra("minari", "minari", "writing Minari datasets")
    import_extra("h5py", "minari", "writing Minari datasets")
    from gymnasium.spaces import Box, Dict

    folder = check_new(name)
    name = name.removeprefix(PREFIX)

    def box(rows: np.ndarray, low: Any = -np.inf, high: Any = np.inf) -> Any:
        lowest, highest = (np.broadcast_to(bound, rows.shape[1:]).astype(rows.dtype) for bound in (low, high))
        return Box(lowest, highest, dtype=rows.dtype.type)

    spaces = {key: box(arrays[array]) for key, array in OBSERVED.items() if array in arrays}
    space = Dict(spaces) if len(spaces) > 1 else spaces["observation"]
    buffers = [_buffer(rows) for rows in _split(arrays)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a missing author, link to code and environment
            minari.create_dataset_from_buffers(
                name, buffers, action_space=box(arrays["actions"], low, high), observation_space=space
            )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    logged = np.isfinite(arrays["actions"][arrays["terminals"].astype(bool)]).any()
    return ["the action logged in the last state of an episode is not written"] if logged else []


OBSERVED = {"observation": "observations", "achieved_goal": "goals"}  # entries of a dictionary observation


def _split(arrays: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    last = np.flatnonzero(arrays["terminals"])
    for start, end in zip([0, *(last[:-1] + 1)], last + 1, strict=True):
        yield {key: arrays[key][start:end] for key in ("observations", "actions", "goals") if key in arrays}


def _buffer(rows: Mapping[str, np.ndarray]) -> Any:
    """Converts an episode. It has no rewards, and whether it ended or was cut off is not known."""
    from minari.data_collector import EpisodeBuffer

    steps = len(rows["observations"]) - 1
    observed = {key: rows[array] for key, array in OBSERVED.items() if array in rows}
    return EpisodeBuffer(
        observations=observed if len(observed) > 1 else observed["observation"],  # pyright: ignore[reportArgumentType]
        actions=rows["actions"][:-1],  # pyright: ignore[reportArgumentType]
        rewards=[0.0] * steps,
        terminations=[False] * steps,
        truncations=[*[False] * (steps - 1), True],
    )

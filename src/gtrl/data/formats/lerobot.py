"""LeRobot datasets, version 3: folders of parquet files. Read with pyarrow alone.

`meta/info.json` describes the features, `data/chunk-000/file-000.parquet` and so on hold one row per frame, and
`meta/episodes` the length of each episode. Images and videos are not read.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.data.formats.arrow import NOT_NUMBERS, parquet_rows
from gtrl.data.formats.columns import NO_PIXELS, Catalog, as_columns
from gtrl.data.formats.flat import Layout, fields_of
from gtrl.data.formats.limits import readable
from gtrl.data.formats.log import RawEpisode, Source
from gtrl.data.formats.tables import split_rows
from gtrl.errors import DataError

INFO = "meta/info.json"
STATES = ("observation.state", "observation.environment_state")  # the default observation, if there is either
BOOKKEEPING = ("timestamp", "frame_index", "episode_index", "index", "task_index")
MAX_INFO_BYTES = 2**24


def is_lerobot(folder: Path) -> bool:
    """Returns whether a folder is a LeRobot dataset of any version."""
    return (folder / INFO).is_file()


def lerobot_source(folder: Path) -> Source:
    """Opens a dataset by its folder."""
    info = _info(folder)
    features = {name: feature for name, feature in info["features"].items() if name not in BOOKKEEPING}
    with readable(folder / INFO, "description of a LeRobot dataset"):
        layouts = {name: _layout(feature) for name, feature in features.items()}
        names = {name: _element_names(feature.get("names")) for name, feature in features.items()}
    fields, unusable = fields_of(layouts, names)
    observed = [name for name in (*fields, *unusable) if name.startswith("observation")]
    observation = [name for name in STATES if name in fields] or [name for name in observed if name in fields]
    skipped = [name for name in observed if name not in observation]
    notes = [f"{', '.join(skipped)} is not part of the default observation"] if skipped and observation else []
    catalog = Catalog(fields, observation, [name for name in ("action",) if name in fields], (), unusable)
    files = _data_files(folder)

    def episodes(wanted: Collection[str]) -> Iterator[RawEpisode]:
        rows = parquet_rows(files, [*wanted, "episode_index", "frame_index"])
        _check_complete(folder, info, rows["episode_index"])
        for name in wanted:
            if as_columns(rows[name]).shape[1] != len(fields[name]):
                raise DataError(f"{folder}: {name!r} has another size than {INFO} says.")
        for label, indices in split_rows(folder, rows["episode_index"], rows["frame_index"], "frame_index", notes):
            yield RawEpisode(label, {name: rows[name][indices] for name in wanted})

    return Source({"format": "lerobot", "path": str(folder)}, catalog, episodes, {}, notes)


def _info(folder: Path) -> dict[str, Any]:
    path = folder / INFO
    with readable(path, "description of a LeRobot dataset"):
        if path.stat().st_size > MAX_INFO_BYTES:
            raise DataError(f"{path} is implausibly large.")
        info = json.loads(path.read_text(encoding="utf-8"))
        version = str(info["codebase_version"])
        info["features"].items()
    if not version.startswith("v3"):
        raise DataError(
            f"{folder} is a LeRobot dataset of version {version}: convert it to v3.0 with LeRobot's script."
        )
    if info.get("storage_format", "parquet") != "parquet":
        raise DataError(f"{folder} is stored as {info['storage_format']!r}: only parquet files can be read.")
    return info


def _layout(feature: Mapping[str, Any]) -> Layout | str:
    """Returns the layout of a feature as if it had one frame, or why it cannot be used."""
    dtype = str(feature["dtype"])
    if dtype in ("image", "video"):
        return NO_PIXELS
    if not dtype.startswith(("float", "int", "uint", "bool")):
        return NOT_NUMBERS
    return (1, *(int(size) for size in feature["shape"])), np.dtype(dtype)


def _element_names(names: Any) -> list[str] | None:
    """Returns the names of a feature's elements: they are a list, or a mapping from a group to a list or an index."""
    if isinstance(names, Mapping):
        inner = list(names.values())
        if len(inner) == 1 and isinstance(inner[0], list):
            names = inner[0]
        elif inner and all(isinstance(value, int) for value in inner):
            names = sorted(names, key=names.__getitem__)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return names if len(set(names)) == len(names) else None


def _data_files(folder: Path) -> list[Path]:
    """Returns the data files in order. They are found by their names: a template in a file could lead anywhere."""
    files = sorted(folder.glob("data/chunk-*/file-*.parquet"))
    if not files:
        raise DataError(f"{folder} has no data files (data/chunk-000/file-000.parquet): is the download complete?")
    return files


def _check_complete(folder: Path, info: Mapping[str, Any], episodes: np.ndarray) -> None:
    """Compares the rows with the number of frames and the lengths of episodes in the metadata."""
    expected = info.get("total_frames")
    if isinstance(expected, int) and expected != len(episodes):
        raise DataError(f"{folder} has {len(episodes)} frames where {INFO} says {expected}: is the download complete?")
    files = sorted(folder.glob("meta/episodes/chunk-*/file-*.parquet"))
    if not files:
        return
    listed = parquet_rows(files, ["episode_index", "length"])
    lengths = dict(zip(listed["episode_index"].tolist(), listed["length"].tolist(), strict=True))
    numbers, counts = np.unique(episodes, return_counts=True)
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        if lengths.get(number) != count:
            raise DataError(
                f"{folder}: episode {number} has {count} frames where meta/episodes says {lengths.get(number)}."
            )

"""HDF5 files in D4RL's layout (concatenated arrays) and in robomimic's (`data/demo_0/obs/…`).

Files are not trusted: links that lead out of a file are not followed, and sizes are checked before anything is read.
"""

import math
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.data.formats.columns import Catalog
from gtrl.data.formats.flat import Layout, fields_of, flat_source, unusable_reason
from gtrl.data.formats.limits import MAX_DEPTH, MAX_FIELDS, Budget, import_extra, readable
from gtrl.data.formats.log import RawEpisode, Source
from gtrl.errors import DataError

FORMAT = "HDF5 file"


class Hdf5File:
    """An open HDF5 file."""

    def __init__(self, root: Any, path: Path, h5py: Any) -> None:
        self.root, self.path, self.h5py = root, path, h5py
        self.budget = Budget(path, path.stat().st_size)

    def child(self, group: Any, name: str) -> Any:
        """Returns a member of a group; None if there is none or it is a link to somewhere else."""
        for part in name.split("/"):
            if not isinstance(group, self.h5py.Group) or not part or part == ".":
                return None
            if not isinstance(group.get(part, getlink=True), self.h5py.HardLink):
                return None
            group = group[part]
        return group

    def group(self, name: str) -> Any:
        """Returns a group below the root; None if there is none."""
        found = self.child(self.root, name)
        return found if isinstance(found, self.h5py.Group) else None

    def arrays(self, group: Any, prefix: str = "", above: tuple[Any, ...] = ()) -> dict[str, Layout | str]:
        """Returns the layouts of the arrays below a group, sorted by path. A group inside itself is skipped."""
        found: dict[str, Layout | str] = {}
        for name in sorted(group):
            member = self.child(group, name)
            if member is None:
                found[prefix + name] = "is a link to another place, which is not followed"
            elif isinstance(member, self.h5py.Dataset):
                found[prefix + name] = self._layout(member)
            elif member not in (group, *above) and len(above) < MAX_DEPTH:
                found |= self.arrays(member, f"{prefix}{name}/", (group, *above))
            if len(found) > MAX_FIELDS:
                raise DataError(f"{self.path} has more than {MAX_FIELDS:,} arrays in one group.")
        return found

    def _layout(self, dataset: Any) -> Layout | str:
        if dataset.external or dataset.is_virtual:
            return "is stored in another file, which is not read"
        if dataset.shape is None:
            return "is empty"
        return dataset.shape, dataset.dtype

    def read(self, group: Any, name: str) -> np.ndarray:
        """Reads an array of numbers, after checking the size that it claims."""
        dataset = self.child(group, name)
        where = f"{self.path}: {f'{group.name}/{name}'.lstrip('/')!r}"
        if not isinstance(dataset, self.h5py.Dataset):
            raise DataError(f"{where} does not exist.")
        layout = self._layout(dataset)
        reason = layout if isinstance(layout, str) else unusable_reason(*layout)
        if reason:
            raise DataError(f"{where} {reason}.")
        item = dataset.dtype.itemsize
        self.budget.claim(max(dataset.size, math.prod(dataset.chunks or (0,))) * item)
        return dataset[()]


@contextmanager
def opened(path: Path, extra: str = "hdf5") -> Iterator[Hdf5File]:
    """Opens a file for reading; whatever h5py raises on a damaged one becomes a one-line error."""
    h5py = import_extra("h5py", extra, "reading HDF5")
    with readable(path, FORMAT), h5py.File(path, "r") as root:
        yield Hdf5File(root, path, h5py)


def numbered(group: Any, prefix: str) -> list[str]:
    """Returns the members called PREFIX_0, PREFIX_1, … in the order of their numbers."""
    found = [name for name in group if re.fullmatch(rf"{prefix}_\d{{1,12}}", name)]
    return sorted(found, key=lambda name: int(name.rpartition("_")[2]))


def hdf5_source(path: Path) -> Source:
    """Opens a file in one of the two layouts."""
    with opened(path) as file:
        names = list(file.root)[:10]
        if file.child(file.root, "observations") is not None:
            layouts = file.arrays(file.root)
            return flat_source({"format": "d4rl", "path": str(path)}, layouts, lambda name: _read(path, name))
        data = file.group("data")
        demos = [] if data is None else numbered(data, "demo")
        if demos:
            return _robomimic(path, demos, file.arrays(file.child(data, demos[0])))
    expected = "'observations' (D4RL) or 'data/demo_0' (robomimic)"
    raise DataError(f"{path} has neither {expected}; it has {', '.join(map(repr, names)) or 'nothing'}.")


def _read(path: Path, name: str) -> np.ndarray:
    with opened(path) as file:
        return file.read(file.root, name)


def _robomimic(path: Path, demos: list[str], layouts: dict[str, Layout | str]) -> Source:
    """One group per episode; by default the observation is every array below `obs`, or `states` if there is none."""
    with_next = {name.removeprefix("next_") for name in layouts if name.startswith("next_obs/")}
    fields, unusable = fields_of({name: each for name, each in layouts.items() if not name.startswith("next_obs/")})
    observation = [name for name in fields if name.startswith("obs/")] or [
        name for name in ("states",) if name in fields
    ]
    pixels = [name for name in unusable if name.startswith("obs/")]
    notes = [f"{', '.join(pixels)} cannot be used and is not read"] if pixels else []

    def episodes(wanted: Collection[str]) -> Iterator[RawEpisode]:
        with opened(path) as file:
            for demo in demos:
                group = file.child(file.group("data"), demo)
                rows = {name: file.read(group, name) for name in wanted}
                after = {name: file.read(group, f"next_{name}")[-1:] for name in wanted if name in with_next}
                yield RawEpisode(demo, rows, after)

    action = [name for name in ("actions",) if name in fields]
    return Source(
        {"format": "robomimic", "path": str(path)},
        Catalog(fields, observation, action, (), unusable),
        episodes,
        {},
        notes,
    )

"""The maps of a report's page: `maps.npz` of a run in a compact form, which the page unpacks when it is needed.

Arrays are compressed with zlib and written in base64. Values stay bytes; each one is stored as the difference to the
one before it, since neighbours are alike and differences compress better.
"""

import base64
import zlib
from collections import Counter
from typing import Any

import numpy as np

from gtrl.errors import RunError
from gtrl.io.npz import read_npz
from gtrl.report.cells import Cell
from gtrl.runs.run import MAPS

PATHS_PER_GOAL = 10  # of each seed; the first ones by number, whether successful or not
POSITION_STEPS = 65535  # positions on paths are 16-bit integers between the borders of the maze
_INTEGERS, _NUMBERS = "iu", "fiu"  # kinds of NumPy's types


def read_maps(cell: Cell) -> dict[str, np.ndarray] | None:
    """Returns the arrays of `maps.npz`; None without such a file. Raises `RunError` if it is damaged."""
    path = cell.run.path / MAPS
    if not path.exists():
        return None
    arrays = read_npz(path, RunError)
    try:
        _check(arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is damaged ({error}); write it again with gtrl diagnose.") from error
    return arrays


def map_data(cell: Cell) -> dict[str, Any] | None:
    """Returns the value maps, arrows and paths of a run; None without `maps.npz`."""
    arrays = read_maps(cell)
    if arrays is None:
        return None
    return {
        "step": int(arrays["step"]),
        "seeds": arrays["seeds"].tolist(),
        "gamma": cell.gamma,
        "free": arrays["free"].astype(int).tolist(),
        **{name: float(arrays[name]) for name in ("unit", "offset", "point_size")},
        **{name: arrays[name].astype(float).tolist() for name in ("entrances", "exits", "starts", "goals")},
        "points": packed(arrays["points"].astype("<f4")),
        "values": packed(np.diff(arrays["values"], axis=-1, prepend=np.uint8(0))),
        "arrow_points": packed(arrays["arrow_points"].astype("<f4")),
        "arrows": packed(arrays["arrows"]),
        **_paths(arrays),
    }


def points_per_cell(arrays: dict[str, np.ndarray]) -> int:
    """Returns the number of points along each axis of a cell."""
    return round(float(arrays["unit"] / arrays["point_size"]))


def packed(array: np.ndarray) -> str:
    """Returns the bytes of an array, compressed, in base64."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 9)).decode()


def _check(arrays: dict[str, np.ndarray]) -> None:
    """Raises `KeyError`, `TypeError` or `ValueError` if arrays are missing or do not fit each other."""
    if arrays["free"].ndim != 2 or arrays["free"].dtype != bool:
        raise ValueError("its array 'free' is not a table of truth values")
    seeds, goals = len(arrays["seeds"]), int(arrays["free"].sum())
    points, arrows = len(arrays["points"]), len(arrays["arrow_points"])
    shapes = {
        "seeds": (seeds,), "points": (points, 2), "goal_points": (goals, 2), "values": (seeds, goals, points),
        "arrow_points": (arrows, 2), "arrows": (seeds, goals, arrows, 2), "paths": (len(arrays["paths"]), 2),
        "path_index": (len(arrays["path_index"]), 6), "step": (), "unit": (), "offset": (), "point_size": (),
        **{name: (len(arrays[name]), 2) for name in ("entrances", "exits", "starts", "goals")},
    }  # fmt: skip
    for name, shape in shapes.items():
        array = arrays[name]
        kinds = _INTEGERS if name in ("step", "seeds", "path_index") else _NUMBERS
        if array.shape != shape or array.dtype.kind not in kinds:
            raise ValueError(f"its array '{name}' is {array.shape}, {array.dtype}, where {shape} is expected")
        if not np.isfinite(array).all():
            raise ValueError(f"its array '{name}' has values that are not finite")
    if arrays["values"].dtype != np.uint8 or arrays["arrows"].dtype != np.int8:
        raise ValueError("values or arrows are of another type")
    if not (arrays["unit"] > 0 and arrays["point_size"] > 0):
        raise ValueError("a size is not positive")
    if points != goals * points_per_cell(arrays) ** 2:
        raise ValueError("its points are not those of all cells")
    count = len(arrays["paths"])
    if any(first < 0 or rows < 1 or first + rows > count for *_, first, rows in arrays["path_index"].tolist()):
        raise ValueError("path_index points outside the paths")


def _paths(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The first recorded episodes of each seed and goal, and how many there are of each."""
    rows, columns = arrays["free"].shape
    low = -float(arrays["offset"]) - float(arrays["unit"]) / 2
    size = np.array([columns, rows]) * float(arrays["unit"])
    scaled = np.clip((arrays["paths"].astype(float) - low) / size, 0, 1) * POSITION_STEPS
    positions = scaled.round().astype("<u2")
    recorded: Counter[tuple[int, int]] = Counter()
    index, chosen, length = [], [], 0
    for seed, goal, episode, success, first, count in sorted(arrays["path_index"].tolist()):
        recorded[seed, goal] += 1
        if recorded[seed, goal] <= PATHS_PER_GOAL:
            index.append([seed, goal, episode, success, length, count])
            chosen.append(positions[first : first + count])
            length += count
    joined = np.concatenate(chosen) if chosen else np.zeros((0, 2), "<u2")
    counts = [[seed, goal, count] for (seed, goal), count in sorted(recorded.items())]
    return {"paths": packed(joined), "path_index": index, "recorded": counts}

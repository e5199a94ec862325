"""Logs whose episodes are concatenated: npz files, D4RL's layout, arrays in memory.

The last row of an episode is marked in `terminals` or `timeouts`. With `next_observations` there is one row per
transition, and the state after the last action is not lost.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.data.formats.columns import LIKE_PIXELS, NO_PIXELS, Catalog, as_columns, column_names
from gtrl.data.formats.limits import MAX_FIELDS
from gtrl.data.formats.log import RawEpisode, Source
from gtrl.errors import DataError
from gtrl.io.npz import layout_of, names_in, read_npz, shapes_in

Layout = tuple[tuple[int, ...], np.dtype]  # shape and type of an array
MARKS = ("terminals", "timeouts")
NEXT = "next_observations"
TOLERANCE = 1e-6  # of a column's range, by which a successor may differ from the next row
MAX_BREAKS = 0.1  # of the rows; more unmarked breaks mean that `next_observations` is something else


def unusable_reason(shape: tuple[int, ...], dtype: np.dtype) -> str | None:
    """Says why an array cannot be a field, if so: it holds pixels, or no real numbers."""
    if dtype.kind not in "biuf":
        return "does not hold real numbers"
    if len(shape) == 0 or min(shape[1:], default=1) <= 0:
        return "has no columns"
    if dtype == np.uint8 and (len(shape) > 2 or width_of(shape) > MAX_FIELDS):
        return NO_PIXELS
    if len(shape) > 3:
        return LIKE_PIXELS
    if width_of(shape) > MAX_FIELDS:
        return f"has {width_of(shape):,} columns, more than {MAX_FIELDS:,}"
    return None


def width_of(shape: tuple[int, ...]) -> int:
    """Returns the number of columns of an array, whose first axis is time; other axes are flattened in C order."""
    return math.prod(shape[1:])


def fields_of(
    layouts: Mapping[str, Layout | str], names: Mapping[str, list[str] | None] | None = None
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Divides arrays into fields, with names for their columns, and those that cannot be used, with the reason."""
    fields, unusable = {}, {}
    for name, layout in layouts.items():
        if isinstance(layout, str):
            unusable[name] = layout
        elif reason := unusable_reason(*layout):
            unusable[name] = reason
        else:
            fields[name] = column_names(name, width_of(layout[0]), (names or {}).get(name))
    return fields, unusable


def npz_source(path: Path) -> Source:
    """Opens an npz file: one of ours, or one with `timeouts` or `next_observations`."""
    layouts: dict[str, Layout | str] = {}
    names = names_in(path, DataError)
    for name in names:
        try:
            layouts[name] = layout_of(path, DataError, name)
        except DataError as error:  # objects, for example; such an array may be there, but cannot be chosen
            layouts[name] = f"cannot be read: {str(error).partition('; ')[2].rstrip('.')}"
    description = _description(path) if "description" in names else {}
    origin = {"format": "npz", "path": str(path)}
    return flat_source(origin, layouts, lambda name: read_npz(path, DataError, (name,))[name], description)


def is_complete(path: Path) -> bool:
    """Returns whether an npz file needs no completion to be a dataset: all arrays have columns, all rows an episode."""
    shapes = shapes_in(path, DataError, ("observations", "actions", "goals"))
    terminals = read_npz(path, DataError, ("terminals",)).get("terminals")
    if terminals is None or terminals.dtype.kind not in "biuf":
        return True  # it is not a log either: the checks of a dataset have the better message
    last = np.flatnonzero(terminals)[-1:]
    return (not len(last) or last[0] == terminals.size - 1) and all(len(shape) != 1 for shape in shapes.values())


def _description(path: Path) -> dict[str, Any]:
    """Reads the description of a dataset file: names of its columns and bounds of its actions."""
    try:
        found = json.loads(str(read_npz(path, DataError, ("description",))["description"][()]))
    except (ValueError, RecursionError, IndexError) as cause:
        raise DataError(f"{path}: its description is not valid JSON.") from cause
    return found if isinstance(found, dict) else {}


def to_array(label: str, name: str, value: Any) -> np.ndarray:
    """Converts an array or nested lists."""
    try:
        return np.asarray(value)
    except ValueError as cause:
        raise DataError(f"{label}: the rows of {name!r} differ in length.") from cause


def arrays_source(arrays: Mapping[str, Any]) -> Source:
    """Wraps arrays in memory, with the names of an npz file."""
    if isinstance(arrays.get("observations"), Mapping):
        raise DataError("the 'observations' of a log in one piece cannot be a dictionary: give a list of episodes.")
    if "observations" in arrays and not any(name in arrays for name in MARKS):
        advice = "add 'terminals', or give a single episode in a list, [episode]"
        raise DataError(f"the log has neither 'terminals' nor 'timeouts', which mark an episode's last row: {advice}.")
    found = {str(name): to_array("the log", str(name), value) for name, value in arrays.items() if value is not None}
    layouts: dict[str, Layout | str] = {name: (value.shape, value.dtype) for name, value in found.items()}
    return flat_source({"format": "arrays"}, layouts, found.__getitem__)


def flat_source(
    origin: dict[str, Any],
    layouts: Mapping[str, Layout | str],
    read: Callable[[str], np.ndarray],
    description: Mapping[str, Any] | None = None,
) -> Source:
    """Makes a source from named arrays; for an array that cannot be read, `layouts` has the reason."""
    what = origin.get("path", "the log")
    marks = [name for name in MARKS if name in layouts]
    if not marks:
        found = ", ".join(layouts) or "none"
        raise DataError(f"{what} has neither 'terminals' nor 'timeouts', which mark an episode's last row ({found}).")
    rows = _rows_in(layouts, what)
    checked = {
        name: layout if isinstance(layout, str) else _of_length(layout, rows)
        for name, layout in layouts.items()
        if name not in (NEXT, "description")
    }
    fields, unusable = fields_of(checked, _names(description or {}))
    goal = ("goals",) if "goals" in layouts else ()
    catalog = Catalog(fields, ("observations",), ("actions",), goal, unusable)
    _check_required(catalog, what)
    notes: list[str] = []
    has_next = NEXT in layouts

    def episodes(wanted: Collection[str]) -> Iterator[RawEpisode]:
        columns = {name: read(name) for name in wanted}
        successors = read(NEXT) if has_next else None
        starts_and_ends = _episodes([read(name) for name in marks], columns, read, successors, notes)
        for number, (start, end) in enumerate(starts_and_ends):
            chosen = {name: values[start:end] for name, values in columns.items()}
            after = {} if successors is None else {"observations": successors[end - 1 : end]}
            yield RawEpisode(f"episode {number}", chosen, after)

    return Source(origin, catalog, episodes, _description_bounds(description or {}, fields), notes)


def _of_length(layout: Layout, rows: int) -> Layout | str:
    """Returns the layout, or the reason why the array cannot be used: it has another number of rows."""
    found = layout[0][:1]
    return layout if found in ((), (rows,)) else f"has {found[0]} rows where 'observations' has {rows}"


def _rows_in(layouts: Mapping[str, Layout | str], what: Any) -> int:
    layout = layouts.get("observations")
    if layout is None:
        raise DataError(f"{what} has no array 'observations' ({', '.join(layouts)}).")
    if isinstance(layout, str):
        raise DataError(f"{what}: its array 'observations' {layout}.")
    rows = layout[0][0] if layout[0] else 0
    if rows == 0:
        raise DataError(f"{what} has no rows.")
    return rows


def _check_required(catalog: Catalog, what: Any) -> None:
    for name in MARKS:
        if name in catalog.unusable:
            raise DataError(f"{what}: its array {name!r} {catalog.unusable[name]}.")
        if len(catalog.fields.get(name, [name])) != 1:
            raise DataError(f"{what}: its array {name!r} has several columns, not one.")


def _names(description: Mapping[str, Any]) -> dict[str, list[str]]:
    columns = description.get("columns")
    columns = columns if isinstance(columns, dict) else {}
    found = {
        key: columns.get(role)
        for key, role in (("observations", "observation"), ("actions", "action"), ("goals", "goal"))
    }
    return {key: [str(name) for name in names] for key, names in found.items() if isinstance(names, list)}


def _description_bounds(
    description: Mapping[str, Any], fields: Mapping[str, list[str]]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    try:
        low, high = (np.asarray(description[key], np.float64) for key in ("action_low", "action_high"))
    except (KeyError, TypeError, ValueError):
        return {}
    return {"actions": (low, high)} if low.shape == high.shape == (len(fields.get("actions", ())),) else {}


def _episodes(
    marks: list[np.ndarray],
    columns: Mapping[str, np.ndarray],
    read: Callable[[str], np.ndarray],
    successors: np.ndarray | None,
    notes: list[str],
) -> list[tuple[int, int]]:
    """Returns the first row of each episode and the row after its last."""
    ends = np.zeros(len(marks[0]), bool)
    for mark in marks:
        flat = mark.reshape(-1)
        if len(flat) != len(ends) or not np.isin(flat, (0, 1)).all():
            raise DataError("'terminals' and 'timeouts' must hold 0 or 1 for each row.")
        ends |= flat.astype(bool)
    if successors is not None:
        observations = columns["observations"] if "observations" in columns else read("observations")
        if observations.shape != successors.shape:
            raise DataError(f"'{NEXT}' has the shape {successors.shape} where 'observations' has {observations.shape}.")
        breaks = breaks_between(observations, successors) & ~ends[:-1]
        if breaks.mean() > MAX_BREAKS if len(breaks) else False:
            raise DataError(
                f"'{NEXT}' differs from the following row of 'observations' in {breaks.mean():.0%} of the rows, so it "
                "does not hold the next state: remove it from the log."
            )
        if breaks.any():
            notes.append(
                f"{breaks.sum()} episodes end without a mark: the next observation is not that of the next row"
            )
        ends[:-1] |= breaks
    if not ends.any() and successors is None:
        raise DataError("no row is marked as the last of its episode: 'terminals' and 'timeouts' are always false.")
    return _spans(ends, successors is not None, notes)


def _spans(ends: np.ndarray, has_next: bool, notes: list[str]) -> list[tuple[int, int]]:
    """Splits rows at the marks. Rows after the last mark are an episode that was still running."""
    stops = np.flatnonzero(ends) + 1
    rest = len(ends) - (stops[-1] if len(stops) else 0)
    if rest:
        kept = rest > 1 or has_next
        fate = "are read as an episode" if kept else "are left out"
        notes.append(f"the {rest} rows after the last marked end of an episode {fate}")
        stops = np.append(stops, len(ends)) if kept else stops
    return list(zip([0, *stops[:-1].tolist()], stops.tolist(), strict=True))


def breaks_between(observations: np.ndarray, successors: np.ndarray) -> np.ndarray:
    """Returns for all rows but the last whether the successor differs from the next row."""
    rows, following = as_columns(observations), as_columns(successors)
    kind = np.result_type(rows, np.float32)  # differences of Booleans and of unsigned integers need it
    tolerance = TOLERANCE * np.subtract(rows.max(0), rows.min(0), dtype=kind)
    return (np.abs(np.subtract(following[:-1], rows[1:], dtype=kind)) > tolerance).any(1)

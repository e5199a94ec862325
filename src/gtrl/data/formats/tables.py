"""Tables with one row per step: CSV and parquet files with a column that names the episode."""

import array
import csv
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.data.formats.arrow import parquet_layouts, parquet_rows
from gtrl.data.formats.columns import Catalog
from gtrl.data.formats.flat import MAX_BREAKS, Layout, breaks_between, fields_of
from gtrl.data.formats.limits import MAX_FIELDS, check_names, readable
from gtrl.data.formats.log import RawEpisode, Source
from gtrl.errors import DataError

EPISODE_NAMES = ("episode", "episode_index", "episode_id", "trajectory")  # tried in this order
TIME_NAMES = ("frame_index", "step", "t", "time", "timestamp")  # a column that orders the rows of an episode
SEPARATORS = ",;\t"
MAX_LINE = 2**20  # characters of a line in a CSV file
_OBSERVATION = re.compile(r"(observations?|obs|states?)([\W_].*|\d+)?", re.IGNORECASE)
_NEXT = re.compile(r"next[\W_]?(?P<name>.+)", re.IGNORECASE)
_ACTION = re.compile(r"actions?([\W_].*|\d+)?", re.IGNORECASE)


def csv_source(path: Path, episode: str | None) -> Source:
    """Opens a CSV file whose first line names the columns."""
    header = _header(path)
    layouts: dict[str, Layout | str] = {name: ((0,), np.dtype(np.float64)) for name in header}
    return _table(path, "csv", layouts, episode, lambda wanted, labels: _csv_columns(path, header, wanted, labels))


def parquet_source(path: Path, episode: str | None) -> Source:
    """Opens a parquet file."""
    layouts = parquet_layouts(path)
    return _table(path, "parquet", layouts, episode, lambda wanted, labels: parquet_rows([path], wanted, labels))


def _table(path: Path, kind: str, layouts: Mapping[str, Layout | str], episode: str | None, read: Any) -> Source:
    fields, unusable = fields_of(layouts)
    label = _episode_column(path, list(layouts), episode)
    time = next((name for name in TIME_NAMES if name in layouts and name != label), None)
    following = _next_columns(fields)
    for name, then in following.items():
        if _part(name) is not None:
            unusable[then] = "is the next observation, which is read where it is needed: choose the present one"
    offered = {name: columns for name, columns in fields.items() if name not in unusable}
    plain = [name for name in offered if name not in (label, time)]
    observation = [name for name in plain if _OBSERVATION.fullmatch(name)]
    action = [name for name in plain if _ACTION.fullmatch(name)]
    catalog = Catalog(offered, observation, action, (), unusable)
    notes: list[str] = []

    def episodes(wanted: Collection[str]) -> Iterator[RawEpisode]:
        labels = [label] if time is None else [label, time]
        pairs = {name: following[name] for name in wanted if name in following}
        columns = dict.fromkeys([*wanted, *pairs.values(), *labels])
        rows = read(list(columns), [name for name in labels if name not in wanted])
        order = None if time is None else rows[time]
        parts = list(split_rows(path, rows[label], order, time, notes))
        pairs = _confirmed(pairs, rows, [indices for _, indices in parts], notes)
        for name, indices in parts:
            after = {now: rows[then][indices[-1:]] for now, then in pairs.items()}
            is_logged = not all(np.isnan(values).all() for values in after.values())
            yield RawEpisode(name, {key: rows[key][indices] for key in wanted}, after if is_logged else {})

    return Source({"format": kind, "path": str(path)}, catalog, episodes, {}, notes)


def _episode_column(path: Path, names: Sequence[str], episode: str | None) -> str:
    if episode is not None and episode not in names:
        raise DataError(f"{path} has no column {episode!r} (--episode); it has {', '.join(names[:20])}.")
    found = episode or next((name for name in EPISODE_NAMES if name in names), None)
    if found is None:
        tried = ", ".join(EPISODE_NAMES)
        raise DataError(f"{path} has no column that names the episode ({tried}): name it with --episode NAME.")
    return found


# --- columns of the next observation ---


def _next_columns(fields: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Pairs fields with those of the next observation: `x` with `next_x`, `observation_x` also with `next_obs_x`."""
    pairs: dict[str, str] = {}
    of_part: dict[str, list[str]] = {}  # columns of the observation by their part of it
    for name in fields:
        if (part := _part(name)) is not None:
            of_part.setdefault(part, []).append(name)
    for name in fields:
        match = _NEXT.fullmatch(name)
        if match is None or _ACTION.fullmatch(match["name"]):
            continue
        part = _part(match["name"])
        found = [match["name"]] if match["name"] in fields else of_part.get(part, []) if part is not None else []
        if len(found) == 1 and len(fields[found[0]]) == len(fields[name]):
            pairs.setdefault(found[0], name)
    return pairs


def _part(name: str) -> str | None:
    """Returns which part of the observation a column is by its name: `_x` for `obs_x`, none for other columns."""
    match = _OBSERVATION.fullmatch(name)
    return match and (match[2] or "")


def _confirmed(
    pairs: Mapping[str, str], rows: Mapping[str, np.ndarray], parts: Sequence[np.ndarray], notes: list[str]
) -> dict[str, str]:
    """Returns the pairs whose second column holds the first one of the following row; the others are noted."""
    order = np.concatenate(parts)
    inside = np.delete(np.arange(len(order)), np.cumsum([len(part) for part in parts]) - 1)
    confirmed = {}
    for now, then in pairs.items():
        breaks = breaks_between(rows[now][order], rows[then][order])[inside]
        if breaks.sum() > MAX_BREAKS * len(breaks):
            notes.append(f"{then!r} does not hold {now!r} of the following row, so it is not used")
        else:
            confirmed[now] = then
    return confirmed


# --- rows ---


def split_rows(
    path: Path, labels: np.ndarray, order: np.ndarray | None, time: str | None, notes: list[str]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the label of each episode and its rows, in the order of time; episodes in that of their first row.

    Rows keep their order, with a note, if times are missing or cannot be read, and each episode's rows are contiguous.
    """
    unnamed = labels == "" if labels.dtype.kind == "U" else _is_missing(labels)
    if unnamed.any():
        raise DataError(f"{path}: row {int(np.argmax(unnamed)) + 1} does not name its episode.")
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[inverse.reshape(-1)]  # of each row's episode
    is_contiguous = not (np.diff(rank) < 0).any()
    if order is not None and is_contiguous and (problem := _time_problem(str(time), order)):
        notes.append(f"rows keep the order of the file, because {problem}")
        order = None
    if order is None:
        if not is_contiguous:
            label = labels[int(np.argmax(np.diff(rank) < 0)) + 1]
            tried = ", ".join(TIME_NAMES)
            raise DataError(f"the rows of episode {label} are not contiguous, and no column orders them ({tried}).")
        rows = np.arange(len(rank))
    else:
        if problem := _time_problem(str(time), order):
            raise DataError(f"{path}: the rows of an episode are not contiguous, and {problem}.")
        times = _times(order)
        rows = np.lexsort((times, rank))
        repeated = (np.diff(rank[rows]) == 0) & (times[rows][1:] == times[rows][:-1])
        if repeated.any():
            row = rows[int(np.argmax(repeated))]
            advice = f"if its rows are in order, rename or remove the column {time!r}"
            raise DataError(f"episode {labels[row]} has two rows with {time} = {order[row]}: {advice}.")
    for part in np.split(rows, np.flatnonzero(np.diff(rank[rows])) + 1):
        yield f"episode {labels[part[0]]}", part


def _is_missing(values: np.ndarray) -> np.ndarray:
    return np.isnat(values) if values.dtype.kind in "mM" else ~np.isfinite(values)


def _times(values: np.ndarray) -> np.ndarray:
    """Returns the column that orders rows as numbers or times; NaN where it is neither."""
    return _timestamps(values.tolist()) if values.dtype.kind == "U" else values


def _time_problem(name: str, values: np.ndarray) -> str | None:
    """Returns why a column cannot order rows; None if all of its values are numbers or times."""
    wrong = _is_missing(_times(values))
    if not wrong.any():
        return None
    row = int(np.argmax(wrong))
    return f"the column {name!r} must hold numbers or timestamps: row {row + 1} has {str(values[row])!r:.40}"


def _timestamps(texts: Sequence[str]) -> np.ndarray:
    """Converts numbers as text, or ISO timestamps to microseconds since the first; anything else becomes NaN."""
    numbers = np.array([_converted(float, text) for text in texts])
    if np.isfinite(numbers).any():
        return numbers
    try:
        first = datetime.fromisoformat(texts[0])
    except ValueError:
        return numbers
    step = timedelta(microseconds=1)
    return np.array([_converted(lambda each: (datetime.fromisoformat(each) - first) / step, text) for text in texts])


def _converted(convert: Callable[[str], float], text: str) -> float:
    try:
        return convert(text)
    except (ValueError, TypeError):  # TypeError: of two timestamps only one has a time zone
        return math.nan


# --- CSV ---


def _lines(path: Path) -> Iterator[list[str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = iter(lambda: file.readline(MAX_LINE), "")  # a file without line ends is not read into memory
        first = next(lines, "")
        separator = max(SEPARATORS, key=first.count)
        yield from csv.reader(itertools.chain([first], lines), delimiter=separator)


def _header(path: Path) -> list[str]:
    with readable(path, "CSV file"):
        header = [name.strip() for name in next(_lines(path), [])]
    if not any(header) or len(header) > MAX_FIELDS:
        raise DataError(f"{path} is not a readable CSV file; its first line must name the columns.")
    check_names(path, header)
    return header


def _csv_columns(
    path: Path, header: Sequence[str], wanted: Sequence[str], labels: Collection[str]
) -> dict[str, np.ndarray]:
    """Reads some columns. An empty cell is NaN; labels may be text."""
    places = [(header.index(name), name in labels) for name in wanted]
    columns: list[Any] = [[] if name in labels else array.array("d") for name in wanted]
    with readable(path, "CSV file"):
        for number, cells in enumerate(itertools.islice(_lines(path), 1, None), 2):
            if not cells:
                continue  # an empty line
            if len(cells) != len(header):
                raise DataError(f"{path}, line {number}: it has {len(cells)} cells where the first has {len(header)}.")
            for column, (place, is_label) in zip(columns, places, strict=True):
                column.append(cells[place].strip() if is_label else _number(path, number, header[place], cells[place]))
    if not columns or not columns[0]:
        raise DataError(f"{path} has no rows.")
    return {
        name: _numbers_or_text(column) if name in labels else np.asarray(column, np.float64)
        for name, column in zip(wanted, columns, strict=True)
    }


def _number(path: Path, line: int, name: str, text: str) -> float:
    try:
        return float(text) if text.strip() else float("nan")
    except ValueError as cause:
        raise DataError(f"{path}, line {line}: {text[:40]!r} in the column {name!r} is not a number.") from cause


def _numbers_or_text(cells: list[str]) -> np.ndarray:
    """Converts a column of labels: numbers if all of them are, so that step 10 follows step 9."""
    for kind in (np.int64, np.float64):
        try:
            return np.asarray(cells).astype(kind)
        except (ValueError, OverflowError):
            pass
    return np.asarray(cells)

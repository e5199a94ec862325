"""Choosing the columns of a log: what the flags --observation, --goal and --action mean.

A selector is `NAME`, `NAME[SLICE]` or a bare `SLICE`. A slice is `3`, `0:5`, `-2:` or `0,3,5`. A bare one counts the
columns of the default observation or action; for the goal, those of the chosen observation.
"""

import difflib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from gtrl.errors import DataError

Role = Literal["observation", "goal", "action"]
LISTED_NAMES = 20  # in an error message
NO_PIXELS = "holds pixels, which are not supported yet: choose the log's state features instead"
LIKE_PIXELS = (
    "looks like pixels (three or more axes per row), which are not supported yet: choose the log's state features "
    "instead, or flatten it"
)
_SLICE = re.compile(r"-?\d+|-?\d*:(-?\d+)?|-?\d+(,-?\d+)+")
_NAME_AND_SLICE = re.compile(r"(?P<name>.+)\[(?P<slice>[^\[\]]*)\]")
_COMMANDED = re.compile(r"(.*/)?(desired_goal|infos/goal)")


class Column(NamedTuple):
    """One column of a field."""

    field: str
    place: int


def column_names(name: str, width: int, names: Sequence[str] | None = None) -> list[str]:
    """Returns a name for each column of a field: those of the format, else `NAME[0]`, `NAME[1]` and so on."""
    if names is not None and len(names) == width:
        return list(names)
    return [name] if width == 1 else [f"{name}[{index}]" for index in range(width)]


@dataclass(frozen=True)
class Catalog:
    """The fields of a log. A field is an array with one row per step and one or more columns."""

    fields: Mapping[str, list[str]]  # a name for each column
    observation: Sequence[str]  # default fields
    action: Sequence[str]
    goal: Sequence[str] = ()
    unusable: Mapping[str, str] = field(default_factory=dict)  # why a field cannot be chosen; follows its name

    def choose(
        self, selectors: Sequence[str] | str | None, role: Role, observed: Sequence[Column] | None = None
    ) -> list[Column]:
        """Returns the chosen columns, or the default ones without selectors; the result is empty for no goal.

        A bare slice counts the columns `observed`, by default those of the default observation or action.
        """
        if selectors is None:
            return self._default(role)
        texts = [selectors] if isinstance(selectors, str) else list(selectors)
        chosen = [column for text in texts for column in self._select(str(text).strip(), role, observed)]
        if not chosen:
            raise DataError(f"no column is chosen for the {role}: choose from {self._listed('')}.")
        repeated = [column for column in chosen if chosen.count(column) > 1]
        if repeated:
            raise DataError(f"the column {self.names(repeated)[0]!r} is chosen twice for the {role}.")
        return chosen

    def names(self, columns: Sequence[Column]) -> list[str]:
        """Returns a name for each column."""
        return [self.fields[column.field][column.place] for column in columns]

    def _default(self, role: Role) -> list[Column]:
        wanted = [name for name in getattr(self, role) if name in self.fields or name in self.unusable]
        for name in wanted:
            if name in self.unusable:
                raise self._unusable(name)
        if not wanted and role != "goal":
            because = "".join(f" ({name!r} {reason})" for name, reason in itertools.islice(self.unusable.items(), 1))
            choice = f"choose them by name from {self._listed('')}"
            raise DataError(f"it is not clear which columns are the {role}{because}: {choice} (--{role}).")
        return [column for name in wanted for column in self._columns(name)]

    def _columns(self, name: str) -> list[Column]:
        return [Column(name, index) for index in range(len(self.fields[name]))]

    def _select(self, text: str, role: Role, observed: Sequence[Column] | None) -> list[Column]:
        if text in self.fields:
            return self._columns(text)
        if text in self.unusable:
            raise self._unusable(text)
        if found := self._elements(text, role):
            return found
        if _SLICE.fullmatch(text):
            if observed is not None:
                return _sliced(observed, text, "the observation")
            return _sliced(self._default("action" if role == "action" else "observation"), text, f"the default {role}")
        if match := _NAME_AND_SLICE.fullmatch(text):
            name, part = match["name"], match["slice"].replace(" ", "")
            if name in self.fields and _SLICE.fullmatch(part):
                return _sliced(self._columns(name), part, repr(name))
            if name in self.unusable:
                raise self._unusable(name)
            if name in self.fields:
                raise DataError(f"{text!r} is not a choice of columns: write {name}[3], {name}[0:5] or {name}[0,3,5].")
            text = name
        raise DataError(f"there is no column {text!r} for the {role}; there are {self._listed(text)}.")

    def _elements(self, text: str, role: Role) -> list[Column]:
        """Returns the column with this name: LeRobot's observation and action often share their elements' names."""
        own = self.action if role == "action" else self.observation
        for fields in (own, self.fields):
            found = [column for name in fields if name in self.fields for column in self._columns(name)]
            found = [column for column in found if self.fields[column.field][column.place] == text]
            if len(found) > 1:
                listed = " and ".join(f"{column.field}[{column.place}]" for column in found[:3])
                raise DataError(f"{text!r} names several columns: choose between {listed}.")
            if found:
                return found
        return []

    def _unusable(self, name: str) -> DataError:
        return DataError(f"{name!r} {self.unusable[name]}.")

    def _listed(self, near: str) -> str:
        """Lists the names, those closest to `near` first."""
        elements = [name for names in self.fields.values() if len(names) > 1 for name in names if "[" not in name]
        names = list(dict.fromkeys([*self.fields, *elements]))
        if near:
            closeness = {name: difflib.SequenceMatcher(None, near.lower(), name.lower()).ratio() for name in names}
            names.sort(key=lambda name: -closeness[name])
        more = f" and {len(names) - LISTED_NAMES} more" if len(names) > LISTED_NAMES else ""
        return (", ".join(names[:LISTED_NAMES]) or "none that can be used") + more


def _sliced(columns: Sequence[Column], text: str, what: str) -> list[Column]:
    """Returns the columns that a slice selects; unlike in Python, all of it must exist."""
    count = len(columns)
    numbers = [int(number) for number in re.findall(r"-?\d+", text)]
    limit = count if ":" in text else count - 1
    if any(not -count <= number <= limit for number in numbers):
        raise DataError(f"{text} is outside of {what}, which has {count} columns.")
    if ":" not in text:
        return [columns[number] for number in numbers]
    start, _, stop = text.partition(":")
    chosen = columns[slice(int(start) if start else None, int(stop) if stop else None)]
    if not chosen:
        raise DataError(f"{text} selects no column of {what}.")
    return list(chosen)


def as_columns(values: np.ndarray) -> np.ndarray:
    """Flattens all axes but the first, which is time, in C order."""
    return values.reshape(len(values), math.prod(values.shape[1:]))


def pick(rows: Mapping[str, np.ndarray], columns: Sequence[Column]) -> np.ndarray:
    """Returns the chosen columns of some rows: (rows, columns), in float32 if all of them are, else in float64."""
    runs = [(name, [column.place for column in run]) for name, run in _runs(columns)]
    small = all(rows[name].dtype in (np.float16, np.float32) for name, _ in runs)
    parts = [as_columns(rows[name])[:, indices] for name, indices in runs]
    return np.concatenate(parts, 1, dtype=np.float32 if small else np.float64)


def _runs(columns: Sequence[Column]) -> Iterator[tuple[str, list[Column]]]:
    for name, run in itertools.groupby(columns, lambda column: column.field):
        yield name, list(run)


def commanded(columns: Sequence[Column]) -> list[str]:
    """Returns the chosen fields whose name says that they hold the commanded goal, not the achieved one."""
    return list(dict.fromkeys(column.field for column in columns if _COMMANDED.fullmatch(column.field)))

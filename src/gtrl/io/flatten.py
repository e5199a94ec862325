"""Flattening of observations to the columns that a policy was trained on."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_ELEMENT = re.compile(r"(?P<key>.*)\[(?P<index>\d+)\]", re.DOTALL)  # `position[2]`


def flatten(observed: Mapping[str, Any], names: Sequence[str]) -> np.ndarray:
    """Returns the columns of a dictionary observation in the order of `names`, as a vector.

    `position[2]` is the third number of the entry `position` (row by row if it is a matrix), `gripper` the only number
    of the entry `gripper`. `arm/position[2]` and `arm.position[2]` are looked up in nested dictionaries, unless an
    entry has that name.

    Raises:
        KeyError: If an entry or one of its numbers is missing; the message is a clause that names it.
    """
    entries: dict[str, np.ndarray] = {}
    columns = []
    for name in names:
        key, index = split_name(name, observed)
        if key not in entries:
            entries[key] = np.asarray(_find(observed, key)).reshape(-1)
        size = len(entries[key])
        if index is None and size != 1:
            raise MissingColumnError(f"'{key}' has {size} numbers where the policy's column '{name}' is one")
        if index is not None and index >= size:
            raise MissingColumnError(f"'{key}' has {size} numbers, and the policy needs '{name}'")
        columns.append(entries[key][index or 0])
    return np.array(columns)


class MissingColumnError(KeyError):
    """A column that an observation does not have. The message is a clause."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show it in quotes


def split_name(name: str, entries: Mapping[str, Any] | None = None) -> tuple[str, int | None]:
    """Returns the entry and the index that a column's name stands for; no index if it names an entry as a whole."""
    found = None if entries is not None and name in entries else _ELEMENT.fullmatch(name)
    return (found["key"], int(found["index"])) if found else (name, None)


def select(observed: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Returns the columns of an array observation that were chosen for training.

    Where all names are elements of one array, such as `state[0]` and `state[3]`, and the observation is long enough to
    be that array, these elements are returned; otherwise the observation as it is.
    """
    keys, indices = zip(*(split_name(name) for name in names), strict=True) if names else ((), ())
    if len(set(keys)) != 1 or None in indices or observed.ndim != 1 or max(indices) >= len(observed):
        return observed
    return observed[list(indices)]


def _find(observed: Mapping[str, Any], key: str) -> Any:
    """Returns the entry with this name, in nested dictionaries too."""
    found: Any = observed
    parts = [key] if key in observed else re.split(r"[/.]", key)
    for part in parts:
        if not isinstance(found, Mapping) or part not in found:
            known = ", ".join(map(str, observed))
            raise MissingColumnError(f"there is no '{key}', which the policy was trained on; there are {known}")
        found = found[part]
    if isinstance(found, Mapping):
        raise MissingColumnError(f"'{key}' is a dictionary where the policy was trained on numbers")
    return found

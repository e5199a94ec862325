"""The description in a dataset file: names of columns, bounds of actions, scaling and source, as a JSON text."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.errors import DataError
from gtrl.io.npz import read_npz
from gtrl.io.scaling import Scaling

FORMAT = 1  # version of the description
KEY = "description"  # the array that holds it
ROLES = ("observation", "goal", "action")
Bounds = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Description:
    """What a dataset file says about its arrays; every part may be missing."""

    columns: dict[str, list[str]] = field(default_factory=dict)  # a name for each column: observation, goal, action
    action_bounds: Bounds | None = None  # lowest and highest action, in the file's units
    scaling: Scaling | None = None
    source: dict[str, Any] = field(default_factory=dict)  # the format and place of the log, and notes about it

    def to_array(self) -> np.ndarray:
        """Returns the text to store in the file."""
        low, high = (bound.tolist() for bound in self.action_bounds) if self.action_bounds else (None, None)
        content = {
            "format": FORMAT,
            "columns": self.columns,
            "action_low": low,
            "action_high": high,
            "scaling": self.scaling.to_json() if self.scaling else None,
            "source": self.source,
        }
        return np.array(json.dumps({key: value for key, value in content.items() if value is not None}))


def read_description(path: Path) -> Description:
    """Reads the description of a dataset file; an empty one if the file has none."""
    arrays = read_npz(path, DataError, (KEY,))
    if KEY not in arrays:
        return Description()
    try:
        return _parsed(json.loads(str(arrays[KEY])))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: its description is damaged ({error!s:.100}).") from error


def _parsed(content: Mapping[str, Any]) -> Description:
    if content["format"] != FORMAT:
        raise ValueError(f"its format is {content['format']!r:.40}, not {FORMAT}")
    columns = {role: [str(name) for name in content.get("columns", {}).get(role, ())] for role in ROLES}
    scaling = content.get("scaling")
    bounds = None
    if content.get("action_low") is not None:
        bounds = check_bounds(content["action_low"], content["action_high"], may_be_equal=True)
    return Description(
        {role: names for role, names in columns.items() if names},
        bounds,
        Scaling.from_mapping(scaling) if scaling is not None else None,
        dict(content.get("source", {})),
    )


def check_bounds(low: Any, high: Any, action_dim: int | None = None, may_be_equal: bool = False) -> Bounds:
    """Returns the bounds of actions as two vectors, one number standing for all columns.

    Raises `ValueError` if they are not finite, a lower one is not less than the upper one, or there are not
    `action_dim` numbers. In a log, the bounds of an action that never changes may be equal.
    """
    try:
        low, high = (np.atleast_1d(np.asarray(bound, np.float64)) for bound in (low, high))
        low, high = (np.array(bound) for bound in np.broadcast_arrays(low, high))
        if action_dim is not None:
            low, high = (np.array(np.broadcast_to(bound, (action_dim,))) for bound in (low, high))
    except (TypeError, ValueError) as error:
        wanted = f" of {action_dim} numbers" if action_dim else ""
        raise ValueError(f"the bounds of actions must be two numbers or two vectors{wanted}") from error
    in_order = low <= high if may_be_equal else low < high
    if low.ndim != 1 or not (np.isfinite(low) & np.isfinite(high) & in_order).all():
        raise ValueError("the bounds of actions must be finite numbers, the lowest less than the highest")
    return low, high

"""Scaling between the units of a dataset and those of the networks. Uses NumPy only.

Networks are trained on standardised observations and goals and on actions in [-1, 1]. A policy file holds the scaling
of its training data, so that the policy takes and returns the units of that data.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

LIMIT = 10.0  # standardised observations and goals are clipped to this absolute value
SAMPLED_ROWS = 100_000  # about how many rows the quantiles are computed from
BLOCK_ROWS = 65_536  # rows that are scaled at a time, in float64
# A column whose range is at most this part of its magnitude is constant up to rounding: in float32, in float64.
CONSTANT_RANGES = (1e-6, 1e-12)
NORMAL_RANGE = 3.29  # width, in standard deviations, of the middle 90 % of a normal distribution
MAX_WIDENING = 3.0  # factor by which the outermost 3 % at each end may widen the scale that the middle 90 % have
NEAR_ONE = 0.5  # actions whose largest absolute value is above this and at most 1 are taken to have the bounds ±1


@dataclass(frozen=True, eq=False)
class Scaling:
    """Centre and scale of each column, in float64: scaled = (raw - centre) / scale.

    Scaled observations and goals are clipped to ±LIMIT. The action's centre and scale map its bounds to ±1; the scale
    of an action that never changes is 0.
    """

    observation_center: np.ndarray
    observation_scale: np.ndarray
    goal_center: np.ndarray
    goal_scale: np.ndarray
    action_center: np.ndarray
    action_scale: np.ndarray

    def __post_init__(self) -> None:
        for name in SCALING_ARRAYS:
            array = np.asarray(getattr(self, name), np.float64)
            minimum = 0.0 if name == "action_scale" else np.finfo(np.float64).tiny
            if array.ndim != 1 or not np.isfinite(array).all() or (name.endswith("scale") and (array < minimum).any()):
                raise ValueError(f"'{name}' is not a vector of valid numbers")
            object.__setattr__(self, name, array)
        for name in ("observation", "goal", "action"):
            if getattr(self, f"{name}_center").shape != getattr(self, f"{name}_scale").shape:
                raise ValueError(f"'{name}_center' and '{name}_scale' differ in length")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scaling) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(tuple(map(tuple, self.to_json().values())))

    def of(self, role: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns centre and scale of the columns of `observation`, `goal` or `action`."""
        return getattr(self, f"{role}_center"), getattr(self, f"{role}_scale")

    def observation(self, raw: Any) -> np.ndarray:
        """Returns standardised observations in float32, clipped to ±LIMIT."""
        return _standardised(raw, self.observation_center, self.observation_scale)

    def goal(self, raw: Any) -> np.ndarray:
        """Returns standardised goals in float32, clipped to ±LIMIT."""
        return _standardised(raw, self.goal_center, self.goal_scale)

    def action(self, raw: Any) -> np.ndarray:
        """Returns actions in float32, with their bounds at ±1. Actions outside the bounds are not clipped here."""
        moving = self.action_scale > 0
        divisor = np.where(moving, self.action_scale, 1.0)
        return _by_block(raw, lambda rows: np.where(moving, (rows - self.action_center) / divisor, 0.0))

    def raw_observation(self, scaled: Any) -> np.ndarray:
        """Returns observations in the data's units, in float64; they differ where they were clipped."""
        return _by_block(scaled, lambda rows: rows * self.observation_scale + self.observation_center, np.float64)

    def raw_goal(self, scaled: Any) -> np.ndarray:
        """Returns goals in the data's units, in float64; they differ where they were clipped."""
        return _by_block(scaled, lambda rows: rows * self.goal_scale + self.goal_center, np.float64)

    def raw_action(self, scaled: Any) -> np.ndarray:
        """Returns actions in the data's units, in float32 and within their bounds."""
        return _by_block(scaled, lambda rows: np.clip(rows * self.action_scale + self.action_center, *self.bounds))

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest action in float32, rounded inwards: 0.3 becomes 0.29999998, not 0.3000001."""
        low, high = self.action_center - self.action_scale, self.action_center + self.action_scale
        with np.errstate(over="ignore"):
            lowest, center, highest = (array.astype(np.float32) for array in (low, self.action_center, high))
        return (
            np.where(lowest < low, np.nextafter(lowest, center), lowest),
            np.where(highest > high, np.nextafter(highest, center), highest),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays by name, as they are stored in a policy file."""
        return {name: getattr(self, name) for name in SCALING_ARRAYS}

    def to_json(self) -> dict[str, list[float]]:
        """Returns the numbers by name, as they are stored in `config.json` and in a dataset's description."""
        return {name: array.tolist() for name, array in self.to_arrays().items()}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "Scaling":
        """Returns the scaling that `to_arrays` or `to_json` gave; raises `ValueError` if a part is missing or wrong."""
        missing = [name for name in SCALING_ARRAYS if name not in values]
        if missing:
            raise ValueError(f"it has no '{missing[0]}'")
        try:
            return cls(**{name: np.asarray(values[name], np.float64) for name in SCALING_ARRAYS})
        except TypeError as error:
            raise ValueError(str(error)) from error


SCALING_ARRAYS = tuple(field.name for field in fields(Scaling))


def _by_block(rows: Any, function: Callable[[np.ndarray], np.ndarray], dtype: Any = np.float32) -> np.ndarray:
    """Applies a function to blocks of rows in float64, so that little memory is needed."""
    array = np.asarray(rows)
    if array.ndim < 2 or len(array) <= BLOCK_ROWS:
        return function(array.astype(np.float64)).astype(dtype)
    result = np.empty(array.shape, dtype)
    for start in range(0, len(array), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        result[block] = function(array[block].astype(np.float64))
    return result


def _standardised(raw: Any, center: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return _by_block(raw, lambda rows: np.clip((rows - center) / scale, -LIMIT, LIMIT))


def constant_range(rows: np.ndarray) -> float:
    """Returns the relative range up to which columns of an array are constant, by the array's precision."""
    return CONSTANT_RANGES[rows.dtype.itemsize > 4 or rows.dtype.kind != "f"]


def is_constant(low: np.ndarray, high: np.ndarray, limit: float = CONSTANT_RANGES[1]) -> np.ndarray:
    """Returns which columns with these minima and maxima are constant up to a relative range."""
    return high - low <= limit * np.maximum(np.abs(low), np.abs(high))


def sample_rows(rows: np.ndarray) -> np.ndarray:
    """Returns about `SAMPLED_ROWS` of the rows, evenly spread, in float64."""
    return np.asarray(rows[:: max(1, len(rows) // SAMPLED_ROWS)], np.float64)


def center_and_scale(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns a robust centre and scale of each column.

    The centre is the median. The scale is the standard deviation that the middle 90 % would have if it were normal, or
    larger, so that nearly all values lie within the limit: all but the outermost 3 % at each end. These are rare, may
    mark missing readings (-999), and widen the scale by `MAX_WIDENING` at most; single outliers change nothing. Columns
    with nearly always the same value have their standard deviation as the scale; constant columns have 1.
    """
    limit = constant_range(rows)
    quantiles = np.quantile(sample_rows(rows), [0.5, 0.001, 0.03, 0.05, 0.95, 0.97, 0.999], axis=0)
    center, lowest, lower, low, high, upper, highest = quantiles
    middle = (high - low) / NORMAL_RANGE
    frequent, rare = np.maximum(center - [lower, lowest], [upper, highest] - center) / LIMIT
    scale = np.maximum(np.maximum(middle, frequent), np.minimum(rare, MAX_WIDENING * middle))
    bottom, top = np.asarray(rows.min(0), np.float64), np.asarray(rows.max(0), np.float64)
    negligible = scale <= np.maximum(limit * np.abs(center), CONSTANT_RANGES[1] * rare)
    scale = np.where(negligible, np.asarray(rows, np.float64).std(0) if negligible.any() else 1.0, scale)
    constant = is_constant(bottom, top, limit) | (scale < np.finfo(np.float64).tiny)
    return center, np.where(constant, np.maximum(1.0, (top - bottom) / LIMIT), scale)


def fit_scaling(
    observations: np.ndarray, goals: np.ndarray, actions: np.ndarray, bounds: tuple[Any, Any] | None = None
) -> Scaling:
    """Returns the scaling of a dataset.

    Args:
        observations: (N, observation_dim).
        goals: (N, goal_dim).
        actions: (N, action_dim); rows of NaN, which have no logged action, are ignored.
        bounds: The lowest and the highest action, as numbers or vectors; by default `bounds_of` the data.
    """
    low, high = bounds_of(actions) if bounds is None else bounds
    low, high = (np.broadcast_to(np.asarray(bound, np.float64), actions.shape[1:]) for bound in (low, high))
    return Scaling(
        *center_and_scale(observations),
        *center_and_scale(goals),
        (low + high) / 2,
        np.where(is_constant(low, high), 0.0, (high - low) / 2),
    )


def bounds_of(actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns bounds for logged actions: the smallest and the largest value of each column.

    A column that stays within ±1 and comes near has ±1, unless it is constant. Rows of NaN are ignored.
    """
    low, high = np.nanmin(actions, 0).astype(np.float64), np.nanmax(actions, 0).astype(np.float64)
    largest = np.maximum(-low, high)
    normalised = (largest > NEAR_ONE) & (largest <= 1) & (low < high)
    return np.where(normalised, -1.0, low), np.where(normalised, 1.0, high)

"""Scaling between the units of a dataset and those of the networks. Uses NumPy only.

Networks are trained on standardised observations and goals and on actions in [-1, 1]. A policy file holds the scaling
of its training data, so that the policy takes and returns the units of that data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

LIMIT = 10.0  # standardised observations and goals are clipped to this absolute value
SAMPLED_ROWS = 100_000  # about how many rows the quantiles are computed from
BLOCK_ROWS = 65_536  # rows that are scaled at a time, in float64
# A column whose range is at most this part of its magnitude is constant up to rounding: in float32, in float64.
CONSTANT_RANGES = (1e-6, 1e-12)
NORMAL_RANGE = 3.29  # width, in standard deviations, of the middle 90 % of a normal distribution


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
        """Returns observations in the data's units, unless they were clipped."""
        return _by_block(scaled, lambda rows: rows * self.observation_scale + self.observation_center)

    def raw_goal(self, scaled: Any) -> np.ndarray:
        """Returns goals in the data's units, unless they were clipped."""
        return _by_block(scaled, lambda rows: rows * self.goal_scale + self.goal_center)

    def raw_action(self, scaled: Any) -> np.ndarray:
        """Returns actions in the data's units."""
        return _by_block(scaled, lambda rows: rows * self.action_scale + self.action_center)

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


def _by_block(rows: Any, function: Any) -> np.ndarray:
    """Applies a function to blocks of rows in float64, so that little memory is needed; returns float32."""
    array = np.asarray(rows)
    if array.ndim < 2 or len(array) <= BLOCK_ROWS:
        return function(array.astype(np.float64)).astype(np.float32)
    result = np.empty(array.shape, np.float32)
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


def center_and_scale(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns a robust centre and scale of each column.

    The centre is the median. The scale is the standard deviation that the middle 90 % would have if it were normal, or
    larger, so that all but the outermost 0.2 % lies within the limit. So single outliers change neither. Columns with
    nearly always the same value have their standard deviation as the scale; constant columns have 1.
    """
    limit = constant_range(rows)
    sampled = np.asarray(rows[:: max(1, len(rows) // SAMPLED_ROWS)], np.float64)
    lowest, low, center, high, highest = np.quantile(sampled, [0.001, 0.05, 0.5, 0.95, 0.999], axis=0)
    scale = np.maximum((high - low) / NORMAL_RANGE, np.maximum(highest - center, center - lowest) / LIMIT)
    bottom, top = np.asarray(rows.min(0), np.float64), np.asarray(rows.max(0), np.float64)
    negligible = scale <= limit * np.abs(center)
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
    """Returns bounds for logged actions: ±1 if all are within, else the smallest and the largest value of each column.

    Rows of NaN are ignored.
    """
    low, high = np.nanmin(actions, 0).astype(np.float64), np.nanmax(actions, 0).astype(np.float64)
    largest = max(-float(low.min(initial=math.inf)), float(high.max(initial=-math.inf)))
    if largest <= 1:
        return -np.ones_like(low), np.ones_like(high)
    return low, high

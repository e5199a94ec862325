"""A section of the diagnostics, and what several sections share: bins of distances, and means over seeds."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

CELL_EDGES = (0, 1, 2, 4, 8, 16, 32)  # lower ends of the bins of distances in cells
STEP_EDGES = (0, 25, 50, 100, 200, 400)  # lower ends of the bins of distances in steps
NO_PATH = "no path"
MIN_VALUE = 1e-6  # smaller values count as this one, so that they imply a finite number of steps
ALL = "all"


@dataclasses.dataclass(frozen=True)
class Section:
    """One table of the diagnostics, with how to read it and what follows from it."""

    name: str
    title: str
    explanation: str  # what it measures and how to read it
    columns: tuple[str, ...]
    rows: list[list[Any]]  # texts, numbers, and None where there is no number
    finding: str = ""  # a conclusion in one sentence

    def to_json(self) -> dict[str, Any]:
        """Returns the section as in `diagnostics.json`; numbers that are not finite become None."""
        return {
            **dataclasses.asdict(self),
            "columns": list(self.columns),
            "rows": [list(map(_plain, row)) for row in self.rows],
        }


def _plain(cell: Any) -> Any:
    """A cell as JSON can hold it."""
    if isinstance(cell, (np.integer, int)):
        return int(cell)
    if isinstance(cell, (np.floating, float)):
        return float(cell) if math.isfinite(cell) else None
    return cell


def finite(value: Any) -> float | None:
    """Returns a number that was read from a file; None for anything that is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer beyond the range of floats
        return None


def qualified(section: Section | None, orders_states: bool | None, any_success: bool | None) -> Section | None:
    """Returns a section whose finding relies on the critic, with a clause if the critic is no good.

    A policy can raise an untrained critic, and its weights vary too; such findings then say little.

    Args:
        section: The section; None remains None.
        orders_states: Whether nearer states have larger values; None if it is unknown.
        any_success: Whether the policy succeeded in some episode; None if it is unknown.
    """
    if section is None or not section.finding or (orders_states is not False and any_success is not False):
        return section
    doubt = "but no episode succeeded, so the critic may be wrong"
    if orders_states is False:
        doubt = "but the critic does not order states by distance, so this says little"
    return dataclasses.replace(section, finding=f"{section.finding.removesuffix('.')}, {doubt}.")


def bins(distances: np.ndarray, edges: Sequence[int]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the label and the mask of each bin that is not empty. Negative distances mean that there is no path."""
    for low, high in pairwise([*edges, math.inf]):
        mask = (distances >= low) & (distances < high)
        if mask.any():
            yield _label(low, high), mask
    if (distances < 0).any():
        yield NO_PATH, distances < 0


def _label(low: float, high: float) -> str:
    if math.isinf(high):
        return f"{low:.0f}+"
    return f"{low:.0f}" if high == low + 1 else f"{low:.0f}–{high - 1:.0f}"


def mean_over_seeds(numbers: np.ndarray, seeds: np.ndarray) -> float:
    """Returns the mean of each seed's mean, so that every seed counts the same; NaN without numbers.

    `seeds` has the seed of each number.
    """
    means = [numbers[seeds == seed].mean() for seed in np.unique(seeds)]
    return float(np.mean(means)) if means else math.nan


def implied_steps(values: np.ndarray, gamma: float) -> np.ndarray:
    """Returns log V / log gamma: the number of steps to the goal that a value of gamma^T stands for."""
    return np.log(np.clip(values, MIN_VALUE, 1)) / math.log(gamma)

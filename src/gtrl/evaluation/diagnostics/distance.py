"""The value against the true shortest distance, for all pairs of cells of a maze."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gtrl.envs.maze import Maze
from gtrl.evaluation.diagnostics.sections import (
    ALL,
    CELL_EDGES,
    NO_PATH,
    Section,
    bins,
    implied_steps,
)

ALL_WITH_PATH = "all with a path"  # label of a whole group; "all" of other sections includes pairs without a path
MIN_PAIRS = 3  # fewer pairs have no rank correlation
FACTOR = 1.5  # ratio of steps per cell, far to near, from which the finding mentions it
MIN_CORRELATION = 0.3  # below it, the critic does not order states by distance
COLLAPSED_VALUE = 0.2  # mean value of the nearest pairs below which the finding calls the values collapsed


class DistanceRow(NamedTuple):
    """The pairs of cells of one group in one bin of distances: their number, and means over them and over seeds."""

    group: str  # all, connected or unconnected
    distance: str
    pairs: int
    value: float
    steps_per_cell: float | None  # implied by the value; None where there is no distance
    correlation: float | None  # Spearman's, of value and nearness; only for a whole group


def value_against_distance(
    values: np.ndarray, distances: np.ndarray, connected: np.ndarray | None, gamma: float
) -> list[DistanceRow]:
    """Returns the values of all pairs of different cells by group and distance.

    Args:
        values: (cells, cells) or (seeds, cells, cells): V(s, g) of state cell and goal cell.
        distances: (cells, cells) the shortest path in cells; -1 without one.
        connected: (cells, cells) whether the data connects the pair; None if there is no data.
        gamma: The discount of the values.
    """
    values = values.reshape(-1, *distances.shape)
    different = ~np.eye(len(distances), dtype=bool)
    groups = {ALL: different}
    if connected is not None:
        groups |= {"connected": different & connected, "unconnected": different & ~connected}
    rows = []
    for group, members in groups.items():
        has_path = members & (distances > 0)
        rows.append(_row(group, ALL_WITH_PATH, values[:, has_path], distances[has_path], gamma, whole_group=True))
        if group != ALL or connected is None:  # the bins of all pairs are left out where there are those of both groups
            rows += [
                _row(group, label, values[:, mask], distances[mask], gamma)
                for label, mask in bins(np.where(members, distances, 0), CELL_EDGES[1:])
            ]
    return rows


def _row(
    group: str, label: str, values: np.ndarray, distances: np.ndarray, gamma: float, whole_group: bool = False
) -> DistanceRow:
    """A row from the values (seeds, pairs) and distances (pairs,) of its pairs."""
    mean = float(values.mean()) if values.size else math.nan
    steps = None
    if label != NO_PATH and values.size:
        steps = float(implied_steps(values, gamma).mean() / distances.mean())
    correlation = rank_correlation(values, distances) if whole_group else None
    return DistanceRow(group, label, len(distances), mean, steps, correlation)


def seed_correlations(values: np.ndarray, distances: np.ndarray) -> list[float | None]:
    """Returns Spearman's correlation of values (seeds, pairs) with nearness for each seed: 1 is perfect.

    None for a seed whose values are all the same. Empty if there are too few pairs, or all distances are the same.
    """
    from scipy.stats import spearmanr

    if len(distances) < MIN_PAIRS or np.ptp(distances) == 0:
        return []
    return [
        None if np.ptp(one_seed) == 0 else float(np.asarray(spearmanr(one_seed, -distances))[0]) for one_seed in values
    ]


def rank_correlation(values: np.ndarray, distances: np.ndarray) -> float | None:
    """Returns the mean of `seed_correlations` over the seeds that have one; None if none has."""
    found = [each for each in seed_correlations(values, distances) if each is not None]
    return float(np.mean(found)) if found else None


def orders_states(values: np.ndarray, distances: np.ndarray) -> bool | None:
    """Returns whether values (seeds, cells, cells) are larger for nearer pairs; None if there are too few pairs.

    It is so if the correlation is at least `MIN_CORRELATION` on average, where a seed whose values are all the same
    counts as 0.
    """
    has_path = distances > 0
    found = seed_correlations(values[:, has_path], distances[has_path])
    return bool(np.mean([each or 0.0 for each in found]) >= MIN_CORRELATION) if found else None


def pair_distances(maze: Maze) -> np.ndarray:
    """Returns the shortest path between all pairs of free cells, (state cell, goal cell); -1 without one."""
    return np.stack([maze.distances(goal)[maze.free] for goal in maze.cells], 1)


def connected_cells(maze: Maze, positions: np.ndarray, goals: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns whether some trajectory visits a cell (by `positions`) and later another (by `goals`), (cells, cells).

    Both arrays have a row of xy for every row of the data; they differ where a teleporter moved the agent. `ends` has
    the last row of each row's trajectory.
    """
    number = np.full(maze.free.shape, -1)
    number[maze.free] = np.arange(len(maze.cells))
    _, trajectory = np.unique(ends, return_inverse=True)
    rows, shape = np.arange(len(ends)), (int(trajectory.max()) + 1, len(maze.cells))
    first, last = np.full(shape, len(ends)), np.full(shape, -1)
    for found, xy, update in ((first, positions, np.minimum), (last, goals, np.maximum)):
        cells = number[tuple(maze.cells_at(xy).T)]
        inside = cells >= 0
        update.at(found, (trajectory[inside], cells[inside]), rows[inside])
    connected = np.zeros((shape[1], shape[1]), bool)
    for one_first, one_last in zip(first, last, strict=True):
        connected |= one_first[:, None] < one_last
    return connected


def distance_section(
    values: np.ndarray, maze: Maze, connected: np.ndarray | None, gamma: float, is_return: bool
) -> Section:
    """Returns the section for values (seeds, cells, cells) at the centres of all cells.

    Without `is_return`, values are on another scale than gamma^T and imply no number of steps.
    """
    distances = pair_distances(maze)
    rows = value_against_distance(values, distances, connected, gamma)
    if not is_return:
        rows = [row._replace(steps_per_cell=None) for row in rows]
    teleporters = " This maze has teleporters, which can make the way shorter." if len(maze.entrances) else ""
    return Section(
        "distance",
        "Value against the shortest path in cells, for all pairs of cells",
        "The value between the centres of all pairs of cells, and the number of steps per cell of the shortest path "
        "that it implies (log V / log γ), which should be the same at every distance. Connected pairs are those that "
        f"some trajectory of the data visits in this order. The path does not use teleporters.{teleporters}",
        ("pairs of cells", "distance", "number", "value", "steps per cell", "rank correlation"),
        [list(row) for row in rows],
        _finding(rows, is_return, seed_correlations(values[:, distances > 0], distances[distances > 0])),
    )


def _finding(rows: Sequence[DistanceRow], is_return: bool, by_seed: Sequence[float | None]) -> str:
    """The conclusion; `by_seed` has the correlation over all pairs of each seed."""
    if not by_seed:
        return ""
    constant = sum(each is None for each in by_seed)
    if constant == len(by_seed):
        return "The values are the same everywhere."
    correlations = {row.group: row.correlation for row in rows if row.correlation is not None}
    groups = ", ".join(f"{group} {number:.2f}" for group, number in correlations.items() if group != ALL)
    what = "Rank correlation of value and nearness"
    if constant:
        same = f"The values of {constant} of {len(by_seed)} seeds are the same everywhere"
        what = f"{same}; rank correlation of value and nearness for the others"
    sentence = f"{what} {correlations[ALL]:.2f}" + (f" ({groups})" if groups else "")
    group = "connected" if "connected" in correlations else ALL
    by_distance = [row for row in rows if row.group == group and row.distance not in (ALL_WITH_PATH, NO_PATH)]
    return f"{sentence}{_scale(by_distance) if is_return else ''}."


def _scale(rows: Sequence[DistanceRow]) -> str:
    """A clause on the scale of the values, from the bins of a group, the nearest first; empty if it looks right."""
    if not rows or rows[0].steps_per_cell is None or rows[-1].steps_per_cell is None:
        return ""
    if rows[0].value < COLLAPSED_VALUE:
        return f"; the values have collapsed: {rows[0].value:.2f} at a distance of {rows[0].distance}"
    near, far = rows[0].steps_per_cell, rows[-1].steps_per_cell
    if near / FACTOR <= far <= near * FACTOR:
        return ""
    return f"; far goals look too {'near' if far < near else 'far'} ({near:.0f} steps per cell near, {far:.0f} far)"

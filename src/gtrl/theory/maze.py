"""The optimal value of a point maze with teleporters, exact on a fine grid of positions. NumPy only.

The point agent moves by at most 0.2 along each axis in a step, so on a grid of that spacing a step leads to
one of the eight neighbours or nowhere. Stepping into a teleporter leads to one of its exits, each equally
likely. The value is that of equation 1: the expectation of gamma to the power of the arrival time.
"""

from typing import NamedTuple

import numpy as np

STEP = 0.2  # how far the agent moves along an axis in one step
RADIUS = 0.7  # of the agent: its centre stays so far from walls
CAPTURE = 1.5  # how close to an entrance the agent is teleported, in units of the teleporter's radius (1)
MOVES = [(di, dj) for di in (-1, 0, 1) for dj in (-1, 0, 1)]


class Grid(NamedTuple):
    """Positions (rows, columns, 2) in xy, and where the agent's centre can be."""

    points: np.ndarray
    free: np.ndarray


def grid_of(maze_map: np.ndarray, unit: float, offset: float) -> Grid:
    """A grid of spacing `STEP` over the whole maze, cell centres on it."""
    per_cell = round(unit / STEP)
    rows, columns = ((cells - 1) * per_cell + 1 for cells in maze_map.shape)
    x, y = np.arange(columns) * STEP - offset, np.arange(rows) * STEP - offset
    points = np.stack(np.meshgrid(x, y), -1)
    free = np.ones((rows, columns), bool)
    for i, j in np.argwhere(maze_map == 1):
        centre = np.array([j * unit - offset, i * unit - offset])
        beyond = np.maximum(np.abs(points - centre) - unit / 2, 0)  # the way from a point to the wall's box
        free &= np.linalg.norm(beyond, axis=-1) >= RADIUS - 1e-9
    return Grid(points, free)


def nearest(grid: Grid, xy: np.ndarray) -> tuple[int, int]:
    """The free grid point closest to a position."""
    distance = np.linalg.norm(grid.points - np.asarray(xy), axis=-1)
    row, column = divmod(int(np.argmin(np.where(grid.free, distance, np.inf))), grid.free.shape[1])
    return row, column


def optimal_values(
    grid: Grid, goal: np.ndarray, gamma: float, entrances: np.ndarray, exits: np.ndarray, tolerance: float = 1e-9
) -> np.ndarray:
    """V*(s, g) at every free point for one goal, NaN elsewhere, by value iteration."""
    target = nearest(grid, goal)
    landing = [nearest(grid, xy) for xy in exits]
    captured = np.zeros_like(grid.free)
    for xy in entrances:
        captured |= np.linalg.norm(grid.points - np.asarray(xy), axis=-1) <= CAPTURE
    rows, columns = grid.free.shape
    value = np.zeros((rows, columns))
    value[target] = 1.0
    while True:
        arrival = value.copy()  # the value of stepping onto a point
        if landing and captured.any():
            arrival[captured] = np.mean([value[point] for point in landing])
        arrival[~grid.free] = 0.0
        padded = np.pad(arrival, 1)
        shifted = [padded[1 + di : 1 + di + rows, 1 + dj : 1 + dj + columns] for di, dj in MOVES]
        updated = gamma * np.max(shifted, 0)
        updated[target] = 1.0
        change = np.abs(np.where(grid.free, updated - value, 0)).max()
        value = np.where(grid.free, updated, 0.0)
        if change < tolerance:
            return np.where(grid.free, value, np.nan)

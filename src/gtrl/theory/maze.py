"""Mazes as finite processes: mazes of cells, given as text, and OGBench's point maze on a fine grid of positions.

A move into a teleporter leads to one of its exits, all equally likely. A move into a wall has no effect.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gtrl.envs.maze import Grid, Maze
from gtrl.errors import ProcessError
from gtrl.theory.process import Process
from gtrl.theory.values import optimal_values

FOUR_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
EIGHT_MOVES_AND_STAY = tuple((di, dj) for di in (-1, 0, 1) for dj in (-1, 0, 1))


def lattice(
    here: np.ndarray,
    moves: Sequence[tuple[int, int]],
    captured: np.ndarray,
    landing: Sequence[tuple[int, int]],
) -> Process:
    """Returns the process of moving on a grid.

    Args:
        here: (rows, columns), true at the points that are states; they are numbered row by row.
        moves: The row and column offset of each action.
        captured: (rows, columns), true at the points of teleporters, which may or may not be states.
        landing: The row and column of each exit, to one of which a move to a captured point leads.
    """
    state_of = np.full(np.add(here.shape, 2), -1)  # -1: not a state; with a border of one point
    state_of[1:-1, 1:-1][here] = np.arange(here.sum())
    teleports = np.pad(captured, 1)
    points = np.argwhere(here) + 1
    outcomes = max(1, len(landing))
    exits = state_of[tuple(np.transpose(landing) + 1)] if len(landing) else np.zeros(1, int)
    successors = np.empty((len(points), len(moves), outcomes), int)
    for a, move in enumerate(moves):
        to = tuple((points + move).T)
        moved = np.where(state_of[to] >= 0, state_of[to], np.arange(len(points)))
        successors[:, a] = np.where(teleports[to][:, None] & (len(landing) > 0), exits, moved[:, None])
    return Process(successors, np.full(successors.shape, 1 / outcomes))


# --- mazes in text ---


class TextMaze(NamedTuple):
    """A maze of cells, and its process, whose states are the free cells."""

    rows: tuple[str, ...]  # the text it was made from
    process: Process
    cells: np.ndarray  # (S, 2) row and column of each state
    names: dict[str, int]  # the states of the cells marked with letters

    def picture(self, of_states: np.ndarray) -> np.ndarray:
        """Returns one number per state as an array in the shape of the maze, NaN at walls and teleporters."""
        image = np.full((len(self.rows), len(self.rows[0])), np.nan)
        image[tuple(self.cells.T)] = of_states
        return image


def maze(rows: Sequence[str]) -> TextMaze:
    """Returns a maze from text: `#` is a wall, `.` a cell, `T` a teleporter, other capital letters are its exits.

    Small letters name a cell. The four actions are up, down, left and right. A teleporter is not a state.
    """
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise ProcessError("the rows of a maze must be equally long.")
    symbols = np.array([list(row) for row in rows])
    letters = {symbol for symbol in symbols.flat if symbol not in "#.T"}
    if any((symbols == letter).sum() > 1 for letter in letters):
        raise ProcessError("each letter of a maze except T may name one cell only.")
    here = (symbols != "#") & (symbols != "T")
    captured = symbols == "T"
    landing = [(int(i), int(j)) for i, j in np.argwhere(here & np.char.isupper(symbols))]
    if captured.any() != bool(landing):
        raise ProcessError("a maze needs both teleporters (T) and their exits (capital letters), or neither.")
    cells = np.argwhere(here)
    names = {str(symbols[tuple(cell)]): state for state, cell in enumerate(cells) if symbols[tuple(cell)] in letters}
    return TextMaze(tuple(rows), lattice(here, FOUR_MOVES, captured, landing), cells, names)


# --- the point maze ---

# Lengths in the simulator's units; the radius of a teleporter is 1.
STEP = 0.2  # the largest move of the point agent along an axis in one step
RADIUS = 0.7  # of the agent: the distance that its centre keeps from walls
CAPTURE = 1.5  # the distance from an entrance within which the agent is teleported


def point_maze_grid(maze: Maze) -> Grid:
    """Returns the grid, of spacing `STEP`, of positions that the centre of the point agent can take."""
    return maze.lattice(STEP, RADIUS)


def point_maze_values(maze: Maze, goal: np.ndarray, gamma: float) -> np.ndarray:
    """Returns V*(s, g) for one goal at every free point of `point_maze_grid`, NaN elsewhere."""
    grid = point_maze_grid(maze)
    captured = np.zeros_like(grid.free)
    for xy in maze.entrances:
        captured |= np.linalg.norm(grid.points - np.asarray(xy), axis=-1) <= CAPTURE
    process = lattice(grid.free, EIGHT_MOVES_AND_STAY, captured, [grid.nearest(xy) for xy in maze.exits])
    target = np.flatnonzero(grid.free).searchsorted(np.ravel_multi_index(grid.nearest(goal), grid.free.shape))
    values = np.full(grid.free.shape, np.nan)
    values[grid.free] = optimal_values(process, gamma, np.array([target]))[:, 0]
    return values

"""Mazes as finite processes: drawn in text, cell by cell, or OGBench's point maze on a fine grid of positions.

Stepping into a teleporter leads to one of its exits, each equally likely; walking into a wall leads nowhere.
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
    """The process of moving about the points where `here` (rows, columns) is true; states are numbered row by row.

    Whoever moves to a `captured` point, a state or not, is at one of the `landing` points instead.
    """
    number = np.full(np.add(here.shape, 2), -1)  # with a border of nothing
    number[1:-1, 1:-1][here] = np.arange(here.sum())
    teleports = np.pad(captured, 1)
    at = np.argwhere(here) + 1
    outcomes = max(1, len(landing))
    exits = number[tuple(np.transpose(landing) + 1)] if len(landing) else np.zeros(1, int)
    successors = np.empty((len(at), len(moves), outcomes), int)
    for a, move in enumerate(moves):
        to = tuple((at + move).T)
        stays = np.where(number[to] >= 0, number[to], np.arange(len(at)))
        successors[:, a] = np.where(teleports[to][:, None] & (len(landing) > 0), exits, stays[:, None])
    return Process(successors, np.full(successors.shape, 1 / outcomes))


# --- mazes in text ---


class TextMaze(NamedTuple):
    """A maze of cells: its process, where its states are, and the cells that have names."""

    rows: tuple[str, ...]
    process: Process
    cells: np.ndarray  # (S, 2) row and column of each state
    names: dict[str, int]

    def picture(self, of_states: np.ndarray) -> np.ndarray:
        """Numbers of states laid out as the maze, NaN elsewhere."""
        image = np.full((len(self.rows), len(self.rows[0])), np.nan)
        image[tuple(self.cells.T)] = of_states
        return image


def maze(rows: Sequence[str]) -> TextMaze:
    """A maze from text: `#` is a wall, `.` a cell, `T` a teleporter, capital letters its exits, others name a cell.

    The four actions are up, down, left and right. The teleporter itself is no state: nobody stays there.
    """
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise ProcessError("the rows of a maze must be equally long.")
    symbols = np.array([list(row) for row in rows])
    letters = {symbol for symbol in symbols.flat if symbol not in "#.T"}
    if any((symbols == letter).sum() > 1 for letter in letters):
        raise ProcessError("each letter of a maze but T may name one cell only.")
    here = (symbols != "#") & (symbols != "T")
    captured = symbols == "T"
    landing = [(int(i), int(j)) for i, j in np.argwhere(here & np.char.isupper(symbols))]
    if captured.any() != bool(landing):
        raise ProcessError("a maze needs both teleporters (T) and their exits (capital letters), or neither.")
    cells = np.argwhere(here)
    names = {str(symbols[tuple(cell)]): state for state, cell in enumerate(cells) if symbols[tuple(cell)] in letters}
    return TextMaze(tuple(rows), lattice(here, FOUR_MOVES, captured, landing), cells, names)


# --- the point maze ---

STEP = 0.2  # how far the point agent moves along an axis in one step
RADIUS = 0.7  # of the agent: its centre stays so far from walls
CAPTURE = 1.5  # how close to an entrance the agent is teleported, in units of the teleporter's radius (1)


def point_maze_grid(maze: Maze) -> Grid:
    """The positions of the point agent's centre on a grid of spacing `STEP`: a step leads to a neighbour or nowhere."""
    return maze.lattice(STEP, RADIUS)


def point_maze_values(maze: Maze, goal: np.ndarray, gamma: float) -> np.ndarray:
    """V*(s, g) at every free point of `point_maze_grid` for one goal, NaN elsewhere."""
    grid = point_maze_grid(maze)
    captured = np.zeros_like(grid.free)
    for xy in maze.entrances:
        captured |= np.linalg.norm(grid.points - np.asarray(xy), axis=-1) <= CAPTURE
    process = lattice(grid.free, EIGHT_MOVES_AND_STAY, captured, [grid.nearest(xy) for xy in maze.exits])
    target = np.flatnonzero(grid.free).searchsorted(np.ravel_multi_index(grid.nearest(goal), grid.free.shape))
    values = np.full(grid.free.shape, np.nan)
    values[grid.free] = optimal_values(process, gamma, np.array([target]))[:, 0]
    return values

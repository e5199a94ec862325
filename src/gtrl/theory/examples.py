"""The processes that the theory is shown on: the paper's Example 1, a teleport maze, and a small one."""

import numpy as np

from gtrl.errors import ProcessError
from gtrl.theory.maze import FOUR_MOVES, TextMaze, maze
from gtrl.theory.process import Log, Process

# Example 1: s leads to A or to B, A to g, and B to g along nine more states.
TELEPORTER = {"s": 0, "A": 1, "B": 2, "g": 12}


def teleporter() -> Process:
    """Example 1. There is one action; the goal is not left."""
    p = np.zeros((13, 1, 13))
    p[0, 0, [1, 2]] = 0.5
    p[1, 0, 12] = p[12, 0, 12] = 1
    p[np.arange(2, 12), 0, np.arange(3, 13)] = 1
    return Process.from_dense(p)


def teleporter_log(lucky: int = 1, unlucky: int = 1) -> Log:
    """Trajectories from s to g, so many by A and so many by B."""
    by_a, by_b = [0, 1, 12], [0, *range(2, 13)]
    return Log.of([(path, [0] * len(path)) for path in [by_a] * lucky + [by_b] * unlucky])


# Beside x is a teleporter: to A, right above the goal, or to B, at the far end of a long corridor.
TELEPORT_MAZE = (
    "#############",
    "#...........#",
    "#.#########.#",
    "#.#B......#.#",
    "#.#######.#.#",
    "#sxT#.....#A#",
    "#.###.#####g#",
    "#...........#",
    "#############",
)
# Where its walker means to go.
ARROWS = (
    "#############",
    "#>>>>>>>>>>v#",
    "#^#########v#",
    "#^#>>>>>>v#v#",
    "#^#######v#v#",
    "#>>T#v<<<<#v#",
    "#^###v#####v#",
    "#^<<<<<<<<<<#",
    "#############",
)
SMALL_MAZE = (
    "#######",
    "#sT#Ag#",
    "#.###.#",
    "#B....#",
    "#######",
)


def teleport_maze() -> TextMaze:
    return maze(TELEPORT_MAZE)


def small_maze() -> TextMaze:
    return maze(SMALL_MAZE)


def walker(where: TextMaze, arrows: tuple[str, ...], means_it: float) -> np.ndarray:
    """The behaviour (S, A) that follows the arrows with probability `means_it`, and else any of the four moves."""
    beta = np.full((len(where.cells), len(FOUR_MOVES)), (1 - means_it) / len(FOUR_MOVES))
    for state, (row, column) in enumerate(where.cells):
        beta[state, "^v<>".index(arrows[row][column])] += means_it
    return beta


def magnified(rows: tuple[str, ...], factor: int) -> tuple[str, ...]:
    """A maze with every cell as a square of `factor` x `factor`; letters name the square's upper left cell."""
    if factor < 1:
        raise ProcessError(f"a maze can be magnified 1 time or more, not {factor}.")
    wide = [[symbol for symbol in row for _ in range(factor)] for row in rows for _ in range(factor)]
    for i, row in enumerate(wide):
        for j, symbol in enumerate(row):
            if symbol not in "#.T" and (i % factor or j % factor):
                row[j] = "."
    return tuple("".join(row) for row in wide)

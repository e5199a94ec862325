"""The example processes: the paper's Example 1, a teleport maze, and a small maze."""

import numpy as np

from gtrl.errors import ProcessError
from gtrl.theory.maze import FOUR_MOVES, TextMaze
from gtrl.theory.maze import maze as maze_from_text
from gtrl.theory.process import Log, Process

# The named states of Example 1: s leads to A or to B, A to g, and B to g through nine more states.
TELEPORTER = {"s": 0, "A": 1, "B": 2, "g": 12}


def teleporter() -> Process:
    """Returns the process of Example 1. It has one action; the goal is absorbing."""
    p = np.zeros((13, 1, 13))
    p[0, 0, [1, 2]] = 0.5
    p[1, 0, 12] = p[12, 0, 12] = 1
    p[np.arange(2, 12), 0, np.arange(3, 13)] = 1
    return Process.from_dense(p)


def teleporter_log(lucky: int = 1, unlucky: int = 1) -> Log:
    """Returns a log of Example 1 with `lucky` trajectories from s to g through A and `unlucky` ones through B."""
    by_a, by_b = [0, 1, 12], [0, *range(2, 13)]
    return Log.of([(path, [0] * len(path)) for path in [by_a] * lucky + [by_b] * unlucky])


# The teleporter next to x leads to A, directly above the goal, or to B, at the far end of a long corridor.
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
# The directions that the behaviour policy of the teleport maze prefers.
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
    """Returns the maze of the theory page's pictures: 47 cells, with a teleporter to A or B."""
    return maze_from_text(TELEPORT_MAZE)


def small_maze() -> TextMaze:
    """Returns a teleport maze of ten cells, small enough to enumerate all draws of the model."""
    return maze_from_text(SMALL_MAZE)


def arrow_behaviour(maze: TextMaze, arrows: tuple[str, ...], probability: float) -> np.ndarray:
    """Returns the behaviour policy (S, A) that follows the arrows with this probability, else moves at random."""
    beta = np.full((len(maze.cells), len(FOUR_MOVES)), (1 - probability) / len(FOUR_MOVES))
    for state, (row, column) in enumerate(maze.cells):
        beta[state, "^v<>".index(arrows[row][column])] += probability
    return beta


def magnified(rows: tuple[str, ...], factor: int) -> tuple[str, ...]:
    """Returns a maze with every cell replaced by `factor` x `factor` cells; letters name the upper left one."""
    if factor < 1:
        raise ProcessError(f"the factor of a magnified maze must be at least 1, not {factor}.")
    wide = [[symbol for symbol in row for _ in range(factor)] for row in rows for _ in range(factor)]
    for i, row in enumerate(wide):
        for j, symbol in enumerate(row):
            if symbol not in "#.T" and (i % factor or j % factor):
                row[j] = "."
    return tuple("".join(row) for row in wide)

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


# --- chains, whose last state is the goal and absorbing; for docs/beyond.md ---

SURE, GAMBLE = 0, 1  # the actions in the first state of `gamble`
SURE_STEPS, LUCKY_STEPS, UNLUCKY_STEPS, SHARED_STEPS = 17, 2, 10, 12


def corridor(states: int) -> Process:
    """Returns a process that moves one state ahead in each step, with certainty."""
    return _chain([{k + 1: 1.0} for k in range(states - 1)])


def slip_chain(states: int = 13, slip: float = 0.5) -> Process:
    """Returns a chain in which a step fails with this probability."""
    return _chain([{k: slip, k + 1: 1 - slip} for k in range(states - 1)])


def delay_chain(stages: int = 4, delay: int = 5) -> Process:
    """Returns a chain of stages, each of which takes one step or, half of the time, `delay` steps more."""
    rows = []
    for stage in range(stages):
        first = stage * (delay + 1)
        rows.append({first + 1: 0.5, first + delay + 1: 0.5})
        rows += [{first + k + 1: 1.0} for k in range(1, delay + 1)]
    return _chain(rows)


def gamble() -> Process:
    """Returns a process with one choice, in its first state.

    The sure action takes 17 steps to the goal. The other one takes 2 or 10 steps, each half of the time, to a state
    from which it is 12 more.
    """
    lucky = SURE_STEPS  # the first state after luck; those of the sure way have smaller numbers
    unlucky = lucky + LUCKY_STEPS - 1
    merged = unlucky + UNLUCKY_STEPS - 1
    goal = merged + SHARED_STEPS
    p = np.zeros((goal + 1, 2, goal + 1))
    p[np.arange(goal), :, np.arange(1, goal + 1)] = 1
    for here, there in ((lucky - 1, goal), (unlucky - 1, merged), (goal, goal)):  # ends of the three ways
        p[here] = 0
        p[here, :, there] = 1
    p[0, GAMBLE] = 0
    p[0, GAMBLE, [lucky, unlucky]] = 0.5
    return Process.from_dense(p)


def _chain(rows: list[dict[int, float]]) -> Process:
    """Returns a process with one action from the probabilities of the next states; the last state is absorbing."""
    p = np.zeros((len(rows) + 1, 1, len(rows) + 1))
    for state, row in enumerate([*rows, {len(rows): 1.0}]):
        for following, chance in row.items():
            p[state, 0, following] = chance
    return Process.from_dense(p)


# --- mazes ---

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

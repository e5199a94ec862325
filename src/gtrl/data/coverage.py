"""Where a task's data goes: how much of the maze, the table or the puzzle it has seen, and which exits it took."""

import numpy as np

from gtrl.data.checks import Arrays, Fact
from gtrl.data.task_goals import task_goals
from gtrl.envs.maze import Maze
from gtrl.envs.ogbench import CUBE_COUNTS, DRAWER_GOAL_SCALE, GOAL_CENTRE, GOAL_SCALE, WINDOW_GOAL_SCALE
from gtrl.tasks import OGBenchTask

STRAY = 0.01  # the share of rows that may lie outside where goals can be: simulators have their moments
BIN = 0.05  # metres: the table is looked at in squares of this size
# Where cubes are put (x and y), and how far they may get: OGBench resets a cube that is farther out.
TABLE = np.array([[0.3, -0.3], [0.55, 0.3]])
REACH = np.array([[0.05, -0.55, -0.18], [0.8, 0.55, 0.55]])
DRAWER, WINDOW = (-0.16, 0.0), (0.0, 0.2)
SLACK = 0.02  # metres that drawer and window give


def exits_taken(arrays: Arrays, maze: Maze) -> np.ndarray:
    """(entrances, exits): how often each exit followed each entrance.

    On the row after a teleport `observations` still shows the entrance while `qpos` shows the exit; everywhere
    else their positions agree.
    """
    observed, actual = arrays["observations"][:, :2], arrays["qpos"][:, :2]
    moved = np.abs(observed - actual).max(1) > 1e-3
    nearest = lambda xy, places: np.linalg.norm(xy[:, None] - places, axis=-1).argmin(1)  # noqa: E731
    counts = np.zeros((len(maze.entrances), len(maze.exits)), int)
    np.add.at(counts, (nearest(observed[moved], maze.entrances), nearest(actual[moved], maze.exits)), 1)
    return counts


def coverage(arrays: Arrays, task: OGBenchTask, maze: Maze | None) -> list[Fact]:
    """How much of what can be seen the data has seen, and whether its goals lie where goals can be."""
    goals = task_goals(arrays, task).astype(np.float64)
    facts = [
        Fact("numbers in a goal", f"{goals.shape[1]}", f"{task.goal_dim}", goals.shape[1] == task.goal_dim),
        Fact("goals", _told(goals.min(0), goals.max(0)), _told(*goal_bounds(task, maze))),
    ]
    if maze is not None:
        what = "cells the ball was in" if maze.mover == "ball" else "cells visited"
        return [*facts, *_maze_facts(goals, maze, what)]
    cubes = CUBE_COUNTS.get(task.name, 0)
    for cube in range(cubes):
        facts += _cube_facts(goals[:, 3 * cube : 3 * cube + 3] / GOAL_SCALE + GOAL_CENTRE, f"cube {cube + 1}: ")
    if task.family == "scene":
        facts += _travel("drawer", goals[:, -2] / DRAWER_GOAL_SCALE, DRAWER)
        facts += _travel("window", goals[:, -1] / WINDOW_GOAL_SCALE, WINDOW)
    if "button_states" in arrays:
        facts += _button_facts(arrays["button_states"], arrays["terminals"])
    return facts


def goal_bounds(task: OGBenchTask, maze: Maze | None) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest goal of a task, number by number, in the goal's own form."""
    if maze is not None:
        return maze.bounds
    if task.family == "puzzle":
        return np.zeros(task.goal_dim), np.ones(task.goal_dim)
    low, high = (np.tile((bound - GOAL_CENTRE) * GOAL_SCALE, CUBE_COUNTS[task.name]) for bound in REACH)
    if task.family == "scene":
        ends = [np.array(end) * (DRAWER_GOAL_SCALE, WINDOW_GOAL_SCALE) for end in zip(DRAWER, WINDOW, strict=True)]
        buttons = task.goal_dim - len(low) - 2
        low, high = np.r_[low, np.zeros(buttons), ends[0]], np.r_[high, np.ones(buttons), ends[1]]
    return low, high


def _told(low: np.ndarray, high: np.ndarray) -> str:
    """A range, one number for all dimensions where they agree."""
    if (low == low[0]).all() and (high == high[0]).all():
        return f"{low[0]:.3g} to {high[0]:.3g}"
    return " to ".join(f"({', '.join(f'{number:.3g}' for number in end)})" for end in (low, high))


def _inside(what: str, share: float, where: str) -> Fact:
    return Fact(what, f"{share:.2%} of the rows", where, share >= 1 - STRAY)


def _maze_facts(goals: np.ndarray, maze: Maze, what: str) -> list[Fact]:
    rows = np.zeros(maze.free.shape, int)
    np.add.at(rows, tuple(maze.cells_at(goals).T), 1)
    seen = rows[maze.free]
    fewest = f"; {seen.min():,} to {seen.max():,} rows each, {np.median(seen):,.0f} in the middle"
    return [
        _inside("goals inside the maze", seen.sum() / rows.sum(), "free cells"),
        Fact(what, f"{np.count_nonzero(seen)}{fewest}", f"{len(seen)}"),
    ]


def _cube_facts(xyz: np.ndarray, which: str) -> list[Fact]:
    low, high = TABLE
    shape = np.round((high - low) / BIN).astype(int)
    bins = np.floor((xyz[:, :2] - low) / BIN).astype(int)
    on_table = ((bins >= 0) & (bins < shape)).all(1)
    seen = len(np.unique(bins[on_table], axis=0))
    within = ((xyz >= REACH[0]) & (xyz <= REACH[1])).all(1).mean()
    return [
        _inside(f"{which}within reach", within, "the arm's workspace and 0.2 m around it"),
        Fact(f"{which}squares of {BIN:g} m it was in", f"{seen}", f"{shape.prod()}"),
        Fact(f"{which}off the table", f"{(xyz[:, 2] > 0.04).mean():.1%} of the rows"),
    ]


def _travel(what: str, position: np.ndarray, limits: tuple[float, float]) -> list[Fact]:
    low, high = limits
    within = ((position >= low - SLACK) & (position <= high + SLACK)).mean()
    return [
        _inside(f"{what} within its rails", within, f"{low:g} to {high:g} m"),
        Fact(f"{what} moved over", f"{position.min():.3f} to {position.max():.3f} m", f"{low:g} to {high:g} m"),
    ]


def _button_facts(states: np.ndarray, terminals: np.ndarray) -> list[Fact]:
    binary = np.isin(states, (0, 1)).all(1).mean()
    same_episode = ~terminals[:-1].astype(bool)
    flips = (np.diff(states, axis=0) != 0)[same_episode].sum(0)
    return [
        _inside("button states 0 or 1", binary, "all"),
        Fact("combinations of buttons seen", f"{len(np.unique(states, axis=0)):,}", f"{2 ** states.shape[1]:,}"),
        Fact("times a button changed", f"{flips.min():,} to {flips.max():,}"),
    ]

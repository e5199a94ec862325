"""Coverage of a dataset: which part of the maze, the table or the puzzle it visits, and which teleporter exits."""

import numpy as np

from gtrl.data.checks import Arrays, Fact
from gtrl.data.task_goals import task_goals
from gtrl.envs.maze import Maze
from gtrl.envs.ogbench import CUBE_COUNTS, DRAWER_GOAL_SCALE, GOAL_CENTRE, GOAL_SCALE, WINDOW_GOAL_SCALE
from gtrl.tasks import OGBenchTask

MAX_OUTSIDE_FRACTION = 0.01  # of rows whose goal may be out of bounds: simulation errors can move objects away
SQUARE_SIDE_METRES = 0.05  # of the squares in which coverage of the table is counted
# Minimum and maximum, in metres: xy of cube targets; xyz that cubes can have, since OGBench resets a cube farther away.
TABLE_BOUNDS = np.array([[0.3, -0.3], [0.55, 0.3]])
CUBE_BOUNDS = np.array([[0.05, -0.55, -0.18], [0.8, 0.55, 0.55]])
LIFTED_METRES = 0.04  # height above which a cube counts as off the table
DRAWER_RANGE, WINDOW_RANGE = (-0.16, 0.0), (0.0, 0.2)  # of their positions, in metres
SLIDE_TOLERANCE_METRES = 0.02  # by which drawer and window may exceed their range
TELEPORT_TOLERANCE = 1e-3  # between observed and actual position; a teleport differs by more


def exits_taken(arrays: Arrays, maze: Maze) -> np.ndarray:
    """Returns how often each exit followed each entrance, (entrances, exits).

    On the row after a teleport, `observations` has the position at the entrance and `qpos` that at the exit. On all
    other rows they agree.
    """
    observed, actual = arrays["observations"][:, :2], arrays["qpos"][:, :2]
    moved = np.abs(observed - actual).max(1) > TELEPORT_TOLERANCE
    counts = np.zeros((len(maze.entrances), len(maze.exits)), int)
    np.add.at(counts, (_nearest(observed[moved], maze.entrances), _nearest(actual[moved], maze.exits)), 1)
    return counts


def _nearest(xy: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns the index of the place nearest to each position."""
    return np.linalg.norm(xy[:, None] - places, axis=-1).argmin(1)


def coverage(arrays: Arrays, task: OGBenchTask, maze: Maze | None) -> list[Fact]:
    """Returns how much of the maze, table or puzzle the data covers, and whether its goals are within bounds."""
    goals = task_goals(arrays, task).astype(np.float64)
    facts = [
        Fact("dimensions of goals", f"{goals.shape[1]}", f"{task.goal_dim}", goals.shape[1] == task.goal_dim),
        Fact("goals", _format_range(goals.min(0), goals.max(0)), _format_range(*goal_bounds(task, maze))),
    ]
    if maze is not None:
        what = "cells visited by the ball" if maze.mover == "ball" else "cells visited"
        return [*facts, *_maze_facts(goals, maze, what)]
    cubes = CUBE_COUNTS.get(task.name, 0)
    for cube in range(cubes):
        facts += _cube_facts(goals[:, 3 * cube : 3 * cube + 3] / GOAL_SCALE + GOAL_CENTRE, f"cube {cube + 1}: ")
    if task.family == "scene":
        facts += _slide_facts("drawer", goals[:, -2] / DRAWER_GOAL_SCALE, DRAWER_RANGE)
        facts += _slide_facts("window", goals[:, -1] / WINDOW_GOAL_SCALE, WINDOW_RANGE)
    if "button_states" in arrays:
        facts += _button_facts(arrays["button_states"], arrays["terminals"])
    return facts


def goal_bounds(task: OGBenchTask, maze: Maze | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the minimum and maximum goal of a task in each dimension."""
    if maze is not None:
        return maze.bounds
    if task.family == "puzzle":
        return np.zeros(task.goal_dim), np.ones(task.goal_dim)
    low, high = (np.tile((bound - GOAL_CENTRE) * GOAL_SCALE, CUBE_COUNTS[task.name]) for bound in CUBE_BOUNDS)
    if task.family == "scene":
        ends = [
            np.array(end) * (DRAWER_GOAL_SCALE, WINDOW_GOAL_SCALE)
            for end in zip(DRAWER_RANGE, WINDOW_RANGE, strict=True)
        ]
        buttons = task.goal_dim - len(low) - 2
        low, high = np.r_[low, np.zeros(buttons), ends[0]], np.r_[high, np.ones(buttons), ends[1]]
    return low, high


def _format_range(low: np.ndarray, high: np.ndarray) -> str:
    """Formats a range; as two numbers if all dimensions have the same range."""
    if (low == low[0]).all() and (high == high[0]).all():
        return f"{low[0]:.3g} to {high[0]:.3g}"
    return " to ".join(f"({', '.join(f'{number:.3g}' for number in end)})" for end in (low, high))


def _within_bounds(what: str, fraction: float, bounds: str) -> Fact:
    """Reports the fraction of rows within bounds, and whether it is high enough."""
    return Fact(what, f"{fraction:.2%} of the rows", bounds, fraction >= 1 - MAX_OUTSIDE_FRACTION)


def _maze_facts(goals: np.ndarray, maze: Maze, what: str) -> list[Fact]:
    rows = np.zeros(maze.free.shape, int)
    np.add.at(rows, tuple(maze.cells_at(goals).T), 1)
    seen = rows[maze.free]
    rows_per_cell = f"; {seen.min():,} to {seen.max():,} rows each, median {np.median(seen):,.0f}"
    return [
        _within_bounds("goals inside the maze", seen.sum() / rows.sum(), "free cells"),
        Fact(what, f"{np.count_nonzero(seen)}{rows_per_cell}", f"{len(seen)}"),
    ]


def _cube_facts(xyz: np.ndarray, which: str) -> list[Fact]:
    low, high = TABLE_BOUNDS
    shape = np.round((high - low) / SQUARE_SIDE_METRES).astype(int)
    squares = np.floor((xyz[:, :2] - low) / SQUARE_SIDE_METRES).astype(int)
    on_table = ((squares >= 0) & (squares < shape)).all(1)
    visited = len(np.unique(squares[on_table], axis=0))
    within = ((xyz >= CUBE_BOUNDS[0]) & (xyz <= CUBE_BOUNDS[1])).all(1).mean()
    return [
        _within_bounds(f"{which}within reach", within, "the arm's workspace and 0.2 m around it"),
        Fact(f"{which}squares of {SQUARE_SIDE_METRES:g} m visited", f"{visited}", f"{shape.prod()}"),
        Fact(f"{which}off the table", f"{(xyz[:, 2] > LIFTED_METRES).mean():.1%} of the rows"),
    ]


def _slide_facts(what: str, position: np.ndarray, limits: tuple[float, float]) -> list[Fact]:
    low, high = limits
    tolerance = SLIDE_TOLERANCE_METRES
    within = ((position >= low - tolerance) & (position <= high + tolerance)).mean()
    return [
        _within_bounds(f"{what} within its range", within, f"{low:g} to {high:g} m"),
        Fact(f"{what} positions", f"{position.min():.3f} to {position.max():.3f} m", f"{low:g} to {high:g} m"),
    ]


def _button_facts(states: np.ndarray, terminals: np.ndarray) -> list[Fact]:
    binary = np.isin(states, (0, 1)).all(1).mean()
    same_episode = ~terminals[:-1].astype(bool)
    flips = (np.diff(states, axis=0) != 0)[same_episode].sum(0)
    return [
        _within_bounds("button states 0 or 1", binary, "all"),
        Fact("combinations of buttons seen", f"{len(np.unique(states, axis=0)):,}", f"{2 ** states.shape[1]:,}"),
        Fact("state changes per button", f"{flips.min():,} to {flips.max():,}"),
    ]

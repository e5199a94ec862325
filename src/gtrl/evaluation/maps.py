"""`maps.npz`: values between all places of a maze, the policy's directions and recorded paths, for interactive maps."""

from typing import Any

import numpy as np

from gtrl.envs.maze import Maze
from gtrl.errors import RunError
from gtrl.evaluation.trained import TrainedNets
from gtrl.evaluation.values import states_at
from gtrl.io.npz import read_npz, write_npz
from gtrl.runs.run import MAPS, Run

POINTS_PER_CELL = 5  # squares along each axis of a cell; odd, so that one is at the centre
ARROWS_PER_CELL = 2  # arrows along each axis of a cell
MAX_PATH_POINTS = 150  # of a recorded path
ROLLOUTS = "rollouts.npz"
Arrays = dict[str, np.ndarray]


def write_maps(run: Run, trained: TrainedNets, env: Any, maze: Maze, paths: Arrays) -> None:
    """Writes `maps.npz` for a maze whose goals are positions of the agent, and a method with a value function.

    Goals are the centres of all cells. State components other than the position are those after a reset. `paths` are
    those of `recorded_paths`.
    """
    goals = maze.xy(maze.cells).astype(np.float32)
    grid = maze.grid(POINTS_PER_CELL)
    points = grid.points[grid.free].astype(np.float32)
    states = states_at(env, points)
    seeds = range(len(run.seeds))
    values = np.stack([np.stack([trained.values(seed, *to_goal(states, goal)) for goal in goals]) for seed in seeds])
    arrays = {
        "step": np.asarray(trained.step),
        "seeds": np.asarray(run.seeds),
        **maze.arrays,
        "points": points,
        "point_size": np.asarray(maze.unit / POINTS_PER_CELL),
        "goal_points": goals,
        "values": encode_values(values),
        **_arrows(run, trained, env, maze, goals),
        **paths,
    }
    write_npz(run.path / MAPS, arrays)


def to_goal(states: np.ndarray, goal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the states, and the goal repeated for each of them."""
    return states, np.repeat(goal[None], len(states), 0)


def encode_values(values: np.ndarray) -> np.ndarray:
    """Returns round(255 sqrt(V)) as uint8. The root leaves more levels for the small values of distant states."""
    return np.rint(255 * np.sqrt(np.clip(values, 0, 1))).astype(np.uint8)


def decode_values(encoded: np.ndarray) -> np.ndarray:
    """Returns the values that `encode_values` has stored, to within 1/255."""
    return (encoded / 255) ** 2


def _arrows(run: Run, trained: TrainedNets, env: Any, maze: Maze, goals: np.ndarray) -> Arrays:
    """The policy's mean actions; only for point mazes, whose action is a direction."""
    sizes = run.config["data"]
    if (sizes["observation_dim"], sizes["action_dim"]) != (2, 2):
        nothing = np.zeros((len(run.seeds), len(goals), 0, 2), np.int8)
        return {"arrow_points": np.zeros((0, 2), np.float32), "arrows": nothing}
    grid = maze.grid(ARROWS_PER_CELL)
    points = grid.points[grid.free].astype(np.float32)
    states = states_at(env, points)
    actions = [[trained.actions(seed, *to_goal(states, goal)) for goal in goals] for seed in range(len(run.seeds))]
    return {"arrow_points": points, "arrows": np.rint(127 * np.asarray(actions)).astype(np.int8)}


def recorded_paths(run: Run, step: int) -> Arrays:
    """Returns the paths of `rollouts.npz`, thinned; none if there is no such file, or it is of another step.

    Raises `RunError` if the file is damaged.
    """
    path = run.path / ROLLOUTS
    if not path.exists():
        return thinned_paths(None)
    arrays = read_npz(path, RunError)
    try:
        _check_rollouts(arrays)
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); write it again with gtrl evaluate.") from error
    return thinned_paths(arrays if int(arrays["step"]) == step else None)


def _check_rollouts(arrays: Arrays) -> None:
    """Raises `ValueError` if arrays are missing or do not fit each other."""
    # The number of axes, the length of the last one, and the kinds of NumPy's types.
    expected = {"step": (0, (), "iu"), "positions": (2, (2,), "iuf"), "index": (2, (6,), "iu")}
    for name, (axes, last, kinds) in expected.items():
        if name not in arrays:
            raise ValueError(f"it has no array '{name}'")
        array = arrays[name]
        if array.ndim != axes or array.shape[1:] != last or array.dtype.kind not in kinds:
            raise ValueError(f"its array '{name}' has the shape {array.shape} and the type {array.dtype}")
    if not (np.abs(arrays["positions"]) <= np.finfo(np.float16).max).all():
        raise ValueError("it has positions that are not finite or too large")
    count = len(arrays["positions"])
    if any(first < 0 or rows < 1 or first + rows > count for *_, first, rows in arrays["index"].tolist()):
        raise ValueError("its index points outside the positions")


def thinned_paths(rollouts: Arrays | None) -> Arrays:
    """Returns the recorded paths with at most `MAX_PATH_POINTS` points each, the first and the last included."""
    paths, index, first = [np.zeros((0, 2), np.float16)], [], 0
    for seed, goal, episode, success, start, rows in rollouts["index"].tolist() if rollouts else ():
        kept = np.unique(np.linspace(0, rows - 1, min(rows, MAX_PATH_POINTS)).round().astype(int))
        paths.append(rollouts["positions"][start + kept].astype(np.float16) if rollouts else paths[0])
        index.append((seed, goal, episode, success, first, len(kept)))
        first += len(kept)
    return {"paths": np.concatenate(paths), "path_index": np.array(index, np.int64).reshape(-1, 6)}

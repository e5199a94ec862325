"""Value maps of a maze: V(s, g) of a trained critic over the free cells, for each evaluation goal."""

from typing import Any

import numpy as np

from gtrl.environments import make_environment, teleporters
from gtrl.npz import write_npz
from gtrl.runs import Run
from gtrl.tasks import GOALS_PER_TASK, Task

POINTS_PER_CELL = 8
_ENDS = (("starts", "init"), ("goals", "goal"))


def free_points(maze_map: np.ndarray, maze_unit: float, offset: float, per_cell: int = POINTS_PER_CELL) -> np.ndarray:
    """A regular grid over all cells, (rows, columns, 2) in xy, and NaN inside walls."""
    rows, columns = maze_map.shape
    step = maze_unit / per_cell
    x = np.arange(columns * per_cell) * step - offset - maze_unit / 2 + step / 2
    y = np.arange(rows * per_cell) * step - offset - maze_unit / 2 + step / 2
    points = np.stack(np.meshgrid(x, y), -1)
    inside = np.kron(maze_map, np.ones((per_cell, per_cell))) > 0
    points[inside] = np.nan
    return points.astype(np.float32)


def maze_layout(maze: Any) -> dict[str, np.ndarray]:
    """Where a maze's evaluation episodes start and end, and its teleporters; all in xy."""
    cells = {name: [info[f"{key}_ij"] for info in maze.task_infos] for name, key in _ENDS}
    xys = {name: [maze.ij_to_xy(cell) for cell in found] for name, found in cells.items()}
    ends = {name: np.array(found, np.float32) for name, found in xys.items()}
    entrances, exits = teleporters(maze)
    return {**ends, "entrances": entrances, "exits": exits}


def write_values(run: Run, task: Task, step: int) -> None:
    """`values.npz`: points (H, W, 2), values (seeds, 5, H, W), and the maze: starts and goals (5, 2), teleporters.

    Nothing for methods without a value.
    Where a state has more than a position, the rest is that of a freshly reset agent.
    """
    import jax

    from gtrl.training.run import load_state

    algorithm, nets = load_state(run, step)
    env = make_environment(task)
    maze = env.unwrapped
    points = free_points(maze.maze_map, maze._maze_unit, maze._offset_x)
    template = np.asarray(env.reset(seed=0, options={"task_id": 1})[0], np.float32)
    layout = maze_layout(maze)
    goals = layout["goals"]
    free = ~np.isnan(points[..., 0])
    states = np.repeat(template[None], free.sum(), 0)
    states[:, :2] = points[free]
    value = jax.jit(jax.vmap(algorithm.value, (0, None, None)))
    values = np.full((len(run.seeds), GOALS_PER_TASK, *free.shape), np.nan, np.float32)
    for index, goal in enumerate(goals):
        found = value(nets, states, np.repeat(goal[None], len(states), 0))
        if found is None:
            return
        values[:, index, free] = found
    write_npz(run.path / "values.npz", {"step": step, "points": points, "values": values, **layout})

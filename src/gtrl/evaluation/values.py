"""Value maps of a maze: V(s, g) of a trained critic over the free cells, for each evaluation goal."""

import numpy as np

from gtrl.envs.make import make_environment
from gtrl.envs.maze import free_points, maze_layout
from gtrl.io.npz import write_npz
from gtrl.runs.run import Run
from gtrl.tasks import GOALS_PER_TASK, Task


def write_values(run: Run, task: Task, step: int) -> None:
    """`values.npz`: points (H, W, 2), values (seeds, 5, H, W), and the maze: starts and goals (5, 2), teleporters.

    Nothing for methods without a value.
    Where a state has more than a position, the rest is that of a freshly reset agent.
    """
    import jax

    from gtrl.runs.restore import load_state

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

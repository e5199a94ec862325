"""Value maps of mazes: V(s, g) of a trained critic on a grid of positions, for each evaluation goal."""

from typing import Any

import numpy as np

from gtrl.envs.make import make_environment
from gtrl.envs.maze import Maze
from gtrl.io.npz import write_npz
from gtrl.runs.run import Run
from gtrl.tasks import Task


def states_at(env: Any, positions: np.ndarray) -> np.ndarray:
    """Returns states of a maze with the agent at these positions, (N, 2); other components are those after a reset."""
    template = np.asarray(env.reset(seed=0, options={"task_id": 1})[0], np.float32)
    states = np.repeat(template[None], len(positions), 0)
    states[:, :2] = positions
    return states


def write_values(run: Run, task: Task, step: int) -> None:
    """Writes `values.npz`: the maze's layout, grid points (H, W, 2), NaN in walls, and values (seeds, goals, H, W).

    Writes nothing for methods without a value function and for environments that are not mazes. State components
    other than the position are those after a reset.
    """
    import jax

    from gtrl.runs.restore import load_state

    algorithm, nets = load_state(run, step)
    env = make_environment(task)
    maze = Maze.from_env(env)
    if maze is None:
        return
    grid = maze.grid()
    states, goals = states_at(env, grid.masked[grid.free]), maze.goals
    if (scaling := run.scaling) is not None:
        states, goals = scaling.observation(states), scaling.goal(goals)
    value = jax.jit(jax.vmap(algorithm.value, (0, None, None)))
    values = np.full((len(run.seeds), len(maze.goals), *grid.free.shape), np.nan, np.float32)
    for index, goal in enumerate(goals):
        goal_values = value(nets, states, np.repeat(goal[None], len(states), 0))
        if goal_values is None:
            return
        values[:, index, grid.free] = goal_values
    write_npz(run.path / "values.npz", {"step": step, "points": grid.masked, "values": values, **maze.arrays})

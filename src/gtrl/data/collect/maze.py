"""Data collection for mazes, by OGBench's protocol: a noisy policy follows shortest paths to random goals."""

from typing import Any

import numpy as np

from gtrl.data.collect.episode import Arrays, Recorder, child_seed
from gtrl.data.collect.expert import NO_EXPERTS, Experts, load_expert
from gtrl.envs.heading import HUMANOID_VECTORS, in_body_frame
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment
from gtrl.envs.maze import Cell, Maze
from gtrl.tasks import OGBenchTask

POINT_NOISE, EXPERT_NOISE = 0.5, 0.2  # standard deviation of the action noise
STITCH_DISTANCE = 4  # cells between start and goal


class MazeCollector:
    """Collects episodes of one maze task: *navigate* (a new goal after each arrival) or *stitch* (one nearby goal).

    The point agent's action is the direction to the next cell. The actions of ant and humanoid come from an expert,
    whose input is the state without the position, then the direction.
    """

    def __init__(self, task: OGBenchTask, experts: Experts = NO_EXPERTS) -> None:
        self.env = IsolatedEnv(make_environment(task))
        self.simulator: Any = self.env.env.unwrapped
        self.maze = maze_of_env(self.simulator)
        self.stitch = task.has_stitch_data
        self.expert = None if task.family == "pointmaze" else load_expert(experts.walk, task, "walk")
        self.uses_body_frame = self.expert is not None and self.expert.frame == "body"
        self.deviation = POINT_NOISE if self.expert is None else EXPERT_NOISE
        self.shape = (task.trajectory_length + 1, task.action_dim)

    def episode(self, seed: np.random.SeedSequence) -> Arrays:
        """Returns one episode, which depends only on the seed."""
        rng = np.random.default_rng(child_seed(seed, 0))
        start = random_cell(rng, self.maze.cells)
        reachable = self.maze.at_distance(start, STITCH_DISTANCE) if self.stitch else self.maze.vertices
        goal = random_cell(rng, reachable)
        observation, _ = self.env.reset(seed, {"task_info": {"init_ij": start, "goal_ij": goal}})
        record = Recorder()
        with self.env.own_random_state():
            for noise in self.deviation * rng.standard_normal(self.shape):
                action = self.direction(goal)
                if self.expert is not None:
                    action = self.expert(self.expert_input(observation, direction=action))
                action = np.clip(action + noise, -1, 1)
                following, _, _, _, info = self.simulator.step(action)
                record.add(observation, action, info, None if self.expert is None else bool(info["success"]))
                observation = following
                if info["success"] and not self.stitch:
                    goal = random_cell(rng, self.maze.vertices)
                    self.simulator.set_goal(goal_xy=self.simulator.add_noise(self.maze.xy(goal)))
        return record.arrays()

    def expert_input(self, observation: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Returns the input of the expert."""
        inputs = np.concatenate([observation[2:], direction])
        if not self.uses_body_frame:
            return inputs
        return in_body_frame(inputs[None], self.simulator.data.qpos[None, 3:7], HUMANOID_VECTORS)[0]

    def direction(self, goal: Cell) -> np.ndarray:
        """Returns the unit vector from the agent to the centre of the next cell on a shortest path to the goal."""
        xy = self.simulator.get_xy()
        next_cell = self.maze.towards(goal)[self.maze.cell_at(xy)]
        return unit_vector(self.maze.xy(next_cell) - xy)


def maze_of_env(env: Any) -> Maze:
    """Returns the layout of an environment that is known to be a maze."""
    maze = Maze.from_env(env)
    assert maze is not None, "every task of these collectors is a maze"
    return maze


def unit_vector(vector: np.ndarray) -> np.ndarray:
    """Scales a vector to length 1; a zero vector stays zero."""
    return vector / (np.linalg.norm(vector) + 1e-6)


def random_cell(rng: np.random.Generator, cells: list[Cell]) -> Cell:
    """Draws one of the cells uniformly."""
    return cells[int(rng.integers(len(cells)))]

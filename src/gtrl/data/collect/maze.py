"""Data for the point mazes, by OGBench's protocol: a noisy walker that follows shortest paths to random goals."""

from collections import deque
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from gtrl.environments import Isolated, make_environment
from gtrl.tasks import Task

NOISE = 0.5  # standard deviation of the action noise of the point agent
STITCH_DISTANCE = 4  # cells between start and goal
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1))  # in the order in which OGBench's own oracle breaks ties
Cell = tuple[int, int]


class Episode(NamedTuple):
    """The rows of one episode, as OGBench logs them: what `step` returned and the state before the step."""

    observations: np.ndarray
    actions: np.ndarray
    terminals: np.ndarray
    qpos: np.ndarray
    qvel: np.ndarray


class MazeMap:
    """The maze as a graph of cells. Shortest paths are searched once per goal, not once per step."""

    def __init__(self, walls: np.ndarray) -> None:
        self.free = walls == 0
        self._towards: dict[Cell, np.ndarray] = {}

    @cached_property
    def cells(self) -> list[Cell]:
        return [(int(i), int(j)) for i, j in np.argwhere(self.free)]

    @cached_property
    def vertices(self) -> list[Cell]:
        """Free cells that are not the middle of a straight corridor."""

        def straight(cell: Cell) -> bool:
            up, left, down, right = (self.free[cell[0] + di, cell[1] + dj] for di, dj in NEIGHBOURS)
            return (up and down and not left and not right) or (left and right and not up and not down)

        return [cell for cell in self.cells if not straight(cell)]

    def neighbours(self, cell: Cell) -> list[Cell]:
        around = [(cell[0] + di, cell[1] + dj) for di, dj in NEIGHBOURS]
        return [other for other in around if self.free[other]]

    def distances(self, goal: Cell) -> np.ndarray:
        """Breadth-first distance of every cell to the goal; -1 where there is no way (and in walls)."""
        distance = np.full(self.free.shape, -1)
        distance[goal] = 0
        queue = deque([goal])
        while queue:
            cell = queue.popleft()
            for other in self.neighbours(cell):
                if distance[other] < 0:
                    distance[other] = distance[cell] + 1
                    queue.append(other)
        return distance

    def towards(self, goal: Cell) -> np.ndarray:
        """For every cell, the next one on a shortest path to the goal; the cell itself where there is none."""
        if goal not in self._towards:
            distance = self.distances(goal)
            table = np.stack(np.indices(self.free.shape), -1)
            for cell in self.cells:
                best = min([cell, *self.neighbours(cell)], key=lambda other: distance[other])
                table[cell] = best
            self._towards[goal] = table
        return self._towards[goal]

    def at_distance(self, start: Cell, distance: int) -> list[Cell]:
        """The cells exactly that far from `start`; `start` itself where there are none."""
        return [(int(i), int(j)) for i, j in np.argwhere(self.distances(start) == distance)] or [start]


class MazeCollector:
    """Collects episodes of one point-maze task: *navigate* (a new goal after each arrival) or *stitch* (stay)."""

    def __init__(self, task: Task) -> None:
        self.env = Isolated(make_environment(task))
        self.maze: Any = self.env.env.unwrapped
        self.map = MazeMap(self.maze.maze_map)
        self.stitch = task.name.endswith("stitch")
        self.rows = task.trajectory_length + 1

    def episode(self, seed: np.random.SeedSequence) -> Episode:
        """One episode; the seed alone decides it."""
        choices = np.random.default_rng(seed.spawn(1)[0])
        start = pick(choices, self.map.cells)
        reachable = self.map.at_distance(start, STITCH_DISTANCE) if self.stitch else self.map.vertices
        goal = pick(choices, reachable)
        observation, _ = self.env.reset(seed, {"task_info": {"init_ij": start, "goal_ij": goal}})
        noise = NOISE * choices.standard_normal((self.rows, 2))
        observations, actions, qpos, qvel = [], [], [], []
        with self.env.own_randomness():
            for row in range(self.rows):
                action = np.clip(self.direction(goal) + noise[row], -1, 1)
                following, _, _, _, info = self.maze.step(action)
                observations.append(observation)
                actions.append(action)
                qpos.append(info["prev_qpos"])
                qvel.append(info["prev_qvel"])
                observation = following
                if info["success"] and not self.stitch:
                    goal = pick(choices, self.map.vertices)
                    self.maze.set_goal(goal_xy=self.maze.add_noise(self.maze.ij_to_xy(goal)))
        floats = (np.asarray(values, np.float32) for values in (observations, actions, qpos, qvel))
        observed, acted, positions, velocities = floats
        return Episode(observed, acted, np.arange(self.rows) == self.rows - 1, positions, velocities)

    def direction(self, goal: Cell) -> np.ndarray:
        """The unit vector from the agent to the centre of the next cell on the way."""
        xy = self.maze.get_xy()
        next_cell = self.map.towards(goal)[self.maze.xy_to_ij(xy)]
        away = np.asarray(self.maze.ij_to_xy(next_cell)) - xy
        return away / (np.linalg.norm(away) + 1e-6)


def pick(choices: np.random.Generator, cells: list[Cell]) -> Cell:
    return cells[int(choices.integers(len(cells)))]

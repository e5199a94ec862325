"""Data for mazes, by OGBench's protocol: a noisy walker that follows shortest paths to random goals."""

from collections import deque
from functools import cached_property
from typing import Any

import numpy as np

from gtrl.data.collect.episode import Arrays, Recorder, child_seed
from gtrl.data.collect.expert import NO_EXPERTS, Experts, load_expert
from gtrl.environments import Isolated, make_environment
from gtrl.tasks import Task

POINT_NOISE, EXPERT_NOISE = 0.5, 0.2  # standard deviation of the action noise
STITCH_DISTANCE = 4  # cells between start and goal
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1))  # in the order in which OGBench's own oracle breaks ties
Cell = tuple[int, int]


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
    """Collects episodes of one maze task: *navigate* (a new goal after each arrival) or *stitch* (stay).

    The point agent's action is the direction to the next cell; ant and humanoid are driven by an expert that
    is told the state without its position, then the direction.
    """

    def __init__(self, task: Task, experts: Experts = NO_EXPERTS) -> None:
        self.env = Isolated(make_environment(task))
        self.maze: Any = self.env.env.unwrapped
        self.map = MazeMap(self.maze.maze_map)
        self.stitch = task.name.endswith("stitch")
        self.expert = None if task.family == "pointmaze" else load_expert(experts.walk, task, "walk")
        self.deviation = POINT_NOISE if self.expert is None else EXPERT_NOISE
        self.shape = (task.trajectory_length + 1, task.action_dim)

    def episode(self, seed: np.random.SeedSequence) -> Arrays:
        """One episode; the seed alone decides it."""
        choices = np.random.default_rng(child_seed(seed, 0))
        start = pick(choices, self.map.cells)
        reachable = self.map.at_distance(start, STITCH_DISTANCE) if self.stitch else self.map.vertices
        goal = pick(choices, reachable)
        observation, _ = self.env.reset(seed, {"task_info": {"init_ij": start, "goal_ij": goal}})
        record = Recorder()
        with self.env.own_randomness():
            for noise in self.deviation * choices.standard_normal(self.shape):
                action = self.direction(goal)
                if self.expert is not None:
                    action = self.expert(observation[2:], action)
                action = np.clip(action + noise, -1, 1)
                following, _, _, _, info = self.maze.step(action)
                record.add(observation, action, info)
                observation = following
                if info["success"] and not self.stitch:
                    goal = pick(choices, self.map.vertices)
                    self.maze.set_goal(goal_xy=self.maze.add_noise(self.maze.ij_to_xy(goal)))
        return record.arrays()

    def direction(self, goal: Cell) -> np.ndarray:
        """The unit vector from the agent to the centre of the next cell on the way."""
        xy = self.maze.get_xy()
        next_cell = self.map.towards(goal)[self.maze.xy_to_ij(xy)]
        return unit_vector(np.asarray(self.maze.ij_to_xy(next_cell)) - xy)


def unit_vector(away: np.ndarray) -> np.ndarray:
    return away / (np.linalg.norm(away) + 1e-6)


def pick(choices: np.random.Generator, cells: list[Cell]) -> Cell:
    return cells[int(choices.integers(len(cells)))]

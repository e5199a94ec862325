"""Mazes: cells, shortest paths, positions and teleporters."""

from collections import deque
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from gtrl.envs.make import make_environment
from gtrl.tasks import Task

NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1))  # in the order in which OGBench's own oracle breaks ties
Cell = tuple[int, int]
POINTS_PER_CELL = 8
_ENDS = (("starts", "init"), ("goals", "goal"))


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


def teleporters(maze: Any) -> tuple[np.ndarray, np.ndarray]:
    """(entrances, exits) of a maze, (n, 2) each in xy; empty where it has none."""
    info = maze._teleport_info or {}
    entrances, exits = (np.array(info.get(f"teleport_{key}_xys", []), np.float32) for key in ("in", "out"))
    return entrances.reshape(-1, 2), exits.reshape(-1, 2)


class Maze(NamedTuple):
    """A maze's plan, in cells and in xy."""

    free: np.ndarray  # (rows, columns) bool
    unit: float
    offset: float
    entrances: np.ndarray  # (n, 2) of teleporters
    exits: np.ndarray

    def cells(self, xy: np.ndarray) -> np.ndarray:
        """The cell (row, column) each position lies in; outside the map, the nearest."""
        inside = np.floor((xy[:, ::-1] + self.offset) / self.unit + 0.5).astype(int)
        return np.clip(inside, 0, np.array(self.free.shape) - 1)


def maze_of(task: Task) -> Maze | None:
    """The plan of a task's maze; None for manipulation."""
    if not (task.family.endswith("maze") or task.family == "antsoccer"):
        return None
    maze: Any = make_environment(task).unwrapped
    return Maze(maze.maze_map == 0, maze._maze_unit, maze._offset_x, *teleporters(maze))


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

"""The geometry of OGBench's mazes: cells, positions, shortest paths, teleporters, and grids of points for maps.

A cell is (row, column). Rows run along y and columns along x, so row 0 is the lowest one in a picture with y up.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from gtrl.envs.make import make_environment
from gtrl.tasks import OGBenchTask, Task

NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1))  # in the order in which OGBench's own oracle breaks ties
Cell = tuple[int, int]
Extent = tuple[float, float, float, float]  # left, right, bottom, top: what `imshow` takes with origin="lower"
POINTS_PER_CELL = 8
_MAZES = ("pointmaze", "antmaze", "humanoidmaze", "antsoccer")  # the families of OGBench's tasks that are mazes
_NOWHERE = np.zeros((0, 2), np.float32)


class Grid(NamedTuple):
    """Points at equal distances over a whole maze, and which of them are free."""

    points: np.ndarray  # (rows, columns, 2) in xy
    free: np.ndarray  # (rows, columns) bool

    @property
    def masked(self) -> np.ndarray:
        """The points as float32, NaN where they are not free."""
        return np.where(self.free[..., None], self.points, np.nan).astype(np.float32)

    @property
    def extent(self) -> Extent:
        """The bounds of an image with one pixel for each point."""
        low, high = self.points[0, 0], self.points[-1, -1]
        half = (high - low) / (np.array(self.free.shape[::-1]) - 1) / 2
        (left, bottom), (right, top) = (low - half).tolist(), (high + half).tolist()
        return left, right, bottom, top

    def nearest(self, xy: np.ndarray) -> Cell:
        """The indices of the free point closest to a position."""
        distance = np.linalg.norm(self.points - np.asarray(xy), axis=-1)
        row, column = divmod(int(np.argmin(np.where(self.free, distance, np.inf))), self.free.shape[1])
        return row, column


@dataclass(frozen=True, eq=False)
class Maze:
    """A maze's plan. The centre of cell (i, j) is at x = j * unit - offset and y = i * unit - offset."""

    free: np.ndarray  # (rows, columns) bool
    unit: float
    offset: float
    entrances: np.ndarray = field(default_factory=_NOWHERE.copy)  # of teleporters, (n, 2) in xy as all that follows
    exits: np.ndarray = field(default_factory=_NOWHERE.copy)
    starts: np.ndarray = field(default_factory=_NOWHERE.copy)  # of the evaluation episodes, one for each goal
    goals: np.ndarray = field(default_factory=_NOWHERE.copy)
    mover: Literal["agent", "ball"] = "agent"  # whose position starts and goals are
    _towards: dict[Cell, np.ndarray] = field(default_factory=dict, init=False, repr=False)

    # --- where it comes from ---

    @classmethod
    def from_env(cls, env: Any) -> "Maze | None":
        """The plan of an environment of OGBench's maze classes; None for any other."""
        env = env.unwrapped
        if not all(hasattr(env, name) for name in ("maze_map", "_maze_unit", "_offset_x", "task_infos")):
            return None
        teleports = getattr(env, "_teleport_info", None) or {}
        mover = "ball" if hasattr(env, "get_agent_ball_xy") else "agent"
        start = "ball_init_ij" if mover == "ball" else "init_ij"
        places = {
            "entrances": teleports.get("teleport_in_xys", []),
            "exits": teleports.get("teleport_out_xys", []),
            "starts": [env.ij_to_xy(info[start]) for info in env.task_infos],
            "goals": [env.ij_to_xy(info["goal_ij"]) for info in env.task_infos],
        }
        arrays: dict[str, Any] = {name: np.array(xys, np.float32).reshape(-1, 2) for name, xys in places.items()}
        return cls(env.maze_map == 0, env._maze_unit, env._offset_x, mover=mover, **arrays)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Maze":
        """What `arrays` wrote to a file."""
        places: dict[str, Any] = {name: arrays[name] for name in ("entrances", "exits", "starts", "goals")}
        return cls(arrays["free"], float(arrays["unit"]), float(arrays["offset"]), **places)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The plan as arrays, for a file."""
        names = ("free", "unit", "offset", "entrances", "exits", "starts", "goals")
        return {name: np.asarray(getattr(self, name)) for name in names}

    # --- cells and positions ---

    @cached_property
    def cells(self) -> list[Cell]:
        """The free cells, row by row."""
        return [(int(i), int(j)) for i, j in np.argwhere(self.free)]

    def cells_at(self, xy: np.ndarray) -> np.ndarray:
        """The cell (row, column) in which each position (..., 2) lies; outside the maze, the nearest."""
        inside = np.floor((np.asarray(xy)[..., ::-1] + self.offset + self.unit / 2) / self.unit).astype(int)
        return np.clip(inside, 0, np.array(self.free.shape) - 1)

    def cell_at(self, xy: np.ndarray) -> Cell:
        """The cell in which one position lies."""
        row, column = self.cells_at(xy).tolist()
        return row, column

    def xy(self, cells: Any) -> np.ndarray:
        """The centres (..., 2) of cells (..., 2)."""
        return np.asarray(cells)[..., ::-1] * self.unit - self.offset

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest xy of all free cells."""
        centres = self.xy(self.cells)
        return centres.min(0) - self.unit / 2, centres.max(0) + self.unit / 2

    # --- shortest paths ---

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
        """For every cell, the next one on a shortest path to the goal; the cell itself where there is none.

        Searched once for each goal, not once for each step.
        """
        if goal not in self._towards:
            distance = self.distances(goal)
            table = np.moveaxis(np.indices(self.free.shape), 0, -1).copy()
            for cell in self.cells:
                best = min([cell, *self.neighbours(cell)], key=lambda other: distance[other])
                table[cell] = best
            self._towards[goal] = table
        return self._towards[goal]

    def at_distance(self, start: Cell, distance: int) -> list[Cell]:
        """The cells exactly that far from `start`; `start` itself where there are none."""
        return [(int(i), int(j)) for i, j in np.argwhere(self.distances(start) == distance)] or [start]

    # --- grids of points ---

    def grid(self, per_cell: int = POINTS_PER_CELL) -> Grid:
        """Points that divide each cell into per_cell x per_cell squares, in their middles; free outside walls."""
        step = self.unit / per_cell
        y, x = (
            np.arange(count * per_cell) * step - self.offset - self.unit / 2 + step / 2 for count in self.free.shape
        )
        return Grid(np.stack(np.meshgrid(x, y), -1), np.kron(self.free, np.ones((per_cell, per_cell))) > 0)

    def lattice(self, step: float, radius: float) -> Grid:
        """Points `step` apart, cell centres among them; free where a disc of that radius touches no wall."""
        per_cell = round(self.unit / step)
        y, x = (np.arange((count - 1) * per_cell + 1) * step - self.offset for count in self.free.shape)
        points = np.stack(np.meshgrid(x, y), -1)
        free = np.ones(points.shape[:2], bool)
        for centre in self.xy(np.argwhere(~self.free)):
            beyond = np.maximum(np.abs(points - centre) - self.unit / 2, 0)  # the way from a point to the wall's box
            free &= np.linalg.norm(beyond, axis=-1) >= radius - 1e-9
        return Grid(points, free)

    @property
    def extent(self) -> Extent:
        """The bounds of an image of all cells."""
        low = -self.offset - self.unit / 2
        rows, columns = self.free.shape
        return low, low + columns * self.unit, low, low + rows * self.unit


@lru_cache
def maze_of(task: Task) -> Maze | None:
    """The plan of a task's maze; None where its environment is no maze, or it has none."""
    if task.environment is None or (isinstance(task, OGBenchTask) and task.family not in _MAZES):
        return None  # without building a simulator that takes a while
    return Maze.from_env(make_environment(task))

"""Geometry of OGBench's mazes: cells, positions, shortest paths, teleporters, and grids of points for value maps.

A cell is (row, column). Rows are along y and columns along x, so a plot with y pointing up shows row 0 at the bottom.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from gtrl.envs.make import make_environment
from gtrl.tasks import OGBenchTask, Task

NEIGHBOURS = (
    (-1, 0),
    (0, -1),
    (1, 0),
    (0, 1),
)  # (row, column) offsets, in the order in which OGBench's oracle breaks ties
Cell = tuple[int, int]
Extent = tuple[float, float, float, float]  # left, right, bottom, top, as for Matplotlib's `imshow`
POINTS_PER_CELL = 8  # along each axis, in grids for value maps
_MAZE_FAMILIES = ("pointmaze", "antmaze", "humanoidmaze", "antsoccer")
_NO_POSITIONS = np.zeros((0, 2), np.float32)


class Grid(NamedTuple):
    """A regular grid of points over a whole maze, and which of them are free."""

    points: np.ndarray  # (rows, columns, 2) in xy
    free: np.ndarray  # (rows, columns) bool

    @property
    def masked(self) -> np.ndarray:
        """The points as float32; NaN where they are not free."""
        return np.where(self.free[..., None], self.points, np.nan).astype(np.float32)

    @property
    def extent(self) -> Extent:
        """The bounds of an image with one pixel per point."""
        low, high = self.points[0, 0], self.points[-1, -1]
        half = (high - low) / (np.array(self.free.shape[::-1]) - 1) / 2
        (left, bottom), (right, top) = (low - half).tolist(), (high + half).tolist()
        return left, right, bottom, top

    def nearest(self, xy: np.ndarray) -> Cell:
        """Returns the (row, column) index of the free point closest to a position."""
        distance = np.linalg.norm(self.points - np.asarray(xy), axis=-1)
        row, column = divmod(int(np.argmin(np.where(self.free, distance, np.inf))), self.free.shape[1])
        return row, column


@dataclass(frozen=True, eq=False)
class Maze:
    """The layout of a maze. The centre of cell (i, j) is at x = j * unit - offset and y = i * unit - offset."""

    free: np.ndarray  # (rows, columns) bool
    unit: float  # side length of a cell
    offset: float
    entrances: np.ndarray = field(default_factory=_NO_POSITIONS.copy)  # xy of the teleporters' entrances, (n, 2)
    exits: np.ndarray = field(default_factory=_NO_POSITIONS.copy)  # xy of the teleporters' exits, (n, 2)
    starts: np.ndarray = field(default_factory=_NO_POSITIONS.copy)  # xy where evaluation episodes start, one per goal
    goals: np.ndarray = field(default_factory=_NO_POSITIONS.copy)  # xy of the evaluation goals
    mover: Literal["agent", "ball"] = "agent"  # what `starts` and `goals` are positions of
    _next_cells: dict[Cell, np.ndarray] = field(default_factory=dict, init=False, repr=False)

    # --- construction ---

    @classmethod
    def from_env(cls, env: Any) -> "Maze | None":
        """Returns the layout of an OGBench maze environment; None for any other environment."""
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
        """Rebuilds a maze from its `arrays`."""
        places: dict[str, Any] = {name: arrays[name] for name in ("entrances", "exits", "starts", "goals")}
        return cls(arrays["free"], float(arrays["unit"]), float(arrays["offset"]), **places)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The layout as arrays, to be saved in a file."""
        names = ("free", "unit", "offset", "entrances", "exits", "starts", "goals")
        return {name: np.asarray(getattr(self, name)) for name in names}

    # --- cells and positions ---

    @cached_property
    def cells(self) -> list[Cell]:
        """The free cells in row-major order."""
        return [(int(i), int(j)) for i, j in np.argwhere(self.free)]

    def cells_at(self, xy: np.ndarray) -> np.ndarray:
        """Returns the cell (row, column) of each position (..., 2); the nearest one for positions outside the maze."""
        cells = np.floor((np.asarray(xy)[..., ::-1] + self.offset + self.unit / 2) / self.unit).astype(int)
        return np.clip(cells, 0, np.array(self.free.shape) - 1)

    def cell_at(self, xy: np.ndarray) -> Cell:
        """Returns the cell of one position."""
        row, column = self.cells_at(xy).tolist()
        return row, column

    def xy(self, cells: Any) -> np.ndarray:
        """Returns the centres (..., 2), in xy, of cells (..., 2)."""
        return np.asarray(cells)[..., ::-1] * self.unit - self.offset

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The minimum and maximum xy over all free cells, up to their edges."""
        centres = self.xy(self.cells)
        return centres.min(0) - self.unit / 2, centres.max(0) + self.unit / 2

    # --- shortest paths ---

    @cached_property
    def vertices(self) -> list[Cell]:
        """The free cells that are not inside a straight corridor: corners, junctions and dead ends."""

        def is_straight(cell: Cell) -> bool:
            up, left, down, right = (self.free[cell[0] + di, cell[1] + dj] for di, dj in NEIGHBOURS)
            return (up and down and not left and not right) or (left and right and not up and not down)

        return [cell for cell in self.cells if not is_straight(cell)]

    def neighbours(self, cell: Cell) -> list[Cell]:
        """Returns the free cells that share an edge with a cell."""
        adjacent = [(cell[0] + di, cell[1] + dj) for di, dj in NEIGHBOURS]
        return [other for other in adjacent if self.free[other]]

    def distances(self, goal: Cell) -> np.ndarray:
        """Returns the shortest path length, in cells, from every cell to the goal; -1 without a path, and for walls."""
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
        """Returns, for every cell, the next cell on a shortest path to the goal; the cell itself if there is no path.

        The result is cached for each goal.
        """
        if goal not in self._next_cells:
            distance = self.distances(goal)
            next_cell = np.moveaxis(np.indices(self.free.shape), 0, -1).copy()
            for cell in self.cells:
                next_cell[cell] = min([cell, *self.neighbours(cell)], key=lambda other: distance[other])
            self._next_cells[goal] = next_cell
        return self._next_cells[goal]

    def at_distance(self, start: Cell, distance: int) -> list[Cell]:
        """Returns the cells at exactly this distance from `start`; `start` itself if there are none."""
        return [(int(i), int(j)) for i, j in np.argwhere(self.distances(start) == distance)] or [start]

    # --- grids of points ---

    def grid(self, per_cell: int = POINTS_PER_CELL) -> Grid:
        """Returns the centres of per_cell x per_cell squares in each cell; points in walls are not free."""
        step = self.unit / per_cell
        y, x = (
            np.arange(count * per_cell) * step - self.offset - self.unit / 2 + step / 2 for count in self.free.shape
        )
        return Grid(np.stack(np.meshgrid(x, y), -1), np.kron(self.free, np.ones((per_cell, per_cell))) > 0)

    def lattice(self, step: float, radius: float) -> Grid:
        """Returns points `step` apart, including the cell centres; free if a disc of this radius touches no wall."""
        per_cell = round(self.unit / step)
        y, x = (np.arange((count - 1) * per_cell + 1) * step - self.offset for count in self.free.shape)
        points = np.stack(np.meshgrid(x, y), -1)
        free = np.ones(points.shape[:2], bool)
        for centre in self.xy(np.argwhere(~self.free)):
            to_wall = np.maximum(np.abs(points - centre) - self.unit / 2, 0)  # from each point to the wall's square
            free &= np.linalg.norm(to_wall, axis=-1) >= radius - 1e-9
        return Grid(points, free)

    @property
    def extent(self) -> Extent:
        """The bounds of an image of all cells, walls included."""
        low = -self.offset - self.unit / 2
        rows, columns = self.free.shape
        return low, low + columns * self.unit, low, low + rows * self.unit


@lru_cache
def maze_of(task: Task) -> Maze | None:
    """Returns the layout of a task's maze; None if its environment is not a maze, or if it has no environment."""
    if task.environment is None or (isinstance(task, OGBenchTask) and task.family not in _MAZE_FAMILIES):
        return None  # known without building the simulator, which is slow
    env = make_environment(task)
    found = Maze.from_env(env)
    env.close()
    return found

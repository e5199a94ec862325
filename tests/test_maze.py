"""The maze geometry, and pictures that show it with y up."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from gtrl.envs.make import make_environment
from gtrl.envs.maze import Maze, maze_of
from gtrl.io.npz import write_npz
from gtrl.report.figures import data_picture, maze_picture, trajectories_picture
from gtrl.tasks import Task, ogbench_task
from gtrl.theory.maze import point_maze_grid, point_maze_values

MINI = "pointmaze-mini-navigate"
NAMES = (MINI, "pointmaze-teleport-navigate", "antmaze-large-navigate", "antsoccer-arena-navigate")


@pytest.mark.parametrize("name", NAMES)
def test_cells_and_positions_match_ogbench(name: str) -> None:
    task = ogbench_task(name)
    env = make_environment(task).unwrapped
    maze = Maze.from_env(env)
    assert maze is not None
    np.testing.assert_array_equal(maze.free, env.maze_map == 0)
    rng = np.random.default_rng(0)
    for cell in maze.cells:
        np.testing.assert_array_equal(maze.xy(cell), env.ij_to_xy(cell))
        assert maze.cell_at(maze.xy(cell)) == cell
        near = maze.xy(cell) + rng.uniform(-1.99, 1.99, 2)
        assert maze.cell_at(near) == env.xy_to_ij(near) == cell
    start = "ball_init_ij" if name.startswith("antsoccer") else "init_ij"
    ends = [(env.ij_to_xy(info[start]), env.ij_to_xy(info["goal_ij"])) for info in env.task_infos]
    np.testing.assert_array_equal(np.stack([maze.starts, maze.goals], 1), ends)
    assert maze.mover == ("ball" if name.startswith("antsoccer") else "agent")
    assert len(maze.entrances) == (2 if "teleport" in name else 1 if name == MINI else 0)


def test_positions_outside_belong_to_the_nearest_cell() -> None:
    maze = Maze(np.ones((2, 3), bool), 4.0, 4.0)
    found = maze.cells_at(np.array([[-100, 0], [100, 100], [0, -100]]))
    np.testing.assert_array_equal(found, [[1, 0], [1, 2], [0, 1]])


def test_other_environments_have_no_maze() -> None:
    assert maze_of(ogbench_task("cube-single-play")) is None
    assert maze_of(Task("data alone")) is None


def test_maze_survives_a_file(tmp_path: Path) -> None:
    maze = maze_of(ogbench_task(MINI))
    assert maze is not None
    write_npz(tmp_path / "maze.npz", maze.arrays)
    again = Maze.from_arrays(np.load(tmp_path / "maze.npz"))
    for name, array in maze.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
    assert again.extent == maze.extent


# An L: cells (1, 1), (1, 2) and (2, 1). Row 1 is at y = 0 and row 2 at y = 4, above it.
L = Maze(np.array([[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]], bool), 4.0, 4.0)


def test_grids_by_hand() -> None:
    grid = L.grid(per_cell=2)  # squares of 2: the lowest left one is in the middle of (-6, -6) and (-4, -4)
    assert grid.points.shape == (8, 8, 2)
    assert grid.points[0, 0].tolist() == [-5, -5]
    assert grid.points[2, 5].tolist() == [5, -1]
    np.testing.assert_array_equal(grid.free.sum(), 3 * 4)
    assert (grid.free[2:4, 2:6].all(), grid.free[4:6, 2:4].all()) == (True, True)
    assert np.isnan(grid.masked[~grid.free]).all()
    assert grid.extent == L.extent == (-6, 10, -6, 10)
    assert L.bounds[0].tolist() == [-2, -2]
    assert L.bounds[1].tolist() == [6, 6]
    lattice = L.lattice(step=1.0, radius=0.5)
    assert lattice.extent == (-4.5, 8.5, -4.5, 8.5)
    assert lattice.points[lattice.nearest(np.array([0.2, 4.3]))].tolist() == [0, 4]
    # 1.5 is half a cell less the radius.
    x, y = np.moveaxis(lattice.points, -1, 0)
    right = (np.abs(y) <= 1.5) & (x >= -1.5) & (x <= 5.5)
    up = (np.abs(x) <= 1.5) & (y >= -1.5) & (y <= 5.5)
    np.testing.assert_array_equal(lattice.free, right | up)


def test_shortest_paths_by_hand() -> None:
    assert L.cells == [(1, 1), (1, 2), (2, 1)]
    assert L.distances((2, 1))[1, 2] == 2
    assert L.towards((2, 1))[1, 2].tolist() == [1, 1]
    assert L.at_distance((1, 2), 2) == [(2, 1)]
    assert L.vertices == L.cells  # two dead ends and a corner


# --- y up ---


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    saved: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **how: saved.append(self) or save(self, *args, **how))
    return saved


def shown_at(image: Any, xy: tuple[float, float]) -> float:
    """The value an image shows at a position, found through its axes' transformation to screen pixels."""
    axis = image.axes
    figure = axis.figure
    figure.draw_without_rendering()
    bounds = axis.get_window_extent()
    pixel = axis.transData.transform(xy)
    assert bounds.x0 <= pixel[0] <= bounds.x1
    array, (left, right, first, last) = image.get_array(), image.get_extent()
    first, last = (first, last) if image.origin == "lower" else (last, first)
    row = int((xy[1] - first) / (last - first) * len(array))
    column = int((xy[0] - left) / (right - left) * array.shape[1])
    return float(np.ma.filled(np.ma.masked_invalid(array)[row, column], np.nan))


def check_y_up(axis: Any) -> None:
    """A place with a larger y is drawn higher on the screen, and the walls are where they are in the maze."""
    axis.figure.draw_without_rendering()
    low, high = (axis.transData.transform(xy) for xy in ((0, 0), (0, 4)))
    assert high[1] > low[1] + 5
    assert axis.transData.transform((4, 0))[0] > low[0] + 5
    for image in axis.images:
        free = [not np.isnan(shown_at(image, xy)) for xy in ((0.01, 0.01), (4.01, 0.01), (0.01, 4.01), (4.01, 4.01))]
        assert free == [True, True, True, False], image


def plan() -> Maze:
    """The L with a teleporter and two goals."""
    places = {"entrances": [[4, 0]], "exits": [[0, 4]], "starts": [[4, 0], [0, 4]], "goals": [[0, 4], [4, 0]]}
    return Maze(L.free, L.unit, L.offset, **{name: np.array(xys, np.float32) for name, xys in places.items()})  # pyright: ignore[reportArgumentType]


def test_trajectories_and_data_with_y_up(figures: list[Figure], tmp_path: Path) -> None:
    walk = np.array([[4, 0], [0, 0], [0, 4]], float)
    trajectories_picture(tmp_path / "a.png", plan(), [(1, True, walk)], "")
    # A row in every square, so that no image is empty where the maze is free.
    positions = L.grid(per_cell=16).points[L.grid(per_cell=16).free]
    data_picture(tmp_path / "b.png", positions, np.array([5, len(positions) - 1]), plan(), None, "")
    trajectories, data = figures
    panels = [*trajectories.axes[:2], *data.axes[:2]]
    assert all(len(axis.images) for axis in panels)
    for axis in panels:
        check_y_up(axis)


def test_values_with_y_up(figures: list[Figure], tmp_path: Path) -> None:
    """The values of the first method are y / 10 + 0.5, so that the picture of it must get brighter upwards."""
    maze, folder = plan(), tmp_path / "run"
    folder.mkdir()
    grid, index = maze.grid(), np.array([[0, 1, 0, 1, 0, 3]])
    values = np.where(grid.free, grid.points[..., 1] / 10 + 0.5, np.nan)[None, None].repeat(2, 1)
    write_npz(folder / "values.npz", {"points": grid.masked, "values": values, **maze.arrays})
    walk = np.array([[4, 0], [0, 0], [0, 4]], np.float32)
    write_npz(folder / "rollouts.npz", {"positions": walk, "index": index})
    exact = point_maze_values(maze, maze.goals[0], 0.9)
    write_npz(tmp_path / "exact.npz", {"points": point_maze_grid(maze).points, "values": exact})
    runs, rates = {"A": folder, "B": folder}, {"A": [0.0], "B": [0.0]}
    maze_picture(tmp_path / "demo.png", runs, tmp_path / "exact.npz", 1, rates)
    panels = figures[0].axes[:4]
    for axis in panels:
        check_y_up(axis)
    learned = panels[2].images[0]
    assert shown_at(learned, (0.1, 4.1)) == pytest.approx(0.9, abs=0.05)
    assert shown_at(learned, (0.1, 0.1)) == pytest.approx(0.5, abs=0.05)
    assert shown_at(panels[1].images[0], (0.0, 4.0)) == 1  # the goal itself

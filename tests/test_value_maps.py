"""The figure of value maps: values whose implied steps are known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import write_run

from gtrl.envs.maze import Maze
from gtrl.evaluation.maps import encode_values
from gtrl.report.cells import Cell, find_cells
from gtrl.report.report import write_report
from gtrl.report.value_maps import steps_per_cell, value_maps_figures

pytestmark = pytest.mark.usefixtures("few_pixels")

TASK, GAMMA, PER_CELL = "pointmaze-large-navigate", 0.99, 3
LAYOUT = ("######", "#...##", "#.#..#", "#...##", "######")
FREE = np.array([[letter == "." for letter in row] for row in LAYOUT])
# Cells (row, column) by hand: the shortest path to the goal in (3, 3).
PATH = {(3, 3): 0, (3, 2): 1, (2, 3): 1, (3, 1): 2, (1, 3): 2, (2, 4): 2, (2, 1): 3, (1, 2): 3, (1, 1): 4}


def write_maps(folder: Path, steps: float) -> dict[str, Any]:
    """Values for which each cell of the path takes that many steps; two seeds: a fifth more, and a fifth fewer."""
    starts, goals = np.array([[0.0, 0.0]], np.float32), np.array([[8.0, 8.0]], np.float32)
    maze = Maze(FREE, 4.0, 4.0, starts=starts, goals=goals)
    grid = maze.grid(PER_CELL)
    points = grid.points[grid.free].astype(np.float32)
    path = np.array([PATH[maze.cell_at(xy)] for xy in points])
    values = np.zeros((2, len(maze.cells), len(points)))
    values[:, maze.cells.index((3, 3))] = GAMMA ** (steps * np.array([[1.2], [0.8]]) * path)
    arrays = {
        "step": np.array(1_000_000), "seeds": np.array([0, 1]), **maze.arrays, "points": points,
        "point_size": np.array(4.0 / PER_CELL), "goal_points": maze.xy(maze.cells).astype(np.float32),
        "values": encode_values(values), "arrow_points": np.zeros((0, 2), np.float32),
        "arrows": np.zeros((2, len(maze.cells), 0, 2), np.int8), "paths": np.zeros((0, 2), np.float16),
        "path_index": np.zeros((0, 6), np.int64),
    }  # fmt: skip
    np.savez(folder / "maps.npz", **arrays)
    return arrays


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    successes = {(seed, 1_000_000): [20 * (seed + 1)] for seed in (0, 1)}
    for method in ("gtrl", "trl", "bc"):
        folder = tmp_path / TASK / method
        gamma: dict[str, Any] = {} if method == "bc" else {"gamma": GAMMA}
        write_run(folder, TASK, method, successes, goal_names=("task1",), **gamma)
        if method != "trl":
            write_maps(folder, 20.0)
    return find_cells([tmp_path])


def test_values_in_proportion_to_the_distance_have_one_colour(tmp_path: Path) -> None:
    arrays = write_maps(tmp_path, 20.0)
    picture = steps_per_cell(arrays, GAMMA, 0)
    inside = np.kron(FREE, np.ones((PER_CELL, PER_CELL))) > 0
    inside[9:12, 9:12] = False  # the goal's cell
    np.testing.assert_array_equal(np.isfinite(picture), inside)
    np.testing.assert_allclose(picture[inside], 20, rtol=0.02)  # values are stored in 8 bits


def test_figure_shows_runs_with_maps_and_a_discount(cells: list[Cell], tmp_path: Path) -> None:
    [(task, figure)] = value_maps_figures(cells)
    assert task == TASK
    [axis] = [axis for axis in figure.axes if axis.get_title()]
    assert axis.get_title() == "goal 1: 60 %"  # 20 and 40 of 50 episodes
    assert axis.get_ylabel() == "GTRL\n1,000K steps"
    figures = tmp_path / "report" / "figures"
    figures.mkdir(parents=True)
    (figures / "values-other.png").touch()  # of an earlier report
    assert figures / f"values-{TASK}.png" in write_report([tmp_path], tmp_path / "report", page=False)
    assert f"figures/values-{TASK}.png" in (tmp_path / "report" / "report.md").read_text()
    assert not (figures / "values-other.png").exists()

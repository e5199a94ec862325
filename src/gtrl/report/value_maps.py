"""Figures of value maps: where in a maze the values of several runs are right, and where they are not."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from gtrl.envs.maze import Maze
from gtrl.evaluation.diagnostics.sections import implied_steps
from gtrl.evaluation.maps import decode_values
from gtrl.report import style
from gtrl.report.cells import Cell, task_order
from gtrl.report.page_maps import points_per_cell, read_maps

MAX_STEPS_PER_CELL = 80.0  # the end of the colour scale
MAX_ROWS = 8  # cells in a figure
LABEL_WIDTH = 16  # characters of a cell's name in a line
TITLE = "Steps per cell of the shortest path that values imply (one colour: values in proportion to the distance)"


def value_maps_figures(cells: Sequence[Cell]) -> Iterator[tuple[str, Figure]]:
    """Yields the task and a figure of its value maps, for each task with runs that were diagnosed.

    A row is a run, a column an evaluation goal. The colour is log V / log gamma, the number of steps to the goal that
    the value V stands for, over the shortest path in cells; mean over seeds. It is the same everywhere if values are in
    proportion to the distance. The title of a map is the run's success for that goal at the step of the map.
    """
    for task in sorted({cell.task for cell in cells}, key=task_order):
        found = [(cell, arrays) for cell in cells if cell.task == task and (arrays := read_maps(cell)) is not None]
        found = [(cell, arrays) for cell, arrays in found if cell.gamma is not None and len(arrays["goals"])]
        if found:
            yield task, _draw(found[:MAX_ROWS])


def steps_per_cell(arrays: dict[str, np.ndarray], gamma: float, goal: int) -> np.ndarray:
    """Returns the map (rows, columns) of implied steps per cell of the shortest path to an evaluation goal.

    It is NaN in walls and in the goal's cell.
    """
    maze = Maze.from_arrays(arrays)
    cell = maze.cell_at(arrays["goals"][goal])
    values = decode_values(arrays["values"][:, maze.cells.index(cell)])
    path = maze.distances(cell)[tuple(np.moveaxis(maze.cells_at(arrays["points"]), -1, 0))]
    ratio = implied_steps(values, gamma).mean(0) / np.where(path > 0, path, np.nan)
    free = maze.grid(points_per_cell(arrays)).free
    picture = np.full(free.shape, np.nan)
    picture[free] = ratio
    return picture


def _draw(found: Sequence[tuple[Cell, dict[str, np.ndarray]]]) -> Figure:
    goals = max(len(arrays["goals"]) for _, arrays in found)
    rows, columns = found[0][1]["free"].shape
    height = style.WIDTH / (goals + 0.9) * (rows - 1) / (columns - 1) + 0.2
    figure = style.new_figure(len(found) * height + 0.9)
    axes = figure.subplots(len(found), goals, squeeze=False)
    image: Any = None
    for row, (cell, arrays) in zip(axes, found, strict=True):
        maze = Maze.from_arrays(arrays)
        for axis in row[len(maze.goals) :]:
            axis.set_axis_off()
        for goal, axis in enumerate(row[: len(maze.goals)]):
            image = axis.imshow(
                steps_per_cell(arrays, cell.gamma or np.nan, goal), extent=maze.extent, origin="lower",
                cmap=style.SEQUENTIAL, vmin=0, vmax=MAX_STEPS_PER_CELL, zorder=1,
            )  # fmt: skip
            style.draw_plan(axis, maze.free, maze.extent)
            axis.scatter(
                *maze.starts[goal], s=14, edgecolors="white", linewidths=0.5, zorder=6, **style.MARKERS["start"]
            )
            axis.scatter(*maze.goals[goal], s=45, edgecolors="white", linewidths=0.5, zorder=6, **style.MARKERS["goal"])
            rate = _success(cell, int(arrays["step"]), goal)
            axis.set_title(f"goal {goal + 1}" + (f": {rate:.0f} %" if rate is not None else ""), fontsize=style.SMALL)
        name = textwrap.fill(cell.title, LABEL_WIDTH, break_long_words=False)
        row[0].set_ylabel(f"{name}\n{int(arrays['step']) // 1000:,}K steps", fontsize=style.SMALL)
    style.colour_bar(figure, image, axes, "steps per cell", location="bottom", aspect=50, shrink=0.5, extend="max")
    return figure


def _success(cell: Cell, step: int, goal: int) -> float | None:
    """The success in percent for a goal, counted from 0, averaged over the seeds; None if it was not evaluated."""
    if goal >= len(cell.goals):
        return None
    rates = [by_goal[cell.goals[goal]] for (_, at), by_goal in cell.rates.items() if at == step]
    return float(np.mean(rates)) if rates else None

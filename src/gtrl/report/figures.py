"""Figures of run directories and of datasets: maps of mazes with y up, as a camera above them shows them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from scipy.ndimage import distance_transform_edt

from gtrl.envs.maze import Extent, Grid, Maze
from gtrl.io.atomic import atomic_write
from gtrl.report import style

EPISODES_DRAWN = len(style.EPISODES)  # of a dataset, in `data_picture`
SQUARES_PER_CELL = 16  # along each side of a cell, in the map of visits of `data_picture`
MAX_STEP = 1.0  # in the maze's units along an axis: a longer one is a teleport and gets no line


# --- methods compared on one goal ---


@style.applied()
def maze_picture(out: Path, runs: dict[str, Path], exact: Path, goal: int, rates: dict[str, list[float]]) -> None:
    """Draws the maze, its exact values, and each method's values with a few episodes, for one goal.

    `runs` (run directories) and `rates` (success of each seed in percent) are keyed by the method's name; `exact` holds
    points and values; `goal` is counted from 1.
    """
    maps = {name: _read(path / "values.npz") for name, path in runs.items()}
    maze = Maze.from_arrays(next(iter(maps.values())))
    figure = style.new_figure(6.6)
    axes = figure.subplots(2, 2)
    plan, truth, *learned = axes.flat
    plan.set_title(f"The maze\n(start and goal {goal} of {len(maze.goals)})")
    values, extent = _exact_values(maze, exact)
    image = _draw_values(truth, values, extent)
    truth.set_title("Exact optimal values $V^*$\n(value iteration on a grid of positions)")
    for axis, (name, arrays) in zip(learned, maps.items(), strict=True):
        _draw_values(axis, arrays["values"][:, goal - 1].mean(0), maze.extent)
        for success, xy in _recorded_paths(runs[name] / "rollouts.npz", goal):
            _draw_path(axis, xy, success, on_map=True)
        seeds = ", ".join(f"{rate:.0f}" for rate in rates[name])
        mean = f"{name}: {np.mean(rates[name]):.0f} % success on all {len(maze.goals)} goals"
        axis.set_title(f"{mean}\n(each seed: {seeds} %; map: learned values for goal {goal})")
    for axis in axes.flat:
        style.draw_plan(axis, maze.free, maze.extent)
        _mark_places(axis, maze, goal)
    style.colour_bar(figure, image, axes, "value of a position for the goal ★")
    handles = _legend_handles(len(maze.entrances) > 0, on_map=True)
    figure.legend(handles=handles, loc="outside lower center", ncols=3, columnspacing=3)
    style.save(figure, out)


def _exact_values(maze: Maze, file: Path) -> tuple[np.ndarray, Extent]:
    """Exact values over all free cells, and the extent of their image.

    The agent's centre never comes closer to a wall than its radius. There, the value is that of the nearest position it
    can be at, so that the map has the outline of the others.
    """
    arrays = _read(file)
    points, values = arrays["points"], arrays["values"]
    grid = Grid(points, ~np.isnan(values))
    nearest = np.asarray(distance_transform_edt(~grid.free, return_distances=False, return_indices=True))
    corners = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)]) * 1e-3  # points on a border belong to the free cell
    cells = np.moveaxis(maze.cells_at(points[..., None, :] + corners), -1, 0)
    return np.where(maze.free[tuple(cells)].any(-1), values[tuple(nearest)], np.nan), grid.extent


def _draw_values(axis: Any, values: np.ndarray, extent: Extent) -> Any:
    return axis.imshow(values, extent=extent, origin="lower", cmap=style.SEQUENTIAL, vmin=0, vmax=1, zorder=1)


def _recorded_paths(file: Path, goal: int) -> list[tuple[bool, np.ndarray]]:
    """The (success, positions) of the episodes for one goal that `rollouts.npz` holds."""
    arrays = _read(file)
    positions, index = arrays["positions"], arrays["index"].tolist()
    return [(bool(won), positions[start : start + length]) for _, of, _, won, start, length in index if of == goal]


# --- evaluated episodes ---


@style.applied()
def trajectories_picture(out: Path, maze: Maze, paths: Sequence[tuple[int, bool, np.ndarray]], title: str) -> None:
    """Draws the paths of episodes on the map, one panel per goal. `paths` are (goal, success, (T, 2) positions)."""
    goals = len(maze.goals)
    columns = -(-(goals + 1) // 2)  # two rows, and one place for the legend
    rows, cells = maze.free.shape
    figure = style.new_figure(2 * style.WIDTH / columns * (rows - 1) / (cells - 1) + 0.75)
    figure.suptitle(title)
    axes = list(figure.subplots(2, columns).flat)
    for goal, axis in enumerate(axes[:goals], start=1):
        chosen = [(success, xy) for its_goal, success, xy in paths if its_goal == goal]
        successes = sum(success for success, _ in chosen)
        style.draw_plan(axis, maze.free, maze.extent)
        axis.set_title(f"goal {goal}: reached in {successes} of {len(chosen)}")
        for success, xy in sorted(chosen, key=lambda path: path[0]):  # failures, the longer paths, lie below
            _draw_path(axis, xy, success)
        _mark_places(axis, maze, goal)
    for axis in axes[goals:]:
        axis.set_axis_off()
    axes[-1].legend(handles=_legend_handles(len(maze.entrances) > 0), loc="center")
    with atomic_write(out) as file:
        style.save(figure, file)


# --- a dataset ---


@style.applied()
def data_picture(
    out: Path, positions: np.ndarray, ends: np.ndarray, maze: Maze, exits: np.ndarray | None, title: str
) -> None:
    """Draws a maze's dataset: how often each place was visited, and a few whole episodes.

    `positions` (N, 2), `ends` the last row of each episode; `exits` counts (entrances, exits) of teleporters.
    """
    rows, columns = maze.free.shape
    height = style.WIDTH / 2 * (rows - 1) / (columns - 1)
    figure = style.new_figure(height + 1.15)
    figure.suptitle(title)
    (visits, episodes), (bar, key) = figure.subplots(2, 2, height_ratios=(height / 0.12, 1))
    for axis in (visits, episodes):
        style.draw_plan(axis, maze.free, maze.extent)
        _mark_teleporters(axis, maze)
    visits.set_title(f"Visits in {len(positions):,} rows")
    figure.colorbar(_draw_visits(visits, positions, maze), cax=bar, orientation="horizontal")
    side = f"{maze.unit / SQUARES_PER_CELL:g}"
    bar.set_xlabel(f"rows per square of {side} × {side} (a cell is {maze.unit:g} × {maze.unit:g})")
    drawn = _draw_episodes(episodes, positions, ends)
    episodes.set_title(f"{drawn} of {len(ends):,} episodes (symbol: first position)")
    key.set_axis_off()
    if exits is not None:
        key.text(0.5, 1.5, _exit_counts(exits), transform=key.transAxes, ha="center", va="top", linespacing=1.5)
    style.save(figure, out)


def _draw_visits(axis: Any, positions: np.ndarray, maze: Maze) -> Any:
    """A map of how many positions lie in each square; squares without any stay white."""
    left, right, bottom, top = maze.extent
    bins = [count * SQUARES_PER_CELL for count in maze.free.shape]
    counts = np.histogram2d(positions[:, 1], positions[:, 0], bins, ((bottom, top), (left, right)))[0]
    scale = {"norm": "log" if counts.max() > 1 else None, "cmap": style.SEQUENTIAL}
    return axis.imshow(np.where(counts > 0, counts, np.nan), extent=maze.extent, origin="lower", zorder=1, **scale)


def _draw_episodes(axis: Any, positions: np.ndarray, ends: np.ndarray) -> int:
    """Draws a few episodes, evenly through the file; returns how many."""
    chosen = np.unique(np.linspace(0, len(ends) - 1, EPISODES_DRAWN).astype(int))
    starts = np.concatenate([[0], ends[:-1] + 1])
    for episode, colour, marker in zip(chosen, style.EPISODES, "o^vP<>", strict=False):
        xy = _without_jumps(positions[starts[episode] : ends[episode] + 1])
        axis.plot(*xy.T, color=colour, linewidth=0.9, zorder=3)
        axis.scatter(*xy[0], color=colour, marker=marker, s=45, edgecolors="white", linewidths=0.8, zorder=5)
    return len(chosen)


def _mark_teleporters(axis: Any, maze: Maze) -> None:
    """Marks entrances with A, B, ... and exits with 1, 2, ..."""
    for places, kind, first in ((maze.entrances, "entrance", "A"), (maze.exits, "exit", "1")):
        axis.scatter(*places.T, s=95, edgecolors=style.INK, linewidths=0.8, zorder=6, **style.MARKERS[kind])
        for index, place in enumerate(places):
            name = chr(ord(first) + index)
            axis.text(*place, name, color="black", fontsize=style.SMALL, ha="center", va="center_baseline", zorder=7)


def _exit_counts(exits: np.ndarray) -> str:
    """One line per entrance: how often each exit was taken from it."""
    lines = ["teleporters: entrances ■, exits ◆"]
    lines += [
        f"teleports from {chr(ord('A') + entrance)}: "
        + ", ".join(f"{count:,} to {index + 1}" for index, count in enumerate(counts))
        for entrance, counts in enumerate(exits)
    ]
    return "\n".join(lines)


# --- what all of them share ---


def _read(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as arrays:
        return dict(arrays)


def _without_jumps(xy: np.ndarray) -> np.ndarray:
    """A path with a gap at each teleport."""
    xy = xy.astype(float)
    jumps = np.flatnonzero(np.abs(np.diff(xy, axis=0)).max(1) > MAX_STEP)
    return np.insert(xy, jumps + 1, np.nan, axis=0)


def _path_style(success: bool, on_map: bool) -> dict[str, Any]:
    """Solid lines for successes, dashed ones for failures; over a map of values, bright ones with an outline."""
    colours = (style.FAILURE_ON_MAP, style.SUCCESS_ON_MAP) if on_map else (style.FAILURE, style.SUCCESS)
    shared = {"color": colours[success], "linewidth": 1.2, "linestyle": "-" if success else (0, (3, 1))}
    if on_map:
        shared["path_effects"] = [withStroke(linewidth=2.4, foreground=style.INK)]
    return shared


def _draw_path(axis: Any, xy: np.ndarray, success: bool, on_map: bool = False) -> None:
    """Draws one episode's path; a failed one ends with a cross."""
    look = _path_style(success, on_map)
    axis.plot(*_without_jumps(xy).T, zorder=3, **look)
    if not success:
        effects = look.get("path_effects")
        axis.scatter(*xy[-1], marker="x", s=28, linewidths=1.6, color=look["color"], path_effects=effects, zorder=4)


def _mark_places(axis: Any, maze: Maze, goal: int) -> None:
    """Marks teleporters, and the start and the goal of the evaluation episodes for one goal."""
    for places, kind in ((maze.entrances, "entrance"), (maze.exits, "exit")):
        axis.scatter(*places.T, s=55, edgecolors=style.INK, linewidths=0.8, zorder=5, **style.MARKERS[kind])
    outlined = {"edgecolors": "white", "linewidths": 0.8, "zorder": 6}
    axis.scatter(*maze.starts[goal - 1], s=50, **outlined, **style.MARKERS["start"])
    axis.scatter(*maze.goals[goal - 1], s=150, **outlined, **style.MARKERS["goal"])


def _legend_handles(teleports: bool, on_map: bool = False) -> list[Line2D]:
    kinds = {"start": "start", "goal": "goal"}
    if teleports:
        kinds |= {"entrance": "teleporter", "exit": "teleporter exit (one at random)"}
    edges = {"markeredgecolor": style.INK, "markeredgewidth": 0.8, "linestyle": ""}
    sizes = {"goal": 10, "exit": 6}
    handles = [
        Line2D([], [], markersize=sizes.get(kind, 7), label=label, **edges, **style.MARKERS[kind])
        for kind, label in kinds.items()
    ]
    for label, success in (("successful episode", True), ("failed episode", False)):
        look = _path_style(success, on_map)
        handles.append(Line2D([], [], label=label, marker="" if success else "x", markeredgewidth=1.6, **look))
    return handles

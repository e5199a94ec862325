"""Pictures, of run directories and of datasets. Mazes are drawn with y up, as a camera above them sees them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from gtrl.envs.maze import Extent, Grid, Maze
from gtrl.io.atomic import atomic_write

WALL, INK = "#d9d4c7", "#22303c"
SUCCESS, FAILURE = "#ffffff", "#ff5d3b"  # over a map of values
ARRIVED, FAILED = "#1a7f6b", "#d1492e"  # over white
ENTRANCE, EXIT = "#e8a33d", "#4aa3df"
EPISODES_DRAWN = 6
EPISODE_COLOURS = ("#3b6fb6", "#d1603d", "#4c9f70", "#8e5aa8", "#c9a227", "#5f6b76")


def maze_picture(out: Path, runs: dict[str, Path], exact: Path, goal: int, rates: dict[str, list[float]]) -> None:
    """The maze, its exact values, and each method's values with a few rollouts, for one goal.

    `runs` and `rates` are keyed by the method's name; `exact` holds points and values; `goal` is counted from 1.
    """
    maps = {name: np.load(path / "values.npz") for name, path in runs.items()}
    maze = Maze.from_arrays(next(iter(maps.values())))
    figure = Figure(figsize=(11, 8.4), layout="constrained", facecolor="white")
    axes = figure.subplots(2, 2)
    flat = list(axes.flat)
    draw_walls(flat[0], maze)
    flat[0].set_title(f"The maze and evaluation goal {goal}")
    truth = np.load(exact)
    _draw_values(flat[1], maze, truth["values"], Grid(truth["points"], ~np.isnan(truth["values"])).extent)
    flat[1].set_title("V* (exact, on a grid of 0.2)")
    image = None
    for axis, (name, values) in zip(flat[2:], maps.items(), strict=True):
        image = _draw_values(axis, maze, values["values"][:, goal - 1].mean(0), maze.extent)
        _draw_rollouts(axis, runs[name] / "rollouts.npz", goal)
        each = ", ".join(f"{rate:.0f}" for rate in rates[name])
        axis.set_title(f"{name}: success {np.mean(rates[name]):.0f} % over all five goals (seeds {each})")
    if image is not None:
        figure.colorbar(image, ax=axes, shrink=0.6, label="value of a state for the goal ★", pad=0.02)
    for axis in flat:
        _mark(axis, maze, goal)
    handles = _handles(True, SUCCESS, FAILURE, outline=3.5)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    figure.savefig(out, dpi=110)


def trajectories_picture(out: Path, maze: Maze, paths: Sequence[tuple[int, bool, np.ndarray]], title: str) -> None:
    """Where episodes went, over the map: a panel for each goal. `paths` are (goal, success, (T, 2) positions)."""
    goals = len(maze.goals)
    columns = -(-(goals + 1) // 2)  # two rows, and one place for the legend
    rows, cells = maze.free.shape
    size, layout = (4 * columns, 2 * 4 * rows / cells + 1.2), ConstrainedLayoutEngine(h_pad=0.1)
    figure = Figure(figsize=size, layout=layout, facecolor="white")
    figure.suptitle(title, weight="bold")
    axes = list(figure.subplots(2, columns).flat)
    for goal, axis in enumerate(axes[:goals], start=1):
        mine = [(success, xy) for its_goal, success, xy in paths if its_goal == goal]
        arrived = sum(success for success, _ in mine)
        draw_walls(axis, maze)
        axis.set_title(f"goal {goal}: {arrived} of {len(mine)} arrived")
        for success, xy in sorted(mine, key=lambda path: path[0]):  # failures, the longer paths, lie below
            _draw_path(axis, xy, ARRIVED if success else FAILED)
            if not success:
                axis.scatter(*xy[-1], marker="x", s=30, linewidths=1.8, color=FAILED, zorder=4)
        _mark(axis, maze, goal)
    for axis in axes[goals:]:
        axis.set_axis_off()
    teleports = len(maze.entrances) > 0
    axes[-1].legend(handles=_handles(teleports, ARRIVED, FAILED), loc="center", frameon=False, fontsize=10)
    with atomic_write(out) as file:
        figure.savefig(file, dpi=110, format="png")


def data_picture(
    out: Path, positions: np.ndarray, ends: np.ndarray, maze: Maze, exits: np.ndarray | None, title: str
) -> None:
    """Where a maze's data goes: how often each place was visited, and a few whole episodes.

    `positions` (N, 2), `ends` the last row of each episode; `exits` counts (entrances, exits) of teleporters.
    """
    figure = Figure(figsize=(12, 5 if maze.free.shape[0] < maze.free.shape[1] else 6.4), layout="constrained")
    figure.suptitle(title)
    left, right = figure.subplots(1, 2)
    for axis in (left, right):
        draw_walls(axis, maze)
        axis.set_xticks([])
        axis.set_yticks([])

    # --- how often ---
    per_cell = 16
    x_low, x_high, y_low, y_high = maze.extent
    bins = [count * per_cell for count in maze.free.shape]
    visits = np.histogram2d(positions[:, 1], positions[:, 0], bins, ((y_low, y_high), (x_low, x_high)))[0]
    shown = np.where(visits > 0, visits, np.nan)
    style = {"cmap": "viridis", "norm": "log" if visits.max() > 1 else None}
    image = left.imshow(shown, extent=maze.extent, origin="lower", zorder=1, **style)
    figure.colorbar(image, ax=left, shrink=0.75, label=f"rows in a square of {maze.unit / per_cell:g}")
    left.set_title(f"{len(positions):,} rows")

    # --- a few episodes, evenly through the file ---
    chosen = np.unique(np.linspace(0, len(ends) - 1, EPISODES_DRAWN).astype(int))
    starts = np.concatenate([[0], ends[:-1] + 1])
    for colour, episode in zip(EPISODE_COLOURS, chosen, strict=False):
        xy = _without_jumps(positions[starts[episode] : ends[episode] + 1])
        right.plot(xy[:, 0], xy[:, 1], color=colour, linewidth=1, zorder=2)
        right.scatter(*xy[0], color=colour, s=35, edgecolors=INK, zorder=3)
    right.set_title(f"{len(chosen)} of {len(ends):,} episodes, each from its dot")
    _draw_teleporters((left, right), maze)
    if exits is not None:
        figure.supxlabel(_exits_told(exits), fontsize=10)
    figure.savefig(out, dpi=110)


def _draw_teleporters(axes: Sequence[Any], maze: Maze) -> None:
    """Entrances A, B, ... and exits 1, 2, ..."""
    for axis in axes:
        for places, marker, colour, first in ((maze.entrances, "o", ENTRANCE, "A"), (maze.exits, "D", EXIT, "1")):
            axis.scatter(*places.T, marker=marker, s=150, color=colour, edgecolors=INK, zorder=4)
            for index, place in enumerate(places):
                name = chr(ord(first) + index)
                axis.text(*place, name, color=INK, fontsize=8, weight="bold", ha="center", va="center", zorder=5)


def _exits_told(exits: np.ndarray) -> str:
    lines = (
        f"teleports from {chr(ord('A') + entrance)}: "
        + ", ".join(f"{count:,} to {index + 1}" for index, count in enumerate(counts))
        for entrance, counts in enumerate(exits)
    )
    return "      ".join(lines)


def _without_jumps(xy: np.ndarray) -> np.ndarray:
    """A path with a gap at each teleport, which is not a line."""
    xy = xy.astype(float)
    jumps = np.flatnonzero(np.abs(np.diff(xy, axis=0)).max(1) > 1.0)
    return np.insert(xy, jumps + 1, np.nan, axis=0)


def draw_walls(axis: Any, maze: Maze) -> None:
    """The free cells in white on walls."""
    axis.set_facecolor(WALL)
    free = np.where(maze.free, 0.0, np.nan)
    axis.imshow(free, extent=maze.extent, origin="lower", cmap="Greys", vmin=0, vmax=1, zorder=0)


def _handles(teleports: bool, success: str, failure: str, outline: float = 0) -> list[Line2D]:
    """A legend's entries; lines in pale colours need an outline to be seen on paper."""
    marks = [("start", "o", INK), ("goal", "*", INK)]
    if teleports:
        marks += [("teleporter", "X", ENTRANCE), ("its exits, one at random", "D", EXIT)]
    handles = [Line2D([], [], marker=m, color=c, linestyle="", markersize=9, label=label) for label, m, c in marks]
    lines = (("episode that arrived", success, ""), ("episode that failed", failure, "" if outline else "x"))
    effects = [withStroke(linewidth=outline, foreground=INK)] if outline else None
    style = {"linewidth": 1.8, "markeredgewidth": 1.8, "path_effects": effects}
    return handles + [Line2D([], [], color=c, marker=m, label=label, **style) for label, c, m in lines]


def _draw_values(axis: Any, maze: Maze, values: np.ndarray, extent: Extent) -> Any:
    axis.set_facecolor(WALL)
    image = axis.imshow(values, extent=extent, origin="lower", cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
    left, right, bottom, top = maze.extent
    axis.set(xlim=(left, right), ylim=(bottom, top))
    return image


def _draw_rollouts(axis: Any, path: Path, goal: int) -> None:
    recorded = np.load(path)
    for _, its_goal, _, success, start, length in recorded["index"]:
        if its_goal != goal:
            continue
        _draw_path(axis, recorded["positions"][start : start + length], SUCCESS if success else FAILURE)


def _draw_path(axis: Any, xy: np.ndarray, colour: str) -> None:
    axis.plot(*_without_jumps(xy).T, color=colour, linewidth=1.3, alpha=0.9, zorder=3)


def _mark(axis: Any, maze: Maze, goal: int) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    for places, marker, colour in ((maze.entrances, "X", ENTRANCE), (maze.exits, "D", EXIT)):
        if len(places):
            axis.scatter(*places.T, marker=marker, s=90, color=colour, edgecolors=INK, zorder=4)
    style = {"color": INK, "edgecolors": "white", "zorder": 5}
    axis.scatter(*maze.starts[goal - 1], marker="o", s=70, **style)
    axis.scatter(*maze.goals[goal - 1], marker="*", s=230, **style)

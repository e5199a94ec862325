"""Pictures, of run directories and of datasets."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from gtrl.io.atomic import atomic_write

if TYPE_CHECKING:
    from gtrl.envs.maze import Maze

WALL, INK = "#d9d4c7", "#22303c"
SUCCESS, FAILURE = "#ffffff", "#ff5d3b"  # over a map of values
ARRIVED, FAILED = "#1a7f6b", "#d1492e"  # over white
ENTRANCE, EXIT = "#e8a33d", "#4aa3df"
EPISODES_DRAWN = 6
EPISODE_COLOURS = ("#3b6fb6", "#d1603d", "#4c9f70", "#8e5aa8", "#c9a227", "#5f6b76")


def maze_picture(out: Path, runs: dict[str, Path], exact: Path, goal: int, rates: dict[str, list[float]]) -> None:
    """The maze, its exact values, and each method's values with a few rollouts, for one goal.

    `runs` and `rates` are keyed by the method's name; `exact` holds points and values; `goal` is 1 to 5.
    """
    maps = {name: np.load(path / "values.npz") for name, path in runs.items()}
    first = next(iter(maps.values()))
    figure = Figure(figsize=(11, 8.4), layout="constrained", facecolor="white")
    axes = figure.subplots(2, 2)
    flat = list(axes.flat)
    _draw_layout(flat[0], first, f"The maze and evaluation goal {goal}")
    truth = np.load(exact)
    _draw_values(flat[1], truth["points"], truth["values"], first)
    flat[1].set_title("V* (exact, on a grid of 0.2)")
    image = None
    for axis, (name, values) in zip(flat[2:], maps.items(), strict=True):
        image = _draw_values(axis, values["points"], values["values"][:, goal - 1].mean(0), values)
        _draw_rollouts(axis, runs[name] / "rollouts.npz", goal)
        each = ", ".join(f"{rate:.0f}" for rate in rates[name])
        axis.set_title(f"{name}: success {np.mean(rates[name]):.0f} % over all five goals (seeds {each})")
    if image is not None:
        figure.colorbar(image, ax=axes, shrink=0.6, label="value of a state for the goal ★", pad=0.02)
    for axis in flat:
        _mark(axis, first, goal)
    handles = _handles(True, SUCCESS, FAILURE, outline=3.5)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    figure.savefig(out, dpi=110)


def trajectories_picture(
    out: Path, layout: Mapping[str, np.ndarray], paths: Sequence[tuple[int, bool, np.ndarray]], title: str
) -> None:
    """Where episodes went, over the map: a panel for each goal. `paths` are (goal, success, (T, 2) positions).

    `layout` has `points`, `starts`, `goals`, `entrances` and `exits`, as `values.npz` has them.
    """
    goals = len(layout["goals"])
    columns = -(-(goals + 1) // 2)  # two rows, and one place for the legend
    rows, cells = layout["points"].shape[:2]
    size, layout_engine = (4 * columns, 2 * 4 * rows / cells + 1.2), ConstrainedLayoutEngine(h_pad=0.1)
    figure = Figure(figsize=size, layout=layout_engine, facecolor="white")
    figure.suptitle(title, weight="bold")
    axes = list(figure.subplots(2, columns).flat)
    for goal, axis in enumerate(axes[:goals], start=1):
        mine = [(success, xy) for its_goal, success, xy in paths if its_goal == goal]
        arrived = sum(success for success, _ in mine)
        _draw_layout(axis, layout, f"goal {goal}: {arrived} of {len(mine)} arrived")
        for success, xy in sorted(mine, key=lambda path: path[0]):  # failures, the longer paths, lie below
            _draw_path(axis, xy, ARRIVED if success else FAILED)
            if not success:
                axis.scatter(*xy[-1], marker="x", s=30, linewidths=1.8, color=FAILED, zorder=4)
        _mark(axis, layout, goal)
        axis.invert_yaxis()  # y up, as a camera above the maze sees it
    for axis in axes[goals:]:
        axis.set_axis_off()
    teleports = len(layout["entrances"]) > 0
    axes[-1].legend(handles=_handles(teleports, ARRIVED, FAILED), loc="center", frameon=False, fontsize=10)
    with atomic_write(out) as file:
        figure.savefig(file, dpi=110, format="png")


def data_picture(
    out: Path, positions: np.ndarray, ends: np.ndarray, maze: "Maze", exits: np.ndarray | None, title: str
) -> None:
    """Where a maze's data goes: how often each place was visited, and a few whole episodes.

    `positions` (N, 2), `ends` the last row of each episode; `exits` counts (entrances, exits) of teleporters.
    """
    figure = Figure(figsize=(12, 5 if maze.free.shape[0] < maze.free.shape[1] else 6.4), layout="constrained")
    figure.suptitle(title)
    left, right = figure.subplots(1, 2)
    rows, columns = maze.free.shape
    low = -maze.offset - maze.unit / 2
    box = (low, low + columns * maze.unit, low + rows * maze.unit, low)
    for axis in (left, right):
        axis.set_facecolor(WALL)
        axis.imshow(np.where(maze.free, 0.0, np.nan), extent=box, cmap="Greys", vmin=0, vmax=1, zorder=0)
        axis.set_xticks([])
        axis.set_yticks([])

    # --- how often ---
    per_cell = 16
    edges = [low + np.arange(count * per_cell + 1) * maze.unit / per_cell for count in (rows, columns)]
    visits = np.histogram2d(positions[:, 1], positions[:, 0], edges)[0]
    shown = np.where(visits > 0, visits, np.nan)
    image = left.imshow(shown, extent=box, cmap="viridis", norm="log" if visits.max() > 1 else None, zorder=1)
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


def _draw_teleporters(axes: Sequence[Any], maze: "Maze") -> None:
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


def _extent(points: np.ndarray) -> tuple[float, float, float, float]:
    """Image bounds of a regular grid; rows run along y. NaN points (walls) are on the grid too."""
    x, y = np.nanmin(points, (0, 1)), np.nanmax(points, (0, 1))
    filled = ~np.isnan(points[..., 0])
    columns, rows = np.flatnonzero(filled.any(0)), np.flatnonzero(filled.any(1))
    step = (y - x) / np.array([columns[-1] - columns[0], rows[-1] - rows[0]])
    low = x - (np.array([columns[0], rows[0]]) + 0.5) * step
    high = low + step * np.array(points.shape[1::-1])
    return low[0], high[0], high[1], low[1]


def _draw_layout(axis: Any, values: Any, title: str) -> None:
    axis.set_facecolor(WALL)
    free = ~np.isnan(values["points"][..., 0])
    axis.imshow(np.where(free, 0.0, np.nan), extent=_extent(values["points"]), cmap="Greys", vmin=0, vmax=1)
    axis.set_title(title)


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


def _draw_values(axis: Any, points: np.ndarray, values: np.ndarray, layout: Any) -> Any:
    axis.set_facecolor(WALL)
    box = _extent(layout["points"])
    image = axis.imshow(values, extent=_extent(points), cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
    axis.set_xlim(box[0], box[1])
    axis.set_ylim(box[2], box[3])
    return image


def _draw_rollouts(axis: Any, path: Path, goal: int) -> None:
    recorded = np.load(path)
    for _, its_goal, _, success, start, length in recorded["index"]:
        if its_goal != goal:
            continue
        _draw_path(axis, recorded["positions"][start : start + length], SUCCESS if success else FAILURE)


def _draw_path(axis: Any, xy: np.ndarray, colour: str) -> None:
    axis.plot(*_without_jumps(xy).T, color=colour, linewidth=1.3, alpha=0.9, zorder=3)


def _mark(axis: Any, values: Any, goal: int) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    for name, marker, colour in (("entrances", "X", ENTRANCE), ("exits", "D", EXIT)):
        if len(values[name]):
            axis.scatter(*values[name].T, marker=marker, s=90, color=colour, edgecolors=INK, zorder=4)
    style = {"color": INK, "edgecolors": "white", "zorder": 5}
    axis.scatter(*values["starts"][goal - 1], marker="o", s=70, **style)
    axis.scatter(*values["goals"][goal - 1], marker="*", s=230, **style)

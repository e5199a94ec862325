"""Pictures. They read run directories and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

WALL, INK = "#d9d4c7", "#22303c"
SUCCESS, FAILURE = "#ffffff", "#ff5d3b"
ENTRANCE, EXIT = "#e8a33d", "#4aa3df"


def maze_picture(out: Path, runs: dict[str, Path], exact: Path, goal: int, rates: dict[str, list[float]]) -> None:
    """The maze, its exact values, and each method's values with a few rollouts, for one goal.

    `runs` and `rates` are keyed by the method's name; `exact` holds points and values; `goal` is 1 to 5.
    """
    maps = {name: np.load(path / "values.npz") for name, path in runs.items()}
    first = next(iter(maps.values()))
    figure = Figure(figsize=(11, 8.4), layout="constrained", facecolor="white")
    axes = figure.subplots(2, 2)
    flat = list(axes.flat)
    _draw_layout(flat[0], first, goal)
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
    _legend(figure)
    figure.savefig(out, dpi=110)


def _extent(points: np.ndarray) -> tuple[float, float, float, float]:
    """Image bounds of a regular grid; rows run along y. NaN points (walls) are on the grid too."""
    x, y = np.nanmin(points, (0, 1)), np.nanmax(points, (0, 1))
    filled = ~np.isnan(points[..., 0])
    columns, rows = np.flatnonzero(filled.any(0)), np.flatnonzero(filled.any(1))
    step = (y - x) / np.array([columns[-1] - columns[0], rows[-1] - rows[0]])
    low = x - (np.array([columns[0], rows[0]]) + 0.5) * step
    high = low + step * np.array(points.shape[1::-1])
    return low[0], high[0], high[1], low[1]


def _draw_layout(axis: Any, values: Any, goal: int) -> None:
    axis.set_facecolor(WALL)
    free = ~np.isnan(values["points"][..., 0])
    axis.imshow(np.where(free, 0.0, np.nan), extent=_extent(values["points"]), cmap="Greys", vmin=0, vmax=1)
    axis.set_title(f"The maze and evaluation goal {goal}")


def _legend(figure: Any) -> None:
    marks = (
        ("start", "o", INK),
        ("goal", "*", INK),
        ("teleporter", "X", ENTRANCE),
        ("its exits, one at random", "D", EXIT),
    )
    handles = [Line2D([], [], marker=m, color=c, linestyle="", markersize=9, label=label) for label, m, c in marks]
    lines = (("episode that arrived", SUCCESS), ("episode that failed", FAILURE))
    outlined = [withStroke(linewidth=3.5, foreground=INK)]
    handles += [Line2D([], [], color=c, linewidth=1.8, label=label, path_effects=outlined) for label, c in lines]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)


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
        xy = recorded["positions"][start : start + length].astype(float)
        jumps = np.flatnonzero(np.abs(np.diff(xy, axis=0)).max(1) > 1.0)  # a teleport is not a line
        xy = np.insert(xy, jumps + 1, np.nan, axis=0)
        axis.plot(xy[:, 0], xy[:, 1], color=SUCCESS if success else FAILURE, linewidth=1.3, alpha=0.9, zorder=3)


def _mark(axis: Any, values: Any, goal: int) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    for name, marker, colour in (("entrances", "X", ENTRANCE), ("exits", "D", EXIT)):
        if len(values[name]):
            axis.scatter(*values[name].T, marker=marker, s=90, color=colour, edgecolors=INK, zorder=4)
    style = {"color": INK, "edgecolors": "white", "zorder": 5}
    axis.scatter(*values["starts"][goal - 1], marker="o", s=70, **style)
    axis.scatter(*values["goals"][goal - 1], marker="*", s=230, **style)

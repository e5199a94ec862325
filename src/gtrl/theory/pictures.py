"""The argument in pictures, every number in them computed exactly. `gtrl theory --out DIR` draws them all."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from gtrl.report.figures import INK
from gtrl.tasks import TRAJECTORY_GOALS
from gtrl.theory import curves, examples
from gtrl.theory.anchored import Anchored, transitive_fit
from gtrl.theory.draws import dataset_draws
from gtrl.theory.maze import TextMaze
from gtrl.theory.process import Log, sample_log
from gtrl.theory.transitive import iterates
from gtrl.theory.values import (
    behaviour_values,
    divide_and_conquer_values,
    graph_distances,
    hindsight_ratio,
    occupancy,
    optimal_values,
    state_action_values,
)

# From dark to light, in grey too, and never too dark for the numbers on it.
SHADES = ListedColormap(mpl.colormaps["viridis"](np.linspace(0.6, 1, 256)))
SIGNS = ListedColormap(mpl.colormaps["RdBu_r"](np.linspace(0.2, 0.8, 256)))
WALL = "#5b6672"  # darker than any number's shade
LINES: dict[str, dict[str, Any]] = {  # told apart by shade, dash and marker, not by hue alone
    "TRL": {"color": "#d1603d", "linestyle": "--", "marker": "s"},
    "GTRL": {"color": "#1b4f8a", "linestyle": "-", "marker": "o"},
    "one step": {"color": "#8c8c8c", "linestyle": "-.", "marker": "^"},
    "transitive": {"color": INK, "linestyle": ":", "marker": "D"},
}

# --- what most of them show: the teleport maze, with short trajectories of a walker ---

GAMMA = 0.95
MEANS_IT = 0.6  # how often the walker follows its arrows
TRAJECTORIES, STEPS = 300, 15
RIGHT = 3  # the action that leads from x into the teleporter


class Scene(NamedTuple):
    """The maze, its log, and tables over (state, action, goal) or (state, goal)."""

    maze: TextMaze
    beta: np.ndarray
    log: Log
    v_star: np.ndarray
    v_dc: np.ndarray
    q_beta: np.ndarray
    q_trl: np.ndarray
    q_gtrl: np.ndarray
    drawn_trl: np.ndarray
    drawn_gtrl: np.ndarray

    @property
    def goal(self) -> int:
        return self.maze.names["g"]

    def best(self, q: np.ndarray) -> np.ndarray:
        """The value of the best action that was logged, for the goal g; NaN in states without one."""
        logged = self.drawn_gtrl[:, :, self.goal]
        value = np.where(logged, q[:, :, self.goal], -np.inf).max(1)
        return np.where(logged.any(1), value, np.nan)


@cache
def scene() -> Scene:
    where = examples.teleport_maze()
    process, rng = where.process, np.random.default_rng(0)
    beta = examples.arrow_behaviour(where, examples.ARROWS, MEANS_IT)
    log = sample_log(process, beta, rng.integers(process.states, size=TRAJECTORIES), STEPS, rng)
    along = dataset_draws(log, process.states, process.actions, GAMMA, TRAJECTORY_GOALS)
    mixed = dataset_draws(log, process.states, process.actions, GAMMA)
    return Scene(
        where,
        beta,
        log,
        optimal_values(process, GAMMA),
        divide_and_conquer_values(process, GAMMA),
        state_action_values(process, behaviour_values(process, beta, GAMMA), GAMMA),
        transitive_fit(GAMMA).fixed_point(along, tolerance=curves.ENOUGH),
        Anchored(GAMMA).fixed_point(mixed, tolerance=curves.ENOUGH),
        along.drawn,
        mixed.drawn,
    )


def first_arrival(values: Iterator[np.ndarray] | list[np.ndarray], goal: int) -> np.ndarray:
    """At which of the successive value tables a state's value for the goal is first above 0."""
    return np.argmax(np.array([v[:, goal] > 0 for v in values]), 0)


def concept() -> Figure:
    """The paper's Figure 1: how the rule halves the way, where it breaks, and what a one-step target repairs."""
    here = scene()
    process, goal = here.maze.process, here.goal
    halving = first_arrival(list(iterates(process, GAMMA)), goal)
    d = graph_distances(process)[:, goal]
    trained_trl, trained_gtrl = (np.any(drawn[:, :, goal], axis=1) for drawn in (here.drawn_trl, here.drawn_gtrl))
    figure, axes = _canvas(2, 3, (14, 7.4))
    _numbers(axes[0, 0], here.maze, halving, "{:.0f}", vmax=halving.max())
    axes[0, 0].set_title("(a) Divide and conquer: updates until a value\nfor g is there (2ⁿ steps away after n)")
    _numbers(axes[1, 0], here.maze, d, "{:.0f}", vmax=d.max())
    axes[1, 0].set_title("One-step backups until there is any\n(d steps away after d)")
    for axis, values, title in (
        (axes[0, 1], here.v_dc[:, goal], "(b) It takes luck for choice: V_DC − V*"),
        (
            axes[0, 2],
            here.best(here.q_gtrl),
            "(c) Grounded in one step: GTRL − V*\n(dotted: below 0, where the walker rarely heads for g)",
        ),
    ):
        _numbers(axis, here.maze, values - here.v_star[:, goal], "{:+.2f}", vmin=-0.5, vmax=0.5, shades=SIGNS)
        axis.set_title(title)
    for axis, trained, title in (
        (axes[1, 1], trained_trl, "TRL: a target for (s, g) only where one\ntrajectory goes from s to g"),
        (axes[1, 2], trained_gtrl, "GTRL: a target wherever there is a transition"),
    ):
        _coverage(axis, here.maze, trained)
        axis.set_title(f"{title}: {trained.sum()} of {len(trained)} states")
    return figure


def method() -> Figure:
    """The paper's Figure 2: which pairs are trained, and how the weight turns hindsight goals back to the average."""
    here = scene()
    process, where = here.maze.process, here.maze
    into = where.names["x"], RIGHT
    chance, outcomes = process.probabilities[into], process.successors[into]
    mu = occupancy(process, here.beta, GAMMA)[outcomes]
    h = hindsight_ratio(process, here.beta, GAMMA)[into]
    figure, axes = _canvas(2, 4, (17, 7.2))
    for axis, drawn, name in ((axes[0, 0], here.drawn_trl, "TRL"), (axes[1, 0], here.drawn_gtrl, "GTRL")):
        share = drawn.any(1).mean(1)
        _numbers(axis, where, 100 * share, "{:.0f}", vmax=100)
        axis.set_title(f"(a) {name}: % of all goals\nfor which a state is trained")
    for row, (outcome, other) in enumerate((("A", "B"), ("B", "A"))):
        place = int(np.flatnonzero(outcomes == where.names[outcome])[0])
        per_mille = 1000 * mu[place]
        goals = f"(b) Goals drawn after {outcome}, in ‰:\nμ(g | {outcome}) of endless trajectories"
        weight = f"× h(x, right, {outcome}, g), not clipped:\nmore where {other} was nearer"
        for axis, values, form, top, title in (
            (axes[row, 1], per_mille, "{:.0f}", 95, goals),
            (axes[row, 2], h[place], "{:.1f}", 7, weight),
            (axes[row, 3], h[place] * per_mille, "{:.0f}", 95, "= the average over A and B, in ‰"),
        ):
            _numbers(axis, where, values, form, vmax=top)
            axis.set_title(title)
    np.testing.assert_allclose(h * mu, np.broadcast_to(chance @ mu, mu.shape))  # the picture says so, in both rows
    return figure


def value_maps() -> Figure:
    """V*, V_DC, Q^beta and the fixed points of TRL's and GTRL's loss, for one goal."""
    here = scene()
    goal = here.goal
    figure, axes = _canvas(2, 3, (14, 7.4))
    _walker(axes[0, 0], here)
    for axis, shown, title in (
        (axes[0, 1], here.v_star[:, goal], "V*: the best policy"),
        (axes[0, 2], here.v_dc[:, goal], "V_DC: the luckiest route"),
        (axes[1, 0], here.best(here.q_beta), "Q^β: the walker, after its best first action"),
        (axes[1, 1], here.best(here.q_trl), "TRL's fixed point on the log (0: no target)"),
        (axes[1, 2], here.best(here.q_gtrl), "GTRL's fixed point on the log"),
    ):
        _numbers(axis, here.maze, shown, "{:.2f}", vmax=1)
        axis.set_title(title)
    return figure


# --- how fast ---


def iterations() -> Figure:
    """Updates of divide and conquer against one-step backups, as the maze grows and as the trajectory grows."""
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    sizes, halving, single = curves.growing_mazes()
    left.plot(sizes, single, label="one-step backups: diam", **LINES["one step"])
    left.plot(sizes, halving, label="transitive updates: ⌈log₂ diam⌉", **LINES["transitive"])
    left.set(title="Until every value of a maze without teleporter is exact", xlabel="its longest shortest path, diam")
    for name, fits in curves.growing_trajectories().items():
        right.plot(curves.LENGTHS, fits, label=_FITS[name], **LINES[name])
    right.set(title=f"Fits until a trajectory's values are within {curves.CLOSE}", xlabel="its length T")
    for axis in (left, right):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:.0f}")
        axis.yaxis.set_major_formatter("{x:.0f}")
        axis.set_ylabel("how many")
        axis.legend(frameon=False)
        _plain(axis)
    return figure


_FITS = {
    "one step": "one-step targets alone (TD)",
    "TRL": "TRL: composition, expectile 0.7",
    "GTRL": "GTRL: the larger of both",
}


# --- what the losses converge to ---


def expectile() -> Figure:
    """TRL's and GTRL's fixed points on Example 1, as the expectile goes to 1."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    process, log = examples.teleporter(), examples.teleporter_log()
    s, gamma = examples.TELEPORTER["s"], 0.99
    v_star, v_dc = optimal_values(process, gamma), divide_and_conquer_values(process, gamma)
    for axis, goal in zip(figure.subplots(1, 2), ("g", "A"), strict=True):
        g = examples.TELEPORTER[goal]
        for name, tables in curves.expectile_curves(log, gamma).items():
            axis.plot(1 - curves.KAPPAS, tables[:, s, 0, g], label=f"{name}'s fixed point", markevery=6, **LINES[name])
        for value, text in ((v_star[s, g], "V*"), (v_dc[s, g], "V_DC")):
            axis.axhline(value, color=INK, linewidth=0.8)
            above = {"xytext": (0, 3), "va": "bottom"} if text == "V_DC" else {"xytext": (0, -3), "va": "top"}
            axis.annotate(
                f"{text} = {value:.3f}", (1e-4, value), textcoords="offset points", ha="right", fontsize=9, **above
            )
        axis.margins(y=0.1)
        axis.set(title=f"Example 1: Q(s, {goal})", xlabel="1 − κ", xscale="log")
        axis.invert_xaxis()
        axis.axvline(0.3, color="#8c8c8c", linewidth=0.8, linestyle=":")
        axis.text(0.28, axis.get_ylim()[0], " κ = 0.7", va="bottom", fontsize=9, color="#5f5f5f")
        axis.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 0.5))
        _plain(axis)
    return figure


def data() -> Figure:
    """How far the fixed point on a log is from that on infinitely many, as the log grows."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name in ("TRL", "GTRL"):
        left.plot(curves.TELEPORTER_SIZES, curves.teleporter_errors(name).mean(1), label=name, **LINES[name])
        right.plot(np.square(curves.MAZE_SIZES), curves.maze_errors(name).mean(1), label=name, **LINES[name])
    left.set(title="Example 1, n trajectories", xlabel="n", ylabel="largest error of an entry")
    right.set(title="The small maze, n trajectories of n steps", xlabel="n²", ylabel="mean error of a draw's entry")
    sizes = np.array(curves.TELEPORTER_SIZES)
    line = left.lines[-1].get_ydata()[0] * (sizes / sizes[0]) ** -0.5
    left.plot(sizes, line, color="#8c8c8c", linewidth=0.8, label="like 1/√n")
    for axis in (left, right):
        axis.set(xscale="log", yscale="log")
        axis.legend(frameon=False)
        _plain(axis)
    return figure


# --- drawing ---

FIGURES: dict[str, Callable[[], Figure]] = {
    "concept": concept,
    "method": method,
    "values": value_maps,
    "iterations": iterations,
    "expectile": expectile,
    "data": data,
}


def draw(folder: Path) -> Iterator[Path]:
    """Every figure, as <name>.png and <name>.svg; the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure_of in FIGURES.items():
        with mpl.rc_context({"svg.hashsalt": "gtrl", "svg.fonttype": "none", "font.size": 10, "axes.titlesize": 10.5}):
            figure = figure_of()
            figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        yield folder / f"{name}.png"


def _canvas(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    return figure, figure.subplots(rows, columns)


def _numbers(
    axis: Any,
    where: TextMaze,
    of_states: np.ndarray,
    form: str,
    vmin: float = 0,
    vmax: float = 1,
    shades: Colormap = SHADES,
) -> None:
    """A maze with a number in each cell, and its shade."""
    _walls(axis, where)
    axis.imshow(where.picture(of_states), cmap=shades, vmin=vmin, vmax=vmax)
    for row, column in where.cells[of_states < -0.005]:  # in grey, the sign is not in the shade
        corner = (column - 0.5, row - 0.5)
        axis.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="..", edgecolor="white", linewidth=0))
    for (row, column), value in zip(where.cells, of_states, strict=True):
        text = "–" if np.isnan(value) else form.format(value)
        text = "0" if text.strip("+-0.") == "" else re.sub(r"^([+-]?)0\.", r"\1.", text).replace("-", "−")
        axis.text(column, row + 0.08, text, ha="center", va="center", fontsize=8 if len(text) < 4 else 7, color=INK)
    _names(axis, where)


def _coverage(axis: Any, where: TextMaze, trained: np.ndarray) -> None:
    """Trained states light, others hatched."""
    _walls(axis, where)
    axis.imshow(where.picture(np.where(trained, 1.0, np.nan)), cmap="Blues", vmin=0, vmax=4)
    for (row, column), yes in zip(where.cells, trained, strict=True):
        if not yes:
            corner = (column - 0.5, row - 0.5)
            axis.add_patch(Rectangle(corner, 1, 1, facecolor="white", hatch="////", edgecolor=INK, linewidth=0.5))
    _names(axis, where)


def _walker(axis: Any, here: Scene) -> None:
    """The maze and where its walker means to go."""
    _walls(axis, here.maze)
    axis.imshow(here.maze.picture(np.zeros(len(here.maze.cells))), cmap="Greys", vmin=0, vmax=1)
    arrow = {"^": (0, -1), "v": (0, 1), "<": (-1, 0), ">": (1, 0)}
    for row, column in here.maze.cells:
        x, y = arrow[examples.ARROWS[row][column]]
        axis.annotate(
            "", (column + 0.3 * x, row + 0.3 * y), (column - 0.3 * x, row - 0.3 * y),
            arrowprops={"arrowstyle": "->", "color": "#8c8c8c"},
        )  # fmt: skip
    _names(axis, here.maze)
    logged = f"{TRAJECTORIES} trajectories of {STEPS} steps, {MEANS_IT:.0%} along the arrows, else any move"
    axis.set_title(f"The maze: T leads to A or to B, each half the time\n{logged}", fontsize=9)


def _walls(axis: Any, where: TextMaze) -> None:
    axis.set_facecolor(WALL)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_xlim(-0.5, len(where.rows[0]) - 0.5)
    axis.set_ylim(len(where.rows) - 0.5, -0.5)
    axis.set_aspect("equal")


def _names(axis: Any, where: TextMaze) -> None:
    """The names of cells, in their corners, and the teleporter."""
    for row, text in enumerate(where.rows):
        for column, symbol in enumerate(text):
            if symbol == "T":
                axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="white", zorder=2))
                axis.add_patch(Circle((column, row), 0.38, facecolor=INK, zorder=3))
                axis.text(column, row, "T", color="white", ha="center", va="center", weight="bold", zorder=4)
            elif symbol not in "#.":
                axis.text(column - 0.46, row - 0.46, symbol, fontsize=9, weight="bold", color=INK, va="top", zorder=4)


def _plain(axis: Any) -> None:
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)

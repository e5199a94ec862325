"""The figures of the theory page; every number in them is computed exactly. `gtrl theory --out DIR` draws them all."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import NullLocator

from gtrl.report import style
from gtrl.tasks import TRAJECTORY_GOALS
from gtrl.theory import curves, examples
from gtrl.theory.anchored import Anchored, transitive_fit
from gtrl.theory.draws import dataset_draws
from gtrl.theory.maze import FOUR_MOVES, TextMaze
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

# --- the scene of the maps: the teleport maze, with short trajectories of a behaviour policy ---

GAMMA = 0.95
ARROW_PROBABILITY = 0.6  # that the behaviour policy follows its arrow; otherwise its move is uniformly random
TRAJECTORIES, STEPS = 300, 15  # of the log, and of each trajectory in it
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
        """The state of the goal g."""
        return self.maze.names["g"]

    def best(self, q: np.ndarray) -> np.ndarray:
        """The value of the best action that was logged, for the goal g; NaN in states without one."""
        logged = self.drawn_gtrl[:, :, self.goal]
        value = np.where(logged, q[:, :, self.goal], -np.inf).max(1)
        return np.where(logged.any(1), value, np.nan)


@cache
def scene() -> Scene:
    """Computes the scene, once: exact values, a log of the behaviour policy, and the losses' fixed points on it."""
    where = examples.teleport_maze()
    process, rng = where.process, np.random.default_rng(0)
    beta = examples.arrow_behaviour(where, examples.ARROWS, ARROW_PROBABILITY)
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
        transitive_fit(GAMMA).fixed_point(along, tolerance=curves.TOLERANCE),
        Anchored(GAMMA).fixed_point(mixed, tolerance=curves.TOLERANCE),
        along.drawn,
        mixed.drawn,
    )


def updates_until_positive(values: Iterable[np.ndarray], goal: int) -> np.ndarray:
    """For each state, the index of the first of successive value tables whose value for the goal is above 0."""
    return np.argmax(np.array([v[:, goal] > 0 for v in values]), 0)


# --- maps ---


def concept() -> Figure:
    """The paper's Figure 1: how the rule halves distances, where it fails, and what a one-step target repairs."""
    here = scene()
    process, goal = here.maze.process, here.goal
    updates = updates_until_positive(iterates(process, GAMMA), goal)
    backups = graph_distances(process)[:, goal]
    figure = style.new_figure(10.3)
    axes = figure.subplots(3, 2)

    image = None
    for axis, counts, rule, reach in (
        (axes[0, 0], updates, "(a) Divide and conquer: updates", "2ⁿ"),
        (axes[0, 1], backups, "One-step backups: backups", "n"),
    ):
        image = _draw_numbers(axis, here.maze, counts, "{:.0f}", vmax=backups.max())
        axis.set_title(f"{rule} until a state has\na value for g (up to {reach} steps away after n)")
    style.colour_bar(
        figure,
        image,
        axes[0],
        "updates or backups until the value is above 0",
        "bottom",
        aspect=60,
        ticks=range(0, 21, 5),
    )

    for axis, values, title in (
        (axes[1, 0], here.v_dc[:, goal], "(b) It mistakes luck for a choice:\n$V_{DC}$ − $V^*$ for g"),
        (axes[2, 0], here.best(here.q_gtrl), "(c) Grounded in one-step targets:\nGTRL − $V^*$ for g"),
    ):
        error, limit = values - here.v_star[:, goal], 0.5
        image = _draw_numbers(axis, here.maze, error, "{:+.2f}", -limit, limit, style.DIVERGING)
        axis.set_title(title)
    style.colour_bar(figure, image, axes[1:, 0], "error: value − $V^*$", "bottom", aspect=30)

    for axis, drawn, title in (
        (axes[1, 1], here.drawn_trl, "TRL has a target for g only where\none trajectory goes from the state to g"),
        (axes[2, 1], here.drawn_gtrl, "GTRL has a target for g\nwherever the data has a transition"),
    ):
        trained = np.any(drawn[:, :, goal], axis=1)
        _draw_coverage(axis, here.maze, trained)
        axis.set_title(f"{title}: {trained.sum()} of {len(trained)} states")
    key = {"has a target for g": _TRAINED, "has none": _UNTRAINED}
    handles = [Patch(label=label, **look) for label, look in key.items()]
    place = axes[2, 1].legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=2)
    place.set_in_layout(False)  # it has the room that the colour bar beside it takes
    return figure


def method() -> Figure:
    """The paper's Figure 2: which pairs are trained, and how the weight turns hindsight goals back to the average."""
    here = scene()
    process, where = here.maze.process, here.maze
    into = where.names["x"], RIGHT
    chance, outcomes = process.probabilities[into], process.successors[into]
    mu = occupancy(process, here.beta, GAMMA)[outcomes]
    h = hindsight_ratio(process, here.beta, GAMMA)[into]
    figure = style.new_figure(11.6)
    axes = figure.subplots(4, 2)
    images: list[Any] = [None] * 4
    for axis, drawn, name in ((axes[0, 0], here.drawn_trl, "(a) TRL"), (axes[0, 1], here.drawn_gtrl, "GTRL")):
        images[0] = _draw_numbers(axis, where, 100 * drawn.any(1).mean(1), "{:.0f}", vmax=100)
        axis.set_title(f"{name}: for how many goals a state is trained")
    for column, (outcome, other) in enumerate((("A", "B"), ("B", "A"))):
        place = int(np.flatnonzero(outcomes == where.names[outcome])[0])
        per_mille = 1000 * mu[place]
        letter = "" if column else "(b) "
        for row, values, form, vmax, title in (
            (1, per_mille, "{:.0f}", 95, f"{letter}Goals drawn after T led to {outcome}: μ(g | {outcome})"),
            (2, h[place], "{:.1f}", 7, f"× h(x, right, {outcome}, g): larger where {other} is nearer"),
            (3, h[place] * per_mille, "{:.0f}", 95, "= the average of μ over A and B"),
        ):
            images[row] = _draw_numbers(axes[row, column], where, values, form, vmax=vmax)
            axes[row, column].set_title(title)
    labels = ("% of all goals", "‰ of drawn goals", "weight h, not clipped", "‰ of drawn goals")
    for row, (image, label) in enumerate(zip(images, labels, strict=True)):
        style.colour_bar(figure, image, axes[row], label, aspect=20)
    np.testing.assert_allclose(h * mu, np.broadcast_to(chance @ mu, mu.shape))  # the last row, in both columns
    return figure


def value_maps() -> Figure:
    """V*, V_DC, Q^beta and the fixed points of TRL's and GTRL's loss, for one goal."""
    here = scene()
    goal = here.goal
    figure = style.new_figure(8.9)
    axes = figure.subplots(3, 2)
    _draw_behaviour(axes[0, 0], here)
    image = None
    for axis, values, title in (
        (axes[0, 1], here.v_star[:, goal], "$V^*$: the optimal policy"),
        (axes[1, 0], here.v_dc[:, goal], "$V_{DC}$: the luckiest route"),
        (axes[1, 1], here.best(here.q_beta), "$Q^β$: the behaviour policy, after its best first action"),
        (axes[2, 0], here.best(here.q_trl), "TRL: fixed point on the log (0: no target)"),
        (axes[2, 1], here.best(here.q_gtrl), "GTRL: fixed point on the log"),
    ):
        image = _draw_numbers(axis, here.maze, values, "{:.2f}")
        axis.set_title(title)
    style.colour_bar(figure, image, axes, "value of a state for g", aspect=50, shrink=0.6)
    return figure


# --- curves ---


def iterations() -> Figure:
    """Updates of divide and conquer against one-step backups, as the maze and as the trajectory grow."""
    figure = style.new_figure(3.5)
    left, right = figure.subplots(1, 2)
    sizes, updates, backups = curves.growing_mazes()
    left.plot(sizes, backups, label="one-step backups: diam", **style.LINES["one step"])
    left.plot(sizes, updates, label="transitive updates: ⌈log₂ diam⌉", **style.LINES["transitive"])
    left.set(title="Maze without teleporter", ylabel="updates until every value is exact")
    left.set(xlabel="diameter (longest shortest path, steps)")
    _log_axis(left, "x", sizes)
    for name, fits in curves.growing_trajectories().items():
        right.plot(curves.LENGTHS, fits, label=_FIT_LABELS[name], **style.LINES[name])
    right.set(title="One trajectory", ylabel=f"fits until every error is at most {curves.CLOSE}")
    right.set(xlabel="length of the trajectory (steps)")
    _log_axis(right, "x", curves.LENGTHS)
    for axis in (left, right):
        _log_axis(axis, "y", [4, 8, 16, 32, 64, 128])
        axis.set_ylim(3.5, 180)
        axis.grid()
        axis.legend(loc="upper left")
    return figure


_FIT_LABELS = {
    "one step": "one-step targets alone (TD)",
    "TRL": "TRL: composition, expectile 0.7",
    "GTRL": "GTRL: the larger of both",
}


def expectile() -> Figure:
    """TRL's and GTRL's fixed points on Example 1, as the expectile goes to 1."""
    figure = style.new_figure(3.6)
    process, log = examples.teleporter(), examples.teleporter_log()
    s, gamma = examples.TELEPORTER["s"], 0.99
    v_star, v_dc = optimal_values(process, gamma), divide_and_conquer_values(process, gamma)
    found = curves.expectile_curves(log, gamma)
    for axis, goal in zip(figure.subplots(1, 2), ("g", "A"), strict=True):
        g = examples.TELEPORTER[goal]
        for name, tables in found.items():
            values = tables[:, s, 0, g]
            axis.plot(1 - curves.KAPPAS, values, label=f"{name}: fixed point", markevery=6, **style.LINES[name])
        for value, name, above in ((v_star[s, g], "$V^*$", False), (v_dc[s, g], "$V_{DC}$", True)):
            axis.axhline(value, **style.REFERENCE)
            offset = {"xytext": (0, 4), "va": "bottom"} if above else {"xytext": (0, -4), "va": "top"}
            text = f"{name} = {value:.3f}"
            axis.annotate(text, (1e-4, value), textcoords="offset points", ha="right", **offset)
        axis.margins(y=0.12)
        axis.set(title=f"Example 1, goal {goal}", ylabel=f"Q(s, {goal})", xscale="log")
        axis.set_xlabel("1 − κ  (the expectile κ goes to 1 on the right)")
        axis.invert_xaxis()
        axis.axvline(0.3, **style.REFERENCE)
        axis.annotate("κ = 0.7", (0.3, axis.get_ylim()[0]), textcoords="offset points", xytext=(4, 4), va="bottom")
        axis.legend(loc="lower right", bbox_to_anchor=(1, 0.4))
    return figure


def data() -> Figure:
    """The error of the fixed point on a log against the one on infinitely many trajectories, as the log grows."""
    figure = style.new_figure(3.5)
    left, right = figure.subplots(1, 2)
    for name in ("TRL", "GTRL"):
        left.plot(curves.TELEPORTER_SIZES, curves.teleporter_errors(name).mean(1), label=name, **style.LINES[name])
        right.plot(np.square(curves.MAZE_SIZES), curves.maze_errors(name).mean(1), label=name, **style.LINES[name])
    sizes = np.array(curves.TELEPORTER_SIZES)
    slope = left.lines[-1].get_ydata()[0] * (sizes / sizes[0]) ** -0.5
    left.plot(sizes, slope, label="proportional to 1/√n", **style.REFERENCE)
    left.set(title="Example 1", xlabel="number of trajectories, n", ylabel="maximum error of Q")
    right.set(title="Small maze, n trajectories of n steps", xlabel="number of transitions, n²")
    right.set_ylabel("mean error of Q")
    _log_axis(left, "x", sizes)
    _log_axis(right, "x", np.square(curves.MAZE_SIZES))
    for axis in (left, right):
        _log_axis(axis, "y", [0.001, 0.01, 0.1, 1])
        axis.set_ylim(0.0015, 1)
        axis.grid()
        axis.legend(loc="upper right")
    return figure


# --- all figures ---

FIGURES: dict[str, Callable[[], Figure]] = {
    "concept": concept,
    "method": method,
    "values": value_maps,
    "iterations": iterations,
    "expectile": expectile,
    "data": data,
}


@style.applied()
def _draw_one(make: Callable[[], Figure], stem: Path) -> Path:
    figure = make()
    for suffix in ("svg", "png"):
        style.save(figure, stem.with_suffix(f".{suffix}"))
    return stem.with_suffix(".png")


def draw(folder: Path) -> Iterator[Path]:
    """Draws every figure as <name>.png and <name>.svg, with the same bytes each time; yields the PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in FIGURES.items():
        yield _draw_one(make, folder / name)


# --- parts of maps: cells are unit squares, y up ---

_TRAINED: dict[str, Any] = {"facecolor": "#8db4da", "edgecolor": "#8db4da"}
_UNTRAINED: dict[str, Any] = {"facecolor": "white", "edgecolor": style.INK, "hatch": "////", "linewidth": 0.5}


def _draw_numbers(
    axis: Any,
    where: TextMaze,
    of_states: np.ndarray,
    form: str,
    vmin: float = 0,
    vmax: float = 1,
    colours: Colormap = style.SEQUENTIAL,
) -> Any:
    """Draws a maze with a number and its colour in each cell; returns the image, for a colour bar."""
    _draw_maze(axis, where)
    picture, extent = where.picture(of_states)[::-1], (0, len(where.rows[0]), 0, len(where.rows))
    image = axis.imshow(picture, cmap=colours, vmin=vmin, vmax=vmax, extent=extent, origin="lower", zorder=1)
    for (x, y), value in zip(_centres(where), of_states, strict=True):
        colour = style.text_colour(colours((value - vmin) / (vmax - vmin)))
        axis.text(x, y, _short(value, form), ha="center", va="center_baseline", fontsize=style.SMALL, color=colour)
    return image


def _short(value: float, form: str) -> str:
    """A number without its leading 0; a dash for NaN."""
    if np.isnan(value):
        return "–"
    text = form.format(value)
    if not text.strip("+-0."):
        return "0"
    return re.sub(r"^([+-]?)0\.", r"\1.", text).replace("-", "−")


def _draw_coverage(axis: Any, where: TextMaze, trained: np.ndarray) -> None:
    """Draws trained states plain and others hatched."""
    _draw_maze(axis, where)
    for (x, y), has_target in zip(_centres(where), trained, strict=True):
        look = _TRAINED if has_target else _UNTRAINED
        axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, zorder=1, **look))


def _draw_behaviour(axis: Any, here: Scene) -> None:
    """Draws the arrows that the behaviour policy prefers to follow."""
    _draw_maze(axis, here.maze)
    for (x, y), (row, column) in zip(_centres(here.maze), here.maze.cells, strict=True):
        down, right = 0.32 * np.array(FOUR_MOVES["^v<>".index(examples.ARROWS[row][column])])
        ends = (x + right, y - down), (x - right, y + down)
        axis.annotate("", *ends, arrowprops={"arrowstyle": "->", "color": style.INK, "linewidth": 0.8})
    log = f"{TRAJECTORIES} trajectories of {STEPS} steps follow the arrows with"
    rule = f"probability {ARROW_PROBABILITY}, else a random move. T leads to A or B."
    axis.set_title(f"{log}\n{rule}")


def _draw_maze(axis: Any, where: TextMaze) -> None:
    """Draws the plan, the teleporter, and the names of cells in the walls beside them, where no number is."""
    free = np.array([[symbol != "#" for symbol in row] for row in where.rows])
    rows, columns = free.shape
    style.draw_plan(axis, free[::-1], (0, columns, 0, rows))
    for row, text in enumerate(where.rows):
        for column, symbol in enumerate(text):
            x, y = column + 0.5, rows - row - 0.5
            if symbol == "T":
                look = {"facecolor": style.ENTRANCE, "edgecolor": style.INK, "linewidth": 0.8}
                axis.add_patch(Rectangle((x - 0.36, y - 0.36), 0.72, 0.72, zorder=3, **look))
                axis.text(x, y, "T", ha="center", va="center_baseline", weight="bold", zorder=4)
            elif symbol not in "#.":
                down, right = next(move for move in _NAME_SIDES if not free[row + move[0], column + move[1]])
                at = x + 0.75 * right, y - 0.75 * down
                axis.text(*at, symbol, ha="center", va="center_baseline", weight="bold", zorder=4)


_NAME_SIDES = ((0, -1), (0, 1), (-1, 0), (1, 0))  # left, right, above, below, as (rows down, columns right)


def _centres(where: TextMaze) -> np.ndarray:
    """The centre (x, y) of each state's cell."""
    row, column = where.cells.T
    return np.stack([column + 0.5, len(where.rows) - row - 0.5], 1)


def _log_axis(axis: Any, which: str, ticks: Any) -> None:
    """Makes an axis logarithmic, with plain numbers at the given ticks."""
    axis.set(**{f"{which}scale": "log"})
    of = getattr(axis, f"{which}axis")
    of.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    of.set_minor_locator(NullLocator())

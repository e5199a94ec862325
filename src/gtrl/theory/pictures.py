"""The argument in pictures, every number in them computed exactly. `gtrl theory --out DIR` draws them all."""

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
from gtrl.theory import examples
from gtrl.theory.anchored import Anchored, transitive_fit
from gtrl.theory.draws import dataset_draws, model_draws
from gtrl.theory.maze import Maze, maze
from gtrl.theory.process import Log, Process, sample_log, uniform
from gtrl.theory.transitive import iterates
from gtrl.theory.values import (
    backups_needed,
    behaviour_values,
    diameter,
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
SETTLED = 1e-7  # more than a picture shows
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
INTO_TELEPORTER = 3  # the action right


class Scene(NamedTuple):
    """The maze, its log, and tables over (state, action, goal) or (state, goal)."""

    maze: Maze
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
    beta = examples.walker(where, examples.ARROWS, MEANS_IT)
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
        transitive_fit(GAMMA).fixed_point(along, settled=SETTLED),
        Anchored(GAMMA).fixed_point(mixed, settled=SETTLED),
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
    _numbers(axes[0, 0], here.maze, halving, "{:.0f}", vmax=d.max())
    axes[0, 0].set_title("(a) Divide and conquer: updates until\nthe value of g arrives (at most 2ⁿ steps after n)")
    _numbers(axes[1, 0], here.maze, d, "{:.0f}", vmax=d.max())
    axes[1, 0].set_title("One-step backups until it arrives\n(with luck: d of them)")
    top = max(0.3, float(np.max(here.v_dc[:, goal] - here.v_star[:, goal])))
    for axis, values, title in (
        (axes[0, 1], here.v_dc[:, goal] - here.v_star[:, goal], "(b) It takes luck for choice:\nV_DC − V*"),
        (
            axes[0, 2],
            here.best(here.q_gtrl) - here.v_star[:, goal],
            "(c) Grounded in one step:\nGTRL's fit − V*",
        ),
    ):
        _numbers(axis, here.maze, values, "{:+.2f}", vmin=-top, vmax=top, shades=SIGNS)
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
    s = where.names["s"] + 1  # the cell between s and the teleporter
    chance = process.probabilities[s, INTO_TELEPORTER]
    mu = occupancy(process, here.beta, GAMMA)[process.successors[s, INTO_TELEPORTER]]
    h = hindsight_ratio(process, here.beta, GAMMA, s, INTO_TELEPORTER)
    figure, axes = _canvas(2, 4, (17, 7.2))
    for axis, drawn, name in ((axes[0, 0], here.drawn_trl, "TRL"), (axes[1, 0], here.drawn_gtrl, "GTRL")):
        share = drawn.any(1).mean(1)
        _numbers(axis, where, 100 * share, "{:.0f}", vmax=100)
        axis.set_title(f"(a) {name}: % of all goals\nfor which a state is trained")
    for row, (outcome, other) in enumerate((("A", "B"), ("B", "A"))):
        place = int(np.flatnonzero(process.successors[s, INTO_TELEPORTER] == where.names[outcome])[0])
        per_mille = 1000 * mu[place]
        for axis, values, form, top, title in (
            (axes[row, 1], per_mille, "{:.0f}", 60, f"(b) Goals drawn after {outcome}: μ(g | {outcome}), in ‰"),
            (axes[row, 2], h[place], "{:.1f}", 3, f"× h(s, a, {outcome}, g): up where {other} was nearer"),
            (axes[row, 3], h[place] * per_mille, "{:.0f}", 60, "= the average over A and B, in ‰"),
        ):
            _numbers(axis, where, values, form, vmax=top)
            axis.set_title(title)
    np.testing.assert_allclose(h * mu, np.broadcast_to(chance @ mu, mu.shape))  # the picture says so, in both rows
    return figure


def values() -> Figure:
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

MAGNIFICATIONS = (1, 2, 3, 4)
LENGTHS = (4, 8, 16, 32, 64)
CLOSE = 0.01  # a fit has arrived when every value along the trajectory is off by no more


def iterations() -> Figure:
    """Updates of divide and conquer against one-step backups, as the maze grows and as the trajectory grows."""
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    sizes, halving, single = growing_mazes()
    left.plot(sizes, single, label="one-step backups", **LINES["one step"])
    left.plot(sizes, halving, label="transitive updates", **LINES["transitive"])
    left.plot(sizes, np.ceil(np.log2(sizes)), color="#8c8c8c", linewidth=0.8, label="⌈log₂ diam⌉ and diam")
    left.plot(sizes, sizes, color="#8c8c8c", linewidth=0.8)
    left.set(title="Until every value of a maze is exact", xlabel="longest shortest path (diam) of the maze")
    for name, fits in growing_trajectories().items():
        right.plot(LENGTHS, fits, label=_FITS[name], **LINES[name])
    right.set(title=f"Fits until a trajectory's values are within {CLOSE}", xlabel="its length T")
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


def growing_mazes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The maze without its teleporter, magnified: diameter, transitive updates and one-step backups until exact."""
    rows = tuple(row.replace("T", "#").replace("A", ".").replace("B", ".") for row in examples.TELEPORT_MAZE)
    mazes = [maze(examples.magnified(rows, factor)).process for factor in MAGNIFICATIONS]
    sizes = np.array([diameter(graph_distances(process)) for process in mazes])
    halving = [sum(1 for _ in iterates(process, GAMMA)) - 1 for process in mazes]
    single = [backups_needed(process, GAMMA) for process in mazes]
    return sizes, np.array(halving), np.array(single)


def growing_trajectories(gamma: float = 0.99) -> dict[str, list[int]]:
    """One trajectory through T + 1 states: fits from 0 until every value ahead on it is close to gamma^distance."""
    counts: dict[str, list[int]] = {name: [] for name in _FITS}
    for length in LENGTHS:
        log = Log.of([(np.arange(length + 1), np.zeros(length + 1, int))])  # pyright: ignore[reportArgumentType]
        ahead = np.arange(length + 1)[None, :] - np.arange(length + 1)[:, None]
        exact = np.where(ahead > 0, gamma ** np.abs(ahead), np.nan)
        anywhere = dataset_draws(log, length + 1, 1, gamma, (0, 0, 1), "draw")
        counts["one step"].append(_fits_needed(Anchored(gamma, hindsight=False), anywhere, exact))
        for name, method_of in _METHODS.items():
            operator, mixture = method_of(gamma)
            counts[name].append(_fits_needed(operator, dataset_draws(log, length + 1, 1, gamma, mixture), exact))
    return counts


def _fits_needed(operator: Anchored, draws: Any, exact: np.ndarray) -> int:
    q, fits = np.zeros((draws.states, 1, draws.states)), 0
    while np.nanmax(np.abs(np.where(draws.drawn[:, 0], q[:, 0] - exact, 0))) > CLOSE:
        q, fits = operator(q, draws), fits + 1
    return fits


# --- what the losses converge to ---

KAPPAS = 1 - np.geomspace(0.5, 1e-4, 40)


def expectiles() -> Figure:
    """TRL's and GTRL's fixed points on Example 1, as the expectile goes to 1."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    process, log = examples.teleporter(), examples.teleporter_log()
    s, gamma = examples.TELEPORTER["s"], 0.99
    v_star, v_dc = optimal_values(process, gamma), divide_and_conquer_values(process, gamma)
    curves = expectile_curves(log, gamma)
    for axis, goal in zip(figure.subplots(1, 2), ("g", "A"), strict=True):
        g = examples.TELEPORTER[goal]
        for name, tables in curves.items():
            axis.plot(1 - KAPPAS, tables[:, s, 0, g], label=f"{name}'s fixed point", markevery=6, **LINES[name])
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


def expectile_curves(log: Log, gamma: float) -> dict[str, np.ndarray]:
    along, mixed = dataset_draws(log, 13, 1, gamma, TRAJECTORY_GOALS), dataset_draws(log, 13, 1, gamma)
    return {
        "TRL": np.array([transitive_fit(gamma, kappa).fixed_point(along) for kappa in KAPPAS]),
        "GTRL": np.array([Anchored(gamma, kappa=kappa).fixed_point(mixed) for kappa in KAPPAS]),
    }


TELEPORTER_SIZES = (8, 32, 128, 512)
MAZE_SIZES = (6, 12, 24, 48)
TELEPORTER_REPEATS, MAZE_REPEATS = 20, 3


def data() -> Figure:
    """How far the fixed point on a log is from that on infinitely many, as the log grows."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name in ("TRL", "GTRL"):
        left.plot(TELEPORTER_SIZES, teleporter_errors(name).mean(1), label=name, **LINES[name])
        right.plot(np.square(MAZE_SIZES), maze_errors(name).mean(1), label=name, **LINES[name])
    left.set(title="Example 1, n trajectories", xlabel="n", ylabel="largest error of an entry")
    right.set(title="The small maze, n trajectories of n steps", xlabel="n²", ylabel="mean error of a draw's entry")
    for axis, sizes in ((left, np.array(TELEPORTER_SIZES)), (right, np.square(MAZE_SIZES))):
        line = axis.lines[-1].get_ydata()[0] * (sizes / sizes[0]) ** -0.5
        axis.plot(sizes, line, color="#8c8c8c", linewidth=0.8, label="like 1/√data")
        axis.set(xscale="log", yscale="log")
        axis.legend(frameon=False)
        _plain(axis)
    return figure


def teleporter_errors(name: str, gamma: float = 0.99) -> np.ndarray:
    """(sizes, repeats): as trajectories grow, luck evens out, and random goals on one's own trajectory get rare."""
    operator, mixture = _METHODS[name](gamma)
    truth = operator.fixed_point(dataset_draws(examples.teleporter_log(), 13, 1, gamma, mixture, "draw"))
    errors = np.empty((len(TELEPORTER_SIZES), TELEPORTER_REPEATS))
    for repeat in range(TELEPORTER_REPEATS):
        lucky = np.cumsum(np.random.default_rng(repeat).random(TELEPORTER_SIZES[-1]) < 0.5)
        for index, size in enumerate(TELEPORTER_SIZES):
            log = examples.teleporter_log(int(lucky[size - 1]), int(size - lucky[size - 1]))
            found = operator.fixed_point(dataset_draws(log, 13, 1, gamma, mixture))
            errors[index, repeat] = np.abs(found - truth).max()
    return errors


def maze_errors(name: str, gamma: float = 0.8) -> np.ndarray:
    """(sizes, repeats), against the true model: trajectories grow longer too, for their ends are not in the model.

    Entries count as often as they are drawn. Some are so rare that a small log does not have them: they stay 0.
    """
    process = examples.small_maze().process
    beta = uniform(process)
    rows = stationary(process, beta)
    operator, mixture = _METHODS[name](gamma)
    every = model_draws(process, beta, gamma, mixture, rows=rows)
    truth, often = operator.fixed_point(every, settled=SETTLED), np.add.reduceat(every.probability, every.first)
    errors = np.empty((len(MAZE_SIZES), MAZE_REPEATS))
    for repeat in range(MAZE_REPEATS):
        for index, size in enumerate(MAZE_SIZES):
            rng = np.random.default_rng((repeat, size))
            log = sample_log(process, beta, rng.choice(process.states, size, p=rows), size, rng)
            draws = dataset_draws(log, process.states, process.actions, gamma, mixture)
            found = operator.fixed_point(draws, settled=SETTLED)
            errors[index, repeat] = np.average(np.abs(found - truth)[every.entry], weights=often)
    return errors


_METHODS: dict[str, Callable[[float], tuple[Anchored, Any]]] = {
    "TRL": lambda gamma: (transitive_fit(gamma), TRAJECTORY_GOALS),
    "GTRL": lambda gamma: (Anchored(gamma), (0, 0.5, 0.5)),
}


def stationary(process: Process, beta: np.ndarray) -> np.ndarray:
    """How often an endless trajectory is in each state."""
    chain = process.under(beta)
    system = np.vstack([chain.T - np.eye(process.states), np.ones(process.states)])
    return np.linalg.lstsq(system, np.append(np.zeros(process.states), 1))[0].clip(0)


# --- drawing ---

FIGURES: dict[str, Callable[[], Figure]] = {
    "concept": concept,
    "method": method,
    "values": values,
    "iterations": iterations,
    "expectile": expectiles,
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
    where: Maze,
    of_states: np.ndarray,
    form: str,
    vmin: float = 0,
    vmax: float = 1,
    shades: Colormap = SHADES,
) -> None:
    """A maze with a number in each cell, and its shade."""
    _walls(axis, where)
    axis.imshow(where.picture(of_states), cmap=shades, vmin=vmin, vmax=vmax)
    for (row, column), value in zip(where.cells, of_states, strict=True):
        text = "–" if np.isnan(value) else form.format(value)
        text = "0" if text.strip("+-0.") == "" else text.replace("-", "−").replace("0.", ".", 1)
        axis.text(column, row + 0.08, text, ha="center", va="center", fontsize=8 if len(text) < 4 else 7, color=INK)
    _names(axis, where)


def _coverage(axis: Any, where: Maze, trained: np.ndarray) -> None:
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


def _walls(axis: Any, where: Maze) -> None:
    axis.set_facecolor(WALL)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_xlim(-0.5, len(where.rows[0]) - 0.5)
    axis.set_ylim(len(where.rows) - 0.5, -0.5)
    axis.set_aspect("equal")


def _names(axis: Any, where: Maze) -> None:
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

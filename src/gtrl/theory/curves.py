"""Exact curves: how fast values are found, what losses converge to, and how that depends on the data."""

from collections.abc import Callable

import numpy as np

from gtrl.tasks import RANDOM_GOALS, TRAJECTORY_GOALS, VALUE_GOALS, Goals
from gtrl.theory import examples
from gtrl.theory.anchored import Anchored, transitive_fit
from gtrl.theory.draws import Draws, dataset_draws, model_draws
from gtrl.theory.maze import maze
from gtrl.theory.process import Log, Process, sample_log, uniform
from gtrl.theory.transitive import iterates
from gtrl.theory.values import backups_needed, diameter, graph_distances

ENOUGH = 1e-7  # fixed points to this: more than a curve shows

METHODS: dict[str, Callable[[float], tuple[Anchored, Goals]]] = {
    "TRL": lambda gamma: (transitive_fit(gamma), TRAJECTORY_GOALS),
    "GTRL": lambda gamma: (Anchored(gamma), VALUE_GOALS),
}


# --- how fast ---

MAGNIFICATIONS = (1, 2, 3, 4)
LENGTHS = (4, 8, 16, 32, 64)
CLOSE = 0.01  # a fit has arrived when every value along the trajectory is off by no more


def growing_mazes(gamma: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The maze without its teleporter, magnified: diameter, transitive updates and one-step backups until exact."""
    rows = tuple(row.replace("T", "#").replace("A", ".").replace("B", ".") for row in examples.TELEPORT_MAZE)
    mazes = [maze(examples.magnified(rows, factor)).process for factor in MAGNIFICATIONS]
    sizes = np.array([diameter(graph_distances(process)) for process in mazes])
    halving = [sum(1 for _ in iterates(process, gamma)) - 1 for process in mazes]
    single = [backups_needed(process, gamma) for process in mazes]
    return sizes, np.array(halving), np.array(single)


def growing_trajectories(gamma: float = 0.99) -> dict[str, list[int]]:
    """One trajectory through T + 1 states: fits from 0 until every value ahead on it is close to gamma^distance."""
    counts: dict[str, list[int]] = {name: [] for name in ("one step", *METHODS)}
    for length in LENGTHS:
        log = Log.of([(np.arange(length + 1), np.zeros(length + 1, int))])  # pyright: ignore[reportArgumentType]
        ahead = np.arange(length + 1)[None, :] - np.arange(length + 1)[:, None]
        exact = np.where(ahead > 0, gamma ** np.abs(ahead), np.nan)
        anywhere = dataset_draws(log, length + 1, 1, gamma, RANDOM_GOALS, "draw")
        counts["one step"].append(_fits_needed(Anchored(gamma, hindsight=False), anywhere, exact))
        for name, method_of in METHODS.items():
            operator, mixture = method_of(gamma)
            counts[name].append(_fits_needed(operator, dataset_draws(log, length + 1, 1, gamma, mixture), exact))
    return counts


def _fits_needed(operator: Anchored, draws: Draws, exact: np.ndarray) -> int:
    q, fits = np.zeros((draws.states, 1, draws.states)), 0
    while np.nanmax(np.abs(np.where(draws.drawn[:, 0], q[:, 0] - exact, 0))) > CLOSE:
        q, fits = operator(q, draws), fits + 1
    return fits


# --- what the losses converge to ---

KAPPAS = 1 - np.geomspace(0.5, 1e-4, 25)


def expectile_curves(log: Log, gamma: float) -> dict[str, np.ndarray]:
    along, mixed = dataset_draws(log, 13, 1, gamma, TRAJECTORY_GOALS), dataset_draws(log, 13, 1, gamma)
    return {
        "TRL": np.array([transitive_fit(gamma, kappa).fixed_point(along) for kappa in KAPPAS]),
        "GTRL": np.array([Anchored(gamma, kappa=kappa).fixed_point(mixed) for kappa in KAPPAS]),
    }


# --- and how that depends on the data ---

TELEPORTER_SIZES = (8, 32, 128, 512)
MAZE_SIZES = (6, 12, 24, 48)
TELEPORTER_REPEATS, MAZE_REPEATS = 12, 3


def teleporter_errors(name: str, gamma: float = 0.99) -> np.ndarray:
    """(sizes, repeats): as trajectories grow, luck evens out, and random goals on one's own trajectory get rare."""
    operator, mixture = METHODS[name](gamma)
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
    operator, mixture = METHODS[name](gamma)
    every = model_draws(process, beta, gamma, mixture, rows=rows)
    truth, often = operator.fixed_point(every, tolerance=ENOUGH), np.add.reduceat(every.probability, every.first)
    errors = np.empty((len(MAZE_SIZES), MAZE_REPEATS))
    for repeat in range(MAZE_REPEATS):
        for index, size in enumerate(MAZE_SIZES):
            rng = np.random.default_rng((repeat, size))
            log = sample_log(process, beta, rng.choice(process.states, size, p=rows), size, rng)
            draws = dataset_draws(log, process.states, process.actions, gamma, mixture)
            found = operator.fixed_point(draws, tolerance=ENOUGH)
            errors[index, repeat] = np.average(np.abs(found - truth)[every.entry], weights=often)
    return errors


def stationary(process: Process, beta: np.ndarray) -> np.ndarray:
    """How often an endless trajectory is in each state."""
    chain = process.transition_matrix(beta)
    system = np.vstack([chain.T - np.eye(process.states), np.ones(process.states)])
    return np.linalg.lstsq(system, np.append(np.zeros(process.states), 1))[0].clip(0)

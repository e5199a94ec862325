"""Exact curves: updates until values are found, what losses converge to, and how that depends on the data."""

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

TOLERANCE = 1e-7  # maximum change at which a fixed point counts as found: finer than a curve shows

METHODS: dict[str, Callable[[float], tuple[Anchored, Goals]]] = {
    "TRL": lambda gamma: (transitive_fit(gamma), TRAJECTORY_GOALS),
    "GTRL": lambda gamma: (Anchored(gamma), VALUE_GOALS),
}


# --- updates and fits until values are found ---

MAGNIFICATIONS = (1, 2, 3, 4)  # cells along each side of an original cell
LENGTHS = (4, 8, 16, 32, 64)  # of a trajectory, in steps
CLOSE = 0.01  # maximum error of any value along the trajectory at which fitting stops


def growing_mazes(gamma: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns, for the maze without teleporter, magnified: diameters, and updates and one-step backups until exact."""
    rows = tuple(row.replace("T", "#").replace("A", ".").replace("B", ".") for row in examples.TELEPORT_MAZE)
    mazes = [maze(examples.magnified(rows, factor)).process for factor in MAGNIFICATIONS]
    sizes = np.array([diameter(graph_distances(process)) for process in mazes])
    updates = [sum(1 for _ in iterates(process, gamma)) - 1 for process in mazes]
    backups = [backups_needed(process, gamma) for process in mazes]
    return sizes, np.array(updates), np.array(backups)


def growing_trajectories(gamma: float = 0.99) -> dict[str, list[int]]:
    """Returns the fits, from 0, until every value along one trajectory is close to gamma^distance.

    Keyed by method, one number per length T; the trajectory has T + 1 different states.
    """
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

KAPPAS = 1 - np.geomspace(0.5, 1e-4, 25)  # expectiles


def expectile_curves(log: Log, gamma: float) -> dict[str, np.ndarray]:
    """Returns the fixed points (kappas, S, A, S) of TRL's and GTRL's loss on a log of Example 1, by method."""
    along, mixed = dataset_draws(log, 13, 1, gamma, TRAJECTORY_GOALS), dataset_draws(log, 13, 1, gamma)
    return {
        "TRL": np.array([transitive_fit(gamma, kappa).fixed_point(along) for kappa in KAPPAS]),
        "GTRL": np.array([Anchored(gamma, kappa=kappa).fixed_point(mixed) for kappa in KAPPAS]),
    }


# --- how fixed points depend on the data ---

TELEPORTER_SIZES = (8, 32, 128, 512)  # trajectories in a log
MAZE_SIZES = (6, 12, 24, 48)  # trajectories in a log, and steps in each
TELEPORTER_REPEATS, MAZE_REPEATS = 12, 3  # logs of each size


def teleporter_errors(name: str, gamma: float = 0.99) -> np.ndarray:
    """Returns the maximum error (sizes, repeats) on logs of Example 1, against infinitely many trajectories.

    With more trajectories, the shares of A and B approach their probabilities, and a random goal rarely lies on the
    trajectory it is drawn for.
    """
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
    """Returns the mean error (sizes, repeats) on logs of the small maze, against draws from the true model.

    Trajectories grow longer as well, because the model has no ends of trajectories. Entries are weighted by how often
    they are drawn. Entries that a small log lacks stay 0.
    """
    process = examples.small_maze().process
    beta = uniform(process)
    rows = stationary(process, beta)
    operator, mixture = METHODS[name](gamma)
    every = model_draws(process, beta, gamma, mixture, rows=rows)
    truth, weights = operator.fixed_point(every, tolerance=TOLERANCE), np.add.reduceat(every.probability, every.first)
    errors = np.empty((len(MAZE_SIZES), MAZE_REPEATS))
    for repeat in range(MAZE_REPEATS):
        for index, size in enumerate(MAZE_SIZES):
            rng = np.random.default_rng((repeat, size))
            log = sample_log(process, beta, rng.choice(process.states, size, p=rows), size, rng)
            draws = dataset_draws(log, process.states, process.actions, gamma, mixture)
            found = operator.fixed_point(draws, tolerance=TOLERANCE)
            errors[index, repeat] = np.average(np.abs(found - truth)[every.entry], weights=weights)
    return errors


def stationary(process: Process, beta: np.ndarray) -> np.ndarray:
    """Returns the share of time that an endless trajectory spends in each state, (S,)."""
    chain = process.transition_matrix(beta)
    system = np.vstack([chain.T - np.eye(process.states), np.ones(process.states)])
    return np.linalg.lstsq(system, np.append(np.zeros(process.states), 1))[0].clip(0)

"""The parts of the exact theory against loops, sums and linear algebra written here, or numbers by hand."""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import finite
import numpy as np
import pytest
from scipy import sparse

from gtrl.envs.maze import Maze
from gtrl.errors import GtrlError, ProcessError
from gtrl.tasks import TRAJECTORY_GOALS, VALUE_GOALS, Goals, WaypointDraw, WaypointSource
from gtrl.theory.anchored import (
    Anchored,
    expectiles,
    monte_carlo_values,
    transitive_fit,
)
from gtrl.theory.draws import Draws, dataset_draws, model_draws
from gtrl.theory.examples import (
    ARROWS,
    TELEPORTER,
    arrow_behaviour,
    magnified,
    teleport_maze,
    teleporter,
    teleporter_log,
)
from gtrl.theory.maze import CAPTURE, maze, point_maze_grid, point_maze_values
from gtrl.theory.process import Log, Process, random_behaviour, random_process, sample_log, uniform
from gtrl.theory.transitive import iterates, max_product
from gtrl.theory.values import (
    backups_needed,
    behaviour_values,
    divide_and_conquer_values,
    hindsight_ratio,
    optimal_values,
)

SEEDS = range(8)
close = partial(np.testing.assert_allclose, rtol=0)


# --- processes ---


def test_dense_and_sparse_processes_agree():
    p = np.array([[[0, 0.5, 0.5], [1, 0, 0]], [[0.2, 0.3, 0.5], [0, 1, 0]], [[0, 0, 1], [0, 0.9, 0.1]]])
    dense = Process.from_dense(p)
    listed = Process.from_sparse([sparse.coo_array(p[:, a]) for a in range(2)])
    for process in (dense, listed):
        assert (process.states, process.actions, process.successors.shape[2]) == (3, 2, 3)
        np.testing.assert_array_equal(process.dense, p)
        np.testing.assert_array_equal(process.graph.toarray(), [[1, 1, 1], [1, 1, 1], [0, 1, 1]])
        assert not process.deterministic
    assert Process.from_dense(p[:1, 1:, :1]).deterministic


def test_successor_may_be_listed_twice_or_with_probability_zero():
    process = Process(np.array([[[1, 1, 0]], [[0, 1, 0]]]), np.array([[[0.5, 0.5, 0]], [[0.25, 0.5, 0.25]]]))
    np.testing.assert_array_equal(process.dense[:, 0], [[0, 1], [0.5, 0.5]])
    np.testing.assert_array_equal(process.graph.toarray(), [[0, 1], [1, 1]])
    assert not process.deterministic
    assert Process(process.successors[:, :, [0, 0, 2]], process.probabilities[[0, 0]]).deterministic


ONE = np.ones((1, 1, 1))
ALWAYS = np.ones((13, 1))  # the only behaviour in Example 1
TWO_STEPS = Log.of([([0, 1, 2], [0, 1, 0])])
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Process(np.zeros((1, 1), int), np.ones((1, 1))), r"both have shape .*, not \(1, 1\) and \(1, 1\)"),
        (lambda: Process(np.zeros((1, 1, 2), int), ONE), r"not \(1, 1, 2\) and \(1, 1, 1\)\."),
        (lambda: Process(np.zeros((0, 1, 1), int), ONE[:0]), r"not \(0, 1, 1\) and"),
        (lambda: Process(np.array([[[1]]]), ONE), "a successor is not one of the 1 states"),
        (lambda: Process(np.array([[[-1]]]), ONE), "a successor is not one of the 1 states"),
        (lambda: Process(np.zeros((1, 1, 1), int), 0.9 * ONE), "successors must not be negative and must sum to 1"),
        (lambda: Process(np.zeros((1, 1, 2), int), np.array([[[1.5, -0.5]]])), "must not be negative"),
        (lambda: Process(np.zeros((1, 1, 1), int), np.nan * ONE), "must sum to 1"),
        (lambda: Process.from_dense(np.ones((2, 1, 3)) / 3), r"\(states, actions, states\), not \(2, 1, 3\)"),
        (lambda: Process.from_dense(np.zeros((2, 1, 2))), "must sum to 1"),
        (lambda: Process.from_sparse([np.eye(2), np.eye(3)]), "square matrices of one shape"),
        (lambda: Process.from_sparse([np.ones((2, 3)) / 3]), "square matrices"),
        (lambda: teleporter().transition_matrix(np.ones((13, 2)) / 2), r"actions\) = \(13, 1\), not \(13, 2\)"),
        (lambda: teleporter().transition_matrix(0.5 * np.ones((13, 1))), "behaviour's actions must not be negative"),
        (lambda: Log.of([([0, 1], [0])]), "has 2 states and 1 actions"),
        (lambda: Log.of([([], [])]), "has 0 states"),
        (lambda: Log.of([]), "at least one trajectory"),
        (lambda: Process(np.array([[[0.5]]]), ONE), "successors must be integers"),
        (lambda: Process.from_sparse([np.zeros((0, 0))]), "square matrices"),
        (lambda: optimal_values(teleporter(), 0.9, np.array([13])), "goals must be numbers from 0 to 12"),
        (lambda: optimal_values(teleporter(), 0.9, np.array([], int)), "at least one"),
        (lambda: TWO_STEPS.pairs(2), "states of a log must be numbers from 0 to 1"),
        (lambda: dataset_draws(TWO_STEPS, 3, 1, 0.9), "actions of a log must be numbers from 0 to 0"),
        (lambda: Log.of([([-1, 0], [0, 0])]).behaviour(2, 1), "states of a log"),
        (lambda: dataset_draws(Log.of([([0], [0])]), 1, 1, 0.9), "no trajectory of the log has a transition"),
        (lambda: dataset_draws(TWO_STEPS, 3, 2, 0.9, (1, 1, 1)), "goal mixture must not be negative and must sum to 1"),
        (lambda: dataset_draws(TWO_STEPS, 3, 2, 0.9, (-1, 1, 1)), "must not be negative"),
        (lambda: model_draws(teleporter(), ALWAYS, 0.9, rows=np.ones(13)), "rows must not be negative"),
        (lambda: model_draws(teleporter(), ALWAYS, 0.9, rows=np.ones(3) / 3), "each of the 13 states"),
        (lambda: sample_log(teleporter(), ALWAYS, np.array([13]), 3, RNG), "starts of trajectories"),
        (lambda: sample_log(teleporter(), ALWAYS, np.array([0]), 0, RNG), "at least one transition"),
        (lambda: maze(["#s.", "##"]), "rows of a maze must be equally long"),
        (lambda: maze(["s.s"]), "may name one cell only"),
        (lambda: maze(["sA"]), "needs both teleporters"),
        (lambda: maze(["sT"]), "needs both teleporters"),
        (lambda: magnified(("s",), 0), "must be at least 1, not 0"),
    ],
)  # fmt: skip
def test_invalid_input_gives_a_one_line_error(make: Callable[[], object], message: str):
    with pytest.raises(ProcessError, match=message):
        make()


@pytest.mark.parametrize("gamma", [1.0, 1.5, -0.1, np.nan])
@pytest.mark.parametrize(
    "use",
    [
        lambda gamma: optimal_values(teleporter(), gamma),
        lambda gamma: divide_and_conquer_values(teleporter(), gamma),
        lambda gamma: behaviour_values(teleporter(), ALWAYS, gamma),
        lambda gamma: next(iterates(teleporter(), gamma)),
        lambda gamma: dataset_draws(TWO_STEPS, 3, 2, gamma),
        lambda gamma: model_draws(teleporter(), ALWAYS, gamma),
        Anchored,
    ],
)
def test_discount_must_be_below_one(use: Callable[[float], object], gamma: float):
    with pytest.raises(ProcessError, match="must be at least 0 and below 1"):
        use(gamma)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Anchored(0.9, selection="mx"), "did you mean 'max'"),
        (lambda: Anchored(0.9, normalise="first"), "unknown normalise 'first'"),
        (lambda: Anchored(0.9, rho_reads="targets"), "did you mean 'target'"),
        (lambda: Anchored(0.9, kappa=1.0), "kappa is 1.0 and must lie between 0 and 1"),
        (lambda: dataset_draws(TWO_STEPS, 3, 2, 0.9, decomposable="positions"), "did you mean 'position'"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_unknown_option_gives_a_one_line_error(make: Callable[[], object], message: str):
    with pytest.raises(GtrlError, match=message):
        make()


def test_process_accepts_any_numeric_type():
    whole = Process(np.array([[[1.0]], [[0.0]]]), np.ones((2, 1, 1), int))
    np.testing.assert_array_equal(optimal_values(whole, 0.5), [[1, 0.5], [0.5, 1]])


def test_a_weight_needs_no_hindsight_draws():
    draws = dataset_draws(TWO_STEPS, 3, 2, 0.9, (0, 0, 1), "draw")
    assert not draws.m.any()
    close(Anchored(0.9).fixed_point(draws), Anchored(0.9, hindsight=False).fixed_point(draws), atol=0)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.99, 0.999])
def test_model_draws_are_a_distribution(gamma: float):
    """However close to 1 the discount is: goals far ahead, and subgoals one among many."""
    draws = model_draws(teleporter(), ALWAYS, gamma)
    assert draws.probability.sum() == pytest.approx(1, abs=1e-11)
    assert draws.probability[draws.m].sum() == pytest.approx(0.5, abs=1e-11)


def test_too_many_draws_give_a_one_line_error():
    log = Log.of([([0, 1], [0, 0])])
    with pytest.raises(ProcessError, match="too many to enumerate"):
        dataset_draws(log, 100_000, 4, 0.9)


# --- logs ---


def test_log_by_hand():
    log = Log.of([([0, 1, 1], [1, 0, 1]), ([3], [0]), ([1, 0], [1, 1])])
    np.testing.assert_array_equal(log.ends, [2, 2, 2, 3, 5, 5])
    np.testing.assert_array_equal(log.transitions, [0, 1, 4])
    np.testing.assert_array_equal(np.argwhere(log.pairs(4)), [[0, 0], [0, 1], [1, 0], [1, 1], [3, 3]])
    # State 2 was never seen; the actions of last rows count.
    np.testing.assert_array_equal(log.behaviour(4, 2), [[0, 1], [1 / 3, 2 / 3], [0.5, 0.5], [1, 0]])


def test_sampled_logs_follow_process_and_behaviour():
    rng = np.random.default_rng(0)
    process = random_process(rng, 4, 2, branching=3, absorbing=0)
    beta = np.array([[0.2, 0.8], [1, 0], [0.5, 0.5], [0, 1]])
    starts = np.arange(4).repeat(500)
    log = sample_log(process, beta, starts, 10, rng)
    states, actions = log.states.reshape(-1, 11), log.actions.reshape(-1, 11)
    np.testing.assert_array_equal(states[:, 0], starts)
    np.testing.assert_array_equal(log.ends.reshape(-1, 11), np.arange(2000)[:, None] * 11 + np.full(11, 10))
    counts, choices = np.zeros((4, 2, 4)), np.zeros((4, 2))
    np.add.at(counts, (states[:, :-1], actions[:, :-1], states[:, 1:]), 1)
    np.add.at(choices, (states, actions), 1)
    assert (counts[process.dense == 0] == 0).all()
    assert (choices[beta == 0] == 0).all()
    for seen, chance in ((counts, process.dense), (choices, beta)):
        total = seen.sum(-1, keepdims=True)
        off = np.abs(seen - total * chance)
        assert (off <= 4 * np.sqrt(total * chance * (1 - chance)) + 1e-9).all()  # four standard deviations
    assert min(total.min(), counts.sum(-1)[beta > 0].min()) > 500


# --- values ---


def corridor(cells: int) -> Process:
    here = np.arange(cells)
    return Process(
        np.stack([np.maximum(here - 1, 0), np.minimum(here + 1, cells - 1)], 1)[..., None], np.ones((cells, 2, 1))
    )


@pytest.mark.parametrize("cells", [2, 9, 300])
def test_one_step_backups_of_a_corridor(cells: int):
    """One per step of the longest path; 300 goals need several sweeps."""
    process, here = corridor(cells), np.arange(cells)
    expected = 0.99 ** np.abs(here[:, None] - here)
    close(optimal_values(process, 0.99), expected, atol=1e-11)
    assert backups_needed(process, 0.99) == cells - 1


def test_values_of_chosen_goals():
    goals = np.array([7, 2, 7])
    expected = 0.9 ** np.abs(np.arange(9)[:, None] - goals)
    close(optimal_values(corridor(9), 0.9, goals), expected, atol=1e-11)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(300, 7, 5), (256, 3, 2), (3, 4, 6)])
def test_max_product(rows: int, inner: int, columns: int):
    rng = np.random.default_rng(0)
    left, right = rng.random((rows, inner)), rng.random((inner, columns))
    np.testing.assert_array_equal(max_product(left, right), (left[:, :, None] * right).max(1))


# --- expectiles ---


def exact_expectile(y: np.ndarray, weight: np.ndarray, kappa: np.ndarray) -> float:
    """The root of the slope: between two neighbours of the sorted targets it is linear, so try them all."""
    order = np.argsort(y)
    y, weight, kappa = y[order], weight[order], kappa[order]
    for below in range(1, len(y)):
        pull = weight * np.where(np.arange(len(y)) < below, 1 - kappa, kappa)
        x = np.average(y, weights=pull)
        if y[below - 1] <= x <= y[below]:
            return float(x)
    return float(y[0])


def draws_of(s: np.ndarray) -> Draws:
    """Draws for the entries (s, 0, 0), of which only the grouping matters."""
    zeros = np.zeros_like(s)
    return Draws(
        int(s.max()) + 1, 1, np.ones(len(s)), s, zeros, zeros, zeros > 0, zeros, zeros, zeros, zeros, zeros > 0
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("start", [0.0, 0.4, 1.0])
def test_expectiles(seed: int, start: float):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(6), [1, 2, 3, 5, 8, 40])
    y = np.round(rng.random(len(group)), rng.integers(1, 4))  # some targets are the same
    weight, kappa = rng.exponential(size=len(y)), rng.uniform(0.5, 0.999, len(y))
    expected = [exact_expectile(y[group == e], weight[group == e], kappa[group == e]) for e in range(6)]
    found = expectiles(y, weight, kappa, draws_of(group), np.full(6, start))
    close(found, expected, atol=1e-12)


def test_expectile_by_hand():
    """0 and 1 once each: x pulled by (1 - kappa) down and kappa up is kappa. Weights 3 and 1 at .5: their mean."""
    y, group = np.array([0.0, 1, 0, 1]), np.array([0, 0, 1, 1])
    found = expectiles(y, np.array([1.0, 1, 3, 1]), np.array([0.7, 0.7, 0.5, 0.5]), draws_of(group), np.zeros(2))
    np.testing.assert_allclose(found, [0.7, 0.25])


# --- draws from a log ---

Draw = tuple[int, int, int, bool, int, int, int, int, bool]  # (s, a, g, m, s', a', w, a_w, g right after w)
Tally = dict[Draw, float]


def tally_of(d: Draws) -> Tally:
    columns = (d.s, d.a, d.g, d.m, d.s_next, d.a_next, d.w, d.a_w, d.g_after_w)
    listed = {tuple(column[i].item() for column in columns): float(d.probability[i]) for i in range(len(d.s))}
    assert len(listed) == len(d.s)  # each once
    return listed  # pyright: ignore[reportReturnType]


def assert_same(found: Tally, expected: Tally, tolerance: float = 1e-12) -> None:
    assert found.keys() == {draw for draw, chance in expected.items() if chance > 0}
    assert all(abs(chance - expected[draw]) <= tolerance for draw, chance in found.items())


Path = list[tuple[int, int]]  # (state, action)


def random_paths(rng: np.random.Generator, actions: int, states: int = 4) -> list[Path]:
    lengths = [*rng.integers(1, 6, rng.integers(1, 4)), 4]  # some of one row, which has no transition
    steps = [rng.integers([states, actions], size=(length, 2)).tolist() for length in lengths]
    return [[(s, a) for s, a in path] for path in steps]


def log_of(paths: list[Path]) -> Log:
    return Log.of([([s for s, _ in path], [a for _, a in path]) for path in paths])


Waypoints = tuple[WaypointSource, WaypointDraw]


def waypoints(path: Path, row: int, direction: int, draw: WaypointDraw, gamma: float) -> list[tuple[int, float]]:
    """The rows after (direction 1) or before (-1) a row of a path, with the probabilities of being the waypoint."""
    rows = list(range(row + 1, len(path))) if direction == 1 else list(range(row - 1, -1, -1))
    if draw == "uniform":
        return [(k, 1 / len(rows)) for k in rows]
    if draw == "farthest":
        return [(k, 1.0) for k in rows[-1:]]
    stops = [gamma**n * (1 - gamma) for n in range(len(rows) - 1)]
    return [*zip(rows, [*stops, 1 - sum(stops)], strict=False)]


def enumerated(
    paths: list[Path], gamma: float, mixture: Goals, *, by_position: bool, way: Waypoints = ("none", "uniform")
) -> Tally:
    """Every transition, goal row and subgoal or waypoint row, one by one."""
    rows = sum(len(path) for path in paths)
    transitions = rows - len(paths)
    tally: Tally = defaultdict(float)
    source, draw = way
    halves = {"none": [], "both": ["state", "goal"]}.get(source, [source])
    steps = [(path, k) for path in paths for k in range(len(path) - 1)]

    def elsewhere(path: Path, i: int, other: Path, j: int, chance: float) -> None:
        """A goal at row j of some path: not decomposable."""
        (s, a), (s_next, a_next) = path[i : i + 2]
        g = other[j][0]
        for half in halves or ["none"]:
            found = {
                "state": [(path[k], share) for k, share in waypoints(path, i, 1, draw, gamma)],
                "goal": [(other[k], share) for k, share in waypoints(other, j, -1, draw, gamma)],
                "random": [(on[k], 1 / len(steps)) for on, k in steps],
            }.get(half)
            for (w, a_w), share in found or [((s, a), 1.0)]:
                pair = (w, a_w) if w != s else (s, a)
                tally[s, a, g, False, s_next, a_next, *pair, False] += (
                    chance * share / transitions / max(len(halves), 1)
                )

    def add(path: Path, i: int, g: int, j: int, chance: float) -> None:
        """A goal at row j ahead on the path."""
        (s, a), (s_next, a_next) = path[i : i + 2]
        for k in range(i, j):
            after = path[k + 1][0] == g
            tally[s, a, g, True, s_next, a_next, *path[k], after] += chance / transitions / (j - i)

    for path in paths:
        for i in range(len(path) - 1):
            last = len(path) - 1
            elsewhere(path, i, path, i, mixture[0])
            for j in range(i + 1, last + 1):
                stops = gamma ** (j - i - 1) * (1 if j == last else 1 - gamma)
                add(path, i, path[j][0], j, mixture[1] * stops)
            for other in paths:
                for j, (g, _) in enumerate(other):
                    if by_position and other is path and j > i:
                        add(path, i, g, j, mixture[2] / rows)
                    else:
                        elsewhere(path, i, other, j, mixture[2] / rows)
    return tally


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("decomposable", ["position", "draw"])
@pytest.mark.parametrize("mixture", [VALUE_GOALS, TRAJECTORY_GOALS, (0.2, 0.5, 0.3)])
def test_draws_from_a_log(seed: int, decomposable: Literal["position", "draw"], mixture: Goals):
    paths = random_paths(np.random.default_rng(seed), actions=2)
    d = dataset_draws(log_of(paths), 4, 2, 0.8, mixture, decomposable)
    assert_same(tally_of(d), enumerated(paths, 0.8, mixture, by_position=decomposable == "position"))
    assert d.probability.sum() == pytest.approx(1)
    entries = np.stack([d.s, d.a, d.g], 1)
    np.testing.assert_array_equal(entries[d.first], np.unique(entries, axis=0))
    np.testing.assert_array_equal(np.stack(d.entry, 1)[d.group], entries)
    np.testing.assert_array_equal(np.argwhere(d.drawn), entries[d.first])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("decomposable", ["position", "draw"])
@pytest.mark.parametrize("draw", get_args(WaypointDraw))
@pytest.mark.parametrize("source", ["state", "goal", "both", "random"])
def test_draws_with_waypoints(
    seed: int, decomposable: Literal["position", "draw"], source: WaypointSource, draw: WaypointDraw
):
    paths, mixture = random_paths(np.random.default_rng(seed), actions=2), (0.2, 0.4, 0.4)
    d = dataset_draws(log_of(paths), 4, 2, 0.8, mixture, decomposable, source, draw)
    expected = enumerated(paths, 0.8, mixture, by_position=decomposable == "position", way=(source, draw))
    assert_same(tally_of(d), expected)
    assert d.waypoint.any()
    assert not (d.waypoint & (d.m | (d.w == d.s))).any()


def test_draws_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch):
    """Long logs are tallied in parts; the sums are the same."""
    monkeypatch.setattr("gtrl.theory.draws.MAX_UNMERGED_DRAWS", 5)
    paths = random_paths(np.random.default_rng(0), actions=2)
    assert_same(
        tally_of(dataset_draws(log_of(paths), 4, 2, 0.8)), enumerated(paths, 0.8, VALUE_GOALS, by_position=True)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_monte_carlo_values(seed: int):
    paths = random_paths(np.random.default_rng(seed), actions=2)
    targets = defaultdict(list)
    for path in paths:
        for i, (s, a) in enumerate(path):
            for j in range(i + 1, len(path)):
                stops = 0.8 ** (j - i - 1) * (1 if j == len(path) - 1 else 0.2)
                targets[s, a, path[j][0]].append((0.8 ** (j - i), stops))
    found = monte_carlo_values(log_of(paths), 4, 2, 0.8)
    for entry in np.ndindex(4, 2, 4):
        y, weight = np.reshape(targets[entry], (-1, 2)).T
        np.testing.assert_allclose(found[entry], np.average(y, weights=weight) if len(y) else np.nan)


# --- fits to a log, against the enumeration that has no actions ---


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("hindsight", "normalise"), [(True, "after"), (True, "never"), (False, "never")])
def test_gtrl_fixed_point_matches_enumeration(seed: int, hindsight: bool, normalise: Literal["after", "never"]):
    paths = random_paths(np.random.default_rng(seed), actions=1)
    trajectories, mixture = [[s for s, _ in path] for path in paths], (0.1, 0.5, 0.4)
    expected = finite.fixed_point(
        finite.draws(trajectories, mixture, 0.7), 4, selection="max", kappas=(0.7, 0.5), hindsight=hindsight,
        normalise=normalise == "after", gamma=0.7,
    )  # fmt: skip
    fit = Anchored(0.7, hindsight=hindsight, normalise=normalise)
    found = fit.fixed_point(dataset_draws(log_of(paths), 4, 1, 0.7, mixture))[:, 0]
    close(found, np.nan_to_num(expected), atol=1e-7)  # NaN: never drawn, still 0


def test_expectiles_with_lower_bounds():
    """At the result, the pulls of an entry's targets and lower bounds, by a loop, cancel."""
    rng = np.random.default_rng(0)
    d = dataset_draws(log_of(random_paths(rng, actions=2)), 4, 2, 0.8)
    y, weight, kappa, bound, bound_weight = rng.random((5, len(d.s)))
    kappa, start = 0.5 + kappa / 2, np.zeros(len(d.first))
    found = expectiles(y, weight, kappa, d, start, bound, bound_weight)
    for entry, x in enumerate(found):
        pull = 0.0
        for i in np.flatnonzero(d.group == entry):
            pull += weight[i] * (kappa[i] if x < y[i] else 1 - kappa[i]) * (y[i] - x)
            if bound[i] > x:
                pull += bound_weight[i] * (bound[i] - x)
        assert pull == pytest.approx(0, abs=1e-12)
    without = expectiles(y, weight, kappa, d, start)
    raised = np.maximum.reduceat(bound, d.first) > without
    assert (found[raised] > without[raised]).all()
    close(found[~raised], without[~raised], atol=1e-14)
    np.testing.assert_array_equal(expectiles(y, weight, kappa, d, start, bound, 0.0), without)


@pytest.mark.parametrize("product", ["bound", "target"])
def test_fit_with_waypoints(product: str):
    """With expectiles of 1/2, a fit minimises the squared errors; its slope by a loop is 0 at the fit."""
    rng = np.random.default_rng(1)
    d = dataset_draws(log_of(random_paths(rng, actions=2)), 4, 2, 0.8, (0.0, 0.0, 1.0), "draw", "random")
    q = rng.random((4, 2, 4))
    fit = Anchored(0.8, waypoint_product=product, bound_weight=3.0)(q, d)
    slope, raised = np.zeros_like(q), 0
    for i in range(len(d.s)):
        s, a, g, to, by, w, a_w = (int(part[i]) for part in (d.s, d.a, d.g, d.s_next, d.a_next, d.w, d.a_w))
        x, y = fit[s, a, g], 1 if g == s else 0.8 if g == to else 0.8 * q[to, by, g]
        through_w = 0.0 if w == s else q[s, a, w] * (1 if w == g else q[w, a_w, g])
        if product == "target":
            y = max(y, through_w)
        slope[s, a, g] += d.probability[i] * (x - y)
        if product == "bound":
            slope[s, a, g] -= d.probability[i] * 3 * max(through_w - x, 0)
            raised += through_w > x
    close(slope, 0, atol=1e-12)
    assert raised > 0 or product == "target"


def test_density_ratio():
    """p(g | s, a) / p(g | s') where m = 1, each by counting."""
    d = dataset_draws(log_of(random_paths(np.random.default_rng(3), actions=2)), 4, 2, 0.8)
    joint: dict[str, defaultdict[tuple[int, ...], float]] = {
        name: defaultdict(float) for name in ("sag", "sa", "ng", "n")
    }
    for i in np.flatnonzero(d.m):
        s, a, n, g = (int(column[i]) for column in (d.s, d.a, d.s_next, d.g))
        for name, key in (("sag", (s, a, g)), ("sa", (s, a)), ("ng", (n, g)), ("n", (n,))):
            joint[name][key] += d.probability[i]
    found = d.density_ratio
    for i, (s, a, n, g) in enumerate(zip(d.s, d.a, d.s_next, d.g, strict=True)):
        expected = joint["sag"][s, a, g] / joint["sa"][s, a] / (joint["ng"][n, g] / joint["n"][(n,)]) if d.m[i] else 0
        assert found[i] == pytest.approx(expected)
    assert len(set(found[d.m].round(6))) > 2


def test_density_ratio_is_the_hindsight_weight():
    """On endless trajectories of a process it is equation 9 with exact occupancies."""
    process = random_process(np.random.default_rng(1), 4, 2)
    beta = random_behaviour(np.random.default_rng(2), process)
    chain = process.transition_matrix(beta)
    rows = np.linalg.matrix_power(chain, 500)[0]  # where an endless trajectory is
    d = model_draws(process, beta, 0.8, TRAJECTORY_GOALS, rows=rows)
    h = hindsight_ratio(process, beta, 0.8)
    place = [int(np.flatnonzero(process.successors[s, a] == n)[0]) for s, a, n in zip(d.s, d.a, d.s_next, strict=True)]
    close(d.density_ratio, h[d.s, d.a, place, d.g], atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_trl_fixed_point_matches_enumeration(seed: int):
    paths = random_paths(np.random.default_rng(seed), actions=1)
    listed = finite.draws([[s for s, _ in path] for path in paths], TRAJECTORY_GOALS, 0.7)
    expected = finite.fixed_point(
        listed, 4, selection="dc", kappas=(0.9, 0.9), hindsight=False, normalise=False, gamma=0.7
    )
    found = transitive_fit(0.7, 0.9).fixed_point(dataset_draws(log_of(paths), 4, 1, 0.7, TRAJECTORY_GOALS))[:, 0]
    close(found, np.nan_to_num(expected), atol=1e-7)


@pytest.mark.parametrize("normalise", ["after", "before", "never"])
@pytest.mark.parametrize("rho_reads", ["critic", "target"])
def test_weights(normalise: Literal["after", "before", "never"], rho_reads: Literal["critic", "target"]):
    """h is Q over y_TD, clipped, with mean 1 where m = 1; rho is (1 + log_gamma of Q or of y_A)^-lambda."""
    rng = np.random.default_rng(0)
    d = dataset_draws(log_of(random_paths(rng, actions=2)), 4, 2, 0.8)
    q, y_a, y_td = rng.uniform(0.05, 1, (4, 2, 4)), *rng.uniform(0.05, 1, (2, len(d.s)))
    fit = Anchored(0.8, normalise=normalise, clip=0.5, lambda_=0.7, rho_reads=rho_reads)
    h = [q[d.s[i], d.a[i], d.g[i]] / y_td[i] for i in range(len(d.s))]

    def mean(numbers: list[float]) -> float:
        return np.average(np.array(numbers)[d.m], weights=d.probability[d.m])

    if normalise == "before":
        h = [x / mean(h) for x in h]
    h = [min(max(x, 1 / 1.5), 1.5) for x in h]
    assert any(x == 1.5 for x in h)
    assert any(x == 1 / 1.5 for x in h)
    if normalise == "after":
        h = [x / mean(h) for x in h]
    reads = q[d.s, d.a, d.g] if rho_reads == "critic" else y_a
    rho = (1 + np.emath.logn(0.8, reads)) ** -0.7
    np.testing.assert_allclose(fit.weights(q, d, y_a, y_td), d.probability * np.where(d.m, h, 1) * rho)
    unweighted = Anchored(0.8, hindsight=False, rho_reads=rho_reads)
    np.testing.assert_array_equal(unweighted.weights(q, d, y_a, y_td), d.probability)


def test_fits_that_do_not_converge_raise(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gtrl.theory.anchored.MAX_FITS", 3)
    with pytest.raises(ProcessError, match="no convergence after 3 fits; the last one changed"):
        Anchored(0.99).fixed_point(dataset_draws(teleporter_log(), 13, 1, 0.99))


# --- draws from the model ---


def summed(
    process: Process, beta: np.ndarray, gamma: float, mixture: Goals, rows: np.ndarray, *, restored: bool
) -> Tally:
    """Goals K = 1, 2, ... steps after s, subgoals k < K steps after it, 100 of each; .7^100 is below 1e-15."""
    (states, actions), terms = beta.shape, 100
    lands = process.dense.reshape(-1, states)
    pairs, steps = states * actions, (lands[:, :, None] * beta).reshape(states * actions, -1)
    chain = np.einsum("sa,sag->sg", beta, process.dense)
    later = np.stack([np.linalg.matrix_power(steps, k) for k in range(terms)])  # of pairs
    after = np.stack([np.linalg.matrix_power(chain, k) for k in range(terms)])  # of states
    k = np.arange(terms)
    # From y = (s', a'), one step after s: w comes k of its steps later, n right after w, and g j steps after n.
    K = k[:, None] + k + 2
    chance = (1 - gamma) * gamma ** (K - 1) / K
    through = np.einsum("kj,kyw,wn,jng->ywng", chance, later, lands, after, optimize=True)
    # Through s itself: g comes k steps after s'.
    chance = (1 - gamma) * gamma**k / (k + 1)
    onwards = np.einsum("k,yn,kng->yg", chance[1:], lands, after[:-1])
    at_once = chance[0] * np.eye(states).repeat(actions, 0) + onwards
    tally: Tally = defaultdict(float)
    for x, y, g in np.argwhere(np.ones((pairs, pairs, states))):
        (s, a), (s_next, a_next) = divmod(int(x), actions), divmod(int(y), actions)
        draw, p = (s, a, int(g)), rows[s] * beta[s, a] * steps[x, y]
        ahead = at_once[y, g] + through[y, :, :, g].sum()
        share = mixture[1] if not restored else mixture[1] * rows[g] / ahead if ahead > 0 else 0
        rest = mixture[0] * (g == s) + mixture[2] * rows[g] + mixture[1] * rows[g] * (restored and ahead == 0)
        tally[*draw, False, s_next, a_next, s, a, False] += p * rest
        tally[*draw, True, s_next, a_next, s, a, bool(g == s_next)] += p * share * at_once[y, g]
        for w, n in np.ndindex(pairs, states):
            tally[*draw, True, s_next, a_next, *divmod(w, actions), n == g] += p * share * through[y, w, n, g]
    return tally


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("restored", [False, True])
def test_draws_from_the_model(seed: int, restored: bool):
    rng = np.random.default_rng(seed)
    process = random_process(rng, 3, 2, absorbing=0.3)
    beta, rows = np.array([[0.25, 0.75], [1, 0], [0.5, 0.5]]), np.array([0.2, 0.3, 0.5])
    mixture = (0.1, 0.5, 0.4)
    d = model_draws(process, beta, 0.7, mixture, rows=rows, restored=restored)
    assert_same(tally_of(d), summed(process, beta, 0.7, mixture, rows, restored=restored), 1e-11)
    assert d.probability.sum() == pytest.approx(1)


def test_draws_from_the_model_by_default():
    process = random_process(np.random.default_rng(1), 3, 2)
    d, rows = model_draws(process, uniform(process), 0.5), np.full(3, 1 / 3)
    assert_same(tally_of(d), summed(process, uniform(process), 0.5, VALUE_GOALS, rows, restored=False), 1e-11)


# --- Example 1 ---


def example_draws(mixture: Goals = VALUE_GOALS, decomposable: Literal["position", "draw"] = "position") -> Draws:
    return dataset_draws(teleporter_log(), 13, 1, 0.99, mixture, decomposable)


def of_anchored(
    decomposable: Literal["position", "draw"] = "position",
    hindsight: bool = True,
    normalise: Literal["after", "before", "never"] = "never",
) -> np.ndarray:
    fit = Anchored(0.99, hindsight=hindsight, normalise=normalise)
    return fit.fixed_point(example_draws(decomposable=decomposable))[:, 0]


def of_trl(kappa: float) -> np.ndarray:
    return transitive_fit(0.99, kappa).fixed_point(example_draws(TRAJECTORY_GOALS))[:, 0]


@pytest.mark.parametrize(
    ("values", "at_the_goal", "at_A"),
    [
        (lambda: optimal_values(teleporter(), 0.99), 0.938, 0.495),
        (lambda: divide_and_conquer_values(teleporter(), 0.99), 0.980, 0.990),
        (lambda: of_trl(0.7), 0.945, 0.990),
        (lambda: of_trl(0.99), 0.979, 0.990),
        (lambda: of_anchored(), 0.955, 0.442),
        (lambda: of_anchored(hindsight=False), None, 0.611),
        (lambda: of_anchored(normalise="after"), None, 0.447),
        (lambda: of_anchored("draw"), 0.954, 0.521),
        (lambda: of_anchored("draw", hindsight=False), None, 0.542),
        (lambda: monte_carlo_values(teleporter_log(), 13, 1, 0.99)[:, 0], 0.940, 0.990),
    ],
)  # fmt: skip
def test_example_1(values: Callable[[], np.ndarray], at_the_goal: float | None, at_A: float):
    """To three digits; V* and V_DC follow from the paper, the others were computed independently."""
    v = values()
    if at_the_goal is not None:
        assert v[TELEPORTER["s"], TELEPORTER["g"]] == pytest.approx(at_the_goal, abs=5e-4)
    assert v[TELEPORTER["s"], TELEPORTER["A"]] == pytest.approx(at_A, abs=5e-4)


def test_example_1_log():
    """The given numbers of trajectories by A and by B, each transition one of the process."""
    log = teleporter_log(lucky=3, unlucky=2)
    rows = log.transitions
    assert (teleporter().dense[log.states[rows], log.actions[rows], log.states[rows + 1]] > 0).all()
    after = log.states[rows + 1][log.states[rows] == TELEPORTER["s"]]
    assert (after == TELEPORTER["A"]).sum() == 3
    assert (after == TELEPORTER["B"]).sum() == 2
    np.testing.assert_array_equal(log.states[np.unique(log.ends)], [TELEPORTER["g"]] * 5)


# --- mazes ---


def test_maze_by_hand():
    """Up, down, left, right; T leads to B or A, the edge of the text is a wall, and states go row by row."""
    found = maze(["sTB", ".#A", "..."])
    assert found.names == {"s": 0, "B": 1, "A": 3}
    np.testing.assert_array_equal(found.cells, [[0, 0], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1], [2, 2]])
    jump = (1, 3)
    moves = [(0, 2, 0, jump), (1, 3, jump, 1), (0, 4, 2, 2), (1, 6, 3, 3), (2, 4, 4, 5), (5, 5, 4, 6), (3, 6, 5, 6)]
    expected = np.zeros((7, 4, 7))
    for s, to in enumerate(moves):
        for a, where in enumerate(to):
            expected[s, a, list(np.atleast_1d(where))] = 0.5 if where == jump else 1
    np.testing.assert_array_equal(found.process.dense, expected)
    np.testing.assert_array_equal(found.picture(np.arange(7)), [[0, np.nan, 1], [2, np.nan, 3], [4, 5, 6]])
    assert maze(["s."]).process.deterministic


def test_magnified_maze():
    assert magnified(("sT", "#A"), 2) == ("s.TT", "..TT", "##A.", "##..")
    assert magnified(("sT", "#A"), 1) == ("sT", "#A")


def test_walker():
    where = teleport_maze()
    beta = arrow_behaviour(where, ARROWS, 0.6)
    np.testing.assert_allclose(beta[where.names["s"]], [0.1, 0.1, 0.1, 0.7])  # right
    np.testing.assert_allclose(beta[where.names["A"]], [0.1, 0.7, 0.1, 0.1])  # down
    np.testing.assert_allclose(beta.sum(1), 1)


def test_point_maze_of_two_rooms():
    """Two rooms of 13 x 13 points, a wall between them: the entrance is in the left one, both exits in the other."""
    goal, entrance, exits = np.array([8.0, 0.4]), np.array([-1.2, -1.2]), np.array([[9.05, 0.0], [8.0, -9.0]])
    walls = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [1, 1, 1, 1, 1]])
    rooms = Maze(walls == 0, unit=4, offset=4, entrances=entrance[None], exits=exits)
    grid = point_maze_grid(rooms)
    x, y = np.moveaxis(grid.points, -1, 0)
    left, right = ((np.abs(x - centre) < 1.3) & (np.abs(y) < 1.3) for centre in (0, 8))
    np.testing.assert_array_equal(grid.free, left | right)
    assert grid.free.sum() == 2 * 13**2
    assert [tuple(grid.points[grid.nearest(xy)].round(6)) for xy in exits] == [(9.0, 0.0), (8.0, -1.2)]
    v = point_maze_values(rooms, goal, 0.9)
    steps = lambda xy: np.rint(np.abs(grid.points - xy).max(-1) / 0.2)  # noqa: E731
    near = np.linalg.norm(grid.points - entrance, axis=-1) <= CAPTURE
    in_capture = np.min([steps(xy) for xy in grid.points[near]], 0)
    landed = (0.9**5 + 0.9**8) / 2
    close(v[right], 0.9 ** steps(goal)[right], atol=1e-11)
    close(v[left], (0.9 ** np.maximum(in_capture, 1) * landed)[left], atol=1e-11)
    assert np.isnan(v[~grid.free]).all()

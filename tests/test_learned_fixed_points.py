"""The losses of GTRL and TRL, minimised on drawn batches, converge to the exact fixed points that the theory computes.

Methods, sampler and training loop are the real ones; tables stand for the networks. On Example 1 of
the paper, GTRL corrects TRL's error at (s, A); at (s, g) it lies a little above TRL, and both lie above V*.
"""

from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite import GAMMA, draws, fixed_point
from finite import teleporter as teleporter_paths
from jax import Array
from scipy.sparse.csgraph import shortest_path

from gtrl.algorithms.gtrl import GTRL
from gtrl.algorithms.trl import TRL
from gtrl.data.dataset import Data, Dataset, Spec, make_dataset
from gtrl.data.shards import Rotation
from gtrl.nn.networks import Actor, ActorCritic
from gtrl.theory.anchored import Anchored, transitive_fit
from gtrl.theory.draws import Draws, dataset_draws, model_draws
from gtrl.theory.examples import TELEPORTER, small_maze, teleporter, teleporter_log
from gtrl.theory.process import Log, Process, sample_log, uniform
from gtrl.theory.values import divide_and_conquer_values, graph_distances
from gtrl.theory.waypoints import all_trajectories
from gtrl.training import config, driver, loop

pytestmark = pytest.mark.usefixtures("optimized_file")

S, A, G = (TELEPORTER[name] for name in "sAg")
V_STAR = 0.5 * GAMMA**2 + 0.5 * GAMMA**11  # at (s, g)
MAZE = small_maze()
MAZE_GAMMA = 0.9
KAPPAS = (0.5, 0.7, 0.9, 0.99, 0.999, 0.9999)
START = -9.0  # logits start here,
UNFITTED = float(jax.nn.sigmoid(START))  # values of 1e-4, which entries that are never drawn keep

# Small batches and many steps: only draws cost time. An entry fluctuates around its fixed point, since a batch holds
# few of its draws or none, so the last steps are averaged. What is left is the average's own error and, where
# kappa is large, a bias upwards that shrinks with the learning rate. Tolerances are about three times the errors seen.
TRAINING = config.Training(steps=32_000, batch_size=256, learning_rate=0.005, checkpoint_every=100)
SETTLED = 20_000  # steps after which every entry has reached its fixed point


# --- the real methods on tables ---


class Table(eqx.Module):
    """A critic with one logit for every (state, action, goal), all given by their index."""

    logits: Array  # (members, S, A, S)

    def __call__(self, observation: Array, action: Array, goal: Array) -> Array:
        return self.logits[:, *(column[:, 0].astype(int) for column in (observation, action, goal))]

    def many(self, *queries: tuple[Array, Array, Array]) -> list[Array]:
        return [self(*query) for query in queries]


@dataclass(frozen=True)
class Tabular:
    states: int = 13
    actions: int = 1

    def init(self, key: Array, spec: Spec) -> ActorCritic:
        # One member: several that start alike and see the same batches stay alike.
        table: Any = Table(jnp.full((1, self.states, self.actions, self.states), START, jnp.float32))
        return ActorCritic(table, None, Actor.init(key, spec, (4,)))


@dataclass(frozen=True)
class TabularGTRL(Tabular, GTRL):
    pass


@dataclass(frozen=True)
class TabularTRL(Tabular, TRL):
    pass


Method = TabularGTRL | TabularTRL
FIELDS: dict[str, Any] = {"gamma": GAMMA, "lambda_": 0.0, "distill": False, "target_rate": 0.05}
GTRL_, TRL_ = TabularGTRL(**FIELDS), TabularTRL(**FIELDS)
WITHOUT_H = replace(GTRL_, hindsight=False)
HIGHER_KAPPA = replace(TRL_, kappa=0.95)
IN_MAZE: dict[str, Any] = {"gamma": MAZE_GAMMA, "states": MAZE.process.states, "actions": MAZE.process.actions}


def dataset_of(log: Log) -> Dataset:
    rows = np.arange(len(log.ends))
    data = make_dataset(log.states[:, None], np.zeros((len(rows), 1)), rows == log.ends, identity=log.states)
    return data._replace(actions=jnp.asarray(log.actions[:, None], jnp.float32))  # make_dataset clips to below 1


def learned(method: Method, log: Log) -> np.ndarray:
    """Q (S, A, S) after training through the real loop, averaged over the steps after `SETTLED`."""
    data, keys, seen = dataset_of(log), loop.seed_keys([0]), []

    def keep(step: int, states: loop.State) -> None:
        if step > SETTLED:
            seen.append(np.asarray(jax.nn.sigmoid(states.nets.critic.logits[0, 0])))

    states = loop.init(method, TRAINING.update, data.spec, keys, data)
    driver.fit(method, TRAINING, states, keys, Rotation(Data(data), 1), on_checkpoint=keep)
    return np.mean(seen, 0)


# --- the exact answers ---


def operator(method: Method) -> Anchored:
    if isinstance(method, TRL):
        return transitive_fit(method.gamma, method.kappa)
    return Anchored(
        method.gamma, method.kappa, method.kappa_one_step, method.selection, method.hindsight, method.hindsight_clip,
        waypoint_product=method.waypoint_product, bound_weight=method.bound_weight,
    )  # fmt: skip


def draws_of(method: Method, log: Log, **options: Any) -> Draws:
    if isinstance(method, GTRL):
        options |= {"waypoint": method.waypoint, "waypoint_draw": method.waypoint_draw}
    return dataset_draws(log, method.states, method.actions, method.gamma, method.value_goals, **options)


def learned_and_exact(method: Method, log: Log) -> tuple[np.ndarray, np.ndarray]:
    """The table that is learned and the one it should be, where it started wherever nothing is drawn."""
    found, d = learned(method, log), draws_of(method, log)
    np.testing.assert_allclose(found[~d.drawn], UNFITTED, rtol=1e-5)  # Proposition 2: no target, no change
    return found, operator(method).fixed_point(d, start=UNFITTED)


# --- Example 1 ---


def enumerated(method: Method) -> np.ndarray:
    """The fixed point (S, S) on a trajectory of each outcome, by the other computation; NaN where nothing is drawn."""
    every_draw = draws(teleporter_paths(), method.value_goals)
    if isinstance(method, TRL):
        options: dict[str, Any] = {"selection": "dc", "kappas": (method.kappa,) * 2, "hindsight": False}
    else:
        kappas = method.kappa, method.kappa_one_step
        options = {"selection": method.selection, "kappas": kappas, "hindsight": method.hindsight}
    return fixed_point(every_draw, method.states, normalise=True, **options)


def test_exact_fixed_points_are_the_published_ones():
    """The enumeration itself, against numbers worked out elsewhere (to three digits)."""
    assert pytest.approx(0.938, abs=5e-4) == V_STAR
    trl = enumerated(TRL_)
    assert (trl[S, G], trl[S, A]) == (pytest.approx(0.945, abs=5e-4), pytest.approx(0.990, abs=5e-4))
    assert enumerated(replace(TRL_, kappa=0.99))[S, G] == pytest.approx(0.979, abs=5e-4)
    assert enumerated(WITHOUT_H)[S, A] == pytest.approx(0.611, abs=5e-4)
    weighted = fixed_point(
        draws(teleporter_paths(), GTRL_.value_goals), 13, selection="max", kappas=(0.7, 0.5), hindsight=True,
        normalise=False,
    )  # fmt: skip
    assert (weighted[S, G], weighted[S, A]) == (pytest.approx(0.955, abs=5e-4), pytest.approx(0.442, abs=5e-4))


@pytest.mark.parametrize("method", [GTRL_, WITHOUT_H, TRL_, HIGHER_KAPPA])
def test_two_computations_of_the_fixed_point_agree(method: Method):
    d, other = draws_of(method, teleporter_log()), enumerated(method)
    np.testing.assert_array_equal(d.drawn[:, 0], ~np.isnan(other))
    np.testing.assert_allclose(operator(method).fixed_point(d)[d.drawn], other[~np.isnan(other)], atol=1e-7)


def test_gtrl_lies_above_trl_at_the_goal():
    """What grounding does not repair on this example: at (s, g) the order is V* < TRL < GTRL."""
    assert V_STAR < enumerated(TRL_)[S, G] < enumerated(GTRL_)[S, G]


# V*(s, A) is .495. With h (normalised, as in Algorithm 1) GTRL is below, without it above; to TRL luck is certain.
@pytest.mark.parametrize(
    ("method", "at_a", "tolerance"),  # seen: .0035, .0031, .0005 and .0058 off
    [
        pytest.param(GTRL_, 0.447, 0.01, id="GTRL"),
        pytest.param(WITHOUT_H, 0.611, 0.01, id="GTRL without h", marks=pytest.mark.soak),
        pytest.param(TRL_, 0.990, 0.0015, id="TRL"),
        pytest.param(HIGHER_KAPPA, 0.990, 0.018, id="TRL with a higher kappa", marks=pytest.mark.soak),
    ],
)
def test_example_1_is_learned(method: Method, at_a: float, tolerance: float):
    found, exact = learned_and_exact(method, teleporter_log())
    np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance)
    assert found[S, 0, A] == pytest.approx(at_a, abs=tolerance)
    if isinstance(method, TRL):  # on the curve below; seen: .0002 and .0004 off
        assert found[S, 0, G] == pytest.approx(trl_at_the_goal(method.kappa), abs=0.0015)


# --- a maze ---


def maze_log(starts: np.ndarray, length: int, rng: np.random.Generator) -> Log:
    return sample_log(MAZE.process, uniform(MAZE.process), starts, length, rng)


def few_trajectories() -> Log:
    """300 transitions: few, so that no entry is rare. GTRL draws all 400, TRL 185 of them.

    Each comes once in 30 batches or more often. In twice as much data the rarest come once in 90; these
    would still be converging when the averaging begins.
    """
    rng = np.random.default_rng(1)
    return maze_log(rng.integers(MAZE.process.states, size=30), 10, rng)


@pytest.mark.parametrize(
    ("method", "tolerance"),
    [pytest.param(GTRL_, 0.025, id="GTRL"), pytest.param(TRL_, 0.015, id="TRL", marks=pytest.mark.soak)],
)
def test_maze_is_learned(method: Method, tolerance: float):
    found, exact = learned_and_exact(replace(method, **IN_MAZE), few_trajectories())
    np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance)  # seen: .0085 and .0051 off


def test_maze_distinguishes_the_methods():
    """There, a change to any part of a method moves its fixed point by more than twice those tolerances."""
    gtrl, trl, log = replace(GTRL_, **IN_MAZE), replace(TRL_, **IN_MAZE), few_trajectories()
    parts: list[dict[str, Any]] = [
        {"hindsight": False}, {"selection": "dc"}, {"kappa": 0.5}, {"kappa_one_step": 0.7},
        {"value_goals": (0.0, 0.7, 0.3)},
    ]  # fmt: skip
    variants = [gtrl, *(replace(gtrl, **part) for part in parts), trl, replace(trl, kappa=0.9)]
    tables = [(operator(method).fixed_point(d), d.drawn) for method in variants for d in [draws_of(method, log)]]
    for (one, drawn), (other, also) in combinations(tables, 2):
        assert np.abs(one - other)[drawn & also].max() > 0.05


# --- waypoints, which are not in the paper ---


@pytest.mark.parametrize(
    "rule",
    [
        {"waypoint": "random", "bound_weight": 4.0},
        pytest.param({"waypoint": "random", "waypoint_product": "target"}, marks=pytest.mark.soak),
        pytest.param({"selection": "bound"}, marks=pytest.mark.soak),
    ],
)
def test_values_through_waypoints_are_learned(rule: dict[str, Any]):
    """In a corridor whose second action stays where it is, which the behaviour does half of the time."""
    p = np.zeros((5, 2, 5))
    p[np.arange(4), 0, np.arange(1, 5)] = p[np.arange(5), 1, np.arange(5)] = p[4, 0, 4] = 1
    process = Process.from_dense(p)
    log = all_trajectories(process, uniform(process), 2)
    plain = TabularGTRL(**FIELDS | {"gamma": 0.9, "states": 5, "actions": 2})
    method = replace(plain, **rule)
    found, exact = learned_and_exact(method, log)
    np.testing.assert_allclose(found, exact, rtol=0, atol=0.006)  # seen: .0020, .0010 and .0008 off
    without = operator(plain).fixed_point(draws_of(plain, log), start=UNFITTED)
    assert np.abs(exact - without).max() > 0.05


# --- TRL tends to V_DC as kappa tends to 1, and only then ---


def trl_at_the_goal(kappa: float) -> float:
    """TRL's Q(s, g) on Example 1, by hand. By A, the subgoal A makes gamma^2; by B, ten of eleven make gamma^11.

    The subgoal s makes Q(s, g) itself, which pulls nowhere. The goal g is drawn from s with probability gamma and
    gamma^10, offsets being clipped at the end.
    """
    lucky, unlucky = kappa * GAMMA * 1 / 2, (1 - kappa) * GAMMA**10 * 10 / 11
    return (lucky * GAMMA**2 + unlucky * GAMMA**11) / (lucky + unlucky)


def thorough_log() -> Log:
    """In the maze, the luckiest route between any two states, so every edge of G; and trajectories that wander."""
    process = MAZE.process
    _, before = shortest_path(process.graph, unweighted=True, return_predecessors=True)
    trajectories = []
    for s, g in zip(*np.nonzero(graph_distances(process)), strict=True):
        path = [g]
        while path[0] != s:
            path.insert(0, before[s, path[0]])
        trajectories.append((path, [*(process.dense[s, :, t].argmax() for s, t in pairwise(path)), 0]))
    rng = np.random.default_rng(0)
    log = maze_log(rng.integers(process.states, size=200), 30, rng)
    return Log.of(trajectories + list(zip(log.states.reshape(200, -1), log.actions.reshape(200, -1), strict=True)))


@pytest.mark.parametrize("where", ["teleporter", "maze"])
def test_trl_tends_to_v_dc_only_as_kappa_tends_to_one(where: str):
    if where == "teleporter":
        method, log, process, s, g = TRL_, teleporter_log(), teleporter(), S, G
    else:
        method, log, process = replace(TRL_, **IN_MAZE), thorough_log(), MAZE.process
        s, g = MAZE.names["s"], MAZE.names["g"]
    d = draws_of(method, log)
    v_dc = divide_and_conquer_values(process, method.gamma)
    distances = graph_distances(process)
    ways = np.isfinite(distances) & (distances > 0)
    assert np.any(d.drawn, axis=1)[ways].all()
    curve = [operator(replace(method, kappa=kappa)).fixed_point(d).max(1) for kappa in KAPPAS]
    for lower, higher in pairwise(curve):
        assert (higher >= lower - 1e-12)[ways].all()
        assert lower[s, g] < higher[s, g] < v_dc[s, g]
    gaps = np.array([np.abs(v_dc - values)[ways].max() for values in curve])
    np.testing.assert_allclose(gaps[4:] / gaps[3:-1], 0.1, rtol=0.05)  # in the end the gap goes with 1 - kappa
    assert gaps[-1] < 2e-5
    if where == "teleporter":
        np.testing.assert_allclose([values[s, g] for values in curve], [*map(trl_at_the_goal, KAPPAS)], atol=1e-10)


# --- the error falls as the data grows ---


def limit_of(method: Method) -> tuple[np.ndarray, np.ndarray]:
    """Of ever more trajectories of Example 1: both outcomes equally often, and random goals never on one's own."""
    d = draws_of(method, teleporter_log(), decomposable="draw")
    return operator(method).fixed_point(d), d.drawn


@pytest.mark.parametrize("method", [GTRL_, TRL_], ids=["GTRL", "TRL"])
def test_error_falls_with_the_root_of_the_number_of_trajectories(method: Method):
    rng = np.random.default_rng(0)
    sizes, errors = [16, 64, 256, 1024], []
    limit, drawn = limit_of(method)
    for n in sizes:
        logs = [teleporter_log(lucky, n - lucky) for lucky in rng.binomial(n, 0.5, size=32)]
        exact = np.array([operator(method).fixed_point(draws_of(method, log)) for log in logs])
        errors.append(np.abs(exact - limit)[:, drawn].max(1).mean())
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.1)


def stationary() -> np.ndarray:
    """How often the uniform behaviour is in each state of the maze in the long run: a step leaves it as it is."""
    chain = MAZE.process.transition_matrix(uniform(MAZE.process))
    system = np.vstack([chain.T - np.eye(len(chain)), np.ones(len(chain))])
    return np.linalg.lstsq(system, np.eye(len(chain) + 1)[-1], rcond=None)[0]


@pytest.mark.parametrize(
    "method", [pytest.param(GTRL_, id="GTRL"), pytest.param(TRL_, id="TRL", marks=pytest.mark.soak)]
)
def test_error_falls_as_maze_logs_grow(method: Method):
    """With more and longer trajectories. Entries that were not drawn are 0, which counts as an error."""
    method = replace(method, **IN_MAZE)
    model = model_draws(MAZE.process, uniform(MAZE.process), MAZE_GAMMA, method.value_goals, rows=stationary())
    limit = operator(method).fixed_point(model)
    often = np.zeros_like(limit)
    np.add.at(often, (model.s, model.a, model.g), model.probability)
    sizes, mean, largest = [8, 16, 32, 64], [], []
    for n in sizes:
        errors = []
        for seed in range(3):
            rng = np.random.default_rng(seed)
            log = maze_log(rng.choice(MAZE.process.states, n, p=stationary()), n, rng)
            errors.append(np.abs(operator(method).fixed_point(draws_of(method, log)) - limit))
        mean.append(np.mean([(error * often).sum() for error in errors]))
        largest.append(np.mean([error.max() for error in errors]))
    assert all(more < fewer for errors in (mean, largest) for fewer, more in pairwise(errors))
    assert mean[-1] < 0.02
    assert largest[-1] < 0.2


# How many trajectories, how many of them lucky: one standard deviation more than the mean.
SMALL_LOG, MEDIUM_LOG, LARGE_LOG = (4, 3), (64, 36), (1024, 528)


def learned_error(trajectories: tuple[int, int], is_learned: bool = True) -> float:
    """The largest error of GTRL's table on Example 1, against the limit of ever more trajectories."""
    count, lucky = trajectories
    limit, drawn = limit_of(GTRL_)
    log = teleporter_log(lucky, count - lucky)
    if is_learned:
        found, exact = learned_and_exact(GTRL_, log)
        np.testing.assert_allclose(found, exact, rtol=0, atol=0.015)  # seen: .0037, .0049 and .0042 off
    else:
        found = operator(GTRL_).fixed_point(draws_of(GTRL_, log), start=UNFITTED)
    return np.abs(found - limit)[drawn].max()


@pytest.mark.parametrize("few_are_learned", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_learned_error_falls_as_the_data_grows(few_are_learned: bool):
    """Exactly, the largest errors are .301, .064 and .016; learned, .298, .067 and .017 were seen."""
    assert learned_error(MEDIUM_LOG) < learned_error(SMALL_LOG, few_are_learned) / 3


@pytest.mark.soak
def test_learned_error_falls_further_with_many_trajectories():
    assert learned_error(LARGE_LOG) < learned_error(MEDIUM_LOG) / 2

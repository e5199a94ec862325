"""Policy files, episodes that depend on their seeds alone, the files of an evaluation, and exact values of a maze."""

import csv
import dataclasses
import itertools
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.sparse.csgraph import shortest_path
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gtrl import cli, console, registry
from gtrl.algorithms import Algorithm, make
from gtrl.data.dataset import Spec
from gtrl.data.load import load_dataset
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment
from gtrl.envs.maze import Grid, Maze
from gtrl.errors import ConfigError, RunError
from gtrl.evaluation import rollout
from gtrl.evaluation.evaluate import evaluate
from gtrl.evaluation.rollout import MAX_ENVIRONMENTS, Episode, Job, Outcome, roll_out, run_episodes
from gtrl.io import mlp, mlp_file
from gtrl.nn.networks import Actor, FlowActor
from gtrl.report.tables import comparison, summary
from gtrl.runs.policy import POLICIES, FlowPolicy, GaussianPolicy, Policy, load_policy, save_policy
from gtrl.runs.restore import load_state
from gtrl.runs.run import Run
from gtrl.tasks import ogbench_task
from gtrl.theory.maze import point_maze_grid, point_maze_values
from gtrl.training import loop
from gtrl.training.callbacks import TensorBoard
from gtrl.training.config import Training
from gtrl.training.session import Callback, Session
from gtrl.training.train import train
from gtrl.workers import map_unordered

MINI = "pointmaze-mini-navigate"
GAUSSIAN = {"kind": "gaussian"}
SIZES = {"observation_dim": 2, "goal_dim": 2, "action_dim": 2}
POINT = {**GAUSSIAN, **SIZES, "algorithm": "custom", "task": MINI, "seed": 0, "step": 1}


# --- policies ---


def random_layers(*sizes: int, reach: float = 1) -> list[mlp.Layer]:
    """A network with random biases and norms, whose actions reach beyond -1 and 1."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    pairs = list(itertools.pairwise(sizes))
    hidden = [mlp.Layer(draw(a, b) / a**0.5, draw(b), 1 + draw(b) / 10, draw(b) / 10) for a, b in pairs[:-1]]
    return [*hidden, mlp.Layer(reach * draw(*pairs[-1]) / pairs[-1][0] ** 0.5, reach * draw(pairs[-1][1]))]


def random_policy(dims: tuple[int, int, int], hidden: Sequence[int], flow_steps: int = 0, seed: int = 0) -> Policy:
    """For (observation, goal, action) of these sizes; a flow if `flow_steps` is positive."""
    header = dict(zip(SIZES, dims, strict=True)) | (flow(flow_steps) if flow_steps else GAUSSIAN)
    layers = flow_layers(dims, hidden) if flow_steps else random_layers(sum(dims[:2]), *hidden, dims[-1])
    return policy_of(layers, header, seed)


def policy_of(layers: Sequence[mlp.Layer], header: dict[str, Any], seed: int = 0) -> FlowPolicy | GaussianPolicy:
    arrays, exported = mlp_file.MLP(layers).export()
    return (FlowPolicy if header["kind"] == "flow" else GaussianPolicy)(arrays, exported | header, seed)


def flow_layers(dims: tuple[int, int, int], hidden: Sequence[int]) -> list[mlp.Layer]:
    """Velocities that keep about half of the actions between -1 and 1."""
    return random_layers(sum(dims) + 1, *hidden, dims[-1], reach=0.3)


def flow(steps: int) -> dict[str, Any]:
    return {"kind": "flow", "flow_steps": steps}


def queries(policy: Policy, count: int) -> tuple[np.ndarray, ...]:
    """Random observations and goals, and noise where the policy takes it."""
    rng = np.random.default_rng(1)
    names = ("observation", "goal", "action") if policy.header["kind"] == "flow" else ("observation", "goal")
    return tuple(rng.normal(size=(count, policy.header[f"{name}_dim"])) for name in names)


def jax_action(algorithm: Algorithm, nets: Any, rows: Sequence[np.ndarray]) -> np.ndarray:
    observation, goal = map(jax.numpy.asarray, rows)
    return np.asarray(algorithm.act(nets, observation, goal, jax.random.key(0)))


def test_numpy_policy_is_the_jax_actor(tmp_path: Path) -> None:
    algorithm, spec = make("bc", hidden=(32, 16)), Spec(observation_dim=5, action_dim=3, goal_dim=2)
    nets = jax.jit(algorithm.init, static_argnums=1)(jax.random.key(0), spec)
    nets = jax.tree.map(lambda leaf: 3 * leaf, nets)  # so that some actions are clipped
    save_policy(tmp_path / "policy.npz", jax.device_get(algorithm.policy(nets)), spec._asdict())
    policy = load_policy(tmp_path / "policy.npz")
    rows = queries(policy, 40)
    expected = jax_action(algorithm, nets, rows)
    np.testing.assert_allclose(policy(*rows), expected, atol=1e-5)
    assert 0 < (np.abs(expected) == 1).mean() < 1


def test_policy_of_a_run_is_the_actor_of_its_checkpoint(gtrl_run: Run) -> None:
    for step in (10, 20):
        algorithm, nets = load_state(gtrl_run, step)
        for index, seed in enumerate(gtrl_run.seeds):
            policy = load_policy(gtrl_run.policy_path(seed, step))
            rows = queries(policy, 20)
            one_seed = jax.tree.map(lambda leaf, index=index: leaf[index], nets)
            np.testing.assert_allclose(policy(*rows), jax_action(algorithm, one_seed, rows), atol=1e-5)


@pytest.mark.parametrize(
    ("dims", "hidden", "flow_steps"),
    [((2, 2, 2), (8,), 0), ((29, 2, 8), (512, 512, 512), 0), ((83, 16, 5), (100, 30), 0), ((29, 2, 8), (100, 30), 10)],
)
def test_bits_of_a_row_do_not_depend_on_its_neighbours(
    dims: tuple[int, int, int], hidden: tuple[int, ...], flow_steps: int
) -> None:
    policy = random_policy(dims, hidden, flow_steps)
    arrays = queries(policy, 53)
    together = policy(*arrays)
    for size in (1, 2, 3, 7, 15, 16, 17, 35):
        for start in range(0, len(together) - size, 6):  # so that a row has different places in its block
            rows = slice(start, start + size)
            np.testing.assert_array_equal(policy(*(array[rows] for array in arrays)), together[rows])
    shuffled = np.random.default_rng(2).permutation(len(together))
    np.testing.assert_array_equal(policy(*(array[shuffled] for array in arrays)), together[shuffled])


def test_accepted_input_shapes_of_a_policy() -> None:
    policy = random_policy((3, 2, 4), (8,))
    observations, goals = queries(policy, 6)
    together = policy(observations, goals)
    assert together.dtype == np.float32
    np.testing.assert_array_equal(policy(observations[2], goals[2]), together[2])  # one state
    np.testing.assert_array_equal(policy(observations.tolist(), goals.tolist()), together)
    np.testing.assert_array_equal(policy(observations, goals[0])[0], together[0])  # one goal for all
    stacked = policy(observations.reshape(2, 3, 3), goals.reshape(2, 3, 2))
    np.testing.assert_array_equal(stacked.reshape(6, 4), together)
    assert policy(observations[:0], goals[:0]).shape == (0, 4)
    for wrong in ((observations[:, :2], goals), (observations, observations)):
        with pytest.raises(RunError, match="this policy takes a"):
            policy(*wrong)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_policy_file(dtype: str, tmp_path: Path) -> None:
    layers, path = random_layers(4, 16, 2), tmp_path / "deep" / "policy.npz"
    arrays, header = mlp_file.MLP(layers).export()
    mlp_file.write(path, {name: array.astype(dtype) for name, array in arrays.items()}, header | POINT)
    assert [file.name for file in path.parent.iterdir()] == ["policy.npz"]
    assert np.load(path)["weight0"].dtype == dtype
    loaded = load_policy(path)
    assert isinstance(loaded, GaussianPolicy)
    assert {key: loaded.header[key] for key in POINT} == POINT
    assert loaded.header["layers"] == 2
    for loaded_layer, layer in zip(loaded.network.layers, layers, strict=True):
        for found, written in zip(loaded_layer, layer, strict=True):
            if written is None or found is None:
                assert found is written  # no layer norm in the last layer
                continue
            np.testing.assert_array_equal(found, written.astype(dtype))
            assert found.dtype == np.float32
    rows = queries(loaded, 50)
    full = policy_of(layers, POINT)(*rows)
    np.testing.assert_allclose(loaded(*rows), full, atol=0 if dtype == "float32" else 2e-2)


def test_invalid_policy_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    with pytest.raises(RunError, match=r"there is no file .*policy\.npz\.$"):
        load_policy(path)
    save_policy(path, mlp_file.MLP(random_layers(4, 2)), POINT)
    whole = path.read_bytes()
    for broken in (whole[:-100], b"", b"not an archive"):
        path.write_bytes(broken)
        with pytest.raises(RunError, match="is not a readable npz file"):
            load_policy(path)
    np.savez(path, observations=np.zeros(3))
    with pytest.raises(RunError, match="is not a policy file: it has no readable header"):
        load_policy(path)
    np.savez(path, header=np.array(json.dumps({"format": 99})))
    with pytest.raises(RunError, match=r"has file format 99; this version reads format 1\.$"):
        load_policy(path)
    for kind in ("mixture", None):
        save_policy(path, mlp_file.MLP(random_layers(4, 2)), POINT | {"kind": kind})
        known = "known kinds are gaussian, flow; plugins may add others"
        with pytest.raises(RunError, match=rf"policy\.npz holds a policy of kind '{kind}'; {known}\.$"):
            load_policy(path)


def test_flow_without_its_number_of_steps_is_rejected(tmp_path: Path) -> None:
    network = mlp_file.MLP(flow_layers((2, 2, 2), (4,)))
    save_policy(tmp_path / "policy.npz", network, {"kind": "flow", **dict.fromkeys(SIZES, 2)})
    with pytest.raises(RunError, match=r"its header has no number of Euler steps \(flow_steps\)\.$"):
        load_policy(tmp_path / "policy.npz")


def test_squashed_policy_of_standardised_inputs_without_layer_norm(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    first, second = (mlp.Layer(rng.normal(size=shape), rng.normal(size=shape[1])) for shape in ((4, 6), (6, 2)))
    mean, deviation = rng.normal(size=4), rng.uniform(0.5, 2, 4)
    save_policy(tmp_path / "policy.npz", mlp_file.MLP([first, second], "relu", "tanh", mean, deviation), POINT)
    policy = load_policy(tmp_path / "policy.npz")
    observations, goals = queries(policy, 20)
    rows = (np.concatenate([observations, goals], 1) - mean) / deviation
    expected = np.tanh(np.maximum(rows @ first.weight + first.bias, 0) @ second.weight + second.bias)
    np.testing.assert_allclose(policy(observations, goals), expected, atol=1e-5)


def test_a_policy_file_of_the_first_version(tmp_path: Path) -> None:
    """A header without activation and output; the action computed in double precision."""
    layers, rows = random_layers(4, 16, 2), np.random.default_rng(1).normal(size=(9, 4))
    arrays = {f"{name}{k}": array for k, layer in enumerate(layers) for name, array in layer._asdict().items()}
    header = json.dumps({"format": 1, "layers": 2, **POINT, "goal": "oracle", "version": "0.1.0"})
    np.savez(tmp_path / "old.npz", header=np.array(header), **{k: v for k, v in arrays.items() if v is not None})
    x = rows @ layers[0].weight.astype(float) + layers[0].bias
    x = x / (1 + np.exp(-2 * (2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6) * layers[0].scale + layers[0].shift
    expected = np.clip(x @ layers[1].weight + layers[1].bias, -1, 1)
    np.testing.assert_allclose(load_policy(tmp_path / "old.npz")(rows[:, :2], rows[:, 2:]), expected, atol=1e-5)


# --- policies of other kinds ---

PLUGIN = """
import numpy as np
import gtrl

class Table(gtrl.Policy):
    # The action of the nearest known observation, nudged by noise.
    name = "table"
    noise_dim = 2

    def __init__(self, arrays, header, seed=0):
        super().__init__(arrays, header, seed)
        self.places, self.actions = arrays["places"], arrays["actions"]

    def act(self, observation, goal, noise):
        near = np.abs(observation[:, None] - self.places).sum(-1).argmin(1)
        return self.actions[near] + noise / 8

class Base(Table):
    pass  # without its own name it is not a kind
"""


class TableActor:
    """What a user-defined method would return as its policy."""

    def export(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        places, actions = np.array([[0.0, 0.0], [4.0, 4.0]]), np.array([[0.25, -0.5], [3.0, 0.0]])
        return {"places": places, "actions": actions}, {"kind": "table"}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "table_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    before = dict(POLICIES.entries)
    yield "table_plugin"
    POLICIES.entries = before
    sys.modules.pop("table_plugin", None)


def test_user_defined_policy_kind(plugin: str, tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    save_policy(path, TableActor(), {**SIZES, "task": None})
    with pytest.raises(RunError, match=r"holds a policy of kind 'table'; known kinds are gaussian, flow; plugins may"):
        load_policy(path)
    registry.load_plugin(plugin)
    assert list(POLICIES) == ["gaussian", "flow", "table"]
    policy = load_policy(path, seed=1)
    observations, goals, noise = np.array([[0.5, 0.0], [5.0, 3.0], [-1, -1]] * 9), np.zeros(2), np.full((27, 2), 0.8)
    action = policy(observations, goals, noise)
    np.testing.assert_allclose(action[:3], [[0.35, -0.4], [1, 0.1], [0.35, -0.4]], atol=1e-6)
    np.testing.assert_array_equal(policy(observations[:2], goals, noise[:2]), action[:2])
    assert not np.array_equal(policy(observations[0], goals), policy(observations[0], goals))  # it draws its own noise
    with pytest.raises(RunError, match="a noise of 2 numbers"):
        policy(observations, goals, np.zeros(3))
    arrays, header = TableActor().export()
    mlp_file.write(path, {"actions": arrays["actions"]}, header | SIZES)
    with pytest.raises(RunError, match=r"is not a policy file of kind 'table': KeyError\('places'\)\.$"):
        load_policy(path)
    mlp_file.write(path, arrays, header | SIZES | {"goal_dim": 0})
    with pytest.raises(RunError, match=r"'goal_dim' of its header is invalid \(0\)\.$"):
        load_policy(path)
    mlp_file.write(path, arrays | {"actions": np.zeros((2, 1))}, header | SIZES | {"action_dim": 1})
    with pytest.raises(RunError, match=r"'table' returned actions of shape \(1, 2\), not \(1, 1\)\.$"):
        load_policy(path)(np.zeros(2), np.zeros(2))


def test_policy_file_cannot_import_a_module(plugin: str, tmp_path: Path) -> None:
    save_policy(tmp_path / "table.npz", TableActor(), {**SIZES, "kind": f"{plugin}:Table"})
    with pytest.raises(RunError, match="holds a policy of kind 'table_plugin:Table'; known kinds are gaussian, flow"):
        load_policy(tmp_path / "table.npz")
    assert plugin not in sys.modules


def test_actors_export_themselves() -> None:
    spec = Spec(observation_dim=5, action_dim=3, goal_dim=2)
    for actor, message in (
        (Actor.init(jax.random.key(0), spec, (8,)), {"kind": "gaussian"}),
        (FlowActor.init(jax.random.key(0), spec, (8,), 6), {"kind": "flow", "flow_steps": 6}),
    ):
        arrays, header = jax.device_get(actor).export()
        assert header == message | {"layers": 2, "activation": "gelu", "output": "clip"}
        assert {type(array) for array in arrays.values()} == {np.ndarray}
        assert sorted(arrays) == ["bias0", "bias1", "scale0", "shift0", "weight0", "weight1"]
        np.testing.assert_array_equal(arrays["weight1"], actor.layers[1].weight)


# --- policies that act at random ---


def test_numpy_flow_matches_the_jax_flow(tmp_path: Path) -> None:
    spec, steps = Spec(observation_dim=5, action_dim=3, goal_dim=2), 7
    actor = FlowActor(tuple(jax.tree.map(jax.numpy.asarray, flow_layers((5, 2, 3), (32, 16)))), steps)
    save_policy(tmp_path / "policy.npz", actor, spec._asdict())
    policy = load_policy(tmp_path / "policy.npz")
    assert (policy.header["kind"], policy.header["flow_steps"]) == ("flow", 7)
    assert policy.noise_dim == 3
    rows = queries(policy, 40)
    expected = np.clip(actor(*map(jax.numpy.asarray, rows)), -1, 1)
    np.testing.assert_allclose(policy(*rows), expected, atol=1e-5)
    assert 0.1 < (np.abs(expected) == 1).mean() < 0.9
    coarse = FlowActor(actor.layers, 6)(*map(jax.numpy.asarray, rows))
    assert np.abs(np.clip(coarse, -1, 1) - expected).max() > 1e-3  # the number of steps matters here


def linear_flow(steps: int) -> FlowPolicy | GaussianPolicy:
    """The velocity of x in each of two dimensions: (s + 2 g - 3 x + 5 t + 0.25) / 8, with the dimension's own s, g."""
    eye = np.eye(2)
    weight = np.concatenate([eye, 2 * eye, -3 * eye, np.full((1, 2), 5)]) / 8
    layer = mlp.Layer(weight.astype(np.float32), np.full(2, 0.25 / 8, np.float32))
    return policy_of([layer], flow(steps) | SIZES)


@pytest.mark.parametrize("steps", [1, 2, 10])
def test_flow_by_hand(steps: int) -> None:
    """Euler steps from t = 0: the velocity is read at the beginning of each, and never at t = 1."""
    rows = queries(linear_flow(steps), 30)
    actions, inside = linear_flow(steps)(*rows), 0
    for action, *row in zip(actions, *rows, strict=True):
        for found, s, g, x in zip(action, *row, strict=True):
            for k in range(steps):
                x += (s + 2 * g - 3 * x + 5 * k / steps + 0.25) / 8 / steps
            assert found == pytest.approx(min(max(x, -1), 1), abs=1e-6)
            inside += abs(x) < 1
    assert 30 < inside < 60


def test_saved_flows_are_the_networks_of_each_seed(tmp_path: Path) -> None:
    """As in a run: the networks of all seeds together, then one file per seed."""
    algorithm, spec = make("fbc", hidden=(16,), flow_steps=4), Spec(observation_dim=5, action_dim=3, goal_dim=2)
    nets = jax.jit(jax.vmap(lambda key: algorithm.init(key, spec)))(loop.seed_keys([0, 3]))
    nets = jax.tree.map(lambda leaf: 3 * leaf, nets)
    state = loop.State(nets, None, None, jax.numpy.zeros(2), {}, jax.numpy.ones(2, jax.numpy.uint32))
    Session(Run(tmp_path), algorithm, Training(steps=10), None, spec, [0, 3])._save_policies(10, state)
    found = []
    for index, seed in enumerate((0, 3)):
        policy = load_policy(Run(tmp_path).policy_path(seed, 10))
        expected = {**flow(4), **spec._asdict(), "algorithm": "fbc", "goal": "own", "seed": seed, "step": 10}
        assert expected.items() <= policy.header.items()
        observation, goal, _ = queries(policy, 20)
        one_seed = jax.tree.map(lambda leaf, index=index: leaf[index], nets)
        noise = jax.random.normal(jax.random.key(0), (20, 3))  # what the method draws, given this key
        found.append(policy(observation, goal, noise))
        np.testing.assert_allclose(found[-1], jax_action(algorithm, one_seed, (observation, goal)), atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-2


def test_policy_draws_its_own_noise() -> None:
    first, again, other = (random_policy((3, 2, 4), (8,), flow_steps=5, seed=seed) for seed in (1, 1, 2))
    observations, goals, _ = queries(first, 6)
    calls = [first(observations, goals) for _ in range(2)]
    for call in calls:
        np.testing.assert_array_equal(again(observations, goals), call)
    assert not np.array_equal(calls[0], calls[1])
    assert not np.array_equal(other(observations, goals), calls[0])
    # One state: an action, and another one when asked again.
    once, twice = (first(observations[0], goals[0]) for _ in range(2))
    assert once.shape == (4,)
    assert not np.array_equal(once, twice)


def test_seed_of_the_file_seeds_the_noise(tmp_path: Path) -> None:
    path, one = tmp_path / "flow.npz", (np.zeros(2), np.zeros(2))
    save_policy(path, linear_flow(1).network, linear_flow(1).header)
    np.testing.assert_array_equal(load_policy(path)(*one), load_policy(path, seed=0)(*one))
    np.testing.assert_array_equal(load_policy(path, seed=7)(*one), load_policy(path, seed=7)(*one))
    assert not np.array_equal(load_policy(path, seed=7)(*one), load_policy(path)(*one))


def noise_policy(path: Path, share: float, action: tuple[float, float] = (0, 0)) -> Path:
    """A flow of one step whose action is clip(share * noise + action)."""
    weight = np.concatenate([np.zeros((4, 2)), (share - 1) * np.eye(2), np.zeros((1, 2))])
    layer = mlp.Layer(weight.astype(np.float32), np.array(action, np.float32))
    save_policy(path, mlp_file.MLP([layer]), POINT | flow(1))
    return path


def test_noise_is_standard_normal_and_fresh_in_each_row(tmp_path: Path) -> None:
    policy = load_policy(noise_policy(tmp_path / "noise.npz", share=1 / 8))  # so nothing is clipped
    drawn = 8 * policy(np.zeros((4000, 2)), np.zeros(2))
    assert np.abs(np.corrcoef(drawn[:-1].T, drawn[1:].T) - np.eye(4)).max() < 0.06  # neither between rows nor within
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-3


def test_shapes_of_noise() -> None:
    policy = random_policy((3, 2, 4), (8,), flow_steps=3)
    observations, goals, noise = queries(policy, 6)
    together = policy(observations, goals, noise)
    np.testing.assert_array_equal(policy(observations[2], goals[2], noise[2]), together[2])
    np.testing.assert_array_equal(policy(observations, goals, noise.tolist()), together)
    shared = policy(observations, goals, noise[0])  # the same noise for all
    np.testing.assert_array_equal(shared[0], together[0])
    assert (np.abs(shared[1:] - together[1:]).max(-1) > 1e-2).all()
    several = policy(observations[0], goals[0], noise)  # several draws for one state
    assert several.shape == (6, 4)
    np.testing.assert_array_equal(several[0], together[0])
    assert policy(observations[:0], goals[:0]).shape == (0, 4)
    for wrong in (noise[:, :3], np.zeros((6, 5)), 0.5, noise[..., None]):
        with pytest.raises(RunError, match=r"^this policy takes a noise of 4 numbers, not of shape \(.*\)\.$"):
            policy(observations, goals, wrong)


def test_gaussian_policy_ignores_noise() -> None:
    policy = random_policy((3, 2, 4), (8,))
    assert policy.noise_dim == 0
    observations, goals = queries(policy, 6)
    expected = policy(observations, goals)
    for noise in (np.zeros((6, 0)), np.ones((6, 4)), np.ones(3)):
        np.testing.assert_array_equal(policy(observations, goals, noise), expected)
    np.testing.assert_array_equal(policy(observations, goals), expected)  # and draws none


# --- environments that share a process ---


def play(env: IsolatedEnv, seed: int, goal: int, actions: np.ndarray) -> Iterator[np.ndarray]:
    """Yields all that an episode shows, step by step: the observation, then the goal or the simulator state."""
    observation, info = env.reset(np.random.SeedSequence(seed), {"task_id": goal})
    yield np.concatenate([observation, info["goal"]])
    for action in actions:
        observation, *_ = env.step(action)
        yield np.concatenate([observation, env.env.unwrapped.data.qpos])


def check_isolation(name: str, goal: int, actions: np.ndarray) -> list[list[np.ndarray]]:
    """Two environments interleaved, each alone, and each in the other's place; the caller's generator untouched."""
    first, second = (IsolatedEnv(make_environment(ogbench_task(name))) for _ in range(2))
    np.random.seed(5)
    caller = []
    mixed: list[list[np.ndarray]] = [[], []]
    for one, two in zip(play(first, 1, goal, actions), play(second, 2, goal, actions), strict=True):
        mixed[0].append(one)
        mixed[1].append(two)
        caller.append(np.random.random())  # the caller draws too
    np.testing.assert_array_equal(caller, np.random.RandomState(5).random_sample(len(caller)))
    for env, seed in ((first, 1), (second, 2), (second, 1), (first, 2)):
        for row, expected in zip(play(env, seed, goal, actions), mixed[seed - 1], strict=True):
            np.testing.assert_array_equal(row, expected)
    return mixed


def into_the_teleporter(count: int) -> np.ndarray:
    """Goal 3 of the teleport maze starts right below a teleporter: go up, then anywhere."""
    anywhere = np.random.default_rng(0).uniform(-1, 1, (count, 2))
    return np.concatenate([np.tile([0.0, -1.0], (40, 1)), anywhere])


def test_teleport_mazes_do_not_disturb_each_other() -> None:
    name = "pointmaze-teleport-navigate"
    for episode in check_isolation(name, 3, into_the_teleporter(100)):
        rows = np.array(episode)[1:]
        assert np.linalg.norm(rows[:, :2] - rows[:, 2:], axis=-1).max() > 4  # it was teleported
    # The exit is random, and the seed determines it.
    env, exits = IsolatedEnv(make_environment(ogbench_task(name))), set()
    for seed in range(10):
        exits.add(tuple(list(play(env, seed, 3, into_the_teleporter(0)))[-1].round().tolist()))
    assert len(exits) > 1


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting", "ignore:.*DISPLAY environment variable")
def test_manipulation_environments_do_not_disturb_each_other() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 5))
    one, two = check_isolation("cube-single-play", 2, actions)
    assert not np.array_equal(one[0], two[0])


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting", "ignore:.*DISPLAY environment variable")
def test_random_actions_within_a_reset_follow_the_seed() -> None:
    """To settle the goal's scene a reset takes a few steps of `action_space.sample()`; they move the goal by a bit."""
    env, taken = IsolatedEnv(make_environment(ogbench_task("scene-play"))), []
    scene = env.env.unwrapped
    step = scene.step

    def recorded(action: np.ndarray) -> Any:
        taken.append(action)
        return step(action)

    scene.step = recorded
    for seed in (1, 1, 2):
        env.reset(np.random.SeedSequence(seed), {"task_id": 1})
    first, again, other = np.split(np.array(taken), 3)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_failing_environment_restores_the_generator() -> None:
    env = IsolatedEnv(make_environment(ogbench_task(MINI)))
    env.reset(np.random.SeedSequence(0), {"task_id": 1})
    np.random.seed(5)
    with pytest.raises(ValueError, match="broadcast"):
        env.step(np.zeros(3))
    assert np.random.random() == np.random.RandomState(5).random_sample()


# --- rollouts ---


def linear_policy(path: Path, weight: Any, bias: Any) -> Path:
    """action = clip((x, y, goal x, goal y) @ weight + bias)."""
    save_policy(path, mlp_file.MLP([mlp.Layer(np.array(weight, np.float32), np.array(bias, np.float32))]), POINT)
    return path


def by_episode(outcomes: Iterator[tuple[int, Outcome]]) -> dict[tuple[int, int, int], Outcome]:
    return {(policy, outcome.episode.goal, outcome.episode.number): outcome for policy, outcome in outcomes}


def facts(outcome: Outcome) -> tuple[Any, ...]:
    path = None if outcome.path is None else outcome.path.tobytes()
    return outcome.success, outcome.length, outcome.goal.tobytes(), path


def test_outcomes_do_not_depend_on_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = dataclasses.replace(ogbench_task(MINI), episode_length=80)
    towards_the_goal = linear_policy(tmp_path / "a.npz", [[-1, 0], [0, -1], [1, 0], [0, 1]], [0, 0])
    to_the_right = linear_policy(tmp_path / "b.npz", np.zeros((4, 2)), [1, 0.1])
    at_random = noise_policy(tmp_path / "c.npz", share=1)
    policies = [towards_the_goal, to_the_right, at_random]
    counted: list[int] = []
    alone = by_episode(roll_out(policies, task, 3, workers=1, record=2, bar=counted.append))
    assert sum(counted) == len(alone) == 3 * 5 * 3
    assert all((outcome.path is not None) == (key[2] < 2) for key, outcome in alone.items())
    for workers in (2, 3):
        # Jobs of 3 episodes, then of 1: each time with other neighbours.
        monkeypatch.setattr(rollout, "MAX_ENVIRONMENTS", 7 - 2 * workers)
        together = by_episode(roll_out(policies, task, 3, workers=workers, record=2))
        assert {key: facts(outcome) for key, outcome in together.items()} == {
            key: facts(outcome) for key, outcome in alone.items()
        }
    # All policies meet the same goals from the same starts, and each episode its own.
    for goal in range(1, 6):
        for other in (1, 2):
            np.testing.assert_array_equal(alone[0, goal, 0].goal, alone[other, goal, 0].goal)
            np.testing.assert_array_equal(*(np.asarray(alone[policy, goal, 0].path)[0] for policy in (0, other)))
        assert not np.array_equal(alone[0, goal, 0].goal, alone[0, goal, 1].goal)


def test_outcomes_of_an_idle_policy(tmp_path: Path) -> None:
    task = dataclasses.replace(ogbench_task(MINI), episode_length=25)
    still = load_policy(linear_policy(tmp_path / "still.npz", np.zeros((4, 2)), [0, 0]))
    episodes = tuple(Episode(goal, 0) for goal in range(1, 6))
    outcomes = run_episodes(still, Job("", task, episodes, base_seed=0, record=1))
    assert [(outcome.success, outcome.length) for outcome in outcomes] == [(False, 25)] * 5
    for outcome in outcomes:
        assert outcome.path is not None
        assert outcome.path.shape == (26, 2)
        assert np.abs(outcome.path - outcome.path[0]).max() < 0.5  # a wall may push it a little
    others = run_episodes(still, Job("", task, episodes, base_seed=1, record=1))
    assert not np.array_equal(others[0].goal, outcomes[0].goal)


def test_outcomes_that_depend_on_luck_alone(tmp_path: Path) -> None:
    """Up where x < 28, down beyond: the teleporter alone decides whether this policy succeeds in the teleport maze.

    From the starts of goals 3 and 4 it walks into a teleporter. Of the exits, (6, 10) has the goal below it, (1, 7)
    is a dead end, and (6, 1) leads up into the other teleporter. The starts of goals 1 and 2 are corners.
    """
    task = ogbench_task("pointmaze-teleport-navigate")
    policy = load_policy(linear_policy(tmp_path / "up.npz", [[0, 1], [0, 0], [0, 0], [0, 0]], [0, -28]))
    episodes = tuple(Episode(goal, number) for number in range(6) for goal in (3, 4, 1))
    outcomes = run_episodes(policy, Job("", task, episodes, base_seed=0, record=6))
    assert {outcome.episode for outcome in outcomes} == set(episodes)
    for outcome in outcomes:
        assert outcome.path is not None
        assert len(outcome.path) == outcome.length + 1
        lucky = (np.abs(outcome.path - [36, 20]).max(1) < 0.1).any()  # it left the exit in cell (6, 10)
        assert outcome.success == lucky
        assert outcome.length < task.episode_length if outcome.success else outcome.length == task.episode_length
        if outcome.episode.goal == 1:
            assert not outcome.success
    assert {outcome.success for outcome in outcomes if outcome.episode.goal == 3} == {True, False}


class Watched(FlowPolicy):
    """A policy that records its inputs and actions: one (rows, numbers) array for each call."""

    def __init__(self, path: Path, seed: int = 0) -> None:
        super().__init__(*mlp_file.read(path, "a policy file", RunError), seed)
        self.calls: list[np.ndarray] = []

    def __call__(self, observation: Any, goal: Any, noise: Any = None) -> np.ndarray:
        action = super().__call__(observation, goal, noise)
        self.calls.append(np.concatenate([observation, goal, noise, action], -1))
        return action


def watch(path: Path, episodes: Sequence[Episode], length: int = 25, seed: int = 0, base_seed: int = 0) -> np.ndarray:
    """(episodes, steps, numbers) of (observation, goal, noise, action); no episode here ends before the others."""
    policy = Watched(path, seed)
    task = dataclasses.replace(ogbench_task(MINI), episode_length=length)
    outcomes = run_episodes(policy, Job("", task, tuple(episodes), base_seed, record=0))
    assert {(outcome.success, outcome.length) for outcome in outcomes} == {(False, length)}
    return np.stack(policy.calls, 1)


def test_each_episode_has_its_own_noise(tmp_path: Path) -> None:
    path = noise_policy(tmp_path / "noise.npz", share=1)
    episodes = [Episode(goal, number) for number in range(2) for goal in range(1, 6)]
    together = watch(path, episodes)
    noise, actions = together[..., 4:6], together[..., 6:]
    np.testing.assert_allclose(actions, np.clip(noise, -1, 1), atol=1e-6)
    assert len(np.unique(noise)) == noise.size  # fresh at each step of each episode
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
    # Alone, in another order, and with any state of the policy's own generator.
    np.testing.assert_array_equal(watch(path, episodes[3:4])[0], together[3])
    np.testing.assert_array_equal(watch(path, episodes[::-1], seed=5)[::-1], together)
    # A different base seed is another episode.
    other = watch(path, episodes[3:4], base_seed=1)
    assert not np.isin(other[..., 4:6], noise).any()


def test_consecutive_episodes_have_their_own_noise(tmp_path: Path) -> None:
    """Seventeen episodes: the last one gets the environment of the one that ends first."""
    path, task = (
        noise_policy(tmp_path / "noise.npz", share=1),
        dataclasses.replace(ogbench_task(MINI), episode_length=10),
    )
    count = MAX_ENVIRONMENTS + 1
    episodes = [Episode(2, number) for number in range(count)]
    every, alone = (
        {outcome.episode: facts(outcome) for outcome in run_episodes(load_policy(path), job)}
        for job in (Job("", task, tuple(episodes), 0, count), Job("", task, (episodes[-1],), 0, count))
    )
    assert len(every) == count
    assert every[episodes[-1]] == alone[episodes[-1]]


def test_policy_noise_does_not_change_the_environments_randomness(tmp_path: Path) -> None:
    """To the right, into the teleporter: a flow that ignores noise takes exactly the path of a Gaussian policy."""
    task = dataclasses.replace(ogbench_task(MINI), episode_length=60)
    gaussian = linear_policy(tmp_path / "gaussian.npz", np.zeros((4, 2)), [1, 0])
    without_noise = noise_policy(tmp_path / "flow.npz", share=0, action=(5, 0))  # clipped to (1, 0)
    episodes = tuple(Episode(goal, number) for number in range(4) for goal in (1, 2, 4))
    paths, exits = [], set()
    for path in (gaussian, without_noise):
        outcomes = run_episodes(load_policy(path), Job("", task, episodes, base_seed=0, record=4))
        by_number = {outcome.episode: np.asarray(outcome.path) for outcome in outcomes}
        paths.append([by_number[episode] for episode in episodes])
    for one, other in zip(*paths, strict=True):
        np.testing.assert_array_equal(one, other)
        jump = int(np.linalg.norm(np.diff(one, axis=0), axis=-1).argmax())
        assert np.linalg.norm(one[jump + 1] - one[jump]) > 3  # it was teleported
        exits.add(tuple(one[jump + 1].round().tolist()))
    assert len(exits) == 3


def test_workers_are_single_threaded_and_free_of_jax() -> None:
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    asked = [f"__import__('os').environ[{name!r}]" for name in names]
    asked.append("__import__('gtrl.evaluation.rollout') and 'jax' in __import__('sys').modules")
    assert dict(map_unordered(eval, asked, workers=1)) == {0: "1", 1: "1", 2: "1", 3: False}
    with pytest.raises(ZeroDivisionError):
        list(map_unordered(eval, ["1 / 0"], workers=1))


# --- evaluating a run ---


@pytest.fixture(scope="module")
def evaluated(gtrl_run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[dict[str, Any]]]:
    run = Run(tmp_path_factory.mktemp("evaluated") / "run")
    shutil.copytree(gtrl_run.path, run.path)
    return run, evaluate(run, episodes=2, workers=2, show=False)


def with_base_seed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "base_seed": 0} for row in rows]


def test_eval_csv(evaluated: tuple[Run, list[dict[str, Any]]]) -> None:
    run, rows = evaluated
    with (run.path / "eval.csv").open(newline="") as file:
        table = list(csv.reader(file))
    assert table[0] == ["algorithm", "task", "seed", "step", "goal", "episodes", "successes", "base_seed"]
    expected = [["gtrl", MINI, str(seed), "20", f"task{goal}", "2"] for seed in (0, 3) for goal in range(1, 6)]
    assert [line[:6] for line in table[1:]] == expected
    assert all(0 <= int(line[6]) <= 2 for line in table[1:])
    assert {line[7] for line in table[1:]} == {"0"}
    assert run.evaluations() == with_base_seed(rows)


@pytest.mark.usefixtures("in_process")
def test_run_without_checkpoints_can_be_evaluated(gtrl_run: Run, tmp_path: Path) -> None:
    copy = shutil.copytree(gtrl_run.path, tmp_path / "copy", ignore=shutil.ignore_patterns("checkpoints", "values.npz"))
    assert len(evaluate(copy, episodes=1, workers=1, show=False)) == 2 * 5
    assert not (copy / "values.npz").exists()
    with pytest.raises(ConfigError, match=r"seed is -1 and must not be negative\.$"):
        evaluate(copy, base_seed=-1)


def with_method(run: Run, folder: Path, name: str) -> Run:
    """A copy of a run whose config names another method."""
    copy = Run(shutil.copytree(run.path, folder))
    config = copy.config
    config["algorithm"]["name"] = name
    copy.save_config(config)
    return copy


@pytest.mark.usefixtures("in_process")
def test_run_of_an_unknown_method_can_be_evaluated(
    gtrl_run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = with_method(gtrl_run, tmp_path / "run", "nobody-has-this")
    rows = evaluate(run, episodes=1, workers=1, show=False)
    assert len(rows) == len(run.evaluations()) == 2 * 5
    assert not (run.path / "values.npz").exists()
    assert "eval.csv is complete, but values.npz is not written: unknown method 'nobody-has-this'" in caplog.text


@pytest.mark.usefixtures("in_process")
def test_user_defined_method_gets_value_maps(gtrl_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = """
from dataclasses import dataclass
from typing import ClassVar
from gtrl.algorithms.gtrl import GTRL

@dataclass(frozen=True)
class Custom(GTRL):
    name: ClassVar = "custom-from-elsewhere"
"""
    (tmp_path / "elsewhere.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    run = with_method(gtrl_run, tmp_path / "run", "custom-from-elsewhere")
    run.save_config(run.config | {"plugins": ["elsewhere"]})
    evaluate(run, episodes=1, workers=1, show=False)
    assert np.isfinite(np.load(run.path / "values.npz")["values"]).any()


def test_rollouts_npz(evaluated: tuple[Run, list[dict[str, Any]]]) -> None:
    run, rows = evaluated
    maze = make_environment(ogbench_task(MINI)).unwrapped
    file = np.load(run.path / "rollouts.npz")
    assert file["step"] == 20
    index = file["index"]
    seeds, goals, numbers, successes, starts, lengths = index.T
    assert index[:, :3].tolist() == [[s, g, n] for s in (0, 3) for g in range(1, 6) for n in range(2)]
    np.testing.assert_array_equal(starts, np.cumsum(lengths) - lengths)
    assert len(file["positions"]) == lengths.sum()
    assert lengths.max() <= ogbench_task(MINI).episode_length + 1
    for row in rows:  # fewer episodes than are recorded, so every one is here
        selected = (seeds == row["seed"]) & (goals == int(row["goal"][-1]))
        assert successes[selected].sum() == row["successes"]
    for goal, number, start, xy in zip(goals, numbers, starts, file["goals"], strict=True):
        info = maze.task_infos[goal - 1]
        assert maze.xy_to_ij(file["positions"][start]) == info["init_ij"]
        assert maze.xy_to_ij(xy) == info["goal_ij"]
        assert number < 2


def test_values_npz(evaluated: tuple[Run, list[dict[str, Any]]]) -> None:
    run, _ = evaluated
    maze = make_environment(ogbench_task(MINI)).unwrapped
    file = np.load(run.path / "values.npz")
    points, values = file["points"], file["values"]
    per_cell = points.shape[0] // maze.maze_map.shape[0]
    walls = maze.maze_map.repeat(per_cell, 0).repeat(per_cell, 1) == 1
    assert values.shape == (2, 5, *walls.shape)
    for found in (points[..., 0], *values.reshape(-1, *walls.shape)):
        np.testing.assert_array_equal(np.isnan(found), walls)
    for row, column in np.argwhere(~walls):
        assert maze.xy_to_ij(points[row, column]) == (row // per_cell, column // per_cell)
    _, nets = load_state(run, 20)
    row, column = np.argwhere(~walls)[7]
    for index, goal in enumerate(file["goals"]):
        assert maze.xy_to_ij(goal) == maze.task_infos[index]["goal_ij"]
        found = jax.vmap(lambda nets, goal=goal: nets.value(points[row, column][None], goal[None]))(nets)
        np.testing.assert_allclose(values[:, index, row, column], found[:, 0], rtol=1e-5)
    assert file["entrances"].shape == (len(maze._teleport_info["teleport_in_ijs"]), 2)
    assert file["exits"].shape == (len(maze._teleport_info["teleport_out_ijs"]), 2)


@pytest.mark.usefixtures("in_process")
def test_evaluating_again(evaluated: tuple[Run, list[dict[str, Any]]], tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    shutil.copytree(evaluated[0].path, run.path)
    before = run.evaluations()
    early = evaluate(run.path, episodes=1, step=10, workers=1, show=False)
    assert {row["step"] for row in early} == {10}
    assert run.evaluations() == [*with_base_seed(early), *before]  # ordered by step
    again = evaluate(run.path, episodes=1, workers=1, show=False)
    assert {row["step"] for row in again} == {20}  # the last; 10 does not count for the score
    assert {row["episodes"] for row in again} == {1}
    assert run.evaluations() == [*with_base_seed(early), *before]  # fewer episodes replace no rows with more
    # Episode 0 is the same whether one is run or two, so it cannot win more alone.
    assert all(one["successes"] <= two["successes"] for one, two in zip(again, before, strict=True))


@pytest.mark.usefixtures("in_process")
def test_several_steps_go_to_tensorboard_and_callbacks(gtrl_run: Run, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    shutil.copytree(gtrl_run.path, run.path)
    seen: list[tuple[int, list[dict[str, Any]]]] = []

    class Seen(Callback):
        def on_evaluation(self, step: int, rows: list[dict[str, Any]]) -> None:
            seen.append((step, rows))

    rows = evaluate(run, step="all", episodes=2, workers=1, show=False, callbacks=[Seen()])
    assert [step for step, _ in seen] == sorted({row["step"] for row in rows}) == run.written_steps() == [10, 20]
    assert [row for _, group in seen for row in group] == rows
    assert rows == evaluate(run, step=[20, 10, 20], episodes=2, workers=1, show=False)
    events = EventAccumulator(str(run.path / "evaluation")).Reload()
    for seed in run.seeds:
        for goal in ("", "/task1", "/task5"):
            points = {point.step: point.value for point in events.Scalars(f"seed-{seed}/success{goal}")}
            for step in (10, 20):
                chosen = [row for row in rows if (row["seed"], row["step"]) == (seed, step) and goal[1:] in row["goal"]]
                wanted = 100 * sum(row["successes"] for row in chosen) / sum(row["episodes"] for row in chosen)
                assert points[step] == pytest.approx(wanted)
    with pytest.raises(RunError, match="has no policies at step 15, 30; it has 10, 20"):
        evaluate(run, step=[10, 30, 15], show=False)
    with pytest.raises(RunError, match="has no policies"):
        evaluate(run, step=[], show=False)
    with pytest.raises(ConfigError, match="step is '100' and must be"):
        evaluate(run, step="100", show=False)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="TensorBoard cannot be a callback of an evaluation"):
        evaluate(run, callbacks=[TensorBoard()], show=False)


@pytest.mark.usefixtures("in_process")
def test_evaluating_a_policy_file_writes_nothing(gtrl_run: Run, tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    shutil.copy(gtrl_run.policy_path(3), path)
    rows = evaluate(path, episodes=1, workers=1, show=False)
    assert [(row["seed"], row["step"], row["goal"]) for row in rows] == [(3, 20, f"task{k}") for k in range(1, 6)]
    assert list(tmp_path.iterdir()) == [path]
    assert summary(rows).row_count == 1  # a table with one line for its one seed


@pytest.mark.usefixtures("in_process")
def test_evaluating_a_run_whose_policies_act_at_random(mini_file: Path, tmp_path: Path) -> None:
    data, sizes = load_dataset(mini_file, MINI), {"steps": 5, "batch_size": 16, "hidden": (8,), "flow_steps": 3}
    run = train("fbc", data, out=tmp_path / "fbc", seeds=[0, 3], show=False, **sizes)
    _, nets = load_state(run, 5)
    for index, seed in enumerate(run.seeds):
        policy = load_policy(run.policy_path(seed, 5))
        assert policy.header["flow_steps"] == 3
        rows = queries(policy, 20)
        actor: FlowActor = jax.tree.map(lambda leaf, index=index: leaf[index], nets)
        expected = np.clip(jax.jit(FlowActor.__call__)(actor, *rows), -1, 1)
        np.testing.assert_allclose(policy(*rows), expected, atol=1e-5)
    assert len(evaluate(run, episodes=1, workers=2, show=False)) == 2 * 5
    recorded = np.load(run.path / "rollouts.npz")
    paths = np.split(recorded["positions"], recorded["index"][1:, 4])
    for one, other in zip(paths[:5], paths[5:], strict=True):  # of the two seeds
        np.testing.assert_array_equal(one[0], other[0])
        assert not np.array_equal(one[1], other[1])
    assert not (run.path / "values.npz").exists()  # there is no value to draw


def test_invalid_evaluations_are_rejected(gtrl_run: Run, tmp_path: Path) -> None:
    for what in ({"episodes": 0}, {"workers": 0}):
        with pytest.raises(ConfigError, match="must be at least 1"):
            evaluate(gtrl_run, **what)  # pyright: ignore[reportArgumentType]
    with pytest.raises(RunError, match=r"has no policies at step 15; it has 10, 20\.$"):
        evaluate(gtrl_run, step=15)
    with pytest.raises(RunError, match=r"is not a run directory: it has no config\.json\.$"):
        evaluate(tmp_path)
    save_policy(tmp_path / "own.npz", mlp_file.MLP(random_layers(4, 2)), POINT | {"task": None})
    with pytest.raises(RunError, match="without a task"):
        evaluate(tmp_path / "own.npz", episodes=1)
    assert not (gtrl_run.path / "eval.csv").exists()


# --- exact values of a maze ---

GAMMA = 0.9


def maze_of_text(*rows: str, **teleporters: Any) -> tuple[Maze, Grid]:
    """Cells of 4 by 4; the centre of cell (1, 1) is the origin, as in OGBench."""
    free = np.array([[symbol != "#" for symbol in row] for row in rows])
    maze = Maze(free, 4.0, 4.0, **{name: np.array(xys) for name, xys in teleporters.items()})  # pyright: ignore[reportArgumentType]
    return maze, point_maze_grid(maze)


def value_at(grid: Grid, values: np.ndarray, x: float, y: float) -> float:
    row, column = np.argwhere((np.abs(grid.points - [x, y]) < 1e-6).all(-1))[0]
    return float(values[row, column])


def test_free_points_keep_the_agents_radius_from_walls() -> None:
    _, grid = maze_of_text("####", "#..#", "#.##", "####")
    for (x, y), free in zip(grid.points.reshape(-1, 2), grid.free.reshape(-1), strict=True):
        # An L of three cells, each 4 wide; its inner corner is at (2, 2).
        upper = -1.3 <= x <= 5.3 and -1.3 <= y <= 1.3
        lower = -1.3 <= x <= 1.3 and -1.3 <= y <= 5.3
        corner = 1.3 < x <= 2 and 1.3 < y <= 2 and np.hypot(2 - x, 2 - y) >= 0.7
        assert free == (upper or lower or corner), (x, y)


def test_values_of_a_corridor() -> None:
    """Without obstacles a point is max(|dx|, |dy|) / 0.2 steps away, as a step may be diagonal."""
    maze, grid = maze_of_text("#####", "#...#", "#####")
    goal = np.array([8.0, 0.0])
    values = point_maze_values(maze, goal, GAMMA)
    steps = np.abs(grid.points - goal).max(-1) / 0.2
    np.testing.assert_allclose(values[grid.free], GAMMA ** steps[grid.free], atol=1e-7)
    assert np.isnan(values[~grid.free]).all()
    assert value_at(grid, values, 0, 0) == pytest.approx(GAMMA**40)


def test_values_around_a_corner() -> None:
    """A step goes to any of the eight neighbours that is free; SciPy finds the number of steps."""
    maze, grid = maze_of_text("####", "#..#", "#.##", "####")
    goal = np.array([0.0, 4.0])
    values = point_maze_values(maze, goal, GAMMA)
    points = grid.points[grid.free]
    near = np.abs(points[:, None] - points[None]).max(-1) < 0.21
    target = int(np.argmin(np.linalg.norm(points - goal, axis=-1)))
    steps = shortest_path(near, unweighted=True, indices=target)
    np.testing.assert_allclose(values[grid.free], GAMMA**steps, atol=1e-7)
    assert value_at(grid, values, 4, 0) < GAMMA ** (4 / 0.2) - 1e-3  # longer than the straight line


def test_values_through_a_teleporter() -> None:
    """Three rooms: a teleporter in the first leads next to the goal in the second or into the third, a dead end."""
    near_goal, dead_end = [12.0, 0.0], [24.0, 0.0]
    rooms = ("#########", "#..#..#.#", "#########")
    maze, grid = maze_of_text(*rooms, entrances=[[4.0, 0.0]], exits=[near_goal, dead_end])
    goal = np.array([16.0, 0.0])
    values = point_maze_values(maze, goal, GAMMA)
    assert value_at(grid, values, *near_goal) == pytest.approx(GAMMA**20)
    assert value_at(grid, values, *dead_end) == 0
    # The 13th step from the origin, to x = 2.6, enters the teleporter; one exit in two leads to the goal.
    assert value_at(grid, values, 0, 0) == pytest.approx(GAMMA**13 * (GAMMA**20 + 0) / 2)
    # With the goal in the first room nothing leads to it from elsewhere, nor back out of the teleporter.
    back = point_maze_values(maze, np.array([0.0, 0.0]), GAMMA)
    assert value_at(grid, back, *goal) == 0
    assert value_at(grid, back, 0.4, 0) == pytest.approx(GAMMA**2)


def test_teleporter_is_used_only_where_it_is_better() -> None:
    """A teleporter between start and goal: it leads back to the start or right to the goal."""
    corridor = ("#######", "#.....#", "#######")
    maze, grid = maze_of_text(*corridor, entrances=[[8.0, 0.0]], exits=[[0.0, 0.0], [16.0, 0.0]])
    values = point_maze_values(maze, np.array([16.0, 0.0]), GAMMA)
    # There is no path around it: v = gamma^33 (v + 1) / 2 for 33 steps from x = 0 to 6.6, within 1.5 of the entrance.
    start = (GAMMA**33 / 2) / (1 - GAMMA**33 / 2)
    assert value_at(grid, values, 0, 0) == pytest.approx(start)
    # Behind it, 20 steps from the goal, going back 13 steps to the teleporter is better; 15 steps from it, it is not.
    assert value_at(grid, values, 12, 0) == pytest.approx(GAMMA**13 * (start + 1) / 2)
    assert GAMMA**13 * (start + 1) / 2 > GAMMA**20
    assert value_at(grid, values, 13, 0) == pytest.approx(GAMMA**15)


# --- several runs in one table ---


def rows_of(method: str, successes: dict[tuple[int, int, str], int], episodes: int = 4) -> list[dict]:
    """Rows of `eval.csv` by (seed, step, goal)."""
    return [
        {
            "algorithm": method,
            "task": "t",
            "seed": seed,
            "step": step,
            "goal": goal,
            "episodes": episodes,
            "successes": won,
        }
        for (seed, step, goal), won in successes.items()
    ]


def test_comparison_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    first = rows_of("td-n", {(0, 5, "task1"): 4, (0, 5, "task2"): 2, (3, 5, "task1"): 0, (3, 5, "task2"): 2})
    second = rows_of("bc", {(0, 5, "task1"): 1, (0, 5, "task2"): 0, (0, 1000, "task1"): 3, (0, 1000, "task2"): 0})
    steps = {5: 4, 800_000: 1, 1_000_000: 3}  # successes for the first goal, none for the second
    third = rows_of("iql", {(0, step, f"task{k}"): won * (k == 1) for step, won in steps.items() for k in (1, 2)})
    console.print_table(comparison("t", {"a": first, "b": second, "c": third}))
    lines = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    # Seeds of 75 and 25 %, so the deviation (n - 1) is sqrt(2 * 25^2 / 1) = 35.4; one seed has none. Steps of the
    # protocol are averaged; without any, the last one counts.
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["TD-n", "5", "2", "50", "50", "50.0 ± 35.4"],
        ["BC", "1,000", "1", "75", "0", "37.5"],
        ["IQL", "800,000, 1,000,000", "1", "50", "0", "25.0"],
    ]


def test_comparison_names_runs_that_share_a_method(capsys: pytest.CaptureFixture[str]) -> None:
    runs = {name: rows_of("bc", {(0, 5, "task1"): won}) for name, won in (("one", 1), ("two", 4))}
    console.print_table(comparison("t", runs))
    lines = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["BC", "one", "5", "1", "25", "25.0"],
        ["BC", "two", "5", "1", "100", "100.0"],
    ]


def test_missing_run_is_reported_before_the_first_is_evaluated(
    gtrl_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gtrl.evaluation.evaluate.evaluate", lambda *_, **__: pytest.fail("evaluated"))
    assert cli.main(["evaluate", str(gtrl_run.path), str(tmp_path / "none")]) == 2
    assert "is not a run directory" in capsys.readouterr().err


def test_evaluate_without_arguments_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate"]) == 2
    assert "nothing to evaluate" in capsys.readouterr().err

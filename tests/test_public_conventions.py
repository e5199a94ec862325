"""The losses against the conventions of public code, in NumPy written from their formulas, with every switch.

`tests/test_objectives.py` and `tests/test_baselines.py` compare losses and gradients term by term with the paper and
the methods' formulas. This file states what the public implementations compute (OGBench; the TRL repository; for GTRL
the authors' earlier code), as whole arrays, and holds the defaults and the presets equal to it.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_baselines import distance, inner, own
from test_objectives import GAMMA, HIDDEN, KEY, ORACLE, ROWS, in_float64, logits, network, noise, random_batch, sigmoid

from gtrl.algorithms import make
from gtrl.algorithms import objectives as o
from gtrl.data.dataset import make_dataset
from gtrl.errors import ConfigError
from gtrl.io import mlp
from gtrl.nn import speed
from gtrl.nn.fused import fused
from gtrl.nn.networks import Actor, Critic, FlowActor
from gtrl.runs.policy import load_policy, save_policy
from gtrl.runs.run import Run
from gtrl.sweeps.plan import PRESETS
from gtrl.sweeps.prepare import check_sweep
from gtrl.tasks import TASKS, find_task
from gtrl.tasks.conventions import AUTHORS, CONVENTIONS
from gtrl.training.config import Training, configure
from gtrl.training.resume import changes

# --- what public code computes: (ensemble, rows) or (rows,) at a time ---


def bce(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Cross entropy of logits x against targets y."""
    return np.logaddexp(0, x) - x * y


def actor(nets: Any, b: Any) -> np.ndarray:
    return network(nets.layers, np.concatenate([b.observation, b.actor_goal], -1))


def cloning(mean: np.ndarray, b: Any) -> np.ndarray:
    return ((mean - b.action) ** 2).sum(-1) / 2


def ddpg_bc(m: Any, nets: Any, b: Any, score: Any) -> float:
    mean = actor(nets.actor, b)
    q = score(np.clip(mean, -1, 1)).min(0)
    return -q.mean() / (np.abs(q).mean() + 1e-6) + m.alpha * cloning(mean, b).mean()


def goal_policy(m: Any, nets: Any, b: Any, critic: Any) -> float:
    """DDPG+BC with the logit, or the value, of a critic of the task's goal."""
    read = sigmoid if getattr(m, "actor_reads", "logit") == "value" else np.asarray
    return ddpg_bc(m, nets, b, lambda a: read(logits(critic, b.observation, a, b.actor_goal)))


def bc(_m: Any, nets: Any, _t: Any, b: Any) -> dict[str, Any]:
    return {"actor": cloning(actor(nets, b), b).mean()}


def fbc(_m: Any, nets: Any, _t: Any, b: Any) -> dict[str, Any]:
    keys = jax.random.split(KEY)
    x_0, t = in_float64((jax.random.normal(keys[0], b.action.shape), jax.random.uniform(keys[1], (ROWS, 1))))
    x_t = x_0 + t * (b.action - x_0)
    velocity = network(nets.layers, np.concatenate([b.observation, b.actor_goal, x_t, t], -1))
    return {"actor": ((velocity - (b.action - x_0)) ** 2).mean()}


def ivl(m: Any, nets: Any, target: Any, b: Any) -> dict[str, Any]:
    """The public code sums the losses of the two heads; here they are averaged, a factor that Adam does not see."""
    mask, reward = 1.0 - b.goal_is_state, -(1.0 - b.goal_is_state)
    v_next, v_bar = (
        logits(target, b.next_observation, b.value_goal_oracle),
        logits(target, b.observation, b.value_goal_oracle),
    )
    v = logits(nets.v, b.observation, b.value_goal_oracle)
    advantage = reward + GAMMA * mask * v_next.min(0) - v_bar.mean(0)
    side = np.where(advantage >= 0, m.kappa, 1 - m.kappa)
    public = sum((side * (reward + GAMMA * mask * v_next[e] - v[e]) ** 2).mean() for e in range(2))
    gain = (logits(nets.v, b.next_observation, b.actor_goal) - logits(nets.v, b.observation, b.actor_goal)).mean(0)
    weight = np.minimum(np.exp(m.alpha * gain), 100)
    return {"value": public / 2, "actor": (weight * cloning(actor(nets.actor, b), b)).mean()}


def iql(m: Any, nets: Any, target: Any, b: Any) -> dict[str, Any]:
    """The public code sums the losses of the two critics; here they are averaged."""
    s, a, g = b.observation, b.action, b.value_goal_oracle
    mask, reward = 1.0 - b.goal_is_state, -(1.0 - b.goal_is_state)
    one = lambda x: network(nets.v.layers, np.concatenate([x, g], -1), 0)[:, 0]  # noqa: E731
    difference = logits(target, s, a, g).min(0) - one(s)
    value = (np.where(difference >= 0, m.kappa, 1 - m.kappa) * difference**2).mean()
    y, q = reward + GAMMA * mask * one(b.next_observation), logits(nets.critic, s, a, g)
    public = ((q[0] - y) ** 2 + (q[1] - y) ** 2).mean()
    return {"value": value, "critic": public / 2, "actor": goal_policy(m, nets, b, nets.critic)}


def crl(m: Any, nets: Any, _t: Any, b: Any) -> dict[str, Any]:
    scores = inner(nets.critic, b.observation, b.action, b.value_goal_oracle)
    policy = ddpg_bc(m, nets, b, lambda a: own(inner(nets.critic, b.observation, a, b.actor_goal)))
    return {"critic": bce(scores, np.eye(ROWS)).mean(), "actor": policy}


def qrl(m: Any, nets: Any, _t: Any, b: Any) -> dict[str, Any]:
    model = nets.model
    d = lambda u, v: distance(model.quasimetric, u, v)  # noqa: E731
    phi, following, goal = (
        network(model.quasimetric.phi.layers, x) for x in (b.observation, b.next_observation, b.value_goal)
    )
    moved = lambda a: phi + network(model.dynamics.layers, np.concatenate([phi, a], -1))  # noqa: E731
    head = lambda u, g: logits(model.head, u, g).mean(0)  # noqa: E731  # two networks, averaged
    excess, predicted = (np.maximum(d(phi, following) - 1, 0) ** 2).mean(), moved(b.action)
    return {
        "value": (100 * np.logaddexp(0, 5 - d(phi, goal) / 100)).mean() + np.exp(nets.dual) * excess,
        "dual": np.exp(nets.dual) * (m.slack - excess),
        "dynamics": (d(predicted, following) + d(following, predicted)).mean() / 2,
        "distill": ((head(phi, b.value_goal_oracle) - d(phi, goal)) ** 2).mean(),
        "actor": ddpg_bc(m, nets, b, lambda a: -head(moved(a), b.actor_goal)[None]),
    }


def with_base_cases(q: np.ndarray, same: np.ndarray, following: np.ndarray) -> np.ndarray:
    return np.where(same, 1, np.where(following, GAMMA, q))


def composition(target: Any, b: Any) -> np.ndarray:
    first = sigmoid(logits(target, b.observation, b.action, b.subgoal))
    second = sigmoid(logits(target, b.subgoal, b.subgoal_action, b.value_goal))
    return with_base_cases(first, b.subgoal_is_state, b.subgoal_is_next) * with_base_cases(
        second, b.goal_is_subgoal, b.goal_is_after_subgoal
    )


def distance_weight(q: np.ndarray, lambda_: float) -> np.ndarray:
    return (1 + np.log(q) / np.log(GAMMA)) ** -lambda_


def fitted(m: Any, nets: Any, b: Any, weight: np.ndarray, y: np.ndarray, kappa: Any) -> dict[str, Any]:
    """The weighted expectile loss of a critic of whole states, its distillation, and the policy."""
    x = logits(nets.critic, b.observation, b.action, b.value_goal)
    side = np.where(sigmoid(x) > y, 1 - kappa, kappa)
    oracle = logits(nets.oracle_critic, b.observation, b.action, b.value_goal_oracle)
    policy = goal_policy(m, nets, b, nets.oracle_critic)
    return {"critic": (weight * side * bce(x, y)).mean(), "distill": bce(oracle, sigmoid(x)).mean(), "actor": policy}


def trl(m: Any, nets: Any, target: Any, b: Any) -> dict[str, Any]:
    y = composition(target, b)
    read = y if m.rho_reads == "target" else sigmoid(logits(target, b.observation, b.action, b.value_goal))
    return fitted(m, nets, b, distance_weight(read, m.lambda_), y, m.kappa)


def gtrl(m: Any, nets: Any, target: Any, b: Any) -> dict[str, Any]:
    """The authors' earlier code; each switch turns one line into what the paper's text says."""
    on_trajectory = b.decomposable
    q = sigmoid(logits(target, b.observation, b.action, b.value_goal))
    backup = GAMMA * sigmoid(logits(target, b.next_observation, b.next_action, b.value_goal))
    y_td = with_base_cases(backup, b.goal_is_state, b.goal_is_next)
    y = np.where(on_trajectory, np.maximum(composition(target, b), y_td), y_td)
    h = q / (y_td if m.hindsight_divisor == "target" else np.maximum(backup, 1e-6))
    h = np.clip(h, 1 / (1 + m.hindsight_clip), 1 + m.hindsight_clip)
    h = np.where(on_trajectory, h / h[:, on_trajectory].mean(-1, keepdims=True), 1)
    weight = h * distance_weight(q if m.rho_reads == "critic" else y, m.lambda_)
    if not m.bootstrap_from_last:
        reached = b.goal_is_state | b.goal_is_next
        weight = weight * ~(b.next_is_last & ~on_trajectory & ~reached)
    return fitted(m, nets, b, weight, y, np.where(on_trajectory, m.kappa, m.kappa_one_step))


# --- each method as its source has it, then with its switches ---

SMALL: dict[str, Any] = {"gamma": GAMMA, "hidden": HIDDEN}
COMPOSING: dict[str, Any] = {**SMALL, "lambda_": 0.7, "alpha": 0.3}
CASES: dict[str, tuple[Any, Any]] = {
    "bc": (make("bc", **SMALL), bc),
    "bc, layer norm": (make("bc", **SMALL, actor_layer_norm=True), bc),
    "fbc": (make("fbc", **SMALL), fbc),
    "fbc, no layer norm": (make("fbc", **SMALL, actor_layer_norm=False), fbc),
    "ivl": (make("ivl", **SMALL, alpha=2.0), ivl),
    "ivl, layer norm": (make("ivl", **SMALL, alpha=2.0, actor_layer_norm=True), ivl),
    "iql": (make("iql", **SMALL), iql),
    "iql, no layer norm": (make("iql", **SMALL, actor_layer_norm=False), iql),
    "crl": (make("crl", **SMALL, latent=8), crl),
    "crl, no layer norm": (make("crl", **SMALL, latent=8, actor_layer_norm=False), crl),
    "qrl": (make("qrl", **SMALL, latent=8, component=4, alpha=0.3), qrl),
    "qrl, layer norm": (make("qrl", **SMALL, latent=8, component=4, alpha=0.3, actor_layer_norm=True), qrl),
    "trl": (make("trl", **COMPOSING), trl),
    "trl, paper": (make("trl", **COMPOSING, rho_reads="critic"), trl),
    "trl, value, no layer norm": (make("trl", **COMPOSING, actor_reads="value", actor_layer_norm=False), trl),
    "gtrl, authors": (make("gtrl", **COMPOSING, preset="authors"), gtrl),
    "gtrl, paper": (make("gtrl", **COMPOSING), gtrl),
    **{each.name: (make("gtrl", **COMPOSING, **each.fields), gtrl) for each in CONVENTIONS},
}


def inputs(method: Any) -> tuple[Any, Any, Any]:
    nets = noise(11, jax.eval_shape(lambda: method.init(KEY, ORACLE)), 0.6)
    averaged = method.targets(nets)
    target = jax.tree.map(np.add, averaged, noise(12, averaged, 0.2))
    nets, target = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (nets, target))
    return nets, target, random_batch(11)


# Each program runs once or twice: the time is its compilation.
compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
loss_of = compiled(lambda method, *arguments: method.loss(*arguments), static_argnums=0)
sample = compiled(lambda method, key, data, size: method.sample(key, data, size), static_argnums=(0, 3))


@pytest.mark.parametrize("case", CASES)
def test_loss_is_that_of_public_code(case):
    method, formula = CASES[case]
    nets, target, batch = inputs(method)
    expected = formula(method, *in_float64((nets, target, batch)))
    loss, metrics = loss_of(method, nets, target, batch, KEY)
    for name, number in expected.items():
        np.testing.assert_allclose(metrics[f"{name}_loss"], number, rtol=2e-4, err_msg=name)
    np.testing.assert_allclose(loss, sum(expected.values()), rtol=2e-4)
    assert {name for name in metrics if name.endswith("_loss")} == {f"{name}_loss" for name in expected}


def test_each_switch_of_the_loss_changes_it():
    of = lambda case: float(loss_of(CASES[case][0], *inputs(CASES[case][0]), KEY)[0])  # noqa: E731
    paper = of("gtrl, paper")
    for case in ("gtrl-rho-target", "gtrl-hindsight-next", "gtrl-no-last-bootstrap", "gtrl, authors"):
        assert abs(of(case) - paper) > 1e-3, case
    for case in ("gtrl-goals-70-30", "gtrl-target-previous", "gtrl-no-last-goals"):  # of the draw and the average
        assert of(case) == paper, case
    assert abs(of("trl") - of("trl, paper")) > 1e-3


def test_bootstrap_weight_by_hand():
    flags = {"goal_is_state": [1, 0, 0, 0, 0], "goal_is_next": [0, 1, 0, 0, 0]}
    batch = random_batch(0, rows=5)._replace(**{name: jnp.array(each, bool) for name, each in flags.items()})
    weight = o.bootstrap_weight(batch, jnp.array([False, False, False, True, False]))
    np.testing.assert_array_equal(weight, [1, 1, 0, 1, 0])
    np.testing.assert_allclose(o.next_divisor(jnp.array([0.5, 1e-9]), 0.9), [0.45, 1e-6], rtol=1e-6)


# --- draws ---

LENGTHS = (2, 3, 7, 30)
LAST = np.cumsum(LENGTHS) - 1


def numbered() -> Any:
    """Every row's observation is its own number."""
    rows = np.arange(sum(LENGTHS), dtype=np.float32)[:, None]
    return make_dataset(rows, np.zeros((len(rows), 1)), np.isin(rows[:, 0], LAST))


def test_random_goals_and_last_rows():
    data = numbered()
    for allowed in (True, False):
        goals = {"value_goals": (0.0, 0.0, 1.0), "actor_goals": (0.0, 0.0, 1.0), "random_last_rows": allowed}
        batch = sample(make("gtrl", **goals), KEY, data, 4000)
        for drawn in (batch.value_goal, batch.actor_goal):
            rows, counts = np.unique(np.asarray(drawn), return_counts=True)
            assert set(rows) == set(range(sum(LENGTHS))) - (set() if allowed else set(LAST))
            np.testing.assert_allclose(counts / 4000, 1 / len(rows), atol=0.012)  # four standard deviations
        following = np.asarray(batch.observation[:, 0]) + 1
        np.testing.assert_array_equal(batch.next_is_last, np.isin(following, LAST))
    # Goals ahead on the trajectory may be its last row in any case.
    ahead = sample(make("gtrl", value_goals=(0.0, 1.0, 0.0), random_last_rows=False), KEY, data, 500)
    assert np.isin(np.asarray(ahead.value_goal), LAST).any()


def test_fbc_draws_goals_of_its_own_trajectory_with_discount_999():
    """P(offset > t) = 0.999^t on a trajectory of 3,000 steps, from its first row."""
    for name, task in TASKS.items():
        method = make("fbc", task)
        assert (method.gamma, method.actor_goals, method.actor_geometric) == (0.999, (0, 1, 0), True), name
    rows = np.arange(3001, dtype=np.float32)[:, None]
    data = make_dataset(rows, np.zeros((3001, 1)), rows[:, 0] == 3000)
    batch = sample(make("fbc", "humanoidmaze-large-stitch"), KEY, data._replace(transitions=jnp.zeros(1, int)), 4000)
    offset = np.asarray(batch.actor_goal - batch.observation)[:, 0]
    for t in (10, 200, 700, 2000):
        np.testing.assert_allclose((offset > t).mean(), 0.999**t, atol=0.03)
    assert offset.max() == 3000


@pytest.mark.parametrize("method", ["ivl", "iql", "qrl", "crl"])
def test_ogbench_methods_mix_goals_on_every_stitch_dataset(method):
    mixed = {name for name, task in TASKS.items() if make(method, task).actor_goals == (0, 0.5, 0.5)}
    assert mixed == {name for name in TASKS if name.endswith("stitch")}
    assert len(mixed) == 7
    assert {name for name, task in TASKS.items() if make("gtrl", task).actor_goals == (0, 0.5, 0.5)} == {
        name for name in mixed if "teleport" not in name
    }


# --- networks ---


def test_flow_starts_with_an_unscaled_last_layer():
    flow = FlowActor.init(KEY, ORACLE, (200, 400), 10)
    limit = np.sqrt(6 / (400 + ORACLE.action_dim))
    assert 0.97 * limit < np.abs(flow.layers[-1].weight).max() <= limit
    for layer_norm in (True, False):
        layers = FlowActor.init(KEY, ORACLE, (200, 400), 10, layer_norm).layers
        assert [layer.scale is not None for layer in layers] == [layer_norm, layer_norm, False]


@pytest.mark.parametrize("layer_norm", [True, False])
def test_policy_file(layer_norm, tmp_path: Path):
    """The NumPy policy of a file, with and without layer norm."""
    actor = noise(3, jax.eval_shape(lambda: Actor.init(KEY, ORACLE, (17, 9), layer_norm)), 0.5)
    header = {"observation_dim": 6, "action_dim": 3, "goal_dim": 2}
    save_policy(tmp_path / "policy.npz", actor, header)
    rng = np.random.default_rng(0)
    s, g = rng.normal(size=(20, 6)), rng.normal(size=(20, 2))
    expected = np.clip(network(actor.layers, np.concatenate([s, g], -1)), -1, 1)
    np.testing.assert_allclose(load_policy(tmp_path / "policy.npz")(s, g), expected, rtol=1e-4, atol=1e-5)
    assert any(name.startswith("scale") for name in np.load(tmp_path / "policy.npz")) == layer_norm


@pytest.mark.parametrize("fast", [("kernels",), ("kernels", "together"), ("apart", "kernels"), ("together",)], ids=str)
def test_fused_passes_without_layer_norm(fast):
    """A critic with layer norm beside actors without; widths that are no multiple of a vector's."""
    batch = random_batch(4)
    critic = Critic.init(KEY, 6 + 3 + 2, HIDDEN)
    plain = [Actor.init(jax.random.key(k), ORACLE, HIDDEN, layer_norm=False) for k in (1, 2)]
    s, a, g = batch.observation, batch.action, batch.actor_goal
    both = lambda: (fused((critic, s, a, g), *((p, s, g) for p in plain)), fused(*((p, s, g) for p in plain)))  # noqa: E731
    with speed.using(fast):
        found, alone = compiled(both)()
    np.testing.assert_allclose(found[0], logits(critic, s, a, g), rtol=1e-4, atol=1e-5)
    for each, first, second in zip(plain, found[1:], alone, strict=True):
        expected = mlp.forward(each.layers, jnp.concatenate([s, g], -1), jnp)
        np.testing.assert_allclose(expected, network(each.layers, np.concatenate([s, g], -1)), rtol=1e-4, atol=1e-5)
        for result in (first, second):
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


# --- the preset ---


def test_preset():
    by_hand = {
        "rho_reads": "target", "value_goals": (0.0, 0.7, 0.3), "target_from": "previous", "hindsight_divisor": "next",
        "bootstrap_from_last": False, "random_last_rows": False,
    }  # fmt: skip
    assert by_hand == AUTHORS
    task = find_task("pointmaze-large-stitch")
    assert make("gtrl", task, preset="authors") == replace(make("gtrl", task), **by_hand)
    overridden = make("gtrl", task, preset="authors", rho_reads="critic")
    assert overridden == replace(make("gtrl", task), **{**by_hand, "rho_reads": "critic"})
    for start in ("gtrl", make("gtrl", task)):
        found, _ = configure(start, None, task, ORACLE, {"preset": "authors", "value_goals": (0.0, 0.6, 0.4)})
        assert found == replace(make("gtrl", task), **{**by_hand, "value_goals": (0.0, 0.6, 0.4)})
    with pytest.raises(ConfigError, match=r"^GTRL has no preset 'author': its presets are authors, waypoints.$"):
        make("gtrl", preset="author")
    with pytest.raises(ConfigError, match=r"^TRL has no preset 'authors': it has no presets.$"):
        make("trl", preset="authors")


def test_sweep_of_the_conventions(tmp_path: Path):
    """GTRL, each of the six changes by itself, and all of them, on two tasks."""
    runs = check_sweep(PRESETS["conventions"], tmp_path)
    assert len(runs) == 16
    assert {run.task.name for run in runs} == {"pointmaze-large-stitch", "pointmaze-teleport-stitch"}
    for run in runs:
        assert (run.training.steps, run.plan.seeds, run.plan.episodes) == (300_000, (0, 1), 50)
        assert run.training.checkpoint_steps == [100_000, 200_000, 300_000]
        default = make("gtrl", run.task)
        changed = {name for name in AUTHORS if getattr(run.algorithm, name) != getattr(default, name)}
        expected = {"gtrl": 0, "gtrl-authors": 6}.get(run.plan.variant.name, 1)
        assert len(changed) == expected
        assert run.algorithm == replace(default, **{name: AUTHORS[name] for name in changed})


def test_config_of_an_older_run(tmp_path: Path):
    """`target_from` was a field of training: it is read as the method's, with what the other new fields did then."""
    old = {
        "training": {"steps": 5, "target_from": "previous"},
        "algorithm": {"name": "bc", "gamma": 0.99},
        "seeds": [0],
    }
    (tmp_path / "config.json").write_text(json.dumps(old))
    config = Run(tmp_path).config
    assert config["training"] == {"steps": 5}
    assert config["algorithm"] == {
        "name": "bc", "gamma": 0.99, "target_from": "previous", "actor_layer_norm": True, "random_last_rows": True,
    }  # fmt: skip
    assert not hasattr(Training(), "target_from")


def test_older_run_can_be_resumed(gtrl_run: Run, tmp_path: Path):
    """Its config, without the fields that it did not have, is that of the same run today."""
    now = gtrl_run.config
    old = json.loads(json.dumps(now))
    for name in ("actor_layer_norm", "random_last_rows", "hindsight_divisor", "bootstrap_from_last"):
        del old["algorithm"][name]
    old["training"]["target_from"] = old["algorithm"].pop("target_from")
    (tmp_path / "config.json").write_text(json.dumps(old))
    assert changes(Run(tmp_path).config, now) == {}
    other = now | {"algorithm": now["algorithm"] | {"target_from": "previous"}}
    assert changes(Run(tmp_path).config, other) == {"algorithm.target_from": ["updated", "previous"]}

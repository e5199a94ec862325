"""The ten baselines' losses, gradients and values against NumPy written from their formulas, in float64.

Each method has one reference below. It takes the networks twice: `n` is trained, and `held` is the same networks
without gradients. Moving `n` alone gives finite differences of exactly the terms that train each network.
"""

import math
from functools import cache, partial
from itertools import pairwise
from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from test_goals import LENGTHS, MIXED, numbered
from test_objectives import (
    GAMMA,
    HIDDEN,
    KEY,
    ORACLE,
    ROWS,
    WHOLE,
    cross_entropy,
    factor,
    in_float64,
    logits,
    network,
    noise,
    random_batch,
    sigmoid,
    slope,
)

from gtrl.algorithms import ALGORITHMS, Algorithm, make
from gtrl.algorithms import objectives as o
from gtrl.data.sampling import Batch
from gtrl.errors import ConfigError
from gtrl.io import mlp
from gtrl.nn.networks import ENSEMBLE, Quasimetric, interval_union

KAPPA = 0.9  # expectile of IQL and IVL
BOTH = [(e, r) for e in range(ENSEMBLE) for r in range(ROWS)]  # members and rows
Reference = tuple[dict[str, Any], dict[str, Any]]  # every number that is logged; branches that inputs have to reach


# --- the methods, one number at a time ---


def output(net: Any, *inputs: Any, member: int | None = None) -> np.ndarray:
    return network(net.layers, np.concatenate(inputs, -1), member)


def cloning(mean: np.ndarray, action: np.ndarray) -> list[float]:
    return [sum((action[r] - mean[r]) ** 2) / 2 for r in range(ROWS)]


def policy(m: Any, n: Any, held: Any, b: Any, score: Any) -> Reference:
    """DDPG+BC, to be minimised; `score` is a critic that is held, of an action. Its scale is held too."""
    mean, before = (output(nets.actor, b.observation, b.actor_goal) for nets in (n, held))
    scores, scale = score(np.clip(mean, -1, 1)), 1e-6
    for column in score(np.clip(before, -1, 1)).T:
        scale += abs(min(column)) / ROWS
    q, bc = sum(min(column) for column in scores.T) / ROWS, sum(cloning(mean, b.action)) / ROWS
    branches = {"clipped": np.abs(mean) > 1} | ({"smaller": scores[0] < scores[1]} if len(scores) > 1 else {})
    return {"actor_loss": -q / scale + m.alpha * bc, "actor_q": q, "actor_bc": bc}, branches


def td(m: Any, n: Any, held: Any, t: Any, b: Any) -> Reference:
    """TD and TD-n, and MC: a critic of the task's goal fitted by binary cross entropy."""
    g, y = b.value_goal_oracle, np.zeros((ENSEMBLE, ROWS))
    predicted = logits(n.critic, b.observation, b.action, g)
    for e, r in BOTH:
        if m.name == "mc":
            y[e, r] = GAMMA ** b.goal_offset[r]
        elif m.n == 1:  # equation 6
            q = sigmoid(output(t, b.next_observation[r], b.next_action[r], g[r], member=e))[0]
            y[e, r] = factor(GAMMA * q, b.goal_is_state[r], b.goal_is_next[r])
        else:
            q = sigmoid(output(t, b.ahead_observation[r], b.ahead_action[r], g[r], member=e))[0]
            y[e, r] = GAMMA ** b.arrival[r] if b.arrives[r] else GAMMA ** b.ahead_steps[r] * q
    loss = 0.0
    for at in BOTH:
        side = 1.0 if m.name == "mc" else slope(predicted[at], y[at], m.kappa)
        loss += side * cross_entropy(predicted[at], y[at]) / len(BOTH)
    numbers, branches = policy(m, n, held, b, lambda a: logits(held.critic, b.observation, a, b.actor_goal))
    numbers |= {"critic_loss": loss, "q": sigmoid(predicted).mean()} | ({} if m.name == "mc" else {"y_td": y.mean()})
    return numbers, branches | {"over": sigmoid(predicted) > y, "arrives": b.arrives, "state": b.goal_is_state}


def fbc(_m: Any, n: Any, _held: Any, _t: Any, b: Any) -> Reference:
    noise_key, time_key = jax.random.split(KEY)
    x_0, time = in_float64((jax.random.normal(noise_key, (ROWS, 3)), jax.random.uniform(time_key, (ROWS, 1))))
    velocity = output(n, b.observation, b.actor_goal, (1 - time) * x_0 + time * b.action, time)
    errors = [(velocity[r, k] - (b.action[r, k] - x_0[r, k])) ** 2 for r in range(ROWS) for k in range(3)]
    return {"actor_loss": sum(errors) / len(errors)}, {}


def countdown(v_next: float, at_goal: bool) -> float:
    """Reward -1 per step until the goal."""
    return 0.0 if at_goal else -1 + GAMMA * v_next


def ivl(m: Any, n: Any, held: Any, t: Any, b: Any) -> Reference:
    s, following, g, at_goal = b.observation, b.next_observation, b.value_goal_oracle, b.goal_is_state
    v, bar, bar_next, value = logits(n.v, s, g), logits(t, s, g), logits(t, following, g), 0.0
    up = [countdown(min(bar_next[:, r]), at_goal[r]) >= sum(bar[:, r]) / ENSEMBLE for r in range(ROWS)]
    for e, r in BOTH:
        side = m.kappa if up[r] else 1 - m.kappa
        value += side * (countdown(bar_next[e, r], at_goal[r]) - v[e, r]) ** 2 / len(BOTH)
    advantage = logits(held.v, following, b.actor_goal).mean(0) - logits(held.v, s, b.actor_goal).mean(0)
    weights = np.array([min(math.exp(m.alpha * advantage[r]), 100) for r in range(ROWS)])
    errors = np.array(cloning(output(n.actor, s, b.actor_goal), b.action))
    numbers = {"value_loss": value, "actor_loss": (weights * errors).mean()}
    numbers |= {"v": v.mean(), "awr_weight": weights.mean(), "actor_bc": errors.mean()}
    return numbers, {"up": up, "smaller": bar_next[0] < bar_next[1], "capped": weights == 100, "state": at_goal}


def iql(m: Any, n: Any, held: Any, t: Any, b: Any) -> Reference:
    s, a, g, value, critic = b.observation, b.action, b.value_goal_oracle, 0.0, 0.0
    q, bar = logits(n.critic, s, a, g), logits(t, s, a, g)
    v, v_next = output(n.v, s, g, member=0)[:, 0], output(held.v, b.next_observation, g, member=0)[:, 0]
    for r in range(ROWS):
        advantage = min(bar[:, r]) - v[r]
        value += (m.kappa if advantage > 0 else 1 - m.kappa) * advantage**2 / ROWS
    for e, r in BOTH:
        critic += (countdown(v_next[r], b.goal_is_state[r]) - q[e, r]) ** 2 / len(BOTH)
    numbers, branches = policy(m, n, held, b, lambda a: logits(held.critic, s, a, b.actor_goal))
    numbers |= {"value_loss": value, "critic_loss": critic, "q": q.mean(), "v": v.mean()}
    return numbers, branches | {"up": bar.min(0) > v, "smaller bar": bar[0] < bar[1], "state": b.goal_is_state}


def inner(critic: Any, s: np.ndarray, a: np.ndarray, g: np.ndarray) -> np.ndarray:
    """(ensemble, rows, goals): every row with every goal, phi . psi / sqrt(d)."""
    scores = np.zeros((ENSEMBLE, ROWS, ROWS))
    for e in range(ENSEMBLE):
        phi, psi = output(critic.phi, s, a, member=e), output(critic.psi, g, member=e)
        for i, j in np.ndindex(ROWS, ROWS):
            scores[e, i, j] = phi[i] @ psi[j] / math.sqrt(phi.shape[1])
    return scores


def own(scores: np.ndarray) -> np.ndarray:
    """Each row with its own goal."""
    return np.diagonal(scores, axis1=1, axis2=2)


def crl(m: Any, n: Any, held: Any, _t: Any, b: Any) -> Reference:
    scores, loss = inner(n.critic, b.observation, b.action, b.value_goal_oracle), 0.0
    for e, i, j in np.ndindex(scores.shape):
        loss += cross_entropy(float(scores[e, i, j]), 1.0 if i == j else 0.0) / scores.size
    found = np.mean([max(scores[e, r]) == scores[e, r, r] for e, r in BOTH])
    numbers, branches = policy(m, n, held, b, lambda a: own(inner(held.critic, b.observation, a, b.actor_goal)))
    return numbers | {"critic_loss": loss, "recognised": found}, branches


def union(lows: Any, highs: Any) -> float:
    """The length of the union of intervals: each piece between neighbouring ends counts if some interval covers it."""
    spans = list(zip(lows, highs, strict=True))
    marks = sorted({float(end) for span in spans for end in span})
    return sum(b - a for a, b in pairwise(marks) if any(low <= a and b <= high for low, high in spans))


def distance(quasimetric: Any, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    share, size, result = sigmoid(quasimetric.mixture), quasimetric.component, []
    for x, y in zip(u.tolist(), v.tolist(), strict=True):
        lengths = [union(x[k : k + size], y[k : k + size]) for k in range(0, len(x), size)]
        result.append(share * sum(lengths) / len(lengths) + (1 - share) * max(lengths))
    return np.array(result)


def head(model: Any, phi: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The distance to the task's goal: the average of two networks."""
    one, other = (output(model.head, phi, g, member=e)[:, 0] for e in range(2))
    return (one + other) / 2


def qrl(m: Any, n: Any, held: Any, _t: Any, b: Any) -> Reference:
    def measure(model: Any) -> tuple[Any, ...]:
        states = (b.observation, b.next_observation, b.value_goal)
        phi, following, goal = (output(model.quasimetric.phi, x) for x in states)
        to_goal, step = (distance(model.quasimetric, phi, x) for x in (goal, following))
        return phi, following, to_goal, step, sum(max(length - 1, 0) ** 2 for length in step) / ROWS

    def moved(model: Any, phi: np.ndarray, action: np.ndarray) -> np.ndarray:
        return phi + output(model.dynamics, phi, action)

    phi, following, to_goal, step, excess = measure(n.model)
    held_phi, _, held_to_goal, _, held_excess = measure(held.model)
    ways = (moved(n.model, phi, b.action), following)
    errors = head(n.model, held_phi, b.value_goal_oracle) - held_to_goal
    numbers, branches = policy(
        m, n, held, b, lambda a: -head(held.model, moved(held.model, held_phi, a), b.actor_goal)[None]
    )
    spread = sum(100 * np.logaddexp(0, 5 - length / 100) for length in to_goal) / ROWS
    both_ways = distance(n.model.quasimetric, *ways) + distance(n.model.quasimetric, *ways[::-1])
    numbers |= {
        "value_loss": spread + math.exp(held.dual) * excess,
        "dual_loss": math.exp(n.dual) * (m.slack - held_excess),
        "dynamics_loss": both_ways.mean() / 2,
        "distill_loss": (errors**2).mean(),
        "distance": to_goal.mean(),
        "step_length": step.mean(),
        "multiplier": math.exp(n.dual),
    }
    return numbers, branches | {"long step": step > 1}


def composing(m: Any, n: Any, held: Any, b: Any, composed: np.ndarray) -> Reference:
    """What TDP and COE share: base cases, the critic of whole states, the one distilled from it, the policy."""
    s, a, critic, distill, acting = b.observation, b.action, 0.0, 0.0, held.critic
    predicted, taught = (logits(nets.critic, s, a, b.value_goal) for nets in (n, held))
    y = [factor(composed[e, r], b.goal_is_state[r], b.goal_is_next[r]) for e, r in BOTH]
    for at, target in zip(BOTH, y, strict=True):
        critic += cross_entropy(predicted[at], target) / len(BOTH)
    if m.distill:
        acting, oracle = held.oracle_critic, logits(n.oracle_critic, s, a, b.value_goal_oracle)
        distill = np.mean([cross_entropy(oracle[at], sigmoid(taught[at])) for at in BOTH])
    numbers, branches = policy(m, n, held, b, lambda a: logits(acting, s, a, b.actor_goal))
    numbers |= {"critic_loss": critic, "distill_loss": distill, "q": sigmoid(predicted).mean(), "y_dc": np.mean(y)}
    return numbers, branches | {"state": b.goal_is_state, "next": b.goal_is_next}


def tdp(m: Any, n: Any, held: Any, t: Any, b: Any) -> Reference:
    products = np.zeros((m.candidates, ENSEMBLE, ROWS))
    for c, r in np.ndindex(m.candidates, ROWS):
        s, a, g = (x[r : r + 1] for x in (b.observation, b.action, b.value_goal))
        other = (r + 1 + c) % ROWS
        w, a_w = (x[other : other + 1] for x in (b.observation, b.action))
        products[c, :, r] = (sigmoid(logits(t, s, a, w)) * sigmoid(logits(t, w, a_w, g)))[:, 0]
    numbers, branches = composing(m, n, held, b, products.max(0))
    return numbers, branches | {f"candidate {c}": products.argmax(0) == c for c in range(m.candidates)}


def coe(m: Any, n: Any, held: Any, t: Any, b: Any) -> Reference:
    s, a, g, ascent, away = b.observation, b.action, b.value_goal, 0.0, 0.0

    def composed(generator: Any, critic: Any) -> tuple[np.ndarray, ...]:
        change, action = np.split(output(generator.network, s, a, g), [s.shape[1]], -1)
        w, a_w = (s + g) / 2 + change, np.tanh(action)
        return sigmoid(logits(critic, s, a, w)) * sigmoid(logits(critic, w, a_w, g)), w, a_w

    numbers, branches = composing(m, n, held, b, composed(held.generator, t)[0])
    product, w, a_w = composed(n.generator, held.critic)
    apart = np.add(cloning(w, b.subgoal), cloning(a_w, b.subgoal_action))
    for r in range(ROWS):
        ascent -= math.log(min(product[:, r])) / ROWS
        away += apart[r] / ROWS if b.decomposable[r] else 0.0
    numbers |= {"generator_loss": ascent + m.anchor * away, "proposal_distance": away}
    return numbers, branches | {"between": b.decomposable, "smaller product": product[0] < product[1]}


# --- inputs: no field at its default, no two alike, so that one that is not read is seen ---

FIELDS: dict[str, Any] = {"gamma": GAMMA, "hidden": HIDDEN}
ACTING: dict[str, Any] = {**FIELDS, "alpha": 0.35}
CASES: dict[str, tuple[Any, Any]] = {
    "fbc": (make("fbc", **FIELDS, flow_steps=7), fbc),
    "ivl": (make("ivl", **FIELDS, alpha=2.5, kappa=0.8), ivl),
    "iql": (make("iql", **ACTING, kappa=0.8), iql),
    "td": (make("td", **ACTING), td),
    "td, three steps": (make("td", **ACTING, n=3, kappa=0.8), td),
    "td-n": (make("td-n", **ACTING, n=9, kappa=0.65), td),
    "crl": (make("crl", **ACTING, latent=11), crl),
    "mc": (make("mc", **ACTING), td),
    "qrl": (make("qrl", **ACTING, latent=12, component=4, slack=0.03), qrl),
    "tdp": (make("tdp", **ACTING, candidates=5), tdp),
    "tdp, goals are states": (make("tdp", **ACTING, candidates=5, distill=False), tdp),
    "coe": (make("coe", **ACTING, anchor=0.45), coe),
    "coe, goals are states": (make("coe", **ACTING, anchor=0.45, distill=False), coe),
}
# Which networks learn from which loss; none from any other.
LEARNS: dict[str, dict[str, str]] = {
    "fbc": {"actor": "layers"},
    "ivl": {"value": "v", "actor": "actor"},
    "iql": {"value": "v", "critic": "critic", "actor": "actor"},
    **{name: {"critic": "critic", "actor": "actor"} for name in ("td", "td-n", "mc")},
    "crl": {"critic": "critic.phi critic.psi", "actor": "actor"},
    "qrl": {
        "value": "model.quasimetric.phi model.quasimetric.mixture",
        "dual": "dual",
        "dynamics": "model.quasimetric.phi model.quasimetric.mixture model.dynamics",
        "distill": "model.head",
        "actor": "actor",
    },
    "tdp": {"critic": "critic", "distill": "oracle_critic", "actor": "actor"},
    "coe": {"critic": "critic", "distill": "oracle_critic", "generator": "generator", "actor": "actor"},
}
assert set(LEARNS) == {method.name for method, _ in CASES.values()} == set(ALGORITHMS) - {"gtrl", "trl", "bc"}
# Cases whose code other cases run too.
VARIANTS = ("td, three steps", "coe, goals are states")
every_case = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.soak if case in VARIANTS else ()) for case in CASES]
)


def random_networks(method: Algorithm, spec: Any = ORACLE) -> tuple[Any, Any]:
    """Networks with noise in all places, and a target that differs from theirs."""
    nets = noise(5, jax.eval_shape(lambda: method.init(KEY, spec)), 0.6)
    averaged = method.targets(nets)
    target = jax.tree.map(np.add, averaged, noise(6, averaged, 0.2))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (nets, target))


def inputs(case: str) -> tuple[Any, Any, Batch]:
    method = CASES[case][0]
    spec = ORACLE if getattr(method, "distill", True) else WHOLE
    b = random_batch(5, spec)
    if case == "td":  # what looking one step ahead sees
        b = b._replace(arrives=b.goal_is_state | b.goal_is_next, arrival=1 - b.goal_is_state.astype(int))
        b = b._replace(ahead_observation=b.next_observation, ahead_action=b.next_action)
        b = b._replace(ahead_steps=jnp.ones(ROWS, int))
    if case == "qrl":  # some steps shorter than 1
        b = b._replace(next_observation=b.observation + 0.3 * b.next_observation)
    return *random_networks(method, spec), b


# Each program runs once or twice: the time is its compilation.
@partial(jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})
def evaluate(method: Algorithm, nets: Any, target: Any, batch: Batch) -> tuple[dict[str, Any], dict[str, Any]]:
    """The gradient of the loss and of each of its terms, and all numbers."""

    def terms(nets: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        loss, metrics = method.loss(nets, target, batch, KEY)
        numbers = {"loss": loss, **metrics}
        return {name: number for name, number in numbers.items() if name.endswith("loss")}, numbers

    return jax.jacrev(terms, has_aux=True)(nets)


@cache
def evaluated(case: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return evaluate(CASES[case][0], *inputs(case))


def expected_numbers(case: str, *arguments: Any) -> dict[str, Any]:
    numbers, _ = CASES[case][1](CASES[case][0], *arguments)
    return numbers | {"loss": sum(number for name, number in numbers.items() if name.endswith("_loss"))}


# --- losses and gradients ---


@every_case
def test_numbers(case):
    """The loss, each of its terms and everything else that is logged."""
    nets, target, batch = in_float64(inputs(case))
    expected, numbers = expected_numbers(case, nets, nets, target, batch), evaluated(case)[1]
    assert set(numbers) == set(expected)
    for name, number in expected.items():
        assert numbers[name].shape == ()
        np.testing.assert_allclose(numbers[name], number, rtol=1e-4, err_msg=name)


@every_case
def test_gradients(case):
    """Each network gets the gradients of its own terms only: finite differences, by network and by term."""
    nets, target, batch = in_float64(inputs(case))
    learns = {f"{term}_loss": parts.split() for term, parts in LEARNS[CASES[case][0].name].items()}
    for part in {part for parts in learns.values() for part in parts}:
        of = attrgetter(part)
        if of(nets) is None:  # no oracle critic
            continue
        way, ends = noise(7, of(nets), 1.0), []
        for step in (1e-5, -1e-5):
            moved = jax.tree.map(lambda leaf, to, step=step: leaf + step * to, of(nets), way)
            ends.append(expected_numbers(case, eqx.tree_at(of, nets, moved), nets, target, batch))
        for term, gradient in in_float64(evaluated(case)[0]).items():
            pairs = list(zip(jax.tree.leaves(of(gradient)), jax.tree.leaves(way), strict=True))
            along, size = sum((grad * to).sum() for grad, to in pairs), sum((grad**2).sum() for grad, _ in pairs) ** 0.5
            expected = (ends[0][term] - ends[1][term]) / 2e-5
            np.testing.assert_allclose(along, expected, rtol=1e-3, atol=1e-4 * size, err_msg=f"{part}, {term}")
            assert (size > 0) == (term == "loss" or part in learns[term]), f"{part}, {term}"


@every_case
def test_inputs_reach_every_branch(case):
    method, formula = CASES[case]
    nets, target, batch = in_float64(inputs(case))
    for name, taken in formula(method, nets, nets, target, batch)[1].items():
        assert np.any(taken), name
        assert not np.all(taken), name
    # And every network was moved.
    parts = {part for some in LEARNS[method.name].values() for part in some.split()}
    assert sum(len(jax.tree.leaves(attrgetter(part)(nets))) for part in parts) == len(jax.tree.leaves(nets))


def test_qrl_multiplier_grows_while_steps_are_too_long():
    """The gradient by its log is multiplier * (slack - excess): for steps of length 0, and for the batch's own."""
    nets, target, batch = inputs("qrl")
    slack = CASES["qrl"][0].slack
    still = evaluate(CASES["qrl"][0], nets, target, batch._replace(next_observation=batch.observation))[0]
    np.testing.assert_allclose(still["loss"].dual, math.exp(nets.dual) * slack, rtol=1e-5)
    assert evaluated("qrl")[0]["loss"].dual < 0
    np.testing.assert_allclose(evaluated("qrl")[0]["loss"].dual, evaluated("qrl")[1]["dual_loss"], rtol=1e-5)


def test_awr_weights_are_capped_at_huge_advantages():
    """Weights stop at 100 where exp overflows, and the gradient stays finite."""
    nets, target, batch = inputs("ivl")
    far = eqx.tree_at(lambda n: n.v.layers[-1].weight, nets, 1e5 * nets.v.layers[-1].weight)
    n, b = in_float64((far, batch))
    before, after = (logits(n.v, s, b.actor_goal).mean(0) for s in (b.observation, b.next_observation))
    assert (np.abs(after - before) > 100).all()  # exp is 0 or inf in float32
    gradients, numbers = evaluate(CASES["ivl"][0], far, target, batch)
    np.testing.assert_allclose(numbers["awr_weight"], 100 * (after > before).mean(), rtol=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))


# --- values and actions ---


@pytest.mark.parametrize("case", ["ivl", "iql", "crl", "qrl", "mc", "coe"])
def test_value(case):
    nets, _, batch = inputs(case)
    if case == "qrl":  # predicted distances on either side of 0
        middle = jnp.median(nets.model.to_goal(nets.model.quasimetric.phi(batch.observation), batch.actor_goal))
        nets = eqx.tree_at(lambda n: n.model.head.layers[-1].bias, nets, nets.model.head.layers[-1].bias - middle)
    value = CASES[case][0].value(nets, batch.observation, batch.actor_goal)
    n, b = in_float64((nets, batch))
    s, g = b.observation, b.actor_goal
    action = np.clip(output(n.actor, s, g), -1, 1)
    if case == "ivl":
        expected = 1 + (1 - GAMMA) * logits(n.v, s, g).mean(0)
    elif case == "iql":
        expected = 1 + (1 - GAMMA) * logits(n.critic, s, action, g).min(0)
    elif case == "crl":
        expected = sigmoid(own(inner(n.critic, s, action, g)).min(0))
    elif case == "qrl":
        length = head(n.model, output(n.model.quasimetric.phi, s), g)
        assert set(np.sign(length)) == {-1, 1}
        expected = [GAMMA ** max(steps, 0) for steps in length]
    else:
        expected = sigmoid(logits(n.oracle_critic or n.critic, s, action, g).min(0))
    np.testing.assert_allclose(value, expected, rtol=1e-4)


@pytest.mark.parametrize("name", ["bc", "fbc"])
def test_cloning_methods_have_no_value(name):
    method, batch = make(name, **FIELDS), random_batch(0)
    assert method.value(random_networks(method)[0], batch.observation, batch.actor_goal) is None


def euler(velocity: Any, x: np.ndarray, steps: int) -> np.ndarray:
    for k in range(steps):
        x = x + velocity(x, k / steps) / steps
    return x


def test_flow_acts():
    method, (nets, _, batch) = CASES["fbc"][0], inputs("fbc")
    keys = map(jax.random.key, (1, 1, 2))
    first, again, other = (method.act(nets, batch.observation, batch.actor_goal, key) for key in keys)
    np.testing.assert_array_equal(first, again)
    assert (np.abs(first - other) > 1e-3).any(1).mean() > 0.9  # the others lie at the same limits
    n, b, x_0 = in_float64((nets, batch, jax.random.normal(jax.random.key(1), (ROWS, 3))))
    flown = euler(lambda x, t: output(n, b.observation, b.actor_goal, x, np.full((ROWS, 1), t)), x_0, method.flow_steps)
    assert set(np.trunc(np.clip(flown, -1, 1)).ravel()) == {-1, 0, 1}
    np.testing.assert_allclose(first, np.clip(flown, -1, 1), rtol=1e-4, atol=1e-5)


# --- flow ---


def linear(*blocks: Any) -> tuple[mlp.Layer, ...]:
    """A network without hidden layers: the rows of its weight for each input, and its bias."""
    *weights, bias = (np.asarray(block, np.float32) for block in blocks)
    return (mlp.Layer(np.concatenate(weights), bias),)


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_linear_flow(xp, steps):
    """Velocity x A + z C + c t + b."""
    rng = np.random.default_rng(steps)
    shapes = ((2, 3), (3, 3), (1, 3), (3,), (5, 3), (5, 2))
    C, A, c, b, x, z = (rng.normal(size=shape).astype(np.float32).astype(np.float64) for shape in shapes)
    given, start = (xp.asarray(array, np.float32) for array in (z, x))
    layers = jax.tree.map(xp.asarray, linear(C, A, c, b))
    result = mlp.integrate_flow(partial(mlp.forward, layers, xp=xp), given, start, steps, xp)
    expected = euler(lambda x, t: x @ A + z @ C + c * t + b, x, steps)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_known_flows():
    x, nothing = np.array([[1.0, -2.0], [0.5, 4.0]], np.float32), np.zeros((2, 0), np.float32)
    straight = linear(np.zeros((3, 2)), [0.5, -0.25])
    for steps in (1, 4, 32):
        np.testing.assert_array_equal(
            mlp.integrate_flow(partial(mlp.forward, straight, xp=np), nothing, x, steps, np),
            [[1.5, -2.25], [1.0, 3.75]],
        )
    # Velocity -x tends to exp(-1) x from below: (1 - 1/N)^N falls short by exp(-1) / (2 N), to first order.
    decay = linear(-np.eye(2), np.zeros((1, 2)), np.zeros(2))
    for steps in (16, 64, 256):
        short = np.exp(-1) - mlp.integrate_flow(partial(mlp.forward, decay, xp=np), nothing, x, steps, np) / x
        np.testing.assert_allclose(short * 2 * steps * math.e, 1, atol=1 / steps + 1e-3)


# --- quasimetric ---


@pytest.mark.parametrize("whole_numbers", [False, True])
def test_interval_union(whole_numbers):
    rng = np.random.default_rng(0)
    low, high = rng.integers(-3, 4, (2, 500, 5)) if whole_numbers else rng.normal(size=(2, 500, 5))
    expected = [union(*pair) for pair in zip(low.tolist(), high.tolist(), strict=True)]
    length = interval_union(jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32))
    np.testing.assert_allclose(length, expected, rtol=1e-5, atol=1e-5)
    assert min(expected) == 0  # all empty, somewhere


def test_gradient_of_interval_union():
    slopes = jax.grad(lambda *ends: interval_union(*ends).sum(), (0, 1))
    ends = np.random.default_rng(1).normal(size=(2, 40, 5)).astype(np.float32)
    for which, gradient in enumerate(slopes(*map(jnp.asarray, ends))):
        for row, i in np.ndindex(gradient.shape):
            up, down = ends[:, row].astype(np.float64), ends[:, row].astype(np.float64)
            up[which, i] += 1e-6
            down[which, i] -= 1e-6
            np.testing.assert_allclose(gradient[row, i], (union(*up) - union(*down)) / 2e-6, atol=1e-5)
    # Where ends meet, some slope between those on either side.
    some, zero = jnp.asarray(ends[0]), jnp.zeros((40, 5))
    for pair in ((some, some), (zero, zero), (zero, some), (some, zero), (zero, zero + 1), (zero + 1, zero)):
        assert all((np.abs(gradient) <= 1).all() for gradient in slopes(*pair))


@pytest.mark.parametrize("mixture", [-20.0, 0.0, 1.5, 20.0])  # the maximum alone, both, the mean alone
def test_quasimetric(mixture):
    d = Quasimetric(None, jnp.asarray(mixture), 4).distance  # pyright: ignore[reportArgumentType]
    rng = np.random.default_rng(2)
    points = np.concatenate([rng.normal(size=(3, 2000, 12)), rng.integers(-2, 3, (3, 2000, 12))], 1)
    x, y, z = jnp.asarray(points, jnp.float32)
    np.testing.assert_array_equal(d(x, x), 0)
    assert (d(x, y) >= 0).all()
    assert (d(x, z) <= d(x, y) + d(y, z) + 1e-5).all()  # sums of a few float32 of size up to 10
    assert (d(x, z) > 0.9 * (d(x, y) + d(y, z))).any()  # and it is tight
    assert (np.abs(d(x, y) - d(y, x)) > 0.5).mean() > 0.1


def test_crl_diagonal_holds_the_reached_goal():
    """Rows are states, columns are goals."""
    nets, _, batch = inputs("crl")
    table = nets.critic.contrast(batch.observation, batch.action, batch.value_goal_oracle)
    for shift in (0, 1, 7):
        row_with_goal = nets.critic(batch.observation, batch.action, jnp.roll(batch.value_goal_oracle, -shift, 0))
        there = np.stack([table[:, r, (r + shift) % ROWS] for r in range(ROWS)], 1)
        np.testing.assert_allclose(row_with_goal, there, rtol=1e-4, atol=1e-5)


# --- the terms at their edges ---


def test_objective_terms_at_their_edges():
    sides = o.asymmetry(jnp.array([1.0, 1.0, 1.0]), jnp.array([1.0, 1.5, 0.5]), 0.8)
    np.testing.assert_allclose(sides, [0.8, 0.8, 0.2], rtol=1e-6)
    advantage = jnp.array([0.0, math.log(101.0) / 3, 1e4, -1e4, math.log(99.0) / 3])
    np.testing.assert_array_equal(o.awr_weight(advantage, 3.0)[:4], [1, 100, 100, 0])
    np.testing.assert_allclose(o.awr_weight(advantage, 3.0)[4], 99, rtol=1e-5)
    slopes = jax.vmap(jax.grad(lambda a: o.awr_weight(a, 3.0)))(advantage)
    np.testing.assert_allclose(slopes, [3, 0, 0, 0, 297], rtol=1e-5)
    loss, metrics = o.total({"q": jnp.ones(())}, one=jnp.asarray(2.0), other=jnp.asarray(-0.5))
    assert (loss, metrics) == (1.5, {"q": 1, "one_loss": 2, "other_loss": -0.5})


def test_countdown_of_a_chain():
    """V of a goal T steps away is -(1 + gamma + ... + gamma^(T - 1)), and stands for gamma^T."""
    at_goal, before = (random_batch(0)._replace(goal_is_state=jnp.full(ROWS, there)) for there in (True, False))
    v = o.step_cost_target(jnp.full(ROWS, -7.0), at_goal, GAMMA)
    np.testing.assert_array_equal(v, 0)
    for steps in range(1, 30):
        v = o.step_cost_target(v, before, GAMMA)
        np.testing.assert_allclose(v, -sum(GAMMA**k for k in range(steps)), rtol=1e-5)
        np.testing.assert_allclose(o.discount_from_step_cost(v, GAMMA), GAMMA**steps, rtol=1e-5)


@pytest.mark.parametrize("states", [None, 4])
def test_n_step_target_with_one_step_is_the_one_step_target(states):
    """On batches as they are drawn, with and without states that come back."""
    identity = None if states is None else np.random.default_rng(0).integers(0, states, sum(LENGTHS))
    options = {"xla_backend_optimization_level": 0}
    sample = jax.jit(Algorithm.sample, static_argnums=(0, 3), compiler_options=options)
    batch = sample(make("td", gamma=GAMMA, value_goals=MIXED), KEY, numbered(identity=identity), 500)
    q = jnp.asarray(np.random.default_rng(1).random((ENSEMBLE, 500)), jnp.float32)
    target = o.n_step(q, batch, GAMMA)
    np.testing.assert_allclose(target, o.one_step(q, batch, GAMMA), rtol=1e-6)
    assert {1.0, GAMMA} < {round(float(y), 6) for y in target[0]}


# --- fields ---

AT_LEAST_1 = "is 0 and must be a positive integer."
EXPECTILE = "and must lie in [0.5, 1)."


@pytest.mark.parametrize(
    ("name", "field", "value", "message"),
    [
        ("td", "n", 0, f"n {AT_LEAST_1}"),
        ("td-n", "n", -1, "n is -1 and must be a positive integer."),
        ("td-n", "n", 2.5, "n is 2.5 and must be a positive integer."),
        ("tdp", "candidates", 0, f"candidates {AT_LEAST_1}"),
        ("fbc", "flow_steps", 0, f"flow_steps {AT_LEAST_1}"),
        ("crl", "latent", 0, f"latent {AT_LEAST_1}"),
        ("qrl", "component", 0, f"component {AT_LEAST_1}"),
        ("qrl", "latent", 20, "latent is 20 and must be a multiple of component, 8."),
        ("mc", "value_goals", (0.0, 0.5, 0.5), "value_goals of MC must be (0, 1, 0): it has no target for goals off"),
        ("crl", "value_goals", (0.2, 0.8, 0.0), "value_goals of CRL must be (0, 1, 0): it has no target for goals off"),
        ("ivl", "kappa", 0.4, f"kappa is 0.4 {EXPECTILE}"),
        ("iql", "kappa", 1.0, f"kappa is 1.0 {EXPECTILE}"),
        ("td", "kappa", 0.4, f"kappa is 0.4 {EXPECTILE}"),
        ("coe", "anchor", -0.1, "anchor is -0.1 and must be a non-negative number."),
    ],
)
def test_invalid_fields_are_rejected(name, field, value, message):
    with pytest.raises(ConfigError) as error:
        make(name, **{field: value})
    assert str(error.value).startswith(message)


def test_tdp_needs_fewer_candidates_than_rows():
    method = make("tdp", candidates=ROWS, distill=False, hidden=(17,))
    nets = method.init(KEY, WHOLE)
    with pytest.raises(ConfigError, match=f"candidates is {ROWS} and must be below the batch size, {ROWS}."):
        method.loss(nets, method.targets(nets), random_batch(0, WHOLE), KEY)


def test_coe_proposals_start_halfway():
    """Within a tenth of what an ordinary last layer (of variance 100 times as large) would make of it."""
    batch = random_batch(0)
    nets = make("coe", hidden=(17,)).init(KEY, ORACLE)
    w, a_w = nets.generator(batch.observation, batch.action, batch.value_goal)
    off = np.abs(w - (batch.observation + batch.value_goal) / 2)
    assert 0 < off.max() < 0.5
    assert np.abs(a_w).max() < 0.5


@pytest.mark.parametrize(("name", "metric"), [("iql", "critic_loss"), ("ivl", "value_loss")])
def test_no_bootstrapping_from_a_state_without_a_logged_action(name: str, metric: str) -> None:
    """Its observation matters nowhere, and the target is -1 where it is the goal: one step away from V(g, g) = 0."""
    method = make(name, hidden=HIDDEN, kappa=KAPPA)
    nets = method.init(KEY, ORACLE)
    batch = random_batch(0)
    no = jnp.zeros(ROWS, bool)
    batch = batch._replace(goal_is_state=no, next_has_action=no)

    @jax.jit
    def compute(batch: Batch) -> tuple[Array, dict[str, Array]]:
        return method.loss(nets, method.targets(nets), batch, KEY)

    for goal_is_next in (no, ~no):
        found, moved = (
            compute(each._replace(goal_is_next=goal_is_next))
            for each in (batch, batch._replace(next_observation=batch.next_observation + 1))
        )
        assert found[1][metric] == moved[1][metric]
        assert found[0] == moved[0]
        if not goal_is_next.any():
            assert found[1][metric] == 0
            continue
        rows = (batch.observation, *((batch.action,) if name == "iql" else ()), batch.value_goal_oracle)
        error = (np.asarray((nets.critic if name == "iql" else nets.v)(*rows)) + 1) ** 2  # from the target -1
        if name == "ivl":  # the expectile: of optimistic sign where the target exceeds the value
            error = error * np.where(np.asarray(nets.v(*rows)).mean(0) > -1, 1 - KAPPA, KAPPA)
        np.testing.assert_allclose(found[1][metric], error.mean(), rtol=1e-5)

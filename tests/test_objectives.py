"""Every term of the losses against NumPy written from the paper: plain loops over rows and members, in float64."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtrl.algorithms import objectives as o
from gtrl.algorithms.bc import BC
from gtrl.algorithms.gtrl import GTRL
from gtrl.algorithms.trl import TRL
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.nn.networks import ENSEMBLE, Actor, ActorCritic, ActorCriticDensities, Critic

GAMMA = 0.95
# The sizes of test_gtrl_is_trl.py too: operations compiled for one serve the other.
ROWS, HIDDEN = 50, (17,)
ORACLE = Spec(observation_dim=6, action_dim=3, goal_dim=2)  # goals are a slice of the state
WHOLE = Spec(observation_dim=6, action_dim=3, goal_dim=6)  # goals are whole states
KEY = jax.random.key(0)  # the losses here draw nothing


# --- the paper, one number at a time ---


def factor(q: float, same: bool, following: bool) -> float:
    """Q with the base cases of equation 3."""
    if same:
        return 1.0
    return GAMMA if following else q


def cross_entropy(logit: float, y: float) -> float:
    """-y log x - (1 - y) log(1 - x) for x = 1 / (1 + exp(-logit)), stable for large logits."""
    return float(y * np.logaddexp(0, -logit) + (1 - y) * np.logaddexp(0, logit))


def slope(logit: float, y: float, kappa: float) -> float:
    """Equation 2's asymmetry: kappa below the target, 1 - kappa above it."""
    return 1 - kappa if sigmoid(logit) > y else kappa


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def rho(q: float, lambda_: float) -> float:
    steps = math.log(q) / math.log(GAMMA)  # the distance that q stands for
    return 1 / (1 + steps) ** lambda_


def hindsight(q: np.ndarray, y_td: np.ndarray, m: np.ndarray, c: float) -> np.ndarray:
    """Equation 9: clip, then divide each member's weights by their mean over the rows with m = 1."""
    h = np.ones(q.shape)
    for member in range(len(q)):
        clipped = {}
        for row in np.flatnonzero(m):
            ratio = q[member, row] / y_td[member, row]
            clipped[row] = min(max(ratio, 1 / (1 + c)), 1 + c)
        for row, ratio in clipped.items():
            h[member, row] = ratio / (sum(clipped.values()) / len(clipped))
    return h


def network(layers: Any, x: np.ndarray, member: int | None = None) -> np.ndarray:
    """Linear, GELU, layer norm if there is one; linear."""
    for depth, layer in enumerate(layers):
        parts = [part if member is None or part is None else part[member] for part in layer]
        weight, bias, scale, shift = parts
        x = x @ weight + bias
        if depth < len(layers) - 1:
            x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        if scale is not None:
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * scale + shift
    return x


def logits(critic: Critic, *inputs: Any) -> np.ndarray:
    x = np.concatenate(inputs, -1)
    return np.stack([network(critic.layers, x, member)[:, 0] for member in range(ENSEMBLE)])


def policy_loss(
    nets: ActorCritic, batch: Batch, alpha: float, reads: str, normaliser: float | None = None
) -> tuple[float, float]:
    """Equation 4 with a minus sign, and its normaliser (the absolute mean of what the policy maximises)."""
    mean = network(nets.actor.layers, np.concatenate([batch.observation, batch.actor_goal], -1))
    critic = nets.critic if nets.oracle_critic is None else nets.oracle_critic
    both = logits(critic, batch.observation, np.minimum(np.maximum(mean, -1), 1), batch.actor_goal)
    total = absolute = cloning = 0.0
    for row in range(len(mean)):
        q = min(both[:, row])
        q = float(sigmoid(q)) if reads == "value" else q
        total += q / len(mean)
        absolute += abs(q) / len(mean)
        cloning += sum((batch.action[row] - mean[row]) ** 2) / 2 / len(mean)
    normaliser = absolute + 1e-6 if normaliser is None else normaliser
    return -total / normaliser + alpha * cloning, normaliser


def full_loss(method: GTRL | TRL, nets: ActorCritic, target: Critic, batch: Batch, h: Any = None) -> dict[str, Any]:
    """Equation 10 (equation 5 for TRL), the distillation and the policy; and the critics' gradients by logit."""
    nets, target, b = in_float64((nets, target, batch))
    grounded = isinstance(method, GTRL)
    m = b.decomposable if grounded else np.ones(ROWS, bool)
    waypoint = ~m & ~b.subgoal_is_state if grounded and method.waypoint != "none" else np.zeros(ROWS, bool)
    to_subgoal = sigmoid(logits(target, b.observation, b.action, b.subgoal))
    from_subgoal = sigmoid(logits(target, b.subgoal, b.subgoal_action, b.value_goal))
    following = sigmoid(logits(target, b.next_observation, b.next_action, b.value_goal))
    current = sigmoid(logits(target, b.observation, b.action, b.value_goal))
    predicted = logits(nets.critic, b.observation, b.action, b.value_goal)

    y_dc, y_td, y, through_w = (np.zeros((ENSEMBLE, ROWS)) for _ in range(4))
    for e in range(ENSEMBLE):
        for r in range(ROWS):
            first = factor(to_subgoal[e, r], b.subgoal_is_state[r], b.subgoal_is_next[r])
            second = factor(from_subgoal[e, r], b.goal_is_subgoal[r], b.goal_is_after_subgoal[r])
            y_dc[e, r] = first * second
            y_td[e, r] = factor(GAMMA * following[e, r], b.goal_is_state[r], b.goal_is_next[r])
            if not grounded:
                y[e, r] = y_dc[e, r]
            elif not m[r]:
                y[e, r] = y_td[e, r]
            else:
                larger = max(y_dc[e, r], y_td[e, r])
                y[e, r] = {"max": larger, "dc": y_dc[e, r], "bound": y_td[e, r]}[method.selection]
            if isinstance(method, GTRL):
                if not b.subgoal_is_state[r]:
                    through_w[e, r] = to_subgoal[e, r] * (1 if b.goal_is_subgoal[r] else from_subgoal[e, r])
                if waypoint[r] and method.waypoint_product == "target":
                    y[e, r] = max(through_w[e, r], y_td[e, r])

    if h is None:
        h = np.ones((ENSEMBLE, ROWS))
        if isinstance(method, GTRL) and method.hindsight:
            h = hindsight(current, y_td, m, method.hindsight_clip)
    critic_loss, by_logit = 0.0, np.zeros((ENSEMBLE, ROWS))
    for e in range(ENSEMBLE):
        for r in range(ROWS):
            one_step = isinstance(method, GTRL) and (not m[r] or method.selection == "bound")
            kappa = method.kappa_one_step if isinstance(method, GTRL) and one_step else method.kappa
            read = y[e, r] if method.rho_reads == "target" else current[e, r]
            known = m[r] or b.goal_is_state[r] or b.goal_is_next[r]
            if isinstance(method, GTRL) and not (method.bootstrap_from_last or known) and b.next_is_last[r]:
                continue
            weight = h[e, r] * rho(read, method.lambda_) * slope(predicted[e, r], y[e, r], kappa)
            critic_loss += weight * cross_entropy(predicted[e, r], y[e, r]) / (ENSEMBLE * ROWS)
            by_logit[e, r] = weight * (sigmoid(predicted[e, r]) - y[e, r]) / (ENSEMBLE * ROWS)
            if not isinstance(method, GTRL):
                continue
            bounded = method.selection == "bound" if m[r] else waypoint[r] and method.waypoint_product == "bound"
            if bounded and through_w[e, r] > sigmoid(predicted[e, r]):
                weight = method.bound_weight * method.kappa_one_step * rho(read, method.lambda_)
                p = through_w[e, r]
                least = -p * math.log(p) - (1 - p) * math.log(1 - p)
                critic_loss += weight * (cross_entropy(predicted[e, r], p) - least) / (ENSEMBLE * ROWS)
                by_logit[e, r] += weight * (sigmoid(predicted[e, r]) - through_w[e, r]) / (ENSEMBLE * ROWS)

    distill_loss, by_oracle_logit = 0.0, np.zeros((ENSEMBLE, ROWS))
    if nets.oracle_critic is not None:
        oracle = logits(nets.oracle_critic, b.observation, b.action, b.value_goal_oracle)
        for e in range(ENSEMBLE):
            for r in range(ROWS):
                distill_loss += cross_entropy(oracle[e, r], sigmoid(predicted[e, r])) / (ENSEMBLE * ROWS)
                by_oracle_logit[e, r] = (sigmoid(oracle[e, r]) - sigmoid(predicted[e, r])) / (ENSEMBLE * ROWS)

    actor_loss, normaliser = policy_loss(nets, b, method.alpha, method.actor_reads)
    return {
        "loss": critic_loss + distill_loss + actor_loss,
        "critic_loss": critic_loss,
        "distill_loss": distill_loss,
        "actor_loss": actor_loss,
        "by_logit": by_logit,
        "by_oracle_logit": by_oracle_logit,
        "normaliser": normaliser,
        "ratio": current / y_td,
        "composition_wins": y_dc > y_td,
        "over": sigmoid(predicted) > y,
    }


# --- random inputs ---


def in_float64(tree: Any) -> Any:
    def convert(leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)
        return leaf if leaf.dtype == bool else leaf.astype(np.float64)

    return jax.tree.map(convert, tree)


def random_batch(seed: int, spec: Spec = ORACLE, rows: int = ROWS) -> Batch:
    """Numbers without a dataset behind them: every combination of base cases and m occurs."""
    rng = np.random.default_rng(seed)
    fields: dict[str, Any] = {}
    for name in Batch._fields:
        if name.endswith("has_action"):  # an action in every row
            continue
        if name in ("decomposable", "arrives"):
            fields[name] = rng.random(rows) < 0.6
        elif "_is_" in name:
            fields[name] = rng.random(rows) < 0.2
        elif name.endswith(("offset", "arrival")):
            fields[name] = rng.integers(0, 9, rows)
        elif name == "ahead_steps":
            fields[name] = rng.integers(1, 10, rows)
        elif name.endswith("action"):
            fields[name] = rng.uniform(-1, 1, (rows, spec.action_dim))
        elif name in ("actor_goal", "value_goal_oracle"):
            fields[name] = rng.normal(size=(rows, spec.goal_dim))
        else:
            fields[name] = rng.normal(size=(rows, spec.observation_dim))
    kinds = {"b": bool, "i": jnp.int32, "f": jnp.float32}
    arrays = {name: jnp.asarray(value, kinds[value.dtype.kind]) for name, value in fields.items()}
    return Batch(**arrays)


def noise(seed: int, tree: Any, size: float) -> Any:
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: size * rng.normal(size=leaf.shape), tree)


def random_nets(seed: int, spec: Spec = ORACLE, distill: bool = True) -> tuple[ActorCritic, Critic]:
    """Networks, and a target critic that differs from theirs.

    Noise in all places: fresh networks have biases of 0 and scales of 1, which could hide a slip.
    """
    shapes = jax.eval_shape(lambda: ActorCritic.init(KEY, spec, HIDDEN, distill))
    nets = noise(seed, shapes, 0.6)
    target = jax.tree.map(np.add, nets.critic, noise(seed + 1, nets.critic, 0.2))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (nets, target))


def mean_of(nets: ActorCritic, batch: Batch) -> jax.Array:
    return nets.actor(batch.observation, batch.actor_goal)


def random_values(seed: int, members: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    first, second = rng.uniform(0.02, 0.98, (2, members, ROWS)).astype(np.float32)
    return first, second


# --- the terms ---


@pytest.mark.parametrize("seed", range(3))
def test_targets(seed):
    batch = random_batch(seed)
    first, second = random_values(seed)
    y_dc = o.compose(jnp.asarray(first), jnp.asarray(second), batch, GAMMA)
    y_td = o.one_step(jnp.asarray(first), batch, GAMMA)
    highest = o.select_target(y_dc, y_td, batch.decomposable, "max")
    composed = o.select_target(y_dc, y_td, batch.decomposable, "dc")
    b = in_float64(batch)
    for e in range(3):
        for r in range(ROWS):
            dc = factor(first[e, r], b.subgoal_is_state[r], b.subgoal_is_next[r])
            dc *= factor(second[e, r], b.goal_is_subgoal[r], b.goal_is_after_subgoal[r])
            td = factor(GAMMA * first[e, r], b.goal_is_state[r], b.goal_is_next[r])
            m = b.decomposable[r]
            np.testing.assert_allclose(y_dc[e, r], dc, rtol=1e-6)
            np.testing.assert_allclose(y_td[e, r], td, rtol=1e-6)
            np.testing.assert_allclose(highest[e, r], max(dc, td) if m else td, rtol=1e-6)
            np.testing.assert_allclose(composed[e, r], dc if m else td, rtol=1e-6)


def test_base_cases_by_hand():
    """Both flags can hold at once on a finite process (a state that follows itself): being there comes first."""
    flags = {name: jnp.zeros(4, bool) for name in Batch._fields if "_is_" in name}
    same, following = jnp.array([True, False, True, False]), jnp.array([False, True, True, False])
    q, other = jnp.full(4, 0.3), jnp.full(4, 0.5)
    batch = random_batch(0, rows=4)
    first = batch._replace(**flags)._replace(subgoal_is_state=same, subgoal_is_next=following)
    second = batch._replace(**flags)._replace(goal_is_subgoal=same, goal_is_after_subgoal=following)
    whole = batch._replace(**flags)._replace(goal_is_state=same, goal_is_next=following)
    np.testing.assert_allclose(o.compose(q, other, first, 0.9), [0.5, 0.45, 0.5, 0.15], rtol=1e-6)
    np.testing.assert_allclose(o.compose(q, other, second, 0.9), [0.3, 0.27, 0.3, 0.15], rtol=1e-6)
    np.testing.assert_allclose(o.one_step(q, whole, 0.9), [1, 0.9, 1, 0.27], rtol=1e-6)


def test_split_expectile():
    m = jnp.array([True, False, True])
    np.testing.assert_allclose(o.split_expectile(m, 0.7, 0.5), [0.7, 0.5, 0.7], rtol=1e-6)


def test_bce():
    rng = np.random.default_rng(0)
    logit, y = rng.normal(size=200) * 5, rng.random(200)
    expected = [cross_entropy(*pair) for pair in zip(logit, y, strict=True)]
    np.testing.assert_allclose(o.bce(jnp.asarray(logit), jnp.asarray(y)), expected, rtol=1e-5)
    # For large logits it stays finite: about |logit| where wrong, about 0 where right.
    far = o.bce(jnp.array([80.0, -80.0, 80.0, -80.0]), jnp.array([0.0, 1.0, 1.0, 0.0]))
    np.testing.assert_allclose(far, [80, 80, 0, 0], atol=1e-6)


def test_expectile():
    rng = np.random.default_rng(1)
    logit, y, kappa = rng.normal(size=200) * 2, rng.random(200), rng.uniform(0.5, 1, 200)
    expected = [slope(x, t, k) * cross_entropy(x, t) for x, t, k in zip(logit, y, kappa, strict=True)]
    arrays = (jnp.asarray(array) for array in (logit, y, kappa))
    np.testing.assert_allclose(o.expectile(*arrays), expected, rtol=1e-5)
    # Under the target by kappa, over it (and only strictly over) by 1 - kappa.
    ln2 = math.log(2)
    loss = o.expectile(jnp.zeros(3), jnp.array([1.0, 0.0, 0.5]), 0.7)
    np.testing.assert_allclose(loss, [0.7 * ln2, 0.3 * ln2, 0.7 * ln2], rtol=1e-6)


@pytest.mark.parametrize("lambda_", [0.0, 0.4, 2.0])
def test_distance_weight(lambda_):
    q, _ = random_values(2)
    expected = [[rho(value, lambda_) for value in member] for member in q]
    np.testing.assert_allclose(o.distance_weight(jnp.log(q), GAMMA, lambda_), expected, rtol=1e-5)
    # A goal three steps away: (1 + 3)^-lambda.
    three = o.distance_weight(jnp.asarray(3 * math.log(GAMMA)), GAMMA, lambda_)
    np.testing.assert_allclose(three, 4.0**-lambda_, rtol=1e-5)


@pytest.mark.parametrize("clip", [0.25, 1.0, 3.0])
def test_hindsight_weight(clip):
    q, y_td = random_values(3)
    m = np.random.default_rng(4).random(ROWS) < 0.5
    ratio = (q / y_td)[:, m]
    assert (ratio > 1 + clip).any()
    assert (ratio < 1 / (1 + clip)).any()
    h = np.asarray(o.hindsight_weight(jnp.asarray(q), jnp.asarray(y_td), jnp.asarray(m), clip))
    np.testing.assert_allclose(h, hindsight(q, y_td, m, clip), rtol=1e-5)
    np.testing.assert_array_equal(h[:, ~m], 1)
    np.testing.assert_allclose(h[:, m].mean(1), 1, rtol=1e-5)  # each member by itself
    np.testing.assert_allclose(h[:, m].max(1) / h[:, m].min(1), (1 + clip) ** 2, rtol=1e-5)  # clipped at both ends


def test_hindsight_weight_by_hand():
    y_td = jnp.full((2, 5), 0.1)
    q = y_td * jnp.array([[0.1, 0.6, 1.0, 9.0, 7.0], [1.5, 1.5, 1.5, 9.0, 9.0]])
    m = jnp.array([True, True, True, True, False])
    mean = (0.5 + 0.6 + 1 + 2) / 4, (1.5 + 1.5 + 1.5 + 2) / 4
    first, second = np.array([0.5, 0.6, 1.0, 2.0]) / mean[0], np.array([1.5, 1.5, 1.5, 2.0]) / mean[1]
    np.testing.assert_allclose(o.hindsight_weight(q, y_td, m, 1.0), [[*first, 1], [*second, 1]], rtol=1e-5)


def test_hindsight_weight_without_decomposable_goals():
    q, y_td = (jnp.asarray(values) for values in random_values(5))
    np.testing.assert_array_equal(o.hindsight_weight(q, y_td, jnp.zeros(ROWS, bool), 1.0), np.ones((3, ROWS)))


@pytest.mark.parametrize("clip", [0.5, 1.0])
def test_density_weight(clip: float):
    """exp of the difference of logits, clipped to [1/(1+c), 1+c] and divided by its mean where m = 1."""
    rng = np.random.default_rng(0)
    difference, m = rng.normal(size=ROWS), rng.random(ROWS) < 0.6
    h = np.array([min(max(math.exp(x), 1 / (1 + clip)), 1 + clip) for x in difference])
    expected = np.where(m, h / h[m].mean(), 1)
    found = o.density_weight(jnp.asarray(difference, jnp.float32), jnp.asarray(m), clip)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert set(np.round(h, 6)) > {round(1 / (1 + clip), 6), 1 + clip}
    np.testing.assert_array_equal(o.density_weight(jnp.zeros(ROWS), jnp.zeros(ROWS, bool), clip), 1)


def test_lower_bound():
    """The divergence of the prediction from the bound, where it is below; 0 from there on, without a jump."""
    y, x = np.meshgrid([0.1, 0.5, 0.9], [1e-3, 0.1, 0.3, 0.5, 0.7, 0.999])
    divergence = y * np.log(y / x) + (1 - y) * np.log((1 - y) / (1 - x))
    found = o.lower_bound(jnp.asarray(np.log(x / (1 - x)), jnp.float32), jnp.asarray(y, jnp.float32))
    np.testing.assert_allclose(found, np.where(y > x, divergence, 0), atol=1e-5)
    np.testing.assert_array_equal(o.lower_bound(jnp.zeros(2), jnp.array([0.0, 0.5])), 0)


def test_contrastive():
    """The cross entropy of telling the row's own goal from the batch's, over rows with m = 1."""
    rng = np.random.default_rng(0)
    scores, m = rng.normal(size=(2, ROWS, ROWS)), rng.random(ROWS) < 0.6
    expected = sum(
        cross_entropy(scores[e, i, j], i == j) for e in range(2) for i in np.flatnonzero(m) for j in range(ROWS)
    ) / (2 * m.sum() * ROWS)
    found = o.contrastive(jnp.asarray(scores, jnp.float32), jnp.asarray(m))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_weight_of_densities_in_the_loss():
    """The critic is weighted by exp(f - f') without a gradient to f; f and f' learn from the contrastive loss alone."""
    method = GTRL(**GROUNDED, hindsight_reads="densities", density_hidden=(11,), density_latent=5)
    plain, target = random_nets(7)
    fresh = method.init(KEY, ORACLE)
    assert isinstance(fresh, ActorCriticDensities)
    densities = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), noise(3, fresh.densities, 0.6))
    nets = ActorCriticDensities(plain.critic, plain.oracle_critic, plain.actor, densities)
    batch = random_batch(7)
    b = in_float64(batch)
    phi, phi_next, psi = (in_float64(part.layers) for part in (densities.phi, densities.phi_next, densities.psi))
    goals = network(psi, b.value_goal) / 5**0.5
    f = network(phi, np.concatenate([b.observation, b.action], -1)) @ goals.T
    f_next = network(phi_next, b.next_observation) @ goals.T
    h = o.density_weight(jnp.asarray(np.diagonal(f - f_next), jnp.float32), batch.decomposable, 0.8)
    expected = full_loss(method, plain, target, batch, np.tile(h, (ENSEMBLE, 1)))
    found, metrics = method.loss(nets, target, batch, KEY)
    contrastive = o.contrastive(jnp.asarray(np.stack([f, f_next]), jnp.float32), batch.decomposable)
    np.testing.assert_allclose(metrics["density_loss"], contrastive, rtol=1e-4)
    np.testing.assert_allclose(metrics["critic_loss"], expected["critic_loss"], rtol=1e-4)
    np.testing.assert_allclose(found, expected["loss"] + contrastive, rtol=1e-4)
    assert metrics["critic_loss"] != pytest.approx(full_loss(method, plain, target, batch)["critic_loss"], rel=1e-3)
    by_densities = jax.grad(lambda n: method.loss(n, target, batch, KEY)[0])(nets).densities
    by_contrast = jax.grad(
        lambda d: o.contrastive(
            jnp.stack(d.contrast(batch.observation, batch.action, batch.next_observation, batch.value_goal)),
            batch.decomposable,
        )
    )(densities)
    assert_trees_close(by_densities, by_contrast)


def test_distill():
    nets, _ = random_nets(0)
    batch = random_batch(0)
    logit = jnp.asarray(np.random.default_rng(0).normal(size=(ENSEMBLE, ROWS)), jnp.float32)
    oracle = logits(*in_float64((nets.oracle_critic, batch.observation, batch.action, batch.value_goal_oracle)))
    pairs = zip(oracle.ravel(), sigmoid(logit).ravel(), strict=True)
    assert nets.oracle_critic is not None
    oracle_logit = nets.oracle_critic(batch.observation, batch.action, batch.value_goal_oracle)
    np.testing.assert_allclose(o.distill(oracle_logit, logit), np.mean([cross_entropy(*p) for p in pairs]), rtol=1e-5)
    # Its target gets no gradient.
    np.testing.assert_array_equal(jax.grad(lambda x: o.distill(oracle_logit, x))(logit), 0)
    assert o.distill(None, logit) == 0  # no oracle critic


def test_behaviour_cloning():
    mean, action = np.array([[0.0, 1.0], [2.0, -1.0]]), np.array([[0.5, 0.0], [1.0, -1.0]])
    np.testing.assert_allclose(o.behaviour_cloning(jnp.asarray(mean), jnp.asarray(action)), [0.625, 0.5])


# --- the policy ---


@pytest.mark.parametrize("reads", ["logit", "value"])
@pytest.mark.parametrize("distill", [True, False])
def test_policy_objective(reads, distill):
    spec = ORACLE if distill else WHOLE
    nets, _ = random_nets(2, spec, distill)
    batch = random_batch(2, spec)
    value, metrics = o.ddpg_bc(mean_of(nets, batch), nets.acting_critic, batch, 0.3, reads)
    exact, exact_batch = in_float64((nets, batch))
    expected, normaliser = policy_loss(exact, exact_batch, 0.3, reads)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    without, _ = policy_loss(exact, exact_batch, 0.0, reads)
    np.testing.assert_allclose(metrics["actor_bc"], (expected - without) / 0.3, rtol=1e-4)
    np.testing.assert_allclose(metrics["actor_q"], -without * normaliser, rtol=1e-4)

    # Reading the larger estimate would be seen: each member is the smaller somewhere.
    mean = jnp.clip(nets.actor(batch.observation, batch.actor_goal), -1, 1)
    assert set(np.asarray(nets.acting_critic(batch.observation, mean, batch.actor_goal)).argmin(0)) == {0, 1}


@pytest.mark.parametrize("reads", ["logit", "value"])
@pytest.mark.parametrize("distill", [True, False])
def test_policy_gradient(reads, distill):
    """Against finite differences in float64 with the normaliser held: it takes no gradient, and no critic does."""
    spec = ORACLE if distill else WHOLE
    nets, _ = random_nets(2, spec, distill)
    batch = random_batch(2, spec)
    grads = jax.grad(lambda n: o.ddpg_bc(mean_of(n, batch), n.acting_critic, batch, 0.3, reads)[0])(nets)
    for leaf in jax.tree.leaves((grads.critic, grads.oracle_critic)):
        np.testing.assert_array_equal(leaf, 0)

    exact, exact_batch, grads = in_float64((nets, batch, grads))
    _, normaliser = policy_loss(exact, exact_batch, 0.3, reads)
    for seed in range(3):
        direction = noise(seed, exact.actor, 1.0)
        ends = []
        for step in (1e-5, -1e-5):
            actor = jax.tree.map(lambda leaf, way, step=step: leaf + step * way, exact.actor, direction)
            moved = ActorCritic(exact.critic, exact.oracle_critic, actor)
            ends.append(policy_loss(moved, exact_batch, 0.3, reads, normaliser)[0])
        slopes = jax.tree.map(lambda grad, way: (grad * way).sum(), grads.actor, direction)
        np.testing.assert_allclose(sum(jax.tree.leaves(slopes)), (ends[0] - ends[1]) / 2e-5, rtol=1e-3)


def test_policy_reads_the_clipped_action():
    """Where the mean lies outside, the critic reads the limit, and gives no direction."""
    nets, _ = random_nets(3)
    last = nets.actor.layers[-1]
    bias = jnp.array([9.0, -9.0, 9.0])
    outside = Actor((*nets.actor.layers[:-1], last._replace(weight=jnp.zeros_like(last.weight), bias=bias)))
    nets = ActorCritic(nets.critic, nets.oracle_critic, outside)
    batch = random_batch(3)
    limit = jnp.tile(jnp.array([1.0, -1.0, 1.0]), (ROWS, 1))
    assert nets.oracle_critic is not None
    q = nets.oracle_critic(batch.observation, limit, batch.actor_goal).min(0).mean()
    _, metrics = o.ddpg_bc(mean_of(nets, batch), nets.acting_critic, batch, 0.0)
    np.testing.assert_allclose(metrics["actor_q"], q, rtol=1e-6)
    for leaf in jax.tree.leaves(jax.grad(lambda n: o.ddpg_bc(mean_of(n, batch), n.acting_critic, batch, 0.0)[0])(nets)):
        np.testing.assert_array_equal(leaf, 0)
    # Cloning does see the mean itself.
    _, metrics = o.ddpg_bc(mean_of(nets, batch), nets.acting_critic, batch, 1.0)
    expected = (0.5 * ((batch.action - bias) ** 2).sum(-1)).mean()
    np.testing.assert_allclose(metrics["actor_bc"], expected, rtol=1e-5)


# --- whole losses ---

# Not the defaults, and no two alike, so that a field that is not read is seen.
SHARED: dict[str, Any] = {"gamma": GAMMA, "lambda_": 0.7, "alpha": 0.3, "kappa": 0.8}
GROUNDED: dict[str, Any] = {**SHARED, "kappa_one_step": 0.55, "hindsight_clip": 0.8}
METHODS = {
    "gtrl": GTRL(**GROUNDED),
    "gtrl, paper's constants": GTRL(gamma=GAMMA, lambda_=0.7),
    "gtrl, rho reads the target": GTRL(**GROUNDED, rho_reads="target"),
    "gtrl, actor reads the value": GTRL(**GROUNDED, actor_reads="value"),
    "gtrl, goals are states": GTRL(**GROUNDED, distill=False),
    "gtrl, composition only": GTRL(**GROUNDED, selection="dc"),
    "gtrl, no hindsight weight": GTRL(**GROUNDED, hindsight=False),
    "gtrl, waypoints": GTRL(**GROUNDED, waypoint="both"),
    "gtrl, waypoints, weight": GTRL(**GROUNDED, waypoint="random", bound_weight=2.5),
    "gtrl, waypoints as targets": GTRL(**GROUNDED, waypoint="goal", waypoint_product="target"),
    "gtrl, waypoints, no last bootstrap": GTRL(**GROUNDED, waypoint="random", bootstrap_from_last=False),
    "gtrl, subgoals as bounds": GTRL(**GROUNDED, selection="bound"),
    "gtrl, all bounds": GTRL(**GROUNDED, selection="bound", waypoint="state", bound_weight=3.0),
    "trl": TRL(**SHARED),
    "trl, paper's constants": TRL(gamma=GAMMA, lambda_=0.7),
    "trl, rho reads the critic": TRL(**SHARED, rho_reads="critic"),
    "trl, actor reads the value": TRL(**SHARED, actor_reads="value"),
    "trl, goals are states": TRL(**SHARED, distill=False),
}


@pytest.fixture(params=METHODS, ids=lambda name: name.replace(" ", "_"))
def case(request: pytest.FixtureRequest) -> tuple[GTRL | TRL, ActorCritic, Critic, Batch]:
    method = METHODS[request.param]
    spec = ORACLE if method.distill else WHOLE
    nets, target = random_nets(7, spec, method.distill)
    return method, nets, target, random_batch(7, spec)


def test_full_loss(case):
    method, nets, target, batch = case
    expected = full_loss(*case)
    loss, metrics = method.loss(nets, target, batch, KEY)
    assert loss.shape == ()
    np.testing.assert_allclose(loss, expected["loss"], rtol=1e-4)
    for name in ("critic_loss", "distill_loss", "actor_loss"):
        np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-4)


def test_full_gradient(case):
    """The critic learns from equation 10 alone, with its target and weights held; the oracle critic from it."""
    method, nets, target, batch = case
    expected = full_loss(*case)
    grads = jax.grad(lambda n: method.loss(n, target, batch, KEY)[0])(nets)
    b = batch
    _, pull = jax.vjp(lambda critic: critic(b.observation, b.action, b.value_goal), nets.critic)
    assert_trees_close(grads.critic, pull(jnp.asarray(expected["by_logit"], jnp.float32))[0])
    if nets.oracle_critic is not None:
        _, pull = jax.vjp(lambda critic: critic(b.observation, b.action, b.value_goal_oracle), nets.oracle_critic)
        assert_trees_close(grads.oracle_critic, pull(jnp.asarray(expected["by_oracle_logit"], jnp.float32))[0])
    policy = jax.grad(
        lambda n: o.ddpg_bc(mean_of(n, batch), n.acting_critic, batch, method.alpha, method.actor_reads)[0]
    )(nets)
    assert_trees_close(grads.actor, policy.actor)


def assert_trees_close(first: Any, second: Any) -> None:
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def test_target_critic_gets_no_gradient():
    """At the first step target and critic are equal in value: the gradient is still that of the critic alone."""
    method = METHODS["gtrl"]
    nets, _ = random_nets(8)
    batch = random_batch(8)
    grads = jax.grad(lambda n: method.loss(n, method.targets(nets), batch, KEY)[0])(nets)
    cotangent = full_loss(method, nets, nets.critic, batch)["by_logit"]
    _, pull = jax.vjp(lambda critic: critic(batch.observation, batch.action, batch.value_goal), nets.critic)
    assert_trees_close(grads.critic, pull(jnp.asarray(cotangent, jnp.float32))[0])


def test_inputs_reach_every_branch(case):
    """The inputs above cover every branch: clips, both targets and both sides of the expectile all occur."""
    method, _, _, batch = case
    expected = full_loss(*case)
    m = np.asarray(batch.decomposable)
    clip = method.hindsight_clip if isinstance(method, GTRL) else 1.0
    ratio = expected["ratio"][:, m]
    assert (ratio > 1 + clip).any()
    assert (ratio < 1 / (1 + clip)).any()
    assert ((ratio > 1 / (1 + clip)) & (ratio < 1 + clip)).any()
    for part in (expected["composition_wins"][:, m], expected["over"][:, m], expected["over"][:, ~m]):
        assert part.any()
        assert not part.all()


def test_bc_loss():
    actor = random_nets(9)[0].actor
    batch = random_batch(9)
    exact, b = in_float64((actor, batch))
    mean = network(exact.layers, np.concatenate([b.observation, b.actor_goal], -1))
    total = 0.0
    for row in range(ROWS):
        for k in range(ORACLE.action_dim):
            total += (b.action[row, k] - mean[row, k]) ** 2 / 2
    loss, metrics = BC().loss(actor, None, batch, KEY)
    np.testing.assert_allclose(loss, total / ROWS, rtol=1e-4)
    np.testing.assert_array_equal(loss, metrics["actor_loss"])

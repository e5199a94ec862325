"""The formulas of the paper and of the methods it is compared with, with their equation numbers.

Values q are sigmoids of critic logits and lie in (0, 1). Values v are those of a reward of -1 per step until the goal
and are at most 0. Arrays from a critic have shape (ensemble, B); arrays from a batch have shape (B,) and broadcast.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax import Array

from gtrl.data.sampling import Batch

Selection = Literal["max", "dc", "bound"]  # the target where m = 1; see `select_target`
MAX_AWR_WEIGHT = 100.0  # of advantage-weighted regression
MIN_DIVISOR = 1e-30  # a sigmoid can underflow to 0 in float32; the ratio of two such values must not be NaN


def bce(logit: Array, y: Array) -> Array:
    """Binary cross entropy of a prediction, given as a logit, and a target y; the loss L in equation 2."""
    return optax.sigmoid_binary_cross_entropy(logit, y)


def asymmetry(x: Array, y: Array, kappa: Array | float) -> Array:
    """The weight |kappa - 1(x > y)| of equation 2: 1 - kappa where prediction x exceeds target y, kappa elsewhere."""
    return jnp.abs(kappa - (x > y))


def expectile(logit: Array, y: Array, kappa: Array | float) -> Array:
    """The expectile loss L_kappa(x, y) = |kappa - 1(x > y)| L(x, y) with x = sigmoid(logit). Equation 2."""
    return asymmetry(jax.nn.sigmoid(logit), y, kappa) * bce(logit, y)


def lower_bound(logit: Array, y: Array) -> Array:
    """L(x, y) - L(y, y) where the prediction x is below y, 0 elsewhere: y is a lower bound. Not in the paper.

    Subtracting the loss's minimum changes no gradient and makes it continuous where x reaches y.
    """
    least = -jax.scipy.special.xlogy(y, y) - jax.scipy.special.xlog1py(1 - y, -y)
    return jnp.where(y > jax.nn.sigmoid(logit), bce(logit, y) - least, 0.0)


# --- targets ---


def base_case(q: Array, same: Array, following: Array, gamma: float) -> Array:
    """1 where goal and state are the `same`, gamma where the goal is the `following` state, q elsewhere. Equation 3."""
    return jnp.where(same, 1.0, jnp.where(following, gamma, q))


def compose(q_subgoal: Array, q_goal: Array, batch: Batch, gamma: float) -> Array:
    """The composition target y_DC = Q(s, a, w) Q(w, a_w, g), each factor with its base cases. Equation 5."""
    first = base_case(q_subgoal, batch.subgoal_is_state, batch.subgoal_is_next, gamma)
    second = base_case(q_goal, batch.goal_is_subgoal, batch.goal_is_after_subgoal, gamma)
    return first * second


def product(q_subgoal: Array, q_goal: Array, batch: Batch) -> Array:
    """Q(s, a, w) Q(w, a_w, g) as learned, a lower bound of the optimal Q(s, a, g); 0, no bound, where w = s.

    There are no base cases for one step: that one state came after another is what happened, not what always does.
    """
    return jnp.where(batch.subgoal_is_state, 0.0, q_subgoal * jnp.where(batch.goal_is_subgoal, 1.0, q_goal))


def one_step(q_next: Array, batch: Batch, gamma: float) -> Array:
    """The one-step target y_TD: 1 where g = s, gamma where g = s', gamma Q(s', a', g) elsewhere. Equation 6."""
    return base_case(gamma * q_next, batch.goal_is_state, batch.goal_is_next, gamma)


def n_step(q_ahead: Array, batch: Batch, gamma: float) -> Array:
    """Equation 6 over n steps: gamma^k where g is reached after k <= n steps, gamma^n Q(s_n, a_n, g) elsewhere."""
    return jnp.where(batch.arrives, gamma**batch.arrival, gamma**batch.ahead_steps * q_ahead)


def monte_carlo(batch: Batch, gamma: float) -> Array:
    """The Monte Carlo target gamma^(j - i), where the goal is j - i steps ahead on the trajectory."""
    return gamma**batch.goal_offset


def step_cost_target(v_next: Array, batch: Batch, gamma: float) -> Array:
    """The one-step target for a reward of -1 per step until the goal: 0 where g = s, -1 + gamma V(s', g) elsewhere.

    V is fitted at states with a logged action. Where s' has none, the known value V(g, g) = 0 is used for g = s'.
    """
    if batch.next_has_action is not None:
        v_next = jnp.where(batch.goal_is_next & ~batch.next_has_action, 0.0, v_next)
    return jnp.where(batch.goal_is_state, 0.0, gamma * v_next - 1)


def discount_from_step_cost(v: Array, gamma: float) -> Array:
    """Converts a value of the reward -1 per step, V = -E[1 - gamma^T] / (1 - gamma), to E[gamma^T]."""
    return 1 + (1 - gamma) * v


def split_expectile(m: Array, subgoal: float, single_step: float) -> Array:
    """The expectile kappa: `subgoal`, optimistic over subgoals, where m = 1; `single_step` where m = 0. Equation 7."""
    return jnp.where(m, subgoal, single_step)


def select_target(y_dc: Array, y_td: Array, m: Array, selection: Selection) -> Array:
    """The target y_A: max(y_DC, y_TD) where m = 1, y_TD elsewhere. Equation 8.

    The ablation `selection="dc"` takes y_DC instead of the maximum. With "bound", which is not in the paper, the target
    is y_TD everywhere, and the composition a lower bound.
    """
    composed = {"max": jnp.maximum(y_dc, y_td), "dc": y_dc, "bound": y_td}[selection]
    return jnp.where(m, composed, y_td)


# --- weights ---


def n_step_weight(batch: Batch) -> Array | float:
    """0 where the n-step target would bootstrap from a state without a logged action, 1 elsewhere."""
    if batch.ahead_has_action is None:
        return 1.0
    return (batch.ahead_has_action | batch.arrives).astype(jnp.float32)


def step_cost_weight(batch: Batch) -> Array | float:
    """0 where `step_cost_target` would bootstrap from a state without a logged action, 1 elsewhere."""
    return 1.0 if batch.next_has_action is None else bootstrap_weight(batch, batch.next_has_action)


def hindsight_ratio(q: Array, y_td: Array, clip: float) -> Array:
    """The ratio h = Q(s, a, g) / y_TD, clipped to [1/(1+c), 1+c], before it is normalised. Equation 9."""
    return jnp.clip(q / jnp.maximum(y_td, MIN_DIVISOR), 1 / (1 + clip), 1 + clip)


def hindsight_weight(q: Array, y_td: Array, m: Array, clip: float) -> Array:
    """The hindsight weight h: `hindsight_ratio`, normalised, where m = 1. Equation 9.

    Each ensemble member is normalised to mean 1 over the rows with m = 1. Rows with m = 0 have weight 1.
    """
    return normalised(hindsight_ratio(q, y_td, clip), m)


def normalised(h: Array, m: Array) -> Array:
    """The weights h divided by their mean over the rows with m = 1, per ensemble member; 1 where m = 0."""
    mean = jnp.where(m, h, 0.0).sum(-1, keepdims=True) / jnp.maximum(m.sum(), 1)
    return jnp.where(m, h / jnp.where(mean > 0, mean, 1.0), 1.0)


def next_divisor(q_next: Array, gamma: float) -> Array:
    """The divisor of h in the authors' earlier public code: gamma Q(s', a', g) without base cases, at least 1e-6."""
    return jnp.maximum(gamma * q_next, 1e-6)


def density_ratio(log_ratio: Array, clip: float) -> Array:
    """The ratio h = p(g | s, a) / p(g | s') from its logarithm, clipped as in equation 9, before it is normalised."""
    bound = jnp.log1p(clip)
    return jnp.exp(jnp.clip(log_ratio, -bound, bound))


def density_weight(log_ratio: Array, m: Array, clip: float) -> Array:
    """The hindsight weight from log p(g | s, a) - log p(g | s'), clipped and normalised as in equation 9."""
    return normalised(density_ratio(log_ratio, clip), m)


def contrastive(logits: Array, m: Array) -> Array:
    """The loss of telling the goal that followed each row with m = 1 (the diagonal) from the other goals of a batch.

    The logits (..., B, B) converge to the logarithm of p(g | row) / p(g) up to a constant.
    """
    of_row = bce(logits, jnp.eye(logits.shape[-1])).mean(-1)
    return jnp.where(m, of_row, 0.0).sum(-1).mean() / jnp.maximum(m.sum(), 1)


def bootstrap_weight(batch: Batch, may_bootstrap: Array) -> Array:
    """1 where y_TD is a base case or may bootstrap from s', else 0. Rows with weight 0 still count in the mean."""
    return (batch.goal_is_state | batch.goal_is_next | may_bootstrap).astype(jnp.float32)


def distance_weight(log_q: Array, gamma: float, lambda_: float) -> Array:
    """The distance weight rho = (1 + log_gamma Q)^(-lambda), larger for short segments. Defined below equation 5."""
    if lambda_ == 0:
        return jnp.ones_like(log_q)
    return (1 + log_q / jnp.log(gamma)) ** -lambda_


# --- other losses ---


def distill(oracle_logit: Array | None, logit: Array) -> Array:
    """The loss that fits the oracle critic to the critic's prediction on the same rows, member by member.

    It is 0 where there is no oracle critic. Appendix B, implementation details.
    """
    if oracle_logit is None:
        return jnp.zeros(())
    return bce(oracle_logit, jax.lax.stop_gradient(jax.nn.sigmoid(logit))).mean()


def behaviour_cloning(mean: Array, action: Array) -> Array:
    """The negative log-likelihood of an action under a Gaussian of unit variance, up to a constant; (B,)."""
    return 0.5 * ((action - mean) ** 2).sum(-1)


def ddpg_bc(
    mean: Array,
    critic: Callable[[Array, Array, Array], Array],
    batch: Batch,
    alpha: float,
    reads: Literal["logit", "value"] = "logit",
) -> tuple[Array, dict[str, Array]]:
    """The policy loss of equation 4, reparameterised gradients with behaviour cloning (DDPG+BC), and its metrics.

    It uses the minimum over the critic's ensemble at the policy's clipped mean action. This is divided by its mean
    absolute value, so that alpha need not be retuned when the scale of values changes. No gradient reaches the critic.
    """
    critic = jax.lax.stop_gradient(critic)
    q = critic(batch.observation, jnp.clip(mean, -1, 1), batch.actor_goal).min(0)
    if reads == "value":
        q = jax.nn.sigmoid(q)
    ascent = -q.mean() / jax.lax.stop_gradient(jnp.abs(q).mean() + 1e-6)
    cloning = behaviour_cloning(mean, batch.action).mean()
    return ascent + alpha * cloning, {"actor_q": q.mean(), "actor_bc": cloning}


def awr_weight(advantage: Array, alpha: float) -> Array:
    """The weight of a logged action in advantage-weighted regression: min(exp(alpha A), 100)."""
    # The exponent is bounded too: if the exponential overflowed, the gradient would be NaN.
    return jnp.minimum(jnp.exp(jnp.minimum(alpha * advantage, MAX_AWR_WEIGHT**0.5)), MAX_AWR_WEIGHT)


def flow_matching(velocity: Callable[[Array, Array], Array], action: Array, key: Array) -> Array:
    """The flow matching loss: the squared error of the velocity at x_t = (1 - t) x_0 + t a against a - x_0; (B,).

    x_0 is drawn from a standard normal distribution, t uniformly from (0, 1).
    """
    noise_key, time_key = jax.random.split(key)
    x_0 = jax.random.normal(noise_key, action.shape)
    t = jax.random.uniform(time_key, (*action.shape[:-1], 1))
    return ((velocity((1 - t) * x_0 + t * action, t) - (action - x_0)) ** 2).mean(-1)


def share(condition: Array, rows: Array) -> Array:
    """The share of `rows` where the condition holds; 0 without rows. For metrics."""
    return (rows & condition).mean() / jnp.maximum(rows.mean(), 1e-6)


def total(metrics: dict[str, Array], **losses: Array) -> tuple[Array, dict[str, Array]]:
    """Returns the sum of all losses, and the metrics with each loss added as `<name>_loss`."""
    return sum(losses.values(), jnp.zeros(())), metrics | {f"{name}_loss": loss for name, loss in losses.items()}

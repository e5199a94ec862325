"""The small formulas of the paper and of the methods it compares with, each in one place, with its equation number.

Values q are sigmoids of critic logits and lie in (0, 1); values v count steps, downwards from 0. Arrays are
(ensemble, B) where they come from a critic and (B,) where they come from a batch; the latter broadcast.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax import Array

from gtrl.data.sampling import Batch

Selection = Literal["max", "dc"]
AWR_CAP = 100.0  # the largest weight of advantage-weighted regression
TINY = 1e-30  # a sigmoid in float32 can be 0; a ratio of two such must not be NaN


def bce(logit: Array, y: Array) -> Array:
    """Binary cross entropy of a prediction given as a logit; the loss L inside equation 2."""
    return optax.sigmoid_binary_cross_entropy(logit, y)


def asymmetry(x: Array, y: Array, kappa: Array | float) -> Array:
    """|kappa - 1(x > y)|: kappa where the prediction x does not exceed the target y, 1 - kappa where it does."""
    return jnp.abs(kappa - (x > y))


def expectile(logit: Array, y: Array, kappa: Array | float) -> Array:
    """L_kappa(x, y) = |kappa - 1(x > y)| L(x, y) with x = sigmoid(logit). Equation 2."""
    return asymmetry(jax.nn.sigmoid(logit), y, kappa) * bce(logit, y)


# --- targets ---


def base_case(q: Array, same: Array, following: Array, gamma: float) -> Array:
    """q, but 1 where goal and state are the same and gamma where the goal is the very next state. Equation 3."""
    return jnp.where(same, 1.0, jnp.where(following, gamma, q))


def compose(q_subgoal: Array, q_goal: Array, batch: Batch, gamma: float) -> Array:
    """y_DC = Q(s, a, w) Q(w, a_w, g), each factor with its base cases. Equation 5."""
    first = base_case(q_subgoal, batch.subgoal_is_state, batch.subgoal_is_next, gamma)
    second = base_case(q_goal, batch.goal_is_subgoal, batch.goal_is_after_subgoal, gamma)
    return first * second


def one_step(q_next: Array, batch: Batch, gamma: float) -> Array:
    """y_TD = 1 where g = s, gamma where g = s', gamma Q(s', a', g) elsewhere. Equation 6."""
    return base_case(gamma * q_next, batch.goal_is_state, batch.goal_is_next, gamma)


def n_step(q_ahead: Array, batch: Batch, gamma: float) -> Array:
    """Equation 6 over n steps: gamma^k where g comes after k of them, gamma^n Q(s_n, a_n, g) elsewhere."""
    return jnp.where(batch.arrives, gamma**batch.arrival, gamma**batch.ahead_steps * q_ahead)


def monte_carlo(batch: Batch, gamma: float) -> Array:
    """gamma^(j - i), read off the trajectory."""
    return gamma**batch.goal_offset


def countdown(v_next: Array, batch: Batch, gamma: float) -> Array:
    """0 where g = s, -1 + gamma V(s', g) elsewhere: the one-step target for a reward of -1 until the goal."""
    return jnp.where(batch.goal_is_state, 0.0, gamma * v_next - 1)


def discounted(v: Array, gamma: float) -> Array:
    """E[gamma^T] of a value that counts steps: V = -(1 - gamma^T) / (1 - gamma)."""
    return 1 + (1 - gamma) * v


def split_expectile(m: Array, subgoal: float, single_step: float) -> Array:
    """kappa: optimistic over sub-goals where m = 1, the mean over outcomes where m = 0. Equation 7."""
    return jnp.where(m, subgoal, single_step)


def select_target(y_dc: Array, y_td: Array, m: Array, selection: Selection) -> Array:
    """y_A: the larger of the two where m = 1 (or always the composition, an ablation), y_TD elsewhere. Equation 8."""
    composed = jnp.maximum(y_dc, y_td) if selection == "max" else y_dc
    return jnp.where(m, composed, y_td)


# --- weights ---


def hindsight_weight(q: Array, y_td: Array, m: Array, clip: float) -> Array:
    """H = Q(s, a, g) / y_TD where m = 1, clipped to [1/(1+c), 1+c], then mean 1 over those rows. Equation 9.

    Each ensemble member is normalised by itself. Rows with m = 0 keep 1.
    """
    h = jnp.clip(q / jnp.maximum(y_td, TINY), 1 / (1 + clip), 1 + clip)
    mean = jnp.where(m, h, 0.0).sum(-1, keepdims=True) / jnp.maximum(m.sum(), 1)
    return jnp.where(m, h / jnp.where(mean > 0, mean, 1.0), 1.0)


def distance_weight(log_q: Array, gamma: float, lambda_: float) -> Array:
    """Rho = (1 + log_gamma Q)^(-lambda): more weight on short segments. Below equation 5."""
    if lambda_ == 0:
        return jnp.ones_like(log_q)
    return (1 + log_q / jnp.log(gamma)) ** -lambda_


# --- losses beside the critic's ---


def distill(oracle_logit: Array | None, logit: Array) -> Array:
    """Fit the oracle critic to the critic's prediction on the same draw, member by member.

    0 where there is no oracle critic. Appendix B, implementation details.
    """
    if oracle_logit is None:
        return jnp.zeros(())
    return bce(oracle_logit, jax.lax.stop_gradient(jax.nn.sigmoid(logit))).mean()


def behaviour_cloning(mean: Array, action: Array) -> Array:
    """-log pi(a) of a Gaussian with unit standard deviation, up to a constant; (B,)."""
    return 0.5 * ((action - mean) ** 2).sum(-1)


def ddpg_bc(
    mean: Array,
    critic: Callable[[Array, Array, Array], Array],
    batch: Batch,
    alpha: float,
    reads: Literal["logit", "value"] = "logit",
) -> tuple[Array, dict[str, Array]]:
    """Reparameterised gradients with behaviour cloning, to be minimised. Equation 4.

    The critic's smaller estimate at the policy's clipped mean action, divided by its own absolute mean so that
    alpha keeps its meaning when the scale moves; no gradient reaches the critic.
    """
    critic = jax.lax.stop_gradient(critic)
    q = critic(batch.observation, jnp.clip(mean, -1, 1), batch.actor_goal).min(0)
    if reads == "value":
        q = jax.nn.sigmoid(q)
    ascent = -q.mean() / jax.lax.stop_gradient(jnp.abs(q).mean() + 1e-6)
    cloning = behaviour_cloning(mean, batch.action).mean()
    return ascent + alpha * cloning, {"actor_q": q.mean(), "actor_bc": cloning}


def awr_weight(advantage: Array, alpha: float) -> Array:
    """min(exp(alpha A), 100): the weight of a logged action in advantage-weighted regression."""
    # Held before the exponential too: its overflow would make a NaN of the gradient.
    return jnp.minimum(jnp.exp(jnp.minimum(alpha * advantage, AWR_CAP**0.5)), AWR_CAP)


def flow_matching(velocity: Callable[[Array, Array], Array], action: Array, key: Array) -> Array:
    """Squared error of the velocity at x_t = (1 - t) x_0 + t a against a - x_0; (B,).

    x_0 is standard normal, t uniform on (0, 1).
    """
    noise_key, time_key = jax.random.split(key)
    x_0 = jax.random.normal(noise_key, action.shape)
    t = jax.random.uniform(time_key, (*action.shape[:-1], 1))
    return ((velocity((1 - t) * x_0 + t * action, t) - (action - x_0)) ** 2).mean(-1)


def total(metrics: dict[str, Array], **losses: Array) -> tuple[Array, dict[str, Array]]:
    """All losses summed for the one optimiser; each is logged too, as <name>_loss."""
    return sum(losses.values(), jnp.zeros(())), metrics | {f"{name}_loss": loss for name, loss in losses.items()}

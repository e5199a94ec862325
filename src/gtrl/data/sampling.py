"""Goal and sub-goal sampling: one pure function from (key, dataset) to a batch."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gtrl.data.dataset import Dataset
from gtrl.tasks import Goals


class Batch(NamedTuple):
    """Everything any algorithm reads of a draw; XLA drops what one does not use. B rows each.

    A row is a transition (s_i, a_i, s_{i+1}) of a trajectory, a value goal at row j of the dataset,
    and an actor goal. `decomposable` (m in the paper) is true where the value goal lies ahead on the
    same trajectory, however it was drawn; only there is the sub-goal w = s_k, k uniform on {i, ..., j-1},
    meaningful (elsewhere k = i). The `*_is_*` flags are the base cases of equations 5 and 6.
    """

    observation: Array  # s_i
    action: Array  # a_i
    next_observation: Array  # s_{i+1}
    next_action: Array  # a_{i+1}, the action logged at the next state
    value_goal: Array  # s_j, a whole state
    value_goal_oracle: Array  # the task's goal at row j
    actor_goal: Array  # the task's goal at the actor's own draw
    subgoal: Array  # s_k
    subgoal_action: Array  # a_k
    decomposable: Array  # bool, m
    goal_offset: Array  # j - i; only a distance where decomposable
    subgoal_offset: Array  # k - i
    goal_is_state: Array  # bool, g = s_i
    goal_is_next: Array  # bool, g = s_{i+1}
    subgoal_is_state: Array  # bool, w = s_i
    subgoal_is_next: Array  # bool, w = s_{i+1}
    goal_is_subgoal: Array  # bool, g = w
    goal_is_after_subgoal: Array  # bool, g = s_{k+1}
    ahead_observation: Array  # s_{i+n}, or the trajectory's last state where that comes sooner
    ahead_action: Array  # the action logged there
    ahead_steps: Array  # how many steps ahead that is, 1 to n
    arrives: Array  # bool, g is among s_i, ..., s_{i+n} of this trajectory
    arrival: Array  # after how many steps it first is; only meaningful where it arrives


# The largest float32 below 1: the logarithm of a discount that rounds to 1 would be 0.
MAX_DISCOUNT = float(np.nextafter(np.float32(1), np.float32(0)))

# Random words are drawn in blocks and turned into numbers here: XLA compiles each use of the generator anew.


def uniform_from_bits(bits: Array) -> Array:
    """Uniform in [0, 1) from 32 random bits, of which a float32 holds 24."""
    return (bits >> 8).astype(jnp.float32) * 2.0**-24


def randint_from_bits(bits: Array, count: Array | int) -> Array:
    """Uniform on {0, ..., count - 1} from 32 random bits; no chance is off by more than count / 2^32 of itself."""
    return (bits % jnp.asarray(count, jnp.uint32)).astype(jnp.int32)


def sample_goals(key: Array, row: Array, end: Array, rows: int, mixture: Goals, geometric: bool, gamma: float) -> Array:
    """Row indices of goals for states at `row` whose trajectories end at `end`.

    With probability `mixture` = (current, trajectory, random): the state itself; a later state of its
    trajectory, at an offset that is Geometric(1 - gamma) and clipped at the end, or uniform over what is
    left; any row of the dataset.
    """
    choice, step, anywhere = jax.random.bits(key, (3, *row.shape))
    remaining = end - row  # at least 1: `row` is a transition
    if geometric:
        # P(offset > t) = gamma^t. The inverse of the distribution function at a uniform u in (0, 1].
        u = 1.0 - uniform_from_bits(step)
        offset = 1 + jnp.floor(jnp.log(u) / jnp.log(min(gamma, MAX_DISCOUNT))).astype(row.dtype)
        offset = jnp.minimum(offset, remaining)
    else:
        offset = 1 + randint_from_bits(step, remaining)
    current, trajectory, _ = mixture
    u = uniform_from_bits(choice)
    return jnp.where(
        u < current, row, jnp.where(u < current + trajectory, row + offset, randint_from_bits(anywhere, rows))
    )


def sample_batch(
    key: Array,
    dataset: Dataset,
    size: int,
    *,
    gamma: float,
    value_goals: Goals,
    actor_goals: Goals,
    value_geometric: bool = True,
    actor_geometric: bool = False,
    lookahead: int = 1,
) -> Batch:
    """Draw a batch. Pure and jittable; `dataset` is an argument, never a constant of the program.

    `lookahead` is n of the fields that look n steps ahead.
    """
    key, value_key, actor_key = jax.random.split(key, 3)
    pick, between = jax.random.bits(key, (2, size))
    rows = dataset.observations.shape[0]
    i = dataset.transitions[randint_from_bits(pick, dataset.transitions.shape[0])]
    end = dataset.ends[i]
    j = sample_goals(value_key, i, end, rows, value_goals, value_geometric, gamma)
    actor_j = sample_goals(actor_key, i, end, rows, actor_goals, actor_geometric, gamma)
    k = i + randint_from_bits(between, jnp.where((j > i) & (j <= end), j - i, 1))
    return gather(dataset, i, j, k, actor_j, lookahead)


def gather(dataset: Dataset, i: Array, j: Array, k: Array, actor_j: Array, lookahead: int = 1) -> Batch:
    """The batch of the transitions at rows i, with value goals at rows j, sub-goals at k and actor goals at actor_j."""
    rows, end = dataset.observations.shape[0], dataset.ends[i]
    state = dataset.identity
    steps = jnp.arange(lookahead + 1)
    passed = (i[:, None] + steps <= end[:, None]) & (state[jnp.minimum(i[:, None] + steps, rows - 1)] == state[j, None])
    ahead = jnp.minimum(i + lookahead, end)
    return Batch(
        observation=dataset.observations[i],
        action=dataset.actions[i],
        next_observation=dataset.observations[i + 1],
        next_action=dataset.actions[i + 1],
        value_goal=dataset.observations[j],
        value_goal_oracle=dataset.goals[j],
        actor_goal=dataset.goals[actor_j],
        subgoal=dataset.observations[k],
        subgoal_action=dataset.actions[k],
        decomposable=(j > i) & (j <= end),
        goal_offset=j - i,
        subgoal_offset=k - i,
        goal_is_state=state[j] == state[i],
        goal_is_next=state[j] == state[i + 1],
        subgoal_is_state=state[k] == state[i],
        subgoal_is_next=state[k] == state[i + 1],
        goal_is_subgoal=state[j] == state[k],
        goal_is_after_subgoal=state[j] == state[k + 1],
        ahead_observation=dataset.observations[ahead],
        ahead_action=dataset.actions[ahead],
        ahead_steps=ahead - i,
        arrives=passed.any(-1),
        arrival=passed.argmax(-1),
    )

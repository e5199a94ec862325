"""Sampling of transitions, goals and subgoals: a pure function from (key, dataset) to a batch."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gtrl.data.dataset import Dataset
from gtrl.tasks import Goals, WaypointDraw, WaypointSource


class Batch(NamedTuple):
    """A batch of B rows, with the fields that any algorithm uses; XLA removes those that are not used.

    A row is a transition (s_i, a_i, s_{i+1}) of a trajectory, a value goal at row j of the dataset, and an actor
    goal. `decomposable` (m in the paper) is true if the value goal is later on the same trajectory, however it was
    drawn. Then the subgoal is w = s_k, k uniform on {i, ..., j-1}. Otherwise w is a waypoint if one was asked for and
    found, and k = i if not; a waypoint is never the same state as s_i. The `*_is_*` flags are the base cases of
    equations 5 and 6. Those for one step from s_i to w or from w to g are false at a waypoint: that one state came
    right after another does not mean that it always does, and a waypoint uses what was learned of that.
    """

    observation: Array  # s_i
    action: Array  # a_i
    next_observation: Array  # s_{i+1}
    next_action: Array  # a_{i+1}, the action logged at the next state
    value_goal: Array  # s_j, a whole state
    value_goal_oracle: Array  # the task's goal at row j
    actor_goal: Array  # the task's goal at the row drawn for the actor
    subgoal: Array  # s_k
    subgoal_action: Array  # a_k
    decomposable: Array  # bool, m
    goal_offset: Array  # j - i; a distance only if decomposable
    subgoal_offset: Array  # k - i; a distance only if decomposable
    goal_is_state: Array  # bool, g = s_i
    goal_is_next: Array  # bool, g = s_{i+1}
    subgoal_is_state: Array  # bool, w = s_i
    subgoal_is_next: Array  # bool, w = s_{i+1}; false at a waypoint
    goal_is_subgoal: Array  # bool, g = w
    goal_is_after_subgoal: Array  # bool, g = s_{k+1}; false at a waypoint
    ahead_observation: Array  # s_{i+n}, or the trajectory's last state (with a logged action) if that is earlier
    ahead_action: Array  # the action logged at that state
    ahead_steps: Array  # number of steps from s_i to that state, 1 to n
    arrives: Array  # bool, g is among s_i, ..., s_{i+n} of this trajectory
    arrival: Array  # steps until the first such state; meaningful only if `arrives`
    next_is_last: Array  # bool, s_{i+1} is the last row of its trajectory
    # Whether an action was logged at s_{i+1}, and at `ahead_observation`; None if the dataset has one in every row. A
    # target must not bootstrap from a state without one: its entry of `next_action` or `ahead_action` means nothing.
    next_has_action: Array | None = None
    ahead_has_action: Array | None = None

    @property
    def has_waypoint(self) -> Array:
        """bool: the goal is not decomposable, and w is a waypoint."""
        return ~self.decomposable & ~self.subgoal_is_state


# The largest float32 below 1. The logarithm of a discount that rounds to 1 would be 0.
MAX_DISCOUNT = float(np.nextafter(np.float32(1), np.float32(0)))

WAYPOINTS_STREAM = 1  # of random bits, apart from the other draws of a batch

# Random bits are drawn in one block and converted below, because XLA compiles every call of the generator separately.


def uniform_from_bits(bits: Array) -> Array:
    """Returns uniform numbers in [0, 1) from 32 random bits, of which the upper 24 are used."""
    return (bits >> 8).astype(jnp.float32) * 2.0**-24


def randint_from_bits(bits: Array, count: Array | int) -> Array:
    """Returns uniform integers in {0, ..., count - 1} from 32 random bits.

    The relative error of each probability is at most count / 2^32.
    """
    return (bits % jnp.asarray(count, jnp.uint32)).astype(jnp.int32)


def geometric_from_bits(bits: Array, gamma: float) -> Array:
    """Returns numbers of steps t >= 1 with probability (1 - gamma) gamma^(t - 1) from 32 random bits."""
    # P(t > n) = gamma^n: inverse transform sampling with u uniform in (0, 1].
    u = 1.0 - uniform_from_bits(bits)
    return 1 + jnp.floor(jnp.log(u) / jnp.log(min(gamma, MAX_DISCOUNT))).astype(jnp.int32)


def sample_goals(
    key: Array,
    row: Array,
    end: Array,
    rows: int,
    mixture: Goals,
    geometric: bool,
    gamma: float,
    random_rows: Array | None = None,
) -> Array:
    """Returns the row indices of goals for states at `row`, whose trajectories end at `end`.

    `mixture` has the probabilities of three kinds of goals:
    - current: the state itself;
    - trajectory: a later state of its trajectory. The offset is Geometric(1 - gamma), clipped at the end of the
      trajectory, or uniform over the remaining states;
    - random: any row of the dataset, or any of `random_rows` if given.
    """
    mixture_bits, offset_bits, row_bits = jax.random.bits(key, (3, *row.shape))
    remaining = end - row  # at least 1: `row` is a transition
    if geometric:
        offset = jnp.minimum(geometric_from_bits(offset_bits, gamma), remaining)
    else:
        offset = 1 + randint_from_bits(offset_bits, remaining)
    current, trajectory, _ = mixture
    u = uniform_from_bits(mixture_bits)
    if random_rows is None:
        random_row = randint_from_bits(row_bits, rows)
    else:
        random_row = random_rows[randint_from_bits(row_bits, len(random_rows))]
    return jnp.where(u < current, row, jnp.where(u < current + trajectory, row + offset, random_row))


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
    random_last_rows: bool = True,
    waypoint: WaypointSource = "none",
    waypoint_draw: WaypointDraw = "uniform",
) -> Batch:
    """Draws a batch. This is a pure function that can be jitted, with `dataset` as an argument.

    Args:
        key: The JAX random key.
        dataset: The dataset to draw from.
        size: The number of rows B.
        gamma: The discount, which is the parameter of the geometric offsets.
        value_goals: Probabilities of (current, trajectory, random) value goals.
        actor_goals: The same for actor goals.
        value_geometric: Whether offsets of value goals are geometric; otherwise uniform.
        actor_geometric: The same for actor goals.
        lookahead: The number of steps n of the fields `ahead_*`, `arrives` and `arrival`.
        random_last_rows: Whether random goals may be a trajectory's last row.
        waypoint: Where the waypoints of goals that are not decomposable come from.
        waypoint_draw: How waypoints are drawn.
    """
    key, value_key, actor_key = jax.random.split(key, 3)
    transition_bits, subgoal_bits = jax.random.bits(key, (2, size))
    rows = dataset.observations.shape[0]
    i = dataset.transitions[randint_from_bits(transition_bits, dataset.transitions.shape[0])]
    end = dataset.ends[i]
    random_rows = None if random_last_rows else dataset.transitions
    j = sample_goals(value_key, i, end, rows, value_goals, value_geometric, gamma, random_rows)
    actor_j = sample_goals(actor_key, i, end, rows, actor_goals, actor_geometric, gamma, random_rows)
    decomposable = (j > i) & (j <= end)
    k = i + randint_from_bits(subgoal_bits, jnp.where(decomposable, j - i, 1))
    if waypoint != "none":
        way = sample_waypoints(jax.random.fold_in(key, WAYPOINTS_STREAM), dataset, i, j, waypoint, waypoint_draw, gamma)
        k = jnp.where(decomposable, k, way)
    return gather(dataset, i, j, k, actor_j, lookahead)


def sample_waypoints(
    key: Array, dataset: Dataset, i: Array, j: Array, source: WaypointSource, draw: WaypointDraw, gamma: float
) -> Array:
    """Returns the rows k of waypoints for states at i and goals at j; k = i where there is none.

    A waypoint is a later row of the state's trajectory, an earlier row of the goal's, or any row, with a logged action.
    It is another state than that at i.
    """
    if source == "random":
        k = dataset.transitions[randint_from_bits(jax.random.bits(key, i.shape), dataset.transitions.shape[0])]
        return jnp.where(dataset.identity[k] == dataset.identity[i], i, k)
    coin_bits, step_bits = jax.random.bits(key, (2, *i.shape))
    last = dataset.ends[i]
    if dataset.has_action is not None:  # only a trajectory's last row may be without one
        last = jnp.where(dataset.has_action[last], last, last - 1)
    by_state = (coin_bits & 1) == 0 if source == "both" else jnp.full(i.shape, source == "state")
    count = jnp.where(by_state, last - i, j - dataset.starts[j])
    steps = jnp.where(count > 0, _waypoint_steps(step_bits, jnp.maximum(count, 1), draw, gamma), 0)
    k = jnp.where(by_state, i + steps, j - steps)
    none = (steps == 0) | (dataset.identity[k] == dataset.identity[i])
    return jnp.where(none, i, k)


def _waypoint_steps(bits: Array, count: Array, draw: WaypointDraw, gamma: float) -> Array:
    """Returns numbers of steps from 1 to `count`."""
    if draw == "farthest":
        return count
    if draw == "geometric":
        return jnp.minimum(geometric_from_bits(bits, gamma), count)
    return 1 + randint_from_bits(bits, count)


def gather(dataset: Dataset, i: Array, j: Array, k: Array, actor_j: Array, lookahead: int = 1) -> Batch:
    """Returns the batch of transitions at rows i, value goals at j, subgoals at k and actor goals at actor_j."""
    rows, end = dataset.observations.shape[0], dataset.ends[i]
    state, decomposable = dataset.identity, (j > i) & (j <= end)
    no_waypoint = decomposable | (k == i)
    steps = jnp.arange(lookahead + 1)
    visits_goal = (i[:, None] + steps <= end[:, None]) & (
        state[jnp.minimum(i[:, None] + steps, rows - 1)] == state[j, None]
    )
    logged = dataset.has_action
    # The last state to bootstrap from: the one before the trajectory's last if that has no logged action.
    last = end if logged is None else jnp.maximum(jnp.where(logged[end], end, end - 1), i + 1)
    ahead = jnp.minimum(i + lookahead, last)
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
        decomposable=decomposable,
        goal_offset=j - i,
        subgoal_offset=k - i,
        goal_is_state=state[j] == state[i],
        goal_is_next=state[j] == state[i + 1],
        subgoal_is_state=state[k] == state[i],
        subgoal_is_next=no_waypoint & (state[k] == state[i + 1]),
        goal_is_subgoal=state[j] == state[k],
        goal_is_after_subgoal=no_waypoint & (state[j] == state[k + 1]),
        ahead_observation=dataset.observations[ahead],
        ahead_action=dataset.actions[ahead],
        ahead_steps=ahead - i,
        arrives=visits_goal.any(-1),
        arrival=visits_goal.argmax(-1),
        next_is_last=i + 1 == end,
        next_has_action=None if logged is None else logged[i + 1],
        ahead_has_action=None if logged is None else logged[ahead],
    )

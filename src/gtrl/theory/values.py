"""Exact values of a finite process: V*, V^beta of a behaviour policy, and V_DC of divide and conquer.

Goals are absorbing (equation 1).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.sparse.csgraph import shortest_path

from gtrl.theory.process import Process, check_behaviour, check_discount, check_within

GOALS_PER_BLOCK = 256  # goals that are solved together, so that their values stay in the CPU cache
STOP_TOLERANCE = 1e-13  # value iteration stops at changes below this; the error is then below 1e-13 / (1 - gamma)


# --- the optimal policy ---


def backup(successors: Array, probabilities: Array, v: Array, gamma: float) -> Array:
    """Returns the maximum of gamma E[V(s', g)] over actions, (S, G): one step of value iteration, except at goals."""
    best = jnp.zeros_like(v)
    for a in range(successors.shape[1]):  # one gather per outcome, rather than one of (S, A, K, G)
        mean = sum(probabilities[:, a, k, None] * v[successors[:, a, k]] for k in range(successors.shape[2]))
        best = jnp.maximum(best, mean)
    return gamma * best


@jax.jit
def _value_iteration(successors: Array, probabilities: Array, blocks: Array, gamma: float) -> tuple[Array, Array]:
    """Returns the values (blocks, S, goals per block) and the number of sweeps of each block."""

    def solve(goals: Array) -> tuple[Array, Array]:
        here = jnp.arange(successors.shape[0])[:, None] == goals

        def sweep(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            v, _, sweeps = carry
            updated = jnp.where(here, 1.0, backup(successors, probabilities, v, gamma))
            return updated, jnp.abs(updated - v).max(), sweeps + 1

        start = here.astype(probabilities.dtype), jnp.array(1.0), jnp.array(0)
        v, _, sweeps = jax.lax.while_loop(lambda carry: carry[1] > STOP_TOLERANCE, sweep, start)
        return v, sweeps

    return jax.lax.map(solve, blocks)


def optimal_values(process: Process, gamma: float, goals: np.ndarray | None = None) -> np.ndarray:
    """Returns V*(s, g) for every state and the given goals (by default all states), (S, G), by value iteration."""
    return _solve(process, gamma, goals)[0]


def backups_needed(process: Process, gamma: float) -> int:
    """Returns the number of one-step backups of all pairs from V = 1 at the goal, 0 elsewhere, to V*."""
    return _solve(process, gamma, None)[1] - 1  # the last one changed nothing


def _solve(process: Process, gamma: float, goals: np.ndarray | None) -> tuple[np.ndarray, int]:
    check_discount(gamma)
    goals = np.arange(process.states) if goals is None else np.asarray(goals)
    check_within("goals", goals, process.states)
    size = min(GOALS_PER_BLOCK, len(goals))
    blocks = np.resize(goals, (-(-len(goals) // size), size))  # the last block is filled up with repeated goals
    with jax.enable_x64(True):
        v, sweeps = _value_iteration(process.successors, process.probabilities, blocks, gamma)
        values, max_sweeps = np.asarray(v), int(sweeps.max())
    return values.transpose(1, 0, 2).reshape(process.states, -1)[:, : len(goals)], max_sweeps


def state_action_values(process: Process, v: np.ndarray, gamma: float) -> np.ndarray:
    """Returns Q(s, a, g) from V(s, g), (S, S): 1 at the goal, gamma E[V(s', g)] elsewhere. (S, A, S)."""
    q = gamma * np.einsum("sak,sakg->sag", process.probabilities, v[process.successors])
    q[np.arange(process.states), :, np.arange(process.states)] = 1
    return q


# --- divide and conquer: the luckiest path ---


def graph_distances(process: Process) -> np.ndarray:
    """Returns d_G(s, g): the length of the shortest possible path, infinite where there is none. (S, S)."""
    return shortest_path(process.graph, unweighted=True)


def divide_and_conquer_values(process: Process, gamma: float) -> np.ndarray:
    """Returns V_DC = gamma^d_G, the limit of the transitive update (Proposition 1). (S, S)."""
    check_discount(gamma)
    return gamma ** graph_distances(process)


def diameter(distances: np.ndarray) -> int:
    """Returns the maximum of the finite distances."""
    return int(distances[np.isfinite(distances)].max())


def forced(process: Process) -> np.ndarray:
    """Returns whether some action leads from s to g with certainty, (S, S)."""
    return np.any(process.dense > 1 - 1e-9, axis=1)


def surely_shortest(process: Process) -> np.ndarray:
    """Returns whether some policy reaches g from s in exactly d_G(s, g) steps with certainty, (S, S).

    Such a policy takes, at every step, an action all of whose outcomes are one step closer and have such a policy too.
    True also where g cannot be reached.
    """
    d = graph_distances(process)
    sure = (d == 0) | np.isinf(d)
    possible = process.probabilities > 0
    for steps in range(1, diameter(d) + 1):
        good = (sure & (d == steps - 1))[process.successors] | ~possible[..., None]  # (S, A, K, G)
        sure |= (d == steps) & good.all(2).any(1)
    return sure


# --- the behaviour policy ---


def occupancy(process: Process, beta: np.ndarray, gamma: float) -> np.ndarray:
    """Returns the discounted occupancy mu(g | s), (S, S).

    It is the distribution of the last state if the behaviour policy starts in s and stops before each step with
    probability 1 - gamma.
    """
    check_discount(gamma)
    chain = process.transition_matrix(beta)
    mu = (1 - gamma) * np.linalg.inv(np.eye(process.states) - gamma * chain)
    reachable = np.isfinite(shortest_path(chain > 0, unweighted=True))
    return np.where(reachable, mu, 0.0)  # exactly 0, without rounding errors, where there is no path


def behaviour_values(process: Process, beta: np.ndarray, gamma: float) -> np.ndarray:
    """Returns V^beta(s, g) = E[gamma^T], where T is the time at which the behaviour policy first reaches g. (S, S).

    Takes one matrix inverse for all goals, by the identity mu(g | s) = V(s, g) mu(g | g): to stop at g, the agent has
    to reach it first. `theory.checks` compares the result with `arrival_values`.
    """
    mu = occupancy(process, beta, gamma)
    return mu / np.diagonal(mu)


def arrival_values(process: Process, beta: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns V^beta (S, S) and Q^beta (S, A, S) from their definition: slowly, by one linear system per goal.

    Q is 1 at the goal and gamma E[Q(s', a')] elsewhere; V is its mean over actions.
    """
    check_discount(gamma)
    check_behaviour(process, beta)
    states, pairs = process.states, process.states * process.actions
    steps = (process.dense[..., None] * beta).reshape(pairs, pairs)
    q = np.empty((pairs, states))
    for g in range(states):
        there = np.repeat(np.arange(states) == g, process.actions)
        q[:, g] = np.linalg.solve(np.eye(pairs) - gamma * steps * ~there[:, None], there.astype(float))
    q = q.reshape(states, process.actions, states)
    return np.einsum("sa,sag->sg", beta, q), q


def hindsight_ratio(process: Process, beta: np.ndarray, gamma: float) -> np.ndarray:
    """Returns h(s, a, s', g) of equation 9 from occupancies, for each successor s' and every goal: (S, A, K, S).

    It is NaN where g cannot be reached from s': such a goal is never drawn after s'.
    """
    mu = occupancy(process, beta, gamma)[process.successors]
    average = np.einsum("sak,sakg->sag", process.probabilities, mu)[:, :, None]
    return np.divide(average, mu, out=np.full_like(mu, np.nan), where=mu > 0)

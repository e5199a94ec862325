"""Exact values of a finite process: optimal, of a behaviour, and of the luckiest route. Goals absorb (equation 1)."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.sparse.csgraph import shortest_path

from gtrl.theory.process import Process, check_behaviour, check_discount, check_within

GOALS_TOGETHER = 256  # so many goals are swept at once: their values stay in the cache
SMALLEST_CHANGE = 1e-13  # where value iteration stops; what is missing then is below 1e-13 / (1 - gamma)


# --- the best policy ---


def backup(successors: Array, probabilities: Array, v: Array, gamma: float) -> Array:
    """The largest gamma E[V(s', g)] over actions, (S, G): one step of value iteration but for the goal itself."""
    best = jnp.zeros_like(v)
    for a in range(successors.shape[1]):  # a gather for each outcome, not one of (S, A, K, G)
        mean = sum(probabilities[:, a, k, None] * v[successors[:, a, k]] for k in range(successors.shape[2]))
        best = jnp.maximum(best, mean)
    return gamma * best


@jax.jit
def _value_iteration(successors: Array, probabilities: Array, blocks: Array, gamma: float) -> tuple[Array, Array]:
    """Values (blocks, S, goals in a block) and the number of sweeps each block took."""

    def solve(goals: Array) -> tuple[Array, Array]:
        here = jnp.arange(successors.shape[0])[:, None] == goals

        def sweep(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            v, _, sweeps = carry
            updated = jnp.where(here, 1.0, backup(successors, probabilities, v, gamma))
            return updated, jnp.abs(updated - v).max(), sweeps + 1

        start = here.astype(probabilities.dtype), jnp.array(1.0), jnp.array(0)
        v, _, sweeps = jax.lax.while_loop(lambda carry: carry[1] > SMALLEST_CHANGE, sweep, start)
        return v, sweeps

    return jax.lax.map(solve, blocks)


def optimal_values(process: Process, gamma: float, goals: np.ndarray | None = None) -> np.ndarray:
    """V*(s, g) for every state and the given goals (by default every state), (S, G), by value iteration."""
    return _solve(process, gamma, goals)[0]


def backups_needed(process: Process, gamma: float) -> int:
    """How many one-step backups of every pair, from V = 1 at the goal and 0 elsewhere, it takes to reach V*."""
    return _solve(process, gamma, None)[1] - 1  # the last one changed nothing


def _solve(process: Process, gamma: float, goals: np.ndarray | None) -> tuple[np.ndarray, int]:
    check_discount(gamma)
    goals = np.arange(process.states) if goals is None else np.asarray(goals)
    check_within("goals", goals, process.states)
    together = min(GOALS_TOGETHER, len(goals))
    blocks = np.resize(goals, (-(-len(goals) // together), together))  # the last block is filled with goals seen before
    with jax.enable_x64(True):
        v, sweeps = _value_iteration(process.successors, process.probabilities, blocks, gamma)
        values, most = np.asarray(v), int(sweeps.max())
    return values.transpose(1, 0, 2).reshape(process.states, -1)[:, : len(goals)], most


def state_action_values(process: Process, v: np.ndarray, gamma: float) -> np.ndarray:
    """Q(s, a, g) of V(s, g), every state a goal: 1 at the goal, gamma E[V(s', g)] elsewhere. (S, A, S)."""
    q = gamma * np.einsum("sak,sakg->sag", process.probabilities, v[process.successors])
    q[np.arange(process.states), :, np.arange(process.states)] = 1
    return q


# --- the luckiest route ---


def graph_distances(process: Process) -> np.ndarray:
    """d_G(s, g): the fewest steps if the randomness always goes the agent's way; infinite where there is no way."""
    return shortest_path(process.graph, unweighted=True)


def divide_and_conquer_values(process: Process, gamma: float) -> np.ndarray:
    """V_DC = gamma^d_G, what the transitive update converges to (Proposition 1)."""
    check_discount(gamma)
    return gamma ** graph_distances(process)


def diameter(distances: np.ndarray) -> int:
    """The largest finite distance."""
    return int(distances[np.isfinite(distances)].max())


def forced(process: Process) -> np.ndarray:
    """(S, S): whether some action leads from s to g with certainty."""
    return np.any(process.dense > 1 - 1e-9, axis=1)


def surely_shortest(process: Process) -> np.ndarray:
    """(S, S): whether some policy reaches g from s in exactly d_G(s, g) steps, whatever happens.

    It must take, at every step, an action all of whose outcomes are one step closer and have such a policy too. Where
    there is no way at all, every policy arrives after exactly infinity steps.
    """
    d = graph_distances(process)
    sure = (d == 0) | np.isinf(d)
    possible = process.probabilities > 0
    for steps in range(1, diameter(d) + 1):
        good = (sure & (d == steps - 1))[process.successors] | ~possible[..., None]  # (S, A, K, G)
        sure |= (d == steps) & good.all(2).any(1)
    return sure


# --- the behaviour ---


def occupancy(process: Process, beta: np.ndarray, gamma: float) -> np.ndarray:
    """mu(g | s): where the behaviour is when it ends, if each step is the last with probability 1 - gamma. (S, S)."""
    check_discount(gamma)
    chain = process.under(beta)
    mu = (1 - gamma) * np.linalg.inv(np.eye(process.states) - gamma * chain)
    return np.where(
        np.isfinite(shortest_path(chain > 0, unweighted=True)), mu, 0.0
    )  # no rounding where there is no way


def behaviour_values(process: Process, beta: np.ndarray, gamma: float) -> np.ndarray:
    """V^beta(s, g) = E[gamma^T] of the behaviour's arrival, (S, S).

    One matrix inverse for all goals, by the identity mu(g | s) = V(s, g) mu(g | g): to be at g in the end one first
    has to arrive there. `theory.checks` compares it with `arrival_values`.
    """
    mu = occupancy(process, beta, gamma)
    return mu / np.diagonal(mu)


def arrival_values(process: Process, beta: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """V^beta (S, S) and Q^beta (S, A, S) from the definition, slowly: for each goal a linear system over pairs (s, a).

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
    """h(s, a, s', g) of equation 9 by occupancies, for each listed successor s' and every goal: (S, A, K, S).

    NaN where g cannot be reached from s': such a goal is never drawn after s'.
    """
    mu = occupancy(process, beta, gamma)[process.successors]
    average = np.einsum("sak,sakg->sag", process.probabilities, mu)[:, :, None]
    return np.divide(average, mu, out=np.full_like(mu, np.nan), where=mu > 0)

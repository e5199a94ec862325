"""The transitive update of equation 3 and its iterates, for all pairs of states at once."""

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gtrl.theory.process import Process, check_discount

ROWS_PER_BLOCK = 256  # rows of the result that are computed together, so that they stay in the CPU cache
ROUNDING_TOLERANCE = 1e-12  # smaller changes are rounding errors: the product along a path depends on its order


@partial(jax.jit, static_argnames="rows")
def _max_product(left: Array, right: Array, rows: int) -> Array:
    def block(some: Array) -> Array:
        def include(w: Array, best: Array) -> Array:
            return jnp.maximum(best, some[:, w, None] * right[w])

        zeros = jnp.zeros((rows, right.shape[1]), left.dtype)
        return jax.lax.fori_loop(
            0, right.shape[0], include, zeros, unroll=4
        )  # four values of w per pass over the block

    return jax.lax.map(block, left.reshape(-1, rows, left.shape[1])).reshape(-1, right.shape[1])


def max_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the maximum of left[s, w] right[w, g] over w: a matrix product with maximum for sum."""
    rows = min(ROWS_PER_BLOCK, len(left))
    padded = np.pad(left, ((0, -len(left) % rows), (0, 0)))
    with jax.enable_x64(True):
        return np.asarray(_max_product(padded, right, rows))[: len(left)]


# --- over states, as in the propositions ---


def base_cases(process: Process, gamma: float) -> np.ndarray:
    """Returns V_0: 1 at s = g, gamma on the edges of G, 0 elsewhere. (S, S)."""
    check_discount(gamma)
    v = gamma * process.graph.toarray()
    np.fill_diagonal(v, 1)
    return v


def transitive(v: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Returns T V: the base value on base pairs, the maximum of V(s, w) V(w, g) over w elsewhere."""
    return np.where(base > 0, base, max_product(v, v))


def iterates(process: Process, gamma: float) -> Iterator[np.ndarray]:
    """Yields V_0, V_1, ... until the values no longer change; the last is the fixed point."""
    base = v = base_cases(process, gamma)
    yield v
    while True:
        before, v = v, transitive(v, base)
        if np.abs(v - before).max() <= ROUNDING_TOLERANCE:
            return
        yield v


# --- over states and actions, as in equation 3 ---


def base_cases_of_actions(process: Process, gamma: float) -> np.ndarray:
    """Returns Q_0: 1 at s = g, gamma where a can lead from s to g in one step, 0 elsewhere. (S, A, S)."""
    check_discount(gamma)
    q = np.where(process.dense > 0, gamma, 0.0)
    q[np.arange(process.states), :, np.arange(process.states)] = 1
    return q


def transitive_of_actions(q: np.ndarray, base: np.ndarray, *, through_itself: bool = True) -> np.ndarray:
    """Equation 3: the maximum of Q(s, a, w) Q(w, a_w, g) over w and a_w, the base value on base pairs. (S, A, S).

    As written, w = s is one of the subgoals. Then the first factor is 1 and the second may take any action, so every
    action gets the value of the best one. `through_itself=False` excludes w = s. In that case an action that stays in
    its state keeps the value 0 for all other goals, because its only base case is s = g.
    """
    states, actions, _ = q.shape
    first = q.copy()
    if not through_itself:
        first[np.arange(states), :, np.arange(states)] = 0
    product = max_product(first.reshape(-1, states), q.max(1)).reshape(states, actions, states)
    return np.where(base > 0, base, product)


def iterate_actions(process: Process, gamma: float, *, through_itself: bool = True) -> np.ndarray:
    """Returns the fixed point of equation 3, iterated from its base cases. (S, A, S)."""
    base = q = base_cases_of_actions(process, gamma)
    while True:
        before, q = q, transitive_of_actions(q, base, through_itself=through_itself)
        if np.abs(q - before).max() <= ROUNDING_TOLERANCE:
            return q

"""The transitive update of equation 3 and its iterates, over every pair at once."""

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gtrl.theory.process import Process, check_discount

ROWS_TOGETHER = 256  # so many rows of the result are built at once: they stay in the cache
ROUNDING = 1e-12  # values that agree to this are the same: products of one path differ with their order


@partial(jax.jit, static_argnames="rows")
def _max_product(left: Array, right: Array, rows: int) -> Array:
    def block(some: Array) -> Array:
        through = lambda w, best: jnp.maximum(best, some[:, w, None] * right[w])  # noqa: E731
        nothing = jnp.zeros((rows, right.shape[1]), left.dtype)
        return jax.lax.fori_loop(0, right.shape[0], through, nothing, unroll=4)  # four to a pass over the block

    return jax.lax.map(block, left.reshape(-1, rows, left.shape[1])).reshape(-1, right.shape[1])


def max_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The largest left[s, w] right[w, g] over w."""
    rows = min(ROWS_TOGETHER, len(left))
    padded = np.pad(left, ((0, -len(left) % rows), (0, 0)))
    with jax.enable_x64(True):
        return np.asarray(_max_product(padded, right, rows))[: len(left)]


# --- over states, as the propositions have it ---


def base_cases(process: Process, gamma: float) -> np.ndarray:
    """V_0: 1 at s = g, gamma on the edges of G, 0 elsewhere. (S, S)."""
    check_discount(gamma)
    v = gamma * process.graph.toarray()
    np.fill_diagonal(v, 1)
    return v


def transitive(v: np.ndarray, base: np.ndarray) -> np.ndarray:
    """T V: the base value on base pairs, the largest V(s, w) V(w, g) over w elsewhere."""
    return np.where(base > 0, base, max_product(v, v))


def iterates(process: Process, gamma: float) -> Iterator[np.ndarray]:
    """V_0, V_1, ... until nothing changes; the last is the fixed point."""
    base = v = base_cases(process, gamma)
    yield v
    while True:
        before, v = v, transitive(v, base)
        if np.abs(v - before).max() <= ROUNDING:
            return
        yield v


# --- over states and actions, as equation 3 is written ---


def base_cases_of_actions(process: Process, gamma: float) -> np.ndarray:
    """Q_0: 1 at s = g, gamma where a can lead from s to g in one step, 0 elsewhere. (S, A, S)."""
    check_discount(gamma)
    q = np.where(process.dense > 0, gamma, 0.0)
    q[np.arange(process.states), :, np.arange(process.states)] = 1
    return q


def transitive_of_actions(q: np.ndarray, base: np.ndarray, *, through_itself: bool = True) -> np.ndarray:
    """Equation 3: the largest Q(s, a, w) Q(w, a_w, g) over w and a_w, the base value on base pairs. (S, A, S).

    As written, w = s is among the sub-goals. Its first factor is 1 and its second has an action of its own, so every
    action gets the value of the best one. `through_itself=False` leaves it out. Then an action that stays where it is
    composes with nothing and keeps 0: its base case says 1 for being there, not gamma for coming back.
    """
    states, actions, _ = q.shape
    first = q.copy()
    if not through_itself:
        first[np.arange(states), :, np.arange(states)] = 0
    product = max_product(first.reshape(-1, states), q.max(1)).reshape(states, actions, states)
    return np.where(base > 0, base, product)


def iterate_actions(process: Process, gamma: float, *, through_itself: bool = True) -> np.ndarray:
    """The fixed point of equation 3 from its base cases. (S, A, S)."""
    base = q = base_cases_of_actions(process, gamma)
    while True:
        before, q = q, transitive_of_actions(q, base, through_itself=through_itself)
        if np.abs(q - before).max() <= ROUNDING:
            return q

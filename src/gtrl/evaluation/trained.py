"""The trained networks of a run, seed by seed, as functions of NumPy arrays."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np

from gtrl.runs.restore import load_state
from gtrl.runs.run import Run

BLOCK_ROWS = 2048  # rows per call: one shape, so that each function is compiled once


class TrainedNets:
    """The method of a run and its networks at a checkpoint. `index` is the position of a seed in `run.seeds`."""

    def __init__(self, run: Run, step: int) -> None:
        self.run, self.step = run, step
        self.algorithm, self.nets = load_state(run, step)
        self._value = jax.jit(self.algorithm.value)
        self._action_value = jax.jit(self.algorithm.action_value)
        # Gaussian policies do not use the key; the actions of others are samples.
        self._act = jax.jit(partial(self.algorithm.act, key=jax.random.key(0)))

    def of_seed(self, index: int) -> Any:
        """Returns the networks of one seed, without the axis of seeds."""
        return jax.tree.map(lambda leaf: leaf[index], self.nets)

    @cached_property
    def has_value(self) -> bool:
        """Whether the method has a value function V(s, g)."""
        sizes = self.run.config["data"]
        state, goal = (jax.ShapeDtypeStruct((1, sizes[f"{name}_dim"]), "float32") for name in ("observation", "goal"))
        return jax.eval_shape(self.algorithm.value, jax.eval_shape(self.of_seed, 0), state, goal) is not None

    def values(self, index: int, observations: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """Returns V(s, g) of each row, (N,). Only for methods that have a value."""
        return _by_block(partial(self._value, self.of_seed(index)), observations, goals)

    def actions(self, index: int, observations: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """Returns the policy's action for each row, (N, action_dim)."""
        return _by_block(partial(self._act, self.of_seed(index)), observations, goals)

    def action_values(self, index: int, observations: Any, actions: Any, goals: Any) -> np.ndarray | None:
        """Returns what the policy maximises over actions, for each row, (N,); None if it maximises no critic."""
        return _by_block(partial(self._action_value, self.of_seed(index)), observations, actions, goals)


def _by_block(function: Callable[..., Any], *arrays: Any) -> Any:
    """Applies a function to blocks of `BLOCK_ROWS` rows and concatenates the results; None if it returns None."""
    inputs = [np.asarray(array, np.float32) for array in arrays]
    count = len(inputs[0])
    results = []
    for start in range(0, max(count, 1), BLOCK_ROWS):
        blocks = [array[start : start + BLOCK_ROWS] for array in inputs]
        missing = BLOCK_ROWS - len(blocks[0])
        result = function(*(np.pad(block, ((0, missing), (0, 0))) for block in blocks))
        if result is None:
            return None
        results.append(np.asarray(result))
    return np.concatenate(results)[:count]

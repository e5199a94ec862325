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
    """The method of a run and its networks at a checkpoint. `index` is the position of a seed in `run.seeds`.

    Observations, goals and actions are in the units of the data, or with `scaled` in those of the networks, in which
    a loaded dataset is.
    """

    def __init__(self, run: Run, step: int) -> None:
        self.run, self.step = run, step
        self.scaling = run.scaling
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

    def values(self, index: int, observations: Any, goals: Any, *, scaled: bool = False) -> np.ndarray:
        """Returns V(s, g) of each row, (N,). Only for methods that have a value."""
        rows = self._in_network_units(scaled, observation=observations, goal=goals)
        return _by_block(partial(self._value, self.of_seed(index)), *rows)

    def actions(self, index: int, observations: Any, goals: Any, *, scaled: bool = False) -> np.ndarray:
        """Returns the policy's action for each row, (N, action_dim)."""
        rows = self._in_network_units(scaled, observation=observations, goal=goals)
        actions = _by_block(partial(self._act, self.of_seed(index)), *rows)
        return actions if scaled or self.scaling is None else self.scaling.raw_action(actions)

    def action_values(
        self, index: int, observations: Any, actions: Any, goals: Any, *, scaled: bool = False
    ) -> np.ndarray | None:
        """Returns what the policy maximises over actions, for each row, (N,); None if it maximises no critic."""
        rows = self._in_network_units(scaled, observation=observations, action=actions, goal=goals)
        return _by_block(partial(self._action_value, self.of_seed(index)), *rows)

    def _in_network_units(self, scaled: bool, **arrays: Any) -> list[Any]:
        """Returns the arrays, scaled unless they are already."""
        if scaled or self.scaling is None:
            return list(arrays.values())
        return [getattr(self.scaling, name)(array) for name, array in arrays.items()]


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

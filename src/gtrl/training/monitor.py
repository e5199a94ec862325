"""What is measured of the states besides the loss: held-out data, and the range of the values."""

from functools import partial

import jax
from jax import Array

from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Dataset
from gtrl.training.config import Update
from gtrl.training.devices import each_seed
from gtrl.training.loop import State, loss_of

VALIDATION_BATCHES = 8
VALUES = 256  # of a look at a critic's values


@partial(jax.jit, static_argnames=("algorithm", "how"))
def validate(algorithm: Algorithm, how: Update, states: State, keys: Array, dataset: Dataset) -> dict:
    """The same metrics on held-out data, averaged over a few batches; a stream of keys of its own."""

    def one_seed(state: State, key: Array, dataset: Dataset) -> dict:
        key = jax.random.fold_in(jax.random.fold_in(key, 2**32 - 2), state.step)
        metric = lambda key: loss_of(algorithm, how, state.nets, state.target, dataset, key)[1]  # noqa: E731
        metrics = jax.lax.map(metric, jax.random.split(key, VALIDATION_BATCHES))
        return jax.tree.map(lambda values: values.mean(0), metrics)

    return each_seed(how, one_seed, states, keys, dataset)


@partial(jax.jit, static_argnames=("algorithm", "how"))
def values(algorithm: Algorithm, how: Update, states: State, keys: Array, dataset: Dataset) -> dict:
    """The least and the greatest of a batch of values and their standard deviation; nothing for methods without."""

    def one_seed(state: State, key: Array, dataset: Dataset) -> dict:
        key = jax.random.fold_in(jax.random.fold_in(key, 2**32 - 3), state.step)
        batch = Algorithm.sample(algorithm, key, dataset, VALUES)  # a method's own batch may have other fields
        found = algorithm.value(state.nets, batch.observation, batch.value_goal_oracle)
        if found is None:
            return {}
        return {"value/least": found.min(), "value/greatest": found.max(), "value/spread": found.std()}

    return each_seed(how, one_seed, states, keys, dataset)

"""Measurements of the states in addition to the loss: metrics on held-out data, and the range of the values."""

from functools import partial

import jax
from jax import Array

from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Dataset
from gtrl.training.config import Update
from gtrl.training.devices import map_seeds
from gtrl.training.loop import State, loss_of

VALIDATION_BATCHES = 8  # averaged in each validation
VALUE_SAMPLES = 256  # pairs of state and goal at which the range of values is measured


@partial(jax.jit, static_argnames=("algorithm", "update"))
def validate(algorithm: Algorithm, update: Update, states: State, keys: Array, dataset: Dataset) -> dict:
    """Returns the metrics of training on held-out data, averaged over `VALIDATION_BATCHES`.

    Its random keys differ from those of training, which it does not influence.
    """

    def one_seed(state: State, key: Array, dataset: Dataset) -> dict:
        key = jax.random.fold_in(jax.random.fold_in(key, 2**32 - 2), state.step)
        metric = lambda key: loss_of(algorithm, update, state.nets, state.target, dataset, key)[1]  # noqa: E731
        metrics = jax.lax.map(metric, jax.random.split(key, VALIDATION_BATCHES))
        return jax.tree.map(lambda values: values.mean(0), metrics)

    return map_seeds(update, one_seed, states, keys, dataset)


@partial(jax.jit, static_argnames=("algorithm", "update"))
def value_range(algorithm: Algorithm, update: Update, states: State, keys: Array, dataset: Dataset) -> dict:
    """Returns minimum, maximum and standard deviation of a sample of values; nothing for methods without values."""

    def one_seed(state: State, key: Array, dataset: Dataset) -> dict:
        key = jax.random.fold_in(jax.random.fold_in(key, 2**32 - 3), state.step)
        # The default sampler: a batch of the method's own may have other fields.
        batch = Algorithm.sample(algorithm, key, dataset, VALUE_SAMPLES)
        values = algorithm.value(state.nets, batch.observation, batch.value_goal_oracle)
        if values is None:
            return {}
        return {"value/least": values.min(), "value/greatest": values.max(), "value/spread": values.std()}

    return map_seeds(update, one_seed, states, keys, dataset)

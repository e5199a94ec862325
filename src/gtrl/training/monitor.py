"""Measurements of the states in addition to the loss: on held-out data, of the values, and of the policy."""

from functools import partial
from typing import Any

import jax
from jax import Array

from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Dataset
from gtrl.data.sampling import Batch
from gtrl.training.config import Update
from gtrl.training.devices import map_seeds
from gtrl.training.loop import State, loss_of

VALIDATION_BATCHES = 8  # averaged in each validation
MEASURED_ROWS = 256  # rows of the data at which values and the policy are measured


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
def measure(algorithm: Algorithm, update: Update, states: State, keys: Array, dataset: Dataset) -> dict:
    """Returns `value_range` and `policy_advantage` of each seed on one sample of the data.

    One program for both, because compiling takes longer than running it.
    """

    def one_seed(state: State, key: Array, dataset: Dataset) -> dict:
        key = jax.random.fold_in(jax.random.fold_in(key, 2**32 - 3), state.step)
        # The default sampler: a batch of the method's own may have other fields.
        batch = Algorithm.sample(algorithm, key, dataset, MEASURED_ROWS)
        action_key = jax.random.fold_in(key, 1)
        return value_range(algorithm, state.nets, batch) | policy_advantage(algorithm, state.nets, batch, action_key)

    return map_seeds(update, one_seed, states, keys, dataset)


def value_range(algorithm: Algorithm, nets: Any, batch: Batch) -> dict[str, Array]:
    """Returns minimum, maximum and standard deviation of a sample of values; nothing for methods without values."""
    values = algorithm.value(nets, batch.observation, batch.value_goal_oracle)
    if values is None:
        return {}
    return {"value/least": values.min(), "value/greatest": values.max(), "value/spread": values.std()}


def policy_advantage(algorithm: Algorithm, nets: Any, batch: Batch, key: Array) -> dict[str, Array]:
    """Returns whether the policy's actions raise the critic above the logged actions, on the policy's goals.

    `policy/advantage` is the mean difference, on the scale of `Algorithm.action_value`; `policy/raises_critic` is the
    share of rows where it is positive. Nothing for methods whose policy maximises no critic.
    """
    s, g = batch.observation, batch.actor_goal
    logged = algorithm.action_value(nets, s, batch.action, g)
    if logged is None:
        return {}
    chosen: Any = algorithm.action_value(nets, s, algorithm.act(nets, s, g, key), g)
    return {"policy/advantage": (chosen - logged).mean(), "policy/raises_critic": (chosen > logged).mean()}

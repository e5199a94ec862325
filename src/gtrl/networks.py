"""Networks: Equinox modules that hold arrays only. Their forward pass is `gtrl.mlp.forward`."""

from itertools import accumulate, pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from gtrl import mlp

ENSEMBLE = 2


class Spec(NamedTuple):
    """The sizes a dataset has."""

    observation_dim: int
    action_dim: int
    goal_dim: int


def init_mlp(key: Array, sizes: tuple[int, ...], last_scale: float = 1.0) -> tuple[mlp.Layer, ...]:
    """Fan-average uniform weights (variance times `last_scale` in the last layer), zero biases.

    One draw for all layers: XLA compiles every use of the generator anew, and slowly.
    """
    shapes = list(pairwise(sizes))
    counts = [fan_in * fan_out for fan_in, fan_out in shapes]
    uniform = jax.random.uniform(key, (sum(counts),), minval=-1.0, maxval=1.0)
    layers = []
    for depth, (shape, start) in enumerate(zip(shapes, accumulate(counts, initial=0), strict=False)):
        last = depth == len(shapes) - 1
        limit = (6.0 * (last_scale if last else 1.0) / sum(shape)) ** 0.5
        weight = limit * uniform[start : start + counts[depth]].reshape(shape)
        norm = (None, None) if last else (jnp.ones(shape[1]), jnp.zeros(shape[1]))
        layers.append(mlp.Layer(weight, jnp.zeros(shape[1]), *norm))
    return tuple(layers)


class Critic(eqx.Module):
    """An ensemble of critics: (observation, action, goal) to one logit each; the value is its sigmoid."""

    layers: tuple[mlp.Layer, ...]

    @classmethod
    def init(cls, key: Array, inputs: int, hidden: tuple[int, ...]) -> "Critic":
        sizes = (inputs, *hidden, 1)
        return cls(jax.vmap(lambda member: init_mlp(member, sizes))(jax.random.split(key, ENSEMBLE)))

    def __call__(self, observation: Array, action: Array, goal: Array) -> Array:
        """Logits (ensemble, B)."""
        return mlp.forward(self.layers, jnp.concatenate([observation, action, goal], -1), jnp)[..., 0]

    def many(self, *queries: tuple[Array, Array, Array]) -> list[Array]:
        """Several equally long queries in one forward pass: fewer, larger matrix products."""
        columns = [jnp.concatenate(column) for column in zip(*queries, strict=True)]
        return jnp.split(self(*columns), len(queries), axis=-1)


class Actor(eqx.Module):
    """The mean of a Gaussian policy with unit standard deviation: (observation, goal) to action."""

    layers: tuple[mlp.Layer, ...]

    @classmethod
    def init(cls, key: Array, spec: Spec, hidden: tuple[int, ...]) -> "Actor":
        sizes = (spec.observation_dim + spec.goal_dim, *hidden, spec.action_dim)
        return cls(init_mlp(key, sizes, last_scale=0.01))

    def __call__(self, observation: Array, goal: Array) -> Array:
        return mlp.forward(self.layers, jnp.concatenate([observation, goal], -1), jnp)


class ActorCritic(eqx.Module):
    """What a method with a critic trains.

    `critic` reads whole states as goals, because a composition needs its sub-goal to be a state;
    `oracle_critic` reads the task's goal and is distilled from it. Where goals are whole states the
    one critic does both, and `oracle_critic` is None.
    """

    critic: Critic
    oracle_critic: Critic | None
    actor: Actor

    @classmethod
    def init(cls, key: Array, spec: Spec, hidden: tuple[int, ...], distill: bool) -> "ActorCritic":
        critic_key, oracle_key, actor_key = jax.random.split(key, 3)
        inputs = spec.observation_dim + spec.action_dim
        return cls(
            critic=Critic.init(critic_key, inputs + spec.observation_dim, hidden),
            oracle_critic=Critic.init(oracle_key, inputs + spec.goal_dim, hidden) if distill else None,
            actor=Actor.init(actor_key, spec, hidden),
        )

    @property
    def acting_critic(self) -> Critic:
        """The critic that policy extraction reads."""
        return self.critic if self.oracle_critic is None else self.oracle_critic

    def value(self, observation: Array, goal: Array) -> Array:
        """V(s, g) = min over the ensemble of Q(s, clip(pi(s, g)), g)."""
        action = jnp.clip(self.actor(observation, goal), -1, 1)
        return jax.nn.sigmoid(self.acting_critic(observation, action, goal)).min(0)

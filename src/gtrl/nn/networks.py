"""Networks: Equinox modules that hold arrays only. Their forward pass is `gtrl.io.mlp.forward`, or a faster one."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from gtrl.data.dataset import Spec
from gtrl.io import mlp
from gtrl.io.mlp_file import MLP, Arrays, Header
from gtrl.nn import kernels, speed

ENSEMBLE = 2


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


def init_ensemble(key: Array, sizes: tuple[int, ...], members: int = ENSEMBLE) -> tuple[mlp.Layer, ...]:
    """Independent multilayer perceptrons behind one leading axis."""
    return jax.vmap(lambda member: init_mlp(member, sizes))(jax.random.split(key, members))


def forward(layers: Sequence[mlp.Layer], x: Array) -> Array:
    """`mlp.forward` of (B, in) or (members, B, in), in the way that `gtrl.nn.speed` says."""
    members = len(layers[0].weight) if layers[0].weight.ndim == 3 else 0
    if members and speed.used("apart"):
        each = [jax.tree.map(lambda leaf, index=index: leaf[index], layers) for index in range(members)]
        inputs = [x] * members if x.ndim == 2 else x
        return jnp.stack([forward(*pair) for pair in zip(each, inputs, strict=True)])
    if speed.used("kernels"):
        return kernels.forward(layers, x)
    return mlp.forward(layers, x, jnp)


class Network(eqx.Module):
    """A multilayer perceptron, or several behind a leading axis, on its inputs side by side."""

    layers: tuple[mlp.Layer, ...]

    def __call__(self, *inputs: Array) -> Array:
        return self.read(forward(self.layers, jnp.concatenate(inputs, -1)))

    def read(self, output: Array) -> Array:
        """What the last layer's output stands for."""
        return output


class Critic(Network):
    """An ensemble with one number each: of (observation, action, goal), or of (observation, goal)."""

    @classmethod
    def init(cls, key: Array, inputs: int, hidden: tuple[int, ...], members: int = ENSEMBLE) -> "Critic":
        return cls(init_ensemble(key, (inputs, *hidden, 1), members))

    def read(self, output: Array) -> Array:
        """(ensemble, B): logits where values are sigmoids, else the values themselves."""
        return output[..., 0]


class Actor(Network):
    """The mean of a Gaussian policy with unit standard deviation: (observation, goal) to action."""

    def export(self) -> tuple[Arrays, Header]:
        """What a policy file holds of it."""
        arrays, header = MLP(self.layers).export()
        return arrays, {"kind": "gaussian", **header}

    @classmethod
    def init(cls, key: Array, spec: Spec, hidden: tuple[int, ...]) -> "Actor":
        sizes = (spec.observation_dim + spec.goal_dim, *hidden, spec.action_dim)
        return cls(init_mlp(key, sizes, last_scale=0.01))

    def act(self, observation: Array, goal: Array, key: Array) -> Array:
        """The mean: it needs no luck."""
        del key
        return self(observation, goal)


class FlowActor(eqx.Module):
    """A velocity field: (observation, goal, x, t) to the velocity of x; Euler steps carry noise to an action."""

    layers: tuple[mlp.Layer, ...]
    steps: int = eqx.field(static=True)

    @classmethod
    def init(cls, key: Array, spec: Spec, hidden: tuple[int, ...], steps: int) -> "FlowActor":
        inputs = spec.observation_dim + spec.goal_dim + spec.action_dim + 1
        return cls(init_mlp(key, (inputs, *hidden, spec.action_dim), last_scale=0.01), steps)

    def export(self) -> tuple[Arrays, Header]:
        """What a policy file holds of it."""
        arrays, header = MLP(self.layers).export()
        return arrays, {"kind": "flow", "flow_steps": self.steps, **header}

    def velocity(self, observation: Array, goal: Array, x: Array, t: Array) -> Array:
        return forward(self.layers, jnp.concatenate([observation, goal, x, t], -1))

    def __call__(self, observation: Array, goal: Array, noise: Array) -> Array:
        velocity = partial(mlp.forward, self.layers, xp=jnp)
        return mlp.integrate_flow(velocity, jnp.concatenate([observation, goal], -1), noise, self.steps, jnp)

    def act(self, observation: Array, goal: Array, key: Array) -> Array:
        """Where fresh noise is carried."""
        noise = jax.random.normal(key, (*observation.shape[:-1], self.layers[-1].bias.shape[-1]))
        return self(observation, goal, noise)


class Bilinear(eqx.Module):
    """An ensemble of inner products: phi(s, a) . psi(g) / sqrt(d)."""

    phi: Network
    psi: Network

    @classmethod
    def init(cls, key: Array, spec: Spec, hidden: tuple[int, ...], latent: int) -> "Bilinear":
        phi_key, psi_key = jax.random.split(key)
        inputs = spec.observation_dim + spec.action_dim
        phi = init_ensemble(phi_key, (inputs, *hidden, latent))
        return cls(Network(phi), Network(init_ensemble(psi_key, (spec.goal_dim, *hidden, latent))))

    def __call__(self, observation: Array, action: Array, goal: Array) -> Array:
        """(ensemble, B): each row with its own goal."""
        phi, psi = self.phi(observation, action), self.psi(goal)
        return (phi * psi).sum(-1) / phi.shape[-1] ** 0.5

    def contrast(self, observation: Array, action: Array, goal: Array) -> Array:
        """(ensemble, B, B): row i with the goal of every row j."""
        phi, psi = self.phi(observation, action), self.psi(goal)
        return jnp.einsum("eik,ejk->eij", phi, psi) / phi.shape[-1] ** 0.5


class Quasimetric(eqx.Module):
    """Interval quasimetric embedding: a distance between embedded states that obeys the triangle inequality.

    An embedding falls into components of a few numbers each. From u to v a component measures the length of
    the union of the intervals from u_i up to v_i (empty where v_i lies below); the distance is a learned
    mixture of their mean and their maximum. Wang and Isola 2022.
    """

    phi: Network
    mixture: Array  # logit of the mean's share
    component: int = eqx.field(static=True)

    @classmethod
    def init(cls, key: Array, inputs: int, hidden: tuple[int, ...], latent: int, component: int) -> "Quasimetric":
        return cls(Network(init_mlp(key, (inputs, *hidden, latent))), jnp.zeros(()), component)

    def distance(self, u: Array, v: Array) -> Array:
        """From embedding u to embedding v, (B,)."""
        lengths = interval_union(*(x.reshape(*x.shape[:-1], -1, self.component) for x in (u, v)))
        share = jax.nn.sigmoid(self.mixture.astype(jnp.float32))
        return share * lengths.mean(-1) + (1 - share) * lengths.max(-1)


def interval_union(low: Array, high: Array) -> Array:
    """The length of the union of the intervals [low_i, high_i] over the last axis; one with high_i < low_i is empty.

    Each interval adds what sticks out over those that begin before it: no sorting, and a gradient everywhere.
    """
    count = low.shape[-1]
    earlier = jnp.arange(count)[:, None] > jnp.arange(count)  # among equal beginnings, by position
    before = (low[..., None, :] < low[..., :, None]) | ((low[..., None, :] == low[..., :, None]) & earlier)
    covered = jnp.where(before, high[..., None, :], low[..., :, None]).max(-1)
    return jax.nn.relu(high - covered).sum(-1)


def at_policy(actor: Actor, critic: Critic | Bilinear, observation: Array, goal: Array) -> Array:
    """The critic's smaller estimate at the policy's clipped mean action, (B,)."""
    return critic(observation, jnp.clip(actor(observation, goal), -1, 1), goal).min(0)


class ActorCritic(eqx.Module):
    """What most methods with a critic train.

    A critic that composes reads whole states as goals, for a sub-goal has to be a state; `oracle_critic` then reads
    the task's goal and is distilled from it. Every other critic reads the task's goal itself: `oracle_critic` is None.
    """

    critic: Critic
    oracle_critic: Critic | None
    actor: Actor

    @classmethod
    def init(cls, key: Array, spec: Spec, hidden: tuple[int, ...], distill: bool = False) -> "ActorCritic":
        critic_key, oracle_key, actor_key = jax.random.split(key, 3)
        inputs = spec.observation_dim + spec.action_dim
        return cls(
            critic=Critic.init(critic_key, inputs + (spec.observation_dim if distill else spec.goal_dim), hidden),
            oracle_critic=Critic.init(oracle_key, inputs + spec.goal_dim, hidden) if distill else None,
            actor=Actor.init(actor_key, spec, hidden),
        )

    @property
    def acting_critic(self) -> Critic:
        """The critic that policy extraction reads."""
        return self.critic if self.oracle_critic is None else self.oracle_critic

    def value(self, observation: Array, goal: Array) -> Array:
        """V(s, g) = min over the ensemble of Q(s, clip(pi(s, g)), g)."""
        return jax.nn.sigmoid(at_policy(self.actor, self.acting_critic, observation, goal))

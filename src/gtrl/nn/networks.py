"""Networks as Equinox modules. Their forward pass is that of `gtrl.io.mlp.forward`, or an optimised version of it."""

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

ENSEMBLE = 2  # networks in the ensemble of a critic


def init_mlp(
    key: Array, sizes: tuple[int, ...], last_scale: float = 1.0, layer_norm: bool = True
) -> tuple[mlp.Layer, ...]:
    """Returns layers with fan-average uniform weights (variance times `last_scale` in the last layer) and zero biases.

    `layer_norm` is that of the hidden layers. All weights come from one random draw, as XLA compiles each use of the
    generator separately, and slowly.
    """
    shapes = list(pairwise(sizes))
    counts = [fan_in * fan_out for fan_in, fan_out in shapes]
    uniform = jax.random.uniform(key, (sum(counts),), minval=-1.0, maxval=1.0)
    layers = []
    for depth, (shape, start) in enumerate(zip(shapes, accumulate(counts, initial=0), strict=False)):
        last = depth == len(shapes) - 1
        limit = (6.0 * (last_scale if last else 1.0) / sum(shape)) ** 0.5
        weight = limit * uniform[start : start + counts[depth]].reshape(shape)
        norm = (jnp.ones(shape[1]), jnp.zeros(shape[1])) if layer_norm and not last else (None, None)
        layers.append(mlp.Layer(weight, jnp.zeros(shape[1]), *norm))
    return tuple(layers)


def init_ensemble(key: Array, sizes: tuple[int, ...], members: int = ENSEMBLE) -> tuple[mlp.Layer, ...]:
    """Returns the layers of independent multilayer perceptrons, stacked along a leading axis."""
    return jax.vmap(lambda member: init_mlp(member, sizes))(jax.random.split(key, members))


def forward(layers: Sequence[mlp.Layer], x: Array) -> Array:
    """`mlp.forward` of (B, in) or (members, B, in), with the optimisations that `gtrl.nn.speed` has enabled."""
    members = len(layers[0].weight) if layers[0].weight.ndim == 3 else 0
    if members and speed.is_enabled("apart"):
        member_layers = [jax.tree.map(lambda leaf, index=index: leaf[index], layers) for index in range(members)]
        inputs = [x] * members if x.ndim == 2 else x
        return jnp.stack([forward(*pair) for pair in zip(member_layers, inputs, strict=True)])
    if speed.is_enabled("kernels"):
        return kernels.forward(layers, x)
    return mlp.forward(layers, x, jnp)


class Network(eqx.Module):
    """A multilayer perceptron, or an ensemble with a leading axis, of the concatenation of its inputs."""

    layers: tuple[mlp.Layer, ...]

    def __call__(self, *inputs: Array) -> Array:
        """Returns the network's result for inputs of shape (B, size)."""
        return self.read(forward(self.layers, jnp.concatenate(inputs, -1)))

    def read(self, output: Array) -> Array:
        """Converts the last layer's output to the result of a call; subclasses override it."""
        return output


class Critic(Network):
    """An ensemble of networks with one output each, for inputs (observation, action, goal) or (observation, goal)."""

    @classmethod
    def init(cls, key: Array, inputs: int, hidden: tuple[int, ...], members: int = ENSEMBLE) -> "Critic":
        """Returns a freshly initialised critic; `inputs` is the total size of its inputs."""
        return cls(init_ensemble(key, (inputs, *hidden, 1), members))

    def read(self, output: Array) -> Array:
        """Returns (ensemble, B): logits for methods whose values are sigmoids, else the values themselves."""
        return output[..., 0]


class Actor(Network):
    """The mean of a Gaussian policy with unit standard deviation: (observation, goal) to action."""

    def export(self) -> tuple[Arrays, Header]:
        """Returns the arrays and the header of a policy file of kind "gaussian"."""
        arrays, header = MLP(self.layers).export()
        return arrays, {"kind": "gaussian", **header}

    @classmethod
    def init(cls, key: Array, spec: Spec, hidden: tuple[int, ...], layer_norm: bool = True) -> "Actor":
        """Returns a freshly initialised actor, whose actions are close to 0."""
        sizes = (spec.observation_dim + spec.goal_dim, *hidden, spec.action_dim)
        return cls(init_mlp(key, sizes, last_scale=0.01, layer_norm=layer_norm))

    def act(self, observation: Array, goal: Array, key: Array) -> Array:
        """Returns the mean action; `key` is not used."""
        del key
        return self(observation, goal)


class FlowActor(eqx.Module):
    """A flow policy: a velocity field over (observation, goal, x, t), integrated from noise to an action."""

    layers: tuple[mlp.Layer, ...]
    steps: int = eqx.field(static=True)  # Euler steps from noise to action

    @classmethod
    def init(cls, key: Array, spec: Spec, hidden: tuple[int, ...], steps: int, layer_norm: bool = True) -> "FlowActor":
        """Returns a freshly initialised flow. Its last layer is not scaled down, as in public code (TRL's FBC)."""
        inputs = spec.observation_dim + spec.goal_dim + spec.action_dim + 1
        return cls(init_mlp(key, (inputs, *hidden, spec.action_dim), layer_norm=layer_norm), steps)

    def export(self) -> tuple[Arrays, Header]:
        """Returns the arrays and the header of a policy file of kind "flow"."""
        arrays, header = MLP(self.layers).export()
        return arrays, {"kind": "flow", "flow_steps": self.steps, **header}

    def velocity(self, observation: Array, goal: Array, x: Array, t: Array) -> Array:
        """Returns the velocity of x at time t."""
        return forward(self.layers, jnp.concatenate([observation, goal, x, t], -1))

    def __call__(self, observation: Array, goal: Array, noise: Array) -> Array:
        """Returns the action that the flow reaches from `noise`."""
        velocity = partial(mlp.forward, self.layers, xp=jnp)
        return mlp.integrate_flow(velocity, jnp.concatenate([observation, goal], -1), noise, self.steps, jnp)

    def act(self, observation: Array, goal: Array, key: Array) -> Array:
        """Returns the action for noise drawn with `key`."""
        noise = jax.random.normal(key, (*observation.shape[:-1], self.layers[-1].bias.shape[-1]))
        return self(observation, goal, noise)


class Bilinear(eqx.Module):
    """An ensemble of inner products phi(s, a) . psi(g) / sqrt(d), where d is the width of phi and psi."""

    phi: Network
    psi: Network

    @classmethod
    def init(cls, key: Array, spec: Spec, hidden: tuple[int, ...], latent: int) -> "Bilinear":
        """Returns freshly initialised phi and psi of width `latent`."""
        phi_key, psi_key = jax.random.split(key)
        inputs = spec.observation_dim + spec.action_dim
        phi = init_ensemble(phi_key, (inputs, *hidden, latent))
        return cls(Network(phi), Network(init_ensemble(psi_key, (spec.goal_dim, *hidden, latent))))

    def __call__(self, observation: Array, action: Array, goal: Array) -> Array:
        """Returns (ensemble, B): the score of each row with its own goal."""
        phi, psi = self.phi(observation, action), self.psi(goal)
        return (phi * psi).sum(-1) / phi.shape[-1] ** 0.5

    def contrast(self, observation: Array, action: Array, goal: Array) -> Array:
        """Returns (ensemble, B, B): the score of each row i with the goal of every row j."""
        phi, psi = self.phi(observation, action), self.psi(goal)
        return jnp.einsum("eik,ejk->eij", phi, psi) / phi.shape[-1] ** 0.5


class Densities(eqx.Module):
    """Two inner products with the same psi(g): phi(s, a) . psi(g) and phi'(s') . psi(g), over sqrt(d).

    Trained to tell the goals that follow from other goals, their difference estimates log p(g | s, a) - log p(g | s').
    """

    phi: Network
    phi_next: Network
    psi: Network

    @classmethod
    def init(cls, key: Array, spec: Spec, hidden: tuple[int, ...], latent: int) -> "Densities":
        """Returns freshly initialised networks of width `latent`; goals are whole states."""
        size = spec.observation_dim
        inputs = (size + spec.action_dim, size, size)
        keys = jax.random.split(key, len(inputs))
        return cls(*(Network(init_mlp(one, (width, *hidden, latent))) for one, width in zip(keys, inputs, strict=True)))

    def contrast(self, observation: Array, action: Array, following: Array, goal: Array) -> tuple[Array, Array]:
        """Returns two (B, B) arrays: the scores of each row i, before and after its step, with the goal of row j."""
        psi = self.psi(goal)
        before, after = self.phi(observation, action), self.phi_next(following)
        return before @ psi.T / psi.shape[-1] ** 0.5, after @ psi.T / psi.shape[-1] ** 0.5

    def log_ratio(self, observation: Array, action: Array, following: Array, goal: Array) -> Array:
        """Returns log p(g | s, a) - log p(g | s') of each row, (B,)."""
        psi = self.psi(goal)
        return ((self.phi(observation, action) - self.phi_next(following)) * psi).sum(-1) / psi.shape[-1] ** 0.5


class Quasimetric(eqx.Module):
    """Interval quasimetric embedding (IQE): a distance between embedded states that obeys the triangle inequality.

    An embedding is divided into components of a few elements each. The distance of a component from u to v is the
    length of the union of the intervals [u_i, v_i], where an interval with v_i < u_i is empty. The distance from u to v
    is a learned mixture of the mean and the maximum over components. Wang and Isola 2022.
    """

    phi: Network
    mixture: Array  # logit of the weight of the mean
    component: int = eqx.field(static=True)  # elements of a component

    @classmethod
    def init(cls, key: Array, inputs: int, hidden: tuple[int, ...], latent: int, component: int) -> "Quasimetric":
        """Returns a freshly initialised embedding of width `latent`; mean and maximum have equal weight."""
        return cls(Network(init_mlp(key, (inputs, *hidden, latent))), jnp.zeros(()), component)

    def distance(self, u: Array, v: Array) -> Array:
        """Returns the distance from embedding u to embedding v, (B,)."""
        lengths = interval_union(*(x.reshape(*x.shape[:-1], -1, self.component) for x in (u, v)))
        mean_weight = jax.nn.sigmoid(self.mixture.astype(jnp.float32))
        return mean_weight * lengths.mean(-1) + (1 - mean_weight) * lengths.max(-1)


def interval_union(low: Array, high: Array) -> Array:
    """Returns the length of the union of the intervals [low_i, high_i] over the last axis.

    An interval with high_i < low_i is empty. Each interval adds its part that lies beyond all intervals that start
    before it. This needs no sorting, and gradients are defined everywhere.
    """
    count = low.shape[-1]
    earlier = jnp.arange(count)[:, None] > jnp.arange(count)  # breaks ties between equal starts
    before = (low[..., None, :] < low[..., :, None]) | ((low[..., None, :] == low[..., :, None]) & earlier)
    covered = jnp.where(before, high[..., None, :], low[..., :, None]).max(-1)
    return jax.nn.relu(high - covered).sum(-1)


def critic_at_policy(actor: Actor, critic: Critic | Bilinear, observation: Array, goal: Array) -> Array:
    """Returns the minimum over the critic's ensemble at the policy's clipped mean action, (B,)."""
    return critic(observation, jnp.clip(actor(observation, goal), -1, 1), goal).min(0)


class ActorCritic(eqx.Module):
    """The networks of most methods with a critic.

    The critic of a method that composes values takes whole states as goals, because a subgoal is a state. Then
    `oracle_critic` takes the task's goal (the oracle goal) and is distilled from `critic`. In other methods `critic`
    takes the task's goal itself and `oracle_critic` is None.
    """

    critic: Critic
    oracle_critic: Critic | None
    actor: Actor

    @classmethod
    def init(
        cls, key: Array, spec: Spec, hidden: tuple[int, ...], distill: bool = False, actor_layer_norm: bool = True
    ) -> "ActorCritic":
        """Returns freshly initialised networks; `distill` adds the oracle critic."""
        critic_key, oracle_key, actor_key = jax.random.split(key, 3)
        inputs = spec.observation_dim + spec.action_dim
        return cls(
            critic=Critic.init(critic_key, inputs + (spec.observation_dim if distill else spec.goal_dim), hidden),
            oracle_critic=Critic.init(oracle_key, inputs + spec.goal_dim, hidden) if distill else None,
            actor=Actor.init(actor_key, spec, hidden, actor_layer_norm),
        )

    @property
    def acting_critic(self) -> Critic:
        """The critic that takes the task's goal; policy extraction uses it."""
        return self.critic if self.oracle_critic is None else self.oracle_critic

    def value(self, observation: Array, goal: Array) -> Array:
        """Returns V(s, g), the minimum over the ensemble of Q(s, clip(pi(s, g)), g)."""
        return jax.nn.sigmoid(critic_at_policy(self.actor, self.acting_critic, observation, goal))


class ActorCriticDensities(ActorCritic):
    """With two networks of the densities of goals."""

    densities: Densities

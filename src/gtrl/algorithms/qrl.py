"""QRL: the largest quasimetric between states in which every logged step has length at most one."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Metrics
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.errors import ConfigError
from gtrl.fields import COUNT, COUNT_OR_NONE, NOT_NEGATIVE, PROBABILITIES, checked
from gtrl.nn.fused import fused
from gtrl.nn.networks import Actor, Critic, Network, Quasimetric, init_mlp
from gtrl.tasks import RANDOM_GOALS, Goals


class Model(eqx.Module):
    """The quasimetric between states, the dynamics of embeddings, and the distance to the task's goal."""

    quasimetric: Quasimetric
    dynamics: Network  # predicts the change of phi(s), given phi(s) and a
    head: Critic  # two networks, whose average predicts the distance, given phi(s) and the task's goal

    def __call__(self, observation: Array, action: Array, goal: Array) -> Array:
        """Returns the policy's objective: minus the predicted distance to the goal after the action; (1, B)."""
        phi = self.quasimetric.phi(observation)
        return -self.to_goal(phi + self.dynamics(phi, action), goal)[None]

    def to_goal(self, phi: Array, goal: Array) -> Array:
        """Returns the predicted distance from an embedding to the task's goal, (B,)."""
        return self.head(phi, goal).mean(0)


class Nets(NamedTuple):
    """Distances, the Lagrange multiplier of their constraint, and the policy."""

    model: Model
    dual: Array  # logarithm of the multiplier
    actor: Actor


@dataclass(frozen=True)
class QRL(Algorithm):
    """Quasimetric RL: the triangle inequality is built into the network. Goals are states from the whole dataset.

    The task's goal is a slice of a state, which phi cannot embed. So a head that takes the task's goal is fitted to the
    distance, as the methods that compose values distil a critic. It is the average of two networks, as in the QRL of
    the public TRL repository; this average is what is fitted.
    """

    name: ClassVar = "qrl"
    title: ClassVar = "QRL"
    family: ClassVar = "triangle inequality"
    idea: ClassVar = "maximise quasimetric distances while every logged step has length at most one"
    reference: ClassVar = "Wang et al. 2023, Quasimetric RL; Wang and Isola 2022, IQE"
    alpha_by_family: ClassVar = {
        "pointmaze": 0.0003,
        "antmaze": 0.003,
        "humanoidmaze": 0.001,
        "antsoccer": 0.003,
        "cube": 0.3,
        "scene": 0.3,
        "puzzle": 0.3,
    }
    mixes_stitch_goals: ClassVar = True  # OGBench

    value_goals: Goals = checked(RANDOM_GOALS, PROBABILITIES)  # critic's goal mixture (current, trajectory, random)
    alpha: float = checked(0.003, NOT_NEGATIVE)  # behaviour cloning coefficient
    slack: float = checked(0.05, NOT_NEGATIVE)  # tolerated mean square of the excess of step lengths over one
    latent: int | None = checked(None, COUNT_OR_NONE)  # width of the embedding phi; by default as the last of `hidden`
    component: int = checked(8, COUNT)  # elements in each component of phi
    actor_layer_norm: bool = False  # layer norm in the policy's hidden layers; none in the QRL of the TRL repository

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.component:
            raise ConfigError(f"latent is {self.latent} and must be a multiple of component, {self.component}.")

    @property
    def width(self) -> int:
        """The width of phi: `latent`, or that of the last hidden layer, rounded up to a multiple of `component`."""
        return self.latent or -(-self.hidden[-1] // self.component) * self.component

    def init(self, key: Array, spec: Spec) -> Nets:
        phi_key, dynamics_key, head_key, actor_key = jax.random.split(key, 4)
        phi = Quasimetric.init(phi_key, spec.observation_dim, self.hidden, self.width, self.component)
        dynamics = Network(init_mlp(dynamics_key, (self.width + spec.action_dim, *self.hidden, self.width)))
        head = Critic.init(head_key, self.width + spec.goal_dim, self.hidden)
        actor = Actor.init(actor_key, spec, self.hidden, self.actor_layer_norm)
        return Nets(Model(phi, dynamics, head), jnp.zeros(()), actor)

    def loss(self, nets: Nets, _: None, batch: Batch, __: Array) -> tuple[Array, Metrics]:
        distance = nets.model.quasimetric.distance
        embed = nets.model.quasimetric.phi
        phi, phi_next, phi_goal = fused(
            (embed, batch.observation), (embed, batch.next_observation), (embed, batch.value_goal)
        )

        # --- distances: as large as possible with steps of length at most one ---
        to_goal, step = distance(phi, phi_goal), distance(phi, phi_next)
        spread = 100 * jax.nn.softplus(5 - to_goal / 100).mean()
        excess = (jax.nn.relu(step - 1) ** 2).mean()
        multiplier = jnp.exp(nets.dual.astype(jnp.float32))
        value_loss = spread + jax.lax.stop_gradient(multiplier) * excess
        dual_loss = multiplier * (self.slack - jax.lax.stop_gradient(excess))

        # --- dynamics: small distance between predicted and next embedding, in both directions ---
        predicted = phi + nets.model.dynamics(phi, batch.action)
        dynamics_loss = (distance(phi_next, predicted) + distance(predicted, phi_next)).mean() / 2

        # --- the distance to the task's goal, and the policy, trained through the dynamics ---
        predicted_distance = nets.model.to_goal(jax.lax.stop_gradient(phi), batch.value_goal_oracle)
        distill_loss = ((predicted_distance - jax.lax.stop_gradient(to_goal)) ** 2).mean()
        actor_loss, metrics = o.ddpg_bc(nets.actor(batch.observation, batch.actor_goal), nets.model, batch, self.alpha)
        metrics |= {"distance": to_goal.mean(), "step_length": step.mean(), "multiplier": multiplier}
        return o.total(
            metrics, value=value_loss, dual=dual_loss, dynamics=dynamics_loss, distill=distill_loss, actor=actor_loss
        )

    def value(self, nets: Nets, observation: Array, goal: Array) -> Array:
        """Returns gamma^d, where d is the predicted distance to the task's goal."""
        distance = nets.model.to_goal(nets.model.quasimetric.phi(observation), goal)
        return self.gamma ** jax.nn.relu(distance)

    def action_value(self, nets: Nets, observation: Array, action: Array, goal: Array) -> Array:
        return nets.model(observation, action, goal).min(0)

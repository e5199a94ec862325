"""CRL: contrastive learning of which goals a trajectory reaches."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Metrics
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.fields import COUNT_OR_NONE, NOT_NEGATIVE, PROBABILITIES, checked
from gtrl.nn.networks import Actor, Bilinear, critic_at_policy
from gtrl.tasks import TRAJECTORY_GOALS, Goals


class Nets(NamedTuple):
    """An ensemble of bilinear critics, and the policy."""

    critic: Bilinear
    actor: Actor


@dataclass(frozen=True)
class CRL(Algorithm):
    """Contrastive RL: classify, among the goals of a batch, the one that the row's own trajectory reached.

    The logit converges to log p(g | s, a) / p(g) minus the logarithm of the batch size.
    """

    name: ClassVar = "crl"
    title: ClassVar = "CRL"
    family: ClassVar = "Monte Carlo"
    idea: ClassVar = "distinguish the goal that was reached from the other goals of the batch"
    reference: ClassVar = "Eysenbach et al. 2022, Contrastive RL"
    trajectory_goals: ClassVar = True
    value_is_return: ClassVar = False
    alpha_by_family: ClassVar = {
        "pointmaze": 0.03,
        "antmaze": 0.1,
        "humanoidmaze": 0.1,
        "antsoccer": 0.3,
        "cube": 3.0,
        "scene": 3.0,
        "puzzle": 3.0,
    }
    mixes_stitch_goals: ClassVar = True  # OGBench

    value_goals: Goals = checked(TRAJECTORY_GOALS, PROBABILITIES)  # critic's goal mixture (current, trajectory, random)
    alpha: float = checked(0.1, NOT_NEGATIVE)  # behaviour cloning coefficient
    latent: int | None = checked(None, COUNT_OR_NONE)  # d, the width of phi and psi; by default as the last of `hidden`

    def init(self, key: Array, spec: Spec) -> Nets:
        critic_key, actor_key = jax.random.split(key)
        critic = Bilinear.init(critic_key, spec, self.hidden, self.latent or self.hidden[-1])
        return Nets(critic, Actor.init(actor_key, spec, self.hidden, self.actor_layer_norm))

    def loss(self, nets: Nets, _: None, batch: Batch, __: Array) -> tuple[Array, Metrics]:
        logits = nets.critic.contrast(batch.observation, batch.action, batch.value_goal_oracle)
        reached = jnp.eye(logits.shape[-1])  # column i is the goal of row i
        critic_loss = o.bce(logits, reached).mean()
        actor_loss, metrics = o.ddpg_bc(nets.actor(batch.observation, batch.actor_goal), nets.critic, batch, self.alpha)
        metrics |= {"recognised": (logits.argmax(-1) == jnp.arange(logits.shape[-1])).mean()}
        return o.total(metrics, critic=critic_loss, actor=actor_loss)

    def value(self, nets: Nets, observation: Array, goal: Array) -> Array:
        """Returns the probability that the goal is the one that was reached, among the goals of a batch."""
        return jax.nn.sigmoid(critic_at_policy(nets.actor, nets.critic, observation, goal))

    def action_value(self, nets: Nets, observation: Array, action: Array, goal: Array) -> Array:
        return nets.critic(observation, action, goal).min(0)

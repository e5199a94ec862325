"""MC: regression on gamma^T, where T is the number of steps that the trajectory took to the goal."""

from dataclasses import dataclass
from typing import ClassVar

import jax
from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Metrics
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.fields import NOT_NEGATIVE, PROBABILITIES, checked
from gtrl.nn.fused import fused
from gtrl.nn.networks import ActorCritic
from gtrl.tasks import TRAJECTORY_GOALS, Goals


@dataclass(frozen=True)
class MC(Algorithm):
    """Monte Carlo regression. It only sees goals that were reached: it overestimates the behaviour policy's value."""

    name: ClassVar = "mc"
    title: ClassVar = "MC"
    family: ClassVar = "Monte Carlo"
    idea: ClassVar = "regress on gamma to the power of the number of steps that the trajectory took"
    reference: ClassVar = "Tian et al. 2021; Shah et al. 2021"
    trajectory_goals: ClassVar = True

    value_goals: Goals = checked(TRAJECTORY_GOALS, PROBABILITIES)  # critic's goal mixture (current, trajectory, random)
    alpha: float = checked(0.1, NOT_NEGATIVE)  # behaviour cloning coefficient

    def init(self, key: Array, spec: Spec) -> ActorCritic:
        return ActorCritic.init(key, spec, self.hidden, actor_layer_norm=self.actor_layer_norm)

    def loss(self, nets: ActorCritic, _: None, batch: Batch, __: Array) -> tuple[Array, Metrics]:
        s, g = batch.observation, batch.value_goal_oracle
        logit, mean = fused((nets.critic, s, batch.action, g), (nets.actor, s, batch.actor_goal))
        critic_loss = o.bce(logit, o.monte_carlo(batch, self.gamma)).mean()
        actor_loss, metrics = o.ddpg_bc(mean, nets.critic, batch, self.alpha)
        return o.total(metrics | {"q": jax.nn.sigmoid(logit).mean()}, critic=critic_loss, actor=actor_loss)

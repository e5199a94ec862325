"""TD and TD-n: temporal differences over one step, and over n."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Metrics
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.fields import COUNT, EXPECTILE, NOT_NEGATIVE, checked
from gtrl.nn.fused import fused
from gtrl.nn.networks import ActorCritic, Critic
from gtrl.tasks import Task


@dataclass(frozen=True)
class TD(Algorithm):
    """The one-step target of equation 6 alone, for every goal.

    Its treatment of the maximum over actions is a reconstruction: the sentence on TD in the paper's appendix on
    baselines calls it IQL's backup over a single step, and leaves open whether with IQL's expectile. Ours: the backup
    reads the action logged at the next state and fits the mean of the targets, so the critic is that of the behaviour
    policy; `kappa` above 0.5 leans towards the largest target instead, over actions and over luck alike.
    """

    name: ClassVar = "td"
    title: ClassVar = "TD"
    family: ClassVar = "temporal difference"
    idea: ClassVar = "a one-step target with the logged next action, for goals from anywhere"
    reference: ClassVar = "Sutton and Barto 2018"
    averaged: ClassVar = "critic"

    alpha: float = checked(0.1, NOT_NEGATIVE)  # behaviour cloning coefficient
    n: int = checked(1, COUNT)  # steps before the target reads the critic
    kappa: float = checked(0.5, EXPECTILE)  # expectile over the targets; 0.5 is their mean

    @property
    def lookahead(self) -> int:
        return self.n

    def init(self, key: Array, spec: Spec) -> ActorCritic:
        return ActorCritic.init(key, spec, self.hidden)

    def loss(self, nets: ActorCritic, target: Critic, batch: Batch, _: Array) -> tuple[Array, Metrics]:
        s, g = batch.observation, batch.value_goal_oracle
        ahead = jax.nn.sigmoid(target(batch.ahead_observation, batch.ahead_action, g))
        y_td = o.n_step(ahead, batch, self.gamma)  # eq. 6, over n steps
        logit, mean = fused((nets.critic, s, batch.action, g), (nets.actor, s, batch.actor_goal))
        critic_loss = o.expectile(logit, y_td, self.kappa).mean()
        actor_loss, metrics = o.ddpg_bc(mean, nets.critic, batch, self.alpha)
        metrics |= {"q": jax.nn.sigmoid(logit).mean(), "y_td": y_td.mean()}
        return o.total(metrics, critic=critic_loss, actor=actor_loss)


@dataclass(frozen=True)
class TDn(TD):
    """TD over n steps, fewer where the goal arrives sooner or the trajectory ends (which does not count as arriving).

    The same sentence has n steps, and fewer where the goal arrives sooner. That the target reads the critic at the
    trajectory's last state where that comes first is ours, as is n where no number is public.
    """

    name: ClassVar = "td-n"
    title: ClassVar = "TD-n"
    idea: ClassVar = "the logged steps up to the goal, or n of them and the critic from there"

    n: int = checked(25, COUNT)

    @classmethod
    def defaults(cls, task: Task) -> dict[str, Any]:
        """25 and 50 are public for large puzzles and humanoid mazes; 25 elsewhere is ours."""
        return super().defaults(task) | {"n": 50 if task.family == "humanoidmaze" else 25}

"""TD and TD-n: temporal-difference learning with one-step and with n-step targets."""

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
    """The one-step target of equation 6 for every goal.

    Its treatment of the maximum over actions is a reconstruction. The paper's appendix on baselines describes TD as
    IQL's backup over a single step, and leaves open whether it uses IQL's expectile. Here the backup uses the action
    logged at the next state and fits the mean of the targets, so the critic is that of the behaviour policy. With
    `kappa` above 0.5 it tends to the largest target instead, over actions and random outcomes alike.
    """

    name: ClassVar = "td"
    title: ClassVar = "TD"
    family: ClassVar = "temporal difference"
    idea: ClassVar = "a one-step target with the logged next action, for goals from anywhere"
    reference: ClassVar = "Sutton and Barto 2018"
    averaged: ClassVar = "critic"

    alpha: float = checked(0.1, NOT_NEGATIVE)  # behaviour cloning coefficient
    n: int = checked(1, COUNT)  # steps of the target before it bootstraps from the critic
    kappa: float = checked(0.5, EXPECTILE)  # expectile over the targets; 0.5 fits their mean

    @property
    def lookahead(self) -> int:
        """The n of the n-step target."""
        return self.n

    def init(self, key: Array, spec: Spec) -> ActorCritic:
        return ActorCritic.init(key, spec, self.hidden, actor_layer_norm=self.actor_layer_norm)

    def loss(self, nets: ActorCritic, target: Critic, batch: Batch, _: Array) -> tuple[Array, Metrics]:
        s, g = batch.observation, batch.value_goal_oracle
        ahead = jax.nn.sigmoid(target(batch.ahead_observation, batch.ahead_action, g))
        y_td = o.n_step(ahead, batch, self.gamma)  # eq. 6, over n steps
        logit, mean = fused((nets.critic, s, batch.action, g), (nets.actor, s, batch.actor_goal))
        critic_loss = (o.n_step_weight(batch) * o.expectile(logit, y_td, self.kappa)).mean()
        actor_loss, metrics = o.ddpg_bc(mean, nets.critic, batch, self.alpha)
        metrics |= {"q": jax.nn.sigmoid(logit).mean(), "y_td": y_td.mean()}
        return o.total(metrics, critic=critic_loss, actor=actor_loss)


@dataclass(frozen=True)
class TDn(TD):
    """TD over n steps, or fewer where the goal or the end of the trajectory comes sooner.

    The end of a trajectory does not count as reaching the goal. The paper specifies n steps, and fewer where the goal
    comes sooner. Two choices are made here: the target bootstraps at the trajectory's last state (with a logged action)
    where that comes first, and n is 25 where no value is public.
    """

    name: ClassVar = "td-n"
    title: ClassVar = "TD-n"
    idea: ClassVar = "the logged steps up to the goal, or n of them and the critic from there"

    n: int = checked(25, COUNT)  # steps of the target before it bootstraps from the critic

    @classmethod
    def defaults(cls, task: Task) -> dict[str, Any]:
        """Returns the task's defaults and n: 50 on humanoid mazes, else 25.

        These are public for humanoid mazes and large puzzles; on other tasks 25 is this package's choice.
        """
        return super().defaults(task) | {"n": 50 if task.family == "humanoidmaze" else 25}

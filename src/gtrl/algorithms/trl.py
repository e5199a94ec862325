"""TRL: divide-and-conquer values by an expectile over subgoals of one trajectory (equation 5)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Lambda, Metrics
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.fields import EXPECTILE, NOT_NEGATIVE, PROBABILITIES, checked
from gtrl.nn.fused import fused
from gtrl.nn.networks import ActorCritic, Critic
from gtrl.tasks import SUBGOAL_EXPECTILE, TRAJECTORY_GOALS, Goals, Task

# (lambda, alpha) of TRL, which are public for these tasks; on other tasks TRL uses those of GTRL. They belong to the
# public code's form of the method: rho read from the target, and the moving average taken before the update.
PUBLISHED_LAMBDA_ALPHA = {
    "scene-play": (1.0, 1.0),
    "cube-single-play": (0.7, 1.0),
    "cube-double-play": (1.0, 10.0),
    "puzzle-3x3-play": (0.5, 2.0),
    "puzzle-4x4-play": (2.0, 2.0),
    "antmaze-large-navigate": (0.0, 0.7),
    "antsoccer-arena-navigate": (0.5, 0.3),
    "humanoidmaze-medium-navigate": (0.0, 0.1),
    "humanoidmaze-large-navigate": (0.1, 0.1),
    "pointmaze-medium-navigate": (0.7, 10.0),
}


@dataclass(frozen=True)
class TRL(Algorithm):
    """Transitive RL, which GTRL extends: targets only for goals ahead on the state's own trajectory.

    rho and the moving average are by default those of the public TRL code, for which lambda and alpha were published.
    """

    name: ClassVar = "trl"
    title: ClassVar = "TRL"
    family: ClassVar = "triangle inequality"
    idea: ClassVar = "composition through a subgoal of the same trajectory, expectile instead of maximum"
    reference: ClassVar = "Park et al. 2026, Transitive RL"
    averaged: ClassVar = "critic"
    trajectory_goals: ClassVar = True

    value_goals: Goals = checked(TRAJECTORY_GOALS, PROBABILITIES)  # critic's goal mixture (current, trajectory, random)
    lambda_: Lambda = checked(0.0, NOT_NEGATIVE)  # distance weight: exponent of rho
    alpha: float = checked(0.1, NOT_NEGATIVE)  # behaviour cloning coefficient
    kappa: float = checked(SUBGOAL_EXPECTILE, EXPECTILE)  # expectile over subgoals
    rho_reads: Literal["critic", "target"] = "target"  # rho is computed from Q(s, a, g) (paper) or y_dc (public code)
    # The target's moving average uses the networks after the update (Algorithm 1) or before it (public code).
    target_from: Literal["updated", "previous"] = "previous"
    actor_reads: Literal["logit", "value"] = "logit"  # what the actor maximises: the critic's logit or its sigmoid
    distill: bool = True  # train a second critic on the task's goals; off only where goals are whole states

    @classmethod
    def defaults(cls, task: Task) -> dict[str, Any]:
        """Returns the task's defaults, with the published lambda and alpha where there are any."""
        published = dict(zip(("lambda_", "alpha"), PUBLISHED_LAMBDA_ALPHA.get(task.name, ()), strict=False))
        return super().defaults(task) | published

    def init(self, key: Array, spec: Spec) -> ActorCritic:
        return ActorCritic.init(key, spec, self.hidden, self.distill, self.actor_layer_norm)

    def loss(self, nets: ActorCritic, target: Critic, batch: Batch, _: Array) -> tuple[Array, Metrics]:
        s, a, g = batch.observation, batch.action, batch.value_goal
        w, a_w = batch.subgoal, batch.subgoal_action
        to_subgoal, from_subgoal, current = fused((target, s, a, w), (target, w, a_w, g), (target, s, a, g))
        y_dc = o.compose(jax.nn.sigmoid(to_subgoal), jax.nn.sigmoid(from_subgoal), batch, self.gamma)
        log_q = jnp.log(y_dc) if self.rho_reads == "target" else jax.nn.log_sigmoid(current)
        rho = o.distance_weight(log_q, self.gamma, self.lambda_)

        logit, oracle_logit, mean = fused(
            (nets.critic, s, a, g),
            (nets.oracle_critic, s, a, batch.value_goal_oracle),
            (nets.actor, s, batch.actor_goal),
        )
        critic_loss = (rho * o.expectile(logit, y_dc, self.kappa)).mean()
        distill_loss = o.distill(oracle_logit, logit)
        actor_loss, metrics = o.ddpg_bc(mean, nets.acting_critic, batch, self.alpha, self.actor_reads)
        metrics |= {"q": jax.nn.sigmoid(logit).mean(), "y_dc": y_dc.mean(), "rho": rho.mean()}
        return o.total(metrics, critic=critic_loss, distill=distill_loss, actor=actor_loss)

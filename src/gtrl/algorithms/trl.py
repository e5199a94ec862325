"""TRL: divide-and-conquer values by an expectile over sub-goals of one trajectory (equation 5)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from gtrl import objectives as o
from gtrl.algorithms.base import Algorithm, Lambda, Metrics
from gtrl.data.goals import Batch
from gtrl.networks import ActorCritic, Critic, Spec
from gtrl.tasks import SUBGOAL_EXPECTILE, TRAJECTORY_GOALS, Goals


@dataclass(frozen=True)
class TRL(Algorithm):
    """Transitive RL: the method that GTRL grounds."""

    name: ClassVar = "trl"
    title: ClassVar = "TRL"
    family: ClassVar = "triangle inequality"
    idea: ClassVar = "composition through a sub-goal of the same trajectory, expectile instead of maximum"
    reference: ClassVar = "Park et al. 2026, Transitive RL"
    averaged: ClassVar = "critic"
    trajectory_goals: ClassVar = True

    value_goals: Goals = TRAJECTORY_GOALS  # (current, trajectory, random)
    lambda_: Lambda = 0.0  # distance weight: exponent of rho
    alpha: float = 0.1  # behaviour cloning coefficient
    kappa: float = SUBGOAL_EXPECTILE
    rho_reads: Literal["critic", "target"] = "critic"  # the paper's Q(s, a, g), or (public code) the target value
    actor_reads: Literal["logit", "value"] = "logit"  # what the actor maximises
    distill: bool = True  # a second critic that reads the task's goal; off where goals are whole states

    def init(self, key: Array, spec: Spec) -> ActorCritic:
        return ActorCritic.init(key, spec, self.hidden, self.distill)

    def loss(self, nets: ActorCritic, target: Critic, batch: Batch, _: Array) -> tuple[Array, Metrics]:
        s, a, g = batch.observation, batch.action, batch.value_goal
        w, a_w = batch.subgoal, batch.subgoal_action
        to_subgoal, from_subgoal, current = target.many((s, a, w), (w, a_w, g), (s, a, g))
        y_dc = o.compose(jax.nn.sigmoid(to_subgoal), jax.nn.sigmoid(from_subgoal), batch, self.gamma)
        log_q = jnp.log(y_dc) if self.rho_reads == "target" else jax.nn.log_sigmoid(current)
        rho = o.distance_weight(log_q, self.gamma, self.lambda_)

        logit, oracle_logit, mean = nets.passes(batch, g)
        critic_loss = (rho * o.expectile(logit, y_dc, self.kappa)).mean()
        distill_loss = o.distill(oracle_logit, logit)
        actor_loss, metrics = o.ddpg_bc(mean, nets.acting_critic, batch, self.alpha, self.actor_reads)
        metrics |= {"q": jax.nn.sigmoid(logit).mean(), "y_dc": y_dc.mean(), "rho": rho.mean()}
        return o.total(metrics, critic=critic_loss, distill=distill_loss, actor=actor_loss)

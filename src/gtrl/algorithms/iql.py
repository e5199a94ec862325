"""IQL: the maximum over actions as an expectile of the critic at logged actions."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Metrics
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.fields import EXPECTILE, NOT_NEGATIVE, PROBABILITIES, checked
from gtrl.nn.fused import fused
from gtrl.nn.networks import Actor, Critic, critic_at_policy
from gtrl.tasks import Goals

VALUE_GOALS: Goals = (0.2, 0.5, 0.3)  # as published with OGBench


class Nets(NamedTuple):
    """Q, V and the policy. Values are those of a reward of -1 per step: 0 at the goal, -1 one step before."""

    critic: Critic
    v: Critic
    actor: Actor


@dataclass(frozen=True)
class IQL(Algorithm):
    """Implicit Q-learning. V is an expectile over actions and Q a mean over outcomes.

    So the value is optimistic about actions, which the policy chooses, and not about outcomes, which are chance.
    """

    name: ClassVar = "iql"
    title: ClassVar = "IQL"
    family: ClassVar = "temporal difference"
    idea: ClassVar = "an expectile over logged actions in place of the maximum, a mean over outcomes"
    reference: ClassVar = "Kostrikov et al. 2022, IQL"
    averaged: ClassVar = "critic"
    alpha_by_family: ClassVar = {
        "pointmaze": 0.003,
        "antmaze": 0.3,
        "humanoidmaze": 0.1,
        "antsoccer": 0.1,
        "cube": 1.0,
        "scene": 1.0,
        "puzzle": 1.0,
    }
    mixes_stitch_goals: ClassVar = True  # OGBench

    value_goals: Goals = checked(VALUE_GOALS, PROBABILITIES)  # critic's goal mixture (current, trajectory, random)
    alpha: float = checked(0.3, NOT_NEGATIVE)  # behaviour cloning coefficient
    kappa: float = checked(0.9, EXPECTILE)  # expectile over logged actions

    def init(self, key: Array, spec: Spec) -> Nets:
        critic_key, v_key, actor_key = jax.random.split(key, 3)
        inputs = spec.observation_dim + spec.goal_dim
        return Nets(
            critic=Critic.init(critic_key, inputs + spec.action_dim, self.hidden),
            v=Critic.init(v_key, inputs, self.hidden, members=1),
            actor=Actor.init(actor_key, spec, self.hidden, self.actor_layer_norm),
        )

    def loss(self, nets: Nets, target: Critic, batch: Batch, _: Array) -> tuple[Array, Metrics]:
        s, a, g = batch.observation, batch.action, batch.value_goal_oracle
        v, v_next = fused((nets.v, s, g), (nets.v, batch.next_observation, g))
        q_bar = target(s, a, g).min(0)
        value_loss = (o.asymmetry(v, q_bar, self.kappa) * (q_bar - v) ** 2).mean()
        q, mean = fused((nets.critic, s, a, g), (nets.actor, s, batch.actor_goal))
        y = o.step_cost_target(jax.lax.stop_gradient(v_next), batch, self.gamma)
        critic_loss = (o.step_cost_weight(batch) * (y - q) ** 2).mean()
        actor_loss, metrics = o.ddpg_bc(mean, nets.critic, batch, self.alpha)
        return o.total(metrics | {"q": q.mean(), "v": v.mean()}, critic=critic_loss, value=value_loss, actor=actor_loss)

    def value(self, nets: Nets, observation: Array, goal: Array) -> Array:
        """Returns E[gamma^T], converted from the critic's minimum at the policy's action."""
        return o.discount_from_step_cost(critic_at_policy(nets.actor, nets.critic, observation, goal), self.gamma)

    def action_value(self, nets: Nets, observation: Array, action: Array, goal: Array) -> Array:
        return nets.critic(observation, action, goal).min(0)

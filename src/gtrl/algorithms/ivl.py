"""IVL: a state value by expectile regression, and advantage-weighted behaviour cloning."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Metrics
from gtrl.algorithms.iql import VALUE_GOALS
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.fields import EXPECTILE, NOT_NEGATIVE, PROBABILITIES, checked
from gtrl.nn.fused import fused
from gtrl.nn.networks import Actor, Critic
from gtrl.tasks import Goals


class Nets(NamedTuple):
    """V and the policy. Values are those of a reward of -1 per step: 0 at the goal, -1 one step before."""

    v: Critic
    actor: Actor


@dataclass(frozen=True)
class IVL(Algorithm):
    """Implicit V-learning. The expectile is over actions and random outcomes alike: it is optimistic about both."""

    name: ClassVar = "ivl"
    title: ClassVar = "IVL"
    family: ClassVar = "temporal difference"
    idea: ClassVar = "expectile regression of a state value, then advantage-weighted cloning"
    reference: ClassVar = "Park et al. 2023, HIQL; Kostrikov et al. 2022, IQL"
    averaged: ClassVar = "v"
    alpha_by_family: ClassVar = {
        "pointmaze": 10.0,
        "antmaze": 10.0,
        "humanoidmaze": 10.0,
        "antsoccer": 10.0,
        "cube": 10.0,
        "scene": 10.0,
        "puzzle": 10.0,
    }
    mixes_stitch_goals: ClassVar = True  # OGBench

    value_goals: Goals = checked(VALUE_GOALS, PROBABILITIES)  # critic's goal mixture (current, trajectory, random)
    alpha: float = checked(10.0, NOT_NEGATIVE)  # inverse temperature of the advantage
    kappa: float = checked(0.9, EXPECTILE)  # expectile over actions and outcomes
    actor_layer_norm: bool = False  # layer norm in the policy's hidden layers; none in OGBench's GCIVL

    def init(self, key: Array, spec: Spec) -> Nets:
        v_key, actor_key = jax.random.split(key)
        v = Critic.init(v_key, spec.observation_dim + spec.goal_dim, self.hidden)
        return Nets(v, Actor.init(actor_key, spec, self.hidden, self.actor_layer_norm))

    def loss(self, nets: Nets, target: Critic, batch: Batch, _: Array) -> tuple[Array, Metrics]:
        s, following, g = batch.observation, batch.next_observation, batch.value_goal_oracle

        # --- value: one target per ensemble member; the target networks decide the expectile weight for all of them ---
        v_next, v_now = fused((target, following, g), (target, s, g))
        y = o.step_cost_target(v_next, batch, self.gamma)
        weight = o.asymmetry(v_now.mean(0), o.step_cost_target(v_next.min(0), batch, self.gamma), self.kappa)
        v = nets.v(s, g)
        value_loss = (o.step_cost_weight(batch) * weight * (y - v) ** 2).mean()

        # --- policy: actions that lead towards the goal have more weight ---
        g = batch.actor_goal
        frozen = jax.lax.stop_gradient(nets.v)
        v_next, v_now = fused((frozen, following, g), (frozen, s, g))
        advantage = (v_next - v_now).mean(0)
        if batch.next_has_action is not None:  # V is not fitted at a state without a logged action: cloning alone
            advantage = jnp.where(batch.next_has_action, advantage, 0.0)
        weight = o.awr_weight(advantage, self.alpha)
        cloning = o.behaviour_cloning(nets.actor(s, g), batch.action)
        metrics = {"v": v.mean(), "awr_weight": weight.mean(), "actor_bc": cloning.mean()}
        return o.total(metrics, value=value_loss, actor=(weight * cloning).mean())

    def value(self, nets: Nets, observation: Array, goal: Array) -> Array:
        """Returns E[gamma^T], converted from the mean of V over the ensemble."""
        return o.discount_from_step_cost(nets.v(observation, goal).mean(0), self.gamma)

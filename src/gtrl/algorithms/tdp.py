"""TDP: the transitive update with a hard maximum over subgoals drawn from the data."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Metrics
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.errors import ConfigError
from gtrl.fields import COUNT, NOT_NEGATIVE, checked
from gtrl.nn.fused import fused
from gtrl.nn.networks import ActorCritic, Critic


@dataclass(frozen=True)
class TDP(Algorithm):
    """Equation 3 with a search for the subgoal. A reconstruction.

    The paper's appendix on baselines has one sentence on TDP: equation 3 with a hard maximum over candidates from the
    dataset. The rest was chosen for this implementation:

    - The number of candidates (`candidates`).
    - Candidates are logged states with their logged actions: the transitions of other rows of the batch, which are
      uniform over the data.
    - The goals are those of GTRL (`value_goals`).
    - Base cases only where the goal is the state or the next state.
    - The critic fits the mean of the targets.
    """

    name: ClassVar = "tdp"
    title: ClassVar = "TDP"
    family: ClassVar = "triangle inequality"
    idea: ClassVar = "composition through the best of some subgoals drawn from the data"
    reference: ClassVar = "Kaelbling 1993; Dhiman et al. 2018; Jurgenson et al. 2020"
    reconstruction: ClassVar = True
    averaged: ClassVar = "critic"

    alpha: float = checked(0.1, NOT_NEGATIVE)  # behaviour cloning coefficient
    candidates: int = checked(8, COUNT)  # number of subgoals the maximum is taken over
    distill: bool = True  # train a second critic on the task's goals; off only where goals are whole states

    def init(self, key: Array, spec: Spec) -> ActorCritic:
        return ActorCritic.init(key, spec, self.hidden, self.distill, self.actor_layer_norm)

    def loss(self, nets: ActorCritic, target: Critic, batch: Batch, _: Array) -> tuple[Array, Metrics]:
        s, a, g = batch.observation, batch.action, batch.value_goal
        y = o.base_case(self._best_composition(target, s, a, g), batch.goal_is_state, batch.goal_is_next, self.gamma)
        logit, oracle_logit, mean = fused(
            (nets.critic, s, a, g),
            (nets.oracle_critic, s, a, batch.value_goal_oracle),
            (nets.actor, s, batch.actor_goal),
        )
        actor_loss, metrics = o.ddpg_bc(mean, nets.acting_critic, batch, self.alpha)
        metrics |= {"q": jax.nn.sigmoid(logit).mean(), "y_dc": y.mean()}
        distill_loss = o.distill(oracle_logit, logit)
        return o.total(metrics, critic=o.bce(logit, y).mean(), distill=distill_loss, actor=actor_loss)

    def _best_composition(self, target: Critic, s: Array, a: Array, g: Array) -> Array:
        """The maximum over w of Q(s, a, w) Q(w, a_w, g); the candidates of a row are the next rows of the batch."""
        if self.candidates >= len(s):
            raise ConfigError(f"candidates is {self.candidates} and must be below the batch size, {len(s)}.")
        rows = jnp.arange(len(s))
        others = (rows + 1 + jnp.arange(self.candidates)[:, None]) % len(s)
        own, other = jnp.broadcast_to(rows, others.shape).ravel(), others.ravel()
        first, second = fused((target, s[own], a[own], s[other]), (target, s[other], a[other], g[own]))
        product = jax.nn.sigmoid(first) * jax.nn.sigmoid(second)
        return product.reshape(-1, *others.shape).max(1)

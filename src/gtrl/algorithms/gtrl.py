"""GTRL: divide-and-conquer values grounded in a one-step target (the paper's Algorithm 1)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Lambda, Metrics
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.fields import EXPECTILE, NOT_NEGATIVE, checked
from gtrl.nn.fused import fused
from gtrl.nn.networks import ActorCritic, Critic
from gtrl.tasks import HINDSIGHT_CLIP, ONE_STEP_EXPECTILE, SUBGOAL_EXPECTILE
from gtrl.tasks.conventions import AUTHORS


@dataclass(frozen=True)
class GTRL(Algorithm):
    """Grounded Transitive RL. The ablations are fields: `value_goals`, `selection`, `hindsight`, `kappa_one_step`.

    The defaults follow the paper's text. The preset `authors` follows the authors' earlier public code instead: it
    changes `rho_reads`, `value_goals`, `target_from`, `hindsight_divisor`, `bootstrap_from_last`, `random_last_rows`.
    """

    name: ClassVar = "gtrl"
    title: ClassVar = "GTRL"
    family: ClassVar = "triangle inequality"
    idea: ClassVar = "composition through a subgoal, grounded in a one-step target for every goal"
    reference: ClassVar = "GTRL: Grounding Divide-and-Conquer Value Learning with Temporal Differences"
    averaged: ClassVar = "critic"
    presets: ClassVar = {"authors": AUTHORS}

    lambda_: Lambda = checked(0.0, NOT_NEGATIVE)  # distance weight: exponent of rho
    alpha: float = checked(0.1, NOT_NEGATIVE)  # behaviour cloning coefficient
    kappa: float = checked(SUBGOAL_EXPECTILE, EXPECTILE)  # expectile for goals ahead on the trajectory (m = 1)
    kappa_one_step: float = checked(ONE_STEP_EXPECTILE, EXPECTILE)  # expectile for all other goals (m = 0)
    selection: o.Selection = "max"  # target where m = 1: the larger of y_dc and y_td (max), or always y_dc (dc)
    hindsight: bool = True  # apply the hindsight weight h (equation 9)
    hindsight_clip: float = checked(HINDSIGHT_CLIP, NOT_NEGATIVE)  # c: h is clipped to [1/(1+c), 1+c]
    # h is divided by y_td, base cases included (Algorithm 1), or by gamma Q(s', a', g) without them (authors' code)
    hindsight_divisor: Literal["target", "next"] = "target"
    rho_reads: Literal["critic", "target"] = "critic"  # rho is computed from Q(s, a, g), as in the paper, or from y_a
    # Where m = 0, use targets gamma Q(s', a', g) at a trajectory's last state s'; False: weight 0 (authors' code)
    bootstrap_from_last: bool = True
    actor_reads: Literal["logit", "value"] = "logit"  # what the actor maximises: the critic's logit or its sigmoid
    distill: bool = True  # train a second critic on the task's goals; off only where goals are whole states

    def init(self, key: Array, spec: Spec) -> ActorCritic:
        return ActorCritic.init(key, spec, self.hidden, self.distill, self.actor_layer_norm)

    def loss(self, nets: ActorCritic, target: Critic, batch: Batch, _: Array) -> tuple[Array, Metrics]:
        s, a, g, m = batch.observation, batch.action, batch.value_goal, batch.decomposable
        w, a_w = batch.subgoal, batch.subgoal_action

        # --- targets, computed with the target critic: no gradient ---
        to_subgoal, from_subgoal, following, current = fused(
            (target, s, a, w),
            (target, w, a_w, g),
            (target, batch.next_observation, batch.next_action, g),
            (target, s, a, g),
        )
        y_dc = o.compose(jax.nn.sigmoid(to_subgoal), jax.nn.sigmoid(from_subgoal), batch, self.gamma)  # eq. 5
        q_next = jax.nn.sigmoid(following)
        y_td = o.one_step(q_next, batch, self.gamma)  # eq. 6
        y_a = o.select_target(y_dc, y_td, m, self.selection)  # eq. 8
        kappa = o.split_expectile(m, self.kappa, self.kappa_one_step)  # eq. 7

        # --- weights ---
        h = jnp.ones_like(y_a)
        if self.hindsight:
            divisor = y_td
            if self.hindsight_divisor == "next":
                divisor = o.next_divisor(q_next, self.gamma)
                if batch.next_has_action is not None:  # without an action at s', only y_td is known
                    divisor = jnp.where(batch.next_has_action, divisor, y_td)
            h = o.hindsight_weight(jax.nn.sigmoid(current), divisor, m, self.hindsight_clip)  # eq. 9
        log_q = jnp.log(y_a) if self.rho_reads == "target" else jax.nn.log_sigmoid(current)
        rho = o.distance_weight(log_q, self.gamma, self.lambda_)
        weight = h * rho
        may_bootstrap = self._may_bootstrap(batch)
        if may_bootstrap is not None:
            weight *= o.bootstrap_weight(batch, may_bootstrap)

        # --- the full objective ---
        logit, oracle_logit, mean = fused(
            (nets.critic, s, a, g),
            (nets.oracle_critic, s, a, batch.value_goal_oracle),
            (nets.actor, s, batch.actor_goal),
        )
        critic_loss = (weight * o.expectile(logit, y_a, kappa)).mean()  # eq. 10
        distill_loss = o.distill(oracle_logit, logit)
        actor_loss, metrics = o.ddpg_bc(mean, nets.acting_critic, batch, self.alpha, self.actor_reads)  # eq. 4
        metrics |= {
            "q": jax.nn.sigmoid(logit).mean(),
            "y_dc": jnp.where(m, y_dc, 0).mean() / jnp.maximum(m.mean(), 1e-6),
            "y_td": y_td.mean(),
            "td_selected": (m & (y_td > y_dc)).mean() / jnp.maximum(m.mean(), 1e-6),
            "decomposable": m.mean(),
            "rho": rho.mean(),
            "h_spread": jnp.abs(h - 1).mean(),
        }
        return o.total(metrics, critic=critic_loss, distill=distill_loss, actor=actor_loss)

    def _may_bootstrap(self, batch: Batch) -> Array | None:
        """Returns where the one-step target may bootstrap from s'; None if everywhere."""
        allowed = batch.next_has_action
        if not self.bootstrap_from_last:
            not_last = batch.decomposable | ~batch.next_is_last
            allowed = not_last if allowed is None else allowed & not_last
        return allowed

"""GTRL: divide-and-conquer values grounded in a one-step target (the paper's Algorithm 1)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Lambda, Metrics
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.fields import COUNT, EXPECTILE, NOT_NEGATIVE, WIDTHS, checked
from gtrl.nn.fused import fused
from gtrl.nn.networks import ActorCritic, ActorCriticDensities, Critic, Densities
from gtrl.tasks import HINDSIGHT_CLIP, ONE_STEP_EXPECTILE, SUBGOAL_EXPECTILE, WaypointDraw, WaypointSource
from gtrl.tasks.beyond import BEYOND
from gtrl.tasks.conventions import AUTHORS

DENSITIES_STREAM = 1  # of random bits, apart from those of the other networks


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
    presets: ClassVar = {"authors": AUTHORS, "waypoints": BEYOND["gtrl-waypoints-x10"]}

    lambda_: Lambda = checked(0.0, NOT_NEGATIVE)  # distance weight: exponent of rho
    alpha: float = checked(0.1, NOT_NEGATIVE)  # behaviour cloning coefficient
    kappa: float = checked(SUBGOAL_EXPECTILE, EXPECTILE)  # expectile for goals ahead on the trajectory (m = 1)
    kappa_one_step: float = checked(ONE_STEP_EXPECTILE, EXPECTILE)  # expectile for all other goals (m = 0)
    # Target where m = 1: the larger of y_dc and y_td (max), always y_dc (dc), or y_td with the composition as a lower
    # bound (bound, which is not in the paper)
    selection: o.Selection = "max"
    hindsight: bool = True  # apply the hindsight weight h (equation 9)
    hindsight_clip: float = checked(HINDSIGHT_CLIP, NOT_NEGATIVE)  # c: h is clipped to [1/(1+c), 1+c]
    # h is divided by y_td, base cases included (Algorithm 1), or by gamma Q(s', a', g) without them (authors' code)
    hindsight_divisor: Literal["target", "next"] = "target"
    rho_reads: Literal["critic", "target"] = "critic"  # rho is computed from Q(s, a, g), as in the paper, or from y_a
    # Where m = 0, use targets gamma Q(s', a', g) at a trajectory's last state s'; False: weight 0 (authors' code)
    bootstrap_from_last: bool = True
    actor_reads: Literal["logit", "value"] = "logit"  # what the actor maximises: the critic's logit or its sigmoid
    distill: bool = True  # train a second critic on the task's goals; off only where goals are whole states

    # --- beyond the paper (docs/beyond.md) ---

    # Where the goal is not ahead on the state's trajectory, also compose through a waypoint w: a later state of that
    # trajectory (state), an earlier one of the goal's (goal), each of them half of the time (both), or that
    # of any transition (random).
    waypoint: WaypointSource = "none"
    waypoint_draw: WaypointDraw = "uniform"  # which of these states (state, goal, both)
    # The product through a waypoint is a lower bound, which raises values below it, or the target where it is larger
    # than the one-step target.
    waypoint_product: Literal["bound", "target"] = "bound"
    bound_weight: float = checked(1.0, NOT_NEGATIVE)  # of lower bounds, relative to the one-step target
    # Compute h from the critic (the paper), or from three small networks that estimate the densities of goals
    hindsight_reads: Literal["critic", "densities"] = "critic"
    density_hidden: tuple[int, ...] = checked((128, 128), WIDTHS)  # hidden layers of these networks
    density_latent: int = checked(64, COUNT)  # their width d

    def without_effect(self) -> Iterator[tuple[str, str]]:
        if self.selection == "bound":
            yield "kappa", "with selection='bound'"
        if self.waypoint == "none":
            yield "waypoint_draw", "without a waypoint"
            yield "waypoint_product", "without a waypoint"
        elif self.waypoint == "random":
            yield "waypoint_draw", "without a waypoint of 'state', 'goal' or 'both'"
        if self.selection != "bound" and (self.waypoint == "none" or self.waypoint_product == "target"):
            yield "bound_weight", "without lower bounds"
        elif self.bound_weight == 0 and self.waypoint_product == "bound":
            yield "waypoint", "with bound_weight=0"
        if self.value_goals[1] == 1:
            yield "waypoint", "where all value goals are ahead on the trajectory"
        if not self.hindsight:
            yield "hindsight_reads", "with hindsight=False"
        if self.hindsight_reads == "densities":
            yield "hindsight_divisor", "with hindsight_reads='densities'"
        else:
            yield "density_hidden", "without hindsight_reads='densities'"
            yield "density_latent", "without hindsight_reads='densities'"

    @property
    def sampling(self) -> dict[str, Any]:
        return super().sampling | {"waypoint": self.waypoint, "waypoint_draw": self.waypoint_draw}

    def init(self, key: Array, spec: Spec) -> ActorCritic:
        nets = ActorCritic.init(key, spec, self.hidden, self.distill, self.actor_layer_norm)
        if self.hindsight and self.hindsight_reads == "densities":
            stream = jax.random.fold_in(key, DENSITIES_STREAM)
            densities = Densities.init(stream, spec, self.density_hidden, self.density_latent)
            return ActorCriticDensities(nets.critic, nets.oracle_critic, nets.actor, densities)
        return nets

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
        factors = jax.nn.sigmoid(to_subgoal), jax.nn.sigmoid(from_subgoal)
        y_dc = o.compose(*factors, batch, self.gamma)  # eq. 5
        q_next = jax.nn.sigmoid(following)
        y_td = o.one_step(q_next, batch, self.gamma)  # eq. 6
        y_a = o.select_target(y_dc, y_td, m, self.selection)  # eq. 8
        kappa = o.split_expectile(m & (self.selection != "bound"), self.kappa, self.kappa_one_step)  # eq. 7
        through_w, bounded, as_target = o.product(*factors, batch), *self._waypoints(batch)
        if as_target is not None:
            y_a = jnp.where(as_target, jnp.maximum(through_w, y_td), y_a)

        # --- weights ---
        h, density_loss = self._hindsight_weight(nets, batch, jax.nn.sigmoid(current), q_next, y_td)  # eq. 9
        log_q = jnp.log(y_a) if self.rho_reads == "target" else jax.nn.log_sigmoid(current)
        rho = o.distance_weight(log_q, self.gamma, self.lambda_)
        may_bootstrap = self._may_bootstrap(batch)
        weight = rho if may_bootstrap is None else rho * o.bootstrap_weight(batch, may_bootstrap)

        # --- the full objective ---
        logit, oracle_logit, mean = fused(
            (nets.critic, s, a, g),
            (nets.oracle_critic, s, a, batch.value_goal_oracle),
            (nets.actor, s, batch.actor_goal),
        )
        critic_loss = (h * weight * o.expectile(logit, y_a, kappa)).mean()  # eq. 10
        if bounded is not None:
            bound_loss = self.bound_weight * self.kappa_one_step * weight * o.lower_bound(logit, through_w)
            critic_loss += jnp.where(bounded, bound_loss, 0.0).mean()
        distill_loss = o.distill(oracle_logit, logit)
        actor_loss, metrics = o.ddpg_bc(mean, nets.acting_critic, batch, self.alpha, self.actor_reads)  # eq. 4
        metrics |= {
            "q": jax.nn.sigmoid(logit).mean(),
            "y_dc": jnp.where(m, y_dc, 0).mean() / jnp.maximum(m.mean(), 1e-6),
            "y_td": y_td.mean(),
            "td_selected": o.share(y_td > y_dc, m),
            "decomposable": m.mean(),
            "rho": rho.mean(),
            "h_spread": jnp.abs(h - 1).mean(),
        }
        if bounded is not None:
            metrics["bounded"] = bounded.mean()
            metrics["raised"] = o.share(through_w > jax.nn.sigmoid(logit), bounded)
        return o.total(metrics, critic=critic_loss, distill=distill_loss, actor=actor_loss, **density_loss)

    def _waypoints(self, batch: Batch) -> tuple[Array | None, Array | None]:
        """Returns where the product through w is a lower bound, and where a target; None for nowhere."""
        at_waypoints = None if self.waypoint == "none" else batch.has_waypoint
        if self.waypoint_product == "target":
            return batch.decomposable if self.selection == "bound" else None, at_waypoints
        if self.selection == "bound":
            return batch.decomposable if at_waypoints is None else batch.decomposable | at_waypoints, None
        return at_waypoints, None

    def _hindsight_weight(
        self, nets: ActorCritic, batch: Batch, q: Array, q_next: Array, y_td: Array
    ) -> tuple[Array, dict[str, Array]]:
        """Returns h, and the loss of the densities' networks if there are any."""
        m = batch.decomposable
        if isinstance(nets, ActorCriticDensities):
            states = batch.observation, batch.action, batch.next_observation
            logits = jnp.stack(nets.densities.contrast(*states, batch.value_goal))
            before, after = jnp.diagonal(jax.lax.stop_gradient(logits), axis1=-2, axis2=-1)
            return o.density_weight(before - after, m, self.hindsight_clip), {"density": o.contrastive(logits, m)}
        if not self.hindsight:
            return jnp.ones_like(q), {}
        divisor = y_td
        if self.hindsight_divisor == "next":
            divisor = o.next_divisor(q_next, self.gamma)
            if batch.next_has_action is not None:  # without an action at s', only y_td is known
                divisor = jnp.where(batch.next_has_action, divisor, y_td)
        return o.hindsight_weight(q, divisor, m, self.hindsight_clip), {}

    def _may_bootstrap(self, batch: Batch) -> Array | None:
        """Returns where the one-step target may bootstrap from s'; None if everywhere."""
        allowed = batch.next_has_action
        if not self.bootstrap_from_last:
            not_last = batch.decomposable | ~batch.next_is_last
            allowed = not_last if allowed is None else allowed & not_last
        return allowed

"""COE: the transitive update through a subgoal that a generator proposes."""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Metrics
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.fields import NOT_NEGATIVE, checked
from gtrl.nn.fused import fused
from gtrl.nn.networks import ActorCritic, Critic, Network, init_mlp


class Generator(eqx.Module):
    """Proposes a subgoal and the action there, given (s, a, g).

    The network predicts an offset from the midpoint of state and goal, which is close to 0 at initialisation.
    """

    network: Network

    def __call__(self, s: Array, a: Array, g: Array) -> tuple[Array, Array]:
        """Returns the proposed subgoal w and the action a_w."""
        offset, action = jnp.split(self.network(s, a, g), [s.shape[-1]], -1)
        return (s + g) / 2 + offset, jnp.tanh(action)


class Nets(ActorCritic):
    """The networks of GTRL, and the generator of subgoals."""

    generator: Generator


@dataclass(frozen=True)
class COE(Algorithm):
    """Equation 3 with a network in place of the maximum over subgoals. A reconstruction.

    The paper's appendix on baselines has one sentence on COE: a second network, trained next to the critic, proposes
    the subgoal. The rest was chosen for this implementation:

    - The generator takes (s, a, g) and also proposes the action at the subgoal, as equation 3 maximises over both.
    - It maximises the logarithm of the composition under the critic, with the minimum over the ensemble.
    - It is regularised towards the subgoal logged between state and goal, where there is one, as the policy is
      towards logged actions (`anchor`).
    - Goals (`value_goals`) and base cases are those of this package's TDP.
    """

    name: ClassVar = "coe"
    title: ClassVar = "COE"
    family: ClassVar = "triangle inequality"
    idea: ClassVar = "composition through a subgoal that a second network proposes"
    reference: ClassVar = "Piekos et al. 2023"
    reconstruction: ClassVar = True
    averaged: ClassVar = "critic"

    alpha: float = checked(0.1, NOT_NEGATIVE)  # behaviour cloning coefficient
    anchor: float = checked(0.1, NOT_NEGATIVE)  # weight of the penalty that keeps proposals near logged subgoals
    distill: bool = True  # train a second critic on the task's goals; off only where goals are whole states

    def init(self, key: Array, spec: Spec) -> Nets:
        key, generator_key = jax.random.split(key)
        nets = ActorCritic.init(key, spec, self.hidden, self.distill, self.actor_layer_norm)
        outputs = spec.observation_dim + spec.action_dim
        layers = init_mlp(generator_key, (outputs + spec.observation_dim, *self.hidden, outputs), last_scale=0.01)
        return Nets(nets.critic, nets.oracle_critic, nets.actor, Generator(Network(layers)))

    def loss(self, nets: Nets, target: Critic, batch: Batch, _: Array) -> tuple[Array, Metrics]:
        s, a, g = batch.observation, batch.action, batch.value_goal
        w, a_w = nets.generator(s, a, g)

        # --- critic: composition through the proposed subgoal ---
        proposal = jax.lax.stop_gradient((w, a_w))
        first, second = fused((target, s, a, proposal[0]), (target, *proposal, g))
        composed = jax.nn.sigmoid(first) * jax.nn.sigmoid(second)
        y = o.base_case(composed, batch.goal_is_state, batch.goal_is_next, self.gamma)
        logit, oracle_logit, mean = fused(
            (nets.critic, s, a, g),
            (nets.oracle_critic, s, a, batch.value_goal_oracle),
            (nets.actor, s, batch.actor_goal),
        )

        # --- generator: maximise the composition, stay near the data ---
        critic = jax.lax.stop_gradient(nets.critic)
        first, second = fused((critic, s, a, w), (critic, w, a_w, g))
        ascent = -(jax.nn.log_sigmoid(first) + jax.nn.log_sigmoid(second)).min(0).mean()
        distance = o.behaviour_cloning(w, batch.subgoal) + o.behaviour_cloning(a_w, batch.subgoal_action)
        proposal_distance = jnp.where(batch.decomposable, distance, 0.0).mean()

        actor_loss, metrics = o.ddpg_bc(mean, nets.acting_critic, batch, self.alpha)
        metrics |= {"q": jax.nn.sigmoid(logit).mean(), "y_dc": y.mean(), "proposal_distance": proposal_distance}
        losses = {"critic": o.bce(logit, y).mean(), "distill": o.distill(oracle_logit, logit)}
        return o.total(metrics, **losses, generator=ascent + self.anchor * proposal_distance, actor=actor_loss)

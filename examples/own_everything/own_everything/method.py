"""NearMC: Monte Carlo values for goals at most `horizon` steps ahead, with its own sampler and optimiser."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import optax
from jax import Array

import gtrl
from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Metrics
from gtrl.data.sampling import Batch, gather, randint_from_bits
from gtrl.fields import COUNT, NOT_NEGATIVE, checked
from gtrl.nn.networks import ActorCritic


@gtrl.register
@dataclass(frozen=True)
class NearMC(Algorithm):
    """Fits the critic to gamma^n for goals n steps ahead, n <= `horizon`; the policy is trained by DDPG+BC."""

    name: ClassVar = "near-mc"
    title: ClassVar = "NearMC"
    family: ClassVar = "Monte Carlo"
    idea: ClassVar = "regress on gamma to the number of steps, for near goals only"
    reference: ClassVar = "an example"

    alpha: float = checked(0.3, NOT_NEGATIVE)  # behaviour cloning coefficient
    horizon: int = checked(30, COUNT)  # the largest distance of a goal, in steps
    warmup: int = checked(100, COUNT)  # steps in which the learning rate increases to its value

    def init(self, key: Array, spec: gtrl.Spec) -> ActorCritic:
        return ActorCritic.init(key, spec, self.hidden)

    def sample(self, key: Array, dataset: gtrl.Dataset, size: int) -> Batch:
        """Draws transitions uniformly, and goals uniformly from the next `horizon` states of their trajectories."""
        pick, ahead = jax.random.bits(key, (2, size))
        i = dataset.transitions[randint_from_bits(pick, dataset.transitions.shape[0])]
        remaining = jax.numpy.minimum(dataset.ends[i] - i, self.horizon)
        j = i + 1 + randint_from_bits(ahead, remaining)
        return gather(dataset, i, j, i, j)

    def optimizer(self, learning_rate: float) -> optax.GradientTransformation:
        schedule = optax.linear_schedule(0.0, learning_rate, self.warmup)
        return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))

    def loss(self, nets: ActorCritic, _: None, batch: Batch, __: Array) -> tuple[Array, Metrics]:
        s, g = batch.observation, batch.value_goal_oracle
        logit, mean = gtrl.fused((nets.critic, s, batch.action, g), (nets.actor, s, batch.actor_goal))
        critic_loss = o.bce(logit, o.monte_carlo(batch, self.gamma)).mean()
        actor_loss, metrics = o.ddpg_bc(mean, nets.critic, batch, self.alpha)
        return o.total(metrics, critic=critic_loss, actor=actor_loss)

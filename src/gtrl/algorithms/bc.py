"""BC: goal-conditioned behaviour cloning."""

from dataclasses import dataclass
from typing import ClassVar

from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Metrics
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.nn.networks import Actor


@dataclass(frozen=True)
class BC(Algorithm):
    """A Gaussian policy fitted to the logged actions, for goals uniform over the trajectory's future; no value."""

    name: ClassVar = "bc"
    title: ClassVar = "BC"
    family: ClassVar = "behavioural cloning"
    idea: ClassVar = "imitate the logged action, given a state that was reached later"
    reference: ClassVar = "Park et al. 2025, OGBench"
    same_on_all_tasks: ClassVar = frozenset({"actor_goals"})  # from the own trajectory on every task: OGBench's GCBC

    actor_layer_norm: bool = False  # layer norm in the policy's hidden layers; none in OGBench's GCBC

    def init(self, key: Array, spec: Spec) -> Actor:
        return Actor.init(key, spec, self.hidden, self.actor_layer_norm)

    def loss(self, nets: Actor, _: None, batch: Batch, __: Array) -> tuple[Array, Metrics]:
        loss = o.behaviour_cloning(nets(batch.observation, batch.actor_goal), batch.action).mean()
        return o.total({}, actor=loss)

    def policy(self, nets: Actor) -> Actor:
        return nets

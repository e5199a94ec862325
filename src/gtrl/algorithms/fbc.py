"""FBC: behaviour cloning with a flow, which can represent several modes."""

from dataclasses import dataclass
from typing import ClassVar

from jax import Array

from gtrl.algorithms import objectives as o
from gtrl.algorithms.base import Algorithm, Metrics
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.fields import COUNT, DISCOUNT, checked
from gtrl.nn.networks import FlowActor


@dataclass(frozen=True)
class FBC(Algorithm):
    """Flow matching: a velocity field that transports noise to the logged actions. Actions are sampled by Euler steps.

    The defaults are those of FBC in the public TRL repository: goals from the state's own trajectory on every task, at
    geometric offsets with gamma 0.999 (it has no other use here), a last layer that is not scaled down, and layer norm.
    """

    name: ClassVar = "fbc"
    title: ClassVar = "FBC"
    family: ClassVar = "behavioural cloning"
    idea: ClassVar = "imitate with a flow from noise to actions, which can represent several modes"
    reference: ClassVar = "Park et al. 2025, OGBench; Lipman et al. 2023, Flow Matching"
    same_on_all_tasks: ClassVar = frozenset({"actor_goals", "gamma"})

    gamma: float = checked(0.999, DISCOUNT)  # geometric goal offsets have the parameter 1 - gamma
    actor_geometric: bool = True  # geometric offsets of the policy's goals along the trajectory, else uniform
    flow_steps: int = checked(10, COUNT)  # Euler steps from noise to action

    def init(self, key: Array, spec: Spec) -> FlowActor:
        return FlowActor.init(key, spec, self.hidden, self.flow_steps, self.actor_layer_norm)

    def loss(self, nets: FlowActor, _: None, batch: Batch, key: Array) -> tuple[Array, Metrics]:
        velocity = lambda x, t: nets.velocity(batch.observation, batch.actor_goal, x, t)  # noqa: E731
        return o.total({}, actor=o.flow_matching(velocity, batch.action, key).mean())

    def policy(self, nets: FlowActor) -> FlowActor:
        return nets

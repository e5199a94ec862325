"""What every method is: a frozen dataclass whose fields are its hyperparameters."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, Protocol

import jax.numpy as jnp
import optax
import tyro
from jax import Array

from gtrl.data.dataset import Dataset, Spec
from gtrl.data.sampling import Batch, sample_batch
from gtrl.errors import ConfigError
from gtrl.fields import DISCOUNT, FRACTION, PROBABILITIES, WIDTHS, check_fields, checked
from gtrl.io.mlp_file import Exportable
from gtrl.nn.networks import ActorCritic
from gtrl.tasks import ACTOR_GOALS, HIDDEN, TARGET_RATE, VALUE_GOALS, Goals, Task

Metrics = dict[str, Array]
Family = Literal["behavioural cloning", "temporal difference", "Monte Carlo", "triangle inequality"]
# A Python name cannot be `lambda`; the flag can.
Lambda = Annotated[float, tyro.conf.arg(name="lambda")]


class PolicyNetwork(Exportable, Protocol):
    """What acts, and can be written to a file that NumPy alone can follow (`gtrl.Policy`)."""

    def act(self, observation: Array, goal: Array, key: Array) -> Array: ...


@dataclass(frozen=True)
class Algorithm(ABC):
    """The fields all methods share, and what a method says. Hashable, so `jit` can hold it static.

    `nets` is a pytree of the method's own making; `target` is the moving average of `targets(nets)`.
    """

    name: ClassVar[str]  # in commands and files
    title: ClassVar[str]  # when shown
    family: ClassVar[Family]
    idea: ClassVar[str]  # one line
    reference: ClassVar[str]
    reconstruction: ClassVar[bool] = False  # rebuilt from a sentence rather than from a formula
    averaged: ClassVar[str | None] = None  # the field of its networks that has a moving average: the target
    trajectory_goals: ClassVar[bool] = False  # no target for goals off the state's trajectory
    # alpha by family of task, as published with OGBench for goals that are whole states (none are for oracle goals)
    alpha_by_family: ClassVar[Mapping[str, float]] = {}

    gamma: float = checked(0.99, DISCOUNT)  # discount, and the parameter of geometric goal offsets
    value_goals: Goals = checked(VALUE_GOALS, PROBABILITIES)  # (current, trajectory, random)
    value_geometric: bool = True  # geometric offsets along the trajectory, else uniform
    actor_goals: Goals = checked(ACTOR_GOALS, PROBABILITIES)  # the same for the goals the policy is trained on
    actor_geometric: bool = False  # geometric offsets for them, else uniform
    hidden: tuple[int, ...] = checked(HIDDEN, WIDTHS)  # widths of all networks
    target_rate: float = checked(TARGET_RATE, FRACTION)  # eta

    def __post_init__(self) -> None:
        check_fields(self)
        if self.trajectory_goals and tuple(self.value_goals) != (0, 1, 0):
            reason = "it has no target for goals off the state's trajectory"
            raise ConfigError(f"value_goals of {self.title} must be (0, 1, 0): {reason}.")

    @classmethod
    def defaults(cls, task: Task) -> dict[str, Any]:
        """The fields in which this method's defaults differ on a task: by default all that the task has for it."""
        own = {field.name for field in fields(cls)}
        found = {name: value for name, value in task.defaults.items() if name in own}
        if task.family in cls.alpha_by_family:
            found["alpha"] = cls.alpha_by_family[task.family]
        return found

    @property
    def lookahead(self) -> int:
        """How many steps ahead the batch looks."""
        return 1

    def sample(self, key: Array, dataset: Dataset, size: int) -> Any:
        """A batch of `size` rows for `loss`: a pure function of its arguments, compiled into every step.

        Override it for a sampler of your own; any tree of arrays with `size` rows will do.
        """
        return sample_batch(
            key,
            dataset,
            size,
            gamma=self.gamma,
            value_goals=self.value_goals,
            value_geometric=self.value_geometric,
            actor_goals=self.actor_goals,
            actor_geometric=self.actor_geometric,
            lookahead=self.lookahead,
        )

    def optimizer(self, learning_rate: float) -> optax.GradientTransformation:
        """What turns gradients into updates: any Optax transformation, schedules included."""
        return optax.adam(learning_rate)

    @abstractmethod
    def init(self, key: Array, spec: Spec) -> Any:
        """Fresh networks."""

    def targets(self, nets: Any) -> Any:
        """The part of the networks that has a moving average."""
        return getattr(nets, self.averaged) if self.averaged else None

    @abstractmethod
    def loss(self, nets: Any, target: Any, batch: Batch, key: Array, /) -> tuple[Array, Metrics]:
        """The scalar to minimise, all terms summed, and what to log."""

    def policy(self, nets: Any) -> PolicyNetwork:
        """The network that becomes `policy.npz`: ours, or anything that acts and can export itself."""
        return nets.actor

    def act(self, nets: Any, observation: Array, goal: Array, key: Array) -> Array:
        """The action at evaluation, within -1 to 1: the mean of a Gaussian policy, a draw from a flow."""
        return jnp.clip(self.policy(nets).act(observation, goal, key), -1, 1)

    def value(self, nets: Any, observation: Array, goal: Array) -> Array | None:
        """V(s, g) for pictures, as E[gamma^T] where the method has one; None for methods without a value."""
        return nets.value(observation, goal) if isinstance(nets, ActorCritic) else None

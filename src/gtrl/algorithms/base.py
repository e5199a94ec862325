"""What every method is: a frozen dataclass whose fields are its hyperparameters."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

import jax.numpy as jnp
import tyro
from jax import Array

from gtrl.data.goals import Batch
from gtrl.errors import ConfigError
from gtrl.networks import Actor, ActorCritic, FlowActor, Spec
from gtrl.tasks import ACTOR_GOALS, HIDDEN, TARGET_RATE, VALUE_GOALS, Goals

Metrics = dict[str, Array]
Family = Literal["behavioural cloning", "temporal difference", "Monte Carlo", "triangle inequality"]
# A Python name cannot be `lambda`; the flag can.
Lambda = Annotated[float, tyro.conf.arg(name="lambda")]


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

    gamma: float = 0.99  # discount, and the parameter of geometric goal offsets
    value_goals: Goals = VALUE_GOALS  # (current, trajectory, random)
    value_geometric: bool = True  # geometric offsets along the trajectory, else uniform
    actor_goals: Goals = ACTOR_GOALS  # the same for the goals the policy is trained on
    actor_geometric: bool = False  # geometric offsets for them, else uniform
    hidden: tuple[int, ...] = HIDDEN  # widths of all networks
    target_rate: float = TARGET_RATE  # eta

    def __post_init__(self) -> None:
        for field in fields(self):
            value: Any = getattr(self, field.name)
            if isinstance(value, list):  # fields must be hashable
                object.__setattr__(self, field.name, tuple(value))
            elif type(value) in (int, float) and not 0 <= value < math.inf:
                raise ConfigError(f"{field.name.strip('_')} is {value} and must be a number from 0 up.")
            elif field.name.startswith("kappa") and not 0.5 <= value < 1:
                raise ConfigError(f"{field.name} is {value} and must lie from 0.5 up to below 1.")
            elif field.type is int and (value < 1 or value != int(value)):
                raise ConfigError(f"{field.name} is {value} and must be a whole number from 1 up.")
        if not 0 < self.gamma < 1:
            raise ConfigError(f"gamma is {self.gamma} and must lie between 0 and 1.")
        for name in ("value_goals", "actor_goals"):
            mixture = getattr(self, name)
            if len(mixture) != 3 or min(mixture) < 0 or abs(sum(mixture) - 1) > 1e-6:
                raise ConfigError(
                    f"{name} is {mixture} and must be three probabilities (current, trajectory, random) that sum to 1."
                )
        if self.trajectory_goals and tuple(self.value_goals) != (0, 1, 0):
            reason = "it has no target for goals off the state's trajectory"
            raise ConfigError(f"value_goals of {self.title} must be (0, 1, 0): {reason}.")
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"hidden is {self.hidden} and must be one or more positive widths.")
        if not 0 < self.target_rate <= 1:
            raise ConfigError(f"target_rate is {self.target_rate} and must lie in (0, 1].")

    @property
    def lookahead(self) -> int:
        """How many steps ahead the batch looks."""
        return 1

    @abstractmethod
    def init(self, key: Array, spec: Spec) -> Any:
        """Fresh networks."""

    def targets(self, nets: Any) -> Any:
        """The part of the networks that has a moving average."""
        return getattr(nets, self.averaged) if self.averaged else None

    @abstractmethod
    def loss(self, nets: Any, target: Any, batch: Batch, key: Array, /) -> tuple[Array, Metrics]:
        """The scalar to minimise, all terms summed, and what to log."""

    def policy(self, nets: Any) -> Actor | FlowActor:
        """The network that becomes `policy.npz`."""
        return nets.actor

    def act(self, nets: Any, observation: Array, goal: Array, key: Array) -> Array:
        """The action at evaluation, within -1 to 1: the mean of a Gaussian policy, a draw from a flow."""
        return jnp.clip(self.policy(nets).act(observation, goal, key), -1, 1)

    def value(self, nets: Any, observation: Array, goal: Array) -> Array | None:
        """V(s, g) for pictures, as E[gamma^T] where the method has one; None for methods without a value."""
        return nets.value(observation, goal) if isinstance(nets, ActorCritic) else None

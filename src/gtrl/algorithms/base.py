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
from gtrl.networks import Actor, Spec
from gtrl.tasks import ACTOR_GOALS, HIDDEN, TARGET_RATE, VALUE_GOALS, Goals

Metrics = dict[str, Array]
Family = Literal["behavioural cloning", "temporal difference", "Monte Carlo", "triangle inequality"]
# A Python name cannot be `lambda`; the flag can.
Lambda = Annotated[float, tyro.conf.arg(name="lambda")]


@dataclass(frozen=True)
class Algorithm(ABC):
    """The fields all methods share, and the four things a method says. Hashable, so `jit` can hold it static.

    `nets` and `target` are pytrees of the method's own making; `target` is the moving average of
    `targets(nets)`.
    """

    name: ClassVar[str]  # in commands and files
    title: ClassVar[str]  # when shown
    family: ClassVar[Family]
    idea: ClassVar[str]  # one line
    reference: ClassVar[str]
    reconstruction: ClassVar[bool] = False  # rebuilt from a sentence rather than from a formula

    gamma: float = 0.99  # discount, and the parameter of geometric goal offsets
    value_goals: Goals = VALUE_GOALS  # (current, trajectory, random)
    value_geometric: bool = True  # geometric offsets along the trajectory, else uniform
    actor_goals: Goals = ACTOR_GOALS
    actor_geometric: bool = False
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
        if not 0 < self.gamma < 1:
            raise ConfigError(f"gamma is {self.gamma} and must lie between 0 and 1.")
        for name in ("value_goals", "actor_goals"):
            mixture = getattr(self, name)
            if len(mixture) != 3 or min(mixture) < 0 or abs(sum(mixture) - 1) > 1e-6:
                raise ConfigError(
                    f"{name} is {mixture} and must be three probabilities (current, trajectory, random) that sum to 1."
                )
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"hidden is {self.hidden} and must be one or more positive widths.")
        if not 0 < self.target_rate <= 1:
            raise ConfigError(f"target_rate is {self.target_rate} and must lie in (0, 1].")

    @abstractmethod
    def init(self, key: Array, spec: Spec) -> Any:
        """Fresh networks."""

    def targets(self, nets: Any) -> Any:
        """The part of the networks that has a moving average."""
        del nets
        return None

    @abstractmethod
    def loss(self, nets: Any, target: Any, batch: Batch, key: Array) -> tuple[Array, Metrics]:
        """The scalar to minimise, all terms summed, and what to log."""

    @abstractmethod
    def policy(self, nets: Any) -> Actor:
        """The network that becomes `policy.npz`."""

    def act(self, nets: Any, observation: Array, goal: Array, key: Array) -> Array:
        """The action at evaluation: the policy's mean, within -1 to 1."""
        del key
        return jnp.clip(self.policy(nets)(observation, goal), -1, 1)

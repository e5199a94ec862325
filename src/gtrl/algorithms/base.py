"""The base class of all methods: a frozen dataclass whose fields are the method's hyperparameters."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
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
from gtrl.tasks import ACTOR_GOALS, HIDDEN, STITCH_ACTOR_GOALS, TARGET_RATE, VALUE_GOALS, Goals, Task

Metrics = dict[str, Array]
Family = Literal["behavioural cloning", "temporal difference", "Monte Carlo", "triangle inequality"]
# `lambda` is a keyword in Python, so the field is `lambda_`; the command-line flag is still --lambda.
Lambda = Annotated[float, tyro.conf.arg(name="lambda")]


class PolicyNetwork(Exportable, Protocol):
    """A network that acts and can be exported to a policy file, which `gtrl.Policy` evaluates in NumPy."""

    def act(self, observation: Array, goal: Array, key: Array) -> Array:
        """Returns the actions for a batch of observations and goals; `key` is for policies that act at random."""
        ...


@dataclass(frozen=True)
class Algorithm(ABC):
    """A method: subclasses define at least `init` and `loss`. Hashable, so that `jit` can take it as a static argument.

    `nets`, the networks, is any pytree that `init` returns; `target` is the moving average of `targets(nets)`.
    """

    name: ClassVar[str]  # in commands and files
    title: ClassVar[str]  # in tables and messages
    family: ClassVar[Family]
    idea: ClassVar[str]  # a one-line description
    reference: ClassVar[str]
    reconstruction: ClassVar[bool] = False  # implemented from a description in words, without published formulas
    averaged: ClassVar[str | None] = None  # the field of `nets` whose moving average is the target
    trajectory_goals: ClassVar[bool] = False  # it only has targets for goals on the state's own trajectory
    value_is_return: ClassVar[bool] = True  # `value` estimates E[gamma^T]; False if it only ranks states
    # alpha by family of task, as published with OGBench for goals that are whole states (none are for oracle goals)
    alpha_by_family: ClassVar[Mapping[str, float]] = {}
    # Half of the policy's goals are random on every stitch dataset, as published with OGBench; without it, on the
    # five tasks of the paper's stitch group.
    mixes_stitch_goals: ClassVar[bool] = False
    same_on_all_tasks: ClassVar[frozenset[str]] = frozenset()  # fields that ignore the task's defaults
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # named settings: fields that differ from the defaults

    gamma: float = checked(0.99, DISCOUNT)  # discount; geometric goal offsets have the parameter 1 - gamma
    value_goals: Goals = checked(VALUE_GOALS, PROBABILITIES)  # critic's goal mixture (current, trajectory, random)
    value_geometric: bool = True  # geometric offsets of the critic's goals along the trajectory, else uniform
    actor_goals: Goals = checked(ACTOR_GOALS, PROBABILITIES)  # policy's goal mixture (current, trajectory, random)
    actor_geometric: bool = False  # geometric offsets of the policy's goals along the trajectory, else uniform
    random_last_rows: bool = True  # random goals may be a trajectory's last row; False: never, as in public code
    hidden: tuple[int, ...] = checked(HIDDEN, WIDTHS)  # widths of the hidden layers of all networks
    actor_layer_norm: bool = True  # layer norm in the policy's hidden layers
    target_rate: float = checked(TARGET_RATE, FRACTION)  # eta, the rate of the target's moving average
    # The target's moving average uses the networks after the update (Algorithm 1) or before it (public code).
    target_from: Literal["updated", "previous"] = "updated"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.trajectory_goals and tuple(self.value_goals) != (0, 1, 0):
            reason = "it has no target for goals off the state's trajectory"
            raise ConfigError(f"value_goals of {self.title} must be (0, 1, 0): {reason}.")

    @classmethod
    def defaults(cls, task: Task) -> dict[str, Any]:
        """Returns the defaults that are specific to a task, by field.

        These are the task's defaults for fields of this method, `alpha` where `alpha_by_family` has one, and
        `actor_goals` on stitch datasets if `mixes_stitch_goals`.
        """
        own_fields = {field.name for field in fields(cls)} - cls.same_on_all_tasks
        defaults = {name: value for name, value in task.defaults.items() if name in own_fields}
        if task.family in cls.alpha_by_family:
            defaults["alpha"] = cls.alpha_by_family[task.family]
        if cls.mixes_stitch_goals and task.has_stitch_data:
            defaults["actor_goals"] = STITCH_ACTOR_GOALS
        return defaults

    @property
    def lookahead(self) -> int:
        """The n of the batch's n-step fields, such as `ahead_observation`."""
        return 1

    @property
    def sampling(self) -> dict[str, Any]:
        """The keyword arguments of `sample_batch`."""
        return {
            "gamma": self.gamma,
            "value_goals": self.value_goals,
            "value_geometric": self.value_geometric,
            "actor_goals": self.actor_goals,
            "actor_geometric": self.actor_geometric,
            "lookahead": self.lookahead,
            "random_last_rows": self.random_last_rows,
        }

    def sample(self, key: Array, dataset: Dataset, size: int) -> Any:
        """Returns a batch of `size` rows for `loss`: a pure function of its arguments, compiled into every step.

        Override it for a custom sampler; a batch may be any pytree of arrays with `size` rows.
        """
        return sample_batch(key, dataset, size, **self.sampling)

    def optimizer(self, learning_rate: float) -> optax.GradientTransformation:
        """Returns the optimiser: Adam, or any Optax transformation in an override, schedules included."""
        return optax.adam(learning_rate)

    def without_effect(self) -> Iterable[tuple[str, str]]:
        """Yields the fields that have no effect because of the values of others, and why; `make` rejects them.

        A reason completes "gamma is 0.9, which has no effect ...". Values from presets and defaults are not rejected.
        """
        return ()

    @abstractmethod
    def init(self, key: Array, spec: Spec) -> Any:
        """Returns freshly initialised networks for data with the dimensions `spec`."""

    def targets(self, nets: Any) -> Any:
        """Returns the networks that the target is the moving average of; None for methods without a target."""
        return getattr(nets, self.averaged) if self.averaged else None

    @abstractmethod
    def loss(self, nets: Any, target: Any, batch: Batch, key: Array, /) -> tuple[Array, Metrics]:
        """Returns the scalar to minimise, all terms summed, and the metrics to log."""

    def policy(self, nets: Any) -> PolicyNetwork:
        """Returns the network that is exported to policy files: `nets.actor`, or any `PolicyNetwork` in an override."""
        return nets.actor

    def act(self, nets: Any, observation: Array, goal: Array, key: Array) -> Array:
        """Returns the action at evaluation, within [-1, 1]: the mean of a Gaussian policy, a sample from a flow."""
        return jnp.clip(self.policy(nets).act(observation, goal, key), -1, 1)

    def value(self, nets: Any, observation: Array, goal: Array) -> Array | None:
        """Returns V(s, g) for value maps and warnings, in units of E[gamma^T]; None for methods without a value."""
        return nets.value(observation, goal) if isinstance(nets, ActorCritic) else None

    def action_value(self, nets: Any, observation: Array, action: Array, goal: Array) -> Array | None:
        """Returns what the policy is trained to maximise over actions, on any scale, (B,).

        It is None for methods whose policy maximises no critic. `gtrl diagnose` and the metrics `policy/...` use it.
        """
        return nets.acting_critic(observation, action, goal).min(0) if isinstance(nets, ActorCritic) else None

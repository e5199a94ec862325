"""What is configured about training, whatever the method; and a method with its fields."""

import dataclasses
import logging
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax

from gtrl.algorithms import ALGORITHMS, Algorithm, find_algorithm, make
from gtrl.data.dataset import Spec
from gtrl.errors import ConfigError
from gtrl.fields import COUNT, COUNT_OR_ZERO, POSITIVE, check_fields, checked
from gtrl.nn.speed import OPTIMISATIONS, Optimisation, best
from gtrl.registry import load_plugin
from gtrl.tasks import BATCH_SIZE, GRADIENT_STEPS, LEARNING_RATE, SCORED_STEPS, Task

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Training:
    """What is the same for every method: how long, how large, how precise, what is kept."""

    steps: int = checked(GRADIENT_STEPS, COUNT)  # gradient steps
    batch_size: int = checked(BATCH_SIZE, COUNT)
    learning_rate: float = checked(LEARNING_RATE, POSITIVE)
    precision: Literal["float32", "bfloat16"] = "float32"  # of the networks; QRL and IVL want float32
    fast: tuple[Optimisation, ...] | None = None  # what speeds a step up (gtrl.nn.speed); by default all that pays here
    devices: int | None = None  # to spread seeds and, then, the batch over; by default as many as divide the seeds
    # The moving average takes the updated networks, as Algorithm 1 writes it, or (public code) the previous ones.
    target_from: Literal["updated", "previous"] = "updated"
    log_every: int = checked(5000, COUNT)  # steps between two lines of the log
    shard_steps: int = checked(5000, COUNT)  # steps on each shard before the next, where the data is kept in several
    checkpoints: tuple[int, ...] = SCORED_STEPS  # steps whose checkpoint is never removed; nor is the last one's
    checkpoint_every: int = checked(0, COUNT_OR_ZERO)  # policies and a checkpoint every so many steps
    checkpoint_minutes: float = checked(5.0, POSITIVE)  # and a checkpoint every so many minutes, to resume from
    keep: int = checked(3, COUNT)  # the newest so many checkpoints are kept besides

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.fast or ():
            if name not in OPTIMISATIONS:
                raise ConfigError(f"fast names '{name}'; it may name {', '.join(OPTIMISATIONS)}.")
        if self.devices is not None and not 1 <= self.devices <= jax.local_device_count():
            raise ConfigError(f"devices is {self.devices}; there are {jax.local_device_count()} here.")

    @property
    def checkpoint_steps(self) -> list[int]:
        """Where policies are written, and a checkpoint; those of the clock come besides."""
        every = range(0, self.steps, self.checkpoint_every) if self.checkpoint_every else ()
        return sorted({step for step in (*self.checkpoints, *every, self.steps) if 0 < step <= self.steps})

    @property
    def kept_steps(self) -> set[int]:
        """Steps whose checkpoint is never removed."""
        return {*self.checkpoints, self.steps}

    @property
    def update(self) -> "Update":
        fast = best(jax.default_backend()) if self.fast is None else self.fast
        return Update(
            self.batch_size, self.learning_rate, self.precision, self.target_from, tuple(sorted(fast)), self.devices
        )


class Update(NamedTuple):
    """What one gradient step depends on: the static part of the compiled programs. See `Training`."""

    batch_size: int
    learning_rate: float
    precision: str = "float32"
    target_from: str = "updated"
    fast: tuple[str, ...] = ()
    devices: int | None = 1


def configure(
    algorithm: str | type[Algorithm] | Algorithm,
    training: Training | None,
    task: Task | None,
    spec: Spec,
    fields: dict[str, Any],
) -> tuple[Algorithm, Training]:
    """The method and the training, with `fields` of either on top of the defaults for (method, task).

    A method given as an object is taken as it is. A field that both have is the method's where `training` is given.
    """
    kind = _kind_of(algorithm)
    of_method = {field.name for field in dataclasses.fields(kind)}
    of_training = {field.name for field in dataclasses.fields(Training)}
    _check_names(kind, of_method, of_training, fields, training is not None)
    own = {name: value for name, value in fields.items() if name in of_method}
    rest = {name: value for name, value in fields.items() if name not in of_method}
    if isinstance(algorithm, Algorithm):
        made = dataclasses.replace(algorithm, **own)
        _warn_of_other_defaults(made, task, own)
    else:
        made = make(kind, task, **own)
    if getattr(made, "distill", True) is False and spec.goal_dim != spec.observation_dim:
        raise ConfigError("distill is off, but the goals of this data are not whole states.")
    return made, dataclasses.replace(training or Training(), **rest)


def _kind_of(algorithm: Any) -> type[Algorithm]:
    """The class of a method, which is registered, with what else its module defines, if it is not ours."""
    kind = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    kind = kind if isinstance(kind, type) else type(kind)
    if not issubclass(kind, Algorithm):
        raise ConfigError(f"{algorithm!r:.60} is not a method: give its name, its class, or an object of it.")
    if "name" not in vars(kind):
        raise ConfigError(f"{kind.__name__} needs a name of its own: name: ClassVar = ...")
    if ALGORITHMS.module_of(kind.name) is not None or kind.name not in ALGORITHMS.entries:
        load_plugin(kind.__module__)
    ALGORITHMS.add(kind, kind.__module__)
    return kind


def _check_names(
    kind: type[Algorithm], of_method: set[str], of_training: set[str], fields: dict[str, Any], separate: bool
) -> None:
    for name in fields:
        if name not in of_method | of_training:
            known = f"{kind.title} has {', '.join(sorted(of_method))}; training has {', '.join(sorted(of_training))}"
            raise ConfigError(f"there is no field '{name}': {known}.")
        if name in of_method & of_training and not separate:
            ways = f"give one as {kind.__name__}({name}=...), the other as training=Training({name}=...)"
            raise ConfigError(f"'{name}' is a field of {kind.title} and of Training: {ways}.")


def _warn_of_other_defaults(algorithm: Algorithm, task: Task | None, given: Container[str]) -> None:
    """An object has its class's defaults, which may not be the task's; fields that were given besides are meant."""
    expected = type(algorithm).defaults(task) if task else {}
    other = {name: value for name, value in expected.items() if name not in given and getattr(algorithm, name) != value}
    if task and other:
        values = {name.strip("_"): (getattr(algorithm, name), value) for name, value in other.items()}
        differing = ", ".join(f"{name} is {own}, not {value}" for name, (own, value) in values.items())
        hint = f"gtrl.make({algorithm.name!r}, {task.name!r}) has the task's"
        log.warning("%s differs from its defaults for %s: %s; %s.", algorithm.title, task.name, differing, hint)

"""The configuration of training, and how it is combined with the fields of a method."""

import dataclasses
import logging
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax

from gtrl.algorithms import ALGORITHMS, Algorithm, defaults_for, find_algorithm, make, preset_fields
from gtrl.data.dataset import Spec
from gtrl.errors import ConfigError
from gtrl.fields import COUNT, COUNT_OR_ZERO, POSITIVE, check_fields, checked
from gtrl.nn import speed
from gtrl.registry import load_plugin
from gtrl.runs.run import policy_steps
from gtrl.tasks import BATCH_SIZE, GRADIENT_STEPS, LEARNING_RATE, SCORED_STEPS, Task

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Training:
    """Settings of training that are independent of the method: length, batch size, precision, logs, checkpoints."""

    steps: int = checked(GRADIENT_STEPS, COUNT)  # gradient steps; for own data, as its sizes, by the amount of data
    batch_size: int = checked(BATCH_SIZE, COUNT)  # transitions in a batch
    learning_rate: float = checked(LEARNING_RATE, POSITIVE)  # of the optimiser
    precision: Literal["float32", "bfloat16"] = "float32"  # of the networks; float32 is advised for QRL and IVL
    fast: tuple[speed.Optimisation, ...] | None = None  # speed optimisations; by default all that help on this device
    devices: int | None = None  # devices that share the seeds, then the batch; by default as many as divide the seeds
    log_every: int = checked(5000, COUNT)  # steps between two rows of the log
    shard_steps: int = checked(5000, COUNT)  # steps on each shard before the next, where the data has several
    checkpoints: tuple[int, ...] = SCORED_STEPS  # steps whose checkpoints are never removed; nor is the last step's
    checkpoint_every: int = checked(0, COUNT_OR_ZERO)  # steps between two checkpoints with policies; 0 for none
    checkpoint_minutes: float = checked(5.0, POSITIVE)  # minutes between two checkpoints that only serve to resume
    keep: int = checked(3, COUNT)  # how many of the other checkpoints are kept, the newest ones

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.fast or ():
            if name not in speed.OPTIMISATIONS:
                raise ConfigError(f"fast has '{name}'; the optimisations are {', '.join(speed.OPTIMISATIONS)}.")
        if self.devices is not None and not 1 <= self.devices <= jax.local_device_count():
            raise ConfigError(f"devices is {self.devices}; this machine has {jax.local_device_count()}.")

    @property
    def checkpoint_steps(self) -> list[int]:
        """The steps at which policies and a checkpoint are written. Those of `checkpoint_minutes` are not included."""
        return policy_steps(self.steps, self.checkpoints, self.checkpoint_every)

    @property
    def kept_steps(self) -> set[int]:
        """The steps whose checkpoints are never removed."""
        return {*self.checkpoints, self.steps}

    @property
    def update(self) -> "Update":
        """The settings of one gradient step."""
        fast = speed.defaults_for(jax.default_backend()) if self.fast is None else self.fast
        return Update(self.batch_size, self.learning_rate, self.precision, tuple(sorted(fast)), self.devices)


class Update(NamedTuple):
    """The settings of one gradient step: a static argument of the compiled programs. See `Training` for the fields."""

    batch_size: int
    learning_rate: float
    precision: str = "float32"
    fast: tuple[str, ...] = ()
    devices: int | None = 1


def configure(
    algorithm: str | type[Algorithm] | Algorithm,
    training: Training | None,
    task: Task | None,
    spec: Spec,
    fields: dict[str, Any],
    own: Mapping[str, Any] | None = None,
) -> tuple[Algorithm, Training]:
    """Returns the method and the training settings, with `fields` of either overriding the defaults for (method, task).

    `fields` may also have a `preset` of the method, which the other fields override. `own` are defaults for data of
    one's own; those of the task come before them. They do not apply to a method that is given as an object, which keeps
    its fields, nor to training settings that are given. Where `training` is given, a field that
    both the method and `Training` have is taken as the method's.
    """
    kind = _kind_of(algorithm)
    method_names = {field.name for field in dataclasses.fields(kind)}
    training_names = {field.name for field in dataclasses.fields(Training)}
    preset = fields.get("preset")
    fields = {name: value for name, value in fields.items() if name != "preset"}
    _check_names(kind, method_names, training_names, fields, training is not None)
    method_fields = {name: value for name, value in fields.items() if name in method_names}
    training_fields = {name: value for name, value in fields.items() if name not in method_names}
    if isinstance(algorithm, Algorithm):
        method_fields = preset_fields(kind, preset) | method_fields
        method = dataclasses.replace(algorithm, **method_fields)
        _warn_of_other_defaults(method, task, method_fields)
    else:
        specific = (defaults_for(kind, task) if task else {}) | preset_fields(kind, preset)
        open_names = method_names - specific.keys() - training_names - kind.same_on_all_tasks
        chosen = {name: value for name, value in (own or {}).items() if name in open_names}
        method = make(kind, task, preset=preset, **(chosen | method_fields))
    if getattr(method, "distill", True) is False and spec.goal_dim != spec.observation_dim:
        raise ConfigError("distill is off, but the goals of this data are not whole states.")
    if training is None:
        training_fields = {
            name: value for name, value in (own or {}).items() if name in training_names
        } | training_fields
    return method, dataclasses.replace(training or Training(), **training_fields)


def _kind_of(algorithm: Any) -> type[Algorithm]:
    """Returns the class of a method. One that is not built in is registered, with its module as a plugin."""
    kind = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    kind = kind if isinstance(kind, type) else type(kind)
    if not issubclass(kind, Algorithm):
        raise ConfigError(f"{algorithm!r:.60} is not a method: give its name, its class, or an instance of it.")
    if "name" not in vars(kind):
        raise ConfigError(f"{kind.__name__} needs a name of its own: name: ClassVar = ...")
    if ALGORITHMS.module_of(kind.name) is not None or kind.name not in ALGORITHMS.entries:
        load_plugin(kind.__module__)
    ALGORITHMS.add(kind, kind.__module__)
    return kind


def _check_names(
    kind: type[Algorithm], method_names: set[str], training_names: set[str], fields: dict[str, Any], separate: bool
) -> None:
    """Rejects names that are no field, and ambiguous ones unless the training settings are given separately."""
    for name in fields:
        if name not in method_names | training_names:
            of_method, of_training = ", ".join(sorted(method_names)), ", ".join(sorted(training_names))
            raise ConfigError(f"there is no field '{name}': {kind.title} has {of_method}; training has {of_training}.")
        if name in method_names & training_names and not separate:
            hint = f"give one as {kind.__name__}({name}=...), the other as training=Training({name}=...)"
            raise ConfigError(f"'{name}' is a field of {kind.title} and of Training: {hint}.")


def _warn_of_other_defaults(algorithm: Algorithm, task: Task | None, explicit: Container[str]) -> None:
    """Warns where an instance has the defaults of its class but the task has others; `explicit` fields are exempt."""
    expected = type(algorithm).defaults(task) if task else {}
    differing = [
        f"{name.strip('_')} is {getattr(algorithm, name)}, not {value}"
        for name, value in expected.items()
        if name not in explicit and getattr(algorithm, name) != value
    ]
    if task and differing:
        hint = f"gtrl.make({algorithm.name!r}, {task.name!r}) has the task's"
        values = ", ".join(differing)
        log.warning("%s differs from its defaults for %s: %s; %s.", algorithm.title, task.name, values, hint)

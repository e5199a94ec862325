"""What is configured about training, whatever the method."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax

from gtrl.errors import ConfigError
from gtrl.nn.speed import OPTIMISATIONS, Optimisation, best
from gtrl.tasks import BATCH_SIZE, GRADIENT_STEPS, LEARNING_RATE, SCORED_STEPS


@dataclass(frozen=True)
class Training:
    """What is the same for every method: how long, how large, how precise, what is kept."""

    steps: int = GRADIENT_STEPS
    batch_size: int = BATCH_SIZE
    learning_rate: float = LEARNING_RATE
    precision: Literal["float32", "bfloat16"] = "float32"  # of the networks; QRL and IVL want float32
    fast: tuple[Optimisation, ...] | None = None  # what speeds a step up (gtrl.nn.speed); by default all that pays here
    devices: int | None = None  # to spread seeds and, then, the batch over; by default as many as divide the seeds
    # The moving average takes the updated networks, as Algorithm 1 writes it, or (public code) the previous ones.
    target_from: Literal["updated", "previous"] = "updated"
    log_every: int = 5000  # steps between two lines of the log
    shard_steps: int = 5000  # steps on each shard before the next, where the data is kept in several
    checkpoints: tuple[int, ...] = SCORED_STEPS  # steps that are kept for good; the last one always is
    checkpoint_every: int = 0  # policies and a checkpoint every so many steps
    checkpoint_minutes: float = 5.0  # and a checkpoint every so many minutes, to go on from
    keep: int = 3  # the newest so many checkpoints are kept besides

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "log_every", "shard_steps", "keep"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)} and must be at least 1.")
        for name in self.fast or ():
            if name not in OPTIMISATIONS:
                raise ConfigError(f"fast names '{name}'; it may name {', '.join(OPTIMISATIONS)}.")
        if self.devices is not None and not 1 <= self.devices <= jax.local_device_count():
            raise ConfigError(f"devices is {self.devices}; there are {jax.local_device_count()} here.")
        if self.checkpoint_every < 0:
            raise ConfigError(f"checkpoint_every is {self.checkpoint_every} and must not be negative.")
        for name in ("learning_rate", "checkpoint_minutes"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} is {getattr(self, name)} and must be positive.")

    @property
    def checkpoint_steps(self) -> list[int]:
        """Where policies are written, and a checkpoint; those of the clock come besides."""
        every = range(0, self.steps, self.checkpoint_every) if self.checkpoint_every else ()
        return sorted({step for step in (*self.checkpoints, *every, self.steps) if 0 < step <= self.steps})

    @property
    def for_good(self) -> set[int]:
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

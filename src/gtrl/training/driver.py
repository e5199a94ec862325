"""Drives the compiled loop: runs chunks of about a second, and logs, checkpoints and changes shards between them."""

import time
from collections.abc import Callable
from functools import partial

from jax import Array

from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Data
from gtrl.data.shards import Rotation
from gtrl.training.config import Training
from gtrl.training.devices import replicate
from gtrl.training.loop import State, advance_parts, divide, unite
from gtrl.training.watch import all_finite, locate_non_finite

CHUNK_SECONDS = 1.0  # time that a chunk of steps should take
MIN_CHUNK_STEPS = 5  # on a CPU, a large program reallocates its memory each time it is called
FIXED_CHUNK_STEPS: int | None = None  # for tests: the number of steps in a chunk, instead of a measured one


class Chunks:
    """Chooses the number of steps in a chunk, from the measured speed, so that it takes about `CHUNK_SECONDS`."""

    def __init__(self, fixed: int | None = None) -> None:
        """`fixed` is the number of steps in a chunk, if it is not to be measured."""
        self.fixed = fixed
        self.steps = fixed or 1
        self.compiled = False

    def record(self, steps: int, seconds: float) -> None:
        """Updates the number of steps, given how long the last chunk took."""
        if self.fixed is None and self.compiled:
            rate = steps / max(seconds, 1e-6)
            self.steps = max(MIN_CHUNK_STEPS, min(int(rate * CHUNK_SECONDS), 10 * self.steps))
        self.compiled = True  # the time of the first chunk includes the compilation, so it is not used


def fit(
    algorithm: Algorithm,
    training: Training,
    states: State,
    keys: Array,
    rotation: Rotation,
    *,
    on_step: Callable[[int], None] = lambda _: None,
    on_log: Callable[[int, State, Data], None] = lambda *_: None,
    on_checkpoint: Callable[[int, State], bool | None] = lambda *_: False,
    checkpoint_now: Callable[[], bool] = lambda: False,
    chunk: int | None = None,
) -> State:
    """Trains from the current step of `states` to the last step; returns the final states.

    Args:
        algorithm: The method.
        training: The settings of training.
        states: The states of all seeds.
        keys: The random key of each seed.
        rotation: The data, shard by shard.
        on_step: Called after each chunk, with the step.
        on_log: Called every `log_every` steps and at the end, with the step, the states and the current shard.
        on_checkpoint: Called at each checkpoint, with the step and the states. Training ends if it returns True.
        checkpoint_now: Called after each chunk; returns whether to add a checkpoint.
        chunk: The number of steps in a chunk; measured by default.

    Raises:
        NonFiniteError: If a loss or a parameter is not finite.
    """
    chunks, update = Chunks(chunk or FIXED_CHUNK_STEPS), training.update
    checkpoints = set(training.checkpoint_steps)
    step = int(states.step[0])
    data = rotation.at(step)
    dataset = replicate(update, data.train, len(keys))
    parts = divide(update, states)
    del states  # frees a copy of the states if there are several parts
    while step < training.steps:
        if rotation.at(step) is not data:
            data = rotation.at(step)
            dataset = replicate(update, data.train, len(keys))
        count = min(chunks.steps, _next_stop(step, training, rotation) - step)
        start_time = time.perf_counter()
        advance = partial(advance_parts, algorithm, update, parts, keys, dataset)
        new_parts = advance(count)
        chunks.record(count, time.perf_counter() - start_time)
        if not all_finite(new_parts):
            raise locate_non_finite(step, count, advance)
        parts = new_parts
        del new_parts, advance  # `advance` holds the states before the chunk
        step += count
        on_step(step)
        is_log_step = step % training.log_every == 0
        if is_log_step or step == training.steps:
            on_log(step, unite(parts), data)
        if is_log_step:  # after a last step between two logs, a longer run continues these sums when it is resumed
            parts = [part.reset_metrics() for part in parts]
        if (step in checkpoints or checkpoint_now()) and on_checkpoint(step, unite(parts)):
            break
    return unite(parts)


def _next_stop(step: int, training: Training, rotation: Rotation) -> int:
    """The next step at which a chunk has to end: a log, another shard, a checkpoint, or the last step."""
    next_log = (step // training.log_every + 1) * training.log_every
    next_shard = rotation.next_switch(step) or training.steps
    checkpoints = (checkpoint for checkpoint in training.checkpoint_steps if checkpoint > step)
    return min([next_log, next_shard, training.steps, *checkpoints])

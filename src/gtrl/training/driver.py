"""From one log, checkpoint and shard to the next, in chunks of about a second."""

import time
from collections.abc import Callable
from functools import partial

from jax import Array

from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Data
from gtrl.data.shards import Rotation
from gtrl.training.config import Training
from gtrl.training.devices import everywhere
from gtrl.training.loop import State, advance_parts, divide, unite
from gtrl.training.watch import all_finite, locate_non_finite

CHUNK_SECONDS = 1.0  # how long the device works between two looks at the clock
CHUNK_STEPS = 5  # and no fewer steps than that: on a CPU, a large program takes memory anew each time it is entered
FIXED_CHUNK_STEPS: int | None = None  # instead of measuring, where tests want to know them


class Chunks:
    """How many steps to send to the device at once: about a second's worth, found by measuring."""

    def __init__(self, fixed: int | None = None) -> None:
        self.fixed = fixed
        self.steps = fixed or 1
        self.warm = False

    def took(self, steps: int, seconds: float) -> None:
        if self.fixed is None and self.warm:
            rate = steps / max(seconds, 1e-6)
            self.steps = max(CHUNK_STEPS, min(int(rate * CHUNK_SECONDS), 10 * self.steps))
        self.warm = True  # the first chunk's time is that of the compilation


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
    """Train from where `states` stand to the last step, calling back on the way.

    `checkpoint_now` is asked after each chunk whether to add a checkpoint; training ends where `on_checkpoint` says so.
    `chunk` fixes the number of steps in a chunk. Raises `NonFiniteError`.
    """
    chunks, how = Chunks(chunk or FIXED_CHUNK_STEPS), training.update
    checkpoints = set(training.checkpoint_steps)
    step = int(states.step[0])
    data = rotation.at(step)
    dataset = everywhere(how, data.train, len(keys))
    parts = divide(how, states)
    del states  # another copy, where parts are several
    while step < training.steps:
        if rotation.at(step) is not data:
            data = rotation.at(step)
            dataset = everywhere(how, data.train, len(keys))
        count = min(chunks.steps, _next_stop(step, training, rotation) - step)
        began = time.perf_counter()
        advance = partial(advance_parts, algorithm, how, parts, keys, dataset)
        after = advance(count)
        chunks.took(count, time.perf_counter() - began)
        if not all_finite(after):
            raise locate_non_finite(step, count, advance)
        parts = after
        del after, advance
        step += count
        on_step(step)
        regular = step % training.log_every == 0  # else it is the end, and a longer run will go on with these sums
        if regular or step == training.steps:
            on_log(step, unite(parts), data)
        if regular:
            parts = [part.after_log() for part in parts]
        if (step in checkpoints or checkpoint_now()) and on_checkpoint(step, unite(parts)):
            break
    return unite(parts)


def _next_stop(step: int, training: Training, rotation: Rotation) -> int:
    """The next step at which there is something to do: a log, another shard, a checkpoint, the end."""
    next_log = (step // training.log_every + 1) * training.log_every
    next_shard = rotation.next_switch(step) or training.steps
    checkpoints = (mark for mark in training.checkpoint_steps if mark > step)
    return min([next_log, next_shard, training.steps, *checkpoints])

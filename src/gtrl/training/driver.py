"""From one log, checkpoint and shard to the next, in chunks of about a second."""

import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Data
from gtrl.data.shards import Rotation
from gtrl.training.config import Training
from gtrl.training.devices import everywhere
from gtrl.training.loop import State, advance_parts, divide, unite
from gtrl.training.watch import sound, unsound

CHUNK_SECONDS = 1.0  # how long the device works between two looks at the clock
CHUNK_STEPS = 5  # and no fewer steps than that: on a CPU, a large program takes memory anew each time it is entered


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
    on_step: Callable[[int], bool | None] | None = None,
    on_log: Callable[[int, dict[str, Array], State, Data], None] | None = None,
    on_checkpoint: Callable[[int, State], None] | None = None,
    chunk: int | None = None,
) -> State:
    """Train from where `states` stand to the last step, calling back on the way.

    Where `on_step`, called after each chunk, says so, there is a checkpoint out of turn. Raises `UnsoundError` when a
    number is no longer finite.
    """
    chunks, how = Chunks(chunk), training.update
    checkpoints = set(training.checkpoint_steps)
    step = start_of_log = int(states.step[0])
    start_of_log -= step % training.log_every  # `sums` go back to the last log, also after a resume
    data = rotation.at(step)
    dataset = everywhere(how, data.train, len(keys))
    parts = divide(how, states)
    del states  # another copy, where parts are several
    while step < training.steps:
        if rotation.at(step) is not data:
            data = rotation.at(step)
            dataset = everywhere(how, data.train, len(keys))
        next_log = (step // training.log_every + 1) * training.log_every
        next_shard = rotation.end(step) or training.steps
        stop = min([next_log, next_shard, training.steps, *(mark for mark in checkpoints if mark > step)])
        count = min(chunks.steps, stop - step)
        began = time.perf_counter()
        forth = partial(advance_parts, algorithm, how, parts, keys, dataset)
        after = forth(count)
        chunks.took(count, time.perf_counter() - began)
        if not sound(after):
            raise unsound(step, count, forth)
        parts = after
        del after, forth
        step += count
        asked = on_step(step) if on_step else False
        if step % training.log_every == 0 or step == training.steps:
            states = unite(parts)
            metrics = jax.tree.map(lambda total, span=step - start_of_log: total / span, states.sums)
            if on_log:
                on_log(step, metrics, states, data)
            del states
            if step % training.log_every == 0:  # else it is the end, or a resume will go on with these sums
                parts = [part._replace(sums=jax.tree.map(jnp.zeros_like, part.sums)) for part in parts]
                start_of_log = step
        if (asked or step in checkpoints) and on_checkpoint:
            on_checkpoint(step, unite(parts))
    return unite(parts)

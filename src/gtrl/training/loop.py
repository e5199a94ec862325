"""Training: jit(seeds(loop over steps)), data on the device, one Adam, moving-average targets."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import gcd
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Data, Dataset
from gtrl.data.goals import Batch, sample_batch
from gtrl.data.rotation import Rotation
from gtrl.errors import ConfigError
from gtrl.networks import Spec
from gtrl.speed import GRAPHS, OPTIMISATIONS, Optimisation, best, using
from gtrl.tasks import BATCH_SIZE, GRADIENT_STEPS, LEARNING_RATE, SCORED_STEPS
from gtrl.training.watch import sound, unsound
from gtrl.workers import default_workers

VALIDATION_BATCHES = 8
VALUES = 256  # of a look at a critic's values
CHUNK_SECONDS = 1.0  # how long the device works between two looks at the clock
CHUNK_STEPS = 5  # and no fewer steps than that: on a CPU, a large program takes memory anew each time it is entered
LARGE = 2**17  # numbers a layer has: on a CPU, products of that size keep all cores busy, and two would be in the way


@dataclass(frozen=True)
class Training:
    """What is the same for every method: how long, how large, how precise, what is kept."""

    steps: int = GRADIENT_STEPS
    batch_size: int = BATCH_SIZE
    learning_rate: float = LEARNING_RATE
    precision: Literal["float32", "bfloat16"] = "float32"  # of the networks; QRL and IVL want float32
    fast: tuple[Optimisation, ...] | None = None  # what speeds a step up (gtrl.speed); by default all that pays here
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

    def mesh(self, seeds: int) -> Mesh | None:
        """Devices as (seeds, batch): as many shares of the seeds as divide them, and of the batch what is left.

        Unless told how many, the batch stays whole: dividing it costs more than it brings.
        """
        across = gcd(seeds, self.devices or jax.local_device_count())
        within = (self.devices or across) // across
        if self.batch_size % within:
            reason = f"{seeds} seeds and batches of {self.batch_size} do not divide evenly over them"
            raise ConfigError(f"devices is {self.devices}, but {reason}.")
        if across * within == 1:
            return None
        devices = np.array(jax.local_devices()[: across * within]).reshape(across, within)
        return Mesh(devices, ("seeds", "batch"), axis_types=(AxisType.Auto, AxisType.Auto))

    def everywhere(self, dataset: Dataset, seeds: int) -> Dataset:
        """The dataset on each device that is used; sent there once, not with every chunk."""
        mesh = self.mesh(seeds)
        return dataset if mesh is None else jax.device_put(dataset, NamedSharding(mesh, PartitionSpec()))


class State(NamedTuple):
    """All that training carries; a leading axis for the seeds once there are several."""

    nets: Any
    target: Any
    optimizer: Any
    step: Array
    sums: dict[str, Array]  # metrics summed since the last log; on the device, so that logging costs no round trip


def seed_keys(seeds: Sequence[int]) -> Array:
    """The random stream of each seed; step k of a seed uses `fold_in(key, k)`."""
    return jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))


def draw(algorithm: Algorithm, key: Array, dataset: Dataset, size: int) -> Batch:
    """A batch as this method wants it."""
    return sample_batch(
        key,
        dataset,
        size,
        gamma=algorithm.gamma,
        value_goals=algorithm.value_goals,
        value_geometric=algorithm.value_geometric,
        actor_goals=algorithm.actor_goals,
        actor_geometric=algorithm.actor_geometric,
        lookahead=algorithm.lookahead,
    )


def _in_precision(tree: Any, precision: str) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(precision), tree)


def loss_of(algorithm: Algorithm, how: Update, nets: Any, target: Any, dataset: Dataset, key: Array):
    """The method's loss on a fresh batch, networks in the precision asked for."""
    batch_key, loss_key = jax.random.split(key)
    batch = _divided(draw(algorithm, batch_key, dataset, how.batch_size))
    nets, target = _in_precision((nets, target), how.precision)
    loss, metrics = algorithm.loss(nets, target, batch, loss_key)
    return loss, {"loss": loss, **metrics}


def _divided(batch: Batch) -> Batch:
    """Each device's share of the rows, where the batch is spread; every row is drawn as if it were not."""
    mesh = jax.sharding.get_abstract_mesh()
    if dict(mesh.shape).get("batch", 1) == 1:
        return batch
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, PartitionSpec("batch")), batch)


def _each_seed(how: Update, function: Callable[..., Any], states: Any, keys: Array, *shared: Any) -> Any:
    """`function(state, key, *shared)` of every seed, in one program on however many devices."""
    mesh, fast = how.mesh(len(keys)), how.fast
    if mesh is not None and mesh.shape["batch"] > 1:
        fast = tuple(name for name in fast if name != "kernels")  # XLA cannot divide what it has not made
    copies = len(keys) // (mesh.shape["seeds"] if mesh else 1)

    def side_by_side(states: Any, keys: Array, *shared: Any) -> Any:
        with using(fast, copies):
            if "apart" in fast and len(keys) == 1:
                state = function(jax.tree.map(lambda leaf: leaf[0], states), keys[0], *shared)
                return jax.tree.map(lambda leaf: leaf[None], state)
            return jax.vmap(lambda state, key: function(state, key, *shared))(states, keys)

    if mesh is None:
        return side_by_side(states, keys, *shared)
    each, all_of_it = PartitionSpec("seeds"), PartitionSpec()
    return jax.shard_map(
        side_by_side,
        mesh=mesh,
        in_specs=(each, each, *(all_of_it for _ in shared)),
        out_specs=each,
        axis_names={"seeds"} if mesh.shape["batch"] > 1 else {"seeds", "batch"},
        check_vma=False,
    )(states, keys, *shared)


@partial(jax.jit, static_argnames=("algorithm", "how", "spec"))
def init(algorithm: Algorithm, how: Update, spec: Spec, keys: Array, dataset: Dataset) -> State:
    """Fresh states, one for each seed. Their key is the stream's last, which no step uses."""

    def one_seed(key: Array) -> State:
        nets = algorithm.init(jax.random.fold_in(key, 2**32 - 1), spec)
        target = algorithm.targets(nets)
        shapes = jax.eval_shape(partial(loss_of, algorithm, how), nets, target, dataset, key)[1]
        return State(
            nets=nets,
            target=jax.tree.map(jnp.copy, target),
            optimizer=optax.adam(how.learning_rate).init(nets),
            step=jnp.zeros((), jnp.uint32),
            sums=jax.tree.map(lambda metric: jnp.zeros(metric.shape), shapes),
        )

    return jax.vmap(one_seed)(keys)


class Form(NamedTuple):
    """How a tree of parameters is kept while the loop runs: as it is, or as one vector."""

    keep: Callable[[Any], Any]
    restore: Callable[[Any], Any]

    @classmethod
    def of(cls, tree: Any, flat: bool) -> "Form":
        if not flat:
            return cls(lambda tree: tree, lambda tree: tree)
        leaves, structure = jax.tree.flatten(tree)
        sizes, shapes = [leaf.size for leaf in leaves], [leaf.shape for leaf in leaves]
        starts = list(accumulate(sizes, initial=0))

        def keep(tree: Any) -> Array:
            return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)] or [jnp.zeros(0)])

        def restore(vector: Array) -> Any:
            parts = zip(starts, sizes, shapes, strict=False)
            return structure.unflatten([vector[start : start + size].reshape(shape) for start, size, shape in parts])

        return cls(keep, restore)


def _kept(state: State, nets: Form, target: Form) -> State:
    adam, rest = state.optimizer
    adam = adam._replace(mu=nets.keep(adam.mu), nu=nets.keep(adam.nu))
    return state._replace(nets=nets.keep(state.nets), target=target.keep(state.target), optimizer=(adam, rest))


def _restored(state: State, nets: Form, target: Form) -> State:
    adam, rest = state.optimizer
    adam = adam._replace(mu=nets.restore(adam.mu), nu=nets.restore(adam.nu))
    return state._replace(nets=nets.restore(state.nets), target=target.restore(state.target), optimizer=(adam, rest))


def update(
    algorithm: Algorithm, how: Update, dataset: Dataset, key: Array, nets_form: Form, target_form: Form, state: State
) -> State:
    """One gradient step of one seed."""
    step_key = jax.random.fold_in(key, state.step)
    loss = partial(loss_of, algorithm, how)
    before = nets_form.restore(state.nets)
    grads, metrics = jax.grad(loss, has_aux=True)(before, target_form.restore(state.target), dataset, step_key)
    changes, optimizer = optax.adam(how.learning_rate).update(nets_form.keep(grads), state.optimizer)
    nets = optax.apply_updates(state.nets, changes)
    source = algorithm.targets(nets_form.restore(nets) if how.target_from == "updated" else before)
    return State(
        nets=nets,
        target=optax.incremental_update(target_form.keep(source), state.target, algorithm.target_rate),
        optimizer=optimizer,
        step=state.step + 1,
        sums=jax.tree.map(jnp.add, state.sums, metrics),
    )


def _advance(algorithm: Algorithm, how: Update, states: State, keys: Array, dataset: Dataset, steps: Array) -> State:
    """`steps` gradient steps of every seed in one program.

    The number of steps is an ordinary argument: one compilation serves every chunk length, and so no
    chunk length can change a result, not even in its last bit.
    """

    def one_seed(state: State, key: Array, dataset: Dataset, steps: Array) -> State:
        forms = Form.of(state.nets, "flat" in how.fast), Form.of(state.target, "flat" in how.fast)
        body = partial(update, algorithm, how, dataset, key, *forms)
        state = jax.lax.fori_loop(0, steps, lambda _, state: body(state), _kept(state, *forms))
        return _restored(state, *forms)

    return _each_seed(how, one_seed, states, keys, dataset, steps)


# States are not given away: what a chunk began with stays until its end was found sound, and while it is being saved.
_jit = partial(jax.jit, static_argnames=("algorithm", "how"))
_PROGRAMS = {False: _jit(_advance), True: _jit(_advance, compiler_options=GRAPHS)}


def program(how: Update) -> Any:
    """`advance` as it is compiled."""
    return _PROGRAMS["graphs" in how.fast]


def divide(how: Update, states: State) -> list[State]:
    """The parts that advance by themselves: all seeds in one or, with seeds `apart`, one each."""
    seeds = len(states.step)
    return _parted(states) if "apart" in how.fast and seeds > 1 and not how.mesh(seeds) else [states]


def unite(parts: list[State]) -> State:
    return parts[0] if len(parts) == 1 else _joined(parts)


@jax.jit
def _parted(states: State) -> list[State]:
    """One state for each seed, still with an axis for seeds; one dispatch instead of one for every array."""
    return [jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], states) for k in range(len(states.step))]


@jax.jit
def _joined(parts: list[State]) -> State:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def advance_parts(
    algorithm: Algorithm, how: Update, parts: list[State], keys: Array, dataset: Dataset, steps: int
) -> list[State]:
    """`steps` gradient steps of every part; waits for them.

    Several parts are one program, run in threads: small ones, which leave cores idle, at the same time, large ones one
    after the other. What JAX is told for one thread alone, such as `jax.default_device`, does not reach them.
    """
    seeds = len(keys) // len(parts)

    def one(index: int) -> State:
        mine = keys[seeds * index : seeds * (index + 1)]
        count = jnp.asarray(steps, jnp.int32)
        return jax.block_until_ready(program(how)(algorithm, how, parts[index], mine, dataset, count))

    if len(parts) == 1:
        return [one(0)]
    large = how.batch_size * max(algorithm.hidden) >= LARGE
    with ThreadPoolExecutor(1 if large else min(len(parts), default_workers())) as pool:
        return list(pool.map(one, range(len(parts))))


def advance(algorithm: Algorithm, how: Update, states: State, keys: Array, dataset: Dataset, steps: int) -> State:
    """`advance_parts` of the whole."""
    return unite(advance_parts(algorithm, how, divide(how, states), keys, dataset, steps))


@partial(jax.jit, static_argnames=("algorithm", "how"))
def validate(algorithm: Algorithm, how: Update, states: State, keys: Array, dataset: Dataset) -> dict:
    """The same metrics on held-out data, averaged over a few batches; a stream of keys of its own."""

    def one_seed(state: State, key: Array, dataset: Dataset) -> dict:
        key = jax.random.fold_in(jax.random.fold_in(key, 2**32 - 2), state.step)
        metric = lambda key: loss_of(algorithm, how, state.nets, state.target, dataset, key)[1]  # noqa: E731
        metrics = jax.lax.map(metric, jax.random.split(key, VALIDATION_BATCHES))
        return jax.tree.map(lambda values: values.mean(0), metrics)

    return _each_seed(how, one_seed, states, keys, dataset)


@partial(jax.jit, static_argnames=("algorithm", "how"))
def values(algorithm: Algorithm, how: Update, states: State, keys: Array, dataset: Dataset) -> dict:
    """The least and the greatest of a batch of values and their standard deviation; nothing for methods without."""

    def one_seed(state: State, key: Array, dataset: Dataset) -> dict:
        key = jax.random.fold_in(jax.random.fold_in(key, 2**32 - 3), state.step)
        batch = draw(algorithm, key, dataset, VALUES)
        found = algorithm.value(state.nets, batch.observation, batch.value_goal_oracle)
        if found is None:
            return {}
        return {"value/least": found.min(), "value/greatest": found.max(), "value/spread": found.std()}

    return _each_seed(how, one_seed, states, keys, dataset)


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
    dataset = how.everywhere(data.train, len(keys))
    parts = divide(how, states)
    del states  # another copy, where parts are several
    while step < training.steps:
        if rotation.at(step) is not data:
            data = rotation.at(step)
            dataset = how.everywhere(data.train, len(keys))
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

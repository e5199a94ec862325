"""The compiled training loop: jit of a loop over steps for all seeds, with the data on the device."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Dataset, Spec
from gtrl.nn.speed import GRAPH_OPTIONS
from gtrl.training.config import Update
from gtrl.training.devices import make_mesh, map_seeds, shard_batch
from gtrl.training.layout import IDENTITY, Layout, groups_of, layout_of
from gtrl.workers import default_workers

# Elements of a layer's output (rows times width). From this size on, one matrix product uses all cores of a CPU, and
# running seeds in parallel gains nothing.
MIN_PARALLEL_LAYER = 2**17


class State(NamedTuple):
    """The training state of one seed, or of several with a leading axis. Checkpoint files contain the field names."""

    nets: Any
    target: Any
    optimizer: Any
    step: Array
    sums: dict[str, Array]  # metrics summed since the last log; on the device, so that no step waits for the host
    summed: Array  # the number of steps in `sums`

    def means(self) -> dict[str, Array]:
        """Returns the metrics averaged over the steps since the last log, for each seed."""
        steps = int(self.summed[0])  # the same for all seeds
        return jax.tree.map(lambda total: total / steps, self.sums)

    def reset_metrics(self) -> "State":
        """Returns the state with `sums` and `summed` set to 0."""
        return self._replace(sums=jax.tree.map(jnp.zeros_like, self.sums), summed=jnp.zeros_like(self.summed))


def seed_keys(seeds: Sequence[int]) -> Array:
    """Returns the random key of each seed; step k of a seed uses `fold_in(key, k)`."""
    return jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))


def _in_precision(tree: Any, precision: str) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(precision), tree)


def loss_of(algorithm: Algorithm, update: Update, nets: Any, target: Any, dataset: Dataset, key: Array):
    """Returns the method's loss on a newly drawn batch, and the metrics, with the networks in `update.precision`."""
    batch_key, loss_key = jax.random.split(key)
    batch = shard_batch(algorithm.sample(batch_key, dataset, update.batch_size))
    nets, target = _in_precision((nets, target), update.precision)
    loss, metrics = algorithm.loss(nets, target, batch, loss_key)
    return loss, {"loss": loss, **metrics}


@partial(jax.jit, static_argnames=("algorithm", "update", "spec"))
def init(algorithm: Algorithm, update: Update, spec: Spec, keys: Array, dataset: Dataset) -> State:
    """Returns freshly initialised states, one per seed. Their key is `fold_in(key, 2**32 - 1)`, which no step uses."""

    def one_seed(key: Array) -> State:
        nets = algorithm.init(jax.random.fold_in(key, 2**32 - 1), spec)
        target = algorithm.targets(nets)
        shapes = jax.eval_shape(partial(loss_of, algorithm, update), nets, target, dataset, key)[1]
        return State(
            nets=nets,
            target=jax.tree.map(jnp.copy, target),
            optimizer=algorithm.optimizer(update.learning_rate).init(nets),
            step=jnp.zeros((), jnp.uint32),
            sums=jax.tree.map(lambda metric: jnp.zeros(metric.shape), shapes),
            summed=jnp.zeros((), jnp.uint32),
        )

    return jax.vmap(one_seed)(keys)


Copies = tuple[list[Array], list[Array]]  # of the large arrays of networks and target, see `Layouts.copies`


class Layouts(NamedTuple):
    """The layouts of the networks and of their target."""

    nets: Layout = IDENTITY
    target: Layout = IDENTITY

    @classmethod
    def of(cls, algorithm: Algorithm, update: Update, state: State, dataset: Dataset) -> "Layouts":
        """Returns those of `flat`, if it is enabled and the method uses the default Adam.

        Another optimiser may treat each array separately.
        """
        if "flat" not in update.fast or type(algorithm).optimizer is not Algorithm.optimizer:
            return cls()
        groups = groups_of(algorithm, state.nets, state.target, dataset, update.batch_size)
        alone = [[number] for number in range(len(jax.tree.leaves(state.target)))] if groups else []
        layouts = cls(layout_of(state.nets, groups), layout_of(state.target, alone))
        return cls() if IDENTITY in layouts else layouts

    def copies(self, state: State, precision: str) -> Copies | None:
        """Returns copies of large arrays in the precision of the matrix products; None if they have it.

        Made right after an update, by the same kernel, they cost no pass of their own over memory.
        """
        if self.nets is IDENTITY or precision == "float32":
            return None
        return _in_precision((state.nets.large, state.target.large), precision)

    def store(self, state: State) -> State:
        """Converts networks, target and the optimiser's moments to the layout inside the loop."""
        like = _shaped_like(state.nets)
        moments = jax.tree.map(lambda x: self.nets.store(x) if like(x) else x, state.optimizer, is_leaf=like)
        return state._replace(
            nets=self.nets.store(state.nets), target=self.target.store(state.target), optimizer=moments
        )

    def restore(self, state: State, before: State) -> State:
        """Converts back; `before` is the state before `store`, whose structure the result has."""
        like = _shaped_like(before.nets)
        restored = lambda old, x: self.nets.restore(x) if like(old) else x  # noqa: E731
        moments = jax.tree.map(restored, before.optimizer, state.optimizer, is_leaf=like)
        return state._replace(
            nets=self.nets.restore(state.nets), target=self.target.restore(state.target), optimizer=moments
        )


IDENTITY_LAYOUTS = Layouts()


def _shaped_like(tree: Any) -> Callable[[Any], bool]:
    """Returns a test whether a tree has the structure and shapes of this one, as Adam's moments have."""
    shapes = lambda tree: (jax.tree.structure(tree), [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)])  # noqa: E731
    expected = shapes(tree)
    return lambda other: shapes(other) == expected


def gradient_step(
    algorithm: Algorithm,
    update: Update,
    dataset: Dataset,
    key: Array,
    state: State,
    layouts: Layouts = IDENTITY_LAYOUTS,
    copies: Copies | None = None,
) -> State:
    """Returns the state of one seed after a gradient step and an update of the target.

    Where `copies` are given, the loss reads them in place of the state's large arrays.
    """
    step_key = jax.random.fold_in(key, state.step)
    stored, target = state.nets, state.target
    if copies:
        stored, target = (full._replace(large=large) for full, large in zip((stored, target), copies, strict=True))

    def loss(stored: Any) -> Any:
        restored = layouts.nets.restore(stored), layouts.target.restore(target)
        return loss_of(algorithm, update, *restored, dataset, step_key)

    gradient, metrics = jax.grad(loss, has_aux=True)(stored)
    gradient = jax.tree.map(lambda slope, parameter: slope.astype(parameter.dtype), gradient, state.nets)
    optimizer = optax.with_extra_args_support(algorithm.optimizer(update.learning_rate))
    changes, moments = optimizer.update(gradient, state.optimizer, state.nets, value=metrics["loss"])
    nets = optax.apply_updates(state.nets, changes)
    source = algorithm.targets(layouts.nets.restore(nets if algorithm.target_from == "updated" else state.nets))
    return State(
        nets=nets,
        target=optax.incremental_update(layouts.target.store(source), state.target, algorithm.target_rate),
        optimizer=moments,
        step=state.step + 1,
        sums=jax.tree.map(jnp.add, state.sums, metrics),
        summed=state.summed + 1,
    )


def _advance(algorithm: Algorithm, update: Update, states: State, keys: Array, dataset: Dataset, steps: Array) -> State:
    """Takes `steps` gradient steps of every seed in one program.

    The number of steps is not a static argument: one compiled program serves all chunk lengths, so that results do not
    depend on them, to the last bit.
    """

    def one_seed(state: State, key: Array, dataset: Dataset, steps: Array) -> State:
        layouts = Layouts.of(algorithm, update, state, dataset)

        def one_step(_: Array, carry: tuple[State, Any]) -> tuple[State, Any]:
            after = gradient_step(algorithm, update, dataset, key, carry[0], layouts, carry[1])
            return after, layouts.copies(after, update.precision)

        stored = layouts.store(state)
        stored, _ = jax.lax.fori_loop(0, steps, one_step, (stored, layouts.copies(stored, update.precision)))
        return layouts.restore(stored, state)

    return map_seeds(update, one_seed, states, keys, dataset, steps)


# The argument `states` is not donated: the states before a chunk are needed until those after it are known to be
# finite, and while a checkpoint of them is being written.
_jit = partial(jax.jit, static_argnames=("algorithm", "update"))
_advance_plain, _advance_in_graph = _jit(_advance), _jit(_advance, compiler_options=GRAPH_OPTIONS)


def program(update: Update) -> Any:
    """Returns the jitted function that advances all seeds of a part."""
    return _advance_in_graph if "graphs" in update.fast else _advance_plain


def divide(update: Update, states: State) -> list[State]:
    """Divides the states into parts that are advanced separately: one per seed with `apart`, else a single one."""
    seeds = len(states.step)
    return _split(states) if "apart" in update.fast and seeds > 1 and not make_mesh(update, seeds) else [states]


def unite(parts: list[State]) -> State:
    """Returns the states of all seeds; the inverse of `divide`."""
    return parts[0] if len(parts) == 1 else _concatenate(parts)


@jax.jit  # one dispatch instead of one per array
def _split(states: State) -> list[State]:
    """One state per seed; its arrays keep an axis of seeds, of size 1."""
    return [jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], states) for k in range(len(states.step))]


@jax.jit
def _concatenate(parts: list[State]) -> State:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def advance_parts(
    algorithm: Algorithm, update: Update, parts: list[State], keys: Array, dataset: Dataset, steps: int
) -> list[State]:
    """Takes `steps` gradient steps of every part, and waits for the result.

    Several parts share one compiled program and run in threads: small ones, which leave cores idle, in parallel, large
    ones one after the other. Thread-local settings, such as `jax.default_device` as a context, have no effect on them.
    """
    seeds = len(keys) // len(parts)

    def advance_part(index: int) -> State:
        own_keys = keys[seeds * index : seeds * (index + 1)]
        count = jnp.asarray(steps, jnp.int32)
        return jax.block_until_ready(program(update)(algorithm, update, parts[index], own_keys, dataset, count))

    if len(parts) == 1:
        return [advance_part(0)]
    with ThreadPoolExecutor(parallel_parts(algorithm, update, len(parts))) as pool:
        return list(pool.map(advance_part, range(len(parts))))


def parallel_parts(algorithm: Algorithm, update: Update, parts: int) -> int:
    """Returns how many parts `advance_parts` advances at the same time."""
    is_large = update.batch_size * max(algorithm.hidden) >= MIN_PARALLEL_LAYER
    return 1 if is_large else min(parts, default_workers())


def advance(algorithm: Algorithm, update: Update, states: State, keys: Array, dataset: Dataset, steps: int) -> State:
    """Takes `steps` gradient steps of all seeds: `advance_parts` for states that are not divided."""
    return unite(advance_parts(algorithm, update, divide(update, states), keys, dataset, steps))

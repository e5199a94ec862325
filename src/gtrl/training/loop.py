"""The compiled loop: jit(seeds(loop over steps)), data on the device, one optimiser, moving-average targets."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Dataset, Spec
from gtrl.nn.speed import GRAPH_OPTIONS
from gtrl.training.config import Update
from gtrl.training.devices import divided, each_seed, mesh
from gtrl.workers import default_workers

LARGE_LAYER = 2**17  # numbers of a layer's output: on a CPU, products of that size keep all cores busy by themselves


class State(NamedTuple):
    """All that training carries; a leading axis for the seeds once there are several."""

    nets: Any
    target: Any
    optimizer: Any
    step: Array
    sums: dict[str, Array]  # metrics summed since the last log; on the device, so that logging costs no round trip
    summed: Array  # over how many steps

    def means(self) -> dict[str, Array]:
        """The metrics since the last log, averaged; all seeds have taken as many steps."""
        steps = int(self.summed[0])
        return jax.tree.map(lambda total: total / steps, self.sums)

    def after_log(self) -> "State":
        """The same with sums that begin anew."""
        return self._replace(sums=jax.tree.map(jnp.zeros_like, self.sums), summed=jnp.zeros_like(self.summed))


def seed_keys(seeds: Sequence[int]) -> Array:
    """The random stream of each seed; step k of a seed uses `fold_in(key, k)`."""
    return jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))


def _in_precision(tree: Any, precision: str) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(precision), tree)


def loss_of(algorithm: Algorithm, how: Update, nets: Any, target: Any, dataset: Dataset, key: Array):
    """The method's loss on a fresh batch, networks in the precision asked for."""
    batch_key, loss_key = jax.random.split(key)
    batch = divided(algorithm.sample(batch_key, dataset, how.batch_size))
    nets, target = _in_precision((nets, target), how.precision)
    loss, metrics = algorithm.loss(nets, target, batch, loss_key)
    return loss, {"loss": loss, **metrics}


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
            optimizer=algorithm.optimizer(how.learning_rate).init(nets),
            step=jnp.zeros((), jnp.uint32),
            sums=jax.tree.map(lambda metric: jnp.zeros(metric.shape), shapes),
            summed=jnp.zeros((), jnp.uint32),
        )

    return jax.vmap(one_seed)(keys)


class Layout(NamedTuple):
    """How a tree of parameters is held inside the loop: as it is, or as one vector, for one kernel to update."""

    flatten: Callable[[Any], Any]
    unflatten: Callable[[Any], Any]


AS_IT_IS = Layout(lambda tree: tree, lambda tree: tree)


def _layout(tree: Any, flat: bool) -> Layout:
    return Layout(lambda tree: ravel_pytree(tree)[0], ravel_pytree(tree)[1]) if flat else AS_IT_IS


class Layouts(NamedTuple):
    """Those of the networks and of their target."""

    nets: Layout = AS_IT_IS
    target: Layout = AS_IT_IS

    @classmethod
    def of(cls, algorithm: Algorithm, how: Update, state: State) -> "Layouts":
        """Vectors only for our own Adam: another optimiser may treat each array by itself."""
        flat = "flat" in how.fast and type(algorithm).optimizer is Algorithm.optimizer
        return cls(_layout(state.nets, flat), _layout(state.target, flat))

    def flatten(self, state: State) -> State:
        like = _shaped_like(state.nets)
        moments = jax.tree.map(lambda x: self.nets.flatten(x) if like(x) else x, state.optimizer, is_leaf=like)
        nets, target = self.nets.flatten(state.nets), self.target.flatten(state.target)
        return state._replace(nets=nets, target=target, optimizer=moments)

    def unflatten(self, state: State, before: State) -> State:
        """`before` has the structure to go back to."""
        like = _shaped_like(before.nets)
        restore = lambda old, x: self.nets.unflatten(x) if like(old) else x  # noqa: E731
        moments = jax.tree.map(restore, before.optimizer, state.optimizer, is_leaf=like)
        nets, target = self.nets.unflatten(state.nets), self.target.unflatten(state.target)
        return state._replace(nets=nets, target=target, optimizer=moments)


AS_THEY_ARE = Layouts()


def _shaped_like(tree: Any) -> Callable[[Any], bool]:
    """Whether something, such as Adam's moments within its state, is a tree of the same arrays."""
    shapes = lambda tree: (jax.tree.structure(tree), [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)])  # noqa: E731
    expected = shapes(tree)
    return lambda other: shapes(other) == expected


def update(
    algorithm: Algorithm, how: Update, dataset: Dataset, key: Array, state: State, layouts: Layouts = AS_THEY_ARE
) -> State:
    """One gradient step of one seed."""
    step_key = jax.random.fold_in(key, state.step)
    loss = partial(loss_of, algorithm, how)
    before = layouts.nets.unflatten(state.nets)
    grads, metrics = jax.grad(loss, has_aux=True)(before, layouts.target.unflatten(state.target), dataset, step_key)
    optimizer = optax.with_extra_args_support(algorithm.optimizer(how.learning_rate))
    gradient = layouts.nets.flatten(grads)
    changes, moments = optimizer.update(gradient, state.optimizer, state.nets, value=metrics["loss"])
    nets = optax.apply_updates(state.nets, changes)
    source = algorithm.targets(layouts.nets.unflatten(nets) if how.target_from == "updated" else before)
    return State(
        nets=nets,
        target=optax.incremental_update(layouts.target.flatten(source), state.target, algorithm.target_rate),
        optimizer=moments,
        step=state.step + 1,
        sums=jax.tree.map(jnp.add, state.sums, metrics),
        summed=state.summed + 1,
    )


def _advance(algorithm: Algorithm, how: Update, states: State, keys: Array, dataset: Dataset, steps: Array) -> State:
    """`steps` gradient steps of every seed in one program.

    The number of steps is an ordinary argument: one compilation serves every chunk length, and so no
    chunk length can change a result, not even in its last bit.
    """

    def one_seed(state: State, key: Array, dataset: Dataset, steps: Array) -> State:
        layouts = Layouts.of(algorithm, how, state)
        one_step = lambda _, state: update(algorithm, how, dataset, key, state, layouts)  # noqa: E731
        return layouts.unflatten(jax.lax.fori_loop(0, steps, one_step, layouts.flatten(state)), state)

    return each_seed(how, one_seed, states, keys, dataset, steps)


# States are not given away: what a chunk began with stays until its end was found sound, and while it is being saved.
_jit = partial(jax.jit, static_argnames=("algorithm", "how"))
_PROGRAMS = {False: _jit(_advance), True: _jit(_advance, compiler_options=GRAPH_OPTIONS)}


def program(how: Update) -> Any:
    """`advance` as it is compiled."""
    return _PROGRAMS["graphs" in how.fast]


def divide(how: Update, states: State) -> list[State]:
    """The parts that advance by themselves: all seeds in one or, with seeds `apart`, one each."""
    seeds = len(states.step)
    return _parted(states) if "apart" in how.fast and seeds > 1 and not mesh(how, seeds) else [states]


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
    after the other. Settings of one thread alone, such as `jax.default_device`, do not reach them.
    """
    seeds = len(keys) // len(parts)

    def one(index: int) -> State:
        own_keys = keys[seeds * index : seeds * (index + 1)]
        count = jnp.asarray(steps, jnp.int32)
        return jax.block_until_ready(program(how)(algorithm, how, parts[index], own_keys, dataset, count))

    if len(parts) == 1:
        return [one(0)]
    large = how.batch_size * max(algorithm.hidden) >= LARGE_LAYER
    with ThreadPoolExecutor(1 if large else min(len(parts), default_workers())) as pool:
        return list(pool.map(one, range(len(parts))))


def advance(algorithm: Algorithm, how: Update, states: State, keys: Array, dataset: Dataset, steps: int) -> State:
    """`advance_parts` of the whole."""
    return unite(advance_parts(algorithm, how, divide(how, states), keys, dataset, steps))

"""The compiled loop: jit(seeds(loop over steps)), data on the device, one optimiser, moving-average targets."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Dataset, Spec
from gtrl.data.sampling import Batch, sample_batch
from gtrl.nn.speed import GRAPHS
from gtrl.training.config import Update
from gtrl.training.devices import divided, each_seed, mesh
from gtrl.workers import default_workers

LARGE = 2**17  # numbers a layer has: on a CPU, products of that size keep all cores busy, and two would be in the way


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
    batch = divided(draw(algorithm, batch_key, dataset, how.batch_size))
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

    return each_seed(how, one_seed, states, keys, dataset, steps)


# States are not given away: what a chunk began with stays until its end was found sound, and while it is being saved.
_jit = partial(jax.jit, static_argnames=("algorithm", "how"))
_PROGRAMS = {False: _jit(_advance), True: _jit(_advance, compiler_options=GRAPHS)}


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

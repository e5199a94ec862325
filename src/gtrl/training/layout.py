"""How parameters are stored inside the training loop, so that a step neither copies nor converts them.

With `flat` (see `gtrl.nn.speed`), the hidden weights of networks that are evaluated together are one array, as their
batched matrix product reads them, and everything else is one vector. So Adam is a handful of kernels. Checkpoints hold
the networks as they are outside the loop.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Dataset
from gtrl.nn.fused import evaluated_together
from gtrl.nn.networks import Network

MIN_LARGE = 2**17  # elements of a group that is not part of the vector


class Stored(NamedTuple):
    """Parameters as they are stored inside the loop."""

    large: list[Array]  # one for each large group
    small: Array  # everything else


class Layout(NamedTuple):
    """Conversion of a tree of parameters to the form that it has inside the loop, and back."""

    store: Callable[[Any], Any]
    restore: Callable[[Any], Any]


IDENTITY = Layout(lambda tree: tree, lambda tree: tree)


def layout_of(tree: Any, groups: Sequence[Sequence[int]] = ()) -> Layout:
    """Returns the layout of a tree; the leaves of each group become one array, stacked along an ensemble's members.

    A leaf is named by its number in the flattened tree. In a group, all have the same shape but for a leading axis of
    members, which the leaves of a single network lack. Small groups and all other leaves become the vector. Trees with
    other types than float32 stay as they are.
    """
    leaves, structure = jax.tree.flatten(tree)
    if any(leaf.dtype != jnp.float32 for leaf in leaves):  # a vector has one type
        return IDENTITY
    shapes = [leaf.shape for leaf in leaves]
    given, grouped = len(groups), {number for group in groups for number in group}
    groups = [*groups, *([number] for number in range(len(leaves)) if number not in grouped)]
    sizes = [sum(prod(shapes[number]) for number in group) for group in groups]
    is_large = [number < given and size >= MIN_LARGE for number, size in enumerate(sizes)]
    ends = list(accumulate(size for size, large in zip(sizes, is_large, strict=True) if not large))[:-1]

    def store(tree: Any) -> Stored:
        leaves = jax.tree.leaves(tree)
        arrays = [_stack([leaves[number] for number in group]) for group in groups]
        large = [array for array, is_one in zip(arrays, is_large, strict=True) if is_one]
        small = [array.ravel() for array, is_one in zip(arrays, is_large, strict=True) if not is_one]
        return Stored(large, jnp.concatenate(small) if small else jnp.zeros(0))

    def restore(stored: Stored) -> Any:
        large, small = iter(stored.large), iter(jnp.split(stored.small, ends))
        restored: list[Any] = [None] * len(leaves)
        for group, is_one in zip(groups, is_large, strict=True):
            parts = _unstack(next(large if is_one else small), [shapes[number] for number in group])
            for number, part in zip(group, parts, strict=True):
                restored[number] = part
        return structure.unflatten(restored)

    return Layout(store, restore)


def _stack(leaves: Sequence[Array]) -> Array:
    """Concatenates leaves along their members; a single leaf stays as it is."""
    if len(leaves) == 1:
        return leaves[0]
    rank = max(leaf.ndim for leaf in leaves)
    return jnp.concatenate([leaf if leaf.ndim == rank else leaf[None] for leaf in leaves])


def _unstack(array: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """The inverse of `_stack`; `array` may also be raveled."""
    if len(shapes) == 1:
        return [array.reshape(shapes[0])]
    rank = max(map(len, shapes))
    members = [shape[0] if len(shape) == rank else 1 for shape in shapes]
    stacked = array.reshape(sum(members), *next(shape[1:] for shape in shapes if len(shape) == rank))
    parts = jnp.split(stacked, list(accumulate(members))[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def groups_of(algorithm: Algorithm, nets: Any, target: Any, dataset: Dataset, size: int) -> list[list[int]]:
    """Returns the leaves of `nets` that a step reads together: one group for each array of a hidden layer.

    The first layers' weights, whose inputs differ in size, and the last layers are in no group.
    """
    found: list[list[int]] = []

    def trace(nets: Any, target: Any, dataset: Dataset) -> None:
        key = jax.random.key(0)
        numbers = {id(leaf): number for number, leaf in enumerate(jax.tree.leaves(nets))}
        with evaluated_together() as calls:
            algorithm.loss(nets, target, algorithm.sample(key, dataset, size), key)
        for networks in calls:
            for leaves in _hidden_arrays(networks):
                group = [numbers.get(id(leaf), -1) for leaf in leaves]
                if -1 not in group and not any(number in other for other in found for number in group):
                    found.append(group)

    jax.eval_shape(trace, nets, target, dataset)
    return found


def _hidden_arrays(networks: Sequence[Network]) -> list[list[Array]]:
    """The arrays of the hidden layers, one of each network, except for the first layers' weights."""
    columns = []
    for depth, layers in enumerate(zip(*(network.layers[:-1] for network in networks), strict=True)):
        for name, *arrays in zip(layers[0]._fields, *layers, strict=True):
            if arrays[0] is not None and not (depth == 0 and name == "weight"):
                columns.append(arrays)
    return columns

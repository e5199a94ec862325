"""Several forward passes in few, large matrix products: the one idiom for it that a method needs.

A pass is a network and its inputs, written as a call is: `critic(s, a, g)` becomes `(critic, s, a, g)`. `fused` returns
one result for each pass, in order: the same as separate calls, up to rounding, with the same gradients.

    # One network, several inputs: one pass over all the rows.
    to_subgoal, current = fused((target, s, a, w), (target, s, a, g))
    # Several networks: their layers side by side, one matrix product for each layer.
    logit, mean = fused((nets.critic, s, a, g), (nets.actor, s, actor_goal))
    # Optional networks: None gives None.
    logit, oracle_logit = fused((nets.critic, s, a, g), (nets.oracle_critic, s, a, task_goal))

A loss is correct without it: `fused` only saves time. A pass that needs another's result goes into a later call.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.io import mlp
from gtrl.nn import speed
from gtrl.nn.kernels import ALIGNED, extended
from gtrl.nn.networks import Network, forward


def fused(*passes: tuple[Any, *tuple[Array, ...]]) -> list[Any]:
    """The result of each pass `(network, *inputs)`, in order; all inputs of a pass are (rows, size).

    Passes through the same network, the same Python object, become one pass over all their rows. Different networks of
    the same hidden widths and precision, with the same number of rows each, go through their layers side by side where
    that pays (`together` in `gtrl.nn.speed`). Anything callable may stand for a network: what is not a `Network`, such
    as `Bilinear`, is called by itself.
    """
    places: dict[int, list[int]] = {}  # of each network's passes
    for place, (network, *_) in enumerate(passes):
        if _is_multilayer_perceptron(network):
            places.setdefault(id(network), []).append(place)
    networks = [passes[first][0] for first, *_ in places.values()]
    inputs = [[passes[place][1:] for place in own] for own in places.values()]
    outputs = _forward(networks, list(map(_stacked, inputs)))
    results: list[Any] = [None] * len(passes)
    for network, own, each, output in zip(networks, places.values(), inputs, outputs, strict=True):
        ends = list(accumulate(len(arguments[0]) for arguments in each))[:-1]
        for place, part in zip(own, jnp.split(output, ends, axis=-2) if ends else [output], strict=True):
            results[place] = network.read(part)
    for place, (network, *arguments) in enumerate(passes):
        if network is not None and id(network) not in places:
            results[place] = network(*arguments)
    return results


def _stacked(passes: Sequence[tuple[Array, ...]]) -> Array:
    """The rows of all passes through one network, their inputs side by side."""
    if len({tuple(x.shape[-1] for x in arguments) for arguments in passes}) > 1:
        return jnp.concatenate([jnp.concatenate(arguments, -1) for arguments in passes])
    return jnp.concatenate([jnp.concatenate(column) for column in zip(*passes, strict=True)], -1)


def _is_multilayer_perceptron(network: Any) -> bool:
    """Whether calling it is `read(forward(layers, ...))`; a subclass of `Network` may do something else."""
    return isinstance(network, Network) and type(network).__call__ is Network.__call__


def _forward(networks: Sequence[Network], rows: Sequence[Array]) -> list[Array]:
    """The output of each network's last layer on its rows."""
    alike = len(set(map(_layout, networks))) == 1 and len({len(x) for x in rows}) == 1
    if len(networks) > 1 and alike and speed.used("together"):
        return _side_by_side(networks, rows)
    return [forward(network.layers, x) for network, x in zip(networks, rows, strict=True)]


def _side_by_side(networks: Sequence[Network], columns: Sequence[Array]) -> list[Array]:
    """One matrix product for each layer of all networks; different input and output sizes are padded."""
    members = [[_with_axis(layer) for layer in network.layers] for network in networks]
    counts = [len(layers[0].weight) for layers in members]
    dtype, inputs = members[0][0].weight.dtype, max(x.shape[-1] for x in columns)
    rows = [extended(x.astype(dtype), -1, inputs) for x in columns]
    rows = [jnp.broadcast_to(x, (count, *x.shape)) for x, count in zip(rows, counts, strict=True)]
    *hidden, last = (_joined(layers) for layers in zip(*members, strict=True))
    # Each network adds its own last bias: among columns of zeros its gradient would be a slow sum.
    output = forward([*hidden, last._replace(bias=jnp.zeros_like(last.bias))], jnp.concatenate(rows))
    results = []
    for network, start, count in zip(networks, accumulate(counts, initial=0), counts, strict=False):
        weight, bias, *_ = network.layers[-1]
        own = output[start : start + count, :, : weight.shape[-1]]
        results.append((own if weight.ndim == 3 else own[0]) + bias[..., None, :].astype(jnp.float32))
    return results


def _layout(network: Network) -> tuple[Any, ...]:
    """What networks that go side by side have in common: hidden widths and precision."""
    *hidden, last = network.layers
    return last.weight.dtype, *(layer.weight.shape[-1] for layer in hidden)


def _with_axis(layer: mlp.Layer) -> mlp.Layer:
    return layer if layer.weight.ndim == 3 else jax.tree.map(lambda leaf: leaf[None], layer)


def _joined(layers: Sequence[mlp.Layer]) -> mlp.Layer:
    inputs, outputs = (max(layer.weight.shape[axis] for layer in layers) for axis in (-2, -1))
    if layers[0].scale is None and outputs > 1:  # the last ones; the hidden ones are of one width
        outputs += -outputs % ALIGNED
    filled = [
        layer._replace(
            weight=extended(extended(layer.weight, -2, inputs), -1, outputs), bias=extended(layer.bias, -1, outputs)
        )
        for layer in layers
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *filled)

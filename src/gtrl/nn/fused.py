"""Several forward passes in few, large matrix products.

A pass is a network and its inputs, in the order of a call: `critic(s, a, g)` becomes `(critic, s, a, g)`. `fused`
returns one result per pass, in order. Results and gradients equal those of separate calls, up to rounding.

    # One network, several inputs: one pass over all the rows.
    to_subgoal, current = fused((target, s, a, w), (target, s, a, g))
    # Several networks: one batched matrix product per layer.
    logit, mean = fused((nets.critic, s, a, g), (nets.actor, s, actor_goal))
    # Optional networks: the result of None is None.
    logit, oracle_logit = fused((nets.critic, s, a, g), (nets.oracle_critic, s, a, task_goal))

`fused` only saves time: a loss is correct without it. A pass that needs the result of another goes into a later call.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.io import mlp
from gtrl.nn import speed
from gtrl.nn.kernels import WIDTH_MULTIPLE, pad_to_size
from gtrl.nn.networks import Network, forward

_calls: ContextVar[list[Sequence[Network]] | None] = ContextVar("calls", default=None)


@contextmanager
def evaluated_together() -> Iterator[list[Sequence[Network]]]:
    """Yields a list to which calls of `fused` inside add the networks that they evaluate together."""
    calls: list[Sequence[Network]] = []
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


def fused(*passes: tuple[Any, *tuple[Array, ...]]) -> list[Any]:
    """Evaluates passes `(network, *inputs)` together; returns their results in order.

    All inputs of a pass have shape (rows, size). Passes through the same network (the same Python object) become one
    pass over all their rows. Different networks with the same hidden layers, precision and number of rows are evaluated
    with one batched matrix product per layer where that is faster (`together` in `gtrl.nn.speed`). A network may be any
    callable: one that is not a `Network`, such as `Bilinear`, is called on its own.
    """
    positions: dict[int, list[int]] = {}  # of the passes of each network, by the network's id
    for position, (network, *_) in enumerate(passes):
        if _is_multilayer_perceptron(network):
            positions.setdefault(id(network), []).append(position)
    networks = [passes[first][0] for first, *_ in positions.values()]
    inputs = [[passes[position][1:] for position in own] for own in positions.values()]
    outputs = _forward(networks, list(map(_stack_passes, inputs)))
    results: list[Any] = [None] * len(passes)
    for network, own, arguments_by_pass, output in zip(networks, positions.values(), inputs, outputs, strict=True):
        ends = list(accumulate(len(arguments[0]) for arguments in arguments_by_pass))[:-1]
        for position, part in zip(own, jnp.split(output, ends, axis=-2) if ends else [output], strict=True):
            results[position] = network.read(part)
    for position, (network, *arguments) in enumerate(passes):
        if network is not None and id(network) not in positions:
            results[position] = network(*arguments)
    return results


def _stack_passes(passes: Sequence[tuple[Array, ...]]) -> Array:
    """The rows of all passes through one network; the inputs of a pass are concatenated along the last axis."""
    if len({tuple(x.shape[-1] for x in arguments) for arguments in passes}) > 1:
        return jnp.concatenate([jnp.concatenate(arguments, -1) for arguments in passes])
    return jnp.concatenate([jnp.concatenate(column) for column in zip(*passes, strict=True)], -1)


def _is_multilayer_perceptron(network: Any) -> bool:
    """Whether calling it is `read(forward(layers, ...))`; a subclass of `Network` may override `__call__`."""
    return isinstance(network, Network) and type(network).__call__ is Network.__call__


def _forward(networks: Sequence[Network], rows: Sequence[Array]) -> list[Array]:
    """The output of each network's last layer on its rows."""
    same_shape = len(set(map(_hidden_layout, networks))) == 1 and len({len(x) for x in rows}) == 1
    if len(networks) > 1 and same_shape and speed.is_enabled("together"):
        return _forward_together(networks, rows)
    return [forward(network.layers, x) for network, x in zip(networks, rows, strict=True)]


def _forward_together(networks: Sequence[Network], columns: Sequence[Array]) -> list[Array]:
    """One batched matrix product per layer of all networks; different input and output sizes are padded."""
    calls = _calls.get()
    if calls is not None:
        calls.append(networks)
    members = [[_with_member_axis(layer) for layer in network.layers] for network in networks]
    counts = [len(layers[0].weight) for layers in members]
    dtype, inputs = members[0][0].weight.dtype, max(x.shape[-1] for x in columns)
    rows = [pad_to_size(x.astype(dtype), -1, inputs) for x in columns]
    rows = [jnp.broadcast_to(x, (count, *x.shape)) for x, count in zip(rows, counts, strict=True)]
    *hidden_members, last_members = zip(*members, strict=True)
    last_width = max(layer.weight.shape[-1] for layer in last_members)
    if last_width > 1:
        last_width += -last_width % WIDTH_MULTIPLE
    hidden = [_concatenate_layers(layers, layers[0].weight.shape[-1]) for layers in hidden_members]
    last = _concatenate_layers(last_members, last_width)
    # Each network adds its last bias after the product: the gradient of a padded bias would be a slow sum.
    output = forward([*hidden, last._replace(bias=jnp.zeros_like(last.bias))], jnp.concatenate(rows))
    results = []
    for network, start, count in zip(networks, accumulate(counts, initial=0), counts, strict=False):
        weight, bias, *_ = network.layers[-1]
        own = output[start : start + count, :, : weight.shape[-1]]
        results.append((own if weight.ndim == 3 else own[0]) + bias[..., None, :].astype(jnp.float32))
    return results


def _hidden_layout(network: Network) -> tuple[Any, ...]:
    """Precision, widths and layer norms of the hidden layers, which networks evaluated together have in common."""
    *hidden, last = network.layers
    return last.weight.dtype, *((layer.weight.shape[-1], layer.scale is None) for layer in hidden)


def _with_member_axis(layer: mlp.Layer) -> mlp.Layer:
    """The layer of an ensemble; a single network becomes an ensemble of one."""
    return layer if layer.weight.ndim == 3 else jax.tree.map(lambda leaf: leaf[None], layer)


def _concatenate_layers(layers: Sequence[mlp.Layer], outputs: int) -> mlp.Layer:
    """Layers of several ensembles as one, padded with zeros to the largest input size and to `outputs`."""
    inputs = max(layer.weight.shape[-2] for layer in layers)
    padded = [
        layer._replace(
            weight=pad_to_size(pad_to_size(layer.weight, -2, inputs), -1, outputs),
            bias=pad_to_size(layer.bias, -1, outputs),
        )
        for layer in layers
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *padded)

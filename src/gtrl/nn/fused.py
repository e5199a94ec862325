"""Several forward passes in few, large matrix products: the one idiom for it that a method needs.

A pass is a network and its inputs. `fused` takes any number of them and returns one result each, the same as if each
network were called by itself (up to rounding):

    to_subgoal, current = fused((target, s, a, w), (target, s, a, g))  # one network: one pass over all the rows
    logit, mean = fused((nets.critic, s, a, g), (nets.actor, s, actor_goal))  # several: layer by layer, side by side
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.io import mlp
from gtrl.nn import speed
from gtrl.nn.kernels import ALIGNED, extended
from gtrl.nn.networks import Network, forward


def fused(*passes: tuple[Any, *tuple[Array, ...]]) -> list[Any]:
    """The result of each `(network, *inputs)`, in order; all inputs are (B, size). A network that is None gives None.

    Passes through the same network become one pass over all their rows. Different networks with the same hidden widths
    and as many rows go through their layers side by side where that pays (`together` in `gtrl.nn.speed`); what is no
    `Network`, such as `Bilinear`, is called by itself.
    """
    networks = list({id(network): network for network, *_ in passes if isinstance(network, Network)}.values())
    of = {id(network): [k for k, (other, *_) in enumerate(passes) if other is network] for network in networks}
    rows = [jnp.concatenate([_columns(passes[k][1:]) for k in of[id(network)]]) for network in networks]
    alike = len({_widths(network) for network in networks}) == 1 and len({len(x) for x in rows}) == 1
    if len(networks) > 1 and alike and speed.used("together"):
        outputs = _side_by_side(networks, rows)
    else:
        outputs = [forward(network.layers, x) for network, x in zip(networks, rows, strict=True)]
    results: dict[int, Any] = {}
    for network, output in zip(networks, outputs, strict=True):
        mine = of[id(network)]
        parts = jnp.split(output, len(mine), axis=-2) if len(mine) > 1 else [output]
        results |= {k: network.read(part) for k, part in zip(mine, parts, strict=True)}
    for k, (network, *inputs) in enumerate(passes):
        if k not in results:
            results[k] = None if network is None else network(*inputs)
    return [results[k] for k in range(len(passes))]


def _columns(inputs: Sequence[Array]) -> Array:
    return jnp.concatenate(inputs, -1)


def _side_by_side(networks: Sequence[Network], columns: Sequence[Array]) -> list[Array]:
    """Each network's output on its rows, one matrix product a layer; other input and output sizes are padded."""
    members = [[_with_axis(layer) for layer in network.layers] for network in networks]
    counts = [len(layers[0].weight) for layers in members]
    dtype, inputs = members[0][0].weight.dtype, max(x.shape[-1] for x in columns)
    rows = [extended(x.astype(dtype), -1, inputs) for x in columns]
    rows = [jnp.broadcast_to(x, (count, *x.shape)) for x, count in zip(rows, counts, strict=True)]
    *hidden, last = (_joined(layers) for layers in zip(*members, strict=True))
    # Each network adds its own last bias: among columns of zeros its gradient would be a slow sum.
    output = forward([*hidden, last._replace(bias=jnp.zeros_like(last.bias))], jnp.concatenate(rows))
    results, start = [], 0
    for network, count in zip(networks, counts, strict=True):
        last = network.layers[-1].weight
        bias = network.layers[-1].bias[..., None, :].astype(jnp.float32)
        mine = output[start : start + count, :, : last.shape[-1]]
        results.append((mine if last.ndim == 3 else mine[0]) + bias)
        start += count
    return results


def _widths(network: Network) -> tuple[int, ...]:
    return tuple(layer.weight.shape[-1] for layer in network.layers[:-1])


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

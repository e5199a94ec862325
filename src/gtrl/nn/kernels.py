"""Multilayer perceptrons as fast as memory allows: what lies between the matrix products, in one pass each way.

Bias, GELU and layer norm of a hidden layer, forward and backward, each read their input once and write their output
once; left to XLA they cross memory several times, which is more than half of a training step (docs/performance.md).
A critic's last hidden layer and its one output are one kernel, so that these activations are never written at all.

Only z, the matrix product before the bias, is kept for the backward pass, in the precision of the networks; arithmetic
in between is float32. On a GPU `gtrl.nn.triton` evaluates the formulas; elsewhere, and where JAX has no Triton backend,
XLA gets them as they are.
"""

import logging
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.io import mlp
from gtrl.nn import speed
from gtrl.nn.formulas import gradient, normalised

ALIGNED = 16  # matrix units read inputs in pieces of so many; a multiple of it spares them a slow path
MIN_COMPUTE_CAPABILITY = 8.0  # of an NVIDIA GPU: Ampere

log = logging.getLogger(__name__)


def _gpu_kernels() -> ModuleType | None:
    """`gtrl.nn.triton` where this device runs its kernels, else None."""
    capability = str(getattr(jax.devices()[0], "compute_capability", ""))
    is_nvidia = capability.replace(".", "").isdigit()  # AMD's are names, such as gfx942
    wanted = speed.INTERPRETED or (is_nvidia and float(capability) >= MIN_COMPUTE_CAPABILITY)
    return _import_triton() if wanted else None


@cache
def _import_triton() -> ModuleType | None:
    try:
        from gtrl.nn import triton
    except ImportError as error:
        log.info("no GPU kernels, so XLA compiles the plain formulas: Pallas's Triton backend is missing (%s)", error)
        return None
    return triton


def forward(layers: Sequence[mlp.Layer], x: Array) -> Array:
    """`mlp.forward` of (B, in) or (groups, B, in); what does not fit the kernels goes there."""
    *hidden, last = layers
    if not hidden:
        return mlp.forward(layers, x, jnp)
    triton = _gpu_kernels()
    if triton:
        if not all(triton.fits(x.shape[-2], layer.weight.shape[-1]) for layer in hidden):
            return mlp.forward(layers, x, jnp)
        if last.weight.ndim == 2:
            return forward(jax.tree.map(lambda leaf: leaf[None], layers), x)[0]
        x = padded(x, -1, ALIGNED)
        x = jnp.broadcast_to(x, (len(last.weight), *x.shape[-2:]))
        hidden[0] = hidden[0]._replace(weight=padded(hidden[0].weight, -2, ALIGNED))
    x = x.astype(last.weight.dtype)
    single = last.weight.shape[-1] == 1
    for layer in hidden[: len(hidden) - single]:
        x = activate(x @ layer.weight, layer.bias, layer.scale, layer.shift)
    if single:
        layer = hidden[-1]
        x = value(x @ layer.weight, layer.bias, layer.scale, layer.shift, last.weight[..., 0])[..., None]
    else:
        x = x @ last.weight
    return x.astype(jnp.float32) + last.bias[..., None, :].astype(jnp.float32)


def padded(x: Array, axis: int, multiple: int) -> Array:
    """With zeros at the end of an axis, up to a multiple."""
    return extended(x, axis, -(-x.shape[axis] // multiple) * multiple)


def extended(x: Array, axis: int, size: int) -> Array:
    """With zeros at the end of an axis, up to a size."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, size - x.shape[axis])
    return jnp.pad(x, widths)


def _rowwise(parameter: Array) -> Array:
    return parameter[..., None, :]


# --- the operations ---
# Where no gradient of the parameters is asked for, as when a policy climbs a critic, nothing is summed: JAX says so
# when it differentiates (`perturbed`), and the kept values carry it on in their structure, () or None.


@jax.custom_vjp
def activate(z: Array, bias: Array, scale: Array, shift: Array) -> Array:
    """Layer norm of GELU(z + bias): z (groups, rows, width), the others (groups, width); `vmap` adds the seeds."""
    triton = _gpu_kernels()
    if triton:
        return triton.activate(z, bias, scale, shift)
    return (normalised(z, _rowwise(bias)) * _rowwise(scale) + _rowwise(shift)).astype(z.dtype)


def _activate_forward(*inputs: Any) -> tuple[Array, Any]:
    z, bias, scale, shift = (each.value for each in inputs)
    trained = () if any(each.perturbed for each in inputs[1:]) else None
    return activate(z, bias, scale, shift), (z, bias, scale, trained)


def _activate_backward(kept: Any, dy: Array) -> tuple[Array | None, ...]:
    z, bias, scale, trained = kept
    triton = _gpu_kernels()
    if not triton:
        dz, normal = gradient(z, _rowwise(bias), _rowwise(scale), dy.astype(jnp.float32))
        sums = (dz.sum(-2), (dy * normal).sum(-2), dy.sum(-2))
        return dz.astype(z.dtype), *(each.astype(bias.dtype) for each in sums)
    if trained is None:
        return triton.activate_gradient(z, dy, bias, scale), None, None, None
    dz, sums = triton.activate_gradients(z, dy, bias, scale)
    sums = sums.astype(bias.dtype)
    return dz, sums[:, 0], sums[:, 1], sums[:, 2]


activate.defvjp(_activate_forward, _activate_backward, symbolic_zeros=True)


@jax.custom_vjp
def value(z: Array, bias: Array, scale: Array, shift: Array, weight: Array) -> Array:
    """The one output behind a last hidden layer: `activate(...)` times the weight (groups, width); float32."""
    triton = _gpu_kernels()
    if triton:
        return triton.value(z, bias, scale, shift, weight)
    scale, shift, weight = (each.astype(jnp.float32) for each in (scale, shift, weight))
    # As a product: XLA's sum over a scaled and shifted row takes several times as long.
    along = jnp.einsum("...rw,...w->...r", normalised(z, _rowwise(bias)), scale * weight)
    return along + (shift * weight).sum(-1, keepdims=True)


def _value_forward(*inputs: Any) -> tuple[Array, Any]:
    values = tuple(each.value for each in inputs)
    trained = () if any(each.perturbed for each in inputs[1:]) else None
    return value(*values), (values, trained)


def _value_backward(kept: Any, dvalue: Array) -> tuple[Array | None, ...]:
    (z, bias, scale, shift, weight), trained = kept
    scale_, shift_, weight_ = (each.astype(jnp.float32) for each in (scale, shift, weight))
    slope = scale_ * weight_  # the gradient that arrives at the layer norm is dvalue times weight
    triton = _gpu_kernels()
    if not triton:
        dz, normal = gradient(z, _rowwise(bias), _rowwise(slope), dvalue[..., None])
        dbias, with_normal = dz.sum(-2), jnp.einsum("...r,...rw->...w", dvalue, normal)
        dz = dz.astype(z.dtype)
    elif trained is None:
        return triton.value_gradient(z, dvalue, bias, slope), None, None, None, None
    else:
        dz, sums = triton.value_gradients(z, dvalue, bias, slope)
        dbias, with_normal = sums[:, 0], sums[:, 1]
    d = dvalue.sum(-1, keepdims=True)
    gradients = (dbias, weight_ * with_normal, weight_ * d, scale_ * with_normal + shift_ * d)
    return dz, *(each.astype(bias.dtype) for each in gradients)


value.defvjp(_value_forward, _value_backward, symbolic_zeros=True)

"""Forward and backward passes of multilayer perceptrons with few passes over memory.

Bias, GELU and layer norm of a hidden layer read their input once and write their output once, forward and backward.
Compiled by XLA from separate operations they pass over memory several times, which is more than half of a training step
(docs/performance.md). A critic's last hidden layer and its single output are one kernel, so that these activations are
never written to memory.

Only z, the matrix product before the bias, is saved for the backward pass, in the precision of the networks; arithmetic
in between is float32. On a GPU the kernels of `gtrl.nn.triton` are used. On other devices, and where JAX has no Triton
backend, XLA compiles the formulas of `gtrl.nn.formulas`.
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
from gtrl.nn.formulas import layer_gradient, normalised_gelu

WIDTH_MULTIPLE = 16  # widths are padded to a multiple of this: GPU matrix units are slow on others
MIN_COMPUTE_CAPABILITY = 8.0  # of an NVIDIA GPU that runs the kernels: Ampere or newer

log = logging.getLogger(__name__)


def _gpu_kernels() -> ModuleType | None:
    """The module `gtrl.nn.triton` if this device can run its kernels, else None."""
    capability = speed.COMPUTE_CAPABILITY or str(getattr(jax.devices()[0], "compute_capability", ""))
    is_nvidia = capability.replace(".", "").isdigit()  # AMD's are names, such as gfx942
    supported = speed.INTERPRETED or (is_nvidia and float(capability) >= MIN_COMPUTE_CAPABILITY)
    return _import_triton() if supported else None


@cache
def _import_triton() -> ModuleType | None:
    try:
        from gtrl.nn import triton
    except ImportError as error:
        log.info("no GPU kernels, so XLA compiles the plain formulas: Pallas's Triton backend is missing (%s)", error)
        return None
    return triton


def forward(layers: Sequence[mlp.Layer], x: Array) -> Array:
    """`mlp.forward` of (B, in) or (groups, B, in); falls back to it for layers that the kernels do not support."""
    *hidden, last = layers
    if not hidden or any(layer.scale is None for layer in hidden):
        return mlp.forward(layers, x, jnp)
    triton = _gpu_kernels()
    if triton:
        if not all(triton.supports(x.shape[-2], layer.weight.shape[-1]) for layer in hidden):
            return mlp.forward(layers, x, jnp)
        if last.weight.ndim == 2:
            return forward(jax.tree.map(lambda leaf: leaf[None], layers), x)[0]
        x = pad_to_multiple(x, -1, WIDTH_MULTIPLE)
        x = jnp.broadcast_to(x, (len(last.weight), *x.shape[-2:]))
        hidden[0] = hidden[0]._replace(weight=pad_to_multiple(hidden[0].weight, -2, WIDTH_MULTIPLE))
    x = x.astype(last.weight.dtype)
    multiply = product if triton else jnp.matmul
    single_output = last.weight.shape[-1] == 1
    for layer in hidden[:-1] if single_output else hidden:
        x = activate(multiply(x, layer.weight), layer.bias, layer.scale, layer.shift)
    if single_output:
        layer = hidden[-1]
        x = value(multiply(x, layer.weight), layer.bias, layer.scale, layer.shift, last.weight[..., 0])[..., None]
    else:
        x = multiply(x, last.weight)
    return x.astype(jnp.float32) + last.bias[..., None, :].astype(jnp.float32)


@jax.custom_vjp
def product(x: Array, weight: Array) -> Array:
    """Returns x @ weight for (groups, rows, in) and (groups, in, out); the weight's gradient comes out as (in, out).

    JAX computes its transpose, for which XLA adds passes over memory on a GPU.
    """
    return x @ weight


def _product_backward(residuals: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    x, weight = residuals
    dx, dweight = dy @ weight.swapaxes(-1, -2), x.swapaxes(-1, -2) @ dy
    return dx.astype(x.dtype), dweight.astype(weight.dtype)


product.defvjp(lambda x, weight: (x @ weight, (x, weight)), _product_backward)


def pad_to_multiple(x: Array, axis: int, multiple: int) -> Array:
    """Appends zeros along an axis until its size is a multiple of `multiple`."""
    return pad_to_size(x, axis, -(-x.shape[axis] // multiple) * multiple)


def pad_to_size(x: Array, axis: int, size: int) -> Array:
    """Appends zeros along an axis until it has `size` elements."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, size - x.shape[axis])
    return jnp.pad(x, widths)


def _as_row(parameter: Array) -> Array:
    """Adds the axis of rows, along which a parameter is broadcast."""
    return parameter[..., None, :]


# --- operations with gradients ---
# Where the parameters need no gradient, as when a policy is trained through a critic, the sums over rows are skipped.
# JAX reports this when it differentiates (`perturbed`). The backward pass can only receive arrays, or a difference in
# the structure of the saved values: `trained` is () where the parameters need gradients and None where they do not.


@jax.custom_vjp
def activate(z: Array, bias: Array, scale: Array, shift: Array) -> Array:
    """Layer norm of GELU(z + bias).

    z has shape (groups, rows, width), the parameters (groups, width); `vmap` adds an axis of seeds.
    """
    triton = _gpu_kernels()
    if triton:
        return triton.activate(z, bias, scale, shift)
    return (normalised_gelu(z, _as_row(bias)) * _as_row(scale) + _as_row(shift)).astype(z.dtype)


def _activate_forward(*inputs: Any) -> tuple[Array, Any]:
    z, bias, scale, shift = (each.value for each in inputs)
    trained = () if any(each.perturbed for each in inputs[1:]) else None
    return activate(z, bias, scale, shift), (z, bias, scale, trained)


def _activate_backward(residuals: Any, dy: Array) -> tuple[Array | None, ...]:
    z, bias, scale, trained = residuals
    triton = _gpu_kernels()
    if not triton:
        dz, normal = layer_gradient(z, _as_row(bias), _as_row(scale), dy.astype(jnp.float32))
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
    """The single output after the last hidden layer: `activate(...)` times `weight`, (groups, width); float32."""
    triton = _gpu_kernels()
    if triton:
        return triton.value(z, bias, scale, shift, weight)
    scale, shift, weight = (each.astype(jnp.float32) for each in (scale, shift, weight))
    # As a matrix product: XLA takes several times longer for the sum over a scaled and shifted row.
    scaled = jnp.einsum("...rw,...w->...r", normalised_gelu(z, _as_row(bias)), scale * weight)
    return scaled + (shift * weight).sum(-1, keepdims=True)


def _value_forward(*inputs: Any) -> tuple[Array, Any]:
    values = tuple(each.value for each in inputs)
    trained = () if any(each.perturbed for each in inputs[1:]) else None
    return value(*values), (values, trained)


def _value_backward(residuals: Any, dvalue: Array) -> tuple[Array | None, ...]:
    (z, bias, scale, shift, weight), trained = residuals
    scale_, shift_, weight_ = (each.astype(jnp.float32) for each in (scale, shift, weight))
    slope = scale_ * weight_  # the gradient of the layer norm's output is dvalue times weight
    triton = _gpu_kernels()
    if not triton:
        dz, normal = layer_gradient(z, _as_row(bias), _as_row(slope), dvalue[..., None])
        dbias, dvalue_normal = dz.sum(-2), jnp.einsum("...r,...rw->...w", dvalue, normal)
        dz = dz.astype(z.dtype)
    elif trained is None:
        return triton.value_gradient(z, dvalue, bias, slope), None, None, None, None
    else:
        dz, sums = triton.value_gradients(z, dvalue, bias, slope)
        dbias, dvalue_normal = sums[:, 0], sums[:, 1]
    total = dvalue.sum(-1, keepdims=True)
    gradients = (dbias, weight_ * dvalue_normal, weight_ * total, scale_ * dvalue_normal + shift_ * total)
    return dz, *(each.astype(bias.dtype) for each in gradients)


value.defvjp(_value_forward, _value_backward, symbolic_zeros=True)

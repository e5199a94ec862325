"""What stands between two matrix products of a multilayer perceptron: GELU and layer norm, and their gradients.

In float32, whatever the precision of the networks; z and dy are (..., rows, width), parameters (..., 1, width) or
(width,). `gtrl.nn.kernels` gives these formulas to XLA, the kernels of `gtrl.nn.triton` evaluate them on a GPU.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.io.mlp import LAYER_NORM_EPSILON


class Arithmetic(NamedTuple):
    """How to evaluate the formulas."""

    tanh: Callable[[Array], Array] = jnp.tanh
    # Sum a row and its squares at once, so that neither waits for the other. That costs digits where the mean is many
    # standard deviations from 0, which GELU's of layer-normed inputs are not.
    one_pass: bool = False


PLAIN = Arithmetic()


def normalised(z: Array, bias: Array, how: Arithmetic = PLAIN) -> Array:
    """The normalised GELU of z + bias."""
    x, _ = _gelu(z.astype(jnp.float32) + bias.astype(jnp.float32), how)
    mean, inverse = _statistics(x, how)
    return (x - mean) * inverse


def gradient(z: Array, bias: Array, scale: Array, dy: Array, how: Arithmetic = PLAIN) -> tuple[Array, Array]:
    """The gradient at z, given the gradient dy at the layer norm's output; and the normalised GELU."""
    x, slope = _gelu(z.astype(jnp.float32) + bias.astype(jnp.float32), how)
    dn = dy * scale.astype(jnp.float32)
    along, across = dn.mean(-1, keepdims=True), (dn * x).mean(-1, keepdims=True)
    mean, inverse = _statistics(x, how)
    normal = (x - mean) * inverse
    with_normal = inverse * (across - mean * along) if how.one_pass else (dn * normal).mean(-1, keepdims=True)
    return inverse * (dn - along - normal * with_normal) * slope, normal


def _gelu(x: Array, how: Arithmetic) -> tuple[Array, Array]:
    """GELU (tanh approximation) and its slope."""
    t = how.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
    slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 3 * 0.044715 * x * x)
    return 0.5 * x * (1.0 + t), slope


def _statistics(x: Array, how: Arithmetic) -> tuple[Array, Array]:
    """Mean, and one over the standard deviation, of each row."""
    mean = x.mean(-1, keepdims=True)
    if how.one_pass:
        variance = jnp.maximum((x * x).mean(-1, keepdims=True) - mean * mean, 0.0)
    else:
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return mean, jax.lax.rsqrt(variance + LAYER_NORM_EPSILON)

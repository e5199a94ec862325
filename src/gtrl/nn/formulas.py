"""GELU and layer norm, which lie between the matrix products of a multilayer perceptron, and their gradients.

Arithmetic is float32 whatever the precision of the networks. `z` and `dy` have shape (..., rows, width), parameters
(..., 1, width) or (width,). `gtrl.nn.kernels` compiles these formulas with XLA; on a GPU the kernels of
`gtrl.nn.triton` evaluate them.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from gtrl.io.mlp import LAYER_NORM_EPSILON


class Arithmetic(NamedTuple):
    """Options for evaluating the formulas: they change speed and rounding only."""

    tanh: Callable[[Array], Array] = jnp.tanh
    # Sum a row and its squares in one pass instead of two. This loses digits where the mean is many standard
    # deviations from 0, which does not happen for GELU of layer-normed inputs.
    one_pass: bool = False


DEFAULT_ARITHMETIC = Arithmetic()


def normalised_gelu(z: Array, bias: Array, arithmetic: Arithmetic = DEFAULT_ARITHMETIC) -> Array:
    """Returns GELU(z + bias) with mean 0 and variance 1 in each row: a layer norm before its scale and shift."""
    x, _ = _gelu(z.astype(jnp.float32) + bias.astype(jnp.float32), arithmetic)
    mean, inverse = _statistics(x, arithmetic)
    return (x - mean) * inverse


def layer_gradient(
    z: Array, bias: Array, scale: Array, dy: Array, arithmetic: Arithmetic = DEFAULT_ARITHMETIC
) -> tuple[Array, Array]:
    """Returns the gradient with respect to z, given the gradient dy of the layer norm's output; and `normalised_gelu`.

    The second result is needed for the gradient of `scale`.
    """
    x, slope = _gelu(z.astype(jnp.float32) + bias.astype(jnp.float32), arithmetic)
    dn = dy * scale.astype(jnp.float32)
    mean_dn, mean_dn_x = dn.mean(-1, keepdims=True), (dn * x).mean(-1, keepdims=True)
    mean, inverse = _statistics(x, arithmetic)
    normal = (x - mean) * inverse
    if arithmetic.one_pass:
        mean_dn_normal = inverse * (mean_dn_x - mean * mean_dn)
    else:
        mean_dn_normal = (dn * normal).mean(-1, keepdims=True)
    return inverse * (dn - mean_dn - normal * mean_dn_normal) * slope, normal


def _gelu(x: Array, arithmetic: Arithmetic) -> tuple[Array, Array]:
    """GELU (tanh approximation) and its derivative."""
    t = arithmetic.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
    slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 3 * 0.044715 * x * x)
    return 0.5 * x * (1.0 + t), slope


def _statistics(x: Array, arithmetic: Arithmetic) -> tuple[Array, Array]:
    """The mean of each row, and the reciprocal of its standard deviation."""
    mean = x.mean(-1, keepdims=True)
    if arithmetic.one_pass:
        variance = jnp.maximum((x * x).mean(-1, keepdims=True) - mean * mean, 0.0)
    else:
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return mean, jax.lax.rsqrt(variance + LAYER_NORM_EPSILON)

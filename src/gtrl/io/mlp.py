"""Forward pass of a multilayer perceptron, for both NumPy and JAX.

The array module is the argument `xp` (`numpy` or `jax.numpy`), so policies run without JAX. Weights may have leading
axes (an ensemble, seeds): `(B, in) @ (E, in, out)` broadcasts to `(E, B, out)`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Array = Any  # a NumPy or a JAX array
LAYER_NORM_EPSILON = 1e-6  # added to the variance


class Layer(NamedTuple):
    """Weight (..., in, out) and bias (..., out); scale and shift (..., out) of a layer norm, or None without one."""

    weight: Array
    bias: Array
    scale: Array | None = None
    shift: Array | None = None


def gelu(x: Array, xp: Any) -> Array:
    """Applies GELU in its tanh approximation."""
    return 0.5 * x * (1.0 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


ACTIVATIONS: dict[str, Callable[[Array, Any], Array]] = {
    "relu": lambda x, xp: xp.maximum(x, 0),
    "gelu": gelu,
    "silu": lambda x, xp: 0.5 * x * (1 + xp.tanh(0.5 * x)),  # x times the logistic function of x; tanh avoids overflow
    "tanh": lambda x, xp: xp.tanh(x),
}


def layer_norm(x: Array, scale: Array, shift: Array, xp: Any) -> Array:
    """Applies layer norm over the last axis. Mean and variance are computed in float32 for any precision of x."""
    wide = x.astype(xp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    normalised = (centred / xp.sqrt(variance + LAYER_NORM_EPSILON)).astype(x.dtype)
    return normalised * scale[..., None, :] + shift[..., None, :]


def integrate_flow(velocity: Callable[[Array], Array], inputs: Array, x: Array, steps: int, xp: Any) -> Array:
    """Integrates dx/dt = velocity(inputs, x, t) from t = 0 to 1 with Euler steps; the arguments are concatenated."""
    for step in range(steps):
        t = xp.full((*x.shape[:-1], 1), step / steps, xp.float32)
        x = x + velocity(xp.concatenate([inputs, x, t], -1)) / steps
    return x


def forward(layers: Sequence[Layer], x: Array, xp: Any, activation: str = "gelu") -> Array:
    """Applies the network: linear, activation, optional layer norm for each hidden layer; then a linear layer.

    Computes in the precision of the weights and returns float32.
    """
    activate = ACTIVATIONS[activation]
    x = x.astype(layers[0].weight.dtype)
    for depth, layer in enumerate(layers):
        x = x @ layer.weight + layer.bias[..., None, :]
        if depth < len(layers) - 1:
            x = activate(x, xp)
        if layer.scale is not None:
            x = layer_norm(x, layer.scale, layer.shift, xp)
    return x.astype(xp.float32)

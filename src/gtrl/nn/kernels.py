"""Multilayer perceptrons as fast as memory allows: what lies between the matrix products, in one pass each way.

Bias, GELU and layer norm of a hidden layer, forward and backward, each read their input once and write their output
once; left to XLA they cross memory several times, which is more than half of a training step (docs/performance.md).
A critic's last hidden layer and its one output are one kernel, so that these activations are never written at all.

Only z, the matrix product before the bias, is kept for the backward pass, in the precision of the networks; arithmetic
in between is float32. On a GPU the formulas below are Pallas kernels; on a CPU XLA gets them as they are.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from gtrl.io import mlp
from gtrl.io.mlp import EPSILON
from gtrl.nn import speed

ALIGNED = 16  # matrix units read inputs in pieces of so many; a multiple of it spares them a slow path
ROWS, WARPS = 2, 1  # of one program: a warp keeps whole rows, so that their sums cross no barrier
# A program that also sums over rows, for the parameters' gradients, takes more of them: fewer programs, fewer sums. One
# warp that goes through them row by row is best where programs are many; few of them fill the GPU with four warps each.
SUMMED_ROWS, MANY = 16, 1000
INTERPRETED = False  # run the kernels without a GPU, slowly: for tests


def _on_gpu() -> bool:
    """Whether there are kernels for this device: NVIDIA's, from compute capability 8 on."""
    capability = str(getattr(jax.devices()[0], "compute_capability", ""))
    return INTERPRETED or (capability.replace(".", "").isdigit() and float(capability) >= 8)


def _fits(rows: int, width: int) -> bool:
    """Whether the kernels can do this size: whole programs, and a width that is a power of two, as Triton wants it."""
    return rows % SUMMED_ROWS == 0 and 16 <= width <= 2048 and width & (width - 1) == 0


def forward(layers: Sequence[mlp.Layer], x: Array) -> Array:
    """`mlp.forward` of (B, in) or (groups, B, in); what does not fit the kernels goes there."""
    *hidden, last = layers
    if _on_gpu():
        if not all(_fits(x.shape[-2], layer.weight.shape[-1]) for layer in hidden):
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


# --- the formulas, in float32: z and dy are (..., rows, width), parameters (..., 1, width) or (width,) ---


def _gelu(x: Array, quick: bool) -> tuple[Array, Array]:
    """GELU (tanh approximation) and its slope."""
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    # The hardware's tanh is good to 11 bits: more than bfloat16 holds, less than float32 does.
    t = triton.approx_tanh(inner) if quick else jnp.tanh(inner)
    slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 3 * 0.044715 * x * x)
    return 0.5 * x * (1.0 + t), slope


def _statistics(x: Array) -> tuple[Array, Array]:
    """Mean, and one over the standard deviation, of each row.

    In a kernel both sums at once, for neither should wait for the other. That costs digits where the mean is many
    standard deviations from 0, which GELU's of layer-normed inputs are not.
    """
    mean = x.mean(-1, keepdims=True)
    if _on_gpu():
        variance = jnp.maximum((x * x).mean(-1, keepdims=True) - mean * mean, 0.0)
    else:
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return mean, jax.lax.rsqrt(variance + EPSILON)


def _normal(z: Array, bias: Array, quick: bool) -> Array:
    """The normalised GELU of z + bias."""
    x, _ = _gelu(z.astype(jnp.float32) + bias.astype(jnp.float32), quick)
    mean, inverse = _statistics(x)
    return (x - mean) * inverse


def _gradient(z: Array, bias: Array, scale: Array, dy: Array, quick: bool) -> tuple[Array, Array]:
    """The gradient at z of one that arrives at the layer norm's output, and the normalised GELU."""
    x, slope = _gelu(z.astype(jnp.float32) + bias.astype(jnp.float32), quick)
    dn = dy * scale.astype(jnp.float32)
    along, across = dn.mean(-1, keepdims=True), (dn * x).mean(-1, keepdims=True)
    mean, inverse = _statistics(x)
    normal = (x - mean) * inverse
    with_normal = inverse * (across - mean * along) if _on_gpu() else (dn * normal).mean(-1, keepdims=True)
    return inverse * (dn - along - normal * with_normal) * slope, normal


# --- kernels: arrays of rows come first, then parameters, then what is written ---


def _activate_kernel(quick: bool, z, bias, scale, shift, y) -> None:
    normal = _normal(z[...], bias[...], quick)
    y[...] = (normal * scale[...].astype(jnp.float32) + shift[...].astype(jnp.float32)).astype(y.dtype)


def _value_kernel(quick: bool, z, bias, scale, shift, weight, value) -> None:
    normal = _normal(z[...], bias[...], quick)
    y = normal * scale[...].astype(jnp.float32) + shift[...].astype(jnp.float32)
    value[...] = (y * weight[...].astype(jnp.float32)).sum(-1)


def _gradient_kernel(quick: bool, z, dy, bias, scale, dz) -> None:
    dz[...] = _gradient(z[...], bias[...], scale[...], dy[...].astype(jnp.float32), quick)[0].astype(dz.dtype)


def _value_gradient_kernel(quick: bool, z, dvalue, bias, slope, dz) -> None:
    dz[...] = _gradient(z[...], bias[...], slope[...], dvalue[...][:, None], quick)[0].astype(dz.dtype)


def _summed(at_once: int, z, dz, sums, chunk_of: Callable[..., tuple[Array, ...]]) -> None:
    """Go through a program's rows, some at once; `chunk_of` gives their dz and what else is to be summed over rows."""

    def chunk(index: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        rows = pl.ds(index * at_once, at_once)
        found = chunk_of(rows)
        dz[rows, :] = found[0].astype(dz.dtype)
        return tuple(total + each for total, each in zip(carry, found, strict=True))

    zero = jnp.zeros((at_once, z.shape[-1]), jnp.float32)
    totals = jax.lax.fori_loop(0, z.shape[0] // at_once, chunk, (zero,) * sums.shape[0])
    for k, total in enumerate(totals):
        sums[k, :] = total.sum(0)


def _summed_gradient_kernel(at_once: int, quick: bool, z, dy, bias, scale, dz, sums) -> None:
    """`sums` are those of dz, dy normal and dy: the gradients of bias, scale and shift."""

    def chunk(rows: Any) -> tuple[Array, ...]:
        each = dy[rows, :].astype(jnp.float32)
        dz_, normal = _gradient(z[rows, :], bias[...], scale[...], each, quick)
        return dz_, each * normal, each

    _summed(at_once, z, dz, sums, chunk)


def _summed_value_gradient_kernel(at_once: int, quick: bool, z, dvalue, bias, slope, dz, sums) -> None:
    """`sums` are those of dz and dvalue normal."""

    def chunk(rows: Any) -> tuple[Array, ...]:
        each = dvalue[rows][:, None]
        dz_, normal = _gradient(z[rows, :], bias[...], slope[...], each, quick)
        return dz_, each * normal

    _summed(at_once, z, dz, sums, chunk)


Arrays = tuple[Array, ...]


def _call(
    kernel: Any,
    of_rows: Arrays,
    parameters: Arrays,
    outputs: list[jax.ShapeDtypeStruct],
    rows: int = ROWS,
    warps: int = WARPS,
) -> Any:
    """Run a kernel over (groups, batch / `rows`).

    Arrays of rows, (groups, batch, ...), are divided among the programs of a group; each sees parameters, (groups,
    width), whole. Outputs are divided too, but for sums, (groups, programs, sums, width).
    """
    groups, batch, _ = of_rows[0].shape

    def divided(array: Any) -> pl.BlockSpec:
        block = (None, None, *array.shape[2:]) if array.ndim == 4 else (None, rows, *array.shape[2:])
        return pl.BlockSpec(block, lambda g, r: (g, r, *(0 for _ in block[2:])))

    def whole(array: Array) -> pl.BlockSpec:
        return pl.BlockSpec((None, array.shape[1]), lambda g, _: (g, 0))

    return pl.pallas_call(
        partial(kernel, of_rows[0].dtype == jnp.bfloat16 and not INTERPRETED),
        grid=(groups, batch // rows),
        in_specs=[*map(divided, of_rows), *map(whole, parameters)],
        out_specs=[*map(divided, outputs)],
        out_shape=outputs,
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
        interpret=INTERPRETED,
    )(*of_rows, *parameters)


def _call_summed(kernel: Any, of_rows: Arrays, parameters: Arrays, count: int) -> tuple[Array, Array]:
    """Run a kernel that gives dz and `count` sums over the rows of a program; dz, and the sums of these."""
    z = of_rows[0]
    programs = z.shape[1] // SUMMED_ROWS
    warps = 1 if speed.copies() * len(z) * programs > MANY else 4
    sums = jax.ShapeDtypeStruct((len(z), programs, count, z.shape[2]), jnp.float32)
    dz, sums = _call(partial(kernel, warps), of_rows, parameters, [_like(z), sums], SUMMED_ROWS, warps)
    return dz, sums.sum(1)


def _like(x: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _rowwise(parameter: Array) -> Array:
    return parameter[..., None, :]


# --- the operations ---
# Where no gradient of the parameters is asked for, as when a policy climbs a critic, nothing is summed: JAX says so
# when it differentiates (`perturbed`), and the kept values carry it on in their structure, () or None.


@jax.custom_vjp
def activate(z: Array, bias: Array, scale: Array, shift: Array) -> Array:
    """Layer norm of GELU(z + bias): z (groups, rows, width), the others (groups, width); `vmap` adds the seeds."""
    if not _on_gpu():
        bias, scale, shift = map(_rowwise, (bias, scale, shift))
        return (_normal(z, bias, quick=False) * scale + shift).astype(z.dtype)
    return _call(_activate_kernel, (z,), (bias, scale, shift), [_like(z)])[0]


def _activate_forward(*inputs: Any) -> tuple[Array, Any]:
    z, bias, scale, shift = (each.value for each in inputs)
    trained = () if any(each.perturbed for each in inputs[1:]) else None
    return activate(z, bias, scale, shift), (z, bias, scale, trained)


def _activate_backward(kept: Any, dy: Array) -> tuple[Array | None, ...]:
    z, bias, scale, trained = kept
    if not _on_gpu():
        dz, normal = _gradient(z, _rowwise(bias), _rowwise(scale), dy.astype(jnp.float32), quick=False)
        sums = (dz.sum(-2), (dy * normal).sum(-2), dy.sum(-2))
        return dz.astype(z.dtype), *(each.astype(bias.dtype) for each in sums)
    if trained is None:
        return _call(_gradient_kernel, (z, dy), (bias, scale), [_like(z)])[0], None, None, None
    dz, sums = _call_summed(_summed_gradient_kernel, (z, dy), (bias, scale), 3)
    sums = sums.astype(bias.dtype)
    return dz, sums[:, 0], sums[:, 1], sums[:, 2]


activate.defvjp(_activate_forward, _activate_backward, symbolic_zeros=True)


@jax.custom_vjp
def value(z: Array, bias: Array, scale: Array, shift: Array, weight: Array) -> Array:
    """The one output behind a last hidden layer: `activate(...)` times the weight (groups, width); float32."""
    if not _on_gpu():
        scale, shift, weight = (each.astype(jnp.float32) for each in (scale, shift, weight))
        # As a product: XLA's sum over a scaled and shifted row takes several times as long.
        along = jnp.einsum("...rw,...w->...r", _normal(z, _rowwise(bias), quick=False), scale * weight)
        return along + (shift * weight).sum(-1, keepdims=True)
    out = jax.ShapeDtypeStruct(z.shape[:2], jnp.float32)
    return _call(_value_kernel, (z,), (bias, scale, shift, weight), [out])[0]


def _value_forward(*inputs: Any) -> tuple[Array, Any]:
    values = tuple(each.value for each in inputs)
    trained = () if any(each.perturbed for each in inputs[1:]) else None
    return value(*values), (values, trained)


def _value_backward(kept: Any, dvalue: Array) -> tuple[Array | None, ...]:
    (z, bias, scale, shift, weight), trained = kept
    scale_, shift_, weight_ = (each.astype(jnp.float32) for each in (scale, shift, weight))
    slope = scale_ * weight_  # the gradient that arrives at the layer norm is dvalue times weight
    if not _on_gpu():
        dz, normal = _gradient(z, _rowwise(bias), _rowwise(slope), dvalue[..., None], quick=False)
        dbias, with_normal = dz.sum(-2), jnp.einsum("...r,...rw->...w", dvalue, normal)
        dz = dz.astype(z.dtype)
    elif trained is None:
        return _call(_value_gradient_kernel, (z, dvalue), (bias, slope), [_like(z)])[0], None, None, None, None
    else:
        dz, sums = _call_summed(_summed_value_gradient_kernel, (z, dvalue), (bias, slope), 2)
        dbias, with_normal = sums[:, 0], sums[:, 1]
    d = dvalue.sum(-1, keepdims=True)
    gradients = (dbias, weight_ * with_normal, weight_ * d, scale_ * with_normal + shift_ * d)
    return dz, *(each.astype(bias.dtype) for each in gradients)


value.defvjp(_value_forward, _value_backward, symbolic_zeros=True)

"""One-pass GPU kernels for what lies between the matrix products of a multilayer perceptron.

Bias, GELU and layer norm of a hidden layer, forward and backward, each read their input once and write their output
once; left to XLA they cross memory several times, which is more than half of a training step (docs/performance.md).
A critic's last hidden layer and its one output are one kernel, so that these activations are never written at all.

Arrays are (groups, rows, width): groups are ensemble members and networks side by side, `vmap` adds the seeds in front.
Only z, the matrix product before the bias, is kept for the backward pass, in the precision of the networks; arithmetic
inside a kernel is float32.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from gtrl.mlp import EPSILON

ROWS, WARPS = 2, 1  # of one program: a warp keeps a whole row, so that its sums cross no barrier
# A program that also sums over rows, for the parameters' gradients, takes more of them: fewer programs, fewer sums.
SUMMED_ROWS, SUMMED_CHUNK, SUMMED_WARPS = 16, 1, 1  # rows, how many of them at a time, warps


def fits(rows: int, width: int) -> bool:
    """Whether the kernels can do this size: whole programs, and a width that is a power of two, as Triton wants it."""
    return rows % SUMMED_ROWS == 0 and width >= 16 and width & (width - 1) == 0


# --- what every kernel does with a block of rows, in float32 ---


def _gelu(x: Array, quick: bool) -> tuple[Array, Array]:
    """GELU (tanh approximation) and its slope."""
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    # The hardware's tanh is good to 11 bits: more than bfloat16 holds, less than float32 does.
    t = triton.approx_tanh(inner) if quick else jnp.tanh(inner)
    slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 3 * 0.044715 * x * x)
    return 0.5 * x * (1.0 + t), slope


def _statistics(x: Array) -> tuple[Array, Array]:
    """Mean, and one over the standard deviation, of each row; both sums at once, so that neither waits for the other."""
    mean, square = x.mean(-1, keepdims=True), (x * x).mean(-1, keepdims=True)
    return mean, jax.lax.rsqrt(jnp.maximum(square - mean * mean, 0.0) + EPSILON)


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
    with_normal = inverse * (across - mean * along)  # the mean of dn normal
    return inverse * (dn - along - normal * with_normal) * slope, normal


# --- kernels ---


def _activate_kernel(quick: bool, z, bias, scale, shift, y) -> None:
    normal = _normal(z[...], bias[...], quick)
    y[...] = (normal * scale[...].astype(jnp.float32) + shift[...].astype(jnp.float32)).astype(y.dtype)


def _value_kernel(quick: bool, z, bias, scale, shift, weight, value) -> None:
    normal = _normal(z[...], bias[...], quick)
    y = normal * scale[...].astype(jnp.float32) + shift[...].astype(jnp.float32)
    value[...] = (y * weight[...].astype(jnp.float32)).sum(-1)


def _gradient_kernel(quick: bool, z, bias, scale, dy, dz) -> None:
    dz[...] = _gradient(z[...], bias[...], scale[...], dy[...].astype(jnp.float32), quick)[0].astype(dz.dtype)


def _value_gradient_kernel(quick: bool, z, bias, slope, dvalue, dz) -> None:
    dz[...] = _gradient(z[...], bias[...], slope[...], dvalue[...][:, None], quick)[0].astype(dz.dtype)


def _summed(z, dz, sums, chunk_of: Callable[..., tuple[Array, ...]]) -> None:
    """Go through a program's rows in chunks; `chunk_of` gives a chunk's dz and what else is to be summed over rows."""

    def chunk(index: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        rows = pl.ds(index * SUMMED_CHUNK, SUMMED_CHUNK)
        found = chunk_of(rows)
        dz[rows, :] = found[0].astype(dz.dtype)
        return tuple(total + each for total, each in zip(carry, found, strict=True))

    zero = jnp.zeros((SUMMED_CHUNK, z.shape[-1]), jnp.float32)
    totals = jax.lax.fori_loop(0, z.shape[0] // SUMMED_CHUNK, chunk, (zero,) * sums.shape[0])
    for k, total in enumerate(totals):
        sums[k, :] = total.sum(0)


def _summed_gradient_kernel(quick: bool, z, bias, scale, dy, dz, sums) -> None:
    """`sums` are those of dz, dy normal and dy: the gradients of bias, scale and shift."""

    def chunk(rows: Any) -> tuple[Array, ...]:
        each = dy[rows, :].astype(jnp.float32)
        dz_, normal = _gradient(z[rows, :], bias[...], scale[...], each, quick)
        return dz_, each * normal, each

    _summed(z, dz, sums, chunk)


def _summed_value_gradient_kernel(quick: bool, z, bias, slope, dvalue, dz, sums) -> None:
    """`sums` are those of dz and dvalue normal."""

    def chunk(rows: Any) -> tuple[Array, ...]:
        each = dvalue[rows][:, None]
        dz_, normal = _gradient(z[rows, :], bias[...], slope[...], each, quick)
        return dz_, each * normal

    _summed(z, dz, sums, chunk)


def _call(kernel: Any, rows: int, inputs: tuple[Array, ...], outputs: list[jax.ShapeDtypeStruct]) -> Any:
    """Run a kernel over (groups, rows of the batch / `rows`).

    The first input is (groups, batch, width). Arrays as long as the batch in their second axis are divided likewise.
    Of the others, inputs are parameters, seen whole by every program, and outputs have one entry a program.
    """
    groups, batch, width = inputs[0].shape

    def spec(shape: tuple[int, ...], each_program: bool) -> pl.BlockSpec:
        of_rows = len(shape) == 3 and shape[1:] == (batch, width) or shape == (groups, batch)
        block = (rows,) if of_rows else (None,) if each_program else shape[1:2]
        moves = of_rows or each_program
        rest = shape[2:]
        return pl.BlockSpec((None, *block, *rest), lambda g, r: (g, r if moves else 0, *(0 for _ in rest)))

    interpret = jax.default_backend() == "cpu"
    return pl.pallas_call(
        partial(kernel, inputs[0].dtype == jnp.bfloat16 and not interpret),
        grid=(groups, batch // rows),
        in_specs=[spec(x.shape, False) for x in inputs],
        out_specs=[spec(x.shape, True) for x in outputs],
        out_shape=outputs,
        compiler_params=triton.CompilerParams(num_warps=SUMMED_WARPS if rows == SUMMED_ROWS else WARPS, num_stages=1),
        interpret=interpret,
    )(*inputs)


def _like(x: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _sums(z: Array, count: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((z.shape[0], z.shape[1] // SUMMED_ROWS, count, z.shape[2]), jnp.float32)


# --- the operations ---
# Where no gradient of the parameters is asked for, as when a policy climbs a critic, nothing is summed: JAX says so when
# it differentiates (`perturbed`), and the kept values carry it on in their structure, () or None.


@jax.custom_vjp
def activate(z: Array, bias: Array, scale: Array, shift: Array) -> Array:
    """Layer norm of GELU(z + bias): z (groups, rows, width), the others (groups, width)."""
    return _call(_activate_kernel, ROWS, (z, bias, scale, shift), [_like(z)])[0]


def _activate_forward(*inputs: Any) -> tuple[Array, Any]:
    z, bias, scale, shift = (each.value for each in inputs)
    trained = () if any(each.perturbed for each in inputs[1:]) else None
    return activate(z, bias, scale, shift), (z, bias, scale, trained)


def _activate_backward(kept: Any, dy: Array) -> tuple[Array | None, ...]:
    z, bias, scale, trained = kept
    if trained is None:
        return _call(_gradient_kernel, ROWS, (z, bias, scale, dy), [_like(z)])[0], None, None, None
    dz, sums = _call(_summed_gradient_kernel, SUMMED_ROWS, (z, bias, scale, dy), [_like(z), _sums(z, 3)])
    sums = sums.sum(1).astype(bias.dtype)
    return dz, sums[:, 0], sums[:, 1], sums[:, 2]


activate.defvjp(_activate_forward, _activate_backward, symbolic_zeros=True)


@jax.custom_vjp
def value(z: Array, bias: Array, scale: Array, shift: Array, weight: Array) -> Array:
    """The one output behind a last hidden layer: `activate(...)` times the weight (groups, width); float32."""
    out = jax.ShapeDtypeStruct(z.shape[:2], jnp.float32)
    return _call(_value_kernel, ROWS, (z, bias, scale, shift, weight), [out])[0]


def _value_forward(*inputs: Any) -> tuple[Array, Any]:
    values = tuple(each.value for each in inputs)
    trained = () if any(each.perturbed for each in inputs[1:]) else None
    return value(*values), (values, trained)


def _value_backward(kept: Any, dvalue: Array) -> tuple[Array | None, ...]:
    (z, bias, scale, shift, weight), trained = kept
    scale_, shift_, weight_ = (each.astype(jnp.float32) for each in (scale, shift, weight))
    inputs = (z, bias, scale_ * weight_, dvalue)  # the gradient that arrives at the layer norm is dvalue times weight
    if trained is None:
        return _call(_value_gradient_kernel, ROWS, inputs, [_like(z)])[0], None, None, None, None
    dz, sums = _call(_summed_value_gradient_kernel, SUMMED_ROWS, inputs, [_like(z), _sums(z, 2)])
    dbias, d_normal = jnp.moveaxis(sums.sum(1), 1, 0)
    d = dvalue.sum(-1, keepdims=True)
    gradients = (dbias, weight_ * d_normal, weight_ * d, scale_ * d_normal + shift_ * d)
    return dz, *(each.astype(bias.dtype) for each in gradients)


value.defvjp(_value_forward, _value_backward, symbolic_zeros=True)

"""The formulas of a hidden layer as GPU kernels, written in Pallas for its Triton backend.

JAX has deprecated that backend: only `gtrl.nn.kernels` imports this module, where a GPU needs it, and does without
where it cannot be imported.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas.triton import CompilerParams, approx_tanh

from gtrl.nn import speed
from gtrl.nn.formulas import Arithmetic, gradient, normalised

Arrays = tuple[Array, ...]

ROWS, WARPS = 2, 1  # of one program: a warp keeps whole rows, so that their sums cross no barrier
# A program that also sums over rows, for the parameters' gradients, takes more of them: fewer programs, fewer sums. One
# warp that goes through them row by row is best where programs are many; few of them fill the GPU with four warps each.
SUMMED_ROWS, MAX_PROGRAMS_OF_FOUR_WARPS = 16, 1000
MIN_WIDTH, MAX_WIDTH = 16, 2048  # of a layer


def fits(rows: int, width: int) -> bool:
    """Whether the kernels can do this size: whole programs, and a power of two as width, which Triton requires."""
    return rows % SUMMED_ROWS == 0 and MIN_WIDTH <= width <= MAX_WIDTH and width & (width - 1) == 0


# --- the operations: z (groups, rows, width), parameters (groups, width) ---


def activate(z: Array, bias: Array, scale: Array, shift: Array) -> Array:
    return _call(_activate_kernel, (z,), (bias, scale, shift), [_like(z)])[0]


def activate_gradient(z: Array, dy: Array, bias: Array, scale: Array) -> Array:
    """The gradient at z alone."""
    return _call(_gradient_kernel, (z, dy), (bias, scale), [_like(z)])[0]


def activate_gradients(z: Array, dy: Array, bias: Array, scale: Array) -> tuple[Array, Array]:
    """The gradient at z; and those at bias, scale and shift, (groups, 3, width)."""
    return _call_summed(_summed_gradient_kernel, (z, dy), (bias, scale), 3)


def value(z: Array, bias: Array, scale: Array, shift: Array, weight: Array) -> Array:
    out = jax.ShapeDtypeStruct(z.shape[:2], jnp.float32)
    return _call(_value_kernel, (z,), (bias, scale, shift, weight), [out])[0]


def value_gradient(z: Array, dvalue: Array, bias: Array, slope: Array) -> Array:
    """The gradient at z alone; `slope` is scale times weight."""
    return _call(_value_gradient_kernel, (z, dvalue), (bias, slope), [_like(z)])[0]


def value_gradients(z: Array, dvalue: Array, bias: Array, slope: Array) -> tuple[Array, Array]:
    """The gradient at z; and the sums of it and of dvalue times the normalised GELU, (groups, 2, width)."""
    return _call_summed(_summed_value_gradient_kernel, (z, dvalue), (bias, slope), 2)


# --- kernels: arrays of rows come first, then parameters, then what is written ---


def _activate_kernel(how: Arithmetic, z, bias, scale, shift, y) -> None:
    normal = normalised(z[...], bias[...], how)
    y[...] = (normal * scale[...].astype(jnp.float32) + shift[...].astype(jnp.float32)).astype(y.dtype)


def _value_kernel(how: Arithmetic, z, bias, scale, shift, weight, value) -> None:
    normal = normalised(z[...], bias[...], how)
    y = normal * scale[...].astype(jnp.float32) + shift[...].astype(jnp.float32)
    value[...] = (y * weight[...].astype(jnp.float32)).sum(-1)


def _gradient_kernel(how: Arithmetic, z, dy, bias, scale, dz) -> None:
    dz[...] = gradient(z[...], bias[...], scale[...], dy[...].astype(jnp.float32), how)[0].astype(dz.dtype)


def _value_gradient_kernel(how: Arithmetic, z, dvalue, bias, slope, dz) -> None:
    dz[...] = gradient(z[...], bias[...], slope[...], dvalue[...][:, None], how)[0].astype(dz.dtype)


def _summed_gradient_kernel(at_once: int, how: Arithmetic, z, dy, bias, scale, dz, sums) -> None:
    """`sums` are those of dz, dy normal and dy: the gradients of bias, scale and shift."""

    def chunk(rows: Any) -> Arrays:
        each = dy[rows, :].astype(jnp.float32)
        dz_, normal = gradient(z[rows, :], bias[...], scale[...], each, how)
        return dz_, each * normal, each

    _sum_over_rows(at_once, z, dz, sums, chunk)


def _summed_value_gradient_kernel(at_once: int, how: Arithmetic, z, dvalue, bias, slope, dz, sums) -> None:
    """`sums` are those of dz and dvalue normal."""

    def chunk(rows: Any) -> Arrays:
        each = dvalue[rows][:, None]
        dz_, normal = gradient(z[rows, :], bias[...], slope[...], each, how)
        return dz_, each * normal

    _sum_over_rows(at_once, z, dz, sums, chunk)


def _sum_over_rows(at_once: int, z, dz, sums, chunk_of: Callable[..., Arrays]) -> None:
    """Go through a program's rows, some at once; `chunk_of` gives their dz and what else is to be summed over rows."""

    def chunk(index: Array, carry: Arrays) -> Arrays:
        rows = pl.ds(index * at_once, at_once)
        found = chunk_of(rows)
        dz[rows, :] = found[0].astype(dz.dtype)
        return tuple(total + each for total, each in zip(carry, found, strict=True))

    zero = jnp.zeros((at_once, z.shape[-1]), jnp.float32)
    totals = jax.lax.fori_loop(0, z.shape[0] // at_once, chunk, (zero,) * sums.shape[0])
    for k, total in enumerate(totals):
        sums[k, :] = total.sum(0)


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

    # The hardware's tanh is good to 11 bits: more than bfloat16 holds, less than float32 does.
    quick = of_rows[0].dtype == jnp.bfloat16 and not speed.INTERPRETED
    how = Arithmetic(approx_tanh if quick else jnp.tanh, one_pass=True)
    return pl.pallas_call(
        partial(kernel, how),
        grid=(groups, batch // rows),
        in_specs=[*map(divided, of_rows), *map(whole, parameters)],
        out_specs=[*map(divided, outputs)],
        out_shape=outputs,
        compiler_params=CompilerParams(num_warps=warps, num_stages=1),
        interpret=speed.INTERPRETED,
    )(*of_rows, *parameters)


def _call_summed(kernel: Any, of_rows: Arrays, parameters: Arrays, count: int) -> tuple[Array, Array]:
    """Run a kernel that gives dz and `count` sums over the rows of a program; dz, and the sums of these."""
    z = of_rows[0]
    programs = z.shape[1] // SUMMED_ROWS
    warps = 4 if speed.copies() * len(z) * programs <= MAX_PROGRAMS_OF_FOUR_WARPS else 1
    sums = jax.ShapeDtypeStruct((len(z), programs, count, z.shape[2]), jnp.float32)
    dz, sums = _call(partial(kernel, warps), of_rows, parameters, [_like(z), sums], SUMMED_ROWS, warps)
    return dz, sums.sum(1)


def _like(x: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)

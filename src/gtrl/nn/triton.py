"""GPU kernels for hidden layers, written in Pallas for its Triton backend.

JAX has deprecated that backend. So only `gtrl.nn.kernels` imports this module, on GPUs that run the kernels, and uses
the plain formulas where the import fails.
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
from gtrl.nn.formulas import Arithmetic, layer_gradient, normalised_gelu

Arrays = tuple[Array, ...]

ROWS_PER_PROGRAM, WARPS_PER_PROGRAM = 2, 1  # a warp holds whole rows, so that their sums need no barrier
# A program that also sums over rows, for the gradients of parameters, takes more rows: fewer programs, fewer sums.
ROWS_PER_SUMMING_PROGRAM = 16
# With many such programs it is fastest to give each one warp, which takes its rows one by one. Up to this number of
# programs, each needs four warps to fill the GPU.
MAX_PROGRAMS_OF_FOUR_WARPS = 1000
MIN_WIDTH, MAX_WIDTH = 16, 2048  # of a layer


def supports(rows: int, width: int) -> bool:
    """Whether the kernels support this size: rows must fill whole programs; Triton needs a power of two as width."""
    return rows % ROWS_PER_SUMMING_PROGRAM == 0 and MIN_WIDTH <= width <= MAX_WIDTH and width & (width - 1) == 0


# --- operations: z has shape (groups, rows, width), parameters (groups, width) ---


def activate(z: Array, bias: Array, scale: Array, shift: Array) -> Array:
    """Layer norm of GELU(z + bias)."""
    return _call(_activate_kernel, (z,), (bias, scale, shift), [_like(z)])[0]


def activate_gradient(z: Array, dy: Array, bias: Array, scale: Array) -> Array:
    """The gradient of `activate` with respect to z alone."""
    return _call(_gradient_kernel, (z, dy), (bias, scale), [_like(z)])[0]


def activate_gradients(z: Array, dy: Array, bias: Array, scale: Array) -> tuple[Array, Array]:
    """The gradient of `activate` with respect to z; and to bias, scale and shift, (groups, 3, width)."""
    return _call_summed(_summed_gradient_kernel, (z, dy), (bias, scale), 3)


def value(z: Array, bias: Array, scale: Array, shift: Array, weight: Array) -> Array:
    """`activate(...)` times `weight`, summed over the width; (groups, rows)."""
    out = jax.ShapeDtypeStruct(z.shape[:2], jnp.float32)
    return _call(_value_kernel, (z,), (bias, scale, shift, weight), [out])[0]


def value_gradient(z: Array, dvalue: Array, bias: Array, slope: Array) -> Array:
    """The gradient of `value` with respect to z alone; `slope` is scale times weight."""
    return _call(_value_gradient_kernel, (z, dvalue), (bias, slope), [_like(z)])[0]


def value_gradients(z: Array, dvalue: Array, bias: Array, slope: Array) -> tuple[Array, Array]:
    """The gradient of `value` with respect to z; and two sums over rows, (groups, 2, width).

    The sums are those of this gradient, and of dvalue times the normalised GELU.
    """
    return _call_summed(_summed_value_gradient_kernel, (z, dvalue), (bias, slope), 2)


# --- kernels: the arguments are arrays of rows, then parameters, then outputs ---


def _activate_kernel(arithmetic: Arithmetic, z, bias, scale, shift, y) -> None:
    normal = normalised_gelu(z[...], bias[...], arithmetic)
    y[...] = (normal * scale[...].astype(jnp.float32) + shift[...].astype(jnp.float32)).astype(y.dtype)


def _value_kernel(arithmetic: Arithmetic, z, bias, scale, shift, weight, value) -> None:
    normal = normalised_gelu(z[...], bias[...], arithmetic)
    y = normal * scale[...].astype(jnp.float32) + shift[...].astype(jnp.float32)
    value[...] = (y * weight[...].astype(jnp.float32)).sum(-1)


def _gradient_kernel(arithmetic: Arithmetic, z, dy, bias, scale, dz) -> None:
    dz[...] = layer_gradient(z[...], bias[...], scale[...], dy[...].astype(jnp.float32), arithmetic)[0].astype(dz.dtype)


def _value_gradient_kernel(arithmetic: Arithmetic, z, dvalue, bias, slope, dz) -> None:
    dz[...] = layer_gradient(z[...], bias[...], slope[...], dvalue[...][:, None], arithmetic)[0].astype(dz.dtype)


def _summed_gradient_kernel(chunk_rows: int, arithmetic: Arithmetic, z, dy, bias, scale, dz, sums) -> None:
    """`sums` receives the sums of dz, dy * normal and dy: the gradients of bias, scale and shift."""

    def terms(rows: Any) -> Arrays:
        dy_rows = dy[rows, :].astype(jnp.float32)
        dz_rows, normal = layer_gradient(z[rows, :], bias[...], scale[...], dy_rows, arithmetic)
        return dz_rows, dy_rows * normal, dy_rows

    _sum_over_rows(chunk_rows, z, dz, sums, terms)


def _summed_value_gradient_kernel(chunk_rows: int, arithmetic: Arithmetic, z, dvalue, bias, slope, dz, sums) -> None:
    """`sums` receives the sums of dz and dvalue * normal."""

    def terms(rows: Any) -> Arrays:
        dvalue_rows = dvalue[rows][:, None]
        dz_rows, normal = layer_gradient(z[rows, :], bias[...], slope[...], dvalue_rows, arithmetic)
        return dz_rows, dvalue_rows * normal

    _sum_over_rows(chunk_rows, z, dz, sums, terms)


def _sum_over_rows(chunk_rows: int, z, dz, sums, terms_of: Callable[..., Arrays]) -> None:
    """Processes a program's rows in chunks; `terms_of` returns dz of a chunk and the other terms to sum over rows."""

    def chunk(index: Array, carry: Arrays) -> Arrays:
        rows = pl.ds(index * chunk_rows, chunk_rows)
        terms = terms_of(rows)
        dz[rows, :] = terms[0].astype(dz.dtype)
        return tuple(total + term for total, term in zip(carry, terms, strict=True))

    zero = jnp.zeros((chunk_rows, z.shape[-1]), jnp.float32)
    totals = jax.lax.fori_loop(0, z.shape[0] // chunk_rows, chunk, (zero,) * sums.shape[0])
    for k, total in enumerate(totals):
        sums[k, :] = total.sum(0)


def _call(
    kernel: Any,
    row_arrays: Arrays,
    parameters: Arrays,
    outputs: list[jax.ShapeDtypeStruct],
    rows: int = ROWS_PER_PROGRAM,
    warps: int = WARPS_PER_PROGRAM,
) -> Any:
    """Runs a kernel with batch / `rows` programs per group.

    Arrays of rows, (groups, batch, ...), are divided among the programs of a group. Parameters, (groups, width), are
    passed whole to each of them. Outputs are divided like rows; sums, (groups, programs, sums, width), have one block
    per program.
    """
    groups, batch, _ = row_arrays[0].shape

    def divided(array: Any) -> pl.BlockSpec:
        block = (None, None, *array.shape[2:]) if array.ndim == 4 else (None, rows, *array.shape[2:])
        return pl.BlockSpec(block, lambda g, r: (g, r, *(0 for _ in block[2:])))

    def whole(array: Array) -> pl.BlockSpec:
        return pl.BlockSpec((None, array.shape[1]), lambda g, _: (g, 0))

    # The hardware's tanh is accurate to 11 bits: more than bfloat16 has, fewer than float32 has.
    use_approximation = row_arrays[0].dtype == jnp.bfloat16 and not speed.INTERPRETED
    arithmetic = Arithmetic(approx_tanh if use_approximation else jnp.tanh, one_pass=True)
    return pl.pallas_call(
        partial(kernel, arithmetic),
        grid=(groups, batch // rows),
        in_specs=[*map(divided, row_arrays), *map(whole, parameters)],
        out_specs=[*map(divided, outputs)],
        out_shape=outputs,
        compiler_params=CompilerParams(num_warps=warps, num_stages=1),
        interpret=speed.INTERPRETED,
    )(*row_arrays, *parameters)


def _call_summed(kernel: Any, row_arrays: Arrays, parameters: Arrays, count: int) -> tuple[Array, Array]:
    """Runs a kernel that writes dz and `count` sums over a program's rows; returns dz and the sums over all rows."""
    z = row_arrays[0]
    programs = z.shape[1] // ROWS_PER_SUMMING_PROGRAM
    warps = 4 if speed.copies() * len(z) * programs <= MAX_PROGRAMS_OF_FOUR_WARPS else 1
    sums = jax.ShapeDtypeStruct((len(z), programs, count, z.shape[2]), jnp.float32)
    dz, sums = _call(partial(kernel, warps), row_arrays, parameters, [_like(z), sums], ROWS_PER_SUMMING_PROGRAM, warps)
    return dz, sums.sum(1)


def _like(x: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)

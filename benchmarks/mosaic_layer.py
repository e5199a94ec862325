#!/usr/bin/env python3
"""A hidden layer as one kernel for Hopper GPUs, with Pallas's Mosaic GPU backend; the package does not use it yet.

    python benchmarks/mosaic_layer.py check      in Pallas's interpreter, on any machine
    python benchmarks/mosaic_layer.py compile    for an H200, without one; needs what gpu_kernels.py needs
    python benchmarks/mosaic_layer.py            on a Hopper GPU: checks, then times, beside the kernels in use
    python benchmarks/mosaic_layer.py step       a training step whose targets use this kernel, beside one as it is

Layer norm is moved past the next matrix product. Let u be a layer's activations before layer norm, mean and inverse
deviation of whose row are m and r, and W, b the next layer's weights. With V = scale * W (rows of W times the scale),
c = sum of V's rows and d = shift @ W + b,

    layer_norm(u) @ W + b  =  r * (u @ V) - r * m * c + d.

So the kernel that multiplies needs no statistics of its own rows: it writes GELU of the above and, for each tile, the
row sums of it and of its square, from which the next kernel gets its m and r. Normalised activations are never in
memory. A last hidden layer with a single output writes sums only.

One program per multiprocessor walks through tiles of 64 x 128. The weights of the tile's columns stay in shared memory
while it walks down the rows. One warp group loads rows, two others take turns: one multiplies while the other computes
GELU and writes.
"""

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as gpu

from gtrl import bench
from gtrl.data.dataset import Spec
from gtrl.io import mlp
from gtrl.nn import kernels, speed

ROWS, COLUMNS, DEPTH = 64, 128, 64  # of a tile; columns of u that are loaded at a time
SLOTS = 3  # loads in flight, for each of the two computing warp groups
LOADER = 2  # the warp group that loads; 0 and 1 compute
MULTIPROCESSORS = 132
BIAS, OFFSET, OUTPUT = 0, 1, 2  # vectors of a tile's columns: d, c, and the weights of a single output
SCALED_MEAN, INVERSE = 0, 1  # statistics of rows: r * m, and r
SIZES = ((8, 4096), (20, 1024), (8, 1024))  # groups and rows of GTRL's layers with four seeds
WIDTH = 512


class Tile(NamedTuple):
    """Part of a layer's output."""

    group: Array
    panel: Array  # number of its columns' panel
    rows: Any
    columns: Any
    turn: Array  # the warp group that computes it
    number: Array  # among the tiles of that warp group and program
    is_new: Array  # whether it is the first of its panel in this program


def layer(
    u: Array,
    statistics: Array | None,
    weight: Array,
    offset: Array | None,
    bias: Array,
    output: Array | None = None,
    *,
    write: bool = True,
    programs: int = MULTIPROCESSORS,
    interpret: Any = None,
) -> list[Array]:
    """Returns the layer's activations, unless `write` is False, and row sums, (groups, panels, sums, rows).

    Args:
        u: Activations before layer norm, or the network's input, (groups, rows, in).
        statistics: r * m and r of each row of `u`, (groups, 2, rows); None for the network's input.
        weight: V, (groups, in, out).
        offset: c, (groups, out); None with `statistics`.
        bias: d, (groups, out).
        output: Weights of a single output, (groups, out), whose products with the activations are summed too.
        write: Whether the activations are needed.
        programs: Programs side by side.
        interpret: Parameters of Pallas's interpreter.
    """
    groups, rows, inputs = u.shape
    outputs, dtype = weight.shape[-1], u.dtype
    if rows % ROWS or outputs % COLUMNS or inputs % DEPTH:
        raise ValueError(f"{rows} rows, {inputs} to {outputs}, are no multiples of {ROWS}, {DEPTH} and {COLUMNS}")
    panels, blocks, depths = outputs // COLUMNS, rows // ROWS, inputs // DEPTH
    tiles, sums = groups * panels * blocks, 2 if output is None else 3
    programs = min(programs, tiles)
    swizzled = (gpu.TilingTransform((8, 64)), gpu.SwizzleTransform(128))
    vectors = {BIAS: bias, OFFSET: offset, OUTPUT: output}
    given = {number: vector for number, vector in vectors.items() if vector is not None}

    def kernel(*refs: Any) -> None:
        u_, weight_, *rest = refs
        vectors_ = dict(zip(given, rest, strict=False))
        rest = rest[len(given) :]
        statistics_ = rest.pop(0) if statistics is not None else None
        written_ = rest.pop(0) if write else None
        (sums_,) = rest
        group_of_warps = lax.axis_index("warps")
        first = lax.axis_index("program") * tiles // programs
        last = (lax.axis_index("program") + 1) * tiles // programs

        @functools.partial(
            pl.run_scoped,
            panel=gpu.SMEM((inputs, COLUMNS), dtype, transforms=swizzled),
            ring=gpu.SMEM((2, SLOTS, ROWS, DEPTH), dtype, transforms=swizzled),
            out=gpu.SMEM((2, ROWS, COLUMNS), dtype, transforms=swizzled),
            columns=gpu.SMEM((2, 3, COLUMNS), jnp.float32),
            of_rows=gpu.SMEM((2, 2, ROWS), jnp.float32),
            totals=gpu.SMEM((2, sums, ROWS), jnp.float32),
            loaded=gpu.Barrier(num_barriers=2 * SLOTS),
            read=gpu.Barrier(num_barriers=2 * SLOTS),
            panel_loaded=gpu.Barrier(),
            panel_read=gpu.Barrier(num_arrivals=2),
            vectors_loaded=gpu.Barrier(num_barriers=2, num_arrivals=len(given) + (statistics is not None)),
            collective_axes="warps",
        )
        def _(panel, ring, out, columns, of_rows, totals, loaded, read, panel_loaded, panel_read, vectors_loaded):
            def tile_at(position: Array) -> Tile:
                group, rest = position // (panels * blocks), position % (panels * blocks)
                panel_number, block = rest // blocks, rest % blocks
                own = pl.ds(block * ROWS, ROWS), pl.ds(panel_number * COLUMNS, COLUMNS)
                turn, number = (position - first) % 2, (position - first) // 2
                return Tile(group, panel_number, *own, turn, number, (position == first) | (block == 0))

            def change_panel(position: Array, leave: Callable[[], None], enter: Callable[[], None]) -> None:
                is_new = tile_at(position).is_new
                pl.when(is_new & (position > first))(leave)
                pl.when(is_new)(enter)

            @pl.when(group_of_warps == LOADER)
            def _() -> None:
                gpu.set_max_registers(40, action="decrease")

                def load(position: Array, carry: Any) -> Any:
                    tile = tile_at(position)
                    source = weight_.at[tile.group, :, tile.columns]
                    load_panel = functools.partial(gpu.copy_gmem_to_smem, source, panel, panel_loaded)
                    change_panel(position, lambda: gpu.barrier_wait(panel_read), load_panel)

                    def load_depth(depth: Array, carry: Any) -> Any:
                        count = tile.number * depths + depth
                        slot = count % SLOTS

                        @pl.when(count >= SLOTS)
                        def _() -> None:
                            gpu.barrier_wait(read.at[tile.turn * SLOTS + slot])

                        source = u_.at[tile.group, tile.rows, pl.ds(depth * DEPTH, DEPTH)]
                        gpu.copy_gmem_to_smem(source, ring.at[tile.turn, slot], loaded.at[tile.turn * SLOTS + slot])
                        return carry

                    return lax.fori_loop(0, depths, load_depth, carry)

                lax.fori_loop(first, last, load, 0)
                for turn in range(2):  # the interpreter wants every arrival to be waited for
                    count = (last - first + 1 - turn) // 2 * depths
                    for slot in range(SLOTS):

                        @pl.when(count > slot)
                        def _(turn: int = turn, slot: int = slot) -> None:
                            gpu.barrier_wait(read.at[turn * SLOTS + slot])

            @pl.when(group_of_warps < LOADER)
            def _() -> None:
                gpu.set_max_registers(232, action="increase")
                me = group_of_warps

                def compute(position: Array, carry: Any) -> Any:
                    tile = tile_at(position)
                    leave, enter = lambda: gpu.barrier_arrive(panel_read), lambda: gpu.barrier_wait(panel_loaded)
                    change_panel(position, leave, enter)

                    def multiply(product: Any) -> None:
                        def multiply_depth(depth: Array, carry: Any) -> Any:
                            count = tile.number * depths + depth
                            slot = me * SLOTS + count % SLOTS
                            gpu.barrier_wait(loaded.at[slot])
                            gpu.wgmma(product, ring.at[me, count % SLOTS], panel.at[pl.ds(depth * DEPTH, DEPTH)])
                            gpu.wgmma_wait(1)

                            @pl.when(depth > 0)
                            def _() -> None:
                                gpu.barrier_arrive(read.at[me * SLOTS + (count - 1) % SLOTS])

                            return carry

                        lax.fori_loop(0, depths, multiply_depth, 0)
                        gpu.wgmma_wait(0)
                        gpu.barrier_arrive(read.at[me * SLOTS + (tile.number * depths + depths - 1) % SLOTS])
                        gpu.barrier_wait(vectors_loaded.at[me])
                        finish(product[...])

                    def finish(z: Array) -> None:
                        column = lambda name: lax.broadcast_in_dim(columns[me, name], z.shape, (1,))  # noqa: E731
                        row = lambda name: lax.broadcast_in_dim(of_rows[me, name], z.shape, (0,))  # noqa: E731
                        if statistics_ is not None:
                            z = z * row(INVERSE) - row(SCALED_MEAN) * column(OFFSET)
                        y = mlp.gelu(z + column(BIAS), jnp)
                        gpu.wait_smem_to_gmem(0, wait_read_only=True)  # what this warp group wrote before
                        if written_ is not None:
                            out[me] = y.astype(dtype)
                        totals[me, 0] = jnp.sum(y, axis=1)
                        totals[me, 1] = jnp.sum(y * y, axis=1)
                        if output is not None:
                            totals[me, 2] = jnp.sum(y * column(OUTPUT), axis=1)
                        gpu.commit_smem()
                        if written_ is not None:
                            gpu.copy_smem_to_gmem(out.at[me], written_.at[tile.group, tile.rows, tile.columns])
                        gpu.copy_smem_to_gmem(totals.at[me], sums_.at[tile.group, tile.panel, :, tile.rows])

                    @pl.when(tile.turn == me)
                    def _() -> None:
                        for name, vector_ in vectors_.items():
                            gpu.copy_gmem_to_smem(
                                vector_.at[tile.group, tile.columns], columns.at[me, name], vectors_loaded.at[me]
                            )
                        if statistics_ is not None:
                            gpu.copy_gmem_to_smem(
                                statistics_.at[tile.group, :, tile.rows], of_rows.at[me], vectors_loaded.at[me]
                            )
                        pl.run_scoped(multiply, gpu.WGMMAAccumulatorRef((ROWS, COLUMNS), jnp.float32))

                    return carry

                lax.fori_loop(first, last, compute, 0)
                gpu.wait_smem_to_gmem(0, wait_read_only=True)

    activations = [jax.ShapeDtypeStruct((groups, rows, outputs), dtype)] if write else []
    arguments = [u, weight, *given.values(), *([] if statistics is None else [statistics])]
    extra = {} if interpret is None else {"interpret": interpret}
    call = gpu.kernel(
        kernel,
        out_type=[*activations, jax.ShapeDtypeStruct((groups, panels, sums, rows), jnp.float32)],
        grid=(programs,),
        grid_names=("program",),
        num_threads=3,
        thread_name="warps",
        compiler_params=gpu.CompilerParams(lowering_semantics=gpu.LoweringSemantics.Warpgroup),
        **extra,
    )
    return call(*arguments)


def statistics_of(sums: Array, width: int) -> Array:
    """Returns r * m and r of each row from the sums that `layer` returns."""
    total, squares = (sums.sum(1)[:, k] / width for k in (0, 1))
    inverse = lax.rsqrt(squares - total * total + mlp.LAYER_NORM_EPSILON)
    return jnp.stack([total * inverse, inverse], 1)


def values(layers: Sequence[mlp.Layer], x: Array, **options: Any) -> Array:
    """Returns the single outputs of networks, (groups, rows, 1), as `kernels.forward` does, by this kernel."""
    *hidden, last = layers
    u = kernels.pad_to_multiple(x.astype(last.weight.dtype), -1, DEPTH)
    weight = kernels.pad_to_multiple(hidden[0].weight, -2, DEPTH)
    bias, statistics, offset = hidden[0].bias.astype(jnp.float32), None, None
    for before, after in zip(hidden, layers[1:], strict=True):
        scale, shift, following = (
            jnp.asarray(each, jnp.float32) for each in (before.scale, before.shift, after.weight)
        )
        scaled = scale[..., None] * following  # V
        output = scaled[..., 0] if after is last else None
        *activations, sums = layer(u, statistics, weight, offset, bias, output, write=output is None, **options)
        statistics = statistics_of(sums, scale.shape[-1])
        bias = jnp.einsum("gk,gkn->gn", shift, following) + after.bias.astype(jnp.float32)
        if output is not None:
            scaled_mean, inverse = statistics[:, SCALED_MEAN], statistics[:, INVERSE]
            return (inverse * sums.sum(1)[:, 2] - scaled_mean * scaled.sum(-2) + bias)[..., None]
        (u,), weight = activations, scaled.astype(u.dtype)
        offset = weight.astype(jnp.float32).sum(-2)
    raise ValueError("a network without hidden layers")


def forward_with(**options: Any) -> Any:
    """Returns a `kernels.forward` that uses this kernel where a network with a single output is not differentiated."""
    plain = kernels.forward

    @jax.custom_batching.custom_vmap
    def of_groups(layers: Any, x: Array) -> Array:
        return values(layers, x, **options)

    @of_groups.def_vmap
    def of_seeds(size: int, is_batched: Any, layers: Any, x: Array) -> tuple[Array, bool]:
        def merged(value: Array, batched: bool) -> Array:
            value = value if batched else jnp.broadcast_to(value, (size, *value.shape))
            return value.reshape(-1, *value.shape[2:])

        result = of_groups(*jax.tree.map(merged, (layers, x), tuple(is_batched)))
        return result.reshape(size, -1, *result.shape[1:]), True

    @jax.custom_vjp
    def evaluate(layers: Any, x: Array) -> Array:
        return of_groups(layers, jnp.broadcast_to(x, (len(layers[0].weight), *x.shape[-2:])))

    def begin(layers: Any, x: Any) -> tuple[Array, Any]:
        is_leaf = lambda leaf: hasattr(leaf, "perturbed")  # noqa: E731
        trained = any(leaf.perturbed for leaf in jax.tree.leaves(layers, is_leaf=is_leaf))
        layers, x = jax.tree.map(lambda leaf: leaf.value, (layers, x), is_leaf=is_leaf)
        if trained:
            result, pull = jax.vjp(plain, layers, x)
            return result, (pull, ())
        result, pull = jax.vjp(lambda x: plain(layers, x), x)
        return result, (pull, None)

    def pull_back(residuals: Any, slope: Array) -> Any:
        pull, of_layers = residuals
        return pull(slope) if of_layers is not None else (None, *pull(slope))

    evaluate.defvjp(begin, pull_back, symbolic_zeros=True)

    def forward(layers: Sequence[mlp.Layer], x: Array) -> Array:
        *hidden, last = layers
        widths = [layer_.weight.shape[-1] for layer_ in hidden if layer_.scale is not None]
        fits = (
            x.shape[-2] % ROWS == 0
            and x.shape[-1] <= WIDTH
            and all(width % COLUMNS == 0 and width <= WIDTH for width in widths)
        )
        fits &= 0 < len(hidden) == len(widths)
        single = last.weight.ndim == 3 and last.weight.shape[-1] == 1
        half = last.weight.dtype == jnp.bfloat16
        return evaluate(list(layers), x) if fits and single and half else plain(layers, x)

    return forward


def example(groups: int, rows: int, inputs: int, outputs: int) -> dict[str, Array]:
    """Returns random arguments of `layer`: those of a layer that follows another one."""
    keys = jax.random.split(jax.random.key(0), 6)
    vectors = (0.1 * jax.random.normal(key, (groups, outputs)) for key in keys[2:5])
    mean = 0.1 * jax.random.normal(keys[5], (groups, rows))
    return {
        "u": jax.random.normal(keys[0], (groups, rows, inputs)).astype(jnp.bfloat16),
        "weight": (jax.random.normal(keys[1], (groups, inputs, outputs)) / inputs**0.5).astype(jnp.bfloat16),
        **dict(zip(("bias", "offset", "output"), vectors, strict=True)),
        "statistics": jnp.stack([mean, 1 + mean], 1),
    }


def errors(case: dict[str, Any], **options: Any) -> list[float]:
    """Relative errors of activations and sums against float64."""
    exact = {name: np.asarray(value, np.float64) for name, value in case.items() if value is not None}
    z = exact["u"] @ exact["weight"]
    if "statistics" in exact:
        scaled_mean, inverse = (exact["statistics"][:, k, :, None] for k in (SCALED_MEAN, INVERSE))
        z = z * inverse - scaled_mean * exact["offset"][:, None]
    y = np.asarray(z + exact["bias"][:, None])
    y = 0.5 * y * (1 + np.tanh(0.7978845608028654 * (y + 0.044715 * y**3)))
    sums = [y.sum(-1), (y * y).sum(-1)]
    if "output" in exact:
        sums.append((y * exact["output"][:, None]).sum(-1))
    found = jax.jit(functools.partial(layer, **options))(**case)
    pairs = [(found[-1].sum(1), np.stack(sums, 1)), *([(found[0], y)] if len(found) == 2 else [])]
    return [float(np.linalg.norm(np.asarray(x, np.float64) - ref) / np.linalg.norm(ref)) for x, ref in pairs]


def check(groups: int, rows: int, inputs: int, outputs: int, **options: Any) -> bool:
    """Prints the errors of a network's first, middle and last hidden layer; True if they are those of bfloat16."""
    middle = example(groups, rows, inputs, outputs)
    cases = {
        "first": middle | {"statistics": None, "offset": None, "output": None},
        "middle": middle | {"output": None},
        "last": middle,
    }
    right = True
    for name, case in cases.items():
        of_sums, *of_activations = errors(case, write=name != "last", **options)
        right &= of_sums < 1e-5 and all(error < 5e-3 for error in of_activations)
        print(f"{name}: relative error of sums {of_sums:.1e}, of activations {of_activations or '-'}", flush=True)
    return right


def compile_without_gpu() -> None:
    """Compiles the layers for an H200; with MOSAIC_GPU_DUMP_PTXAS, prints registers and spills."""
    os.environ["MOSAIC_GPU_DUMP_PTXAS"] = "1"
    import gpu_kernels
    from jax.experimental import topologies
    from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding, use_abstract_mesh

    topology = topologies.get_topology_desc("h200", "cuda", target_config=gpu_kernels.H200, topology="1x1x1")
    there = SingleDeviceSharding(topology.devices[0])
    h200 = AbstractDevice("NVIDIA H200", None, "cuda")
    for groups, rows in SIZES:
        shapes = jax.eval_shape(functools.partial(example, groups, rows, WIDTH, WIDTH))
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there), shapes)
        print(f"{groups} x {rows}", flush=True)
        with use_abstract_mesh(AbstractMesh((), (), abstract_device=h200)):
            jax.jit(layer).trace(**shapes).lower(lowering_platforms=("cuda",)).compile()


def time_all() -> None:
    """Prints microseconds of a layer: cuBLAS alone, the kernels in use, and this one."""
    for groups, rows in SIZES:
        case = example(groups, rows, WIDTH, WIDTH)
        u, weight, bias, offset = (case[name] for name in ("u", "weight", "bias", "offset"))

        def in_use(u: Array, weight: Array, bias: Array, offset: Array) -> Array:
            return kernels.activate(kernels.product(u, weight), bias, 1 + offset, bias)

        def fused(carry: Any, weight: Array, bias: Array, offset: Array) -> Any:
            y, sums = layer(carry[0], carry[1], weight, offset, bias)
            return y, statistics_of(sums, WIDTH)

        with speed.using(("kernels",)):
            product = microseconds(lambda u, weight, *_: u @ weight, u, weight, bias, offset)
            now = microseconds(in_use, u, weight, bias, offset)
        new = microseconds(fused, (u, case["statistics"]), weight, bias, offset)
        teraflops = 2e-6 * groups * rows * WIDTH * WIDTH / new
        print(f"{groups:2} x {rows}: product alone {product:.1f}, with its kernel {now:.1f}, ", end="")
        print(f"one kernel and its statistics {new:.1f} us ({teraflops:.0f} TFLOP/s)", flush=True)


def microseconds(step: Any, start: Any, *rest: Array, steps: int = 300, repeats: int = 5) -> float:
    """Returns the median time of a step in a loop that is one CUDA graph, as in training."""

    def several(start: Any, count: Array, *rest: Array) -> Any:
        return lax.fori_loop(0, count, lambda _, carry: step(carry, *rest), start)

    program = jax.jit(several, compiler_options=speed.GRAPH_OPTIONS)
    jax.block_until_ready(program(start, 10, *rest))
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(program(start, steps, *rest))
        times.append((time.perf_counter() - begin) / steps * 1e6)
    return float(np.median(times))


def time_step() -> None:
    """Prints the milliseconds of a training step of GTRL and TRL, as it is and with this kernel for the target."""
    data, plain = bench.synthetic(Spec(29, 8, 2), 1_000_000), kernels.forward
    for method in ("gtrl", "trl"):
        for seeds in (1, 4, 8):
            case = bench.Case(method, Spec(29, 8, 2), seeds, 1024, "bfloat16", speed.ON_GPU, (WIDTH,) * 3)
            found = []
            for forward in (plain, forward_with()):
                kernels.forward = forward
                jax.clear_caches()
                found.append(1e3 * bench.measure(case, data, 5)["seconds_per_step"])
            kernels.forward = plain
            print(f"{method} {seeds} seeds: {found[0]:.3f} ms, with this kernel {found[1]:.3f}", flush=True)


def compare_with_forward(width: int, rows: int, **options: Any) -> bool:
    """Prints how far values differ from float32's, and whether gradients are those of `kernels.forward`."""
    keys, sizes = iter(jax.random.split(jax.random.key(1), 32)), (40, width, width, width, 1)

    def random(*shape: int) -> Array:
        return jax.random.normal(next(keys), shape)

    def one(inputs: int, outputs: int, is_last: bool) -> mlp.Layer:
        norm = (None, None) if is_last else (1 + 0.2 * random(2, outputs), 0.2 * random(2, outputs))
        return mlp.Layer(random(2, inputs, outputs) / inputs**0.5, 0.2 * random(2, outputs), *norm)

    exact = [one(sizes[k], sizes[k + 1], k == len(sizes) - 2) for k in range(len(sizes) - 1)]
    half, x = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), exact), random(rows, sizes[0])
    with speed.using(("kernels",)):
        expected, rounded = (mlp.forward(layers, x, jnp) for layers in (exact, half))
        both = jax.vmap(forward_with(**options), in_axes=(None, 0))(half, jnp.stack([x, x]))
        slopes = [
            jax.tree.leaves(jax.grad(lambda layers, x, f=f: f(layers, x).sum(), argnums)(half, x))
            for argnums in (0, 1)
            for f in (forward_with(**options), kernels.forward)
        ]
    scale = float(jnp.abs(expected).mean())
    ours, theirs = (float(jnp.abs(each - expected).mean()) / scale for each in (both[0], rounded))
    pairs = [pair for k in (0, 2) for pair in zip(slopes[k], slopes[k + 1], strict=True)]
    same = all(bool((one == other).all()) for one, other in [(both[0], both[1]), *pairs])
    print(f"values: error {ours:.1e}, of plain JAX in bfloat16 {theirs:.1e}; under vmap and grad the same: {same}")
    return ours < 2 * theirs and same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("check", "compile", "time", "step"), default="time")
    what = parser.parse_args().what
    if what == "compile":
        compile_without_gpu()
    elif what == "check":
        from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams  # no public name in JAX 0.10

        options = {"programs": 2, "interpret": InterpretGPUParams()}
        right = check(2, 192, 128, 256, **options) and compare_with_forward(COLUMNS, ROWS, **options)
        sys.exit(0 if right else 1)
    else:
        print(jax.devices()[0].device_kind, "JAX", jax.__version__)
        if not (check(3, 1024, WIDTH, WIDTH) and compare_with_forward(WIDTH, 1024)):
            sys.exit(1)
        time_step() if what == "step" else time_all()


if __name__ == "__main__":
    main()

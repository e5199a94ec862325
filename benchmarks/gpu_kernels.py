#!/usr/bin/env python3
"""The kernels of a training step, compiled for an NVIDIA H200 on a machine without a GPU.

    python benchmarks/gpu_kernels.py gtrl trl --seeds 1 4
    python benchmarks/gpu_kernels.py gtrl --list

XLA compiles for a GPU that is only described. So what a step consists of is known before a GPU is at hand: whether it
compiles, how many kernels it has, and about how much memory they touch. How long they take is not.

It needs JAX's CUDA plugin, without the CUDA libraries that the plugin depends on, and a CUDA toolkit for `ptxas`:

    pip install --no-deps jax-cuda13-plugin==VERSION jax-cuda13-pjrt==VERSION    # VERSION: that of JAX
"""

# ruff: noqa: E402

import argparse
import collections
import os
import re
import sys
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"  # the plugin would look for CUDA's libraries
TOOLKIT = os.environ.get("CUDA_HOME", "/usr/local/cuda")
# With a GPU, XLA measures which products cuBLAS does faster than its own kernels: on an H200, most.
FLAGS = f"--xla_gpu_cuda_data_dir={TOOLKIT} --xla_gpu_enable_triton_gemm=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding, use_abstract_mesh

from gtrl import bench
from gtrl.data.dataset import Spec
from gtrl.nn import speed
from gtrl.training import loop

SPEC, BATCH, HIDDEN = Spec(29, 8, 2), 1024, (512, 512, 512)  # antmaze, the paper's sizes
H200 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000
  device_memory_size: 150000000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  cuda_compute_capability { major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H200"
"""
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
INSTRUCTION = re.compile(r"\s*(?:ROOT )?%([\w.\-]+) = (.*?) ([\w\-]+)\((.*)")
NO_KERNEL = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant"}
READS_REPEATEDLY = ("reduce(", "dot(", "custom-call")  # operations that may read an element for several results


class Kernel(NamedTuple):
    """An instruction of the loop that is a kernel."""

    kind: str
    name: str
    read: int  # bytes: of an operand that is not reduced, at most one element for each result
    written: int
    result: str  # its shape
    origin: str  # where it comes from in JAX


def compiled_text(method: str, seeds: int, precision: str, fast: tuple[str, ...]) -> str:
    """Returns the optimised program of the training loop, as XLA prints it."""
    topology = topologies.get_topology_desc("h200", "cuda", target_config=H200, topology="1x1x1")
    there = SingleDeviceSharding(topology.devices[0])
    case = bench.Case(method, SPEC, seeds, BATCH, precision, tuple(sorted(fast)), HIDDEN)
    algorithm, update = case.algorithm, case.update

    def shapes(tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there), tree)

    data = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, bench.synthetic(SPEC, 2000)))
    keys = jax.eval_shape(lambda: loop.seed_keys(range(seeds)))
    states = jax.eval_shape(lambda keys, data: loop.init(algorithm, update, SPEC, keys, data), keys, data)
    steps = jax.ShapeDtypeStruct((), jnp.int32, sharding=there)
    h200 = AbstractDevice("NVIDIA H200", None, "cuda")  # JAX 0.12 asks which one kernels are for
    with use_abstract_mesh(AbstractMesh((), (), abstract_device=h200)):
        traced = loop.program(update).trace(algorithm, update, shapes(states), shapes(keys), shapes(data), steps)
        lowered = traced.lower(lowering_platforms=("cuda",))
    return lowered.compile().as_text()


def kernels_of(text: str) -> list[Kernel]:
    """Returns the kernels of the loop's body."""
    computations = _computations(text)
    bodies = re.findall(r"while\(.*?body=%?([\w.\-]+)", text)
    body = _innermost(max(bodies, key=lambda name: len(computations[name])), computations)
    shapes: dict[str, str] = {}
    found = []
    for line in computations[body]:
        match = INSTRUCTION.match(line)
        if match is None:
            continue
        name, shape, operation, rest = match.groups()
        shapes[name] = shape
        if operation in NO_KERNEL:
            continue
        operands = re.findall(r"%([\w.\-]+)", rest.split("), ")[0])
        callee = re.search(r"calls=%?([\w.\-]+)", rest)
        inside = "".join(computations.get(callee[1], [])) if callee else operation
        once = not any(word in inside for word in READS_REPEATEDLY)  # each result reads one element of an operand
        read = sum(_bytes(shapes.get(x, ""), _elements(shape) if once else None) for x in operands)
        kind = re.search(r'custom_call_target="([^"]*)"|kind=(\w+)', rest)
        origin = re.search(r'op_name="([^"]*)"', rest)
        kind_name = " ".join(part for part in (operation, *(kind.groups() if kind else ())) if part)
        found.append(Kernel(kind_name, name, read, _bytes(shape), shape, origin[1] if origin else ""))
    return found


def _computations(text: str) -> dict[str, list[str]]:
    """The lines of each computation of a program."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        header = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$", line)
        if header:
            lines = found.setdefault(header[1], [])
        else:
            lines.append(line)
    return found


def _innermost(name: str, computations: dict[str, list[str]]) -> str:
    """The longest computation among this one and those it calls: a CUDA graph is a computation of its own."""
    calls = [line for line in computations[name] if " call(" in line]
    callees = [callee for line in calls for callee in re.findall(r"to_apply=%?([\w.\-]+)", line)]
    return max([name, *(_innermost(callee, computations) for callee in callees)], key=lambda x: len(computations[x]))


def _arrays(shape: str) -> list[tuple[str, int]]:
    """The element type and the number of elements of an array, or of all arrays of a tuple."""
    found = re.findall(rf"\b({'|'.join(BYTES)})\[([\d,]*)\]", shape)
    return [(kind, prod(int(size) for size in sizes.split(",") if size)) for kind, sizes in found]


def _elements(shape: str) -> int:
    return sum(count for _, count in _arrays(shape))


def _bytes(shape: str, most: int | None = None) -> int:
    """The bytes of an array or of all arrays of a tuple, of each at most so many elements."""
    return sum(BYTES[kind] * (count if most is None else min(count, most)) for kind, count in _arrays(shape))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="+", metavar="METHOD")
    parser.add_argument("--seeds", type=int, nargs="+", default=[4])
    parser.add_argument("--precisions", nargs="+", default=["bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--fast", nargs="*", default=speed.ON_GPU, choices=speed.ON_GPU)
    parser.add_argument("--list", action="store_true", help="list every kernel")
    parser.add_argument("--text", type=Path, help="also write the compiled program here")
    chosen = parser.parse_args()
    speed.COMPUTE_CAPABILITY = "9.0"
    print(f"JAX {jax.__version__}, compiled for an H200; a step of all seeds, batch {BATCH}, hidden layers {HIDDEN}")
    for method in chosen.methods:
        for seeds in chosen.seeds:
            for precision in chosen.precisions:
                text = compiled_text(method, seeds, precision, tuple(chosen.fast))
                if chosen.text:
                    chosen.text.write_text(text)
                kernels = kernels_of(text)
                total = sum(kernel.read + kernel.written for kernel in kernels) / 1e6
                print(f"{method}, {seeds} seeds, {precision}: {len(kernels)} kernels, which touch about {total:.0f} MB")
                for kernel in kernels if chosen.list else ():
                    sizes = f"{kernel.read / 1e6:8.2f} {kernel.written / 1e6:8.2f}"
                    print(f"  {sizes}  {kernel.kind[:40]:40} {kernel.result[:60]:60} {kernel.origin[-60:]}")
                for kind, count in collections.Counter(kernel.kind for kernel in kernels).most_common():
                    touched = sum(kernel.read + kernel.written for kernel in kernels if kernel.kind == kind)
                    print(f"    {count:4} {kind:40} {touched / 1e6:7.0f} MB")


if __name__ == "__main__":
    sys.exit(main())

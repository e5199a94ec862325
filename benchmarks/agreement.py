#!/usr/bin/env python3
"""Does the fast path compute the same? Losses and gradients on random batches, against the plain path in float32.

    python benchmarks/agreement.py

For each method and precision: the largest relative error over batches, of the loss and of the gradient of each network
(the norm of the difference over the norm). `plain` rows show what the precision alone does. The exit status is 1 if
an error exceeds its tolerance.
"""

import argparse
import sys

import jax
import jax.numpy as jnp

from gtrl import bench, console, speed
from gtrl.networks import Spec
from gtrl.training import loop

# Matrix units round float32 inputs to 10 bits (TF32), bfloat16 to 7; a GPU's sums come in another order besides.
TOLERANCE = {"float32": 5e-3, "bfloat16": 8e-2}


def perturbed(tree: object, key: jax.Array) -> object:
    """Away from the start, where target and critic agree and the sign of their difference is up to rounding."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    return structure.unflatten([x + 0.05 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)])


def distance(x: object, reference: object) -> float:
    """The norm of the difference of two trees over the norm of the second."""
    norm = lambda tree: jnp.sqrt(sum(jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(tree)))  # noqa: E731
    return float(norm(jax.tree.map(jnp.subtract, x, reference)) / norm(reference))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["gtrl", "trl"], choices=["gtrl", "trl", "tdp", "coe"])
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--width", type=int, default=512)
    args = parser.parse_args()
    spec, rows, wrong = Spec(29, 8, 2), [], 0
    data = bench.synthetic(spec, 20_000, 200)
    for method in args.methods:
        results = {}
        # What concerns a loss and its gradient; `flat` and `graphs` are about the loop around them.
        fast = tuple(name for name in speed.best(jax.default_backend()) if name not in ("flat", "graphs"))
        for precision, used in (("float32", ()), ("float32", fast), ("bfloat16", ()), ("bfloat16", fast)):
            case = bench.Case(method, spec, 1, args.batch_size, precision, used, (args.width,) * 3)
            algorithm, how = case.algorithm, case.update
            nets = perturbed(algorithm.init(jax.random.key(0), spec), jax.random.key(1))
            target = perturbed(algorithm.targets(nets), jax.random.key(2))

            def loss(nets: object, key: jax.Array, algorithm=algorithm, how=how, target=target, used=used) -> tuple:
                with speed.using(used):
                    return loop.loss_of(algorithm, how, nets, target, data, key)

            program = jax.jit(jax.value_and_grad(loss, has_aux=True))
            with jax.default_matmul_precision("highest" if (precision, used) == ("float32", ()) else "default"):
                found = [program(nets, key) for key in jax.random.split(jax.random.key(3), args.batches)]
            results[precision, used] = [(value, grads) for (value, _), grads in found]
        truth = results["float32", ()]
        for (precision, used), found in results.items():
            errors = {"loss": max(abs(float(a / b) - 1) for (a, _), (b, _) in zip(found, truth, strict=True))}
            for part in ("critic", "oracle_critic", "actor"):
                pairs = [(getattr(a, part), getattr(b, part)) for (_, a), (_, b) in zip(found, truth, strict=True)]
                errors[part] = max(distance(*pair) for pair in pairs)
            wrong += any(not error <= TOLERANCE[precision] for error in errors.values())
            name = [method, precision, " ".join(used) or "plain"]
            rows.append([*name, *(f"{error:.1e}" for error in errors.values()), f"{TOLERANCE[precision]:.0e}"])
    columns = ["method", "precision", "path", "loss", "critic", "oracle critic", "actor", "tolerance"]
    title = f"largest relative error against plain float32, {args.batches} batches of {args.batch_size}"
    console.print_wide(console.table(f"{title}, {jax.devices()[0].device_kind}", columns, rows, text=3))
    print("all within tolerance" if not wrong else f"{wrong} rows beyond tolerance")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

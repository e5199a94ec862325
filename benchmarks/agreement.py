#!/usr/bin/env python3
"""Compares the losses and gradients of the optimised training step with those of plain JAX in float32.

    python benchmarks/agreement.py

For each method and precision, prints the largest relative error over random batches, of the loss and of the gradient of
each network (the norm of the difference over the norm). Matrix units round float32 inputs to 10 bits (TF32) by default,
and bfloat16 has 7 bits; the rows `plain` show the effect of rounding alone. With exact products the optimised step must
agree within MAX_ERROR. With rounded products its error may be MAX_ERROR_RATIO times that of plain JAX in the same
precision. The exit status is 1 if one is larger.
"""

import argparse
import sys

import jax
import jax.numpy as jnp

from gtrl import bench, console
from gtrl.data.dataset import Dataset, Spec
from gtrl.nn import speed
from gtrl.training import loop

MAX_ERROR = 1e-4  # relative, with exact products
MAX_ERROR_RATIO = 2.0  # to the error of plain JAX, with rounded products
PRODUCTS = {"exact": "highest", "rounded": "default"}
NETWORKS = ("critic", "oracle_critic", "actor")


def perturbed(tree: object, key: jax.Array) -> object:
    """Adds noise: right after initialisation target and critic agree, and the sign of their difference is rounding."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    return structure.unflatten([x + 0.05 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)])


def distance(x: object, reference: object) -> float:
    """The norm of the difference of two trees over the norm of the second."""

    def norm(tree: object) -> jax.Array:
        return jnp.sqrt(sum(jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(tree)))

    return float(norm(jax.tree.map(jnp.subtract, x, reference)) / norm(reference))


def losses_and_gradients(case: bench.Case, data: Dataset, batches: int, products: str) -> list[tuple]:
    """Returns the loss and gradient on each of the random batches, which are the same for every case."""
    algorithm = case.algorithm
    nets = perturbed(algorithm.init(jax.random.key(0), case.spec), jax.random.key(1))
    target = perturbed(algorithm.targets(nets), jax.random.key(2))

    def loss(nets: object, key: jax.Array) -> tuple:
        with speed.using(case.fast):
            return loop.loss_of(algorithm, case.update, nets, target, data, key)

    program = jax.jit(jax.value_and_grad(loss, has_aux=True))
    with jax.default_matmul_precision(products):
        found = [program(nets, key) for key in jax.random.split(jax.random.key(3), batches)]
    return [(value, grads) for (value, _), grads in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["gtrl", "trl"], choices=["gtrl", "trl", "tdp", "coe"])
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--width", type=int, default=512)
    args = parser.parse_args()
    spec, rows, failures = Spec(29, 8, 2), [], 0
    data = bench.synthetic(spec, 20_000, 200)
    # `flat` and `graphs` concern the loop, not the loss and its gradient.
    fast = tuple(name for name in speed.defaults_for(jax.default_backend()) if name not in ("flat", "graphs"))
    for method in args.methods:
        truth = None
        for precision, products in (("float32", "exact"), ("float32", "rounded"), ("bfloat16", "rounded")):
            plain_errors = {}
            for used in ((), fast):
                case = bench.Case(method, spec, 1, args.batch_size, precision, used, (args.width,) * 3)
                found = losses_and_gradients(case, data, args.batches, PRODUCTS[products])
                truth = truth or found
                errors = {"loss": max(abs(float(a / b) - 1) for (a, _), (b, _) in zip(found, truth, strict=True))}
                for network in NETWORKS:
                    errors[network] = max(
                        distance(getattr(a, network), getattr(b, network))
                        for (_, a), (_, b) in zip(found, truth, strict=True)
                    )
                if used:
                    failures += any(
                        not error <= max(MAX_ERROR, MAX_ERROR_RATIO * plain_errors[name])
                        for name, error in errors.items()
                    )
                plain_errors = errors
                name = [method, precision, products, " ".join(used) or "plain"]
                rows.append([*name, *(f"{error:.1e}" for error in errors.values())])
    columns = ["method", "precision", "products", "path", "loss", *(name.replace("_", " ") for name in NETWORKS)]
    title = f"largest relative error against plain float32, {args.batches} batches of {args.batch_size}"
    console.print_table(console.table(f"{title}, {jax.devices()[0].device_kind}", columns, rows, text=4))
    print(f"{failures} rows of the optimised step deviate too much" if failures else "the optimised step agrees")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

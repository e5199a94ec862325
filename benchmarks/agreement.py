#!/usr/bin/env python3
"""Does the fast path compute the same? Losses and gradients on random batches, against the plain path in float32.

    python benchmarks/agreement.py

For each method and precision: the largest relative error over batches, of the loss and of the gradient of each network
(the norm of the difference over the norm). Matrix units round float32 inputs to 10 bits (TF32) unless told not to, and
bfloat16 holds 7; `plain` rows show what that alone does. With exact products the fast path must agree to EXACT; with
rounded ones it may be TIMES as far from the truth as plain JAX is in the same precision. The exit status is 1 if not.
"""

import argparse
import sys

import jax
import jax.numpy as jnp

from gtrl import bench, console
from gtrl.data.dataset import Dataset, Spec
from gtrl.nn import speed
from gtrl.training import loop

EXACT, TIMES = 1e-4, 2.0
PRODUCTS = {"exact": "highest", "rounded": "default"}
PARTS = ("critic", "oracle_critic", "actor")


def perturbed(tree: object, key: jax.Array) -> object:
    """Away from the start, where target and critic agree and the sign of their difference is up to rounding."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    return structure.unflatten([x + 0.05 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)])


def distance(x: object, reference: object) -> float:
    """The norm of the difference of two trees over the norm of the second."""
    norm = lambda tree: jnp.sqrt(sum(jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(tree)))  # noqa: E731
    return float(norm(jax.tree.map(jnp.subtract, x, reference)) / norm(reference))


def losses_and_gradients(case: bench.Case, data: Dataset, batches: int, products: str) -> list[tuple]:
    """Of a method on random batches, the same for every case."""
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
    spec, rows, wrong = Spec(29, 8, 2), [], 0
    data = bench.synthetic(spec, 20_000, 200)
    # What concerns a loss and its gradient; `flat` and `graphs` are about the loop around them.
    fast = tuple(name for name in speed.best(jax.default_backend()) if name not in ("flat", "graphs"))
    for method in args.methods:
        truth = None
        for precision, products in (("float32", "exact"), ("float32", "rounded"), ("bfloat16", "rounded")):
            allowed = {}
            for used in ((), fast):
                case = bench.Case(method, spec, 1, args.batch_size, precision, used, (args.width,) * 3)
                found = losses_and_gradients(case, data, args.batches, PRODUCTS[products])
                truth = truth or found
                errors = {"loss": max(abs(float(a / b) - 1) for (a, _), (b, _) in zip(found, truth, strict=True))}
                for part in PARTS:
                    pairs = [(getattr(a, part), getattr(b, part)) for (_, a), (_, b) in zip(found, truth, strict=True)]
                    errors[part] = max(distance(*pair) for pair in pairs)
                if used:
                    wrong += any(not error <= max(EXACT, TIMES * allowed[name]) for name, error in errors.items())
                allowed = errors
                name = [method, precision, products, " ".join(used) or "plain"]
                rows.append([*name, *(f"{error:.1e}" for error in errors.values())])
    columns = ["method", "precision", "products", "path", "loss", *(part.replace("_", " ") for part in PARTS)]
    title = f"largest relative error against plain float32, {args.batches} batches of {args.batch_size}"
    console.print_table(console.table(f"{title}, {jax.devices()[0].device_kind}", columns, rows, text=4))
    print("the fast path agrees" if not wrong else f"{wrong} rows of the fast path too far from the truth")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Times a training step of GTRL's variants beside the paper's GTRL, in alternating rounds, and counts its products.

    python benchmarks/variant_cost.py [--seeds 4] [--precision bfloat16] [--hidden 512 512 512] [--batch-size 1024]

Sizes of pointmaze-large-stitch, random data. The ratio is that of medians over the rounds; docs/beyond.md has results.
"""

import argparse
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

from gtrl import console
from gtrl.algorithms import make
from gtrl.algorithms.base import Algorithm
from gtrl.bench import Case, measure, synthetic, work
from gtrl.data.dataset import Spec
from gtrl.nn.speed import defaults_for
from gtrl.tasks.beyond import BEYOND

SPEC = Spec(observation_dim=2, action_dim=2, goal_dim=2)
TRANSITIONS = 1_000_000


@dataclass(frozen=True)
class VariantCase(Case):
    """A case of `gtrl bench` with fields of the method."""

    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def algorithm(self) -> Algorithm:
        return make(self.method, hidden=self.hidden, **self.fields)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 512, 512])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    data = synthetic(SPEC, TRANSITIONS)
    sizes = (
        args.seeds,
        args.batch_size,
        args.precision,
        tuple(sorted(defaults_for(jax.default_backend()))),
        tuple(args.hidden),
    )
    cases = {name: VariantCase("gtrl", SPEC, *sizes, fields) for name, fields in {"gtrl": {}, **BEYOND}.items()}
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(args.rounds):
        for name, case in cases.items():
            times[name].append(measure(case, data, 1)["seconds_per_step"])
    median = {name: statistics.median(seconds) for name, seconds in times.items()}
    products = {name: work(case, data)["flops"] for name, case in cases.items()}
    rows = []
    for name in cases:
        spread = min(times[name]) / median[name], max(times[name]) / median[name]
        ratios = median[name] / median["gtrl"], products[name] / products["gtrl"]
        speed = f"{args.seeds / median[name]:,.0f}"
        rows.append([name, speed, *(f"{ratio:.3f}" for ratio in ratios), " to ".join(f"{x:.2f}" for x in spread)])
    columns = ["", "seed-steps/s", "time", "operations of products", "spread of the rounds"]
    console.print_table(console.table("Cost of a step, relative to GTRL", columns, rows))


if __name__ == "__main__":
    main()

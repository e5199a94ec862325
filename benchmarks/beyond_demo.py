#!/usr/bin/env python3
"""Success of GTRL's variants in the demo's teleport maze, where optimism fails: five base seeds, three training seeds.

    python benchmarks/beyond_demo.py OUT [--base-seeds 0 1 2 3 4]
    python benchmarks/beyond_demo.py OUT --causes --base-seeds 0 2    # which part of gtrl-bounds fails

Data, sizes and evaluation are those of `gtrl demo`. Finished runs in OUT are not repeated.
"""

import argparse
import statistics
from pathlib import Path

from gtrl import console
from gtrl.data.collect.files import collect
from gtrl.data.load import load_dataset
from gtrl.demo import EPISODES, METHOD_FIELDS, SEEDS, STEPS, TASK, TRAINING_FIELDS
from gtrl.evaluation.evaluate import evaluate, success_rate
from gtrl.runs.run import Run
from gtrl.tasks import ogbench_task
from gtrl.tasks.beyond import BEYOND
from gtrl.training.train import train

CAUSES = {
    "gtrl-bounds-alone": {"selection": "bound", "bound_weight": 10.0},
    "gtrl-bounds-no-hindsight": {"selection": "bound", "bound_weight": 10.0, "hindsight": False},
    "gtrl-bounds-expectile": {"selection": "bound", "bound_weight": 10.0, "kappa_one_step": 0.7},
    "gtrl-median": {"kappa": 0.5},
}
VARIANTS = {"gtrl": {}, **BEYOND, **CAUSES}


def success(folder: Path, name: str, base_seed: int) -> list[float]:
    """Returns the success rate of each training seed of a variant; trains and evaluates it first if necessary."""
    task = ogbench_task(TASK)
    out = folder / str(base_seed) / name
    if not (out / "eval.csv").exists():
        path = folder / str(base_seed) / f"{task.dataset}.npz"
        data = load_dataset(path if path.exists() else collect(task, path, seed=base_seed, show=False), task)
        seeds = range(SEEDS * base_seed, SEEDS * (base_seed + 1))
        fields = METHOD_FIELDS | TRAINING_FIELDS | VARIANTS[name]
        train("gtrl", data, out=out, seeds=seeds, steps=STEPS, show=False, **fields)
    rows = evaluate(Run.open(out), episodes=EPISODES, base_seed=base_seed, show=False)
    return [
        success_rate([row for row in rows if row["seed"] == seed]) for seed in sorted({row["seed"] for row in rows})
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base-seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--causes", action="store_true")
    args = parser.parse_args()
    chosen: list[int] = args.base_seeds
    rates: dict[str, list[list[float]]] = {name: [] for name in ("gtrl", *(CAUSES if args.causes else BEYOND))}
    for seed in chosen:
        for name, found in rates.items():
            found.append(success(args.out, name, seed))
            print(seed, name, *(f"{rate:.0f}" for rate in found[-1]), flush=True)
    rows = []
    for name, found in rates.items():
        means = [statistics.mean(of_seeds) for of_seeds in found]
        pairs = [mean - statistics.mean(plain) for mean, plain in zip(means, rates["gtrl"], strict=True)]
        error = statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else 0.0
        difference = f"{statistics.mean(pairs):+.1f} ± {error:.1f}" if name != "gtrl" else ""
        rows.append([name, *(f"{mean:.0f}" for mean in means), f"{statistics.mean(means):.1f}", difference])
    columns = ["", *(f"base seed {seed}" for seed in chosen), "mean", "minus GTRL, ± standard error"]
    console.print_table(console.table("Success in %, mean of three training seeds", columns, rows))


if __name__ == "__main__":
    main()

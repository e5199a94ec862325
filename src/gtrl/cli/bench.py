"""`gtrl bench`."""

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from gtrl import console
from gtrl.cli.outputs import check_output_file
from gtrl.errors import ConfigError
from gtrl.nn.speed import Optimisation
from gtrl.tasks import ogbench_task


def bench_command(
    methods: Positional[tuple[str, ...]] = ("gtrl", "trl"),
    *,
    task: str = "antmaze-large-navigate",
    seeds: tuple[int, ...] = (1, 4),
    batch_sizes: tuple[int, ...] = (1024,),
    precisions: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16"),
    fast: tuple[Optimisation, ...] | None = None,
    ablate: bool = False,
    hidden: tuple[int, ...] = (512, 512, 512),
    transitions: int = 1_000_000,
    repeats: int = 5,
    reference: bool = True,
    out: Path | None = None,
) -> None:
    """How fast training is here: beside the machine's limits, and beside a loop as others write it, in one run.

    Args:
        methods: What to train, on noise in the shape of a task.
        task: Whose shapes: one of 'gtrl tasks'.
        seeds: How many are trained together; each number is a case.
        batch_sizes: Each number is a case.
        precisions: Each is a case.
        fast: What speeds a step up (docs/performance.md); by default all that pays here, and none if left empty.
        ablate: Also leave out each of these in turn, and all of them.
        hidden: Widths of the networks.
        transitions: Size of the dataset.
        repeats: How often each case is timed; the median counts.
        reference: Time the reference-style loop too: sampling in NumPy, one dispatch a step, one seed.
        out: A JSON file for all numbers.
    """
    from gtrl import bench
    from gtrl.algorithms import find_algorithm

    chosen = ogbench_task(task)
    for name, numbers in (("seeds", seeds), ("batch-sizes", batch_sizes), ("hidden", hidden), ("repeats", (repeats,))):
        if not numbers or min(numbers) < 1:
            raise ConfigError(f"--{name} must be positive numbers, at least one.")
    if transitions < 2:
        raise ConfigError(f"--transitions is {transitions} and must be at least 2.")
    for method in methods:
        find_algorithm(method)
    file = out and check_output_file(out)
    result = bench.bench(
        chosen, methods, seeds=seeds, batch_sizes=batch_sizes, precisions=precisions, fast=fast, ablate=ablate,
        hidden=hidden, transitions=transitions, repeats=repeats, reference=reference,
    )  # fmt: skip
    console.print_table(bench.shown(result))
    if file:
        bench.save(result, file)

"""`gtrl bench`: measures the speed of training on this machine."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from gtrl import console
from gtrl.cli.outputs import check_output_file
from gtrl.errors import ConfigError
from gtrl.nn.speed import Optimisation
from gtrl.tasks import ogbench_task


def bench_command(
    methods: Annotated[Positional[tuple[str, ...]], arg(metavar="[METHOD ...]")] = ("gtrl", "trl"),
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
    """Measure training speed on this machine, next to the hardware limits and a conventional training loop.

    Args:
        methods: Methods to time, on random data of a task's dimensions. All combinations with the flags are timed.
        task: The task whose dimensions are used; see 'gtrl tasks'.
        seeds: Numbers of seeds that are trained together.
        batch_sizes: Batch sizes.
        precisions: Precisions of the networks.
        fast: Optimisations of the training step (docs/performance.md); by default all that help on this device.
        ablate: Also time the step without each of these optimisations, and without all of them.
        hidden: Widths of the hidden layers.
        transitions: Number of transitions in the dataset.
        repeats: How often each combination is timed; the median is reported.
        reference: Also time a conventional loop: sampling in NumPy, one dispatch per step, one seed.
        out: A JSON file for all results.
    """
    from gtrl import bench
    from gtrl.algorithms import find_algorithm

    chosen = ogbench_task(task)
    for name, numbers in (("seeds", seeds), ("batch-sizes", batch_sizes), ("hidden", hidden), ("repeats", (repeats,))):
        if not numbers or min(numbers) < 1:
            raise ConfigError(f"--{name} must be positive, with at least one value.")
    if transitions < 2:
        raise ConfigError(f"--transitions is {transitions} and must be at least 2.")
    for method in methods:
        find_algorithm(method)
    file = out and check_output_file(out)
    result = bench.bench(
        chosen, methods, seeds=seeds, batch_sizes=batch_sizes, precisions=precisions, fast=fast, ablate=ablate,
        hidden=hidden, transitions=transitions, repeats=repeats, reference=reference,
    )  # fmt: skip
    console.print_table(bench.results_table(result))
    if file:
        bench.save(result, file)

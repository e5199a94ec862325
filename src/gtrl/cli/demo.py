"""`gtrl demo`: a short run of the whole pipeline."""

from pathlib import Path

from gtrl.cli.outputs import check_output_folder


def demo_command(*, out: Path | None = None, seed: int = 0, workers: int | None = None) -> None:
    """Run the whole pipeline on a small maze: collect data, train GTRL and TRL, evaluate both, draw a picture.

    Args:
        out: The output folder; by default runs/demo/<time>.
        seed: The base seed, from which the seeds of data, training and evaluation are derived.
        workers: Number of processes for collecting and evaluating; by default one per core.
    """
    from gtrl.demo import demo

    check_output_folder(out or Path("runs"))
    demo(out, seed=seed, workers=workers)

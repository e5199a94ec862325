"""`gtrl demo`."""

from pathlib import Path

from gtrl.cli.outputs import check_output_folder


def demo_command(*, out: Path | None = None, seed: int = 0, workers: int | None = None) -> None:
    """A small honest run of everything: collect, train GTRL and TRL, evaluate both, draw a picture.

    Args:
        out: Where to put it; by default runs/demo/<time>.
        seed: The base seed: decides the data, the seeds of training and the episodes.
        workers: Processes for collecting and evaluating; by default one for each core.
    """
    from gtrl.demo import demo

    check_output_folder(out or Path("runs"))
    demo(out, seed=seed, workers=workers)

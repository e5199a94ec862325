"""`gtrl theory`: numerical checks of the paper's propositions."""

from pathlib import Path

from gtrl.cli.outputs import check_output_folder


def theory_command(*, out: Path | None = None, processes: int = 120, seed: int = 0) -> int:
    """Compute the paper's Example 1 exactly, check its propositions, and show which assumptions they need.

    Args:
        out: A folder for figures (PNG and SVG); without it none are drawn.
        processes: Number of random stochastic processes to check the propositions on, and of deterministic ones.
        seed: Random seed of these processes.
    """
    from gtrl.theory.summary import print_summary

    return 0 if print_summary(out and check_output_folder(out), processes, seed) else 1

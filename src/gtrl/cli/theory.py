"""`gtrl theory`."""

from pathlib import Path

from gtrl.cli.outputs import check_output_folder


def theory_command(*, out: Path | None = None, processes: int = 120, seed: int = 0) -> int:
    """The paper's Example 1 and its three propositions, exactly: what holds, and what it takes for it to hold.

    Args:
        out: A folder for the pictures (PNG and SVG); without it none are drawn.
        processes: How many random processes the propositions are checked on, and as many deterministic ones.
        seed: Decides these processes.
    """
    from gtrl.theory.summary import print_summary

    return 0 if print_summary(out and check_output_folder(out), processes, seed) else 1

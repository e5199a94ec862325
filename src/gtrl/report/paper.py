"""The numbers that the paper reports: success in percent, mean and standard deviation over four seeds."""

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

OVERALL = "overall"  # the goal of a row that is about all goals of a task

# The paper's tables of results: their group of tasks and their methods in order.
TELEPORT_AND_STITCH = ("bc", "fbc", "ivl", "iql", "td", "crl", "mc", "qrl", "trl", "gtrl")
STANDARD = ("bc", "fbc", "ivl", "iql", "td-n", "crl", "mc", "qrl", "tdp", "coe", "trl", "gtrl")
METHODS_OF_GROUP = {"teleport": TELEPORT_AND_STITCH, "stitch": TELEPORT_AND_STITCH, "deterministic": STANDARD}

# The averages that the paper prints below each group, in the order of the methods.
PRINTED_AVERAGES: dict[str, tuple[float, ...]] = {
    "teleport": (28.2, 30.5, 38.0, 26.2, 27.7, 21.5, 26.0, 14.2, 32.5, 42.2),
    "stitch": (13.8, 14.2, 12.8, 21.3, 9.2, 16.4, 9.4, 24.8, 9.8, 35.2),
    "deterministic": (7.2, 16.9, 38.0, 53.5, 51.5, 38.2, 35.7, 12.2, 8.8, 9.9, 55.2, 72.7),
}


class PaperScore(NamedTuple):
    """A number of the paper, in percent."""

    mean: float
    deviation: float  # over seeds


@cache
def paper_scores() -> dict[tuple[str, str, str], PaperScore]:
    """Returns all numbers of the paper by (task, method, goal)."""
    text = resources.files("gtrl.report").joinpath("paper.csv").read_text(encoding="utf-8")
    return {
        (row["task"], row["method"].lower(), row["goal"]): PaperScore(float(row["mean"]), float(row["std"]))
        for row in csv.DictReader(text.splitlines())
    }


def paper_score(task: str, method: str, goal: str = OVERALL) -> PaperScore | None:
    """Returns what the paper reports for a method on a task, or on one of its goals; None if it reports nothing."""
    return paper_scores().get((task, method, goal))

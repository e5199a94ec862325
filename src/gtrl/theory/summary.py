"""The output of `gtrl theory`: the values of Example 1, the checks of the propositions, and the counterexamples."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from gtrl import console
from gtrl.errors import ConfigError
from gtrl.tasks import TRAJECTORY_GOALS, VALUE_GOALS
from gtrl.theory import checks, counterexamples, examples
from gtrl.theory.anchored import Anchored, monte_carlo_values, transitive_fit
from gtrl.theory.draws import dataset_draws
from gtrl.theory.values import divide_and_conquer_values, optimal_values

GAMMA = 0.99
NOTATION = """\
V*, Q*: optimal values            V^β, Q^β: values of the behaviour policy β
V_DC = γ^d: divide and conquer    d: distance in the graph G of possible transitions
Q_A: fixed point of GTRL          h: hindsight weight; m = 1: the goal lies ahead on the trajectory
μ: discounted occupancy           p: transition probabilities; R: pairs (state, later state) of a trajectory"""


def example_values() -> dict[str, np.ndarray]:
    """Returns exact values (S, S) of Example 1, and fixed points of losses on a log with one trajectory per outcome."""
    process, log = examples.teleporter(), examples.teleporter_log()
    along, mixed = (dataset_draws(log, 13, 1, GAMMA, goals) for goals in (TRAJECTORY_GOALS, VALUE_GOALS))
    return {
        "V*, and Q^β (there is one action)": optimal_values(process, GAMMA),
        "V_DC": divide_and_conquer_values(process, GAMMA),
        "TRL, κ = 0.7": transitive_fit(GAMMA).fixed_point(along)[:, 0],
        "TRL, κ = 0.99": transitive_fit(GAMMA, 0.99).fixed_point(along)[:, 0],
        "GTRL": Anchored(GAMMA).fixed_point(mixed)[:, 0],
        "GTRL, h = 1": Anchored(GAMMA, hindsight=False).fixed_point(mixed)[:, 0],
        "MC": monte_carlo_values(log, 13, 1, GAMMA)[:, 0],
    }


def example_table() -> Any:
    """Returns the values of Example 1 as a table for the console."""
    s, a, g = (examples.TELEPORTER[name] for name in "sAg")
    rows = [
        [name, f"{q[s, g]:.3f}", f"{math.log(q[s, g]) / math.log(GAMMA):.1f}", f"{q[s, a]:.3f}"]
        for name, q in example_values().items()
    ]
    return console.table("", ["", "Q(s, g)", "in steps", "Q(s, A)"], rows)


def print_summary(out: Path | None = None, processes: int = checks.DEFAULT_PROCESSES, seed: int = 0) -> bool:
    """Prints the summary, draws the figures into `out` if it is given, and returns whether every check holds."""
    if processes < 1:
        raise ConfigError(f"the propositions are checked on at least one random process, not {processes}.")
    if seed < 0:
        raise ConfigError(f"the seed must be 0 or more, not {seed}.")
    console.echo(f"{NOTATION}\n")
    console.echo(
        f"Example 1: s leads to A or B with probability ½ each; from A it is 1 step to g, from B 10 (γ = {GAMMA})"
    )
    console.print_table(example_table())
    console.echo("\nChecks, each against an independent computation:")
    all_hold = True
    for check in checks.run(processes, seed):
        all_hold &= check.holds
        console.echo(f"  {_check_line(check)}")
    console.echo("\nAssumptions, and a counterexample without each:")
    for example in counterexamples.run():
        console.echo(f"  · {_example_line(example)}")
    if out:
        from gtrl.theory.pictures import draw

        console.echo("\nFigures, each as .png and .svg:")
        for path in draw(out.expanduser()):
            console.echo(f"  {path}")
    return all_hold


def _check_line(check: checks.Check) -> str:
    mark = "✓" if check.holds else "✗ FAILS:"
    return f"{mark} {check.name}: {check.statement} ({check.cases} processes, largest deviation {check.deviation:.0e})"


def _example_line(example: counterexamples.Counterexample) -> str:
    numbers = f"{example.found:.3f} instead of {example.expected:.3f}"
    return f"{example.assumption} (needed for {example.needed_for}).\n    Without it: {example.shows}: {numbers}"

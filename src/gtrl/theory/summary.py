"""`gtrl theory`: Example 1 in numbers, the checks of the propositions, and what they need to hold."""

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


def example_values() -> dict[str, np.ndarray]:
    """(S, S) on Example 1: exact values, and what losses converge to on a log of one trajectory for each outcome."""
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
    s, a, g = (examples.TELEPORTER[name] for name in "sAg")
    rows = [
        [name, f"{q[s, g]:.3f}", f"{math.log(q[s, g]) / math.log(GAMMA):.1f}", f"{q[s, a]:.3f}"]
        for name, q in example_values().items()
    ]
    return console.table("", ["", "Q(s, g)", "that is, steps", "Q(s, A)"], rows)


def print_summary(out: Path | None = None, processes: int = checks.PROCESSES, seed: int = 0) -> bool:
    """Print all of it, draw the pictures if there is a folder for them; whether every check holds."""
    if processes < 1:
        raise ConfigError(f"the propositions need at least one random process to be checked on, not {processes}.")
    if seed < 0:
        raise ConfigError(f"the seed must be 0 or more, not {seed}.")
    console.echo(f"Example 1: s leads to A or B, each half the time; to g it is 1 step from A, 10 from B (γ = {GAMMA})")
    console.print_table(example_table())
    console.echo("\nChecked, each against another computation:")
    everything_holds = True
    for check in checks.run(processes, seed):
        everything_holds &= check.holds
        console.echo(f"  {_check_line(check)}")
    console.echo("\nAssumed, and what happens without it:")
    for example in counterexamples.run():
        console.echo(f"  · {_example_line(example)}")
    if out:
        from gtrl.theory.pictures import draw

        console.echo("\nPictures, each as .png and .svg:")
        for path in draw(out.expanduser()):
            console.echo(f"  {path}")
    return everything_holds


def _check_line(check: checks.Check) -> str:
    mark = "✓" if check.holds else "✗ FAILS:"
    return f"{mark} {check.name}: {check.says} ({check.cases} processes, largest deviation {check.deviation:.0e})"


def _example_line(example: counterexamples.Counterexample) -> str:
    numbers = f"{example.found:.3f} instead of {example.expected:.3f}"
    return f"{example.assumption} (for {example.needed_for}). {example.shows}: {numbers}"

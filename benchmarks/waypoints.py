#!/usr/bin/env python3
"""What waypoints do, exactly: fixed points on finite processes, fits until values arrive, and errors in teleport mazes.

    python benchmarks/waypoints.py [PICTURE.png]

Nothing is learned and nothing is random but the logs of the mazes. The tables and the picture are those of
docs/beyond.md. It takes about ten minutes.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gtrl import console
from gtrl.report import style
from gtrl.tasks import VALUE_GOALS
from gtrl.theory.checks import Case, named_cases, teleport_maze_case
from gtrl.theory.values import behaviour_values, divide_and_conquer_values, optimal_values, state_action_values
from gtrl.theory.waypoints import (
    ALL_BOUNDS,
    OTHER_DRAWS,
    VARIANTS,
    Variant,
    cases,
    exact_values,
    fits_until_known,
    fixed_points,
)

DISTANCES, LENGTHS = [8, 16, 32, 64], (4, 8)
DOTS = {"target": ("s", "#d1603d"), "bound": ("o", "#1b4f8a"), "bound × 10": ("D", "#4aa3df")}
CURVES = {
    "GTRL": ("GTRL", "one step"),
    "state, bound × 10": ("waypoints from the state's trajectory", "GTRL"),
    "random, bound × 10": ("from the whole dataset", "TRL"),
}


def fixed_point_table() -> dict[str, dict[str, float]]:
    """Prints and returns the value of one entry of each process: exact, and the fixed point of each variant."""
    found = {
        case.name: exact_values(case) | {name: float(q[case.entry]) for name, q in fixed_points(case).items()}
        for case in cases()
    }
    names = list(next(iter(found.values())))
    rows = [[name, *(f"{found[case][name]:.3f}" for case in found)] for name in names]
    console.print_table(console.table("Fixed points where no trajectory connects state and goal", ["", *found], rows))
    return found


def speed_table() -> dict[str, list[int]]:
    """Prints the number of fits until a value is known; returns it for the shortest trajectories."""
    found = {name: [fits_until_known(one, DISTANCES, steps) for steps in LENGTHS] for name, one in VARIANTS.items()}
    columns = ["", *(f"{steps} steps: {distance}" for steps in LENGTHS for distance in DISTANCES)]
    rows = [[name, *(str(count) for fits in both for count in fits)] for name, both in found.items()]
    title = "Fits until a value is known, by length of trajectories and distance"
    console.print_table(console.table(title, columns, rows))
    return {name: both[0] for name, both in found.items()}


def maze_table(name: str, case: Case, variants: Mapping[str, Variant]) -> None:
    """Prints how far the fixed points of all of GTRL lie from Q* in a maze with a teleporter."""
    process, beta, gamma, log = case
    q_star, q_beta = (
        state_action_values(process, v, gamma)
        for v in (optimal_values(process, gamma), behaviour_values(process, beta, gamma))
    )
    v_dc = divide_and_conquer_values(process, gamma)
    rows = []
    for label, variant in variants.items():
        d = variant.draws(log, process, gamma, VALUE_GOALS)
        q = variant.operator(gamma).fixed_point(d)
        connected = np.zeros_like(d.drawn)
        connected[d.s[d.m], d.a[d.m], d.g[d.m]] = True
        places = connected, d.drawn & ~connected
        numbers = [np.abs(q - q_star)[where].mean() for where in places]
        numbers += [np.maximum(q - q_star, 0)[where].mean() for where in places]
        rows.append([label, *(f"{number:.3f}" for number in numbers)])
    errors = np.abs(q_beta - q_star).mean(), np.abs(v_dc[:, None] - q_star).mean()
    title = f"{name}, {process.states} states: mean distance from Q* (of Q^β {errors[0]:.3f}, of V_DC {errors[1]:.3f})"
    columns = ["", "connected pairs", "unconnected", "of which above Q*: connected", "unconnected"]
    console.print_table(console.table(title, columns, rows))


@style.applied()
def picture(path: Path, points: dict[str, dict[str, float]], fits: dict[str, list[int]]) -> None:
    """Draws the fixed points minus V*, and the fits until values are known."""
    figure = style.new_figure(3.4)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for place, values in enumerate(points.values()):
        for name, value in values.items():
            rule = name.partition(", ")[2]
            if rule not in DOTS:
                continue
            marker, colour = DOTS[rule]
            shift = {"state": -0.2, "goal": 0.0, "random": 0.2}[name.partition(",")[0]]
            label = {"target": "as a target", "bound": "as a bound", "bound × 10": "as a bound, weight 10"}[rule]
            first = place == 0 and name.startswith("state")
            size = 4 if rule == "bound × 10" else 6
            left.plot(
                place + shift,
                value - values["V*"],
                marker,
                color=colour,
                markersize=size,
                label=label if first else None,
            )
        height = [values["V_DC"] - values["V*"]] * 2
        left.plot([place - 0.35, place + 0.35], height, color=style.INK, label=None if place else "divide and conquer")
    left.axhline(0, **style.REFERENCE)
    left.set_ylim(top=0.13)  # room for the legend
    left.set_xticks(range(len(points)), list(points))
    left.set_ylabel("fixed point − $V^*$")
    left.set_title("The product through a waypoint …")
    left.legend(loc="upper left")
    for name, (label, line) in CURVES.items():
        right.plot(DISTANCES, fits[name], label=label, **style.LINES[line])
    right.set_xticks(DISTANCES)
    right.set_xlabel("steps to the goal")
    right.set_ylabel("fits until the value is known")
    right.set_title("Trajectories of four steps")
    right.legend(loc="upper left")
    style.save(figure, path)


def main(path: str | None = None) -> None:
    points, fits = fixed_point_table(), speed_table()
    if path:
        picture(Path(path), points, fits)
    maze_table("small maze", named_cases()[1], VARIANTS | OTHER_DRAWS | ALL_BOUNDS)
    maze_table("teleport maze", teleport_maze_case(), VARIANTS | ALL_BOUNDS)


if __name__ == "__main__":
    main(*sys.argv[1:])

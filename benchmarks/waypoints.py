#!/usr/bin/env python3
"""What waypoints do, exactly: fixed points on finite processes, fits until values arrive, and errors in teleport mazes.

    python benchmarks/waypoints.py

Nothing is learned and nothing is random but the logs of the mazes. The tables are those of docs/beyond.md.
"""

import numpy as np

from gtrl import console
from gtrl.tasks import VALUE_GOALS
from gtrl.theory.checks import Case, named_cases, teleport_maze_case
from gtrl.theory.values import behaviour_values, divide_and_conquer_values, optimal_values, state_action_values
from gtrl.theory.waypoints import ALL_BOUNDS, VARIANTS, cases, exact_values, fits_until_known, fixed_points

DISTANCES, LENGTHS = [8, 16, 32, 64], (4, 8)


def fixed_point_table() -> None:
    """Prints the value of one entry of each process: exact, and the fixed point of each variant."""
    found = {
        case.name: exact_values(case) | {name: float(q[case.entry]) for name, q in fixed_points(case).items()}
        for case in cases()
    }
    names = list(next(iter(found.values())))
    rows = [[name, *(f"{found[case][name]:.3f}" for case in found)] for name in names]
    console.print_table(console.table("Fixed points where no trajectory connects state and goal", ["", *found], rows))


def speed_table() -> None:
    """Prints the number of fits until a value is known."""
    columns = ["", *(f"{steps} steps: {distance}" for steps in LENGTHS for distance in DISTANCES)]
    rows = [
        [name, *(str(count) for steps in LENGTHS for count in fits_until_known(variant, DISTANCES, steps))]
        for name, variant in VARIANTS.items()
    ]
    console.print_table(
        console.table("Fits until a value is known, by length of trajectories and distance", columns, rows)
    )


def maze_table(name: str, case: Case) -> None:
    """Prints how far the fixed points of all of GTRL lie from Q* in a maze with a teleporter."""
    process, beta, gamma, log = case
    q_star, q_beta = (
        state_action_values(process, v, gamma)
        for v in (optimal_values(process, gamma), behaviour_values(process, beta, gamma))
    )
    v_dc = divide_and_conquer_values(process, gamma)
    rows = []
    for label, variant in (VARIANTS | ALL_BOUNDS).items():
        d = variant.draws(log, process, gamma, VALUE_GOALS)
        q = variant.operator(gamma).fixed_point(d)
        connected = np.zeros_like(d.drawn)
        connected[d.s[d.m], d.a[d.m], d.g[d.m]] = True
        far = d.drawn & ~connected
        above = np.maximum(q - q_star, 0)
        errors = [np.abs(q - q_star)[where].mean() for where in (connected, far)]
        rows.append([label, *(f"{number:.3f}" for number in (*errors, above[connected].max(), above[far].max()))])
    error = np.abs(q_beta - q_star).mean(), np.abs(v_dc[:, None] - q_star).mean()
    console.echo(f"{name}: {process.states} states, mean |Q^beta - Q*| {error[0]:.3f}, |V_DC - Q*| {error[1]:.3f}")
    columns = ["", "|Q - Q*|, connected", "unconnected", "largest excess, connected", "unconnected"]
    console.print_table(console.table(name, columns, rows))


def main() -> None:
    fixed_point_table()
    speed_table()
    maze_table("small maze", named_cases()[1])
    maze_table("teleport maze", teleport_maze_case())


if __name__ == "__main__":
    main()

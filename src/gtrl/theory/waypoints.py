"""What GTRL's loss converges to with waypoints (docs/beyond.md), where no trajectory connects state and goal.

Every trajectory has a few steps only and all goals are drawn from other trajectories, so that m = 0 everywhere: without
waypoints, GTRL has nothing but its one-step target.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from gtrl.errors import ProcessError
from gtrl.tasks import Goals, WaypointDraw, WaypointSource
from gtrl.theory import examples
from gtrl.theory.anchored import Anchored
from gtrl.theory.draws import Draws, dataset_draws
from gtrl.theory.process import Log, Process, uniform
from gtrl.theory.values import behaviour_values, divide_and_conquer_values, optimal_values, state_action_values

GAMMA = 0.99
RANDOM_GOALS: Goals = (0.0, 0.0, 1.0)


class Case(NamedTuple):
    """A process, the behaviour policy that logged it, and the entry (s, a, g) whose value is of interest."""

    name: str
    process: Process
    beta: np.ndarray
    steps: int  # of a trajectory
    entry: tuple[int, int, int]


@dataclass(frozen=True)
class Variant:
    """Where waypoints come from and what is done with them."""

    source: WaypointSource = "none"
    draw: WaypointDraw = "uniform"
    product: str = "bound"
    weight: float = 1.0  # of lower bounds
    selection: str = "max"  # of the target where m = 1
    hindsight_reads: str = "critic"

    def draws(self, log: Log, process: Process, gamma: float = GAMMA, mixture: Goals = RANDOM_GOALS) -> Draws:
        """Returns the draws of the sampler, as if the log were repeated infinitely often."""
        return dataset_draws(log, process.states, process.actions, gamma, mixture, "draw", self.source, self.draw)

    def operator(self, gamma: float = GAMMA) -> Anchored:
        """Returns GTRL's fit."""
        return Anchored(
            gamma, selection=self.selection, hindsight_reads=self.hindsight_reads, waypoint_product=self.product,
            bound_weight=self.weight,
        )  # fmt: skip


# In the order of the tables of docs/beyond.md.
VARIANTS = {"GTRL": Variant()} | {
    f"{source}, {name}": Variant(source, product=product, weight=weight)
    for source in ("state", "goal", "random")
    for name, product, weight in (("target", "target", 1.0), ("bound", "bound", 1.0), ("bound × 10", "bound", 10.0))
}
# Other states of the trajectory than a uniformly drawn one.
OTHER_DRAWS = {
    "state, bound × 10, geometric": Variant("state", draw="geometric", weight=10.0),
    "state, bound × 10, farthest": Variant("state", draw="farthest", weight=10.0),
}
# Where goals are ahead on the trajectory too, as in the mazes.
ALL_BOUNDS = {
    "all bounds × 10, state": Variant("state", weight=10.0, selection="bound"),
    "all bounds × 10, state, h from densities": Variant(
        "state", weight=10.0, selection="bound", hindsight_reads="densities"
    ),
}


def cases() -> list[Case]:
    """Returns the processes of the tables."""
    teleporter, names = examples.teleporter(), examples.TELEPORTER
    gamble, chain, delays = examples.gamble(), examples.slip_chain(), examples.delay_chain()
    by_choice = np.zeros((gamble.states, gamble.actions))
    by_choice[:, 0], by_choice[0] = 1, 0.5  # action 1 exists in the first state only
    return [
        Case("Example 1", teleporter, uniform(teleporter), 12, (names["s"], 0, names["g"])),
        Case("gamble", gamble, by_choice, 16, (0, examples.GAMBLE, gamble.states - 1)),
        Case("slip chain", chain, uniform(chain), 4, (0, 0, chain.states - 1)),
        Case("delay chain", delays, uniform(delays), 8, (0, 0, delays.states - 1)),
    ]


def all_trajectories(process: Process, beta: np.ndarray, steps: int) -> Log:
    """Returns a log of all trajectories of `steps` steps from every state, in proportion to their probabilities.

    Raises:
        ProcessError: If that takes more than a million rows.
    """
    p = process.dense

    def grow(s: int, chance: Fraction, left: int) -> Iterator[tuple[Fraction, list[int], list[int]]]:
        for a in np.flatnonzero(beta[s]):
            taken = chance * Fraction(float(beta[s, a])).limit_denominator(1000)
            if not left:
                yield taken, [s], [int(a)]
                continue
            for to in np.flatnonzero(p[s, a]):
                lands = taken * Fraction(float(p[s, a, to])).limit_denominator(1000)
                for total, states, actions in grow(int(to), lands, left - 1):
                    yield total, [s, *states], [int(a), *actions]

    found = [each for s in range(process.states) for each in grow(s, Fraction(1), steps)]
    unit = np.lcm.reduce([chance.denominator for chance, _, _ in found])
    counts = [int(chance * int(unit)) for chance, _, _ in found]
    if sum(counts) * (steps + 1) > 1_000_000:
        raise ProcessError(f"all trajectories of {steps} steps are {sum(counts):,}; use fewer steps.")
    return Log.of(
        [(states, actions) for count, (_, states, actions) in zip(counts, found, strict=True) for _ in range(count)]
    )


def exact_values(case: Case) -> dict[str, float]:
    """Returns the case's values of the best policy, of the behaviour policy and of divide and conquer."""
    process, (s, a, g) = case.process, case.entry
    of_actions = {
        "V*": optimal_values(process, GAMMA),
        "Q^β": behaviour_values(process, case.beta, GAMMA),
    }
    exact = {name: float(state_action_values(process, v, GAMMA)[s, a, g]) for name, v in of_actions.items()}
    v_dc = divide_and_conquer_values(process, GAMMA)
    exact["V_DC"] = GAMMA * float(v_dc[process.successors[s, a][process.probabilities[s, a] > 0], g].max())
    return exact


def fixed_points(case: Case) -> dict[str, np.ndarray]:
    """Returns the fixed point (S, A, S) of every variant."""
    log = all_trajectories(case.process, case.beta, case.steps)
    return {name: one.operator().fixed_point(one.draws(log, case.process)) for name, one in VARIANTS.items()}


def fits_until_known(variant: Variant, distances: list[int], steps: int) -> list[int]:
    """Returns after how many fits values at these distances are within 1 % of the right ones.

    The process is a corridor, logged in all trajectories of `steps` steps.
    """
    process = examples.corridor(max(distances) + 1)
    draws = variant.draws(all_trajectories(process, uniform(process), steps), process)
    fit, q, needed = variant.operator(), np.zeros((process.states, 1, process.states)), dict[int, int]()
    for count in range(1, 100 * max(distances)):
        q = fit(q, draws)
        for distance in distances:
            if distance not in needed and q[0, 0, distance] >= 0.99 * GAMMA**distance:
                needed[distance] = count
        if len(needed) == len(distances):
            return [needed[distance] for distance in distances]
    raise ProcessError("values do not arrive.")

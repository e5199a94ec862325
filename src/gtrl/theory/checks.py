"""Checks of the paper's propositions on Example 1, on mazes and on random processes.

Each statement is compared with an independent computation.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gtrl.tasks import TRAJECTORY_GOALS
from gtrl.theory import examples
from gtrl.theory.anchored import CONVERGENCE_TOLERANCE, Anchored, transitive_fit
from gtrl.theory.draws import dataset_draws, model_draws
from gtrl.theory.process import Log, Process, random_behaviour, random_process, sample_log, uniform
from gtrl.theory.transitive import base_cases, transitive
from gtrl.theory.values import (
    arrival_values,
    behaviour_values,
    diameter,
    divide_and_conquer_values,
    forced,
    graph_distances,
    hindsight_ratio,
    occupancy,
    optimal_values,
    state_action_values,
    surely_shortest,
)

TOLERANCE = 1e-9  # a check holds if no deviation is larger
DEFAULT_PROCESSES = 120  # random stochastic processes, and as many deterministic ones
SIZES = ((3, 2), (4, 2), (5, 2))  # (states, actions) of random processes; only a few, because each is compiled
GAMMAS = (0.8, 0.9, 0.95)  # discounts of random processes


class Case(NamedTuple):
    """A process with a behaviour policy, a discount and a log to check a statement on."""

    process: Process
    beta: np.ndarray
    gamma: float
    log: Log


@dataclass(frozen=True)
class Check:
    """The result of checking one statement."""

    name: str
    statement: str
    cases: int
    deviation: float  # the largest over all cases

    @property
    def holds(self) -> bool:
        """Whether the statement was checked on at least one case and is true up to rounding."""
        return self.cases > 0 and self.deviation <= TOLERANCE


def random_cases(count: int, seed: int, branching: int = 3) -> list[Case]:
    """Returns random processes with random behaviour policies and short logs; `branching=1` is deterministic."""
    rng = np.random.default_rng(seed)
    cases = []
    for index in range(count):
        process = random_process(rng, *SIZES[index % len(SIZES)], branching=branching)
        beta = random_behaviour(rng, process)
        log = sample_log(process, beta, rng.integers(process.states, size=3), 4, rng)
        cases.append(Case(process, beta, GAMMAS[index // len(SIZES) % len(GAMMAS)], log))
    return cases


def named_cases() -> list[Case]:
    """Returns Example 1 and the small maze, with uniform behaviour policies."""
    example, maze = examples.teleporter(), examples.small_maze().process
    log = sample_log(maze, uniform(maze), np.arange(maze.states), 12, np.random.default_rng(0))
    return [Case(example, uniform(example), 0.99, examples.teleporter_log()), Case(maze, uniform(maze), 0.9, log)]


def teleport_maze_case() -> Case:
    """Returns the teleport maze, with a behaviour policy that prefers some directions."""
    maze = examples.teleport_maze()
    beta = examples.arrow_behaviour(maze, examples.ARROWS, 0.6)
    rng = np.random.default_rng(0)
    starts = rng.integers(maze.process.states, size=60)
    return Case(maze.process, beta, 0.95, sample_log(maze.process, beta, starts, 15, rng))


def run(processes: int = DEFAULT_PROCESSES, seed: int = 0) -> Iterable[Check]:
    """Runs all checks and yields their results one by one."""
    small = named_cases() + random_cases(processes, seed)
    deterministic = random_cases(processes, seed + 1, branching=1)
    every = [*small, *deterministic, teleport_maze_case()]
    for name, statement, cases, deviation in (
        (
            "Proposition 1 (i)",
            "V_n = γ^d where d ≤ 2^n, else 0; so V_n = V_DC after ⌈log₂ diam⌉ updates",
            every,
            convergence,
        ),
        (
            "Proposition 1 (ii)",
            "V_DC ≥ V*, with equality exactly where a policy is certain to arrive in d steps",
            every,
            optimism,
        ),
        ("Proposition 1 (iii)", "V_DC = V* in deterministic processes", deterministic, certainty),
        (
            "Proposition 1, remark",
            "a base case exceeds V* exactly on edges that no action takes with certainty",
            every,
            base_case,
        ),
        (
            "Proposition 2",
            "TRL has targets exactly for (s_i, a_i, s_j), i < j; no other entry changes",
            every,
            coverage,
        ),
        (
            "Proposition 3",
            "fits from 0 increase to Q_A; Q^β ≤ Q_A ≤ V_DC and Q^β ≤ Q* ≤ V_DC",
            small + deterministic,
            bracket,
        ),
        ("equation 9, identity", "μ(g|s) = V^β(s,g) μ(g|g), with V^β from linear systems", every, identity),
        ("equation 9, three forms", "h is the same from μ, from V^β and from Q^β, for g ≠ s", every, three_forms),
        ("equation 9, deterministic", "h = 1 in deterministic processes", deterministic, no_correction),
        (
            "equation 9, purpose",
            "where every outcome reaches g, hindsight draws weighted by 1/Q^β(s',a',g) follow p and β",
            small,
            weight_restores_model,
        ),
        ("unreachable goals", "V_DC, V*, V^β and μ are exactly 0, and h is undefined", every, unreachable),
    ):
        yield Check(name, statement, len(cases), max(map(deviation, cases)))


def _max_deviation(*differences: np.ndarray) -> float:
    """The largest absolute difference; infinite if one is not finite."""
    largest = max(float(np.abs(difference).max(initial=0)) for difference in differences)
    return largest if all(np.isfinite(difference).all() for difference in differences) else math.inf


def _zero_if(holds: np.ndarray | bool) -> float:
    """The deviation of a statement without numbers: 0 if it holds everywhere, else infinity."""
    return 0.0 if np.all(holds) else math.inf


# --- the deviations: one function per statement ---


def convergence(case: Case) -> float:
    """Proposition 1 (i): the iterates of the transitive update, compared with breadth-first distances."""
    d = graph_distances(case.process)
    base = v = base_cases(case.process, case.gamma)
    steps = math.ceil(math.log2(max(1, diameter(d))))
    worst = 0.0
    for n in range(steps + 2):  # one more update than needed: it must not change anything
        worst = max(worst, _max_deviation(v - np.where(d <= 2**n, case.gamma**d, 0)))
        v = transitive(v, base)
    return worst


def optimism(case: Case) -> float:
    """Proposition 1 (ii): V_DC, compared with value iteration and a search for policies that are certain to arrive."""
    v_dc, v = divide_and_conquer_values(case.process, case.gamma), optimal_values(case.process, case.gamma)
    equal = np.abs(v_dc - v) <= TOLERANCE
    return _max_deviation(np.minimum(v_dc - v, 0)) + _zero_if(equal == surely_shortest(case.process))


def certainty(case: Case) -> float:
    """Proposition 1 (iii): V_DC, compared with value iteration."""
    return _max_deviation(
        divide_and_conquer_values(case.process, case.gamma) - optimal_values(case.process, case.gamma)
    )


def base_case(case: Case) -> float:
    """The remark on Proposition 1: the edges on which a base case exceeds V*."""
    edges = case.process.graph.toarray() > 0
    np.fill_diagonal(edges, False)
    exceeds = base_cases(case.process, case.gamma) - optimal_values(case.process, case.gamma) > TOLERANCE
    return _zero_if(exceeds == (edges & ~forced(case.process)))


def coverage(case: Case) -> float:
    """Proposition 2: the entries that a fit of TRL's loss changes, compared with a loop over the log."""
    states, actions = case.process.states, case.process.actions
    draws = dataset_draws(case.log, states, actions, case.gamma, TRAJECTORY_GOALS)
    start = np.random.default_rng(0).random((states, actions, states))
    fitted = transitive_fit(case.gamma)(start, draws)
    listed = np.zeros_like(draws.drawn)
    for row, end in enumerate(case.log.ends):
        listed[case.log.states[row], case.log.actions[row], case.log.states[row + 1 : end + 1]] = True
    in_r = case.log.pairs(states)[:, None]
    return _max_deviation((fitted - start)[~listed]) + _zero_if(draws.drawn == listed) + _zero_if(in_r | ~listed)


def bracket(case: Case) -> float:
    """Proposition 3: whether the fits from 0 increase, and the order of their limit and the exact values."""
    process, beta, gamma = case.process, case.beta, case.gamma
    draws = model_draws(process, beta, gamma, restored=True)
    operator = Anchored(gamma, hindsight=False)  # the draws are already those that the weight would restore
    q_a, decrease, change = np.zeros((process.states, process.actions, process.states)), 0.0, math.inf
    while change > CONVERGENCE_TOLERANCE:
        before, q_a = q_a, operator(q_a, draws)
        decrease, change = max(decrease, _max_deviation(np.minimum(q_a - before, 0))), float(np.abs(q_a - before).max())
    q_beta = state_action_values(process, behaviour_values(process, beta, gamma), gamma)
    q_star = state_action_values(process, optimal_values(process, gamma), gamma)
    v_dc = divide_and_conquer_values(process, gamma)[:, None]
    order = (q_beta, q_a), (q_a, v_dc), (q_beta, q_star), (q_star, v_dc)
    return max(decrease, _max_deviation(*(np.minimum(high - low, 0) for low, high in order)))


def identity(case: Case) -> float:
    """Equation 9: occupancies from a matrix inverse, compared with values from one linear system per goal."""
    mu = occupancy(case.process, case.beta, case.gamma)
    return _max_deviation(mu - arrival_values(case.process, case.beta, case.gamma)[0] * np.diagonal(mu))


def three_forms(case: Case) -> float:
    """Equation 9: E[mu] V(s') = E[V] mu(s') and Q = gamma E[V], the ratios multiplied by their small denominators."""
    process = case.process
    v, q = arrival_values(process, case.beta, case.gamma)
    mu = occupancy(process, case.beta, case.gamma)
    to = process.successors
    mean_mu, mean_v = (np.einsum("sak,sakg->sag", process.probabilities, table[to]) for table in (mu, v))
    others = ~np.eye(process.states, dtype=bool)[:, None] & np.ones((1, process.actions, 1), bool)  # Q(s, a, s) is 1
    return _max_deviation(mean_mu[:, :, None] * v[to] - mean_v[:, :, None] * mu[to], (q - case.gamma * mean_v)[others])


def no_correction(case: Case) -> float:
    """Equation 9 in deterministic processes: the deviation of h from 1 where the goal can be reached."""
    h = hindsight_ratio(case.process, case.beta, case.gamma)
    reached = np.isfinite(graph_distances(case.process))[case.process.successors]
    return _max_deviation(h[reached] - 1)


def weight_restores_model(case: Case) -> float:
    """Equation 9: the weighted frequency of (s', a') in an entry's m = 1 draws, against p(s' | s, a) beta(a' | s')."""
    process, beta, gamma = case.process, case.beta, case.gamma
    d = model_draws(process, beta, gamma, TRAJECTORY_GOALS)
    to_goal = state_action_values(process, behaviour_values(process, beta, gamma), gamma)
    # h is 1 / Q(s', a', g) up to a factor that is the same for all draws of an entry; where g = s', Q is 1.
    weighted = d.probability / to_goal[d.s_next, d.a_next, d.g]
    frequency = np.zeros((len(d.first), process.states, process.actions))
    np.add.at(frequency, (d.group, d.s_next, d.a_next), weighted)
    s, a, g = d.entry
    expected = process.dense[s, a][:, :, None] * beta
    all_reach = ((expected == 0) | (np.moveaxis(to_goal, -1, 0)[g] > 1e-9)).all((1, 2))  # every successor reaches g
    difference = frequency / frequency.sum((1, 2), keepdims=True) - expected
    at_goal = difference[np.arange(len(g)), g].copy()  # a' does not matter where s' = g: the target is a base case
    difference[np.arange(len(g)), g] = 0
    return _max_deviation(difference[all_reach], at_goal.sum(-1)[all_reach])


def unreachable(case: Case) -> float:
    """Whether all values are exactly 0, and h undefined, just where there is no path to the goal."""
    process, beta, gamma = case.process, case.beta, case.gamma
    cut_off = np.isinf(graph_distances(process))  # the behaviour policies take every action
    values = (
        divide_and_conquer_values(process, gamma),
        optimal_values(process, gamma),
        behaviour_values(process, beta, gamma),
        occupancy(process, beta, gamma),
    )
    undefined = np.isnan(hindsight_ratio(process, beta, gamma)) == cut_off[process.successors]
    return _zero_if(undefined) + sum(_zero_if((value == 0) == cut_off) for value in values)

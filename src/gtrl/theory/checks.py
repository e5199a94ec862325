"""The paper's propositions, checked on Example 1, on mazes and on random processes, each by another computation."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gtrl.tasks import TRAJECTORY_GOALS
from gtrl.theory import examples
from gtrl.theory.anchored import SETTLED, Anchored, transitive_fit
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

ALLOWED = 1e-9  # the largest deviation that counts as none
PROCESSES = 120
SIZES = ((3, 2), (4, 2), (5, 2))  # (states, actions) of the random ones; few, for programs are compiled for each
GAMMAS = (0.8, 0.9, 0.95)


class Case(NamedTuple):
    """A process with a behaviour and some of its log."""

    process: Process
    beta: np.ndarray
    gamma: float
    log: Log


@dataclass(frozen=True)
class Check:
    """What was checked, on how many cases of what, and how far off the worst was."""

    name: str
    says: str
    cases: int
    deviation: float

    @property
    def holds(self) -> bool:
        return self.cases > 0 and self.deviation <= ALLOWED


def random_cases(count: int, seed: int, branching: int = 3) -> list[Case]:
    """Random processes, behaviours and short logs of them."""
    rng = np.random.default_rng(seed)
    cases = []
    for index in range(count):
        process = random_process(rng, *SIZES[index % len(SIZES)], branching=branching)
        beta = random_behaviour(rng, process)
        log = sample_log(process, beta, rng.integers(process.states, size=3), 4, rng)
        cases.append(Case(process, beta, GAMMAS[index // len(SIZES) % len(GAMMAS)], log))
    return cases


def named_cases() -> list[Case]:
    """Example 1 and the small maze."""
    example, maze = examples.teleporter(), examples.small_maze().process
    log = sample_log(maze, uniform(maze), np.arange(maze.states), 12, np.random.default_rng(0))
    return [Case(example, uniform(example), 0.99, examples.teleporter_log()), Case(maze, uniform(maze), 0.9, log)]


def large_case() -> Case:
    """The teleport maze."""
    maze = examples.teleport_maze()
    beta = examples.walker(maze, examples.ARROWS, 0.6)
    rng = np.random.default_rng(0)
    starts = rng.integers(maze.process.states, size=60)
    return Case(maze.process, beta, 0.95, sample_log(maze.process, beta, starts, 15, rng))


def run(processes: int = PROCESSES, seed: int = 0) -> Iterable[Check]:
    """Every check, one after the other."""
    small = named_cases() + random_cases(processes, seed)
    certain = random_cases(processes, seed + 1, branching=1)
    everything = [*small, *certain, large_case()]
    for name, says, cases, deviation in (
        (
            "Proposition 1 (i)",
            "V_n = γ^d where d ≤ 2^n, else 0: V_DC after ⌈log₂ diam⌉ steps",
            everything,
            convergence,
        ),
        ("Proposition 1 (ii)", "V_DC ≥ V*, equal just where a policy surely arrives in d steps", everything, optimism),
        ("Proposition 1 (iii)", "deterministic processes: V_DC = V*", certain, certainty),
        ("its remark", "a base case exceeds V* just at the edges that no action forces", everything, base_case),
        (
            "Proposition 2",
            "TRL has targets for just (s_i, a_i, s_j), i < j; all else stays",
            everything,
            coverage,
        ),
        ("Proposition 3", "from 0 the fits rise to Q_A; Q^β ≤ Q_A, Q* ≤ V_DC, Q^β ≤ Q*", small + certain, bracket),
        ("equation 9, identity", "μ(g|s) = V(s,g) μ(g|g), V from its own linear systems", everything, identity),
        ("equation 9, three forms", "μ, V and Q (each by itself) give the same h, g ≠ s", everything, three_forms),
        ("equation 9, certainty", "deterministic processes: h = 1", certain, no_correction),
        ("equation 9, purpose", "if all reach g, hindsight weighted by 1/Q(s',a',g) shows p and β", small, restores),
        ("unreachable pairs", "V_DC, V*, V^β and μ are exactly 0 there, h undefined", everything, unreachable),
    ):
        yield Check(name, says, len(cases), max(map(deviation, cases)))


def _off(*differences: np.ndarray) -> float:
    """The largest of all; infinite where something is not a number."""
    worst = max(float(np.abs(difference).max(initial=0)) for difference in differences)
    return worst if all(np.isfinite(difference).all() for difference in differences) else math.inf


def _unless(agree: np.ndarray | bool) -> float:
    """Statements that hold or do not: 0 or infinity."""
    return 0.0 if np.all(agree) else math.inf


# --- one deviation for each statement ---


def convergence(case: Case) -> float:
    d = graph_distances(case.process)
    base = v = base_cases(case.process, case.gamma)
    steps = math.ceil(math.log2(max(1, diameter(d))))
    worst = 0.0
    for n in range(steps + 2):  # one more than it takes: nothing moves any more
        worst = max(worst, _off(v - np.where(d <= 2**n, case.gamma**d, 0)))
        v = transitive(v, base)
    return worst


def optimism(case: Case) -> float:
    v_dc, v = divide_and_conquer_values(case.process, case.gamma), optimal_values(case.process, case.gamma)
    equal = np.abs(v_dc - v) <= ALLOWED
    return _off(np.minimum(v_dc - v, 0)) + _unless(equal == surely_shortest(case.process))


def certainty(case: Case) -> float:
    return _off(divide_and_conquer_values(case.process, case.gamma) - optimal_values(case.process, case.gamma))


def base_case(case: Case) -> float:
    edges = case.process.graph.toarray() > 0
    np.fill_diagonal(edges, False)
    exceeds = base_cases(case.process, case.gamma) - optimal_values(case.process, case.gamma) > ALLOWED
    return _unless(exceeds == (edges & ~forced(case.process)))


def coverage(case: Case) -> float:
    states, actions = case.process.states, case.process.actions
    draws = dataset_draws(case.log, states, actions, case.gamma, TRAJECTORY_GOALS)
    start = np.random.default_rng(0).random((states, actions, states))
    fitted = transitive_fit(case.gamma)(start, draws)
    listed = np.zeros_like(draws.drawn)
    for row, end in enumerate(case.log.ends):
        listed[case.log.states[row], case.log.actions[row], case.log.states[row + 1 : end + 1]] = True
    in_r = case.log.pairs(states)[:, None]
    return _off((fitted - start)[~listed]) + _unless(draws.drawn == listed) + _unless(in_r | ~listed)


def bracket(case: Case) -> float:
    process, beta, gamma = case.process, case.beta, case.gamma
    draws = model_draws(process, beta, gamma, restored=True)
    operator = Anchored(gamma, hindsight=False)  # the draws are already those that the weight would restore
    q_a, falls, change = np.zeros((process.states, process.actions, process.states)), 0.0, math.inf
    while change > SETTLED:
        before, q_a = q_a, operator(q_a, draws)
        falls, change = max(falls, _off(np.minimum(q_a - before, 0))), float(np.abs(q_a - before).max())
    q_beta = state_action_values(process, behaviour_values(process, beta, gamma), gamma)
    q_star = state_action_values(process, optimal_values(process, gamma), gamma)
    v_dc = divide_and_conquer_values(process, gamma)[:, None]
    order = (q_beta, q_a), (q_a, v_dc), (q_beta, q_star), (q_star, v_dc)
    return max(falls, _off(*(np.minimum(high - low, 0) for low, high in order)))


def identity(case: Case) -> float:
    mu = occupancy(case.process, case.beta, case.gamma)
    return _off(mu - arrival_values(case.process, case.beta, case.gamma)[0] * np.diagonal(mu))


def three_forms(case: Case) -> float:
    """The ratios without their denominators, which may be small: E[mu] V(s') = E[V] mu(s'), and Q = gamma E[V]."""
    process = case.process
    v, q = arrival_values(process, case.beta, case.gamma)
    mu = occupancy(process, case.beta, case.gamma)
    to = process.successors
    mean_mu, mean_v = (np.einsum("sak,sakg->sag", process.probabilities, table[to]) for table in (mu, v))
    others = ~np.eye(process.states, dtype=bool)[:, None] & np.ones((1, process.actions, 1), bool)  # Q(s, a, s) is 1
    return _off(mean_mu[:, :, None] * v[to] - mean_v[:, :, None] * mu[to], (q - case.gamma * mean_v)[others])


def no_correction(case: Case) -> float:
    h = hindsight_ratio(case.process, case.beta, case.gamma)
    reached = np.isfinite(graph_distances(case.process))[case.process.successors]
    return _off(h[reached] - 1)


def restores(case: Case) -> float:
    """The shares of (s', a') among the decomposable draws of an entry, weighted, against p(s' | s, a) beta(a' | s')."""
    process, beta, gamma = case.process, case.beta, case.gamma
    d = model_draws(process, beta, gamma, TRAJECTORY_GOALS)
    to_goal = state_action_values(process, behaviour_values(process, beta, gamma), gamma)
    # 1 / (gamma Q(s', a', g)) restores up to a factor that is the entry's own; where g = s', Q is 1.
    share = d.probability / to_goal[d.s_next, d.a_next, d.g]
    seen = np.zeros((len(d.first), process.states, process.actions))
    np.add.at(seen, (d.group, d.s_next, d.a_next), share)
    s, a, g = d.entry
    expected = process.dense[s, a][:, :, None] * beta
    everywhere = ((expected == 0) | (np.moveaxis(to_goal, -1, 0)[g] > 1e-9)).all((1, 2))  # every successor reaches g
    off = seen / seen.sum((1, 2), keepdims=True) - expected
    arrived = off[np.arange(len(g)), g].copy()  # at g itself a' decides nothing: its target is a base case
    off[np.arange(len(g)), g] = 0
    return _off(off[everywhere], arrived.sum(-1)[everywhere])


def unreachable(case: Case) -> float:
    process, beta, gamma = case.process, case.beta, case.gamma
    cut_off = np.isinf(graph_distances(process))  # the behaviours take every action, so they reach what can be
    values = (
        divide_and_conquer_values(process, gamma),
        optimal_values(process, gamma),
        behaviour_values(process, beta, gamma),
        occupancy(process, beta, gamma),
    )
    undefined = np.isnan(hindsight_ratio(process, beta, gamma)) == cut_off[process.successors]
    return _unless(undefined) + sum(_unless((value == 0) == cut_off) for value in values)

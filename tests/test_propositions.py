"""Propositions 1 to 3 and the identities behind the weight h, on random finite processes, and what would break them.

All expected values are computed here from the paper, by loops and enumeration. A property is a function of the
operator under test, so that each is also checked to fail for some wrong operators.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gtrl.tasks import TRAJECTORY_GOALS, VALUE_GOALS, Goals
from gtrl.theory import transitive as tr
from gtrl.theory import values
from gtrl.theory.anchored import Anchored, transitive_fit
from gtrl.theory.draws import Draws, dataset_draws, model_draws
from gtrl.theory.process import Log, Process

ROUNDING = 1e-12
# V_DC - V* is 0 or above this: a detour has probability 1/4 or more at each of at most three steps.
GAP = 1e-6
close = partial(np.testing.assert_allclose, rtol=0)
some = settings(max_examples=60, deadline=None, derandomize=True, database=None)


# --- random processes; few shapes, because JAX compiles for each ---


class Case(NamedTuple):
    process: Process
    beta: np.ndarray
    gamma: float


def integers(shape: tuple[int, ...], most: int) -> st.SearchStrategy[np.ndarray]:
    return arrays(int, shape, elements=st.integers(0, most), fill=st.nothing())


@st.composite
def cases(draw: st.DrawFn, *sizes: tuple[int, int], outcomes: int = 2, gammas: tuple[float, ...] = (0.5, 0.9)) -> Case:
    """Two listed successors for each action, the same one perhaps, or with probability 0; actions never taken too."""
    states, actions = draw(st.sampled_from(sizes))
    successors = draw(integers((states, actions, outcomes), states - 1))
    return Case(
        Process(successors, draw(chances(successors.shape))),
        draw(chances((states, actions))),
        draw(st.sampled_from(gammas)),
    )


def chances(shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    def distribution(weights: np.ndarray) -> np.ndarray:
        weights[..., 0] += weights.sum(-1) == 0
        return weights / weights.sum(-1, keepdims=True)

    return integers(shape, 3).map(distribution)


@st.composite
def long_cases(draw: st.DrawFn) -> Case:
    """Nine states: any graph, or a corridor with edges back, whose diameter is 8 if it is connected."""
    case = draw(cases((9, 1)))
    if draw(st.booleans()):
        on, back = np.minimum(np.arange(9) + 1, 8), np.minimum(case.process.successors[:, 0, 1], np.arange(9))
        return case._replace(process=Process(np.stack([on, back], -1)[:, None], case.process.probabilities))
    return case


tiny_cases = cases((3, 1), (3, 2), (4, 1), (4, 2))
sure_cases = cases((3, 2), (4, 2), outcomes=1)


def refuted(some_cases: st.SearchStrategy[Any], holds: Callable[[Any], object], tries: int = 200) -> None:
    """Finds a case that breaks the property (`find` raises if there is none)."""

    def broken(case: Any) -> bool:
        try:
            holds(case)
        except AssertionError:
            return True
        return False

    find(some_cases, broken, settings=settings(some, max_examples=tries, phases=[Phase.generate]))


def mutants(**wrong: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("wrong", [pytest.param(value, id=name) for name, value in wrong.items()])


# --- what the paper defines ---


def transition(process: Process) -> np.ndarray:
    p = np.zeros((process.states, process.actions, process.states))
    for s, a, k in np.ndindex(process.successors.shape):
        p[s, a, process.successors[s, a, k]] += process.probabilities[s, a, k]
    return p


def distances(edges: np.ndarray) -> np.ndarray:
    """Floyd and Warshall's."""
    d = np.where(edges, 1.0, np.inf)
    np.fill_diagonal(d, 0)
    for w, s, g in itertools.product(range(len(d)), repeat=3):
        d[s, g] = min(d[s, g], d[s, w] + d[w, g])
    return d


def graph(process: Process) -> np.ndarray:
    return np.any(transition(process) > 0, axis=1)


def policies(process: Process) -> list[np.ndarray]:
    """The chain of states under each policy that depends on nothing but the state; one of them is optimal."""
    p, here = transition(process), np.arange(process.states)
    return [p[here, choice] for choice in itertools.product(range(process.actions), repeat=process.states)]


def hitting_values(chain: np.ndarray, gamma: float) -> np.ndarray:
    """Equation 1: V(g, g) = 1, and V(s, g) = gamma E[V(s', g)] elsewhere, solved for each goal."""
    columns = []
    for g in range(len(chain)):
        absorbed = gamma * chain
        absorbed[g] = 0
        columns.append(np.linalg.solve(np.eye(len(chain)) - absorbed, np.eye(len(chain))[g]))
    return np.stack(columns, 1)


def best_values(process: Process, gamma: float) -> np.ndarray:
    return np.max([hitting_values(chain, gamma) for chain in policies(process)], 0)


def arrival_times(chain: np.ndarray, s: int, g: int) -> set[float]:
    """When the chain may first be at g; whatever is later than S steps counts as never."""
    times, here = set(), {s}
    for t in range(len(chain) + 1):
        if g in here:
            times.add(float(t))
        here = {after for state in here - {g} for after in np.flatnonzero(chain[state]).tolist()}
    return times | ({np.inf} if here else set())


def surely_shortest(process: Process) -> np.ndarray:
    """Whether some policy reaches g from s in exactly d_G steps; in infinitely many where it has to."""
    d, chains = distances(graph(process)), policies(process)
    sure = [any(arrival_times(chain, s, g) == {float(d[s, g])} for chain in chains) for s, g in np.ndindex(d.shape)]
    return np.reshape(sure, d.shape)


def under(case: Case) -> np.ndarray:
    return np.einsum("sa,sag->sg", case.beta, transition(case.process))


def action_values(case: Case) -> np.ndarray:
    """Q^beta, (S, A, S), by one linear system over pairs (s, a) for each goal."""
    states, actions = case.beta.shape
    steps = np.einsum("xt,tb->xtb", transition(case.process).reshape(-1, states), case.beta).reshape(
        states * actions, -1
    )
    home = np.repeat(np.arange(states), actions)
    q = []
    for g in range(states):
        away = home != g
        q.append(np.linalg.solve(np.eye(len(home)) - case.gamma * steps * away[:, None], 1.0 * ~away))
    return np.stack(q, -1).reshape(states, actions, states)


def below(low: np.ndarray, high: np.ndarray, tolerance: float = ROUNDING) -> bool:
    return bool((low <= high + tolerance).all())


# --- Proposition 1 (i) ---

Step = Callable[[np.ndarray, np.ndarray], np.ndarray]


def doubles(case: Case, base_cases: Callable[[Process, float], np.ndarray], step: Step) -> None:
    """V_n is gamma^d up to d = 2^n and 0 beyond, so it rises, and is V_DC as soon as 2^n is the diameter, no sooner."""
    d = distances(graph(case.process))
    v_dc, longest = case.gamma**d, d[np.isfinite(d)].max()
    base = base_cases(case.process, case.gamma)
    v = step(np.zeros_like(base), base)  # V_0: the update writes the base cases wherever it starts
    for n in range(5):
        close(v, np.where(d <= 2**n, v_dc, 0), atol=ROUNDING)
        assert (np.abs(v - v_dc).max() <= ROUNDING) == (n >= np.log2(max(longest, 1)))
        before, v = v, step(v, base)
        assert below(before, v)


@some
@given(long_cases())
def test_transitive_update_doubles_its_reach(case: Case):
    doubles(case, tr.base_cases, tr.transitive)
    d = distances(graph(case.process))
    longest = int(d[np.isfinite(d)].max())
    np.testing.assert_array_equal(values.graph_distances(case.process), d)
    assert values.diameter(d) == longest
    found = list(tr.iterates(case.process, case.gamma))
    assert len(found) == int(np.ceil(np.log2(max(longest, 1)))) + 1
    close(found[-1], values.divide_and_conquer_values(case.process, case.gamma), atol=ROUNDING)
    close(found[-1], case.gamma**d, atol=ROUNDING)


def composed(by: Callable[[np.ndarray], np.ndarray]) -> Step:
    """An update that reduces the products (s, w, g) in another way."""
    return lambda v, base: np.where(base > 0, base, by(v[:, :, None] * v))


@mutants(
    smallest=composed(lambda products: products.min(1)),
    total=composed(lambda products: products.sum(1)),
    only_through_s=composed(lambda products: np.einsum("ssg->sg", products)),
    not_through_the_last_state=composed(lambda products: products[:, :-1].max(1)),
    forgets_the_base_cases=lambda v, _: (v[:, :, None] * v).max(1),
    one_step_more=lambda v, base: np.where(base > 0, base, (v[:, :, None] * base).max(1)),
    never_composes=lambda v, base: np.maximum(v, base),
)
def test_wrong_update_does_not_double_its_reach(wrong: Step):
    refuted(long_cases(), lambda case: doubles(case, tr.base_cases, wrong))


def with_diagonal(of: Callable[[Process, float], np.ndarray], value: float) -> Callable[[Process, float], np.ndarray]:
    def base(process: Process, gamma: float) -> np.ndarray:
        v = of(process, gamma)
        np.fill_diagonal(v, value * gamma)
        return v

    return base


@mutants(
    gamma_at_the_goal=with_diagonal(tr.base_cases, 1),
    nothing_at_the_goal=with_diagonal(tr.base_cases, 0),
    only_likely_edges=lambda process, gamma: np.maximum(gamma * (transition(process) > 0.5).any(1), np.eye(9)),
    only_the_probability=lambda process, gamma: np.maximum(gamma * transition(process).max(1), np.eye(9)),
)
def test_wrong_base_cases_do_not_double_the_reach(wrong: Callable[[Process, float], np.ndarray]):
    refuted(long_cases(), lambda case: doubles(case, wrong, tr.transitive))


# --- Proposition 1 (ii), (iii) and the remark after its proof ---

Values = Callable[[Process, float], np.ndarray]


def overestimates(case: Case, optimal: Values, lucky: Values) -> None:
    v_star, v_dc = optimal(case.process, case.gamma), lucky(case.process, case.gamma)
    assert below(v_star, v_dc, 1e-11)
    np.testing.assert_array_equal(np.abs(v_dc - v_star) < GAP, surely_shortest(case.process))


def equal_if_sure(case: Case, optimal: Values, lucky: Values) -> None:
    close(optimal(case.process, case.gamma), lucky(case.process, case.gamma), atol=1e-11)


def base_case_exceeds(case: Case, optimal: Values, base_cases: Values) -> None:
    """At the edges that no action forces, and nowhere else."""
    edge, forced = graph(case.process), (transition(case.process) > 1 - GAP).any(1)
    exceeds = base_cases(case.process, case.gamma) > optimal(case.process, case.gamma) + GAP
    np.testing.assert_array_equal(exceeds, edge & ~forced & ~np.eye(len(edge), dtype=bool))


@some
@given(tiny_cases)
def test_divide_and_conquer_overestimates(case: Case):
    process, gamma = case.process, case.gamma
    close(values.optimal_values(process, gamma), best_values(process, gamma), atol=1e-11)
    np.testing.assert_array_equal(values.surely_shortest(process), surely_shortest(process))
    np.testing.assert_array_equal(values.forced(process), (transition(process) > 1 - GAP).any(1))
    overestimates(case, values.optimal_values, values.divide_and_conquer_values)
    base_case_exceeds(case, values.optimal_values, tr.base_cases)
    assert process.deterministic == bool((transition(process).max(-1) > 1 - GAP).all())


@some
@given(sure_cases)
def test_deterministic_values_are_divide_and_conquer_values(case: Case):
    assert case.process.deterministic
    equal_if_sure(case, values.optimal_values, values.divide_and_conquer_values)


def of_uniform_behaviour(process: Process, gamma: float) -> np.ndarray:
    return hitting_values(transition(process).mean(1), gamma)


def of_best_outcome(process: Process, gamma: float) -> np.ndarray:
    return gamma ** distances(graph(process))


def of_worst_policy(process: Process, gamma: float) -> np.ndarray:
    return np.min([hitting_values(chain, gamma) for chain in policies(process)], 0)


def of_forced_edges(process: Process, gamma: float) -> np.ndarray:
    return gamma ** distances(np.any(transition(process) > 1 - GAP, axis=1))


def of_certain_and_likely_edges(process: Process, gamma: float) -> np.ndarray:
    return gamma ** distances(np.any(transition(process) >= 0.5, axis=1))


@pytest.mark.parametrize(
    ("claim", "optimal", "lucky"),
    [
        (overestimates, of_uniform_behaviour, values.divide_and_conquer_values),
        (overestimates, of_worst_policy, values.divide_and_conquer_values),
        (overestimates, of_best_outcome, values.divide_and_conquer_values),
        (overestimates, values.optimal_values, of_forced_edges),
        (overestimates, values.optimal_values, of_certain_and_likely_edges),
        (overestimates, values.optimal_values, values.optimal_values),
        (base_case_exceeds, values.optimal_values, of_forced_edges),
        (base_case_exceeds, of_uniform_behaviour, tr.base_cases),
        (base_case_exceeds, values.optimal_values, with_diagonal(tr.base_cases, 1.2)),
        (equal_if_sure, of_uniform_behaviour, values.divide_and_conquer_values),
        (equal_if_sure, values.optimal_values, tr.base_cases),
    ],
)
def test_wrong_values_break_the_equality(claim: Callable[[Case, Values, Values], None], optimal: Values, lucky: Values):
    refuted(sure_cases if claim is equal_if_sure else tiny_cases, lambda case: claim(case, optimal, lucky))


def test_stochastic_values_need_not_be_divide_and_conquer_values():
    refuted(tiny_cases, lambda case: equal_if_sure(case, values.optimal_values, values.divide_and_conquer_values))


@some
@given(tiny_cases)
def test_equation_3_over_actions(case: Case):
    """As written, w = s gives every action the value of the best one, even if each action has one outcome.

    Without w = s an action gets the value through its own best successor, except at g = s.
    """
    process, gamma = case.process, case.gamma
    v_dc = gamma ** distances(graph(process))
    with_itself = tr.iterate_actions(process, gamma)
    for a in range(process.actions):
        close(with_itself[:, a], v_dc, atol=ROUNDING)
    on_its_own = np.zeros_like(with_itself)
    for s, a, after in np.argwhere(transition(process) > 0):
        if after != s:
            on_its_own[s, a] = np.maximum(on_its_own[s, a], gamma * v_dc[after])
    for s in range(process.states):
        on_its_own[s, :, s] = 1
    close(tr.iterate_actions(process, gamma, through_itself=False), on_its_own, atol=ROUNDING)


# --- Proposition 2 ---

STATES, ACTIONS = 4, 2


class Logged(NamedTuple):
    paths: list[list[tuple[int, int]]]  # (state, action) by trajectory
    seed: int

    @property
    def log(self) -> Log:
        return Log.of([([s for s, _ in path], [a for _, a in path]) for path in self.paths])

    @property
    def start(self) -> np.ndarray:
        return np.random.default_rng(self.seed).random((STATES, ACTIONS, STATES))


steps = st.tuples(st.integers(0, STATES - 1), st.integers(0, ACTIONS - 1))
paths = st.lists(st.lists(steps, min_size=1, max_size=4), min_size=1, max_size=3)
logs = st.builds(Logged, paths.filter(lambda several: any(len(path) > 1 for path in several)), st.integers(0, 99))


def leaves_the_rest(logged: Logged, sampler: Callable[[Log], Draws]) -> None:
    """TRL's fits change nothing outside R and read nothing there, bit for bit."""
    outside = np.ones((STATES, ACTIONS, STATES), bool)
    for path in logged.paths:
        for i, j in itertools.combinations_with_replacement(range(len(path)), 2):
            outside[path[i][0], :, path[j][0]] = False
    draws, fit, start = sampler(logged.log), transitive_fit(0.9), logged.start
    q, other = start, np.where(outside, 1 - start, start)
    for _ in range(3):
        q, other = fit(q, draws), fit(other, draws)
    assert np.array_equal(q[outside], start[outside])
    assert np.array_equal(q[~outside], other[~outside])


def draws_what_lies_ahead(logged: Logged, sampler: Callable[[Log], Draws]) -> None:
    ahead = np.zeros((STATES, ACTIONS, STATES), bool)
    for path in logged.paths:
        for i, j in itertools.combinations(range(len(path)), 2):
            ahead[(*path[i], path[j][0])] = True
    np.testing.assert_array_equal(sampler(logged.log).drawn, ahead)


def sampler(mixture: Goals) -> Callable[[Log], Draws]:
    return lambda log: dataset_draws(log, STATES, ACTIONS, 0.9, mixture)


def across_trajectories(log: Log) -> Draws:
    return sampler(TRAJECTORY_GOALS)(log._replace(ends=np.full(len(log.ends), len(log.ends) - 1)))


@some
@given(logs)
def test_pairs_off_the_trajectories_keep_their_start(logged: Logged):
    together = np.zeros((STATES, STATES), bool)
    for path in logged.paths:
        for i, j in itertools.combinations_with_replacement(range(len(path)), 2):
            together[path[i][0], path[j][0]] = True
    np.testing.assert_array_equal(logged.log.pairs(STATES), together)
    leaves_the_rest(logged, sampler(TRAJECTORY_GOALS))
    draws_what_lies_ahead(logged, sampler(TRAJECTORY_GOALS))


@mutants(random_goals=sampler(VALUE_GOALS), next_trajectory=across_trajectories)
def test_other_samplers_reach_pairs_off_the_trajectories(wrong: Callable[[Log], Draws]):
    refuted(logs, lambda logged: leaves_the_rest(logged, wrong))
    refuted(logs, lambda logged: draws_what_lies_ahead(logged, wrong))


def test_state_itself_is_not_a_goal_ahead():
    """(s, s) is in R, but TRL's loss has i < j."""
    refuted(logs, lambda logged: draws_what_lies_ahead(logged, sampler((0.5, 0.5, 0.0))))


# --- Proposition 3 ---

bracket_cases = cases((3, 2), (4, 1), (4, 2), gammas=(0.5, 0.8))
SETTLED = 1e-9


def bracketed(
    case: Case, operator: Callable[[float], Anchored], waypoints: Callable[[Case], np.ndarray | None] = lambda _: None
) -> None:
    """The fits rise from 0 to Q_A, between Q^beta and V_DC; at the actions that are taken."""
    fit = operator(case.gamma)
    draws = model_draws(case.process, case.beta, case.gamma, restored=True, waypoints=waypoints(case))
    taken = case.beta > 0
    v_dc = (case.gamma ** distances(graph(case.process)))[:, None]
    q = np.zeros((*case.beta.shape, case.process.states))
    for _ in range(400):
        before, q = q, fit(q, draws)
        assert below(before, q)
        assert below(q[taken], np.broadcast_to(v_dc, q.shape)[taken])
        if np.abs(q - before).max() < ROUNDING:
            break
    assert below(action_values(case)[taken], q[taken], SETTLED)


@some
@given(bracket_cases)
def test_fixed_point_lies_in_the_bracket(case: Case):
    bracketed(case, lambda gamma: Anchored(gamma, hindsight=False))


@some
@given(tiny_cases)
def test_optimal_values_lie_in_the_bracket(case: Case):
    q_star = values.state_action_values(case.process, values.optimal_values(case.process, case.gamma), case.gamma)
    assert below(action_values(case), q_star, 1e-11)
    assert below(q_star, (case.gamma ** distances(graph(case.process)))[:, None], 1e-11)


def one_step(gamma: float, q: np.ndarray, d: Draws) -> np.ndarray:
    return np.where(d.g == d.s, 1, np.where(d.g == d.s_next, gamma, gamma * q[d.s_next, d.a_next, d.g]))


def legs(gamma: float, q: np.ndarray, d: Draws) -> tuple[np.ndarray, np.ndarray]:
    first = np.where(d.w == d.s, 1, np.where(d.w == d.s_next, gamma, q[d.s, d.a, d.w]))
    return first, np.where(d.g == d.w, 1, np.where(d.g_after_w, gamma, q[d.w, d.a_w, d.g]))


def larger(y_td: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.maximum(y_td, first * second)


@dataclass(frozen=True)
class Other(Anchored):
    """T_A with targets of its own: y_TD, and where m = 1 a function of it and of both legs."""

    combine: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray] = larger
    y_td: Callable[[float, np.ndarray, Draws], np.ndarray] = one_step

    def targets(self, q: np.ndarray, d: Draws) -> tuple[np.ndarray, np.ndarray]:
        y_td = self.y_td(self.gamma, q, d)
        return np.where(d.m, self.combine(y_td, *legs(self.gamma, q, d)), y_td), y_td


@some
@given(bracket_cases)
def test_targets(case: Case):
    """Equations 5, 6 and 8, from any table; the wrong operators below differ from the right one by what they name."""
    q = np.random.default_rng(0).random((*case.beta.shape, case.process.states))
    draws = model_draws(case.process, case.beta, case.gamma)
    for found, expected in zip(
        Anchored(case.gamma).targets(q, draws), Other(case.gamma).targets(q, draws), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    y_dc, _ = Anchored(case.gamma, selection="dc").targets(q, draws)
    np.testing.assert_array_equal(y_dc[draws.m], np.multiply(*legs(case.gamma, q, draws))[draws.m])


def wrong_fit(**fields: Any) -> Callable[[float], Anchored]:
    return lambda gamma: Other(gamma, hindsight=False, **fields)


@mutants(
    low_expectile_of_one_step=wrong_fit(kappa_one_step=0.2),
    low_expectile_of_subgoals=wrong_fit(kappa=0.2),
    the_smaller_target=wrong_fit(combine=lambda y, first, second: np.minimum(y, first * second)),
    composition_alone=wrong_fit(combine=lambda _, first, second: first * second),
    first_leg_alone=wrong_fit(combine=lambda y, first, _: np.maximum(y, first)),
    second_leg_alone=wrong_fit(combine=lambda y, _, second: np.maximum(y, second)),
    mean_of_the_legs=wrong_fit(combine=lambda y, first, second: np.maximum(y, (first + second) / 2)),
    no_discount=wrong_fit(y_td=lambda gamma, q, d: one_step(gamma, q / gamma, d)),
    discount_twice=wrong_fit(y_td=lambda gamma, q, d: one_step(gamma, q * gamma, d)),
    nothing_at_the_successor=wrong_fit(
        y_td=lambda gamma, q, d: np.where((d.g == d.s_next) & (d.g != d.s), 0, one_step(gamma, q, d))
    ),
    not_monotone=wrong_fit(y_td=lambda gamma, q, d: one_step(gamma, q * (1 - q), d)),
)
def test_wrong_fit_leaves_the_bracket(wrong: Callable[[float], Anchored]):
    refuted(bracket_cases, lambda case: bracketed(case, wrong), tries=60)


# --- waypoints, which are not in the paper: the statements of docs/beyond.md ---

RANDOM: Goals = (0.0, 0.0, 1.0)  # goals of other trajectories only: m = 0
Waypoints = Callable[[Case], np.ndarray]


def anywhere(case: Case) -> np.ndarray:
    """Every state and action that is taken is as likely to be the waypoint, whatever came before."""
    taken = (case.beta > 0).ravel() / (case.beta > 0).sum()
    return np.tile(taken, (len(taken), 1))


def ahead(case: Case) -> np.ndarray:
    """The waypoint is one, two or three steps ahead on the state's trajectory: it depends on the outcome."""
    pairs = (transition(case.process)[:, :, :, None] * case.beta).reshape(case.beta.size, case.beta.size)
    return (np.eye(case.beta.size) + pairs + pairs @ pairs) / 3


def waypoint_fit(**fields: Any) -> Callable[[float], Anchored]:
    return lambda gamma: Anchored(gamma, hindsight=False, **fields)


def optimal(case: Case) -> np.ndarray:
    """Q*, from the best of all policies."""
    states = np.arange(case.process.states)
    q = case.gamma * transition(case.process) @ best_values(case.process, case.gamma)
    q[states, :, states] = 1
    return q


def between_behaviour_and_optimum(
    case: Case, operator: Callable[[float], Anchored], waypoints: Waypoints, mixture: Goals = RANDOM
) -> np.ndarray:
    """The fits rise from 0 to Q_A, between Q^beta and Q*; at the actions that are taken. Returns Q_A.

    The successors of each entry follow the process, as Proposition 3 assumes.
    """
    draws = model_draws(case.process, case.beta, case.gamma, mixture, restored=True, waypoints=waypoints(case))
    q, taken, q_star = np.zeros((*case.beta.shape, case.process.states)), case.beta > 0, optimal(case)
    for _ in range(400):
        before, q = q, operator(case.gamma)(q, draws)
        assert below(before, q)
        assert below(q[taken], q_star[taken], SETTLED)
        if np.abs(q - before).max() < ROUNDING:
            break
    assert below(action_values(case)[taken], q[taken], SETTLED)
    return q


@pytest.mark.parametrize("waypoints", [anywhere, ahead])
@settings(some, max_examples=30)
@given(bracket_cases)
def test_values_with_lower_bounds_stay_below_the_optimum(waypoints: Waypoints, case: Case):
    """With any weight of the bounds; more weight gives higher values."""
    low, high = (
        between_behaviour_and_optimum(case, waypoint_fit(bound_weight=weight), waypoints) for weight in (1.0, 20.0)
    )
    assert below(low, high, SETTLED)


@pytest.mark.parametrize("goals", [VALUE_GOALS, TRAJECTORY_GOALS])
@settings(some, max_examples=30)
@given(bracket_cases)
def test_subgoals_as_lower_bounds_stay_below_the_optimum(goals: Goals, case: Case):
    """Goals ahead on the trajectory too, under the assumptions of Proposition 3, whose bound is V_DC."""
    between_behaviour_and_optimum(case, waypoint_fit(selection="bound", bound_weight=5.0), ahead, goals)


def test_subgoals_as_targets_may_exceed_the_optimum():
    refuted(bracket_cases, lambda case: between_behaviour_and_optimum(case, waypoint_fit(), ahead, VALUE_GOALS))


class AsTargets(Anchored):
    """The larger of product and one-step target: an unlucky outcome is lifted, a lucky one stays."""

    def __call__(self, q: np.ndarray, d: Draws) -> np.ndarray:
        return Anchored(self.gamma, hindsight=False, waypoint_product="target")(q, d)


class WithBaseCases(Anchored):
    """A waypoint that is the next state on this trajectory counts as one step away, though chance led there."""

    def product(self, q: np.ndarray, d: Draws) -> np.ndarray:
        return np.where(d.w == d.s, 0, np.multiply(*legs(self.gamma, q, d)))


class ThroughItself(Anchored):
    """The state itself as a waypoint, with the action of another visit: V(s, g) in place of Q(s, a, g)."""

    def product(self, q: np.ndarray, d: Draws) -> np.ndarray:
        return np.maximum(super().product(q, d), q[d.s, :, d.g].max(-1))


class Expectile(Anchored):
    """An expectile above 1/2 for the one-step target."""

    def __call__(self, q: np.ndarray, d: Draws) -> np.ndarray:
        return Anchored(self.gamma, kappa_one_step=0.9, hindsight=False)(q, d)


@pytest.mark.parametrize("operator", [AsTargets, WithBaseCases, ThroughItself, Expectile])
def test_what_the_upper_bound_needs(operator: type[Anchored]):
    refuted(
        bracket_cases,
        lambda case: between_behaviour_and_optimum(case, lambda gamma: operator(gamma, hindsight=False), ahead),
    )


class WithoutOneStepTarget(Anchored):
    """The product alone as the target."""

    def targets(self, q: np.ndarray, d: Draws) -> tuple[np.ndarray, np.ndarray]:
        y_a, y_td = super().targets(q, d)
        return np.where(d.waypoint, self.product(q, d), y_a), y_td


def test_what_the_lower_bound_needs():
    refuted(
        bracket_cases,
        lambda case: bracketed(case, lambda gamma: WithoutOneStepTarget(gamma, hindsight=False), anywhere),
    )


@pytest.mark.parametrize("product", ["bound", "target"])
@settings(some, max_examples=20)
@given(bracket_cases)
def test_waypoints_beside_subgoals_stay_below_divide_and_conquer(product: str, case: Case):
    """With goals along trajectories too, the bracket is that of Proposition 3."""
    bracketed(case, waypoint_fit(waypoint_product=product), anywhere)


# --- occupancies and the weight h ---


def power_series(chain: np.ndarray, gamma: float) -> np.ndarray:
    mu, term = np.zeros_like(chain), (1 - gamma) * np.eye(len(chain))
    for _ in range(400):  # .9^400 is below 1e-18
        mu, term = mu + term, gamma * term @ chain
    return mu


def splits(mu: np.ndarray, v: np.ndarray) -> None:
    """mu(g | s) = V(s, g) mu(g | g)."""
    close(mu, v * np.diagonal(mu), atol=1e-11)


@some
@given(tiny_cases)
def test_occupancy_is_arrival_times_occupancy_of_the_goal(case: Case):
    chain = under(case)
    mu, v = power_series(chain, case.gamma), hitting_values(chain, case.gamma)
    splits(mu, v)
    close(case.process.transition_matrix(case.beta), chain, atol=ROUNDING)
    close(values.occupancy(*case), mu, atol=1e-11)
    close(values.behaviour_values(*case), v, atol=1e-11)
    for found, expected in zip(values.arrival_values(*case), (v, action_values(case)), strict=True):
        close(found, expected, atol=1e-11)
    close(values.state_action_values(case.process, v, case.gamma), action_values(case), atol=1e-11)


@mutants(
    occupancy_of_the_successor=lambda chain, gamma: (chain @ power_series(chain, gamma), hitting_values(chain, gamma)),
    goals_that_do_not_absorb=lambda chain, gamma: (
        power_series(chain, gamma),
        power_series(chain, gamma) / (1 - gamma),
    ),
)
def test_wrong_occupancies_do_not_factorise(wrong: Callable[[np.ndarray, float], tuple[np.ndarray, np.ndarray]]):
    refuted(tiny_cases, lambda case: splits(*wrong(under(case), case.gamma)))


def weighs(case: Case, ratio: Callable[[Process, np.ndarray, float, int, int], np.ndarray]) -> None:
    """h = Q(s, a, g) / (gamma V(s', g)), defined where g can be reached from s'; at g = s it is another Q's."""
    q, v = action_values(case), hitting_values(under(case), case.gamma)
    reachable = np.isfinite(distances(under(case) > 0))
    for s, a in np.ndindex(case.beta.shape):
        h, after = ratio(*case, s, a), case.process.successors[s, a]
        np.testing.assert_array_equal(np.isnan(h), ~reachable[after])
        compared = reachable[after] & (np.arange(len(v)) != s)
        expected = np.broadcast_to(q[s, a], h.shape)[compared] / (case.gamma * v[after][compared])
        np.testing.assert_allclose(h[compared], expected, rtol=1e-9, atol=ROUNDING)


@some
@given(tiny_cases)
def test_weight_is_the_ratio_of_values(case: Case):
    weighs(case, lambda process, beta, gamma, s, a: values.hindsight_ratio(process, beta, gamma)[s, a])


@some
@given(sure_cases)
def test_weight_is_one_in_deterministic_processes(case: Case):
    h = values.hindsight_ratio(*case)
    np.testing.assert_allclose(h[~np.isnan(h)], 1, rtol=1e-12)


def upside_down(process: Process, beta: np.ndarray, gamma: float, s: int, a: int) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return 1 / values.hindsight_ratio(process, beta, gamma)[s, a]


def of_the_behaviour(process: Process, beta: np.ndarray, gamma: float, s: int, a: int) -> np.ndarray:
    """The average over the successors of s, whatever the action."""
    chain = np.einsum("sa,sag->sg", beta, transition(process))
    mu = power_series(chain, gamma)
    after = mu[process.successors[s, a]]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(after > 0, (chain @ mu)[s] / after, np.nan)


@mutants(upside_down=upside_down, of_the_behaviour=of_the_behaviour)
def test_wrong_weight_is_not_the_ratio_of_values(wrong: Callable[[Process, np.ndarray, float, int, int], np.ndarray]):
    refuted(tiny_cases, lambda case: weighs(case, wrong))

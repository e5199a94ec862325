"""All draws of the training sampler with their probabilities: from a log, or from the true model.

A draw is a transition (s, a, s') with the action a' logged at s', a goal g, the flag m (whether g is decomposable),
and, where m = 1, a subgoal w with its action a_w. Equations 5 to 10 need nothing else, except whether g comes directly
after w. Where m = 0 there may be a waypoint w: another state than s, of the state's trajectory, the goal's or any.
Draws from the model are those from infinitely many trajectories of infinite length.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from scipy.sparse.csgraph import shortest_path

from gtrl.errors import ProcessError, UnknownNameError
from gtrl.tasks import VALUE_GOALS, Goals, WaypointDraw, WaypointSource
from gtrl.theory.process import Log, Process, check_behaviour, check_discount, check_distribution

# The shares of draws without a waypoint, and with one from the state's trajectory, the goal's or anywhere, by source.
WAYPOINT_SHARES = {
    "none": (1.0, 0.0, 0.0, 0.0), "state": (0.0, 1.0, 0.0, 0.0), "goal": (0.0, 0.0, 1.0, 0.0),
    "both": (0.0, 0.5, 0.5, 0.0), "random": (0.0, 0.0, 0.0, 1.0),
}  # fmt: skip
MIN_POSITIVE = 1e-300  # lower bound of denominators and of arguments of logarithms
MAX_UNMERGED_DRAWS = 4_000_000  # equal draws are merged when more than this many are stored


@dataclass(frozen=True, eq=False)
class Draws:
    """Distinct draws, sorted by the table entry (s, a, g) they are a target for. Probabilities need not sum to 1."""

    states: int
    actions: int
    probability: np.ndarray  # (D,)
    s: np.ndarray
    a: np.ndarray
    g: np.ndarray
    m: np.ndarray  # bool: g is decomposable
    s_next: np.ndarray
    a_next: np.ndarray
    w: np.ndarray  # s where m = 0 and there is no waypoint
    a_w: np.ndarray
    g_after_w: np.ndarray  # bool: m = 1, and g is the successor of this visit to w

    @property
    def waypoint(self) -> np.ndarray:
        """Whether w is a waypoint, (D,)."""
        return ~self.m & (self.w != self.s)

    @cached_property
    def first(self) -> np.ndarray:
        """The index of the first draw of each entry."""
        entry = self._flat
        return np.flatnonzero(np.concatenate([[True], entry[1:] != entry[:-1]]))

    @cached_property
    def entry(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(s, a, g) of each entry that has draws."""
        return self.s[self.first], self.a[self.first], self.g[self.first]

    @cached_property
    def group(self) -> np.ndarray:
        """The index into `first` of the entry that each draw belongs to."""
        return np.repeat(np.arange(len(self.first)), np.diff([*self.first, len(self.s)]))

    @property
    def _flat(self) -> np.ndarray:
        return (self.s * self.actions + self.a) * self.states + self.g

    @cached_property
    def drawn(self) -> np.ndarray:
        """(S, A, S): whether an entry has draws, and so receives a target."""
        table = np.zeros((self.states, self.actions, self.states), bool)
        table[self.entry] = True
        return table

    @cached_property
    def density_ratio(self) -> np.ndarray:
        """p(g | s, a) / p(g | s') of each draw with m = 1, else 0: equation 9 from densities, without a critic, (D,).

        Both are conditional probabilities of the goal in the draws with m = 1.
        """
        p = self.probability * self.m

        def conditional(*place: np.ndarray) -> np.ndarray:
            index = np.unique(np.stack([*place, self.g]), axis=1, return_inverse=True)[1].ravel()
            given = np.unique(np.stack(place), axis=1, return_inverse=True)[1].ravel()
            return np.bincount(index, p)[index] / np.maximum(np.bincount(given, p)[given], MIN_POSITIVE)

        return np.where(self.m, conditional(self.s, self.a) / np.maximum(conditional(self.s_next), MIN_POSITIVE), 0.0)


class _DrawCollector:
    """Collects draws and adds up the probabilities of equal ones."""

    def __init__(self, states: int, actions: int) -> None:
        self.sizes = (states, actions, states, 2, states, actions, states, actions, 2)
        if np.prod([float(size) for size in self.sizes]) > 2**62:
            raise ProcessError(f"{states} states and {actions} actions are too many to enumerate all draws.")
        self.codes: list[np.ndarray] = []
        self.chances: list[np.ndarray] = []
        self.unmerged = 0

    def add(self, chance: np.ndarray, *parts: np.ndarray | int | bool) -> None:
        """Adds draws given by their probability and (s, a, g, m, s', a', w, a_w, g after w), which broadcast."""
        chance, *arrays = np.broadcast_arrays(chance, *(np.asarray(part, int) for part in parts))
        possible = chance > 0
        self.codes.append(np.ravel_multi_index([array[possible] for array in arrays], self.sizes))
        self.chances.append(chance[possible])
        self.unmerged += int(possible.sum())
        if self.unmerged > MAX_UNMERGED_DRAWS:
            self._merge()

    def add_m_0(self, log: Log, chance: np.ndarray, row: Any, g: Any, k: Any) -> None:
        """Adds draws with m = 0: the state at a row, a goal g, the waypoint at row k unless it is the same state."""
        state, action = log.states, log.actions
        none = state[k] == state[row]
        self.add(
            chance, state[row], action[row], g, 0, state[row + 1], action[row + 1],
            np.where(none, state[row], state[k]), np.where(none, action[row], action[k]), 0,
        )  # fmt: skip

    def _merge(self) -> None:
        codes, group = np.unique(np.concatenate(self.codes), return_inverse=True)
        self.codes, self.chances = [codes], [np.bincount(group, np.concatenate(self.chances))]
        self.unmerged = len(codes) // 2  # only half of them count, so that the next merge is not due at once

    def draws(self) -> Draws:
        """Returns the distinct draws."""
        self._merge()
        s, a, g, m, s_next, a_next, w, a_w, after = np.unravel_index(self.codes[0], self.sizes)
        return Draws(
            self.sizes[0], self.sizes[1], self.chances[0], s, a, g, m.astype(bool), s_next, a_next, w, a_w,
            after.astype(bool),
        )  # fmt: skip


def dataset_draws(
    log: Log,
    states: int,
    actions: int,
    gamma: float,
    mixture: Goals = VALUE_GOALS,
    decomposable: Literal["position", "draw"] = "position",
    waypoint: WaypointSource = "none",
    waypoint_draw: WaypointDraw = "uniform",
) -> Draws:
    """Returns the sampler's draws from a log. Geometric goal offsets are clipped at the end of a trajectory.

    Args:
        log: The logged trajectories.
        states: Number of states.
        actions: Number of actions.
        gamma: The discount, and the parameter of the geometric offsets.
        mixture: Probabilities of (current, trajectory, random) goals.
        decomposable: How m is decided. "position", as in training: 1 wherever the goal lies ahead on the same
            trajectory. "draw": 0 for every random goal, as if the log were repeated infinitely often.
        waypoint: Where waypoints come from: the state's trajectory, the goal's, (half of the time each) both, or any
            transition.
        waypoint_draw: How they are drawn there.
    """
    check_discount(gamma)
    log.check(states, actions)
    if decomposable not in ("position", "draw"):
        raise UnknownNameError("rule for m", decomposable, ("position", "draw"))
    if waypoint not in WAYPOINT_SHARES:
        raise UnknownNameError("source of waypoints", waypoint, tuple(WAYPOINT_SHARES))
    if waypoint_draw not in get_args(WaypointDraw):
        raise UnknownNameError("way to draw waypoints", waypoint_draw, get_args(WaypointDraw))
    _, trajectory, anywhere = _shares(mixture)
    rows, state, action = len(log.ends), log.states, log.actions
    by_position = decomposable == "position"
    left = log.ends - np.arange(rows)
    collector, per_transition = _DrawCollector(states, actions), 1 / len(log.transitions)
    ahead = np.zeros((rows, states))  # how often each state comes later on the trajectory
    for offset in range(1, int(left.max()) + 1):
        i = np.flatnonzero(left >= offset)
        np.add.at(ahead, (i, state[i + offset]), 1)
        chance = trajectory * gamma ** (offset - 1) * np.where(left[i] == offset, 1, 1 - gamma)
        chance = (chance + (anywhere / rows if by_position else 0)) * per_transition / offset
        if chance.any():
            for k in range(offset):
                collector.add(
                    chance, state[i], action[i], state[i + offset], 1, state[i + 1], action[i + 1],
                    state[i + k], action[i + k], state[i + offset] == state[i + k + 1],
                )  # fmt: skip
    _add_goals_elsewhere(collector, log, ahead if by_position else None, mixture, gamma, waypoint, waypoint_draw)
    return collector.draws()


def _add_goals_elsewhere(
    collector: _DrawCollector,
    log: Log,
    ahead: np.ndarray | None,
    mixture: Goals,
    gamma: float,
    source: WaypointSource,
    draw: WaypointDraw,
) -> None:
    """Adds the draws with m = 0, of current and random goals.

    `ahead` says how often each state comes later on the trajectory of each row (N, S), if such goals have m = 1.
    """
    i, states = log.transitions, collector.sizes[0]
    every_state = np.arange(states)
    here, first_rows = i[:, None], ~np.isin(np.arange(len(log.ends)) - 1, i)
    chance = _chance_elsewhere(log, np.ones(len(log.ends), bool), 0 if ahead is None else ahead[i], mixture, states)
    without, from_state, from_goal, from_anywhere = WAYPOINT_SHARES[source]
    of_first = _chance_elsewhere(log, first_rows, 0, mixture, states)  # such goals have no past
    collector.add_m_0(log, without * chance + from_goal * of_first, here, every_state, here)
    if from_state:
        way, k, share = _waypoint_rows(i, log.ends[i], draw, gamma)
        collector.add_m_0(log, from_state * share * chance[way], i[way, None], every_state, k)
    if from_goal:
        starts = np.maximum.accumulate(np.where(first_rows, np.arange(len(log.ends)), 0))
        before = _waypoint_rows(np.arange(len(log.ends)), starts, draw, gamma)
        _add_waypoints_before_goals(collector, log, mixture, ahead is not None, from_goal, before)
    if from_anywhere:
        for k in i:
            collector.add_m_0(log, from_anywhere / len(i) * chance, here, every_state, k)


def _chance_elsewhere(
    log: Log, goal_rows: np.ndarray, ahead: np.ndarray | int, mixture: Goals, states: int
) -> np.ndarray:
    """Returns the probability of each transition with each current or random goal (M, S), at some rows only.

    Random goals do not count where they are `ahead` (M, S) of the transition.
    """
    i = log.transitions
    count = np.tile(np.bincount(log.states[goal_rows], minlength=states), (len(i), 1)) - ahead
    chance = mixture[2] / len(i) / len(log.ends) * count
    chance[np.arange(len(i)), log.states[i]] += mixture[0] / len(i) * goal_rows[i]
    return chance


def _add_waypoints_before_goals(
    collector: _DrawCollector,
    log: Log,
    mixture: Goals,
    by_position: bool,
    share: float,
    before: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """Adds the draws whose waypoint is in the past of a goal; `before` has the waypoints of every row."""
    goal, k, chance_of_k = before
    transitions, rows = len(log.transitions), len(log.ends)
    for row in log.transitions:
        chance = np.full(rows, mixture[2] / transitions / rows)
        if by_position:
            chance[row + 1 : log.ends[row] + 1] = 0
        chance[row] += mixture[0] / transitions
        collector.add_m_0(log, share * chance_of_k * chance[goal, None], row, log.states[goal, None], k)


def _waypoint_rows(
    rows: np.ndarray, farthest: np.ndarray, draw: WaypointDraw, gamma: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the waypoints of rows: the place in `rows`, the waypoint's row and its probability, (W,), (W, 1), (W, 1).

    They lie beyond each row, up to and including the `farthest`.
    """
    count = np.abs(farthest - rows)
    place = np.repeat(np.arange(len(rows)), count)
    steps = 1 + np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
    left = count[place] - steps
    share = {
        "uniform": 1 / count[place],
        "geometric": gamma ** (steps - 1) * np.where(left == 0, 1, 1 - gamma),
        "farthest": (left == 0).astype(float),
    }[draw]
    k = rows[place] + np.sign(farthest - rows)[place] * steps
    return place, k[:, None], share[:, None]


def model_draws(
    process: Process,
    beta: np.ndarray,
    gamma: float,
    mixture: Goals = VALUE_GOALS,
    *,
    rows: np.ndarray | None = None,
    restored: bool = False,
    waypoints: np.ndarray | None = None,
) -> Draws:
    """Returns the sampler's draws from infinitely many, infinitely long trajectories of a behaviour policy.

    Args:
        process: The process.
        beta: The behaviour policy (S, A).
        gamma: The discount, and the parameter of the geometric offsets.
        mixture: Probabilities of (current, trajectory, random) goals.
        rows: How often each state is logged (S,), a distribution; by default uniform.
        restored: Whether s' and a' are drawn from the model independently of the goal, as Proposition 3 assumes. The
            subgoal follows its conditional distribution given s', a' and g in either case.
        waypoints: Where m = 0, the probability of each waypoint (w, a_w), after (s', a'); pairs of state and action are
            numbered s A + a, (S A, S A). By default there are none.
    """
    check_discount(gamma)
    check_behaviour(process, beta)
    states, actions = process.states, process.actions
    rows = np.full(states, 1 / states) if rows is None else np.asarray(rows, float)
    if rows.shape != (states,):
        raise ProcessError(f"rows must have one frequency for each of the {states} states, not shape {rows.shape}.")
    check_distribution("rows", rows)
    if waypoints is not None:
        if waypoints.shape != (states * actions,) * 2:
            raise ProcessError(f"waypoints must have shape {(states * actions,) * 2}, not {waypoints.shape}.")
        check_distribution("waypoints", waypoints)
    current, trajectory, anywhere = _shares(mixture)
    steps, at_once, between = _goals_ahead(process, beta, gamma)
    unreachable = np.zeros_like(at_once, bool)
    if restored:  # condition on the goal instead of drawing it after (s', a')
        total = at_once + between.sum((1, 2))
        share = np.divide(rows, total, out=np.zeros_like(total), where=total > 0)
        at_once, between = at_once * share, between * share[:, None, None]
        unreachable = total == 0
    collector = _DrawCollector(states, actions)
    every_state, every_pair = np.arange(states), np.arange(states * actions)
    for x in np.flatnonzero(rows[:, None] * beta):
        s, a = divmod(int(x), actions)
        y = np.flatnonzero(steps[x])
        chance = rows[s] * beta[s, a] * steps[x, y]
        s_next, a_next = np.divmod(y, actions)
        # --- m = 1: the subgoal is s itself, or a later w ---
        to, by = s_next[:, None], a_next[:, None]
        collector.add(
            trajectory * chance[:, None] * at_once[y], s, a, every_state, 1, to, by, s, a, every_state == to
        )  # fmt: skip
        w, a_w = np.divmod(every_pair[:, None, None], actions)
        collector.add(
            trajectory * chance[:, None, None, None] * between[y], s, a, every_state, 1, to[..., None, None],
            by[..., None, None], w, a_w, np.arange(2)[:, None],
        )  # fmt: skip
        # --- m = 0: random goals, and s itself ---
        random = (anywhere + trajectory * unreachable[y]) * rows  # a given goal that cannot lie ahead has m = 0
        elsewhere = chance[:, None] * (random + current * (every_state == s))  # (Y, S)
        if waypoints is None:
            collector.add(elsewhere, s, a, every_state, 0, to, by, s, a, 0)
            continue
        way = elsewhere[:, :, None] * waypoints[y][:, None]  # (Y, S, X)
        w, a_w = np.divmod(np.where(every_pair // actions == s, x, every_pair), actions)  # s itself is none
        collector.add(way, s, a, every_state[:, None], 0, to[..., None], by[..., None], w, a_w, 0)
    return collector.draws()


def _shares(mixture: Goals) -> Goals:
    if len(mixture) != 3:
        raise ProcessError(f"a goal mixture is (current, trajectory, random), not {mixture}.")
    check_distribution("the shares of a goal mixture", np.asarray(mixture, float))
    return mixture


def _goals_ahead(process: Process, beta: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the distribution of goals and subgoals after (s', a') on an infinite trajectory.

    State-action pairs (s, a) are numbered s A + a; there are X of them.

    The goal comes K steps after s with probability (1 - gamma) gamma^(K - 1); the subgoal is one of the K states before
    it, with probability 1/K each. 1/K is the integral of x^(K - 1) over [0, 1]. Under the integral the two parts of the
    path, k and K - k steps long, are independent: each is a geometric series in gamma x.

    Returns:
        The transition matrix of pairs (X, X); the probability that g is the goal and the subgoal is the state before
        s', (X, S); and that g is the goal and (w, a_w) the subgoal, without and with g directly after it, (X, X, 2, S).
    """
    states, pairs = process.states, process.states * process.actions
    lands = process.dense.reshape(pairs, states)
    steps = (lands[:, :, None] * beta).reshape(pairs, pairs)
    home = np.repeat(np.arange(states), process.actions)  # the state of a pair
    at_once, between = np.zeros((pairs, states)), np.zeros((pairs, pairs, 2, states))
    nodes, shares = np.polynomial.legendre.leggauss(_nodes_needed(gamma))
    for x, share in zip((nodes + 1) / 2, shares / 2, strict=True):
        z = gamma * x
        visits = np.linalg.inv(np.eye(pairs) - z * steps)  # sum of z^k P(pair after k steps)
        goals = visits @ lands  # sum of z^k P(state after k + 1 steps)
        comes_back = np.einsum("sa,sas->s", beta, goals.reshape(states, -1, states))
        right_after = lands * (1 + z * comes_back)
        legs = np.stack([goals - right_after, right_after], 1)
        between += (1 - gamma) * share * z * visits[:, :, None, None] * legs
        at_once += (1 - gamma) * share * z * goals
    at_once[np.arange(pairs), home] += 1 - gamma  # K = 1: the goal is s' itself
    # Impossible draws get probability exactly 0: the inverse leaves rounding errors, each of which would be a draw.
    reaches = np.isfinite(shortest_path(steps > 0, unweighted=True))
    ahead = reaches.astype(float) @ lands > 0
    later = (steps > 0).astype(float) @ (ahead & (home[:, None] != np.arange(states))) > 0
    between *= reaches[:, :, None, None] & np.stack([later, lands > 0], 1)
    at_once *= ahead | (home[:, None] == np.arange(states))
    return steps, at_once, np.maximum(between, 0)


def _nodes_needed(gamma: float) -> int:
    """Returns the number of Gauss-Legendre nodes for a relative error of about 1e-15.

    With n nodes the error is about r^(-2n) if the integrand is analytic within an ellipse of radius r. Here it has a
    double pole at 1 / gamma, and values as large as (1 - gamma)^-2.
    """
    pole = 2 / max(gamma, 0.1) - 1  # with [0, 1] mapped to [-1, 1]
    radius = pole + math.sqrt(pole**2 - 1)
    return math.ceil(math.log(1e15 / (1 - gamma) ** 2) / (2 * math.log(radius)))

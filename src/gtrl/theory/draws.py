"""Every draw of the sampler with its probability: over a log, or over the true model (infinitely many, endless ones).

A draw is a transition (s, a, s') with the action a' logged at s', a goal g, whether g is decomposable (m), and then a
sub-goal w with its action a_w. Equations 5 to 10 need nothing else, but for whether g comes right after w.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.sparse.csgraph import shortest_path

from gtrl.errors import ProcessError, UnknownNameError
from gtrl.tasks import VALUE_GOALS, Goals
from gtrl.theory.process import Log, Process, check_behaviour, check_discount, check_distribution

HELD = 4_000_000  # draws are added up when so many lie about


@dataclass(frozen=True, eq=False)
class Draws:
    """Distinct draws, sorted by the table entry (s, a, g) they are a target for; probabilities need no sum of 1."""

    states: int
    actions: int
    probability: np.ndarray  # (D,)
    s: np.ndarray
    a: np.ndarray
    g: np.ndarray
    m: np.ndarray  # bool
    s_next: np.ndarray
    a_next: np.ndarray
    w: np.ndarray  # s where m = 0
    a_w: np.ndarray
    g_after_w: np.ndarray  # bool: g is the successor of this visit to w

    @cached_property
    def first(self) -> np.ndarray:
        """Where the draws of each entry begin."""
        entry = self._flat
        return np.flatnonzero(np.concatenate([[True], entry[1:] != entry[:-1]]))

    @cached_property
    def entry(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(s, a, g) of each entry that is drawn."""
        return self.s[self.first], self.a[self.first], self.g[self.first]

    @cached_property
    def group(self) -> np.ndarray:
        """Which of these entries each draw belongs to."""
        return np.repeat(np.arange(len(self.first)), np.diff([*self.first, len(self.s)]))

    @property
    def _flat(self) -> np.ndarray:
        return (self.s * self.actions + self.a) * self.states + self.g

    @cached_property
    def drawn(self) -> np.ndarray:
        """(S, A, S): which entries ever receive a target."""
        table = np.zeros((self.states, self.actions, self.states), bool)
        table[self.entry] = True
        return table


class _Tally:
    """Adds up draws that are the same."""

    def __init__(self, states: int, actions: int) -> None:
        self.sizes = (states, actions, states, 2, states, actions, states, actions, 2)
        if np.prod([float(size) for size in self.sizes]) > 2**62:
            raise ProcessError(f"{states} states and {actions} actions are too many to list every draw.")
        self.codes: list[np.ndarray] = []
        self.chances: list[np.ndarray] = []
        self.held = 0

    def add(self, chance: np.ndarray, *parts: np.ndarray | int | bool) -> None:
        """Draws given as (s, a, g, m, s', a', w, a_w, g after w), arrays that broadcast."""
        chance, *arrays = np.broadcast_arrays(chance, *(np.asarray(part, int) for part in parts))
        likely = chance > 0
        self.codes.append(np.ravel_multi_index([array[likely] for array in arrays], self.sizes))
        self.chances.append(chance[likely])
        self.held += int(likely.sum())
        if self.held > HELD:
            self._merge()

    def _merge(self) -> None:
        codes, group = np.unique(np.concatenate(self.codes), return_inverse=True)
        self.codes, self.chances = [codes], [np.bincount(group, np.concatenate(self.chances))]
        self.held = len(codes) // 2  # room for more before the next time

    def draws(self) -> Draws:
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
) -> Draws:
    """The sampler's draws from a log, geometric offsets clipped at the end of a trajectory.

    m is decided by position, as in training: wherever the goal lies ahead on the same trajectory. By "draw", it is 0
    for every goal from the whole log.
    """
    check_discount(gamma)
    log.check(states, actions)
    if decomposable not in ("position", "draw"):
        raise UnknownNameError("reading of m", decomposable, ("position", "draw"))
    current, trajectory, anywhere = _shares(mixture)
    rows, state, action = len(log.ends), log.states, log.actions
    by_position = decomposable == "position"
    left = log.ends - np.arange(rows)
    tally, per_transition = _Tally(states, actions), 1 / len(log.transitions)
    ahead = np.zeros((rows, states))  # how often each state lies ahead
    for offset in range(1, int(left.max()) + 1):
        i = np.flatnonzero(left >= offset)
        np.add.at(ahead, (i, state[i + offset]), 1)
        chance = trajectory * gamma ** (offset - 1) * np.where(left[i] == offset, 1, 1 - gamma)
        chance = (chance + (anywhere / rows if by_position else 0)) * per_transition / offset
        if chance.any():
            for k in range(offset):
                tally.add(
                    chance, state[i], action[i], state[i + offset], 1, state[i + 1], action[i + 1],
                    state[i + k], action[i + k], state[i + offset] == state[i + k + 1],
                )  # fmt: skip
    i = log.transitions
    elsewhere = np.bincount(state, minlength=states) - ahead[i] * by_position
    chance = anywhere * elsewhere / rows * per_transition
    chance[np.arange(len(i)), state[i]] += current * per_transition
    s, a, s_next, a_next = (array[:, None] for array in (state[i], action[i], state[i + 1], action[i + 1]))
    tally.add(chance, s, a, np.arange(states), 0, s_next, a_next, s, a, 0)
    return tally.draws()


def model_draws(
    process: Process,
    beta: np.ndarray,
    gamma: float,
    mixture: Goals = VALUE_GOALS,
    *,
    rows: np.ndarray | None = None,
    restored: bool = False,
) -> Draws:
    """The draws from infinitely many endless trajectories of a behaviour, states logged as often as `rows` says.

    By default all equally often. With `restored` the goal is picked first, and s' and a' come from the model whatever
    it is, as Proposition 3 assumes; the sub-goal follows its law given s', a' and g either way.
    """
    check_discount(gamma)
    check_behaviour(process, beta)
    states, actions = process.states, process.actions
    rows = np.full(states, 1 / states) if rows is None else np.asarray(rows, float)
    if rows.shape != (states,):
        raise ProcessError(
            f"rows must say how often each of the {states} states is logged, not have shape {rows.shape}."
        )
    check_distribution("rows", rows)
    current, trajectory, anywhere = _shares(mixture)
    steps, at_once, between = _goals_ahead(process, beta, gamma)
    unreachable = np.zeros_like(at_once, bool)
    if restored:  # given (s', a'), the goal is not drawn but given
        total = at_once + between.sum((1, 2))
        share = np.divide(rows, total, out=np.zeros_like(total), where=total > 0)
        at_once, between = at_once * share, between * share[:, None, None]
        unreachable = total == 0
    tally = _Tally(states, actions)
    every_state, every_pair = np.arange(states), np.arange(states * actions)
    for x in np.flatnonzero(rows[:, None] * beta):
        s, a = divmod(int(x), actions)
        y = np.flatnonzero(steps[x])
        chance = rows[s] * beta[s, a] * steps[x, y]
        s_next, a_next = np.divmod(y, actions)
        # --- ahead: through s itself, or through a later w ---
        to, by = s_next[:, None], a_next[:, None]
        tally.add(
            trajectory * chance[:, None] * at_once[y], s, a, every_state, 1, to, by, s, a, every_state == to
        )  # fmt: skip
        w, a_w = np.divmod(every_pair[:, None, None], actions)
        tally.add(
            trajectory * chance[:, None, None, None] * between[y], s, a, every_state, 1, to[..., None, None],
            by[..., None, None], w, a_w, np.arange(2)[:, None],
        )  # fmt: skip
        # --- anywhere, and s itself ---
        free = (anywhere + trajectory * unreachable[y]) * rows  # where g is given and cannot lie ahead, m = 0
        tally.add(chance[:, None] * (free + current * (every_state == s)), s, a, every_state, 0, to, by, s, a, 0)
    return tally.draws()


def _shares(mixture: Goals) -> Goals:
    if len(mixture) != 3:
        raise ProcessError(f"a goal mixture is (current, trajectory, random), not {mixture}.")
    check_distribution("the shares of a goal mixture", np.asarray(mixture, float))
    return mixture


def _goals_ahead(process: Process, beta: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What lies ahead of (s', a') on an endless trajectory; pairs (s, a) are numbered s A + a, X of them.

    Returns the chain of pairs (X, X); the chance that g is the goal and the sub-goal is the state before s', (X, S);
    and that g is the goal and (w, a_w) the sub-goal, without and with g right after it, (X, X, 2, S).

    The goal comes K steps after s with probability (1 - gamma) gamma^(K - 1), the sub-goal is one of the K states
    before it. That 1/K is the integral of x^(K - 1) over [0, 1], under which the two legs of the way, k and K - k steps
    long, are independent: each is a geometric series in gamma x.
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
    # What cannot happen is exactly 0: an inverse leaves rounding errors there, and each would be a draw.
    reaches = np.isfinite(shortest_path(steps > 0, unweighted=True))
    ahead = reaches.astype(float) @ lands > 0
    later = (steps > 0).astype(float) @ (ahead & (home[:, None] != np.arange(states))) > 0
    between *= reaches[:, :, None, None] & np.stack([later, lands > 0], 1)
    at_once *= ahead | (home[:, None] == np.arange(states))
    return steps, at_once, np.maximum(between, 0)


def _nodes_needed(gamma: float) -> int:
    """Gauss's rule with n nodes is off by about r^(-2n), if the integrand is analytic within an ellipse of radius r.

    Here that is up to a double pole at 1 / gamma. Enough nodes for 1e-15 beside values as large as (1 - gamma)^-2.
    """
    pole = 2 / max(gamma, 0.1) - 1  # with [0, 1] mapped to [-1, 1]
    radius = pole + math.sqrt(pole**2 - 1)
    return math.ceil(math.log(1e15 / (1 - gamma) ** 2) / (2 * math.log(radius)))

"""Finite processes with known answers: the exact fixed points of the losses of GTRL and TRL, by enumeration.

Written in NumPy from the paper, independently of `gtrl`: every draw (transition, goal, subgoal) is listed with
its probability, and each table entry is the weighted expectile of its targets, found by bisection.
"""

from dataclasses import astuple, dataclass

import numpy as np

GAMMA = 0.99


@dataclass(frozen=True)
class Draw:
    """One outcome of the sampler: state, its successor, goal, subgoal and the one after it, by state index."""

    probability: float
    s: int
    s_next: int
    g: int
    m: bool
    w: int
    w_next: int


def teleporter() -> list[list[int]]:
    """Example 1 of the paper, both outcomes once: s → A → g and s → B → nine more cells → g. States 0, 1, 2..11, 12."""
    return [[0, 1, 12], [0, *range(2, 12), 12]]


def draws(trajectories: list[list[int]], mixture: tuple[float, float, float], gamma: float = GAMMA) -> list[Draw]:
    """All outcomes of drawing a transition, a goal by the mixture (geometric offsets), and a subgoal."""
    rows = [(t, i) for t, trajectory in enumerate(trajectories) for i in range(len(trajectory))]
    transitions = [(t, i) for t, i in rows if i < len(trajectories[t]) - 1]
    result = []
    for t, i in transitions:
        goals = {(t, i): mixture[0]}
        left = len(trajectories[t]) - 1 - i
        for offset in range(1, left + 1):
            chance = gamma ** (offset - 1) * ((1 - gamma) if offset < left else 1.0)
            goals[t, i + offset] = goals.get((t, i + offset), 0.0) + mixture[1] * chance
        for row in rows:
            goals[row] = goals.get(row, 0.0) + mixture[2] / len(rows)
        for (u, j), chance in goals.items():
            m = u == t and j > i
            for k in range(i, j) if m else [i]:
                share = chance / len(transitions) / (j - i if m else 1)
                path = trajectories[t]
                result.append(Draw(share, path[i], path[i + 1], trajectories[u][j], m, path[k], path[k + 1]))
    return [draw for draw in result if draw.probability > 0]


def base_case(q: np.ndarray, same: np.ndarray, following: np.ndarray, gamma: float) -> np.ndarray:
    return np.where(same, 1.0, np.where(following, gamma, q))


def weighted_expectiles(y: np.ndarray, weight: np.ndarray, kappa: np.ndarray, group: np.ndarray) -> np.ndarray:
    """For each group the q with sum of weight · |kappa - 1(q > y)| · (q - y) = 0, where the loss's slope vanishes."""
    low, high = np.zeros(group.max() + 1), np.ones(group.max() + 1)
    for _ in range(50):
        middle = (low + high) / 2
        slope = weight * np.abs(kappa - (middle[group] > y)) * (middle[group] - y)
        too_high = np.bincount(group, slope) > 0
        low, high = np.where(too_high, low, middle), np.where(too_high, middle, high)
    return (low + high) / 2


def fixed_point(
    all_draws: list[Draw],
    states: int,
    *,
    selection: str,
    kappas: tuple[float, float],
    hindsight: bool,
    normalise: bool,
    gamma: float = GAMMA,
    clip: float = 1.0,
) -> np.ndarray:
    """Q(s, g) at which fitting the loss against its own targets changes nothing; NaN where nothing is drawn.

    Starts from 0, as Proposition 3 does. That matters: a state without a transition is never fitted and keeps
    its start, and others bootstrap from it.
    """
    probability, s, s_next, g, m, w, w_next = (
        np.array(column) for column in zip(*map(astuple, all_draws), strict=True)
    )
    pairs, group = np.unique(s * states + g, return_inverse=True)
    kappa = np.where(m, *kappas)
    q = np.zeros((states, states))
    for _ in range(2000):
        y_td = base_case(gamma * q[s_next, g], g == s, g == s_next, gamma)
        y_dc = base_case(q[s, w], w == s, w == s_next, gamma) * base_case(q[w, g], g == w, g == w_next, gamma)
        y = np.where(m, np.maximum(y_dc, y_td) if selection == "max" else y_dc, y_td)
        h = np.ones(len(y))
        if hindsight:
            h[m] = np.clip(q[s, g] / np.maximum(y_td, 1e-12), 1 / (1 + clip), 1 + clip)[m]
        if hindsight and normalise:
            h[m] /= np.average(h[m], weights=probability[m])
        before = q.copy()
        q.flat[pairs] = weighted_expectiles(y, probability * h, kappa, group)
        if np.abs(q - before).max() < 1e-9:
            break
    known = np.full((states, states), np.nan)
    known.flat[pairs] = q.flat[pairs]
    return known


def expectile_of(y: np.ndarray, kappa: float) -> float:
    """The q with sum of |kappa - 1(q > y)| (q - y) = 0: exact, by trying where q falls among the sorted y."""
    y = np.sort(y)
    for below in range(1, len(y)):
        weights = np.where(np.arange(len(y)) < below, 1 - kappa, kappa)
        q = np.average(y, weights=weights)
        if y[below - 1] <= q <= y[below]:
            return float(q)
    return float(y[0])

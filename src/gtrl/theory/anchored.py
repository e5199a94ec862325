"""The operator that fits a table exactly to equation 10's loss, and its fixed points.

One fit replaces every entry by the weighted expectile of the targets that the table itself produces. With other
switches the same operator is TRL's (`transitive_fit`). kappa, h and rho belong to the draw: an entry drawn along a
trajectory and at random is fitted with both.
"""

from dataclasses import dataclass

import numpy as np

from gtrl.errors import ConfigError, ProcessError, UnknownNameError
from gtrl.tasks import HINDSIGHT_CLIP, ONE_STEP_EXPECTILE, SUBGOAL_EXPECTILE
from gtrl.theory.draws import Draws
from gtrl.theory.process import Log, check_discount

SETTLED = 1e-11  # by default, a fixed point is reached when a fit changes no entry by more
MOST_FITS = 20_000
MOST_STEPS = 100
TINY = 1e-300
SELECTIONS, ORDERS, READS = ("max", "dc"), ("after", "before", "never"), ("critic", "target")


@dataclass(frozen=True)
class Anchored:
    """T_A. The fields are GTRL's own; the defaults are the paper's."""

    gamma: float
    kappa: float = SUBGOAL_EXPECTILE  # expectile where m = 1
    kappa_one_step: float = ONE_STEP_EXPECTILE  # expectile where m = 0
    selection: str = "max"  # target where m = 1: the larger of both, or always the composition
    hindsight: bool = True  # weight goals drawn in hindsight, by the table's own ratio
    clip: float = HINDSIGHT_CLIP  # c
    normalise: str = "after"  # mean 1 where m = 1: after clipping (the paper), before
    lambda_: float = 0.0  # distance weight: exponent of rho
    rho_reads: str = "critic"

    def __post_init__(self) -> None:
        check_discount(self.gamma)
        for name in ("kappa", "kappa_one_step"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)} and must lie between 0 and 1.")
        for name, known in (("selection", SELECTIONS), ("normalise", ORDERS), ("rho_reads", READS)):
            if getattr(self, name) not in known:
                raise UnknownNameError(name, str(getattr(self, name)), known)

    def targets(self, q: np.ndarray, d: Draws) -> tuple[np.ndarray, np.ndarray]:
        """y_A and y_TD of every draw, from a table (S, A, S). Equations 5, 6 and 8."""
        y_td = self._base_case(self.gamma * q[d.s_next, d.a_next, d.g], d.g == d.s, d.g == d.s_next)
        first = self._base_case(q[d.s, d.a, d.w], d.w == d.s, d.w == d.s_next)
        second = self._base_case(q[d.w, d.a_w, d.g], d.g == d.w, d.g_after_w)
        y_dc = first * second
        return np.where(d.m, np.maximum(y_dc, y_td) if self.selection == "max" else y_dc, y_td), y_td

    def weights(self, q: np.ndarray, d: Draws, y_a: np.ndarray, y_td: np.ndarray) -> np.ndarray:
        """Probability, h (equation 9) and rho of every draw, multiplied."""
        weight = d.probability
        if self.hindsight and d.m.any():
            low, high = 1 / (1 + self.clip), 1 + self.clip
            ratio = np.where(d.m, q[d.s, d.a, d.g] / np.maximum(y_td, TINY), 0.0)
            if self.normalise == "before":
                ratio = ratio / max(np.average(ratio, weights=weight * d.m), TINY)
            h = np.clip(ratio, low, high)
            if self.normalise == "after":
                h = h / np.average(h, weights=weight * d.m)
            weight = weight * np.where(d.m, h, 1.0)
        if self.lambda_:
            reads = y_a if self.rho_reads == "target" else q[d.s, d.a, d.g]
            weight = weight * (1 + np.log(np.maximum(reads, TINY)) / np.log(self.gamma)) ** -self.lambda_
        return weight

    def __call__(self, q: np.ndarray, d: Draws) -> np.ndarray:
        """The fit to the targets that q produces; entries that are never drawn keep their value."""
        y_a, y_td = self.targets(q, d)
        kappa = np.where(d.m, self.kappa, self.kappa_one_step)  # equation 7
        fitted = q.copy()
        fitted[d.entry] = expectiles(y_a, self.weights(q, d, y_a, y_td), kappa, d, q[d.entry])
        return fitted

    def fixed_point(self, d: Draws, start: np.ndarray | float = 0.0, settled: float = SETTLED) -> np.ndarray:
        """The limit of fit after fit, from 0 as in Proposition 3 or from another table."""
        q = np.broadcast_to(np.asarray(start, float), (d.states, d.actions, d.states)).copy()
        last = np.inf
        for _ in range(MOST_FITS):
            before, q = q, self(q, d)
            last = np.abs(q - before).max()
            if last <= settled:
                return q
        raise ProcessError(f"the fits have not settled after {MOST_FITS}; the last one changed {last:.1e}.")

    def _base_case(self, q: np.ndarray, same: np.ndarray, following: np.ndarray) -> np.ndarray:
        return np.where(same, 1.0, np.where(following, self.gamma, q))


def transitive_fit(gamma: float, kappa: float = SUBGOAL_EXPECTILE) -> Anchored:
    """TRL's loss (equation 5): the composition alone, one expectile, no weights. For goals along the trajectory."""
    return Anchored(gamma, kappa=kappa, kappa_one_step=kappa, selection="dc", hindsight=False)


def expectiles(y: np.ndarray, weight: np.ndarray, kappa: np.ndarray, d: Draws, start: np.ndarray) -> np.ndarray:
    """For each entry the x with sum of weight |kappa - 1(x > y)| (x - y) = 0, where the slope of the loss vanishes.

    That sum is piecewise linear in x and concave for kappa of at least one half, so Newton's steps, from the second on,
    climb to the exact root and are there after a few. They end when none climbs any more, but for rounding.
    """
    x = start
    for _ in range(MOST_STEPS):
        pull = weight * np.abs(kappa - (x[d.group] > y))
        before, x = x, np.add.reduceat(pull * y, d.first) / np.add.reduceat(pull, d.first)
        if np.abs(x - before).max() <= 1e-15:
            break
    return x


def monte_carlo_values(log: Log, states: int, actions: int, gamma: float) -> np.ndarray:
    """What MC converges to: the mean of gamma^(j - i) over the goals drawn along the trajectory; NaN where none is."""
    check_discount(gamma)
    log.check(states, actions)
    total, count = np.zeros((2, states, actions, states))
    rows, left = np.arange(len(log.ends)), log.ends - np.arange(len(log.ends))
    for offset in range(1, int(left.max()) + 1):
        i = rows[left >= offset]
        chance = gamma ** (offset - 1) * np.where(left[i] == offset, 1, 1 - gamma)
        entry = log.states[i], log.actions[i], log.states[i + offset]
        np.add.at(total, entry, chance * gamma**offset)
        np.add.at(count, entry, chance)
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

"""The operator that fits a table exactly to the loss of equation 10, and its fixed points.

One fit replaces every entry by the weighted expectile of the targets that the table itself produces. With other
settings the same operator is that of TRL (`transitive_fit`). kappa, h and rho depend on the draw, not on the entry: an
entry that is drawn both along a trajectory (m = 1) and at random (m = 0) is fitted to both kinds of targets.
"""

from dataclasses import dataclass

import numpy as np

from gtrl.errors import ConfigError, ProcessError, UnknownNameError
from gtrl.tasks import HINDSIGHT_CLIP, ONE_STEP_EXPECTILE, SUBGOAL_EXPECTILE
from gtrl.theory.draws import MIN_POSITIVE, Draws
from gtrl.theory.process import Log, check_discount

CONVERGENCE_TOLERANCE = 1e-11  # default: a fixed point is reached when no entry changes by more than this in a fit
MAX_FITS = 20_000  # until a fixed point is reached
MAX_NEWTON_STEPS = 100  # in the computation of an expectile
SELECTIONS, NORMALISATIONS, RHO_SOURCES = ("max", "dc", "bound"), ("after", "before", "never"), ("critic", "target")
PRODUCTS, RATIOS = ("bound", "target"), ("critic", "densities")


@dataclass(frozen=True)
class Anchored:
    """The operator T_A of Proposition 3. The fields are those of the method GTRL, the defaults the paper's."""

    gamma: float
    kappa: float = SUBGOAL_EXPECTILE  # expectile where m = 1
    kappa_one_step: float = ONE_STEP_EXPECTILE  # expectile where m = 0
    selection: str = "max"  # where m = 1: the larger of both targets, always the composition (dc), or it as a bound
    hindsight: bool = True  # weight goals drawn in hindsight, by the table's own ratio
    clip: float = HINDSIGHT_CLIP  # c
    normalise: str = "after"  # normalise h to mean 1 where m = 1: after clipping (the paper), before, or never
    lambda_: float = 0.0  # distance weight: exponent of rho
    rho_reads: str = "critic"  # compute rho from the table's Q(s, a, g), or from the target
    hindsight_reads: str = "critic"  # compute h from the table, or from the densities of goals in the draws
    waypoint_product: str = "bound"  # the product through a waypoint: a lower bound, or the target where it is larger
    bound_weight: float = 1.0  # of lower bounds, relative to the one-step target

    def __post_init__(self) -> None:
        check_discount(self.gamma)
        for name in ("kappa", "kappa_one_step"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)} and must lie between 0 and 1.")
        for name, known in (
            ("selection", SELECTIONS), ("normalise", NORMALISATIONS), ("rho_reads", RHO_SOURCES),
            ("hindsight_reads", RATIOS), ("waypoint_product", PRODUCTS),
        ):  # fmt: skip
            if getattr(self, name) not in known:
                raise UnknownNameError(name, str(getattr(self, name)), known)

    def one_step(self, q: np.ndarray, d: Draws) -> np.ndarray:
        """Returns y_TD of every draw for a table q (S, A, S). Equation 6."""
        return self._base_case(self.gamma * q[d.s_next, d.a_next, d.g], d.g == d.s, d.g == d.s_next)

    def product(self, q: np.ndarray, d: Draws) -> np.ndarray:
        """Returns Q(s, a, w) Q(w, a_w, g) of every draw, as learned; 0 where w = s.

        There are no base cases for one step: that one state came after another is what happened, not what always does.
        """
        return np.where(d.w == d.s, 0.0, q[d.s, d.a, d.w] * np.where(d.g == d.w, 1.0, q[d.w, d.a_w, d.g]))

    def targets(self, q: np.ndarray, d: Draws) -> tuple[np.ndarray, np.ndarray]:
        """Returns y_A and y_TD of every draw. Equation 8."""
        first = self._base_case(q[d.s, d.a, d.w], d.w == d.s, d.w == d.s_next)
        y_dc = first * self._base_case(q[d.w, d.a_w, d.g], d.g == d.w, d.g_after_w)  # equation 5
        y_td = self.one_step(q, d)
        composed = {"max": np.maximum(y_dc, y_td), "dc": y_dc, "bound": y_td}[self.selection]
        y_a = np.where(d.m, composed, y_td)
        if self.waypoint_product == "target":
            y_a = np.where(d.waypoint, np.maximum(self.product(q, d), y_td), y_a)
        return y_a, y_td

    def weights(self, q: np.ndarray, d: Draws, y_a: np.ndarray, y_td: np.ndarray) -> np.ndarray:
        """Returns the weight of every draw: the product of its probability, h (equation 9) and rho."""
        weight = self.distance_weights(q, d, y_a)
        if self.hindsight and d.m.any():
            low, high = 1 / (1 + self.clip), 1 + self.clip
            by_values = self.hindsight_reads == "critic"
            ratio = q[d.s, d.a, d.g] / np.maximum(y_td, MIN_POSITIVE) if by_values else d.density_ratio
            ratio = np.where(d.m, ratio, 0.0)
            if self.normalise == "before":
                ratio = ratio / max(np.average(ratio, weights=d.probability * d.m), MIN_POSITIVE)
            h = np.clip(ratio, low, high)
            if self.normalise == "after":
                h = h / np.average(h, weights=d.probability * d.m)
            weight = weight * np.where(d.m, h, 1.0)
        return weight

    def distance_weights(self, q: np.ndarray, d: Draws, y_a: np.ndarray) -> np.ndarray:
        """Returns the product of probability and rho of every draw."""
        if not self.lambda_:
            return d.probability
        reads = y_a if self.rho_reads == "target" else q[d.s, d.a, d.g]
        steps = np.log(np.maximum(reads, MIN_POSITIVE)) / np.log(self.gamma)
        return d.probability * (1 + steps) ** -self.lambda_

    def __call__(self, q: np.ndarray, d: Draws) -> np.ndarray:
        """The fit to the targets that q produces; entries that are never drawn keep their value."""
        y_a, y_td = self.targets(q, d)
        kappa = np.where(d.m & (self.selection != "bound"), self.kappa, self.kappa_one_step)  # equation 7
        fitted, weight = q.copy(), self.weights(q, d, y_a, y_td)
        bounded = d.waypoint & (self.waypoint_product == "bound") | d.m & (self.selection == "bound")
        bounds: tuple[np.ndarray, ...] = ()
        if bounded.any():
            pull = self.bound_weight * self.kappa_one_step * self.distance_weights(q, d, y_a)
            bounds = np.where(bounded, self.product(q, d), 0.0), pull
        fitted[d.entry] = expectiles(y_a, weight, kappa, d, q[d.entry], *bounds)
        return fitted

    def fixed_point(
        self, d: Draws, start: np.ndarray | float = 0.0, tolerance: float = CONVERGENCE_TOLERANCE
    ) -> np.ndarray:
        """Returns the limit of repeated fits, from 0 as in Proposition 3 or from another table.

        Raises:
            ProcessError: If it is not reached within `MAX_FITS` fits.
        """
        q = np.broadcast_to(np.asarray(start, float), (d.states, d.actions, d.states)).copy()
        change = np.inf
        for _ in range(MAX_FITS):
            before, q = q, self(q, d)
            change = np.abs(q - before).max()
            if change <= tolerance:
                return q
        raise ProcessError(f"no convergence after {MAX_FITS} fits; the last one changed an entry by {change:.1e}.")

    def _base_case(self, q: np.ndarray, same: np.ndarray, following: np.ndarray) -> np.ndarray:
        """Replaces q by 1 where state and goal are the same, and by gamma where the goal follows the state."""
        return np.where(same, 1.0, np.where(following, self.gamma, q))


def transitive_fit(gamma: float, kappa: float = SUBGOAL_EXPECTILE) -> Anchored:
    """Returns the operator of TRL's loss (equation 5): no one-step target, one expectile, no weights.

    It is defined for goals along the trajectory only.
    """
    return Anchored(gamma, kappa=kappa, kappa_one_step=kappa, selection="dc", hindsight=False)


def expectiles(
    y: np.ndarray,
    weight: np.ndarray,
    kappa: np.ndarray,
    d: Draws,
    start: np.ndarray,
    bound: np.ndarray | None = None,
    bound_weight: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Returns the weighted expectile of each entry; with lower bounds, one for each draw, they pull it up too.

    That is the root x of the sum of weight |kappa - 1(x > y)| (x - y) - bound_weight max(bound - x, 0). The sum is
    increasing, piecewise linear and, for kappa >= 1/2, concave. So Newton's method increases monotonically from its
    second step on and reaches the exact root in a few steps. It stops when x changes by rounding only. The root
    increases with y and with the bounds, and is at least that without bounds.
    """
    x = start
    for _ in range(MAX_NEWTON_STEPS):
        here = x[d.group]
        pull = weight * np.abs(kappa - (here > y))
        total = pull * y
        if bound is not None:
            upwards = np.where(bound > here, bound_weight, 0.0)
            pull, total = pull + upwards, total + upwards * bound
        before, x = x, np.add.reduceat(total, d.first) / np.add.reduceat(pull, d.first)
        if np.abs(x - before).max() <= 1e-15:
            break
    return x


def monte_carlo_values(log: Log, states: int, actions: int, gamma: float) -> np.ndarray:
    """Returns the fixed point of MC: the mean of gamma^(j - i) over goals drawn along trajectories, NaN without any."""
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

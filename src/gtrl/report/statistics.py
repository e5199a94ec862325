"""Statistics over several tasks and few seeds: interquartile mean, probability of improvement, bootstrap intervals.

Scores are given as one array per task with one number per seed. The bootstrap is stratified: it draws seeds with
replacement within each task, so every resample has the tasks of the original. Agarwal et al. 2021.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import trim_mean

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 0  # of the resampling, so that a report is reproducible

Scores = Sequence[np.ndarray]  # one array (seeds,) per task


class Estimate(NamedTuple):
    """A statistic with its bootstrap interval."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: Scores) -> Estimate:
    """Returns the mean of the middle half of all scores: a quarter is cut off at each end."""
    middle = lambda arrays: trim_mean(np.concatenate(arrays, -1), 0.25, axis=-1)  # noqa: E731
    return _bootstrap(scores, middle)


def probability_of_improvement(scores: Scores, others: Scores) -> Estimate:
    """Returns how likely a seed of one method beats a seed of another on the same task, averaged over tasks.

    A tie counts one half. The arrays of both methods are in the same order of tasks.
    """

    def wins(arrays: Sequence[np.ndarray]) -> np.ndarray:
        pairs = zip(arrays[: len(scores)], arrays[len(scores) :], strict=True)
        differences = [ours[..., :, None] - theirs[..., None, :] for ours, theirs in pairs]
        return np.mean([((np.sign(each) + 1) / 2).mean((-2, -1)) for each in differences], axis=0)

    return _bootstrap([*scores, *others], wins)


def _bootstrap(scores: Scores, statistic: Callable[[Sequence[np.ndarray]], np.ndarray]) -> Estimate:
    """The statistic of the scores and its percentile interval; it maps arrays (..., seeds) to an array (...)."""
    rng = np.random.default_rng(SEED)
    drawn = [array[rng.integers(len(array), size=(RESAMPLES, len(array)))] for array in scores]
    low, high = np.quantile(statistic(drawn), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(statistic(scores)), float(low), float(high))


def propagated_deviation(deviations: Sequence[float | None]) -> float | None:
    """Returns the standard deviation of a mean over tasks, √(Σσ²) / n, as in the paper; None if one is missing."""
    known = [deviation for deviation in deviations if deviation is not None]
    if not known or len(known) < len(deviations):
        return None
    return float(np.sqrt(np.square(known).sum()) / len(known))

"""Whether the policy's action raises the critic that the policy is trained to maximise."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Dataset
from gtrl.data.sampling import Batch
from gtrl.evaluation.diagnostics.sections import Section
from gtrl.evaluation.trained import TrainedNets

ROWS = 4096  # rows of the data that are drawn
GOOD_SHARE = 0.6  # share of rows where the policy's action is better, from which the policy counts as improved


class Advantage(NamedTuple):
    """The critic at the policy's action and at the logged one, averaged over rows."""

    chosen: float
    logged: float
    difference: float
    share: float  # of rows where the policy's action has the higher critic value


def advantage(chosen: np.ndarray, logged: np.ndarray) -> Advantage:
    """Compares the critic's values at the policy's actions with those at the logged actions, row by row."""
    return Advantage(
        float(chosen.mean()), float(logged.mean()), float((chosen - logged).mean()), float((chosen > logged).mean())
    )


@partial(jax.jit, static_argnames=("algorithm", "rows"))
def sampled_rows(algorithm: Algorithm, dataset: Dataset, rows: int, key: jax.Array) -> Any:
    """Returns a batch by the method's own sampler, or by the default one if its batches have other fields."""
    batch = algorithm.sample(key, dataset, rows)
    if all(hasattr(batch, name) for name in Batch._fields):
        return batch
    return Algorithm.sample(algorithm, key, dataset, rows)


def policy_section(trained: TrainedNets, seeds: Sequence[int], dataset: Dataset, base_seed: int) -> Section | None:
    """Returns the section; None for methods whose policy maximises no critic."""
    batch = sampled_rows(trained.algorithm, dataset, ROWS, jax.random.key(base_seed))
    s, a, g = map(np.asarray, (batch.observation, batch.action, batch.actor_goal))
    found: dict[int, Advantage] = {}
    for index, seed in enumerate(seeds):
        logged = trained.action_values(index, s, a, g, scaled=True)
        chosen = trained.action_values(index, s, trained.actions(index, s, g, scaled=True), g, scaled=True)
        if logged is None or chosen is None:
            return None
        found[seed] = advantage(chosen, logged)
    return Section(
        "policy",
        f"Policy: the critic at its action and at the logged action, {len(s):,} rows of the data",
        "The critic that the policy maximises (for most methods a logit), at the policy's action and at the logged "
        "action, for goals drawn as in training. A policy that improves on the data raises the critic in most rows.",
        ("seed", "at the policy's action", "at the logged action", "difference", "share higher"),
        [[str(seed), *row] for seed, row in found.items()],
        _finding([row.share for row in found.values()]),
    )


def _finding(shares: Sequence[float]) -> str:
    low, high = 100 * min(shares), 100 * max(shares)
    percent = f"{low:.0f} %" if f"{low:.0f}" == f"{high:.0f}" else f"{low:.0f} to {high:.0f} %"
    verb = "raises" if min(shares) >= GOOD_SHARE else "hardly raises" if min(shares) >= 0.5 else "does not always raise"
    return f"The policy {verb} the critic: its action is better than the logged one in {percent} of the rows."

"""Stops training on non-finite values; warns about implausible ones."""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

TOLERANCE = 0.05  # how far values may leave [0, 1]: an estimate errs
MIN_SPREAD = 1e-3  # the standard deviation of values under which they tell no state from another


@dataclass
class NonFiniteError(Exception):
    """A non-finite loss or parameter: after which step, in which seeds, and what was seen."""

    step: int
    seeds: dict[int, dict[str, Any]]  # by the seed's position

    def message(self, seeds: Sequence[int]) -> str:
        """A clause that names the seeds."""
        if not self.seeds:
            return f"a number was not finite at step {self.step:,}, though it is when that is computed again"
        position, seen = next(iter(self.seeds.items()))
        wrong = seen["metrics_not_finite"] or [f"a number of {name}" for name in seen["state_not_finite"]]
        others = [seeds[other] for other in list(self.seeds)[1:]]
        also = f" (and of {', '.join(map(str, others))})" if others else ""
        return f"{' and '.join(wrong[:2])} of seed {seeds[position]}{also} was not finite at step {self.step:,}"


@jax.jit
def _finite(state: Any) -> jax.Array:
    # Numbers that an optimiser has one of may be infinite on purpose, such as the best loss so far.
    moments = [leaf for leaf in jax.tree.leaves(state.optimizer) if leaf.ndim > 1]
    leaves = jax.tree.leaves((state.nets, state.target, state.sums, moments))
    floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.stack([jnp.isfinite(leaf).reshape(len(leaf), -1).all(1) for leaf in floats]).all(0)


def all_finite(parts: Sequence[Any]) -> bool:
    """Whether every number of these states is finite."""
    return all(bool(_finite(part).all()) for part in parts)


def locate_non_finite(step: int, count: int, advance: Callable[[int], list[Any]]) -> NonFiniteError:
    """What happened within `count` steps from `step`, at whose end something is not finite.

    `advance(k)` trains k of them anew. What is once not finite stays so, in the sums of the metrics if nowhere else.
    """
    bad = 1 + bisect_left(range(1, count), True, key=lambda k: not all_finite(advance(k)))
    seeds: dict[int, dict[str, Any]] = {}
    first = 0
    for before, after in zip(advance(bad - 1), advance(bad), strict=True):
        finite = np.asarray(_finite(after))
        seeds |= {first + int(k): _seen(before, after, int(k)) for k in np.flatnonzero(~finite)}
        first += len(finite)
    return NonFiniteError(step + bad, seeds)


def _seen(before: Any, after: Any, k: int) -> dict[str, Any]:
    """Of one seed: the step's own metrics, what was not finite after it, how large parameters were before."""
    metrics = {name: float(total[k] - before.sums[name][k]) for name, total in after.sums.items()}
    largest = _largest(after, k)
    return {
        "metrics": {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()},
        "metrics_not_finite": sorted(name for name, value in metrics.items() if not math.isfinite(value)),
        "state_not_finite": sorted(name for name, value in largest.items() if not math.isfinite(value)),
        "largest_before": _largest(before, k),
    }


def _largest(state: Any, k: int) -> dict[str, float]:
    """The largest magnitude in each part of a seed's state (nets.critic, target, ...); not finite where one is not."""
    largest: dict[str, float] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state._replace(sums={})):
        if path[0] == jax.tree_util.GetAttrKey("optimizer") and leaf.ndim <= 1:
            continue  # see `_finite`
        depth = 2 if path[0] == jax.tree_util.GetAttrKey("nets") else 1
        name = jax.tree_util.keystr(path[:depth]).replace("['", ".").replace("']", "").strip(".")
        largest[name] = float(np.maximum(largest.get(name, 0.0), np.abs(np.asarray(leaf[k])).max(initial=0)))
    return largest


def doubts(row: dict[str, float]) -> dict[str, str]:
    """What is odd about a seed's values, by kind; `row` has their least, greatest and standard deviation."""
    if "value/least" not in row:
        return {}
    least, greatest, spread = (row[f"value/{name}"] for name in ("least", "greatest", "spread"))
    found = {}
    if not (least >= -TOLERANCE and greatest <= 1 + TOLERANCE):  # so are non-finite values
        found["outside"] = f"values leave [0, 1]: they lie between {least:.3g} and {greatest:.3g}"
    if spread < MIN_SPREAD:
        found["collapsed"] = f"values have collapsed: all lie between {least:.3g} and {greatest:.3g}"
    return found

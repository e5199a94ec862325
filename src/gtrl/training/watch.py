"""Stops training on non-finite values; warns about implausible ones."""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

VALUE_TOLERANCE = 0.05  # estimates may leave [0, 1] by this much without a warning
MIN_VALUE_SPREAD = 1e-3  # standard deviation below which values do not distinguish states


@dataclass
class NonFiniteError(Exception):
    """A loss or a parameter is not finite: after which step, in which seeds, and the metrics and magnitudes there."""

    step: int
    seeds: dict[int, dict[str, Any]]  # the report of each affected seed, by its position

    def message(self, seeds: Sequence[int]) -> str:
        """Returns the clause of an error message that names what was not finite, the seeds and the step."""
        if not self.seeds:
            return f"a value was not finite at step {self.step:,}, but was finite when the step was computed again"
        position, report = next(iter(self.seeds.items()))
        names = report["metrics_not_finite"] or [f"a value in {name}" for name in report["state_not_finite"]]
        others = [seeds[other] for other in list(self.seeds)[1:]]
        also = f" (and of {', '.join(map(str, others))})" if others else ""
        return f"{' and '.join(names[:2])} of seed {seeds[position]}{also} was not finite at step {self.step:,}"


@jax.jit
def _finite(state: Any) -> jax.Array:
    """Whether all values of each seed are finite."""
    # An optimiser's scalars may be infinite on purpose, such as the best loss so far.
    moments = [leaf for leaf in jax.tree.leaves(state.optimizer) if leaf.ndim > 1]
    leaves = jax.tree.leaves((state.nets, state.target, state.sums, moments))
    floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.stack([jnp.isfinite(leaf).reshape(len(leaf), -1).all(1) for leaf in floats]).all(0)


def all_finite(parts: Sequence[Any]) -> bool:
    """Whether all values of these states are finite, except scalars of the optimiser."""
    return all(bool(_finite(part).all()) for part in parts)


def locate_non_finite(step: int, count: int, advance: Callable[[int], list[Any]]) -> NonFiniteError:
    """Finds the first of `count` steps after `step` with a non-finite value, by bisection; returns the error to raise.

    `advance(k)` takes k steps again. A value that is not finite makes those of all later steps non-finite, at least in
    the sums of the metrics, so bisection is valid.
    """
    first_bad = 1 + bisect_left(range(1, count), True, key=lambda k: not all_finite(advance(k)))
    seeds: dict[int, dict[str, Any]] = {}
    offset = 0  # position of the part's first seed
    for before, after in zip(advance(first_bad - 1), advance(first_bad), strict=True):
        finite = np.asarray(_finite(after))
        seeds |= {offset + int(k): _seed_report(before, after, int(k)) for k in np.flatnonzero(~finite)}
        offset += len(finite)
    return NonFiniteError(step + first_bad, seeds)


def _seed_report(before: Any, after: Any, k: int) -> dict[str, Any]:
    """For the seed at position k of a part: the step's metrics, what is not finite, and magnitudes before the step."""
    metrics = {name: float(total[k] - before.sums[name][k]) for name, total in after.sums.items()}
    largest = _largest(after, k)
    return {
        "metrics": {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()},
        "metrics_not_finite": sorted(name for name, value in metrics.items() if not math.isfinite(value)),
        "state_not_finite": sorted(name for name, value in largest.items() if not math.isfinite(value)),
        "largest_before": _largest(before, k),
    }


def _largest(state: Any, k: int) -> dict[str, float]:
    """The maximum absolute value in each part of a seed's state (nets.critic, target, ...); NaN if one is NaN."""
    largest: dict[str, float] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state._replace(sums={})):
        if path[0] == jax.tree_util.GetAttrKey("optimizer") and leaf.ndim <= 1:
            continue  # see `_finite`
        depth = 2 if path[0] == jax.tree_util.GetAttrKey("nets") else 1
        name = jax.tree_util.keystr(path[:depth]).replace("['", ".").replace("']", "").strip(".")
        largest[name] = float(np.maximum(largest.get(name, 0.0), np.abs(np.asarray(leaf[k])).max(initial=0)))
    return largest


def value_warnings(row: dict[str, float]) -> dict[str, str]:
    """Returns warnings about implausible values of a seed, by kind; `row` is the seed's row of the log."""
    if "value/least" not in row:
        return {}
    minimum, maximum, spread = (row[f"value/{name}"] for name in ("least", "greatest", "spread"))
    warnings = {}
    in_range = minimum >= -VALUE_TOLERANCE and maximum <= 1 + VALUE_TOLERANCE  # False if one is NaN
    if not in_range:
        warnings["outside"] = f"values leave [0, 1]: they lie between {minimum:.3g} and {maximum:.3g}"
    if spread < MIN_VALUE_SPREAD:
        warnings["collapsed"] = f"values have collapsed: all lie between {minimum:.3g} and {maximum:.3g}"
    return warnings

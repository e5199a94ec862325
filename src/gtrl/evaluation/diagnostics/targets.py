"""The targets of GTRL: how often the one-step target won, and the hindsight weight at teleporters."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from gtrl.algorithms import objectives as o
from gtrl.algorithms.gtrl import GTRL
from gtrl.data.dataset import Dataset
from gtrl.envs.maze import Maze
from gtrl.errors import RunError
from gtrl.evaluation.diagnostics.policy import ROWS, sampled_rows
from gtrl.evaluation.diagnostics.sections import Section, finite
from gtrl.evaluation.trained import TrainedNets
from gtrl.io.scaling import Scaling
from gtrl.nn.networks import ActorCriticDensities
from gtrl.runs import checkpoints

TARGET_METRICS = ("td_selected", "y_dc", "y_td", "decomposable")  # columns, as far as the method logs them
CLIP_TOLERANCE = 1e-5  # relative, of numbers that count as clipped


# --- which target won ---


def over_training(metrics: Iterable[dict[str, Any]], step: int) -> dict[int, dict[str, float]]:
    """Returns the target metrics at the first, middle and last logged step up to `step`, averaged over seeds.

    Raises `RunError` for rows without a step and for target metrics that are not numbers.
    """
    rows = [_checked(row) for row in metrics if "td_selected" in row]
    rows = [row for row in rows if row["step"] <= step]
    steps = sorted({row["step"] for row in rows})
    chosen = dict.fromkeys((steps[0], steps[len(steps) // 2], steps[-1])) if steps else {}
    names = [name for name in TARGET_METRICS if rows and all(name in row for row in rows)]
    return {
        step: {name: float(np.mean([row[name] for row in rows if row["step"] == step])) for name in names}
        for step in chosen
    }


def _checked(row: dict[str, Any]) -> dict[str, Any]:
    """The step and the target metrics of a row."""
    if not isinstance(row.get("step"), int):
        raise RunError(f"metrics.jsonl is damaged: the 'step' of a row is {row.get('step')!r:.40}.")
    found = {name: row[name] for name in ("step", *TARGET_METRICS) if name in row}
    for name, value in found.items():
        if finite(value) is None:
            raise RunError(f"metrics.jsonl is damaged: '{name}' of a row is {value!r:.40}.")
    return found


def targets_section(metrics: Iterable[dict[str, Any]], step: int) -> Section | None:
    """Returns the section; None for methods that do not log `td_selected`."""
    found = over_training(metrics, step)
    if not found:
        return None
    names = list(next(iter(found.values())))
    titles = {"td_selected": "one-step target won", "decomposable": "rows with m = 1"}
    shares = [row["td_selected"] for row in found.values()]
    change = f"{100 * shares[-1]:.0f} %"
    if len(shares) > 1:
        change += f" of the rows with m = 1 at the end, {100 * shares[0]:.0f} % at the first log"
    else:
        change += " of the rows with m = 1"
    return Section(
        "targets",
        "Targets: share of rows with m = 1 where the one-step target y_TD exceeds the composition y_DC",
        "Where the goal is ahead on the trajectory (m = 1), GTRL takes the larger of the composed and the one-step "
        "target, unless its field `selection` says otherwise. A share near 0 means that composition decides "
        "everything. Means since the previous log and over seeds.",
        ("step", *(titles.get(name, name) for name in names)),
        [[f"{step:,}", *row.values()] for step, row in found.items()],
        f"The one-step target won in {change}.",
    )


# --- the hindsight weight at teleporters ---


class Spread(NamedTuple):
    """The distribution of the hindsight weight over some rows."""

    rows: int
    mean: float
    deviation: float
    clipped: float  # share of rows at either end of the clip


def spread(h: np.ndarray, clip: float) -> Spread:
    """Returns the distribution of weights h (ensemble, rows) that were clipped to [1/(1+c), 1+c]."""
    low, high = 1 / (1 + clip), 1 + clip
    at_end = np.isclose(h, low, rtol=CLIP_TOLERANCE) | np.isclose(h, high, rtol=CLIP_TOLERANCE)
    return Spread(h.shape[-1], float(h.mean()), float(h.std()), float(at_end.mean()))


def teleport_transitions(dataset: Dataset, maze: Maze, scaling: Scaling | None = None) -> np.ndarray:
    """Returns which of the dataset's transitions jump by more than a cell: those that leave a teleporter.

    OGBench moves the agent after it has taken the step's observation. So the row at which the agent was captured still
    shows the entrance, and its successor is the first to show the exit. That transition is the random one: its state
    is the same for every exit, its successor is not. The step into the teleporter is not random in the observations.
    """
    rows = np.asarray(dataset.transitions)
    observations = np.asarray(dataset.observations)
    positions = (scaling.raw_observation(observations) if scaling else observations)[:, :2]
    return np.abs(positions[rows + 1] - positions[rows]).max(1) > maze.unit


@partial(jax.jit, static_argnames="algorithm")
def _ratio(algorithm: GTRL, nets: Any, target: Any, batch: Any) -> jax.Array:
    if isinstance(nets, ActorCriticDensities):
        transition = batch.observation, batch.action, batch.next_observation
        log_ratio = nets.densities.log_ratio(*transition, batch.value_goal)
        return o.density_ratio(log_ratio, algorithm.hindsight_clip)[None]
    following = jax.nn.sigmoid(target(batch.next_observation, batch.next_action, batch.value_goal))
    current = jax.nn.sigmoid(target(batch.observation, batch.action, batch.value_goal))
    return o.hindsight_ratio(current, o.one_step(following, batch, algorithm.gamma), algorithm.hindsight_clip)


def hindsight_weights(algorithm: GTRL, nets: Any, target: Any, batch: Any) -> np.ndarray:
    """Returns the weight h before normalisation for the rows with m = 1, (ensemble, rows).

    That is equation 9, or the ratio of densities, of which there is no ensemble.
    """
    return np.asarray(_ratio(algorithm, nets, target, batch))[:, np.asarray(batch.decomposable)]


def hindsight_section(
    trained: TrainedNets, seeds: Sequence[int], dataset: Dataset, maze: Maze, base_seed: int
) -> Section | None:
    """Returns the section; None unless the method is GTRL with hindsight weights and the data has teleports."""
    algorithm = trained.algorithm
    if not isinstance(algorithm, GTRL) or not algorithm.hindsight:
        return None
    jumps = teleport_transitions(dataset, maze, trained.scaling)
    if not jumps.any():
        return None
    targets = target_networks(trained)
    groups = {}
    for label, mask in (("leaves a teleporter", jumps), ("all others", ~jumps)):
        # The sampler draws its rows from `transitions`, and goals from all rows. Repeated to the same length for both
        # groups, they need no second compilation.
        rows = np.resize(np.asarray(dataset.transitions)[mask], len(mask))
        batch = sampled_rows(algorithm, dataset._replace(transitions=rows), ROWS, jax.random.key(base_seed))
        by_seed = []
        for index in range(len(seeds)):
            nets, target = jax.tree.map(lambda leaf, index=index: leaf[index], (trained.nets, targets))
            by_seed.append(hindsight_weights(algorithm, nets, target, batch))
        if not by_seed[0].size:  # no goal was drawn ahead on the trajectory
            return None
        groups[label] = mask.sum(), spread_over_seeds(by_seed, algorithm.hindsight_clip)
    low, high = 1 / (1 + algorithm.hindsight_clip), 1 + algorithm.hindsight_clip
    return Section(
        "hindsight",
        f"Hindsight weight h where m = 1, before normalisation, clipped to [{low:.2g}, {high:.2g}]",
        "The weight h at transitions that leave a teleporter (their state is at the entrance, their successor at a "
        "random exit) and at all others. Only the former carry luck: there h should differ from 1, elsewhere it should "
        "be near 1.",
        ("transition", "in the data", "sampled", "mean h", "deviation", "share clipped"),
        [[label, count, *found] for label, (count, found) in groups.items()],
        _hindsight_finding(*(found.deviation for _, found in groups.values())),
    )


def spread_over_seeds(by_seed: Sequence[np.ndarray], clip: float) -> Spread:
    """Returns the distribution of weights averaged over seeds."""
    found = [spread(h, clip) for h in by_seed]
    return Spread(found[0].rows, *(float(np.mean(numbers)) for numbers in list(zip(*found, strict=True))[1:]))


def _hindsight_finding(at_teleporters: float, elsewhere: float) -> str:
    ratio = at_teleporters / max(elsewhere, 1e-9)
    numbers = f"standard deviation {at_teleporters:.2f} against {elsewhere:.2f}"
    if ratio > 1.5:
        return f"h reacts to luck: it varies {ratio:.1f} times as much at teleporters as elsewhere ({numbers})."
    return f"h hardly tells luck apart: it varies about as much elsewhere as at teleporters ({numbers})."


def target_networks(trained: TrainedNets) -> Any:
    """Returns the target networks at the checkpoint, with an axis of seeds."""
    like = jax.eval_shape(jax.vmap(trained.algorithm.targets), trained.nets)
    return checkpoints.restore(trained.run.checkpoints, trained.step, like, part="target")

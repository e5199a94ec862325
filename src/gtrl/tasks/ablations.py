"""The paper's ablations of GTRL: which fields each one changes, and the drops in success that the paper states."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Drop:
    """A drop in success, in percentage points, that the paper states for an ablation."""

    points: float
    where: str  # a task, or a group of tasks in words
    task: str | None = None  # the task, if the paper names it


@dataclass(frozen=True)
class Ablation:
    """A variant of GTRL without one of its components."""

    name: str  # of the run's folder
    title: str
    component: str  # which component is removed or changed
    fields: Mapping[str, Any] = field(hash=False)  # the fields of GTRL that differ
    drops: tuple[Drop, ...] = ()  # empty where the paper states no number


ABLATIONS: tuple[Ablation, ...] = (
    # Goals of the state's own trajectory alone, with the composition as the only target: section 5.3.
    Ablation(
        "gtrl-no-counterfactual",
        "no counterfactual goals",
        "counterfactual goals",
        {"value_goals": (0.0, 1.0, 0.0), "selection": "dc"},
        (Drop(60.6, "largest on deterministic tasks"), Drop(20.1, "largest on stochastic tasks")),
    ),
    Ablation("gtrl-dc", "composition only where m = 1", "target selection", {"selection": "dc"}),
    Ablation("gtrl-no-hindsight", "h = 1", "hindsight weighting", {"hindsight": False}),
    # Appendix D.
    Ablation(
        "gtrl-one-expectile",
        "κ = 0.7 for all goals",
        "split expectile",
        {"kappa_one_step": 0.7},
        (
            Drop(40.2, "humanoidmaze-large-navigate", "humanoidmaze-large-navigate"),
            Drop(25.3, "antmaze-large-navigate", "antmaze-large-navigate"),
            Drop(9.0, "a stochastic task"),
            Drop(8.6, "another stochastic task"),
        ),
    ),
    # The paper names this ablation without values or results. GTRL itself has 0.5.
    Ablation(
        "gtrl-random-25", "25 % random goals", "goal sampling probability", {"value_goals": (0.0, 0.75, 0.25)}
    ),
    Ablation(
        "gtrl-random-75", "75 % random goals", "goal sampling probability", {"value_goals": (0.0, 0.25, 0.75)}
    ),
)  # fmt: skip

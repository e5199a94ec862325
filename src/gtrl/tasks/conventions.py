"""Conventions of public code that differ from the paper's text: which fields of GTRL each one changes.

The source of all of them is the authors' earlier public code, Anchored TRL (the method's name before). Its lambda and
alpha are those of the paper. `gtrl sweep conventions` tries them one at a time; the preset `authors` has them all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Convention:
    """One choice of the authors' earlier public code where the paper's text says something else, or nothing."""

    name: str  # of the run's folder
    fields: Mapping[str, Any] = field(hash=False)  # the fields of GTRL that differ from its defaults


CONVENTIONS: tuple[Convention, ...] = (
    Convention("gtrl-rho-target", {"rho_reads": "target"}),
    Convention("gtrl-goals-70-30", {"value_goals": (0.0, 0.7, 0.3)}),
    Convention("gtrl-target-previous", {"target_from": "previous"}),
    Convention("gtrl-hindsight-next", {"hindsight_divisor": "next"}),
    Convention("gtrl-no-last-bootstrap", {"bootstrap_from_last": False}),
    Convention("gtrl-no-last-goals", {"random_last_rows": False}),
)
AUTHORS: Mapping[str, Any] = {name: value for each in CONVENTIONS for name, value in each.fields.items()}

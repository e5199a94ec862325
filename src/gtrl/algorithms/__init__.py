"""The methods: one file each. `make` gives one with its defaults for a task."""

from typing import Any

from gtrl.algorithms.base import Algorithm
from gtrl.algorithms.bc import BC
from gtrl.algorithms.gtrl import GTRL
from gtrl.algorithms.trl import TRL
from gtrl.errors import UnknownNameError
from gtrl.tasks import Task, defaults

ALGORITHMS: dict[str, type[Algorithm]] = {kind.name: kind for kind in (GTRL, TRL, BC)}

__all__ = ["ALGORITHMS", "BC", "GTRL", "TRL", "Algorithm", "find_algorithm", "make"]


def find_algorithm(name: str) -> type[Algorithm]:
    if name not in ALGORITHMS:
        raise UnknownNameError("method", name, ALGORITHMS)
    return ALGORITHMS[name]


def make(name: str, task: Task | None = None, **fields: Any) -> Algorithm:
    """A method with its defaults for a task, and `fields` on top."""
    kind = find_algorithm(name)
    return kind(**((defaults(kind.name, task) if task else {}) | fields))

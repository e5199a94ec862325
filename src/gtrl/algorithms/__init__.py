"""The methods: one file each. `make` gives one with its defaults for a task."""

from importlib import import_module
from typing import Any

from gtrl.algorithms.base import Algorithm
from gtrl.errors import UnknownNameError
from gtrl.tasks import Task, defaults

# One line for each method: its file and its class there, in the order they are shown.
METHODS = (
    "gtrl.GTRL",
    "trl.TRL",
    "bc.BC",
    "fbc.FBC",
    "ivl.IVL",
    "iql.IQL",
    "td.TD",
    "td.TDn",
    "crl.CRL",
    "mc.MC",
    "qrl.QRL",
    "tdp.TDP",
    "coe.COE",
)


def _load(place: str) -> type[Algorithm]:
    module, kind = place.split(".")
    return getattr(import_module(f"{__name__}.{module}"), kind)


ALGORITHMS: dict[str, type[Algorithm]] = {kind.name: kind for kind in map(_load, METHODS)}


def find_algorithm(name: str) -> type[Algorithm]:
    if name not in ALGORITHMS:
        raise UnknownNameError("method", name, ALGORITHMS)
    return ALGORITHMS[name]


def make(name: str, task: Task | None = None, **fields: Any) -> Algorithm:
    """A method with its defaults for a task, and `fields` on top."""
    kind = find_algorithm(name)
    return kind(**((defaults(kind.name, task) if task else {}) | fields))

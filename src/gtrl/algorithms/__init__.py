"""The methods: one file each. `make` gives one with its defaults for a task."""

from typing import Any

from gtrl.algorithms.base import Algorithm
from gtrl.registry import Registry
from gtrl.tasks import Task, find_task

# Where each of ours is, in the order they are shown.
_OWN = {
    "gtrl": "gtrl:GTRL",
    "trl": "trl:TRL",
    "bc": "bc:BC",
    "fbc": "fbc:FBC",
    "ivl": "ivl:IVL",
    "iql": "iql:IQL",
    "td": "td:TD",
    "td-n": "td:TDn",
    "crl": "crl:CRL",
    "mc": "mc:MC",
    "qrl": "qrl:QRL",
    "tdp": "tdp:TDP",
    "coe": "coe:COE",
}


def _is_method(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Algorithm) and "name" in vars(thing)


ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "method", "gtrl.methods", _is_method, {name: f"{__name__}.{place}" for name, place in _OWN.items()}
)


def find_algorithm(name: str) -> type[Algorithm]:
    """The method of that name, or at `module:Name`."""
    return ALGORITHMS.find(name)


def make(name: str, task: str | Task | None = None, **fields: Any) -> Algorithm:
    """A method with its defaults for a task, and `fields` on top."""
    kind = find_algorithm(name)
    task = find_task(task) if isinstance(task, str) else task
    return kind(**((kind.defaults(task) if task else {}) | fields))

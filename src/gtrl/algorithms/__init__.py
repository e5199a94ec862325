"""The methods: one file each. `make` gives one with its defaults for a task."""

import dataclasses
from typing import Any

from gtrl.algorithms.base import Algorithm
from gtrl.errors import ConfigError
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


def make(method: str | type[Algorithm], task: str | Task | None = None, **fields: Any) -> Algorithm:
    """A method with its defaults for a task, and `fields` on top. Both may be given by name, or as `module:Name`."""
    kind = find_algorithm(method) if isinstance(method, str) else method
    task = find_task(task) if isinstance(task, str) else task
    known = [field.name for field in dataclasses.fields(kind)]
    for name in fields:
        if name not in known:
            raise ConfigError(f"there is no field '{name}': {kind.title} has {', '.join(known)}.")
    return kind(**((defaults_for(kind, task) if task else {}) | fields))


def defaults_for(kind: type[Algorithm], task: Task) -> dict[str, Any]:
    """A method's defaults for a task, none of which may have a name that no method knows."""
    methods = [kind, *(found for name, found in ALGORITHMS.items() if name in _OWN)]
    known = {field.name for method in methods for field in dataclasses.fields(method)}
    unknown = sorted(set(task.defaults) - known)
    if unknown:
        raise ConfigError(f"the task {task.name} has a default for '{unknown[0]}', which is no method's field.")
    return kind.defaults(task)

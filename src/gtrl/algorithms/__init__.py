"""The methods, one file per method. `make` returns one with its defaults for a task."""

import dataclasses
from typing import Any

from gtrl.algorithms.base import Algorithm
from gtrl.errors import ConfigError
from gtrl.registry import Registry
from gtrl.tasks import Task, find_task

# The class of each built-in method, by name, in the order in which they are listed.
_BUILT_IN = {
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
    "method", "gtrl.methods", _is_method, {name: f"{__name__}.{reference}" for name, reference in _BUILT_IN.items()}
)


def find_algorithm(name: str) -> type[Algorithm]:
    """Returns the class of a method, given its name or `module:Name`."""
    return ALGORITHMS.find(name)


def make(
    method: str | type[Algorithm], task: str | Task | None = None, *, preset: str | None = None, **fields: Any
) -> Algorithm:
    """Returns a method with its defaults for a task, overridden by those of a preset, then by `fields`.

    Method and task may be given by name, as `module:Name`, or as objects. `preset` is a key of the method's `presets`.
    Raises `ConfigError` for unknown fields, and for fields without an effect.
    """
    kind = find_algorithm(method) if isinstance(method, str) else method
    task = find_task(task) if isinstance(task, str) else task
    known = [field.name for field in dataclasses.fields(kind)]
    for name in fields:
        if name not in known:
            raise ConfigError(f"there is no field '{name}': {kind.title} has {', '.join(known)}.")
    made = kind(**((defaults_for(kind, task) if task else {}) | preset_fields(kind, preset) | fields))
    for name, reason in made.without_effect():
        value = getattr(made, name)
        if name in fields and value != getattr(kind, name):
            raise ConfigError(f"{name} is {value!r}, which has no effect {reason}.")
    return made


def preset_fields(kind: type[Algorithm], preset: str | None) -> dict[str, Any]:
    """Returns the fields of a method's preset, none for None. Raises `ConfigError` if the method has no such preset."""
    if preset is None:
        return {}
    if preset not in kind.presets:
        known = f"its presets are {', '.join(kind.presets)}" if kind.presets else "it has no presets"
        raise ConfigError(f"{kind.title} has no preset '{preset}': {known}.")
    return dict(kind.presets[preset])


def defaults_for(kind: type[Algorithm], task: Task) -> dict[str, Any]:
    """Returns a method's defaults for a task.

    Raises `ConfigError` if the task has a default that is a field neither of this method nor of a built-in one.
    """
    methods = [kind, *map(find_algorithm, _BUILT_IN)]
    known = {field.name for method in methods for field in dataclasses.fields(method)}
    unknown = sorted(set(task.defaults) - known)
    if unknown:
        raise ConfigError(f"the task {task.name} has a default for '{unknown[0]}', which is no method's field.")
    return kind.defaults(task)

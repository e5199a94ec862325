"""The plan of a sweep: which runs, from a YAML file, flags or a preset."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from gtrl.errors import ConfigError, UnknownNameError
from gtrl.report.paper import STANDARD, TELEPORT_AND_STITCH
from gtrl.runs.run import is_folder_name
from gtrl.sweeps.values import convert
from gtrl.tasks import EPISODES_PER_GOAL, SEEDS, TASKS
from gtrl.tasks.ablations import ABLATIONS
from gtrl.tasks.beyond import BEYOND
from gtrl.tasks.conventions import AUTHORS, CONVENTIONS

KEYS = ("tasks", "methods", "seeds", "steps", "episodes", "fields", "variants", "grid", "data")  # of a sweep file
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Variant:
    """A method with fields that differ from its defaults. Without such fields it is the method itself."""

    name: str  # of the run's folder
    method: str  # its name, or my_module:MyMethod
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Group:
    """Tasks and the variants that run on each of them."""

    tasks: tuple[str, ...]
    variants: tuple[Variant, ...]
    any_task: bool = False  # other tasks than these may be chosen


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep."""

    task: str  # its name, or my_module:TASK
    variant: Variant
    seeds: tuple[int, ...]
    episodes: int
    fields: Mapping[str, Any] = field(hash=False)  # those of the sweep and of the variant
    data: Path | None = None  # None for the task's file in the cache


@dataclass(frozen=True)
class Sweep:
    """A grid of runs. All seeds of a run are trained together, in one program.

    Attributes:
        groups: The tasks and what runs on them.
        seeds: The seeds of every run.
        episodes: Episodes per goal in evaluations.
        fields: Fields of the method or of training, for every run.
        data: Dataset files by task; by default they are found in the cache, downloaded or collected.
    """

    groups: tuple[Group, ...]
    seeds: tuple[int, ...] = SEEDS
    episodes: int = EPISODES_PER_GOAL
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    data: Mapping[str, Path] = field(default_factory=dict, hash=False)

    def runs(self) -> list[PlannedRun]:
        """Returns the runs, task by task; a run that is in several groups occurs once."""
        found: dict[tuple[str, str], PlannedRun] = {}
        for group in self.groups:
            for task, variant in product(group.tasks, group.variants):
                fields = {**self.fields, **variant.fields}
                run = PlannedRun(task, variant, self.seeds, self.episodes, fields, self.data.get(task))
                known = found.setdefault((task, variant.name), run)
                if known != run:
                    raise ConfigError(f"two runs of {task} are named '{variant.name}'; choose another name for one.")
        return sorted(found.values(), key=lambda run: list(dict.fromkeys(task for task, _ in found)).index(run.task))

    def narrowed(self, tasks: Sequence[str] | None, methods: Sequence[str] | None) -> "Sweep":
        """Returns the part of the sweep with these tasks and with these methods or variants, by name.

        A method that is no run's name, as in a grid, stands for all of its variants.
        """
        variants = [variant for group in self.groups for variant in group.variants]
        names = list(dict.fromkeys([*(each.name for each in variants), *(each.method for each in variants)]))
        if not any(group.any_task for group in self.groups):
            _check_names("task", tasks, list(dict.fromkeys(task for group in self.groups for task in group.tasks)))
        _check_names("method", methods, names)
        if methods is not None:
            unnamed = set(methods) - {variant.name for variant in variants}
            methods = [each.name for each in variants if each.name in methods or each.method in unnamed]
        groups = [_narrowed(group, tasks, methods) for group in self.groups]
        kept = tuple(group for group in groups if group.tasks and group.variants)
        if not kept:
            raise ConfigError("no run of this sweep has these tasks and these methods.")
        chosen_tasks = {task for group in kept for task in group.tasks}
        return replace(self, groups=kept, data={task: path for task, path in self.data.items() if task in chosen_tasks})


def _check_names(kind: str, chosen: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in chosen or ():
        if name not in known:
            raise UnknownNameError(f"{kind} of this sweep", name, known)


def _narrowed(group: Group, tasks: Sequence[str] | None, methods: Sequence[str] | None) -> Group:
    if tasks is not None:
        kept = tuple(tasks) if group.any_task else tuple(task for task in group.tasks if task in tasks)
        group = replace(group, tasks=kept)
    if methods is not None:
        group = replace(group, variants=tuple(variant for variant in group.variants if variant.name in methods))
    return group


# --- presets ---


def _methods(names: Iterable[str]) -> tuple[Variant, ...]:
    return tuple(Variant(name, name) for name in names)


_TABLE1 = Group(
    tuple(name for name, task in TASKS.items() if task.group != "deterministic"), _methods(TELEPORT_AND_STITCH)
)
_TABLE2 = Group(tuple(name for name, task in TASKS.items() if task.group == "deterministic"), _methods(STANDARD))
_ABLATIONS = Group(
    tuple(TASKS),
    (Variant("gtrl", "gtrl"), *(Variant(each.name, "gtrl", each.fields) for each in ABLATIONS)),
    any_task=True,
)
# The authors' earlier public code against the paper's text on two stitch tasks, one change at a time and all together.
_CONVENTIONS = Group(
    ("pointmaze-large-stitch", "pointmaze-teleport-stitch"),
    (
        Variant("gtrl", "gtrl"),
        *(Variant(each.name, "gtrl", each.fields) for each in CONVENTIONS),
        Variant("gtrl-authors", "gtrl", AUTHORS),
    ),
    any_task=True,
)
# Waypoints, lower bounds and densities where they matter: short trajectories, teleporters, both.
_BEYOND = Group(
    ("pointmaze-large-stitch", "pointmaze-teleport-stitch", "pointmaze-teleport-navigate"),
    (Variant("gtrl", "gtrl"), *(Variant(name, "gtrl", fields) for name, fields in BEYOND.items())),
    any_task=True,
)
PRESETS = {
    "table1": Sweep((_TABLE1,)),  # the paper's table of teleport and stitch tasks
    "table2": Sweep((_TABLE2,)),  # the paper's table of standard tasks
    "ablations": Sweep((_ABLATIONS,)),
    "paper": Sweep((_TABLE1, _TABLE2, _ABLATIONS)),
    # Enough steps to tell the variants apart; the better ones then get the full protocol.
    "conventions": Sweep((_CONVENTIONS,), seeds=(0, 1), fields={"steps": 300_000, "checkpoint_every": 100_000}),
    "beyond": Sweep((_BEYOND,), seeds=(0, 1), fields={"steps": 300_000, "checkpoint_every": 100_000}),
}


# --- files and flags ---


def find_plan(plan: str) -> Sweep:
    """Returns the preset with this name, or the sweep in a YAML file."""
    if plan in PRESETS:
        return PRESETS[plan]
    path = Path(plan).expanduser()
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        raise UnknownNameError("preset", plan, [*PRESETS, "FILE.yaml"])
    return read_sweep(path)


class _UniqueKeys(yaml.SafeLoader):
    """Reads YAML without objects, and raises an error for a key that occurs twice: YAML would take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for name in names:
            if names.count(name) > 1:
                message = f"'{name}' occurs twice"
                raise yaml.constructor.ConstructorError(None, None, message, node.start_mark)
        return super().construct_mapping(node, deep)


def read_sweep(path: Path) -> Sweep:
    """Reads a sweep file; paths of datasets in it are relative to the file."""
    try:
        content = yaml.load(path.read_text(), _UniqueKeys)  # noqa: S506 (a SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from error
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        line = f" (line {place.line + 1})" if place else ""
        raise ConfigError(f"{path} is not valid YAML{line}: {getattr(error, 'problem', None) or error}.") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must have keys such as {', '.join(KEYS[:3])}.")
    try:
        return make_sweep(content, path.parent)
    except (ConfigError, UnknownNameError) as error:
        raise ConfigError(f"{path}: {error}") from error


def make_sweep(settings: Mapping[str, Any], folder: Path = Path()) -> Sweep:
    """Makes a sweep from the keys of a sweep file; `folder` is where relative paths of datasets start."""
    for key in settings:
        if key not in KEYS:
            raise UnknownNameError("key", str(key), KEYS)
    tasks = _names(settings, "tasks")
    variants = [Variant(_method_name(name), name) for name in _names(settings, "methods")]
    variants += _variants(_mapping(settings, "variants"))
    if not tasks or not variants:
        raise ConfigError(f"a sweep needs {'methods' if tasks else 'tasks'}.")
    grid = {name: _list(f"grid {name}", values) for name, values in _mapping(settings, "grid").items()}
    expanded = [_with_fields(variant, grid, values) for variant in variants for values in product(*grid.values())]
    names = [variant.name for variant in expanded]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ConfigError(f"two runs would be named '{repeated[0]}'.")
    data = _mapping(settings, "data")
    check_data_tasks(data, tasks)
    fields = _mapping(settings, "fields")
    if "steps" in settings:
        if "steps" in fields:
            raise ConfigError("steps is given twice: once by itself, and once in fields.")
        fields = {"steps": settings["steps"], **fields}
    return Sweep(
        (Group(tuple(tasks), tuple(expanded)),),
        seeds=convert("seeds", settings.get("seeds", SEEDS), tuple[int, ...]),
        episodes=convert("episodes", settings.get("episodes", EPISODES_PER_GOAL), int),
        fields=fields,
        data={task: folder / Path(convert(f"data of {task}", path, str)).expanduser() for task, path in data.items()},
    )


def check_data_tasks(data: Iterable[str], tasks: Iterable[str]) -> None:
    """Raises `ConfigError` if a dataset is given for a task that the sweep does not have."""
    for name in data:
        if name not in tasks:
            raise ConfigError(f"data names a file for '{name}', which is no task of this sweep.")


def _names(settings: Mapping[str, Any], key: str) -> list[str]:
    given = settings.get(key) or ()
    names = convert(key, [given] if isinstance(given, str) else given, tuple[str, ...])
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ConfigError(f"{key} has '{repeated[0]}' more than once.")
    return list(names)


def _mapping(settings: Mapping[str, Any], key: str) -> dict[str, Any]:
    given = settings.get(key) or {}
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise ConfigError(f"{key} is {given!r} and must have names with values.")
    return given


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)) or not value:
        raise ConfigError(f"{name} is {value!r} and must be a list of values.")
    return list(value)


def _method_name(method: str) -> str:
    """The name of a method that may be a reference, my_module:MyMethod, whose class has the name."""
    if ":" not in method:
        return method
    from gtrl.algorithms import find_algorithm

    return find_algorithm(method).name


def _variants(given: Mapping[str, Any]) -> list[Variant]:
    found = []
    for name, content in given.items():
        if not isinstance(content, dict) or not isinstance(content.get("method"), str):
            raise ConfigError(f"the variant '{name}' must name its method: {name}: {{method: gtrl, ...}}.")
        method = _method_name(content["method"])
        if not is_folder_name(name) or not name.startswith(f"{method}-"):
            example = f"{method}-{_UNSAFE.sub('-', name).strip('-')}"
            raise ConfigError(
                f"the variant '{name}' must be named after its method, in letters, digits, '.', '_' and '-': {example}."
            )
        fields = {key: value for key, value in content.items() if key != "method"}
        found.append(Variant(name, content["method"], fields))
    return found


def _with_fields(variant: Variant, names: Iterable[str], values: Sequence[Any]) -> Variant:
    """The variant at one point of the grid, named by it: gtrl-lambda-0.5."""
    point = dict(zip(names, values, strict=True))
    name = "-".join([variant.name, *(part for key, value in point.items() for part in (key.strip("_"), _text(value)))])
    return Variant(_UNSAFE.sub("-", name), variant.method, {**variant.fields, **point})


def _text(value: Any) -> str:
    """A value as a part of a folder's name."""
    if isinstance(value, (list, tuple)):
        return "x".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)

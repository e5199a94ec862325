"""Validation of dataset files. Uses NumPy only."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gtrl.data.columns import ColumnFacts, column_facts, column_warnings
from gtrl.data.description import Description, read_description
from gtrl.data.formats.columns import NO_PIXELS
from gtrl.data.scaling import choose_scaling, is_scaled
from gtrl.data.task_goals import Arrays, task_goals
from gtrl.errors import DataError
from gtrl.io.npz import read_npz
from gtrl.io.scaling import Scaling
from gtrl.tasks import EXTRA_TASKS, TASKS, VALIDATION_RATIO, OGBenchTask, Task

REQUIRED_KEYS = ("observations", "actions", "terminals")
DATASET_KEYS = (*REQUIRED_KEYS, "qpos", "qvel", "button_states", "goals")  # others are ignored
REAL_DTYPE_KINDS = "biuf"  # Booleans, integers and floating-point numbers
ACTION_TOLERANCE = 1e-6  # by which actions may exceed 1
# What arrays of other kinds hold, for messages.
DTYPE_KIND_NAMES = {
    "c": "complex numbers",
    "M": "dates",
    "m": "durations",
    "O": "Python objects",
    "S": "text",
    "U": "text",
}


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Reads the arrays of a dataset file that the package uses."""
    return read_npz(path, DataError, DATASET_KEYS)


def check_arrays(arrays: Arrays, task: Task | None = None, *, scaled: bool = False) -> list[str]:
    """Returns the problems with a dataset's arrays; an empty list if they are valid.

    Actions must be in [-1, 1] unless they are going to be `scaled`. In the last row of an episode they may be NaN,
    which means that no action was logged there.
    """
    missing = [key for key in REQUIRED_KEYS if key not in arrays]
    if missing:
        return [f"it has no array '{key}'" for key in missing]
    problems = _shape_problems(arrays)
    if problems:
        return problems
    missing_actions = _without_action(arrays)
    for key, value in arrays.items():
        finite, finite_in_float32 = np.isfinite(value), np.isfinite(_float32(value))
        if key == "actions":
            finite[missing_actions] = finite_in_float32[missing_actions] = True
        problems += _rows_with("NaN or infinity", key, ~finite)
        problems += _rows_with("numbers too large for float32", key, finite & ~finite_in_float32)
    terminals = arrays["terminals"]
    problems += _rows_with("values other than 0 and 1", "terminals", (terminals != 0) & (terminals != 1))
    problems += _episode_problems(terminals)
    actions = arrays["actions"][~missing_actions]
    largest = max(-float(actions.min(initial=0)), float(actions.max(initial=0)))  # not np.abs, which overflows for int8
    if largest > 1 + ACTION_TOLERANCE and not scaled:
        problems.append(f"'actions' have absolute values up to {largest:.3g}, outside -1 to 1")
    return problems + (_task_problems(arrays, task) if task else [])


def _without_action(arrays: Arrays) -> np.ndarray:
    """Returns the rows at which no action was logged: last rows of episodes whose actions are all NaN."""
    actions = arrays["actions"]
    if actions.dtype.kind != "f":
        return np.zeros(len(actions), bool)
    return np.isnan(actions).all(1) & (arrays["terminals"] == 1)


def _float32(value: np.ndarray) -> np.ndarray:
    """Converts to float32, as on the device; numbers that are too large become infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        return value.astype(np.float32, copy=False)


def _rows_with(what: str, key: str, where: np.ndarray) -> list[str]:
    """Returns the problem that some rows of an array hold `what`, if `where` is true anywhere."""
    if not where.any():
        return []
    rows = np.flatnonzero(where.reshape(len(where), -1).any(1))
    return [f"'{key}' holds {what} in {len(rows)} rows, first in row {rows[0]}"]


def _shape_problems(arrays: Arrays) -> list[str]:
    lengths = {key: len(value) if value.ndim else 0 for key, value in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{key} {length}" for key, length in lengths.items())
        return [f"its arrays differ in length ({listed})"]
    if lengths["observations"] == 0:
        return ["it has no rows"]
    problems = [
        f"'{key}' holds {DTYPE_KIND_NAMES.get(value.dtype.kind, 'structures')}, not real numbers"
        for key, value in arrays.items()
        if value.dtype.kind not in REAL_DTYPE_KINDS
    ]
    misshapen = [key for key in arrays if key != "terminals" and (arrays[key].ndim != 2 or 0 in arrays[key].shape)]
    problems += [
        f"'{key}' has shape {arrays[key].shape}, not (rows, dimension){_pixels(arrays[key])}" for key in misshapen
    ]
    if arrays["terminals"].ndim != 1:
        problems.append(f"'terminals' has shape {arrays['terminals'].shape}, not (rows,)")
    return problems


def _pixels(array: np.ndarray) -> str:
    """Returns the clause that an array holds pixels, if it looks like images."""
    return f": it {NO_PIXELS}" if array.ndim >= 4 or (array.ndim == 3 and array.dtype == np.uint8) else ""


def _episode_problems(terminals: np.ndarray) -> list[str]:
    last = np.flatnonzero(terminals)
    if len(last) == 0:
        return ["no row is marked as the last of its episode ('terminals' is always false)"]
    problems = []
    if last[-1] != len(terminals) - 1:
        problems.append(f"the {len(terminals) - 1 - last[-1]} rows after the last terminal belong to no episode")
    single = np.flatnonzero(np.diff(last, prepend=-1) == 1)
    if len(single):
        problems.append(
            f"{len(single)} episodes have a single row and therefore no transition, first in row {last[single[0]]}"
        )
    return problems


def _task_problems(arrays: Arrays, task: Task) -> list[str]:
    problems = size_problems(task, **{key: arrays[key].shape[1] for key in ("observations", "actions")})
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            goals = task_goals(arrays, task)
    except DataError as error:
        return [*problems, f"{error} (task {task.name})"]
    if "qpos" in arrays:  # goals are scaled entries of qpos and may overflow where it does not
        finite = np.isfinite(_float32(arrays["qpos"])).all(1, keepdims=True)
        problems += _rows_with("numbers too large for goals", "qpos", finite & ~np.isfinite(goals))
    return problems + size_problems(task, goals=goals.shape[1])


def size_problems(task: Task, **sizes: int) -> list[str]:
    """Returns the problems with the sizes of `observations`, `actions` or `goals`, compared with the task's."""
    expected = {"observations": task.observation_dim, "actions": task.action_dim, "goals": task.goal_dim}
    return [
        f"{key} have {found} dimensions where {task.name} has {expected[key]}"
        for key, found in sizes.items()
        if expected[key] not in (None, found)
    ]


class Fact(NamedTuple):
    """One line of `gtrl data check`: a property of the file, and the same property of the task's public dataset."""

    what: str
    found: str
    expected: str = ""
    agrees: bool = True


@dataclass(frozen=True)
class Report:
    """The result of checking a dataset file, as `gtrl data check` prints it."""

    path: Path
    task: Task | None
    shapes: dict[str, tuple[int, ...]]
    episodes: int = 0
    transitions: int = 0
    lengths: tuple[int, int] = (0, 0)  # transitions of the shortest and the longest episode
    ranges: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)  # minimum and maximum by column
    facts: list[Fact] = field(default_factory=list)  # compared with the task's public dataset
    problems: list[str] = field(default_factory=list)
    columns: list[ColumnFacts] = field(default_factory=list)  # of own data
    scaling: Scaling | None = None  # that training on own data uses
    warnings: list[str] = field(default_factory=list)  # about own data: where learning will suffer
    notes: list[str] = field(default_factory=list)  # what the format of a log could not carry
    picture: Path | None = None  # a plot of the data, if one was written


def task_of(path: Path) -> Task | None:
    """Returns the task that a file is named after, or None. The number of a shard is ignored."""
    name = re.sub(r"-v0(-\d+)?$", "", path.stem.removesuffix("-val"))
    return (TASKS | EXTRA_TASKS).get(name)


def check_file(
    path: str | Path, task: Task | None = None, *, validation: bool | None = None, public: bool = False
) -> Report:
    """Reads a dataset file and reports its content and the problems with it.

    Args:
        path: The file.
        task: The task that it is for; by default the one that the file is named after.
        validation: Whether it is a validation file; by default, whether its name ends in `-val`.
        public: Whether it must have the number and length of episodes of the task's public dataset.
    """
    path = Path(path).expanduser()
    arrays, description = read_arrays(path), read_description(path)
    return check(path, arrays, task or task_of(path), description, validation=validation, public=public)


def check(
    path: Path,
    arrays: Arrays,
    task: Task | None,
    description: Description,
    *,
    validation: bool | None = None,
    public: bool = False,
) -> Report:
    """Reports the content of arrays that were read from a file, and the problems with them; see `check_file`."""
    own = not isinstance(task, OGBenchTask)
    problems = check_arrays(arrays, task, scaled=is_scaled(task))
    found: dict[str, Any] = {"shapes": {key: value.shape for key, value in arrays.items()}}
    if "terminals" in arrays and arrays["terminals"].ndim == 1 and arrays["terminals"].any():
        lengths = np.diff(np.flatnonzero(arrays["terminals"]), prepend=-1) - 1
        found["episodes"] = len(lengths)
        found["transitions"] = int(lengths.sum())
        found["lengths"] = (int(lengths.min()), int(lengths.max()))
    found["ranges"] = {
        key: (np.fmin.reduce(value), np.fmax.reduce(value))  # NaN only where a column has no number
        for key, value in arrays.items()
        if value.ndim == 2 and value.size and value.dtype.kind in REAL_DTYPE_KINDS
    }
    notes = [str(note) for note in description.source.get("notes") or ()]
    report = Report(path, task, problems=problems, notes=notes, **found)
    if own and not problems:
        goals = task_goals(arrays, task)
        scaling, warnings = choose_scaling(arrays, goals, description, task, is_scaled(task))
        columns = column_facts(arrays, goals, description.columns, scaling)
        warnings = column_warnings(arrays, columns) + warnings
        return replace(report, columns=columns, scaling=scaling, warnings=warnings)
    if not isinstance(task, OGBenchTask) or problems:
        return report
    facts = _compare(report, task, path.stem.endswith("-val") if validation is None else validation)
    if public:
        differing = [fact for fact in facts if not fact.agrees]
        problems = [f"it has {fact.found} {fact.what} where {task.name} has {fact.expected}" for fact in differing]
    return replace(report, facts=facts, problems=problems)


def _compare(report: Report, task: OGBenchTask, validation: bool) -> list[Fact]:
    """Compares the file with the task's public dataset. A difference is a problem only with `public`."""
    count = max(1, task.trajectories // VALIDATION_RATIO) if validation else task.trajectories
    length = task.trajectory_length
    shortest, longest = report.lengths
    steps = f"{longest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
    dims = [
        Fact(f"dimensions of {key}", f"{report.shapes[key][1]}", f"{expected}")
        for key, expected in (("observations", task.observation_dim), ("actions", task.action_dim))
    ]
    low, high = (bound.item() for bound in (np.min(report.ranges["actions"][0]), np.max(report.ranges["actions"][1])))
    return [
        Fact("episodes", f"{report.episodes:,}", f"{count:,}", report.episodes == count),
        Fact("transitions per episode", steps, f"{length:,}", shortest == longest == length),
        *dims,
        Fact("actions", f"{low:.3g} to {high:.3g}", "-1 to 1"),
    ]

"""Tasks made from a user's environment and goals, and how `config.json` records them."""

import csv
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.errors import ConfigError, DataError, GtrlError
from gtrl.io.npz import read_npz
from gtrl.registry import reference_of
from gtrl.tasks.ogbench import EXTRA_TASKS, TASKS
from gtrl.tasks.protocol import EPISODES_PER_GOAL
from gtrl.tasks.task import Task

OWN_EPISODES = 100  # by default an own task is evaluated with at least so many episodes in all
MAX_GOALS = 10_000  # they are recorded in `config.json`
UNNAMED = "own-environment"  # the task's name where the environment has none
Environment = str | Callable[[], Any]
GoalVectors = str | Path | Sequence[Sequence[float]] | np.ndarray  # a file or the goals themselves, one row per goal


@dataclass(frozen=True)
class OwnTask(Task):
    """A task that is not registered: an environment of the user's and, if given, goals. Made by `own_task`.

    A run records it in its `config.json`, so that it can be evaluated again. `environment` is None if it was restored
    from a run whose environment was made by a function that cannot be imported by its name. `goal_columns` are the
    names of the goals' columns, if they came with names and have not been put in the order of a policy's.
    """

    goal_columns: tuple[str, ...] = field(default=(), compare=False)

    def with_goals_of(self, names: Sequence[str]) -> "OwnTask":
        """Returns the task with the columns of its goals that a policy takes, in the policy's order, by their names.

        Goals without names, or with other names, are kept as they are. Raises `DataError` if only some of the names
        are there.
        """
        known = self.goal_columns
        missing = [name for name in names if name not in known]
        if not self.goals or isinstance(self.goals, int) or len(missing) == len(names):
            return self
        if missing:
            raise DataError(
                f"the goals have the columns {', '.join(known)}, and the policy's goal also has {', '.join(missing)}: "
                f"give {', '.join(names)}."
            )
        places = [known.index(name) for name in names]
        goals = tuple(tuple(goal[place] for place in places) for goal in self.goals)
        name = self.name
        if self.environment is not None and name == _default_name(self.environment, self.goals):
            name = _default_name(self.environment, goals)
        return replace(self, name=name, goals=goals, goal_columns=())

    def record(self) -> dict[str, Any]:
        """Returns what `config.json` has of the task; the inverse of `restored`."""
        given = self.environment
        environment = given if isinstance(given, str) or given is None else reference_of(given)
        goals = list(map(list, self.goals)) if isinstance(self.goals, tuple) else None
        return {
            "name": self.name, "environment": environment, "goals": goals, "episode_length": self.episode_length,
        }  # fmt: skip

    @classmethod
    def restored(cls, record: Mapping[str, Any]) -> "OwnTask":
        """Returns the task that `record` describes."""
        fields = {key: record[key] for key in ("name", "environment", "goals", "episode_length")}
        return cls(**fields)


def own_task(
    env: Environment, goals: GoalVectors | None = None, *, name: str | None = None, episode_length: int | None = None
) -> OwnTask:
    """Returns a task for evaluation in an environment of your own.

    Args:
        env: A Gymnasium id (`my_package:MyEnv-v0`), `module:factory`, or a function or class that makes the
            environment.
        goals: The goals to evaluate, passed on as `reset(options={"goal": g})`: an array, or a CSV, npy or npz file,
            with one row per goal. By default the environment chooses a goal at each reset.
        name: The task's name; by default that of the environment, with its module. If goals are given, a digest of
            them is added, so that results for different goals are not mixed up.
        episode_length: The maximum number of steps per episode; by default the environment's limit.
    """
    vectors, columns = (None, ()) if goals is None else goal_vectors(goals)
    vectors = None if vectors is None else tuple(map(tuple, vectors.tolist()))
    name = name or _default_name(env, vectors)
    if name in TASKS | EXTRA_TASKS:
        raise ConfigError(f"'{name}' is the name of a built-in task; give your environment another name.")
    return OwnTask(name, env, vectors, episode_length=episode_length, goal_columns=columns)


def changed_task(known: Task | None, env: Environment | None, goals: GoalVectors | None) -> OwnTask:
    """Returns the own task for an environment and goals, of which one may be missing.

    Goals without an environment are evaluated in that of the `known` task, if it is an own task too.
    """
    if env is not None:
        return own_task(env, goals)
    if not isinstance(known, OwnTask) or known.environment is None:
        raise ConfigError(
            "goals are given without an environment: name it with --env my_package:MyEnv-v0 (in Python, make_env=... "
            "of gtrl.evaluate and env=... of gtrl.train)."
        )
    return own_task(known.environment, goals, episode_length=known.episode_length)


def recorded_own_task(config: Mapping[str, Any]) -> OwnTask | None:
    """Returns the own task that a `config.json` records; None if there is none."""
    record = config.get("environment")
    return OwnTask.restored(record) if isinstance(record, Mapping) else None


def default_episodes(task: Task) -> int:
    """Returns the episodes per goal: 50, as in the paper; for an own task, at least 100 over all its goals."""
    if isinstance(task, OwnTask):
        return -(-OWN_EPISODES // len(task.goal_names))
    return EPISODES_PER_GOAL


def _default_name(env: Environment, goals: Any) -> str:
    """Returns the name of the environment, followed by a digest of the goals, if there are any."""
    if goals is None:
        return _name_of(env)
    return f"{_name_of(env)}-goals-{hashlib.sha256(json.dumps(goals).encode()).hexdigest()[:6]}"


def _name_of(env: Environment) -> str:
    """Returns a name that can be that of a folder and a cell of `eval.csv`: my_package.MyEnv-v0.

    It has the module, since many environments are called `make`; a function that cannot be imported has none.
    """
    text = env if isinstance(env, str) else reference_of(env)
    text = text or getattr(getattr(env, "func", env), "__name__", type(env).__name__)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text.replace(":", "."))
    return name.strip("-._") if re.search(r"[A-Za-z0-9]", name) and "<" not in text else UNNAMED


# --- goals ---


def goal_vectors(goals: GoalVectors) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns goals as a float64 array, one row per goal, and the names of its columns, if it has some.

    Raises `DataError` unless they are finite numbers.
    """
    if isinstance(goals, (str, Path)):
        path = Path(goals).expanduser()
        found, names = _read(path)
        return _checked(found, str(path), str(path)), names
    names = tuple(map(str, getattr(goals, "columns", ())))  # of a pandas table
    return _checked(goals, "goals", "the argument goals"), names


def _checked(goals: Any, what: str, subject: str) -> np.ndarray:
    try:
        array = np.asarray(goals)
        array = array.astype(np.float64) if array.dtype.kind in "fiu" else array
    except ValueError:
        raise DataError(f"{what}: the rows have different lengths; give one row of numbers per goal.") from None
    if array.dtype != np.float64:
        raise DataError(f"{subject} is an array of type {array.dtype}; give numbers, one row per goal.")
    if not array.size:
        raise DataError(f"{subject} has no goals; give one row of numbers per goal.")
    if array.ndim != 2:
        raise DataError(f"{subject} has the shape {array.shape}; give one row of numbers per goal.")
    if len(array) > MAX_GOALS:
        raise DataError(f"{subject} has {len(array):,} goals; at most {MAX_GOALS:,} can be evaluated.")
    wrong = np.flatnonzero(~np.isfinite(array).all(1))
    if len(wrong):
        raise DataError(f"{what}: goal {wrong[0] + 1} is {array[wrong[0]].tolist()}, which is not finite.")
    return array


def _read(path: Path) -> tuple[Any, tuple[str, ...]]:
    """Reads a file of goals, by its extension; returns its rows and the names of its columns, if it has some."""
    if not path.is_file():
        raise DataError(f"{path} is not a file; give a CSV, npy or npz file with one row per goal.")
    if path.suffix == ".npz":
        arrays = read_npz(path, DataError)
        if len(arrays) != 1:
            raise DataError(f"{path} has {len(arrays)} arrays ({', '.join(arrays)}); the goals must be the only one.")
        return next(iter(arrays.values())), ()
    if path.suffix == ".npy":
        try:
            return np.load(path, allow_pickle=False), ()
        except (OSError, ValueError, EOFError, MemoryError) as error:
            raise DataError(f"{path} cannot be read as an npy file ({error}).") from error
    if path.suffix not in (".csv", ".txt", ".tsv"):
        raise DataError(f"{path} is not a file of goals: its name must end in .csv, .txt, .tsv, .npy or .npz.")
    try:
        return _read_text(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}).") from error


def _read_text(path: Path) -> tuple[list[list[float]], tuple[str, ...]]:
    """Returns the goals of a text file and the names in its first line, which is a header if it has no number.

    Columns are separated by commas, semicolons or tabs, or else by white space.
    """
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    body = "".join(lines[1:] or lines)  # the first line may be a title with commas
    delimiter = max(",;\t", key=body.count)
    is_separated = delimiter in body
    table = (
        csv.reader(lines, delimiter=delimiter) if is_separated else (re.findall(r"[^\s,;]+", line) for line in lines)
    )
    rows = [(number, [cell.strip() for cell in row]) for number, row in enumerate(table, start=1)]
    rows = [(number, cells) for number, cells in rows if any(cells)]
    names = _header(path, rows[0][1]) if rows else ()
    goals: list[list[float]] = []
    for number, cells in rows[1 if names else 0 :]:
        goal = _goal(path, number, cells)
        if goals and len(goal) != len(goals[0]):
            raise _in_line(path, number, f"there are {len(goal)} numbers where the first goal has {len(goals[0])}")
        goals.append(goal)
    return goals, names if goals and len(names) == len(goals[0]) else ()  # other first lines are titles


def _header(path: Path, cells: list[str]) -> tuple[str, ...]:
    """Returns the names in the first line of a file; none if it is a goal."""
    if cells == [str(index) for index in range(len(cells))]:
        as_goal = ",".join(f"{index:.1f}" for index in range(len(cells)))
        raise DataError(
            f"{path}, line 1: '{','.join(cells)}' numbers the columns: remove the line, or name the columns (write "
            f"{as_goal} if it is a goal)."
        )
    if any(_number(cell) is not None for cell in cells):
        return ()
    if cells[0].startswith("#"):  # as np.savetxt writes it
        first = cells[0].lstrip("# ")
        cells = [first, *cells[1:]] if first else cells[1:]
    return tuple(cells)


def _goal(path: Path, line: int, cells: list[str]) -> list[float]:
    values = [_number(cell) for cell in cells]
    for cell, value in zip(cells, values, strict=True):
        if value is None:
            raise _in_line(path, line, f"{cell!r:.40} is not a number")
    return [value for value in values if value is not None]


def _in_line(path: Path, number: int, problem: str) -> GtrlError:
    return DataError(f"{path}, line {number}: {problem}; give one row of numbers per goal.")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

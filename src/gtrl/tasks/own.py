"""Tasks made from a user's environment and goals, and how `config.json` records them."""

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    from a run whose environment was made by a function that cannot be imported by its name.
    """

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
        name: The task's name; by default that of the environment. If goals are given, a digest of them is added, so
            that results for different goals are not mixed up.
        episode_length: The maximum number of steps per episode; by default the environment's limit.
    """
    vectors = None if goals is None else tuple(map(tuple, goal_vectors(goals).tolist()))
    if name is None:
        name = _name_of(env)
        if vectors is not None:
            digest = hashlib.sha256(json.dumps(vectors).encode()).hexdigest()
            name = f"{name}-goals-{digest[:6]}"
    if name in TASKS | EXTRA_TASKS:
        raise ConfigError(f"'{name}' is the name of a built-in task; give your environment another name.")
    return OwnTask(name, env, vectors, episode_length=episode_length)


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


def _name_of(env: Environment) -> str:
    """Returns a name that can be that of a folder and a cell of `eval.csv`: MyEnv-v0 for my_package:MyEnv-v0."""
    text = env if isinstance(env, str) else getattr(getattr(env, "func", env), "__name__", type(env).__name__)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text.rpartition(":")[2])
    return name.strip("-._") if re.search(r"[A-Za-z0-9]", name) and "<" not in text else UNNAMED


# --- goals ---


def goal_vectors(goals: GoalVectors) -> np.ndarray:
    """Returns goals as a float64 array, one row per goal. Raises `DataError` unless they are finite numbers."""
    if isinstance(goals, (str, Path)):
        path = Path(goals).expanduser()
        return _checked(_read(path), str(path))
    return _checked(goals, "goals")


def _checked(goals: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(goals)
        array = array.astype(np.float64) if array.dtype.kind in "fiu" else array
    except ValueError:  # rows of different lengths
        raise DataError(f"{what}: its rows have different lengths; give one row of numbers per goal.") from None
    if array.dtype != np.float64:
        raise DataError(f"{what} is an array of type {array.dtype}; give numbers, one row per goal.")
    if not array.size:
        raise DataError(f"{what} has no goals; give one row of numbers per goal.")
    if array.ndim != 2:
        raise DataError(f"{what} has the shape {array.shape}; give one row of numbers per goal.")
    if len(array) > MAX_GOALS:
        raise DataError(f"{what} has {len(array):,} goals; at most {MAX_GOALS:,} can be evaluated.")
    wrong = np.flatnonzero(~np.isfinite(array).all(1))
    if len(wrong):
        raise DataError(f"{what}: goal {wrong[0] + 1} is {array[wrong[0]].tolist()}, which is not finite.")
    return array


def _read(path: Path) -> Any:
    """Reads a file of goals, by its extension."""
    if not path.is_file():
        raise DataError(f"{path} is not a file; give a CSV, npy or npz file with one row per goal.")
    if path.suffix == ".npz":
        arrays = read_npz(path, DataError)
        if len(arrays) != 1:
            raise DataError(f"{path} has {len(arrays)} arrays ({', '.join(arrays)}); the goals must be the only one.")
        return next(iter(arrays.values()))
    if path.suffix == ".npy":
        try:
            return np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError, MemoryError) as error:
            raise DataError(f"{path} cannot be read as an npy file ({error}).") from error
    if path.suffix not in (".csv", ".txt", ".tsv"):
        raise DataError(f"{path} is not a file of goals: its name must end in .csv, .txt, .tsv, .npy or .npz.")
    try:
        return list(_csv_rows(path))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}).") from error


def _csv_rows(path: Path) -> Iterator[list[float]]:
    """Yields the goals of a CSV file. A first line without any number is a header."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        file.seek(0)
        delimiter = max(",;\t", key=first.count)
        columns = None
        for number, row in enumerate(csv.reader(file, delimiter=delimiter), start=1):
            if not any(cell.strip() for cell in row):
                continue
            values = [_number(cell) for cell in row]
            if number == 1 and all(value is None for value in values):
                continue
            for cell, value in zip(row, values, strict=True):
                if value is None:
                    raise _in_line(path, number, f"{cell.strip()!r:.40} is not a number")
            columns = columns or len(row)
            if len(row) != columns:
                raise _in_line(path, number, f"there are {len(row)} numbers where the first goal has {columns}")
            yield [value for value in values if value is not None]


def _in_line(path: Path, number: int, problem: str) -> GtrlError:
    return DataError(f"{path}, line {number}: {problem}; give one row of numbers per goal.")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

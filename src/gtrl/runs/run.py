"""A run directory: its files, and functions to read and write them. Does not import JAX."""

import csv
import io
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from gtrl.errors import ConfigError, RunError
from gtrl.io.atomic import write_text
from gtrl.io.jsonl import read_rows
from gtrl.io.locks import wait_for_lock
from gtrl.io.scaling import Scaling

# Files that evaluation writes for the last evaluated step only.
LAST_STEP_FILES = ("rollouts.npz", "values.npz", "trajectories.png", "rollouts.mp4", "rollouts.gif")
# Files that `gtrl diagnose` writes for the last diagnosed step.
DIAGNOSTICS, MAPS = "diagnostics.json", "maps.npz"
EVAL_COLUMNS: tuple[str, ...] = ("algorithm", "task", "seed", "step", "goal", "episodes", "successes", "base_seed")
TEXT_COLUMNS = ("algorithm", "task", "goal")  # columns of `eval.csv` that are not integers
NON_FINITE_REPORT = "stopped.json"  # metrics and magnitudes at the step that was not finite
LOCK = "lock"  # the file that is locked while a process trains in the directory


def checkpoint_path(folder: Path, step: int) -> Path:
    """Returns the file of a checkpoint in the folder `checkpoints/` of a run."""
    return folder / f"{step}.npz"


def policy_steps(steps: int, checkpoints: Iterable[int], every: int) -> list[int]:
    """Returns the steps at which a run of `steps` writes policies: `checkpoints`, every so many steps, and the last."""
    regular = range(0, steps, every) if every else ()
    return sorted({step for step in (*checkpoints, *regular, steps) if 0 < step <= steps})


def display_name(method: str) -> str:
    """Returns a method's name as it is written in text: GTRL, TD-n."""
    return method.upper().replace("-N", "-n")


def is_folder_name(name: str) -> bool:
    """Returns whether a name can be the name of a folder on any system."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) is not None


def check_folder_name(name: str, what: str) -> str:
    """Returns the name of something if it can be the name of a folder; raises a `ConfigError` otherwise."""
    if not is_folder_name(name):
        raise ConfigError(f"the name of the {what} is {name!r}; use letters, digits, '.', '_' and '-'.")
    return name


def new_directory(parent: Path) -> Path:
    """Creates and returns `parent/<time>`; adds a number if another process took that name in the same second."""
    now = datetime.now().strftime("%Y%m%d-%H%M%S")
    parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = parent / (now if number == 1 else f"{now}-{number}")
        with suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError


class Config(dict[str, Any]):
    """A JSON object of `config.json`, which may be nested. A missing key raises a `RunError` that names the file."""

    path: Path

    def __missing__(self, key: str) -> Any:
        raise RunError(f"{self.path} has no '{key}'; it is damaged, or not the config of a run.")


def read_config(path: Path) -> Config:
    """Reads a `config.json`; all objects in it are `Config`s."""

    def as_config(values: dict[str, Any]) -> Config:
        config = Config(values)
        config.path = path
        return config

    try:
        content = json.loads(path.read_text(), object_hook=as_config)
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read ({error}).") from error
    if not isinstance(content, Config):
        raise RunError(f"{path} is not a JSON object.")
    return content


def scaling_of(config: dict[str, Any]) -> Scaling | None:
    """Returns the scaling of the data in the content of a `config.json`; None if it was not scaled."""
    found = config["data"].get("scaling")
    return None if found is None else Scaling.from_mapping(found)


# What runs did before these became fields of the method; their configs have `target_from` under `training`.
_FORMER_FIELDS = {"actor_layer_norm": True, "random_last_rows": True}
_FORMER_FIELDS_OF_GTRL = {"hindsight_divisor": "target", "bootstrap_from_last": True}


def _with_moved_fields(config: Config) -> Config:
    """Returns the config of an older run as today's version would write it, so that the run can be resumed and read."""
    training, method = config.get("training"), config.get("algorithm")
    if not isinstance(training, Config) or not isinstance(method, Config) or "target_from" not in training:
        return config
    former = _FORMER_FIELDS | (_FORMER_FIELDS_OF_GTRL if method.get("name") == "gtrl" else {})
    for name, value in {**former, "target_from": training.pop("target_from")}.items():
        method.setdefault(name, value)
    return config


@dataclass(frozen=True)
class Run:
    """A run: a directory with `config.json`, `metrics.jsonl`, `eval.csv`, `policies/` and `checkpoints/`."""

    path: Path

    @classmethod
    def open(cls, path: "str | Path | Run") -> "Run":
        """Returns the run in a directory; raises `RunError` if there is none."""
        if isinstance(path, Run):
            return path
        run = cls(Path(path).expanduser())
        if not run.exists:
            raise RunError(f"{path} is not a run directory: it has no config.json.")
        return run

    @property
    def exists(self) -> bool:
        """Whether the directory has a `config.json`."""
        return (self.path / "config.json").exists()

    @property
    def config(self) -> dict[str, Any]:
        """The content of `config.json`, read at each access. A missing key raises `RunError`."""
        return _with_moved_fields(read_config(self.path / "config.json"))

    def save_config(self, config: dict[str, Any]) -> None:
        """Writes `config.json` atomically, and creates the directory if necessary."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / "config.json", json.dumps(config, indent=2) + "\n")

    @property
    def plugins(self) -> list[str]:
        """The modules that define the run's method and task, where they are not built in."""
        return list(self.config.get("plugins", ()))

    @property
    def seeds(self) -> list[int]:
        """The seeds that are trained, from `config.json`."""
        seeds = self.config["seeds"]
        if not isinstance(seeds, list) or not seeds or any(type(seed) is not int for seed in seeds):
            raise RunError(f"{self.path}/config.json has no list of seeds.")
        return seeds

    @property
    def scaling(self) -> Scaling | None:
        """The scaling of the data that the run was trained on; None if it was not scaled."""
        try:
            return scaling_of(self.config)
        except (TypeError, ValueError) as error:
            raise RunError(f"{self.path}/config.json is damaged: its scaling is invalid ({error}).") from error

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    def policy_path(self, seed: int, step: int | None = None) -> Path:
        """Returns the policy file of a seed at a step, by default the last one with policies."""
        step = self.policy_steps[-1] if step is None else step
        path = self.path / "policies" / f"step-{step}" / f"seed-{seed}.npz"
        if not path.exists():
            raise RunError(f"{self.path} has no policy of seed {seed} at step {step}.")
        return path

    @property
    def policy_steps(self) -> list[int]:
        """The steps with policies of all seeds, in order. Raises `RunError` if there are none."""
        steps = self.written_steps()
        if not steps:
            raise RunError(f"{self.path} holds no policy yet: train to a checkpoint first.")
        return steps

    def written_steps(self) -> list[int]:
        """Returns the steps with policies of all seeds, in order, as `policy_steps`; the list may be empty."""
        files = [f"seed-{seed}.npz" for seed in self.seeds]
        folders = [folder for folder in self._policy_folders() if all((folder / file).exists() for file in files)]
        return sorted(map(_step_of, folders))

    def _policy_folders(self) -> list[Path]:
        folders = (self.path / "policies").glob("step-*")
        return [folder for folder in folders if folder.name.removeprefix("step-").isdecimal()]

    def forget_after(self, step: int) -> None:
        """Removes policies of later steps, their evaluations, and the files that evaluation and diagnostics made."""
        for folder in self._policy_folders():
            if _step_of(folder) > step:
                shutil.rmtree(folder)
                for name in (DIAGNOSTICS, MAPS):
                    (self.path / name).unlink(missing_ok=True)
        with self._evaluations_locked():
            rows = self.evaluations()
            if any(row["step"] > step for row in rows):
                self._save_evaluations(row for row in rows if row["step"] <= step)
                for name in LAST_STEP_FILES:
                    (self.path / name).unlink(missing_ok=True)

    def metrics(self) -> Iterator[dict[str, Any]]:
        """Yields the rows of `metrics.jsonl`: one per seed and logged step."""
        return self._checked_rows("metrics.jsonl", ("step", "seed"))

    def timing(self) -> Iterator[dict[str, Any]]:
        """Yields the rows of `timing.jsonl`: one per start of the run and logged step."""
        return self._checked_rows("timing.jsonl", ("step", "time"))

    def _checked_rows(self, name: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yields the rows of a file whose columns must have numbers of a plausible size."""
        for row in read_rows(self.path / name):
            for column in columns:
                value = row.get(column)
                if not isinstance(value, int | float) or not 0 <= value < 2**53:
                    raise RunError(f"{self.path / name} is damaged: '{column}' of a row is {value!r:.40}.")
            yield row

    def evaluations(self) -> list[dict[str, Any]]:
        """Returns the rows of `eval.csv`, with numbers as integers."""
        path = self.path / "eval.csv"
        if not path.exists():
            return []
        with path.open(newline="") as file:
            try:
                return [parse_evaluation(row) for row in csv.DictReader(file)]
            except (KeyError, TypeError, ValueError, csv.Error) as error:
                raise RunError(f"{path} is damaged ({error!r}); repair or remove it.") from error

    def add_evaluations(self, rows: Iterable[dict[str, Any]], *, replace: bool = False) -> None:
        """Adds rows to `eval.csv`; a missing `base_seed` is 0.

        Of several rows with the same (seed, step, task, goal, base_seed), the one with the most episodes is kept, and
        the newest of those; with `replace` the new one, because the environment may have changed.
        """
        added = [{"base_seed": 0, **row} for row in rows]
        keys = set(map(_evaluation_key, added)) if replace else set()
        with self._evaluations_locked():
            kept = [row for row in self.evaluations() if _evaluation_key(row) not in keys]
            self._save_evaluations([*kept, *added])

    def _evaluations_locked(self) -> AbstractContextManager[None]:
        """Several processes may evaluate a run at the same time; no row may be lost."""
        return wait_for_lock(self.path / "eval.lock")

    def _save_evaluations(self, rows: Iterable[dict[str, Any]]) -> None:
        table: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in rows:
            key = _evaluation_key(row)
            if key not in table or row["episodes"] >= table[key]["episodes"]:
                table[key] = row
        text = io.StringIO()
        writer = csv.DictWriter(text, EVAL_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table[key] for key in sorted(table))
        write_text(self.path / "eval.csv", text.getvalue())


def _evaluation_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Returns what identifies a row of `eval.csv`, which is also sorted by it."""
    return (row["step"], row["seed"], row["task"], row["goal"], row["base_seed"])


def parse_evaluation(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row of `eval.csv` with integers; in files without the column `base_seed` it is 0.

    Raises `ValueError` if it has numbers that are not possible.
    """
    row = {"base_seed": 0, **row}
    parsed = {name: row[name] if name in TEXT_COLUMNS else int(row[name]) for name in EVAL_COLUMNS}
    if not 0 <= parsed["successes"] <= parsed["episodes"]:
        raise ValueError(f"{parsed['successes']} successes of {parsed['episodes']} episodes")
    return parsed


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))

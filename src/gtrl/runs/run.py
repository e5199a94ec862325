"""A run directory: what is in it and how it is read and written. Free of JAX."""

import csv
import io
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from gtrl.errors import RunError
from gtrl.io.atomic import write_text
from gtrl.io.jsonl import read_rows
from gtrl.io.locks import wait_for_lock

SHOWS_LAST_STEP = ("rollouts.npz", "values.npz", "trajectories.png", "rollouts.mp4", "rollouts.gif")
EVAL_COLUMNS: tuple[str, ...] = ("algorithm", "task", "seed", "step", "goal", "episodes", "successes", "base_seed")
LOCK = "lock"  # while a process trains in the directory
TEXT_COLUMNS = ("algorithm", "task", "goal")


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"{step}.npz"


def shown(method: str) -> str:
    """A method's name as people write it: GTRL, TD-n."""
    return method.upper().replace("-N", "-n")


def new_directory(parent: Path) -> Path:
    """`parent/<time>`, with a number behind it where another process took that name in the same second."""
    now = datetime.now().strftime("%Y%m%d-%H%M%S")
    parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = parent / (now if number == 1 else f"{now}-{number}")
        with suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError


class Config(dict[str, Any]):
    """An object of a `config.json`. A key that is missing is a RunError: the file is damaged, or no run's."""

    path: Path

    def __missing__(self, key: str) -> Any:
        raise RunError(f"{self.path} has no '{key}'; it is damaged, or another program's.")


def read_config(path: Path) -> Config:
    """A `config.json`, its objects within too."""

    def config(values: dict[str, Any]) -> Config:
        found = Config(values)
        found.path = path
        return found

    try:
        found = json.loads(path.read_text(), object_hook=config)
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read ({error}).") from error
    if not isinstance(found, Config):
        raise RunError(f"{path} is not a JSON object.")
    return found


@dataclass(frozen=True)
class Run:
    """A directory with `config.json`, `metrics.jsonl`, `eval.csv`, `policies/`, `checkpoints/`."""

    path: Path

    @classmethod
    def open(cls, path: "str | Path | Run") -> "Run":
        if isinstance(path, Run):
            return path
        run = cls(Path(path).expanduser())
        if not run.exists:
            raise RunError(f"{path} is not a run directory: it has no config.json.")
        return run

    @property
    def exists(self) -> bool:
        return (self.path / "config.json").exists()

    @property
    def config(self) -> dict[str, Any]:
        return read_config(self.path / "config.json")

    def save_config(self, config: dict[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / "config.json", json.dumps(config, indent=2) + "\n")

    @property
    def plugins(self) -> list[str]:
        """The modules that define its method and its task, where the package does not."""
        return list(self.config.get("plugins", ()))

    @property
    def seeds(self) -> list[int]:
        seeds = self.config["seeds"]
        if not isinstance(seeds, list) or not seeds or any(type(seed) is not int for seed in seeds):
            raise RunError(f"{self.path}/config.json has no list of seeds.")
        return seeds

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def policy_path(self, seed: int, step: int | None = None) -> Path:
        """The policy of one seed, at the last step unless another is named."""
        step = self.policy_steps[-1] if step is None else step
        path = self.path / "policies" / f"step-{step}" / f"seed-{seed}.npz"
        if not path.exists():
            raise RunError(f"{self.path} has no policy of seed {seed} at step {step}.")
        return path

    @property
    def policy_steps(self) -> list[int]:
        """The steps at which policies were written, in order; all seeds are there."""
        steps = self.written_steps()
        if not steps:
            raise RunError(f"{self.path} holds no policy yet: train to a checkpoint first.")
        return steps

    def written_steps(self) -> list[int]:
        """The same, and no complaint where there are none."""
        files = [f"seed-{seed}.npz" for seed in self.seeds]
        folders = [folder for folder in self._policy_folders() if all((folder / file).exists() for file in files)]
        return sorted(map(_step_of, folders))

    def _policy_folders(self) -> list[Path]:
        folders = (self.path / "policies").glob("step-*")
        return [folder for folder in folders if folder.name.removeprefix("step-").isdecimal()]

    def forget_after(self, step: int) -> None:
        """Policies of later steps, their evaluations and what evaluation made of them."""
        for folder in self._policy_folders():
            if _step_of(folder) > step:
                shutil.rmtree(folder)
        with self._evaluations_locked():
            rows = self.evaluations()
            if any(row["step"] > step for row in rows):
                self._save_evaluations(row for row in rows if row["step"] <= step)
                for name in SHOWS_LAST_STEP:
                    (self.path / name).unlink(missing_ok=True)

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The rows of `metrics.jsonl`: one for each seed at each logged step."""
        return read_rows(self.path / "metrics.jsonl")

    def evaluations(self) -> list[dict[str, Any]]:
        """The rows of `eval.csv`, numbers as numbers."""
        path = self.path / "eval.csv"
        if not path.exists():
            return []
        with path.open(newline="") as file:
            try:
                return [_evaluation(row) for row in csv.DictReader(file)]
            except (KeyError, TypeError, ValueError, csv.Error) as error:
                raise RunError(f"{path} is damaged ({error!r}); repair or remove it.") from error

    def add_evaluations(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows to `eval.csv`; rows without a `base_seed` have 0.

        Of several rows of one (seed, step, goal, base_seed), the one with most episodes stays, the newest among equals.
        """
        with self._evaluations_locked():
            self._save_evaluations([*self.evaluations(), *({"base_seed": 0, **row} for row in rows)])

    def _evaluations_locked(self) -> AbstractContextManager[None]:
        """Several processes may evaluate a run; none must lose what another added."""
        return wait_for_lock(self.path / "eval.lock")

    def _save_evaluations(self, rows: Iterable[dict[str, Any]]) -> None:
        table: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in rows:
            key = (row["step"], row["seed"], row["task"], row["goal"], row["base_seed"])
            if key not in table or row["episodes"] >= table[key]["episodes"]:
                table[key] = row
        text = io.StringIO()
        writer = csv.DictWriter(text, EVAL_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table[key] for key in sorted(table))
        write_text(self.path / "eval.csv", text.getvalue())


def _evaluation(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `eval.csv`; a file without the column `base_seed` was evaluated with 0."""
    row = {"base_seed": 0, **row}
    return {name: row[name] if name in TEXT_COLUMNS else int(row[name]) for name in EVAL_COLUMNS}


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))

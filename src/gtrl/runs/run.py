"""A run directory: what is in it and how it is read and written. Free of JAX."""

import csv
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtrl.io.locks import in_turn
from gtrl.io.atomic import write_text
from gtrl.errors import RunError
from gtrl.io.jsonl import read_rows

SHOWS_LAST_STEP = ("rollouts.npz", "values.npz", "trajectories.png", "rollouts.mp4", "rollouts.gif")
LOCK = "lock"  # while a process trains in the directory
EVAL_COLUMNS = ("algorithm", "task", "seed", "step", "goal", "episodes", "successes")


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"{step}.npz"


def shown(method: str) -> str:
    """A method's name as people write it: GTRL, TD-n."""
    return method.upper().replace("-N", "-n")


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
        try:
            return json.loads((self.path / "config.json").read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise RunError(f"{self.path}/config.json cannot be read ({error}).") from error

    def save_config(self, config: dict[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / "config.json", json.dumps(config, indent=2) + "\n")

    @property
    def seeds(self) -> list[int]:
        return self.config["seeds"]

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
        return list((self.path / "policies").glob("step-*"))

    def forget_after(self, step: int) -> None:
        """Policies of later steps, their evaluations and what evaluation made of them."""
        for folder in self._policy_folders():
            if _step_of(folder) > step:
                shutil.rmtree(folder)
        with self._evaluating():
            rows = self.evaluations()
            if any(row["step"] > step for row in rows):
                self._save_evaluations(row for row in rows if row["step"] <= step)
                for name in SHOWS_LAST_STEP:
                    (self.path / name).unlink(missing_ok=True)

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The rows of `metrics.jsonl`: one for each seed at each logged step."""
        yield from read_rows(self.path / "metrics.jsonl")

    def evaluations(self) -> list[dict[str, Any]]:
        """The rows of `eval.csv`, numbers as numbers."""
        path = self.path / "eval.csv"
        if not path.exists():
            return []
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        return [
            {key: row[key] if key in ("algorithm", "task", "goal") else int(row[key]) for key in EVAL_COLUMNS}
            for row in rows
        ]

    def add_evaluations(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows to `eval.csv`; a goal that was evaluated before at that seed and step gets its new row."""
        with self._evaluating():
            self._save_evaluations([*self.evaluations(), *rows])

    def _evaluating(self) -> AbstractContextManager[None]:
        """Several processes may evaluate a run; none must take back what another added."""
        return in_turn(self.path / "eval.lock")

    def _save_evaluations(self, rows: Iterable[dict[str, Any]]) -> None:
        table = {(row["seed"], row["step"], row["goal"]): row for row in rows}
        ordered = [table[key] for key in sorted(table, key=lambda key: (key[1], key[0], key[2]))]
        lines = [",".join(EVAL_COLUMNS), *(",".join(str(row[key]) for key in EVAL_COLUMNS) for row in ordered)]
        write_text(self.path / "eval.csv", "\n".join(lines) + "\n")


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))

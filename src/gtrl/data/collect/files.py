"""Collecting whole files: episodes spread over processes, the same file whatever their number."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from gtrl import console
from gtrl.console import Bar
from gtrl.data.check import validation_path
from gtrl.data.collect.maze import Episode, MazeCollector
from gtrl.errors import ConfigError, DataError
from gtrl.npz import write_npz
from gtrl.tasks import Task, find_task
from gtrl.workers import spread

VALIDATION_SHARE = 10  # one validation episode for so many training episodes, at least one
ROWS_PER_JOB = 10_000  # about a second of work: small enough for a smooth progress bar


@lru_cache(maxsize=1)
def _collector(task: Task) -> MazeCollector:
    """One collector, and so one simulator, a process."""
    return MazeCollector(task)


def _episodes(job: tuple[Task, int, int, range]) -> list[Episode]:
    task, seed, split, indices = job
    collector = _collector(task)
    return [collector.episode(np.random.SeedSequence([seed, split, index])) for index in indices]


def collect_episodes(
    task: Task, episodes: int, seed: int, split: int, workers: int | None, bar: Bar
) -> dict[str, np.ndarray]:
    """Episode k of a split is decided by (seed, split, k): neither order nor number of workers matters."""
    per_job = max(1, ROWS_PER_JOB // (task.trajectory_length + 1))
    starts = range(0, episodes, per_job)
    jobs = [(task, seed, split, range(start, min(start + per_job, episodes))) for start in starts]
    parts: list[list[Episode]] = [[] for _ in jobs]
    for index, result in spread(_episodes, jobs, workers):
        parts[index] = result
        bar(len(result))
    rows = [episode for part in parts for episode in part]
    return {key: np.concatenate([getattr(episode, key) for episode in rows]) for key in Episode._fields}


@dataclass(frozen=True)
class Plan:
    """What to collect, checked before any of it is done."""

    task: Task
    path: Path
    episodes: int

    @classmethod
    def make(cls, task: str | Task, out: str | Path, episodes: int | None = None) -> "Plan":
        task = find_task(task) if isinstance(task, str) else task
        if task.family != "pointmaze":
            raise DataError(f"{task.name} cannot be collected yet: there are collectors for the point mazes only.")
        plan = cls(task, Path(out).expanduser(), task.trajectories if episodes is None else episodes)
        if plan.episodes < 1:
            raise ConfigError(f"episodes is {plan.episodes} and must be at least 1.")
        if plan.path.suffix != ".npz":
            raise DataError(f"{plan.path} must end in .npz.")
        for file in (plan.path, plan.validation):
            if file.exists():
                raise DataError(f"{file} exists already; remove it or choose another --out.")
        return plan

    @property
    def validation(self) -> Path:
        return validation_path(self.path)

    @property
    def held_out(self) -> int:
        """How many validation episodes go with the training episodes."""
        return max(1, self.episodes // VALIDATION_SHARE)

    @property
    def total(self) -> int:
        return self.episodes + self.held_out


def collect(
    task: str | Task,
    out: str | Path,
    *,
    episodes: int | None = None,
    workers: int | None = None,
    seed: int = 0,
    show: bool = True,
) -> Path:
    """Collect a task's training file and, beside it, its validation file. Never overwrites."""
    plan = Plan.make(task, out, episodes)
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers} and must be at least 1.")
    if seed < 0:
        raise ConfigError(f"seed is {seed} and must not be negative.")
    with console.bar(f"collecting {plan.task.name}", plan.total, "episodes", show) as bar:
        # The validation file first: whoever finds the training file finds both.
        for file, count, split in ((plan.validation, plan.held_out, 1), (plan.path, plan.episodes, 0)):
            write_npz(file, collect_episodes(plan.task, count, seed, split, workers, bar))
    return plan.path

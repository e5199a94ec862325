"""The state of a run, from the files of its directory alone: what the tables of `gtrl sweep` and `gtrl watch` show."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gtrl.errors import GtrlError, UnknownNameError
from gtrl.io.locks import is_locked
from gtrl.report.cells import Cell
from gtrl.runs.run import LOCK, NON_FINITE_REPORT, Run, policy_steps
from gtrl.tasks import find_task

State = Literal[
    "waiting",
    "starting",
    "no data",
    "training",
    "evaluating",
    "elsewhere",
    "stopped",
    "trained",
    "failed",
    "finished",
    "damaged",
]


@dataclass(frozen=True)
class Status:
    """Where a run is. Numbers that are not known are None."""

    task: str
    name: str
    state: State
    step: int = 0
    steps: int | None = None
    steps_per_second: float | None = None
    seconds_left: float | None = None  # of training
    success: float | None = None  # in percent: the score of the checkpoints that are evaluated so far
    message: str = ""
    path: str = ""  # of the run directory in the folder that is watched; tells runs of the same name apart

    @property
    def key(self) -> str:
        """What identifies the run among those that are shown: its path, or else `<task>/<name>`."""
        return self.path or "/".join(part for part in (self.task, self.name) if part)


# What a status is read from, as (time of change, size), and the status. Runs that do not change are not read again.
_Signature = tuple[tuple[int, int] | None, ...]
_KNOWN: dict[Path, tuple[_Signature, bool, Status]] = {}
_SOURCES = ("config.json", "timing.jsonl", "eval.csv", "checkpoints", NON_FINITE_REPORT)


def read_status(folder: Path, task: str = "", name: str = "") -> Status:
    """Reads the status of a run directory. `task` and `name` are shown if it has no config yet."""
    run = Run(folder)
    try:
        return _known_status(run) if run.exists else Status(task, name, "waiting")
    except (GtrlError, OSError, KeyError, TypeError, ValueError) as error:
        return Status(task or folder.parent.name, name or folder.name, "damaged", message=str(error))


def _known_status(run: Run) -> Status:
    """The status of a run, which is read again only if its files have changed."""
    signature, running = tuple(_signature(run.path / name) for name in _SOURCES), is_locked(run.path / LOCK)
    known = _KNOWN.get(run.path)
    if known is None or known[:2] != (signature, running):
        known = _KNOWN[run.path] = (signature, running, _read_status(run, running))
    return known[2]


def _signature(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _read_status(run: Run, running: bool) -> Status:
    config = run.config
    cell = Cell(run, run.path.name)
    task, steps = str(config.get("task") or ""), int(config["training"]["steps"])
    step, rate = progress(run)
    score = cell.score()
    state = _state(run, config, step, running)
    is_running = state in ("training", "evaluating")
    return Status(
        task=task or run.path.parent.name,
        name=run.path.name,
        state=state,
        step=step,
        steps=steps,
        steps_per_second=rate if is_running else None,
        seconds_left=(steps - step) / rate if is_running and rate else None,
        success=score.mean if score else None,
        message=f"see {NON_FINITE_REPORT}" if state == "failed" else "",
    )


def _state(run: Run, config: dict[str, Any], step: int, running: bool) -> State:
    """The state by the lock, the progress and the evaluations; how many episodes were asked for is not recorded."""
    steps = config["training"]["steps"]
    if running:
        return "training" if step < steps else "evaluating"
    if (run.path / NON_FINITE_REPORT).exists():
        return "failed"
    training = config["training"]
    planned = policy_steps(steps, training.get("checkpoints", ()), training.get("checkpoint_every", 0))
    if is_evaluated(run, planned, 1):
        return "finished"
    return "trained" if step >= steps else "stopped"


def progress(run: Run) -> tuple[int, float | None]:
    """Returns the last step that a run has logged or saved, and its speed in steps per second."""
    rows = list(run.timing())[-3:]
    rates = [rate for row in rows if isinstance(rate := row.get("steps_per_second"), (int, float)) and rate > 0]
    return max([newest_checkpoint(run), *(int(row["step"]) for row in rows)]), rates[-1] if rates else None


def newest_checkpoint(run: Run) -> int:
    """Returns the step from which a run would be resumed; 0 if no checkpoint is saved."""
    return max((int(path.stem) for path in run.checkpoints.glob("*.npz") if path.stem.isdigit()), default=0)


def missing_evaluations(run: Run, steps: Iterable[int], episodes: int) -> list[int]:
    """Returns the steps of which `eval.csv` lacks a goal or a seed, or has fewer episodes."""
    return list(_missing_evaluations(run, steps, episodes))


def is_evaluated(run: Run, steps: Iterable[int], episodes: int) -> bool:
    """Returns whether `eval.csv` has all goals, seeds and episodes of the steps; ends at the first that it lacks."""
    return next(_missing_evaluations(run, steps, episodes), None) is None


def _missing_evaluations(run: Run, steps: Iterable[int], episodes: int) -> Iterator[int]:
    config = run.config
    task = config.get("task")
    found = {
        (row["step"], row["seed"], row["goal"])
        for row in run.evaluations()
        if row["task"] == task and row["base_seed"] == 0 and row["episodes"] >= episodes
    }
    goals = _goal_names(task) or sorted({goal for _, _, goal in found}) or ["any"]
    for step in steps:
        if any((step, seed, goal) not in found for seed in config["seeds"] for goal in goals):
            yield step


def _goal_names(task: str | None) -> tuple[str, ...]:
    """The names of a task's goals; none if the task is of a plugin that is not imported.

    A module that `config.json` names is never imported: looking at a run must not execute code.
    """
    try:
        return find_task(task).goal_names if task and ":" not in task else ()
    except UnknownNameError:
        return ()


def duration(seconds: float) -> str:
    """Returns a time as it is shown: 45s, 12m, 3h 5m, 2d 4h."""
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f}s"
    if minutes < 60:
        return f"{minutes}m"
    if minutes < 24 * 60:
        return f"{minutes // 60}h {minutes % 60}m"
    hours = round(seconds / 3600)
    return f"{hours // 24}d {hours % 24}h"


def clock() -> str:
    """Returns the time of day, for lines of a log."""
    return time.strftime("%H:%M:%S")

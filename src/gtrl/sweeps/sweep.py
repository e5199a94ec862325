"""Runs a sweep: starts what is not finished, here or on a Ray cluster, and shows the state of all runs."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from gtrl.errors import ConfigError, Interrupted, RunError
from gtrl.registry import load_plugins
from gtrl.runs.run import Run
from gtrl.sweeps.display import screen
from gtrl.sweeps.job import Job, Outcome
from gtrl.sweeps.machine import Machine
from gtrl.sweeps.plan import Sweep
from gtrl.sweeps.status import Status, missing_evaluations, read_status
from gtrl.tasks import SCORED_STEPS

POLL_SECONDS = 0.5
LOGS = "logs"  # the folder for the output of the jobs, in the output folder
RESUME_HINT = "checkpoints are saved; run the same command again to resume"
RETRIES = 3


class Executor(Protocol):
    """Where jobs run: `Machine` or `Cluster`."""

    @property
    def workers(self) -> int:
        """The number of evaluation processes of one job."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether another job may be started now."""
        ...

    def start(self, key: str, job: Job, log: Path) -> None:
        """Starts a job."""
        ...

    def is_started(self, key: str, /) -> bool:
        """Whether the process of a job is known to run."""
        ...

    def finished(self) -> list[tuple[str, Outcome]]:
        """Returns the jobs that have ended since the last call."""
        ...

    def stop(self) -> None:
        """Ends all jobs, after a checkpoint."""
        ...

    def close(self) -> None:
        """Frees everything."""
        ...


@dataclass
class Entry:
    """A run while its sweep is executed."""

    folder: Path
    task: str
    name: str
    job: Job | None  # None if there is nothing to do
    is_complete: Callable[[], bool]  # decided from the run's files
    data: Path | None = None  # None as long as the dataset is not on this machine
    is_submitted: bool = False
    has_run: bool = False  # whether it was seen to train or evaluate
    end: Status | None = None  # the last status, once the run is finished, failed or left out

    @property
    def key(self) -> str:
        """The run's folder in the output folder."""
        return f"{self.task}/{self.name}"


def run_sweep(
    sweep: Sweep,
    out: str | Path,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    cpus_per_run: float | None = None,
    gpus_per_run: float | None = None,
    retries: int = RETRIES,
    show: bool = True,
) -> list[Status]:
    """Trains and evaluates all runs of a sweep that are not finished, in `<out>/<task>/<name>/`.

    All runs are checked before the first one starts. A run that fails does not end the sweep. Returns the last status
    of every run, in order.

    Args:
        sweep: What to run.
        out: The output folder.
        jobs: How many runs are trained at once; by default one per GPU, or one per two cores and 4 GiB of memory.
        ray: The address of a Ray cluster, or "local" to start one on this machine; by default Ray is not used.
        cpus_per_run: With Ray: the CPUs of one run; by default a GPU's share of them, or 2 without GPUs.
        gpus_per_run: With Ray: the GPUs of one run; by default 1 if the cluster has any.
        retries: How often a run is started again after its process or node was lost.
        show: Show a live table in a terminal, or a line for each change of a state elsewhere.
    """
    from gtrl.sweeps.prepare import check_sweep

    folder = Path(out).expanduser()
    runs = check_sweep(sweep, folder)
    entries = [_training_entry(run) for run in runs]
    return _execute(entries, folder, jobs, ray, cpus_per_run, gpus_per_run, retries, show)


def evaluate_runs(
    folders: Sequence[Path],
    out: Path,
    *,
    episodes: int,
    all_steps: bool = False,
    jobs: int | None = None,
    ray: str | None = None,
    cpus_per_run: float | None = None,
    gpus_per_run: float | None = 0,
    retries: int = RETRIES,
    show: bool = True,
) -> list[Status]:
    """Evaluates the saved policies of runs below `out` that are not evaluated with so many episodes yet.

    By default the steps that count for the score and the last one, with `all_steps` all that have policies. The other
    arguments are those of `run_sweep`; no GPU is used.
    """
    entries = [_evaluation_entry(Run.open(folder), out, episodes, all_steps) for folder in folders]
    return _execute(entries, out, jobs, ray, cpus_per_run, gpus_per_run, retries, show)


def _execute(
    entries: Sequence[Entry],
    out: Path,
    jobs: int | None,
    ray: str | None,
    cpus: float | None,
    gpus: float | None,
    retries: int,
    show: bool,
) -> list[Status]:
    if retries < 0:
        raise ConfigError(f"--retries is {retries} and must not be negative.")
    if ray is None and (cpus is not None or gpus):
        raise ConfigError("--cpus-per-run and --gpus-per-run are for --ray.")
    if all(entry.end for entry in entries):  # no process and no cluster is started where there is nothing to do
        with screen(str(out), show) as view:
            view.update([entry.end for entry in entries if entry.end])
        return [entry.end for entry in entries if entry.end]
    executor: Executor
    if ray is None:
        executor = Machine(jobs, retries)
    else:
        from gtrl.sweeps.cluster import Cluster

        executor = Cluster(ray, out, jobs=jobs, cpus=cpus, gpus=gpus, retries=retries)
    return _Execution(entries, out, executor).run(show)


# --- what to do ---


def _training_entry(run: Any) -> Entry:
    """The entry of a `CheckedRun`."""
    from gtrl.sweeps.prepare import data_of, find_state

    state = find_state(run)
    job = Job(
        "train",
        run.plan.task,
        run=str(run.folder),
        method=run.plan.variant.method,
        seeds=tuple(run.plan.seeds),
        fields=run.fields,
        episodes=run.plan.episodes,
        import_paths=(str(Path.cwd()),),
    )
    entry = Entry(
        run.folder, run.task.name, run.plan.variant.name, job,
        lambda: find_state(run) == "finished", data=data_of(run),
    )  # fmt: skip
    if state in ("finished", "elsewhere"):
        entry.end = replace(_status(entry), state=state, seconds_left=None)
    return entry


def _evaluation_entry(run: Run, out: Path, episodes: int, all_steps: bool) -> Entry:
    load_plugins(run.plugins)
    written = run.written_steps()
    chosen = [step for step in written if all_steps or step in SCORED_STEPS or step == written[-1]]
    steps = tuple(missing_evaluations(run, chosen, episodes))
    task = run.config.get("task")
    if not task:
        raise RunError(f"{run.path} was trained on data without a task, so it cannot be evaluated.")
    key = run.path.relative_to(out)
    job = Job("evaluate", task, run=str(run.path), steps=steps, episodes=episodes, import_paths=(str(Path.cwd()),))
    entry = Entry(
        run.path, str(key.parent), key.name, job, lambda: not missing_evaluations(run, steps, episodes), data=run.path
    )
    if not steps:
        entry.end = replace(_status(entry), state="finished" if written else "waiting")
    return entry


# --- doing it ---


class _Execution:
    """The loop of a sweep: gets datasets, starts runs whose data is there, and notes how they end."""

    def __init__(self, entries: Sequence[Entry], out: Path, executor: Executor) -> None:
        self.entries, self.out, self.executor = entries, out, executor
        self.data_machine = Machine(jobs=1)  # one dataset is downloaded or collected at a time
        self.by_key = {entry.key: entry for entry in entries}

    def run(self, show: bool) -> list[Status]:
        try:
            with _stop_on_sigterm(), screen(str(self.out), show) as view:
                while self._advance():
                    view.update(self.statuses())
                    time.sleep(POLL_SECONDS)
                view.update(self.statuses())
        except KeyboardInterrupt as stop:
            self.data_machine.stop()
            self.executor.stop()
            raise Interrupted(RESUME_HINT, getattr(stop, "signal", signal.SIGINT)) from None
        finally:
            self.data_machine.close()
            self.executor.close()
        return self.statuses()

    def statuses(self) -> list[Status]:
        """The status of every run, in order."""
        return [entry.end or self._current(entry) for entry in self.entries]

    def _current(self, entry: Entry) -> Status:
        status = _status(entry)
        if status.state in ("training", "evaluating"):
            entry.has_run = True
            return status
        if not entry.has_run and not self.executor.is_started(entry.key):
            return replace(status, state="waiting")
        is_trained = status.steps is not None and status.step >= status.steps
        return replace(status, state="evaluating" if is_trained else "starting")

    def _advance(self) -> bool:
        """Notes what has ended and starts what can be started; returns whether anything is left to do."""
        for key, outcome in self.data_machine.finished():
            self._end_data(key, outcome)
        for key, outcome in self.executor.finished():
            self._end_run(self.by_key[key], outcome)
        open_entries = [entry for entry in self.entries if entry.end is None]
        for entry in open_entries:
            if entry.data and not entry.is_submitted and self.executor.has_room:
                self._start(entry)
        missing = [entry for entry in open_entries if entry.data is None]
        if missing and self.data_machine.has_room:
            self._start_data(missing[0])
        return bool(open_entries)

    def _start(self, entry: Entry) -> None:
        assert entry.job
        job = replace(entry.job, data=str(entry.data), workers=self.executor.workers)
        if job.action == "evaluate":
            job = replace(job, data="")
        self.executor.start(entry.key, job, self.out / LOGS / f"{entry.key}.log")
        entry.is_submitted = True

    def _start_data(self, entry: Entry) -> None:
        job = Job("data", entry.task, workers=self.data_machine.workers, import_paths=(str(Path.cwd()),))
        self.data_machine.start(entry.task, job, self.out / LOGS / f"{entry.task}.log")

    def _end_data(self, task: str, outcome: Outcome) -> None:
        from gtrl.data.sources.get import cached_file
        from gtrl.tasks import ogbench_task

        for entry in self.entries:
            if entry.task == task and entry.end is None and entry.data is None:
                if outcome.status == 0:
                    entry.data = cached_file(ogbench_task(task))
                else:
                    entry.end = replace(_status(entry), state="no data", message=outcome.message)

    def _end_run(self, entry: Entry, outcome: Outcome) -> None:
        status = _status(entry)
        if outcome.status == 0 and entry.is_complete():
            entry.end = replace(status, state="finished", steps_per_second=None, seconds_left=None)
        else:
            reason = outcome.message or "its evaluations are incomplete"
            entry.end = replace(status, state="failed", message=reason)


def _status(entry: Entry) -> Status:
    return replace(read_status(entry.folder, entry.task, entry.name), task=entry.task, name=entry.name)


@contextlib.contextmanager
def _stop_on_sigterm() -> Iterator[None]:
    """Makes SIGTERM, which job schedulers send, stop the sweep like Ctrl-C."""

    def stop(number: int, _: FrameType | None) -> None:
        raise Interrupted(RESUME_HINT, number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def find_runs(out: Path, tasks: Sequence[str] | None, methods: Sequence[str] | None) -> list[Path]:
    """Returns the run directories below a folder; if tasks, or methods or variants, are given, only theirs."""
    from gtrl.report.cells import find_cells

    cells = find_cells([out])
    chosen = [
        cell.run.path
        for cell in cells
        if (tasks is None or cell.task in tasks)
        and (methods is None or cell.run.path.name in methods or cell.method in methods)
    ]
    if not chosen:
        raise RunError(f"{out} holds no run of these tasks and methods.")
    return chosen

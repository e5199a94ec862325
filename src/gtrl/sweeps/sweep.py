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

from gtrl.envs.simulator import require_simulator_of
from gtrl.errors import ConfigError, Interrupted, RunError
from gtrl.io.locks import is_locked
from gtrl.registry import load_plugins
from gtrl.runs.run import LOCK, Run
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
    job: Job
    missing: Callable[[], list[int]]  # the steps whose evaluations are not complete in the run's files
    data: Path | None = None  # None as long as the dataset is not on this machine
    is_submitted: bool = False
    is_elsewhere: bool = False  # whether another process trained it when its turn came; it is looked at again
    has_run: bool = False  # whether it was seen to train or evaluate
    end: Status | None = None  # the last status, once the run is finished, failed or left out

    @property
    def key(self) -> str:
        """The run's folder in the output folder."""
        return str(Path(self.task) / self.name)


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

    folder = Path(out).expanduser().absolute()  # the processes of a Ray cluster work in another folder
    runs = check_sweep(sweep, folder)
    if ray is None:  # the machines of a cluster may have other packages than this one
        for run in runs:
            require_simulator_of(run.task)
    entries = [_training_entry(run) for run in runs]
    return _execute(entries, folder, str(out), jobs, ray, cpus_per_run, gpus_per_run, retries, show)


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
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes} and must be at least 1.")
    if Run(out).exists:
        raise ConfigError(f"{out} is a run, not a folder of runs; use gtrl evaluate {out}")
    absolute = out.expanduser().absolute()  # as in `run_sweep`
    runs = [Run.open(folder.expanduser().absolute()) for folder in folders]
    entries = [_evaluation_entry(run, absolute, episodes, all_steps) for run in runs]
    return _execute(entries, absolute, str(out), jobs, ray, cpus_per_run, gpus_per_run, retries, show)


def _execute(
    entries: Sequence[Entry],
    out: Path,
    title: str,
    jobs: int | None,
    ray: str | None,
    cpus: float | None,
    gpus: float | None,
    retries: int,
    show: bool,
) -> list[Status]:
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs is {jobs} and must be at least 1.")
    if retries < 0:
        raise ConfigError(f"--retries is {retries} and must not be negative.")
    if ray is None and (cpus is not None or gpus):
        raise ConfigError("--cpus-per-run and --gpus-per-run are for --ray.")
    if all(entry.end for entry in entries):  # no process and no cluster is started where there is nothing to do
        with screen(title, show) as view:
            view.update([entry.end for entry in entries if entry.end])
        return [entry.end for entry in entries if entry.end]
    executor: Executor
    if ray is None:
        executor = Machine(jobs, retries)
    else:
        from gtrl.sweeps.cluster import Cluster

        executor = Cluster(ray, out, jobs=jobs, cpus=cpus, gpus=gpus, retries=retries)
    return _Execution(entries, out, executor).run(title, show)


# --- what to do ---


def _training_entry(run: Any) -> Entry:
    """The entry of a `CheckedRun`."""
    from gtrl.sweeps.prepare import data_of, find_state

    def missing() -> list[int]:
        steps, saved = run.training.checkpoint_steps, Run(run.folder)
        return missing_evaluations(saved, steps, run.plan.episodes) if saved.exists else list(steps)

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
    entry = Entry(run.folder, run.task.name, run.plan.variant.name, job, missing, data=data_of(run))
    if find_state(run) == "finished":
        entry.end = replace(_status(entry), state="finished", seconds_left=None)
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
    parent = "" if key.parent == Path() else str(key.parent)
    job = Job("evaluate", task, run=str(run.path), steps=steps, episodes=episodes, import_paths=(str(Path.cwd()),))
    entry = Entry(run.path, parent, key.name, job, lambda: missing_evaluations(run, steps, episodes), data=run.path)
    if not written:
        entry.end = replace(_status(entry), state="stopped", message="holds no policy yet")
    elif not steps:
        entry.end = replace(_status(entry), state="finished")
    return entry


# --- doing it ---


class _Execution:
    """The loop of a sweep: gets datasets, starts runs whose data is there, and notes how they end."""

    def __init__(self, entries: Sequence[Entry], out: Path, executor: Executor) -> None:
        self.entries, self.out, self.executor = entries, out, executor
        self.data_machine = Machine(jobs=1)  # one dataset is downloaded or collected at a time
        self.by_key = {entry.key: entry for entry in entries}

    def run(self, title: str, show: bool) -> list[Status]:
        try:
            with _stop_on_sigterm(), screen(title, show) as view:
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
        if not entry.is_submitted:
            return replace(status, state="elsewhere" if entry.is_elsewhere else "waiting")
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
        for entry in self._open_entries():
            if not entry.is_submitted and self.executor.has_room:
                self._take_turn(entry)
        open_entries = self._open_entries()
        if all(entry.is_elsewhere for entry in open_entries):  # nothing is left that this sweep could do
            for entry in open_entries:
                entry.end = replace(_status(entry), state="elsewhere", seconds_left=None)
            return False
        missing = [entry for entry in open_entries if entry.data is None and not entry.is_elsewhere]
        if missing and self.data_machine.has_room:
            self._start_data(missing[0])
        return True

    def _open_entries(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.end is None]

    def _take_turn(self, entry: Entry) -> None:
        """Starts a run, unless another process trains it or has finished it since the sweep began."""
        entry.is_elsewhere = _is_trained_elsewhere(entry)
        if entry.is_elsewhere or entry.data is None:
            return
        if entry.missing():
            self._start(entry)
        else:
            self._finish(entry)

    def _start(self, entry: Entry) -> None:
        data = entry.data.absolute() if entry.data else ""
        job = replace(entry.job, data=str(data), workers=self.executor.workers)
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
        if outcome.status != 0 and _is_trained_elsewhere(entry):  # another process was faster
            entry.is_submitted, entry.is_elsewhere = False, True
        elif outcome.status != 0:
            entry.end = replace(_status(entry), state="failed", message=outcome.message)
        elif missing := entry.missing():
            steps = ", ".join(f"{step:,}" for step in missing)
            message = f"its evaluations are incomplete: step{'s' if len(missing) > 1 else ''} {steps}"
            entry.end = replace(_status(entry), state="failed", message=message)
        else:
            self._finish(entry)

    def _finish(self, entry: Entry) -> None:
        entry.end = replace(_status(entry), state="finished", steps_per_second=None, seconds_left=None)


def _is_trained_elsewhere(entry: Entry) -> bool:
    """Whether a process trains in the directory of a run whose job does not run."""
    return entry.job.action == "train" and is_locked(entry.folder / LOCK)


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

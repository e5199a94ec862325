"""One job of a sweep, in a process of its own: `python -m gtrl.sweeps JOB`, where JOB is JSON.

A process of its own frees all memory at its end, and its crash does not end the sweep.
"""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gtrl import console
from gtrl.errors import GtrlError

START_TIME = time.perf_counter()
PARENT_POLL_SECONDS = 0.5
ERROR_STATUS = 2  # of an error that a repetition would not mend


@dataclass(frozen=True)
class Job:
    """What a process does: train and evaluate a run, evaluate a run, or get a task's dataset."""

    action: Literal["train", "evaluate", "data"]
    task: str
    run: str = ""  # the run directory
    method: str = ""
    seeds: tuple[int, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    steps: tuple[int, ...] = ()  # to evaluate
    episodes: int = 1
    data: str = ""
    workers: int = 1  # of evaluations and collections
    import_paths: tuple[str, ...] = ()  # where plugins are
    scratch: str = ""  # removed if the parent process dies


class Outcome(NamedTuple):
    """How a job ended."""

    status: int  # of the process; negative if a signal ended it
    message: str = ""  # the last line of its output


# --- starting a job ---


def start_process(job: Job, log: Path, environment: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Starts a job whose output is appended to `log`. It gets no Ctrl-C of the terminal: the parent passes it on."""
    log.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dataclasses.asdict(job) | {"parent": os.getpid()})
    with log.open("ab") as file:
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "gtrl.sweeps", text],
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(environment or {}),
        )  # fmt: skip


def last_line(log: Path) -> str:
    """Returns the last line that a job has printed, without the prefix of error messages."""
    try:
        lines = log.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip().removeprefix("gtrl: ") for line in reversed(lines) if line.strip()), "")


def ending_signal(status: int) -> signal.Signals | None:
    """Returns the signal that ended a job, by the status of its process; None if it ended by itself.

    A job that was asked to stop, for example by a pre-emption, saves a checkpoint and exits with 128 + the signal.
    """
    if status < 0:
        return signal.Signals(-status)
    return signal.Signals(status - 128) if status - 128 in (signal.SIGTERM, signal.SIGINT) else None


# --- the process ---


def main(text: str) -> int:
    """Runs a job and returns the exit status: 0, 2 for a `GtrlError`, 1 for any other, 128 + n after signal n."""
    content = json.loads(text)
    parent = content.pop("parent")
    job = Job(**content)
    _end_with_parent(parent, job.scratch)
    sys.path.extend(path for path in job.import_paths if path not in sys.path)
    try:
        with console.log_to_console():
            _ACTIONS[job.action](job)
    except GtrlError as error:
        console.warn(str(error))
        return ERROR_STATUS
    except KeyboardInterrupt as stop:
        console.warn(f"interrupted; {stop}")
        return 128 + getattr(stop, "signal", signal.SIGINT)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _train(job: Job) -> None:
    from gtrl.data.load import load_dataset
    from gtrl.evaluation.during import EvaluateDuring
    from gtrl.tasks import find_task
    from gtrl.training.callbacks import Timing
    from gtrl.training.train import train

    callbacks = [Timing(START_TIME), EvaluateDuring(job.episodes, job.workers)]
    train(  # the data has no name here, so that a shard's memory can be freed
        job.method, load_dataset(Path(job.data), find_task(job.task)), out=job.run, seeds=job.seeds,
        callbacks=callbacks, resume=True, show=False, handle_signals=True, **job.fields,
    )  # fmt: skip


def _evaluate(job: Job) -> None:
    from gtrl.evaluation.evaluate import evaluate

    for step in job.steps:
        evaluate(job.run, episodes=job.episodes, step=step, workers=job.workers, show=False, maps=False)


def _get_data(job: Job) -> None:
    from gtrl.data.sources.get import get_dataset

    get_dataset(job.task, workers=job.workers, show=False)


_ACTIONS = {"train": _train, "evaluate": _evaluate, "data": _get_data}


def _end_with_parent(parent: int, scratch: str) -> None:
    """Ends the process soon after its parent, so that nothing runs that no sweep knows of.

    In a directory that stays, training saves a checkpoint first. A scratch directory is of no use without the parent.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_SECONDS)
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
            os._exit(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()

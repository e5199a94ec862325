"""Work spread over processes that run NumPy and the simulator, never JAX."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from itertools import islice
from typing import Any, TypeVar

from loky import ProcessPoolExecutor
from loky.process_executor import TerminatedWorkerError

from gtrl.errors import WorkerError

Job = TypeVar("Job")
Result = TypeVar("Result")

LOOK = 0.5  # seconds between two looks at what else there may be
ATTEMPTS = 3  # at work that no worker has survived
# Seconds without any result before the workers are taken to hang: before there was a first one, and after; and how many
# times the longest wait so far.
FIRST_PATIENCE, PATIENCE, TIMES = 600.0, 60.0, 10.0
QUEUED = 4  # jobs handed over for each worker: none waits for the next, and memory does not grow with their number
# One thread of linear algebra each: the processes are the parallelism, and a product's bits must not
# depend on how it was split over threads.
ENVIRONMENT = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def default_workers() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin(parent: int, nice: int) -> None:
    """In a worker: end soon after the process it works for, however that ended; Ctrl-C is for that one to hear."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the mask it began with does not last: libraries lift it
    os.nice(nice)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _LostError(Exception):
    """Workers that ended, or do not end, before their work was done."""


def spread(
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    workers: int | None = None,
    *,
    nice: int = 0,
    cancelled: threading.Event | None = None,
) -> Iterator[tuple[int, Result]]:
    """(index, result) of every job, as they finish; the processes end with the iteration, also on Ctrl-C.

    A job must not depend on who does it, nor how often: those of a worker that is killed, or hangs, are done again by
    another. `nice` is the workers' own; `cancelled` ends the iteration early, with `WorkerError`.
    """
    left = dict(enumerate(jobs))
    patience, in_vain = Patience(1 + nice), 0
    while left:
        try:
            for index, result in _spread(function, dict(left), workers, nice, cancelled, patience):
                del left[index]
                in_vain = 0
                yield index, result
        except _LostError as error:
            in_vain += 1
            if in_vain == ATTEMPTS:
                raise WorkerError(f"{error}, {ATTEMPTS} times over and always at the same work.") from error


def _spread(
    function: Callable[[Job], Result],
    jobs: Mapping[int, Job],
    workers: int | None,
    nice: int,
    cancelled: threading.Event | None,
    patience: "Patience",
) -> Iterator[tuple[int, Result]]:
    """One attempt.

    Loky rather than the standard library's pool: it neither forks a process that holds JAX nor runs the user's script
    again in each worker.
    """
    workers = max(1, min(workers or default_workers(), len(jobs)))
    pool = ProcessPoolExecutor(workers, env=ENVIRONMENT, initializer=_begin, initargs=(os.getpid(), nice))
    waiting = iter(jobs.items())
    futures: dict[Any, int] = {}
    patience.begin()

    def submit(count: int) -> None:
        for index, job in islice(waiting, count):
            futures[pool.submit(function, job)] = index

    try:
        # Workers are started here and inherit the mask: Ctrl-C reaches this process alone, which then ends them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            submit(QUEUED * workers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        while futures:
            done = wait(futures, timeout=LOOK, return_when=FIRST_COMPLETED).done
            if cancelled is not None and cancelled.is_set():
                raise WorkerError("cancelled.")
            if not patience.lasts(bool(done)):
                raise _LostError(f"no worker process finished anything for {patience.seconds:.0f} s")
            submit(len(done))
            for future in done:
                yield futures.pop(future), future.result()
    except TerminatedWorkerError as error:
        told = "a worker process was killed, perhaps because memory ran out: try fewer workers"
        raise _LostError(f"{told} ({_exit_codes(error)})") from error
    finally:
        pool.shutdown(wait=True, kill_workers=True)


class Patience:
    """How long to wait for the next result: many times as long as one ever took, and never just a moment.

    `times` as long for workers that are nice to others.
    """

    def __init__(self, times: float = 1) -> None:
        self.times = times
        self.last = self.longest = 0.0

    def begin(self) -> None:
        self.last = time.monotonic()

    @property
    def seconds(self) -> float:
        return self.times * (max(PATIENCE, TIMES * self.longest) if self.longest else FIRST_PATIENCE)

    def lasts(self, done: bool) -> bool:
        waited = time.monotonic() - self.last
        if done:
            self.last, self.longest = time.monotonic(), max(self.longest, waited)
        return done or waited <= self.seconds


def _exit_codes(error: TerminatedWorkerError) -> str:
    """What loky knows of how its workers ended."""
    return ", ".join(re.findall(r"SIG\w+\(-\d+\)|EXIT\(\d+\)", str(error))) or "no exit code"

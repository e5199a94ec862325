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

import loky
from loky.process_executor import TerminatedWorkerError

from gtrl.errors import WorkerError

Job = TypeVar("Job")
Result = TypeVar("Result")

POLL_SECONDS = 0.5  # between two checks for cancellation or hanging workers, and for a parent that has ended
MAX_ATTEMPTS = 3  # in a row without any result, each of which lost a worker
# Without any result for so long the workers are taken to hang: before there was a first result; and after it, where the
# limit is at least so many seconds and at least so many times the longest wait so far.
FIRST_PATIENCE_SECONDS, MIN_PATIENCE_SECONDS, PATIENCE_FACTOR = 600.0, 60.0, 10.0
JOBS_PER_WORKER = 4  # submitted ahead: no worker waits for its next job, and memory does not grow with their number
# One thread of linear algebra each: the processes are the parallelism, and a product's bits must not
# depend on how it was split over threads.
ENVIRONMENT = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def default_workers() -> int:
    """The number of cores this process may use, by its affinity, its container's limit and LOKY_MAX_CPU_COUNT."""
    return loky.cpu_count()


def _begin(parent: int, nice: int) -> None:
    """Prepare a worker: it ignores Ctrl-C, which its parent handles, and ends soon after its parent.

    Loky's workers do not notice that their parent was killed, least of all while they are busy.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the inherited signal mask is not enough: libraries unblock signals
    os.nice(nice)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _LostError(Exception):
    """Workers that ended, or do not end, before their work was done."""


def map_unordered(
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
    patience, attempts = HangDetector(1 + nice), 0
    while left:
        try:
            for index, result in _spread(function, dict(left), workers, nice, cancelled, patience):
                del left[index]
                attempts = 0
                yield index, result
        except _LostError as error:
            attempts += 1
            if attempts == MAX_ATTEMPTS:
                raise WorkerError(f"{error}, {MAX_ATTEMPTS} times over and always at the same work.") from error


def _spread(
    function: Callable[[Job], Result],
    jobs: Mapping[int, Job],
    workers: int | None,
    nice: int,
    cancelled: threading.Event | None,
    patience: "HangDetector",
) -> Iterator[tuple[int, Result]]:
    """One attempt.

    Loky rather than the standard library's pool: it neither forks a process that holds JAX nor runs the user's script
    again in each worker.
    """
    workers = max(1, min(workers or default_workers(), len(jobs)))
    pool = loky.ProcessPoolExecutor(workers, env=ENVIRONMENT, initializer=_begin, initargs=(os.getpid(), nice))
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
            submit(JOBS_PER_WORKER * workers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        while futures:
            done = wait(futures, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED).done
            if cancelled is not None and cancelled.is_set():
                raise WorkerError("cancelled.")
            if not patience.lasts(bool(done)):
                raise _LostError(f"no worker process finished anything for {patience.seconds:.0f} s")
            submit(len(done))
            for future in done:
                yield futures.pop(future), future.result()
    except TerminatedWorkerError as error:
        message = "a worker process was killed, perhaps because memory ran out: try fewer workers"
        raise _LostError(f"{message} ({_exit_codes(error)})") from error
    finally:
        pool.shutdown(wait=True, kill_workers=True)


class HangDetector:
    """How long to wait for the next result: a multiple of the longest wait so far, and never less than a minimum.

    `factor` lengthens all waits, for workers of low priority.
    """

    def __init__(self, factor: float = 1) -> None:
        self.factor = factor
        self.last = self.longest = 0.0

    def begin(self) -> None:
        self.last = time.monotonic()

    @property
    def seconds(self) -> float:
        if not self.longest:
            return self.factor * FIRST_PATIENCE_SECONDS
        return self.factor * max(MIN_PATIENCE_SECONDS, PATIENCE_FACTOR * self.longest)

    def lasts(self, done: bool) -> bool:
        """Whether to go on waiting; `done` says that there was a result."""
        waited = time.monotonic() - self.last
        if done:
            self.last, self.longest = time.monotonic(), max(self.longest, waited)
        return done or waited <= self.seconds


def _exit_codes(error: TerminatedWorkerError) -> str:
    """How the workers ended, as far as loky knows."""
    return ", ".join(re.findall(r"SIG\w+\(-\d+\)|EXIT\(\d+\)", str(error))) or "no exit code"

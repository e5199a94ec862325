"""Parallel jobs in worker processes, which run NumPy and the simulator but never JAX."""

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

import cloudpickle
import loky
from loky.process_executor import TerminatedWorkerError

from gtrl.errors import WorkerError

Job = TypeVar("Job")
Result = TypeVar("Result")

POLL_SECONDS = 0.5  # between checks for cancellation and hanging workers, and between a worker's checks for its parent
MAX_ATTEMPTS = 3  # consecutive attempts that lost a worker and gave no result
# Workers count as hanging after this time without a result: FIRST_PATIENCE_SECONDS before the first result, then
# PATIENCE_FACTOR times the longest wait so far, and no less than MIN_PATIENCE_SECONDS.
FIRST_PATIENCE_SECONDS, MIN_PATIENCE_SECONDS, PATIENCE_FACTOR = 600.0, 60.0, 10.0
JOBS_PER_WORKER = 4  # submitted at a time: enough to keep workers busy, while memory does not grow with the job count
# One linear-algebra thread per worker: the processes already use all cores, and the bits of a matrix product must not
# depend on the number of threads.
ENVIRONMENT = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Portable:
    """A function that can be pickled even if it is a lambda, a closure or a script's. Equal if it was pickled equal.

    Unlike the function itself, it is the same key of a cache in all jobs that a worker gets.
    """

    pickled: bytes

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Portable":
        """Pickles a function; raises any error if that is not possible."""
        return cls(cloudpickle.dumps(function))

    def __call__(self, *args: Any, **options: Any) -> Any:
        return _unpickled(self.pickled)(*args, **options)


@lru_cache(maxsize=8)
def _unpickled(pickled: bytes) -> Any:
    return cloudpickle.loads(pickled)


def default_workers() -> int:
    """Returns the number of cores available to this process: CPU affinity, container limit and LOKY_MAX_CPU_COUNT."""
    return loky.cpu_count()


def _initialise_worker(parent: int, nice: int) -> None:
    """Makes a worker ignore Ctrl-C, which its parent handles, and exit soon after its parent.

    Loky's workers do not notice that their parent was killed, in particular while they are busy.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the inherited signal mask is not enough: libraries unblock signals
    os.nice(nice)
    logging.getLogger("gtrl").setLevel(logging.ERROR)  # warnings are the parent's, once instead of once per worker

    def exit_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


class _WorkerLostError(Exception):
    """A worker was killed, or hangs."""


def map_unordered(
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    workers: int | None = None,
    *,
    nice: int = 0,
    cancelled: threading.Event | None = None,
    patient: bool = False,
) -> Iterator[tuple[int, Result]]:
    """Yields (index, result) of every job in the order in which they finish.

    The worker processes end with the iteration, also on Ctrl-C. The jobs of a worker that is killed or hangs are run
    again by another one, so a job must be safe to repeat. `nice` is added to the workers' niceness. Setting
    `cancelled` ends the iteration with `WorkerError`. `patient` is for jobs of very different durations: there are
    always at least FIRST_PATIENCE_SECONDS for the next result.
    """
    unfinished = dict(enumerate(jobs))
    hang_detector, attempts = HangDetector(1 + nice, patient), 0
    while unfinished:
        try:
            for index, result in _attempt(function, dict(unfinished), workers, nice, cancelled, hang_detector):
                del unfinished[index]
                attempts = 0
                yield index, result
        except _WorkerLostError as error:
            attempts += 1
            if attempts == MAX_ATTEMPTS:
                raise WorkerError(f"{error}; gave up after {MAX_ATTEMPTS} attempts without a result.") from error


def _attempt(
    function: Callable[[Job], Result],
    jobs: Mapping[int, Job],
    workers: int | None,
    nice: int,
    cancelled: threading.Event | None,
    hang_detector: "HangDetector",
) -> Iterator[tuple[int, Result]]:
    """Yields (index, result) until all jobs are done or a worker is lost.

    Uses loky rather than the standard library's pool: it neither forks a process that holds JAX nor runs the user's
    script again in each worker.
    """
    workers = max(1, min(workers or default_workers(), len(jobs)))
    pool = loky.ProcessPoolExecutor(
        workers, env=ENVIRONMENT, initializer=_initialise_worker, initargs=(os.getpid(), nice)
    )
    remaining = iter(jobs.items())
    futures: dict[Any, int] = {}
    hang_detector.restart()

    def submit(count: int) -> None:
        for index, job in islice(remaining, count):
            futures[pool.submit(function, job)] = index

    try:
        # Workers start here and inherit the signal mask, so that Ctrl-C reaches only this process, which ends them.
        previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            submit(JOBS_PER_WORKER * workers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        while futures:
            done = wait(futures, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED).done
            if cancelled is not None and cancelled.is_set():
                raise WorkerError("cancelled.")
            if hang_detector.is_hanging(got_result=bool(done)):
                raise _WorkerLostError(f"no worker process finished a job for {hang_detector.limit_seconds:.0f} s")
            submit(len(done))
            for future in done:
                yield futures.pop(future), future.result()
    except TerminatedWorkerError as error:
        message = "a worker process was killed, perhaps because memory ran out: try fewer workers"
        raise _WorkerLostError(f"{message} ({_exit_codes(error)})") from error
    finally:
        pool.shutdown(wait=True, kill_workers=True)


class HangDetector:
    """Decides when workers have gone too long without a result, from the longest wait so far.

    `factor` scales all limits, for workers of low priority. `patient` keeps the first limit as the least one.
    """

    def __init__(self, factor: float = 1, patient: bool = False) -> None:
        self.factor, self.patient = factor, patient
        self.last_time = self.longest_wait = 0.0

    def restart(self) -> None:
        """Starts waiting for the next result now; the longest wait so far is kept."""
        self.last_time = time.monotonic()

    @property
    def limit_seconds(self) -> float:
        """How long to wait for the next result."""
        is_first = not self.longest_wait
        least = FIRST_PATIENCE_SECONDS if self.patient or is_first else MIN_PATIENCE_SECONDS
        return self.factor * max(least, PATIENCE_FACTOR * self.longest_wait)

    def is_hanging(self, got_result: bool) -> bool:
        """Returns whether the limit has passed. A result restarts the wait."""
        waited = time.monotonic() - self.last_time
        if got_result:
            self.last_time, self.longest_wait = time.monotonic(), max(self.longest_wait, waited)
        return not got_result and waited > self.limit_seconds


def _exit_codes(error: TerminatedWorkerError) -> str:
    """Returns the workers' exit codes from loky's message."""
    return ", ".join(re.findall(r"SIG\w+\(-\d+\)|EXIT\(\d+\)", str(error))) or "no exit code"

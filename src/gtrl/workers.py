"""Work spread over processes that run NumPy and the simulator, never JAX."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from itertools import islice
from typing import Any, TypeVar

from loky import ProcessPoolExecutor
from loky.process_executor import TerminatedWorkerError

from gtrl.errors import WorkerError

Job = TypeVar("Job")
Result = TypeVar("Result")

QUEUED = 4  # jobs handed over for each worker: none waits for the next, and memory does not grow with their number
# One thread of linear algebra each: the processes are the parallelism, and a product's bits must not
# depend on how it was split over threads.
ENVIRONMENT = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def default_workers() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with(parent: int) -> None:
    """In a worker: end soon after the process it works for, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def spread(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: int | None = None
) -> Iterator[tuple[int, Result]]:
    """(index, result) of every job, as they finish; the processes end with the iteration, also on Ctrl-C.

    Loky rather than the standard library's pool: it neither forks a process that holds JAX nor runs the
    user's script again in each worker.
    """
    if not jobs:
        return
    workers = max(1, min(workers or default_workers(), len(jobs)))
    pool = ProcessPoolExecutor(workers, env=ENVIRONMENT, initializer=_end_with, initargs=(os.getpid(),))
    waiting = iter(enumerate(jobs))
    futures: dict[Any, int] = {}

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
            done = wait(futures, return_when=FIRST_COMPLETED).done
            submit(len(done))
            for future in done:
                yield futures.pop(future), future.result()
    except TerminatedWorkerError as error:
        told = "a worker process was killed, perhaps because memory ran out: try fewer workers"
        raise WorkerError(f"{told} ({_exit_codes(error)}).") from error
    finally:
        pool.shutdown(wait=True, kill_workers=True)


def _exit_codes(error: TerminatedWorkerError) -> str:
    """What loky knows of how its workers ended."""
    return ", ".join(re.findall(r"SIG\w+\(-\d+\)|EXIT\(\d+\)", str(error))) or "no exit code"

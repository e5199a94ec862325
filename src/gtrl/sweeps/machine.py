"""Jobs on this machine: how many at once, and their processes."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from gtrl.sweeps.job import Job, Outcome, ending_signal, last_line, start_process
from gtrl.workers import default_workers

CORES_PER_RUN = 2  # on a machine without a GPU
BYTES_PER_RUN = 4 * 2**30
STOP_SECONDS = 120.0  # for a checkpoint, before a process is killed


def visible_gpus() -> list[str]:
    """Returns the numbers of the NVIDIA GPUs that JAX would use. Starting JAX to find out would take their memory."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [number for number in chosen.split(",") if number.strip() not in ("", "-1")]
    return [str(number) for number, _ in enumerate(Path("/proc/driver/nvidia/gpus").glob("*"))]


def default_jobs(gpus: int) -> int:
    """Returns how many runs are trained at once: one per GPU; without a GPU one per two cores and 4 GiB of memory."""
    if gpus:
        return gpus
    by_memory = psutil.virtual_memory().available // BYTES_PER_RUN
    return max(1, min(default_workers() // CORES_PER_RUN, by_memory))


class _Running(NamedTuple):
    process: "subprocess.Popen[bytes]"
    job: Job
    log: Path
    slot: int  # the number of the place it takes
    kills: int  # how often the job has been ended by a signal


class Machine:
    """Runs jobs in processes, at most `jobs` at once. A job that a signal ended is started again, `retries` times."""

    def __init__(self, jobs: int | None = None, retries: int = 3) -> None:
        self.gpus = visible_gpus()
        self.jobs = jobs or default_jobs(len(self.gpus))
        self.retries = retries
        self.running: dict[str, _Running] = {}

    @property
    def workers(self) -> int:
        """The number of evaluation processes of one job."""
        return max(1, default_workers() // self.jobs)

    @property
    def has_room(self) -> bool:
        """Whether another job may start."""
        return len(self.running) < self.jobs

    def start(self, key: str, job: Job, log: Path, kills: int = 0) -> None:
        """Starts a job under a key that identifies it."""
        slot = min(set(range(self.jobs)) - {each.slot for each in self.running.values()})
        self.running[key] = _Running(start_process(job, log, self._environment(slot)), job, log, slot, kills)

    def _environment(self, slot: int) -> Mapping[str, str]:
        """Gives each job one GPU; where several jobs share one, they allocate memory as they need it."""
        if not self.gpus:
            return {}
        shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if self.jobs > len(self.gpus) else {}
        return {"CUDA_VISIBLE_DEVICES": self.gpus[slot % len(self.gpus)], **shared}

    def is_started(self, key: str) -> bool:
        """Whether the process of a job runs."""
        return key in self.running

    def finished(self) -> list[tuple[str, Outcome]]:
        """Returns the jobs that have ended since the last call."""
        ended = []
        for key, (process, job, log, _, kills) in list(self.running.items()):
            status = process.poll()
            if status is None:
                continue
            del self.running[key]
            ended_by = ending_signal(status)
            if ended_by and kills < self.retries:
                self.start(key, job, log, kills + 1)
            elif ended_by:
                ended.append((key, Outcome(status, f"its process was ended by {ended_by.name}; see {log}")))
            else:
                ended.append((key, Outcome(status, last_line(log))))
        return ended

    def stop(self) -> None:
        """Ends all jobs; training saves a checkpoint first. A second Ctrl-C ends them at once."""
        processes = [running.process for running in self.running.values()]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        try:
            for process in processes:
                process.wait(STOP_SECONDS)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            for process in processes:
                process.kill()
        self.running.clear()

    def close(self) -> None:
        """Ends all jobs that still run."""
        self.stop()

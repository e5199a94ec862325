"""Jobs on a Ray cluster, without a shared disk.

Each run is one Ray task, which states the CPUs and GPUs it needs. It trains in a scratch directory of its node and
sends the files that have changed to an actor on the machine of the sweep, which writes them to the output folder. A
task whose worker or node is lost is started again elsewhere: it receives what was saved and resumes exactly.
"""

import contextlib
import math
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from gtrl.data.origin import combined_digest
from gtrl.errors import ConfigError, RunError
from gtrl.io.locks import locked, wait_for_lock
from gtrl.runs.run import LOCK
from gtrl.sweeps.files import (
    Snapshot,
    Update,
    dataset_digests,
    dataset_folder,
    is_same_dataset,
    read_files,
    write_update,
)
from gtrl.sweeps.job import Job, Outcome, ending_signal, last_line, start_process
from gtrl.sweeps.machine import STOP_SECONDS, default_jobs, visible_gpus

LOCAL = "local"  # the address for a cluster of this machine, which the sweep starts and ends
CPUS_PER_RUN = 2  # on a cluster without GPUs
REACH_SECONDS = 10.0  # for an answer of the cluster's address
SYNC_SECONDS = 2.0  # between two looks at the files of a run
UNCOPIED = {"train": (), "evaluate": ("checkpoints", "programs")}  # folders that a job does not need, by action


class JobKilledError(Exception):
    """A signal ended the process of a job: Ray starts the task again."""


# --- on the machine of the sweep ---


class Store:
    """An actor that reads and writes the run directories in the output folder, and holds the locks of running runs."""

    def __init__(self, out: str) -> None:
        self.out = Path(out)
        self.locks: dict[str, contextlib.ExitStack] = {}
        self.digests: dict[str, dict[str, str]] = {}

    def open(self, key: str, action: str) -> dict[str, bytes]:
        """Returns the files of a run that the job needs; locks the run first if it will be trained."""
        folder = self.out / key
        folder.mkdir(parents=True, exist_ok=True)
        if action == "train" and key not in self.locks:  # a second attempt finds it locked by the first
            lock = contextlib.ExitStack()
            lock.enter_context(locked(folder / LOCK, f"training in {folder}", RunError))
            self.locks[key] = lock
        return read_files(folder, UNCOPIED[action])

    def save(self, key: str, update: Update) -> None:
        """Writes what has changed in a run's directory on its node."""
        write_update(self.out / key, update)

    def append(self, log: str, text: bytes) -> None:
        """Appends the output of a job's process to its log."""
        path = Path(log)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(text)

    def close(self, key: str, log: str, text: bytes) -> None:
        """Ends a job: releases the run's lock and appends the output of the job's process to its log."""
        self.append(log, text)
        if key in self.locks:
            self.locks.pop(key).close()

    def data_digests(self, path: str) -> dict[str, str]:
        """Returns the digests of a dataset's files by name."""
        if path not in self.digests:
            self.digests[path] = dataset_digests(Path(path))
        return self.digests[path]

    def data_file(self, path: str, name: str) -> bytes:
        """Returns the content of one file of a dataset."""
        return (dataset_folder(Path(path)) / name).read_bytes()


class Cluster:
    """Runs jobs as Ray tasks. Ray decides when and where, by the resources that they need."""

    has_room = True  # Ray queues tasks itself

    def __init__(
        self,
        address: str,
        out: Path,
        *,
        jobs: int | None = None,
        cpus: float | None = None,
        gpus: float | None = None,
        retries: int = 3,
    ) -> None:
        self.ray = import_ray()
        if address.startswith("ray://"):
            raise ConfigError("--ray takes the address of a cluster that this machine belongs to, not ray://...")
        if jobs is not None and address != LOCAL:
            raise ConfigError(f"--jobs is for this machine and '--ray {LOCAL}'; a cluster decides by its resources.")
        self._connect(address, jobs, cpus)
        try:
            nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
            self.cpus, self.gpus = needs(nodes, cpus, gpus)
        except ConfigError:
            self.ray.shutdown()
            raise
        here = self.ray.get_runtime_context().get_node_id()
        affinity = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        store = self.ray.remote(Store).options(num_cpus=0, scheduling_strategy=affinity)
        self.store = store.remote(str(out.expanduser().absolute()))  # the actor works in another folder
        self.task = self.ray.remote(run_job).options(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=retries, retry_exceptions=[JobKilledError]
        )
        self.running: dict[str, tuple[Any, Path]] = {}

    def _connect(self, address: str, jobs: int | None, cpus: float | None) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address == LOCAL:
            gpus = len(visible_gpus())
            count = jobs or default_jobs(gpus)
            per_run = cpus or (CPUS_PER_RUN if not gpus else max(1, (os.cpu_count() or 1) // count))
            options |= {"num_cpus": max(1, math.ceil(count * per_run)), "include_dashboard": False}
        else:
            options["address"] = address
        try:
            _check_reachable(address)
            self.ray.init(**options)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            first_line = str(error).strip().partition("\n")[0]
            raise ConfigError(f"the Ray cluster at '{address}' cannot be reached ({first_line}).") from error

    @property
    def workers(self) -> int:
        """The number of evaluation processes of one job: its CPUs."""
        return max(1, int(self.cpus))

    def start(self, key: str, job: Job, log: Path) -> None:
        """Hands a job to Ray; it starts when its CPUs and GPUs are free."""
        self.running[key] = (self.task.remote(self.store, key, job, str(log)), log)

    def is_started(self, _: str) -> bool:
        """Always False: the lock of the run, which the store takes for it, shows that its task runs."""
        return False

    def finished(self) -> list[tuple[str, Outcome]]:
        """Returns the jobs that have ended since the last call."""
        references = {reference: key for key, (reference, _) in self.running.items()}
        if not references:
            return []
        done, _ = self.ray.wait(list(references), num_returns=len(references), timeout=0)
        ended = []
        for reference in done:
            key = references[reference]
            _, log = self.running.pop(key)
            try:
                ended.append((key, self.ray.get(reference)))
            except (self.ray.exceptions.RayError, JobKilledError) as error:  # after the last retry
                with contextlib.suppress(self.ray.exceptions.RayError):  # waits: the lock must be free afterwards
                    self.ray.get(self.store.close.remote(key, str(log), f"{error}\n".encode()), timeout=REACH_SECONDS)
                ended.append((key, Outcome(1, failure_message(error))))
        return ended

    def stop(self) -> None:
        """Cancels all tasks; those that train save a checkpoint and send it first."""
        references = [reference for reference, _ in self.running.values()]
        for reference in references:
            self.ray.cancel(reference, recursive=False)
        with contextlib.suppress(KeyboardInterrupt):
            if references:
                self.ray.wait(references, num_returns=len(references), timeout=STOP_SECONDS)
        self.running.clear()

    def close(self) -> None:
        """Disconnects from the cluster; a local one ends."""
        self.stop()
        self.ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raises `OSError` if nothing answers at `HOST:PORT`, where Ray would try again for many minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        with socket.create_connection((host, int(port)), timeout=REACH_SECONDS):
            pass


def import_ray() -> Any:
    """Imports Ray, with its usage statistics off; raises `ConfigError` if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Without this, Ray warns at its start that it will stop hiding GPUs from tasks that need none.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise ConfigError("Ray is not installed: pip install 'gtrl[ray]'.") from error
    return ray


def failure_message(error: Exception) -> str:
    """Returns the last line of a task's error: of the exception in the task itself, where Ray names it."""
    cause = getattr(error, "cause", None) or error
    lines = str(cause).strip().splitlines()
    return lines[-1] if lines else type(cause).__name__


def needs(nodes: Sequence[Mapping[str, float]], cpus: float | None, gpus: float | None) -> tuple[float, float]:
    """Returns the CPUs and GPUs of one run: by default one GPU and its share of the CPUs; without GPUs two CPUs.

    `nodes` are the resources of each node. Raises `ConfigError` if no node has what one run needs: Ray would wait.
    """
    sizes = [(node.get("CPU", 0.0), node.get("GPU", 0.0)) for node in nodes]
    shares = [node_cpus // node_gpus for node_cpus, node_gpus in sizes if node_gpus]
    gpus = float(bool(shares)) if gpus is None else gpus
    if cpus is None:
        cpus = max(1, min(shares)) if shares and gpus else max(1, min(CPUS_PER_RUN, max(sizes)[0]))
    if cpus <= 0 or gpus < 0:
        raise ConfigError(f"a run cannot have {cpus:g} CPUs and {gpus:g} GPUs.")
    if not any(cpus <= node_cpus and gpus <= node_gpus for node_cpus, node_gpus in sizes):
        most_cpus, most_gpus = max(sizes, key=lambda size: size[::-1] if gpus else size)
        raise ConfigError(
            f"a run needs {cpus:g} CPUs and {gpus:g} GPUs, and the largest node of the cluster has {most_cpus:g} and "
            f"{most_gpus:g}; choose --cpus-per-run and --gpus-per-run."
        )
    return cpus, gpus


# --- on a node ---


def run_job(store: Any, key: str, job: Job, log: str) -> Outcome:
    """Runs one job on a node, as a Ray task: gets the run's files, starts the process, and sends what it changes."""
    scratch = Path(tempfile.mkdtemp(prefix="gtrl-sweep-"))
    try:
        run, output = scratch / "run", scratch / "output.log"
        run.mkdir()
        files = _call(store.open, key, job.action)
        write_update(run, Update(files, []))
        data = _data_here(store, job.data) if job.data else ""
        snapshot = Snapshot(run)
        process = start_process(replace(job, run=str(run), data=data, scratch=str(scratch)), output)
        try:
            while process.poll() is None:
                _wait(process, SYNC_SECONDS)
                _send(store, key, snapshot)
        except BaseException:  # the task is cancelled: the process saves a checkpoint, which is sent
            process.terminate()
            _wait(process, STOP_SECONDS)
            process.kill()
            _send(store, key, snapshot)
            _call(store.close, key, log, output.read_bytes())
            raise
        _send(store, key, snapshot)
        ended_by = ending_signal(process.returncode)
        if ended_by:
            _call(store.append, log, output.read_bytes())
            raise JobKilledError(f"its process was ended by {ended_by.name}")
        _call(store.close, key, log, output.read_bytes())
        return Outcome(process.returncode, last_line(output))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _call(method: Any, *arguments: Any) -> Any:
    """Calls a method of the store and waits for its result.

    In a thread, because Ray takes a task that waits in its main thread for one that needs no CPU, and starts another.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: import_ray().get(method.remote(*arguments))).result()


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _send(store: Any, key: str, snapshot: Snapshot) -> None:
    update = snapshot.update()
    if update.changed or update.removed:
        _call(store.save, key, update)
        snapshot.commit()


def _data_here(store: Any, path: str) -> str:
    """Returns the path of a dataset on this node: the same path if it has the same files, else a copy in the cache."""
    digests = _call(store.data_digests, path)
    if is_same_dataset(Path(path), digests):
        return path
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gtrl" / "data"
    cache = caches / combined_digest(sorted(digests.values()))[:16]
    is_file = path.endswith(".npz")
    copy = cache / Path(path).name if is_file else cache
    cache.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(cache / LOCK):  # several runs of a node want the same data
        if not is_same_dataset(copy, digests):
            for file in digests:
                write_update(cache, Update({file: _call(store.data_file, path, file)}, []))
    return str(copy)

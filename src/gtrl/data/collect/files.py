"""Collection of whole dataset files, in parallel and resumable. The result does not depend on interruptions.

A collection is divided into parts of a few episodes. Workers write each part to its own file in a work folder next to
the result (`<name>.collecting`), so that an interruption loses only the unfinished parts, and running the same command
again resumes the collection. Finished parts are joined with at most one in memory.
"""

import json
import os
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np

from gtrl import console
from gtrl.data.collect import make_collector
from gtrl.data.collect.episode import Collector
from gtrl.data.collect.expert import NO_EXPERTS, Experts
from gtrl.data.collect.plan import SPLITS, File, Plan
from gtrl.data.origin import digest_of, origin_of, origin_path, read_origin, record_origin
from gtrl.envs.simulator import require_simulator
from gtrl.errors import ConfigError, DataError
from gtrl.io.atomic import atomic_write, write_text
from gtrl.io.locks import locked
from gtrl.io.npz import join_npz
from gtrl.tasks import OGBenchTask, Task
from gtrl.workers import map_unordered


@lru_cache(maxsize=1)
def _collector(task: OGBenchTask, experts: Experts) -> Collector:
    """Returns the collector of this process, which has one simulator."""
    return make_collector(task, experts)


def _collect_part(job: tuple[Plan, str, range]) -> int:
    """Collects and writes one part. Returns its number of rows."""
    plan, split, indices = job
    collector = _collector(plan.task, plan.experts)
    seeds = [np.random.SeedSequence([plan.seed, SPLITS[split], index]) for index in indices]
    episodes = [collector.episode(seed) for seed in seeds]
    arrays = {key: np.concatenate([episode[key] for episode in episodes]) for key in episodes[0]}
    with atomic_write(plan.part_path(split, indices)) as file:
        np.savez(file, allow_pickle=False, **arrays)
    return len(arrays["terminals"])


@contextmanager
def _work_folder(plan: Plan) -> Iterator[None]:
    """Creates or reopens the work folder and locks it; removes it when the collection is complete."""
    note = plan.work_folder / "plan.json"
    if not note.exists():
        _check_not_overwriting(plan)
        plan.work_folder.mkdir(parents=True, exist_ok=True)
    with locked(plan.work_folder / "lock", f"collecting into {plan.work_folder}"):
        if not note.exists():
            write_text(note, json.dumps(plan.describe(), indent=2) + "\n")
        _check_same(plan, note)
        yield
        for file in plan.work_folder.iterdir():
            if file not in (note, plan.work_folder / "lock"):
                file.unlink(missing_ok=True)
        note.unlink()
    plan.work_folder.rmdir()


def _check_not_overwriting(plan: Plan) -> None:
    for file in (file for shard in plan.files for file in shard):
        if file.path.exists():
            raise DataError(f"{file.path} exists already; remove it or choose another --out.")


def _check_same(plan: Plan, note: Path) -> None:
    """Raises `DataError` if the work folder belongs to a collection with other settings."""
    try:
        started, wanted = json.loads(note.read_text()), plan.describe()
    except ValueError as error:
        raise DataError(f"{note} cannot be read; remove {plan.work_folder} to start from scratch.") from error
    differing = [key for key in wanted if started.get(key) != wanted[key]]
    if differing:
        found = " and ".join(f"{key} {json.dumps(started.get(key))}" for key in differing)
        raise DataError(
            f"{plan.work_folder} holds an interrupted collection with {found}; use these settings, or remove it."
        )


def _is_done(plan: Plan) -> bool:
    """Returns whether this collection is complete; at most its empty work folder remains to be removed."""
    wanted = {"from": "collected", **plan.describe()}
    for train, validation in plan.files:
        if not (train.path.exists() and validation.path.exists() and origin_path(train.path).exists()):
            return False
        digests = {file.path.name: digest_of(file.path) for file in (train, validation)}
        if origin_of(train.path, digests) != wanted:
            return False
    return not (plan.work_folder / "plan.json").exists()


def _is_placed(plan: Plan, shard: tuple[File, File], file: File) -> bool:
    """Returns whether a file of this collection is in its final place; raises `DataError` if another file is there."""
    if not file.path.exists():
        return False
    digests = read_origin(shard[0].path).get("sha256") or {}
    if digests.get(file.path.name) != digest_of(file.path):
        raise DataError(f"{file.path} exists already and is not from this collection; remove it or {plan.work_folder}.")
    return True


def _missing(plan: Plan, shard: tuple[File, File]) -> list[tuple[Plan, str, range]]:
    """Returns the parts of a shard that are not collected yet."""
    return [
        (plan, file.split, episodes)
        for file in shard
        if not _is_placed(plan, shard, file) and not (plan.work_folder / file.path.name).exists()
        for episodes in file.parts(plan.episodes_per_part)
        if not zipfile.is_zipfile(plan.part_path(file.split, episodes))  # missing, or damaged by a power failure
    ]


def _join(plan: Plan, shard: tuple[File, File]) -> None:
    """Joins the parts of a shard's two files and moves them to their final place, the training file last.

    All files are written in the work folder and then renamed, so that the final folder never has an incomplete file.
    """
    train, validation = shard
    if train.path.exists():
        return
    parts = {file: [plan.part_path(file.split, part) for part in file.parts(plan.episodes_per_part)] for file in shard}
    waiting = {file: plan.work_folder / file.path.name for file in shard}
    for file in shard:
        if not file.path.exists() and not waiting[file].exists():
            join_npz(waiting[file], parts[file])
    if not origin_path(train.path).exists() or not validation.path.exists():
        digests = {file.path.name: digest_of(waiting[file]) for file in shard}
        record_origin(waiting[train], digests, **{"from": "collected", **plan.describe()})
        train.path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(origin_path(waiting[train]), origin_path(train.path))
    for file in (validation, train):  # where the training file exists, all files exist
        if not file.path.exists():
            os.replace(waiting[file], file.path)
    for part in (part for file in shard for part in parts[file]):
        part.unlink(missing_ok=True)


def collect(
    task: str | Task,
    out: str | Path,
    *,
    episodes: int | None = None,
    shards: int = 1,
    workers: int | None = None,
    seed: int = 0,
    experts: Experts = NO_EXPERTS,
    show: bool = True,
) -> Path:
    """Collects a task's training file and, next to it, its validation file; or a folder of such files (shards).

    Never overwrites a file. Resumes an interrupted collection, and leaves a complete one unchanged.

    Args:
        task: A built-in task or its name.
        out: The training file, or the folder for several shards.
        episodes: The number of training episodes; by default that of the task.
        shards: The number of training files.
        workers: The number of processes; by default one per core.
        seed: The seed, on which the data depends; the number of workers does not matter.
        experts: The expert policies, for tasks that need them.
        show: Whether to show a progress bar.

    Returns:
        The training file, or the folder.
    """
    plan = Plan.make(task, out, episodes, shards, seed, experts)
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers} and must be at least 1.")
    require_simulator(f"collecting data of {plan.task.name}")
    if _is_done(plan):
        shutil.rmtree(plan.work_folder, ignore_errors=True)
        return plan.path
    with console.resume_hint(), _work_folder(plan):
        missing = [_missing(plan, shard) for shard in plan.files]
        jobs = [(shard, job) for shard, parts in enumerate(missing) for job in parts]
        left = sum(len(job[-1]) for _, job in jobs) * (plan.task.trajectory_length + 1)
        with console.bar(plan.task.name, plan.rows, "steps", show, plan.rows - left) as bar:
            to_do = Counter(shard for shard, _ in jobs)
            for shard in range(plan.shards):
                if not to_do[shard]:
                    _join(plan, plan.files[shard])
            for index, rows in map_unordered(_collect_part, [job for _, job in jobs], workers):
                bar(rows)
                shard = jobs[index][0]
                to_do[shard] -= 1
                if not to_do[shard]:  # workers continue with the next shard meanwhile
                    bar(0, "writing")
                    _join(plan, plan.files[shard])
    return plan.path

"""A task's dataset: from the cache, a download, or our own collectors."""

import logging
from pathlib import Path

from gtrl.data.checks import check_file
from gtrl.data.collect.expert import FLAGS, NO_EXPERTS, Experts, roles_of
from gtrl.data.collect.files import collect
from gtrl.data.collect.plan import Plan
from gtrl.data.origin import digest_of, files_of, origin_of, validation_path
from gtrl.data.sources.download import MIRROR_VARIABLE, discard_partials, download
from gtrl.errors import DataError, DownloadError
from gtrl.tasks import OGBenchTask, Task, ogbench_task

log = logging.getLogger(__name__)
CACHE = Path("~/.ogbench/data")  # OGBench's own, so that files users already have are found


def cached_file(task: OGBenchTask, folder: str | Path | None = None) -> Path:
    """Where a task's training file is kept."""
    return Path(folder or CACHE).expanduser() / f"{task.dataset}.npz"


def get_dataset(
    task: str | Task,
    folder: str | Path | None = None,
    *,
    mirror: str | None = None,
    workers: int | None = None,
    seed: int = 0,
    experts: Experts = NO_EXPERTS,
    show: bool = True,
) -> Path:
    """The task's training file, its validation file beside it: found, else downloaded, else collected.

    `folder` is OGBench's cache by default. Where the data came from is logged, and kept beside it with its digest.
    """
    task = ogbench_task(task)
    path = cached_file(task, folder)
    if path.exists():
        _check_cached(path, task)
        log.info(f"found {path} ({_description(path)})")
        return path
    if validation_path(path).exists():
        raise DataError(f"{validation_path(path)} lies there without its training file; move it away and try again.")
    plan = Plan(task, path, task.trajectories, seed=seed, experts=experts)
    if plan.work_folder.exists():
        log.info(f"an interrupted collection is in {plan.work_folder}: continuing it")
    elif not task.public:
        log.info(f"{task.name} has no public dataset: collecting it here")
    else:
        try:
            address = download(task, path, mirror=mirror, show=show)
        except DownloadError as failure:
            _check_can_collect(task, failure, experts)
        else:
            log.info(f"downloaded {path} from {address}")
            return path
    collect(task, path, workers=workers, seed=seed, experts=experts, show=show)
    discard_partials(path)
    log.info(f"collected {path}")
    return path


def _description(path: Path) -> str:
    """Where a file came from, as far as is known, and what it lacks."""
    origin = origin_of(path, {file.name: digest_of(file) for file in files_of(path)})
    known = "where from is not recorded" if origin["from"] == "file" else str(origin["from"])
    return known if validation_path(path).exists() else f"{known}; without a validation file"


def _check_cached(path: Path, task: OGBenchTask) -> None:
    for file in files_of(path):
        problems = check_file(file, task).problems
        if problems:
            raise DataError(f"{file} is in the cache but {problems[0]}; remove it and try again.")


def _check_can_collect(task: OGBenchTask, failure: DownloadError, experts: Experts) -> None:
    """Warn that the download failed and collecting comes next; where an expert is missing, say what can be done."""
    reason = str(failure).rstrip(".")
    missing = [role for role in roles_of(task) if getattr(experts, role) is None]
    if missing:
        needed = " and ".join(f"an expert that can {role} ({FLAGS[role]} FILE)" for role in missing)
        raise DownloadError(
            f"{task.dataset} could not be downloaded: {reason}; try again later, name another address with --mirror "
            f"URL or {MIRROR_VARIABLE}, or collect it with {needed}, see docs/formats.md."
        ) from failure
    log.warning(f"no download: {reason}. Collecting the data here instead; Ctrl-C stops, the same command continues.")

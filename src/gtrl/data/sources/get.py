"""Provides a task's dataset: from the cache, by download, or by collection."""

import logging
from pathlib import Path

from gtrl.data.checks import check_file
from gtrl.data.collect.expert import FLAGS, NO_EXPERTS, Experts, roles_of, skill_of
from gtrl.data.collect.files import collect
from gtrl.data.collect.plan import Plan
from gtrl.data.origin import digest_of, files_of, origin_of, validation_path
from gtrl.data.sources.download import MIRROR_VARIABLE, discard_partials, download
from gtrl.envs.simulator import require_simulator
from gtrl.errors import DataError, DownloadError, MissingPackageError
from gtrl.tasks import OGBenchTask, Task, ogbench_task

log = logging.getLogger(__name__)
CACHE = Path("~/.ogbench/data")  # OGBench's cache, so that existing files are found


def cached_file(task: OGBenchTask, folder: str | Path | None = None) -> Path:
    """Returns the path of a task's training file in the cache."""
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
    """Finds, downloads or collects a task's dataset. Returns its training file; the validation file is next to it.

    The source is logged, and recorded next to the file with its digest.

    Args:
        task: A built-in task or its name.
        folder: The folder for the files; by default OGBench's cache.
        mirror: An address to download from after OGBench's; by default that in GTRL_MIRROR.
        workers: The number of processes for a collection; by default one per core.
        seed: The seed of a collection.
        experts: The expert policies, for collections that need them.
        show: Whether to show progress bars.
    """
    task = ogbench_task(task)
    path = cached_file(task, folder)
    if path.exists():
        _check_cached(path, task)
        log.info(f"found {path} ({_description(path)})")
        return path
    if validation_path(path).exists():
        raise DataError(
            f"{validation_path(path)} exists without its training file; move it to another place and try again."
        )
    plan = Plan(task, path, task.trajectories, seed=seed, experts=experts)
    if plan.work_folder.exists():
        log.info(f"resuming the interrupted collection in {plan.work_folder}")
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
    """Returns the recorded source of a file, and whether its validation file is missing."""
    origin = origin_of(path, {file.name: digest_of(file) for file in files_of(path)})
    known = "source not recorded" if origin["from"] == "file" else str(origin["from"])
    return known if validation_path(path).exists() else f"{known}; without a validation file"


def _check_cached(path: Path, task: OGBenchTask) -> None:
    """Raises `DataError` if a cached file is invalid."""
    for file in files_of(path):
        problems = check_file(file, task).problems
        if problems:
            raise DataError(f"{file} is in the cache but {problems[0]}; remove it and try again.")


def _check_can_collect(task: OGBenchTask, failure: DownloadError, experts: Experts) -> None:
    """Warns that the download failed and that collection follows; raises `DownloadError` if it cannot.

    It needs the simulator and, for some tasks, an expert.
    """
    reason = str(failure).rstrip(".")
    experts = experts.for_task(task)
    missing = [role for role in roles_of(task) if getattr(experts, role) is None]
    if missing:
        needed = " and ".join(
            f"an expert that can {role} ({FLAGS[role]} FILE, from 'gtrl expert train {skill_of(task, role)}')"
            for role in missing
        )
        raise DownloadError(
            f"{task.dataset} could not be downloaded: {reason}; try again later, name another address with --mirror "
            f"URL or {MIRROR_VARIABLE}, or collect it with {needed}."
        ) from failure
    try:
        require_simulator("collecting it here")
    except MissingPackageError as missing:
        raise DownloadError(f"{task.dataset} could not be downloaded: {reason}; {missing}") from failure
    log.warning(
        f"download failed: {reason}. Collecting the data instead; after Ctrl-C, run the same command again to resume."
    )

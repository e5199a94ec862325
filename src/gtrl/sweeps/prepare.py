"""The check of a sweep before its first run starts: names, fields, data, and what the output folder holds already."""

import dataclasses
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gtrl.algorithms import Algorithm, find_algorithm
from gtrl.data.collect.expert import FLAGS, roles_of
from gtrl.data.dataset import Spec
from gtrl.data.origin import combined_digest, digest_of, files_of, shards_of
from gtrl.data.sources.get import cached_file
from gtrl.errors import ConfigError, DataError, RunError
from gtrl.io.locks import is_locked
from gtrl.report.cells import check_config
from gtrl.runs.run import LOCK, Run, check_folder_name
from gtrl.sweeps.plan import PlannedRun, Sweep, check_data_tasks
from gtrl.sweeps.status import is_evaluated, newest_checkpoint
from gtrl.sweeps.values import convert_fields
from gtrl.tasks import OGBenchTask, Task, find_task, ogbench_task
from gtrl.training.config import Training, configure
from gtrl.training.resume import changes, check_new_folder
from gtrl.training.train import check_seeds

Found = Literal["new", "stopped", "elsewhere", "finished"]  # what a run's directory holds


@dataclass(frozen=True)
class CheckedRun:
    """A run of a sweep whose task, method and fields are valid."""

    plan: PlannedRun
    task: Task
    algorithm: Algorithm
    training: Training
    fields: dict[str, Any]
    folder: Path

    @property
    def key(self) -> str:
        """`<task>/<name>`: the run's folder in the output folder."""
        return f"{self.task.name}/{self.plan.variant.name}"


def check_sweep(sweep: Sweep, out: Path) -> list[CheckedRun]:
    """Returns the runs of a sweep, or raises a one-line error about the first that cannot be run.

    A folder that holds a run with another config is an error too.
    """
    check_seeds(sweep.seeds)
    if sweep.episodes < 1:
        raise ConfigError(f"episodes is {sweep.episodes} and must be at least 1.")
    runs = []
    for planned in sweep.runs():
        try:
            runs.append(_check_run(planned, out))
        except (ConfigError, DataError) as error:
            raise type(error)(f"{planned.task}, {planned.variant.name}: {error}") from error
    check_data_tasks(sweep.data, {run.plan.task for run in runs})
    keys = [run.key for run in runs]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"two runs of this sweep would be in the folder {key}.")
    return runs


def _check_run(planned: PlannedRun, out: Path) -> CheckedRun:
    task, kind = find_task(planned.task), find_algorithm(planned.variant.method)
    check_folder_name(task.name, "task")
    check_folder_name(planned.variant.name, "run")
    if task.environment is None:
        raise ConfigError("the task has no environment, so its runs cannot be evaluated.")
    if planned.data is None:
        ogbench_task(task)  # whose data can be found
    elif not planned.data.exists():
        raise DataError(f"there is no data at {planned.data}.")
    fields = convert_fields(planned.fields, Training, kind)
    algorithm, training = configure(kind, None, task, spec_of(task), fields)
    run = CheckedRun(planned, task, algorithm, training, fields, out / task.name / planned.variant.name)
    _check_folder(run)
    return run


def spec_of(task: Task) -> Spec:
    """Returns the sizes of a task's data, 1 where it does not state them; the file itself is checked by training."""
    observation, action = task.observation_dim or 1, task.action_dim or 1
    return Spec(observation, action, task.goal_dim or observation)


def _check_folder(run: CheckedRun) -> None:
    """Raises `RunError` if the run's folder holds something else: another run, a longer one, or other files."""
    found = Run(run.folder)
    if not found.exists:
        check_new_folder(run.folder)
        return
    check_config(found)
    differences = changes(found.config, _expected_config(run, found.config))
    if differences:
        name, (was, now) = next(iter(differences.items()))
        more = f" ({len(differences) - 1} more differ)" if len(differences) > 1 else ""
        raise RunError(f"{run.folder} holds another run: {name} is {was} there and {now} here{more}.")
    _check_length(run, found)


def _check_length(run: CheckedRun, found: Run) -> None:
    """Raises `RunError` if the saved run is too long, or too far, to become the planned one."""
    steps, saved_steps = run.training.steps, found.config["training"]["steps"]
    if saved_steps > steps:
        raise RunError(f"{run.folder} holds a run of {saved_steps:,} steps, more than {steps:,}; choose another --out.")
    newest, written = newest_checkpoint(found), found.written_steps()
    passed = [step for step in run.training.checkpoint_steps if step < newest and step not in written]
    if passed:
        raise RunError(
            f"{run.folder} has no policies of step {passed[0]:,}, and its newest checkpoint, {newest:,}, is beyond it; "
            "choose the checkpoints that it was trained with, or another --out."
        )


def _expected_config(run: CheckedRun, old: dict[str, Any]) -> dict[str, Any]:
    """The config of a finished or unfinished run as the sweep would make it; what depends on the machine is as it was.

    Versions and the device are compared by training when it resumes a run.
    """
    training = dataclasses.asdict(run.training)
    fast = old["training"].get("fast") if run.training.fast is None else sorted(run.training.fast)
    data = {**old["data"], **({"digest": data_digest(run.plan.data)} if run.plan.data else {})}
    return old | {
        "task": run.task.name,
        "algorithm": {"name": run.algorithm.name, **dataclasses.asdict(run.algorithm)},
        "training": training | {"fast": fast},
        "seeds": list(run.plan.seeds),
        "data": data,
    }


@cache
def data_digest(path: Path) -> str:
    """Returns the digest of a dataset, as `config.json` records it."""
    return combined_digest([digest_of(file) for shard in shards_of(path) for file in files_of(shard)])


def find_state(run: CheckedRun) -> Found:
    """Returns what the run's directory holds, from its files alone."""
    found = Run(run.folder)
    if not found.exists:
        return "new"
    if is_evaluated(found, run.training.checkpoint_steps, run.plan.episodes):
        return "finished"
    return "elsewhere" if is_locked(run.folder / LOCK) else "stopped"


def data_of(run: CheckedRun) -> Path | None:
    """Returns the dataset file of a run if it is on this machine; None if it has to be downloaded or collected."""
    if run.plan.data:
        return run.plan.data
    path = cached_file(ogbench_task(run.task))
    return path if path.exists() else None


def data_source(task: Task) -> str:
    """Returns where a sweep would get a task's dataset from, in words."""
    if not isinstance(task, OGBenchTask):
        return "own file"
    if cached_file(task).exists():
        return "cache"
    if not task.public:
        return "collected here"
    experts = [FLAGS[role] for role in roles_of(task)]
    return f"download only ({', '.join(experts)} needed to collect)" if experts else "download, or collected here"

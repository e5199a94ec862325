"""The content of `config.json`, and the start of a run: from scratch, or resumed from its newest checkpoint."""

import dataclasses
import hashlib
import importlib.metadata
import json
import logging
import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from gtrl import __version__
from gtrl.algorithms import ALGORITHMS, Algorithm
from gtrl.data.dataset import Data
from gtrl.errors import RunError
from gtrl.io.atomic import PARTIAL_SUFFIX
from gtrl.runs import checkpoints
from gtrl.runs.run import LOCK, NON_FINITE_REPORT, Run
from gtrl.tasks import REGISTERED, Task
from gtrl.training.config import Training
from gtrl.training.loop import State

log = logging.getLogger(__name__)
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")  # whose versions are recorded
# Fields of `config.json` that may change when a run is resumed: its length, what is saved, and where the data is.
CHANGEABLE_FIELDS = {
    *(f"training.{name}" for name in ("steps", "checkpoints", "checkpoint_every", "checkpoint_minutes", "keep")),
    *(f"data.{name}" for name in ("source", "origin")),
    "changes",
    "shorter_runs",
    "plugins",
}
FIXED_FIELDS = {"algorithm.name", "seeds"}  # never accepted: results would be attributed to another method or seed
MAX_SHOWN_CHANGES = 4  # changes listed in an error message
LEFT_BY_FAILED_RUN = (LOCK, NON_FINITE_REPORT, "programs")  # what a run that failed before its first log may leave


def describe(algorithm: Algorithm, training: Training, data: Data, seeds: Sequence[int]) -> dict[str, Any]:
    """Returns the content of `config.json`: everything that is needed to repeat the run."""
    return {
        "gtrl": __version__,
        "task": data.task.name if data.task else None,
        "algorithm": {"name": algorithm.name, **dataclasses.asdict(algorithm)},
        "training": dataclasses.asdict(training) | {"fast": list(training.update.fast)},
        "seeds": list(seeds),
        "data": {
            "source": data.source,
            "origin": data.origin,
            "digest": data_digest(data),
            "shards": max(1, len(data.shards)),
            **data.counts,
            **data.train.spec._asdict(),
            "scaling": data.scaling.to_json() if data.scaling else None,
            "columns": data.columns,
            "selection": data.selection,
        },
        "versions": {
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in PACKAGES},
        },
        "plugins": plugins(algorithm, data.task),
        "device": str(jax.devices()[0].device_kind),
        "devices": jax.local_device_count(),
    }


def plugins(algorithm: Algorithm, task: Task | None) -> list[str]:
    """Returns the modules that define the method and the task, where they are not built in."""
    modules = [ALGORITHMS.module_of(algorithm.name), REGISTERED.module_of(task.name) if task else None]
    return sorted({module for module in modules if module})


def data_digest(data: Data) -> str:
    """Returns the digest of a dataset: that of its files, or of its arrays if it was not read from files."""
    if data.digest:
        return data.digest
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves((data.train, data.validation)):
        digest.update(jax.device_get(leaf).tobytes())
    return digest.hexdigest()


class Start(NamedTuple):
    """Where training starts."""

    step: int
    states: State | None  # those of the checkpoint; None if training starts from scratch
    is_logged: Callable[[int], bool]  # whether the rows of a step in existing log files belong to the run


def changes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, list[Any]]:
    """Returns the fields that differ between two configs and may not change freely, as {name: [old, new]}."""
    was, now = dict(_flatten(old)), dict(_flatten(json.loads(json.dumps(new))))
    names = [*was, *(name for name in now if name not in was)]
    return {name: [was.get(name), now.get(name)] for name in names if was.get(name) != now.get(name)}


def _flatten(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of nested objects as (dotted name, value), without those that may change."""
    for key, value in config.items():
        name = f"{prefix}{key}"
        if name not in CHANGEABLE_FIELDS:
            yield from _flatten(value, f"{name}.") if isinstance(value, dict) else [(name, value)]


def find_start(
    run: Run, config: dict[str, Any], fresh: Callable[[], State], resume: bool, accept_changes: bool
) -> Start:
    """Returns where training starts: at the newest readable checkpoint if the run is resumed, else from scratch.

    Writes `config.json`; on resume, checks it first. `fresh` returns initial states; only their shapes are used here.
    """
    if run.exists and not resume:
        raise RunError(f"{run.path} holds a run already; choose another --out, or --resume to continue it.")
    if run.exists:
        return _resume(run, config, fresh, accept_changes)
    check_new_folder(run.path)
    run.save_config(config)
    return Start(0, None, lambda _: False)


def check_new_folder(folder: Path) -> None:
    """Raises `RunError` if a folder without `config.json` holds more than what a failed run leaves."""
    for path in folder.iterdir() if folder.is_dir() else ():
        is_empty_folder = path.is_dir() and not any(path.iterdir())
        if path.name not in LEFT_BY_FAILED_RUN and path.suffix != PARTIAL_SUFFIX and not is_empty_folder:
            raise RunError(f"{folder} is not empty and not a run directory; choose another --out.")


def _resume(run: Run, config: dict[str, Any], fresh: Callable[[], State], accept_changes: bool) -> Start:
    old = run.config
    changed = changes(old, config)
    _check_changes(run, changed, accept_changes)
    step, states = checkpoints.newest(run.checkpoints, jax.eval_shape(fresh))
    _check_progress(run, step, config["training"]["steps"])
    history = old.get("changes", [])
    if changed or any(change["step"] > step for change in history):
        run.forget_after(step)  # results of the old config; they will be written again
    if changed:
        history = [*history, {"step": step, "changed": changed}]
    shorter = _shorter_runs(old, config, step)
    log.info("resuming %s from step %s", run.path, f"{step:,}")
    run.save_config(config | ({"changes": history} if history else {}) | ({"shorter_runs": shorter} if shorter else {}))
    # A shorter run logs its last step, which is no log step of this run, unless this run also ends there.
    last_steps = {before["steps"] for before in shorter if before["steps"] % before["log_every"]}
    extra_rows = last_steps - {config["training"]["steps"]}
    return Start(step, states, lambda row: row <= step and row not in extra_rows)


def _check_changes(run: Run, changed: dict[str, list[Any]], accept_changes: bool) -> None:
    """Raises an error that lists the changes, unless there are none or they are accepted."""
    unacceptable = FIXED_FIELDS & set(changed)
    if unacceptable or (changed and not accept_changes):
        messages = [
            f"{name} was {json.dumps(was)} and is {json.dumps(now)} now" for name, (was, now) in changed.items()
        ]
        shown = ", ".join(messages[:MAX_SHOWN_CHANGES])
        hidden = len(messages) - MAX_SHOWN_CHANGES
        more = f", and {hidden} more differ" if hidden > 0 else ""
        hint = "" if unacceptable else ", or --accept-changes to resume anyway"
        raise RunError(f"{run.path} holds another run: {shown}{more}; choose another --out{hint}.")


def _check_progress(run: Run, step: int, steps: int) -> None:
    """Raises an error if the run cannot be resumed from a step: its checkpoints are missing, or it is at its end."""
    if step == 0 and run.written_steps() and not list(run.checkpoints.glob("*.damaged")):
        raise RunError(f"{run.path} has policies but no checkpoint to resume from; choose another --out.")
    if step > steps:
        raise RunError(f"{run.path} was trained for {step} steps already; --steps {steps} is fewer.")


def _shorter_runs(old: dict[str, Any], new: dict[str, Any], step: int) -> list[dict[str, int]]:
    """The lengths that a run had before it was extended, as far as they were reached, with their `log_every`."""
    before = {name: old["training"][name] for name in ("steps", "log_every")}
    earlier = [run for run in old.get("shorter_runs", []) if run["steps"] <= step]
    ended = before["steps"] <= step and before["steps"] < new["training"]["steps"]
    return [*earlier, before] if ended and before not in earlier else earlier

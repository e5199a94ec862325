"""`config.json`, and whether a run can be resumed: what it was, what it would be now, and where it stands."""

import dataclasses
import hashlib
import importlib.metadata
import json
import logging
import platform
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax

from gtrl import __version__
from gtrl.algorithms import ALGORITHMS, Algorithm
from gtrl.data.dataset import Data
from gtrl.errors import RunError
from gtrl.io.atomic import PARTIAL_SUFFIX
from gtrl.runs import checkpoints
from gtrl.runs.run import LOCK, Run
from gtrl.tasks import REGISTERED, Task
from gtrl.training.config import Training
from gtrl.training.loop import State

log = logging.getLogger(__name__)
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")
# What may change when a run is resumed: how long it is, what is kept of it, and where its data lies.
FREE_TO_CHANGE = {
    *(f"training.{name}" for name in ("steps", "checkpoints", "checkpoint_every", "checkpoint_minutes", "keep")),
    *(f"data.{name}" for name in ("source", "origin")),
    "changes",
    "shorter_runs",
    "plugins",
}
NEVER_TO_CHANGE = {"algorithm.name", "seeds"}  # one seed's numbers would get another's name
SHOWN_CHANGES = 4  # in an error message


def describe(algorithm: Algorithm, training: Training, data: Data, seeds: Sequence[int]) -> dict[str, Any]:
    """`config.json`: everything needed to repeat the run."""
    return {
        "gtrl": __version__,
        "task": data.task.name if data.task else None,
        "algorithm": {"name": algorithm.name, **dataclasses.asdict(algorithm)},
        "training": dataclasses.asdict(training) | {"fast": list(training.update.fast)},
        "seeds": list(seeds),
        "data": {
            "source": data.source,
            "origin": data.origin,
            "digest": data.digest or _digest(data),
            "shards": max(1, len(data.shards)),
            **data.counts,
            **data.train.spec._asdict(),
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
    """The modules that bring the method and the task, where they are not ours."""
    found = [ALGORITHMS.module_of(algorithm.name), REGISTERED.module_of(task.name) if task else None]
    return sorted({module for module in found if module})


def _digest(data: Data) -> str:
    """Of arrays that came from no file."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves((data.train, data.validation)):
        found.update(jax.device_get(leaf).tobytes())
    return found.hexdigest()


class Start(NamedTuple):
    """Where training begins: its step, its states, and which rows of the log belong to the run so far."""

    step: int
    states: Callable[[], State]  # gives them away, once
    was_logged: Callable[[int], bool]


def changes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, list[Any]]:
    """What differs between two configs and would make a run another: [was, is] by name."""
    was, now = dict(_flat(old)), dict(_flat(json.loads(json.dumps(new))))
    names = [*was, *(name for name in now if name not in was)]
    return {name: [was.get(name), now.get(name)] for name in names if was.get(name) != now.get(name)}


def _flat(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if name not in FREE_TO_CHANGE:
            yield from _flat(value, f"{name}.") if isinstance(value, dict) else [(name, value)]


def begin(run: Run, config: dict[str, Any], fresh: Callable[[], State], resume: bool, accept_changes: bool) -> Start:
    """Where to start: at the newest good checkpoint, or anew. Writes the config, or checks it against what is there."""
    if run.exists and not resume:
        raise RunError(f"{run.path} holds a run already; choose another --out, or --resume to continue it.")
    if run.exists:
        return _go_on(run, config, fresh, accept_changes)
    if any(path.name != LOCK and path.suffix != PARTIAL_SUFFIX for path in run.path.iterdir()):
        raise RunError(f"{run.path} is not empty and not a run directory; choose another --out.")
    run.save_config(config)
    return Start(0, fresh, lambda _: False)


def _go_on(run: Run, config: dict[str, Any], fresh: Callable[[], State], accept_changes: bool) -> Start:
    old = run.config
    changed = changes(old, config)
    _refuse(run, changed, accept_changes)
    step, found = checkpoints.newest(run.checkpoints, jax.eval_shape(fresh))
    _check_progress(run, step, config["training"]["steps"])
    history = old.get("changes", [])
    if changed or any(change["step"] > step for change in history):
        run.forget_after(step)  # made by what was changed; they will be made again
    if changed:
        history = [*history, {"step": step, "changed": changed}]
    shorter = _shorter_runs(old, config, step)
    log.info("resuming %s from step %s", run.path, f"{step:,}")
    run.save_config(config | ({"changes": history} if history else {}) | ({"shorter_runs": shorter} if shorter else {}))
    # A run that was shorter before has a last row where this one has none.
    extra = {before["steps"] for before in shorter if before["steps"] % before["log_every"]}
    states = [found] if found is not None else []
    return Start(
        step,
        states.pop if states else fresh,
        lambda row: row <= step and row not in extra - {config["training"]["steps"]},
    )


def _refuse(run: Run, changed: dict[str, list[Any]], accept_changes: bool) -> None:
    another = NEVER_TO_CHANGE & set(changed)
    if another or (changed and not accept_changes):
        each = [f"{name} was {json.dumps(was)} and is {json.dumps(now)} now" for name, (was, now) in changed.items()]
        more = f", and {len(each) - SHOWN_CHANGES} more differ" if len(each) > SHOWN_CHANGES else ""
        hint = "" if another else ", or --accept-changes to resume all the same"
        differing = ", ".join(each[:SHOWN_CHANGES])
        raise RunError(f"{run.path} holds another run: {differing}{more}; choose another --out{hint}.")


def _check_progress(run: Run, step: int, steps: int) -> None:
    if step == 0 and run.written_steps() and not list(run.checkpoints.glob("*.damaged")):
        raise RunError(f"{run.path} has policies but no checkpoint to resume from; choose another --out.")
    if step > steps:
        raise RunError(f"{run.path} was trained for {step} steps already; --steps {steps} is fewer.")


def _shorter_runs(old: dict[str, Any], new: dict[str, Any], step: int) -> list[dict[str, int]]:
    """Where the run ended before it was made longer, as far as it came there, and how often it logged then."""
    before = {name: old["training"][name] for name in ("steps", "log_every")}
    earlier = [run for run in old.get("shorter_runs", []) if run["steps"] <= step]
    ended = before["steps"] <= step and before["steps"] < new["training"]["steps"]
    return [*earlier, before] if ended and before not in earlier else earlier

"""A training run: a method, a dataset and a directory that ends up with everything worth keeping."""

import contextlib
import dataclasses
import errno
import hashlib
import importlib.metadata
import json
import logging
import platform
import signal
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import jax

from gtrl import __version__
from gtrl.algorithms import Algorithm, find_algorithm, make
from gtrl.data.dataset import Data, Spec
from gtrl.data.shards import Rotation
from gtrl.errors import ConfigError, RunError
from gtrl.evaluation.during import EvaluationDuring
from gtrl.io.atomic import PARTIAL, remove_partial, write_text
from gtrl.io.locks import locked
from gtrl.runs import checkpoints as checkpoint
from gtrl.runs.policy import save_policy
from gtrl.runs.run import Run
from gtrl.tasks import Task
from gtrl.training import compilation as programs
from gtrl.training import driver, loop, monitor
from gtrl.training.config import Training
from gtrl.training.log import Log
from gtrl.training.signals import Stop
from gtrl.training.watch import UnsoundError

logger = logging.getLogger(__name__)
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")


def default_path(task: Task | None, algorithm: Algorithm) -> Path:
    """`runs/<task>/<algorithm>/<time>`."""
    now = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / (task.name if task else "own-data") / algorithm.name / now


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
        "device": str(jax.devices()[0].device_kind),
        "devices": jax.local_device_count(),
    }


def _digest(data: Data) -> str:
    """Of arrays that came from no file."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves((data.train, data.validation)):
        found.update(jax.device_get(leaf).tobytes())
    return found.hexdigest()


# What may change when a run goes on: how long it is, what is kept of it, and where its data lies.
_FREE = {
    *(f"training.{name}" for name in ("steps", "checkpoints", "checkpoint_every", "checkpoint_minutes", "keep")),
    *(f"data.{name}" for name in ("source", "origin")),
    "changes",
}


_ANOTHER = {"algorithm.name", "seeds"}  # what nobody can accept: one seed's numbers would get another's name


def _flat(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if name not in _FREE:
            yield from _flat(value, f"{name}.") if isinstance(value, dict) else [(name, value)]


def changes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, list[Any]]:
    """What differs between two configs and would make a run another: [was, is] by name."""
    was, now = dict(_flat(old)), dict(_flat(json.loads(json.dumps(new))))
    names = [*was, *(name for name in now if name not in was)]
    return {name: [was.get(name), now.get(name)] for name in names if was.get(name) != now.get(name)}


def _begin(
    run: Run, config: dict[str, Any], like: loop.State, resume: bool, accept_changes: bool
) -> tuple[int, loop.State | None]:
    """The step to start from and the states there, None at the very beginning.

    Writes the config, or checks it against the one that is there.
    """
    if not run.exists:
        if any(path.name != LOCK and path.suffix != PARTIAL for path in run.path.iterdir()):
            raise RunError(f"{run.path} is not empty and not a run directory; choose another --out.")
        run.save_config(config)
        return 0, None
    if not resume:
        raise RunError(f"{run.path} holds a run already; choose another --out, or --resume to continue it.")
    old = run.config
    changed = changes(old, config)
    another = _ANOTHER & set(changed)
    if another or (changed and not accept_changes):
        told = [f"{name} was {json.dumps(was)} and is {json.dumps(now)} now" for name, (was, now) in changed.items()]
        more = f", and {len(told) - 4} more differ" if len(told) > 4 else ""
        how = "" if another else ", or --accept-changes to go on all the same"
        raise RunError(f"{run.path} holds another run: {', '.join(told[:4])}{more}; choose another --out{how}.")
    start, states = checkpoint.newest(run.checkpoints, like)
    if start == 0 and run.written_steps() and not list(run.checkpoints.glob("*.damaged")):
        raise RunError(f"{run.path} has policies but no checkpoint to go on from; choose another --out.")
    if start > config["training"]["steps"]:
        told = f"{run.path} was trained for {start} steps already"
        raise RunError(f"{told}; --steps {config['training']['steps']} is fewer.")
    history = old.get("changes", [])
    if changed or any(change["step"] > start for change in history):
        run.forget_after(start)  # made by what was changed; they will be made again
    if changed:
        history = [*history, {"step": start, "changed": changed}]
    logger.info(f"going on with {run.path} from step {start:,}")
    run.save_config(config | ({"changes": history} if history else {}))
    return start, states


def train(
    algorithm: str | Algorithm,
    data: Data,
    *,
    out: str | Path | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3),
    training: Training | None = None,
    resume: bool = False,
    accept_changes: bool = False,
    evaluate_during: int = 0,
    workers: int | None = None,
    show: bool = True,
    chunk: int | None = None,
    began: float | None = None,
    **fields: Any,
) -> Run:
    """Train all seeds together and leave a run directory.

    `algorithm` is a method or the name of one; `fields` are its hyperparameters or those of `Training`,
    on top of the defaults for (method, task). `resume` goes on from the newest good checkpoint, and the run ends as one
    that was never stopped, to the last bit; where the config, the data or a version changed it refuses, unless told to
    `accept_changes`. SIGINT and SIGTERM save a checkpoint and end the run.

    `evaluate_during` is a number of episodes a goal: policies are evaluated as they are written, by `workers` processes
    while training goes on. `began` is when the work began (`time.perf_counter()`), for the log to say how long the
    first step took to come; by default now.
    """
    began = time.perf_counter() if began is None else began
    steering = {field.name for field in dataclasses.fields(Training)}
    training = dataclasses.replace(training or Training(), **{k: fields.pop(k) for k in steering & set(fields)})
    algorithm = _method(algorithm, data, fields)
    seeds = list(seeds)
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) >= 2**32:
        raise ConfigError(f"seeds are {seeds} and must be different numbers from 0 to 2^32 - 1, at least one.")
    if resume and out is None:
        raise ConfigError("say which run to go on with: --resume needs --out.")
    if evaluate_during < 0 or (workers is not None and workers < 1):
        raise ConfigError(f"episodes ({evaluate_during}) and workers ({workers}) of an evaluation must be positive.")
    if evaluate_during and data.task is None:
        raise ConfigError("there is no environment to evaluate in: the data has no task.")
    run = Run(Path(out).expanduser() if out else default_path(data.task, algorithm))
    run.path.mkdir(parents=True, exist_ok=True)
    with locked(run.path / LOCK, f"training in {run.path}", RunError), _disk_trouble_told(run):
        config = describe(algorithm, training, data, seeds)
        keys = loop.seed_keys(seeds)
        fresh = partial(loop.init, algorithm, training.update, data.train.spec, keys, data.train)
        start, states = _begin(run, config, jax.eval_shape(fresh), resume, accept_changes)
        lend_programs = programs.keep(run.path, config)
        beginning = [fresh() if states is None else states]  # to be given away: nothing here keeps it, or the data
        del fresh, states
        remove_partial(run.path)
        (run.path / REPORT).unlink(missing_ok=True)
        rotation = Rotation(data, training.shard_steps)
        spec, task = data.train.spec, data.task
        del data  # the rotation decides how long a shard stays in memory
        with (
            Stop(logger.warning) as stop,
            contextlib.closing(rotation),
            EvaluationDuring(run, evaluate_during, workers) as evaluation,
            Log(run.path, seeds, start, training.steps, training.log_every, algorithm.title, show, began) as log,
            checkpoint.Writer(run.checkpoints, training.for_good, training.keep) as writer,
        ):
            evaluation.add(step for step in run.written_steps() if step in training.checkpoint_steps and step <= start)
            saved = time.monotonic()

            def on_step(step: int) -> bool:
                log.stepped(step)
                return stop.asked is not None or time.monotonic() - saved > 60 * training.checkpoint_minutes

            def on_log(step: int, metrics: dict[str, Any], states: loop.State, data: Data) -> None:
                look = (algorithm, training.update, states, keys)
                held_out = monitor.validate(*look, data.validation) if data.validation else {}
                values = monitor.values(*look, data.train)
                log.logged(step, *jax.device_get((metrics | values, held_out)))
                lend_programs()

            def on_checkpoint(step: int, states: loop.State) -> None:
                nonlocal saved
                log.on_disk()
                planned = step in training.checkpoint_steps
                if planned:
                    save_policies(run, algorithm, task, spec, seeds, step, states)
                writer.save(step, states, then=(lambda: evaluation.add([step])) if planned else None)
                saved = time.monotonic()
                if stop.asked and step < training.steps:
                    writer.wait()
                    raise _Stopped(step)

            try:
                driver.fit(
                    algorithm, training, beginning.pop(), keys, rotation,
                    on_step=on_step, on_log=on_log, on_checkpoint=on_checkpoint, chunk=chunk,
                )  # fmt: skip
                writer.wait()
                if not evaluation.finish(stop) or stop.asked:
                    _end(stop, "training is complete; --resume evaluates what may be left")
            except _Stopped as at:
                _end(stop, f"the checkpoint of step {at.step:,} is saved; --resume goes on from there")
            except UnsoundError as error:
                with contextlib.suppress(OSError):
                    writer.wait()
                _report(run, seeds, error)
    return run


LOCK = "lock"
DISK_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM}
REPORT = "stopped.json"  # what was seen when a number was no longer finite


@dataclasses.dataclass
class _Stopped(Exception):  # noqa: N818, it is no error
    step: int


def _end(stop: Stop, told: str) -> None:
    if stop.asked == signal.SIGINT:
        raise KeyboardInterrupt(told)
    logger.warning(f"terminated; {told}")
    raise SystemExit(128 + signal.SIGTERM)


@contextlib.contextmanager
def _disk_trouble_told(run: Run) -> Iterator[None]:
    """A disk that is full, or gone: what is saved and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_TROUBLE:
            raise
        raise RunError(f"{run.path} cannot be written ({error.strerror or error}); {_good(run)}.") from error


def _good(run: Run) -> str:
    done = checkpoint.steps(run.checkpoints)
    return (
        f"the checkpoint of step {done[-1]:,} is good, and --resume goes on from it" if done else "nothing is saved yet"
    )


def _report(run: Run, seeds: Sequence[int], error: UnsoundError) -> None:
    """Write what was seen, and raise it as a sentence."""
    seen = {str(seeds[position]): what for position, what in error.seeds.items()}
    rows = list(run.metrics())
    last = [row for row in rows if row["step"] == rows[-1]["step"]]
    done = checkpoint.steps(run.checkpoints)
    report = {"step": error.step, "seeds": seen, "checkpoint": done[-1] if done else None, "last_logged": last}
    write_text(run.path / REPORT, json.dumps(report, indent=2) + "\n")
    advice = f"{REPORT} has what was seen; a smaller learning rate or float32 may help"
    raise RunError(f"{error.told(seeds)}, so training stopped; {_good(run)}; {advice}.") from error


def _method(algorithm: str | Algorithm, data: Data, fields: dict[str, Any]) -> Algorithm:
    kind = find_algorithm(algorithm) if isinstance(algorithm, str) else type(algorithm)
    known = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(set(fields) - known)
    if unknown:
        raise ConfigError(f"{kind.title} has no field '{unknown[0]}'; it has {', '.join(sorted(known))}.")
    if isinstance(algorithm, str):
        made = make(algorithm, data.task, **fields)
    else:
        made = dataclasses.replace(algorithm, **fields)
    spec = data.train.spec
    if getattr(made, "distill", True) is False and spec.goal_dim != spec.observation_dim:
        raise ConfigError("distill is off, but the goals of this data are not whole states.")
    return made


def save_policies(
    run: Run, algorithm: Algorithm, task: Task | None, spec: Spec, seeds: Sequence[int], step: int, states: loop.State
) -> None:
    """One `policy.npz` a seed."""
    actors = jax.device_get(algorithm.policy(states.nets))
    for index, seed in enumerate(seeds):
        layers = jax.tree.map(lambda leaf, index=index: leaf[index], actors.layers)
        header = {
            **actors.header,
            "algorithm": algorithm.name,
            "task": task.name if task else None,
            "goal": "oracle" if task else "state" if spec.goal_dim == spec.observation_dim else "own",
            "seed": seed,
            "step": step,
            "version": __version__,
            **spec._asdict(),
        }
        save_policy(run.path / "policies" / f"step-{step}" / f"seed-{seed}.npz", layers, header)

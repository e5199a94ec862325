"""A training run: a method, a dataset and a directory that ends up with everything worth keeping."""

import contextlib
import dataclasses
import importlib.metadata
import platform
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jax

from gtrl import __version__
from gtrl.algorithms import Algorithm, find_algorithm, make
from gtrl.data.dataset import Data
from gtrl.data.rotation import Rotation
from gtrl.errors import ConfigError, RunError
from gtrl.evaluation.policy import save_policy
from gtrl.networks import Spec
from gtrl.runs import Run
from gtrl.tasks import Task
from gtrl.training import checkpoint, loop, programs
from gtrl.training.log import Log

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "orbax-checkpoint", "numpy")


def default_path(task: Task | None, algorithm: Algorithm) -> Path:
    """`runs/<task>/<algorithm>/<time>`."""
    now = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / (task.name if task else "own-data") / algorithm.name / now


def describe(algorithm: Algorithm, training: loop.Training, data: Data, seeds: Sequence[int]) -> dict[str, Any]:
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
            "digest": data.digest,
            "shards": max(1, len(data.shards)),
            **data.counts,
            **data.train.spec._asdict(),
        },
        "versions": {
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in PACKAGES},
        },
        "device": str(jax.devices()[0].device_kind),
    }


def algorithm_of(run: Run) -> Algorithm:
    """The method of a run, as `config.json` has it."""
    fields: dict[str, Any] = dict(run.config["algorithm"])
    kind = find_algorithm(fields.pop("name"))
    tuples: dict[str, Any] = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return kind(**(fields | tuples))


def load_state(run: Run, step: int) -> tuple[Algorithm, Any]:
    """The method and its networks (a leading axis for the seeds) at a checkpoint."""
    algorithm = algorithm_of(run)
    data = run.config["data"]
    spec = Spec(*(data[name] for name in Spec._fields))
    keys = loop.seed_keys(run.seeds)
    nets = jax.eval_shape(jax.vmap(lambda key: algorithm.init(key, spec)), keys)
    return algorithm, checkpoint.restore(run.checkpoints, step, nets, part="nets")


# What must agree for a run to go on; where it was started and with which versions need not.
_SAME = ("task", "algorithm", "seeds")


def _prepare(run: Run, config: dict[str, Any], resume: bool) -> int:
    """Write the config, or check it against the one that is there. The step to start from."""
    if not run.exists:
        if run.path.exists() and any(run.path.iterdir()):
            raise RunError(f"{run.path} is not empty and not a run directory; choose another --out.")
        run.save_config(config)
        return 0
    if not resume:
        raise RunError(f"{run.path} holds a run already; choose another --out, or --resume to continue it.")
    old = run.config
    changed = [key for key in _SAME if _plain(old.get(key)) != _plain(config[key])]
    changed += [] if old["data"]["digest"] == config["data"]["digest"] else ["data"]
    # How long, what is kept, and on how many devices may change; what a step computes may not.
    kept = ("batch_size", "learning_rate", "precision", "target_from", "log_every", "shard_steps")
    changed += ["training"] if any(old["training"].get(name) != config["training"][name] for name in kept) else []
    if changed:
        raise RunError(f"{run.path} holds another run: its {' and '.join(changed)} differ; choose another --out.")
    done = checkpoint.steps(run.checkpoints)
    if done and done[-1] > config["training"]["steps"]:
        told = f"{run.path} was trained for {done[-1]} steps already"
        raise RunError(f"{told}; --steps {config['training']['steps']} is fewer.")
    run.save_config(config)
    return done[-1] if done else 0


def _plain(value: Any) -> Any:
    """As JSON reads it back: tuples are lists there."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def train(
    algorithm: str | Algorithm,
    data: Data,
    *,
    out: str | Path | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3),
    training: loop.Training | None = None,
    resume: bool = False,
    show: bool = True,
    chunk: int | None = None,
    began: float | None = None,
    **fields: Any,
) -> Run:
    """Train all seeds together and leave a run directory.

    `algorithm` is a method or the name of one; `fields` are its hyperparameters or those of `Training`,
    on top of the defaults for (method, task). `began` is when the work began (`time.perf_counter()`), for the log to
    say how long the first step took to come; by default now.
    """
    began = time.perf_counter() if began is None else began
    programs.keep()
    steering = {field.name for field in dataclasses.fields(loop.Training)}
    training = dataclasses.replace(training or loop.Training(), **{k: fields.pop(k) for k in steering & set(fields)})
    algorithm = _method(algorithm, data, fields)
    seeds = list(seeds)
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) >= 2**32:
        raise ConfigError(f"seeds are {seeds} and must be different numbers from 0 to 2^32 - 1, at least one.")
    run = Run(Path(out).expanduser() if out else default_path(data.task, algorithm))
    start = _prepare(run, describe(algorithm, training, data, seeds), resume)

    keys = loop.seed_keys(seeds)
    spec, task = data.train.spec, data.task
    states = loop.init(algorithm, training.update, spec, keys, data.train)
    if start:
        states = checkpoint.restore(run.checkpoints, start, states)

    def on_log(step: int, metrics: dict[str, Any], states: loop.State, data: Data) -> None:
        held_out = loop.validate(algorithm, training.update, states, keys, data.validation) if data.validation else {}
        log.logged(step, *jax.device_get((metrics, held_out)))

    def on_checkpoint(step: int, states: loop.State) -> None:
        save_policies(run, algorithm, task, spec, seeds, step, states)
        checkpoint.save(run.checkpoints, step, states)

    rotation = Rotation(data, training.shard_steps)
    del data  # the rotation decides how long a shard stays in memory
    with Log(run.path, seeds, start, training.steps, algorithm.title, show, began) as log, contextlib.closing(rotation):
        loop.fit(
            algorithm, training, states, keys, rotation,
            on_step=log.stepped, on_log=on_log, on_checkpoint=on_checkpoint, chunk=chunk,
        )  # fmt: skip
    return run


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

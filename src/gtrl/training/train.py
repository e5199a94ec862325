"""`gtrl.train`: trains a method on a dataset and writes a run directory."""

import contextlib
import dataclasses
import errno
import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gtrl import console
from gtrl.algorithms import Algorithm
from gtrl.data.dataset import Data, Dataset
from gtrl.data.load import as_data
from gtrl.data.shards import Rotation
from gtrl.envs.goals import check_environment
from gtrl.errors import ConfigError, RunError
from gtrl.io.atomic import remove_partial, write_text
from gtrl.io.locks import locked
from gtrl.runs import checkpoints
from gtrl.runs.run import LOCK, NON_FINITE_REPORT, Run, new_directory
from gtrl.tasks import SEEDS, OwnTask, Task, changed_task, recorded_own_task
from gtrl.tasks.own import Environment, GoalVectors
from gtrl.training import compilation, loop
from gtrl.training import resume as resuming
from gtrl.training.callbacks import MetricsFile, ProgressBar, TensorBoard, Timing
from gtrl.training.config import Training, configure
from gtrl.training.session import Callback, Session
from gtrl.training.signals import Stop
from gtrl.training.sizes import expected_seconds, is_own, long_training_warning, own_defaults, plan_message
from gtrl.training.watch import NonFiniteError

log = logging.getLogger(__name__)


def train(
    algorithm: str | type[Algorithm] | Algorithm,
    data: str | Path | Iterable[Any] | Dataset | Data,
    *,
    task: str | Task | None = None,
    env: Environment | None = None,
    goals: GoalVectors | None = None,
    out: str | Path | None = None,
    seeds: int | Sequence[int] | None = None,
    training: Training | None = None,
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
    accept_changes: bool = False,
    show: bool = True,
    handle_signals: bool = False,
    **fields: Any,
) -> Run:
    """Trains all seeds together and returns the run.

    Args:
        algorithm: A method: its name, `module:Name`, its class, or an instance. An instance is used without the task's
            defaults; `gtrl.make(name, task)` returns one that has them.
        data: Anything that `gtrl.load_dataset` reads, or a dataset in memory.
        task: The task of `data`, if the data does not name it.
        env: Instead of a task, an environment of your own in which the policies can be evaluated: a Gymnasium id,
            `module:factory`, or a function or class that makes it. It is recorded in the run, and so are the goals.
        goals: The goals to evaluate in this environment, one row per goal: an array, or a CSV, npy or npz file. By
            default the environment chooses a goal at each reset.
        out: The run directory; by default `runs/<task>/<method>/<time>`.
        seeds: One seed or several, trained in one program; by default 0 to 3 for a task, else 0.
        training: Settings that are independent of the method; single ones may be given as `fields` instead.
        callbacks: Callbacks in addition to the default ones: metrics, timing and TensorBoard files, and the progress
            bar if `show` is set.
        resume: Continue from the newest readable checkpoint in `out`. The result is the same, to the last bit, as that
            of a run without interruption. Raises `RunError` if the config, the data or a version has changed.
        accept_changes: Resume even if the config, the data or a version has changed. The method and the seeds may not.
        show: Show a progress bar and, for data without a task, print the chosen sizes and the expected time.
        handle_signals: On SIGINT and SIGTERM, save a checkpoint and raise `gtrl.errors.Interrupted`; a second SIGINT
            ends the process. By default no signal handlers are installed.
        fields: Fields of the method or of `Training` that override the defaults for (method, task); `preset`, the name
            of a preset of the method, changes several of them at once. For data without a task, network, batch,
            steps and discount are chosen by the amount of data and the device.

    JAX's compilation cache is stored on disk during training, unless it was configured before.
    """
    start_time = time.perf_counter()
    resumed = Run(Path(out).expanduser()) if resume and out is not None else None
    options = {"scale": resumed.scaling or False} if resumed and resumed.exists else {}
    data = as_data(data, _own_task(task, env, goals, resumed) or task, **options)
    data = _in_own_environment(data)
    own = own_defaults(data, jax.default_backend(), fields.get("steps")) if is_own(data.task) else {}
    algorithm, training = configure(algorithm, training, data.task, data.train.spec, fields, own)
    seeds = check_seeds(default_seeds(data.task) if seeds is None else seeds)
    all_callbacks = _with_defaults(callbacks, show)
    if resume and out is None:
        raise ConfigError("--resume needs --out, the run to resume.")
    signals = Stop() if handle_signals else contextlib.nullcontext()
    with _run_directory(out, data.task, algorithm) as run, signals as stop:
        config = resuming.describe(algorithm, training, data, seeds)
        fresh = partial(loop.init, algorithm, training.update, data.train.spec, loop.seed_keys(seeds), data.train)
        is_new = not run.exists
        start, states, is_logged = resuming.find_start(run, config, fresh, resume, accept_changes)
        session = Session(
            run, algorithm, training, data.task, data.train.spec, seeds, all_callbacks, start,
            scaling=data.scaling, inputs=data.inputs,
        )  # fmt: skip
        session.start_time, session.is_logged, session.signals = start_time, is_logged, stop
        rotation = Rotation(data, training.shard_steps)
        with _report_failures(run, seeds, is_new), compilation.cached(run.path, config) as session.on_compiled:
            if own and show:
                _announce(algorithm, training, data, len(seeds), start)
            session.initial_states = fresh() if states is None else states
            # References in this frame would keep the initial states and the first shard in memory during training.
            del data, fresh, states
            session.train(rotation)
    return run


def _own_task(
    task: str | Task | None, env: Environment | None, goals: GoalVectors | None, resumed: Run | None
) -> OwnTask | None:
    """Returns the task of an environment of the user's own: the given one, or that of the run to resume, if any."""
    given = env is not None or goals is not None
    if given and task is not None:
        raise ConfigError("a task has an environment and goals of its own: give a task, or an environment and goals.")
    recorded = recorded_own_task(resumed.config) if resumed and resumed.exists and task is None else None
    return changed_task(recorded, env, goals) if given else recorded


def _in_own_environment(data: Data) -> Data:
    """Returns the data with the goals of its own environment, if it has one, as the policies take them.

    Raises `ConfigError` if the policies could not be evaluated in it.
    """
    if not isinstance(data.task, OwnTask):
        return data
    task = data.task.with_goals_of(data.columns.get("goal", ()))
    if task.environment is not None:
        check_environment(task, data.inputs)
    return dataclasses.replace(data, task=task)


def _announce(algorithm: Algorithm, training: Training, data: Data, seeds: int, start: int) -> None:
    """Prints the sizes and the expected time of training on own data; warns with what is faster if it is long."""
    seconds = expected_seconds(algorithm, training.update, data.train, training.steps - start, seeds)
    console.echo(plan_message(algorithm, training, data, seeds, seconds))
    warning = long_training_warning(seconds, seeds, jax.default_backend(), training.precision)
    if warning:
        log.warning("%s", warning)


def default_seeds(task: Task | None) -> tuple[int, ...]:
    """Returns the seeds of the paper's protocol for a task; one for data without a task, which needs one policy."""
    return SEEDS[:1] if is_own(task) else SEEDS


def check_seeds(seeds: int | Sequence[int]) -> list[int]:
    """Returns the seeds as a list; raises `ConfigError` unless they are different integers in the range of a seed."""
    array: Any = np.asarray(seeds).ravel()
    numbers: list[int] = array.tolist()
    is_integer = array.dtype.kind in "iu"
    if not is_integer or len(set(numbers)) < len(numbers) or min(numbers) < 0 or max(numbers) >= 2**32:
        raise ConfigError(f"seeds are {numbers} and must be one or more different integers from 0 to 2^32 - 1.")
    return numbers


def _with_defaults(callbacks: Sequence[Callback], show: bool) -> list[Callback]:
    """The default callbacks whose kind is not among those of the user, then those of the user."""
    own: list[Any] = list(callbacks) if isinstance(callbacks, Sequence) else [callbacks]
    for callback in own:
        if not isinstance(callback, Callback):
            raise ConfigError(
                f"callbacks has {callback!r:.60}, which is not an instance of a subclass of gtrl.Callback."
            )
    defaults = (MetricsFile, Timing, TensorBoard, *((ProgressBar,) if show else ()))
    return [*(kind() for kind in defaults if not any(isinstance(callback, kind) for callback in own)), *own]


# --- the run directory ---

# Errors of the operating system that mean that the run directory cannot be written.
WRITE_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.ENOTDIR,
    errno.EEXIST, errno.ENAMETOOLONG,
}  # fmt: skip


@contextlib.contextmanager
def _run_directory(out: str | Path | None, task: Task | None, algorithm: Algorithm) -> Iterator[Run]:
    """Creates and locks the run directory. Write errors become a `RunError` that names the last checkpoint."""
    run = Run(Path(out).expanduser()) if out else None
    try:
        if run is None:
            run = Run(new_directory(Path("runs") / (task.name if task else "own-data") / algorithm.name))
        run.path.mkdir(parents=True, exist_ok=True)
        with locked(run.path / LOCK, f"training in {run.path}", RunError):
            remove_partial(run.path)
            yield run
    except OSError as error:
        folder = run.path if run else Path("runs")
        if error.errno not in WRITE_ERRORS or not _concerns(error, folder):
            raise
        hint = _resume_hint(run) if run and run.exists else "choose another --out"
        raise RunError(f"{folder} cannot be written ({error.strerror or error}); {hint}.") from error


def _concerns(error: OSError, folder: Path) -> bool:
    """Whether an error may be about the folder: it names no file, or one in the folder, or a parent of it."""
    path = Path(error.filename) if isinstance(error.filename, str) else folder
    return path in folder.parents or folder in (path, *path.parents)


def _resume_hint(run: Run) -> str:
    """The clause of an error message that says what has been saved."""
    steps = checkpoints.steps(run.checkpoints)
    if not steps:
        return "nothing is saved yet"
    return f"the checkpoint of step {steps[-1]:,} is good, and --resume continues from it"


# --- when training fails ---


@contextlib.contextmanager
def _report_failures(run: Run, seeds: Sequence[int], is_new: bool) -> Iterator[None]:
    """Turns non-finite values and a lack of memory into a `RunError`; clears a new run that trained nothing."""
    (run.path / NON_FINITE_REPORT).unlink(missing_ok=True)
    try:
        with _clear_if_untrained(run) if is_new else contextlib.nullcontext():
            yield
    except NonFiniteError as error:
        _report_non_finite(run, seeds, error)
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        first_line = str(error).partition("\n")[0]
        advice = "a smaller batch_size, fewer seeds or smaller networks need less"
        raise RunError(f"there is not enough memory for this training ({first_line[:200]}): {advice}.") from error


@contextlib.contextmanager
def _clear_if_untrained(run: Run) -> Iterator[None]:
    """Removes the files of a run that failed before its first log or checkpoint, so that it can be started again."""
    try:
        yield
    except Exception:
        if not checkpoints.steps(run.checkpoints) and not list(run.metrics()):
            for path in run.path.iterdir():
                if path.is_file() and path.name != LOCK:
                    path.unlink()
        raise


def _report_non_finite(run: Run, seeds: Sequence[int], error: NonFiniteError) -> None:
    """Writes the report and raises a `RunError`."""
    rows = list(run.metrics())
    steps = checkpoints.steps(run.checkpoints)
    report = {
        "step": error.step,
        "seeds": {str(seeds[position]): values for position, values in error.seeds.items()},
        "checkpoint": steps[-1] if steps else None,
        "last_logged": [row for row in rows if row["step"] == rows[-1]["step"]],
    }
    write_text(run.path / NON_FINITE_REPORT, json.dumps(report, indent=2) + "\n")
    advice = f"{NON_FINITE_REPORT} has the details; a smaller learning rate or float32 may help"
    raise RunError(f"{error.message(seeds)}, so training stopped; {_resume_hint(run)}; {advice}.") from error

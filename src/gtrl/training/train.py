"""Training a method on a dataset, into a run directory."""

import contextlib
import errno
import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gtrl.algorithms import Algorithm
from gtrl.data.dataset import Data, Dataset, as_data
from gtrl.data.shards import Rotation
from gtrl.errors import ConfigError, RunError
from gtrl.io.atomic import remove_partial, write_text
from gtrl.io.locks import locked
from gtrl.runs import checkpoints
from gtrl.runs.run import LOCK, Run, new_directory
from gtrl.tasks import Task
from gtrl.training import compilation, loop
from gtrl.training import resume as resuming
from gtrl.training.callbacks import MetricsFile, ProgressBar, TensorBoard, Timing
from gtrl.training.config import Training, configure
from gtrl.training.session import Callback, Session
from gtrl.training.signals import Stop
from gtrl.training.watch import NonFiniteError


def train(
    algorithm: str | type[Algorithm] | Algorithm,
    data: str | Path | Dataset | Data,
    *,
    task: str | Task | None = None,
    out: str | Path | None = None,
    seeds: int | Sequence[int] = (0, 1, 2, 3),
    training: Training | None = None,
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
    accept_changes: bool = False,
    show: bool = True,
    handle_signals: bool = False,
    **fields: Any,
) -> Run:
    """Train all seeds together and leave a run directory.

    Args:
        algorithm: A method's name, `module:Name`, its class, or an object, which is taken exactly as it is;
            `gtrl.make(name, task)` is one with the task's defaults.
        data: A dataset file or folder, or a dataset in memory.
        task: What `data` is of, where it does not say itself.
        out: The run directory; by default `runs/<task>/<method>/<time>`.
        seeds: One seed or several, trained in one program.
        training: What is the same for every method; `fields` of it may be given by themselves.
        callbacks: What happens beside training. Metrics, timing and TensorBoard files, and the progress bar where it
            is to `show`, are added to them.
        resume: Go on from the newest good checkpoint in `out`; the run ends as one that was never stopped, to the last
            bit. Where the config, the data or a version changed it refuses, unless you `accept_changes`.
        accept_changes: See `resume`.
        show: A progress bar.
        handle_signals: SIGINT and SIGTERM save a checkpoint and end training with `gtrl.errors.Interrupted`; a second
            SIGINT ends the process. Without it no signal handler is touched.
        fields: Fields of the method or of `Training`, on top of the defaults for (method, task).

    While it trains, JAX's compilation cache is kept on disk, unless it was configured before.
    """
    began = time.perf_counter()
    data = as_data(data, task)
    algorithm, training = configure(algorithm, training, data.task, data.train.spec, fields)
    seeds = _checked_seeds(seeds)
    everyone = _with_defaults(callbacks, show)
    if resume and out is None:
        raise ConfigError("say which run to resume: --resume needs --out.")
    signals = Stop() if handle_signals else contextlib.nullcontext()
    with _run_directory(out, data.task, algorithm) as run, signals as stop:
        config = resuming.describe(algorithm, training, data, seeds)
        fresh = partial(loop.init, algorithm, training.update, data.train.spec, loop.seed_keys(seeds), data.train)
        new = not run.exists
        start, states, was_logged = resuming.begin(run, config, fresh, resume, accept_changes)
        session = Session(run, algorithm, training, data.task, data.train.spec, seeds, everyone, start)
        session.began, session.was_logged, session.signals = began, was_logged, stop
        rotation = Rotation(data, training.shard_steps)
        with _failures_reported(run, seeds, new), compilation.cached(run.path, config) as session.on_compiled:
            initial = [states()]  # to be given away: nothing here keeps the states, or the first shard
            del data, fresh, states
            session.train(initial.pop, rotation)
    return run


def _checked_seeds(seeds: int | Sequence[int]) -> list[int]:
    given: Any = np.asarray(seeds).ravel()
    found: list[int] = given.tolist()
    whole = given.dtype.kind in "iu"
    if not whole or len(set(found)) < len(found) or min(found) < 0 or max(found) >= 2**32:
        raise ConfigError(f"seeds are {found} and must be different numbers from 0 to 2^32 - 1, at least one.")
    return found


def _with_defaults(callbacks: Sequence[Callback], show: bool) -> list[Callback]:
    """Ours that are not among those given, which come after them."""
    given: list[Any] = list(callbacks) if isinstance(callbacks, Sequence) else [callbacks]
    for callback in given:
        if not isinstance(callback, Callback):
            raise ConfigError(f"callbacks has {callback!r:.60}, which is not an object of a subclass of gtrl.Callback.")
    ours = (MetricsFile, Timing, TensorBoard, *((ProgressBar,) if show else ()))
    return [*(kind() for kind in ours if not any(isinstance(each, kind) for each in given)), *given]


# --- the run directory ---

NOT_WRITABLE = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.ENOTDIR,
    errno.EEXIST, errno.ENAMETOOLONG,
}  # fmt: skip
REPORT = "stopped.json"  # what was seen when a value was no longer finite


@contextlib.contextmanager
def _run_directory(out: str | Path | None, task: Task | None, algorithm: Algorithm) -> Iterator[Run]:
    """The directory, made and locked; errors of the disk say what is saved."""
    run = Run(Path(out).expanduser()) if out else None
    try:
        if run is None:
            run = Run(new_directory(Path("runs") / (task.name if task else "own-data") / algorithm.name))
        run.path.mkdir(parents=True, exist_ok=True)
        with locked(run.path / LOCK, f"training in {run.path}", RunError):
            remove_partial(run.path)
            yield run
    except OSError as error:
        where = run.path if run else Path("runs")
        if error.errno not in NOT_WRITABLE or not _concerns(error, where):
            raise
        hint = _saved(run) if run and run.exists else "choose another --out"
        raise RunError(f"{where} cannot be written ({error.strerror or error}); {hint}.") from error


def _concerns(error: OSError, folder: Path) -> bool:
    """Whether an error may be the folder's: it names no file, or one in there, or a parent."""
    named = Path(error.filename) if isinstance(error.filename, str) else folder
    return named in folder.parents or folder in (named, *named.parents)


def _saved(run: Run) -> str:
    steps = checkpoints.steps(run.checkpoints)
    if not steps:
        return "nothing is saved yet"
    return f"the checkpoint of step {steps[-1]:,} is good, and --resume goes on from it"


# --- when training fails ---


@contextlib.contextmanager
def _failures_reported(run: Run, seeds: Sequence[int], new: bool) -> Iterator[None]:
    """Non-finite values and a full device as a sentence; a new run in which nothing was trained leaves no trace."""
    (run.path / REPORT).unlink(missing_ok=True)
    try:
        with _cleared_if_nothing_was_trained(run) if new else contextlib.nullcontext():
            yield
    except NonFiniteError as error:
        _report(run, seeds, error)
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        first = str(error).partition("\n")[0]
        advice = "a smaller batch_size, fewer seeds or smaller networks need less"
        raise RunError(f"there is not enough memory for this training ({first[:200]}): {advice}.") from error


@contextlib.contextmanager
def _cleared_if_nothing_was_trained(run: Run) -> Iterator[None]:
    """After a failure the directory is free for another try."""
    try:
        yield
    except Exception:
        if not checkpoints.steps(run.checkpoints) and not list(run.metrics()):
            for path in run.path.iterdir():
                if path.is_file() and path.name != LOCK:
                    path.unlink()
        raise


def _report(run: Run, seeds: Sequence[int], error: NonFiniteError) -> None:
    """Write what was seen, and raise it as a sentence."""
    rows = list(run.metrics())
    steps = checkpoints.steps(run.checkpoints)
    report = {
        "step": error.step,
        "seeds": {str(seeds[position]): seen for position, seen in error.seeds.items()},
        "checkpoint": steps[-1] if steps else None,
        "last_logged": [row for row in rows if row["step"] == rows[-1]["step"]],
    }
    write_text(run.path / REPORT, json.dumps(report, indent=2) + "\n")
    advice = f"{REPORT} has what was seen; a smaller learning rate or float32 may help"
    raise RunError(f"{error.message(seeds)}, so training stopped; {_saved(run)}; {advice}.") from error

"""A run while it is trained: what callbacks see of it, and what the driver reports to."""

import contextlib
import dataclasses
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import jax
import numpy as np
from jax import Array

from gtrl import __version__
from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Data, Spec
from gtrl.data.shards import Rotation
from gtrl.errors import Interrupted
from gtrl.registry import Registry
from gtrl.runs.checkpoints import Writer
from gtrl.runs.policy import save_policy
from gtrl.runs.run import Run
from gtrl.tasks import Task
from gtrl.training import driver, monitor
from gtrl.training.config import Training
from gtrl.training.loop import State, seed_keys
from gtrl.training.signals import Stop

Row = dict[str, Any]


class Callback:
    """Override what you need. All methods are called in the thread that trains, in the order of the callbacks."""

    name: ClassVar[str]  # on the command line; by default that of the class

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.__name__

    def on_start(self, session: "Session") -> None:
        """Before the first step. `session` has the run, the method, the seeds and `stop()`."""

    def on_step(self, step: int) -> None:
        """After each chunk of steps, about once a second."""

    def on_log(self, step: int, rows: list[Row]) -> None:
        """Every `log_every` steps: a row for each seed with `step`, `seed` and the metrics."""

    def on_checkpoint(self, step: int, policies: bool) -> None:
        """A checkpoint is on the disk, and beside it the policies of that step where `policies` says so."""

    def on_evaluation(self, step: int, rows: list[Row]) -> None:
        """Policies were evaluated while training went on: the rows of `eval.csv`."""

    def on_trained(self) -> None:
        """All steps are taken. Finish what runs in the background: all callbacks still listen."""

    def on_end(self, error: BaseException | None) -> None:
        """The last call: after training, or after it was stopped, or when it failed with `error`."""


def _is_callback(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Callback) and thing is not Callback


CALLBACKS: Registry[type[Callback]] = Registry("callback", "gtrl.callbacks", _is_callback)


@dataclasses.dataclass
class Session:
    """A method trained in a run directory, from step `start` on."""

    run: Run
    algorithm: Algorithm
    training: Training
    task: Task | None
    spec: Spec
    seeds: Sequence[int]
    callbacks: Sequence[Callback] = ()
    start: int = 0

    def __post_init__(self) -> None:
        self.began = time.perf_counter()
        self.was_logged: Callable[[int], bool] = lambda _: True  # whether a row that is in the log belongs to the run
        self.signals: Stop | None = None
        self.on_compiled: Callable[[], None] = lambda: None
        self.keys: Array = seed_keys(self.seeds)
        self.writer = Writer(self.run.checkpoints, self.training.kept_steps, self.training.keep)
        self.saved_at = time.monotonic()
        self.written: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()  # checkpoints on the disk
        self.first_chunk: tuple[int, float] | None = None  # its last step, and when it was done
        self.stop_requested = False
        self.stopped_at: int | None = None

    # --- for callbacks ---

    def stop(self) -> None:
        """End training after the current chunk, with a checkpoint to resume from."""
        self.stop_requested = True

    @property
    def interrupted(self) -> bool:
        """Whether a signal asked to stop."""
        return self.signals is not None and self.signals.asked is not None

    @property
    def stopping(self) -> bool:
        return self.stop_requested or self.interrupted

    def steps_per_second(self, step: int) -> float:
        """Since the first chunk was done, which compiled."""
        first, at = self.first_chunk or (step, 0.0)
        return (step - first) / (time.perf_counter() - at)

    def report_evaluation(self, step: int, rows: list[Row]) -> None:
        for callback in self.callbacks:
            callback.on_evaluation(step, rows)

    # --- training ---

    def train(self, states: Callable[[], State], rotation: Rotation) -> None:
        """Train to the last step, or until asked to stop. `states` gives them away: nothing here keeps them."""
        with contextlib.closing(rotation), self.writer, self._callbacks_started():
            driver.fit(
                self.algorithm, self.training, states(), self.keys, rotation,
                on_step=self._on_step, on_log=self._on_log, on_checkpoint=self._on_checkpoint,
                checkpoint_now=self._checkpoint_now,
            )  # fmt: skip
            self.writer.wait()
            self._report_checkpoints()
            for callback in self.callbacks if self.stopped_at is None else ():
                callback.on_trained()
        if self.signals is not None and self.signals.asked is not None:
            raise Interrupted(self._how_to_resume(), self.signals.asked)

    def _how_to_resume(self) -> str:
        if self.stopped_at is None:
            return "training is complete; --resume evaluates what may be left"
        return f"the checkpoint of step {self.stopped_at:,} is saved; --resume goes on from there"

    @contextlib.contextmanager
    def _callbacks_started(self) -> Iterator[None]:
        """Every callback that was started ends, in the same order, whatever the others do; raises the first error."""
        errors: list[BaseException] = []
        started: list[Callback] = []
        try:
            for callback in self.callbacks:
                callback.on_start(self)
                started.append(callback)
            yield
        except BaseException as error:
            errors.append(error)
        for callback in started:
            try:
                callback.on_end(errors[0] if errors else None)
            except BaseException as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _on_step(self, step: int) -> None:
        if self.first_chunk is None:
            self.first_chunk = (step, time.perf_counter())
        self._report_checkpoints()
        for callback in self.callbacks:
            callback.on_step(step)

    def _checkpoint_now(self) -> bool:
        return self.stopping or time.monotonic() - self.saved_at > 60 * self.training.checkpoint_minutes

    def _on_log(self, step: int, states: State, data: Data) -> None:
        """A row of numbers for each seed."""
        look = (self.algorithm, self.training.update, states, self.keys)
        held_out = monitor.validate(*look, data.validation) if data.validation else {}
        table = states.means() | monitor.values(*look, data.train)
        table |= {f"validation/{name}": values for name, values in held_out.items()}
        numbers = {name: np.asarray(values) for name, values in sorted(jax.device_get(table).items())}
        rows = [
            {"step": step, "seed": seed, **{name: float(values[index]) for name, values in numbers.items()}}
            for index, seed in enumerate(self.seeds)
        ]
        for callback in self.callbacks:
            callback.on_log(step, rows)
        self.on_compiled()

    def _on_checkpoint(self, step: int, states: State) -> bool:
        """Begin to save the states; whether training ends here."""
        planned = step in self.training.checkpoint_steps or self.stop_requested
        if planned:
            self._save_policies(step, states)
        self.writer.save(step, states, then=lambda: self.written.put((step, planned)))
        self.saved_at = time.monotonic()
        if self.stopping and step < self.training.steps:
            self.stopped_at = step
        return self.stopped_at is not None

    def _report_checkpoints(self) -> None:
        while not self.written.empty():
            step, policies = self.written.get()
            for callback in self.callbacks:
                callback.on_checkpoint(step, policies)

    def _save_policies(self, step: int, states: State) -> None:
        """One `policy.npz` a seed."""
        actors: Any = jax.device_get(self.algorithm.policy(states.nets))
        for index, seed in enumerate(self.seeds):
            actor = jax.tree.map(lambda leaf, index=index: leaf[index], actors)
            header = {
                "algorithm": self.algorithm.name,
                "task": self.task.name if self.task else None,
                "goal": self._goal_form(),
                "seed": seed,
                "step": step,
                "version": __version__,
                **self.spec._asdict(),
            }
            save_policy(self.run.path / "policies" / f"step-{step}" / f"seed-{seed}.npz", actor, header)

    def _goal_form(self) -> str:
        if self.task:
            return "oracle"
        return "state" if self.spec.goal_dim == self.spec.observation_dim else "own"

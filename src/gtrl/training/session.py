"""The session of a training run: calls the callbacks, writes checkpoints and policies, handles requests to stop."""

import contextlib
import dataclasses
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np
from jax import Array

from gtrl import __version__
from gtrl.algorithms.base import Algorithm
from gtrl.data.dataset import Data, Spec
from gtrl.data.shards import Rotation
from gtrl.errors import Interrupted
from gtrl.io.scaling import Scaling
from gtrl.registry import Registry
from gtrl.runs.checkpoints import Writer
from gtrl.runs.policy import save_policy
from gtrl.runs.run import Run
from gtrl.tasks import OwnTask, Task
from gtrl.training import driver, monitor
from gtrl.training.config import Training
from gtrl.training.loop import State, seed_keys
from gtrl.training.signals import Stop

Row = dict[str, Any]


class Callback:
    """Base class of callbacks. Override the methods you need; by default they do nothing.

    All methods are called in the thread that trains, in the order of the callbacks.
    """

    name: ClassVar[str]  # on the command line; by default the name of the class

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.__name__

    def on_start(self, session: "Session") -> None:
        """Called before the first step. `session` has the run, the method, the seeds and `stop()`."""

    def on_step(self, step: int) -> None:
        """Called after each chunk of steps, about once a second."""

    def on_log(self, step: int, rows: list[Row]) -> None:
        """Called every `log_every` steps, with one row per seed: `step`, `seed` and the metrics."""

    def on_checkpoint(self, step: int, policies: bool) -> None:
        """Called when a checkpoint is on the disk; `policies` is whether the policies of that step are, too."""

    def on_evaluation(self, step: int, rows: list[Row]) -> None:
        """Called when policies have been evaluated during training, with their rows of `eval.csv`."""

    def on_trained(self) -> None:
        """Called after the last step, before any `on_end`: the time to wait for background work and report it."""

    def on_end(self, error: BaseException | None) -> None:
        """Called last: when training is complete, was stopped, or failed with `error`."""


def _is_callback(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Callback) and thing is not Callback


CALLBACKS: Registry[type[Callback]] = Registry("callback", "gtrl.callbacks", _is_callback)


@dataclasses.dataclass
class Session:
    """Trains a method in a run directory, starting at step `start`."""

    run: Run
    algorithm: Algorithm
    training: Training
    task: Task | None
    spec: Spec
    seeds: Sequence[int]
    callbacks: Sequence[Callback] = ()
    start: int = 0
    scaling: Scaling | None = None  # stored in policies
    inputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # `Data.inputs`, for the header of policies

    def __post_init__(self) -> None:
        self.start_time = time.perf_counter()
        self.initial_states: Any = None  # a `State`: set before `train`, which takes it
        # Whether the rows of a step in existing log files belong to the run; see `gtrl.training.resume.Start`.
        self.is_logged: Callable[[int], bool] = lambda _: True
        self.signals: Stop | None = None
        self.on_compiled: Callable[[], None] = lambda: None
        self.keys: Array = seed_keys(self.seeds)
        self.writer = Writer(self.run.checkpoints, self.training.kept_steps, self.training.keep)
        self.last_save_time = time.monotonic()
        # Checkpoints that the writer's thread has finished and that callbacks do not know of: (step, with policies).
        self.written: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()
        self.first_chunk: tuple[int, float] | None = None  # its last step, and the time at its end
        self.stop_requested = False
        self.stopped_at: int | None = None  # the step

    # --- for callbacks ---

    def stop(self) -> None:
        """Ends training after the current chunk, with policies and a checkpoint to resume from."""
        self.stop_requested = True

    @property
    def interrupted(self) -> bool:
        """Whether SIGINT or SIGTERM was received."""
        return self.signals is not None and self.signals.received is not None

    @property
    def stopping(self) -> bool:
        """Whether training ends after the current chunk, because of `stop()` or a signal."""
        return self.stop_requested or self.interrupted

    def steps_per_second(self, step: int) -> float:
        """Returns the average speed since the first chunk, which is left out because it includes the compilation."""
        first_step, end_time = self.first_chunk or (step, 0.0)
        return (step - first_step) / (time.perf_counter() - end_time)

    def report_evaluation(self, step: int, rows: list[Row]) -> None:
        """Passes the result of an evaluation to `on_evaluation` of all callbacks."""
        for callback in self.callbacks:
            callback.on_evaluation(step, rows)

    # --- training ---

    def train(self, rotation: Rotation) -> None:
        """Trains from `initial_states` to the last step, or until `stop()` or a signal."""
        with contextlib.closing(rotation), self.writer, self._callbacks_started():
            driver.fit(
                self.algorithm, self.training, self._take_initial_states(), self.keys, rotation,
                on_step=self._on_step, on_log=self._on_log, on_checkpoint=self._on_checkpoint,
                checkpoint_now=self._checkpoint_now,
            )  # fmt: skip
            self.writer.wait()
            self._report_checkpoints()
            for callback in self.callbacks if self.stopped_at is None else ():
                callback.on_trained()
        if self.signals is not None and self.signals.received is not None:
            raise Interrupted(self._resume_hint(), self.signals.received)

    def _take_initial_states(self) -> State:
        """Returns the initial states and drops the reference to them, so that training can free their memory."""
        states, self.initial_states = self.initial_states, None
        return states

    def _resume_hint(self) -> str:
        if self.stopped_at is None:
            return "training is complete; --resume runs the evaluations that are missing"
        return f"the checkpoint of step {self.stopped_at:,} is saved; --resume continues from there"

    @contextlib.contextmanager
    def _callbacks_started(self) -> Iterator[None]:
        """Starts all callbacks, and ends those that were started, in the same order; raises the first error."""
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
        return self.stopping or time.monotonic() - self.last_save_time > 60 * self.training.checkpoint_minutes

    def _on_log(self, step: int, states: State, data: Data) -> None:
        """Measures one row of metrics per seed and passes them to the callbacks."""
        arguments = (self.algorithm, self.training.update, states, self.keys)
        held_out = monitor.validate(*arguments, data.validation) if data.validation else {}
        table = states.means() | monitor.measure(*arguments, data.train)
        table |= {f"validation/{name}": values for name, values in held_out.items()}
        columns = {name: np.asarray(values) for name, values in sorted(jax.device_get(table).items())}
        rows = [
            {"step": step, "seed": seed, **{name: float(values[index]) for name, values in columns.items()}}
            for index, seed in enumerate(self.seeds)
        ]
        for callback in self.callbacks:
            callback.on_log(step, rows)
        self.on_compiled()

    def _on_checkpoint(self, step: int, states: State) -> bool:
        """Starts to write a checkpoint; returns whether training ends here."""
        with_policies = step in self.training.checkpoint_steps or self.stop_requested
        if with_policies:
            self._save_policies(step, states)
        self.writer.save(step, states, then=lambda: self.written.put((step, with_policies)))
        self.last_save_time = time.monotonic()
        if self.stopping and step < self.training.steps:
            self.stopped_at = step
        return self.stopped_at is not None

    def _report_checkpoints(self) -> None:
        """Tells the callbacks of checkpoints that have been written since the last call."""
        while not self.written.empty():
            step, policies = self.written.get()
            for callback in self.callbacks:
                callback.on_checkpoint(step, policies)

    def _save_policies(self, step: int, states: State) -> None:
        """Writes one policy file per seed."""
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
                **self.inputs,
            }
            path = self.run.path / "policies" / f"step-{step}" / f"seed-{seed}.npz"
            save_policy(path, actor, header, self.scaling)

    def _goal_form(self) -> str:
        """What the policy's goals are: "oracle" (the task's), "state" (a whole state) or "own" (the user's)."""
        if self.task and not isinstance(self.task, OwnTask):
            return "oracle"
        return "state" if self.spec.goal_dim == self.spec.observation_dim else "own"

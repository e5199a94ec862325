"""Evaluating a run's policies as they are written, on other cores, while training goes on."""

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from gtrl.errors import ConfigError, RunError
from gtrl.evaluation.evaluate import evaluate, success_rate, write_maps
from gtrl.tasks import EPISODES_PER_GOAL
from gtrl.training.session import Callback, Session
from gtrl.workers import default_workers

log = logging.getLogger(__name__)
NICENESS = 10  # of the worker processes: the cores are training's first
POLL_SECONDS = 0.2  # between two looks at whether a signal asked to stop


class EvaluateDuring(Callback):
    """Worker processes play `episodes` of every goal with each policy; their results go to `eval.csv`.

    What an interrupted run had not evaluated is evaluated when it is resumed. Value maps of mazes, which take the
    device, come when training is done.
    """

    name = "evaluate-during"

    def __init__(self, episodes: int = EPISODES_PER_GOAL, workers: int | None = None) -> None:
        if episodes < 1 or (workers is not None and workers < 1):
            raise ConfigError(f"episodes ({episodes}) and workers ({workers}) of an evaluation must be positive.")
        self.episodes = episodes
        self.workers = workers or max(1, default_workers() - 1)
        self.cancelled = threading.Event()
        self.pending: dict[int, Future[list[dict[str, Any]]]] = {}
        self.evaluated: set[int] = set()

    def on_start(self, session: Session) -> None:
        if session.task is None:
            raise ConfigError("there is no environment to evaluate in: the data has no task.")
        self.session = session
        self.thread = ThreadPoolExecutor(1)
        planned = session.training.checkpoint_steps
        for step in session.run.written_steps():
            if step in planned and step <= session.start:
                self.on_checkpoint(step, policies=True)

    def on_checkpoint(self, step: int, policies: bool) -> None:
        if policies:
            self.pending[step] = self.thread.submit(self._evaluate, step)

    def on_step(self, step: int) -> None:
        del step
        for evaluated in [step for step, future in self.pending.items() if future.done() and not future.exception()]:
            self._report(evaluated)

    def on_end(self, error: BaseException | None) -> None:
        if not hasattr(self, "thread"):
            return
        try:
            if error is None and self.session.stopped_at is None and self._wait():
                self._finish()
        finally:
            self.cancelled.set()
            self.thread.shutdown(wait=True, cancel_futures=True)

    def _evaluate(self, step: int) -> list[dict[str, Any]]:
        """The rows of a step's policies; those evaluated before are not again."""
        session = self.session
        rows = [
            row
            for row in session.run.evaluations()
            if row["step"] == step and row["episodes"] >= self.episodes and row["base_seed"] == 0
        ]
        if session.task and len(rows) == len(session.task.goal_names) * len(session.seeds):
            return []
        try:
            return evaluate(
                session.run, task=session.task, step=step, episodes=self.episodes, workers=self.workers, show=False,
                maps=False, nice=NICENESS, cancelled=self.cancelled,
            )  # fmt: skip
        except Exception as error:
            if not self.cancelled.is_set():
                log.warning("the evaluation of step %s failed; training goes on (%s)", f"{step:,}", error)
            raise

    def _report(self, step: int) -> None:
        rows = self.pending.pop(step).result()
        self.evaluated.add(step)
        if rows:
            log.info("step %s: success %.1f %%", f"{step:,}", success_rate(rows))
            self.session.report_evaluation(step, rows)

    def _wait(self) -> bool:
        """Until all is evaluated; False where a signal asked to stop before."""
        while wait(self.pending.values(), timeout=POLL_SECONDS).not_done:
            if self.session.stopping:
                return False
        return True

    def _finish(self) -> None:
        for step, future in sorted(self.pending.items()):
            if error := future.exception():
                raise RunError(f"training is complete, but an evaluation failed: {error}") from error
            self._report(step)
        if self.session.task and self.evaluated:
            write_maps(self.session.run, self.session.task, max(self.evaluated))

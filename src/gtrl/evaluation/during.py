"""Evaluating a run's policies as they are written, on other cores, while training goes on."""

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from gtrl.errors import RunError
from gtrl.evaluation.evaluate import evaluate, success_rate, write_maps
from gtrl.runs.run import Run
from gtrl.tasks import GOALS_PER_TASK, find_task
from gtrl.training.signals import Stop
from gtrl.workers import default_workers

log = logging.getLogger(__name__)
NICE = 10  # the cores are training's first


class EvaluationDuring:
    """A thread that hands episodes to worker processes and writes their results.

    What an interrupted run had not evaluated is evaluated when it goes on. Value maps of mazes, which take the device,
    come when training is done.
    """

    def __init__(self, run: Run, episodes: int, workers: int | None = None) -> None:
        self.run, self.episodes = run, episodes
        self.workers = workers or max(1, default_workers() - 1)
        self.thread = ThreadPoolExecutor(1)
        self.cancelled = threading.Event()
        self.asked: dict[int, Future[None]] = {}

    def __enter__(self) -> "EvaluationDuring":
        return self

    def __exit__(self, *_: object) -> None:
        self.cancelled.set()
        self.thread.shutdown(wait=True, cancel_futures=True)

    def add(self, steps: Iterable[int]) -> None:
        """The policies of these steps are written; those that were evaluated before are not again."""
        for step in steps if self.episodes else ():
            self.asked[step] = self.thread.submit(self._evaluate, step)

    def _evaluate(self, step: int) -> None:
        rows = [row for row in self.run.evaluations() if row["step"] == step and row["episodes"] == self.episodes]
        if len(rows) == GOALS_PER_TASK * len(self.run.seeds):
            return
        try:
            rows = evaluate(
                self.run, step=step, episodes=self.episodes, workers=self.workers, show=False, maps=False,
                nice=NICE, cancelled=self.cancelled,
            )  # fmt: skip
        except Exception as error:
            if not self.cancelled.is_set():
                log.warning(f"the evaluation of step {step:,} failed; training goes on ({error})")
            raise
        log.info(f"step {step:,}: success {success_rate(rows):.1f} %")

    def finish(self, stop: Stop) -> bool:
        """Wait for the evaluations that are left; False where asked to end before. Says what went wrong with one."""
        while wait(self.asked.values(), timeout=0.2).not_done:
            if stop.asked:
                return False
        for each in self.asked.values():
            if error := each.exception():
                raise RunError(f"training is complete, but an evaluation failed: {error}") from error
        task = find_task(self.run.config["task"]) if self.asked else None
        if task and "maze" in task.family:
            write_maps(self.run, task, max(self.asked))
        return True

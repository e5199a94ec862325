"""A callback that evaluates the policies of a run in the background, while training continues."""

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait

from gtrl.envs.simulator import require_simulator_of
from gtrl.errors import ConfigError, RunError
from gtrl.evaluation.evaluate import Row, evaluate_in_background, success_rate, write_value_maps
from gtrl.tasks import OwnTask, default_episodes
from gtrl.training.session import Callback, Session
from gtrl.workers import default_workers

log = logging.getLogger(__name__)
POLL_SECONDS = 0.2  # interval at which a stop request is checked while evaluations finish


class EvaluateDuring(Callback):
    """Evaluates every saved policy in worker processes and appends the results to `eval.csv`.

    Evaluations that an interrupted run had not finished are made when it is resumed. Value maps of mazes need the
    accelerator, so they are computed after training.

    Args:
        episodes: Episodes per goal; the default is that of `gtrl.evaluate`.
        workers: Number of worker processes; by default all cores but one.
    """

    name = "evaluate-during"

    def __init__(self, episodes: int | None = None, workers: int | None = None) -> None:
        if any(count is not None and count < 1 for count in (episodes, workers)):
            raise ConfigError(f"episodes ({episodes}) and workers ({workers}) of an evaluation must be positive.")
        self.episodes = episodes
        self.workers = workers or max(1, default_workers() - 1)

    def on_start(self, session: Session) -> None:
        if session.task is None or session.task.environment is None:
            raise ConfigError(
                "there is no environment to evaluate in: give a task that has one, or name an environment with --env "
                "my_package:MyEnv-v0 (in Python, env=...)."
            )
        require_simulator_of(session.task)
        self.session, self.task = session, session.task
        self.episodes_per_goal = self.episodes or default_episodes(session.task)
        self.cancelled = threading.Event()
        self.pending: dict[int, Future[list[Row]]] = {}
        self.evaluated: set[int] = set()
        self.executor = ThreadPoolExecutor(1)
        planned = session.training.checkpoint_steps
        for step in session.run.written_steps():
            if step in planned and step <= session.start:
                self.on_checkpoint(step, policies=True)

    def on_checkpoint(self, step: int, policies: bool) -> None:
        if policies:
            self.pending[step] = self.executor.submit(self._evaluate, step)

    def on_step(self, step: int) -> None:
        finished = [step for step, future in self.pending.items() if future.done() and not future.exception()]
        for evaluated in finished:
            self._report(evaluated)

    def on_trained(self) -> None:
        """Waits for the remaining evaluations, unless a signal requests a stop; then computes the value maps."""
        while wait(self.pending.values(), timeout=POLL_SECONDS).not_done:
            if self.session.interrupted:
                return
        for step, future in sorted(self.pending.items()):
            if error := future.exception():
                raise RunError(f"training is complete, but an evaluation failed: {error}") from error
            self._report(step)
        if self.evaluated:
            write_value_maps(self.session.run, self.task, max(self.evaluated))

    def on_end(self, error: BaseException | None) -> None:
        self.cancelled.set()
        self.executor.shutdown(wait=True, cancel_futures=True)

    def _evaluate(self, step: int) -> list[Row]:
        """Evaluates the policies of a step and returns their rows; an empty list if `eval.csv` has them already."""
        run = self.session.run
        if self._is_evaluated(step):
            return []
        try:
            return evaluate_in_background(run, self.task, step, self.episodes_per_goal, self.workers, self.cancelled)
        except Exception as error:
            if not self.cancelled.is_set():
                log.warning("the evaluation of step %s failed; training continues (%s)", f"{step:,}", error)
            raise

    def _is_evaluated(self, step: int) -> bool:
        if isinstance(self.task, OwnTask) and self.task.record()["environment"] is None:
            return False  # of environments that their names do not distinguish, the rows may be another's
        key = {"task": self.task.name, "step": step, "base_seed": 0}
        existing = [
            row
            for row in self.session.run.evaluations()
            if key.items() <= row.items() and row["episodes"] >= self.episodes_per_goal
        ]
        return len(existing) == len(self.task.goal_names) * len(self.session.seeds)

    def _report(self, step: int) -> None:
        """Logs a finished evaluation and passes its rows to the callbacks."""
        rows = self.pending.pop(step).result()
        self.evaluated.add(step)
        if rows:
            log.info("step %s: success %.1f %%", f"{step:,}", success_rate(rows))
            self.session.report_evaluation(step, rows)

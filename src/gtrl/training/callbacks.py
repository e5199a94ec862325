"""The built-in callbacks: metrics, timing, TensorBoard, the progress bar, Weights & Biases."""

import hashlib
import logging
import socket
import time
from typing import Any, Literal

from rich.progress import Progress

from gtrl import console
from gtrl.errors import ConfigError
from gtrl.io.jsonl import JsonLines, read_rows
from gtrl.runs.events import EventFile, success_rates
from gtrl.training.session import Callback, Row, Session
from gtrl.training.watch import value_warnings

log = logging.getLogger(__name__)
SHOWN_LOSSES = ("critic", "actor")  # shown next to the progress bar, if the method has them


class MetricsFile(Callback):
    """Writes `metrics.jsonl`, and warnings about implausible values to `warnings.jsonl`.

    The files contain no wall-clock times, so that equal runs have equal files. On resume, rows after the checkpoint are
    dropped; they will be written again.
    """

    def on_start(self, session: Session) -> None:
        self.session = session
        folder = session.run.path
        self.metrics = JsonLines(folder / "metrics.jsonl", keep=session.is_logged)
        self.warnings = JsonLines(folder / "warnings.jsonl", keep=session.is_logged)
        self.warned = {(row["seed"], row["kind"]) for row in read_rows(folder / "warnings.jsonl")}

    def on_log(self, step: int, rows: list[Row]) -> None:
        for row in rows:
            self.metrics.write(row)
            for kind, message in value_warnings(row).items():
                self._warn(step, row["seed"], kind, message)
        for file in (self.metrics, self.warnings):
            file.sync()  # on resume, the rows up to the checkpoint must be on the disk

    def _warn(self, step: int, seed: int, kind: str, message: str) -> None:
        """Writes every warning to the file, and the first of each kind and seed to the log."""
        self.warnings.write({"step": step, "seed": seed, "kind": kind, "warning": message})
        if (seed, kind) not in self.warned:
            self.warned.add((seed, kind))
            log.warning("step %s, seed %s: %s.", f"{step:,}", seed, message)

    def on_end(self, error: BaseException | None) -> None:
        for file in (self.metrics, self.warnings):
            file.close()


class Timing(Callback):
    """Writes `timing.jsonl`: the time of each log, the speed, and the time until the end of the first chunk of steps.

    `start_time` (of `time.perf_counter()`) is when the command started; by default when `gtrl.train` was called.
    """

    def __init__(self, start_time: float | None = None) -> None:
        self.start_time = start_time

    def on_start(self, session: Session) -> None:
        self.session = session
        self.file = JsonLines(session.run.path / "timing.jsonl", keep=lambda step: step <= session.start)
        self.is_first_step = True

    def on_step(self, step: int) -> None:
        if self.is_first_step:
            start_time = self.session.start_time if self.start_time is None else self.start_time
            self.file.write({"step": step, "time": time.time(), "start_up_seconds": time.perf_counter() - start_time})
        self.is_first_step = False

    def on_log(self, step: int, rows: list[Row]) -> None:
        self.file.write({"step": step, "time": time.time(), "steps_per_second": self.session.steps_per_second(step)})

    def on_end(self, error: BaseException | None) -> None:
        self.file.close()


class TensorBoard(Callback):
    """Writes metrics and success rates to a TensorBoard event file in the run directory."""

    def on_start(self, session: Session) -> None:
        self.session = session
        self.events = EventFile(session.run.path)
        if session.start:
            self.events.discard_after(session.start)

    def on_log(self, step: int, rows: list[Row]) -> None:
        for row in rows:
            self.events.write(step, _metrics(row))
        self.events.write(step, {"steps_per_second": self.session.steps_per_second(step)})
        self.events.flush()

    def on_evaluation(self, step: int, rows: list[Row]) -> None:
        self.events.write(step, success_rates(rows))
        self.events.flush()

    def on_end(self, error: BaseException | None) -> None:
        self.events.close()


class ProgressBar(Callback):
    """Shows a progress bar with steps, speed, losses and the remaining time."""

    def on_start(self, session: Session) -> None:
        self.session = session
        self.losses = ""
        self.progress: Progress = console.progress_bar()
        total = session.training.steps
        self.bar = self.progress.add_task(session.algorithm.title, total=total, completed=session.start, note="")
        self.progress.start()

    def on_step(self, step: int) -> None:
        rate = f"{self.session.steps_per_second(step):,.0f} steps/s × {len(self.session.seeds)} seeds"
        self.progress.update(self.bar, completed=step, note=f"{rate} {self.losses}")

    def on_log(self, step: int, rows: list[Row]) -> None:
        names = [name for name in SHOWN_LOSSES if f"{name}_loss" in rows[0]]
        means = {name: sum(row[f"{name}_loss"] for row in rows) / len(rows) for name in names}
        self.losses = " ".join(f"{name} {mean:.3f}" for name, mean in means.items())

    def on_end(self, error: BaseException | None) -> None:
        self.progress.stop()


class WandB(Callback):
    """Logs metrics of every seed, evaluations and the config to Weights & Biases. Needs the extra `wandb`.

    A resumed run continues the same W&B run. `options` are passed to `wandb.init`.
    """

    def __init__(self, project: str, mode: Literal["online", "offline", "disabled"] = "online", **options: Any) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError("Weights & Biases is not installed: pip install 'gtrl[wandb]'.") from error
        self.wandb: Any = wandb
        self.options = {"project": project, "mode": mode, **options}

    def on_start(self, session: Session) -> None:
        path = session.run.path.resolve()
        defaults = {
            "name": path.name,
            "dir": str(path),
            "id": hashlib.sha256(f"{socket.gethostname()}:{path}".encode()).hexdigest()[:16],
            "resume": "allow",
            "config": session.run.config,
        }
        self.session = session
        self.run = self.wandb.init(**(defaults | self.options))

    def on_log(self, step: int, rows: list[Row]) -> None:
        metrics = {name: value for row in rows for name, value in _metrics(row).items()}
        self.run.log(metrics | {"steps_per_second": self.session.steps_per_second(step)}, step=step)

    def on_evaluation(self, step: int, rows: list[Row]) -> None:
        # Without W&B's own step, which may not decrease: an evaluation ends after later steps have been logged.
        rates = {f"evaluation/{name}": rate for name, rate in success_rates(rows).items()}
        self.run.log(rates | {"evaluation/step": step})

    def on_end(self, error: BaseException | None) -> None:
        self.run.finish(exit_code=0 if error is None else 1)


def _metrics(row: Row) -> dict[str, float]:
    """The metrics of a seed, with the seed in their names."""
    return {f"seed-{row['seed']}/{name}": value for name, value in row.items() if name not in ("step", "seed")}

"""Our own callbacks: metrics, timing, TensorBoard, the progress bar, Weights & Biases."""

import hashlib
import logging
import os
import socket
import time
from typing import Any, Literal

from rich.progress import Progress

from gtrl import console
from gtrl.errors import ConfigError
from gtrl.io.jsonl import JsonLines, read_rows
from gtrl.training.session import Callback, Row, Session
from gtrl.training.watch import doubts

log = logging.getLogger(__name__)
SHOWN_LOSSES = ("critic", "actor")  # beside the progress bar, where a method has them


class MetricsFile(Callback):
    """`metrics.jsonl`, and in `warnings.jsonl` what looks wrong about values. No wall-clock time goes in there.

    On resume, rows after the checkpoint are dropped: they will be written again.
    """

    def on_start(self, session: Session) -> None:
        self.session = session
        folder = session.run.path
        self.metrics = JsonLines(folder / "metrics.jsonl", keep=session.was_logged)
        self.warnings = JsonLines(folder / "warnings.jsonl", keep=session.was_logged)
        self.warned = {(row["seed"], row["kind"]) for row in read_rows(folder / "warnings.jsonl")}

    def on_log(self, step: int, rows: list[Row]) -> None:
        for row in rows:
            self.metrics.write(row)
            for kind, doubt in doubts(row).items():
                self._warn(step, row["seed"], kind, doubt)
        for file in (self.metrics, self.warnings):
            file.sync()  # a checkpoint relies on it when it is resumed from

    def _warn(self, step: int, seed: int, kind: str, doubt: str) -> None:
        """Every time in the file, the first time in the log."""
        self.warnings.write({"step": step, "seed": seed, "kind": kind, "warning": doubt})
        if (seed, kind) not in self.warned:
            self.warned.add((seed, kind))
            log.warning("step %s, seed %s: %s.", f"{step:,}", seed, doubt)

    def on_end(self, error: BaseException | None) -> None:
        for file in (self.metrics, self.warnings):
            file.close()


class Timing(Callback):
    """`timing.jsonl`: when each step was logged, how fast training is, and how long the first step took to come.

    `began` is when the work began (`time.perf_counter()`); by default when training did.
    """

    def __init__(self, began: float | None = None) -> None:
        self.given = began

    def on_start(self, session: Session) -> None:
        self.session = session
        self.began = session.began if self.given is None else self.given
        self.file = JsonLines(session.run.path / "timing.jsonl", keep=lambda step: step <= session.start)
        self.first = True

    def on_step(self, step: int) -> None:
        if self.first:
            self.file.write({"step": step, "time": time.time(), "start_up_seconds": time.perf_counter() - self.began})
        self.first = False

    def on_log(self, step: int, rows: list[Row]) -> None:
        self.file.write({"step": step, "time": time.time(), "steps_per_second": self.session.steps_per_second(step)})

    def on_end(self, error: BaseException | None) -> None:
        self.file.close()


class TensorBoard(Callback):
    """An event file in the run directory. TensorBoard's own writer meets a full disk in a thread; this one raises."""

    def on_start(self, session: Session) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.session = session
        self.event: Any = event_pb2.Event  # pyright: ignore[reportAttributeAccessIssue]
        self.summary: Any = summary_pb2.Summary  # pyright: ignore[reportAttributeAccessIssue]
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self.file = (session.run.path / name).open("wb")
        self.records = RecordWriter(self.file)
        self._add(wall_time=time.time(), file_version="brain.Event:2")
        if session.start:  # TensorBoard forgets what it read of later steps
            restart = event_pb2.SessionLog(status=event_pb2.SessionLog.START)  # pyright: ignore[reportAttributeAccessIssue]
            self._add(step=session.start + 1, session_log=restart)

    def on_log(self, step: int, rows: list[Row]) -> None:
        for row in rows:
            self._scalars(step, _metrics(row))
        self._scalars(step, {"steps_per_second": self.session.steps_per_second(step)})
        self.file.flush()

    def on_evaluation(self, step: int, rows: list[Row]) -> None:
        self._scalars(step, {f"seed-{seed}/success": rate for seed, rate in success_by_seed(rows).items()})
        self.file.flush()

    def on_end(self, error: BaseException | None) -> None:
        self.file.close()

    def _scalars(self, step: int, scalars: dict[str, float]) -> None:
        values = [self.summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._add(wall_time=time.time(), step=step, summary=self.summary(value=values))

    def _add(self, **fields: Any) -> None:
        self.records.write(self.event(**fields).SerializeToString())


class ProgressBar(Callback):
    """Steps, rate, losses and the time that is left."""

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
    """Weights & Biases: metrics of every seed, evaluations, and the config. Needs the extra `wandb`.

    A resumed run goes on in the same W&B run. `options` go to `wandb.init`.
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
        # Evaluations come later than the step they are of, and W&B's own step only ever grows.
        rates = {f"evaluation/seed-{seed}": rate for seed, rate in success_by_seed(rows).items()}
        self.run.log(rates | {"evaluation/step": step})

    def on_end(self, error: BaseException | None) -> None:
        self.run.finish(exit_code=0 if error is None else 1)


def _metrics(row: Row) -> dict[str, float]:
    """A seed's metrics, by names that tell the seeds apart."""
    return {f"seed-{row['seed']}/{name}": value for name, value in row.items() if name not in ("step", "seed")}


def success_by_seed(rows: list[Row]) -> dict[int, float]:
    """Success of each seed, in percent."""
    seeds = sorted({row["seed"] for row in rows})
    of_seed = {seed: [row for row in rows if row["seed"] == seed] for seed in seeds}
    return {
        seed: 100 * sum(row["successes"] for row in own) / sum(row["episodes"] for row in own)
        for seed, own in of_seed.items()
    }

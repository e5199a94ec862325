"""What a run writes and shows while it trains: metrics, timing, warnings (JSON lines), TensorBoard events, a bar."""

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from rich.progress import Progress
from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.summary.writer.record_writer import RecordWriter

from gtrl import console
from gtrl.errors import RunError
from gtrl.io.atomic import write_text
from gtrl.training.watch import doubts

log = logging.getLogger(__name__)
SHOWN = ("critic", "actor")  # losses beside the bar, where a method has them


class Log:
    """The log of a run. Wall-clock values go to TensorBoard and `timing.jsonl`, never to `metrics.jsonl`.

    On resume, lines after the checkpoint are dropped: they will be written again.
    """

    def __init__(
        self,
        folder: Path,
        seeds: Sequence[int],
        start: int,
        steps: int,
        log_every: int,
        title: str,
        show: bool,
        began: float,
    ) -> None:
        self.seeds = seeds
        self.command_began = began
        # A run that was shorter before has a last line where a longer one has none.
        logged = lambda step: step <= start and (step % log_every == 0 or step == steps)  # noqa: E731
        self.metrics = _continued(folder / "metrics.jsonl", logged)
        self.warnings = _continued(folder / "warnings.jsonl", logged)
        self.timing = _continued(folder / "timing.jsonl", lambda step: step <= start)
        self.warned = {(row["seed"], row["kind"]) for row in rows_of(folder / "warnings.jsonl")}
        self.events = Events(folder)
        if start:  # TensorBoard forgets what it read of later steps
            self.events.add(Event(step=start + 1, session_log=SessionLog(status=SessionLog.START)))
        self.progress: Progress = console.progress_bar(show)
        self.bar = self.progress.add_task(title, total=steps, completed=start, note="")
        self.losses = ""
        self.began, self.start = 0.0, -1  # set when the first chunk, which compiles, is done

    def __enter__(self) -> "Log":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
        self.events.close()
        for file in (self.metrics, self.timing, self.warnings):
            file.close()

    def steps_per_second(self, step: int) -> float:
        """Since the first chunk was done: the compilation is not in it."""
        return (step - self.start) / (time.perf_counter() - self.began)

    def stepped(self, step: int) -> None:
        if self.start < 0:
            self.began, self.start = time.perf_counter(), step
            start_up = self.began - self.command_began
            _write(self.timing, {"step": step, "time": time.time(), "start_up_seconds": start_up})
        note = f"{self.steps_per_second(step):,.0f} steps/s × {len(self.seeds)} seeds {self.losses}"
        self.progress.update(self.bar, completed=step, note=note)

    def logged(self, step: int, train: dict[str, Any], validation: dict[str, Any]) -> None:
        """`train` and `validation` hold one number a seed."""
        table = {name: np.asarray(values) for name, values in train.items()}
        table |= {f"validation/{name}": np.asarray(values) for name, values in validation.items()}
        for index, seed in enumerate(self.seeds):
            row = {name: float(values[index]) for name, values in sorted(table.items())}
            _write(self.metrics, {"step": step, "seed": seed, **row})
            for kind, doubt in doubts(row).items():
                self.warn(step, seed, kind, doubt)
            values = [Summary.Value(tag=f"seed-{seed}/{name}", simple_value=value) for name, value in row.items()]
            self._event(step, values)
        speed = self.steps_per_second(step)
        _write(self.timing, {"step": step, "time": time.time(), "steps_per_second": speed})
        self._event(step, [Summary.Value(tag="steps_per_second", simple_value=speed)])
        self.events.flush()
        means = {name: table[f"{name}_loss"].mean() for name in SHOWN if f"{name}_loss" in table}
        self.losses = " ".join(f"{name} {mean:.3f}" for name, mean in means.items())

    def warn(self, step: int, seed: int, kind: str, doubt: str) -> None:
        """Every time in `warnings.jsonl`, the first time on the screen."""
        _write(self.warnings, {"step": step, "seed": seed, "kind": kind, "warning": doubt})
        if (seed, kind) not in self.warned:
            self.warned.add((seed, kind))
            log.warning(f"step {step:,}, seed {seed}: {doubt}.")

    def on_disk(self) -> None:
        """What a checkpoint relies on when it is gone back to."""
        for file in (self.metrics, self.warnings):
            os.fsync(file.fileno())

    def _event(self, step: int, values: list[Any]) -> None:
        self.events.add(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))


class Events:
    """A TensorBoard file. Its own writer works in a thread, which tells of a full disk in ways of its own."""

    def __init__(self, folder: Path) -> None:
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self.file = (folder / name).open("wb")
        self.records = RecordWriter(self.file)
        self.add(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def add(self, event: Any) -> None:
        self.records.write(event.SerializeToString())

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def _write(file: TextIO, row: dict[str, Any]) -> None:
    file.write(json.dumps(row) + "\n")
    file.flush()


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that a process may have been killed over; none where there is no file."""
    if not path.exists():
        return []
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise RunError(f"{path} holds a line that is no JSON ({error}); mend or remove it.") from error


def _continued(path: Path, stays: Callable[[int], bool]) -> TextIO:
    """Open to append to the rows of those steps that stay."""
    kept = [json.dumps(row) + "\n" for row in rows_of(path) if stays(row["step"])]
    write_text(path, "".join(kept))
    return path.open("a")

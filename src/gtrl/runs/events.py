"""TensorBoard event files of a run."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class EventFile:
    """A TensorBoard event file in a folder.

    TensorBoard's own writer writes in a thread, where an error such as a full disk is lost; this one raises it.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.events: Any = event_pb2
        self.summary: Any = summary_pb2.Summary  # pyright: ignore[reportAttributeAccessIssue]
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self.file = (folder / name).open("wb")
        self.records = RecordWriter(self.file)
        self._add(wall_time=time.time(), file_version="brain.Event:2")

    def discard_after(self, step: int) -> None:
        """Makes TensorBoard discard what earlier event files of the run have of later steps."""
        restart = self.events.SessionLog(status=self.events.SessionLog.START)
        self._add(step=step + 1, session_log=restart)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes the values of a step by their names."""
        values = [self.summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._add(wall_time=time.time(), step=step, summary=self.summary(value=values))

    def flush(self) -> None:
        """Makes what was written visible to TensorBoard."""
        self.file.flush()

    def close(self) -> None:
        """Ends the file: nothing can be written to it afterwards."""
        self.file.close()

    def _add(self, **fields: Any) -> None:
        self.records.write(self.events.Event(**fields).SerializeToString())


def success_rates(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Returns success in percent by name: of each seed over all goals, and of each seed for each goal."""
    counts: dict[str, list[int]] = {}
    for row in rows:
        overall = f"seed-{row['seed']}/success"
        for name in (overall, f"{overall}/{row['goal']}"):
            count = counts.setdefault(name, [0, 0])
            count[0] += row["successes"]
            count[1] += row["episodes"]
    return {name: 100 * successes / episodes for name, (successes, episodes) in counts.items()}

"""JSON-lines files that a process may be killed over: whole lines only."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gtrl.errors import RunError
from gtrl.io.atomic import write_text


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, without a last line that is torn; none where there is no file."""
    if not path.exists():
        return []
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise RunError(f"{path} holds a line that is not JSON ({error}); repair or remove it.") from error


class JsonLines:
    """A file to append rows to, beginning with those of its rows whose step is to be kept."""

    def __init__(self, path: Path, keep: Callable[[int], bool]) -> None:
        self.path = path
        kept = [json.dumps(row) + "\n" for row in read_rows(path) if keep(row["step"])]
        write_text(path, "".join(kept))
        self.file = path.open("a")

    def rows(self) -> list[dict[str, Any]]:
        return read_rows(self.path)

    def write(self, row: dict[str, Any]) -> None:
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()

    def sync(self) -> None:
        """Wait until all is on the disk."""
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()

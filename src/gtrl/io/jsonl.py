"""JSON lines files: one JSON object per line, written by a process that may be killed at any time.

An incomplete last line is ignored. Any other damaged line is an error.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gtrl.errors import RunError
from gtrl.io.atomic import write_text

Row = dict[str, Any]


def read_rows(path: Path) -> Iterator[Row]:
    """Yields the rows of a file; none if the file does not exist."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                yield _parse_row(path, number, line)


def _parse_row(path: Path, number: int, line: bytes) -> Row:
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}, line {number} is not JSON ({error}); repair or remove it.") from error
    if not isinstance(row, dict):
        raise RunError(f"{path}, line {number} is not a JSON object; repair or remove it.")
    return row


class JsonLines:
    """Appends rows to a file, after removing existing rows for whose step `keep` is false."""

    def __init__(self, path: Path, keep: Callable[[int], bool]) -> None:
        self.path = path
        write_text(path, "".join(_line(row) for row in read_rows(path) if keep(row["step"])))
        self.file = path.open("a")

    def write(self, row: Row) -> None:
        """Appends a row and flushes it, so that other processes can read it."""
        self.file.write(_line(row))
        self.file.flush()

    def sync(self) -> None:
        """Waits until all rows are on disk."""
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Closes the file; no rows can be written afterwards."""
        self.file.close()


def _line(row: Row) -> str:
    return json.dumps(row) + "\n"

"""Small files that other processes may be writing, and writing any file whole or not at all."""

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

PARTIAL = ".partial"


@contextmanager
def whole_or_not(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which gets its name once it is whole and on the disk. No other process writes to it before."""
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    _keep_name(path.parent)


def _keep_name(folder: Path) -> None:
    """A power cut must not take back the new name; some file systems cannot promise that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_partial(folder: Path) -> None:
    """What processes that are no more left half-written, here and below."""
    for path in folder.rglob(f"*{PARTIAL}"):
        writer = path.name.removesuffix(PARTIAL).rpartition(".")[2]
        if not (writer.isdigit() and _runs(int(writer))):
            path.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return process != os.getpid()  # this one writes nothing yet; its number may have been another's before


def read_note(path: Path) -> dict[str, Any]:
    """The object in a small JSON file; empty where there is none or it cannot be read."""
    try:
        note = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def write_text(path: Path, text: str) -> None:
    with whole_or_not(path) as file:
        file.write(text.encode())

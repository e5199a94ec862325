"""Atomic writes, and small JSON files that other processes may be writing."""

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

PARTIAL_SUFFIX = ".partial"
OTHER_HOST_SECONDS = 24 * 3600  # a partial file of another host that is older than this is abandoned


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which gets its name once it is complete and on the disk."""
    partial = path.with_name(f"{path.name}.{_host()}.{os.getpid()}{PARTIAL_SUFFIX}")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _host() -> str:
    """This machine's name, without dots: it is one part of a partial file's name."""
    return re.sub(r"[^\w-]", "-", socket.gethostname()) or "unknown"


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_partial(folder: Path) -> None:
    """Remove the partial files, here and below, of writers that no longer run."""
    for path in folder.rglob(f"*{PARTIAL_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # it may have become whole meanwhile
            if _abandoned(path):
                path.unlink()


def _abandoned(path: Path) -> bool:
    """A process number means something on its own host only; of another host's files, the age decides."""
    before, _, process = path.name.removesuffix(PARTIAL_SUFFIX).rpartition(".")
    if before.rpartition(".")[2] == _host() and process.isdigit():
        return not _runs(int(process))
    return time.time() - path.stat().st_mtime > OTHER_HOST_SECONDS


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return process != os.getpid()  # this one writes nothing yet; its number may have been another's before


def read_json(path: Path) -> dict[str, Any]:
    """The object in a small JSON file; empty where there is none or it cannot be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_write(path) as file:
        file.write(text.encode())

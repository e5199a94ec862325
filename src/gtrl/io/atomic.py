"""Atomic file writes, and reads of small JSON files that other processes may be writing."""

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

PARTIAL_SUFFIX = ".partial"  # of files that are being written
OTHER_HOST_SECONDS = 24 * 3600  # age from which a partial file of another host counts as abandoned


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Opens a temporary file for writing, which is renamed to `path` once it is complete and on disk."""
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
    """Returns the host name without dots, which separate the parts of a partial file's name."""
    return re.sub(r"[^\w-]", "-", socket.gethostname()) or "unknown"


def _sync_folder(folder: Path) -> None:
    """Flushes a folder to disk so that a rename survives a power failure; some file systems cannot."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_partial(folder: Path) -> None:
    """Removes the partial files in a folder and its subfolders whose writing process has ended."""
    for path in folder.rglob(f"*{PARTIAL_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # its writer may have renamed it meanwhile
            if _is_abandoned(path):
                path.unlink()


def _is_abandoned(path: Path) -> bool:
    """Returns whether the writer of a partial file has ended. For other hosts' files the age decides."""
    prefix, _, process = path.name.removesuffix(PARTIAL_SUFFIX).rpartition(".")
    if prefix.rpartition(".")[2] == _host() and process.isdigit():
        return not _is_running(int(process))
    return time.time() - path.stat().st_mtime > OTHER_HOST_SECONDS


def _is_running(process: int) -> bool:
    """Returns whether another process with this number runs."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return process != os.getpid()  # this process writes nothing yet; an earlier one may have had its number


def read_json(path: Path) -> dict[str, Any]:
    """Reads the JSON object in a file; returns an empty one if the file is missing or damaged."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically, in UTF-8."""
    with atomic_write(path) as file:
        file.write(text.encode())

"""Small files that other processes may be writing, and writing any file whole or not at all."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from gtrl.errors import DataError, GtrlError

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


@contextmanager
def locked(path: Path, doing: str, error: type[GtrlError] = DataError) -> Iterator[None]:
    """For this process alone, however it ends: the system drops the lock with the process."""
    import fcntl  # where there is none, policies can still be read

    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Who held it before may have removed the file between our opening and our locking it.
            held = os.fstat(lock.fileno()).st_ino == path.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            held = False
        if not held:
            raise error(f"another process is {doing} just now.")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Like `locked`, but waits for its turn."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(path, "in here"))
                break
            except DataError:
                time.sleep(0.02)
        yield

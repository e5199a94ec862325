"""Locks between processes, which the system drops with the process that holds them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from gtrl.errors import DataError, GtrlError


@contextmanager
def locked(path: Path, doing: str, error: type[GtrlError] = DataError) -> Iterator[None]:
    """Hold the lock file `path`; where another process does, raise an error that says what it is doing."""
    lock = _acquire(path, wait=False)
    if lock is None:
        raise error(f"another process is {doing} just now.")
    with _held(lock, path):
        yield


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, as soon as nobody else does."""
    while (lock := _acquire(path, wait=True)) is None:
        pass  # who held it removed the file we waited for
    with _held(lock, path):
        yield


def _acquire(path: Path, wait: bool) -> TextIO | None:
    """The open and locked file; None where another process has it, or removed it before we got the lock."""
    import fcntl  # where there is none, policies can still be read

    lock = path.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        # A lock on a file without a name excludes nobody: the next process creates and locks a new file.
        if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        lock.close()
        raise
    lock.close()
    return None


@contextmanager
def _held(lock: TextIO, path: Path) -> Iterator[None]:
    with lock:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is locked, so that it is ours

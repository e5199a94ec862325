"""Lock files between processes. The operating system releases a lock when its process ends."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from gtrl.errors import DataError, GtrlError

PROBE_SECONDS = 0.05  # longer than `is_locked` of another process holds a lock


@contextmanager
def locked(path: Path, doing: str, error: type[GtrlError] = DataError) -> Iterator[None]:
    """Holds the lock file `path`. If another process holds it, raises `error`; `doing` says what that process does."""
    lock = _acquire(path, wait=False)
    if lock is None:  # perhaps only because another process looked whether it is held
        time.sleep(PROBE_SECONDS)
        lock = _acquire(path, wait=False)
    if lock is None:
        raise error(f"another process is {doing}.")
    with _removed_at_exit(lock, path):
        yield


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Waits until no other process holds the lock file `path`, then holds it."""
    while (lock := _acquire(path, wait=True)) is None:
        pass  # the previous holder removed this lock file: try again with a new one
    with _removed_at_exit(lock, path):
        yield


def is_locked(path: Path) -> bool:
    """Returns whether a process holds the lock file `path`, without creating it."""
    import fcntl

    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: several processes may look at the same time
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def _acquire(path: Path, wait: bool) -> TextIO | None:
    """Opens and locks the file. Returns None if another process holds the lock or has removed the file meanwhile."""
    import fcntl  # here, so that policies can be read on systems without it

    lock = path.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        # The lock on a file that was removed is useless: the next process would create and lock a new file.
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
def _removed_at_exit(lock: TextIO, path: Path) -> Iterator[None]:
    """Removes the lock file, then releases the lock."""
    with lock:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # before it is unlocked: afterwards another process may hold it

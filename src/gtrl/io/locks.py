"""Locks between processes, which the system drops with the process that holds them."""

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gtrl.errors import DataError, GtrlError


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

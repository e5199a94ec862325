"""Guards against damaged and malicious files, and against missing packages."""

import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gtrl.errors import DataError, GtrlError
from gtrl.io import npz

MAX_FIELDS = 10_000  # arrays of one log, and columns of one array
MAX_DEPTH = 8  # of nested groups


def import_extra(module: str, extra: str, what: str) -> Any:
    """Imports a package of an extra; without it the error names the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        raise DataError(f'{what} needs a package that is not installed: pip install "gtrl[{extra}]".') from cause


@contextmanager
def readable(path: Path | str, kind: str) -> Iterator[None]:
    """Turns whatever a library raises on a damaged file into a one-line error."""
    try:
        yield
    except GtrlError:
        raise
    except MemoryError as cause:
        raise DataError(f"{path} is too large for the available memory.") from cause
    except PermissionError as cause:
        raise DataError(f"{path} cannot be read: {cause.strerror}.") from cause
    except Exception as cause:  # damaged files make h5py and pyarrow raise many kinds of errors
        raise DataError(f"{path} is not a readable {kind}; it may be truncated or damaged.") from cause


def check_names(path: Path, names: Sequence[str]) -> None:
    """Raises a `DataError` if two columns of a table have the same name."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{path} has two columns called {repeated[0]!r}.")


class Budget:
    """Compares the sizes that files claim with their actual size and with the memory, before anything is allocated."""

    def __init__(self, what: Path | str, file_bytes: int) -> None:
        self.what = what
        self.file_bytes = file_bytes
        self.claimed = 0

    def claim(self, size: int) -> None:
        """Adds a size in bytes; raises a `DataError` if the files claim implausibly much in total."""
        self.claimed += size
        if self.claimed > max(npz.MAX_UNPACKED_BYTES, npz.MAX_UNPACKED_RATIO * self.file_bytes):
            claim = f"{self.what} is {self.file_bytes:,} bytes long and claims to unpack to {self.claimed:,}"
            raise DataError(f"{claim}: if this is intended, save it without compression.")
        if self.claimed > npz.memory_bytes():
            size_text = f"{self.claimed / 2**30:,.1f} GiB"
            raise DataError(f"the chosen columns of {self.what} are {size_text}, more than the memory of this machine.")

"""Reading and writing npz files: whole or not at all, and a sentence where one cannot be read."""

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.errors import GtrlError


def read_npz(path: Path, error: type[GtrlError], keys: tuple[str, ...] | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file (only those in `keys`, where given); `error` with one sentence where it cannot be read."""
    if not path.exists():
        raise error(f"there is no file {path}.")
    if not zipfile.is_zipfile(path):  # NumPy would guess at something else, and advise to unpickle it
        raise error(f"{path} is not a readable npz file; it may be truncated.")
    try:
        with np.load(path) as file:
            return {key: file[key] for key in file.files if keys is None or key in keys}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as cause:
        raise error(f"{path} is not a readable npz file ({str(cause).rstrip('.')}).") from cause


def write_npz(path: Path, arrays: Mapping[str, Any], compress: bool = True) -> None:
    """Write a file whole or not at all; the same arrays give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        (np.savez_compressed if compress else np.savez)(file, **arrays)
    os.replace(partial, path)

"""Reading and writing npz files: whole or not at all, and a sentence where one cannot be read."""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.atomic import whole_or_not
from gtrl.errors import GtrlError


def read_npz(path: Path, error: type[GtrlError], keys: tuple[str, ...] | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file (only those in `keys`, where given); `error` with one sentence where it cannot be read."""
    if not path.exists():
        raise error(f"there is no file {path}.")
    if not zipfile.is_zipfile(path):  # NumPy would guess at something else, and advise to unpickle it
        raise error(f"{path} is not a readable npz file; it may be truncated.")
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            return {key: file[key] for key in file.files if keys is None or key in keys}
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as cause:
        raise error(f"{path} is not a readable npz file ({str(cause).rstrip('.')}).") from cause


def shapes_in(path: Path, error: type[GtrlError]) -> dict[str, tuple[int, ...]]:
    """The shapes of a file's arrays, without reading them."""
    try:
        with zipfile.ZipFile(path) as file:
            return {name.removesuffix(".npy"): _shape(file, name) for name in file.namelist()}
    except (OSError, ValueError, zipfile.BadZipFile) as cause:
        raise error(f"{path} is not a readable npz file ({str(cause).rstrip('.')}).") from cause


def _shape(file: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    with file.open(name) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return read(member)[0]


def write_npz(path: Path, arrays: Mapping[str, Any], compress: bool = True) -> None:
    """Write a file whole or not at all; the same arrays give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_or_not(path) as file:
        (np.savez_compressed if compress else np.savez)(file, **arrays)


def join_npz(path: Path, parts: Sequence[Path]) -> None:
    """One file with the rows of all parts, in order, holding one array of one part in memory at a time."""
    with np.load(parts[0]) as first:
        columns = {key: first[key][:0] for key in first.files}
    rows = sum(len(_array(part, next(iter(columns)))) for part in parts)
    with whole_or_not(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as joined:
        for key, empty in columns.items():
            with joined.open(f"{key}.npy", "w", force_zip64=True) as member:
                header = np.lib.format.header_data_from_array_1_0(empty) | {"shape": (rows, *empty.shape[1:])}
                np.lib.format.write_array_header_1_0(member, header)
                for part in parts:
                    member.write(_array(part, key).tobytes())


def _array(path: Path, key: str) -> np.ndarray:
    with np.load(path) as file:
        return file[key]

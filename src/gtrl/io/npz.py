"""Reads and writes npz files. Writes are atomic; damaged or malicious files are rejected with a one-line error.

Files are not trusted: the sizes that a file claims are compared with its actual size before memory is allocated, no
single read is longer than CHUNK_BYTES, and nothing is unpickled.
"""

import ast
import errno
import io
import math
import os
import reprlib
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from gtrl.errors import DataError, GtrlError
from gtrl.io.atomic import atomic_write

CHUNK_BYTES = 2**18  # maximum size of one read
MAX_HEADER_BYTES = 10_000  # of an array's header, as in NumPy
# A file may unpack to MAX_UNPACKED_BYTES or to MAX_UNPACKED_RATIO times its size, whichever is more. Collected data is
# compressed to 40 % of its size at best.
MAX_UNPACKED_BYTES, MAX_UNPACKED_RATIO = 2**25, 20
DTYPE_KINDS = "biufcmMSU"  # numbers, times and text; not objects and structures
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those that NumPy writes; others may allocate gigabytes
ENCRYPTED_FLAG = 1  # bit of a zip entry's flags
LOCAL_HEADER_BYTES = 30  # before an entry's name; the last 4 are the lengths of the name and of the extra field
# Errors of the disk or the machine: the file itself may be intact.
MACHINE_ERRNOS = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EACCES, errno.EPERM, errno.ENOMEM, errno.ENODEV}


class _BadFileError(Exception):
    """A damaged file. The message completes "FILE is not a readable npz file; "."""


class _TooLargeError(MemoryError):
    """A file larger than the memory of this machine. The message is completed in the same way."""


@contextmanager
def _reported_as(clause: str) -> Iterator[None]:
    """Converts any error inside to a `_BadFileError` with this message; keeps errors of the machine."""
    try:
        yield
    except (_BadFileError, MemoryError):
        raise
    except OSError as cause:
        if cause.errno in MACHINE_ERRNOS:
            raise
        raise _BadFileError(clause) from cause
    except Exception as cause:  # damaged files make zipfile, zlib and NumPy raise many kinds of errors
        raise _BadFileError(clause) from cause


class _File(io.FileIO):
    """A file that rejects reads longer than a chunk: only the archive's directory could cause one."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > CHUNK_BYTES:
            raise _BadFileError(f"the list of its arrays claims to be {size:,} bytes long")
        return super().read(size) or b""


class _Header(NamedTuple):
    """The header of an array."""

    dtype: np.dtype
    fortran: bool
    shape: tuple[int, ...]


class _Member(NamedTuple):
    """An array in a zip archive."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo

    @property
    def name(self) -> str:
        return self.info.filename.removesuffix(".npy")

    @property
    def label(self) -> str:
        """The name for use in messages, shortened and escaped."""
        return f"its array {self.name[:60]!r}"

    def check(self) -> None:
        """Checks that the entry is an array as NumPy writes it, at the place that the directory gives."""
        if not self.info.filename.endswith(".npy"):
            raise _BadFileError(f"it holds {self.name[:60]!r}, which is not an array")
        if self.info.compress_type not in COMPRESSIONS or self.info.flag_bits & ENCRYPTED_FLAG:
            raise _BadFileError(f"{self.label} is encrypted or uses a compression that NumPy does not write")
        with _reported_as(f"{self.label} is not at its place in the archive"), self.archive.open(self.info):
            pass  # opening compares the name in the directory with the one stored before the data

    def header(self) -> _Header:
        """Reads and checks the header only."""
        with _reported_as(f"{self.label} is damaged"), self.archive.open(self.info) as file:
            return self._header(file)

    def read(self) -> np.ndarray:
        """Reads the array, in chunks."""
        with _reported_as(f"{self.label} is damaged"), self.archive.open(self.info) as file:
            dtype, fortran, shape = self._header(file)
            data = np.empty(self.info.file_size - file.tell(), np.uint8)
            for start in range(0, len(data), CHUNK_BYTES):
                chunk = data[start : start + CHUNK_BYTES]
                chunk[:] = np.frombuffer(
                    file.read(len(chunk)), np.uint8, len(chunk)
                )  # the last read compares the checksum
            if dtype.kind == "b" and data.max(initial=0) > 1:  # undefined behaviour in NumPy
                raise _BadFileError(f"{self.label} is Boolean but holds bytes other than 0 and 1")
            array = data.view(dtype).reshape(shape, order="F" if fortran else "C")
            return array.astype(dtype.newbyteorder("="), copy=False)

    def _header(self, file: IO[bytes]) -> _Header:
        """Reads the header and checks it against the number of bytes of the array."""
        descr, fortran, shape = self._read_literal(file)
        dtype = np.dtype(descr if isinstance(descr, str) else "V")  # a list of fields is a structure
        if dtype.hasobject:
            raise _BadFileError(f"{self.label} holds Python objects, which are never unpickled")
        if dtype.kind not in DTYPE_KINDS or dtype.itemsize == 0:
            raise _BadFileError(f"{self.label} holds structures or raw bytes, not numbers or text")
        if type(fortran) is not bool or type(shape) is not tuple or any(type(n) is not int for n in shape):
            raise _BadFileError(f"{self.label} has an invalid header")
        if min(shape, default=0) < 0:
            raise _BadFileError(f"{self.label} claims the shape {reprlib.repr(shape)}, which is negative")
        available = self.info.file_size - file.tell()
        if math.prod(shape) * dtype.itemsize != available:
            claim = f"{self.label} claims the shape {reprlib.repr(shape)}"
            raise _BadFileError(f"{claim} with {dtype.itemsize} bytes per value, but has {available:,} bytes")
        return _Header(dtype, fortran, shape)

    def _read_literal(self, file: IO[bytes]) -> tuple[Any, Any, Any]:
        """Reads dtype, order and shape from the Python literal in the header."""
        major, _ = np.lib.format.read_magic(file)
        length = int.from_bytes(file.read(2 if major == 1 else 4), "little")
        if length > MAX_HEADER_BYTES:
            raise _BadFileError(f"{self.label} has a header of {length:,} bytes")
        try:
            literal = ast.literal_eval(file.read(length).decode("utf-8" if major == 3 else "latin1"))
            return literal["descr"], literal["fortran_order"], literal["shape"]
        except Exception as cause:  # a deeply nested literal may even raise MemoryError
            raise _BadFileError(f"{self.label} has an invalid header") from cause


def _open(path: Path) -> _File:
    if not path.is_file():  # opening a pipe would wait for a writer
        raise _BadFileError("it is a folder or a device")
    return _File(path)


@contextmanager
def _opened(
    path: Path, error: type[GtrlError], keys: tuple[str, ...] | None, *, sizes: bool = True
) -> Iterator[dict[str, _Member]]:
    """Opens a file and yields its arrays by name (only those in `keys`, if given), checked but not read."""
    try:
        if not path.exists():
            raise error(f"there is no file {path}.")
        with _open(path) as file:
            with _reported_as("it may be truncated, or it is not a zip archive"):
                archive = zipfile.ZipFile(file)
            members = _members(archive)
            _check_gaps(file, archive, members)
            wanted = {name: member for name, member in members.items() if keys is None or name in keys}
            if sizes:
                _check_sizes(os.fstat(file.fileno()).st_size, wanted)
            yield wanted
    except (_BadFileError, _TooLargeError) as cause:
        raise error(f"{path} is not a readable npz file; {cause}.") from cause
    except MemoryError as cause:
        raise error(f"{path} is too large for the available memory.") from cause
    except OSError as cause:
        raise error(f"{path} cannot be read: {cause.strerror}.") from cause


def _members(archive: zipfile.ZipFile) -> dict[str, _Member]:
    """Returns all arrays by name. Checks them all: the name of a wanted array may be damaged."""
    found: dict[str, _Member] = {}
    for member in (_Member(archive, info) for info in archive.infolist()):
        if member.name in found:
            raise _BadFileError(f"{member.label} occurs twice")
        member.check()
        found[member.name] = member
    return found


def _check_gaps(file: _File, archive: zipfile.ZipFile, members: Mapping[str, _Member]) -> None:
    """Checks that the arrays follow each other without gaps, so that the directory omits none."""
    infos = sorted((member.info for member in members.values()), key=lambda info: info.header_offset)
    starts, ends = [*(info.header_offset for info in infos), archive.start_dir], [0]
    for info in infos:
        file.seek(info.header_offset + LOCAL_HEADER_BYTES - 4)
        ends.append(file.tell() + 4 + sum(struct.unpack("<HH", file.read(4))) + info.compress_size)
    if not all(0 <= start - end < LOCAL_HEADER_BYTES for start, end in zip(starts, ends, strict=True)):
        raise _BadFileError("the list of its arrays does not match its content")


def _check_sizes(size: int, members: Mapping[str, _Member]) -> None:
    """Checks that the arrays are not implausibly large for a file of `size` bytes, and fit into memory."""
    unpacked = sum(member.info.file_size for member in members.values())
    if unpacked > max(MAX_UNPACKED_BYTES, MAX_UNPACKED_RATIO * size):
        claim = f"it is {size:,} bytes long and claims to unpack to {unpacked:,}"
        raise _BadFileError(f"{claim}: if this is intended, save it without compression (np.savez)")
    if unpacked > memory_bytes():
        raise _TooLargeError(f"its arrays are {unpacked / 2**30:,.1f} GiB, more than the memory of this machine")


def memory_bytes() -> float:
    """Returns the size of this machine's memory; infinity if it is unknown."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else math.inf


def read_npz(path: Path, error: type[GtrlError], keys: tuple[str, ...] | None = None) -> dict[str, np.ndarray]:
    """Reads the arrays of a file (only those in `keys`, if given). Raises `error` if the file cannot be read."""
    with _opened(path, error, keys) as members:
        return {name: member.read() for name, member in members.items()}


def names_in(path: Path, error: type[GtrlError]) -> list[str]:
    """Lists a file's arrays, whatever they hold, without reading them."""
    with _opened(path, error, None, sizes=False) as members:
        return list(members)


def shapes_in(path: Path, error: type[GtrlError], keys: tuple[str, ...] | None = None) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a file's arrays without reading their data."""
    return {name: header.shape for name, header in _headers(path, error, keys).items()}


def layout_of(path: Path, error: type[GtrlError], name: str) -> tuple[tuple[int, ...], np.dtype]:
    """Returns the shape and the type of one array without reading its data."""
    header = _headers(path, error, (name,))[name]
    return header.shape, header.dtype


def _headers(path: Path, error: type[GtrlError], keys: tuple[str, ...] | None = None) -> dict[str, _Header]:
    with _opened(path, error, keys) as members:
        return {name: member.header() for name, member in members.items()}


def write_npz(path: Path, arrays: Mapping[str, Any], compress: bool = True) -> None:
    """Writes a file atomically. The same arrays always give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        (np.savez_compressed if compress else np.savez)(file, **arrays)


def join_npz(path: Path, parts: Sequence[Path]) -> None:
    """Concatenates the rows of all parts into one file, with one array of one part in memory at a time."""
    columns, rows = {}, 0
    for part in parts:
        headers = _headers(part, DataError)
        part_columns = {key: (header.dtype.newbyteorder("="), header.shape[1:]) for key, header in headers.items()}
        lengths = {header.shape[:1] for header in headers.values()}
        columns = columns or part_columns
        if part_columns != columns or len(lengths) != 1:
            raise DataError(f"{part} cannot be joined to {parts[0]}: their arrays differ.")
        rows += sum(lengths.pop())
    with atomic_write(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as joined:
        for key, (dtype, shape) in columns.items():
            with joined.open(f"{key}.npy", "w", force_zip64=True) as member:
                header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, *shape)}
                np.lib.format.write_array_header_1_0(member, header)
                for part in parts:
                    member.write(read_npz(part, DataError, (key,))[key].tobytes())

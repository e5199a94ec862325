#!/usr/bin/env python3
"""Loads mutants of valid dataset files, to test how the loader handles damaged and malicious files.

    python benchmarks/mutations.py
    python benchmarks/mutations.py --count 400 --seed 1 --keep failures

`gtrl.load_dataset` must either read a mutant as the arrays of its original file, or reject it with a `GtrlError`,
within 5 seconds and with at most 1 GiB of additional memory. A splice may be read as either of its two files. Kinds
marked * are valid files with correct checksums and other contents (another shape, another number, no `goals`), which
no loader can recognise as mutants. They may also be read as what NumPy reads from them, converted by `reading` below.

The exit status is 1 if one mutant fails; `--keep` writes the failing ones to a folder. Linux (glibc) only: memory is
measured by /proc.
"""

import argparse
import ctypes
import io
import pickle
import struct
import sys
import tempfile
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator

from gtrl import console
from gtrl.data.dataset import ACTION_LIMIT
from gtrl.data.load import load_dataset
from gtrl.errors import GtrlError
from gtrl.io.npz import MAX_UNPACKED_BYTES, join_npz

MAX_SECONDS, MAX_BYTES = 5.0, 2**30  # for loading one file; bytes in addition to those before
TASK = "pointmaze-mini-navigate"
ROWS, EPISODE = 60, 20
Arrays = dict[str, np.ndarray]
Members = list[tuple[str, bytes]]  # name and content
T = TypeVar("T")


class Original(NamedTuple):
    """A valid file."""

    name: str
    content: bytes
    task: str | None
    arrays: Arrays  # as they are on the device

    @property
    def members(self) -> Members:
        with zipfile.ZipFile(io.BytesIO(self.content)) as archive:
            return [(name, archive.read(name)) for name in archive.namelist()]


# --- valid files ---


def reading(arrays: Arrays, task: str | None) -> Arrays:
    """Converts the arrays of a file to those of a dataset, in NumPy."""
    observations = arrays["observations"].astype(np.float32)
    rows, last = np.arange(len(observations)), np.flatnonzero(arrays["terminals"])
    goals = arrays["qpos"][:, :2] if task else arrays.get("goals", observations)
    limit = np.float32(ACTION_LIMIT)
    return {
        "observations": observations,
        "actions": np.clip(arrays["actions"].astype(np.float32), -limit, limit),
        "goals": goals.astype(np.float32),
        "ends": np.repeat(last, np.diff(last, prepend=-1)),
        "transitions": np.delete(rows, last),
        "identity": rows,
    }


def random_arrays(rng: Generator, task: bool) -> Arrays:
    qpos = rng.normal(size=(ROWS, 2)).astype(np.float32)
    arrays = {
        "observations": qpos if task else rng.normal(size=(ROWS, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (ROWS, 2)).astype(np.float32),
        "terminals": np.arange(ROWS) % EPISODE == EPISODE - 1,
    }
    return arrays | ({"qpos": qpos, "qvel": qpos} if task else {"goals": rng.normal(size=(ROWS, 2))})


def originals(folder: Path) -> list[Original]:
    """Returns files as NumPy, the package's collectors and other programs write them."""
    rng, path = np.random.default_rng(0), folder / "file.npz"
    own, maze = random_arrays(rng, task=False), random_arrays(rng, task=True)
    foreign = {key: np.asfortranarray(value.astype(value.dtype.newbyteorder(">"))) for key, value in own.items()}

    def written(write: Callable[..., None], arrays: Arrays) -> bytes:
        write(path, **arrays)
        return path.read_bytes()

    def collected(path: Path, **arrays: np.ndarray) -> None:
        parts = [folder / f"part-{start}.npz" for start in range(0, ROWS, EPISODE)]
        for number, part in enumerate(parts):
            rows = slice(EPISODE * number, EPISODE * (number + 1))
            np.savez(part, **{key: value[rows] for key, value in arrays.items()})  # pyright: ignore[reportArgumentType]
        join_npz(path, parts)

    return [
        Original("np.savez", written(np.savez, own), None, reading(own, None)),
        Original("np.savez_compressed", written(np.savez_compressed, maze), TASK, reading(maze, TASK)),
        Original("collected", written(collected, maze), TASK, reading(maze, TASK)),
        Original("big-endian, Fortran", written(np.savez, foreign), None, reading(own, None)),
        Original("zip64", with_zip64_end(written(np.savez, own)), None, reading(own, None)),
    ]


# --- zip archives and arrays, by their bytes ---

END, DIRECTORY, LOCAL = b"PK\5\6", b"PK\1\2", b"PK\3\4"
# The offset and `struct` format of the numbers in each record.
END_FIELDS = [*((at, "<H") for at in (4, 6, 8, 10, 20)), (12, "<I"), (16, "<I")]
DIRECTORY_FIELDS = [
    *((at, "<H") for at in (4, 6, 8, 10, 12, 14, 28, 30, 32, 34, 36)),
    *((at, "<I") for at in (16, 20, 24, 38, 42)),
]
LOCAL_FIELDS = [*((at, "<H") for at in (4, 6, 8, 10, 12, 26, 28)), *((at, "<I") for at in (14, 18, 22))]
METHOD, FLAGS = (10, "<H"), (8, "<H")  # in an entry of the directory
PACKINGS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]


def with_zip64_end(content: bytes) -> bytes:
    """Returns the same archive with a zip64 end record, as very large archives have."""
    at = content.rindex(END)
    entries, size, offset = struct.unpack_from("<HII", content, at + 10)
    end = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, entries, entries, size, offset)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
    return content[:at] + end + locator + struct.pack("<4s4H2IH", END, 0, 0, 65535, 65535, 2**32 - 1, 2**32 - 1, 0)


def records(content: bytes, signature: bytes) -> list[int]:
    """Returns the offsets of all records with this signature."""
    return [at for at in range(len(content)) if content.startswith(signature, at)]


def put(content: bytes, at: int, form: str, value: int) -> bytes:
    width = struct.calcsize(form)
    return content[:at] + struct.pack(form, value % 2 ** (8 * width)) + content[at + width :]


def archive_of(members: Members, method: int = zipfile.ZIP_STORED) -> bytes:
    """Returns a valid archive, with correct checksums, of these members."""
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", method) as archive:
        warnings.simplefilter("ignore", UserWarning)  # two members of a name
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


def npy_with(header: bytes, data: bytes, version: int = 1, claimed: int | None = None) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header) if claimed is None else claimed)
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + data


# --- mutations ---

Mutation = Callable[[Generator, Original, Original], bytes]
KINDS: dict[str, Mutation] = {}
VALID = " *"  # suffix of a kind whose mutants are valid files with other contents


def kind(name: str) -> Callable[[Mutation], Mutation]:
    def add(mutation: Mutation) -> Mutation:
        KINDS[name] = mutation
        return mutation

    return add


def pick(rng: Generator, options: Sequence[T]) -> T:
    return options[int(rng.integers(len(options)))]


def somewhere(rng: Generator, content: bytes) -> int:
    return int(rng.integers(len(content)))


def flipped(rng: Generator, content: bytes, most: int, first: int = 0) -> bytes:
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, most + 1))):
        changed[int(rng.integers(first, len(changed)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


@kind("bits flipped")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    return flipped(rng, it.content, 8)


@kind("bytes overwritten")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    at, length = somewhere(rng, it.content), int(rng.integers(1, 200))
    run = pick(rng, [rng.bytes(length), bytes(length), b"\xff" * length])
    return (it.content[:at] + run + it.content[at + length :])[: len(it.content)]


@kind("truncated")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    return it.content[: somewhere(rng, it.content)]


@kind("bytes inserted")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    at = pick(rng, [0, len(it.content), somewhere(rng, it.content)])
    return it.content[:at] + rng.bytes(int(rng.integers(1, 1000))) + it.content[at:]


@kind("bytes removed")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    at = somewhere(rng, it.content)
    return it.content[:at] + it.content[at + int(rng.integers(1, 300)) :]


@kind("blocks swapped")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    a, b, c, d = sorted(somewhere(rng, it.content) for _ in range(4))
    return it.content[:a] + it.content[c:d] + it.content[b:c] + it.content[a:b] + it.content[d:]


@kind("spliced with another")
def _(rng: Generator, it: Original, other: Original) -> bytes:
    heads = [len(it.content), it.content.index(DIRECTORY), somewhere(rng, it.content)]
    tails = [0, other.content.index(DIRECTORY), other.content.rindex(END), somewhere(rng, other.content)]
    return it.content[: pick(rng, heads)] + other.content[pick(rng, tails) :]


def change_field(rng: Generator, content: bytes, at: int, place: tuple[int, str]) -> bytes:
    """Changes one number of a record: slightly, to an extreme, or at random."""
    offset, form = place
    (now,) = struct.unpack_from(form, content, at + offset)
    top = 2 ** (8 * struct.calcsize(form))
    values = [now + 1, now - 1, now ^ 1 << int(rng.integers(8)), 0, top - 1, top // 2, int(rng.integers(top))]
    return put(content, at + offset, form, pick(rng, values))


@kind("end record changed")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    content = it.content
    for _ in range(int(rng.integers(1, 3))):
        content = change_field(rng, content, it.content.rindex(END), pick(rng, END_FIELDS))
    return content


@kind("directory changed")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    return change_field(rng, it.content, pick(rng, records(it.content, DIRECTORY)), pick(rng, DIRECTORY_FIELDS))


@kind("local header changed")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    return change_field(rng, it.content, pick(rng, records(it.content, LOCAL)), pick(rng, LOCAL_FIELDS))


@kind("method or encryption")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    methods, flags = [0, 1, 6, 8, 9, 12, 14, 93, 95, 99], [1, 1 << 5, 1 << 6, 1 << 11, 1 << 13]
    (offset, form), values = pick(rng, [(METHOD, methods), (FLAGS, flags)])
    return put(it.content, pick(rng, records(it.content, DIRECTORY)) + offset, form, pick(rng, values))


@kind("sizes claimed")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    """Changes the uncompressed size of an array, or both sizes, in the directory and in the local header."""
    number = int(rng.integers(len(it.members)))
    size = pick(rng, [0, 1, 127, 10**4, MAX_UNPACKED_BYTES, 2**30, 2**31 - 1, 2**32 - 2, int(rng.integers(2**32))])
    directory, local = records(it.content, DIRECTORY)[number], records(it.content, LOCAL)[number]
    content = put(put(it.content, directory + 24, "<I", size), local + 22, "<I", size)
    return put(put(content, directory + 20, "<I", size), local + 18, "<I", size) if rng.random() < 0.5 else content


@kind("renamed in one place")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    """Changes a name in the directory or in the local header only."""
    name = pick(rng, it.members)[0].encode()
    at = pick(rng, records(it.content, name)) + int(rng.integers(len(name)))
    return put(it.content, at, "B", it.content[at] ^ int(rng.integers(1, 32)))


@kind("an array twice")
def _(rng: Generator, it: Original, other: Original) -> bytes:
    members = it.members
    name, content = pick(rng, members)
    members.insert(int(rng.integers(len(members) + 1)), (name, dict(other.members).get(name, content)))
    return archive_of(members)


@kind("packed otherwise")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    return archive_of(it.members, pick(rng, [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, *PACKINGS]))


def with_member(rng: Generator, it: Original, change: Callable[[str, bytes], Members]) -> bytes:
    """Returns a valid archive with one member replaced by `change(name, content)`."""
    members = it.members
    number = int(rng.integers(len(members)))
    return archive_of([*members[:number], *change(*members[number]), *members[number + 1 :]], pick(rng, PACKINGS))


def with_array(rng: Generator, it: Original, change: Callable[[np.ndarray], bytes]) -> bytes:
    """Returns a valid archive with one array replaced by `change(array)`."""

    def change_member(name: str, content: bytes) -> Members:
        return [(name, change(np.lib.format.read_array(io.BytesIO(content))))]

    return with_member(rng, it, change_member)


@kind("renamed" + VALID)
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    def change(name: str, content: bytes) -> Members:
        stem = name.removesuffix(".npy")
        new = [f"{stem}s.npy", f"my_{name}", stem, f"../{name}", f"{name}.npy", name.upper(), "goals.npy", "qpos.npy"]
        return [(pick(rng, new), content)]

    return with_member(rng, it, change)


@kind("an array left out" + VALID)
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    return with_member(rng, it, lambda _name, _content: [])


@kind("something put in" + VALID)
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    extra = [("README", b"text"), ("a.npy", b"text"), ("b.npy", npy(np.ones(3))), ("c/", b""), ("d.npy", npy_objects())]
    return with_member(rng, it, lambda name, content: [(name, content), pick(rng, extra)])


@kind("data changed" + VALID)
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    return with_member(rng, it, lambda name, content: [(name, flipped(rng, content, 4, first=128))])


@kind("header text changed" + VALID)
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    """Changes bytes of an array's header, including its length."""

    def change(name: str, content: bytes) -> Members:
        for _ in range(int(rng.integers(1, 4))):
            byte = int(rng.integers(32, 127)) if rng.random() < 0.8 else int(rng.integers(256))
            content = put(content, int(rng.integers(72)), "B", byte)
        return [(name, content)]

    return with_member(rng, it, change)


TYPES: list[Any] = [
    *("<f4", "<i4", "<u4", "<f8", "<f2", "|b1", "|i1", ">f4", "<c8", "<M8[s]", "<U1", "|S4", "|V4", "|O", "O", "|S0"),
    *("<f1", "<f4,<f4", "(2,)f4", [("a", "<f4")], ("<f4", (2,)), 4, None),
]
SHAPES: list[Any] = [(10**12, 2), (2**63, 2**63), (), (0,), (ROWS, 2, 0), (True, ROWS), (ROWS, 2.0), "9", None]


@kind("another shape or type" + VALID)
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    def change(array: np.ndarray) -> bytes:
        shape, size = array.shape, array.size
        others = [
            *SHAPES,
            shape[::-1],
            (size,),
            (size // 2, 2),
            (*shape, 1),
            tuple(-n for n in shape),
            (len(array), -1),
        ]
        header = {
            "descr": pick(rng, [*[array.dtype.str] * len(TYPES), *TYPES]),
            "fortran_order": pick(rng, [*[False] * 4, True, True, 0, "False"]),
            "shape": pick(rng, [*[shape] * len(others), *others]),
        }
        return npy_with(repr(header).encode() + b"\n", array.tobytes(), int(rng.integers(1, 4)))

    return with_array(rng, it, change)


LITERALS = [
    *(
        b"(" * 9000,
        b"-" * 9000 + b"1",
        b"[" * 90 + b"]" * 90,
        b"9" * 9000,
        b"{" * 50,
        b"1" + b"+1j" * 3000,
        b"'a'" * 3000,
    ),
    *(b"\0" * 100, b"\xff" * 100, b"{}", b"[]", b"", b"x" * 60000, b"__import__('os').system('true')"),
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (0x" + b"f" * 5000 + b",)}",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1," * 3000 + b")}",
]


@kind("hostile header")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    literal = pick(rng, LITERALS)
    claimed, version = pick(
        rng, [(len(literal), 1), (len(literal), 2), (len(literal), 3), (2**16 - 1, 1), (2**32 - 1, 2)]
    )
    return with_array(rng, it, lambda array: npy_with(literal, array.tobytes(), version, claimed))


class Payload:
    """Creates a file when it is unpickled."""

    mark = Path(tempfile.gettempdir(), "gtrl-mutations-unpickled")

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def npy_objects() -> bytes:
    header = {"descr": "|O", "fortran_order": False, "shape": (1,)}
    return npy_with(repr(header).encode() + b"\n", pickle.dumps(np.array([Payload()], object)))


@kind("objects")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    return with_array(rng, it, lambda _: pick(rng, [npy_objects(), pickle.dumps(Payload())]))


@kind("values not allowed")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    """Inserts NaN, infinity, or a number that overflows float32."""

    def change(array: np.ndarray) -> bytes:
        wide = array.astype(np.float64)
        wide[int(rng.integers(len(wide)))] = pick(rng, [np.nan, np.inf, -np.inf, 1e300, -4e38])
        return npy(wide)

    return with_array(rng, it, change)


@kind("types not allowed")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    types = ["c8", "c16", "U8", "S8", "M8[s]", "m8[ms]"]
    return with_array(rng, it, lambda array: npy(array.astype(np.int64).astype(pick(rng, types))))


@cache
def bomb(megabytes: int, claimed: int) -> bytes:
    """Returns an archive of one array that claims a size in bytes and unpacks to this many megabytes of zeros."""
    header = {"descr": "|i1", "fortran_order": False, "shape": (claimed - 128, 1)}
    pieces = [npy_with(repr(header).encode().ljust(117) + b"\n", b""), *[bytes(2**20)] * megabytes]
    packer, checksum = zlib.compressobj(1, zlib.DEFLATED, -15), 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    packed, name = b"".join([*map(packer.compress, pieces), packer.flush()]), b"observations.npy"
    common = struct.pack("<5H3I2H", 20, 0, 8, 0, 33, checksum, len(packed), claimed, len(name), 0)
    local = LOCAL + common + name + packed
    entry = DIRECTORY + struct.pack("<H", 20) + common + bytes(14) + name
    return local + entry + struct.pack("<4s4H2IH", END, 0, 0, 1, 1, len(entry), len(local), 0)


@kind("bomb")
def _(rng: Generator, _it: Original, _other: Original) -> bytes:
    """A decompression bomb whose declared size is correct, too small or too large."""
    megabytes = pick(rng, [33, 100, 256, 1000])
    return bomb(megabytes, pick(rng, [128 + megabytes * 2**20, 2**32 - 1, 128, 2**20, MAX_UNPACKED_BYTES]))


@kind("crowded directory")
def _(rng: Generator, it: Original, _other: Original) -> bytes:
    """Adds many directory entries, or a few very long ones."""
    at, extra = it.content.index(DIRECTORY), struct.pack("<HH", 9, 0) * 16000
    short, long = DIRECTORY + bytes(42), DIRECTORY + bytes(26) + struct.pack("<H", len(extra)) + bytes(14) + extra
    directory = pick(rng, [short * 2, short * 5000, short * 10**5, long, long * 4, long * 100])
    return it.content[:at] + directory + struct.pack("<4s4H2IH", END, 0, 0, 9, 9, len(directory), at, 0)


@cache
def narrow(rows: int) -> bytes:
    numbers, terminals = np.zeros((rows, 1), np.int8), np.arange(rows) == rows - 1
    arrays = {"observations": numbers, "actions": numbers, "terminals": terminals, "qpos": numbers}
    return archive_of([(f"{key}.npy", npy(array)) for key, array in arrays.items()], zipfile.ZIP_DEFLATED)


@kind("just small enough" + VALID)
def _(rng: Generator, _it: Original, _other: Original) -> bytes:
    """8-bit numbers, which take several times their size on the device, just below or above the size limit."""
    return narrow(MAX_UNPACKED_BYTES // 4 + pick(rng, [-200, 200]))


# --- loading ---


def memory_bytes(field: str) -> int:
    """The memory of this process in bytes: now (VmRSS), or the peak since the last reset (VmHWM)."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return 1024 * int(line.split()[1])


def same(found: Arrays, expected: Arrays | None) -> bool:
    return expected is not None and all(np.array_equal(found[key], expected[key]) for key in expected)


def numpy_reading(content: bytes, task: str | None) -> Arrays | None:
    """The dataset that NumPy reads from a mutant; None if it cannot read it."""
    try:
        with np.load(io.BytesIO(content)) as file:
            wanted = ("observations", "actions", "terminals", "qpos", "goals")
            return reading({key: file[key] for key in wanted if key in file}, task)
    except Exception:
        return None


@dataclass
class Tally:
    """The outcomes of the mutants of one kind, and the maximum time and memory."""

    outcomes: dict[str, int] = field(
        default_factory=lambda: {"read the same": 0, "read as NumPy does": 0, "rejected": 0}
    )
    seconds: float = 0.0
    memory: int = 0

    def row(self) -> list[Any]:
        counts = self.outcomes.values()
        return [sum(counts), *counts, f"{self.seconds:.2f}", f"{self.memory / 2**20:.0f}"]


def judge(path: Path, name: str, it: Original, other: Original, tally: Tally) -> str:
    """Loads a mutant and counts its outcome; returns a description of the failure, or an empty string."""
    found: Arrays = {}
    ctypes.CDLL(None).malloc_trim(0)  # free memory of earlier mutants would hide that of this one
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before, start_time = memory_bytes("VmRSS"), time.perf_counter()
    try:
        found = {key: np.asarray(value) for key, value in load_dataset(path, it.task).train._asdict().items()}
        outcome = "read as something else"
    except GtrlError as error:
        outcome = "rejected" if str(error).endswith(".") and "\n" not in str(error) else f"rejected with '{error}'"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    seconds, memory = time.perf_counter() - start_time, memory_bytes("VmHWM") - before
    tally.seconds, tally.memory = max(tally.seconds, seconds), max(tally.memory, memory)
    if found and (same(found, it.arrays) or (name.startswith("spliced") and same(found, other.arrays))):
        outcome = "read the same"
    elif found and name.endswith(VALID) and same(found, numpy_reading(path.read_bytes(), it.task)):
        outcome = "read as NumPy does"
    if outcome not in tally.outcomes:
        return outcome
    tally.outcomes[outcome] += 1
    return f"took {seconds:.1f} s and {memory / 2**20:.0f} MiB" if seconds > MAX_SECONDS or memory > MAX_BYTES else ""


def show(tallies: dict[str, Tally], title: str) -> None:
    total = Tally(
        {key: sum(tally.outcomes[key] for tally in tallies.values()) for key in Tally().outcomes},
        max(tally.seconds for tally in tallies.values()),
        max(tally.memory for tally in tallies.values()),
    )
    rows = [[name, *tally.row()] for name, tally in (tallies | {"all": total}).items()]
    columns = ["kind", "count", *total.outcomes, "max seconds", "max memory, MiB"]
    console.print_table(console.table(title, columns, rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the mutants that fail")
    args = parser.parse_args()
    Payload.mark.unlink(missing_ok=True)
    failures, tallies = [], {name: Tally() for name in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        path, good = Path(folder, "mutant.npz"), originals(Path(folder))
        for it in good:  # also initialises JAX, whose memory must not be counted below
            path.write_bytes(it.content)
            if judge(path, "", it, it, tally := Tally()) or tally.outcomes["read the same"] != 1:
                failures.append(f"the valid file '{it.name}' is not read")
        for number in range(args.count):
            name, mutation = list(KINDS.items())[number % len(KINDS)]
            rng = np.random.default_rng([args.seed, number])
            it, other = (good[i] for i in rng.choice(len(good), 2, replace=False))
            path.write_bytes(mutation(rng, it, other))
            failure = judge(path, name, it, other, tallies[name])
            if failure:
                failures.append(f"mutant {number} of '{it.name}' ({name}): {failure}")
            if failure and args.keep:
                args.keep.mkdir(parents=True, exist_ok=True)
                (args.keep / f"{number}.npz").write_bytes(path.read_bytes())
    if Payload.mark.exists():
        failures.append("something was unpickled")
    show(tallies, f"{args.count} mutants of {len(good)} valid files; memory in addition to that before each")
    print("\n".join([f"{len(failures)} failures", *failures]) if failures else "no failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""Damaged or malicious files are rejected with a one-line error, in bounded time and memory."""

import io
import json
import os
import pickle
import re
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_data import MINI, arrays_of, is_one_sentence

from gtrl.cli import main
from gtrl.data.checks import check_arrays, check_file
from gtrl.data.collect.expert import Expert
from gtrl.data.load import load_dataset
from gtrl.errors import DataError, GtrlError, RunError
from gtrl.io import mlp, mlp_file, npz
from gtrl.io.npz import join_npz, read_npz, shapes_in
from gtrl.runs.policy import load_policy, save_policy
from gtrl.tasks import TASKS

Write = Callable[..., Path]
Damage = Callable[[Path], object]
DIRECTORY, END = b"PK\1\2", b"PK\5\6"
MEGABYTE = 2**20


# --- making bad files ---


def rewrite(path: Path, change: Callable[[dict[str, bytes]], list[tuple[str, bytes]]], method: int = 0) -> None:
    """Replaces the members; the archive stays complete and its checksums right."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", method) as archive:
        warnings.simplefilter("ignore", UserWarning)  # two members with one name
        for name, content in change(members):
            archive.writestr(name, content)


def with_members(*added: tuple[str, bytes], method: int = 0) -> Damage:
    """Replaces members of the same name, or appends new ones."""
    names = {name for name, _ in added}
    kept = lambda members: [each for each in members.items() if each[0] not in names]  # noqa: E731
    return lambda path: rewrite(path, lambda members: [*kept(members), *added], method)


def with_bytes(find: bytes, put: Callable[[int, bytes], bytes], last: bool = False) -> Damage:
    """Changes the content at the first or last occurrence of some bytes."""

    def damage(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(put(content.rindex(find) if last else content.index(find), content))

    return damage


def field(signature: bytes, offset: int, form: str, value: int, last: bool = False) -> Damage:
    """Changes one number in a record of the archive."""
    packed = struct.pack(form, value)
    put = lambda at, old: old[: at + offset] + packed + old[at + offset + len(packed) :]  # noqa: E731
    return with_bytes(signature, put, last)


def npy(header: dict[str, Any] | bytes, data: bytes = bytes(72), claimed: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else repr(header).encode()
    return b"\x93NUMPY\2\0" + struct.pack("<I", len(text) if claimed is None else claimed) + text + data


def claiming(descr: Any = "<f4", shape: Any = (9, 2), data: bytes = bytes(72), order: Any = False) -> Damage:
    """Observations with this header."""
    header = {"descr": descr, "fortran_order": order, "shape": shape}
    return with_members(("observations.npy", npy(header, data)))


def literal(text: bytes, claimed: int | None = None) -> Damage:
    return with_members(("observations.npy", npy(text, claimed=claimed)))


def bomb(megabytes: int, claimed: int | None = None) -> Damage:
    """Observations of so many megabytes of compressed zeros; the header may declare fewer bytes."""

    def damage(path: Path) -> None:
        content = npy({"descr": "|i1", "fortran_order": False, "shape": (megabytes * MEGABYTE, 1)}, b"")
        with_members(("observations.npy", content + bytes(megabytes * MEGABYTE)), method=zipfile.ZIP_DEFLATED)(path)
        if claimed is not None:
            field(DIRECTORY, 24, "<I", claimed, last=True)(path)

    return damage


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def crowded(path: Path) -> None:
    """A directory of a hundred thousand entries."""
    content, directory = path.read_bytes(), (DIRECTORY + bytes(42)) * 10**5
    at = content.index(DIRECTORY)
    path.write_bytes(content[:at] + directory + struct.pack("<4s4H2IH", END, 0, 0, 9, 9, len(directory), at, 0))


def short(path: Path) -> None:
    """Fewer bytes than declared, with a matching checksum."""
    content = npy({"descr": "|i1", "fortran_order": False, "shape": (9, 2)}, b"\1")
    with_members(("observations.npy", content), method=zipfile.ZIP_DEFLATED)(path)
    field(DIRECTORY, 24, "<I", len(content) + 17, last=True)(path)


def twice(path: Path) -> None:
    rewrite(path, lambda members: [*members.items(), ("actions.npy", members["actions.npy"])])


def swallowed(path: Path) -> None:
    """The last entry of the directory becomes the comment of the one before it."""
    content = path.read_bytes()
    last = content.rindex(DIRECTORY)
    before = content.rindex(DIRECTORY, 0, last)
    length = struct.pack("<H", content.rindex(END) - last)
    path.write_bytes(content[: before + 32] + length + content[before + 34 :])


# --- rejected files ---

DEEP = b"(" * 150 + b")" * 150
UNREADABLE: dict[str, tuple[Damage, str]] = {
    "not a zip": (lambda path: path.write_text("a,b\n1,2"), "it may be truncated, or it is not a zip archive"),
    "a bare npy array": (lambda path: path.write_bytes(npy({})), "or it is not a zip archive"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-30]), "it may be truncated"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "it is a folder or a device"),
    "a pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "it is a folder or a device"),
    "bomb": (bomb(40), r"it is [\d,]+ bytes long and claims to unpack to 41,94.*save it without compression"),
    "bomb in disguise": (bomb(40, claimed=10**6), "'observations' claims the shape .41943040, 1. .* but has 999,9"),
    "huge claimed size": (field(DIRECTORY, 24, "<I", 2**32 - 2), "claims to unpack to 4,29"),
    "huge claimed shape": (claiming(shape=(10**12, 2)), "the shape .1000000000000, 2. with 4 .* but has 72 bytes"),
    "endless claimed shape": (claiming(shape=(10**500,)), "its array 'observations' claims the shape .1000"),
    "overflowing shape": (claiming(shape=(2**62, 4, 2)), "claims the shape"),
    "nothing of very much": (claiming(shape=(2**62, 2**62, 0), data=b""), "its array 'observations' is damaged"),
    "too small a shape": (claiming(shape=(9, 1)), r"claims the shape \(9, 1\) with 4 .* but has 72 bytes"),
    "negative shape": (claiming(shape=(-9, 2)), r"claims the shape \(-9, 2\), which is negative"),
    "two negatives": (claiming(shape=(-9, -2)), r"claims the shape \(-9, -2\), which is negative"),
    "shape of truths": (claiming(shape=(9, True), data=bytes(36)), "has an invalid header"),
    "shape of fractions": (claiming(shape=(9, 2.0)), "has an invalid header"),
    "order of text": (claiming(order="no"), "has an invalid header"),
    "objects": (claiming("|O", (9,)), "'observations' holds Python objects, which are never unpickled"),
    "objects in fields": (claiming("O,f4", (9,)), "'observations' holds Python objects, which are never unpickled"),
    "structures": (claiming([("x", "<f4"), ("y", "<f4")], (9,)), "holds structures or raw bytes, not numbers or text"),
    "arrays of arrays": (claiming("(2,)f4", (9,)), "holds structures or raw bytes, not numbers or text"),
    "void": (claiming("|V8", (9,)), "holds structures or raw bytes, not numbers or text"),
    "text of no length": (claiming("<U0", (10**12,), b""), "holds structures or raw bytes, not numbers or text"),
    "unknown type": (claiming("<f3"), "its array 'observations' is damaged"),
    "neither true nor false": (claiming("|b1", data=b"\2" * 18), "is Boolean but holds bytes other than 0 and 1"),
    "deep header": (literal(DEEP), "'observations' has an invalid header"),
    "too deep a header": (literal(b"-" * 9000 + b"1"), "'observations' has an invalid header"),
    "header without keys": (literal(b"{}"), "'observations' has an invalid header"),
    "long header": (literal(b" " * 10**5), "'observations' has a header of 100,000 bytes"),
    "endless header": (literal(b"{}", claimed=2**32 - 1), "'observations' has a header of 4,294,967,295 bytes"),
    "not an array": (with_members(("observations.npy", b"1, 2")), "'observations' is damaged"),
    "something else": (with_members(("README", b"text")), "it holds 'README', which is not an array"),
    "an array twice": (twice, "its array 'actions' occurs twice"),
    "renamed in the directory": (
        with_bytes(b"qpos.npy", lambda at, old: old[:at] + b"Q" + old[at + 1 :], last=True), "'Qpos' is not at its"),
    "renamed in its place": (
        with_bytes(b"qpos.npy", lambda at, old: old[:at] + b"Q" + old[at + 1 :]), "'qpos' is not at its place"),
    "an array hidden": (swallowed, "the list of its arrays does not match its content"),
    "something before": (lambda path: path.write_bytes(bytes(40) + path.read_bytes()), "the list of its arrays does"),
    "two files in one": (lambda path: path.write_bytes(2 * path.read_bytes()), "the list of its arrays does not match"),
    "arrays that overlap": (field(DIRECTORY, 20, "<I", 500), "the list of its arrays does not match its content"),
    "nothing where it points": (field(END, 16, "<I", 5000), "'observations' is not at its place in the archive"),
    "encrypted": (field(DIRECTORY, 8, "<H", 1), "'observations' is encrypted or uses a compression"),
    "another packing": (with_members(method=zipfile.ZIP_LZMA), "'observations' is encrypted or uses a compression"),
    "wrong checksum": (field(DIRECTORY, 16, "<I", 5), "its array 'observations' is damaged"),
    "wrong data": (with_bytes(b"\x93NUMPY", lambda at, old: old[: at + 150] + b"?" + old[at + 151 :]), "is damaged"),
    "too few data": (short, "its array 'observations' is damaged"),
    "crowded directory": (crowded, "the list of its arrays claims to be 4,600,000 bytes long"),
    "endless directory": (field(END, 12, "<I", 2**32 - 2), "it may be truncated"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_bad_files_are_rejected_with_a_one_line_error(damage: Damage, message: str, write_file: Write) -> None:
    path = write_file()
    damage(path)
    with pytest.raises(DataError, match=message) as caught:
        check_file(path)
    assert str(caught.value).startswith(f"{path} is not a readable npz file; ")
    assert is_one_sentence(str(caught.value)), caught.value
    if not path.is_dir():  # which is a dataset of shards
        with pytest.raises(DataError, match=message):
            load_dataset(path, MINI)


WIDE = np.full((9, 2), 0.5)
# changes to a valid file: the error message
UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "complex": ({"observations": WIDE + 1j}, "'observations' holds complex numbers, not real numbers"),
    "text": ({"actions": WIDE.astype("U3")}, "'actions' holds text, not real numbers"),
    "bytes": ({"actions": WIDE.astype("S3")}, "'actions' holds text, not real numbers"),
    "dates": ({"qpos": np.zeros((9, 2), "M8[s]")}, "'qpos' holds dates, not real numbers"),
    "durations": ({"qvel": np.zeros((9, 2), "m8[s]")}, "'qvel' holds durations, not real numbers"),
    "dates for terminals": ({"terminals": np.zeros(9, "M8[s]")}, "'terminals' holds dates, not real numbers"),
    "text for terminals": ({"terminals": np.full(9, "no")}, "'terminals' holds text, not real numbers"),
    "NaN": ({"observations": np.where(WIDE.cumsum(0) == 2, np.nan, WIDE)}, "holds NaN or infinity in 1 rows, .* row 3"),
    "too large": ({"observations": WIDE * [[1e39, 1]]}, "holds numbers too large for float32 in 9 rows, .* row 0"),
    "too large below": ({"qvel": WIDE * -1e300}, "'qvel' holds numbers too large for float32 in 9 rows"),
    "terminals of 2": ({"terminals": np.arange(9) % 3}, "'terminals' holds values other than 0 and 1 in 3 rows"),
    "terminals of a half": ({"terminals": np.full(9, 0.5)}, "'terminals' holds values other than 0 and 1 in 9 rows"),
    "terminals below": ({"terminals": np.isin(np.arange(9), [3, 8]) * -1}, "values other than 0 and 1 in 2 rows"),
    "terminals of NaN": ({"terminals": np.full(9, np.nan)}, "'terminals' holds NaN or infinity in 9 rows"),
    "smallest int8": ({"actions": np.full((9, 2), -128, np.int8)}, "'actions' have absolute values up to 128, outside"),
    "largest uint8": ({"actions": np.full((9, 2), 255, np.uint8)}, "'actions' have absolute values up to 255, outside"),
    "a number": ({"observations": np.float32(3)}, "its arrays differ in length"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), UNFIT.values(), ids=UNFIT)
def test_data_that_cannot_be_trained_on_is_rejected(
    changes: dict[str, Any], message: str, write_file: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_file(**changes)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(path, MINI)
    assert is_one_sentence(str(caught.value)), caught.value
    assert main(["data", "check", str(path), "--task", MINI]) == 2  # reports all problems without an exception
    assert "problem " in capsys.readouterr().out


def test_largest_accepted_values(write_file: Write) -> None:
    """The largest values that fit float32, and every type of boolean."""
    largest = float(np.finfo(np.float32).max)
    rounded = largest * (1 + 2**-26)  # nearer to the largest than to the next power of two
    for terminals in (np.int8, np.float64, np.uint64, bool):
        path = write_file(observations=WIDE * 2 * rounded, terminals=np.isin(np.arange(9), [3, 8]).astype(terminals))
        np.testing.assert_array_equal(load_dataset(path, MINI).train.observations, np.full((9, 2), np.float32(largest)))


def test_goals_beyond_float32_are_rejected() -> None:
    """A cube's position is multiplied by ten to form the goal."""
    task = TASKS["cube-single-play"]
    qpos = np.full((4, 21), 1.0, np.float32)
    arrays = {
        "observations": np.zeros((4, task.observation_dim)), "actions": np.zeros((4, task.action_dim)),
        "terminals": np.arange(4) == 3, "qpos": qpos,
    }  # fmt: skip
    assert check_arrays(arrays, task) == []
    qpos[2, 14] = 1e38
    assert check_arrays(arrays, task) == ["'qpos' holds numbers too large for goals in 1 rows, first in row 2"]
    qpos[2, 14] = np.inf
    assert check_arrays(arrays, task) == ["'qpos' holds NaN or infinity in 1 rows, first in row 2"]


def test_unreadable_file_is_reported(write_file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_file()

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(npz, "_open", refuse)
    with pytest.raises(DataError, match=rf"^{path} cannot be read: Permission denied\.$"):
        load_dataset(path)


@pytest.mark.parametrize(
    "names", [("observations",), ("actions",), ("terminals",), ("observations", "actions", "terminals")]
)
def test_later_shards_are_checked(names: tuple[str, ...], write_file: Write, tmp_path: Path) -> None:
    rows = np.load(write_file("a.npz"))
    write_file("b.npz", **{name: rows[name][0] for name in names})
    with pytest.raises(DataError, match=r"b\.npz: its dimensions differ from those of a\.npz\.$"):
        load_dataset(tmp_path)


def test_mismatched_files_are_rejected(write_file: Write, tmp_path: Path) -> None:
    first = write_file("a.npz")
    for changes in ({"qpos": None}, {"qpos": np.zeros((9, 3))}, {"qpos": np.zeros((8, 2), "f4")}, {"qpos": WIDE}):
        other = write_file("b.npz", **changes)
        with pytest.raises(DataError, match=rf"^{other} cannot be joined to {first}: their arrays differ\.$"):
            join_npz(tmp_path / "joined.npz", [first, other])
    claiming("|O", (9,))(first)
    with pytest.raises(DataError, match="never unpickled"):
        join_npz(tmp_path / "joined.npz", [first, first])
    assert not (tmp_path / "joined.npz").exists()


# --- nothing is unpickled ---


def test_objects_are_never_unpickled(write_file: Write, tmp_path: Path) -> None:
    mark = tmp_path / "unpickled"
    header = {"descr": "|O", "fortran_order": False, "shape": (1,)}
    hostile = npy(header, pickle.dumps(np.array([Payload(mark)], object)))
    np.load(io.BytesIO(hostile), allow_pickle=True)
    assert mark.exists()  # unpickling would create the file
    mark.unlink()
    data, policy, expert = write_file(), tmp_path / "policy.npz", tmp_path / "expert.npz"
    save_policy(policy, mlp_file.MLP(LAYERS), HEADER)
    mlp_file.write(expert, *mlp_file.MLP([mlp.Layer(np.ones((29, 8)), np.ones(8))]).export())
    for path, name, read in ((data, "qpos", load_dataset), (policy, "weight0", load_policy), (expert, "bias0", Expert)):
        whole = path.read_bytes()
        for content, message in ((hostile, "never unpickled"), (pickle.dumps(Payload(mark)), "is damaged")):
            path.write_bytes(whole)
            with_members((f"{name}.npy", content))(path)
            with pytest.raises(GtrlError, match=message):
                read(path)
        path.write_bytes(pickle.dumps(Payload(mark)))
        with pytest.raises(GtrlError, match="not a zip archive"):
            read(path)
    assert not mark.exists()


# --- time and memory ---


@pytest.mark.parametrize(
    "damage",
    [
        bomb(200), bomb(200, claimed=2 * MEGABYTE), claiming(shape=(2**40,)), field(DIRECTORY, 24, "<I", 2**32 - 2),
        literal(b"{}", claimed=2**32 - 1), crowded, field(END, 12, "<I", 2**32 - 2), claiming("<U0", (10**12,), b""),
    ],
    ids=["bomb", "bomb in disguise", "shape", "size", "header", "crowded directory", "directory", "empty text"],
)  # fmt: skip
def test_rejecting_a_file_needs_little_memory(damage: Damage, write_file: Write) -> None:
    path = write_file()
    damage(path)
    tracemalloc.start()
    with pytest.raises(DataError):
        read_npz(path, DataError)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MEGABYTE


def test_decompression_stops_at_the_declared_size(tmp_path: Path) -> None:
    """Two megabytes are declared and two hundred follow: the rest is never decompressed."""
    path, content = tmp_path / "a.npz", npy({"descr": "|i1", "fortran_order": False, "shape": (2 * MEGABYTE, 1)}, b"")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("observations.npy", content + bytes(200 * MEGABYTE))
    field(DIRECTORY, 24, "<I", len(content) + 2 * MEGABYTE)(path)
    field(DIRECTORY, 16, "<I", zlib.crc32(content + bytes(2 * MEGABYTE)))(path)
    tracemalloc.start()
    array = read_npz(path, DataError)["observations"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert array.shape == (2 * MEGABYTE, 1)
    assert peak < 4 * MEGABYTE


def test_arrays_larger_than_memory_are_rejected(write_file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_file()
    needed = sum(info.file_size for info in zipfile.ZipFile(path).infolist())
    monkeypatch.setattr(npz, "_memory_bytes", lambda: needed)
    read_npz(path, DataError)
    monkeypatch.setattr(npz, "_memory_bytes", lambda: needed - 1)
    with pytest.raises(DataError, match=r"its arrays are 0\.0 GiB, more than the memory of this machine\.$"):
        read_npz(path, DataError)
    assert set(read_npz(path, DataError, ("qpos",))) == {"qpos"}  # only arrays that are read count


def test_memory_error_is_reported(write_file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    path = write_file()
    monkeypatch.setattr(np, "empty", fail)
    with pytest.raises(DataError, match=rf"^{path} is too large for the available memory\.$"):
        read_npz(path, DataError)


def test_small_highly_compressed_data_is_read(write_file: Write) -> None:
    rows = npz.MAX_UNPACKED_BYTES // 64
    path = write_file()
    arrays = {"observations": np.zeros((rows, 8)), "terminals": np.zeros(rows, bool)}
    np.savez_compressed(path, allow_pickle=False, **arrays)
    assert sum(array.nbytes for array in arrays.values()) > npz.MAX_UNPACKED_BYTES
    with pytest.raises(DataError, match="claims to unpack to"):
        read_npz(path, DataError)
    np.savez(path, allow_pickle=False, **arrays)  # as the message suggests
    np.testing.assert_array_equal(read_npz(path, DataError)["observations"], arrays["observations"])
    np.savez_compressed(path, observations=arrays["observations"][: rows // 2])
    assert read_npz(path, DataError)["observations"].shape == (rows // 2, 8)


# --- accepted files ---

GOOD: dict[str, Any] = {
    "float32": np.arange(18, dtype=np.float32).reshape(9, 2),
    "Fortran": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "big-endian": np.arange(5, dtype=">f8"),
    "big-endian text": np.array(["left", "right"]).astype(">U5"),
    "text": np.array('{"format": 1}'),
    "truth": np.bool_(True),
    "no rows": np.zeros((0, 3), np.int16),
    "no columns": np.zeros((4, 0)),
    "many pieces": np.random.default_rng(0).normal(size=(70_000, 3)),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "half": np.array([1, 2], np.float16),
    "a name with [0].dots": np.arange(3),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_valid_arrays_are_read_as_by_numpy(save: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save(path, **GOOD)
    found, shapes = read_npz(path, DataError), shapes_in(path, DataError)
    assert list(found) == list(GOOD)
    with np.load(path) as expected:
        for name, array in found.items():
            np.testing.assert_array_equal(array, expected[name])
            assert array.dtype == expected[name].dtype.newbyteorder("=")
            assert array.dtype.isnative
            assert shapes[name] == array.shape == expected[name].shape


def test_later_npy_header_versions(tmp_path: Path) -> None:
    array, path = np.arange(6.0).reshape(2, 3), tmp_path / "a.npz"
    for version in ((1, 0), (2, 0), (3, 0)):
        file = io.BytesIO()
        np.lib.format.write_array(file, array, version)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", file.getvalue())
        np.testing.assert_array_equal(read_npz(path, DataError)["a"], array)


def test_a_streamed_archive_is_read(write_file: Write) -> None:
    """Written to a pipe, an archive has each array's sizes behind it."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

    path, pipe = write_file(), Pipe()
    expected = read_npz(path, DataError)
    np.savez(pipe, allow_pickle=False, **expected)
    assert b"PK\7\x08" in pipe.getvalue()
    path.write_bytes(pipe.getvalue())
    for name, array in read_npz(path, DataError).items():
        np.testing.assert_array_equal(array, expected[name])


def test_unused_arrays_may_hold_anything(write_file: Write) -> None:
    """A file may hold objects in addition to its data; they are not read."""
    path = write_file(notes=np.array([{"by": "me"}], object))
    np.testing.assert_array_equal(load_dataset(path, MINI).train.goals, np.load(path)["qpos"])


@pytest.mark.parametrize("count", [200, pytest.param(20_000, marks=pytest.mark.soak)])
def test_mutated_files_are_read_unchanged_or_rejected(count: int, write_file: Write) -> None:
    """Random mutations; benchmarks/mutations.py has more kinds."""
    path = write_file(goals=np.arange(18.0).reshape(9, 2))
    whole, expected = path.read_bytes(), arrays_of(load_dataset(path))
    errors = []
    for seed in range(count):
        rng, content = np.random.default_rng(seed), bytearray(whole)
        start = int(rng.integers(len(whole)))
        stop = start + int(rng.integers(1, 40))
        match seed % 5:
            case 0:
                content[start] ^= 1 << int(rng.integers(8))
            case 1:
                content[start:stop] = rng.bytes(stop - start)
            case 2:
                del content[start:stop]
            case 3:
                content[start:start] = whole[:stop]
            case 4:
                at = whole.index(DIRECTORY) + int(rng.integers(len(whole) - whole.index(DIRECTORY)))
                content[at] = int(rng.choice([0, 1, 127, 255]))
        path.write_bytes(content)
        try:
            found = arrays_of(load_dataset(path))
        except GtrlError as error:
            errors.append(str(error))
            continue
        for key, array in found.items():
            np.testing.assert_array_equal(array, expected[key], err_msg=f"{seed} {key}")
    assert 0.5 < len(errors) / count < 0.95
    without_names = [re.sub("'.*'", "''", error) for error in errors]  # a mutated name may contain a full stop
    assert all(map(is_one_sentence, without_names)), errors


# --- policies ---

LAYERS = [mlp.Layer(*map(np.ones, [(4, 8), 8, 8, 8])), mlp.Layer(np.ones((8, 2)), np.ones(2))]
FLOW = [mlp.Layer(*map(np.ones, [(7, 8), 8, 8, 8])), mlp.Layer(np.ones((8, 2)), np.ones(2))]
HEADER = {"format": 1, "kind": "gaussian", "layers": 2, "observation_dim": 2, "goal_dim": 2, "action_dim": 2}
NO_WIDTH = {
    "weight0": np.ones((4, 0)), "weight1": np.ones((0, 2)),
    "bias0": np.ones(0), "scale0": np.ones(0), "shift0": np.ones(0),
}  # fmt: skip
# changes to the header, to the arrays (None leaves one out), and the error message
POLICIES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "endless layers": ({"layers": 10**9}, {}, r"'layers' of its header is invalid \(1000000000\)"),
    "no layers": ({"layers": 0}, {}, r"'layers' of its header is invalid \(0\)"),
    "one layer too many": ({"layers": 3}, {}, "it has no array 'weight2'"),
    "one layer too few": ({"layers": 1}, {}, "its array 'scale0' belongs to no layer|does not match the other arrays"),
    "layers as text": ({"layers": "2"}, {}, r"'layers' of its header is invalid \('2'\)"),
    "no observation_dim": ({"observation_dim": None}, {}, r"'observation_dim' of its header is invalid \(None\)"),
    "negative goal_dim": ({"observation_dim": 5, "goal_dim": -1}, {}, r"'goal_dim' of its header is invalid \(-1\)"),
    "true action_dim": ({"action_dim": True}, {}, r"'action_dim' of its header is invalid \(True\)"),
    "another action_dim": ({"action_dim": 3}, {}, r"'weight1' has the shape \(8, 2\), which does not match"),
    "another observation_dim": ({"observation_dim": 3}, {}, r"'weight0' has the shape \(4, 8\), which does not match"),
    "endless flow": ({"kind": "flow", "flow_steps": 10**12}, {}, r"'flow_steps' of its header is invalid"),
    "flow of no inputs for noise": ({"kind": "flow", "flow_steps": 10}, {}, "'weight0' has the shape"),
    "task of a list": ({"task": ["a"], "algorithm": "bc", "seed": 0, "step": 1}, {}, r"'task' .* invalid \(\['a'\]\)"),
    "a task, but no seed": ({"task": MINI, "algorithm": "bc", "step": 1}, {}, r"'seed' .* is invalid \(None\)"),
    "kind of a list": ({"kind": ["gaussian"]}, {}, "holds a policy of kind"),
    "kind of lines": ({"kind": "a\nb" * 99}, {}, "holds a policy of kind"),
    "format of a list": ({"format": [1] * 99}, {}, "has file format"),
    "missing weight": ({}, {"weight0": None}, "it has no array 'weight0'"),
    "missing bias": ({}, {"bias0": None}, "it has no array 'bias0'"),
    "missing shift": ({}, {"shift0": None}, "'scale0' and 'shift0' must be given together"),
    "one array too many": ({}, {"weight7": np.ones((2, 2))}, "its array 'weight7' belongs to no layer"),
    "wrong weight": ({}, {"weight1": np.ones((7, 2))}, r"'weight1' has the shape \(7, 2\), which does not match"),
    "flat weight": ({}, {"weight1": np.ones(16)}, r"'weight1' has the shape \(16,\), which does not match"),
    "wrong scale": ({}, {"scale0": np.ones(1)}, r"'scale0' has the shape \(1,\), which does not match"),
    "layer of no width": ({}, NO_WIDTH, r"'weight0' has the shape \(4, 0\), which does not match"),
    "NaN": ({}, {"weight0": np.full((4, 8), np.nan)}, "'weight0' holds non-finite or non-numeric values"),
    "too large": ({}, {"bias1": np.full(2, 1e300)}, "'bias1' holds non-finite or non-numeric values"),
    "complex": ({}, {"bias1": np.full(2, 1j)}, "'bias1' holds non-finite or non-numeric values"),
    "text": ({}, {"bias1": np.full(2, "1")}, "'bias1' holds non-finite or non-numeric values"),
    "no header": ({}, {"header": None}, "it has no readable header"),
    "a number for a header": ({}, {"header": np.array(1)}, "it has no readable header"),
    "a list for a header": ({}, {"header": np.array("[1]")}, "it has no readable header"),
    "a deep header": ({}, {"header": np.array("[" * 10**5)}, "it has no readable header"),
    "no text": ({}, {"header": np.frombuffer(b"\xff" * 8, "<U2").reshape(())}, "it has no readable header"),
}  # fmt: skip


def write_policy(path: Path, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    layers = {f"{key}{k}": array for k, layer in enumerate(LAYERS) for key, array in layer._asdict().items()}
    arrays = {"header": np.array(json.dumps(HEADER | header)), **layers, **arrays}
    np.savez(path, allow_pickle=False, **{key: array for key, array in arrays.items() if array is not None})


@pytest.mark.parametrize(("header", "arrays", "message"), POLICIES.values(), ids=POLICIES)
def test_invalid_policy_files_are_rejected(
    header: dict[str, Any], arrays: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "policy.npz"
    write_policy(path, header, arrays)
    with pytest.raises(RunError, match=message) as caught:
        load_policy(path)
    assert str(caught.value).startswith(str(path))
    assert is_one_sentence(str(caught.value)), caught.value
    assert len(str(caught.value)) < len(str(path)) + 200


def test_valid_policy_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    write_policy(path, {}, {})
    assert load_policy(path)(np.zeros(2), np.zeros(2)).shape == (2,)
    save_policy(path, mlp_file.MLP(FLOW), HEADER | {"kind": "flow", "flow_steps": 3})
    assert load_policy(path)(np.zeros(2), np.zeros(2)).shape == (2,)

"""Downloads: whatever a server does, a file in the folder is complete and correct, or it does not exist."""

import dataclasses
import hashlib
import io
import itertools
import json
import multiprocessing
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_data import is_one_sentence

from gtrl import cli, tasks
from gtrl.data.collect import files as collecting
from gtrl.data.collect.expert import Experts
from gtrl.data.load import load_dataset
from gtrl.data.sources import download as module
from gtrl.data.sources.download import download
from gtrl.data.sources.get import get_dataset
from gtrl.envs import simulator
from gtrl.errors import ConfigError, DataError, DownloadError
from gtrl.tasks import OGBenchTask, ogbench_task

Patch = pytest.MonkeyPatch
Printed = pytest.CaptureFixture[str]
Logged = pytest.LogCaptureFixture


def small(name: str, trajectories: int = 10, length: int = 20) -> OGBenchTask:
    """A task whose whole public dataset is small."""
    return dataclasses.replace(ogbench_task(name), trajectories=trajectories, trajectory_length=length)


TASK = small("pointmaze-medium-navigate")
SHORT = small("pointmaze-medium-navigate", 2, 15)  # quickly collected
ANT = small("antmaze-large-navigate")
NAME, VALIDATION, ORIGIN = (f"{TASK.dataset}{end}" for end in (".npz", "-val.npz", ".origin.json"))


def npz(episodes: int = 10, length: int = 20, *, observation: int = 2, width: int = 30, seed: int = 0) -> bytes:
    """A dataset file; `width` numbers of qpos and of qvel make it large or small."""
    rng = np.random.default_rng(seed)
    rows = episodes * (length + 1)
    arrays = {
        "observations": rng.normal(size=(rows, observation)),
        "actions": rng.uniform(-1, 1, (rows, 2)),
        "terminals": np.arange(rows) % (length + 1) == length,
        "qpos": rng.normal(size=(rows, width)),
        "qvel": np.zeros((rows, width)),
    }
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


BLOCK = 512
HALF = 98 * BLOCK
GOOD = {NAME: npz(), VALIDATION: npz(1, seed=1)}  # of 108 and 12 KB
NEW, LONGER, SHORTER = (npz(width=width, seed=5) for width in (30, 40, 5))
PAGE = b"<!DOCTYPE html><title>Sorry</title>" * 100


# --- a scripted server ---


class Answering(BaseHTTPRequestHandler):
    """Handles one request as `site` specifies."""

    def __init__(self, site: "Site", *args: Any) -> None:
        self.site = site
        super().__init__(*args)

    def do_GET(self) -> None:
        name = self.path.rsplit("/", 1)[-1]
        self.site.requests.append((name, dict(self.headers)))
        answer = next(self.site.train, self.site.usual) if name == NAME else self.site.usual
        answer(self, self.site.files.get(name, b""))

    def log_message(self, *_: Any, **__: Any) -> None:
        pass

    def begin(self, status: int, **headers: Any) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def give(
        self, content: bytes, upto: int | None = None, *, ranges: bool = True, tag: dict[str, str] | None = None,
        kind: str = "application/octet-stream",
    ) -> None:  # fmt: skip
        """Answers like a file server; drops the connection before byte `upto` of the file."""
        tag = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'} if tag is None else tag
        size, start = len(content), 0
        if ranges and "Range" in self.headers and self.headers["If-Range"] in (None, *tag.values()):
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= size:
                return self.send_error(416)
            self.begin(206, Content_Range=f"bytes {start}-{size - 1}/{size}", Content_Length=size - start, **tag)
        else:
            self.begin(200, Content_Length=size, Content_Type=kind, **tag)
        self.wfile.write(content[start:upto])
        return None

    def stall(self, content: bytes, upto: int = 0) -> None:
        """Sends part of the file, or not even a status, and then stalls."""
        if upto:
            self.give(content, upto)
        self.site.stalled.set()
        self.site.released.wait(60)

    def chunks(self, content: bytes, upto: int) -> None:
        """Sends no size and breaks off in the middle of a chunk."""
        self.begin(200, Transfer_Encoding="chunked")
        self.wfile.write(b"%x\r\n" % len(content) + content[:upto])


Answer = Callable[[Answering, bytes], None]


def dropped(upto: int, **options: Any) -> Answer:
    return partial(Answering.give, upto=upto, **options)


def sending(content: bytes, **options: Any) -> Answer:
    return lambda request, _: request.give(content, **options)


def failing_with(status: int) -> Answer:
    return lambda request, _: request.send_error(status)


class Site:
    """The files of a server, its answers, and the requests it got."""

    def __init__(self) -> None:
        self.address = self.host = ""
        self.files = dict(GOOD)
        self.usual: Answer = Answering.give
        self.train: Iterator[Answer] = iter(())  # answers to the first requests for the training file
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.stalled, self.released = threading.Event(), threading.Event()

    def asked(self, header: str, name: str = NAME) -> list[str | None]:
        return [headers.get(header) for requested, headers in self.requests if requested == name]

    def starts(self, name: str = NAME) -> list[int]:
        """The first byte that each request asked for."""
        return [int((asked or "bytes=0-").removeprefix("bytes=")[:-1]) for asked in self.asked("Range", name)]


@contextmanager
def serving() -> Iterator[Site]:
    site = Site()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Answering, site)) as server:
        site.host = f"127.0.0.1:{server.server_port}"
        site.address = f"http://{site.host}/ogbench"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield site
        site.released.set()
        server.shutdown()
        thread.join()


def test_address_is_ogbenchs() -> None:
    """It is written down here too, so that a download needs no simulator."""
    from ogbench.utils import DATASET_URL

    assert module.DATASET_URL == DATASET_URL


@pytest.fixture
def site(monkeypatch: Patch) -> Iterator[Site]:
    """Stands in for OGBench's host."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("GTRL_MIRROR", raising=False)
    monkeypatch.setattr(module, "FIRST_RETRY_SECONDS", 0)
    monkeypatch.setattr(module, "BLOCK_BYTES", BLOCK)
    with serving() as site:
        monkeypatch.setattr(module, "DATASET_URL", site.address)
        yield site


@pytest.fixture
def mirror() -> Iterator[Site]:
    with serving() as site:
        yield site


@pytest.fixture
def jobs(monkeypatch: Patch) -> list[Any]:
    """Collects in this process, since a pool is slow to start. Returns the collected parts."""
    done: list[Any] = []

    def map_unordered(function: Callable[[Any], int], jobs: list[Any], _: int | None) -> Iterator[tuple[int, int]]:
        done.extend(jobs)
        return enumerate(map(function, jobs))

    monkeypatch.setattr(collecting, "map_unordered", map_unordered)
    return done


def fetch(folder: Path, **options: Any) -> str:
    return download(TASK, folder / NAME, show=False, **options)


def fail(folder: Path, message: str, **options: Any) -> None:
    with pytest.raises(DownloadError, match=message):
        fetch(folder, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_whole(folder: Path, train: bytes = GOOD[NAME]) -> None:
    found = contents(folder)
    assert found.pop(ORIGIN)
    assert found == {NAME: train, VALIDATION: GOOD[VALIDATION]}


def assert_partial(folder: Path, *names: str) -> None:
    """The folder holds partial downloads of these files with their notes, and nothing else."""
    left = [path.name for path in folder.iterdir()]
    assert {name.partition(".npz")[0] + ".npz" for name in left} == set(names)
    assert all(name.endswith((".download", ".download.json")) for name in left)


def part_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob(f"{NAME}*.download"))


# --- a download ---


def test_download_records_its_origin(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert fetch(folder) == site.address
    assert_whole(folder)
    origin = {"from": "downloaded", "address": site.address}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in GOOD.items()}
    assert json.loads((folder / ORIGIN).read_text()) == origin | {"sha256": digests}
    assert load_dataset(folder / NAME, TASK).origin == origin
    for name, content in GOOD.items():
        (folder / name).write_bytes(NEW)
        assert load_dataset(folder / NAME, TASK).origin == {"from": "file"}
        (folder / name).write_bytes(content)
    assert load_dataset(folder / NAME, TASK).origin == origin


# --- resuming ---


def changing_to(content: bytes) -> Answer:
    def answer(request: Answering, _: bytes) -> None:
        request.site.files[NAME] = content
        request.give(content)

    return answer


DROPS = range(9_000, len(GOOD[NAME]), 9_000)
# answers to the first requests for the training file: first byte of each request, resulting file
RESUMED: dict[str, tuple[list[Answer], list[int], bytes]] = {
    "dropped": ([dropped(20_000), dropped(HALF)], [0, 20_000, HALF], GOOD[NAME]),
    "dropped often, but never without progress": ([dropped(end) for end in DROPS], [0, *DROPS], GOOD[NAME]),
    "size unknown": ([partial(Answering.chunks, upto=HALF)], [0, HALF], GOOD[NAME]),
    "without ranges": ([dropped(HALF), partial(Answering.give, ranges=False)], [0, HALF], GOOD[NAME]),
    "out of order for a moment": ([dropped(HALF), failing_with(503)], [0, HALF, HALF], GOOD[NAME]),
    "changed": ([dropped(HALF), changing_to(NEW)], [0, HALF], NEW),
    "longer": ([dropped(HALF), changing_to(LONGER)], [0, HALF], LONGER),
    "shorter": ([dropped(HALF), changing_to(SHORTER)], [0, HALF], SHORTER),
    "shorter and without a tag (416)": ([dropped(HALF, tag={}), changing_to(SHORTER)], [0, HALF, 0], SHORTER),
}


@pytest.mark.parametrize(("answers", "starts", "result"), RESUMED.values(), ids=RESUMED)
def test_interrupted_download_resumes(
    answers: list[Answer], starts: list[int], result: bytes, site: Site, tmp_path: Path
) -> None:
    site.train = iter(answers)
    fetch(tmp_path)
    assert_whole(tmp_path, result)
    assert site.starts() == starts
    assert site.starts(VALIDATION) == [0]


@pytest.mark.parametrize(
    ("tag", "condition"),
    [
        ({"ETag": '"v1"'}, '"v1"'),
        ({"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}, "Wed, 21 Oct 2015 07:28:00 GMT"),
        ({"ETag": 'W/"v1"'}, None),  # a weak tag does not identify bytes (RFC 9110, 13.1.5)
    ],
)
def test_resume_requests_the_rest_of_the_same_version(
    tag: dict[str, str], condition: str | None, site: Site, tmp_path: Path
) -> None:
    site.train = iter([dropped(20_000, tag=tag), dropped(HALF, tag=tag), partial(Answering.give, tag=tag)])
    fetch(tmp_path)
    assert_whole(tmp_path)
    assert site.starts() == [0, 20_000, HALF]
    assert site.asked("If-Range") == [None, condition, condition]


def test_mixture_of_two_versions_is_discarded(site: Site, tmp_path: Path) -> None:
    site.train = iter([dropped(HALF, tag={}), changing_to(NEW)])
    fail(tmp_path, f"sent a wrong or damaged {NAME}, which was discarded: it is not a readable npz file")
    assert_partial(tmp_path, VALIDATION)
    fetch(tmp_path)
    assert_whole(tmp_path, NEW)


def test_giving_up_keeps_the_partial_file(site: Site, tmp_path: Path, monkeypatch: Patch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(module, "FIRST_RETRY_SECONDS", 3)
    site.train = itertools.repeat(dropped(HALF))
    fail(tmp_path, rf"^{site.host} stopped sending {NAME} after 0\.1 MB .*; run the same command again to resume$")
    assert pauses == [3, 6, 12, 24]
    assert_partial(tmp_path, NAME, VALIDATION)
    assert part_in(tmp_path) == GOOD[NAME][:HALF]
    site.train = iter(())
    site.requests.clear()
    fetch(tmp_path)
    assert_whole(tmp_path)
    assert (site.starts(), site.starts(VALIDATION)) == ([HALF], [])


def test_stopped_when_a_new_version_begins(site: Site, tmp_path: Path, monkeypatch: Patch) -> None:
    def noted_and_stopped(path: Path, text: str) -> None:
        path.write_text(text)
        raise KeyboardInterrupt

    site.train = itertools.repeat(dropped(HALF))
    fail(tmp_path, "stopped sending")
    site.train = iter([changing_to(NEW)])
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_text", noted_and_stopped)
        with pytest.raises(KeyboardInterrupt):
            fetch(tmp_path)
    fetch(tmp_path)
    assert_whole(tmp_path, NEW)


def download_alone(address: str, folder: Path) -> None:
    """Runs in a subprocess."""
    module.DATASET_URL = address
    module.BLOCK_BYTES = BLOCK
    fetch(folder)


def test_download_of_a_killed_process_resumes(site: Site, tmp_path: Path) -> None:
    site.train = iter([partial(Answering.stall, upto=2 * HALF)])
    process = multiprocessing.get_context("spawn").Process(target=download_alone, args=(site.address, tmp_path))
    process.start()
    try:
        assert site.stalled.wait(30)
        for _ in range(1000):
            if len(part_in(tmp_path)) > HALF:
                break
            time.sleep(0.01)
        with pytest.raises(DataError, match=rf"^another process is downloading {NAME}\.$"):
            get_dataset(TASK, tmp_path, show=False)
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    came = len(part_in(tmp_path))
    assert HALF < came <= 2 * HALF < len(GOOD[NAME])
    assert not list(tmp_path.glob("*.npz"))
    fetch(tmp_path)
    assert_whole(tmp_path)
    assert site.starts() == [0, came]


# --- failures ---


def replaced(old: bytes, new: bytes) -> Answer:
    assert old in GOOD[VALIDATION]
    return sending(GOOD[VALIDATION].replace(old, new))


MEMBER = b"PK\x01\x02\x2d\x03\x2d\x00\x00\x00"  # in an archive's directory: signature, two versions, flags
UNREADABLE = f"sent a wrong or damaged {VALIDATION}, which was discarded: it is not a readable npz file"
# what the server does with the validation file, requested first: the error message
FAILURES: dict[str, tuple[Answer, str]] = {
    "truncated": (sending(GOOD[VALIDATION][:-200]), f"{UNREADABLE}; it may be truncated"),
    "empty": (sending(b""), UNREADABLE),
    "garbled": (replaced(b"<f8", b"<?8"), UNREADABLE),
    "garbled directory": (replaced(MEMBER, b"?" * 10), UNREADABLE),
    "version": (replaced(MEMBER, MEMBER[:6] + b"\xff\x00\x00\x00"), UNREADABLE),
    "encrypted": (replaced(MEMBER, MEMBER[:8] + b"\x01\x00"), UNREADABLE),
    "page as file": (sending(PAGE), UNREADABLE),
    "page": (sending(PAGE, kind="text/html; charset=utf-8"), "sent a web page instead of the file"),
    "another task": (sending(npz(1, observation=29)), f"observations have 29 dimensions where {TASK.name} has 2"),
    "episodes": (sending(npz(2)), f"it has 2 episodes where {TASK.name} has 1"),
    "length": (sending(npz(1, 21)), f"it has 21 transitions per episode where {TASK.name} has 20"),
    "401": (failing_with(401), rf"requires a password for {VALIDATION} \(401\)"),
    "403": (failing_with(403), rf"denies access to {VALIDATION} \(403\)"),
    "404": (failing_with(404), rf"has no file {VALIDATION} \(404\)"),
    "410": (failing_with(410), rf"no longer has {VALIDATION} \(410\)"),
    "418": (failing_with(418), rf"does not send {VALIDATION} \(418\)"),
    "429": (failing_with(429), r"is temporarily unavailable \(429 Too Many Requests\)"),
    "500": (failing_with(500), r"is temporarily unavailable \(500 Internal Server Error\)"),
    "503": (failing_with(503), r"is temporarily unavailable \(503 Service Unavailable\)"),
    "silence": (Answering.stall, r"did not respond within 0\.2 s"),
    "hanging up": (lambda *_: None, r"cannot be reached \(Remote end closed connection without response\)"),
}


@pytest.mark.parametrize(("answer", "message"), FAILURES.values(), ids=FAILURES)
def test_failed_download_leaves_no_file(
    answer: Answer, message: str, site: Site, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.2 if answer is Answering.stall else 20)
    site.usual = answer
    fail(tmp_path, f"^{site.host} .*{message}")
    assert contents(tmp_path) == {}
    site.usual = Answering.give
    fetch(tmp_path)
    assert_whole(tmp_path)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (sending(GOOD[NAME][:-200]), "it may be truncated"),
        (sending(npz(9)), "it has 9 episodes where .* has 10"),
        (sending(npz(10, 19)), "it has 19 transitions per episode where .* has 20"),
        (sending(GOOD[VALIDATION]), "it has 1 episodes where .* has 10"),
        (failing_with(404), f"has no file {NAME}"),
    ],
)
def test_validation_file_is_kept_while_the_training_file_fails(
    answer: Answer, message: str, site: Site, tmp_path: Path
) -> None:
    site.train = iter([answer])
    fail(tmp_path, message)
    assert_partial(tmp_path, VALIDATION)
    fetch(tmp_path)
    assert_whole(tmp_path)
    assert site.starts(VALIDATION) == [0]


def test_stalled_transfer_times_out(site: Site, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.2)
    site.train = itertools.repeat(partial(Answering.stall, upto=HALF))
    fail(tmp_path, rf"stopped sending {NAME} after 0\.1 MB \(no data for 0\.2 s\)")
    assert_partial(tmp_path, NAME, VALIDATION)
    assert site.starts() == [0, *[HALF] * (module.MAX_STALLED_ATTEMPTS - 1)]


def test_wrong_byte_range_restarts_the_download(site: Site, tmp_path: Path) -> None:
    """The whole file is requested again, without a range."""
    site.train = iter([dropped(HALF), lambda request, _: request.begin(206, Content_Range="bytes 0-9/10")])
    fetch(tmp_path)
    assert_whole(tmp_path)
    assert site.starts() == [0, HALF, 0]


def closed() -> str:
    """An address that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.usefixtures("site")
def test_unreachable_server_is_reported(tmp_path: Path, monkeypatch: Patch) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(module, "DATASET_URL", closed())
    fail(tmp_path, r"^127\.0\.0\.1:\d+ cannot be reached \(.*Connection refused\)")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(module, "DATASET_URL", "https://nowhere.invalid/ogbench")
    fail(tmp_path, r"^nowhere\.invalid cannot be reached \(.*Name or service not known\)")
    assert contents(tmp_path) == {}


def test_download_needs_no_simulator(site: Site, tmp_path: Path, monkeypatch: Patch) -> None:
    """Only the collection that follows a failed download does; the message says why both fail."""
    for name in simulator.PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)
    assert get_dataset(TASK, tmp_path / "a", show=False).exists()
    site.usual = failing_with(503)
    with pytest.raises(DownloadError) as failure:
        get_dataset(TASK, tmp_path / "b", show=False)
    assert is_one_sentence(str(failure.value))
    assert str(failure.value).startswith(f"{TASK.dataset} could not be downloaded: {site.host} ")
    expected = '; collecting it here needs OGBench and MuJoCo: pip install "gtrl[ogbench]".'
    assert str(failure.value).endswith(expected)
    assert contents(tmp_path / "b") == {}


# --- the mirror ---


def test_mirror_is_tried_second(site: Site, mirror: Site, tmp_path: Path, monkeypatch: Patch) -> None:
    assert fetch(tmp_path / "a", mirror=mirror.address) == site.address
    assert mirror.requests == []
    site.usual = failing_with(503)
    assert fetch(tmp_path / "b", mirror=f"{mirror.address}/") == mirror.address
    assert_whole(tmp_path / "b")
    assert load_dataset(tmp_path / "b" / NAME).origin == {"from": "downloaded", "address": mirror.address}
    monkeypatch.setenv("GTRL_MIRROR", mirror.address)
    assert fetch(tmp_path / "c") == mirror.address
    assert_whole(tmp_path / "c")


def test_mirror_flag_overrides_the_environment_variable(
    site: Site, mirror: Site, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(module, "DATASET_URL", closed())
    monkeypatch.setenv("GTRL_MIRROR", site.address)
    assert fetch(tmp_path, mirror=mirror.address) == mirror.address
    assert site.requests == []


def test_mirror_continues_a_partial_download(site: Site, mirror: Site, tmp_path: Path) -> None:
    """The mirror may have another version, so nothing from the first server is kept."""
    mirror.files[NAME] = NEW
    site.train = itertools.repeat(dropped(HALF))
    assert fetch(tmp_path, mirror=mirror.address) == mirror.address
    assert_whole(tmp_path, NEW)
    assert mirror.starts() == [0]


def test_partial_file_is_kept_if_the_mirror_fails_too(site: Site, mirror: Site, tmp_path: Path) -> None:
    site.train = itertools.repeat(dropped(HALF))
    mirror.train = itertools.repeat(dropped(20_000))
    fail(tmp_path, f"^{site.host} .* again to resume; {mirror.host} .* again to resume", mirror=mirror.address)
    site.train = iter(())
    site.requests.clear()
    fetch(tmp_path, mirror=mirror.address)
    assert_whole(tmp_path)
    assert site.starts() == [HALF]


BAD_MIRRORS = ["ftp://host/data", "host/data", "/a/folder", "file:///a/folder", "http://[::1", "http://127.0.0.1/ü"]


@pytest.mark.parametrize("address", BAD_MIRRORS)
def test_invalid_mirror_address_is_rejected(address: str, site: Site, tmp_path: Path, monkeypatch: Patch) -> None:
    site.usual = failing_with(503)
    with pytest.raises(ConfigError, match=r"^the mirror '.*' is not an address"):
        fetch(tmp_path, mirror=address)
    monkeypatch.setenv("GTRL_MIRROR", address)
    with pytest.raises(ConfigError, match=r"^the mirror '.*' is not an address"):
        fetch(tmp_path)
    assert contents(tmp_path) == {}


# --- from the cache, a download or the package's collectors ---


@pytest.fixture
def infos(caplog: Logged) -> Logged:
    """Log records of level INFO and above."""
    caplog.set_level("INFO", "gtrl")
    return caplog


@pytest.mark.usefixtures("site")
def test_library_download_prints_nothing(tmp_path: Path, capsys: Printed) -> None:
    get_dataset(TASK, tmp_path, show=False)
    get_dataset(TASK, tmp_path)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["data", "[my] data"])
def test_cached_file_needs_no_request(name: str, site: Site, tmp_path: Path, infos: Logged) -> None:
    folder = tmp_path / name
    fetch(folder)
    site.requests.clear()
    before = contents(folder)
    assert get_dataset(TASK, folder) == folder / NAME
    assert infos.messages == [f"found {folder / NAME} (downloaded)"]
    (folder / VALIDATION).unlink()
    get_dataset(TASK, folder)
    assert infos.messages[1:] == [f"found {folder / NAME} (source not recorded; without a validation file)"]
    assert contents(folder) == {name: before[name] for name in (NAME, ORIGIN)}
    assert site.requests == []


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD[NAME][:-200], "is not a readable npz file"),
        (npz(observation=29), "is in the cache but observations have 29 dimensions where .*; remove it and try again"),
    ],
)
def test_broken_cached_file_is_reported(name: str, content: bytes, message: str, site: Site, tmp_path: Path) -> None:
    for file in GOOD:
        (tmp_path / file).write_bytes(content if file == name else GOOD[file])
    with pytest.raises(DataError, match=message) as caught:
        get_dataset(TASK, tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert is_one_sentence(str(caught.value)), caught.value
    assert (tmp_path / name).read_bytes() == content
    assert site.requests == []


def test_dataset_is_collected_if_it_cannot_be_downloaded(
    site: Site, jobs: list[Any], tmp_path: Path, infos: Logged
) -> None:
    site.train = iter([failing_with(404)])
    site.files[VALIDATION] = npz(1, SHORT.trajectory_length)
    path = get_dataset(SHORT, tmp_path)
    warning, result = infos.records
    assert warning.levelname == "WARNING"  # it may take hours, so it is shown even if INFO is not
    assert warning.message.startswith(f"download failed: {site.host} has no file {NAME} (404). Collecting")
    assert result.message == f"collected {path}"
    origin = load_dataset(path, SHORT).origin
    assert (origin["from"], origin["episodes"], origin["length"], origin["seed"]) == ("collected", 2, 15, 0)
    assert np.load(path)["terminals"].sum() == 2
    assert sorted(split for _, split, _ in jobs) == ["train", "val"]
    assert set(contents(tmp_path)) == {NAME, VALIDATION, ORIGIN}


@pytest.mark.usefixtures("no_shipped_experts")
@pytest.mark.parametrize("with_mirror", [False, True])
def test_error_if_neither_download_nor_collection_works(
    with_mirror: bool, site: Site, mirror: Site, tmp_path: Path
) -> None:
    site.usual, mirror.usual = failing_with(403), failing_with(500)
    with pytest.raises(DownloadError, match=r"with an expert that can walk \(--expert FILE, from 'gtrl exp") as caught:
        get_dataset(ANT, tmp_path, mirror=mirror.address if with_mirror else None)
    message = str(caught.value)
    assert is_one_sentence(message), message
    assert f"{ANT.dataset} could not be downloaded: {site.host} denies access to" in message
    assert (mirror.host in message) == with_mirror
    assert "name another address with --mirror URL or GTRL_MIRROR" in message
    assert contents(tmp_path) == {}


@pytest.mark.usefixtures("no_shipped_experts")
def test_missing_expert_is_named(site: Site, tmp_path: Path) -> None:
    site.usual = failing_with(403)
    walks = Experts(walk=tmp_path / "walk.npz")
    with pytest.raises(DownloadError, match=r"dribble-expert FILE, from 'gtrl expert train dribble'\)\."):
        get_dataset("antsoccer-arena-stitch", tmp_path, experts=walks, show=False)


def test_a_validation_file_alone_is_not_overwritten(site: Site, tmp_path: Path) -> None:
    (tmp_path / VALIDATION).write_text("own")
    with pytest.raises(DataError, match=f"{VALIDATION} exists without its training file"):
        get_dataset(TASK, tmp_path)
    assert contents(tmp_path) == {VALIDATION: b"own"}
    assert site.requests == []


@pytest.mark.usefixtures("jobs")
def test_unpublished_dataset_is_collected(site: Site, tmp_path: Path, infos: Logged) -> None:
    mini = small("pointmaze-mini-navigate", 2, 15)
    path = get_dataset(mini, tmp_path)
    assert "has no public dataset: collecting it here" in infos.text
    assert load_dataset(path, mini).origin["from"] == "collected"
    assert site.requests == []


def test_interrupted_collection_resumes(
    site: Site, jobs: list[Any], tmp_path: Path, infos: Logged, monkeypatch: Patch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    whole = collecting.collect(SHORT, tmp_path / "whole" / NAME, show=False)
    with monkeypatch.context() as patch:
        patch.setattr(collecting, "_join", stop)
        with pytest.raises(KeyboardInterrupt, match="run the same command again to resume"):
            collecting.collect(SHORT, tmp_path / NAME, show=False)
    assert not (tmp_path / NAME).exists()
    jobs.clear()
    path = get_dataset(SHORT, tmp_path)
    assert f"resuming the interrupted collection in {tmp_path / TASK.dataset}.collecting" in infos.text
    assert path.read_bytes() == whole.read_bytes()
    assert not (tmp_path / f"{TASK.dataset}.collecting").exists()
    assert (jobs, site.requests) == ([], [])


# --- the command line ---


def test_get_command(site: Site, jobs: list[Any], tmp_path: Path, capsys: Printed, monkeypatch: Patch) -> None:
    monkeypatch.setitem(tasks.REGISTERED.entries, TASK.name, TASK)
    assert cli.main(["data", "get", TASK.name, "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"downloaded {tmp_path / NAME} from {site.address}\n"
    assert_whole(tmp_path)
    assert jobs == []


@pytest.mark.usefixtures("no_shipped_experts")
def test_get_command_fails_with_a_one_line_error(site: Site, mirror: Site, tmp_path: Path, capsys: Printed) -> None:
    site.usual = mirror.usual = failing_with(404)
    command = ["data", "get", ANT.name, "--folder", str(tmp_path), "--mirror", mirror.address]
    assert cli.main(command) == 2
    output, stderr = capsys.readouterr()
    (message,) = stderr.splitlines()
    assert output == ""
    assert message.startswith("gtrl: ")
    assert is_one_sentence(message), message
    assert message.index(site.host) < message.index(mirror.host)
    assert contents(tmp_path) == {}

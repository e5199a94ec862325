"""Collections interrupted by Ctrl-C, kill or a crash: the same command resumes and gives the same files."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gtrl.data.collect import files, plan
from gtrl.data.collect.files import collect
from gtrl.errors import DataError
from gtrl.io import npz
from gtrl.workers import map_unordered

MINI = "pointmaze-mini-navigate"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(files.__file__).parents[3])}
Process = subprocess.Popen[bytes]
Start = Callable[[], Process]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def parts_of(folder: Path) -> dict[str, tuple[int, int]]:
    """The finished parts in a work folder; a file that is written again has another inode and time."""
    found = {}
    for path in [*folder.glob("a.collecting/train-*.npz"), *folder.glob("a.collecting/val-*.npz")]:
        with suppress(FileNotFoundError):  # joined just now
            found[path.name] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found


# --- real processes and real signals ---

EPISODES, PARTS = 36, 10  # of 4 episodes, one of them for validation: about a second


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Starts a collection into `folder` in its own process group; its output goes to the file `stderr` next to it."""
    # A shell without job control starts background processes with Ctrl-C ignored, and subprocesses inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    begun: list[Process] = []

    def run() -> Process:
        flags = ["--episodes", str(EPISODES), "--workers", "2", "--out", str(folder / "a.npz")]
        command = [sys.executable, "-m", "gtrl", "data", "collect", MINI, *flags]
        with (folder.parent / "stderr").open("w") as file:
            begun.append(subprocess.Popen(command, env=ENVIRONMENT, start_new_session=True, stdout=file, stderr=file))
        return begun[-1]

    yield run
    for process in begun:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of an uninterrupted collection."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    collect(MINI, folder / "a.npz", episodes=EPISODES, workers=2, show=False)
    found = contents(folder)
    assert set(found) == {"a.npz", "a-val.npz", "a.origin.json"}
    return found


def wait_for(parts: int, process: Process, folder: Path) -> None:
    while len(parts_of(folder)) < parts and process.poll() is None:
        time.sleep(0.002)


def ctrl_c(process: Process) -> None:
    os.killpg(process.pid, signal.SIGINT)


def kill(process: Process) -> None:
    """Kills the main process only; its workers become orphans."""
    process.kill()


def kill_all(process: Process) -> None:
    os.killpg(process.pid, signal.SIGKILL)


# Each at three moments; in `make test` both kinds in turn.
INTERRUPTS = {
    "in turn": (kill_all, ctrl_c, kill_all),
    "Ctrl-C": (ctrl_c, ctrl_c, ctrl_c),
    "kill": (kill, kill, kill),
    "kill all": (kill_all, kill_all, kill_all),
}


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("in turn", 0),
        *(pytest.param(name, seed, marks=pytest.mark.soak) for name in INTERRUPTS for seed in range(6)),
    ],
)
def test_collection_interrupted_repeatedly_resumes(
    name: str, seed: int, start: Start, folder: Path, uninterrupted: dict[str, bytes]
) -> None:
    moments = random.Random(seed)
    kept: dict[str, tuple[int, int]] = {}
    landed = 0
    # While it starts, after the first parts, and while it joins them and puts the files in place.
    for interrupt, parts, within in zip(INTERRUPTS[name], (0, 1, PARTS), (0.6, 0.3, 0.1), strict=True):
        process = start()
        wait_for(parts, process, folder)
        time.sleep(moments.uniform(0, within))
        if process.poll() is None:
            interrupt(process)
        status = process.wait(timeout=60)
        landed += status != 0
        left = parts_of(folder)
        if interrupt is not kill:  # its workers may still write a part that the next process writes too
            # Finished parts are not collected again: each stays the same file until it is joined.
            assert all(left.get(name, mark) == mark for name, mark in kept.items())
        if interrupt is ctrl_c and parts and left:
            assert status == 130
            stderr = (folder.parent / "stderr").read_text()
            assert stderr.endswith("gtrl: interrupted; run the same command again to resume\n")
            assert "Traceback" not in stderr
        kept = left
    assert landed >= 2
    if set(contents(folder)) != set(uninterrupted):
        assert start().wait(timeout=60) == 0, (folder.parent / "stderr").read_text()
    assert contents(folder) == uninterrupted
    assert len(list(folder.iterdir())) == 3


def test_second_process_is_rejected(start: Start, folder: Path, uninterrupted: dict[str, bytes]) -> None:
    first = start()
    wait_for(1, first, folder)
    os.killpg(first.pid, signal.SIGSTOP)  # so that it does not end before the second process starts
    assert start().wait(timeout=60) == 2
    assert "gtrl: another process is collecting into" in (folder.parent / "stderr").read_text()
    assert first.poll() is None
    os.killpg(first.pid, signal.SIGCONT)
    assert first.wait(timeout=60) == 0
    assert contents(folder) == uninterrupted


def test_workers_end_soon_after_the_main_process(start: Start, folder: Path) -> None:
    def running(session: int) -> list[str]:
        """State, parent, group, session, ... of its processes, as /proc has them."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                found.append(stat.read_text().rpartition(")")[2].split())
        return [fields[0] for fields in found if int(fields[3]) == session and fields[0] != "Z"]

    process = start()
    wait_for(PARTS - 1, process, folder)
    assert len(running(process.pid)) >= 3
    process.kill()
    process.wait()
    deadline = time.monotonic() + 4
    while running(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running(process.pid) == []


# --- a crash at each step of joining ---

OPTIONS: dict[str, Any] = {"episodes": 12, "workers": 1, "show": False}  # three parts, and one for validation


class Crash(BaseException):
    """Not caught by any handler."""


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a collection that stopped before its finished parts were joined. Must not be modified."""

    def crash(*_: object) -> None:
        raise Crash

    folder = tmp_path_factory.mktemp("collected")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_join", crash)
        with pytest.raises(Crash):
            collect(MINI, folder / "a.npz", **OPTIONS)
    assert len(parts_of(folder)) == 4
    return folder


@pytest.fixture
def begun(collected: Path, tmp_path: Path) -> Path:
    return shutil.copytree(collected, tmp_path / "begun")


def assert_resumes(folder: Path, mini_file: Path) -> None:
    """The same command gives the files of an uninterrupted collection."""
    collect(MINI, folder / "a.npz", **OPTIONS)
    for suffix in ("", "-val"):
        assert (folder / f"a{suffix}.npz").read_bytes() == mini_file.with_stem(mini_file.stem + suffix).read_bytes()


def assert_only_the_files(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {"a.npz", "a-val.npz", "a.origin.json"}


def crash_at(call: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, except that the given call (counted from 1) raises."""
    calls = iter(range(1, 1000))

    def crashing(*args: Any, **options: Any) -> Any:
        if next(calls) == call:
            raise Crash
        return function(*args, **options)

    return crashing


CRASHES = [
    *[(os, "replace", call) for call in range(1, 6)],  # two joined, the origin written, two put in place
    (npz, "_headers", 2), (npz, "read_npz", 8), (npz, "read_npz", 17),  # counting rows, in the first file, the second
    (files, "join_npz", 2), (files, "record_origin", 1), (files, "digest_of", 2),
    (Path, "rmdir", 1), (Path, "unlink", 3),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "call"), CRASHES)
def test_exception_while_joining(
    module: Any, name: str, call: int, begun: Path, mini_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, name, crash_at(call, getattr(module, name)))
        with pytest.raises(Crash):
            collect(MINI, begun / "a.npz", **OPTIONS)
    assert not [*begun.rglob("*.partial"), *begun.rglob("lock")]
    if (begun / "a.npz").exists():  # the training file appears last
        assert {"a-val.npz", "a.origin.json"} <= {path.name for path in begun.iterdir()}
    assert_resumes(begun, mini_file)
    assert_only_the_files(begun)


# Exits without clean-up right before the n-th change to the file system, for n = 0, 1, ... until it completes.
DYING = """
import os, shutil, sys
from pathlib import Path
from gtrl.data.collect import files

def die_at(moment):
    changes = iter(range(1000))
    def hook(event, args):
        writes = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")
        if (writes or event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir")) and next(changes) == moment:
            os.write(1, f"{event} {Path(str(args[0])).name}\\n".encode())
            os._exit(1)
    sys.addaudithook(hook)

for moment in range(1000):
    folder = shutil.copytree(sys.argv[1], Path(sys.argv[2]) / f"{moment:03}")
    if os.fork() == 0:
        die_at(moment)
        files.collect("pointmaze-mini-navigate", folder / "a.npz", episodes=12, workers=1, show=False)
        os._exit(0)
    if os.wait()[1] == 0:
        break
"""


@pytest.fixture(scope="module")
def died(collected: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Folders in which a collection was killed, by its activity."""
    out = tmp_path_factory.mktemp("died")
    command = [sys.executable, "-c", DYING, str(collected), str(out)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    found: dict[str, list[Path]] = {"joining": [], "noting": [], "removing": []}
    doing = "joining"
    # In the last folder the collection completed.
    for change, folder in zip(done.stdout.splitlines(), sorted(out.iterdir())[:-1], strict=True):
        found["noting" if change.startswith("os.rename a.origin.json") else doing].append(folder)
        if change.startswith("os.remove val-"):  # the last part
            doing = "removing"
    assert len(found["joining"]) > 10
    return found


@pytest.mark.parametrize(
    "doing",
    [
        "joining",
        "noting",
        "removing",
    ],
)
def test_killed_at_any_change_to_the_file_system(doing: str, died: dict[str, list[Path]], mini_file: Path) -> None:
    assert died[doing]
    for folder in died[doing]:
        assert_resumes(folder, mini_file)
        assert_only_the_files(folder)


# --- collections started before ---


def test_partial_files_of_another_process_do_not_matter(begun: Path, mini_file: Path) -> None:
    part = begun / "a.collecting" / "train-00000004-00000008.npz"
    for name in (part.name, "a.npz"):
        part.with_name(f"{name}.99999.partial").write_bytes(part.read_bytes()[:1000])
    part.unlink()  # it was not renamed to its final name yet
    assert_resumes(begun, mini_file)
    assert_only_the_files(begun)


def test_truncated_part_is_collected_again(begun: Path, mini_file: Path) -> None:
    part = begun / "a.collecting" / "train-00000004-00000008.npz"
    part.write_bytes(part.read_bytes()[:1000])
    assert_resumes(begun, mini_file)
    assert_only_the_files(begun)


def test_other_versions_do_not_resume_a_collection(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "__version__", "99")
    with pytest.raises(DataError, match="interrupted collection with versions"):
        collect(MINI, begun / "a.npz", **OPTIONS)


@pytest.mark.parametrize(
    ("task", "out", "options", "message"),
    [
        (MINI, "a.npz", {"seed": 1}, "seed 0"),
        (MINI, "a.npz", {"episodes": 13, "seed": 2}, "episodes 12 and seed 0"),
        (MINI, "a", {"shards": 2}, "shards 1"),
        ("pointmaze-medium-stitch", "a.npz", {}, f'task "{MINI}"'),  # episodes of the same length
    ],
)
def test_other_options_do_not_resume_a_collection(
    task: str, out: str, options: dict[str, Any], message: str, begun: Path, mini_file: Path
) -> None:
    before = contents(begun)
    with pytest.raises(
        DataError, match=rf"holds an interrupted collection with {message}; use these settings, or remove it"
    ):
        collect(task, begun / out, **OPTIONS | options)
    assert contents(begun) == before
    assert_resumes(begun, mini_file)


def test_other_options_work_after_removing_the_collection(begun: Path, mini_file: Path) -> None:
    shutil.rmtree(begun / "a.collecting")
    path = collect(MINI, begun / "a.npz", **{**OPTIONS, "seed": 1, "episodes": 1})
    assert path.read_bytes() != mini_file.read_bytes()
    assert json.loads((begun / "a.origin.json").read_text())["seed"] == 1
    assert_only_the_files(begun)


def test_file_from_elsewhere_is_not_taken_for_the_collection(begun: Path) -> None:
    (begun / "a.npz").write_bytes(b"downloaded")
    with pytest.raises(DataError, match="exists already"):
        collect(MINI, begun / "a.npz", **OPTIONS)
    assert (begun / "a.npz").read_bytes() == b"downloaded"


# --- workers ---


def stumble() -> None:
    raise ValueError("stumbled")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("fail", "message"), [(stumble, "stumbled"), (die, "SIGKILL")])
def test_worker_failure_is_reported_and_finished_parts_remain(
    fail: Callable[[], None], message: str, mini_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(function: Callable[[Any], int], jobs: Any, workers: int) -> Iterator[tuple[int, int]]:
        def work(job: Any) -> int:
            if job[2].start == 8:
                fail()
            return function(job)

        return map_unordered(work, jobs, workers)

    with monkeypatch.context() as patch:
        patch.setattr(files, "map_unordered", failing)
        with pytest.raises(Exception, match=message):
            collect(MINI, tmp_path / "a.npz", **OPTIONS)
    kept = parts_of(tmp_path)
    assert {"train-00000000-00000004.npz", "train-00000004-00000008.npz"} <= set(kept)  # one worker: in order
    assert "train-00000008-00000012.npz" not in kept
    assert_resumes(tmp_path, mini_file)
    assert_only_the_files(tmp_path)

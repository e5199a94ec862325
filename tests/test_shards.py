"""Data in several files: collected in shards, joined with little memory, loaded in turn during training."""

import dataclasses
import gc
import hashlib
import itertools
import json
import threading
import tracemalloc
import weakref
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import ogbench
import pytest

import gtrl
from gtrl.data import shards as rotation
from gtrl.data.collect import files
from gtrl.data.collect.files import collect
from gtrl.data.collect.plan import Plan
from gtrl.data.dataset import Data, Dataset, make_dataset
from gtrl.data.load import load_dataset
from gtrl.data.shards import Rotation
from gtrl.errors import ConfigError, DataError, RunError
from gtrl.io.npz import join_npz
from gtrl.runs import checkpoints as checkpoint
from gtrl.tasks import ogbench_task
from gtrl.training import config, driver, loop, monitor
from gtrl.training.session import Callback

pytestmark = pytest.mark.usefixtures("in_process_file")

MINI = "pointmaze-mini-navigate"
ROWS = 201  # of an episode
Write = Callable[..., Path]


# --- collecting ---

EPISODES, SIZES = 31, (10, 10, 11)  # and three for validation, one per shard


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three shards. Must not be modified."""
    return collect(MINI, tmp_path_factory.mktemp("data") / "sharded", episodes=EPISODES, shards=3, seed=4, workers=1)


def shard_files(folder: Path, suffix: str = "") -> list[Path]:
    return [folder / f"{MINI}-v0-00{shard}{suffix}.npz" for shard in range(3)]


def test_shards_divide_the_single_file(sharded: Path, tmp_path: Path) -> None:
    single = collect(MINI, tmp_path / "a.npz", episodes=EPISODES, seed=4, workers=1)
    names = [f"{MINI}-v0-00{shard}{end}" for shard in range(3) for end in (".npz", "-val.npz", ".origin.json")]
    assert sorted(path.name for path in sharded.iterdir()) == sorted(names)
    assert list(sharded.parent.iterdir()) == [sharded]  # no work folder is left
    for suffix, sizes in (("", SIZES), ("-val", (1, 1, 1))):
        pieces = [dict(np.load(path)) for path in shard_files(sharded, suffix)]
        assert [len(piece["terminals"]) for piece in pieces] == [size * ROWS for size in sizes]
        whole = np.load(single.with_stem(f"a{suffix}"))
        for key in whole:
            np.testing.assert_array_equal(np.concatenate([piece[key] for piece in pieces]), whole[key])


def test_ogbench_reads_each_shard(sharded: Path) -> None:
    for path, episodes in zip([*shard_files(sharded), *shard_files(sharded, "-val")], (*SIZES, 1, 1, 1), strict=True):
        read = ogbench.load_dataset(path)
        assert read["observations"].shape == read["next_observations"].shape == (200 * episodes, 2)


@pytest.mark.parametrize(
    ("episodes", "shards", "sizes", "held_out"),
    [
        (10, 3, [3, 3, 4], [1, 1, 1]),  # at least one for validation in each
        (7, 7, [1] * 7, [1] * 7),
        (1000, 7, [142, *[143] * 6], [14, 14, 14, 15, 14, 14, 15]),
        (1, 1, [1], [1]),
    ],
)
def test_sizes_of_shards(episodes: int, shards: int, sizes: list[int], held_out: list[int]) -> None:
    pairs = Plan(ogbench_task(MINI), Path("a"), episodes, shards).files
    for split, expected in zip(zip(*pairs, strict=True), (sizes, held_out), strict=True):
        assert [len(file.episodes) for file in split] == expected
        assert [index for file in split for index in file.episodes] == list(range(sum(expected)))


@pytest.mark.parametrize(
    ("out", "options", "error", "message"),
    [
        ("a.npz", {"shards": 3}, DataError, r"a\.npz must be a folder, without \.npz at its end: .*\.$"),
        ("a", {"shards": 1}, DataError, r"a must end in \.npz\.$"),
        ("a", {"shards": 6}, ConfigError, "^shards is 6 and must be between 1 and the number of episodes.$"),
        ("a", {"shards": 0}, ConfigError, "^shards is 0 and must be between 1 and the number of episodes.$"),
    ],
)
def test_invalid_combinations_are_rejected(
    out: str, options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        collect(MINI, tmp_path / out, episodes=5, **options)
    assert not list(tmp_path.iterdir())


def test_collection_interrupted_between_shards_resumes(
    sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crash_at_the_second(plan: Plan, shard: Any) -> None:
        if shard[0].path.name.endswith("-001.npz"):
            raise Crash
        files_join(plan, shard)

    files_join, out = files._join, tmp_path / "again"
    with monkeypatch.context() as patch:
        patch.setattr(files, "_join", crash_at_the_second)
        with pytest.raises(Crash):
            collect(MINI, out, episodes=EPISODES, shards=3, seed=4, workers=1)
    first = [shard_files(out)[0], shard_files(out, "-val")[0]]
    assert sorted(path for path in out.iterdir() if path.suffix == ".npz") == sorted(first)
    marks = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in first]
    collect(MINI, out, episodes=EPISODES, shards=3, seed=4, workers=1)
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in first] == marks
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in sharded.iterdir()
    }
    assert list(tmp_path.iterdir()) == [out]


# --- joining ---


def test_joining_holds_about_one_part_in_memory(tmp_path: Path) -> None:
    rng, megabyte = np.random.default_rng(0), 2**20
    arrays = [
        {"observations": rng.random((2**15, 8), np.float32), "terminals": rng.random(2**15) < 0.1} for _ in range(40)
    ]
    assert arrays[0]["observations"].nbytes == megabyte
    parts = [tmp_path / f"{index}.npz" for index in range(40)]
    for part, its in zip(parts, arrays, strict=True):
        np.savez(part, **its)  # pyright: ignore[reportArgumentType]
    tracemalloc.start()
    join_npz(tmp_path / "joined.npz", parts)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert megabyte < peak < 6 * megabyte
    with np.load(tmp_path / "joined.npz") as joined:
        assert joined.files == ["observations", "terminals"]
        for key in joined.files:
            np.testing.assert_array_equal(joined[key], np.concatenate([its[key] for its in arrays]))


def test_joined_bytes_depend_on_the_rows_alone(tmp_path: Path) -> None:
    rows = {"a": np.arange(24, dtype=np.float32).reshape(12, 2), "b": np.arange(12) % 4 == 3}
    for name, sizes in (("one", [12]), ("three", [4, 4, 4]), ("uneven", [1, 9, 2])):
        bounds = [0, *itertools.accumulate(sizes)]
        for start, stop in itertools.pairwise(bounds):
            np.savez(tmp_path / f"{name}-{start}.npz", **{key: value[start:stop] for key, value in rows.items()})  # pyright: ignore[reportArgumentType]
        join_npz(tmp_path / f"{name}.npz", [tmp_path / f"{name}-{start}.npz" for start in bounds[:-1]])
    assert len({(tmp_path / f"{name}.npz").read_bytes() for name in ("one", "three", "uneven")}) == 1
    with zipfile.ZipFile(tmp_path / "one.npz") as archive:  # nor on the time
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


# --- reading a folder ---


def test_folder_lists_its_shards_by_name(write_file: Write, tmp_path: Path) -> None:
    for name, value in (("b", 1.0), ("a", 2.0), ("a-val", 3.0), ("c", 4.0)):
        write_file(f"{name}.npz", qpos=np.full((9, 2), value))
    data = load_dataset(tmp_path, MINI)
    assert data.shards == tuple(tmp_path / f"{name}.npz" for name in "abc")
    assert data.source == str(tmp_path)
    assert data.validation is not None
    assert (data.train.goals == 2).all()  # the first is on the device
    assert (data.validation.goals == 3).all()
    digests = [hashlib.sha256((tmp_path / f"{name}.npz").read_bytes()).hexdigest() for name in ("a", "a-val", "b", "c")]
    assert data.digest == hashlib.sha256("".join(digests).encode()).hexdigest()


def test_digest_depends_on_every_file(write_file: Write, tmp_path: Path) -> None:
    names = [f"{name}{suffix}.npz" for name in "abc" for suffix in ("", "-val")]
    for name in names:
        write_file(name)
    seen = {load_dataset(tmp_path, MINI).digest}
    for name in names:
        write_file(name, qvel=np.eye(9, 2))
        seen.add(load_dataset(tmp_path, MINI).digest)
    (tmp_path / "c-val.npz").unlink()
    assert len(seen | {load_dataset(tmp_path, MINI).digest}) == 8


def test_folder_without_data_is_rejected(tmp_path: Path, write_file: Write) -> None:
    write_file("a-val.npz")
    with pytest.raises(DataError, match=rf"^there is no dataset file \(\.npz\) in the folder {tmp_path}\.$"):
        load_dataset(tmp_path)


# --- which shard when ---


def rows_of(value: float) -> Dataset:
    return make_dataset(np.full((4, 2), value), np.zeros((4, 2)), np.arange(4) == 3)


def in_shards(count: int) -> Data:
    """Data whose shards are numbers, for the patched `load_shard`."""
    return Data(rows_of(0), shards=tuple(Path(str(shard)) for shard in range(count)))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which shards were loaded, in order; the rows of shard k hold k."""
    seen: list[int] = []

    def load(path: Path, *_: object) -> Data:
        seen.append(int(path.name))
        return Data(rows_of(seen[-1]))

    monkeypatch.setattr(rotation, "load_shard", load)
    return seen


@pytest.mark.usefixtures("loads")
def test_step_determines_the_shard() -> None:
    turning = Rotation(in_shards(3), 5)
    table = {0: (0, 5), 4: (0, 5), 5: (1, 10), 9: (1, 10), 10: (2, 15), 14: (2, 15), 15: (0, 20), 29: (2, 30)}
    for step, (shard, end) in table.items():
        assert (float(turning.at(step).train.observations[0, 0]), turning.next_switch(step)) == (shard, end)
    turning.loader.shutdown(wait=True)
    resumed = Rotation(in_shards(3), 5)
    assert float(resumed.at(22).train.observations[0, 0]) == 1
    resumed.loader.shutdown(wait=True)


def test_each_shard_is_loaded_once_per_round(loads: list[int]) -> None:
    turning = Rotation(in_shards(3), 5)
    for step in range(30):
        turning.at(step)
    turning.loader.shutdown(wait=True)
    assert loads == [1, 2, 0, 1, 2, 0]  # the last one for step 30


@pytest.mark.parametrize("shards", [(), (Path("a.npz"),)])
def test_single_file_stays_loaded(shards: tuple[Path, ...], loads: list[int]) -> None:
    data = Data(rows_of(7), shards=shards)
    turning = Rotation(data, 5)
    for step in (0, 5, 1000):
        assert turning.at(step) is data
        assert turning.next_switch(step) is None
    turning.loader.shutdown(wait=True)
    assert loads == []


def test_the_next_shard_loads_while_this_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, let_go = threading.Event(), threading.Event()

    def slow(path: Path, *_: object) -> Data:
        begun.set()
        assert let_go.wait(30)
        return Data(rows_of(int(path.name)))

    monkeypatch.setattr(rotation, "load_shard", slow)
    turning = Rotation(in_shards(3), 5)
    assert float(turning.at(0).train.observations[0, 0]) == 0  # it does not block
    assert begun.wait(30)  # and the next one is being loaded
    let_go.set()
    assert float(turning.at(5).train.observations[0, 0]) == 1
    turning.loader.shutdown(wait=True)


def test_two_shards_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Any]] = []

    def load(path: Path, *_: object) -> Data:
        data = dataclasses.replace(in_shards(4), train=rows_of(int(path.name)))
        made.append(weakref.ref(data.train.observations))
        return data

    monkeypatch.setattr(rotation, "load_shard", load)
    turning = Rotation(load(Path("0"), None), 5)
    alive = []
    for step in range(0, 40, 5):
        turning.at(step)
        turning.loader.submit(lambda: None).result()  # the next one is loaded
        gc.collect()
        alive.append(sum(ref() is not None for ref in made))
    assert alive == [2] * 8


# --- training ---

SETTINGS: dict[str, Any] = {
    "seeds": [0], "steps": 20, "shard_steps": 5, "hidden": (8,), "batch_size": 32, "log_every": 10, "show": False,
}  # fmt: skip


def assert_same_run(one: gtrl.Run, other: gtrl.Run) -> None:
    assert (one.path / "metrics.jsonl").read_bytes() == (other.path / "metrics.jsonl").read_bytes()
    with np.load(one.policy_path(0)) as policy, np.load(other.policy_path(0)) as same:
        assert policy.files == same.files
        for key in policy.files:
            np.testing.assert_array_equal(policy[key], same[key])


@pytest.fixture(scope="module")
def run(sharded: Path, tmp_path_factory: pytest.TempPathFactory) -> gtrl.Run:
    return gtrl.train("bc", load_dataset(sharded, MINI), out=tmp_path_factory.mktemp("runs") / "whole", **SETTINGS)


def test_training_uses_the_shards_in_turn(run: gtrl.Run, sharded: Path) -> None:
    """By hand: five steps on each shard, with metrics summed from log to log."""
    shards = [load_dataset(path, MINI) for path in shard_files(sharded)]
    algorithm, keys = gtrl.make("bc", ogbench_task(MINI), hidden=(8,)), loop.seed_keys([0])
    update = config.Training(batch_size=32).update
    states = loop.init(algorithm, update, shards[0].train.spec, keys, shards[0].train)
    logged = []
    for shard, logs in zip([*shards, shards[0]], (False, True, False, True), strict=True):
        states = loop.advance(algorithm, update, states, keys, shard.train, 5)
        if logs:
            assert shard.validation is not None
            held_out = monitor.validate(algorithm, update, states, keys, shard.validation)
            logged.append((float(states.sums["loss"][0] / 10), float(held_out["loss"][0])))
            states = states.reset_metrics()
    found = checkpoint.restore(run.checkpoints, 20, states)
    jax.tree.map(np.testing.assert_array_equal, found, states)
    assert [(row["loss"], row["validation/loss"]) for row in run.metrics()] == logged
    alone = loop.init(algorithm, update, shards[0].train.spec, keys, shards[0].train)
    alone = loop.advance(algorithm, update, alone, keys, shards[0].train, 20)
    differs = jax.tree.map(lambda one, other: not np.array_equal(one, other), found.nets, alone.nets)
    assert any(jax.tree.leaves(differs))  # so the others were read


@pytest.mark.parametrize("chunk", [1, 3])
def test_chunk_length_does_not_change_the_result(
    chunk: int, run: gtrl.Run, sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "FIXED_CHUNK_STEPS", chunk)
    assert_same_run(gtrl.train("bc", load_dataset(sharded, MINI), out=tmp_path / "run", **SETTINGS), run)


def test_resumed_run_equals_an_uninterrupted_run(
    run: gtrl.Run, sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at step 17; resumes from the checkpoint at 14, the last step but one on the third shard."""

    class Stopping(Callback):
        def on_step(self, step: int) -> None:
            if step == 17:
                raise KeyboardInterrupt

    data, out = load_dataset(sharded, MINI), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(driver, "FIXED_CHUNK_STEPS", 1)
        with pytest.raises(KeyboardInterrupt):
            gtrl.train("bc", data, out=out, checkpoint_every=7, callbacks=[Stopping()], **SETTINGS)
    assert checkpoint.steps(out / "checkpoints") == [7, 14]
    with pytest.raises(RunError, match=r"training\.shard_steps was 5 and is 6 now"):
        gtrl.train("bc", data, out=out, resume=True, **{**SETTINGS, "shard_steps": 6})
    assert_same_run(gtrl.train("bc", data, out=out, resume=True, **SETTINGS), run)


def test_config_records_the_origin_of_the_data(run: gtrl.Run, sharded: Path) -> None:
    found = run.config["data"]
    pairs = zip(shard_files(sharded), shard_files(sharded, "-val"), strict=True)
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for pair in pairs for path in pair]
    assert found["digest"] == hashlib.sha256("".join(digests).encode()).hexdigest()
    assert (found["shards"], found["source"]) == (3, str(sharded))
    origin = json.loads(shard_files(sharded)[0].with_suffix(".origin.json").read_text())
    assert (origin["from"], origin["seed"], origin["shards"]) == ("collected", 4, 3)
    assert origin.pop("sha256")
    assert found["origin"] == origin
    assert run.config["training"]["shard_steps"] == 5


def test_mismatched_shard_is_named_before_training(write_file: Write, tmp_path: Path) -> None:
    for name in "abc":
        write_file(f"{name}.npz")
    data = load_dataset(tmp_path)
    assert data.counts == {"rows": 27, "transitions": 21, "validation_rows": 0}
    write_file("c.npz", observations=np.zeros((9, 3)))
    with pytest.raises(DataError, match=r"/c\.npz: its dimensions differ from those of a\.npz\.$"):
        load_dataset(tmp_path)
    (tmp_path / "c.npz").write_bytes((tmp_path / "b.npz").read_bytes()[:500])
    with pytest.raises(DataError, match=r"/c\.npz is not a readable npz file"):
        load_dataset(tmp_path)


def test_changed_shard_stops_training(write_file: Write, tmp_path: Path) -> None:
    for name in "abc":
        write_file(f"{name}.npz")
    data = load_dataset(tmp_path)
    write_file("c.npz", observations=np.zeros((9, 3)))
    out, how = tmp_path / "run", {**SETTINGS, "log_every": 5, "checkpoint_every": 5}
    with pytest.raises(DataError, match=r"/c\.npz: its dimensions differ from those of a\.npz\.$"):
        gtrl.train("bc", data, out=out, **how)
    assert [row["step"] for row in gtrl.Run(out).metrics()] == [5, 10]
    assert checkpoint.steps(out / "checkpoints") == [5, 10]

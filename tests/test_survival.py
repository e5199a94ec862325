"""Fault tolerance: checkpoints, resume, signals, locks, full disks, non-finite values, lost workers."""

import errno
import gc
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from failing_jobs import die_once, run_and_die_once

import gtrl
from gtrl import workers
from gtrl.algorithms import make
from gtrl.data.dataset import Data
from gtrl.data.load import load_dataset
from gtrl.errors import ConfigError, EpisodeError, Interrupted, RunError, WorkerError
from gtrl.evaluation import evaluate as evaluation
from gtrl.evaluation import rollout
from gtrl.evaluation.during import EvaluateDuring
from gtrl.evaluation.evaluate import evaluate
from gtrl.io import npz
from gtrl.io.atomic import atomic_write, remove_partial
from gtrl.io.jsonl import read_rows
from gtrl.io.locks import locked, wait_for_lock
from gtrl.runs import checkpoints as checkpoint
from gtrl.runs.run import Run
from gtrl.tasks import find_task
from gtrl.training import compilation as programs
from gtrl.training import config, driver, loop, watch
from gtrl.training import resume as resuming
from gtrl.training.callbacks import MetricsFile
from gtrl.training.session import Callback
from gtrl.training.signals import Stop
from gtrl.workers import map_unordered

MINI = "pointmaze-mini-navigate"
ROOT = Path(__file__).parents[1]
SETTINGS: dict[str, Any] = {
    "seeds": [0, 5], "steps": 40, "batch_size": 32, "hidden": (8,), "log_every": 10, "checkpoints": (20,),
    "show": False,
}  # fmt: skip
Train = Callable[..., Run]


@pytest.fixture(scope="module")
def data(mini_file: Path) -> Data:
    return load_dataset(mini_file, MINI)


@pytest.fixture(scope="module")
def uninterrupted(data: Data, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run without any fault. Must not be modified."""
    return gtrl.train("gtrl", data, out=tmp_path_factory.mktemp("uninterrupted") / "run", **SETTINGS)


@pytest.fixture
def train(data: Data, tmp_path: Path) -> Train:
    def train(chunk: int | None = None, **how: Any) -> Run:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(driver, "FIXED_CHUNK_STEPS", chunk)
            return gtrl.train("gtrl", data, **{"out": tmp_path / "run", "resume": True, **SETTINGS, **how})

    return train


def arrays(path: Path) -> dict[str, bytes]:
    with np.load(path) as file:
        return {key: file[key].tobytes() for key in file.files}


def assert_same(run: Run, uninterrupted: Run) -> None:
    """Parameters, moments, targets, policies and the log, to the last bit."""
    for step in (20, 40):
        names = [f"checkpoints/{step}.npz", *(f"policies/step-{step}/seed-{seed}.npz" for seed in (0, 5))]
        for name in names:
            assert arrays(run.path / name) == arrays(uninterrupted.path / name)
    assert (run.path / "metrics.jsonl").read_bytes() == (uninterrupted.path / "metrics.jsonl").read_bytes()
    assert not [*run.path.rglob("*.partial"), *run.path.glob("lock")]


class At(Callback):
    """Calls a function at a step."""

    def __init__(self, step: int, act: Callable[[], Any]) -> None:
        self.step, self.act = step, act

    def on_step(self, step: int) -> None:
        if step == self.step:
            self.act()


# --- checkpoints ---


def some_state(fill: float = 0.0) -> dict[str, np.ndarray]:
    return {"a": np.full((2, 50), fill, np.float32), "b": np.arange(6, dtype=np.uint32)}


def test_newest_and_permanent_checkpoints_are_kept(tmp_path: Path) -> None:
    written = []
    with checkpoint.Writer(tmp_path, {2, 9}, 2) as writer:
        for step in range(1, 8):
            writer.save(step, some_state(step), then=lambda step=step: written.append(step))
    assert checkpoint.steps(tmp_path) == [2, 6, 7]
    assert written == list(range(1, 8))
    assert float(checkpoint.restore(tmp_path, 6, some_state())["a"][0, 0]) == 6


def test_background_write_errors_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_npz", full)
    writer = checkpoint.Writer(tmp_path, set(), 2)
    writer.save(1, some_state())
    with pytest.raises(OSError, match="No space left"):
        writer.save(2, some_state())
    with pytest.raises(OSError, match="No space left"), checkpoint.Writer(tmp_path, set(), 2) as writer:
        writer.save(3, some_state())


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.soak)])
def test_flipped_bits_are_detected(count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = some_state(0.5)
    checkpoint.save(tmp_path, 1, state)
    path = tmp_path / "1.npz"
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    rejected = 0
    for _ in range(count):
        bad = bytearray(good)
        bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
        path.write_bytes(bytes(bad))
        try:
            found = checkpoint.restore(tmp_path, 1, state)
        except RunError:
            rejected += 1
        else:
            assert all(np.array_equal(found[key], state[key]) for key in state)
    assert rejected > count / 2  # array data is most of the file
    capsys.readouterr()


def test_damaged_checkpoint_is_moved_aside_for_the_previous_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert checkpoint.newest(tmp_path, some_state()) == (0, None)
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, some_state(step))
    (tmp_path / "3.npz").write_bytes((tmp_path / "3.npz").read_bytes()[:200])
    (tmp_path / "2.npz").write_bytes(b"")
    step, state = checkpoint.newest(tmp_path, some_state())
    assert (step, float(state["a"][0, 0])) == (1, 1.0)
    assert f"{tmp_path}/3.npz is not a readable npz file" in caplog.text
    assert "renamed to 2.npz.damaged" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.npz", "2.npz.damaged", "3.npz.damaged"]


def test_checkpoint_of_another_run_is_not_moved_aside(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, some_state())
    with pytest.raises(RunError, match=r"does not fit this run: \['a'\] is float32\(2, 50\), not float32\(3,\)"):
        checkpoint.newest(tmp_path, {"a": np.zeros(3, np.float32)})
    assert checkpoint.steps(tmp_path) == [1]


def test_unreadable_checkpoint_is_not_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 1, some_state())
    for raised, message in (
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (MemoryError(), "too large"),
    ):

        def fail(*_: Any, raised: BaseException = raised) -> Any:
            raise raised

        with monkeypatch.context() as patch:
            patch.setattr(npz.np, "frombuffer", fail)  # while an array is read
            with pytest.raises(RunError, match=message):
                checkpoint.newest(tmp_path, some_state())
    assert checkpoint.steps(tmp_path) == [1]


# --- resuming ---


@pytest.mark.parametrize(("step", "number"), [(7, "SIGINT"), (26, "SIGTERM")])
def test_signal_saves_a_checkpoint_and_the_run_resumes_bit_for_bit(
    step: int, number: str, train: Train, uninterrupted: Run, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    def arrive() -> None:
        signal.raise_signal(signal.Signals[number])
        time.sleep(0.2)  # for the listening thread

    with pytest.raises(Interrupted) as ended:
        train(chunk=1, callbacks=[At(step, arrive)], handle_signals=True)
    assert f"the checkpoint of step {step} is saved; --resume continues from there" in str(ended.value)
    assert ended.value.signal == signal.Signals[number]
    assert "stopping after a checkpoint" in caplog.text
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    run = train()
    assert checkpoint.steps(run.checkpoints) == sorted({step, 20, 40})
    assert_same(run, uninterrupted)


def test_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    """Also while Python runs no bytecode, as in a compilation: here, a wait that no handler interrupts."""
    program = """
import ctypes, os, signal, threading, time
from gtrl.training.signals import Stop
with Stop():
    def press():
        for _ in range(2):
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=press, daemon=True).start()
    for _ in range(20): ctypes.CDLL(None).usleep(900000)
"""
    start_time = time.monotonic()
    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=tmp_path).returncode == 130
    assert time.monotonic() - start_time < 15


def test_signals_are_not_handled_outside_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def enter() -> None:
        with Stop() as stop:
            seen.append((stop.received, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [(None, before)]


@pytest.mark.parametrize("step", [20, 40])
def test_resume_with_damaged_checkpoints(step: int, train: Train, uninterrupted: Run, tmp_path: Path) -> None:
    """With 40 damaged it resumes from 20; with both, from the start."""
    shutil.copytree(uninterrupted.path, tmp_path / "run")
    for damaged in {step, 40}:
        path = tmp_path / "run" / "checkpoints" / f"{damaged}.npz"
        path.write_bytes(path.read_bytes()[:-7])
    assert_same(train(), uninterrupted)
    assert (tmp_path / "run" / "checkpoints" / "40.npz.damaged").exists()


def test_checkpoints_by_time(train: Train, uninterrupted: Run) -> None:
    run = train(checkpoint_minutes=1e-9, keep=2, chunk=3)
    assert checkpoint.steps(run.checkpoints) == [20, 36, 39, 40]  # permanent, the newest two, permanent
    assert sorted(path.name for path in (run.path / "policies").iterdir()) == ["step-20", "step-40"]
    assert_same(run, uninterrupted)


def test_full_disk_stops_training_and_it_resumes(
    train: Train, uninterrupted: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, left = checkpoint.write_npz, iter([True, True, False])

    def full(*args: Any, **options: Any) -> None:
        if not next(left):
            with atomic_write(args[0]) as file:
                file.write(b"incomplete")
                raise OSError(errno.ENOSPC, "No space left on device")
        written(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_npz", full)
        message = r"/run cannot be written \(No space left on device\); the checkpoint of step 20 is good, and --resume"
        with pytest.raises(RunError, match=message):
            train(checkpoint_every=10)
    assert_same(train(), uninterrupted)


def test_second_process_on_a_run_is_rejected(train: Train, uninterrupted: Run, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    holds = (
        "import sys; from pathlib import Path; from gtrl.io.locks import locked\nwith locked(Path(sys.argv[1]), 'x'):"
    )
    command = [sys.executable, "-c", f"{holds}\n    print(flush=True); input()", tmp_path / "run" / "lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(RunError, match=r"another process is training in .*/run"):
            train()
        holder.kill()  # the lock is released in any case
    assert_same(train(), uninterrupted)


def test_waiting_for_a_lock(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with wait_for_lock(tmp_path / "lock"):
            order.append("second")

    with locked(tmp_path / "lock", "first"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert not list(tmp_path.iterdir())


def test_config_changes_are_rejected_or_recorded(train: Train, uninterrupted: Run, tmp_path: Path) -> None:
    shutil.copytree(uninterrupted.path, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "40.npz").unlink()
    rows = [
        {
            "algorithm": "gtrl",
            "task": MINI,
            "seed": 0,
            "step": step,
            "goal": "task1",
            "episodes": 1,
            "successes": 1,
            "base_seed": 0,
        }
        for step in (20, 40)
    ]
    Run(tmp_path / "run").add_evaluations(rows)
    message = r"algorithm.alpha was 0.05 and is 0.7 now, training.batch_size was 32 and is 8 now; .* --accept-changes"
    with pytest.raises(RunError, match=message):
        train(alpha=0.7, batch_size=8)
    with pytest.raises(RunError, match="does not fit this run"):
        train(hidden=(4,), accept_changes=True)
    assert len(Run(tmp_path / "run").evaluations()) == 2
    run = train(alpha=0.7, batch_size=8, accept_changes=True)
    changed = {"algorithm.alpha": [0.05, 0.7], "training.batch_size": [32, 8]}
    assert run.config["changes"] == [{"step": 20, "changed": changed}]
    # Evaluations of later steps belong to the old config and must be removed.
    assert run.evaluations() == rows[:1]
    assert arrays(run.policy_path(0, 20)) == arrays(uninterrupted.policy_path(0, 20))
    assert arrays(run.policy_path(0, 40)) != arrays(uninterrupted.policy_path(0, 40))
    with pytest.raises(RunError, match=r"training.batch_size was 8 and is 32 now"):
        train(alpha=0.7)


def test_another_version_counts_as_a_change(
    train: Train, uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(uninterrupted.path, tmp_path / "run")
    monkeypatch.setattr(resuming, "__version__", "99")
    monkeypatch.setattr(resuming.importlib.metadata, "version", lambda _: "98")
    with pytest.raises(RunError, match=r'gtrl was "0.*" and is "99" now, versions.jax was .* is "98" now'):
        train()


def test_more_steps_and_moved_files_are_not_a_change(
    train: Train, uninterrupted: Run, mini_file: Path, tmp_path: Path
) -> None:
    """A run that was moved with its data, and had fewer steps before: its last row is not a row of the longer run."""
    train(steps=13)
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    for suffix in ("", "-val"):
        shutil.copy(mini_file.with_stem(mini_file.stem + suffix), tmp_path)
    data = load_dataset(tmp_path / mini_file.name, MINI)
    assert_same(gtrl.train("gtrl", data, **SETTINGS, out=moved, resume=True), uninterrupted)


def test_copy_without_checkpoints_is_not_restarted(train: Train, uninterrupted: Run, tmp_path: Path) -> None:
    run = Run(shutil.copytree(uninterrupted.path, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints")))
    log = (run.path / "metrics.jsonl").read_bytes()
    for how in ({}, {"accept_changes": True, "alpha": 0.7}):
        with pytest.raises(RunError, match="has policies but no checkpoint to resume from"):
            train(**how)
    assert (run.path / "metrics.jsonl").read_bytes() == log
    assert run.policy_steps == [20, 40]


def test_resume_needs_out(train: Train) -> None:
    with pytest.raises(ConfigError, match="--resume needs --out"):
        train(out=None)


def test_changed_arrays_count_as_other_data(data: Data, tmp_path: Path) -> None:
    for change, rejected in ((0.0, False), (1.0, True)):
        observations = data.train.observations + change
        other = Data(data.train._replace(observations=observations), task=data.task)
        if rejected:
            with pytest.raises(RunError, match=r"data\.digest was"):
                gtrl.train("bc", other, out=tmp_path / "run", resume=True, **SETTINGS)
        else:
            gtrl.train("bc", other, out=tmp_path / "run", **SETTINGS)


def test_partial_files_of_running_processes_are_kept(tmp_path: Path) -> None:
    host = socket.gethostname().replace(".", "-")
    living = tmp_path / f"a.npz.{host}.{os.getppid()}.partial"
    dead = tmp_path / "deep" / f"b.npz.{host}.999999999.partial"
    dead.parent.mkdir()
    for path in (living, dead):
        path.touch()
    remove_partial(tmp_path)
    assert living.exists()
    assert not dead.exists()


@pytest.mark.usefixtures("in_process")
def test_steps_without_policies_are_not_evaluated(train: Train, caplog: pytest.LogCaptureFixture) -> None:
    train(steps=20)
    run = train(steps=20, checkpoint_every=5, callbacks=[EvaluateDuring(1, workers=1)])
    assert {row["step"] for row in run.evaluations()} == {20}
    assert "failed" not in caplog.text


def test_first_shard_and_states_are_released(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither shard nor states are referenced outside `fit`."""
    kept = []

    def fit(_: Any, __: Any, states: Any, keys: Any, rotation: Any, **___: Any) -> None:
        observations = weakref.ref(rotation.current[1].train.observations)
        first = weakref.ref(jax.tree.leaves(states)[0])
        rotation.current = (1, None)
        del states, keys
        gc.collect()
        kept.extend([observations() is None, first() is None])

    arrays = jax.tree.map(jnp.copy, data.train)
    given = [Data(arrays, task=data.task)]
    del arrays
    monkeypatch.setattr(driver, "fit", fit)
    # No ** here: such a call keeps references to its arguments.
    gtrl.train("bc", given.pop(), out=tmp_path / "run", steps=4, batch_size=16, hidden=(8,), seeds=[0], show=False)
    assert kept == [True, True]


def test_damaged_log_is_reported(train: Train, uninterrupted: Run, tmp_path: Path) -> None:
    shutil.copytree(uninterrupted.path, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 10}\n{"st\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 2 is not JSON"):
        train(steps=50)


def test_step_with_missing_policies_does_not_count(uninterrupted: Run, tmp_path: Path) -> None:
    run = Run(shutil.copytree(uninterrupted.path, tmp_path / "run"))
    run.policy_path(5, 40).unlink()
    assert run.policy_steps == [20]


WITH_CACHE = """
import json, sys
from pathlib import Path
import gtrl
from gtrl.training import compilation as programs
programs.backend, programs.MIN_COMPILE_SECONDS = lambda: "gpu", 0.0
data, out, steps = gtrl.load_dataset(sys.argv[1], sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
how = {"hidden": (8,), "batch_size": 16, "seeds": [0], "log_every": 10, "show": False}
gtrl.train("bc", data, out=out, steps=steps, resume=True, **how)
print(json.dumps({path.name: path.stat().st_mtime_ns for path in (out / "programs").rglob("*") if path.is_file()}))
"""


def test_gpu_run_resumes_with_its_own_compilation_cache(mini_file: Path, tmp_path: Path) -> None:
    """Also if the cache in the home directory is gone; here a CPU stands in for the GPU."""
    shutil.copy(mini_file, tmp_path / "data.npz")  # without validation, which would compile another program

    def train(run: str, steps: int) -> dict[str, int]:
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "home")}
        del environment["JAX_COMPILATION_CACHE_DIR"]
        command = [sys.executable, "-W", "ignore", "-c", WITH_CACHE, "data.npz", MINI, run, str(steps)]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    first = train("run", 20)
    assert any("advance" in name for name in first)
    shutil.rmtree(tmp_path / "home")
    assert train("run", 30) == first  # nothing was compiled again
    cached = [path for path in (tmp_path / "home").rglob("*-cache") if "advance" in path.name]
    assert [path.name for path in cached] == [name for name in first if "advance" in name]
    train("other", 20)
    for path in cached:
        assert (tmp_path / "other" / "programs" / path.name).read_bytes() == path.read_bytes()


def test_compilation_cache_key_depends_on_the_program(uninterrupted: Run) -> None:
    config = uninterrupted.config
    kind = programs.program_key(config)
    same = config | {"seeds": [7, 8], "training": config["training"] | {"steps": 7, "keep": 1}}
    assert programs.program_key(same) == kind
    for other in (
        {"seeds": [1]}, {"device": "another"}, {"algorithm": config["algorithm"] | {"alpha": 3}},
        {"training": config["training"] | {"precision": "bfloat16"}}, {"data": config["data"] | {"rows": 9}},
    ):  # fmt: skip
        assert programs.program_key(config | other) != kind


# --- non-finite and implausible values ---


class SimpleState(NamedTuple):
    nets: Any
    sums: Any
    target: Any = None
    optimizer: Any = None


def test_first_non_finite_step_is_located() -> None:
    asked = []

    def advance(count: int) -> list[Any]:
        """Two parts of one seed; the loss of the second is infinite from the seventh step on."""
        asked.append(count)
        sums = [{"loss": jnp.full((1,), float(count))}, {"loss": jnp.where(count >= 7, jnp.inf, jnp.ones((1,)))}]
        return [SimpleState(nets={"critic": jnp.ones((1, 2))}, sums=each) for each in sums]

    error = watch.locate_non_finite(100, 50, advance)
    assert error.step == 107
    assert list(error.seeds) == [1]
    assert error.seeds[1]["metrics_not_finite"] == ["loss"]
    assert error.message([3, 4]) == "loss of seed 4 was not finite at step 107"
    assert len(asked) <= 8


@pytest.mark.parametrize("chunk", [1, 7, 40])
def test_non_finite_values_stop_training(chunk: int, train: Train, data: Data, tmp_path: Path) -> None:
    """Against single steps, until a value is not finite."""
    rate = 1e16
    algorithm, keys = make("gtrl", data.task, hidden=(8,)), loop.seed_keys([0, 5])
    update = config.Training(batch_size=32, learning_rate=rate).update
    states = loop.init(algorithm, update, data.train.spec, keys, data.train)
    first = 0
    while all(bool(jnp.isfinite(leaf).all()) for leaf in [states.sums["loss"], *jax.tree.leaves(states.nets)]):
        states = loop.advance(algorithm, update, states, keys, data.train, 1)
        first += 1
    assert 1 < first < 40
    with pytest.raises(RunError, match=rf"was not finite at step {first}, so training stopped; .*stopped.json"):
        train(learning_rate=rate, chunk=chunk, log_every=1, checkpoints=(1,), checkpoint_every=1)
    report = json.loads((tmp_path / "run" / "stopped.json").read_text())
    assert report["step"] == first
    assert report["checkpoint"] == first - 1  # the last finite one
    assert set(report["seeds"]) <= {"0", "5"}
    seen = next(iter(report["seeds"].values()))
    assert seen["metrics_not_finite"] or seen["state_not_finite"]
    assert {"nets.critic", "nets.actor", "target", "optimizer"} <= set(seen["largest_before"])
    assert np.isfinite(list(seen["largest_before"].values())).all()
    for step in checkpoint.steps(tmp_path / "run" / "checkpoints"):
        with np.load(tmp_path / "run" / "checkpoints" / f"{step}.npz") as file:
            assert all(np.isfinite(file[key]).all() for key in file.files)


def test_implausible_values_are_reported() -> None:
    fine = {"value/least": 0.0, "value/greatest": 1.0, "value/spread": 0.2}
    assert watch.value_warnings({}) == watch.value_warnings(fine) == {}
    assert watch.value_warnings({**fine, "value/greatest": 1.2}) == {
        "outside": "values leave [0, 1]: they lie between 0 and 1.2"
    }
    assert set(watch.value_warnings({**fine, "value/spread": 1e-5})) == {"collapsed"}
    assert set(watch.value_warnings({**fine, "value/least": float("nan")})) == {"outside"}


def test_warnings_are_recorded_and_shown_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def logged(start: int, *steps: int) -> None:
        session: Any = SimpleNamespace(run=Run(tmp_path), is_logged=lambda step: step <= start)
        file = MetricsFile()
        file.on_start(session)
        for step in steps:
            rows = [
                {"step": step, "seed": seed, "value/least": least, "value/greatest": 1.0, "value/spread": 0.5}
                for seed, least in ((0, 0.0), (5, -3.0))
            ]
            file.on_log(step, rows)
        file.on_end(None)

    logged(0, 10, 20)
    assert [(row["step"], row["seed"]) for row in read_rows(tmp_path / "warnings.jsonl")] == [(10, 5), (20, 5)]
    assert caplog.messages == ["step 10, seed 5: values leave [0, 1]: they lie between -3 and 1."]
    logged(10, 20)  # resumed from step 10
    assert [row["step"] for row in read_rows(tmp_path / "warnings.jsonl")] == [10, 20]
    assert [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")] == [10, 10, 20, 20]
    assert len(caplog.messages) == 1


def test_logged_value_range_matches_the_value_function(uninterrupted: Run, data: Data) -> None:
    """The logged range, against the value function itself on 4000 rows."""
    from gtrl.runs.restore import load_state

    algorithm, nets = load_state(uninterrupted, 40)
    last = [row for row in uninterrupted.metrics() if row["step"] == 40]
    rng = np.random.default_rng(0)
    rows, goals = rng.integers(len(data.train.goals), size=(2, 4000))
    for index, row in enumerate(last):
        one = jax.tree.map(lambda leaf, index=index: leaf[index], nets)
        values = np.asarray(algorithm.value(one, data.train.observations[rows], data.train.goals[goals]))
        assert values.min() - 0.05 <= row["value/least"] < row["value/greatest"] <= values.max() + 0.05
        assert row["value/spread"] == pytest.approx(values.std(), rel=0.5, abs=1e-3)


# --- workers ---


@pytest.mark.parametrize("how", [pytest.param("dies", marks=pytest.mark.soak), "hangs"])
def test_jobs_of_a_lost_worker_are_repeated(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FIRST_PATIENCE_SECONDS", 30.0)
    monkeypatch.setattr(workers, "MIN_PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(workers, "PATIENCE_FACTOR", 1.0)
    jobs = [(str(tmp_path), how, number) for number in range(8)]
    found = list(map_unordered(die_once, jobs, workers=2))
    assert sorted(found) == [(number, number * number) for number in range(8)]
    assert (tmp_path / "happened").exists()


def test_patience_follows_the_job_duration() -> None:
    hang_detector = workers.HangDetector()
    hang_detector.restart()
    assert hang_detector.limit_seconds == workers.FIRST_PATIENCE_SECONDS
    hang_detector.last_time -= 20
    assert not hang_detector.is_hanging(got_result=True)
    assert hang_detector.limit_seconds == pytest.approx(200, abs=1)
    assert not hang_detector.is_hanging(got_result=False)
    hang_detector.last_time -= 201
    assert hang_detector.is_hanging(got_result=False)


def test_work_can_be_cancelled() -> None:
    cancelled = threading.Event()
    threading.Timer(0.5, cancelled.set).start()
    start_time = time.monotonic()
    with pytest.raises(WorkerError, match="cancelled"):
        list(map_unordered(time.sleep, [60.0], workers=1, cancelled=cancelled))
    assert time.monotonic() - start_time < 30


# --- evaluation ---


@pytest.fixture(scope="module")
def evaluated(uninterrupted: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The uninterrupted run with both checkpoints evaluated in this process. Must not be modified."""
    run = Run(shutil.copytree(uninterrupted.path, tmp_path_factory.mktemp("evaluated") / "run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout, "map_unordered", lambda function, jobs, *_, **__: enumerate(map(function, jobs)))
        for step in (20, 40):
            evaluate(run, step=step, episodes=1, show=False)
    return run


@pytest.mark.parametrize(
    ("count", "killed"), [(2, True), *(pytest.param(*case, marks=pytest.mark.soak) for case in ((2, False), (3, True)))]
)
def test_table_does_not_depend_on_the_number_of_workers(
    count: int, killed: bool, evaluated: Run, uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if one of them is killed halfway."""
    run = Run(shutil.copytree(uninterrupted.path, tmp_path / "run"))
    if killed:
        monkeypatch.setattr(rollout, "_run_job", run_and_die_once)
    evaluate(run, step=40, episodes=1, workers=count, show=False)
    assert run.evaluations() == [row for row in evaluated.evaluations() if row["step"] == 40]
    assert (tmp_path / "happened").exists() == killed


def test_environment_error_names_task_goal_and_episode(
    uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(slot: Any, action: Any, step: Any = rollout.RunningEpisode.step) -> Any:
        if (slot.episode.goal, slot.episode.number, slot.length) == (4, 1, 2):
            raise ValueError("stumbled")
        return step(slot, action)

    run = Run(shutil.copytree(uninterrupted.path, tmp_path / "run"))
    monkeypatch.setattr(rollout.RunningEpisode, "step", stumble)
    monkeypatch.setattr(rollout, "map_unordered", lambda function, jobs, *_, **__: enumerate(map(function, jobs)))
    message = f"^{MINI}, task4, episode 1: the environment raised ValueError: stumbled$"
    with pytest.raises(EpisodeError, match=message):
        evaluate(run, episodes=2, show=False)
    evaluate(run, episodes=1, show=False)  # episode 0 does not fail
    assert len(run.evaluations()) == 10


def test_concurrent_evaluations_keep_all_rows(tmp_path: Path) -> None:
    run = Run(tmp_path)
    row = {"algorithm": "bc", "task": MINI, "step": 1, "goal": "task1", "episodes": 1, "successes": 1}

    def add(first: int) -> None:
        for seed in range(first, first + 10):
            run.add_evaluations([{**row, "seed": seed}])

    threads = [threading.Thread(target=add, args=(first,)) for first in (0, 10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each["seed"] for each in run.evaluations()] == list(range(30))
    assert [path.name for path in tmp_path.iterdir()] == ["eval.csv"]


class Seen(Callback):
    """Records the events of a run."""

    def __init__(self) -> None:
        self.checkpoints: list[tuple[int, bool]] = []
        self.evaluations: list[tuple[int, int]] = []

    def on_checkpoint(self, step: int, policies: bool) -> None:
        self.checkpoints.append((step, policies))

    def on_evaluation(self, step: int, rows: list[dict[str, Any]]) -> None:
        self.evaluations.append((step, len(rows)))


@pytest.mark.usefixtures("in_process")
def test_evaluation_during_training(train: Train, evaluated: Run) -> None:
    seen = Seen()
    run = train(callbacks=[EvaluateDuring(1, workers=1), seen])
    assert (run.path / "eval.csv").read_bytes() == (evaluated.path / "eval.csv").read_bytes()
    assert seen.checkpoints == [(20, True), (40, True)]
    assert seen.evaluations == [(20, 10), (40, 10)]
    # A resumed run evaluates only what is missing.
    kept = [row for row in run.evaluations() if row["step"] == 20]
    (run.path / "eval.csv").unlink()
    run.add_evaluations(kept)
    seen = Seen()
    train(callbacks=[EvaluateDuring(1, workers=1), seen])
    assert (run.path / "eval.csv").read_bytes() == (evaluated.path / "eval.csv").read_bytes()
    assert seen.evaluations == [(40, 10)]


def test_failing_evaluation_does_not_stop_training(
    train: Train, uninterrupted: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> Iterator[Any]:
        raise EpisodeError("stumbled")

    monkeypatch.setattr(evaluation, "roll_out", fail)
    with pytest.raises(RunError, match="training is complete, but an evaluation failed: stumbled"):
        train(callbacks=[EvaluateDuring(2)])
    assert "the evaluation of step 20 failed; training continues (stumbled)" in caplog.text
    assert_same(train(), uninterrupted)


def test_evaluation_ends_with_its_run(uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(shutil.copytree(uninterrupted.path, tmp_path / "run"))
    monkeypatch.setattr(rollout, "_run_job", lambda _: time.sleep(600))
    start_time = time.monotonic()
    during = EvaluateDuring(2, workers=1)
    training = config.Training(steps=40, checkpoints=(20,))
    session: Any = SimpleNamespace(
        run=run, task=find_task(MINI), seeds=[0, 5], training=training, start=20, stopping=True, stopped_at=None
    )
    during.on_start(session)
    time.sleep(0.5)
    during.on_end(None)  # as after a signal
    assert time.monotonic() - start_time < 60
    assert run.evaluations() == []


# --- real processes, killed at random moments ---

LONGER: dict[str, Any] = {**SETTINGS, "steps": 2000, "log_every": 100, "checkpoints": (1000,)}


def start_training(mini_file: Path, out: Path) -> subprocess.Popen:
    """Starts or resumes a run with the settings `LONGER` in its own process, with a checkpoint every 0.3 s."""
    sizes = "--seeds 0 5 --steps 2000 --log-every 100 --checkpoints 1000 --batch-size 32 --hidden 8".split()  # noqa: SIM905
    often = "--checkpoint-minutes 0.005 --resume".split()  # noqa: SIM905
    command = [sys.executable, "-W", "ignore", "-m", "gtrl", "train", "gtrl", "--task", MINI, "--data", mini_file]
    with out.with_suffix(".log").open("w") as log:
        return subprocess.Popen([*command, "--out", out, *sizes, *often], stdout=log, stderr=log)


def newest_checkpoint(run: Path) -> int:
    return max([*checkpoint.steps(run / "checkpoints"), 0])


def test_killed_process_resumes_bit_for_bit(data: Data, mini_file: Path, tmp_path: Path) -> None:
    """Killed, then terminated, each while it trains; the signals of test_cli.py and others are raised in-process."""
    moments = random.Random(0)
    path = tmp_path / "killed"
    for number, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 128 + signal.SIGTERM)):
        before = newest_checkpoint(path)
        process = start_training(mini_file, path)
        while newest_checkpoint(path) == before and process.poll() is None:
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.3))
        reached = newest_checkpoint(path)
        assert before < reached < 2000, path.with_suffix(".log").read_text()
        process.send_signal(number)
        assert process.wait(timeout=60) == status
        assert newest_checkpoint(path) >= reached
    text = path.with_suffix(".log").read_text()
    assert "Traceback" not in text
    assert "is saved" in text
    killed, uninterrupted = (
        gtrl.train("gtrl", data, out=tmp_path / name, resume=True, checkpoint_minutes=0.005, **LONGER)
        for name in ("killed", "uninterrupted")
    )
    assert (killed.path / "metrics.jsonl").read_bytes() == (uninterrupted.path / "metrics.jsonl").read_bytes()
    for step in (1000, 2000):
        for name in (f"checkpoints/{step}.npz", *(f"policies/step-{step}/seed-{seed}.npz" for seed in (0, 5))):
            assert arrays(killed.path / name) == arrays(uninterrupted.path / name), name
    assert not [*killed.path.rglob("*.partial"), *killed.path.glob("lock")]


@pytest.mark.soak
def test_faults_at_random_moments() -> None:
    """Every kind of fault of benchmarks/faults.py, twice."""
    command = [sys.executable, "benchmarks/faults.py", "--faults", "38"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every run ended as the undisturbed one" in " ".join(done.stdout.split())

"""`gtrl.train` as a library function: arguments, callbacks, user-defined optimisers and samplers, no side effects."""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import optax
import pytest

import gtrl
from gtrl.algorithms.bc import BC
from gtrl.data.dataset import Data, Dataset
from gtrl.data.load import load_dataset
from gtrl.data.sampling import Batch
from gtrl.errors import ConfigError, RunError
from gtrl.runs import checkpoints
from gtrl.runs.restore import algorithm_of
from gtrl.runs.run import new_directory
from gtrl.training import driver
from gtrl.training.callbacks import WandB
from gtrl.training.config import Training
from gtrl.training.session import Callback, Session

MINI = "pointmaze-mini-navigate"
SETTINGS: dict[str, Any] = {
    "steps": 20,
    "batch_size": 16,
    "hidden": (8,),
    "log_every": 10,
    "seeds": [0, 5],
    "show": False,
}


@pytest.fixture(scope="module")
def data(mini_file: Path) -> Data:
    """Without its validation set, which would compile another program."""
    return dataclasses.replace(load_dataset(mini_file, MINI), validation=None)


def losses(run: gtrl.Run) -> list[float]:
    return [row["loss"] for row in run.metrics()]


# --- arguments ---


def test_path_dataset_and_data_train_the_same(data: Data, mini_file: Path, tmp_path: Path) -> None:
    given = {"path": str(mini_file), "dataset": data.train, "data": data}
    runs = [
        gtrl.train("bc", what, task=None if name == "data" else MINI, out=tmp_path / name, **SETTINGS)
        for name, what in given.items()
    ]
    assert losses(runs[0]) == losses(runs[1]) == losses(runs[2])
    assert "validation/loss" in next(runs[0].metrics())
    assert [run.config["task"] for run in runs] == [MINI] * 3


def test_one_seed(data: Data, tmp_path: Path) -> None:
    run = gtrl.train("bc", data, out=tmp_path / "run", **{**SETTINGS, "seeds": 0})
    assert run.seeds == [0]
    with pytest.raises(ConfigError, match="different integers"):
        gtrl.train("bc", data, out=tmp_path / "other", **{**SETTINGS, "seeds": []})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden": 64}, r"hidden is 64 and must be .* such as \(64, 64\)"),
        ({"stepz": 5}, r"no field 'stepz': BC has .*hidden.*; training has .*batch_size.*\bsteps\b"),
        ({"gamma": 1 - 1e-9}, r"gamma is .* lie in \(0, 1\), also after rounding to float32"),
        ({"batch_size": 0}, "batch_size is 0 and must be a positive integer"),
    ],
)
def test_invalid_arguments_are_rejected(fields: dict[str, Any], message: str, data: Data, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        gtrl.train("bc", data, out=tmp_path / "run", **{**SETTINGS, **fields})
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True)
class Clashing(BC):
    """Has a field that training has too."""

    name: ClassVar = "clashing"
    title: ClassVar = "Clashing"

    steps: int = 7


def test_method_field_with_the_name_of_a_training_field(data: Data, tmp_path: Path) -> None:
    how = {name: value for name, value in SETTINGS.items() if name != "steps"}
    with pytest.raises(
        ConfigError, match=r"'steps' is a field of Clashing and of Training: give one as Clashing\(steps"
    ):
        gtrl.train(Clashing, data, out=tmp_path / "run", steps=20, **how)
    training = Training(steps=20, batch_size=16, log_every=10)
    run = gtrl.train(Clashing, data, out=tmp_path / "run", training=training, seeds=0, show=False, hidden=(8,), steps=3)
    assert (run.config["algorithm"]["steps"], run.config["training"]["steps"]) == (3, 20)
    run = gtrl.train(
        Clashing(hidden=(8,), steps=2), data, out=tmp_path / "object", training=training, seeds=0, show=False
    )
    assert run.config["algorithm"]["steps"] == 2


def test_algorithm_object_is_used_unchanged_with_a_warning(
    data: Data, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    how = {name: value for name, value in SETTINGS.items() if name != "hidden"}
    run = gtrl.train(BC(hidden=(8,)), data, out=tmp_path / "object", **how)
    assert run.config["algorithm"]["gamma"] == 0.99  # the class's, where the task has 0.995
    assert "BC differs from its defaults for pointmaze-mini-navigate: gamma is 0.99, not 0.995" in caplog.text
    assert f"gtrl.make('bc', '{MINI}') has the task's" in caplog.text
    caplog.clear()
    run = gtrl.train(gtrl.make("bc", MINI, hidden=(8,)), data, out=tmp_path / "made", **how)
    assert run.config["algorithm"]["gamma"] == 0.995
    assert not caplog.messages


# --- the run directory ---


def test_runs_started_in_the_same_second_get_different_directories(tmp_path: Path) -> None:
    paths = [new_directory(tmp_path / "runs") for _ in range(3)]
    assert len(set(paths)) == 3
    assert all(path.is_dir() for path in paths)


def test_out_must_not_be_a_file(data: Data, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunError, match=r"cannot be written \(.*\); choose another --out"):
            gtrl.train("bc", data, out=out, **SETTINGS)


def test_read_only_disk_is_reported(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(RunError, match=r"run cannot be written \(Read-only file system\); choose another --out"):
        gtrl.train("bc", data, out=tmp_path / "run", **SETTINGS)


def test_out_of_memory_leaves_the_directory_free(data: Data, tmp_path: Path) -> None:
    """Twenty terabytes for a batch."""
    with pytest.raises(RunError, match=r"not enough memory for this training .* smaller batch_size"):
        gtrl.train("bc", data, out=tmp_path / "run", **{**SETTINGS, "batch_size": 2**30, "hidden": (4096,)})
    assert losses(gtrl.train("bc", data, out=tmp_path / "run", **SETTINGS))


# --- resuming ---


def test_log_every_may_change_on_resume(data: Data, tmp_path: Path) -> None:
    """Earlier rows stay, and the next one is the mean over the steps since the last row."""
    single = gtrl.train("bc", data, out=tmp_path / "single", **{**SETTINGS, "log_every": 1, "seeds": 0})
    each = {row["step"]: row["loss"] for row in single.metrics()}
    how = {**SETTINGS, "seeds": 0, "checkpoint_every": 6}
    gtrl.train("bc", data, out=tmp_path / "run", **{**how, "steps": 6, "log_every": 4})  # rows 4 and 6
    run = gtrl.train(
        "bc", data, out=tmp_path / "run", resume=True, accept_changes=True, **{**how, "log_every": 5}
    )  # rows 10, 15 and 20
    found = {row["step"]: row["loss"] for row in run.metrics()}
    assert list(found) == [4, 10, 15, 20]
    spans = {4: (1, 4), 10: (5, 10), 15: (11, 15), 20: (16, 20)}
    for step, (first, last) in spans.items():
        assert found[step] == pytest.approx(np.mean([each[k] for k in range(first, last + 1)]), rel=1e-5)


def test_truncated_last_line_of_the_metrics_is_ignored(data: Data, tmp_path: Path) -> None:
    run = gtrl.train("bc", data, out=tmp_path / "run", **SETTINGS)
    rows = list(run.metrics())
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 30, "se')
    assert list(run.metrics()) == rows


# --- callbacks ---


class Recorder(Callback):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_start(self, session: Session) -> None:
        self.session = session
        self.calls.append(("start", session.start, list(session.seeds)))

    def on_log(self, step: int, rows: list[dict[str, Any]]) -> None:
        self.calls.append(("log", step, [(row["step"], row["seed"]) for row in rows]))

    def on_checkpoint(self, step: int, policies: bool) -> None:
        assert checkpoints.steps(self.session.run.checkpoints)[-1] >= step
        self.calls.append(("checkpoint", step, policies))

    def on_end(self, error: BaseException | None) -> None:
        self.calls.append(("end", error))


def test_order_of_callbacks(data: Data, tmp_path: Path) -> None:
    recorder = Recorder()
    gtrl.train("bc", data, out=tmp_path / "run", callbacks=[recorder], checkpoint_every=10, **SETTINGS)
    both = lambda step: [(step, 0), (step, 5)]  # noqa: E731
    assert [call for call in recorder.calls if call[0] != "checkpoint"] == [
        ("start", 0, [0, 5]), ("log", 10, both(10)), ("log", 20, both(20)), ("end", None),
    ]  # fmt: skip
    assert [call for call in recorder.calls if call[0] == "checkpoint"] == [
        ("checkpoint", 10, True), ("checkpoint", 20, True),
    ]  # fmt: skip
    assert recorder.calls[-1] == ("end", None)


def test_callback_stops_training_and_it_is_resumed(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(Callback):
        def on_start(self, session: Session) -> None:
            self.session = session

        def on_step(self, step: int) -> None:
            if step == 7:
                self.session.stop()

    whole = gtrl.train("bc", data, out=tmp_path / "whole", **SETTINGS)
    monkeypatch.setattr(driver, "FIXED_CHUNK_STEPS", 1)
    run = gtrl.train("bc", data, out=tmp_path / "run", callbacks=[Enough()], **SETTINGS)
    assert checkpoints.steps(run.checkpoints) == [7]
    gtrl.train("bc", data, out=tmp_path / "run", resume=True, **SETTINGS)
    assert losses(run) == losses(whole)


def test_every_callback_ends_if_another_raises(data: Data, tmp_path: Path) -> None:
    class Broken(Callback):
        def on_log(self, step: int, rows: list[dict[str, Any]]) -> None:
            raise ValueError("broken callback")

    recorder = Recorder()
    with pytest.raises(ValueError, match="broken callback"):
        gtrl.train("bc", data, out=tmp_path / "run", callbacks=[Broken(), recorder], **SETTINGS)
    assert isinstance(recorder.calls[-1][1], ValueError)


def test_weights_and_biases_offline(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = gtrl.train("bc", data, out=tmp_path / "run", callbacks=[WandB("custom", mode="offline")], **SETTINGS)
    files = list((run.path / "wandb").rglob("*.wandb"))
    assert len(files) == 1
    deadline = time.monotonic() + 20
    while b"seed-5/loss" not in files[0].read_bytes() and time.monotonic() < deadline:
        time.sleep(0.1)  # W&B's own process may write a little later
    logged = files[0].read_bytes()
    assert b"seed-5/loss" in logged
    assert b"steps_per_second" in logged


# --- extending ---


@dataclass(frozen=True)
class Slow(BC):
    """BC by plain gradient descent with a schedule, on the last transition of each trajectory only."""

    name: ClassVar = "slow"
    title: ClassVar = "Slow"

    def sample(self, key: jax.Array, dataset: Dataset, size: int) -> Batch:
        return super().sample(key, dataset, size)._replace(actor_goal=jax.numpy.zeros((size, 2)))

    def optimizer(self, learning_rate: float) -> optax.GradientTransformation:
        return optax.sgd(optax.linear_schedule(learning_rate, 0.0, 10))


@pytest.mark.parametrize("fast", [None, (), ("flat",)])
def test_user_defined_optimiser_and_sampler(fast: Any, data: Data, tmp_path: Path) -> None:
    """The schedule ends at 0 after ten steps: parameters stay constant. Also where the built-in Adam would be flat."""
    run = gtrl.train(
        Slow, data, out=tmp_path / "run", learning_rate=0.1, fast=fast, checkpoint_every=5, **SETTINGS
    )  # policies at 5, 10, 15, 20
    weights = {step: np.load(run.policy_path(0, step))["weight0"] for step in run.policy_steps}
    assert not np.array_equal(weights[5], weights[10])
    np.testing.assert_array_equal(weights[10], weights[20])
    # The goal was always (0, 0): what reads it never gets a gradient.
    fresh = jax.device_get(Slow(hidden=(8,)).init(jax.random.fold_in(jax.random.key(0), 2**32 - 1), data.train.spec))
    np.testing.assert_allclose(weights[20][2:], fresh.layers[0].weight[2:], atol=1e-6)
    assert not np.allclose(weights[20][:2], fresh.layers[0].weight[:2], atol=1e-4)


def test_flat_parameters_change_nothing(data: Data, tmp_path: Path) -> None:
    """Adam on one vector is Adam on every array; the checkpoint is the same tree of arrays either way."""
    runs = [gtrl.train("td", data, out=tmp_path / str(fast), fast=fast, **SETTINGS) for fast in ((), ("flat",))]
    files = [np.load(run.checkpoints / "20.npz") for run in runs]
    assert files[0].files == files[1].files
    for name in files[0].files:
        np.testing.assert_allclose(files[0][name], files[1][name], rtol=1e-5, atol=1e-7)


# --- side effects on the calling process ---

IN_CALLER = """
import json, logging, signal, sys
import jax
import gtrl
before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
settings = dict(jax.config.values)
seen = []
class Check(gtrl.Callback):
    def on_step(self, step):
        seen.append([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before)
gtrl.train("bc", sys.argv[1], task=sys.argv[2], out=sys.argv[3], steps=4, batch_size=16, hidden=(8,), seeds=0,
           show=False, callbacks=[Check()])
changed = [name for name, value in jax.config.values.items() if settings.get(name) != value]
print(json.dumps({"seen": all(seen), "changed": changed, "handlers": len(logging.getLogger().handlers)}))
"""


def test_training_does_not_change_the_calling_process(mini_file: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", IN_CALLER, mini_file, MINI, tmp_path / "run"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    del environment["JAX_COMPILATION_CACHE_DIR"]  # so training sets up its own cache
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert list(tmp_path.rglob("programs"))  # the cache was used
    assert json.loads(done.stdout) == {"seen": True, "changed": [], "handlers": 0}
    assert done.stderr == ""


def test_interrupt_is_left_to_the_calling_process(data: Data, tmp_path: Path) -> None:
    class Interrupting(Callback):
        def on_step(self, step: int) -> None:
            signal.raise_signal(signal.SIGINT)

    # A shell without job control starts its background processes with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            gtrl.train("bc", data, out=tmp_path / "run", callbacks=[Interrupting()], **SETTINGS)
    finally:
        signal.signal(signal.SIGINT, before)


def test_public_names_are_visible() -> None:
    assert set(gtrl.__all__) <= set(dir(gtrl))
    for name in gtrl.__all__:
        assert getattr(gtrl, name) is not None
    assert {"Algorithm", "Batch", "Callback", "Spec", "Task", "make", "register", "train"} <= set(gtrl.__all__)


# --- edge cases ---


@dataclass(frozen=True)
class Halved(BC):
    """Moments in bfloat16, noise from a random key, and a plateau whose best loss starts at infinity."""

    name: ClassVar = "halved"
    title: ClassVar = "Halved"

    def optimizer(self, learning_rate: float) -> optax.GradientTransformation:
        return optax.chain(
            optax.add_noise(0.01, 0.5, jax.random.key(3)),
            optax.adam(learning_rate, mu_dtype=jax.numpy.bfloat16),
            optax.contrib.reduce_on_plateau(patience=2),
        )


def test_any_optimiser_state_is_saved_and_resumed(data: Data, tmp_path: Path) -> None:
    whole = gtrl.train(Halved, data, out=tmp_path / "whole", checkpoint_every=10, **SETTINGS)
    gtrl.train(Halved, data, out=tmp_path / "parts", **{**SETTINGS, "steps": 10})
    parts = gtrl.train(Halved, data, out=tmp_path / "parts", resume=True, **SETTINGS)
    assert losses(parts) == losses(whole)
    one, other = (np.load(run.checkpoints / "20.npz") for run in (whole, parts))
    assert one.files == other.files
    for name in one.files:
        np.testing.assert_array_equal(one[name], other[name])
    assert any(one[name].dtype == np.uint16 for name in one.files)  # bfloat16


def test_steps_that_were_never_reached_drop_no_rows(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meant to have 25 steps, stopped at 10; then 40, stopped at 35; then on: row 25 is an ordinary row."""
    monkeypatch.setattr(driver, "FIXED_CHUNK_STEPS", 5)
    how = {**SETTINGS, "seeds": 0}
    first = {**how, "steps": 25, "log_every": 10, "callbacks": [StopAt(10)]}
    gtrl.train("bc", data, out=tmp_path / "run", **first)
    then = {**how, "steps": 40, "log_every": 5, "resume": True, "accept_changes": True}
    gtrl.train("bc", data, out=tmp_path / "run", callbacks=[StopAt(35)], **then)
    run = gtrl.train("bc", data, out=tmp_path / "run", **then)
    assert [row["step"] for row in run.metrics()] == [10, 15, 20, 25, 30, 35, 40]


class StopAt(Callback):
    """Asks to stop when a step is logged, as a callback does that watches a loss."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_start(self, session: Session) -> None:
        self.session = session

    def on_log(self, step: int, rows: list[dict[str, Any]]) -> None:
        if step == self.step:
            self.session.stop()


def test_stopping_from_a_log_ends_at_that_step(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "FIXED_CHUNK_STEPS", 5)
    run = gtrl.train("bc", data, out=tmp_path / "run", callbacks=[StopAt(10)], **SETTINGS)
    assert checkpoints.steps(run.checkpoints) == [10]


@pytest.mark.usefixtures("in_process")
def test_evaluations_come_before_the_end_of_every_callback(data: Data, tmp_path: Path) -> None:
    class Listening(Callback):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def on_evaluation(self, step: int, rows: list[dict[str, Any]]) -> None:
            self.calls.append("evaluation")

        def on_end(self, error: BaseException | None) -> None:
            self.calls.append("end")

    listening, during = Listening(), gtrl.EvaluateDuring(1, workers=1)
    for name in ("first", "second"):  # the same objects may be used again
        gtrl.train("bc", data, out=tmp_path / name, callbacks=[listening, during, StopAt(20)], **SETTINGS)
    assert listening.calls == ["evaluation", "end"] * 2


def test_failed_start_leaves_the_directory_free(data: Data, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no environment to evaluate in"):
        gtrl.train("bc", data.train, out=tmp_path / "run", callbacks=[gtrl.EvaluateDuring(1)], **SETTINGS)
    assert losses(gtrl.train("bc", data.train, out=tmp_path / "run", **SETTINGS))


def test_method_needs_its_own_name(data: Data, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Nameless(BC):
        extra: int = 1

    @dataclass(frozen=True)
    class Taken(BC):
        name: ClassVar = "bc"

    for kind, message in (
        (Nameless, "Nameless needs a name of its own"),
        (Taken, "a method named 'bc' is already registered"),
    ):
        with pytest.raises(ConfigError, match=message):
            gtrl.train(kind, data, out=tmp_path / "run", **SETTINGS)
    with pytest.raises(ConfigError, match="None is not a method"):
        gtrl.train(None, data, out=tmp_path / "run", **SETTINGS)  # pyright: ignore[reportArgumentType]


def test_seeds_may_be_any_integer_type(data: Data, tmp_path: Path) -> None:
    run = gtrl.train("bc", data, out=tmp_path / "run", **{**SETTINGS, "seeds": np.arange(2)})
    assert run.seeds == [0, 1]
    for seeds in ([0.5], True, "0", [-1], [1, 1]):
        with pytest.raises(ConfigError, match="different integers from 0"):
            gtrl.train("bc", data, out=tmp_path / "other", **{**SETTINGS, "seeds": seeds})


def test_errors_of_a_callbacks_files_are_raised_unchanged(data: Data, tmp_path: Path) -> None:
    class Elsewhere(Callback):
        def on_log(self, step: int, rows: list[dict[str, Any]]) -> None:
            raise PermissionError(errno.EACCES, "Permission denied", "/elsewhere/x")

    with pytest.raises(PermissionError):
        gtrl.train("bc", data, out=tmp_path / "run", callbacks=[Elsewhere()], **SETTINGS)


@pytest.mark.usefixtures("in_process")
def test_an_evaluation_in_another_task_replaces_no_rows(data: Data, tmp_path: Path) -> None:
    run = gtrl.train("bc", data, out=tmp_path / "run", **SETTINGS)
    gtrl.evaluate(run, episodes=1, workers=1, show=False)
    again = gtrl.find_task(MINI)
    other = gtrl.Task("other", environment=again.environment, goals=2, episode_length=20)
    gtrl.evaluate(run, task=other, episodes=1, workers=1, show=False)
    assert [row["task"] for row in run.evaluations()].count(MINI) == 2 * 5
    assert [row["task"] for row in run.evaluations()].count("other") == 2 * 2


@dataclass(frozen=True)
class Nested(BC):
    name: ClassVar = "nested"

    pairs: Any = ((1, 2), (3, 4))


def test_nested_fields_are_restored_from_the_config(data: Data, tmp_path: Path) -> None:
    run = gtrl.train(Nested(hidden=(8,), pairs=[[5, 6]]), data, out=tmp_path / "run", **without(SETTINGS, "hidden"))
    assert algorithm_of(run) == Nested(hidden=(8,), pairs=((5, 6),))


def test_fields_of_another_version_are_named(data: Data, tmp_path: Path) -> None:
    run = gtrl.train(BC(hidden=(8,)), data, out=tmp_path / "run", **without(SETTINGS, "hidden"))
    config = run.config
    run.save_config(config | {"algorithm": config["algorithm"] | {"warp": 9}})
    with pytest.raises(RunError, match="'warp', which BC does not have"):
        algorithm_of(run)


def without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


@pytest.mark.parametrize("callbacks", [Recorder, [Recorder], "own_everything.callback:LossCsv", None])
def test_invalid_callbacks_are_rejected(callbacks: Any, data: Data, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not an instance of a subclass of gtrl\.Callback"):
        gtrl.train("bc", data, out=tmp_path / "run", callbacks=callbacks, **SETTINGS)


def test_make_accepts_classes_and_reports_unknown_fields() -> None:
    made = gtrl.make(Slow, MINI, hidden=(8,))
    assert (type(made), made.gamma, made.hidden) == (Slow, 0.995, (8,))
    with pytest.raises(ConfigError, match="no field 'gama': BC has gamma, "):
        gtrl.make("bc", MINI, gama=3)
    task = gtrl.Task("typo", defaults={"gama": 0.97})
    with pytest.raises(ConfigError, match="the task typo has a default for 'gama', which is no method's field"):
        gtrl.make("bc", task)


REGISTRATIONS = {
    "callback": "class Custom(gtrl.Callback): pass\ngtrl.register(Custom)",
    "task": "gtrl.register(gtrl.Task('custom'))",
    "policy": "class Custom(gtrl.Policy):\n    name = 'custom'\n    def act(self, *_): ...\ngtrl.register(Custom)",
    "method": "class Custom(gtrl.Algorithm):\n    name = 'custom'\ngtrl.register(Custom)",
}


@pytest.mark.parametrize("kind", REGISTRATIONS)
def test_registering_in_a_fresh_process(kind: str) -> None:
    subprocess.run([sys.executable, "-c", f"import gtrl\n{REGISTRATIONS[kind]}"], check=True)

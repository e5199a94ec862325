"""The command line: output and files, and a one-line error without side effects for bad input."""

import errno
import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gtrl import bench, cli
from gtrl.errors import Interrupted
from gtrl.runs.policy import load_policy
from gtrl.runs.run import Run
from gtrl.training import driver, loop

MINI = "pointmaze-mini-navigate"
# One compilation serves every real training here: the same method, sizes and number of seeds.
TINY = "--steps 20 --batch-size 32 --log-every 10 --checkpoint-every 10 --hidden 8 --seeds 0 3".split()  # noqa: SIM905

CLONING, TD, MC, TRIANGLE = "behavioural cloning", "temporal difference", "Monte Carlo", "triangle inequality"
# The methods in the order they are shown, each with its family (as the paper groups them) and what it has on top of,
# or other than, the fields of all.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "gtrl": (TRIANGLE, {
        "lambda": 0.0, "alpha": 0.1, "kappa": 0.7, "kappa_one_step": 0.5, "selection": "max", "hindsight": True,
        "hindsight_clip": 1.0, "hindsight_divisor": "target", "rho_reads": "critic", "bootstrap_from_last": True,
        "actor_reads": "logit", "distill": True, "waypoint": "none", "waypoint_draw": "uniform",
        "waypoint_product": "bound", "bound_weight": 1.0, "hindsight_reads": "critic", "density_hidden": [128, 128],
        "density_latent": 64,
    }),
    "trl": (TRIANGLE, {
        "value_goals": [0.0, 1.0, 0.0], "lambda": 0.0, "alpha": 0.1, "kappa": 0.7, "rho_reads": "target",
        "target_from": "previous", "actor_reads": "logit", "distill": True,
    }),
    "bc": (CLONING, {"actor_layer_norm": False}),
    "fbc": (CLONING, {"gamma": 0.999, "actor_geometric": True, "flow_steps": 10}),
    "ivl": (TD, {"value_goals": [0.2, 0.5, 0.3], "alpha": 10.0, "kappa": 0.9, "actor_layer_norm": False}),
    "iql": (TD, {"value_goals": [0.2, 0.5, 0.3], "alpha": 0.3, "kappa": 0.9}),
    "td": (TD, {"alpha": 0.1, "n": 1, "kappa": 0.5}),
    "td-n": (TD, {"alpha": 0.1, "n": 25, "kappa": 0.5}),
    "crl": (MC, {"value_goals": [0.0, 1.0, 0.0], "alpha": 0.1, "latent": None}),
    "mc": (MC, {"value_goals": [0.0, 1.0, 0.0], "alpha": 0.1}),
    "qrl": (TRIANGLE, {
        "value_goals": [0.0, 0.0, 1.0], "alpha": 0.003, "slack": 0.05, "latent": None, "component": 8,
        "actor_layer_norm": False,
    }),
    "tdp": (TRIANGLE, {"alpha": 0.1, "candidates": 8, "distill": True}),
    "coe": (TRIANGLE, {"alpha": 0.1, "anchor": 0.1, "distill": True}),
}  # fmt: skip

# What `--preset authors` changes in GTRL.
AUTHORS: dict[str, Any] = {
    "rho_reads": "target", "value_goals": [0, 0.7, 0.3], "target_from": "previous", "hindsight_divisor": "next",
    "bootstrap_from_last": False, "random_last_rows": False,
}  # fmt: skip

Gtrl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gtrl(capsys: pytest.CaptureFixture[str]) -> Gtrl:
    """Runs a command and returns its exit status, stdout and stderr."""

    def run(*args: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            status = cli.main([str(arg) for arg in args])
        except SystemExit as end:  # how tyro ends after a help text or a flag it does not know
            status = end.code if isinstance(end.code, int) else 1
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture(scope="module")
def bc_run(mini_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run trained by the command line. Copy it before modifying it."""
    out = tmp_path_factory.mktemp("runs") / "bc"
    assert cli.main(["train", "bc", "--task", MINI, "--data", str(mini_file), "--out", str(out), *TINY]) == 0
    return out


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs everything except the training steps."""
    monkeypatch.setattr(loop, "init", lambda *_: None)
    monkeypatch.setattr(driver, "fit", lambda *_, **__: None)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_one_line_error(result: tuple[int, str, str], message: str) -> None:
    status, output, stderr = result
    assert (status, output) == (2, "")
    assert stderr.startswith("gtrl: ")
    assert stderr.count("\n") == 1, stderr
    assert stderr.endswith((".\n", "?\n"))
    assert message in stderr


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- a run directory ---


def test_training_leaves_a_run_directory(bc_run: Path, mini_file: Path) -> None:
    config = json.loads((bc_run / "config.json").read_text())
    assert config["task"] == MINI
    assert config["seeds"] == [0, 3]
    assert config["algorithm"]["name"] == "bc"
    assert config["algorithm"]["hidden"] == [8]
    assert config["training"] == {
        "steps": 20, "batch_size": 32, "learning_rate": 3e-4, "precision": "float32",
        "log_every": 10, "shard_steps": 5000, "checkpoints": [800_000, 900_000, 1_000_000], "checkpoint_every": 10,
        "fast": ["apart", "kernels"], "devices": None, "checkpoint_minutes": 5.0, "keep": 3,
    }  # fmt: skip
    assert {"python", "jax", "numpy"} <= set(config["versions"])
    assert config["gtrl"]
    assert config["device"]
    data = config["data"]
    assert data["source"] == str(mini_file)
    assert len(data["digest"]) == 64
    assert data["rows"] == len(np.load(mini_file)["terminals"])
    assert data["transitions"] == (~np.load(mini_file)["terminals"]).sum()
    assert data["validation_rows"] > 0
    assert sorted(path.name for path in (bc_run / "checkpoints").iterdir()) == ["10.npz", "20.npz"]
    policies = {str(path.relative_to(bc_run / "policies")) for path in (bc_run / "policies").rglob("*.npz")}
    assert policies == {f"step-{step}/seed-{seed}.npz" for step in (10, 20) for seed in (0, 3)}
    header = load_policy(bc_run / "policies/step-10/seed-3.npz").header
    assert (header["algorithm"], header["task"], header["seed"], header["step"]) == ("bc", MINI, 3, 10)


def test_metrics_and_timing(bc_run: Path) -> None:
    rows = lines(bc_run / "metrics.jsonl")
    assert [(row["step"], row["seed"]) for row in rows] == [(10, 0), (10, 3), (20, 0), (20, 3)]
    for row in rows:
        # Wall-clock values would make two equal runs differ; they are in timing.jsonl.
        assert set(row) == {"step", "seed", "loss", "actor_loss", "validation/loss", "validation/actor_loss"}
        assert np.isfinite(list(row.values())).all()
    timing = lines(bc_run / "timing.jsonl")
    assert [row["step"] for row in timing[1:]] == [10, 20]
    assert set(timing[0]) == {"step", "time", "start_up_seconds"}
    assert timing[0]["start_up_seconds"] > 0
    assert all(set(row) == {"step", "time", "steps_per_second"} and row["steps_per_second"] > 0 for row in timing[1:])


def test_tensorboard_reads_its_events(bc_run: Path) -> None:
    events = EventAccumulator(str(bc_run)).Reload()
    rows = lines(bc_run / "metrics.jsonl")
    for seed in (0, 3):
        for name in ("loss", "validation/actor_loss"):
            scalars = events.Scalars(f"seed-{seed}/{name}")
            assert [scalar.step for scalar in scalars] == [10, 20]
            expected = [row[name] for row in rows if row["seed"] == seed]
            np.testing.assert_allclose([scalar.value for scalar in scalars], expected, rtol=1e-6)
    assert [scalar.step for scalar in events.Scalars("steps_per_second")] == [10, 20]


def test_evaluating_a_run(gtrl: Gtrl, bc_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(bc_run, run)
    status, output, _ = gtrl("evaluate", run, "--episodes", 1, "--workers", 2)
    assert status == 0
    assert f"BC on {MINI}" in output
    assert all(word in output for word in ("task1", "task5", "overall"))
    table = (run / "eval.csv").read_text().splitlines()
    assert table[0] == "algorithm,task,seed,step,goal,episodes,successes,base_seed"
    assert len(table) == 1 + 2 * 5
    new = set(contents(run)) - set(contents(bc_run))
    assert {name.partition(".out")[0] for name in new} == {"eval.csv", "rollouts.npz", "evaluation/events"}


# --- resuming ---


def resume(gtrl: Gtrl, data: Path, out: Path, *flags: Any) -> tuple[int, str, str]:
    return gtrl("train", "bc", "--task", MINI, "--data", data, "--out", out, *TINY, "--resume", *flags)


def lasting(run: Path) -> dict[str, bytes]:
    """The files that two runs of the same config share, bit for bit."""
    kept = {"metrics.jsonl", "config.json"}
    return {name: content for name, content in contents(run).items() if name in kept or name.startswith("policies")}


def test_resumed_run_is_bit_identical(gtrl: Gtrl, bc_run: Path, mini_file: Path, tmp_path: Path) -> None:
    afresh = tmp_path / "afresh"
    assert resume(gtrl, mini_file, afresh)[0] == 0  # no run yet: a normal start
    assert lasting(afresh) == lasting(bc_run)
    # As if stopped after step 10, in the middle of a line.
    (afresh / "checkpoints/20.npz").unlink()
    shutil.rmtree(afresh / "policies/step-20")
    with (afresh / "metrics.jsonl").open("a") as file:
        file.write('{"step": 15, "se')
    assert resume(gtrl, mini_file, afresh)[0] == 0
    assert lasting(afresh) == lasting(bc_run)
    # Nothing is left to do.
    assert resume(gtrl, mini_file, afresh)[0] == 0
    assert lasting(afresh) == lasting(bc_run)


@pytest.mark.usefixtures("no_training")  # to be quick if the check is missing
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--gamma", 0.5], "algorithm.gamma was 0.995 and is 0.5 now; choose another --out, or --accept-changes"),
        (["--seeds", 0, 1], "seeds was [0, 3] and is [0, 1] now"),
        (["--seeds", 0, 1, "--accept-changes"], "seeds was [0, 3] and is [0, 1] now; choose another --out."),
        (["--task", "pointmaze-medium-navigate"], 'task was "pointmaze-mini-navigate" and is "pointmaze-medium-nav'),
        (["--batch-size", 16], "training.batch_size was 32 and is 16 now"),
        (["--learning-rate", 0.1], "training.learning_rate was 0.0003 and is 0.1 now"),
        (["--precision", "bfloat16"], "training.precision"),
        (["--fast"], 'training.fast was ["apart", "kernels"] and is [] now'),
        (["--steps", 10], "trained for 20 steps already"),
    ],
)
def test_resume_rejects_another_config(
    flags: list[Any], message: str, gtrl: Gtrl, bc_run: Path, mini_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(bc_run, run)
    assert_one_line_error(resume(gtrl, mini_file, run, *flags), message)
    assert contents(run) == contents(bc_run)


def test_resume_rejects_another_method_and_other_data(
    gtrl: Gtrl, bc_run: Path, mini_file: Path, write_file: Callable[..., Path]
) -> None:
    before = contents(bc_run)
    other = gtrl("train", "trl", "--task", MINI, "--data", mini_file, "--out", bc_run, *TINY, "--resume")
    assert_one_line_error(other, 'algorithm.name was "bc" and is "trl" now')
    assert_one_line_error(resume(gtrl, write_file(), bc_run), "data.digest was")
    assert contents(bc_run) == before


def test_resume_needs_only_the_run_directory(gtrl: Gtrl, bc_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(bc_run, run)
    (run / "checkpoints/20.npz").unlink()
    shutil.rmtree(run / "policies/step-20")
    assert gtrl("train", "--resume", "--out", run)[0] == 0
    assert lasting(run) == lasting(bc_run)
    # Flags override what the run's config says.
    assert gtrl("train", "--resume", "--out", run, "--steps", "3e1")[0] == 0
    config, before = (json.loads((folder / "config.json").read_text()) for folder in (run, bc_run))
    assert config["training"] == before["training"] | {"steps": 30}
    assert (config["algorithm"], config["seeds"]) == (before["algorithm"], before["seeds"])
    assert (run / "policies/step-30/seed-3.npz").exists()
    # Also if the method is named.
    message = "algorithm.gamma was 0.995 and is 0.5 now"
    assert_one_line_error(gtrl("train", "bc", "--resume", "--out", run, "--gamma", 0.5), message)
    other = gtrl("train", "trl", "--resume", "--out", run, "--data", before["data"]["source"])
    assert_one_line_error(other, 'algorithm.name was "bc" and is "trl" now')


def test_resume_rejects_a_run_of_another_version(gtrl: Gtrl, bc_run: Path, tmp_path: Path) -> None:
    config = json.loads((bc_run / "config.json").read_text())
    config["training"]["momentum"] = 0.9
    (tmp_path / "config.json").write_text(json.dumps(config))
    message = f"{tmp_path} was made by another version: Training has no field 'momentum' here."
    assert_one_line_error(gtrl("train", "--resume", "--out", tmp_path), message)


# --- output folders ---


def test_out_with_a_run_is_not_overwritten(gtrl: Gtrl, bc_run: Path, mini_file: Path) -> None:
    before = contents(bc_run)
    result = gtrl("train", "bc", "--task", MINI, "--data", mini_file, "--out", bc_run, *TINY)
    assert_one_line_error(result, "holds a run already")
    assert contents(bc_run) == before


def test_out_with_other_files_is_not_overwritten(gtrl: Gtrl, mini_file: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    for more in ([], ["--resume"]):
        result = gtrl("train", "bc", "--task", MINI, "--data", mini_file, "--out", tmp_path, *TINY, *more)
        assert_one_line_error(result, "is not empty and not a run directory")
    status, _, stderr = gtrl(
        "train", "bc", "--task", MINI, "--data", mini_file, "--out", tmp_path / "thesis.tex", *TINY
    )
    assert status == 2
    assert "thesis.tex" in stderr
    assert contents(tmp_path) == {"thesis.tex": b"precious"}


OUTPUTS = (
    "theory --out {}",
    "demo --out {}",
    "train bc --data data.npz --out {}",
    f"data collect {MINI} --episodes 1 --out {{}}/a.npz",
    f"data collect {MINI} --episodes 2 --shards 2 --out {{}}",
    "data get scene-play --folder {}",
    "data check data.npz --picture {}/a.png",
    "bench bc --out {}/bench.json",
)


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every command's work fail: unwritable output must be reported before it starts."""
    import gtrl.bench
    import gtrl.data.collect.files
    import gtrl.data.dataset
    import gtrl.data.sources.get
    import gtrl.demo
    import gtrl.report.dataset
    import gtrl.theory.summary

    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("the work has started")

    monkeypatch.setattr(gtrl.bench, "bench", work)
    monkeypatch.setattr(gtrl.data.collect.files, "collect", work)
    monkeypatch.setattr("gtrl.data.load.load_dataset", work)
    monkeypatch.setattr(gtrl.data.sources.get, "get_dataset", work)
    monkeypatch.setattr(gtrl.demo, "demo", work)
    monkeypatch.setattr(gtrl.report.dataset, "examine", work)
    monkeypatch.setattr(gtrl.theory.summary, "print_summary", work)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("command", OUTPUTS)
def test_unwritable_output_is_reported_before_any_work(
    command: str, gtrl: Gtrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "thesis.tex"
    file.write_text("precious")
    for path, why in ((file, "it is a file"), (file / "below", f"{file} is a file")):
        result = gtrl(*command.format(path).split())
        assert_one_line_error(result, f"{path} cannot be a folder: {why}; choose another --")
    assert contents(tmp_path) == {"thesis.tex": b"precious"}

    def read_only(**_: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    path = tmp_path / "new"
    result = gtrl(*command.format(path).split())
    assert_one_line_error(result, f"nothing can be written to {path} (read-only file system); choose another --")
    assert not path.exists()


def test_output_file_must_not_be_a_folder(gtrl: Gtrl, tmp_path: Path) -> None:
    result = gtrl("bench", "bc", "--out", tmp_path)
    assert_one_line_error(result, f"{tmp_path} is a folder, not a file; choose another --out.")


def test_disk_errors_name_the_file(gtrl: Gtrl, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/a.npz")

    monkeypatch.setitem(cli.COMMANDS, "tasks", full)
    assert_one_line_error(gtrl("tasks"), "/data/a.npz: No space left on device.")


@pytest.mark.usefixtures("no_training")
def test_default_output_folder(gtrl: Gtrl, mini_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, output, _ = gtrl("train", "bc", "--task", MINI, "--data", mini_file)
    assert status == 0
    (run,) = (tmp_path / "runs" / MINI / "bc").iterdir()
    assert (run / "config.json").exists()
    assert str(run.relative_to(tmp_path)) in output


# --- defaults and flags ---


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("method", "task", "flags", "expected"),
    [
        ("gtrl", "pointmaze-teleport-stitch", [], {"lambda_": 0.7, "alpha": 10.0, "gamma": 0.99}),
        ("gtrl", "pointmaze-large-stitch", [], {"lambda_": 0.7, "alpha": 0.03, "actor_goals": [0, 0.5, 0.5]}),
        ("trl", "pointmaze-medium-navigate", [], {"lambda_": 0.7, "alpha": 10.0, "value_goals": [0, 1, 0]}),
        ("trl", "pointmaze-teleport-navigate", [], {"lambda_": 0.1, "alpha": 0.1, "actor_goals": [0, 1, 0]}),
        ("bc", "pointmaze-large-stitch", [], {"actor_goals": [0, 1, 0], "hidden": [512, 512, 512]}),
        (
            "gtrl",
            "pointmaze-teleport-stitch",
            ["--lambda", 0.3, "--value-goals", 0, 1, 0, "--no-hindsight", "--hidden", 4, 5],
            {"lambda_": 0.3, "alpha": 10.0, "value_goals": [0, 1, 0], "hindsight": False, "hidden": [4, 5]},
        ),
        ("trl", "pointmaze-medium-navigate", ["--alpha", 2], {"lambda_": 0.7, "alpha": 2, "gamma": 0.99}),
        ("td-n", "pointmaze-large-stitch", [], {"n": 25, "alpha": 0.03, "actor_goals": [0, 0.5, 0.5]}),
        ("td-n", "pointmaze-large-stitch", ["--n", 10], {"n": 10, "alpha": 0.03}),
        ("iql", "pointmaze-large-navigate", [], {"alpha": 0.003, "value_goals": [0.2, 0.5, 0.3]}),
        ("fbc", "pointmaze-large-stitch", ["--flow-steps", 4], {"flow_steps": 4, "actor_goals": [0, 1, 0]}),
        ("gtrl", "pointmaze-large-stitch", ["--preset", "authors"], {**AUTHORS, "lambda_": 0.7, "alpha": 0.03}),
        (
            "gtrl",
            "pointmaze-large-stitch",
            ["--rho-reads", "critic", "--preset", "authors", "--value-goals", 0, 0.6, 0.4, "--alpha", 1],
            {**AUTHORS, "rho_reads": "critic", "value_goals": [0, 0.6, 0.4], "alpha": 1},
        ),
        ("trl", "pointmaze-large-stitch", ["--target-from", "updated"], {"target_from": "updated", "alpha": 0.03}),
        ("qrl", "pointmaze-large-navigate", ["--latent", 16], {"alpha": 0.0003, "latent": 16, "component": 8}),
    ],
)
def test_flags_override_defaults_of_method_and_task(
    method: str, task: str, flags: list[Any], expected: dict[str, Any], gtrl: Gtrl, mini_file: Path, tmp_path: Path
) -> None:
    # Point mazes are all of the same dimensions, so one file serves.
    status, _, _ = gtrl("train", method, "--task", task, "--data", mini_file, "--out", tmp_path / "run", *flags)
    assert status == 0
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["task"] == task
    assert {name: config["algorithm"][name] for name in expected} == expected
    assert config["seeds"] == [0, 1, 2, 3]
    assert config["training"]["steps"] == 1_000_000


@pytest.mark.usefixtures("no_training")
def test_train_on_own_data_without_a_task(gtrl: Gtrl, write_file: Callable[..., Path], tmp_path: Path) -> None:
    status, _, _ = gtrl("train", "gtrl", "--data", write_file(qpos=None, qvel=None), "--out", tmp_path / "run")
    assert status == 0
    assert json.loads((tmp_path / "run/config.json").read_text())["task"] is None


@pytest.mark.usefixtures("no_training")
def test_suggested_next_command_is_quoted(gtrl: Gtrl, mini_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "my run; rm -r"
    status, output, _ = gtrl("train", "bc", "--task", MINI, "--data", mini_file, "--out", out)
    assert status == 0
    command = output.split("next: ")[1].splitlines()[0]
    assert shlex.split(command) == ["gtrl", "evaluate", str(out)]


# --- a user-defined method and task ---

OWN_MODULE = """
from dataclasses import dataclass

import gtrl
from gtrl.algorithms.bc import BC


@dataclass(frozen=True)
class Custom(BC):
    "Cloning with fields that training has too."

    name = "custom"
    title = "Custom"
    steps: int = 3  # of its own
    batch_size: float = 0.5
    inner_steps: int = 7


TASK = gtrl.Task("my-task", defaults={"gamma": 0.5, "steps": 4})
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """`own_module.py` in the current directory, which is not on the path; unregistered afterwards."""
    from gtrl.algorithms import ALGORITHMS
    from gtrl.tasks import REGISTERED

    (tmp_path / "own_module.py").write_text(OWN_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    for registry in (ALGORITHMS, REGISTERED):
        monkeypatch.setattr(registry, "entries", dict(registry.entries))
        monkeypatch.setattr(registry, "modules", dict(registry.modules))
    yield "own_module"
    sys.modules.pop("own_module", None)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments that `train` was called with, instead of training."""
    import gtrl.training.train

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def train(*args: Any, **named: Any) -> Run:
        calls.append((args, named))
        return Run(Path("trained"))

    monkeypatch.setattr(gtrl.training.train, "train", train)
    return calls


def test_method_fields_with_names_of_training_fields(
    gtrl: Gtrl, own_module: str, trained: list[Any], write_file: Callable[..., Path]
) -> None:
    train = ("train", f"{own_module}:Custom", "--data", write_file(qpos=None, qvel=None))
    assert gtrl(*train, "--task", f"{own_module}:TASK")[0] == 0
    flags = ("--steps", "1e5", "--method.steps", "2e1", "--method.batch-size", 0.25, "--inner-steps", 8)
    assert gtrl(*train, *flags)[0] == 0
    # Without a task, sizes and gamma are those for little data; fields of the method with a trainer's name are not.
    expected = (((1_000_000, 1024), (4, 0.5, 7, 0.5)), ((100_000, 256), (20, 0.25, 8, 0.9)))
    for (args, named), (sizes, own) in zip(trained, expected, strict=True):
        assert (named["training"].steps, named["training"].batch_size) == sizes
        assert args[0] is sys.modules[own_module].Custom
        assert tuple(named[field] for field in ("steps", "batch_size", "inner_steps", "gamma")) == own
    assert sys.path[-1] == str(Path.cwd())  # after what is installed
    status, output, _ = gtrl("train", f"{own_module}:Custom", "--help")
    assert status == 0
    for line in ("--steps INT", "--method.steps INT", "of its own (default: 3)", "--method.batch-size FLOAT"):
        assert line in output
    assert_one_line_error(gtrl(*train, "--method.stepps", 3), "did you mean --method.steps?")


def test_preset_applies_to_own_data(gtrl: Gtrl, trained: list[Any], write_file: Callable[..., Path]) -> None:
    train = ("train", "gtrl", "--data", write_file(qpos=None, qvel=None), "--preset", "authors")
    assert gtrl(*train, "--rho-reads", "critic")[0] == 0
    ((_, named),) = trained
    assert (named["hindsight_divisor"], named["rho_reads"], named["gamma"]) == ("next", "critic", 0.9)


def test_integer_flags_accept_exponents(gtrl: Gtrl, trained: list[Any], write_file: Callable[..., Path]) -> None:
    flags = ("--steps", "1e5", "--batch-size", "2.56e2", "--seeds", "0", "1e3", "--hidden", "1e1", "2e1")
    status, _, _ = gtrl("train", "bc", "--data", write_file(qpos=None, qvel=None), *flags)
    assert status == 0
    ((_, named),) = trained
    assert (named["training"].steps, named["training"].batch_size) == (100_000, 256)
    assert (named["seeds"], named["hidden"]) == ((0, 1000), (10, 20))
    assert all(type(number) is int for number in (named["training"].steps, *named["seeds"], *named["hidden"]))


@pytest.mark.parametrize(("flags", "scaled"), [((), True), (("--scale",), True), (("--no-scale",), False)])
def test_scaling_and_the_log_follow_the_flags(
    flags: tuple[str, ...], scaled: bool, gtrl: Gtrl, trained: list[Any], write_file: Callable[..., Path]
) -> None:
    command = ("train", "bc", "--data", write_file(qpos=None, qvel=None), "--steps", "2e2", *flags)
    assert gtrl(*command)[0] == 0
    (((_, data), named),) = trained
    assert (data.scaling is not None) == scaled
    assert named["training"].log_every == 10


def test_flags_become_callbacks(gtrl: Gtrl, trained: list[Any], mini_file: Path) -> None:
    train = ("train", "bc", "--task", MINI, "--data", mini_file)
    assert gtrl(*train)[0] == 0
    flags = ("--eval-during", "--eval-episodes", 3, "--eval-workers", 2, "--wandb", "mazes", "--wandb-mode", "offline")
    assert gtrl(*train, *flags)[0] == 0
    plain, full = (named for _, named in trained)
    assert [type(callback).__name__ for callback in plain["callbacks"]] == ["Timing"]
    assert [type(callback).__name__ for callback in full["callbacks"]] == ["Timing", "EvaluateDuring", "WandB"]
    evaluation, wandb = full["callbacks"][1:]
    assert (evaluation.episodes, evaluation.workers) == (3, 2)
    assert wandb.options == {"project": "mazes", "mode": "offline"}
    assert full["handle_signals"] is True
    assert_one_line_error(gtrl(*train, "--eval-during", "--eval-episodes", 0), "--eval-episodes is 0")


def test_run_of_a_plugin_is_resumed_from_its_config(
    gtrl: Gtrl, own_module: str, trained: list[Any], bc_run: Path, tmp_path: Path
) -> None:
    config = json.loads((bc_run / "config.json").read_text())
    config["algorithm"] |= {"name": "custom", "steps": 5, "batch_size": 0.125, "inner_steps": 6}
    (tmp_path / "config.json").write_text(json.dumps(config | {"task": "my-task", "plugins": [own_module]}))
    assert gtrl("train", "--resume", "--out", tmp_path, "--method.steps", 6)[::2] == (0, "")
    ((args, named),) = trained
    assert (args[0].name, args[1].task.name) == ("custom", "my-task")
    assert (named["steps"], named["batch_size"], named["inner_steps"], named["hidden"]) == (6, 0.125, 6, (8,))
    assert (named["training"].steps, named["training"].batch_size, named["seeds"]) == (20, 32, (0, 3))
    assert (named["out"], named["resume"]) == (tmp_path, True)


ENTRY_POINTS = """
[gtrl.methods]
custom = own_module:Custom
broken = broken_module:Method

[gtrl.tasks]
my-task = own_module:TASK
"""


def test_plugins_are_listed(gtrl: Gtrl, own_module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "own-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "broken_module.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    rows = json.loads(gtrl("tasks", "--json")[1])
    assert [row["name"] for row in rows if not row["paper"]][-1] == "my-task"
    (line,) = [line for line in gtrl("tasks")[1].splitlines() if " my-task " in line]
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells == ["my-task", "own", "no", "", "", "", "", "", "", "", "", "", "0.5", ""]
    status, output, stderr = gtrl("algorithms", "--json")
    assert status == 0
    assert [row["name"] for row in json.loads(output)] == [*METHODS, "custom"]
    assert stderr.startswith("gtrl: the method 'broken' of an installed package cannot be loaded: ")
    assert "it raised ZeroDivisionError: division by zero" in stderr
    assert " custom " in gtrl("algorithms")[1]
    assert own_module in sys.modules


# --- mistakes ---


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("trian", "unknown command 'trian': did you mean 'train'?"),
        (
            "foo",
            "unknown command 'foo': choose from demo, tasks, algorithms, data, expert, train, evaluate, sweep, watch, "
            "diagnose, report, export, results, theory, bench.",
        ),
        ("run", "unknown command 'run': choose from demo, tasks,"),
        ("status", "unknown command 'status': choose from demo, tasks,"),
        ("train --task scene-play", "name a method first: gtrl train METHOD ..., where METHOD is one of gtrl, trl, bc"),
        ("train --resume", "--resume needs --out"),
        ("train --resume --out nowhere", "nowhere holds no run to resume; to start one, name a method"),
        ("train bc --gama 0.5", "unknown argument '--gama' (did you mean --gamma?); the flags of 'gtrl train bc' are"),
        ("train bc --zzz", "--task, --data, --seeds, --out, --resume,"),
        ("train bc --zzz", "--batch-size, --learning-rate, "),
        ("train gtrl --preset author", "GTRL has no preset 'author': its presets are authors, waypoints."),
        ("train gtrl --zzz", "--actor-layer-norm, --target-rate, --target-from, --lambda,"),
        ("train bc all", "unknown argument 'all'; the flags of"),
        ("theory --zzz 3", "unknown argument '--zzz'; the flags of 'gtrl theory' are --out, --processes, --seed."),
        ("train no_such_module:Method", "the module 'no_such_module' of 'no_such_module:Method' cannot be imported"),
        ("data chek", "unknown command 'chek': did you mean 'check'?"),
        ("train gtrll --task scene-play", "unknown method 'gtrll': did you mean 'gtrl'?"),
        ("train gtrl --task pointmaze-teleport-navigte", "did you mean 'pointmaze-teleport-navigate'?"),
        ("data collect pointmaze-teleport-navigte", "did you mean 'pointmaze-teleport-navigate'?"),
        ("data check nowhere.npz --task scene", "did you mean 'scene-play'?"),
        ("data check nowhere.npz", "there is no file nowhere.npz."),
        ("train bc --data nowhere.npz", "there is no file nowhere.npz."),
        ("train bc", "there is nothing to train on"),
        ("train bc --task scene-play", "get it with 'gtrl data get scene-play'"),
        ("evaluate nowhere", "nowhere is not a run directory"),
        ("evaluate nowhere.npz", "there is no file nowhere.npz"),
        ("data collect antmaze-large-stitch --episodes 1 --out a.npz", "needs an expert that can walk"),
        (f"data collect {MINI} --episodes 0 --out a.npz", "episodes is 0"),
    ],
)
@pytest.mark.usefixtures("no_shipped_experts")
def test_mistakes_get_a_one_line_error(
    command: str, message: str, gtrl: Gtrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # where OGBench's cache would be
    assert_one_line_error(gtrl(*command.split()), message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--gamma 1.5", "gamma is 1.5"),
        ("--gamma 0", "gamma is 0"),
        ("--lambda -1", "lambda is -1"),
        ("--alpha nan", "alpha is nan"),
        ("--steps 0", "steps is 0"),
        ("--batch-size 0", "batch_size is 0"),
        ("--learning-rate -0.1", "learning_rate is -0.1"),
        ("--value-goals 0 1 1", "that sum to 1"),
        ("--actor-goals 0.5 0.2 0.2", "that sum to 1"),
        ("--value-goals -1 1 1", "three probabilities"),
        ("--hidden 0", "hidden is (0,)"),
        ("--target-rate 2", "target_rate is 2"),
        ("--seeds 0 0", "seeds are [0, 0]"),
        ("--seeds -1", "seeds are [-1]"),
        ("--seeds 4294967296", "seeds are [4294967296]"),  # one more than the largest seed
    ],
)
def test_out_of_range_values_are_rejected(
    flags: str, message: str, gtrl: Gtrl, mini_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    result = gtrl("train", "gtrl", "--task", MINI, "--data", mini_file, "--out", out, *flags.split())
    assert_one_line_error(result, message)
    assert not out.exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train bc --gamma high", "high"),
        ("train bc --steps 1.5", "1.5 is not a whole number"),
        ("train bc --steps 1e400", "1e400 is not a whole number"),
        ("evaluate run --episodes many", "many is not a whole number"),
        ("train bc --task", "--task"),
        ("evaluate", "run directory"),
        ("tasks --jsn", "--json"),
    ],
)
def test_invalid_flags_are_rejected(command: str, message: str, gtrl: Gtrl) -> None:
    status, output, stderr = gtrl(*command.split())
    assert (status, output) == (2, "")
    assert message in stderr
    assert "Traceback" not in stderr
    assert stderr.count("usage: ") == stderr.count("usage: gtrl")  # not the name of a Python file


BAD_DATA = {
    "NaN": ({"observations": np.full((9, 2), np.nan)}, "holds NaN"),
    "lengths": ({"actions": np.zeros((8, 2))}, "differ in length"),
    "no terminal": ({"terminals": np.zeros(9, bool)}, "no row is marked as the last of its episode"),
    "dimensions": ({"observations": np.zeros((9, 3))}, f"observations have 3 dimensions where {MINI} has 2"),
    "missing key": ({"actions": None}, "it has no array 'actions'"),
}


@pytest.mark.parametrize(("changes", "message"), BAD_DATA.values(), ids=BAD_DATA)
def test_bad_data_is_rejected(
    changes: dict[str, Any], message: str, gtrl: Gtrl, write_file: Callable[..., Path], tmp_path: Path
) -> None:
    path = write_file(**changes)
    before = contents(tmp_path)
    assert_one_line_error(gtrl("train", "bc", "--task", MINI, "--data", path, "--out", tmp_path / "run"), message)
    assert contents(tmp_path) == before
    status, output, stderr = gtrl("data", "check", path, "--task", MINI)
    assert (status, stderr) == (2, "")
    assert message in output
    assert "this file has problems" in output


def test_truncated_data_is_rejected(gtrl: Gtrl, write_file: Callable[..., Path], tmp_path: Path) -> None:
    path = write_file()
    path.write_bytes(path.read_bytes()[:-200])
    for command in (["train", "bc", "--task", MINI, "--out", tmp_path / "run", "--data"], ["data", "check"]):
        assert_one_line_error(gtrl(*command, path), "it may be truncated")
    assert list(tmp_path.iterdir()) == [path]


def test_interrupt_exits_with_130(gtrl: Gtrl, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.COMMANDS, "tasks", interrupted)
    assert gtrl("tasks") == (130, "", "gtrl: interrupted\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_exit_status_after_a_signal(
    number: signal.Signals, status: int, gtrl: Gtrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise Interrupted("step 3 is saved", number)

    monkeypatch.setitem(cli.COMMANDS, "tasks", interrupted)
    assert gtrl("tasks") == (status, "", "gtrl: interrupted; step 3 is saved\n")


# --- messages and terminals ---


def test_log_messages(gtrl: Gtrl, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        log = logging.getLogger("gtrl.data.anything")
        log.debug("never shown")
        log.info("a [bold] path/that/is/long/%s", 100 * "x")
        log.warning("something [odd]")

    monkeypatch.setitem(cli.COMMANDS, "tasks", work)
    assert gtrl("tasks") == (0, f"a [bold] path/that/is/long/{100 * 'x'}\n", "gtrl: something [odd]\n")
    work()  # as a library, within pytest, which captures the warning
    assert capsys.readouterr() == ("", "")


def test_library_use_shows_warnings_only() -> None:
    program = "import logging, gtrl.console\nlog = logging.getLogger('gtrl.x')\nlog.info('no')\nlog.warning('yes')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "yes\n")


ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "", "PYTHONUTF8": "0"}


def test_output_in_an_ascii_locale() -> None:
    program = """
import sys
from gtrl import cli
for command in ("tasks", "algorithms", "train gtrl --help"):
    print("###", flush=True)
    try:
        status = cli.main(command.split())
    except SystemExit as end:  # after a help text
        status = end.code
    assert not status, command
    sys.stdout.flush()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, env=os.environ | ASCII)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    before, *outputs = done.stdout.split(b"###")
    assert before == b""
    assert [len(output) > 500 for output in outputs] == [True] * 3


def test_unencodable_characters_are_replaced() -> None:
    program = (
        "import sys, logging, gtrl.cli as cli\n"
        "def work():\n    print('\\u03b3'); cli.console.echo('\\u03ba'); logging.getLogger('gtrl').warning('\\u03bb')\n"
        "cli.COMMANDS['tasks'] = work\nsys.exit(cli.main(['tasks']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, env=os.environ | ASCII)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"?\n?\n", b"gtrl: ?\n")


@pytest.mark.parametrize("command", ["tasks", "tasks --json", "--help", "train gtrl --help", "tasks --help"])
def test_closed_pipe_ends_quietly(command: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "gtrl", *command.split()], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_closed_pipe_of_a_worker_is_reported(gtrl: Gtrl, monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setitem(cli.COMMANDS, "tasks", work)
    assert gtrl("tasks") == (2, "", "gtrl: [Errno 32] Broken pipe\n")


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_narrow_terminal_shows_everything(columns: int, gtrl: Gtrl, monkeypatch: pytest.MonkeyPatch) -> None:
    def cells(command: str) -> list[str]:
        return [cell.strip() for line in gtrl(command)[1].splitlines() for cell in line.split("│")[1:-1]]

    wide = {command: cells(command) for command in ("tasks", "algorithms")}
    assert "humanoidmaze-medium-navigate" in wide["tasks"]
    monkeypatch.setenv("COLUMNS", str(columns))
    for command, expected in wide.items():
        lines = gtrl(command)[1].splitlines()
        assert max(map(len, lines)) <= columns
        assert not any("…" in line for line in lines)
        # Words may be split over lines, so letters are counted: none is missing.
        shown, needed = (Counter("".join(texts)) for texts in (lines, expected))
        assert not needed - shown - Counter(" ")
    if columns == 60:  # one number per line
        assert "episode       1,000" in gtrl("tasks")[1]


# --- the other commands ---


def test_data_check(gtrl: Gtrl, mini_file: Path) -> None:
    status, output, stderr = gtrl("data", "check", mini_file)
    assert (status, stderr) == (0, "")
    rows = len(np.load(mini_file)["terminals"])
    for message in (MINI, "episodes     12,", f"{rows - 12:,}", f"{rows}×2", "no problems found"):
        assert message in output


def test_data_collect(gtrl: Gtrl, tmp_path: Path) -> None:
    command = ("data", "collect", MINI, "--episodes", 1, "--workers", 1, "--seed", 3, "--out", tmp_path / "a.npz")
    status, output, _ = gtrl(*command)
    assert status == 0
    assert str(tmp_path / "a.npz") in output
    written = contents(tmp_path)
    assert set(written) == {"a.npz", "a-val.npz", "a.origin.json"}
    assert gtrl(*command)[0] == 0  # it exists
    assert contents(tmp_path) == written
    status, _, stderr = gtrl(*command, "--episodes", 2)
    assert status == 2
    assert "exists already" in stderr
    assert contents(tmp_path) == written


def test_algorithms_in_json(gtrl: Gtrl) -> None:
    status, output, _ = gtrl("algorithms", "--json")
    assert status == 0
    rows = json.loads(output)
    assert [row["name"] for row in rows] == list(METHODS)
    shared = {
        "gamma": 0.99, "value_goals": [0.0, 0.5, 0.5], "value_geometric": True, "actor_goals": [0.0, 1.0, 0.0],
        "actor_geometric": False, "random_last_rows": True, "hidden": [512, 512, 512], "actor_layer_norm": True,
        "target_rate": 0.005, "target_from": "updated",
    }  # fmt: skip
    for row in rows:
        assert set(row) == {"name", "family", "fields", "reconstruction", "reference"}
        family, own = METHODS[row["name"]]
        assert row["family"] == family
        # As text, for 1, 1.0 and true are not the same type; `lambda` is spelled as its flag is.
        assert json.dumps(row["fields"], sort_keys=True) == json.dumps(shared | own, sort_keys=True), row["name"]
        assert row["reconstruction"] is (row["name"] in ("tdp", "coe"))
        assert row["reference"].strip()


def test_table_of_algorithms(gtrl: Gtrl) -> None:
    references = {row["name"]: row["reference"] for row in json.loads(gtrl("algorithms", "--json")[1])}
    status, table, _ = gtrl("algorithms")
    assert status == 0
    lines = [line for line in table.splitlines() if line.startswith("│")]
    assert len(lines) == len(METHODS)
    for line, (name, (family, _)) in zip(lines, METHODS.items(), strict=True):
        method, shown, idea, reference = (cell.strip() for cell in line.strip("│").split("│"))
        assert (method, shown, reference) == (name, family, references[name])
        assert len(idea.split()) > 3


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "evaluate"),
        ("--help", "evaluate"),
        ("data", "collect"),
        ("data --help", "check"),
        ("data check --help", "--task"),
        ("data collect --help", "--episodes"),
        ("train", "one of gtrl, trl, bc, fbc, ivl, iql, td, td-n, crl, mc, qrl, tdp, coe;"),
        ("train --help", "one of gtrl, trl, bc, fbc, ivl, iql, td, td-n, crl, mc, qrl, tdp, coe;"),
        ("train gtrl --help", "--lambda"),
        ("train gtrl --task pointmaze-teleport-stitch --help", "10.0"),  # the task's own alpha
        ("train iql --task pointmaze-large-stitch --help", "0.003"),
        ("train td-n --task humanoidmaze-large-stitch --help", "default: 50)"),
        *((f"train {method} --help", "--actor-goals") for method in METHODS if method != "gtrl"),
        ("evaluate --help", "--episodes"),
        ("tasks --help", "--json"),
        ("algorithms --help", "--json"),
        ("demo --help", "--seed"),
    ],
)
def test_help(command: str, message: str, gtrl: Gtrl) -> None:
    status, output, stderr = gtrl(*command.split())
    assert (status, stderr) == (0, "")
    assert "usage: gtrl" in output
    assert message in output


def test_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # The second of two single steps; tests/test_speed.py tests how steps are timed.
    monkeypatch.setattr(bench, "timed", lambda run, *_: [bench._elapsed(run, 1) for _ in range(2)][1:])
    small = ["--task", MINI, "--hidden", "8", "--batch-sizes", "16", "--transitions", "400", "--repeats", "1"]
    assert (
        cli.main(["bench", "mc", *small, "--seeds", "1", "2", "--precisions", "float32", "--out", f"{tmp_path}/b.json"])
        == 0
    )
    assert "seed-steps/s" in capsys.readouterr().out
    result = json.loads((tmp_path / "b.json").read_text())
    assert [(row["method"], row["seeds"], row["precision"]) for row in result["rows"]] == [
        ("mc", 1, "float32"), ("mc", 2, "float32"),
    ]  # fmt: skip
    for row in result["rows"]:
        assert row["seed_steps_per_second"] == pytest.approx(row["seeds"] / row["seconds_per_step"])
        assert row["ratio"] == pytest.approx(row["seed_steps_per_second"] / row["reference_steps_per_second"])
        assert row["limit_seed_steps_per_second"] > row["seed_steps_per_second"]
    assert result["rows"][1]["flops"] == 2 * result["rows"][0]["flops"]
    assert result["machine"]["rates"]["float32"]["flops_per_second"] > 1e9


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["nonsense"], "nonsense"),
        (["--seeds", "0"], "--seeds must be positive"),
        (["--repeats", "0"], "--repeats must be positive"),
        (["--transitions", "1"], "--transitions is 1"),
        (["--task", "antmaze"], "antmaze"),
    ],
)
def test_bench_rejects_invalid_flags(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *flags]) == 2
    assert message in capsys.readouterr().err

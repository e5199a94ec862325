"""All thirteen methods through the command line: trained in both precisions, evaluated, in one table.

A few steps each; `benchmarks/methods.py` trains 20,000.
"""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gtrl import cli
from gtrl.algorithms import ALGORITHMS
from gtrl.runs.policy import load_policy
from gtrl.runs.run import Run
from gtrl.tasks import REGISTERED, find_task

TASK = "pointmaze-mini-navigate"
STEPS = 20
SMALL = ["--steps", str(STEPS), "--batch-size", "32", "--hidden", "8", "--log-every", "10", "--seeds", "0", "1"]
NARROW = {"crl": ["--latent", "16"], "qrl": ["--latent", "16"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, mini_file: Path) -> Path:
    """Holds data without a validation file, which would compile another program."""
    folder = tmp_path_factory.mktemp("methods")
    shutil.copy(mini_file, folder / "data.npz")
    return folder


def trained(method: str, precision: str, folder: Path) -> Run:
    """The run, trained on first use."""
    run = Run(folder / precision / method)
    if not run.exists:
        where = ["--task", TASK, "--data", str(folder / "data.npz"), "--out", str(run.path), "--precision", precision]
        assert cli.main(["train", method, *where, *SMALL, "--checkpoint-every", "10", *NARROW.get(method, [])]) == 0
    return run


# In float32, `make test` trains GTRL, TD and BC in many other files, and here the method whose networks differ most.
IN_FLOAT32 = ("qrl",)


@pytest.mark.parametrize(
    ("method", "precision"),
    [
        *((method, "bfloat16") for method in ALGORITHMS),
        *(
            pytest.param(method, "float32", marks=() if method in IN_FLOAT32 else pytest.mark.soak)
            for method in ALGORITHMS
        ),
    ],
)
def test_method_trains(method: str, precision: str, folder: Path):
    """Everything that is logged is finite, the networks move, and their policies act within the limits."""
    run = trained(method, precision, folder)
    rows = list(run.metrics())
    assert {(row["step"], row["seed"]) for row in rows} == {(step, seed) for step in (10, STEPS) for seed in (0, 1)}
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert {"loss", "actor_loss"} <= set(rows[0])
    points = np.random.default_rng(0).uniform(0, 8, (2, 5, 2))
    early, late = (load_policy(run.policy_path(0, step))(*points) for step in (10, STEPS))
    assert np.abs(late).max() <= 1
    assert (early != late).any()


@pytest.mark.usefixtures("in_process")
def test_all_methods_appear_in_one_table(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(REGISTERED.entries, TASK, replace(find_task(TASK), episode_length=20))
    runs = [trained(method, "bfloat16", folder) for method in ALGORITHMS]
    assert cli.main(["evaluate", *(str(run.path) for run in runs), "--episodes", "1", "--workers", "1"]) == 0
    table = capsys.readouterr().out.split("mean and standard deviation over seeds")[1]
    lines = [line.split("│")[1:-1] for line in table.splitlines() if "│" in line]
    assert [line[0].strip().lower() for line in lines] == list(ALGORITHMS)
    for line, run in zip(lines, runs, strict=True):
        rows = run.evaluations()
        assert {row["algorithm"] for row in rows} == {run.path.name}
        scores = [100 * sum(row["successes"] for row in rows if row["seed"] == seed) / 5 for seed in (0, 1)]
        overall = f"{sum(scores) / 2:.1f} ± {abs(scores[0] - scores[1]) / 2**0.5:.1f}"  # over n - 1
        assert [cell.strip() for cell in (*line[1:3], line[-1])] == [str(STEPS), "2", overall]
        has_value = (run.path / "values.npz").exists()
        assert has_value == (run.path.name not in ("bc", "fbc"))
        if has_value:
            values = np.load(run.path / "values.npz")["values"]
            assert np.isfinite(values[~np.isnan(values)]).all()
            assert values.shape[:2] == (2, 5)

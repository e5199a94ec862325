"""`examples/own_everything`: a separate package with its own environment, task, method, optimiser and callback."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import gtrl
from gtrl import cli
from gtrl.algorithms import ALGORITHMS
from gtrl.registry import resolve
from gtrl.tasks import REGISTERED
from gtrl.training.session import CALLBACKS

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_everything"
METHOD, TASK, CALLBACK = (
    "own_everything.method:NearMC", "own_everything.task:GLIDER", "own_everything.callback:LossCsv",
)  # fmt: skip
SETTINGS = "--steps 80 --log-every 20 --checkpoint-every 40 --seeds 0 1 --hidden 8 --batch-size 32"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the collected data."""
    found = tmp_path_factory.mktemp("own")
    command = [sys.executable, "-m", "own_everything.collect", found / "glider.npz", "60"]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(EXAMPLE)})
    return found


@pytest.fixture(scope="module")
def command(folder: Path) -> Callable[..., str]:
    """Runs `gtrl` as an installed user would, next to the package: it finds it in the current directory."""
    (folder / "own_everything").symlink_to(EXAMPLE / "own_everything")

    def run(*words: str, status: int = 0) -> str:
        program = "import sys; from gtrl.cli import main; sys.exit(main())"  # not -m: that adds the directory itself
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, *words],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def trained(command: Callable[..., str], folder: Path) -> gtrl.Run:
    command(
        "train",
        METHOD,
        "--task",
        TASK,
        "--data",
        "glider.npz",
        "--out",
        "run",
        "--callbacks",
        CALLBACK,
        *SETTINGS.split(),
    )
    return gtrl.Run.open(folder / "run")


def test_command_line_with_own_package(trained: gtrl.Run, command: Callable[..., str]) -> None:
    config = trained.config
    assert (config["algorithm"]["name"], config["task"]) == ("near-mc", "glider")
    assert config["algorithm"]["gamma"] == 0.97  # the task's
    assert config["plugins"] == ["own_everything.method", "own_everything.task"]
    assert trained.policy_steps == [40, 80]
    lines = (trained.path / "loss.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["step", "20", "40", "60", "80"]
    shown = command("evaluate", "run", "--episodes", "4")
    assert "glider" in shown
    rows = trained.evaluations()
    assert {row["goal"] for row in rows} == {"goal1", "goal2", "goal3"}
    assert {(row["task"], row["algorithm"], row["episodes"]) for row in rows} == {("glider", "near-mc", 4)}


def test_resumed_run_equals_an_uninterrupted_run(
    trained: gtrl.Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the run directory alone: the method, the task, the data and all flags come from its config."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    half = ["--steps", "40", "--out", "parts"]
    words = ["train", METHOD, "--task", TASK, "--data", "glider.npz", "--callbacks", CALLBACK, *SETTINGS.split()]
    assert cli.main([*words, *half]) == 0
    assert cli.main(["train", "--resume", "--out", "parts", "--steps", "80", "--callbacks", CALLBACK]) == 0
    parts = gtrl.Run.open(folder / "parts")
    for name in ("metrics.jsonl", "loss.csv"):
        assert (parts.path / name).read_bytes() == (trained.path / name).read_bytes()
    for seed in (0, 1):
        assert parts.policy_path(seed).read_bytes() == trained.policy_path(seed).read_bytes()


@pytest.mark.usefixtures("in_process")
def test_example_method_learns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through Python: the policy reaches goals that the same network untrained does not."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from own_everything.callback import LossCsv  # pyright: ignore[reportMissingImports]
    from own_everything.method import NearMC  # pyright: ignore[reportMissingImports]
    from own_everything.task import GLIDER  # pyright: ignore[reportMissingImports]

    how = {"seeds": 0, "hidden": (32, 32), "batch_size": 128, "learning_rate": 2e-3, "show": False}
    run = gtrl.train(
        NearMC, folder / "glider.npz", task=GLIDER, out=folder / "learned", steps=1000, checkpoints=(1,),
        callbacks=[LossCsv()], **how,
    )  # fmt: skip
    rates = {}
    for step in (1, 1000):
        rows = gtrl.evaluate(run, step=step, episodes=10, workers=1, show=False)
        rates[step] = sum(row["successes"] for row in rows) / sum(row["episodes"] for row in rows)
    assert rates[1000] > 0.8
    assert rates[1] < 0.4


def test_entry_points_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    groups = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    for registry in (ALGORITHMS, REGISTERED, CALLBACKS):
        (name, reference), = groups[registry.group].items()  # fmt: skip
        thing = resolve(reference)
        assert registry.accepts(thing)
        assert thing.name == name

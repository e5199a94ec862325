"""The page "Your own robot": its commands, and the same log through every format to the same policy."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_logs import (
    BOUND,
    collect_minari,
    episodes_of,
    make_log,
    save,
    transitions_of,
    without_last_states,
    write_csv,
    write_d4rl,
    write_lerobot,
    write_parquet,
    write_robomimic,
)

import gtrl
from gtrl import cli
from gtrl.data.dataset import Data
from gtrl.data.load import load_dataset
from gtrl.runs.run import Run

ROOT = Path(__file__).resolve().parents[1]
TINY: dict[str, Any] = {"hidden": (8,), "batch_size": 16, "steps": 20, "log_every": 20, "show": False}
QUICK = ["--steps", "40", "--hidden", "8", "--batch-size", "32"]


def commands_in(page: Path) -> list[list[str]]:
    """The commands of the first bash block."""
    block = re.search(r"```bash\n(.*?)```", page.read_text(), re.S)
    assert block
    return [shlex.split(line) for line in block[1].splitlines()]


def run_page(folder: Path, extra: list[str]) -> None:
    """Runs the commands of the page in a copy of the example, with `extra` flags of `gtrl train`."""
    for program, *words in commands_in(ROOT / "docs" / "own_robot.md"):
        if program == "gtrl":
            assert cli.main([*words, *(extra if words[0] == "train" else [])]) == 0, words
        else:
            subprocess.run([sys.executable, *words], cwd=folder, check=True)


@pytest.fixture
def arm_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example, which is the working directory."""
    folder = Path(shutil.copytree(ROOT / "examples" / "arm", tmp_path / "arm"))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_the_page_and_the_example_have_the_same_commands():
    assert commands_in(ROOT / "docs" / "own_robot.md") == commands_in(ROOT / "examples" / "arm" / "README.md")


def test_every_command_of_the_page_works(arm_folder):
    run_page(arm_folder, QUICK)
    run = Run.open(arm_folder / "run")
    rows = run.evaluations()
    assert (len(rows), sum(row["episodes"] for row in rows)) == (100, 100)
    policy = gtrl.load_policy(run.policy_path(0))
    assert policy.header["columns"]["goal"] == ["tip_x", "tip_y"]
    with np.load(arm_folder / "log.npz") as log:
        action = policy(log["observations"][0], [0.5, 0.5])
    import onnxruntime

    session = onnxruntime.InferenceSession(str(arm_folder / "run" / "policy.onnx"))
    inputs = {"observation": log_row(arm_folder), "goal": np.array([[0.5, 0.5]], np.float32)}
    (exported,) = session.run(None, inputs)
    assert np.allclose(np.asarray(exported)[0], action, atol=1e-4)
    assert np.abs(action).max() <= 5


def log_row(folder: Path) -> np.ndarray:
    with np.load(folder / "log.npz") as log:
        return log["observations"][:1].astype(np.float32)


@pytest.mark.soak
def test_the_default_command_reaches_the_goals(arm_folder):
    run_page(arm_folder, [])
    rows = Run.open(arm_folder / "run").evaluations()
    assert sum(row["successes"] for row in rows) >= 95


def load(source: Any) -> Data:
    """The goal is the first two columns, which each format names in its own way."""
    return load_dataset(source, goal="0:2", action_bounds=(-BOUND, BOUND))


def trained(source: Any, out: Path) -> dict[str, np.ndarray]:
    """The arrays of the policy that is trained on a log; without its header, which names the columns."""
    run = gtrl.train("gtrl", load(source), out=out, **TINY)
    with np.load(run.policy_path(0)) as policy:
        return {name: array for name, array in policy.items() if name != "header"}


def same_data(found: Data, expected: Data) -> bool:
    """Whether everything that training reads is the same, bit for bit."""
    arrays = zip(found.train, expected.train, strict=True)
    return found.scaling == expected.scaling and all(
        one is other if one is None or other is None else np.array_equal(one, other) for one, other in arrays
    )


def same_arrays(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)


def test_the_same_log_gives_the_same_policy_through_every_format(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    log = make_log((30, 25, 40))
    own = save(tmp_path / "own.npz", **log)
    minari = f"minari:{collect_minari(log, 'robot/reach-v0')}"
    sources: dict[str, Any] = {
        "npz with next observations": save(tmp_path / "next.npz", **transitions_of(log)),
        "Minari": minari,
        "D4RL": write_d4rl(tmp_path / "d4rl.hdf5", log),
        "robomimic": write_robomimic(tmp_path / "robomimic.hdf5", log),
        "CSV": write_csv(tmp_path / "log.csv", log),
        "parquet": write_parquet(tmp_path / "log.parquet", log),
        "episodes": [{"observations": states, "actions": actions} for states, actions in episodes_of(log)],
    }
    for name, source in sources.items():
        assert same_data(load(source), load(own)), name
    expected = trained(own, tmp_path / "run")
    assert same_arrays(trained(minari, tmp_path / "minari-run"), expected)
    # LeRobot has no state after the last action: the policy is that of the log without these states.
    lerobot = write_lerobot(tmp_path / "lerobot", log)
    shorter = save(tmp_path / "shorter.npz", **without_last_states(log))
    assert same_data(load(lerobot), load(shorter))
    policy = trained(lerobot, tmp_path / "lerobot-run")
    assert same_arrays(policy, trained(shorter, tmp_path / "shorter"))
    assert not same_arrays(policy, expected)

"""Small versions of the examples."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gtrl.runs.run import Run

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")  # Gymnasium-Robotics emits warnings
def test_pointmaze_umaze(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rate = load("pointmaze_umaze").main(tmp_path, episodes=4, steps=20, seeds=2, evaluated=3)
    assert 0 <= rate <= 100
    assert "success in 3 episodes of each seed: " in capsys.readouterr().out
    data = np.load(tmp_path / "umaze.npz")
    assert data["observations"].shape == (4 * 300, 4)
    np.testing.assert_array_equal(np.flatnonzero(data["terminals"]), [299, 599, 899, 1199])
    # It moves: within the corridor, whose cells are 1 wide, from one end of the U to the other.
    positions = data["observations"][:, :2]
    assert np.abs(positions).max() < 1.5
    assert np.ptp(positions, axis=0).min() > 1
    run = Run.open(tmp_path / "run")
    rows = run.evaluations()
    assert [(row["task"], row["seed"], row["goal"], row["episodes"]) for row in rows] == [
        ("pointmaze-umaze", 0, "random", 3),
        ("pointmaze-umaze", 1, "random", 3),
    ]
    assert rate == pytest.approx(100 * sum(row["successes"] for row in rows) / 6)

"""The worked example of docs/extending.md: a method in its own file, without a change to gtrl."""

import json
import re
import shutil
from pathlib import Path

from gtrl import cli

ROOT = Path(__file__).parents[1]


def test_worked_example_of_a_new_method(tmp_path, mini_file, monkeypatch, capsys):
    section = (ROOT / "docs" / "extending.md").read_text().split("## How do I add a method?")[1]
    (tmp_path / "mix.py").write_text(re.findall(r"```python\n(.*?)```", section, re.S)[0])
    shutil.copy(mini_file, tmp_path / "data.npz")  # without validation, which would compile another program

    how = ["--share", "0.3", "--steps", "20", "--batch-size", "32", "--hidden", "8", "--seeds", "0"]
    train = ["train", "mix:MIX", "--task", "pointmaze-mini-navigate", "--data", "data.npz", "--out", "run", *how]
    commands = [
        train,
        ["evaluate", "run", "--episodes", "1", "--workers", "1"],
        ["train", "--resume", "--out", "run", "--steps", "30"],
    ]
    # In this process; tests/test_own_everything.py starts one for each command.
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for command in commands:
        assert cli.main(command) == 0, command
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["algorithm"]["share"] == 0.3
    assert config["algorithm"]["gamma"] == 0.995  # the task's
    assert config["plugins"] == ["mix"]
    assert "MIX on pointmaze-mini-navigate" in capsys.readouterr().out
    assert (tmp_path / "run" / "values.npz").exists()
    assert config["training"]["steps"] == 30  # as resumed

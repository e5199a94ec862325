"""The worked example of CONTRIBUTING.md, taken by its word: one new file and one line make a fourteenth method."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gtrl

ROOT = Path(__file__).parents[1]


def test_a_fourteenth_method(tmp_path, mini_file):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.split("## A fourteenth method")[1]
    file, line = re.findall(r"```(?:python)?\n(.*?)```", section, re.S)
    package = tmp_path / "src" / "gtrl"
    shutil.copytree(Path(gtrl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "algorithms" / "mix.py").write_text(file)
    listing = package / "algorithms" / "__init__.py"
    before = listing.read_text()
    assert before.count("METHODS = (\n") == 1
    listing.write_text(before.replace("METHODS = (\n", "METHODS = (\n" + line))

    def run(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(package.parent)}
        command = [sys.executable, "-m", "gtrl", *words]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    methods = {method["name"]: method for method in json.loads(run("algorithms", "--json"))}
    assert len(methods) == 14
    assert methods["mix"]["fields"]["share"] == 0.5
    how = ["--share", "0.3", "--steps", "20", "--batch-size", "32", "--hidden", "8", "--seeds", "0"]
    run("train", "mix", "--task", "pointmaze-mini-navigate", "--data", str(mini_file), "--out", "run", *how)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["algorithm"]["share"] == 0.3
    assert config["algorithm"]["gamma"] == 0.995  # the task's
    assert "MIX on pointmaze-mini-navigate" in run("evaluate", "run", "--episodes", "1")
    assert (tmp_path / "run" / "values.npz").exists()

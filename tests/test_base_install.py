"""The base install, without extras: own data is trained on, evaluated and reported; the rest names what is missing.

Everything is installed where tests run, so the packages of the extras are blocked in a process of its own and in the
workers that it starts.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import gtrl
from gtrl.envs import simulator
from gtrl.errors import ConfigError, MissingPackageError
from gtrl.runs.run import Run

ROOT = Path(__file__).parents[1]
MINI = "pointmaze-mini-navigate"
INSTALL = 'pip install "gtrl[ogbench]"'
BLOCKED = (
    "ogbench", "mujoco", "dm_control", "labmaze", "glfw", "OpenGL", "lxml", "minari", "h5py", "pyarrow", "onnx",
    "onnxruntime", "ray", "wandb", "plotly", "imageio_ffmpeg", "gymnasium_robotics",
)  # fmt: skip
# Python imports it at its start, in workers too.
SITECUSTOMIZE = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
# Success depends on the goal alone, so that it is known whatever the policy has learned.
LINE = """
import gymnasium
import numpy as np

import gtrl

class Line(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.goal = np.zeros(2, np.float32), np.asarray(options["goal"], np.float32)
        return self.state, {"goal": self.goal}

    def step(self, action):
        self.state = self.state + np.float32(0.1) * np.array([action[0], 1], np.float32)
        return self.state, 0.0, False, False, {"success": bool(self.goal[0] > 0)}

TASK = gtrl.Task("line", environment=Line, goals=[[1.0], [-1.0], [2.0]], episode_length=5)
"""
# Runs commands in one process, since importing JAX takes most of the time.
PROGRAM = """
import contextlib, io, json, sys
from gtrl.cli import main

results = {}
for name, words in json.load(sys.stdin).items():
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        status = main(words)
    results[name] = [status, " ".join(text.getvalue().split())]
import gtrl.bench, gtrl.report.report, gtrl.theory.summary  # their commands take seconds
modules = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"results": results, "modules": modules}))
"""
TINY = "--hidden 8 --batch-size 16 --steps 4 --log-every 2 --checkpoint-every 4 --seeds 0"


class Result(NamedTuple):
    """The exit status of a command, and what it printed, in one line."""

    status: int
    text: str


class Base(NamedTuple):
    """What the commands did in the base install."""

    folder: Path
    results: dict[str, Result]
    modules: set[str]  # top-level modules that the process had imported at its end


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, mini_file: Path) -> Base:
    folder = tmp_path_factory.mktemp("base")
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)
    (folder / "line.py").write_text(LINE)
    write_own_data(folder / "own.npz")
    own, mini = "--data own.npz", f"--task {MINI} --data {mini_file}"
    commands = {
        "help": "--help",
        "tasks": "tasks",
        "algorithms": "algorithms",
        "check": "data check own.npz",
        "train": f"train gtrl {own} --out own {TINY}",
        "evaluate": "evaluate own --task line:TASK --episodes 2 --workers 1",
        "diagnose": "diagnose own",
        "train mini": f"train bc {mini} --out mini {TINY}",
        "check mini": f"data check {mini_file} --task {MINI}",
        "demo": "demo",
        "collect": "data collect pointmaze-large-navigate --out collected/data.npz",
        "evaluate mini": "evaluate mini",
        "evaluate policy": "evaluate mini/policies/step-4/seed-0.npz",
        "diagnose mini": "diagnose mini",
        "video": "evaluate mini --video",
        "picture": f"data check {mini_file} --task {MINI} --picture data.png",
        "evaluate during": f"train bc {mini} --out during {TINY} --eval-during",
        "sweep": f"sweep sweep.yaml --out swept --data {MINI}={mini_file}",
        "page": "report own --out page",
        "wandb": f"train bc {own} --out logged {TINY} --wandb project",
    }
    (folder / "sweep.yaml").write_text(f"tasks: [{MINI}]\nmethods: [bc]\nsteps: 4\n")
    source = Path(gtrl.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps({name: line.split() for name, line in commands.items()}),
        cwd=folder, env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{source}"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return Base(folder, {name: Result(*each) for name, each in found["results"].items()}, set(found["modules"]))


def write_own_data(path: Path) -> None:
    """Six episodes of ten transitions on the line, with the achieved position as the goal."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (6, 11, 1)).astype(np.float32)
    moves = np.concatenate([actions, np.ones_like(actions)], -1)[:, :-1]
    states = np.concatenate([np.zeros((6, 1, 2)), 0.1 * moves.cumsum(1)], 1).astype(np.float32).reshape(-1, 2)
    terminals = np.arange(len(states)) % 11 == 10
    np.savez(path, observations=states, actions=actions.reshape(-1, 1), terminals=terminals, goals=states[:, :1])


@pytest.mark.parametrize(
    "name",
    ["help", "tasks", "algorithms", "check", "train", "evaluate", "diagnose", "train mini", "check mini",
     "diagnose mini"],
)  # fmt: skip
def test_command_of_the_base(name: str, base: Base) -> None:
    result = base.results[name]
    assert result.status == 0, result.text
    assert "Traceback" not in result.text


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("demo", "the demo"),
        ("collect", "collecting data of pointmaze-large-navigate"),
        ("evaluate mini", f"the environment of {MINI}"),
        ("evaluate policy", f"the environment of {MINI}"),
        ("video", "a video"),
        ("picture", f"the environment of {MINI}"),
        ("evaluate during", f"the environment of {MINI}"),
        ("sweep", f"the environment of {MINI}"),
    ],
)
def test_command_that_needs_the_simulator(name: str, what: str, base: Base) -> None:
    """One sentence that names the command, before anything else is done."""
    result = base.results[name]
    assert result.status == 2, result.text
    assert result.text.endswith(f"gtrl: {what} needs OGBench and MuJoCo: {INSTALL}."), result.text


def test_other_extras_are_named(base: Base) -> None:
    for name, extra in (("page", "report"), ("wandb", "wandb")):
        assert base.results[name].status == 2
        assert f"gtrl[{extra}]" in base.results[name].text


def test_nothing_is_left_where_the_simulator_is_missing(base: Base) -> None:
    left = {path.name for path in base.folder.iterdir()} & {"runs", "collected", "data.png", "page"}
    assert not left
    assert not list((base.folder / "swept").rglob("*.npz"))


def test_nothing_of_an_extra_is_imported(base: Base) -> None:
    assert {"jax", "gymnasium"} <= base.modules
    assert not base.modules & set(BLOCKED)


def test_evaluation_in_an_own_environment(base: Base) -> None:
    rows = Run.open(base.folder / "own").evaluations()
    found = {row["goal"]: (row["episodes"], row["successes"]) for row in rows}
    assert found == {"goal1": (2, 2), "goal2": (2, 0), "goal3": (2, 2)}


def test_parts_that_need_the_maze_are_left_out_with_a_reason(base: Base) -> None:
    for name in ("check mini", "diagnose mini"):
        assert INSTALL in re.sub(r"[\s│]+", " ", base.results[name].text)


# --- the message ---


@pytest.fixture
def without_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in simulator.PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)


def test_simulator_that_is_installed_is_not_imported() -> None:
    program = (
        "import sys\nfrom gtrl.envs.simulator import require_simulator\nrequire_simulator('this')\n"
        f"assert not {{name.partition('.')[0] for name in sys.modules}} & set({BLOCKED!r})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("missing", simulator.PACKAGES)
def test_one_missing_package_is_enough(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(MissingPackageError, match="this needs OGBench and MuJoCo"):
        simulator.require_simulator("this")


@pytest.mark.usefixtures("without_simulator")
def test_message_on_a_python_without_labmaze(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    expected = f"does not install on Python 3.14 yet: use Python 3.11 or 3.12, and {INSTALL}."
    with pytest.raises(ConfigError, match=re.escape(expected)):
        simulator.require_simulator("this")


@pytest.mark.usefixtures("without_simulator")
def test_own_environment_needs_no_simulator() -> None:
    for environment in (None, "my_package:MyEnv-v0", "my_module:make", dict):
        simulator.require_simulator_of(gtrl.Task("own", environment=environment))
    with pytest.raises(MissingPackageError, match="the environment of own"):
        simulator.require_simulator_of(gtrl.Task("own", environment="ogbench/cube-single-v0"))


# --- the declared dependencies ---

MODULE_OF = {"pillow": "PIL", "pyyaml": "yaml", "imageio-ffmpeg": "imageio_ffmpeg"}


def declared(requirements: list[str]) -> set[str]:
    """The modules of requirements."""
    names = [re.match(r"[\w.-]+", requirement) for requirement in requirements]
    return {MODULE_OF.get(name[0], name[0]) for name in names if name}


def third_party_imports(*, late: bool) -> set[str]:
    """The top-level modules that the package imports from others: in functions, or else when a module is imported."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "src" / "gtrl").rglob("*.py")]
    found = {name.partition(".")[0] for tree in trees for name, inside in imports(tree, False) if inside == late}
    return {name for name in found if name != "gtrl" and name not in sys.stdlib_module_names}


def imports(node: ast.AST, in_function: bool) -> Iterator[tuple[str, bool]]:
    """The modules that are imported below a node, and whether a function does it."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, in_function) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module, in_function
    elif not isinstance(node, ast.expr):
        inside = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child in ast.iter_child_nodes(node):
            yield from imports(child, inside)


def test_dependencies_are_those_that_the_package_imports() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = declared(project["dependencies"])
    at_import, late = third_party_imports(late=False), third_party_imports(late=True)
    assert at_import - {"onnx"} <= needed  # gtrl.exports.onnx_file imports it, and is itself imported by a function
    assert needed <= at_import | late
    assert not needed & set(BLOCKED)
    extras = {extra: declared(each) for extra, each in project["optional-dependencies"].items()}
    assert late <= needed | {name for extra, names in extras.items() if extra not in ("dev", "docs") for name in names}

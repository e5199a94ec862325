"""Exported policies: ONNX files and Python files, against the policies they were made from."""

import ast
import importlib.util
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest

import gtrl
from gtrl import cli
from gtrl.errors import ConfigError, GtrlError, RunError
from gtrl.io import mlp_file
from gtrl.io.atomic import PARTIAL_SUFFIX
from gtrl.io.mlp import ACTIVATIONS, Layer
from gtrl.io.scaling import Scaling
from gtrl.runs.policy import load_policy
from gtrl.runs.run import Run

SIZES = {"observation_dim": 5, "goal_dim": 2, "action_dim": 3}
PRESSURE = 101325.37
SCALING = Scaling(
    observation_center=np.array([PRESSURE, 0.3, -2, 1e-3, 0]),
    observation_scale=np.array([50.3, 0.1, 7, 1e-4, 1]),
    goal_center=np.array([12.5, -0.25]),
    goal_scale=np.array([3.3, 0.5]),
    action_center=np.array([0, 2.5, -1]),
    action_scale=np.array([5, 0.1, 0]),
)
COLUMNS = {"observation": ["pressure", "a", "b", "c", "d"], "goal": ["x", "y"], "action": ["u", "v", "w"]}
TOLERANCE = {"float32": 1e-5, "float16": 2e-2}  # of actions within ±1


class Case(NamedTuple):
    """A policy with random weights."""

    kind: str = "gaussian"
    activation: str = "gelu"
    norm: bool = True
    scaled: bool = True
    output: str = "clip"
    standardised: bool = False  # has input_mean and input_deviation


DEFAULT = Case()
CASES = [
    *(Case(kind, norm=norm, scaled=scaled) for kind, norm, scaled in itertools.product(
        ("gaussian", "flow"), (False, True), (False, True))),
    *(Case(activation=name) for name in ACTIVATIONS if name != "gelu"),
    Case(output="tanh", standardised=True),
    Case("flow", standardised=True),
]  # fmt: skip


def write_policy(path: Path, case: Case = DEFAULT, **changes: Any) -> Path:
    """Writes a policy file; `changes` are fields of its header or, if arrays, arrays."""
    rng = np.random.default_rng(1)
    widths = [sum(SIZES.values()) + 1 if case.kind == "flow" else 7, 16, 16, 3]
    layers = [
        Layer(
            rng.normal(size=(before, after)) / np.sqrt(before),
            rng.normal(size=after) / 4,
            *(rng.normal(1, 0.1, (2, after)) if case.norm and depth < 2 else ()),
        )
        for depth, (before, after) in enumerate(itertools.pairwise(widths))
    ]
    moments = rng.uniform(0.5, 2, (2, widths[0])) if case.standardised else (None, None)
    arrays, header = mlp_file.MLP(layers, case.activation, case.output, *moments).export()
    header |= {"kind": case.kind, **SIZES, "algorithm": "gtrl", "task": "arm", "seed": 3, "step": 40}
    header |= {"flow_steps": 4} if case.kind == "flow" else {}
    arrays |= SCALING.to_arrays() if case.scaled else {}
    arrays |= {name: value for name, value in changes.items() if isinstance(value, np.ndarray)}
    header |= {name: value for name, value in changes.items() if name not in arrays}
    mlp_file.write(path, arrays, header)
    return path


def inputs_of(case: Case, rows: int) -> dict[str, np.ndarray]:
    """Random inputs of a policy in its raw units, some beyond the limit of the scaling."""
    rng = np.random.default_rng(2)
    observation, goal, noise = (rng.normal(size=(rows, size)) for size in SIZES.values())
    observation[:, 1] *= 20
    if case.scaled:
        observation = SCALING.observation_center + SCALING.observation_scale * observation
        goal = SCALING.goal_center + SCALING.goal_scale * goal
    named = {"observation": observation, "goal": goal} | ({"noise": noise} if case.kind == "flow" else {})
    return {name: array.astype(np.float32) for name, array in named.items()}


def reference(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    return load_policy(path)(**inputs)


def session_of(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run_onnx(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(session_of(path).run(["action"], inputs)[0])


def module_of(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("exported_policy", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_close(case: Case, action: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert action.dtype == np.float32
    assert action.shape == expected.shape
    scale = SCALING.action_scale if case.scaled else np.ones(3)
    rounding = 1e-6 * np.abs(SCALING.action_center) if case.scaled else 0  # of raw actions in float32
    assert (np.abs(action - expected) <= tolerance * scale + rounding).all(), np.abs(action - expected).max(0)


# --- the same actions ---


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_exports_act_like_the_policy(case: Case, tmp_path: Path) -> None:
    path = write_policy(tmp_path / "seed-3.npz", case)
    for precision, tolerance in TOLERANCE.items():
        model = gtrl.export(path, tmp_path / f"{precision}.onnx", precision=precision)
        code = gtrl.export(path, tmp_path / f"{precision}.py", precision=precision, format="numpy")
        for rows in (1, 7):
            inputs = inputs_of(case, rows)
            expected = reference(path, inputs)
            assert_close(case, run_onnx(model, inputs), expected, tolerance)
            assert_close(case, module_of(code).Policy()(**inputs), expected, tolerance)
    assert np.ptp(reference(path, inputs_of(case, 7)), axis=0)[:2].min() > 0.01  # it is no constant


def test_pressure_keeps_its_accuracy(tmp_path: Path) -> None:
    """A network that returns the scaled pressure / 20: a float32 center would move it by 3e-6."""
    weight = np.zeros((7, 3))
    weight[0] = 1 / 20
    path = tmp_path / "one-layer.npz"
    arrays, header = mlp_file.MLP([Layer(weight, np.zeros(3))]).export()
    unit = dict(zip(("action_center", "action_scale"), (np.zeros(3), np.ones(3)), strict=True))
    header |= {"kind": "gaussian", **SIZES}
    mlp_file.write(path, arrays | SCALING.to_arrays() | unit, header)
    inputs = inputs_of(Case(), 500)
    inputs["observation"][:, 0] = np.linspace(PRESSURE - 200, PRESSURE + 200, 500)
    exact = (inputs["observation"][:, 0].astype(np.float64) - PRESSURE) / 50.3 / 20
    action = run_onnx(gtrl.export(path), inputs)
    np.testing.assert_allclose(action, np.repeat(exact[:, None], 3, 1), rtol=0, atol=5e-8)
    wrong = (inputs["observation"][:, 0] - np.float32(PRESSURE)) / np.float32(50.3) / 20
    assert np.abs(wrong - exact).max() > 2e-6


def test_large_inputs_in_float16(tmp_path: Path) -> None:
    """Inputs and their moments stay float32: they may exceed 65504, the largest float16."""
    path = write_policy(tmp_path / "p.npz", Case(scaled=False), input_mean=np.full(7, 1e5), input_deviation=np.ones(7))
    inputs = inputs_of(Case(scaled=False), 7)
    inputs = {name: array + np.float32(1e5) for name, array in inputs.items()}
    for name in ("p.onnx", "p.py"):
        gtrl.export(path, tmp_path / name, precision="float16", format="onnx" if name == "p.onnx" else "numpy")
    expected = reference(path, inputs)
    np.testing.assert_allclose(run_onnx(tmp_path / "p.onnx", inputs), expected, atol=2e-2)
    np.testing.assert_allclose(module_of(tmp_path / "p.py").Policy()(**inputs), expected, atol=2e-2)


def test_float16_halves_the_file(tmp_path: Path) -> None:
    arrays, header = mlp_file.MLP(
        [Layer(np.ones((7, 999)), np.ones(999)), Layer(np.ones((999, 3)), np.ones(3))]
    ).export()
    mlp_file.write(tmp_path / "p.npz", arrays, header | {"kind": "gaussian", **SIZES})
    for name in ("onnx", "numpy"):
        sizes = [
            gtrl.export(tmp_path / "p.npz", format=name, precision=precision).stat().st_size for precision in TOLERANCE
        ]
        per_number = 2 if name == "onnx" else 2 * 4 / 3 * 121 / 120  # base64, in lines
        assert sizes[0] - sizes[1] == pytest.approx(per_number * sum(array.size for array in arrays.values()), rel=0.02)


def test_exported_actions_stay_within_their_bounds(tmp_path: Path) -> None:
    """Bounds of 0.3 and 0.7 lie between two numbers of float32."""
    changes: dict[str, Any] = {
        "action_center": np.array([0, 0.4, 0]), "action_scale": np.array([0.3, 0.3, 0.1])
    }  # fmt: skip
    path = write_policy(tmp_path / "p.npz", bias2=np.array([9.0, 9, -9]), **changes)
    inputs = inputs_of(DEFAULT, 7)
    for action in (
        reference(path, inputs),
        run_onnx(gtrl.export(path), inputs),
        module_of(gtrl.export(path, format="numpy")).Policy()(**inputs),
    ):
        assert (np.abs(action.astype(np.float64) - changes["action_center"]) <= changes["action_scale"]).all()
        np.testing.assert_allclose(action, np.tile([0.3, 0.7, -0.1], (7, 1)), rtol=1e-6)


def test_columns_too_fine_for_float32_are_refused(tmp_path: Path) -> None:
    center, scale = np.array([5.4e6, 1e5, 0, 0, 0]), np.array([0.5, 1, 1, 1, 1])  # 1e5 ± 1 is a constant column
    path = write_policy(tmp_path / "p.npz", columns=COLUMNS, observation_center=center, observation_scale=scale)
    with pytest.raises(RunError, match=r"too coarse for pressure \(5400000 ± 0\.5\): export with --format numpy, or"):
        gtrl.export(path)
    observation = np.array([5.4e6 + 0.2, 1e5, 0, 0, 0])
    action = module_of(gtrl.export(path, format="numpy")).Policy()(observation, np.zeros(2))
    np.testing.assert_allclose(action, reference(path, {"observation": observation, "goal": np.zeros(2)}), atol=1e-5)


# --- what the files are like ---


def test_onnx_file_describes_itself(tmp_path: Path) -> None:
    path = write_policy(tmp_path / "p.npz", Case("flow"), columns=COLUMNS)
    model = onnx.load(gtrl.export(path, precision="float16"))
    assert [opset.version for opset in model.opset_import] == [13]
    assert model.ir_version == 7
    described = {each.key: each.value for each in model.metadata_props}
    assert json.loads(described.pop("columns")) == COLUMNS
    assert described == {
        "method": "gtrl", "task": "arm", "seed": "3", "step": "40", "gtrl": gtrl.__version__, "precision": "float16",
    }  # fmt: skip
    session = session_of(tmp_path / "policy.onnx")
    assert [(each.name, each.type, each.shape) for each in session.get_inputs()] == [
        ("observation", "tensor(float)", ["batch", 5]),
        ("goal", "tensor(float)", ["batch", 2]),
        ("noise", "tensor(float)", ["batch", 3]),
    ]
    action = session.get_outputs()[0]
    assert (action.name, action.type, action.shape) == ("action", "tensor(float)", ["batch", 3])
    weights = [each for each in model.graph.initializer if list(each.dims) == [16, 16]]
    assert [each.data_type for each in weights] == [onnx.TensorProto.FLOAT16]  # one, which the four steps share


def test_the_pytorch_example_knows_every_operator(tmp_path: Path) -> None:
    example = ast.parse((Path(__file__).parents[1] / "examples" / "deploy" / "run_policy_torch.py").read_text())
    (table,) = [node.value for node in example.body if isinstance(node, ast.AnnAssign)]
    assert isinstance(table, ast.Dict)
    known = {key.value for key in table.keys if isinstance(key, ast.Constant)}
    for case in (DEFAULT, *(Case(activation=name) for name in ACTIVATIONS), Case("flow"), Case(output="tanh")):
        model = onnx.load(gtrl.export(write_policy(tmp_path / "p.npz", case), precision="float16"))
        assert {node.op_type for node in model.graph.node} <= known


def test_onnx_action_is_nan_where_an_input_is_not_finite(tmp_path: Path) -> None:
    for case in (Case(activation="relu", norm=False), Case("flow", scaled=False)):
        model = gtrl.export(write_policy(tmp_path / "p.npz", case))
        inputs = inputs_of(case, 7)
        good = run_onnx(model, inputs)
        assert np.isfinite(good).all()
        for row, (name, value) in enumerate([("observation", np.nan), ("goal", np.inf), ("observation", -np.inf)]):
            inputs[name][2 * row, 1] = value
        action = run_onnx(model, inputs)
        assert np.isnan(action[[0, 2, 4]]).all()
        np.testing.assert_array_equal(action[[1, 3, 5, 6]], good[[1, 3, 5, 6]])


def test_python_file_checks_its_inputs(tmp_path: Path) -> None:
    module = module_of(gtrl.export(write_policy(tmp_path / "p.npz"), format="numpy"))
    policy, inputs = module.Policy(), inputs_of(Case(), 7)
    with pytest.raises(ValueError, match=r"takes a goal of 2 numbers, not of shape \(7, 5\)"):
        policy(inputs["observation"], inputs["observation"])
    inputs["observation"][3, 2] = np.nan
    with pytest.raises(ValueError, match="the observation has NaN or infinite values"):
        policy(**inputs)
    action = module.Policy(check_finite=False)(**inputs)
    assert np.isnan(action[3, :2]).all()
    assert np.isfinite(np.delete(action, 3, 0)).all()


def test_python_file_broadcasts_and_draws_noise(tmp_path: Path) -> None:
    case = Case("flow")
    path = write_policy(tmp_path / "p.npz", case)
    module, inputs = module_of(gtrl.export(path, format="numpy")), inputs_of(case, 6)
    observation, goal = inputs["observation"].reshape(2, 3, 5), inputs["goal"][0]
    drawn = np.random.default_rng(5).standard_normal((2, 3, 3))
    action = module.Policy(seed=5)(observation, goal)
    assert action.shape == (2, 3, 3)
    rows = {"observation": inputs["observation"], "goal": np.tile(goal, (6, 1)), "noise": drawn.reshape(6, 3)}
    np.testing.assert_allclose(action.reshape(6, 3), reference(path, rows), atol=1e-5)
    assert module.Policy()(inputs["observation"][0], goal).shape == (3,)


def test_python_file_needs_numpy_alone(tmp_path: Path) -> None:
    """Runs it in an interpreter whose only package is NumPy, with arguments that a subprocess can repeat."""
    packages = tmp_path / "packages"
    packages.mkdir()
    installed = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)
    names = {"gaussian": Case(), "flow": Case("flow", scaled=False)}
    for name, case in names.items():
        gtrl.export(write_policy(tmp_path / f"{name}.npz", case), tmp_path / f"{name}_policy.py", format="numpy")
        np.savez(tmp_path / f"{name}_inputs.npz", **inputs_of(case, 7))  # pyright: ignore[reportArgumentType]
    program = (
        f"import sys; sys.path[:0] = [{str(packages)!r}, {str(tmp_path)!r}]\n"
        "import numpy as np, gaussian_policy, flow_policy\n"
        "for name, module in (('gaussian', gaussian_policy), ('flow', flow_policy)):\n"
        f"    inputs = dict(np.load({str(tmp_path)!r} + f'/{{name}}_inputs.npz'))\n"
        f"    np.save({str(tmp_path)!r} + f'/{{name}}_actions.npy', module.Policy()(**inputs))\n"
        "for package in ('gtrl', 'jax', 'onnx', 'scipy'):\n"
        "    try: __import__(package)\n"
        "    except ImportError: continue\n"
        "    raise SystemExit(package + ' was found')\n"
    )
    done = subprocess.run([sys.executable, "-S", "-I", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, case in names.items():
        expected = reference(tmp_path / f"{name}.npz", inputs_of(case, 7))
        assert_close(case, np.load(tmp_path / f"{name}_actions.npy"), expected, 1e-5)


def test_python_file_is_python_3_8(tmp_path: Path) -> None:
    text = gtrl.export(write_policy(tmp_path / "p.npz"), format="numpy").read_text()
    ast.parse(text, feature_version=(3, 8))
    assert max(map(len, text.splitlines()[:-1])) < 1000  # readable; the header is one line


def test_header_cannot_become_code(tmp_path: Path) -> None:
    evil = "'''\"\"\"\\\nraise SystemExit\n{}#"
    path = write_policy(tmp_path / "p.npz", task=evil, columns={evil: [evil]})
    module = module_of(gtrl.export(path, format="numpy"))
    assert module.HEADER["task"] == evil
    assert module.HEADER["columns"] == {evil: [evil]}


def test_template_has_no_policy() -> None:
    from gtrl.exports import standalone
    from gtrl.exports.numpy_file import MARK

    assert Path(standalone.__file__).read_text().count(MARK) == 1
    assert standalone.ARRAYS == {}


# --- runs ---


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of two seeds with policies at two steps, which differ in a bias."""
    run = Run(tmp_path / "run")
    run.save_config({"seeds": [0, 3]})
    for step, seed in itertools.product((10, 20), (0, 3)):
        (run.path / "policies" / f"step-{step}").mkdir(parents=True, exist_ok=True)
        path = run.path / "policies" / f"step-{step}" / f"seed-{seed}.npz"
        write_policy(path, DEFAULT, seed=seed, step=step, bias2=np.full(3, (seed - step) / 100))
    return run


def test_export_of_a_run(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exports the first seed and the last step by default."""
    inputs = inputs_of(DEFAULT, 4)
    default, chosen = tmp_path / "a" / "default.onnx", tmp_path / "chosen.onnx"
    assert cli.main(["export", str(run.path), "--out", str(default)]) == 0
    printed = capsys.readouterr().out
    assert "exporting seed 0 of the seeds 0, 3" in printed
    assert f"written: {default} (0.0" in printed
    flags = ["--seed", "3", "--step", "10", "--precision", "float32", "--format", "onnx"]
    assert cli.main(["export", str(run.path), *flags, "--out", str(chosen)]) == 0
    assert "seeds" not in capsys.readouterr().out
    np.testing.assert_allclose(run_onnx(default, inputs), reference(run.policy_path(0, 20), inputs), atol=1e-5)
    np.testing.assert_allclose(run_onnx(chosen, inputs), reference(run.policy_path(3, 10), inputs), atol=1e-5)
    assert {each.key: each.value for each in onnx.load(chosen).metadata_props}["seed"] == "3"


def test_default_names(run: Run, tmp_path: Path) -> None:
    path = write_policy(tmp_path / "p.npz")
    assert gtrl.export(path, format="numpy") == tmp_path / "policy.py"
    assert gtrl.export(run) == run.path / "policy.onnx"
    assert gtrl.export(str(run.path), format="numpy") == run.path / "policy.py"


# --- errors ---


def bad_calls() -> dict[str, tuple[Callable[[Path, Path], Any], str]]:
    """Calls with a policy file and a run that raise errors, with what the message says."""

    def other(path: Path, case: Case = DEFAULT, **changes: Any) -> Path:
        return write_policy(path.with_name("other.npz"), case, **changes)

    huge, short = np.full((16, 16), 1e6), np.zeros(4)
    return {
        "format": (lambda path, _: gtrl.export(path, format="onx"), "unknown format 'onx': did you mean 'onnx'"),
        "precision": (lambda path, _: gtrl.export(path, precision="int8"), "choose from float32, float16"),
        "missing": (lambda path, _: gtrl.export(path.with_name("x.npz")), "x.npz"),
        "no run": (lambda path, _: gtrl.export(path.parent), "is not a run directory: it has no config.json"),
        "seed of a file": (lambda path, _: gtrl.export(path, seed=0), "is a single policy: seed and step choose"),
        "seed": (lambda _, run: gtrl.export(run, seed=1), "has no seed 1; it has 0, 3"),
        "step": (lambda _, run: gtrl.export(run, step=5), "has no policies at step 5; it has 10, 20"),
        "suffix": (lambda path, _: gtrl.export(path, path, format="numpy"), r"must be called \*.py, not p.npz"),
        "folder": (lambda path, _: gtrl.export(path, path.parent / "folder.onnx"), "is a folder, not a file"),
        "kind": (lambda path, _: gtrl.export(other(path, kind="grid")), "of kind 'grid'; only gaussian, flow can be"),
        "damaged": (lambda path, _: gtrl.export(other(path, activation="elu")), "is not a policy file: its activation"),
        "scaling": (lambda path, _: gtrl.export(other(path, action_scale=short)), "'action_center' and 'action_scale'"),
        "steps": (lambda path, _: gtrl.export(other(path, Case("flow"), flow_steps=201)), "--format numpy"),
        "float16": (lambda path, _: gtrl.export(other(path, weight1=huge), precision="float16"), "precision float32"),
    }  # fmt: skip


@pytest.mark.parametrize("name", bad_calls())
def test_errors_are_one_sentence_and_leave_nothing(name: str, run: Run, tmp_path: Path) -> None:
    path = write_policy(tmp_path / "p.npz")
    content = path.read_bytes()
    (tmp_path / "folder.onnx").mkdir()
    call, message = bad_calls()[name]
    with pytest.raises(GtrlError, match=message) as caught:
        call(path, run.path)
    assert str(caught.value).endswith((".", "?"))
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content
    assert {each.name for each in tmp_path.iterdir()} <= {"p.npz", "other.npz", "folder.onnx", "run"}
    assert not list(run.path.glob("policy.*"))


def test_command_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_policy(tmp_path / "p.npz", kind="grid")
    assert cli.main(["export", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"gtrl: {path} holds a policy of kind 'grid'")
    (tmp_path / "file").touch()
    assert cli.main(["export", str(path), "--out", str(tmp_path / "file" / "policy.onnx")]) == 2
    assert "cannot be a folder" in capsys.readouterr().err
    assert cli.main(["export", str(path), "--format", "tflite"]) == 2


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_policy(tmp_path / "p.npz")
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "gtrl.exports.onnx_file", raising=False)
    with pytest.raises(ConfigError, match=r"needs the package onnx .*: pip install \"gtrl\[onnx\]\"\.$"):
        gtrl.export(path)
    assert gtrl.export(path, format="numpy").exists()


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_policy(tmp_path / "p.npz")
    (tmp_path / "policy.py").write_text("old")

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        gtrl.export(path, format="numpy")
    assert (tmp_path / "policy.py").read_text() == "old"
    assert not list(tmp_path.glob(f"*{PARTIAL_SUFFIX}"))


def test_model_is_checked_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(*_: Any, **__: Any) -> None:
        raise onnx.checker.ValidationError("invalid")

    monkeypatch.setattr(onnx.checker, "check_model", reject)
    with pytest.raises(onnx.checker.ValidationError):
        gtrl.export(write_policy(tmp_path / "p.npz"))
    assert [each.name for each in tmp_path.iterdir()] == ["p.npz"]

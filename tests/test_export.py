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
from gtrl.runs.policy import POLICIES, Policy, load_policy
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


CASES = [
    *(Case(kind, norm=norm, scaled=scaled) for kind, norm, scaled in itertools.product(
        ("gaussian", "flow"), (False, True), (False, True))),
    *(Case(activation=name) for name in ACTIVATIONS if name != "gelu"),
    Case(output="tanh", standardised=True),
    Case("flow", standardised=True),
]  # fmt: skip


def write_policy(path: Path, case: Case = Case(), **changes: Any) -> Path:
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
    """The action of a policy file: that of its network without scaling, between formulas in float64."""
    arrays, header = mlp_file.read(path, "a policy file", RunError)
    scaling = {name: arrays.pop(name) for name in SCALING.to_arrays() if name in arrays}
    policy = POLICIES.find(header["kind"])(arrays, header)
    if not scaling:
        return policy(**inputs)
    scaled = {
        name: np.clip((inputs[name] - scaling[f"{name}_center"]) / scaling[f"{name}_scale"], -10, 10)
        for name in ("observation", "goal")
    }
    action = policy(**(inputs | scaled)).astype(np.float64)
    return (scaling["action_center"] + scaling["action_scale"] * action).astype(np.float32)


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

"""The arm of examples/arm: its equations of motion, its interface and its log."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "arm"


@pytest.fixture(scope="module")
def arm() -> Any:
    """The example's modules `arm` and `record`, imported as from its folder."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        importlib.import_module("record")
        yield importlib.import_module("arm")
    finally:
        sys.path.remove(str(EXAMPLE))


@pytest.fixture(scope="module")
def record(arm: Any) -> Any:
    assert arm
    return sys.modules["record"]


def momentum_and_energy(arm: Any, phi: np.ndarray, speed: np.ndarray) -> tuple[np.ndarray, float]:
    """The generalised momenta and the kinetic energy of the three point masses, from their positions."""
    lengths = np.array(arm.LENGTHS)
    inertia = np.zeros((3, 3))
    for index, mass in enumerate(arm.MASSES):
        carried = np.arange(3) <= index
        jacobian = np.stack([-lengths * np.sin(phi) * carried, lengths * np.cos(phi) * carried])
        inertia += mass * jacobian.T @ jacobian
    return inertia @ speed, float(0.5 * speed @ inertia @ speed)


def test_motion_obeys_lagrange(arm: Any) -> None:
    """d/dt (dT/dw) - dT/dphi = force, with the derivatives taken by finite differences."""
    rng, small = np.random.default_rng(0), 1e-5
    for _ in range(20):
        phi, speed, torque = rng.uniform(-3, 3, (3, 3))
        acceleration = np.array(arm.accelerations(tuple(phi), tuple(speed), tuple(torque)))
        after, _ = momentum_and_energy(arm, phi + small * speed, speed + small * acceleration)
        before, _ = momentum_and_energy(arm, phi - small * speed, speed - small * acceleration)
        slopes = [
            (momentum_and_energy(arm, phi + d, speed)[1] - momentum_and_energy(arm, phi - d, speed)[1]) / (2 * small)
            for d in small * np.eye(3)
        ]
        joint_torque = torque - arm.DAMPING * np.diff(speed, prepend=0.0)
        force = joint_torque - np.append(joint_torque[1:], 0.0)  # a joint pushes the link before it backwards
        np.testing.assert_allclose((after - before) / (2 * small) - slopes, force, atol=1e-6)


def test_observation_has_the_named_columns(arm: Any) -> None:
    env = gymnasium.make("arm:Arm-v0")
    goal = np.array([0.5, -0.5])
    _, info = env.reset(seed=3, options={"goal": goal})
    np.testing.assert_array_equal(info["goal"], goal)
    observation, _, terminated, _, info = env.step(np.array([9.0, 0.0, -2.0]))  # 9 Nm are clipped to 5
    row = dict(zip(arm.COLUMNS["observation"], observation.tolist(), strict=True))
    joints = np.array([np.arctan2(row[f"sin{k}"], row[f"cos{k}"]) for k in (1, 2, 3)])
    np.testing.assert_allclose(arm.tip_of(joints), [row["tip_x"], row["tip_y"]], atol=1e-5)
    assert 101_000 < row["pressure"] < 101_700
    assert terminated == info["success"] == (np.hypot(row["tip_x"] - 0.5, row["tip_y"] + 0.5) < 0.05)


def test_success_at_the_tip_and_the_step_limit(arm: Any) -> None:
    env = gymnasium.make("arm:Arm-v0")
    env.reset(seed=0)
    tip = arm.tip_of(env.unwrapped.joints)  # type: ignore[attr-defined]
    for goal, success in ((tip, True), (tip + 0.2, False)):
        env.reset(seed=0, options={"goal": goal})
        assert env.step(np.zeros(3))[4]["success"] is success
    env.reset(seed=0, options={"goal": [9.0, 9.0]})
    ends = [env.step(np.zeros(3))[3] for _ in range(arm.EPISODE_STEPS)]
    assert ends == [False] * 99 + [True]


def test_goals_are_reachable(arm: Any) -> None:
    goals = np.loadtxt(EXAMPLE / "goals.csv", delimiter=",", skiprows=1)
    radius = np.hypot(*goals.T)
    assert goals.shape == (100, 2)
    assert arm.GOAL_RANGE[0] - 1e-3 <= radius.min() < radius.max() <= arm.GOAL_RANGE[1] + 1e-3


def test_pulling_force_is_the_gradient_of_the_spring(record: Any, arm: Any) -> None:
    joints, target, small = np.array([0.3, -1.0, 2.0]), np.array([0.2, 0.7]), 1e-6
    energy = lambda q: 0.5 * record.STIFFNESS * np.sum((arm.tip_of(q) - target) ** 2)  # noqa: E731
    slopes = [(energy(joints + d) - energy(joints - d)) / (2 * small) for d in small * np.eye(3)]
    torque = record.pull(joints, np.zeros(3), arm.tip_of(joints), target)
    np.testing.assert_allclose(torque, -np.array(slopes), atol=1e-6)


def test_log_has_raw_units_and_no_invented_actions(record: Any, tmp_path: Path) -> None:
    record.main(str(tmp_path / "log.npz"), "4", "1")
    with np.load(tmp_path / "log.npz") as file:
        log = dict(file)
    last = log["terminals"]
    lengths = np.diff(np.flatnonzero(last), prepend=-1) - 1  # transitions: one less than rows
    assert last.sum() == 4
    assert last[-1]
    assert lengths.min() >= 60
    assert lengths.max() <= 140
    assert np.isnan(log["actions"][last]).all()
    assert 1 < np.abs(log["actions"][~last]).max() <= 5
    description = json.loads(str(log["description"]))
    assert [len(description["columns"][name]) for name in ("observation", "action")] == [12, 3]
    assert description["action_low"] == [-5.0] * 3

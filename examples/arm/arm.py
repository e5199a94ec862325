"""A three-link arm in a horizontal plane, moved by torques: a Gymnasium environment, `arm:Arm-v0`.

The links are massless rods with a point mass at each end. With the absolute angles phi of the links, the equations of
motion are short: sum_j m_ij l_i l_j (cos(phi_i - phi_j) phi_j'' + sin(phi_i - phi_j) phi_j'^2) = force_i, where m_ij is
the mass carried by both links. They are integrated with plain floats, which for three numbers is faster than arrays.
"""

import math
from typing import Any

import gymnasium
import numpy as np

LENGTHS = (0.5, 0.4, 0.3)  # metres
MASSES = (1.0, 0.8, 0.5)  # kg, at the ends of the links
DAMPING = 1.0  # Nm per rad/s, in every joint
MAX_TORQUE = 5.0  # Nm
TORQUE_NOISE = 0.2  # Nm, standard deviation of what the motors add to every command
SPEED_NOISE = 0.02  # rad/s, standard deviation of the error of the measured velocities
PRESSURE, PRESSURE_NOISE = 101_325.0, 50.0  # Pa: a sensor that has nothing to do with the arm
STEP_SECONDS, SUBSTEPS = 0.05, 3  # a command is held for a step of 50 ms (20 Hz), integrated in three parts
EPISODE_STEPS = 100
GOAL_RADIUS = 0.05  # metres: the goal is reached when the tip is closer than this
GOAL_RANGE = (0.3, 1.1)  # metres from the base, between which random goals are drawn

COLUMNS = {
    "observation": [
        *(f"{name}{joint}" for name in ("cos", "sin", "speed") for joint in (1, 2, 3)),
        "tip_x", "tip_y", "pressure",
    ],
    "action": ["torque1", "torque2", "torque3"],
}  # fmt: skip

_CARRIED = (sum(MASSES), sum(MASSES[1:]), MASSES[2])  # by each link and those before it
# l_i l_j times the mass carried by both links
_M11, _M22, _M33 = (mass * length**2 for mass, length in zip(_CARRIED, LENGTHS, strict=True))
_M12 = _CARRIED[1] * LENGTHS[0] * LENGTHS[1]
_M13 = _CARRIED[2] * LENGTHS[0] * LENGTHS[2]
_M23 = _CARRIED[2] * LENGTHS[1] * LENGTHS[2]

Angles = tuple[float, float, float]


def accelerations(phi: Angles, speed: Angles, torque: Angles) -> Angles:
    """Returns the angular accelerations of the links for absolute angles and speeds, and torques of the joints."""
    c12, s12 = math.cos(phi[0] - phi[1]), math.sin(phi[0] - phi[1])
    c13, s13 = math.cos(phi[0] - phi[2]), math.sin(phi[0] - phi[2])
    c23, s23 = math.cos(phi[1] - phi[2]), math.sin(phi[1] - phi[2])
    w1, w2, w3 = speed
    # The torque of joint i turns link i forwards and, by reaction, link i - 1 backwards.
    t1 = torque[0] - DAMPING * w1
    t2 = torque[1] - DAMPING * (w2 - w1)
    t3 = torque[2] - DAMPING * (w3 - w2)
    f1 = t1 - t2 - _M12 * s12 * w2 * w2 - _M13 * s13 * w3 * w3
    f2 = t2 - t3 + _M12 * s12 * w1 * w1 - _M23 * s23 * w3 * w3
    f3 = t3 + _M13 * s13 * w1 * w1 + _M23 * s23 * w2 * w2
    # The symmetric system M a = f, by elimination.
    m12, m13, m23 = _M12 * c12, _M13 * c13, _M23 * c23
    k2, k3 = m12 / _M11, m13 / _M11
    b22, b23, b33 = _M22 - k2 * m12, m23 - k2 * m13, _M33 - k3 * m13
    g2, g3 = f2 - k2 * f1, f3 - k3 * f1
    a3 = (g3 - b23 / b22 * g2) / (b33 - b23 / b22 * b23)
    a2 = (g2 - b23 * a3) / b22
    return (f1 - m12 * a2 - m13 * a3) / _M11, a2, a3


def tip_of(angles: Any) -> np.ndarray:
    """Returns the position of the tip, (..., 2), for joint angles (..., 3)."""
    phi = np.cumsum(angles, -1)
    return np.stack([np.cos(phi) @ LENGTHS, np.sin(phi) @ LENGTHS], -1)


class Arm(gymnasium.Env[np.ndarray, np.ndarray]):
    """Observation: `COLUMNS["observation"]`, in raw units. Action: three torques in Nm. Goal: the tip's x, y in metres.

    The goal is given by `reset(options={"goal": g})`, or drawn at random; `info` has "goal" and "success".
    """

    def __init__(self) -> None:
        size = len(COLUMNS["observation"])
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-MAX_TORQUE, MAX_TORQUE, (3,), np.float32)
        self.phi: Angles = (0.0, 0.0, 0.0)  # absolute angles of the links
        self.speed: Angles = (0.0, 0.0, 0.0)
        self.goal = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        joints = self.np_random.uniform(-math.pi, math.pi, 3)
        drawn = random_goal(self.np_random)
        given = (options or {}).get("goal")
        self.phi = tuple(np.cumsum(joints).tolist())
        self.speed = (0.0, 0.0, 0.0)
        self.goal = drawn if given is None else np.array(given, float)
        return self._observe()

    def step(self, action: Any) -> Any:
        noise = self.np_random.standard_normal(3).tolist()
        # The motors clip what they cannot do.
        given = [min(max(float(x), -MAX_TORQUE), MAX_TORQUE) for x in action]
        torque = tuple(command + TORQUE_NOISE * error for command, error in zip(given, noise, strict=True))
        part = STEP_SECONDS / SUBSTEPS
        (p1, p2, p3), (w1, w2, w3) = self.phi, self.speed
        for _ in range(SUBSTEPS):  # semi-implicit Euler: first the speeds, then the angles
            a1, a2, a3 = accelerations((p1, p2, p3), (w1, w2, w3), torque)
            w1, w2, w3 = w1 + part * a1, w2 + part * a2, w3 + part * a3
            p1, p2, p3 = p1 + part * w1, p2 + part * w2, p3 + part * w3
        self.phi, self.speed = (p1, p2, p3), (w1, w2, w3)
        observation, info = self._observe()
        return observation, 0.0, info["success"], False, info

    @property
    def joints(self) -> np.ndarray:
        """The joint angles: those of the links relative to the link before."""
        return np.diff(self.phi, prepend=0.0)

    def _observe(self) -> tuple[np.ndarray, dict[str, Any]]:
        """Returns the measured observation and `info`."""
        (p1, p2, p3), (w1, w2, w3) = self.phi, self.speed
        n1, n2, n3, pressure = self.np_random.standard_normal(4).tolist()
        x = LENGTHS[0] * math.cos(p1) + LENGTHS[1] * math.cos(p2) + LENGTHS[2] * math.cos(p3)
        y = LENGTHS[0] * math.sin(p1) + LENGTHS[1] * math.sin(p2) + LENGTHS[2] * math.sin(p3)
        observation = np.array(
            [
                math.cos(p1), math.cos(p2 - p1), math.cos(p3 - p2),
                math.sin(p1), math.sin(p2 - p1), math.sin(p3 - p2),
                w1 + SPEED_NOISE * n1, w2 - w1 + SPEED_NOISE * n2, w3 - w2 + SPEED_NOISE * n3,
                x, y, PRESSURE + PRESSURE_NOISE * pressure,
            ],
            np.float32,
        )  # fmt: skip
        distance = math.hypot(x - self.goal[0], y - self.goal[1])
        return observation, {"goal": self.goal.copy(), "success": distance < GOAL_RADIUS}


def random_goal(rng: np.random.Generator) -> np.ndarray:
    """Returns a point that the tip can reach, uniform over the area of `GOAL_RANGE`."""
    radius = math.sqrt(rng.uniform(GOAL_RANGE[0] ** 2, GOAL_RANGE[1] ** 2))
    angle = rng.uniform(-math.pi, math.pi)
    return radius * np.array([math.cos(angle), math.sin(angle)])


if "Arm-v0" not in gymnasium.registry:
    gymnasium.register("Arm-v0", entry_point="arm:Arm", max_episode_steps=EPISODE_STEPS)

"""A Gymnasium environment: a point mass on a plane, moved by two thrusters, with random wind."""

from typing import Any

import gymnasium
import numpy as np

SIZE = 4.0  # the plane reaches from -SIZE to SIZE
THRUST, FRICTION, WIND = 0.15, 0.8, 0.01
GOAL_RADIUS = 0.5  # the episode succeeds within this distance of the goal


class Glider(gymnasium.Env):
    """State: position and velocity. Action: the thrust, -1 to 1. Goal: a position.

    The goal is given by `reset(options={"goal": g})`, or drawn at random; `info` has "goal" and "success".
    """

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.position, self.velocity, self.goal = (np.zeros(2) for _ in range(3))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        given = (options or {}).get("goal")
        drawn = self.np_random.uniform(-SIZE, SIZE, (2, 2))
        self.position, self.velocity = drawn[0], np.zeros(2)
        self.goal = drawn[1] if given is None else np.asarray(given, float)
        return self._observation(), self._info()

    def step(self, action: Any) -> Any:
        wind = WIND * self.np_random.standard_normal(2)
        self.velocity = FRICTION * self.velocity + THRUST * np.clip(action, -1, 1) + wind
        self.position = np.clip(self.position + self.velocity, -SIZE, SIZE)
        info = self._info()
        return self._observation(), 0.0, info["success"], False, info

    def _observation(self) -> np.ndarray:
        return np.concatenate([self.position, self.velocity]).astype(np.float32)

    def _info(self) -> dict[str, Any]:
        return {"goal": self.goal, "success": bool(np.linalg.norm(self.position - self.goal) < GOAL_RADIUS)}

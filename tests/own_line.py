"""A small environment in raw units, as a user would write it, with episodes whose outcome is known beforehand."""

from typing import Any

import gymnasium
import numpy as np

LIMIT = 10  # steps per episode
NEAR = 0.1  # an episode succeeds closer to the goal than this
FARTHEST = 20.0  # its own goals are between -FARTHEST and FARTHEST


class Line(gymnasium.Env):
    """A cart on a rail. It starts between -1 and 1 m and moves by its action, up to 5 m; the goal is a position."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = gymnasium.spaces.Box(-5.0, 5.0, (1,), np.float64)
        self.x = self.goal = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, own = float(self.np_random.uniform(-1, 1)), float(self.np_random.uniform(-FARTHEST, FARTHEST))
        self.goal = float(options["goal"][0]) if options else own
        return self.observe(), {"goal": np.array([self.goal])}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x += float(action[0])
        return self.observe(), 0.0, False, False, {"success": abs(self.x - self.goal) < NEAR}

    def observe(self) -> Any:
        return np.array([self.x])


class DictLine(Line):
    """The same with a dictionary observation: the position is the second number of `state`."""

    def __init__(self) -> None:
        super().__init__()
        spaces = {"pressure": (), "state": (1, 2)}
        box = gymnasium.spaces.Box
        self.observation_space = gymnasium.spaces.Dict({key: box(-1e6, 1e6, shape) for key, shape in spaces.items()})

    def observe(self) -> Any:
        return {"pressure": 101_325.0, "state": np.array([[7.0, self.x]])}


class WideLine(Line):
    """The same with two actions, of which the second is ignored."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float64)


class ButtonLine(Line):
    """The same with a discrete action space."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.Discrete(3)


class StubbornLine(Line):
    """Ignores a given goal."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        del options
        return super().reset(seed=seed)


class PickyLine(Line):
    """Rejects a given goal."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if options:
            raise ValueError("no such place")
        return super().reset(seed=seed)


def make_line() -> Any:
    """A factory with a step limit."""
    return gymnasium.wrappers.TimeLimit(Line(), LIMIT)


def make_broken() -> Any:
    """A factory that fails."""
    raise OSError("the simulator\nis not running")


for kind in (Line, DictLine, WideLine, ButtonLine, StubbornLine, PickyLine):
    gymnasium.register(f"{kind.__name__}-v0", f"own_line:{kind.__name__}", max_episode_steps=LIMIT)

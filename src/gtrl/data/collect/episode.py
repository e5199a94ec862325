"""The interface of collectors, and the recording of one episode in OGBench's format."""

from typing import Any, Protocol

import numpy as np

Arrays = dict[str, np.ndarray]


def child_seed(seed: np.random.SeedSequence, number: int) -> np.random.SeedSequence:
    """Returns an independent seed derived from another one. Unlike `spawn`, repeated calls give the same seed."""
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))


class Collector(Protocol):
    """Collects episodes of one task."""

    def episode(self, seed: np.random.SeedSequence) -> Arrays:
        """Returns the rows of one episode, which depend only on the seed."""
        ...


class Recorder:
    """Records the rows of an episode: observation, action, and the simulator's state before the step.

    With `arrivals` also whether the step reached the goal, which the observations do not show.
    """

    def __init__(self, arrivals: bool = False) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.arrivals: list[bool] | None = [] if arrivals else None

    def add(self, observation: np.ndarray, action: np.ndarray, info: dict[str, Any]) -> None:
        """Adds a row; `info` is that of the step with this action."""
        buttons = info.get("prev_button_states")
        self.rows.append((observation, action, info["prev_qpos"], info["prev_qvel"], buttons))
        if self.arrivals is not None:
            self.arrivals.append(bool(info["success"]))

    def arrays(self) -> Arrays:
        """Returns all rows. The last one is marked as terminal, because its successor is not recorded."""
        observations, actions, qpos, qvel, buttons = zip(*self.rows, strict=True)
        count = len(self.rows)
        arrays = {
            "observations": np.asarray(observations, np.float32),
            "actions": np.asarray(actions, np.float32),
            "terminals": np.arange(count) == count - 1,
            "qpos": np.asarray(qpos, np.float32),
            "qvel": np.asarray(qvel, np.float32),
        }
        if self.arrivals is not None:
            arrays["arrivals"] = np.array(self.arrivals)[:, None]
        return arrays if buttons[0] is None else arrays | {"button_states": np.asarray(buttons, np.int64)}

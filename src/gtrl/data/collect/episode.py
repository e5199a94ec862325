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
    """Records the rows of an episode: observation, action, and the simulator's state before the step."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.arrivals: list[bool] = []

    def add(
        self, observation: np.ndarray, action: np.ndarray, info: dict[str, Any], arrived: bool | None = None
    ) -> None:
        """Adds a row; `info` is that of the step with this action.

        `arrived` says whether the step reached the collector's goal, which the observations do not show.
        """
        buttons = info.get("prev_button_states")
        self.rows.append((observation, action, info["prev_qpos"], info["prev_qvel"], buttons))
        if arrived is not None:
            self.arrivals.append(arrived)

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
        if self.arrivals:
            arrays["arrivals"] = np.array(self.arrivals)
        return arrays if buttons[0] is None else arrays | {"button_states": np.asarray(buttons, np.int64)}

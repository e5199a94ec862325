"""What every collector makes: the rows of one episode, as OGBench logs them."""

from typing import Any, Protocol

import numpy as np

Arrays = dict[str, np.ndarray]


def child_seed(seed: np.random.SeedSequence, number: int) -> np.random.SeedSequence:
    """An independent seed derived from another; unlike `spawn`, the same one each time it is asked for."""
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))


class Collector(Protocol):
    """Makes episodes of one task; a seed alone decides one."""

    def episode(self, seed: np.random.SeedSequence) -> Arrays: ...


class Recorder:
    """Gathers rows: the observation acted on, the action, and the simulator's state before the step."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def add(self, observation: np.ndarray, action: np.ndarray, info: dict[str, Any]) -> None:
        buttons = info.get("prev_button_states")
        self.rows.append((observation, action, info["prev_qpos"], info["prev_qvel"], buttons))

    def arrays(self) -> Arrays:
        """All rows; the last one is marked: its successor is not recorded."""
        observations, actions, qpos, qvel, buttons = zip(*self.rows, strict=True)
        count = len(self.rows)
        arrays = {
            "observations": np.asarray(observations, np.float32),
            "actions": np.asarray(actions, np.float32),
            "terminals": np.arange(count) == count - 1,
            "qpos": np.asarray(qpos, np.float32),
            "qvel": np.asarray(qvel, np.float32),
        }
        return arrays if buttons[0] is None else arrays | {"button_states": np.asarray(buttons, np.int64)}

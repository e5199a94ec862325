"""When an ant or a humanoid counts as fallen."""

import numpy as np

ANT_TORSO_HEIGHTS = (0.2, 1.0)  # m; OGBench ends an episode of training outside them
HUMANOID_HEAD_HEIGHT = 1.0  # m; a standing humanoid's head is at 1.4 or higher


def ant_has_fallen(qpos: np.ndarray) -> np.ndarray:
    """Returns whether the torso is too low, too high or upside down, for qpos (rows, 7 or more).

    An ant on its back is within OGBench's heights, and cannot get up: its legs do not reach the floor.
    """
    low, high = ANT_TORSO_HEIGHTS
    height, x, y = qpos[:, 2], qpos[:, 4], qpos[:, 5]
    is_upright = 1 - 2 * (x * x + y * y) > 0  # the vertical component of the torso's own vertical axis
    return ~((low <= height) & (height <= high) & is_upright)


def humanoid_has_fallen(head_height: np.ndarray) -> np.ndarray:
    """Returns whether the head is too low."""
    return ~(head_height >= HUMANOID_HEAD_HEIGHT)

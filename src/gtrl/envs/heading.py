"""The frame of a body: horizontal vectors turned so that a standing body faces along the x axis.

The humanoid's observation has its velocities in the frame of the world, but not where it faces.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

Frame = Literal["world", "body"]
FRAMES: tuple[Frame, ...] = get_args(Frame)
HUMANOID_VECTORS = (37, 40, 67)  # velocities of the centre of mass and of the torso, direction: in an expert's input


def headings(quaternions: np.ndarray) -> np.ndarray:
    """Returns by which angles bodies are turned about the vertical axis, for quaternions (rows, 4).

    Each orientation is a turn about the vertical axis after a tilt about a horizontal one; this is the angle of the
    turn. It is the same for q and -q, and undefined only for a body that is exactly upside down.
    """
    return 2 * np.arctan2(quaternions[:, 3], quaternions[:, 0])


def in_body_frame(inputs: np.ndarray, quaternions: np.ndarray, vectors: Sequence[int]) -> np.ndarray:
    """Returns inputs (rows, size) whose horizontal vectors, which start at `vectors`, are in the frame of the body."""
    angles = headings(quaternions)
    cos, sin = np.cos(angles), np.sin(angles)
    turned = inputs.copy()
    for start in vectors:
        x, y = inputs[:, start], inputs[:, start + 1]
        turned[:, start], turned[:, start + 1] = cos * x + sin * y, cos * y - sin * x
    return turned

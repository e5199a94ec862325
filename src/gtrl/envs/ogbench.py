"""Goals of OGBench's `-oraclerep-` tasks, computed from the rows of its datasets."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from gtrl.errors import DataError

Arrays = Mapping[str, np.ndarray]
BALL_QPOS_START = 15  # antsoccer: index of the ball's xy in qpos
OBJECT_QPOS_START = 14  # manipulation: index of the first cube in qpos
CUBE_QPOS_SIZE = 7  # entries per cube in qpos: position and orientation
GOAL_CENTRE, GOAL_SCALE = np.array([0.425, 0.0, 0.0]), 10.0  # a cube's goal is (xyz - GOAL_CENTRE) * GOAL_SCALE
DRAWER_GOAL_SCALE, WINDOW_GOAL_SCALE = 18.0, 15.0  # applied to their positions in qpos
CUBE_COUNTS = {"cube-single-play": 1, "cube-double-play": 2, "scene-play": 1}


def agent_goals(arrays: Arrays) -> np.ndarray:
    """Returns the agent's xy at each row."""
    return _qpos(arrays, 2)[:, :2].astype(np.float32)


def ball_goals(arrays: Arrays) -> np.ndarray:
    """Returns the ball's xy at each row."""
    return _qpos(arrays, BALL_QPOS_START + 2)[:, BALL_QPOS_START : BALL_QPOS_START + 2].astype(np.float32)


def button_goals(arrays: Arrays) -> np.ndarray:
    """Returns the states of all buttons at each row."""
    return _array(arrays, "button_states").astype(np.float32)


def _cube_goals(cubes: int, arrays: Arrays) -> np.ndarray:
    """Returns the scaled positions of all cubes at each row."""
    qpos = _qpos(arrays, OBJECT_QPOS_START + CUBE_QPOS_SIZE * cubes)
    starts = [OBJECT_QPOS_START + CUBE_QPOS_SIZE * cube for cube in range(cubes)]
    return np.concatenate([(qpos[:, start : start + 3] - GOAL_CENTRE) * GOAL_SCALE for start in starts], -1).astype(
        np.float32
    )


one_cube_goals, two_cube_goals = partial(_cube_goals, 1), partial(_cube_goals, 2)


def scene_goals(arrays: Arrays) -> np.ndarray:
    """Returns the cube's scaled position, the button states, and the scaled drawer and window positions at each row."""
    _array(arrays, "qpos")
    buttons = _array(arrays, "button_states")
    drawer = OBJECT_QPOS_START + CUBE_QPOS_SIZE + buttons.shape[1]
    qpos = _qpos(arrays, drawer + 2)
    slides = [qpos[:, [drawer]] * DRAWER_GOAL_SCALE, qpos[:, [drawer + 1]] * WINDOW_GOAL_SCALE]
    cube = (qpos[:, OBJECT_QPOS_START : OBJECT_QPOS_START + 3] - GOAL_CENTRE) * GOAL_SCALE
    return np.concatenate([cube, buttons, *slides], -1).astype(np.float32)


def _array(arrays: Arrays, key: str) -> np.ndarray:
    if key not in arrays:
        raise DataError(f"it has no array '{key}', from which the goals are taken")
    return arrays[key]


def _qpos(arrays: Arrays, width: int) -> np.ndarray:
    qpos = _array(arrays, "qpos")
    if qpos.shape[1] < width:
        raise DataError(f"'qpos' has {qpos.shape[1]} dimensions where the goals need {width}")
    return qpos

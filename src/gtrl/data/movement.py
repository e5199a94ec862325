"""How well ants and humanoids move in a dataset: goals reached, distance covered, falls, and what the ball does."""

import numpy as np

from gtrl.data.checks import Arrays, Fact
from gtrl.envs.falls import ant_has_fallen, humanoid_has_fallen
from gtrl.envs.ogbench import BALL_QPOS_START
from gtrl.tasks import OGBenchTask

HUMANOID_HEAD = 23  # index of the head's height in observations
MIN_BALL_DISTANCE = 0.5  # m between first and last place of a ball that counts as moved


def movement(arrays: Arrays, task: OGBenchTask, arrivals: np.ndarray | None = None) -> list[Fact]:
    """Returns facts about the movement of an ant or a humanoid; none for other bodies.

    `arrivals` says for each row whether the collector's goal was reached; only files collected by gtrl record it.
    """
    if task.family not in ("antmaze", "antsoccer", "humanoidmaze"):
        return []
    ends = np.flatnonzero(arrays["terminals"])
    facts = [] if arrivals is None else [_goals_reached(arrivals, task, ends)]
    facts.append(Fact("m covered per 100 steps", f"{_speed(arrays['qpos'][:, :2], ends):.2f}"))
    if task.family == "humanoidmaze":
        fallen = humanoid_has_fallen(arrays["observations"][:, HUMANOID_HEAD])
    else:
        fallen = ant_has_fallen(arrays["qpos"])
    facts.append(Fact("share of time fallen", f"{fallen.mean():.2%}"))
    if task.family == "antsoccer":
        ball = arrays["qpos"][:, BALL_QPOS_START : BALL_QPOS_START + 2]
        starts = np.r_[0, ends[:-1] + 1]
        moved = np.linalg.norm(ball[ends] - ball[starts], axis=1) > MIN_BALL_DISTANCE
        facts.append(Fact(f"episodes that move the ball by {MIN_BALL_DISTANCE:g} m", f"{moved.mean():.1%}"))
        facts.append(Fact("m of the ball per 100 steps", f"{_speed(ball, ends):.2f}"))
    return facts


def _goals_reached(arrivals: np.ndarray, task: OGBenchTask, ends: np.ndarray) -> Fact:
    """Goals reached. In stitch data the agent stays at its one goal, so that every step there is marked."""
    counts = np.add.reduceat(arrivals.astype(int), np.r_[0, ends[:-1] + 1])
    if task.has_stitch_data:
        return Fact("episodes that reach their goal", f"{(counts > 0).mean():.1%}")
    return Fact("goals reached per episode", f"{counts.mean():.2f}")


def _speed(xy: np.ndarray, ends: np.ndarray) -> float:
    """Returns the mean length of the path per 100 steps."""
    steps = np.linalg.norm(np.diff(xy, axis=0), axis=1)
    inside = np.ones(len(steps), bool)
    inside[ends[:-1]] = False
    return float(steps[inside].mean() * 100)

"""Goal-reaching episodes in any environment: OGBench's convention and Gymnasium-Robotics' GoalEnv behind one interface.

| | OGBench | GoalEnv |
|---|---|---|
| choosing a goal | `reset(options={"task_id": k})` | by its seed, or `reset(options={"goal": g})` |
| observation | an array | a dictionary's `observation` |
| goal | `info["goal"]` at reset | the dictionary's `desired_goal` |
| success | `info["success"]` | `info["is_success"]` or `info["success"]` |

A task's goal vectors reach either kind through `reset(options={"goal": g})`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gtrl.envs.isolation import IsolatedEnv
from gtrl.errors import EpisodeError
from gtrl.tasks import Task

SUCCESS_KEYS = ("success", "is_success")
TOLERANCE = 1e-5  # between a goal that was given and the one reported: environments may keep float32


class Step(NamedTuple):
    """What a step led to."""

    observation: np.ndarray
    success: bool
    ended: bool  # by success, by the environment, or by the step budget


class GoalEpisodes:
    """The episodes of a task in one environment. What does not fit the conventions raises `EpisodeError`."""

    def __init__(self, task: Task, env: IsolatedEnv) -> None:
        self.task, self.env = task, env

    def reset(self, seed: np.random.SeedSequence, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Start an episode with one of the task's goals, counted from 1: its observation and goal."""
        goals = self.task.goals
        if goals is None or isinstance(goals, int):
            given, options = None, None if goals is None else {"task_id": number}
        else:
            given = np.asarray(goals[number - 1], np.float32)
            options = {"goal": np.array(goals[number - 1])}
        observed, info = self.env.reset(seed, options)
        return _array(observed), _goal(given, _reported(observed, info))

    def step(self, action: np.ndarray) -> Step:
        observed, _, terminated, truncated, info = self.env.step(action)
        ended = bool(terminated or truncated)
        success = self._success(info, ended)
        return Step(_array(observed), success, ended or success)

    def _success(self, info: Mapping[str, Any], ended: bool) -> bool:
        """Some environments report success at the end of an episode only, so it may be missing before."""
        if self.task.success is not None:
            return bool(self.task.success(info))
        key = next((key for key in SUCCESS_KEYS if key in info), None)
        if key is None and ended:
            raise EpisodeError(
                "the environment reports no success: a step's info has neither 'success' nor 'is_success'; say what "
                "success is with Task(success=...)"
            )
        return key is not None and bool(info[key])


def _array(observed: Any) -> np.ndarray:
    """The observation without the goals that a GoalEnv puts beside it."""
    if not isinstance(observed, Mapping):
        return np.asarray(observed)
    if "observation" not in observed:
        found = ", ".join(map(str, observed))
        raise EpisodeError(f"the environment's observation is a dictionary without 'observation': it has {found}")
    return np.asarray(observed["observation"])


def _reported(observed: Any, info: Mapping[str, Any]) -> np.ndarray | None:
    """The goal that the environment says it has, if it does."""
    found = observed.get("desired_goal") if isinstance(observed, Mapping) else None
    found = info.get("goal") if found is None else found
    return None if found is None else np.asarray(found, np.float32)


def _goal(given: np.ndarray | None, reported: np.ndarray | None) -> np.ndarray:
    """The goal of an episode: the one reported, which must be the one that was given, or else that."""
    if given is None:
        if reported is None:
            raise EpisodeError("the environment reports no goal: neither info['goal'] nor observation['desired_goal']")
        return reported
    if reported is None:
        return given
    if given.shape != reported.shape or not np.allclose(given, reported, rtol=TOLERANCE, atol=TOLERANCE):
        raise EpisodeError(
            f"the environment was given the goal {given.tolist()} and reports {reported.tolist()}: it must take "
            "reset(options={'goal': g})"
        )
    return reported

"""A common interface to goal-reaching episodes in OGBench's and Gymnasium-Robotics' (GoalEnv) environments.

| | OGBench | GoalEnv |
|---|---|---|
| choosing a goal | `reset(options={"task_id": k})` | by the seed, or `reset(options={"goal": g})` |
| observation | an array | the entry `observation` of a dictionary |
| goal | `info["goal"]` at reset | the entry `desired_goal` |
| success | `info["success"]` | `info["is_success"]` or `info["success"]` |

A task's goal vectors are passed to either kind with `reset(options={"goal": g})`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gtrl.envs.isolation import IsolatedEnv
from gtrl.errors import EpisodeError
from gtrl.tasks import Task

SUCCESS_KEYS = ("success", "is_success")
GOAL_TOLERANCE = 1e-5  # relative and absolute, between given and reported goals: environments may round to float32


class Step(NamedTuple):
    """The outcome of a step."""

    observation: np.ndarray
    success: bool
    ended: bool  # by success, by the environment or by the step limit


class GoalEpisodes:
    """Runs episodes of a task in one environment. Raises `EpisodeError` if the environment breaks the conventions."""

    def __init__(self, task: Task, env: IsolatedEnv) -> None:
        self.task, self.env = task, env

    def reset(self, seed: np.random.SeedSequence, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Starts an episode with one of the task's goals, counted from 1. Returns the observation and the goal."""
        goals = self.task.goals
        if goals is None or isinstance(goals, int):
            given, options = None, None if goals is None else {"task_id": number}
        else:
            given = np.asarray(goals[number - 1], np.float32)
            options = {"goal": np.array(goals[number - 1])}
        observed, info = self.env.reset(seed, options)
        return _observation(observed), _episode_goal(given, _reported_goal(observed, info))

    def step(self, action: np.ndarray) -> Step:
        """Takes a step. The episode ends at the first step that reports success."""
        observed, _, terminated, truncated, info = self.env.step(action)
        ended = bool(terminated or truncated)
        success = self._is_success(info, ended)
        return Step(_observation(observed), success, ended or success)

    def _is_success(self, info: Mapping[str, Any], ended: bool) -> bool:
        """Returns whether a step's info reports success. Only the last step of an episode must report it."""
        if self.task.success is not None:
            return bool(self.task.success(info))
        key = next((key for key in SUCCESS_KEYS if key in info), None)
        if key is None and ended:
            raise EpisodeError(
                "the environment reports no success: a step's info has neither 'success' nor 'is_success'; define "
                "success with Task(success=...)"
            )
        return key is not None and bool(info[key])


def _observation(observed: Any) -> np.ndarray:
    """Returns the observation without the goals of a GoalEnv."""
    if not isinstance(observed, Mapping):
        return np.asarray(observed)
    if "observation" not in observed:
        found = ", ".join(map(str, observed))
        raise EpisodeError(f"the environment's observation is a dictionary without 'observation': it has {found}")
    return np.asarray(observed["observation"])


def _reported_goal(observed: Any, info: Mapping[str, Any]) -> np.ndarray | None:
    """Returns the goal that the environment reports at reset; None if it reports none."""
    found = observed.get("desired_goal") if isinstance(observed, Mapping) else None
    found = info.get("goal") if found is None else found
    return None if found is None else np.asarray(found, np.float32)


def _episode_goal(given: np.ndarray | None, reported: np.ndarray | None) -> np.ndarray:
    """Returns the reported goal, which must agree with the given one, or else the given one."""
    if given is None:
        if reported is None:
            raise EpisodeError("the environment reports no goal: neither info['goal'] nor observation['desired_goal']")
        return reported
    if reported is None:
        return given
    if given.shape != reported.shape or not np.allclose(given, reported, rtol=GOAL_TOLERANCE, atol=GOAL_TOLERANCE):
        raise EpisodeError(
            f"the environment was given the goal {given.tolist()} and reports {reported.tolist()}: it must "
            "support reset(options={'goal': g})"
        )
    return reported

"""A common interface to goal-reaching episodes in OGBench's and Gymnasium-Robotics' (GoalEnv) environments.

| | OGBench | GoalEnv |
|---|---|---|
| choosing a goal | `reset(options={"task_id": k})` | by the seed, or `reset(options={"goal": g})` |
| observation | an array, or a dictionary of columns | the entry `observation` of a dictionary |
| goal | `info["goal"]` at reset | the entry `desired_goal` |
| success | `info["success"]` | `info["is_success"]` or `info["success"]` |

A task's goal vectors are passed to either kind with `reset(options={"goal": g})`. A dictionary is flattened to the
columns that the policy was trained on, in their order.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment
from gtrl.errors import ConfigError, EpisodeError
from gtrl.io.flatten import MissingColumnError, flatten, select
from gtrl.tasks import Task

SUCCESS_KEYS = ("success", "is_success")
GOAL_TOLERANCE = 1e-5  # relative and absolute, between given and reported goals: environments may round to float32


class Step(NamedTuple):
    """The outcome of a step."""

    observation: np.ndarray
    success: bool
    ended: bool  # by success, by the environment or by the step limit


class GoalEpisodes:
    """Runs episodes of a task in one environment. Raises `EpisodeError` if the environment breaks the conventions.

    `names` are those of the observation's columns in the training data, if they are known.
    """

    def __init__(self, task: Task, env: IsolatedEnv, names: Sequence[str] = ()) -> None:
        self.task, self.env, self.names = task, env, names

    def reset(self, seed: np.random.SeedSequence, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Starts an episode with one of the task's goals, counted from 1. Returns the observation and the goal."""
        goals = self.task.goals
        if goals is None or isinstance(goals, int):
            given, options = None, None if goals is None else {"task_id": number}
        else:
            given = np.asarray(goals[number - 1], np.float32)
            options = {"goal": np.array(goals[number - 1])}
        try:
            observed, info = self.env.reset(seed, options)
        except Exception as error:
            if given is None:
                raise
            raise EpisodeError(
                f"the environment does not accept the goal {given.tolist()}: reset(options={{'goal': g}}) raised "
                f"{one_line(error)}"
            ) from error
        return observation_of(observed, self.names), _episode_goal(given, _reported_goal(observed, info))

    def step(self, action: np.ndarray) -> Step:
        """Takes a step. The episode ends at the first step that reports success."""
        observed, _, terminated, truncated, info = self.env.step(action)
        ended = bool(terminated or truncated)
        success = self._is_success(info, ended)
        return Step(observation_of(observed, self.names), success, ended or success)

    def check_sizes(self, observation: np.ndarray, goal: np.ndarray, sizes: Mapping[str, Any]) -> None:
        """Raises `EpisodeError` unless observation, goal and actions have the sizes of a policy: `goal_dim`, ..."""
        for name, array in (("observation", observation), ("goal", goal)):
            expected = sizes[f"{name}_dim"]
            if array.shape != (expected,):
                raise EpisodeError(f"the {name} has the shape {array.shape}, and the policy takes {expected} numbers")
        space, size = self.env.env.action_space, sizes["action_dim"]
        if not getattr(space, "shape", None):  # that of a discrete space is ()
            kind = type(space).__name__
            raise EpisodeError(f"the environment's action space is {kind}, and the policy's actions are vectors (Box)")
        if space.shape != (size,):
            raise EpisodeError(
                f"the environment takes actions of shape {space.shape}, and the policy's have {size} numbers"
            )

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


def check_environment(task: Task, sizes: Mapping[str, Any], names: Sequence[str] = ()) -> None:
    """Raises `ConfigError` if the task's environment cannot start an episode, or one that does not fit a policy.

    `sizes` has `observation_dim`, `goal_dim` and `action_dim`; `names` are those of the observation's columns.
    """
    given, expected = len(task.goals[0]) if isinstance(task.goals, tuple) else None, sizes["goal_dim"]
    if given not in (None, expected):
        raise ConfigError(f"the goals of {task.name} have {given} numbers, and the policy's goals have {expected}.")
    env = make_environment(task)
    try:
        episodes = GoalEpisodes(task, IsolatedEnv(env), names)
        episodes.check_sizes(*episodes.reset(np.random.SeedSequence(0), 1), sizes)
    except EpisodeError as error:
        raise ConfigError(f"{task.name}: {error}.") from error
    except Exception as error:  # an environment may raise any error
        hint = "" if task.goals else "; if it draws no goals of its own, give them with --goals (in Python, goals=...)"
        raise ConfigError(f"{task.name}: the environment's reset raised {one_line(error)}{hint}") from error
    finally:
        env.close()


def one_line(error: Exception) -> str:
    """Returns the type and the message of an error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def observation_of(observed: Any, names: Sequence[str] = ()) -> np.ndarray:
    """Returns the observation as a vector of the columns `names`, if given; without the goals of a GoalEnv."""
    if not isinstance(observed, Mapping):
        return select(np.asarray(observed), names)
    if names:
        try:
            return flatten(observed, names)
        except MissingColumnError as error:
            if "observation" not in observed:
                raise EpisodeError(f"the environment's observation does not fit the policy: {error}") from error
    if "observation" not in observed:
        found = ", ".join(map(str, observed))
        raise EpisodeError(
            f"the environment's observation is a dictionary without 'observation': it has {found}, and the policy does "
            "not say which of them it was trained on"
        )
    return select(np.asarray(observed["observation"]), names)


def _reported_goal(observed: Any, info: Mapping[str, Any]) -> np.ndarray | None:
    """Returns the goal that the environment reports at reset; None if it reports none."""
    found = observed.get("desired_goal") if isinstance(observed, Mapping) else None
    found = info.get("goal") if found is None else found
    return None if found is None else np.asarray(found, np.float32)


def _episode_goal(given: np.ndarray | None, reported: np.ndarray | None) -> np.ndarray:
    """Returns the reported goal, which must agree with the given one, or else the given one."""
    if given is None:
        if reported is None:
            raise EpisodeError(
                "the environment reports no goal: neither info['goal'] nor observation['desired_goal']; report it at "
                "reset, or give goals"
            )
        return reported
    if reported is None:
        return given
    if given.shape != reported.shape or not np.allclose(given, reported, rtol=GOAL_TOLERANCE, atol=GOAL_TOLERANCE):
        raise EpisodeError(
            f"the environment was given the goal {given.tolist()} and reports {reported.tolist()}: it must "
            "support reset(options={'goal': g})"
        )
    return reported

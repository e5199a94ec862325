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

import contextlib
import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment, one_line
from gtrl.errors import USER_CODE_ERRORS, ConfigError, EpisodeError
from gtrl.io.flatten import MissingColumnError, flatten, select
from gtrl.tasks import Task

log = logging.getLogger(__name__)
SUCCESS_KEYS = ("success", "is_success")
FLOAT32 = np.finfo(np.float32)  # reported goals may be rounded to float32
LISTED_NAMES = 12  # in an error message


class Step(NamedTuple):
    """The outcome of a step."""

    observation: np.ndarray
    success: bool
    ended: bool  # by success, by the environment or by the step limit


class GoalEpisodes:
    """Runs episodes of a task in one environment. Raises `EpisodeError` if the environment breaks the conventions.

    `header` is that of the policy that acts, or a part of it: what is in it of sizes and columns is checked at each
    step.
    """

    def __init__(self, task: Task, env: IsolatedEnv, header: Mapping[str, Any] | None = None) -> None:
        self.task, self.env, self.header = task, env, header or {}
        self.names = {role: column_names(self.header, role) for role in ("observation", "goal")}
        self.steps = 0  # in the current episode
        self.reports_goal = False  # whether the environment reported the goal of the current episode
        self.info: Mapping[str, Any] = {}  # of the last step

    def reset(self, seed: np.random.SeedSequence, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Starts an episode with one of the task's goals, counted from 1. Returns the observation and the goal."""
        goals, self.steps = self.task.goals, 0
        given = options = None
        if isinstance(goals, int):
            options = {"task_id": number}
        elif goals is not None:
            given = np.array(goals[number - 1], np.float64)
            options = {"goal": given.copy()}  # the environment may change it
        try:
            returned = self.env.reset(seed, options)
        except USER_CODE_ERRORS as error:
            if given is None:
                raise
            raise EpisodeError(
                f"the environment does not accept the goal {given.tolist()}: reset(options={{'goal': g}}) raised "
                f"{one_line(error)}"
            ) from error
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise EpisodeError("the environment's reset does not return a tuple (observation, info)")
        observed, info = returned
        reported = _reported_goal(observed, _checked_info(info, "reset"))
        self.reports_goal = reported is not None
        goal = self._checked("goal", _episode_goal(given, reported)).astype(np.float64)
        return self._observation(observed), goal

    def step(self, action: np.ndarray) -> Step:
        """Takes a step. The episode ends at the first step that reports success."""
        observed, _, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        ended = bool(terminated or truncated)
        self.info = _checked_info(info, "step")
        success = self._is_success(self.info, ended)
        return Step(self._observation(observed), success, ended or success)

    def check_action_space(self) -> None:
        """Raises `EpisodeError` unless the environment takes actions of the policy's size."""
        space: Any = getattr(self.env.env, "action_space", None)
        size = self.header.get("action_dim")
        if not getattr(space, "shape", None):  # that of a discrete space is ()
            kind = type(space).__name__
            raise EpisodeError(f"the environment's action space is {kind}, and the policy's actions are vectors (Box)")
        if size is not None and space.shape != (size,):
            raise EpisodeError(
                f"the environment takes actions of shape {space.shape}, and the policy's have {size} numbers"
            )

    def _observation(self, observed: Any) -> np.ndarray:
        return self._checked("observation", self._flattened(observed))

    def _flattened(self, observed: Any) -> np.ndarray:
        """Returns the columns of an observation that the policy was trained on; without the goals of a GoalEnv."""
        if not isinstance(observed, Mapping):
            return self._chosen(observed)
        if self.names["observation"]:
            try:
                return flatten(observed, self.names["observation"])
            except MissingColumnError as error:
                if "observation" not in observed:
                    raise EpisodeError(f"the environment's observation does not fit the policy: {error}") from error
        if "observation" not in observed:
            found = ", ".join(map(str, observed))
            raise EpisodeError(
                f"the environment's observation is a dictionary without 'observation': it has {found}, and the policy "
                "does not say which of them it was trained on"
            )
        return self._chosen(observed["observation"])

    def _chosen(self, observed: Any) -> np.ndarray:
        """Returns the columns of an array observation that were chosen for training, if it is like that of the log."""
        array, indices = np.asarray(observed), self.header.get("observation_indices")
        if indices and array.shape == (self.header.get("log_observation_dim"),):
            return array[indices]
        return select(array, self.names["observation"])

    def _checked(self, role: str, array: np.ndarray) -> np.ndarray:
        """Returns an observation or a goal if it is a vector of finite numbers of the policy's size."""
        when = f" at step {self.steps}" if self.steps else ""
        if array.dtype.kind not in "biuf":
            raise EpisodeError(f"the {role} is an array of type {array.dtype}{when}, not of numbers")
        size, names = self.header.get(f"{role}_dim"), self.names[role]
        if size is not None and array.shape != (size,):
            takes = f"the policy takes {size} numbers"
            if names and role == "observation":
                takes += f"{_listed(names)}: return these columns, in this order"
            raise EpisodeError(f"the {role} has the shape {array.shape}{when}, and {takes}")
        with np.errstate(over="ignore"):
            finite = np.isfinite(np.asarray(array, np.float32)).reshape(-1)
        if not finite.all():
            index = int(np.argmin(finite))
            value = float(array.reshape(-1)[index])
            column = f"{role} {names[index]}" if len(names) == array.size else f"{role}[{index}]"
            reason = "too large for float32" if np.isfinite(value) else "not a finite number"
            raise EpisodeError(f"the {column} is {value:g}{when}, which is {reason}")
        return array

    def _is_success(self, info: Mapping[str, Any], ended: bool) -> bool:
        """Returns whether a step's info reports success. Only the last step of an episode must report it."""
        if self.task.success is not None:
            return bool(self.task.success(info))
        key = next((key for key in SUCCESS_KEYS if key in info), None)
        if key is None and ended:
            raise EpisodeError(
                "the environment reports no success: a step's info has neither 'success' nor 'is_success'; report one "
                "of them, or define success with Task(success=...)"
            )
        if key is None:
            return False
        if np.size(info[key]) != 1:
            raise EpisodeError(f"info['{key}'] has {np.size(info[key])} values, and success must be one")
        return bool(info[key])


def check_environment(task: Task, header: Mapping[str, Any]) -> None:
    """Raises `ConfigError` unless a policy can act in the task's environment; takes one step, with a centred action.

    `header` is that of the policy, or a part of it: `observation_dim`, `goal_dim`, `action_dim`, and the columns.
    """
    given, expected = len(task.goals[0]) if isinstance(task.goals, tuple) else None, header["goal_dim"]
    if given not in (None, expected):
        raise ConfigError(f"the goals of {task.name} have {given} numbers, and the policy's goals have {expected}.")
    env = make_environment(task)
    call, hint = "reset", ""
    if not task.goals:
        hint = "; if it draws no goals of its own, give them with --goals (in Python, goals=...)"
    try:
        episodes = GoalEpisodes(task, IsolatedEnv(env), header)
        episodes.check_action_space()
        episodes.reset(np.random.SeedSequence(0), 1)
        call, hint = "step", ""
        episodes.step(_centred_action(env.action_space))
    except EpisodeError as error:
        raise ConfigError(f"{task.name}: {error}.") from error
    except USER_CODE_ERRORS as error:
        raise ConfigError(f"{task.name}: the environment's {call} raised {one_line(error)}{hint}") from error
    finally:
        with contextlib.suppress(*USER_CODE_ERRORS):
            env.close()
    if isinstance(task.goals, tuple) and not episodes.reports_goal:
        _warn_once(
            f"{task.name} does not report its goal, so it cannot be checked that it uses the given one: report it as "
            "info['goal'] at reset."
        )
    if task.success is None and not any(key in episodes.info for key in SUCCESS_KEYS):
        _warn_once(
            f"{task.name} reports no success at the first step: the info of the last step must have 'success' or "
            "'is_success'."
        )


@lru_cache  # an environment is checked several times
def _warn_once(message: str) -> None:
    log.warning("%s", message)


def _centred_action(space: Any) -> np.ndarray:
    """Returns the middle of a `Box`, or the action closest to 0 where a bound is infinite."""
    low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    with np.errstate(invalid="ignore"):  # infinity - infinity
        middle = (low + high) / 2
    return np.where(np.isfinite(middle), middle, np.clip(0.0, low, high)).astype(np.float32)  # the type of policies


def column_names(header: Mapping[str, Any], role: str) -> tuple[str, ...]:
    """Returns the names of the columns of a policy's observation or goal from its header; empty if it has none."""
    columns = header.get("columns")
    names = columns.get(role) if isinstance(columns, Mapping) else None
    return tuple(map(str, names)) if isinstance(names, list | tuple) else ()


def _listed(names: tuple[str, ...]) -> str:
    """Returns the names in brackets; only the first ones if there are many."""
    more = f" and {len(names) - LISTED_NAMES} more" if len(names) > LISTED_NAMES else ""
    return f" ({', '.join(names[:LISTED_NAMES])}{more})"


def _checked_info(info: Any, call: str) -> Mapping[str, Any]:
    if not isinstance(info, Mapping):
        raise EpisodeError(f"the info of the environment's {call} is of type {type(info).__name__}, not a dictionary")
    return info


def _reported_goal(observed: Any, info: Mapping[str, Any]) -> np.ndarray | None:
    """Returns a copy of the goal that the environment reports at reset; None if it reports none."""
    found = observed.get("desired_goal") if isinstance(observed, Mapping) else None
    found = info.get("goal") if found is None else found
    if isinstance(found, Mapping):
        raise EpisodeError("the environment reports its goal as a dictionary: report a vector, as the policy takes it")
    return None if found is None else np.array(found)


def _episode_goal(given: np.ndarray | None, reported: np.ndarray | None) -> np.ndarray:
    """Returns the given goal, with which a reported one must agree, or else the reported one."""
    if given is None:
        if reported is None:
            raise EpisodeError(
                "the environment reports no goal: neither info['goal'] nor observation['desired_goal']; report it at "
                "reset, or give goals"
            )
        return reported
    if reported is None or _agree(given, reported):
        return given
    raise EpisodeError(
        f"the environment was given the goal {given.tolist()} and reports {reported.tolist()}: it must "
        "support reset(options={'goal': g})"
    )


def _agree(given: np.ndarray, reported: np.ndarray) -> bool:
    """Whether two goals are equal, up to rounding to float32."""
    if given.shape != reported.shape or reported.dtype.kind not in "biuf":
        return False
    with np.errstate(over="ignore"):
        return np.allclose(reported, given, rtol=FLOAT32.eps, atol=FLOAT32.tiny)

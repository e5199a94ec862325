"""Construction of a task's environment."""

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from gtrl.envs.isolation import ignore_warnings
from gtrl.envs.simulator import require_simulator_of
from gtrl.errors import USER_CODE_ERRORS, ConfigError, GtrlError
from gtrl.registry import import_module, resolve
from gtrl.tasks import OwnTask, Task
from gtrl.tasks.ogbench import OGBENCH

log = logging.getLogger(__name__)
DEFAULT_EPISODE_LENGTH = 1000  # steps, where neither the task nor the environment has a limit


def make_environment(task: Task, **options: Any) -> Any:
    """Makes the task's evaluation environment, with its step limit.

    `options` are passed to the environment; manipulation tasks have a mode for data collection. Raises
    `MissingPackageError` if the task is one of OGBench's, which is not installed.
    """
    require_simulator_of(task)
    with tempfile.TemporaryDirectory() as folder, _temporary_files_in(folder), ignore_warnings():
        try:
            env = _make_without_graphics(task, options)
        except GtrlError:
            raise
        except USER_CODE_ERRORS as error:
            raise ConfigError(f"the environment of {task.name} cannot be made: {one_line(error)}") from error
        import gymnasium

        if not isinstance(env, gymnasium.Env):
            raise ConfigError(f"the environment of {task.name} is a {type(env).__name__}, not a gymnasium.Env.")
        limit = task.episode_length or _step_limit(env)
        if limit is None:
            limit = DEFAULT_EPISODE_LENGTH
            _warn_of_default_limit(task.name, isinstance(task, OwnTask))
        return env if _step_limit(env) == limit else gymnasium.wrappers.TimeLimit(env, limit)


@lru_cache  # once, however many environments there are
def _warn_of_default_limit(name: str, is_own: bool) -> None:
    ways = ["register it with max_episode_steps", "wrap it in gymnasium.wrappers.TimeLimit"]
    if not is_own:
        ways.append("set Task(episode_length=...)")
    advice = " or ".join(ways)
    log.warning("%s has no step limit, so its episodes end after %s steps; %s.", name, DEFAULT_EPISODE_LENGTH, advice)


def one_line(error: BaseException) -> str:
    """Returns the type and the message of an error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def action_bounds(task_or_env: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the smallest and largest actions of an environment, in float64; None if it has no finite bounds.

    A task's environment is made for this, once. None also if its action space is not a `Box` of vectors, or if a lower
    bound is not below its upper one.
    """
    import gymnasium

    space = _action_space(task_or_env) if isinstance(task_or_env, Task) else task_or_env.action_space
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        return None
    low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    limit = np.finfo(np.float32).max / 2  # spaces without bounds may also have the largest number
    if not (np.isfinite(low) & np.isfinite(high) & (np.abs(low) < limit) & (np.abs(high) < limit)).all():
        return None
    return (low, high) if (low < high).all() else None


@lru_cache(maxsize=1)
def _action_space(task: Task) -> Any:
    env = make_environment(task)
    env.close()
    return env.action_space


def _make_without_graphics(task: Task, options: dict[str, Any]) -> Any:
    """Makes an environment even if MUJOCO_GL names a rendering backend that is not installed.

    MuJoCo and dm_control load the backend when they are imported, and their import fails without it, even if nothing
    is rendered. A working backend stays in use, because observations may be images.
    """
    try:
        return _make(task, options)
    except Exception:
        if not os.environ.get("MUJOCO_GL"):
            raise
    with _without_variables("MUJOCO_GL", "PYOPENGL_PLATFORM"):  # MuJoCo sets the second to the value of the first
        return _make(task, options)


def _make(task: Task, options: dict[str, Any]) -> Any:
    environment = task.environment
    if environment is None:
        raise ConfigError(f"the task {task.name} has no environment.")
    if not isinstance(environment, str):
        return environment(**options)
    if environment.startswith(OGBENCH):
        import ogbench

        return ogbench.make_env_and_datasets(environment.removeprefix(OGBENCH), env_only=True, **options)
    if ":" in environment and not re.search(r"-v\d+$", environment):  # not a Gymnasium id, which ends in -v0
        return resolve(environment)(**options)
    import gymnasium

    module, _, name = environment.rpartition(":")
    if module:
        import_module(module, f"the module '{module}' of the environment '{environment}'")
    try:
        # Without Gymnasium's checker: every worker would repeat its warnings.
        return gymnasium.make(name, **{"disable_env_checker": True, **options})
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        where = f"in {module} " if module else ""
        hint = "register it there" if module else f"name the module that registers it, my_package:{name}"
        raise ConfigError(f"no Gymnasium environment '{name}' is registered {where}({reason}): {hint}.") from error


def _step_limit(env: Any) -> int | None:
    """Returns the limit of the outermost `TimeLimit` around an environment; None if there is none."""
    import gymnasium

    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            return env._max_episode_steps
        env = env.env
    return None


@contextlib.contextmanager
def _without_variables(*names: str) -> Iterator[None]:
    """Unsets environment variables while the context is active."""
    removed = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(removed)


@contextlib.contextmanager
def _temporary_files_in(folder: str) -> Iterator[None]:
    """Creates temporary files in `folder`, which is then deleted: OGBench's mazes leave their model files behind."""
    previous, tempfile.tempdir = tempfile.tempdir, folder
    try:
        yield
    finally:
        tempfile.tempdir = previous

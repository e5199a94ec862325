"""Making a task's environment."""

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator
from typing import Any

from gtrl.envs.isolation import ignore_warnings
from gtrl.errors import ConfigError, GtrlError
from gtrl.registry import resolve
from gtrl.tasks import Task
from gtrl.tasks.ogbench import OGBENCH

log = logging.getLogger(__name__)
DEFAULT_EPISODE_LENGTH = 1000  # steps, where neither the task nor the environment has a limit


def make_environment(task: Task, **options: Any) -> Any:
    """The task's evaluation environment, with its step budget; goals in the task's own form.

    `options` go to the environment: manipulation tasks have a mode of their own for data collection.
    """
    with tempfile.TemporaryDirectory() as folder, _temporary_files_in(folder), ignore_warnings():
        try:
            env = _make_without_graphics(task, options)
        except GtrlError:
            raise
        except Exception as error:
            raise ConfigError(
                f"the environment of {task.name} cannot be made: {type(error).__name__}: {error}"
            ) from error
        import gymnasium

        if not isinstance(env, gymnasium.Env):
            raise ConfigError(f"the environment of {task.name} is a {type(env).__name__}, not a gymnasium.Env.")
        limit = task.episode_length or _limit(env)
        if limit is None:
            limit = DEFAULT_EPISODE_LENGTH
            advice = "Task(episode_length=...) says otherwise"
            log.warning("%s has no step limit, so its episodes end after %s steps; %s.", task.name, limit, advice)
        return env if _limit(env) == limit else gymnasium.wrappers.TimeLimit(env, limit)


def _make_without_graphics(task: Task, options: dict[str, Any]) -> Any:
    """Make an environment also where MUJOCO_GL names a backend that is missing.

    MuJoCo and dm_control load that backend when they are imported, and cannot be imported without it, though nothing
    may ever be rendered. A backend that works stays in use: an environment's observations may be pictures.
    """
    try:
        return _make(task, options)
    except Exception:
        if not os.environ.get("MUJOCO_GL"):
            raise
    with _without("MUJOCO_GL", "PYOPENGL_PLATFORM"):  # MuJoCo sets the second one to the first
        return _make(task, options)


def _make(task: Task, options: dict[str, Any]) -> Any:
    where = task.environment
    if where is None:
        raise ConfigError(f"the task {task.name} has no environment.")
    if not isinstance(where, str):
        return where(**options)
    if where.startswith(OGBENCH):
        import ogbench

        return ogbench.make_env_and_datasets(where.removeprefix(OGBENCH), env_only=True, **options)
    if ":" in where and not re.search(r"-v\d+$", where):
        return resolve(where)(**options)
    import gymnasium

    return gymnasium.make(where, **options)


def _limit(env: Any) -> int | None:
    """The step budget that an environment has already."""
    while env is not None:
        if (found := getattr(env, "_max_episode_steps", None)) is not None:
            return found
        env = getattr(env, "env", None)
    return None


@contextlib.contextmanager
def _without(*names: str) -> Iterator[None]:
    """Environment variables taken away for a while."""
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


@contextlib.contextmanager
def _temporary_files_in(folder: str) -> Iterator[None]:
    """OGBench's mazes write their model to a temporary file and leave it; here it goes with `folder`."""
    before, tempfile.tempdir = tempfile.tempdir, folder
    try:
        yield
    finally:
        tempfile.tempdir = before

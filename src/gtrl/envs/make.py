"""Making a task's environment."""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from typing import Any

from gtrl.envs.isolation import quietly
from gtrl.errors import ConfigError
from gtrl.registry import resolve
from gtrl.tasks import Task
from gtrl.tasks.ogbench import OGBENCH


def make_environment(task: Task, **options: Any) -> Any:
    """The task's evaluation environment, with its step budget; goals in the task's own form.

    `options` go to the environment: manipulation tasks have a mode of their own for data collection.
    """
    with tempfile.TemporaryDirectory() as folder, _temporary_files_in(folder), quietly():
        env = _make(task, options)
        if task.episode_length and _limit(env) != task.episode_length:
            import gymnasium

            env = gymnasium.wrappers.TimeLimit(env, task.episode_length)
        return env


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
def _temporary_files_in(folder: str) -> Iterator[None]:
    """OGBench's mazes write their model to a temporary file and leave it; here it goes with `folder`."""
    before, tempfile.tempdir = tempfile.tempdir, folder
    try:
        yield
    finally:
        tempfile.tempdir = before

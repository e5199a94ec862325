"""Tasks: what they are, the nineteen of the paper, and how one is found by name."""

from gtrl.errors import ConfigError
from gtrl.registry import Registry
from gtrl.tasks.ogbench import EXTRA_TASKS, TASKS, OGBenchTask
from gtrl.tasks.protocol import (
    ACTOR_GOALS,
    BATCH_SIZE,
    EPISODES_PER_GOAL,
    GOALS_PER_TASK,
    GRADIENT_STEPS,
    HIDDEN,
    HINDSIGHT_CLIP,
    LEARNING_RATE,
    ONE_STEP_EXPECTILE,
    RANDOM_GOALS,
    SCORED_STEPS,
    SUBGOAL_EXPECTILE,
    TARGET_RATE,
    TRAJECTORY_GOALS,
    VALIDATION_SHARE,
    VALUE_GOALS,
    Goals,
)
from gtrl.tasks.task import Task

__all__ = [
    "ACTOR_GOALS",
    "BATCH_SIZE",
    "EPISODES_PER_GOAL",
    "EXTRA_TASKS",
    "GOALS_PER_TASK",
    "GRADIENT_STEPS",
    "HIDDEN",
    "HINDSIGHT_CLIP",
    "LEARNING_RATE",
    "ONE_STEP_EXPECTILE",
    "RANDOM_GOALS",
    "REGISTERED",
    "SCORED_STEPS",
    "SUBGOAL_EXPECTILE",
    "TARGET_RATE",
    "TASKS",
    "TRAJECTORY_GOALS",
    "VALIDATION_SHARE",
    "VALUE_GOALS",
    "Goals",
    "OGBenchTask",
    "Task",
    "find_task",
    "ogbench_task",
]  # fmt: skip

REGISTERED: Registry[Task] = Registry("task", "gtrl.tasks", lambda thing: isinstance(thing, Task), TASKS | EXTRA_TASKS)


def find_task(name: str) -> Task:
    """The task of that name, or at `module:NAME`; OGBench's spellings with `-oraclerep` and `-v0` will do too."""
    short = name.removesuffix("-v0").removesuffix("-oraclerep")
    return REGISTERED.find(short if short in TASKS | EXTRA_TASKS else name)


def ogbench_task(task: str | Task) -> OGBenchTask:
    """The same, for what only the paper's tasks (and the demo's) have: a dataset that can be had or collected."""
    found = find_task(task) if isinstance(task, str) else task
    if not isinstance(found, OGBenchTask):
        raise ConfigError(f"{found.name} is a task of your own: its data is yours to bring (--data FILE).")
    return found

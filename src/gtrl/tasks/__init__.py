"""Tasks: the class `Task`, the nineteen tasks of the paper, and the registry that finds them by name."""

from gtrl.errors import ConfigError
from gtrl.registry import Registry
from gtrl.tasks.ogbench import EXTRA_TASKS, TASKS, OGBenchTask
from gtrl.tasks.own import OwnTask, changed_task, default_episodes, own_task, recorded_own_task
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
    SEEDS,
    STITCH_ACTOR_GOALS,
    SUBGOAL_EXPECTILE,
    TARGET_RATE,
    TRAJECTORY_GOALS,
    VALIDATION_RATIO,
    VALUE_GOALS,
    Goals,
    WaypointDraw,
    WaypointSource,
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
    "SEEDS",
    "STITCH_ACTOR_GOALS",
    "SUBGOAL_EXPECTILE",
    "TARGET_RATE",
    "TASKS",
    "TRAJECTORY_GOALS",
    "VALIDATION_RATIO",
    "VALUE_GOALS",
    "Goals",
    "OGBenchTask",
    "OwnTask",
    "Task",
    "WaypointDraw",
    "WaypointSource",
    "changed_task",
    "default_episodes",
    "find_task",
    "ogbench_task",
    "own_task",
    "recorded_own_task",
]  # fmt: skip

REGISTERED: Registry[Task] = Registry("task", "gtrl.tasks", lambda thing: isinstance(thing, Task), TASKS | EXTRA_TASKS)


def find_task(name: str) -> Task:
    """Returns the task with this name, or the one that `module:NAME` refers to.

    OGBench's names, which end in `-v0` or `-oraclerep-v0`, are accepted as well.
    """
    short = name.removesuffix("-v0").removesuffix("-oraclerep")
    return REGISTERED.find(short if short in TASKS | EXTRA_TASKS else name)


def ogbench_task(task: str | Task) -> OGBenchTask:
    """Returns a built-in task, whose dataset can be downloaded or collected; raises `ConfigError` for any other."""
    found = find_task(task) if isinstance(task, str) else task
    if not isinstance(found, OGBenchTask):
        raise ConfigError(
            f"{found.name} is not a built-in task, so there is no dataset for it: give your own (--data FILE)."
        )
    return found

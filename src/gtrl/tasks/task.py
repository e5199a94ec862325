"""The class `Task`: an environment, its goals, its success criterion and defaults of hyperparameters."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gtrl.errors import ConfigError

DIMENSIONS = ("observation_dim", "goal_dim", "action_dim")


@dataclass(frozen=True)
class Task:
    """A goal-reaching task. The built-in tasks are of the subclass `OGBenchTask`.

    Only the name is required. Without an environment, a policy can be trained but not evaluated.

    Attributes:
        name: The name in commands and files.
        environment: A factory that returns a Gymnasium environment, a Gymnasium id (`my_package:MyEnv-v0`), or
            `module:factory`.
        goals: The goals to evaluate: the number n of task ids (`reset(options={"task_id": k})`, k = 1 to n), or goal
            vectors (`reset(options={"goal": g})`). None if the environment draws a goal at each reset.
        goal: How to compute the goal at each row of a dataset: columns of `observations`, a function of the dataset's
            arrays, or `module:function`. By default the array `goals`, or the whole observation without one.
        success: A function that returns whether a step's `info` reports success. By default info["success"], else
            info["is_success"].
        episode_length: The maximum number of steps per episode; by default the environment's limit.
        scale: Whether its data is standardised before training (see `gtrl.load_dataset`).
        defaults: Hyperparameters whose defaults differ on this task, such as gamma, for every method that has them.
        observation_dim: The size of observations in a dataset; not checked if None.
        goal_dim: The size of goals; not checked if None.
        action_dim: The size of actions; not checked if None.
    """

    name: str
    environment: str | Callable[[], Any] | None = None
    goals: int | Sequence[Sequence[float]] | None = None
    goal: Sequence[int] | Callable[[Mapping[str, Any]], Any] | str | None = None
    success: Callable[[Mapping[str, Any]], bool] | None = None
    episode_length: int | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    observation_dim: int | None = None
    goal_dim: int | None = None
    action_dim: int | None = None
    scale: bool = True

    def __post_init__(self) -> None:
        for name in ("goals", "goal"):  # tuples are hashable: environments are cached by task
            object.__setattr__(self, name, _tuples(getattr(self, name)))
        if not isinstance(self.name, str) or not self.name.strip() or set(self.name) & set(_RESERVED):
            raise ConfigError(f"a task's name is {self.name!r} and must be a text without any of '{_RESERVED}'.")
        problem = self._problem()
        if problem:
            raise ConfigError(f"the task {self.name}: {problem}.")

    def _problem(self) -> str | None:
        """Returns why the values are invalid; None if they are valid."""
        if not (self.environment is None or callable(self.environment) or _is_text(self.environment)):
            return "its environment must be a factory, a Gymnasium id or module:factory"
        if not (self.success is None or callable(self.success)):
            return "success must be a function of a step's info"
        if not isinstance(self.defaults, Mapping):
            return "defaults must be a dictionary of fields"
        for name in ("episode_length", *DIMENSIONS):
            value = getattr(self, name)
            if value is not None and not _is_count(value):
                return f"{name} is {value!r} and must be a positive integer"
        return _goals_problem(self.goals, self.goal_dim) or _goal_problem(self.goal)

    @property
    def family(self) -> str:
        """The environment family of a built-in task; empty for other tasks."""
        return ""

    @property
    def has_stitch_data(self) -> bool:
        """Whether the dataset of a built-in task has short trajectories, which must be combined to reach goals."""
        return False

    @property
    def goal_names(self) -> tuple[str, ...]:
        """The names of the goals in `eval.csv`: task1, ... for task ids, goal1, ... for goal vectors, or random."""
        if self.goals is None:
            return ("random",)
        if isinstance(self.goals, int):
            return tuple(f"task{number}" for number in range(1, self.goals + 1))
        return tuple(f"goal{number}" for number in range(1, len(self.goals) + 1))

    def to_json(self) -> dict[str, Any]:
        """Returns the task as JSON; a factory becomes its reference."""
        row = {key: getattr(self, key) for key in ("name", "environment", "goals", "episode_length", *DIMENSIONS)}
        if callable(self.environment):
            row["environment"] = reference_to(self.environment)
        return row | {"defaults": dict(self.defaults)}


_RESERVED = "/\\:,\n"  # a name is used as a folder, as a cell of eval.csv and in references (`module:NAME`)


def reference_to(factory: Any) -> str:
    """Returns `module:name` of a function or class; for any other object, that of its class."""
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{named.__module__}:{named.__qualname__}"


def _tuples(value: Any) -> Any:
    """Converts lists and arrays to tuples, recursively."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple, range)) else value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _goals_problem(goals: Any, goal_dim: int | None) -> str | None:
    if goals is None or _is_count(goals):
        return None
    if not isinstance(goals, tuple) or not goals:
        return f"goals is {goals!r} and must be a positive number of task ids, goal vectors, or None"
    for number, goal in enumerate(goals, start=1):
        if not isinstance(goal, tuple) or not goal or not all(map(_is_number, goal)):
            return f"goal {number} is {goal!r} and must be a vector of finite numbers"
        if len(goal) != len(goals[0]):
            return f"goal {number} has {len(goal)} numbers where goal 1 has {len(goals[0])}"
    if goal_dim and len(goals[0]) != goal_dim:
        return f"its goals have {len(goals[0])} numbers where goal_dim is {goal_dim}"
    return None


def _goal_problem(goal: Any) -> str | None:
    if goal is None or callable(goal) or _is_text(goal):
        return None
    if isinstance(goal, tuple) and goal and all(isinstance(c, int) and not isinstance(c, bool) for c in goal):
        return None
    return (
        f"goal is {goal!r} and must be columns of the observation, a function of a dataset's arrays, or module:function"
    )

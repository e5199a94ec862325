"""What a task is: an environment, which part of a state is a goal, the goals to evaluate, success, and defaults."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gtrl.errors import ConfigError

DIMENSIONS = ("observation_dim", "goal_dim", "action_dim")


@dataclass(frozen=True)
class Task:
    """A task of your own. The nineteen of the paper are `OGBenchTask`s.

    All but the name is optional: without an environment a policy can be trained but not evaluated.

    Attributes:
        name: In commands and files.
        environment: A factory that returns a Gymnasium environment, a Gymnasium id (`my_package:MyEnv-v0`), or
            `module:factory`.
        goals: The goals to evaluate: how many task ids there are (`reset(options={"task_id": k})`, k from 1), or the
            goals themselves (`reset(options={"goal": g})`); None where the environment draws one at each reset.
        goal: Which part of a dataset's row is the goal: columns of `observations`, a function of its arrays, or
            `module:function`. By default the file's array `goals`, or the whole observation where it has none.
        success: Whether a step's `info` reports success; by default info["success"], else info["is_success"].
        episode_length: The most steps of an episode; by default the environment's own limit.
        defaults: Fields in which a method's defaults differ here, such as gamma, for every method that has them.
        observation_dim: The size that observations of a dataset must have, where it is known; so are the next two.
        goal_dim: That of goals.
        action_dim: That of actions.
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

    def __post_init__(self) -> None:
        for name in ("goals", "goal"):  # hashable, so that an environment is made once for each task
            object.__setattr__(self, name, _tuples(getattr(self, name)))
        if not isinstance(self.name, str) or not self.name.strip() or set(self.name) & set(_RESERVED):
            raise ConfigError(f"a task's name is {self.name!r} and must be a word without any of '{_RESERVED}'.")
        problem = self._problem()
        if problem:
            raise ConfigError(f"the task {self.name}: {problem}.")

    def _problem(self) -> str | None:
        """What keeps these values from being a task, if anything."""
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
        """What the paper's tasks are grouped by; empty for a task of your own."""
        return ""

    @property
    def goal_names(self) -> tuple[str, ...]:
        """The goals to evaluate, as `eval.csv` names them: task1, ... for ids, goal1, ... for vectors, or random."""
        if self.goals is None:
            return ("random",)
        if isinstance(self.goals, int):
            return tuple(f"task{number}" for number in range(1, self.goals + 1))
        return tuple(f"goal{number}" for number in range(1, len(self.goals) + 1))

    def to_json(self) -> dict[str, Any]:
        row = {key: getattr(self, key) for key in ("name", "environment", "goals", "episode_length", *DIMENSIONS)}
        if callable(self.environment):
            row["environment"] = reference_to(self.environment)
        return row | {"defaults": dict(self.defaults)}


_RESERVED = "/\\:,\n"  # a name becomes a folder's and a cell of eval.csv, and `module:NAME` is a reference


def reference_to(factory: Any) -> str:
    """`module:name` of a function or class; of an object, that of its class."""
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{named.__module__}:{named.__qualname__}"


def _tuples(value: Any) -> Any:
    """Lists and arrays as tuples, all the way down."""
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
        return f"goals is {goals!r} and must be a number of task ids from 1 up, goal vectors, or None"
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
    return f"goal is {goal!r} and must be columns of the observation, a function of a dataset's arrays, or its name"

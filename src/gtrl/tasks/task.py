"""What a task is: an environment, what of a state is a goal, which goals to evaluate, what success is, and defaults."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """A task of your own. The nineteen of the paper are `OGBenchTask`s.

    All but the name is optional: without an environment a policy can be trained but not evaluated.
    """

    name: str
    # A factory that returns a Gymnasium environment, a Gymnasium id (`my_package:MyEnv-v0`), or `module:factory`.
    environment: str | Callable[[], Any] | None = None
    # The goals to evaluate: how many there are (`reset(options={"task_id": k})`, k from 1), or the goals themselves
    # (`reset(options={"goal": g})`); None where the environment draws one at each reset.
    goals: int | Sequence[Sequence[float]] | None = None
    # What of a dataset's row is the goal: columns of `observations`, a function of its arrays, or `module:function`.
    # By default the file's array `goals`, or the whole observation where it has none.
    goal: Sequence[int] | Callable[[Mapping[str, Any]], Any] | str | None = None
    # Whether a step's `info` reports success; by default info["success"], else info["is_success"].
    success: Callable[[Mapping[str, Any]], bool] | None = None
    # The most steps of an episode; by default the environment's own limit.
    episode_length: int | None = None
    # Fields in which a method's defaults differ here, such as gamma, for every method that has them.
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # The sizes a dataset must have, where they are known.
    observation_dim: int | None = None
    goal_dim: int | None = None
    action_dim: int | None = None

    def __post_init__(self) -> None:
        for name in ("goals", "goal"):  # hashable, so that an environment is made once for each task
            value = getattr(self, name)
            if isinstance(value, Sequence) and not isinstance(value, str):
                object.__setattr__(self, name, _tuples(value))

    @property
    def family(self) -> str:
        """What the paper's tasks are grouped by; empty for a task of your own."""
        return ""

    def to_json(self) -> dict[str, Any]:
        row = {key: getattr(self, key) for key in ("name", "environment", "goals", "episode_length")}
        if callable(self.environment):
            row["environment"] = f"{self.environment.__module__}:{self.environment.__qualname__}"
        dims = {key: getattr(self, key) for key in ("observation_dim", "goal_dim", "action_dim")}
        return row | dims | {"defaults": dict(self.defaults)}


def _tuples(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value

"""The nineteen tasks of the paper, with the numbers of its tables 3 (data) and 5 (hyperparameters per task).

`EXTRA_TASKS` holds three point mazes that are not in the paper: two of OGBench's medium maze, and the small teleport
maze of `gtrl demo`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gtrl.tasks.protocol import ACTOR_GOALS, GOALS_PER_TASK, STITCH_ACTOR_GOALS, VALUE_GOALS
from gtrl.tasks.task import Task

Group = Literal["teleport", "stitch", "deterministic"]


@dataclass(frozen=True)
class OGBenchTask(Task):
    """A built-in task, with a dataset that can be downloaded or collected.

    Attributes:
        group: The group of tasks in the paper's results.
        trajectories: The number of training trajectories in the dataset.
        trajectory_length: The number of transitions in each.
    """

    observation_dim: int = 0
    goal_dim: int = 0
    action_dim: int = 0
    episode_length: int = 0
    group: Group = "deterministic"
    trajectories: int = 0
    trajectory_length: int = 0
    scale: bool = False  # as in the paper

    @property
    def transitions(self) -> int:
        """The number of training transitions in the dataset."""
        return self.trajectories * self.trajectory_length

    @property
    def dataset(self) -> str:
        """The name of the dataset file at OGBench, without `.npz`."""
        return f"{self.name}-v0"

    @property
    def family(self) -> str:
        """The environment family: pointmaze, antmaze, humanoidmaze, antsoccer, cube, scene or puzzle."""
        return self.name.split("-")[0]

    @property
    def has_stitch_data(self) -> bool:
        """Whether it is one of OGBench's stitch datasets; two of them are in the paper's teleport group."""
        return self.name.endswith("-stitch")

    @property
    def public(self) -> bool:
        """Whether OGBench publishes the dataset; it has none for the demo's maze."""
        return str(self.environment).startswith(OGBENCH)

    def to_json(self) -> dict[str, Any]:
        """Returns the row of the paper's tables, as `gtrl tasks --json` prints it."""
        columns = (
            "name group transitions trajectories trajectory_length observation_dim goal_dim action_dim episode_length"
        )
        row = {key: getattr(self, key) for key in columns.split()}
        defaults: Mapping[str, Any] = self.defaults
        return row | {
            "environment": str(self.environment).removeprefix(OGBENCH),
            "lambda": defaults["lambda_"],
            "alpha": defaults["alpha"],
            "gamma": defaults["gamma"],
            "value_goals": list(VALUE_GOALS),
            "actor_goals": list(defaults["actor_goals"]),
        }


OGBENCH = "ogbench/"  # prefix of the names that `ogbench.make_env_and_datasets` takes
# The functions in `gtrl.envs.ogbench` that compute goals, by family and by task; agent_goals for all others.
_GOALS_BY_FAMILY = {"antsoccer": "ball_goals", "scene": "scene_goals", "puzzle": "button_goals"}
_GOALS_BY_TASK = {"cube-single-play": "one_cube_goals", "cube-double-play": "two_cube_goals"}


def _task(name: str, group: Group, data: tuple[int, int], dims: tuple[int, int, int], budget: int,
          lambda_: float, alpha: float, gamma: float = 0.99, environment: str = "") -> OGBenchTask:  # fmt: skip
    observation_dim, goal_dim, action_dim = dims
    family = name.split("-")[0]
    return OGBenchTask(
        name,
        environment=environment or f"{OGBENCH}{name}-oraclerep-v0",
        goals=GOALS_PER_TASK,
        goal=f"gtrl.envs.ogbench:{_GOALS_BY_TASK.get(name) or _GOALS_BY_FAMILY.get(family, 'agent_goals')}",
        # The paper gives lambda and alpha for GTRL. Other methods use them unless they have published values.
        defaults={
            "gamma": gamma,
            "lambda_": lambda_,
            "alpha": alpha,
            "actor_goals": STITCH_ACTOR_GOALS if group == "stitch" else ACTOR_GOALS,
        },
        observation_dim=observation_dim,
        goal_dim=goal_dim,
        action_dim=action_dim,
        episode_length=budget,
        group=group,
        trajectories=data[0],
        trajectory_length=data[1],
    )


# (trajectories, transitions in each)
_LONG, _SHORT = (1000, 1000), (5000, 200)
_HUMANOID_LONG, _HUMANOID_SHORT = (1000, 2000), (5000, 400)
# (observation, goal, action) dimensions
_POINT, _ANT, _HUMANOID, _SOCCER = (2, 2, 2), (29, 2, 8), (69, 2, 21), (42, 2, 8)

_ROWS = (
    #     task                            group            data             dimensions    budget lambda alpha gamma
    _task("pointmaze-teleport-navigate",  "teleport",      _LONG,           _POINT,       1000,  0.1,   0.1),
    _task("pointmaze-teleport-stitch",    "teleport",      _SHORT,          _POINT,       1000,  0.7,   10.0),
    _task("antmaze-teleport-navigate",    "teleport",      _LONG,           _ANT,         1000,  0.0,   0.25),
    _task("antmaze-teleport-stitch",      "teleport",      _SHORT,          _ANT,         1000,  0.0,   0.25),
    _task("pointmaze-large-stitch",       "stitch",        _SHORT,          _POINT,       1000,  0.7,   0.03),
    _task("antmaze-large-stitch",         "stitch",        _SHORT,          _ANT,         1000,  0.0,   0.25),
    _task("humanoidmaze-medium-stitch",   "stitch",        _HUMANOID_SHORT, _HUMANOID,    2000,  0.0,   0.1, 0.995),
    _task("humanoidmaze-large-stitch",    "stitch",        _HUMANOID_SHORT, _HUMANOID,    2000,  0.0,   0.1, 0.995),
    _task("antsoccer-arena-stitch",       "stitch",        _SHORT,          _SOCCER,      1000,  0.25,  0.1),
    _task("pointmaze-large-navigate",     "deterministic", _LONG,           _POINT,       1000,  0.1,   0.1),
    _task("antmaze-large-navigate",       "deterministic", _LONG,           _ANT,         1000,  0.0,   0.25),
    _task("humanoidmaze-medium-navigate", "deterministic", _HUMANOID_LONG,  _HUMANOID,    2000,  0.0,   0.1, 0.995),
    _task("humanoidmaze-large-navigate",  "deterministic", _HUMANOID_LONG,  _HUMANOID,    2000,  0.0,   0.1, 0.995),
    _task("antsoccer-arena-navigate",     "deterministic", _LONG,           _SOCCER,      1000,  0.5,   0.25),
    _task("cube-single-play",             "deterministic", _LONG,           (28, 3, 5),   200,   0.4,   2.5),
    _task("cube-double-play",             "deterministic", _LONG,           (37, 6, 5),   500,   0.0,   7.5),
    _task("scene-play",                   "deterministic", _LONG,           (40, 7, 5),   750,   0.7,   1.5),
    _task("puzzle-3x3-play",              "deterministic", _LONG,           (55, 9, 5),   500,   0.4,   1.5),
    _task("puzzle-4x4-play",              "deterministic", _LONG,           (83, 16, 5),  500,   0.1,   1.0),
)  # fmt: skip
TASKS: dict[str, OGBenchTask] = {task.name: task for task in _ROWS}

_OTHER_ROWS = (
    # Not in the paper: lambda and alpha are those of the large point maze with the same kind of data.
    _task("pointmaze-medium-navigate",    "deterministic", _LONG,           _POINT,       1000,  0.1,   0.1),
    _task("pointmaze-medium-stitch",      "stitch",        _SHORT,          _POINT,       1000,  0.7,   0.03),
    # The demo's small teleport maze.
    _task("pointmaze-mini-navigate",      "teleport",      (300, 200),      _POINT,       400,   0.0,   0.05, 0.995,
          "gtrl.envs.mini_maze:make_mini_maze"),
)  # fmt: skip
EXTRA_TASKS: dict[str, OGBenchTask] = {task.name: task for task in _OTHER_ROWS}

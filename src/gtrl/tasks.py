"""The nineteen tasks of the paper, with every number of its tables 3 (data), 4 (shared) and 5 (per task).

`OTHERS` holds mazes that are not in the paper's tables but run through the same code: the medium
point maze and the small teleport maze of `gtrl demo`.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from gtrl.errors import UnknownNameError

Group = Literal["teleport", "stitch", "deterministic"]
Goals = tuple[float, float, float]  # probabilities (current state, same trajectory, whole dataset)

# The paper's table of shared hyperparameters: the same on all nineteen tasks.
GRADIENT_STEPS = 1_000_000
LEARNING_RATE = 3e-4
BATCH_SIZE = 1024
HIDDEN = (512, 512, 512)
TARGET_RATE = 0.005  # eta
SUBGOAL_EXPECTILE = 0.7  # kappa where m = 1
ONE_STEP_EXPECTILE = 0.5  # kappa where m = 0
HINDSIGHT_CLIP = 1.0  # c
VALUE_GOALS: Goals = (0.0, 0.5, 0.5)
TRAJECTORY_GOALS: Goals = (0.0, 1.0, 0.0)
RANDOM_GOALS: Goals = (0.0, 0.0, 1.0)
IQL_GOALS: Goals = (0.2, 0.5, 0.3)  # IQL and IVL, as published with OGBench
IQL_EXPECTILE = 0.9
ACTOR_GOALS = TRAJECTORY_GOALS
STITCH_ACTOR_GOALS: Goals = (0.0, 0.5, 0.5)  # the five tasks of the stitch group
VALIDATION_SHARE = 10  # one validation episode for so many training episodes, at least one
EPISODES_PER_GOAL = 50
GOALS_PER_TASK = 5
SCORED_STEPS = (800_000, 900_000, 1_000_000)


@dataclass(frozen=True)
class Task:
    """One row of the paper's tables. `environment` is what `ogbench.make_env_and_datasets` takes."""

    name: str
    group: Group
    transitions: int
    trajectories: int
    trajectory_length: int
    observation_dim: int
    goal_dim: int
    action_dim: int
    episode_length: int
    lambda_: float  # distance weight of rho
    alpha: float  # behaviour cloning coefficient
    gamma: float

    @property
    def environment(self) -> str:
        return f"{self.name}-oraclerep-v0"

    @property
    def dataset(self) -> str:
        """The name of its OGBench file, without the ending."""
        return f"{self.name}-v0"

    @property
    def family(self) -> str:
        """pointmaze, antmaze, humanoidmaze, antsoccer, cube, scene or puzzle."""
        return self.name.split("-")[0]

    @property
    def public(self) -> bool:
        """Whether OGBench has it; the demo's maze is our own."""
        return not self.name.startswith("pointmaze-mini")

    @property
    def value_goals(self) -> Goals:
        return VALUE_GOALS

    @property
    def actor_goals(self) -> Goals:
        return STITCH_ACTOR_GOALS if self.group == "stitch" else ACTOR_GOALS

    def to_json(self) -> dict[str, Any]:
        row = asdict(self)
        row["lambda"] = row.pop("lambda_")
        extra = {
            "environment": self.environment,
            "value_goals": list(self.value_goals),
            "actor_goals": list(self.actor_goals),
        }
        keys = (
            "name group environment transitions trajectories trajectory_length observation_dim goal_dim "
            "action_dim episode_length lambda alpha gamma value_goals actor_goals"
        )
        return {key: (row | extra)[key] for key in keys.split()}


def _task(name: str, group: Group, data: tuple[int, int], dims: tuple[int, int, int], budget: int,
          lambda_: float, alpha: float, gamma: float = 0.99) -> Task:  # fmt: skip
    trajectories, length = data
    return Task(name, group, trajectories * length, trajectories, length, *dims, budget, lambda_, alpha, gamma)


# (trajectories, their length)
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
TASKS: dict[str, Task] = {task.name: task for task in _ROWS}

_OTHER_ROWS = (
    # Not in the paper: lambda and alpha are those of the large point maze with the same kind of data.
    _task("pointmaze-medium-navigate",    "deterministic", _LONG,           _POINT,       1000,  0.1,   0.1),
    _task("pointmaze-medium-stitch",      "stitch",        _SHORT,          _POINT,       1000,  0.7,   0.03),
    # The demo's small teleport maze.
    _task("pointmaze-mini-navigate",      "teleport",      (300, 200),      _POINT,       400,   0.0,   0.05, 0.995),
)  # fmt: skip
OTHERS: dict[str, Task] = {task.name: task for task in _OTHER_ROWS}


def find_task(name: str) -> Task:
    """The task of that name; OGBench's spellings with `-oraclerep` and `-v0` are understood too."""
    short = name.removesuffix("-v0").removesuffix("-oraclerep")
    known = TASKS | OTHERS
    if short not in known:
        raise UnknownNameError("task", name, known)
    return known[short]


# TRL's own (lambda, alpha), public for these tasks; on the others TRL takes GTRL's, as none are public.
_TRL = {
    "scene-play": (1.0, 1.0),
    "cube-single-play": (0.7, 1.0),
    "cube-double-play": (1.0, 10.0),
    "puzzle-3x3-play": (0.5, 2.0),
    "puzzle-4x4-play": (2.0, 2.0),
    "antmaze-large-navigate": (0.0, 0.7),
    "antsoccer-arena-navigate": (0.5, 0.3),
    "humanoidmaze-medium-navigate": (0.0, 0.1),
    "humanoidmaze-large-navigate": (0.1, 0.1),
    "pointmaze-medium-navigate": (0.7, 10.0),
}


# alpha by family of task, published with OGBench for goals that are whole states; the oracle goals' own are not public.
_ALPHA = {
    #                IVL   IQL    QRL     CRL
    "pointmaze":    (10.0, 0.003, 0.0003, 0.03),
    "antmaze":      (10.0, 0.3,   0.003,  0.1),
    "humanoidmaze": (10.0, 0.1,   0.001,  0.1),
    "antsoccer":    (10.0, 0.1,   0.003,  0.3),
    "cube":         (10.0, 1.0,   0.3,    3.0),
    "scene":        (10.0, 1.0,   0.3,    3.0),
    "puzzle":       (10.0, 1.0,   0.3,    3.0),
}  # fmt: skip
_ALPHA_COLUMN = {"ivl": 0, "iql": 1, "qrl": 2, "crl": 3}
_GTRL_ALPHA = ("gtrl", "td", "td-n", "mc", "tdp", "coe")  # none is public for the last five: they take GTRL's

# n of TD-n: 25 and 50 are public for large puzzles and humanoid mazes; 25 elsewhere is ours.
_N = {"humanoidmaze": 50}


def defaults(algorithm: str, task: Task) -> dict[str, Any]:
    """The fields in which a method's defaults differ on this task."""
    fields: dict[str, Any] = {"gamma": task.gamma}
    if algorithm != "bc":  # BC's goals are the future of its own trajectory on every task
        fields["actor_goals"] = task.actor_goals
    if algorithm in _GTRL_ALPHA:
        fields["alpha"] = task.alpha
    if algorithm in _ALPHA_COLUMN:
        fields["alpha"] = _ALPHA[task.family][_ALPHA_COLUMN[algorithm]]
    if algorithm == "gtrl":
        fields |= {"lambda_": task.lambda_, "value_goals": task.value_goals}
    if algorithm == "trl":
        fields["lambda_"], fields["alpha"] = _TRL.get(task.name, (task.lambda_, task.alpha))
    if algorithm == "td-n":
        fields["n"] = _N.get(task.family, 25)
    return fields

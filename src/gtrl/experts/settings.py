"""Settings of the training of experts: hyperparameters, and when to log, save and evaluate.

Without JAX, for the command line.
"""

from dataclasses import dataclass, replace
from typing import Any

from gtrl.envs.heading import FRAMES, Frame
from gtrl.errors import ConfigError, UnknownNameError
from gtrl.fields import (
    COUNT,
    COUNT_OR_ZERO,
    DISCOUNT,
    FRACTION,
    NOT_NEGATIVE,
    NUMBER,
    POSITIVE,
    SHARE,
    WIDTHS,
    Rule,
    check_fields,
    checked,
)

MAZE_SHARE = 0.5  # of the episodes; the others are in an open field, as all of OGBench's are
FRAME = Rule(lambda x: x in FRAMES, f"be {' or '.join(FRAMES)}")


@dataclass(frozen=True)
class SAC:
    """Hyperparameters of soft actor-critic."""

    steps: int = checked(800_000, COUNT)  # simulator steps, all copies together; more of them continue a finished run
    copies: int = checked(16, COUNT)  # copies of the simulator
    updates: int = checked(8, COUNT)  # gradient steps per step of all copies
    batch_size: int = checked(256, COUNT)  # batch size
    hidden: tuple[int, ...] = checked((256, 256), WIDTHS)  # widths of the hidden layers, in actor and critics
    lr: float = checked(3e-4, POSITIVE)  # learning rate of Adam
    gamma: float = checked(0.99, DISCOUNT)  # discount
    tau: float = checked(0.005, FRACTION)  # speed of the moving average of the target critics
    target_entropy: float = checked(-0.5, NUMBER)  # entropy that the policy is kept at, per dimension of the action
    warmup: int = checked(5_000, COUNT_OR_ZERO)  # simulator steps with random actions before the first gradient step
    replay: int = checked(1_000_000, COUNT)  # simulator steps that the replay buffer holds
    # simulator steps before the next gradient step when a run continues without its replay buffer, on another machine
    refill: int = checked(50_000, COUNT_OR_ZERO)
    # standard deviation of noise that is added to actions, which data collection does too, unknown to the learner
    noise: float = checked(0.0, NOT_NEGATIVE)
    turn: bool = True  # turn each transition by a random angle
    frame: Frame = checked("world", FRAME)  # of velocities and direction; body, for the humanoid, says where it faces
    maze_share: float = checked(MAZE_SHARE, SHARE)  # of the episodes that are in a maze of the task, or the arena
    mirror: bool = True  # reflect half of the transitions, if the body is symmetric (humanoid)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.warmup >= self.steps:
            raise ConfigError(f"warmup is {self.warmup} and must be less than steps, which is {self.steps}.")


@dataclass(frozen=True)
class Schedule:
    """When a run logs, saves and evaluates, in simulator steps."""

    log_every: int = checked(5_000, COUNT)  # simulator steps between two rows of metrics.jsonl
    checkpoint_every: int = checked(50_000, COUNT)  # simulator steps between two checkpoints
    evaluate_every: int = checked(50_000, COUNT)  # simulator steps between two evaluations, each with an expert file

    def __post_init__(self) -> None:
        check_fields(self)


_DEFAULTS = {  # by skill
    "ant": (SAC(), Schedule()),
    "dribble": (SAC(steps=3_000_000, copies=32), Schedule(20_000, 100_000, 100_000)),
    "humanoid": (
        SAC(steps=5_000_000, copies=64, updates=16, warmup=20_000, noise=0.2, frame="body"),
        Schedule(50_000, 250_000, 125_000),
    ),
}
SKILL_NAMES = tuple(_DEFAULTS)


def check_skill(name: str) -> str:
    """Returns the name of a skill; an unknown one is an error that lists the known ones."""
    if name not in SKILL_NAMES:
        raise UnknownNameError("skill", name, SKILL_NAMES)
    return name


def default_config(skill: str, **settings: Any) -> SAC:
    """Returns the hyperparameters of a skill, with some of them changed."""
    return replace(_DEFAULTS[check_skill(skill)][0], **settings)


def default_schedule(skill: str, **settings: Any) -> Schedule:
    """Returns the schedule of a skill, with parts of it changed."""
    return replace(_DEFAULTS[check_skill(skill)][1], **settings)

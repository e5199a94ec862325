"""Experts, policies that walk or dribble, read from files. Collecting ant, humanoid and soccer data needs them.

The package includes some (`experts/`), trained by `gtrl expert train`. Any other actor that is a multilayer perceptron
can be written in the format of `gtrl.io.mlp_file` (docs/formats.md).
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from gtrl.envs.heading import FRAMES, Frame
from gtrl.errors import ConfigError, DataError
from gtrl.io import mlp_file
from gtrl.tasks import OGBenchTask

# Input size of each expert: the state without the parts it must not depend on, then the target.
_INPUT_DIMS = {
    ("antmaze", "walk"): 29,
    ("humanoidmaze", "walk"): 69,
    ("antsoccer", "walk"): 29,
    ("antsoccer", "dribble"): 42,
}
FLAGS = {"walk": "--expert", "dribble": "--dribble-expert"}
SHIPPED = Path(__file__).with_name("experts")  # the experts of the package, and their cards


def skill_of(task: OGBenchTask, role: str) -> str:
    """Returns the skill of an expert for a role, as `gtrl expert train` names it."""
    if role == "dribble":
        return role
    return "humanoid" if task.family == "humanoidmaze" else "ant"


def shipped_expert(task: OGBenchTask, role: str) -> Path | None:
    """Returns the package's expert for a role; None if there is none."""
    path = SHIPPED / f"{skill_of(task, role)}.npz"
    return path if path.exists() else None


class Experts(NamedTuple):
    """The files of expert policies; None for the package's own, and for experts that the task does not need."""

    walk: Path | None = None
    dribble: Path | None = None

    def for_task(self, task: OGBenchTask) -> "Experts":
        """Returns these experts, with the package's own where the task needs one that is not given."""
        roles = roles_of(task)
        return Experts(
            *(path or (shipped_expert(task, role) if role in roles else None) for role, path in self._asdict().items())
        )

    def check(self, task: OGBenchTask) -> None:
        """Reads the files that the task needs; raises an error for a missing, invalid or unneeded one."""
        for role, path in self._asdict().items():
            if role in roles_of(task):
                load_expert(path, task, role)
            elif path is not None:
                raise ConfigError(f"collecting {task.name} does not use an expert that can {role}.")


NO_EXPERTS = Experts()


def roles_of(task: OGBenchTask) -> list[str]:
    """Returns the roles of the experts that a task's collector needs; none for point mazes and manipulation."""
    return [role for family, role in _INPUT_DIMS if family == task.family]


class Expert:
    """A policy that maps its concatenated inputs to an action in [-1, 1]."""

    def __init__(self, path: Path) -> None:
        arrays, self.header = mlp_file.read(path, "an expert policy", DataError)
        header = self.header
        try:
            self.network = mlp_file.build(arrays, header)
        except mlp_file.FormatError as error:
            raise DataError(f"{path} is not an expert policy: {error}.") from error
        self.frame: Frame = header.get("frame", "world")
        if self.frame not in FRAMES:
            raise DataError(f"{path} is not an expert policy: its frame is {self.frame!r:.60}.")
        if header.get("kind", "gaussian") != "gaussian":  # other kinds of networks do not output the action
            raise DataError(f"{path} is not an expert policy: it holds a policy of kind {str(header['kind'])[:60]!r}.")

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        return self.network(np.concatenate(inputs)[None])[0]


def load_expert(path: Path | None, task: OGBenchTask, role: str) -> Expert:
    """Loads the expert for a role; raises `DataError` if the file is missing or does not match the task."""
    if path is None:
        raise DataError(
            f"collecting {task.name} needs an expert that can {role}, and the package includes none: "
            f"give {FLAGS[role]} FILE, trained with 'gtrl expert train {skill_of(task, role)}', or get the public "
            f"dataset with 'gtrl data get {task.name}'."
        )
    expert = Expert(path)
    expected = (_INPUT_DIMS[task.family, role], task.action_dim)
    found = (expert.network.widths[0], expert.network.widths[-1])
    if found != expected:
        raise DataError(
            f"{path} maps {found[0]} numbers to {found[1]}, but an expert that can {role} in {task.name} "
            f"maps {expected[0]} to {expected[1]}."
        )
    if expert.frame == "body" and task.family != "humanoidmaze":
        raise DataError(f"{path} needs inputs in the frame of the body, which only humanoids get.")
    return expert

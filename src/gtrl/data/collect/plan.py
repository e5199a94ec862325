"""The plan of a collection: its files, the episodes in each, and the parts they are divided into."""

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtrl import __version__
from gtrl.data.collect.expert import NO_EXPERTS, Experts, roles_of
from gtrl.data.origin import digest_of, validation_path
from gtrl.errors import ConfigError, DataError
from gtrl.tasks import VALIDATION_RATIO, OGBenchTask, Task, ogbench_task

ROWS_PER_PART = 1000  # small enough to lose in an interruption, large enough for a file
PACKAGES = ("ogbench", "mujoco", "numpy")  # packages whose version is recorded, since episodes depend on it
SPLITS = {"train": 0, "val": 1}  # their numbers in seeds


@dataclass(frozen=True)
class File:
    """One file of the result: its path, its split and its episodes."""

    path: Path
    split: str
    episodes: range

    def parts(self, size: int) -> list[range]:
        """Returns the episodes of each part, at most `size` in each."""
        starts = range(self.episodes.start, self.episodes.stop, size)
        return [range(start, min(start + size, self.episodes.stop)) for start in starts]


@dataclass(frozen=True)
class Plan:
    """The settings of a collection. Given the task, episode k of a split depends only on (seed, split, k)."""

    task: OGBenchTask
    path: Path  # the training file, or with several shards the folder they go into
    episodes: int
    shards: int = 1
    seed: int = 0
    experts: Experts = NO_EXPERTS

    @classmethod
    def make(
        cls,
        task: str | Task,
        out: str | Path,
        episodes: int | None = None,
        shards: int = 1,
        seed: int = 0,
        experts: Experts = NO_EXPERTS,
    ) -> "Plan":
        """Makes a plan from a user's settings, after checking them; see `collect`."""
        task = ogbench_task(task)
        path = Path(out).expanduser()
        experts = Experts(*(file and Path(file).expanduser() for file in experts)).for_task(task)
        plan = cls(task, path, task.trajectories if episodes is None else episodes, shards, seed, experts)
        if plan.episodes < 1:
            raise ConfigError(f"episodes is {plan.episodes} and must be at least 1.")
        if not 1 <= shards <= plan.episodes:
            raise ConfigError(f"shards is {shards} and must be between 1 and the number of episodes.")
        if seed < 0:
            raise ConfigError(f"seed is {seed} and must not be negative.")
        if shards == 1 and path.suffix != ".npz":
            raise DataError(f"{path} must end in .npz.")
        if shards > 1 and path.suffix == ".npz":
            raise DataError(f"{path} must be a folder, without .npz at its end: several shards go into it.")
        experts.check(task)
        return plan

    @property
    def validation_episodes(self) -> int:
        """The number of validation episodes; at least one per shard."""
        return max(self.shards, self.episodes // VALIDATION_RATIO)

    @property
    def work_folder(self) -> Path:
        """The folder for parts until they are joined."""
        return self.path.with_name(f"{self.path.name.removesuffix('.npz')}.collecting")

    @property
    def files(self) -> list[tuple[File, File]]:
        """The (training, validation) files of each shard."""

        def share(total: int, shard: int) -> range:
            return range(total * shard // self.shards, total * (shard + 1) // self.shards)

        result = []
        for shard in range(self.shards):
            path = self.path if self.shards == 1 else self.path / f"{self.task.dataset}-{shard:03}.npz"
            train = File(path, "train", share(self.episodes, shard))
            result.append((train, File(validation_path(path), "val", share(self.validation_episodes, shard))))
        return result

    @property
    def rows(self) -> int:
        """The total number of rows of all files."""
        return (self.episodes + self.validation_episodes) * (self.task.trajectory_length + 1)

    @property
    def episodes_per_part(self) -> int:
        """The number of episodes whose rows fill one part, at least one."""
        return max(1, ROWS_PER_PART // (self.task.trajectory_length + 1))

    def part_path(self, split: str, episodes: range) -> Path:
        """Returns the file of one part."""
        return self.work_folder / f"{split}-{episodes.start:08}-{episodes.stop:08}.npz"

    def describe(self) -> dict[str, Any]:
        """Returns everything that the data depends on, for the work folder and the record of its origin."""
        roles = roles_of(self.task)
        return {
            "task": self.task.name,
            "episodes": self.episodes,
            "length": self.task.trajectory_length,
            "shards": self.shards,
            "seed": self.seed,
            "experts": {role: digest_of(getattr(self.experts, role)) for role in roles},
            "versions": {"gtrl": __version__, **{name: importlib.metadata.version(name) for name in PACKAGES}},
        }

"""Rollouts: five goals times N episodes of a policy, on every core, each episode decided by its own seeds."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from gtrl.environments import Isolated, make_environment
from gtrl.evaluation.policy import ROWS, Policy, load_policy
from gtrl.tasks import GOALS_PER_TASK, Task
from gtrl.workers import default_workers, spread


@dataclass(frozen=True)
class Episode:
    """Which episode to run: its goal (1 to 5) and its number."""

    goal: int
    number: int

    def seed(self, base: int) -> np.random.SeedSequence:
        """The same for every policy, so that methods and seeds meet the same starts and the same luck."""
        return np.random.SeedSequence([base, self.goal, self.number])

    def noise(self, base: int) -> np.random.Generator:
        """The noise of a policy that acts at random: a stream of its own, so that it does not disturb the luck."""
        return np.random.default_rng([base, self.goal, self.number, 1])


@dataclass(frozen=True)
class Outcome:
    """How an episode went; `path` holds (T+1, 2) positions where they were asked for."""

    episode: Episode
    success: bool
    length: int
    goal: np.ndarray
    path: np.ndarray | None = None


@dataclass(frozen=True)
class Job:
    """Some episodes of one policy, for one worker."""

    policy: str
    task: Task
    episodes: tuple[Episode, ...]
    base_seed: int
    record: int  # record the paths of episodes with a smaller number than this


@lru_cache(maxsize=ROWS)
def _environment(task: Task, slot: int) -> Isolated:
    """The environments of this process: made once each, when a job first needs so many."""
    del slot
    return Isolated(make_environment(task))


class _Slot:
    """One environment, and the episode it is in the middle of."""

    def __init__(self, env: Isolated, episode: Episode, job: Job) -> None:
        self.env = env
        self.episode = episode
        self.recording = episode.number < job.record
        self.observation, info = env.reset(episode.seed(job.base_seed), {"task_id": episode.goal})
        self.goal = np.asarray(info["goal"], np.float32)
        self.path = [self._position()] if self.recording else []
        self.length = 0
        self.noise = episode.noise(job.base_seed)

    def _position(self) -> np.ndarray:
        return np.array(self.env.env.unwrapped.data.qpos[:2])

    def step(self, action: np.ndarray) -> Outcome | None:
        self.observation, _, terminated, truncated, info = self.env.step(action)
        self.length += 1
        if self.recording:
            self.path.append(self._position())
        if not (terminated or truncated):
            return None
        path = np.asarray(self.path, np.float32) if self.recording else None
        return Outcome(self.episode, bool(info["success"]), self.length, self.goal, path)


def run_episodes(policy: Policy, job: Job) -> list[Outcome]:
    """Run a job's episodes, up to ROWS of them side by side; who runs beside whom changes nothing."""
    waiting = iter(job.episodes)
    first = list(itertools.islice(waiting, ROWS))
    slots = [_Slot(_environment(job.task, slot), episode, job) for slot, episode in enumerate(first)]
    outcomes = []
    while slots:
        noise = [slot.noise.standard_normal(policy.noise_dim) for slot in slots]
        columns = [slot.observation for slot in slots], [slot.goal for slot in slots], noise
        actions = policy(*map(np.stack, columns))
        following = []
        for slot, action in zip(slots, actions, strict=True):
            outcome = slot.step(action)
            if outcome is None:
                following.append(slot)
                continue
            outcomes.append(outcome)
            if (episode := next(waiting, None)) is not None:
                following.append(_Slot(slot.env, episode, job))
        slots = following
    return outcomes


def _run_job(job: Job) -> list[Outcome]:
    return run_episodes(load_policy(job.policy), job)


def roll_out(
    policies: Sequence[Path],
    task: Task,
    episodes: int,
    *,
    workers: int | None = None,
    base_seed: int = 0,
    record: int = 0,
    bar: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, Outcome]]:
    """(index of the policy, outcome) for five goals times `episodes` episodes of every policy."""
    todo = [Episode(goal, number) for number in range(episodes) for goal in range(1, GOALS_PER_TASK + 1)]
    # Several jobs a worker, so that none idles at the end, but enough episodes in each to fill its batch.
    wanted = -(-4 * (workers or default_workers()) // len(policies))
    size = min(len(todo), max(ROWS, -(-len(todo) // wanted)))
    jobs = [
        Job(str(path), task, tuple(todo[start : start + size]), base_seed, record)
        for path in policies
        for start in range(0, len(todo), size)
    ]
    per_policy = len(range(0, len(todo), size))
    for index, outcomes in spread(_run_job, jobs, workers):
        if bar:
            bar(len(outcomes))
        for outcome in outcomes:
            yield index // per_policy, outcome

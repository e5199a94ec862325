"""Rollouts: N episodes of a policy for each goal of a task, on every core, each episode decided by its own seeds."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from gtrl.envs.goals import GoalEpisodes
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import DEFAULT_EPISODE_LENGTH, make_environment
from gtrl.errors import EpisodeError
from gtrl.registry import load_plugins
from gtrl.runs.policy import ROWS, Policy, load_policy
from gtrl.tasks import Task
from gtrl.workers import default_workers, map_unordered


@dataclass(frozen=True)
class Episode:
    """Which episode to run: the number of its goal, from 1, and its own, from 0."""

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
    share: int | None = None  # about how many episodes this worker will play in all, where that is known
    plugins: tuple[str, ...] = ()  # modules to import first: they define the kind of policy


@lru_cache(maxsize=ROWS)
def _environment(task: Task, slot: int) -> GoalEpisodes:
    """The environments of this process: made once each, when a job first needs so many."""
    del slot
    return GoalEpisodes(task, IsolatedEnv(make_environment(task)))


_decided: dict[tuple[Task, int], int] = {}  # in this process, by `_side_by_side`


def _side_by_side(policy: Policy, job: Job) -> int:
    """How many environments to play in at once: they share the policy's work, but each must be built first.

    With k of them, n steps cost k times the building and n / k times the acting: least where both are equal. Point
    mazes are built in a hundredth of a second, manipulation scenes in half of one.
    """
    if job.share is None:
        return ROWS
    if (job.task, job.share) not in _decided:
        _environment(job.task, 0)  # this one imports the simulator
        build = _timed(lambda: _environment(job.task, 1))
        arrays = [np.zeros(policy.header[f"{name}_dim"], np.float32) for name in ("observation", "goal")]
        act = min(_timed(lambda: policy(*arrays)) for _ in range(3))
        best = round((job.share * (job.task.episode_length or DEFAULT_EPISODE_LENGTH) * act / build) ** 0.5)
        _decided[job.task, job.share] = min(ROWS, max(2, best))
    return _decided[job.task, job.share]


def _timed(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


class Slot:
    """One environment, and the episode it is in the middle of."""

    def __init__(self, env: GoalEpisodes, episode: Episode, job: Job) -> None:
        self.env = env
        self.episode = episode
        self.recording = episode.number < job.record
        self.observation, self.goal = env.reset(episode.seed(job.base_seed), episode.goal)
        self.path = [self._position()] if self.recording else []
        self.length = 0
        self.noise = episode.noise(job.base_seed)

    def _position(self) -> np.ndarray:
        return np.array(self.env.env.env.unwrapped.data.qpos[:2])

    def step(self, action: np.ndarray) -> Outcome | None:
        self.observation, success, ended = self.env.step(action)
        self.length += 1
        if self.recording:
            self.path.append(self._position())
        if not ended:
            return None
        path = np.asarray(self.path, np.float32) if self.recording else None
        return Outcome(self.episode, success, self.length, self.goal, path)


def begin(env: GoalEpisodes, episode: Episode, job: Job, policy: Policy) -> Slot:
    """Start an episode whose observation and goal this policy can take."""
    with named(job.task, episode):
        slot = Slot(env, episode, job)
        for name, array in (("observation", slot.observation), ("goal", slot.goal)):
            expected = policy.header[f"{name}_dim"]
            if array.shape != (expected,):
                raise EpisodeError(f"the {name} has the shape {array.shape}, and the policy takes {expected} numbers")
        return slot


@contextmanager
def named(task: Task, episode: Episode) -> Iterator[None]:
    """Errors in an episode name the task, goal and episode."""
    try:
        yield
    except Exception as error:
        where = f"{task.name}, {task.goal_names[episode.goal - 1]}, episode {episode.number}"
        ours = isinstance(error, EpisodeError)
        what = f"{error}." if ours else f"the environment raised {type(error).__name__}: {error}"
        raise EpisodeError(f"{where}: {what}") from error


def run_episodes(policy: Policy, job: Job) -> list[Outcome]:
    """Run a job's episodes, up to ROWS of them side by side; who runs beside whom changes nothing."""
    waiting = iter(job.episodes)
    first = list(itertools.islice(waiting, _side_by_side(policy, job)))
    slots = [begin(_environment(job.task, slot), episode, job, policy) for slot, episode in enumerate(first)]
    outcomes = []
    while slots:
        noise = [slot.noise.standard_normal(policy.noise_dim) for slot in slots]
        columns = [slot.observation for slot in slots], [slot.goal for slot in slots], noise
        actions = policy(*map(np.stack, columns))
        following = []
        for slot, action in zip(slots, actions, strict=True):
            with named(job.task, slot.episode):
                outcome = slot.step(action)
            if outcome is None:
                following.append(slot)
                continue
            outcomes.append(outcome)
            if (episode := next(waiting, None)) is not None:
                following.append(begin(slot.env, episode, job, policy))
        slots = following
    return outcomes


def _run_job(job: Job) -> list[Outcome]:
    load_plugins(job.plugins)
    return run_episodes(load_policy(job.policy), job)


def roll_out(
    policies: Sequence[Path],
    task: Task,
    episodes: int,
    *,
    workers: int | None = None,
    base_seed: int = 0,
    record: int = 0,
    plugins: Sequence[str] = (),
    nice: int = 0,
    cancelled: threading.Event | None = None,
    bar: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, Outcome]]:
    """(index of the policy, outcome) of `episodes` episodes for every goal of the task and every policy."""
    goals = range(1, len(task.goal_names) + 1)
    todo = [Episode(goal, number) for number in range(episodes) for goal in goals]
    # Several jobs a worker, so that none idles at the end, but enough episodes in each to fill its batch; and none so
    # long that who waits for it could take the worker to hang.
    workers = workers or default_workers()
    wanted = -(-4 * workers // len(policies))
    share = len(policies) * len(todo) // workers
    size = min(len(todo), max(ROWS, min(2 * ROWS, -(-len(todo) // wanted))))
    jobs = [
        Job(str(path), task, tuple(todo[start : start + size]), base_seed, record, share, tuple(plugins))
        for path in policies
        for start in range(0, len(todo), size)
    ]
    per_policy = len(range(0, len(todo), size))
    for index, outcomes in map_unordered(_run_job, jobs, workers, nice=nice, cancelled=cancelled):
        if bar:
            bar(len(outcomes))
        for outcome in outcomes:
            yield index // per_policy, outcome

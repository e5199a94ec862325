"""Rollouts: N episodes of a policy for each goal of a task, spread over worker processes.

Every episode has random streams of its own, so its outcome does not depend on the process or batch it runs in.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from gtrl.envs.goals import GoalEpisodes
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import DEFAULT_EPISODE_LENGTH, make_environment, one_line
from gtrl.errors import USER_CODE_ERRORS, ConfigError, EpisodeError
from gtrl.registry import load_plugins, reference_of
from gtrl.runs.policy import Policy, load_policy
from gtrl.tasks import OGBenchTask, OwnTask, Task
from gtrl.workers import Portable, default_workers, map_unordered

MAX_ENVIRONMENTS = 16  # in which a worker runs episodes concurrently; they share the overhead of a policy's call


@dataclass(frozen=True)
class Episode:
    """Identifies an episode of a task by its goal and its number."""

    goal: int  # from 1
    number: int  # from 0

    def seed(self, base: int) -> np.random.SeedSequence:
        """The environment's seed: the same for every policy, so that all are compared on the same randomness."""
        return np.random.SeedSequence([base, self.goal, self.number])

    def noise(self, base: int) -> np.random.Generator:
        """The noise of a stochastic policy: a separate stream, which does not affect the environment's randomness."""
        return np.random.default_rng([base, self.goal, self.number, 1])


@dataclass(frozen=True)
class Outcome:
    """The result of an episode."""

    episode: Episode
    success: bool
    length: int  # steps
    goal: np.ndarray
    path: np.ndarray | None = None  # (length + 1, 2) positions of the agent, if they were recorded
    observations: np.ndarray | None = None  # those before steps 0, k, 2k, ..., if every k-th was kept


@dataclass(frozen=True)
class Job:
    """A batch of episodes of one policy, run by one worker."""

    policy: str  # path of its file
    task: Task
    episodes: tuple[Episode, ...]
    base_seed: int
    record: int  # record the paths of episodes with a smaller number than this
    share: int | None = None  # about how many episodes each worker runs in total, if known
    plugins: tuple[str, ...] = ()  # modules to import first; they define the kind of policy
    keep_every: int = 0  # keep every k-th observation; 0 keeps none


@lru_cache(maxsize=MAX_ENVIRONMENTS)
def _environment(task: Task, index: int) -> IsolatedEnv:
    """Returns an environment of this process, built on first use."""
    del index  # part of the cache key only
    return IsolatedEnv(make_environment(task))


def _environments(policy: Policy, job: Job) -> list[IsolatedEnv]:
    """Returns the environments in which the episodes of a job run concurrently; only those that can be made.

    Of some environments there can be only one, because it needs a port or a licence.
    """
    try:
        found = [_environment(job.task, 0)]
    except ConfigError as error:
        if not isinstance(job.task, OwnTask):
            raise
        reason = str(error).rstrip(".")
        hint = "it could be made before: if there can be only one at a time, evaluate with --workers 1"
        raise ConfigError(f"{reason}; {hint} (in Python, workers=1).") from error
    if len(job.episodes) == 1:
        return found
    try:
        count = min(_environment_count(policy, job), len(job.episodes))
        found += [_environment(job.task, index) for index in range(1, count)]
    except ConfigError:
        _environment_counts[job.task, job.share] = 1
    return found


_environment_counts: dict[tuple[Task, int | None], int] = {}  # results of `_environment_count` in this process


def _environment_count(policy: Policy, job: Job) -> int:
    """Returns in how many environments to run episodes concurrently.

    They share the cost of evaluating the policy, but each must be built first. With k of them, n steps cost k times
    the building time and n / k times the policy's time; the sum is minimal where both are equal. Building takes about
    0.01 s for a point maze and 0.5 s for a manipulation scene.
    """
    if (job.task, job.share) not in _environment_counts:
        if job.share is None:
            return MAX_ENVIRONMENTS
        _environment(job.task, 0)  # not timed: the first one also imports the simulator
        build_seconds = _seconds_of(lambda: _environment(job.task, 1))
        arrays = [np.zeros(policy.header[f"{name}_dim"], np.float32) for name in ("observation", "goal")]
        act_seconds = min(_seconds_of(lambda: policy(*arrays)) for _ in range(3))
        steps = job.share * (job.task.episode_length or DEFAULT_EPISODE_LENGTH)
        best = round((steps * act_seconds / build_seconds) ** 0.5)
        _environment_counts[job.task, job.share] = min(MAX_ENVIRONMENTS, max(2, best))
    return _environment_counts[job.task, job.share]


def _seconds_of(function: Callable[[], object]) -> float:
    start_time = time.perf_counter()
    function()
    return time.perf_counter() - start_time


class RunningEpisode:
    """An environment and the state of the episode that runs in it."""

    def __init__(self, env: GoalEpisodes, episode: Episode, job: Job) -> None:
        self.env = env
        self.episode = episode
        self.recording = episode.number < job.record
        self.observation, self.goal = env.reset(episode.seed(job.base_seed), episode.goal)
        self.path = [self._position()] if self.recording else []
        self.keep_every = job.keep_every
        self.kept: list[np.ndarray] = []
        self.length = 0
        self.noise = episode.noise(job.base_seed)

    def _position(self) -> np.ndarray:
        return np.array(self.env.env.env.unwrapped.data.qpos[:2])

    def step(self, action: np.ndarray) -> Outcome | None:
        """Takes one step in the environment; returns the outcome if the episode ended, else None."""
        if self.keep_every and self.length % self.keep_every == 0:
            self.kept.append(np.array(self.observation, np.float32))
        self.observation, success, ended = self.env.step(action)
        self.length += 1
        if self.recording:
            self.path.append(self._position())
        if not ended:
            return None
        path = np.asarray(self.path, np.float32) if self.recording else None
        observations = np.stack(self.kept) if self.kept else None
        return Outcome(self.episode, success, self.length, self.goal, path, observations)


def start_episode(env: IsolatedEnv, episode: Episode, job: Job, policy: Policy) -> RunningEpisode:
    """Resets the environment for an episode; raises an `EpisodeError` if it does not fit the policy."""
    with episode_errors(job.task, episode):
        running = RunningEpisode(GoalEpisodes(job.task, env, policy.header), episode, job)
        running.env.check_action_space()
        return running


@contextmanager
def episode_errors(task: Task, episode: Episode) -> Iterator[None]:
    """Raises errors of the block as an `EpisodeError` that names the task, goal and episode."""
    try:
        yield
    except USER_CODE_ERRORS as error:
        where = f"{task.name}, {task.goal_names[episode.goal - 1]}, episode {episode.number}"
        what = f"{error}." if isinstance(error, EpisodeError) else f"the environment raised {one_line(error)}"
        raise EpisodeError(f"{where}: {what}") from error


def run_episodes(policy: Policy, job: Job) -> list[Outcome]:
    """Runs the episodes of a job, up to `MAX_ENVIRONMENTS` concurrently, and returns their outcomes as they finish.

    All running episodes share one call of the policy per step. Outcomes do not depend on which episodes run together.
    """
    waiting, environments = iter(job.episodes), _environments(policy, job)
    first = list(itertools.islice(waiting, len(environments)))
    running = [start_episode(*each, job, policy) for each in zip(environments, first, strict=True)]
    outcomes = []
    while running:
        observations = np.stack([current.observation for current in running])
        goals = np.stack([current.goal for current in running])
        noise = np.stack([current.noise.standard_normal(policy.noise_dim) for current in running])
        actions = policy(observations, goals, noise)
        still_running = []
        for current, action in zip(running, actions, strict=True):
            with episode_errors(job.task, current.episode):
                outcome = current.step(action)
            if outcome is None:
                still_running.append(current)
                continue
            outcomes.append(outcome)
            if (episode := next(waiting, None)) is not None:
                still_running.append(start_episode(current.env.env, episode, job, policy))
        running = still_running
    return outcomes


def _run_job(job: Job) -> list[Outcome]:
    load_plugins(job.plugins)
    return run_episodes(load_policy(job.policy), job)


def portable(task: Task) -> Task:
    """Returns the task with functions that can be sent to worker processes, also those of scripts, and closures.

    Raises:
        ConfigError: If a function cannot be sent.
    """
    changes = {}
    for name in ("environment", "success"):
        function = getattr(task, name)
        if callable(function) and not isinstance(function, Portable) and reference_of(function) is None:
            try:
                changes[name] = Portable.of(function)
            except Exception as error:  # pickling may raise any error
                what = "the environment's factory" if name == "environment" else "the success function"
                raise ConfigError(
                    f"{what} of {task.name} cannot be sent to worker processes ({type(error).__name__}: {error}): "
                    "define it in a module, as a function that needs nothing that is open or running."
                ) from error
    return replace(task, **changes) if changes else task


def roll_out(
    policies: Sequence[Path],
    task: Task,
    episodes: int,
    *,
    workers: int | None = None,
    base_seed: int = 0,
    record: int = 0,
    keep_every: int = 0,
    plugins: Sequence[str] = (),
    nice: int = 0,
    cancelled: threading.Event | None = None,
    bar: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, Outcome]]:
    """Runs episodes of several policies in worker processes.

    Args:
        policies: Paths of the policy files.
        task: The task, each of whose goals is evaluated.
        episodes: Episodes per goal and policy.
        workers: Number of processes; by default one per core.
        base_seed: Determines the randomness of all episodes.
        record: Number of episodes per goal whose paths are recorded.
        keep_every: Keep every k-th observation of all episodes in their outcomes; 0 keeps none.
        plugins: Modules to import in each worker; they define the kinds of policies.
        nice: Increment of the workers' niceness.
        cancelled: Stops the iteration with a `WorkerError` when set.
        bar: Called with the number of episodes that finished.

    Yields:
        The index of the policy and the outcome of one of its episodes, in the order in which they finish.
    """
    task = portable(task)
    goals = range(1, len(task.goal_names) + 1)
    todo = [Episode(goal, number) for number in range(episodes) for goal in goals]
    workers = workers or default_workers()
    share = len(policies) * len(todo) // workers
    known_speed = isinstance(task, OGBenchTask)
    batches = _batches(todo, workers, -(-4 * workers // len(policies)), known_speed)
    jobs = [
        Job(str(path), task, batch, base_seed, record, share, tuple(plugins), keep_every)
        for path in policies
        for batch in batches
    ]
    finished = map_unordered(_run_job, jobs, workers, nice=nice, cancelled=cancelled, patient=not known_speed)
    for index, outcomes in finished:
        if bar:
            bar(len(outcomes))
        for outcome in outcomes:
            yield index // len(batches), outcome


def _batches(todo: Sequence[Episode], workers: int, wanted: int, known_speed: bool) -> list[tuple[Episode, ...]]:
    """Divides the episodes of a policy among jobs.

    About `wanted` jobs, several per worker, leave none of them idle at the end. Where episodes are known to be fast,
    each job fills a batch. Otherwise jobs begin with a single episode and double, so that progress is seen early, and
    a job that takes long is preceded by one that took half as long: it is not mistaken for a hanging worker.
    """
    largest = min(2 * MAX_ENVIRONMENTS, -(-len(todo) // wanted))
    largest = max(MAX_ENVIRONMENTS, largest) if known_speed else largest
    batches, size, start = [], largest if known_speed else 1, 0
    while start < len(todo):
        batches.append(tuple(todo[start : start + size]))
        start += size
        if len(batches) % workers == 0:
            size = min(2 * size, largest)
    return batches

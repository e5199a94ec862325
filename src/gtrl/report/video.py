"""`gtrl evaluate --video`: evaluated episodes as a film with the goal beside them and, for mazes, their paths on a map.

Frames are rendered in processes of their own: which OpenGL MuJoCo renders with is decided, once and for all, when it is
first imported.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gtrl import console
from gtrl.envs.goals import GoalEpisodes
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import DEFAULT_EPISODE_LENGTH, make_environment
from gtrl.errors import RunError, VideoError
from gtrl.evaluation.evaluate import RECORDED_EPISODES, find_policies, navigation_maze
from gtrl.evaluation.rollout import Episode, Job, Outcome, episode_errors, load_plugins, roll_out, start_episode
from gtrl.io.npz import read_npz
from gtrl.report.cameras import Views, find_gl, make_views, use
from gtrl.report.figures import trajectories_picture
from gtrl.report.film import FRAMES_PER_SECOND, Caption, Format, choose_format, compose, packed, write_film
from gtrl.runs.policy import Policy, load_policy
from gtrl.runs.run import Run, shown
from gtrl.tasks import Task
from gtrl.workers import map_unordered

FRAMES = 125  # of the longest episode: five seconds, so that a whole film takes half a minute
HELD = FRAMES_PER_SECOND  # an episode's last frame stands for a second


class Filmed(IsolatedEnv):
    """An environment that keeps a picture of each episode's goal, which OGBench shows within a reset, on request."""

    def __init__(self, env: Any, views: Views) -> None:
        super().__init__(env)
        self.views = views
        env.unwrapped.render = views.scene
        self.goal = np.zeros((0, 0, 3), np.uint8)

    def reset(self, seed: np.random.SeedSequence, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed, (options or {}) | {"render_goal": True})
        self.goal = info["goal_rendered"]
        return observation, info


@dataclass(frozen=True)
class Film:
    """An episode: how it went, and its frames, packed. The last one is to be held."""

    outcome: Outcome
    frames: list[bytes]


def film_episode(policy: Policy, job: Job, env: Filmed) -> Film:
    """Run a job's one episode as evaluation does, and look at it every few steps."""
    (episode,) = job.episodes
    header, budget = policy.header, job.task.episode_length or DEFAULT_EPISODE_LENGTH
    title = f"{shown(header['algorithm'])} on {job.task.name}, seed {header['seed']} at step {header['step']:,}"
    every = math.ceil(budget / FRAMES)
    outcome, frames = None, []
    slot = start_episode(GoalEpisodes(job.task, env), episode, job, policy)
    with episode_errors(job.task, episode):
        while True:
            if slot.length % every == 0 or outcome:
                where = f"goal {episode.goal} of {len(job.task.goal_names)}, episode {episode.number}"
                caption = Caption(title, f"{where}, step {slot.length} of {budget}", outcome and outcome.success)
                frames.append(packed(compose(env.views.columns(env.goal), caption)))
            if outcome:
                return Film(outcome, frames)
            noise = slot.noise.standard_normal(policy.noise_dim)
            outcome = slot.step(policy(slot.observation, slot.goal, noise))


@lru_cache(maxsize=1)
def _filmed(task: Task) -> Filmed:
    env = make_environment(task)
    return Filmed(env, make_views(env.unwrapped, task))


def _film_job(job: tuple[Job, str]) -> Film:
    use(job[1])
    load_plugins(job[0].plugins)
    return film_episode(load_policy(job[0].policy), job[0], _filmed(job[0].task))


def film_policy(
    policy: Path,
    task: Task,
    gl: str,
    *,
    base_seed: int = 0,
    plugins: tuple[str, ...] = (),
    workers: int | None = None,
    show: bool = True,
) -> list[Film]:
    """The first evaluated episode of each goal."""
    episodes = [Episode(goal, 0) for goal in range(1, len(task.goal_names) + 1)]
    jobs = [(Job(str(policy), task, (episode,), base_seed, record=0, plugins=plugins), gl) for episode in episodes]
    films = {}
    with console.bar("filming", len(jobs), "episodes", show) as bar:
        for index, film in map_unordered(_film_job, jobs, workers):
            films[index] = film
            bar(1, f"{len(films)} of {len(jobs)} goals")
    return [films[index] for index in range(len(jobs))]


def joined(films: Iterable[Film]) -> list[bytes]:
    """One after the other, each last frame held."""
    return [frame for film in films for frame in (*film.frames, *film.frames[-1:] * (HELD - 1))]


# --- a run's or a policy's film and picture ---


@dataclass(frozen=True)
class Studio:
    """What films are made with; looked for before an evaluation takes its time."""

    gl: str
    format: Format
    file: Path | None = None  # where the film goes; by default into the run directory or beside the policy file

    @classmethod
    def find(cls, file: Path | None = None, films: int = 1) -> "Studio":
        if file and films > 1:
            raise VideoError(f"{file} is one file, but there are {films} films to make: leave it out.")
        file = file and file.expanduser()
        return cls(format=choose_format(file), gl=find_gl(), file=file)

    def film(
        self,
        what: str | Path | Run,
        *,
        task: str | Task | None = None,
        step: int | None = None,
        base_seed: int = 0,
        episodes: int = RECORDED_EPISODES,
        workers: int | None = None,
        show: bool = True,
    ) -> list[Path]:
        """Film what was just evaluated with the same arguments and, in mazes, draw trajectories; returns the files.

        Of a run: its last evaluated step and, for the film, its first seed.
        """
        run, policies, headers, plugins, task = find_policies(what, step, task)
        last = headers[-1]["step"]
        policy = next(path for path, header in zip(policies, headers, strict=True) if header["step"] == last)
        folder, name = (run.path, "rollouts") if run else (policy.parent, policy.stem)
        written = []
        if maze := navigation_maze(task):
            written.append(folder / ("trajectories.png" if run else f"{name}.trajectories.png"))
            paths = _recorded(run) if run else _rolled_out(policy, task, episodes, base_seed, workers)
            seeds = [str(header["seed"]) for header in headers if header["step"] == last]
            of_seeds = f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(seeds)}"
            title = f"{shown(headers[-1]['algorithm'])} on {task.name}, {of_seeds} at step {last:,}"
            trajectories_picture(written[0], maze, paths, title)
        how: dict[str, Any] = {"base_seed": base_seed, "workers": workers, "show": show}
        frames = joined(film_policy(policy, task, self.gl, plugins=plugins, **how))
        written.append(self.file or folder / f"{name}.{self.format}")
        with console.bar(f"writing {written[-1].name}", len(frames), "frames", show) as bar:
            write_film(written[-1], frames, bar)
        return written


Trajectory = tuple[int, bool, np.ndarray]  # goal, success, positions (T, 2)


def _recorded(run: Run) -> list[Trajectory]:
    """Of all seeds, as evaluation left them."""
    file = read_npz(run.path / "rollouts.npz", RunError, ("positions", "index"))
    rows = file["index"].tolist()
    return [(goal, bool(won), file["positions"][start : start + count]) for _, goal, _, won, start, count in rows]


def _rolled_out(policy: Path, task: Task, episodes: int, base_seed: int, workers: int | None) -> list[Trajectory]:
    """Evaluating a policy file leaves no paths: its first episodes again."""
    count = min(episodes, RECORDED_EPISODES)
    played = roll_out([policy], task, count, workers=workers, base_seed=base_seed, record=count)
    outcomes = sorted((outcome for _, outcome in played), key=lambda outcome: outcome.episode.number)
    return [(outcome.episode.goal, outcome.success, np.asarray(outcome.path)) for outcome in outcomes]

"""`gtrl evaluate --video`: a video of evaluated episodes next to their goals and, for mazes, a map of their paths.

Frames are rendered in worker processes, because MuJoCo chooses its OpenGL once, when it is first imported.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gtrl import console
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import DEFAULT_EPISODE_LENGTH, make_environment
from gtrl.errors import RunError, VideoError
from gtrl.evaluation.evaluate import RECORDED_EPISODES, Steps, find_policies, navigation_maze
from gtrl.evaluation.rollout import Episode, Job, Outcome, episode_errors, load_plugins, roll_out, start_episode
from gtrl.io.npz import read_npz
from gtrl.report.cameras import Views, find_gl, make_views, require_camera, use_gl
from gtrl.report.figures import trajectories_picture
from gtrl.report.frames import FRAMES_PER_SECOND, Caption, Format, choose_format, compose, compress, write_video
from gtrl.runs.policy import Policy, load_policy
from gtrl.runs.run import Run, display_name
from gtrl.tasks import Task
from gtrl.workers import map_unordered

MAX_FRAMES = 125  # per episode: five seconds, so that a video of five goals takes half a minute
LAST_FRAME_REPEATS = FRAMES_PER_SECOND  # an episode's last frame is shown for one second


class GoalPictures(IsolatedEnv):
    """An environment that keeps a picture of the episode's goal, which OGBench renders within a reset on request."""

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
class EpisodeVideo:
    """One episode: its outcome and its compressed frames."""

    outcome: Outcome
    frames: list[bytes]


def record_episode(policy: Policy, job: Job, env: GoalPictures) -> EpisodeVideo:
    """Runs a job's one episode as evaluation does, and renders a frame every few steps and at the end."""
    (episode,) = job.episodes
    header, budget = policy.header, job.task.episode_length or DEFAULT_EPISODE_LENGTH
    title = f"{display_name(header['algorithm'])} on {job.task.name}, seed {header['seed']} at step {header['step']:,}"
    steps_per_frame = math.ceil(budget / MAX_FRAMES)
    outcome, frames = None, []
    slot = start_episode(env, episode, job, policy)
    with episode_errors(job.task, episode):
        while True:
            if slot.length % steps_per_frame == 0 or outcome:
                where = f"goal {episode.goal} of {len(job.task.goal_names)}, episode {episode.number}"
                caption = Caption(title, f"{where}, step {slot.length} of {budget}", outcome and outcome.success)
                frames.append(compress(compose(env.views.columns(env.goal), caption)))
            if outcome:
                return EpisodeVideo(outcome, frames)
            noise = slot.noise.standard_normal(policy.noise_dim)
            outcome = slot.step(policy(slot.observation, slot.goal, noise))


@lru_cache(maxsize=1)
def _rendered_environment(task: Task) -> GoalPictures:
    env = make_environment(task)
    return GoalPictures(env, make_views(env.unwrapped, task))


def _record_job(job_and_gl: tuple[Job, str]) -> EpisodeVideo:
    job, gl = job_and_gl
    use_gl(gl)
    load_plugins(job.plugins)
    return record_episode(load_policy(job.policy), job, _rendered_environment(job.task))


def record_policy(
    policy: Path,
    task: Task,
    gl: str,
    *,
    base_seed: int = 0,
    plugins: tuple[str, ...] = (),
    workers: int | None = None,
    show: bool = True,
) -> list[EpisodeVideo]:
    """Records the first evaluated episode of each goal, in the order of the goals."""
    episodes = [Episode(goal, 0) for goal in range(1, len(task.goal_names) + 1)]
    jobs = [(Job(str(policy), task, (episode,), base_seed, record=0, plugins=plugins), gl) for episode in episodes]
    videos = {}
    with console.bar("recording", len(jobs), "episodes", show) as bar:
        for index, video in map_unordered(_record_job, jobs, workers):
            videos[index] = video
            bar(1, f"{len(videos)} of {len(jobs)} goals")
    return [videos[index] for index in range(len(jobs))]


def concatenate(videos: Iterable[EpisodeVideo]) -> list[bytes]:
    """Returns the frames of all episodes, each episode's last frame repeated for a second."""
    return [frame for video in videos for frame in (*video.frames, *video.frames[-1:] * (LAST_FRAME_REPEATS - 1))]


# --- the video and the map of a run or a policy ---


@dataclass(frozen=True)
class Recorder:
    """The OpenGL and the video format to use, found before an evaluation starts, so that it is not in vain."""

    gl: str
    format: Format
    file: Path | None = None  # of the video; by default in the run directory or next to the policy file

    @classmethod
    def find(cls, file: Path | None = None, tasks: Sequence[Task] = ()) -> "Recorder":
        """Chooses OpenGL and the format for a video of each task. Raises a VideoError where no video can be made."""
        if file and len(tasks) > 1:
            raise VideoError(f"one file, {file}, is named for {len(tasks)} videos: name none to use the default names.")
        for task in tasks:
            require_camera(task)
        file = file and file.expanduser()
        return cls(format=choose_format(file), gl=find_gl(), file=file)

    def record(
        self,
        what: str | Path | Run,
        *,
        task: str | Task | None = None,
        step: Steps = None,
        base_seed: int = 0,
        episodes: int = RECORDED_EPISODES,
        workers: int | None = None,
        show: bool = True,
    ) -> list[Path]:
        """Records what was just evaluated with the same arguments; for mazes, also draws trajectories.

        For a run, that is the last evaluated step and, in the video, the first seed. Returns the written files.
        """
        run, policies, headers, plugins, task = find_policies(what, step, task)
        last = headers[-1]["step"]
        policy = next(path for path, header in zip(policies, headers, strict=True) if header["step"] == last)
        folder, name = (run.path, "rollouts") if run else (policy.parent, policy.stem)
        written = []
        if maze := navigation_maze(task):
            written.append(folder / ("trajectories.png" if run else f"{name}.trajectories.png"))
            if run:
                paths = _recorded_trajectories(run)
            else:
                paths = _new_trajectories(policy, task, episodes, base_seed, workers)
            seeds = [str(header["seed"]) for header in headers if header["step"] == last]
            of_seeds = f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(seeds)}"
            title = f"{display_name(headers[-1]['algorithm'])} on {task.name}, {of_seeds} at step {last:,}"
            trajectories_picture(written[0], maze, paths, title)
        how: dict[str, Any] = {"base_seed": base_seed, "workers": workers, "show": show}
        frames = concatenate(record_policy(policy, task, self.gl, plugins=plugins, **how))
        written.append(self.file or folder / f"{name}.{self.format}")
        with console.bar(f"writing {written[-1].name}", len(frames), "frames", show) as bar:
            write_video(written[-1], frames, bar)
        return written


Trajectory = tuple[int, bool, np.ndarray]  # goal, success, positions (T, 2)


def _recorded_trajectories(run: Run) -> list[Trajectory]:
    """The trajectories of all seeds that evaluation wrote to `rollouts.npz`."""
    file = read_npz(run.path / "rollouts.npz", RunError, ("positions", "index"))
    rows = file["index"].tolist()
    return [(goal, bool(won), file["positions"][start : start + count]) for _, goal, _, won, start, count in rows]


def _new_trajectories(policy: Path, task: Task, episodes: int, base_seed: int, workers: int | None) -> list[Trajectory]:
    """Runs the first episodes again: evaluating a policy file records no trajectories."""
    count = min(episodes, RECORDED_EPISODES)
    played = roll_out([policy], task, count, workers=workers, base_seed=base_seed, record=count)
    outcomes = sorted((outcome for _, outcome in played), key=lambda outcome: outcome.episode.number)
    return [(outcome.episode.goal, outcome.success, np.asarray(outcome.path)) for outcome in outcomes]

"""How good an expert is in an open field: speed, direction and falls, or the ball's way to its goal."""

from collections.abc import Callable

import numpy as np

from gtrl.experts.simulation import Simulation
from gtrl.experts.skills import Dribble, Skill, Walker, distance

Array = np.ndarray
Figures = dict[str, float | None]
Act = Callable[[Array], Array]  # inputs (B, in) to actions (B, out)
MEASURING_SEED = 1_000_000  # far from the seeds of training
MIN_DISTANCE = 0.1  # m in a window of steps; shorter ones count as standing still, without a direction
WINDOW = 50  # steps over which the direction of a walk is measured
BALL_ARRIVED = 0.5  # m


def measure(
    skill: Skill,
    act: Act,
    *,
    directions: int = 20,
    episodes: int = 1,
    noise: float = 0.0,
    threads: int = 1,
    seed: int = 0,
    progress: Callable[[int], object] = lambda _: None,
) -> Figures:
    """Runs an expert for whole episodes and returns its figures. Falls end no episode.

    Args:
        skill: What the expert has learned.
        act: The expert.
        directions: How many evenly spaced directions it is given; a ball has as many random goals instead.
        episodes: The number of episodes for each of them.
        noise: The standard deviation of noise that is added to the actions.
        threads: The number of threads that simulate.
        seed: The seed of first states and noise; training never uses the same.
        progress: Is called with the number of simulator steps just taken.
    """
    count = directions * episodes
    simulation = Simulation(skill, threads, MEASURING_SEED + seed, measuring=True)
    copies, rng = simulation.begin(count, spread=False), np.random.default_rng(seed)
    if isinstance(skill, Walker):
        angles = 2 * np.pi * np.repeat(np.arange(directions) / directions, episodes)
        copies = copies._replace(goals=np.stack([np.cos(angles), np.sin(angles)], -1))
    goals = copies.goals
    track, fallen = [skill.xy(copies.physics)], [skill.fallen(copies.physics)]
    closest = np.full(count, np.inf)
    for _ in range(skill.episode_steps - 1):  # after the last step the copies would begin new episodes
        actions = np.asarray(act(simulation.inputs(copies)))
        actions = np.clip(actions + noise * rng.standard_normal(actions.shape), -1, 1)
        copies, _, _ = simulation.step(copies, actions)
        track.append(skill.xy(copies.physics))
        fallen.append(skill.fallen(copies.physics))
        if isinstance(skill, Dribble):
            closest = np.minimum(closest, distance(skill.ball(copies.physics), goals))
        progress(count)
    figures: Figures = {"episodes": float(count), "return": float(copies.returns.mean())}
    figures |= falls(np.array(fallen), skill.steps_up, gets_up=not skill.ends_on_fall)
    if isinstance(skill, Dribble):
        return figures | {
            "ball within 0.5 m of its goal": float((closest <= BALL_ARRIVED).mean()),
            "ball's smallest distance in m": float(closest.mean()),
        }
    return figures | walks(np.array(track), goals, episodes)


def falls(fallen: Array, steps_up: int, gets_up: bool = False) -> Figures:
    """Returns how often copies fall, from whether each was down at each time, (times, count).

    A fall counts if the copy was up for at least `steps_up` steps before it: a humanoid that is dropped at the start
    does not fall, nor one that bounces on the floor. With `gets_up` also returns when copies first stand for so long.
    """
    up, counts = np.zeros(fallen.shape[1], int), np.zeros(fallen.shape[1], int)
    first = np.full(fallen.shape[1], np.nan)  # time at which a copy had been up long enough
    for time, down in enumerate(fallen):
        counts += down & (up >= steps_up)
        up = np.where(down, 0, up + 1)
        first = np.where(np.isnan(first) & (up >= steps_up), time + 1 - steps_up, first)
    figures: Figures = {
        "episodes with a fall": float((counts > 0).mean()),
        "falls per 1,000 steps": float(counts.mean() / (len(fallen) - 1) * 1000),
        "share of time fallen": float(fallen.mean()),
    }
    if gets_up:
        stood = first[np.isfinite(first)]
        figures["episodes in which it stands"] = len(stood) / len(first)
        figures["steps until it stands"] = float(stood.mean()) if len(stood) else None
    return figures


def walks(track: Array, goals: Array, episodes: int) -> Figures:
    """Returns figures of walks: positions (times, count, 2) and directions (count, 2), `episodes` for each."""
    progress = ((track[-1] - track[0]) * goals).sum(-1) / (len(track) - 1) * 100
    moves = track[WINDOW::WINDOW] - track[:-WINDOW:WINDOW]
    length = np.linalg.norm(moves, axis=-1)
    cosine = (moves * goals).sum(-1) / np.maximum(length, 1e-9)
    moving = length > MIN_DISTANCE
    error = np.degrees(np.arccos(np.clip(cosine[moving], -1, 1)))
    return {
        "m per 100 steps in the direction": float(progress.mean()),
        "slowest direction, m per 100 steps": float(progress.reshape(-1, episodes).mean(1).min()),
        "slowest episode, m per 100 steps": float(progress.min()),
        "mean error of direction in degrees": float(error.mean()) if error.size else None,
        "share of time standing still": float(1 - moving.mean()),
    }

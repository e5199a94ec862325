"""How good an expert is: speed, direction, falls, or the ball's way to its goal."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gtrl.experts.simulation import Simulation
from gtrl.experts.skills import Dribble, Skill, distance

Array = np.ndarray
Figures = dict[str, float]
Act = Callable[[Array], Array]  # inputs (B, in) to actions (B, out)
MIN_DISTANCE = 0.1  # m in a window of steps, below which the direction of a walk is not counted
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
) -> Figures:
    """Runs an expert for whole episodes and returns its figures.

    Args:
        skill: What the expert has learned.
        act: The expert.
        directions: How many evenly spaced directions it is given; a ball has as many random goals instead.
        episodes: The number of episodes for each of them.
        noise: The standard deviation of noise that is added to the actions.
        threads: The number of threads that simulate.
        seed: The seed of first states and noise.
    """
    count = directions * episodes
    goals = _goals(skill, directions, episodes, seed)
    simulation = Simulation(skill, threads, seed, goals)
    copies, rng = simulation.begin(count, spread=False), np.random.default_rng(seed)
    track, fallen = [skill.xy(copies.physics)], [skill.fallen(copies.physics)]
    closest = np.full(count, np.inf)
    while len(track) < skill.episode_steps:  # without the last step, after which the copies begin new episodes
        actions = np.asarray(act(simulation.inputs(copies)))
        actions = np.clip(actions + noise * rng.standard_normal(actions.shape), -1, 1)
        copies, _, _ = simulation.step(copies, actions)
        track.append(skill.xy(copies.physics))
        fallen.append(skill.fallen(copies.physics))
        if isinstance(skill, Dribble):
            closest = np.minimum(closest, distance(skill.ball(copies.physics), goals))
    down = np.array(fallen)
    falls = (down[1:] & ~down[:-1]).sum(0)
    figures = {
        "episodes": float(count),
        "return": float(copies.returns.mean()),
        "episodes with a fall": float((falls > 0).mean()),
        "falls per 1,000 steps": float(falls.mean() / skill.episode_steps * 1000),
        "share of time fallen": float(down.mean()),
    }
    if isinstance(skill, Dribble):
        return figures | {
            "ball within 0.5 m of its goal": float((closest <= BALL_ARRIVED).mean()),
            "ball's smallest distance in m": float(closest.mean()),
        }
    return figures | _walk(np.array(track), goals)


def _walk(track: Array, goals: Array) -> Figures:
    """Figures of walks: positions (steps + 1, count, 2) and directions (count, 2)."""
    total = track[-1] - track[0]
    moves = track[WINDOW::WINDOW] - track[:-WINDOW:WINDOW]
    distance = np.linalg.norm(moves, axis=-1)
    cosine = (moves * goals).sum(-1) / np.maximum(distance, 1e-9)
    moving = distance > MIN_DISTANCE
    error = np.degrees(np.arccos(np.clip(cosine[moving], -1, 1)))
    return {
        "m per 100 steps in the direction": float((total * goals).sum(-1).mean() / (len(track) - 1) * 100),
        "slowest direction, m per 100 steps": float((total * goals).sum(-1).min() / (len(track) - 1) * 100),
        "mean error of direction in degrees": float(error.mean()) if error.size else float("nan"),
    }


def _goals(skill: Skill, directions: int, episodes: int, seed: int) -> Any:
    if isinstance(skill, Dribble):
        simulation = Simulation(skill, 1, seed)
        return simulation.begin(directions * episodes, spread=False).goals
    angles = 2 * np.pi * np.repeat(np.arange(directions) / directions, episodes)
    return np.stack([np.cos(angles), np.sin(angles)], -1)

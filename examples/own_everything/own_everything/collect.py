"""Logs episodes of the glider with a noisy controller: `python -m own_everything.collect FILE [EPISODES]`."""

import sys

import numpy as np

from own_everything.environment import Glider

LENGTH = 60  # steps per episode
NOISE = 0.5  # standard deviation of the noise added to the controller's actions


def collect(path: str, episodes: int = 200, seed: int = 0) -> None:
    """Writes a file in OGBench's format: `terminals` marks the last row of each episode."""
    env, rng = Glider(), np.random.default_rng(seed)
    observations, actions = [], []
    for episode in range(episodes):
        observation, info = env.reset(seed=seed + episode)
        for _ in range(LENGTH):
            towards = 1.5 * (info["goal"] - observation[:2]) - 4.0 * observation[2:]
            action = np.clip(towards + NOISE * rng.standard_normal(2), -1, 1)
            observations.append(observation)
            actions.append(action)
            observation, _, _, _, info = env.step(action)
    rows = np.arange(episodes * LENGTH)
    arrays = {"observations": np.asarray(observations), "actions": np.asarray(actions, np.float32)}
    np.savez(path, terminals=rows % LENGTH == LENGTH - 1, **arrays)


if __name__ == "__main__":
    collect(sys.argv[1], *map(int, sys.argv[2:3]))

"""Logs the arm under a noisy controller: `python record.py [log.npz] [EPISODES] [SEED]`.

The controller pulls the tip towards a target, without planning, and gets a new target every now and then. No episode
shows how to reach one particular goal well: reaching is learned from all of them together.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from arm import COLUMNS, LENGTHS, MAX_TORQUE, Arm, random_goal

SHORTEST, LONGEST = 60, 140  # steps of an episode
HOLD = (20, 60)  # steps for which a target is commanded
STIFFNESS, BRAKE = 12.0, 0.8  # of the spring between tip and target in N/m, and of the joints in Nm per rad/s
NOISE = 2.0  # Nm, standard deviation of the noise on the commands
NOISE_MEMORY = 0.7  # correlation of the noise of successive steps


def pull(joints: np.ndarray, speeds: np.ndarray, tip: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Returns the torques of a spring from the tip to the target, through the transposed Jacobian, and a brake."""
    phi = np.cumsum(joints)
    # Turning joint i moves the tip at a right angle to the vector from the joint to the tip.
    x = np.cumsum((LENGTHS * np.cos(phi))[::-1])[::-1]
    y = np.cumsum((LENGTHS * np.sin(phi))[::-1])[::-1]
    force = STIFFNESS * (target - tip)
    return -y * force[0] + x * force[1] - BRAKE * speeds


def record(episodes: int = 200, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns the arrays of a dataset file, and the target that was commanded at every row."""
    env, rng = Arm(), np.random.default_rng(seed)
    observations, actions, terminals, commanded = [], [], [], []
    for _ in range(episodes):
        observation, _ = env.reset(seed=int(rng.integers(2**31)))
        steps = int(rng.integers(SHORTEST, LONGEST + 1))
        noise, until, target = np.zeros(3), 0, np.zeros(2)
        for step in range(steps):
            if step == until:
                target, until = random_goal(rng), step + int(rng.integers(*HOLD))
            noise = NOISE_MEMORY * noise + (1 - NOISE_MEMORY**2) ** 0.5 * NOISE * rng.standard_normal(3)
            torque = pull(env.joints, observation[6:9], observation[9:11], target) + noise
            torque = np.clip(torque, -MAX_TORQUE, MAX_TORQUE).astype(np.float32)
            observations.append(observation)
            actions.append(torque)
            commanded.append(target)
            observation, *_ = env.step(torque)
        observations.append(observation)  # the last state of an episode: no action was taken in it
        actions.append(np.full(3, np.nan, np.float32))
        commanded.append(target)
        terminals += [False] * steps + [True]
    arrays = {"observations": np.stack(observations), "actions": np.stack(actions), "terminals": np.array(terminals)}
    return arrays, np.array(commanded, np.float32)


def describe() -> str:
    """Returns the description of the file: names of the columns, and the range of the torques."""
    bounds = {"action_low": [-MAX_TORQUE] * 3, "action_high": [MAX_TORQUE] * 3}
    return json.dumps({"format": 1, "columns": COLUMNS, **bounds})


def main(path: str = "log.npz", episodes: str = "200", seed: str = "0") -> None:
    """Writes a log."""
    arrays, _ = record(int(episodes), int(seed))
    contents: dict[str, Any] = {**arrays, "description": np.array(describe())}
    np.savez(Path(path), **contents)
    print(f"{path}: {episodes} episodes, {int((~arrays['terminals']).sum()):,} transitions")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Trains GTRL on logged episodes of a Gymnasium-Robotics environment: logging, training and evaluation.

    pip install 'gymnasium-robotics>=1.4,<1.5'
    python examples/pointmaze_umaze.py

The behaviour policy is a noisy controller that pushes a ball from cell to cell of a U-shaped maze. GTRL learns from the
log to reach any position, and is evaluated with the goals that the environment draws at each reset. Takes about half a
minute on two cores.
"""

import argparse
import tempfile
from pathlib import Path

import gymnasium
import numpy as np

import gtrl

TASK = gtrl.Task(
    "pointmaze-umaze",
    environment="gymnasium_robotics:PointMaze_UMaze-v3",  # a GoalEnv; the module before the colon registers it
    goals=None,  # the environment draws one at each reset
    goal=(0, 1),  # an observation is (x, y, vx, vy), and a goal a position
    defaults={"gamma": 0.99},
)
# The free cells from one end of the U to the other, (row, column); consecutive ones are neighbours.
CORRIDOR = ((1, 1), (1, 2), (1, 3), (2, 3), (3, 3), (3, 2), (3, 1))
NOISE = 0.5  # standard deviation of the noise added to the controller's actions
STIFFNESS, DAMPING = 6.0, 2.0  # gains of the controller


def log_episode(env: gymnasium.Env, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Records one episode of the controller, which ignores the environment's goal and moves to random cells."""
    state, _ = env.reset(seed=int(rng.integers(2**31)))
    centres = np.array([env.unwrapped.maze.cell_rowcol_to_xy(np.array(cell)) for cell in CORRIDOR])  # pyright: ignore[reportAttributeAccessIssue]
    target = int(rng.integers(len(CORRIDOR)))
    observations, actions = [], []
    ended = False
    while not ended:
        position, velocity = state["observation"][:2], state["observation"][2:]
        here = int(np.linalg.norm(centres - position, axis=1).argmin())
        if here == target and np.linalg.norm(centres[target] - position) < 0.3:
            target = int(rng.integers(len(CORRIDOR)))
        waypoint = centres[here + np.sign(target - here)]
        action = STIFFNESS * (waypoint - position) - DAMPING * velocity + NOISE * rng.standard_normal(2)
        action = np.clip(action, -1, 1).astype(np.float32)
        observations.append(state["observation"])
        actions.append(action)
        state, _, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated
    last = np.arange(len(actions)) == len(actions) - 1
    return {"observations": np.array(observations, np.float32), "actions": np.array(actions), "terminals": last}


def log(path: Path, episodes: int, seed: int = 0) -> Path:
    """Records several episodes and writes them to a dataset file."""
    rng = np.random.default_rng(seed)
    env = gymnasium.make(str(TASK.environment))
    logged = [log_episode(env, rng) for _ in range(episodes)]
    np.savez(path, **{key: np.concatenate([episode[key] for episode in logged]) for key in logged[0]})  # pyright: ignore[reportArgumentType]
    return path


def main(out: Path, *, episodes: int = 200, steps: int = 6000, seeds: int = 2, evaluated: int = 50) -> float:
    """Logs, trains and evaluates; returns the mean success rate of the seeds in percent."""
    data = gtrl.load_dataset(log(out / "umaze.npz", episodes), TASK)
    run = gtrl.train(
        "gtrl", data, out=out / "run", seeds=list(range(seeds)), steps=steps, batch_size=256, learning_rate=2e-3,
        hidden=(64, 64), target_rate=0.1, alpha=0.1,
    )  # fmt: skip
    rows = gtrl.evaluate(run, task=TASK, episodes=evaluated)
    rates = [100 * row["successes"] / row["episodes"] for row in rows]
    print(f"success in {evaluated} episodes of each seed: {', '.join(f'{rate:.0f} %' for rate in rates)}")
    return float(np.mean(rates))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="an empty folder for the log and the run")
    folder = parser.parse_args().out or Path(tempfile.mkdtemp(prefix="umaze-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"mean success: {main(folder):.1f} %")

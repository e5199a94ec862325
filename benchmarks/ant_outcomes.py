#!/usr/bin/env python3
"""How the episodes of a policy in an ant maze go: goals reached, falls, cells visited, smallest distance to the goal.

    python benchmarks/ant_outcomes.py POLICY.npz [EPISODES] [TASK]

Each episode depends on its number alone, so that two policies meet the same starts and goals. It ends at the goal. The
ant fell if it counts as fallen at any step, however short.
"""

import argparse
from typing import Any

import numpy as np

import gtrl
from gtrl.envs.falls import ant_has_fallen
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment
from gtrl.envs.maze import Maze
from gtrl.tasks import ogbench_task

GOALS, STEPS, SEED = 5, 1000, 1000


def episode(env: IsolatedEnv, policy: Any, goal_number: int, number: int) -> tuple[float, ...]:
    """Returns whether the goal was reached, whether the ant fell, the number of cells, and the smallest distance."""
    simulator: Any = env.env.unwrapped
    maze = Maze.from_env(simulator)
    assert maze is not None
    observation, _ = env.reset(np.random.SeedSequence([SEED, goal_number, number]), {"task_id": goal_number})
    goal, cells, nearest, fell = np.array(simulator.cur_goal_xy), set(), np.inf, False
    info: dict[str, Any] = {}
    for _ in range(STEPS):
        observation, _, terminated, truncated, info = env.step(np.clip(policy(observation, goal), -1, 1))
        cells.add(maze.cell_at(observation[:2]))
        nearest = min(nearest, float(np.linalg.norm(observation[:2] - goal)))
        fell |= bool(ant_has_fallen(simulator.data.qpos[None])[0])
        if info["success"] or terminated or truncated:
            break
    return float(info["success"]), float(fell), len(cells), nearest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy")
    parser.add_argument("episodes", nargs="?", type=int, default=20, help="for each goal")
    parser.add_argument("task", nargs="?", default="antmaze-large-navigate")
    flags = parser.parse_args()
    env, policy = IsolatedEnv(make_environment(ogbench_task(flags.task))), gtrl.load_policy(flags.policy)
    found = []
    for goal in range(1, GOALS + 1):
        found.append([episode(env, policy, goal, number) for number in range(flags.episodes)])
        print_summary(f"goal {goal}", found[-1])
    print_summary("all", [row for rows in found for row in rows])


def print_summary(label: str, rows: list[tuple[float, ...]]) -> None:
    successes, falls, _, _ = np.sum(rows, 0)
    _, _, cells, nearest = np.mean(rows, 0)
    counts = f"{successes:.0f} of {len(rows)} reached, {falls:.0f} with a fall"
    print(f"{label}: {counts}, {cells:.1f} cells, nearest {nearest:.1f} m", flush=True)


if __name__ == "__main__":
    main()

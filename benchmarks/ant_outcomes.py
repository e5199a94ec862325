#!/usr/bin/env python3
"""How the episodes of a policy in an ant maze end: at the goal, on the back, or somewhere else.

    python benchmarks/ant_outcomes.py POLICY.npz [EPISODES] [TASK]

Each episode depends on its number alone, so that two policies meet the same starts and goals.
"""

import sys
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


def main(path: str, episodes: str = "20", name: str = "antmaze-large-navigate") -> None:
    env, policy = IsolatedEnv(make_environment(ogbench_task(name))), gtrl.load_policy(path)
    found = []
    for goal in range(1, GOALS + 1):
        found.append([episode(env, policy, goal, number) for number in range(int(episodes))])
        print_means(f"goal {goal}", found[-1])
    print_means("all", [row for rows in found for row in rows])


def print_means(label: str, rows: list[tuple[float, ...]]) -> None:
    success, fell, cells, nearest = np.mean(rows, 0)
    print(f"{label}: reached {success:.0%}, fell {fell:.0%}, {cells:.1f} cells, nearest {nearest:.1f} m", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""Where an expert falls while it collects stitch data: on its way, or near the centre of its goal's cell.

    python benchmarks/expert_falls.py EXPERT.npz [EPISODES]

Humanoids in humanoidmaze-large-stitch, with the noise of data collection. A fall counts from step 100 on, after 30
steps on its feet.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.data.collect import make_collector
from gtrl.data.collect.expert import Experts
from gtrl.data.movement import HUMANOID_HEAD
from gtrl.envs.falls import humanoid_has_fallen
from gtrl.envs.maze import Maze
from gtrl.tasks import ogbench_task

SEED, FIRST, STEPS_UP, NEAR, ARRIVED = 9, 100, 30, 2.0, 1.0


def main(path: str, episodes: str = "100") -> None:
    task = ogbench_task("humanoidmaze-large-stitch")
    collector: Any = make_collector(task, Experts(walk=Path(path)))
    simulator = collector.simulator
    maze = Maze.from_env(simulator)
    assert maze is not None
    reached, falls, arrivals = 0, {"on the way": 0, "near the centre of the goal's cell": 0}, []
    for number in range(int(episodes)):
        episode = collector.episode(np.random.SeedSequence([SEED, number]))
        centre = maze.xy(maze.cell_at(np.array(simulator.cur_goal_xy)))
        distance = np.linalg.norm(episode["qpos"][:, :2] - centre, axis=1)
        down = humanoid_has_fallen(episode["observations"][:, HUMANOID_HEAD])
        for time in range(FIRST, len(down)):
            if down[time] and not down[time - STEPS_UP : time].any():
                falls["near the centre of the goal's cell" if distance[time] < NEAR else "on the way"] += 1
        reached += bool(episode["arrivals"].any())
        arrivals += np.flatnonzero(distance < ARRIVED)[:1].tolist()
    print(f"{path}: {reached} of {episodes} goals reached (0.5 m); falls: {falls}")
    arrived = f"come within 1 m of the centre of the goal's cell, at step {np.median(arrivals):.0f}"
    print(f"  {len(arrivals)} episodes {arrived}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Why the ant misses some goals of stitch data: how close it came, and how far the goal is from its cell's centre."""

import argparse

import numpy as np

from gtrl.data.collect import make_collector
from gtrl.data.collect.expert import NO_EXPERTS
from gtrl.data.collect.maze import MazeCollector
from gtrl.tasks import ogbench_task


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=150)
    parser.add_argument("--task", default="antmaze-large-stitch")
    args = parser.parse_args()
    task = ogbench_task(args.task)
    collector = make_collector(task, NO_EXPERTS.for_task(task))
    assert isinstance(collector, MazeCollector)
    missed = 0
    for number in range(args.episodes):
        episode = collector.episode(np.random.SeedSequence([7, number]))
        if episode["arrivals"].any():
            continue
        missed += 1
        goal = np.array(collector.simulator.cur_goal_xy)
        closest = np.linalg.norm(episode["qpos"][:, :2] - goal, axis=1).min()
        off = np.linalg.norm(goal - collector.maze.xy(collector.maze.cell_at(goal)))
        print(f"episode {number}: {closest:.2f} m from its goal at best, which is {off:.2f} m off its cell's centre")
    print(f"{missed} of {args.episodes} episodes of {task.name} missed their goal")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures the speed of data collection relative to a baseline.

    python benchmarks/collection.py maze            # against a plain loop that searches for a subgoal at each step
    python benchmarks/collection.py manipulation    # against the environment's step alone, on the same actions

Run it on an otherwise idle machine. Collection and baseline are measured several times, alternately; the table shows
every measurement.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from gtrl import console
from gtrl.data.collect.files import collect
from gtrl.data.collect.manipulation import PlayCollector
from gtrl.data.collect.maze import POINT_NOISE, maze_of_env, random_cell
from gtrl.envs.make import make_environment
from gtrl.tasks import ogbench_task
from gtrl.workers import default_workers, map_unordered

MAZE = "pointmaze-teleport-navigate"
MANIPULATION = ("cube-single-play", "cube-double-play", "scene-play", "puzzle-3x3-play", "puzzle-4x4-play")


def plain_episodes(job: tuple[int, int]) -> tuple[int, float]:
    """Returns (steps, seconds) of a straightforward loop: recomputes everything at each step, one list per column."""
    seed, episodes = job
    task = ogbench_task(MAZE)
    env = make_environment(task)
    maze = env.unwrapped
    cells, vertices = maze_of_env(maze).cells, maze_of_env(maze).vertices
    choices = np.random.default_rng(seed)
    np.random.seed(seed)
    env.reset(options={"task_id": 1})
    columns: dict[str, list] = {key: [] for key in ("observations", "actions", "terminals", "qpos", "qvel")}
    start_time = time.perf_counter()
    for _ in range(episodes):
        cells_of_episode = {"init_ij": random_cell(choices, cells), "goal_ij": random_cell(choices, vertices)}
        observation, _ = env.reset(options={"task_info": cells_of_episode})
        for row in range(task.trajectory_length + 1):
            subgoal, _ = maze.get_oracle_subgoal(maze.get_xy(), maze.cur_goal_xy)
            direction = subgoal - maze.get_xy()
            direction = direction / (np.linalg.norm(direction) + 1e-6)
            action = np.clip(direction + np.random.normal(0, POINT_NOISE, 2), -1, 1)
            following, _, _, _, info = maze.step(action)
            columns["observations"].append(observation)
            columns["actions"].append(action)
            columns["terminals"].append(row == task.trajectory_length)
            columns["qpos"].append(info["prev_qpos"])
            columns["qvel"].append(info["prev_qvel"])
            observation = following
            if info["success"]:
                maze.set_goal(goal_xy=maze.add_noise(maze.ij_to_xy(random_cell(choices, vertices))))
    return episodes * (task.trajectory_length + 1), time.perf_counter() - start_time


def plain_rate(workers: int, episodes: int) -> float:
    """Steps per second of plain loops, one per process. Start-up and saving are not counted, which favours them."""
    jobs = [(worker, episodes) for worker in range(workers)]
    return sum(steps / seconds for _, (steps, seconds) in map_unordered(plain_episodes, jobs, workers))


def collect_rate(workers: int, episodes: int | None) -> float:
    """Steps per second of `collect`, including the start of processes, both files, joining and compression."""
    task = ogbench_task(MAZE)
    with tempfile.TemporaryDirectory() as folder:
        start_time = time.perf_counter()
        path = collect(task, Path(folder, "data.npz"), episodes=episodes, workers=workers)
        seconds = time.perf_counter() - start_time
        files = (path, path.with_name("data-val.npz"))
        return sum(len(np.load(file)["terminals"]) for file in files) / seconds


def maze(workers: int, episodes: int | None, rounds: int) -> None:
    """Compares the collection of a whole dataset with plain loops in as many processes."""
    rows, ratios = [], []
    for number in range(rounds):
        before = plain_rate(workers, 40)
        collected = collect_rate(workers, episodes)
        after = plain_rate(workers, 40)
        ratios.append(2 * collected / (before + after))
        rows.append([number + 1, f"{before:,.0f}", f"{collected:,.0f}", f"{after:,.0f}", f"{ratios[-1]:.2f}"])
    title = f"{MAZE}, steps/s on {workers} processes"
    console.print_table(console.table(title, ["round", "plain before", "collect", "plain after", "ratio"], rows))


def actions_of(collector: PlayCollector, seed: np.random.SeedSequence) -> list[np.ndarray]:
    """Returns the exact actions of an episode; a dataset rounds them to float32, with which grasps may fail."""
    step, actions = collector.simulator.step, []

    def recording_step(action: np.ndarray) -> tuple:
        actions.append(action)
        return step(action)

    collector.simulator.step = recording_step
    collector.attempt(seed)
    del collector.simulator.step
    return actions


def manipulation(length: int, rounds: int) -> None:
    """Compares episodes with oracle and recording with `step` alone on the same actions in the same mode.

    Both visit the same states, which matters: a step with contacts takes longer than one without.
    """
    rows = []
    for name in MANIPULATION:
        collector = PlayCollector(replace(ogbench_task(name), trajectory_length=length))
        ratios, rates = [], []
        for number in range(rounds):
            seed = np.random.SeedSequence(number)
            actions = actions_of(collector, seed)
            start_time = time.perf_counter()
            episode = collector.attempt(seed)
            collecting = time.perf_counter() - start_time
            start_time = time.perf_counter()
            collector.env.reset(seed, {})
            with collector.env.own_random_state():
                for action in actions:
                    collector.simulator.step(action)
            stepping = time.perf_counter() - start_time
            if episode is None:  # an unstable simulation ends early, so this is not a whole episode
                continue
            np.testing.assert_array_equal(episode["qpos"][-1], collector.simulator._prev_qpos.astype(np.float32))
            ratios.append(collecting / stepping)
            rates.append(len(actions) / collecting)
        each = " ".join(f"{ratio:.3f}" for ratio in ratios)
        rows.append([name, each, f"{np.mean(rates):,.0f}", f"{np.mean(ratios):.3f}"])
    title = "time of an episode / time of its steps alone"
    console.print_table(console.table(title, ["task", "each round", "steps/s", "mean"], rows, text=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("maze", "manipulation"))
    parser.add_argument("--workers", type=int, default=default_workers())
    parser.add_argument("--episodes", type=int, help="maze: number of episodes; by default that of the public dataset")
    parser.add_argument("--length", type=int, default=1000, help="manipulation: steps per episode")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.what == "maze":
        maze(args.workers, args.episodes, args.rounds)
    else:
        manipulation(args.length, args.rounds)


if __name__ == "__main__":
    main()

"""Writes one small log in the formats of other tools, by their specifications; for Minari with its own collector."""

import csv
import gc
import json
import warnings
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STATE_NAMES = ["x", "y", "speed", "pressure"]
MOTOR_NAMES = ["shoulder", "elbow"]
BOUND = 5.0  # of the actions
STATISTICS = {  # of a feature, in LeRobot's metadata
    "min": lambda rows: rows.min(0),
    "max": lambda rows: rows.max(0),
    "mean": lambda rows: rows.mean(0),
    "std": lambda rows: rows.std(0),
    "count": lambda rows: np.array([len(rows)]),
}


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def make_log(lengths: tuple[int, ...] = (5, 3, 7)) -> dict[str, np.ndarray]:
    """Random episodes with these numbers of transitions, in the layout of a dataset file: no action in the last row."""
    rng = np.random.default_rng(0)
    rows = sum(lengths) + len(lengths)
    terminals = np.zeros(rows, bool)
    terminals[np.cumsum(np.add(lengths, 1)) - 1] = True
    observations = rng.normal(size=(rows, 4)) * [1, 0.1, 30, 50] + [0, 0, 0, 101325]
    actions = rng.uniform(-BOUND, BOUND, (rows, 2))
    actions[terminals] = np.nan
    return {"observations": observations, "actions": actions, "terminals": terminals}


def episodes_of(log: dict[str, np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The states (L + 1) and actions (L) of each episode."""
    start = 0
    for end in np.flatnonzero(log["terminals"]) + 1:
        yield log["observations"][start:end], log["actions"][start : end - 1]
        start = end


def transitions_of(log: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One row per transition with the next observation, as in D4RL: `timeouts` marks the last."""
    last = np.flatnonzero(log["terminals"])
    kept = ~log["terminals"]
    timeouts = np.zeros(len(kept), bool)
    timeouts[last - 1] = True
    return {
        "observations": log["observations"][kept],
        "actions": log["actions"][kept],
        "next_observations": log["observations"][np.flatnonzero(kept) + 1],
        "terminals": np.zeros(kept.sum(), bool),
        "timeouts": timeouts[kept],
    }


def without_last_states(log: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a format can carry that has no state after the last action."""
    kept = ~log["terminals"]
    ends = np.append(log["terminals"][1:], False)
    return {"observations": log["observations"][kept], "actions": log["actions"][kept], "terminals": ends[kept]}


def write_d4rl(path: Path, log: dict[str, np.ndarray], **options: Any) -> Path:
    arrays = transitions_of(log)
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values, **options)
        file["rewards"] = np.zeros(len(arrays["actions"]))
        file["infos/goal"] = np.ones((len(arrays["actions"]), 2))
        file["metadata/algorithm"] = "scripted"
    return path


def write_robomimic(path: Path, log: dict[str, np.ndarray]) -> Path:
    """The state is in two arrays, whose names sort in the order of the columns; the camera is not to be read."""
    with h5py.File(path, "w") as file:
        for number, (states, actions) in enumerate(episodes_of(log)):
            demo = file.create_group(f"data/demo_{number}")
            demo["actions"] = actions
            demo["states"] = states[:-1]
            for key, rows in (("obs", states[:-1]), ("next_obs", states[1:])):
                demo[f"{key}/robot0_eef_pos"], demo[f"{key}/sensors"] = rows[:, :2], rows[:, 2:]
                demo[f"{key}/wrist_image"] = np.zeros((len(rows), 8, 8, 3), np.uint8)
    return path


def write_csv(path: Path, log: dict[str, np.ndarray]) -> Path:
    """One row per state, with empty cells where there is no action; rows of the episodes alternate."""
    lines: list[list[Any]] = []
    for number, (states, actions) in enumerate(episodes_of(log)):
        cells = [*([repr(float(value)) for value in action] for action in actions), ["", ""]]
        for step, (state, action) in enumerate(zip(states, cells, strict=True)):
            lines.append([f"run-{number}", step, *(repr(float(value)) for value in state), *action])
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["episode", "step", *(f"obs_{name}" for name in STATE_NAMES), "action_0", "action_1"])
        table.writerows(sorted(lines, key=itemgetter(1, 0)))
    return path


def write_parquet(path: Path, log: dict[str, np.ndarray]) -> Path:
    """One row per state, vectors as lists."""
    numbers = np.cumsum(log["terminals"]) - log["terminals"]
    columns = {
        "trajectory": numbers,
        "state": pa.array(log["observations"].tolist()),
        "action": pa.array(log["actions"].tolist()),
    }
    pq.write_table(pa.table(columns), path)
    return path


def write_lerobot(folder: Path, log: dict[str, np.ndarray]) -> Path:
    """Version 3: the states without the last of each episode, in two data files.

    All files and columns are those that lerobot 0.4.4 writes; of the statistics, which also have quantiles, only some.
    """
    rows = without_last_states(log)
    episodes = np.cumsum(rows["terminals"]) - rows["terminals"]
    lengths = np.bincount(episodes)
    frames = np.concatenate([np.arange(length) for length in lengths])
    table = pa.table(
        {
            "observation.state": _vectors(rows["observations"]),
            "action": _vectors(rows["actions"]),
            "timestamp": pa.array(frames / 20, pa.float32()),
            "frame_index": frames,
            "episode_index": episodes,
            "index": np.arange(len(frames)),
            "task_index": np.zeros(len(frames), np.int64),
        }
    )
    for part, mask in enumerate((episodes == 0, episodes > 0)):
        _write_table(folder / f"data/chunk-000/file-{part:03d}.parquet", table.filter(pa.array(mask)))
    numbers, zeros, ends = np.arange(len(lengths)), np.zeros(len(lengths), np.int64), np.cumsum(lengths)
    listed: dict[str, Any] = {
        "episode_index": numbers,
        "tasks": [["reach"]] * len(lengths),
        "length": lengths,
        "data/chunk_index": zeros,
        "data/file_index": np.minimum(numbers, 1),
        "dataset_from_index": ends - lengths,
        "dataset_to_index": ends,
    }
    statistics: dict[str, dict[str, Any]] = {}
    for feature, key in (("observation.state", "observations"), ("action", "actions")):
        parts = np.split(rows[key], ends[:-1])
        statistics[feature] = {name: summary(rows[key]).tolist() for name, summary in STATISTICS.items()}
        for name, summary in STATISTICS.items():
            listed[f"stats/{feature}/{name}"] = [summary(part).tolist() for part in parts]
    listed |= {"meta/episodes/chunk_index": zeros, "meta/episodes/file_index": zeros}
    _write_table(folder / "meta/episodes/chunk-000/file-000.parquet", pa.table(listed))
    tasks = pa.table({"task_index": [0], "__index_level_0__": pa.array(["reach"], pa.large_string())})
    _write_table(folder / "meta/tasks.parquet", tasks)
    (folder / "meta/stats.json").write_text(json.dumps(statistics))
    features = {
        "observation.state": {"dtype": "float64", "shape": [4], "names": STATE_NAMES},
        "action": {"dtype": "float64", "shape": [2], "names": {"motors": MOTOR_NAMES}},
        "observation.images.top": {"dtype": "video", "shape": [480, 640, 3], "names": ["height", "width", "channels"]},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        **{
            name: {"dtype": "int64", "shape": [1], "names": None}
            for name in ("frame_index", "episode_index", "index", "task_index")
        },
    }
    info = {
        "codebase_version": "v3.0",
        "robot_type": "arm",
        "total_episodes": len(lengths),
        "total_frames": len(frames),
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": 20,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": features,
    }
    (folder / "meta/info.json").write_text(json.dumps(info))
    return folder


def _vectors(rows: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


def _write_table(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


class Replay(gym.Env):
    """Replays the states of a log, so that Minari's collector records exactly these. Its goals are the positions."""

    def __init__(self, log: dict[str, np.ndarray], *, with_goals: bool) -> None:
        self.remaining = episodes_of(log)
        self.with_goals = with_goals
        box = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
        goal = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        goals = gym.spaces.Dict({"observation": box, "achieved_goal": goal, "desired_goal": goal})
        self.observation_space = goals if with_goals else box
        self.action_space = gym.spaces.Box(-BOUND, BOUND, (2,), np.float64)

    def observe(self) -> Any:
        state = self.states[self.step_number]
        goals = {"observation": state, "achieved_goal": state[:2], "desired_goal": np.ones(2)}
        return goals if self.with_goals else state

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.states, self.actions = next(self.remaining)
        self.step_number = 0
        return self.observe(), {}

    def step(self, action: np.ndarray) -> Any:
        self.step_number += 1
        return self.observe(), 0.0, False, self.step_number == len(self.states) - 1, {}


def collect_minari(log: dict[str, np.ndarray], name: str, storage: str = "hdf5", *, with_goals: bool = False) -> str:
    """Records a log with Minari's own collector."""
    import minari

    env = Replay(log, with_goals=with_goals)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a missing author and link to code, and a folder that is left behind
        collector = minari.DataCollector(env, data_format=storage)
        for _ in range(log["terminals"].sum()):
            collector.reset()
            for action in env.actions:
                collector.step(action)
        collector.create_dataset(name)
        collector.close()
        del collector
        gc.collect()
    return name

"""Logs of other tools: every format gives the same arrays, and damaged or unclear ones one sentence."""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import foreign_logs as logs
import gymnasium as gym
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.csv import write_csv
from test_data import is_one_sentence

from gtrl.cli import main
from gtrl.data.formats import read_log
from gtrl.data.formats.columns import Catalog
from gtrl.data.formats.convert import convert
from gtrl.data.formats.log import NO_SUCCESSOR, Episode, Log, assemble
from gtrl.data.formats.minari import write_minari
from gtrl.data.load import load_dataset
from gtrl.errors import DataError, GtrlError
from gtrl.io.scaling import fit_scaling

LOG = logs.make_log()
Arrays = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def minari_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    return folder


def assert_same(found: Log, expected: Arrays) -> None:
    assert set(found.arrays) == set(expected)
    for key, values in expected.items():
        np.testing.assert_array_equal(found.arrays[key], values, strict=True)


# --- the same log through every format ---


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def python_episodes(*, following: bool) -> Iterator[dict[str, Any]]:
    for states, actions in logs.episodes_of(LOG):
        if following:
            yield {"observations": states[:-1], "actions": actions, "next_observations": states[1:]}
        else:
            yield {"observations": states.tolist(), "actions": actions, "seed": 3}


def table_of_transitions(path: Path, observation: str, following: str) -> Path:
    """One row per transition, with the next observation; a column of the observation is called `{observation}_x`."""
    rows = logs.transitions_of(LOG)
    columns: dict[str, Any] = {"episode": np.cumsum(rows["timeouts"]) - rows["timeouts"]}
    for name, prefix in (("observations", observation), ("next_observations", following)):
        columns |= {f"{prefix}_{key}": rows[name][:, index] for index, key in enumerate(logs.STATE_NAMES)}
    columns |= {f"action_{index}": rows["actions"][:, index] for index in range(2)}
    pq.write_table(pa.table(columns), path)
    return path


def table_of_lists(path: Path) -> Path:
    """One row per state with lists, where the last action of an episode is null."""
    actions = [None if last else row for row, last in zip(LOG["actions"].tolist(), LOG["terminals"], strict=True)]
    episodes = np.cumsum(LOG["terminals"]) - LOG["terminals"]
    states = [pa.array(LOG["observations"].tolist()), pa.array(np.roll(LOG["observations"], -1, 0).tolist())]
    columns = {"episode": episodes, "state": states[0], "next.state": states[1], "action": pa.array(actions)}
    pq.write_table(pa.table(columns), path)
    return path


WHOLE: dict[str, Callable[[Path], Any]] = {
    "npz": lambda path: npz(path / "x.npz", **LOG),
    "npz-next": lambda path: npz(path / "x.npz", **logs.transitions_of(LOG)),
    "arrays": lambda _: logs.transitions_of(LOG),
    "d4rl": lambda path: logs.write_d4rl(path / "x.hdf5", LOG, compression="gzip"),
    "robomimic": lambda path: logs.write_robomimic(path / "x.hdf5", LOG),
    "csv": lambda path: logs.write_csv(path / "x.csv", LOG),
    "parquet": lambda path: logs.write_parquet(path / "x.parquet", LOG),
    "parquet-next": lambda path: table_of_transitions(path / "x.parquet", "obs", "next_obs"),
    "parquet-spelled": lambda path: table_of_transitions(path / "x.parquet", "observation", "next_state"),
    "parquet-null": lambda path: table_of_lists(path / "x.parquet"),
    "csv-next": lambda path: csv_of(table_of_transitions(path / "x.parquet", "state", "next.state")),
    "python": lambda _: python_episodes(following=False),
    "python-next": lambda _: python_episodes(following=True),
    "python-pairs": lambda _: list(logs.episodes_of(LOG)),
    "minari-hdf5": lambda _: f"minari:{logs.collect_minari(LOG, 'robot/reach-v0')}",
    "minari-arrow": lambda _: logs.collect_minari(LOG, "robot/arrow/reach-v0", "arrow"),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_every_format_gives_the_same_arrays(kind: str, tmp_path: Path) -> None:
    found = read_log(WHOLE[kind](tmp_path))
    assert_same(found, LOG)
    assert NO_SUCCESSOR not in found.source["notes"]
    assert len(found.columns["observation"]) == 4
    assert len(found.columns["action"]) == 2
    if kind.startswith("minari"):
        np.testing.assert_array_equal([found.action_low, found.action_high], [[-5, -5], [5, 5]])


def test_lerobot_lacks_the_last_state_and_says_so(tmp_path: Path) -> None:
    found = read_log(logs.write_lerobot(tmp_path, LOG))
    assert_same(found, logs.without_last_states(LOG))
    assert found.columns == {"observation": logs.STATE_NAMES, "goal": logs.STATE_NAMES, "action": logs.MOTOR_NAMES}
    assert NO_SUCCESSOR in found.source["notes"]
    chosen = read_log(tmp_path, observation="observation.state[0:3]", goal=["x", "y"], action="elbow")
    np.testing.assert_array_equal(chosen.arrays["goals"], found.arrays["observations"][:, :2])
    np.testing.assert_array_equal(chosen.arrays["actions"], found.arrays["actions"][:, 1:])


def test_rows_without_successor_are_one_per_row(tmp_path: Path) -> None:
    rows = logs.without_last_states(LOG)
    timeouts = np.append(rows["terminals"][:-1], False)  # the log ends in the middle of an episode
    arrays = {**rows, "terminals": np.zeros(15, bool), "timeouts": timeouts}
    found = read_log(npz(tmp_path / "x.npz", **arrays))
    assert_same(found, rows)
    assert found.source["notes"] == [
        "the 7 rows after the last marked end of an episode are read as an episode",
        NO_SUCCESSOR,
    ]


@pytest.mark.parametrize("kind", ["npz", "arrays", "d4rl"])
def test_rows_after_the_last_mark_are_an_episode(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Training reads them as converting does."""
    arrays = {**LOG, "terminals": LOG["terminals"] & (np.arange(18) < 17)}
    source: Any = arrays
    if kind == "npz":
        source = npz(tmp_path / "x.npz", **arrays)
    elif kind == "d4rl":
        with h5py.File(source := tmp_path / "x.h5", "w") as file:
            file.update(arrays)
    found = convert(source, tmp_path / "y.npz")
    assert_same(found, LOG)
    note = "the 8 rows after the last marked end of an episode are read as an episode"
    assert found.source["notes"] == [note]
    np.testing.assert_array_equal(load_dataset(source).train.ends, load_dataset(tmp_path / "y.npz").train.ends)
    assert note in caplog.text


def test_arrays_of_one_axis_have_one_column(tmp_path: Path) -> None:
    log = {**LOG, "observations": LOG["observations"][:, 0], "actions": LOG["actions"][:, 0]}
    path = npz(tmp_path / "x.npz", **log)
    episodes = list(logs.episodes_of(log))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.update(log)
    for source in (path, log, episodes, tmp_path / "x.h5"):
        found = load_dataset(source).train
        assert found.spec == (1, 1, 1)
        np.testing.assert_array_equal(found.ends, load_dataset(LOG).train.ends)
        assert_same(read_log(source), {**log, **{key: log[key][:, None] for key in ("observations", "actions")}})


def test_unmarked_end_of_an_episode_is_found_by_its_successor() -> None:
    arrays = logs.transitions_of(LOG)
    arrays["timeouts"][4] = False
    found = read_log(arrays)
    assert_same(found, LOG)
    assert any("1 episodes end without a mark" in note for note in found.source["notes"])


@pytest.mark.parametrize("dtype", [bool, np.uint8])
def test_successors_may_be_of_any_type(dtype: type) -> None:
    states = np.array([[5], [0], [200], [1]]).astype(dtype)
    arrays = {"observations": states[:-1], "next_observations": states[1:], "actions": np.zeros((3, 1))}
    found = read_log({**arrays, "terminals": np.zeros(3)})
    np.testing.assert_array_equal(found.arrays["observations"], states)


def test_float32_stays_float32_and_other_numbers_become_float64() -> None:
    arrays = {
        "observations": np.zeros((3, 2), np.float32),
        "actions": np.zeros((3, 1), np.int8),
        "terminals": [0, 0, 1],
    }
    found = read_log(arrays).arrays
    assert found["observations"].dtype == np.float32
    assert found["actions"].dtype == np.float64


# --- tables ---


def csv_of(path: Path) -> Path:
    write_csv(pq.read_table(path), table := path.with_suffix(".csv"))
    return table


NOON = "2024-05-01T12:00:00"
UNORDERED: dict[str, Any] = {  # three times, which stand in the order 0, 2, 1
    "integers": [9, 11, 10],
    "text in CSV": ["9", "11", "10.5"],
    "ISO text": [f"{NOON}+02:00", "2024-05-01T10:00:00.30Z", "2024-05-01T11:00:00.25+01:00"],
    "timestamps": pa.array([0, 2, 1], pa.timestamp("ns")),
    "local timestamps": pa.array([0, 2, 1], pa.timestamp("us", "Europe/Paris")),
    "durations": pa.array([0, 2, 1], pa.duration("ms")),
    "dates": pa.array([0, 2, 1], pa.date32()),
}


@pytest.mark.parametrize("kind", UNORDERED)
def test_rows_are_in_the_order_of_time(kind: str, tmp_path: Path) -> None:
    table = pa.table({"episode": ["a"] * 3, "time": UNORDERED[kind], "obs": [0, 2, 1], "action": [0.0, 0, 0]})
    pq.write_table(table, path := tmp_path / "x.parquet")
    if "CSV" in kind:
        path = csv_of(path)
    np.testing.assert_array_equal(read_log(path).arrays["observations"], [[0], [1], [2]])


UNCLEAR_TIMES: dict[str, tuple[Any, str]] = {
    "null": ([0, None, 2], "row 2 has 'nan'"),
    "infinity": ([0, 1, np.inf], "row 3 has 'inf'"),
    "no timestamp": (pa.array([0, None, 2], pa.timestamp("us")), "row 2 has 'NaT'"),
    "clock": (["9:58:00", "9:59:00", "10:00:00"], "row 1 has '9:58:00'"),
    "time of day": (pa.array([0, 1, 2], pa.time32("s")), "row 1 has '00:00:00'"),
    "no text": ([NOON, None, NOON], "row 2 has ''"),
    "text among numbers": (["0", "1", "late"], "row 3 has 'late'"),
    "time zones for some": ([NOON, f"{NOON}Z", NOON], f"row 2 has '{NOON}Z'"),
}


@pytest.mark.parametrize("kind", UNCLEAR_TIMES)
def test_rows_without_a_time_are_not_ordered(kind: str, tmp_path: Path) -> None:
    times, message = UNCLEAR_TIMES[kind]
    path = tmp_path / "x.parquet"
    columns = {"t": times, "obs": [0, 1, 2], "action": [0] * 3}
    pq.write_table(pa.table({"episode": [0, 1, 0], **columns}), path)
    with pytest.raises(DataError) as error:
        read_log(path)
    problem = f"the column 't' must hold numbers or timestamps: {message}"
    assert str(error.value) == f"{path}: the rows of an episode are not contiguous, and {problem}."
    # Rows of one episode keep their order.
    pq.write_table(pa.table({"episode": [0] * 3, **columns}), path)
    log = read_log(path)
    assert log.arrays["observations"].tolist() == [[0], [1], [2]]
    assert f"rows keep the order of the file, because {problem}" in log.source["notes"]


def test_next_columns_belong_to_the_chosen_columns(tmp_path: Path) -> None:
    table = table_of_transitions(tmp_path / "x.parquet", "joint", "next_joint")
    chosen = {"observation": ["joint_x", "joint_y"], "action": "action_0"}
    expected = {**LOG, "observations": LOG["observations"][:, :2], "actions": LOG["actions"][:, :1]}
    assert_same(read_log(table, **chosen), expected)
    chosen["observation"].append("next_joint_y")  # a column like any other by its name
    found = read_log(table, **chosen)
    assert len(found.arrays["observations"]) == 15
    assert any("'next_joint_y' is not logged after the last action" in note for note in found.source["notes"])


def test_next_observations_are_not_offered(tmp_path: Path) -> None:
    table = table_of_transitions(tmp_path / "x.parquet", "obs", "next_obs")
    with pytest.raises(DataError, match=r"^'next_obs_x' is the next observation, .*: choose the present one\.$"):
        read_log(table, goal="next_obs_x")


def test_columns_that_are_not_the_next_observation_are_not_used(tmp_path: Path) -> None:
    table = pa.table({"episode": [0] * 3, "obs": [0.0, 1, 2], "next_obs": [5.0, 1, 2], "action": [0.0] * 3})
    pq.write_table(table, tmp_path / "x.parquet")
    found = read_log(tmp_path / "x.parquet")
    np.testing.assert_array_equal(found.arrays["observations"], [[0], [1], [2]])
    note = "'next_obs' does not hold 'obs' of the following row, so it is not used"
    assert found.source["notes"] == [note, NO_SUCCESSOR]


# --- dictionaries and goals ---


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
def test_goal_environment_gives_the_achieved_goal(storage: str, minari_folder: Path) -> None:
    folder = str(minari_folder / logs.collect_minari(LOG, "robot/goals-v0", storage, with_goals=True))
    assert_same(read_log(folder), {**LOG, "goals": LOG["observations"][:, :2]})
    desired = read_log(folder, goal=["desired_goal"])
    np.testing.assert_array_equal(desired.arrays["goals"], np.ones((18, 2)))
    assert any("'desired_goal' is the commanded goal" in note for note in desired.source["notes"])
    part = read_log(folder, observation=["observation[2:]", "achieved_goal"], goal="-1")
    np.testing.assert_array_equal(part.arrays["observations"], LOG["observations"][:, [2, 3, 0, 1]])
    np.testing.assert_array_equal(part.arrays["goals"], LOG["observations"][:, 1:2])
    names = ["observation[2]", "observation[3]", "achieved_goal[0]", "achieved_goal[1]"]
    assert part.columns["observation"] == names


def test_dictionaries_are_flattened_in_the_order_of_their_names() -> None:
    episode = {
        "observations": {"b": np.ones((3, 1)), "a": {"z": np.zeros(3), "y": np.full((3, 2), 2)}},
        "actions": np.zeros((2, 1)),
    }
    found = read_log([episode])
    assert found.columns["observation"] == ["a/y[0]", "a/y[1]", "a/z", "b"]
    np.testing.assert_array_equal(found.arrays["observations"], [[2, 2, 0, 1]] * 3)


def test_entries_of_an_observation_do_not_hide_other_arrays() -> None:
    """The previous action and the goal are often in the observation, under the same names."""
    observed = {"actions": np.full((3, 2), 7), "goals": np.full((3, 1), 8), "q": np.full((3, 1), 9)}
    episode = {"observations": observed, "actions": np.ones((2, 2)), "goals": np.zeros((3, 1))}
    found = read_log([episode])
    np.testing.assert_array_equal(found.arrays["observations"], [[7, 7, 8, 9]] * 3)
    np.testing.assert_array_equal(found.arrays["actions"][:2], np.ones((2, 2)))
    np.testing.assert_array_equal(found.arrays["goals"], np.zeros((3, 1)))
    names = ["observations/actions[0]", "observations/actions[1]", "observations/goals", "q"]
    assert found.columns["observation"] == names
    final = {key: rows[-1:] for key, rows in observed.items()}
    episode["observations"] = {key: rows[:2] for key, rows in observed.items()}
    following = {key: np.concatenate([rows[1:2], final[key]]) for key, rows in observed.items()}
    again = read_log([{**episode, "goals": np.zeros((2, 1)), "next_observations": following}], goal=names[2])
    np.testing.assert_array_equal(again.arrays["observations"], found.arrays["observations"])


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
def test_dictionaries_of_minari_are_flattened_in_the_order_of_their_names(storage: str) -> None:
    import minari
    from gymnasium.spaces import Box, Dict
    from minari.data_collector import EpisodeBuffer

    boxes = [Box(-bound, bound, (1,), np.float64) for bound in (1, 2)]
    buffer = EpisodeBuffer(
        observations={"q": np.full((3, 1), 0.1), "actions": np.full((3, 1), 0.2)},  # pyright: ignore[reportArgumentType]
        actions={"wrist": np.full((2, 1), 0.3), "arm": np.full((2, 1), 0.4)},  # pyright: ignore[reportArgumentType]
        rewards=[0.0] * 2,
        terminations=[False] * 2,
        truncations=[False, True],
    )
    observation_space, action_space = Dict(q=boxes[0], actions=boxes[0]), Dict(wrist=boxes[0], arm=boxes[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a missing author and link to code
        minari.create_dataset_from_buffers(
            "my/dictionary-v0", [buffer], data_format=storage,
            observation_space=observation_space, action_space=action_space,
        )  # fmt: skip
    found = read_log("minari:my/dictionary-v0")
    assert found.columns["action"] == ["actions/arm", "actions/wrist"]
    np.testing.assert_array_equal(found.arrays["actions"][:2], [[0.4, 0.3]] * 2)
    np.testing.assert_array_equal(found.action_high, [2, 1])
    assert found.columns["observation"] == ["observations/actions", "q"]
    np.testing.assert_array_equal(found.arrays["observations"], [[0.2, 0.1]] * 3)
    again = read_log([{"observations": buffer.observations, "actions": buffer.actions}])
    assert_same(again, found.arrays)
    assert again.columns == found.columns


def test_goal_that_is_not_logged_after_the_last_action_costs_the_last_state(tmp_path: Path) -> None:
    found = read_log(logs.write_robomimic(tmp_path / "x.hdf5", LOG), goal="states[:2]")
    expected = logs.without_last_states(LOG)
    assert_same(found, {**expected, "goals": expected["observations"][:, :2]})
    assert "'states' is not logged after the last action, so the state after it is left out" in found.source["notes"]


# --- choosing columns ---

CATALOG = Catalog(
    {"state": ["x", "y", "state[2]"], "action": ["x", "u"], "extra": ["extra"], "7": ["7"]},
    ["state"], ["action"], unusable={"camera": "holds pixels"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "role", "expected"),
    [
        ("state", "observation", [("state", 0), ("state", 1), ("state", 2)]),
        ("state[0]", "goal", [("state", 0)]),
        ("state[-2:]", "goal", [("state", 1), ("state", 2)]),
        ("state[0, 2]", "goal", [("state", 0), ("state", 2)]),
        ("1:", "goal", [("state", 1), ("state", 2)]),
        (":1", "action", [("action", 0)]),
        ("2,0", "observation", [("state", 2), ("state", 0)]),
        ("-1", "action", [("action", 1)]),
        ("x", "goal", [("state", 0)]),  # the observation's x
        ("x", "action", [("action", 0)]),  # the action's
        ("u", "observation", [("action", 1)]),
        ("7", "observation", [("7", 0)]),  # a name before a number
    ],
)
def test_selectors(text: str, role: Any, expected: list[tuple[str, int]]) -> None:
    assert [tuple(column) for column in CATALOG.choose(text, role)] == expected


def test_slices_for_the_goal_count_the_chosen_observation() -> None:
    found = read_log(LOG, observation="observations[1:3]", goal="0:2")
    np.testing.assert_array_equal(found.arrays["goals"], LOG["observations"][:, 1:3])
    assert found.columns["goal"] == ["observations[1]", "observations[2]"]
    with pytest.raises(DataError, match=r"^0:3 is outside of the observation, which has 2 columns"):
        read_log(LOG, observation="observations[1:3]", goal="0:3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stat", "there is no column 'stat' for the goal; there are state, "),  # the closest first
        ("state[3]", "3 is outside of 'state', which has 3 columns"),
        ("0:4", "0:4 is outside of the default goal, which has 3 columns"),
        ("state[2:1]", "2:1 selects no column"),
        ("state[a]", "'state[a]' is not a choice of columns"),
        ("camera", "'camera' holds pixels"),
        ("camera[0]", "'camera' holds pixels"),
        ("", "there is no column ''"),
        (("x", "0"), "the column 'x' is chosen twice"),
        ((), "no column is chosen"),
    ],
)
def test_wrong_selectors(text: Any, message: str) -> None:
    with pytest.raises(DataError) as error:
        CATALOG.choose(text, "goal")
    assert str(error.value).startswith(message)
    assert is_one_sentence(str(error.value))


# --- bad input: one sentence, exit status 2, nothing written ---


def truncated(path: Path) -> Path:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return path


def huge_hdf5(path: Path) -> Path:
    """Claims 10^12 rows that are not there."""
    with h5py.File(path, "w") as file:
        for name, width in (("observations", 4), ("actions", 2)):
            file.create_dataset(name, (10**12, width), "f8", chunks=(1000, width))
        file.create_dataset("timeouts", (10**12,), "?", chunks=(1000,))
    return path


def hdf5(path: Path, change: Callable[[h5py.File], None]) -> Path:
    with h5py.File(logs.write_d4rl(path, LOG), "a") as file:
        change(file)
    return path


def external_link(file: h5py.File) -> None:
    del file["observations"]
    file["observations"] = h5py.ExternalLink("/etc/passwd", "/x")


def external_storage(file: h5py.File) -> None:
    del file["actions"]
    file.create_dataset("actions", (15, 2), "f8", external=[("/etc/passwd", 0, 240)])


def text_array(file: h5py.File) -> None:
    del file["actions"]
    file["actions"] = ["a"] * 15


def short_array(file: h5py.File) -> None:
    del file["actions"]
    file["actions"] = np.zeros((14, 2))


def wide_array(file: h5py.File) -> None:
    del file["actions"]
    file.create_dataset("actions", (15, 10**12), "f8", chunks=(1, 100))


def empty_demonstration(file: h5py.File) -> None:
    """Robomimic's layout; the second of two demonstrations has no rows."""
    file.clear()
    for number, rows in enumerate((3, 0)):
        file[f"data/demo_{number}/obs/state"], file[f"data/demo_{number}/actions"] = np.zeros((2, rows, 1))


def loops(file: h5py.File) -> None:
    """Groups that contain each other many times."""
    del file["actions"]
    for number in range(10):
        file[f"infos/loop_{number}"] = file["infos"]
        file[f"infos/root_{number}"] = file["/"]


def lerobot(path: Path, **changes: Any) -> Path:
    info = path / "meta" / "info.json"
    logs.write_lerobot(path, LOG)
    info.write_text(json.dumps(json.loads(info.read_text()) | changes))
    return path


def bomb_parquet(path: Path) -> Path:
    """Twelve million equal rows in few bytes."""
    ones = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10**6, np.int8)), pa.array([1.0]))
    table = pa.table({"episode": ones, "obs": ones, "action": ones})
    with pq.ParquetWriter(path, table.schema) as file:
        for _ in range(12):
            file.write_table(table)
    return path


def minari_without(pattern: str, storage: str = "hdf5") -> str:
    """A Minari dataset with a truncated file."""
    folder = Path(os.environ["MINARI_DATASETS_PATH"]) / logs.collect_minari(LOG, "robot/cut-v0", storage) / "data"
    truncated(next(folder.glob(pattern)))
    return "minari:robot/cut-v0"


def minari_deep() -> str:
    """A Minari dataset whose observation space is nested too deeply."""
    path = (
        Path(os.environ["MINARI_DATASETS_PATH"]) / logs.collect_minari(LOG, "robot/deep-v0") / "data" / "metadata.json"
    )
    space = '{"subspaces": {"a": ' * 5000 + "{}" + "}}" * 5000
    path.write_text(json.dumps(json.loads(path.read_text()) | {"observation_space": space}))
    return "minari:robot/deep-v0"


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def repeated_name(path: Path) -> Path:
    ones = pa.array([1, 1])
    pq.write_table(pa.Table.from_arrays([ones] * 4, ["episode", "obs", "obs", "action"]), path)
    return path


def csv_text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def changed(**arrays: Any) -> dict[str, Any]:
    return {**LOG, **{name: np.where(np.arange(18)[:, None] == 2, value, LOG[name]) for name, value in arrays.items()}}


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no file": (lambda p: p / "none.npz", "there is no file or folder"),
    "unknown format": (lambda p: csv_text(p / "x.bag", "#ROSBAG"), "the format of"),
    "unknown folder": (lambda p: p, "is neither a LeRobot dataset"),
    "wrong column": (lambda p: (logs.write_csv(p / "x.csv", LOG), {"goal": ["obs_z"]}), "no column 'obs_z'"),
    "pixels": (
        lambda p: (lerobot(p), {"observation": ["observation.images.top"]}),
        "pixels, which are not supported yet",
    ),
    "float pixels": (
        lambda p: npz(p / "x.npz", **{**LOG, "timeouts": LOG["terminals"], "observations": np.zeros((18, 8, 8, 3))}),
        "pixels (three or more axes per row), which are not supported yet",
    ),
    "path in an id": (lambda _: "minari:../../etc/reach-v0", "is not the id of a Minari dataset"),
    "absolute id": (lambda _: "minari:/etc/reach-v0", "is not the id of a Minari dataset"),
    "unknown id": (lambda _: "minari:robot/none-v0", "there is no Minari dataset 'robot/none-v0'"),
    "no ends": (
        lambda p: npz(p / "x.npz", observations=LOG["observations"], actions=LOG["actions"]),
        "neither 'terminals' nor",
    ),
    "no actions": (
        lambda p: npz(p / "x.npz", **{k: v for k, v in LOG.items() if k != "actions"}),
        "which columns are the action",
    ),
    "object array": (
        lambda p: npz(p / "x.npz", **{**LOG, "actions": np.array([{}] * 18)}),
        "'actions' cannot be read: its array",
    ),
    "NaN state": (
        lambda p: npz(p / "x.npz", **changed(observations=np.nan)),
        "observations hold NaN or infinity, first in episode 0, step 2",
    ),
    "NaN action": (
        lambda p: npz(p / "x.npz", **changed(actions=np.nan)),
        "actions hold NaN or infinity, first in episode 0, step 2",
    ),
    "one-row episode": (
        lambda p: npz(p / "x.npz", **{**LOG, "terminals": np.arange(18) % 17 == 0}),
        "episode 0 has a single state",
    ),
    "empty parquet": (
        lambda p: parquet(p / "x.parquet", episode=pa.array([], pa.int64()), obs=pa.array([], pa.float64())),
        "x.parquet has no rows",
    ),
    "two columns of one name": (lambda p: repeated_name(p / "x.parquet"), "has two columns called 'obs'"),
    "two cells of one name": (
        lambda p: csv_text(p / "x.csv", "episode,obs,obs,action\n0,1,1,1\n"),
        "has two columns called 'obs'",
    ),
    "too large": (
        lambda p: npz(p / "x.npz", **changed(observations=1e39)),
        "'observations' holds numbers too large for float32 in 1 rows, first in row 2",
    ),
    "no rows": (
        lambda p: npz(p / "x.npz", **logs.transitions_of({name: values[:0] for name, values in LOG.items()})),
        "has no rows",
    ),
    "empty demonstration": (lambda p: hdf5(p / "x.h5", empty_demonstration), "demo_1 is empty: leave it out"),
    "terminals of 2": (lambda p: npz(p / "x.npz", **{**LOG, "terminals": LOG["terminals"] * 2}), "must hold 0 or 1"),
    "not successors": (
        lambda p: npz(p / "x.npz", **{**LOG, "next_observations": LOG["observations"]}),
        "does not hold the next state",
    ),
    "damaged description": (
        lambda p: npz(p / "x.npz", **LOG, description=np.array("{")),
        "description is not valid JSON",
    ),
    "truncated HDF5": (lambda p: truncated(logs.write_d4rl(p / "x.h5", LOG)), "not a readable HDF5 file"),
    "no HDF5": (lambda p: csv_text(p / "x.h5", "hello"), "not a readable HDF5 file"),
    "huge HDF5": (lambda p: huge_hdf5(p / "x.h5"), "claims to unpack to"),
    "external link": (lambda p: hdf5(p / "x.h5", external_link), "has neither 'observations' (D4RL)"),
    "external storage": (lambda p: hdf5(p / "x.h5", external_storage), "is stored in another file, which is not read"),
    "text in HDF5": (lambda p: hdf5(p / "x.h5", text_array), "'actions' does not hold real numbers"),
    "mixed lengths": (lambda p: hdf5(p / "x.h5", short_array), "'actions' has 14 rows where 'observations' has 15"),
    "wide HDF5": (lambda p: hdf5(p / "x.h5", wide_array), "'actions' has 1,000,000,000,000 columns"),
    "endless HDF5": (lambda p: hdf5(p / "x.h5", loops), "which columns are the action"),
    "wide LeRobot": (
        lambda p: lerobot(p, features={"action": {"dtype": "float32", "shape": [10**6] * 3, "names": None}}),
        "which columns are the observation",
    ),
    "deep metadata": (lambda _: minari_deep(), "not a readable Minari dataset"),
    "truncated parquet": (lambda p: truncated(logs.write_parquet(p / "x.parquet", LOG)), "not a readable parquet file"),
    "parquet bomb": (lambda p: bomb_parquet(p / "x.parquet"), "claims to unpack to"),
    "old LeRobot": (lambda p: lerobot(p, codebase_version="v2.1"), "is a LeRobot dataset of version v2.1"),
    "incomplete LeRobot": (lambda p: lerobot(p, total_frames=99), "has 15 frames where meta/info.json says 99"),
    "LeRobot in lance": (lambda p: lerobot(p, storage_format="lance"), "only parquet files can be read"),
    "LeRobot without features": (lambda p: lerobot(p, features=[]), "not a readable description"),
    "no episode column": (lambda p: csv_text(p / "x.csv", "obs,action\n1,2\n"), "no column that names the episode"),
    "ragged CSV": (lambda p: csv_text(p / "x.csv", "episode,obs,action\n1,2\n"), "line 2: it has 2 cells"),
    "text in CSV": (
        lambda p: csv_text(p / "x.csv", "episode,obs,action\n1,hot,3\n"),
        "line 2: 'hot' in the column 'obs'",
    ),
    "empty CSV": (lambda p: csv_text(p / "x.csv", ""), "its first line must name the columns"),
    "binary CSV": (lambda p: truncated(npz(p / "x.npz", **LOG)).rename(p / "x.csv"), "not a readable CSV file"),
    "episode numbers start again": (
        lambda p: csv_text(p / "x.csv", "episode,obs,action\n0,1,1\n0,1,1\n1,1,1\n1,1,1\n0,1,1\n"),
        "not contiguous",
    ),
    "two rows of one step": (
        lambda p: csv_text(p / "x.csv", "episode,t,obs,action\n0,1,1,1\n0,1,1,1\n"),
        "has two rows with t = 1",
    ),
    "two rows of one time": (
        lambda p: csv_text(p / "x.csv", f"episode,t,obs,action\n0,{NOON}Z,1,1\n0,2024-05-01T14:00:00+02:00,1,1\n"),
        f"has two rows with t = {NOON}Z",
    ),
    "empty cell for a step": (
        lambda p: csv_text(p / "x.csv", "episode,t,obs,action\n0,0,0,1\n1,1,1,1\n0,,2,1\n0,10,3,1\n"),
        "the column 't' must hold numbers or timestamps: row 3 has ''",
    ),
    "empty cell for an episode": (
        lambda p: csv_text(p / "x.csv", "episode,t,obs,action\na,0,0,1\n,1,1,1\na,2,2,1\n"),
        "row 2 does not name its episode",
    ),
    "no table": (lambda p: (npz(p / "x.npz", **LOG), {"episode": "run"}), "--episode names a column of a table"),
    "Minari without data": (lambda _: minari_without("main_data.hdf5"), "not a readable HDF5 file"),
    "truncated Arrow": (lambda _: minari_without("0/*.arrow", "arrow"), "not a readable Arrow file"),
    "damaged metadata": (lambda _: minari_without("metadata.json"), "not a readable Minari dataset"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_sentence(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, message = BAD[kind]
    made = make(tmp_path)
    source, flags = made if isinstance(made, tuple) else (made, {})
    out = tmp_path / "out" / "x.npz"
    listed = [f"--{name}={value[0] if isinstance(value, list) else value}" for name, value in flags.items()]
    assert main(["data", "convert", str(source), str(out), *listed]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert is_one_sentence(error), error
    assert not out.parent.exists()


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([], "the log has no episodes"),
        ([3], "episode 0 is of type int"),
        ([{"observations": np.zeros((3, 1))}], "episode 0 has no 'actions'"),
        ([([], [])], "episode 0 is empty: leave it out"),
        ([(np.zeros((3, 1)), np.zeros((2, 1))), (np.zeros((0, 1)), np.zeros((0, 1)))], "episode 1 is empty"),
        ([(np.zeros((1, 1)), np.zeros((0, 1)))], "episode 0 has a single state"),
        ([(np.zeros((3, 1)), np.zeros((5, 1)))], "episode 0 has 3 observations and 5 actions"),
        (
            [(np.zeros((3, 1)), np.zeros((2, 1))), (np.zeros((3, 2)), np.zeros((2, 1)))],
            "'observations' has 2 columns in episode 1, where it has 1",
        ),
        ([([[1], [1, 2]], np.zeros((2, 1)))], "episode 0: the rows of 'observations' differ in length"),
        ([(np.zeros((3, 64, 64, 3), np.uint8), np.zeros((2, 1)))], "'observations' holds pixels"),
        ([(np.zeros((3, 32, 32, 3), np.float32), np.zeros((2, 1)))], "'observations' looks like pixels (three or"),
        (
            [({"a/b": np.zeros((3, 1)), "a": {"b": np.ones((3, 1))}}, np.zeros((2, 1)))],
            "episode 0 has two arrays called 'observations/a/b'",
        ),
        ([(np.array(["a", "b"]), np.zeros((2, 1)))], "'observations' does not hold real numbers"),
        ({"observations": np.zeros((3, 1)), "actions": np.zeros((2, 1))}, "the log has neither 'terminals' nor"),
        ({"observations": {"q": np.zeros((3, 1))}, "terminals": [0, 0, 1]}, "the 'observations' of a log in one piece"),
        ({"observations": [[1], [1, 2]], "terminals": [0, 1]}, "the log: the rows of 'observations' differ in length"),
        (7, "a log of type int cannot be read"),
    ],
)
def test_bad_episodes(episodes: Any, message: str) -> None:
    with pytest.raises(DataError) as error:
        read_log(episodes)
    assert str(error.value).startswith(message)
    assert is_one_sentence(str(error.value)), error.value


@pytest.mark.parametrize(
    ("module", "extra", "source"),
    [
        ("h5py", "hdf5", lambda p: logs.write_d4rl(p / "x.hdf5", LOG)),
        ("pyarrow.parquet", "lerobot", lambda p: logs.write_lerobot(p, LOG)),
        ("h5py", "minari", lambda _: f"minari:{logs.collect_minari(LOG, 'a-v0')}"),
    ],
)
def test_missing_extra_is_named(
    module: str, extra: str, source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = source(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=rf'pip install "gtrl\[{extra}\]"'):
        read_log(made)


# --- converting ---


def test_convert_writes_a_dataset_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = logs.write_csv(tmp_path / "x.csv", LOG), tmp_path / "new" / "x.npz"
    flags = ["--goal", "obs_x", "obs_y", "--action-low=-5", "--action-high", "5", "6"]
    assert main(["data", "convert", str(source), str(out), *flags]) == 0
    printed = capsys.readouterr().out
    assert "3, with 15 transitions" in printed
    assert "goal         2 columns: obs_x, obs_y" in printed
    stored = np.load(out)
    assert_same(read_log(out), {**LOG, "goals": LOG["observations"][:, :2]})
    description = json.loads(str(stored["description"]))
    assert description["format"] == 1
    assert description["columns"]["goal"] == ["obs_x", "obs_y"]
    assert (description["action_low"], description["action_high"]) == ([-5, -5], [5, 6])
    assert description["source"] == {"format": "csv", "path": str(source), "notes": []}
    expected = fit_scaling(LOG["observations"], LOG["observations"][:, :2], LOG["actions"], ([-5, -5], [5, 6]))
    assert description["scaling"] == expected.to_json()
    again = read_log(out, observation="obs_pressure")  # names and bounds are those of the description
    np.testing.assert_array_equal(again.arrays["observations"], LOG["observations"][:, 3:])
    np.testing.assert_array_equal(again.action_high, [5, 6])


def test_slices_from_the_end_are_flags_too(tmp_path: Path) -> None:
    out = tmp_path / "y.npz"
    assert main(["data", "convert", str(npz(tmp_path / "x.npz", **LOG)), str(out), "--goal=-2:"]) == 0
    np.testing.assert_array_equal(np.load(out)["goals"], LOG["observations"][:, -2:])


def test_minari_is_written_and_read_by_its_own_package(tmp_path: Path) -> None:
    import minari

    goals = LOG["observations"][:, :2]
    path = npz(tmp_path / "x.npz", **LOG, goals=goals)
    log = convert(path, "minari:my/arm-v0", action_low=[-5], action_high=[5])
    assert_same(read_log("my/arm-v0"), {**LOG, "goals": goals})
    dataset = minari.load_dataset("my/arm-v0")
    assert dataset.total_episodes == 3
    assert dataset.action_space == gym.spaces.Box(-5, 5, (2,), np.float64)
    for episode, (states, actions) in zip(dataset.iterate_episodes(), logs.episodes_of(LOG), strict=True):
        np.testing.assert_array_equal(episode.observations["observation"], states)
        np.testing.assert_array_equal(episode.actions, actions)
    assert log.source["notes"] == []
    with pytest.raises(DataError, match="there is already a Minari dataset"):
        write_minari("my/arm-v0", log.arrays)


@pytest.mark.parametrize(
    ("out", "flags", "message"),
    [
        ("x.npz", {}, "exists already"),
        ("y.hdf5", {}, "must end in .npz"),
        ("minari:../arm-v0", {}, "is not the id of a Minari dataset"),
        ("minari:arm", {}, "ends with its version"),
        ("y.npz", {"action_low": [1]}, "give both"),
        ("y.npz", {"action_low": [1], "action_high": [0]}, "must be less"),
        ("y.npz", {"action_low": [1, 1, 1], "action_high": [2]}, "one number or 2"),
    ],
)
def test_bad_outputs(out: str, flags: dict[str, Any], message: str, tmp_path: Path) -> None:
    source = npz(tmp_path / "x.npz", **LOG)
    target = out if out.startswith("minari:") else tmp_path / out
    with pytest.raises(GtrlError, match=message) as error:
        convert(source, target, **flags)
    assert is_one_sentence(str(error.value))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npz"]


def test_actions_outside_of_the_bounds_are_noted(tmp_path: Path) -> None:
    log = convert(LOG, tmp_path / "x.npz", action_low=[-1], action_high=[9])
    outside = (LOG["actions"] < -1).any(1).sum()
    assert log.source["notes"] == [f"{outside} of 18 actions lie outside of the bounds"]


def test_assembly() -> None:
    """Two episodes: one with the state after its last action in its rows, one with it apart."""
    notes: list[str] = []
    ends = Episode("b", np.array([[5.0], [6.0]]), np.array([[0.5], [0.6]]), None, np.array([[7.0]]))
    found = assemble([Episode("a", np.array([[1.0], [2.0]]), np.array([[0.1]])), ends], notes)
    np.testing.assert_array_equal(found["observations"], [[1], [2], [5], [6], [7]])
    np.testing.assert_array_equal(found["actions"], [[0.1], [np.nan], [0.5], [0.6], [np.nan]])
    np.testing.assert_array_equal(found["terminals"], [0, 1, 0, 0, 1])
    assert notes == []

"""Dataset files: reading, reports, and rejected files."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import ogbench
import pytest
from ogbench.relabel_utils import add_oracle_reps

from gtrl.cli import main
from gtrl.data.checks import check_file
from gtrl.data.dataset import Data, make_dataset
from gtrl.data.load import as_data, load_dataset
from gtrl.errors import DataError, UnknownNameError
from gtrl.tasks import REGISTERED, TASKS, Task, ogbench_task

Write = Callable[..., Path]
MINI = "pointmaze-mini-navigate"


def arrays_of(data: Data) -> dict[str, np.ndarray]:
    return {key: np.asarray(value) for key, value in data.train._asdict().items()}


def is_one_sentence(text: str) -> bool:
    """A single line and a single full stop, at its end; stops inside names and numbers do not count."""
    return "\n" not in text and len(re.findall(r"[.?!](?=\s|\)|$)", text)) == 1 and text.endswith((".", "?"))


# --- reading ---


def test_rows_of_a_file(write_file: Write) -> None:
    actions = np.array([[1, -1], [0.5, 2e-6], [0.999995, 0], *[[0, 0]] * 6], np.float32)
    path = write_file(actions=actions)
    raw = np.load(path)
    found = arrays_of(load_dataset(path, MINI))
    np.testing.assert_array_equal(found["observations"], raw["observations"])
    np.testing.assert_array_equal(found["goals"], raw["qpos"])
    np.testing.assert_array_equal(found["ends"], [3, 3, 3, 3, 8, 8, 8, 8, 8])
    np.testing.assert_array_equal(found["transitions"], [0, 1, 2, 4, 5, 6, 7])  # never an episode's last row
    np.testing.assert_array_equal(found["identity"], np.arange(9))
    limit = np.float32(1 - 1e-5)
    np.testing.assert_array_equal(found["actions"], np.clip(actions, -limit, limit))
    assert np.abs(found["actions"]).max() == limit


def test_transitions_match_ogbench(mini_file: Path) -> None:
    """OGBench's reader builds (s, a, s') by its own rule from the same file."""
    expected = ogbench.load_dataset(mini_file, add_info=True)
    found = arrays_of(load_dataset(mini_file, MINI))
    rows = found["transitions"]
    np.testing.assert_array_equal(expected["observations"], found["observations"][rows])
    np.testing.assert_array_equal(expected["next_observations"], found["observations"][rows + 1])
    np.testing.assert_array_equal(expected["terminals"] == 1, found["ends"][rows] == rows + 1)
    np.testing.assert_allclose(expected["actions"], found["actions"][rows], atol=1.1e-5)
    add_oracle_reps(MINI, None, expected)
    np.testing.assert_array_equal(expected["oracle_reps"], found["goals"][rows])
    assert {"qpos", "qvel"} <= set(expected)


# task: numbers in the simulator's qpos, cubes, buttons
FAMILIES = {
    "pointmaze-teleport-navigate": (2, 0, 0),
    "antmaze-large-navigate": (15, 0, 0),
    "humanoidmaze-large-stitch": (28, 0, 0),
    "antsoccer-arena-navigate": (22, 0, 0),
    "cube-single-play": (21, 1, 0),
    "cube-double-play": (28, 2, 0),
    "scene-play": (25, 1, 2),
    "puzzle-3x3-play": (23, 0, 9),
    "puzzle-4x4-play": (30, 0, 16),
}


def data_for(name: str) -> dict[str, np.ndarray]:
    """Random rows of a task's shape."""
    task, (width, _, buttons) = TASKS[name], FAMILIES[name]
    rng = np.random.default_rng(1)
    arrays = {
        "observations": rng.normal(size=(9, task.observation_dim)),
        "actions": rng.uniform(-1, 1, (9, task.action_dim)),
        "qpos": rng.normal(size=(9, width)),
        "qvel": np.zeros((9, width)),
    }
    return arrays | ({"button_states": rng.integers(0, 2, (9, buttons))} if buttons else {})


@pytest.mark.parametrize("name", FAMILIES)
def test_goals_match_ogbenchs_oracle_representations(name: str, write_file: Write) -> None:
    arrays = data_for(name)
    found = arrays_of(load_dataset(write_file(**arrays), name))["goals"]
    _, cubes, buttons = FAMILIES[name]
    env = SimpleNamespace(unwrapped=SimpleNamespace(_num_cubes=cubes, _num_buttons=buttons))
    expected = dict(arrays)
    add_oracle_reps(TASKS[name].environment, env, expected)
    assert found.shape == (9, TASKS[name].goal_dim)
    np.testing.assert_allclose(found, expected["oracle_reps"], rtol=1e-6)


def test_validation_file_is_loaded_from_the_same_folder(mini_file: Path, write_file: Write) -> None:
    data = load_dataset(mini_file, MINI)
    assert data.validation is not None
    beside = np.load(mini_file.with_name(f"{MINI}-v0-val.npz"))
    np.testing.assert_array_equal(data.validation.observations, beside["observations"])
    assert data.task is ogbench_task(MINI)
    alone = write_file("alone.npz")
    assert load_dataset(alone, MINI).validation is None
    digest = load_dataset(alone, MINI).digest
    write_file("alone-val.npz")
    assert load_dataset(alone, MINI).digest != digest  # the digest covers both files
    write_file("alone-val.npz", observations=np.zeros((9, 3)), goals=np.zeros((9, 3)))
    with pytest.raises(DataError, match=r"alone-val\.npz: its dimensions differ from those of alone\.npz\.$"):
        load_dataset(alone)


def test_own_data_without_a_task(write_file: Write) -> None:
    whole = load_dataset(write_file(qpos=None, qvel=None))
    np.testing.assert_array_equal(whole.train.goals, whole.train.observations)
    assert whole.task is None
    goals = np.arange(27).reshape(9, 3)
    own = load_dataset(write_file(goals=goals), scale=False)
    np.testing.assert_array_equal(own.train.goals, goals)
    assert tuple(own.train.spec) == (2, 2, 3)  # observation, action, goal


def test_own_arrays() -> None:
    rows, terminals = np.zeros((3, 2)), np.array([0, 0, 1])  # terminals as numbers are fine
    np.testing.assert_array_equal(make_dataset(rows, rows, terminals).transitions, [0, 1])
    with pytest.raises(DataError, match=r"^the arrays are not a dataset: .*differ in length"):
        make_dataset(rows, rows[:2], terminals)


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ([0, 1], r"'identity' has shape \(2,\), not \(3,\)"),
        ([0, 1, 0, 1], r"'identity' has shape \(4,\), not \(3,\)"),
        (0, r"'identity' has shape \(\), not \(3,\)"),
        ([[0], [1], [0]], r"'identity' has shape \(3, 1\), not \(3,\)"),
        ([0.0, 1.0, 0.5], "'identity' is of type float64, not of integers"),
        (["a", "b", "a"], "'identity' is of type <U1, not of integers"),
        ([True, False, True], "'identity' is of type bool, not of integers"),
        ([0, 1, 2**31], "'identity' holds integers too large for int32"),
        (np.array([0, 1, 2**63], np.uint64), "'identity' holds integers too large for int32"),
    ],
)
def test_identity_must_be_one_integer_per_row(identity: Any, message: str) -> None:
    rows, terminals = np.zeros((3, 2)), np.array([0, 0, 1])
    with pytest.raises(DataError, match=rf"^the arrays are not a dataset: {message}\.$"):
        make_dataset(rows, rows, terminals, identity=identity)
    np.testing.assert_array_equal(make_dataset(rows, rows, terminals, identity=[2, 0, 2]).identity, [2, 0, 2])


# --- anything that can be trained on ---

OWN = Task("own", goal=[1], observation_dim=2, goal_dim=1, action_dim=2)


def test_a_task_by_reference(write_file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTERED, "entries", dict(REGISTERED.entries))
    monkeypatch.setattr(REGISTERED, "modules", {})
    data = load_dataset(write_file(), f"{__name__}:OWN")
    assert data.task is OWN
    np.testing.assert_array_equal(data.train.goals, data.train.observations[:, [1]])
    assert load_dataset(write_file(), "own").task is OWN  # registered now


def test_as_data_of_a_path(write_file: Write) -> None:
    path = write_file()
    for given in (path, str(path)):
        data = as_data(given, OWN)
        assert data.task is OWN
        assert data.source == str(path)
        np.testing.assert_array_equal(data.train.goals, data.train.observations[:, [1]])
    assert as_data(path).task is None
    with pytest.raises(DataError, match=r"nothing\.npz"):
        as_data(path.with_name("nothing.npz"))


def test_as_data_of_arrays_in_memory() -> None:
    rows, terminals = np.arange(6).reshape(3, 2), np.array([0, 0, 1])
    dataset = make_dataset(rows, rows / 10, terminals, rows[:, [1]])
    data = as_data(dataset)
    assert (data.train, data.validation, data.task, data.source) == (dataset, None, None, "memory")
    assert data.counts == {"rows": 3, "transitions": 2, "validation_rows": 0}
    assert as_data(data) is data
    own = as_data(dataset, OWN)
    assert own.task is OWN
    assert own.train is dataset
    assert as_data(own, OWN).task is OWN
    assert as_data(data, OWN).task is OWN


def test_as_data_of_another_task() -> None:
    rows, terminals = np.arange(6).reshape(3, 2), np.array([0, 0, 1])
    dataset = make_dataset(rows, rows / 10, terminals)
    with pytest.raises(DataError, match="does not match the task: goals have 2 dimensions where own has 1"):
        as_data(dataset, OWN)
    with pytest.raises(
        DataError, match="does not match the task: observations have 2 dimensions where scene-play has 40"
    ):
        as_data(dataset, "scene-play")
    with pytest.raises(DataError, match=r"^the data was loaded for the task own, not for scene-play\.$"):
        as_data(Data(dataset, task=OWN), "scene-play")
    with pytest.raises(UnknownNameError, match="unknown task 'scen-play'"):
        as_data(dataset, "scen-play")


@pytest.mark.parametrize("data", [None, 3, 2.5], ids=type)
def test_as_data_rejects_anything_else(data: Any) -> None:
    with pytest.raises(
        DataError, match=f"^data is of type {type(data).__name__}: give the path .*, a Dataset .* or Data"
    ):
        as_data(data)


# --- reporting ---


def test_report_of_a_valid_file(write_file: Write) -> None:
    path = write_file(f"{MINI}-v0.npz")
    report = check_file(path)
    assert report.task is ogbench_task(MINI)  # by the file's name
    assert (report.episodes, report.transitions, report.lengths) == (2, 7, (3, 4))
    assert report.shapes["observations"] == (9, 2)
    assert report.problems == []
    low, high = report.ranges["actions"]
    actions = np.load(path)["actions"]
    np.testing.assert_array_equal([low, high], [actions.min(0), actions.max(0)])
    assert check_file(write_file("own.npz")).task is None
    assert check_file(write_file(f"{MINI}-v0-val.npz")).task is ogbench_task(MINI)


def test_report_lists_all_problems(write_file: Write) -> None:
    observations = np.full((9, 3), np.nan)
    report = check_file(write_file(observations=observations, actions=np.full((9, 2), 3.0)), ogbench_task(MINI))
    assert len(report.problems) == 3
    assert "NaN" in report.problems[0]
    assert "outside -1 to 1" in report.problems[1]
    assert "3 dimensions" in report.problems[2]


# --- rejecting ---

NAN_ROW = np.where(np.arange(18).reshape(9, 2) == 5, np.nan, 0)
# changes to a valid file: the error message
BAD = {
    "missing key": ({"actions": None}, "it has no array 'actions'"),
    "NaN": ({"observations": NAN_ROW}, "'observations' holds NaN or infinity in 1 rows, first in row 2"),
    "NaN in qpos": ({"qpos": NAN_ROW}, "'qpos' holds NaN or infinity"),
    "infinity": ({"actions": np.full((9, 2), np.inf)}, "'actions' holds NaN or infinity in 9 rows"),
    "lengths": ({"actions": np.zeros((8, 2))}, "its arrays differ in length .*actions 8"),
    "no rows": (dict.fromkeys(("observations", "actions", "qpos", "qvel", "terminals"), np.zeros((0, 2))), "no rows"),
    "flat observations": ({"observations": np.zeros(9)}, r"'observations' has shape \(9,\)"),
    "flat qpos": ({"qpos": np.zeros(9)}, "qpos"),
    "two-dimensional terminals": ({"terminals": np.ones((9, 1))}, r"'terminals' has shape \(9, 1\)"),
    "no terminal": ({"terminals": np.zeros(9, bool)}, "no row is marked as the last of its episode"),
    "rows after": ({"terminals": np.arange(9) == 6}, "the 2 rows after the last terminal belong to no episode"),
    "single row": ({"terminals": np.isin(np.arange(9), [3, 4, 8])}, "1 episodes have a single row .*first in row 4"),
    "actions too large": ({"actions": np.full((9, 2), 1.1)}, "'actions' have absolute values up to 1.1"),
    "no actions": ({"actions": np.zeros((9, 0))}, "actions"),
    "observation dimensions": ({"observations": np.zeros((9, 3))}, "observations have 3 dimensions where .* has 2"),
    "action dimensions": ({"actions": np.zeros((9, 5))}, f"actions have 5 dimensions where {MINI} has 2"),
    "goal dimensions": ({"qpos": np.zeros((9, 1))}, "1 dimensions where the goals need 2"),
    "no qpos": ({"qpos": None}, "it has no array 'qpos', from which the goals are taken"),
    "objects": ({"observations": np.full((9, 2), None)}, "not a readable npz file"),
    "words": ({"observations": np.full((9, 2), "left")}, "observations"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_bad_arrays_are_rejected_with_a_one_line_error(
    changes: dict[str, Any], message: str, write_file: Write
) -> None:
    path = write_file(**changes)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(path, MINI)
    assert str(path) in str(caught.value)
    assert is_one_sentence(str(caught.value)), caught.value


@pytest.mark.parametrize("changes", [changes for changes, _ in BAD.values()], ids=BAD)
def test_check_command_reports_a_problem(
    changes: dict[str, Any], write_file: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "check", str(write_file(**changes)), "--task", MINI]) == 2
    output = capsys.readouterr()
    assert "problem " in output.out or output.err.startswith("gtrl: ")


@pytest.mark.parametrize(
    ("name", "key", "shape", "message"),
    [
        ("cube-double-play", "qpos", (9, 21), "cube-double-play"),  # the data of a single cube
        ("scene-play", "qpos", (9, 20), "scene-play"),
        ("scene-play", "button_states", (9,), "button_states|scene-play"),
        ("puzzle-3x3-play", "button_states", (9, 16), "goals have 16 dimensions where puzzle-3x3-play has 9"),
        ("puzzle-3x3-play", "button_states", (9,), "button_states|puzzle-3x3-play"),
        ("puzzle-3x3-play", "button_states", None, "it has no array 'button_states'"),
        ("antsoccer-arena-navigate", "qpos", (9, 15), "antsoccer-arena-navigate"),
    ],
)
def test_state_too_small_for_the_goal_is_rejected(
    name: str, key: str, shape: tuple[int, ...] | None, message: str, write_file: Write
) -> None:
    changed = data_for(name) | {key: None if shape is None else np.zeros(shape, int)}
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(write_file(**changed), name)
    assert is_one_sentence(str(caught.value)), caught.value


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def garbled(path: Path) -> None:
    """The directory of the archive is intact, the data is not."""
    content = bytearray(path.read_bytes())
    content[100:140] = b"?" * 40
    path.write_bytes(content)


def plain_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


BROKEN: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "truncated": truncated,
    "garbled": garbled,
    "text": lambda path: path.write_text("observations,actions\n1,2\n"),
    "an npy file": plain_array,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN)
def test_broken_files_are_rejected_with_a_one_line_error(damage: Callable[[Path], object], write_file: Write) -> None:
    path = write_file()
    damage(path)
    for read in (load_dataset, check_file):
        with pytest.raises(DataError) as caught:
            read(path)
        assert str(path) in str(caught.value)
        assert is_one_sentence(str(caught.value)), caught.value


def test_distinct_problems_are_counted(write_file: Write) -> None:
    path = write_file(observations=np.zeros((9, 3)), actions=np.zeros((9, 3)))
    with pytest.raises(DataError, match=r"\(and 1 more: see 'gtrl data check'\)\.$"):
        load_dataset(path, MINI)

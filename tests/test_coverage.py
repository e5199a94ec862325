"""Coverage of datasets: exits, cells, squares and buttons counted by hand; report and picture of `gtrl data check`."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from scipy.stats import chisquare

from gtrl.cli import main
from gtrl.data.checks import Fact, Report, check_file, task_of
from gtrl.data.collect.files import collect
from gtrl.data.collect.maze import MazeCollector
from gtrl.data.coverage import exits_taken
from gtrl.data.origin import validation_path
from gtrl.envs.maze import Maze, maze_of
from gtrl.report.dataset import examine
from gtrl.tasks import ogbench_task

MINI, TELEPORT = "pointmaze-mini-navigate", "pointmaze-teleport-navigate"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of a task's shape, a hundred rows in two episodes unless `terminals` is given."""

    def write(name: str, qpos: Any, terminals: Any = None, **more: Any) -> Path:
        task, rows = ogbench_task(name), len(qpos)
        last = np.isin(np.arange(rows), [rows // 2 - 1, rows - 1]) if terminals is None else terminals
        sizes = {"observations": task.observation_dim, "actions": task.action_dim}
        arrays = {key: np.zeros((rows, size), np.float32) for key, size in sizes.items()}
        if name.startswith("pointmaze"):
            arrays["observations"] = np.asarray(qpos, np.float32)
        path = tmp_path / f"{name}-v0.npz"
        np.savez(path, **arrays, terminals=last, qpos=np.asarray(qpos, np.float32), **more)  # pyright: ignore[reportArgumentType]
        return path

    return write


def facts_of(report: Report) -> dict[str, Fact]:
    return {fact.what: fact for fact in report.facts}


def shown(report: Report, what: str) -> tuple[str, str]:
    fact = facts_of(report)[what]
    return fact.found, fact.expected


# --- exits of teleporters ---

WALKS = 100


def test_exit_counts_by_hand() -> None:
    entrances, exits = np.array([[0, 0], [8, 0]]), np.array([[0, 8], [8, 8], [4, 4]])
    maze = Maze(np.ones((3, 3), bool), 4, 4, entrances, exits)
    observed = np.array([[5, 5], [0.5, 0.5], [8, 1], [7, 0], [1, 0], [3, 3]])
    actual = np.array([[5, 5], [8, 8], [4, 4], [4, 4], [0, 8], [3, 3]])
    arrays = {"observations": np.c_[observed, np.ones(6)], "qpos": np.c_[actual, np.zeros(6)]}
    np.testing.assert_array_equal(exits_taken(arrays, maze), [[1, 1, 0], [0, 0, 2]])


@pytest.fixture(scope="module")
def walks() -> dict[str, np.ndarray]:
    """Episodes of 400 steps in OGBench's teleport maze, about one teleport in two of them."""
    collector = MazeCollector(dataclasses.replace(ogbench_task(TELEPORT), trajectory_length=400))
    episodes = [collector.episode(np.random.SeedSequence([9, index])) for index in range(WALKS)]
    return {key: np.concatenate([episode[key] for episode in episodes]) for key in episodes[0]}


@pytest.fixture(scope="module")
def teleport_maze() -> Maze:
    maze = maze_of(ogbench_task(TELEPORT))
    assert maze is not None
    return maze


@pytest.fixture(scope="module")
def jumps(walks: dict[str, np.ndarray], teleport_maze: Maze) -> tuple[np.ndarray, np.ndarray]:
    """From `qpos` alone: the rows after a jump, and how often each exit followed each entrance."""
    rows, counts = [], np.zeros((2, 3), int)
    for episode in range(WALKS):
        qpos = walks["qpos"][401 * episode : 401 * (episode + 1)].astype(float)
        for step in range(1, 401):
            if np.abs(qpos[step] - qpos[step - 1]).max() > 1:
                entrance = np.linalg.norm(teleport_maze.entrances - qpos[step - 1], axis=1)
                exits = np.abs(teleport_maze.exits - qpos[step]).max(1)
                assert entrance.min() < 1.5 + 0.3  # its radius and a step
                assert exits.min() == 0
                counts[entrance.argmin(), exits.argmin()] += 1
                rows.append(401 * episode + step)
    return np.array(rows), counts


def test_exit_counts_match_the_jumps(
    walks: dict[str, np.ndarray], teleport_maze: Maze, jumps: tuple[np.ndarray, np.ndarray]
) -> None:
    rows, counts = jumps
    np.testing.assert_array_equal(exits_taken(walks, teleport_maze), counts)
    assert counts.sum() == len(rows) > 50
    shown = np.linalg.norm(walks["observations"][rows, None] - teleport_maze.entrances, axis=-1).min(1)
    assert shown.max() <= 1.5 + 1e-5  # on those rows `observations` still show the entrance
    others = np.delete(np.arange(len(walks["qpos"])), rows)
    np.testing.assert_array_equal(walks["observations"][others], walks["qpos"][others])


def test_exits_are_equally_likely(jumps: tuple[np.ndarray, np.ndarray]) -> None:
    _, counts = jumps
    assert counts.sum(1).min() > 15  # five expected at each exit
    assert chisquare(counts[0]).pvalue > 1e-3
    assert chisquare(counts[1]).pvalue > 1e-3
    assert chisquare(counts.sum(0)).pvalue > 1e-3


def test_exits_are_reported(
    walks: dict[str, np.ndarray], teleport_maze: Maze, jumps: tuple[np.ndarray, np.ndarray], write: Write
) -> None:
    path = write(TELEPORT, walks["qpos"], walks["terminals"])
    np.savez(path, **walks)  # pyright: ignore[reportArgumentType]
    report = examine(path, draw=False)
    for entrance, counts in zip(teleport_maze.entrances, jumps[1], strict=True):
        found, expected = shown(report, f"exits from ({entrance[0]:g}, {entrance[1]:g})")
        assert found == " / ".join(map(str, counts))
        assert expected == f"equally often (p = {chisquare(counts).pvalue:.2g})"
    assert report.problems == []


# --- mazes ---

# As the demo's maze is drawn: a ring of 7 by 5 cells around two isolated cells.
RING = [(i, j) for i in range(1, 6) for j in range(1, 8) if i in (1, 5) or j in (1, 7)]
CELLS = [*RING, (3, 3), (3, 5)]


def centres(cells: list[tuple[int, int]]) -> np.ndarray:
    """xy of cells (row, column), four units wide, cell (1, 1) at the origin."""
    return np.array([[4 * j - 4, 4 * i - 4] for i, j in cells], np.float32)


def test_cells_visited(write: Write) -> None:
    assert len(CELLS) == 22
    few = examine(write(MINI, centres([(1, 1)] * 60 + [(1, 2)] * 30 + [(3, 5)] * 10)), draw=False)
    assert shown(few, "cells visited") == ("3; 0 to 60 rows each, median 0", "22")
    assert shown(few, "goals") == (
        "(0, 0) to (16, 8)",
        "(-2, -2) to (26, 18)",
    )  # columns 1 to 7 and rows 1 to 5, to their edges
    assert shown(few, "goals inside the maze") == ("100.00% of the rows", "free cells")
    # Cell k for k + 1 rows, anywhere in it except at its edge.
    positions = centres([cell for k, cell in enumerate(CELLS) for _ in range(k + 1)])
    positions += np.random.default_rng(0).uniform(-1.99, 1.99, positions.shape)
    assert shown(examine(write(MINI, positions), draw=False), "cells visited") == (
        "22; 1 to 22 rows each, median 12", "22",
    )  # fmt: skip


@pytest.mark.parametrize("stray", [(2, 2), (0, 5), (4, 4), (-30, 50)])  # walls, and far outside
def test_more_than_one_percent_of_goals_in_walls_is_a_problem(stray: tuple[int, int], write: Write) -> None:
    assert examine(write(MINI, centres([(1, 1)] * 99 + [stray])), draw=False).problems == []
    report = examine(write(MINI, centres([(1, 1)] * 98 + [stray] * 2)), draw=False)
    assert report.problems == ["goals inside the maze: only 98.00% of the rows"]


def test_soccer_coverage_counts_the_ball(write: Write) -> None:
    qpos = np.zeros((100, 22))
    qpos[:, :2] = np.linspace(0, 16, 100)[:, None]  # the ant goes far, the ball is in two cells
    qpos[50:, 15:17] = (4, 8)
    report = examine(write("antsoccer-arena-navigate", qpos), draw=False)
    assert shown(report, "cells visited by the ball")[0].startswith("2; 0 to 50 rows each")


# --- manipulation ---


def cube_rows(*runs: tuple[int, tuple[float, float, float]]) -> np.ndarray:
    """Positions of a cube: the given number of rows at each place."""
    return np.concatenate([np.tile(place, (count, 1)) for count, place in runs])


def test_squares_visited_by_a_cube(write: Write) -> None:
    qpos = np.zeros((100, 28))
    # Squares of 5 cm from (0.3, -0.3) on: three of them, one twice, and a place off the table.
    low, high = (0.31, -0.29, 0.02), (0.54, 0.29, 0.02)
    qpos[:, 14:17] = cube_rows(
        (50, low), (10, (0.34, -0.26, 0.1)), (20, (0.42, 0.01, 0.1)), (10, high), (10, (0.6, 0, 0))
    )
    qpos[:, 21:24] = cube_rows((99, low), (1, (0.9, 0, 0)))
    report = examine(write("cube-double-play", qpos))
    assert shown(report, "cube 1: squares of 0.05 m visited") == ("3", "60")  # 25 by 60 cm
    assert shown(report, "cube 1: off the table")[0] == "30.0% of the rows"
    assert shown(report, "cube 1: within reach")[0] == "100.00% of the rows"
    assert shown(report, "cube 2: squares of 0.05 m visited") == ("1", "60")
    assert shown(report, "cube 2: within reach")[0] == "99.00% of the rows"
    assert report.problems == []
    qpos[:2, 21] = 0.9
    problems = examine(write("cube-double-play", qpos)).problems
    assert problems == ["cube 2: within reach: only 97.00% of the rows"]


def test_drawer_and_window(write: Write) -> None:
    qpos = np.zeros((100, 25))
    qpos[:, 14] = 0.4  # the cube
    qpos[:, 23], qpos[:, 24] = np.linspace(-0.12, -0.03, 100), np.linspace(0.05, 0.215, 100)
    buttons = np.zeros((100, 2), int)
    report = examine(write("scene-play", qpos, button_states=buttons))
    goals = "(-0.25, 0, 0, 0, 0, -2.16, 0.75) to (-0.25, 0, 0, 0, 0, -0.54, 3.23)"
    # (0.05 - 0.425) * 10, ...; buttons; drawer -0.16 * 18 to 0; window 0 to 0.2 * 15
    limits = "(-3.75, -5.5, -1.8, 0, 0, -2.88, 0) to (3.75, 5.5, 5.5, 1, 1, 0, 3)"
    assert shown(report, "goals") == (goals, limits)
    assert shown(report, "drawer positions") == ("-0.120 to -0.030 m", "-0.16 to 0 m")
    assert shown(report, "window positions") == ("0.050 to 0.215 m", "0 to 0.2 m")
    assert shown(report, "cube 1: squares of 0.05 m visited") == ("1", "60")
    assert shown(report, "combinations of buttons seen") == ("1", "4")
    assert report.problems == []  # the rails allow two centimetres more
    qpos[:3, 23] = 0.03
    problems = examine(write("scene-play", qpos, button_states=buttons)).problems
    assert problems == ["drawer within its range: only 97.00% of the rows"]


def test_buttons(write: Write) -> None:
    drawn = """000000000 110100000 110100000 000000000 000000001 000000001
               111111111 111111111 011111111 011111111"""  # two episodes
    states = np.array([[int(digit) for digit in row] for row in drawn.split()])
    ends = np.isin(np.arange(10), [5, 9])
    report = examine(write("puzzle-3x3-play", np.zeros((10, 23)), ends, button_states=states))
    assert shown(report, "goals") == ("0 to 1", "0 to 1")
    assert shown(report, "combinations of buttons seen") == ("5", "512")
    # The first three times, the second and fourth twice, the last once; none where an episode ends.
    assert shown(report, "state changes per button")[0] == "0 to 3"
    assert report.problems == []
    states[3, 4] = 2
    report = examine(write("puzzle-3x3-play", np.zeros((10, 23)), ends, button_states=states))
    assert report.problems == ["button states 0 or 1: only 90.00% of the rows"]


# --- compared with the public dataset ---


@pytest.mark.parametrize("suffix", ["", "-val", "-000", "-012-val"])
def test_task_is_inferred_from_the_file_name(suffix: str) -> None:
    assert task_of(Path(f"/data/{TELEPORT}-v0{suffix}.npz")) is ogbench_task(TELEPORT)
    assert task_of(Path(f"my-{TELEPORT}-v0{suffix}.npz")) is None


def test_other_sizes_are_reported_without_a_problem(mini_file: Path, write_file: Write) -> None:
    report = check_file(mini_file)
    differing = {fact.what: fact[1:3] for fact in report.facts if not fact.agrees}
    assert differing == {"episodes": ("12", "300")}
    assert shown(report, "transitions per episode") == ("200", "200")
    assert shown(report, "dimensions of actions") == ("2", "2")
    assert shown(report, "actions") == ("-1 to 1", "-1 to 1")
    assert report.problems == []
    assert check_file(mini_file, public=True).problems == [f"it has 12 episodes where {MINI} has 300"]
    uneven = check_file(write_file(f"{MINI}-v0-001.npz"))
    assert shown(uneven, "transitions per episode") == ("3 to 4", "200")
    assert uneven.problems == []


def test_validation_file_is_expected_to_have_a_tenth(mini_file: Path, write: Write) -> None:
    validation = mini_file.with_stem(f"{mini_file.stem}-val")
    assert shown(check_file(validation), "episodes") == ("1", "30")
    assert shown(check_file(mini_file, validation=True), "episodes") == ("12", "30")
    full = write(MINI, np.zeros((300 * 201, 2)), np.arange(300 * 201) % 201 == 200)
    assert check_file(full, public=True).problems == []
    assert check_file(full, public=True, validation=True).problems == [f"it has 300 episodes where {MINI} has 30"]


# --- the command, and its picture ---


@pytest.fixture
def mini_copy(mini_file: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(mini_file, tmp_path))


def test_check_prints_a_report_and_draws_a_picture(mini_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", str(mini_copy)]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert ["episodes", "12", "300", "differs"] in cells
    assert ["goals inside the maze", "100.00% of the rows", "free cells", ""] in cells
    assert [row[0] for row in cells[-1:]] == ["exits from (12, 0)"]  # of the demo's one teleporter
    drawn = mini_copy.with_suffix(".check.png")
    assert lines[-2:] == [f"picture      {drawn}", "no problems found"]
    height, width, _ = imread(drawn).shape
    assert (600 < width < 3000, 300 < height < 2000) == (True, True)
    assert imread(drawn)[..., :3].std() > 0.05  # not blank


def test_unwritable_picture_is_reported(mini_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mini_copy.with_suffix(".check.png").mkdir()
    assert main(["data", "check", str(mini_copy)]) == 0
    assert "could not be written" in capsys.readouterr().out


def test_picture_flag_sets_the_path(mini_copy: Path, tmp_path: Path) -> None:
    where = tmp_path / "pictures" / "own.png"
    assert main(["data", "check", str(mini_copy), "--picture", str(where)]) == 0
    assert imread(where).ndim == 3
    assert list(tmp_path.rglob("*.png")) == [where]


def test_problems_give_status_2(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(MINI, centres([(1, 1)] * 50 + [(2, 2)] * 50))
    assert main(["data", "check", str(path)]) == 2
    output = capsys.readouterr().out
    assert "problem      goals inside the maze: only 50.00% of the rows\n" in output
    assert output.endswith("this file has problems\n")
    assert main(["data", "check", str(path), "--task", "scene-play"]) == 2
    assert "observations have 2 dimensions where scene-play has 40" in capsys.readouterr().out
    assert len(list(tmp_path.glob("*.png"))) == 1


def test_manipulation_and_own_data_have_no_picture(write: Write, write_file: Write, tmp_path: Path) -> None:
    qpos = np.zeros((100, 21))
    qpos[:, 14] = 0.4
    for path in (write("cube-single-play", qpos), write_file("own.npz")):
        assert main(["data", "check", str(path)]) == 0
        assert examine(path).picture is None
        assert main(["data", "check", str(path), "--picture", str(tmp_path / "a.png")]) == 2
    assert not list(tmp_path.rglob("*.png"))


def test_task_is_read_from_the_origin_file(tmp_path: Path) -> None:
    path = collect(MINI, tmp_path / "own.npz", episodes=1, workers=1, show=False)
    assert examine(path, draw=False).task is ogbench_task(MINI)
    assert examine(validation_path(path), draw=False).task is ogbench_task(MINI)


def table_in(output: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if line.startswith("│")]


def test_report_on_a_folder_of_shards(mini_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards = [tmp_path / "shards" / f"{MINI}-v0-00{shard}.npz" for shard in range(3)]
    shards[0].parent.mkdir()
    for shard in shards:
        shutil.copy(mini_copy, shard)
    shutil.copy(mini_copy, validation_path(shards[1]))
    command = ["data", "check", str(shards[0].parent)]
    assert main(command) == 0
    output = capsys.readouterr().out
    assert f"{MINI} in 3 shards" in output
    names = [shards[0].name, shards[1].name, validation_path(shards[1]).name, shards[2].name]
    assert table_in(output) == [
        *([name, "12", "2,400", ""] for name in names),
        ["all training files", "36", "7,200", ""],
        ["all validation files", "12", "2,400", ""],
    ]
    assert main([*command, "--picture", str(tmp_path / "a.png")]) == 2
    assert capsys.readouterr().err.endswith("is a folder of 3 shards; --picture draws one file.\n")
    assert not list(tmp_path.rglob("*.png"))


def test_problems_in_a_folder_of_shards(write_file: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "abc":
        write_file(f"{name}.npz")
    write_file("b.npz", actions=np.full((9, 2), np.inf))
    write_file("d.npz", observations=np.zeros((9, 5)))
    assert main(["data", "check", str(tmp_path)]) == 2
    problems = {row[0]: row[3] for row in table_in(capsys.readouterr().out)}
    assert problems["a.npz"] == problems["c.npz"] == ""
    assert problems["b.npz"] == "'actions' holds NaN or infinity in 9 rows, first in row 0"
    assert problems["d.npz"] == "its task or its dimensions differ from the first file's"
    (tmp_path / "c.npz").write_bytes(b"PK")
    assert main(["data", "check", str(tmp_path)]) == 2
    assert "c.npz is not a readable npz file" in capsys.readouterr().err

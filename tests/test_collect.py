"""The point-maze collector: its shortest paths, its protocol, and files that depend on their seed alone."""

import contextlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path

from gtrl import console
from gtrl.data.collect import plan
from gtrl.data.collect.files import collect
from gtrl.data.collect.maze import POINT_NOISE, MazeCollector
from gtrl.data.collect.plan import Plan
from gtrl.envs.make import make_environment
from gtrl.envs.maze import Maze
from gtrl.errors import ConfigError, DataError
from gtrl.tasks import ogbench_task

MINI = "pointmaze-mini-navigate"
ROWS = ogbench_task(MINI).trajectory_length + 1  # an episode: L transitions and the last state
MAZES = ("pointmaze-medium-navigate", "pointmaze-large-navigate", "pointmaze-teleport-navigate")


@pytest.fixture(scope="module", params=MAZES)
def maze(request: pytest.FixtureRequest) -> Any:
    """OGBench's maze, which has its own shortest-path oracle."""
    return make_environment(ogbench_task(request.param)).unwrapped


def cells_of(maze: Any) -> list[tuple[int, int]]:
    rows, columns = maze.maze_map.shape
    return [(i, j) for i in range(rows) for j in range(columns) if maze.maze_map[i, j] == 0]


def distances_of(maze: Any) -> np.ndarray:
    """Between all pairs of free cells, by SciPy; infinite where there is no path."""
    cells = np.array(cells_of(maze))
    return shortest_path(np.abs(cells[:, None] - cells[None]).sum(-1) == 1, unweighted=True)


# --- the maze as a graph ---


def plan_of(env: Any) -> Maze:
    maze = Maze.from_env(env)
    assert maze is not None
    return maze


def test_next_cell_matches_ogbenchs_oracle(maze: Any) -> None:
    plan = plan_of(maze)
    cells = cells_of(maze)
    assert plan.cells == cells
    for goal in cells:
        table = plan.towards(goal)
        for cell in cells:
            expected, _ = maze.get_oracle_subgoal(maze.ij_to_xy(cell), maze.ij_to_xy(goal))
            assert maze.ij_to_xy(table[cell]) == tuple(expected), (cell, goal)


def test_vertices_are_all_cells_except_straight_hallways(maze: Any) -> None:
    def walls(cell: tuple[int, int]) -> set[str]:
        i, j = cell
        around = {"up": (i - 1, j), "down": (i + 1, j), "left": (i, j - 1), "right": (i, j + 1)}
        return {side for side, other in around.items() if maze.maze_map[other] == 1}

    hallways = ({"up", "down"}, {"left", "right"})
    expected = [cell for cell in cells_of(maze) if walls(cell) not in hallways]
    assert plan_of(maze).vertices == expected
    assert 0 < len(expected) < len(cells_of(maze))


def test_stitch_goals_are_exactly_four_cells_away(maze: Any) -> None:
    cells, between = cells_of(maze), distances_of(maze)
    for index, start in enumerate(cells):
        away = [cell for cell, distance in zip(cells, between[index], strict=True) if distance == 4]
        assert plan_of(maze).at_distance(start, 4) == (away or [start])


def test_isolated_cell_is_its_own_stitch_goal() -> None:
    maze = make_environment(ogbench_task("pointmaze-teleport-stitch")).unwrapped
    assert plan_of(maze).at_distance((1, 7), 4) == [(1, 7)]


# --- the protocol ---


class Watched(MazeCollector):
    """Records the agent's position, target cell and direction, and the direction that OGBench's oracle gives."""

    def watch(self, seed: int) -> tuple[Any, list[tuple[np.ndarray, tuple[int, int], np.ndarray, np.ndarray]]]:
        self.seen = []
        return self.episode(np.random.SeedSequence(seed)), self.seen

    def direction(self, goal: tuple[int, int]) -> np.ndarray:
        xy = self.simulator.get_xy()
        subgoal, _ = self.simulator.get_oracle_subgoal(xy, self.simulator.ij_to_xy(goal))
        found = super().direction(goal)
        self.seen.append((xy, goal, found, subgoal - xy))
        return found


def test_stitch_walks_four_cells_and_stays() -> None:
    collector = Watched(ogbench_task("pointmaze-medium-stitch"))
    between, cells = distances_of(collector.simulator), cells_of(collector.simulator)
    for seed in range(5):
        episode, seen = collector.watch(seed)
        start, end = (cells.index(collector.simulator.xy_to_ij(episode["qpos"][row])) for row in (0, -1))
        assert between[start, end] == 4
        assert {goal for _, goal, _, _ in seen} == {cells[end]}


def test_navigate_draws_a_new_vertex_on_arrival() -> None:
    collector = Watched(ogbench_task("pointmaze-medium-navigate"))
    goals = set()
    arrivals = 0
    for seed in range(4):
        _, seen = collector.watch(seed)
        goals |= {goal for _, goal, _, _ in seen}
        for (_, goal, _, _), (xy, following, _, _) in itertools.pairwise(seen):
            if following != goal:
                arrivals += 1
                # Success is within 1 of the goal, which lies within 1 of its cell's centre along each axis.
                assert np.linalg.norm(xy - collector.simulator.ij_to_xy(goal)) <= 1 + 2**0.5
    assert arrivals > 10
    assert goals <= set(collector.maze.vertices)
    assert len(goals) > 5


@pytest.fixture(scope="module")
def walk() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Actions, the directions they were made of, and the vectors to OGBench's subgoal, over a few episodes."""
    collector = Watched(ogbench_task("pointmaze-teleport-stitch"))
    episodes = [collector.watch(seed) for seed in range(10)]
    actions = np.concatenate([episode["actions"] for episode, _ in episodes])
    directions, ways = (np.array([row[k] for _, seen in episodes for row in seen]) for k in (2, 3))
    return actions, directions, ways


def test_direction_is_the_unit_vector_to_ogbenchs_subgoal(walk: tuple[np.ndarray, ...]) -> None:
    _, directions, ways = walk
    far = np.linalg.norm(ways, axis=-1) > 1e-3  # at the goal itself there is no direction
    expected = ways[far] / np.linalg.norm(ways[far], axis=-1, keepdims=True)
    np.testing.assert_allclose(directions[far], expected, atol=2e-3)


def test_noise_has_standard_deviation_one_half(walk: tuple[np.ndarray, ...]) -> None:
    actions, directions, _ = walk
    assert POINT_NOISE == 0.5
    assert np.abs(actions).max() == 1
    # Across the path the direction is about 0, so that clipping touches the outer 5 % only and the quantiles at one
    # standard deviation are those of the noise itself.
    noise = (actions - directions)[np.abs(directions) < 0.2]
    assert len(noise) > 1000
    low, middle, high = np.quantile(noise, [0.1587, 0.5, 0.8413])
    assert (high - low) / 2 == pytest.approx(0.5, abs=0.05)
    assert middle == pytest.approx(0, abs=0.05)


def test_same_seed_gives_the_same_episode() -> None:
    """A `SeedSequence` counts what it has spawned; that must not matter."""
    collector, seed = MazeCollector(ogbench_task(MINI)), np.random.SeedSequence(3)
    first, second = collector.episode(seed), collector.episode(seed)
    for key in first:
        np.testing.assert_array_equal(first[key], second[key])


# --- files ---


def test_collected_file_layout(mini_file: Path) -> None:
    data = np.load(mini_file)
    assert set(data) == {"observations", "actions", "terminals", "qpos", "qvel"}
    assert data["terminals"].dtype == bool
    last = data["terminals"].reshape(12, ROWS)  # L + 1 rows each
    assert last[:, -1].all()
    assert not last[:, :-1].any()
    for key in ("observations", "actions", "qpos", "qvel"):
        assert data[key].shape == (12 * ROWS, 2)
        assert data[key].dtype == np.float32
    assert np.abs(data["actions"]).max() == 1
    assert np.load(mini_file.with_name(f"{MINI}-v0-val.npz"))["observations"].shape == (ROWS, 2)


def test_row_after_a_teleport_shows_the_entrance_and_the_exit() -> None:
    """OGBench moves the agent after the observation was taken: `observations` lag behind `qpos` for that one row."""
    collector = MazeCollector(ogbench_task("pointmaze-teleport-navigate"))
    episodes = [collector.episode(np.random.SeedSequence(seed)) for seed in range(6)]
    observed = np.concatenate([episode["observations"] for episode in episodes])
    actual = np.concatenate([episode["qpos"] for episode in episodes])
    moved = np.flatnonzero((observed != actual).any(1))
    assert len(moved) > 10
    ports = collector.simulator._teleport_info
    entrances, exits = (np.array(ports[f"teleport_{key}_xys"], np.float32) for key in ("in", "out"))
    to_entrances = np.linalg.norm(observed[moved, None] - entrances, axis=-1)
    assert (to_entrances.min(1) <= 1.5 + 1e-5).all()
    to_exits = np.linalg.norm(actual[moved, None] - exits, axis=-1)
    assert to_exits.min(1).max() == 0
    assert set(to_exits.argmin(1)) == {0, 1, 2}  # by chance one of three
    # The walk continues from the exit: a step is 0.2 at most along each axis.
    inner = moved[moved % 1001 != 1000]
    assert np.abs(observed[inner + 1] - actual[inner]).max() < 0.3
    assert np.abs(observed[inner + 1] - observed[inner]).max(1).min() > 1


def test_same_seed_gives_the_same_bytes_for_any_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(name: str, **options: Any) -> list[bytes]:
        path = collect(MINI, tmp_path / f"{name}.npz", episodes=5, **options)
        return [path.read_bytes(), path.with_name(f"{name}-val.npz").read_bytes()]

    one = both("one", workers=1, seed=7)
    monkeypatch.setattr(plan, "ROWS_PER_PART", 2 * ROWS)  # three parts, so that both workers have some
    assert both("two", workers=2, seed=7) == one
    other = both("other", workers=2, seed=8)
    assert all(first != second for first, second in zip(one, other, strict=True))


@pytest.mark.usefixtures("in_process")
def test_episodes_do_not_depend_on_how_many_are_collected(mini_file: Path, tmp_path: Path) -> None:
    few = np.load(collect(MINI, tmp_path / "few.npz", episodes=3, workers=1))
    many = np.load(mini_file)
    held_out = np.load(mini_file.with_name(f"{MINI}-v0-val.npz"))
    for key in few:
        np.testing.assert_array_equal(few[key], many[key][: 3 * ROWS])
    assert not np.array_equal(held_out["actions"], many["actions"][:ROWS])  # validation has different episodes


@pytest.mark.parametrize(("episodes", "expected"), [(1000, 100), (5000, 500), (25, 2), (12, 1), (10, 1), (1, 1)])
def test_validation_has_a_tenth_of_the_episodes(episodes: int, expected: int) -> None:
    assert Plan(ogbench_task(MINI), Path("a.npz"), episodes).validation_episodes == expected


@pytest.mark.usefixtures("in_process")
def test_progress_counts_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, done = [], []

    def bar(_: str, total: int, unit: str, show: bool, before: int) -> Any:
        begun.append((total, unit, show, before))
        return contextlib.nullcontext(lambda rows, _="": done.append(rows))

    monkeypatch.setattr(console, "bar", bar)
    collect(MINI, tmp_path / "a.npz", episodes=9, workers=1)
    assert begun == [(10 * ROWS, "steps", True, 0)]
    assert sum(done) == 10 * ROWS
    assert len([rows for rows in done if rows]) == 4  # parts of 4, 4 and 1 episodes, and one for validation


@pytest.mark.parametrize("taken", ["own.npz", "own-val.npz"])
def test_collect_never_overwrites(taken: str, tmp_path: Path) -> None:
    (tmp_path / taken).write_text("precious")
    with pytest.raises(DataError, match=rf"{taken} exists already"):
        collect(MINI, tmp_path / "own.npz", episodes=1, workers=1)
    assert [path.name for path in tmp_path.iterdir()] == [taken]
    assert (tmp_path / taken).read_text() == "precious"


@pytest.mark.parametrize(
    ("task", "out", "options", "error", "message"),
    [
        (MINI, "a.npz", {"episodes": 0}, ConfigError, "episodes is 0"),
        (MINI, "a.npz", {"workers": 0}, ConfigError, "workers is 0"),
        (MINI, "a.npz", {"seed": -1}, ConfigError, "seed is -1"),
        (MINI, "a.npy", {}, DataError, r"must end in \.npz"),
        ("antmaze-large-navigate", "a.npz", {}, DataError, "needs an expert that can walk"),
    ],
)
@pytest.mark.usefixtures("no_shipped_experts")
def test_invalid_collections_are_rejected(
    task: str, out: str, options: dict[str, int], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        collect(task, tmp_path / out, **options)  # pyright: ignore[reportArgumentType]
    assert not list(tmp_path.iterdir())

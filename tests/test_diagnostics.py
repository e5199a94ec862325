"""Diagnostics with known answers: exact critics in finite mazes, and independent computations on a small run."""

import inspect
import json
import math
import shutil
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import cell_maze
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cell_maze import GAMMA, MAZES, TASKS, policy_values, tables
from scipy.sparse.csgraph import shortest_path
from scipy.stats import rankdata

import gtrl
from gtrl import cli
from gtrl.algorithms import make
from gtrl.algorithms.base import Algorithm
from gtrl.cli.diagnose import diagnose_command
from gtrl.data.dataset import make_dataset
from gtrl.data.sampling import gather
from gtrl.envs.goals import GoalEpisodes
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment
from gtrl.envs.maze import Maze, maze_of
from gtrl.errors import ConfigError, RunError
from gtrl.evaluation.diagnostics import EPISODES, distance, luck, policy, sections, targets
from gtrl.evaluation.diagnostics import diagnose as diagnose_module
from gtrl.evaluation.diagnostics.diagnose import diagnose
from gtrl.evaluation.maps import MAX_PATH_POINTS, decode_values, recorded_paths
from gtrl.evaluation.rollout import Episode
from gtrl.io import mlp
from gtrl.io.npz import write_npz
from gtrl.runs.restore import load_state
from gtrl.runs.run import Run
from gtrl.tasks import ogbench_task
from gtrl.theory.examples import teleport_maze
from gtrl.theory.values import divide_and_conquer_values, graph_distances, optimal_values
from gtrl.training import loop, monitor

MINI = "pointmaze-mini-navigate"
pytestmark = pytest.mark.usefixtures("in_process_file")
ALL_WITH_PATH = "all with a path"
SMALL_FIELDS = {"steps": 2, "batch_size": 8, "hidden": (8,), "log_every": 1, "show": False}


# --- exact tables ---


def test_v_star_in_a_deterministic_maze_has_no_gap_and_rank_correlation_1() -> None:
    process = MAZES["plain"].process
    values, actions = tables("plain", "optimal")
    returns, distances = policy_values(process, actions, GAMMA), graph_distances(process).astype(int)
    rows = luck.luck_gap(values.ravel(), returns.ravel(), distances.ravel())
    assert [row.distance for row in rows] == ["all", "0", "1", "2–3", "4–7", "8–15"]
    assert max(abs(row.gap) for row in rows) < 1e-12
    assert sum(row.states for row in rows[1:]) == rows[0].states == values.size
    whole, *by_distance = distance.value_against_distance(values, distances, None, GAMMA)
    assert whole.correlation == pytest.approx(1, abs=1e-12)
    assert [row.steps_per_cell for row in by_distance] == pytest.approx([1.0] * len(by_distance))


def test_v_dc_in_a_teleport_maze_has_the_luck_gap_it_must() -> None:
    """Against plain loops over all pairs, and by hand in the small maze."""
    process = teleport_maze().process
    values, distances = divide_and_conquer_values(process, GAMMA), graph_distances(process).astype(int)
    returns = policy_values(process, cell_maze.greedy(process, values, "lucky"), GAMMA)
    rows = {row.distance: row for row in luck.luck_gap(values.ravel(), returns.ravel(), distances.ravel())}
    for label, (low, high) in {"0": (0, 0), "2–3": (2, 3), "8–15": (8, 15)}.items():
        pairs = [(s, g) for s, g in np.ndindex(distances.shape) if low <= distances[s, g] <= high]
        expected = sum(values[pair] - returns[pair] for pair in pairs) / len(pairs)
        assert rows[label].gap == pytest.approx(expected, abs=1e-12)
    assert rows["0"].gap == 0
    assert rows["8–15"].gap > 0.01
    assert (values - returns).min() > -1e-12
    assert (returns <= optimal_values(process, GAMMA) + 1e-9).all()

    # From s, T leads to A, one step before g, or to B, from where the lucky path is back to s and through T again.
    names, (values, actions) = MAZES["teleport"].names, tables("teleport", "lucky")
    s, g = names["s"], names["g"]
    by_hand = 0.5 * GAMMA**2 / (1 - 0.5 * GAMMA**3)
    value = policy_values(MAZES["teleport"].process, actions, GAMMA)[s, g]
    (row, _) = luck.luck_gap(values[[s], [g]], np.array([value]), np.array([8]))
    assert (row.value, row.outcome) == pytest.approx((GAMMA**2, by_hand))
    assert row.gap == pytest.approx(GAMMA**2 - by_hand)


def test_gap_is_a_mean_over_seeds_that_count_the_same() -> None:
    values, returns, seeds = np.array([1.0, 0.0, 0.0, 0.6]), np.array([0.0, 0.0, 0.0, 0.1]), np.array([0, 0, 0, 1])
    row = luck.luck_gap(values, returns, np.array([1, 1, 1, 1]), seeds=seeds)[0]
    assert (row.value, row.outcome, row.gap) == pytest.approx(((1 / 3 + 0.6) / 2, 0.05, (1 / 3 + 0.5) / 2))


def test_bins_and_implied_steps_by_hand() -> None:
    found = {label: mask.tolist() for label, mask in sections.bins(np.array([-1, 0, 3, 40]), sections.CELL_EDGES)}
    assert found == {
        "0": [False, True, False, False],
        "2–3": [False, False, True, False],
        "32+": [False, False, False, True],
        "no path": [True, False, False, False],
    }
    steps = sections.implied_steps(np.array([1.0, 0.99**7, 0.0, 1.5]), 0.99)
    np.testing.assert_allclose(steps, [0, 7, math.log(1e-6) / math.log(0.99), 0], atol=1e-9)
    section = sections.Section("a", "", "", ("x",), [[np.float32(0.5), math.nan, np.int64(2), "text", None]])
    assert section.to_json()["rows"] == [[0.5, None, 2, "text", None]]


def test_values_by_group_against_numpy() -> None:
    """Random values of two seeds: Spearman's correlation as Pearson's of ranks, and means of the groups."""
    rng = np.random.default_rng(0)
    distances = graph_distances(MAZES["plain"].process).astype(int)
    values, connected = rng.random((2, *distances.shape)), rng.random(distances.shape) < 0.5
    rows = distance.value_against_distance(values, distances, connected, GAMMA)
    off_diagonal = ~np.eye(len(distances), dtype=bool)
    for group, members in (("all", off_diagonal), ("connected", connected & off_diagonal)):
        found = next(row for row in rows if row.group == group and row.distance == ALL_WITH_PATH)
        ranks = [rankdata(values[seed][members]) for seed in (0, 1)]
        expected = np.mean([np.corrcoef(rank, rankdata(-distances[members]))[0, 1] for rank in ranks])
        assert found.correlation == pytest.approx(expected)
        assert (found.pairs, found.value) == (members.sum(), pytest.approx(values[:, members].mean()))
    two_three = connected & (distances >= 2) & (distances <= 3)
    found = next(row for row in rows if (row.group, row.distance) == ("connected", "2–3"))
    steps = np.log(np.maximum(values[:, two_three], 1e-6)) / math.log(GAMMA)
    assert found.steps_per_cell == pytest.approx(steps.mean() / distances[two_three].mean())
    assert sum(row.pairs for row in rows if row.distance != ALL_WITH_PATH) == off_diagonal.sum()


def test_constant_values_have_no_rank_correlation() -> None:
    distances = np.array([[0, 1, -1], [1, 0, 2], [-1, 2, 0]])
    rows = distance.value_against_distance(np.full((3, 3), 0.5), distances, None, GAMMA)
    assert rows[0].correlation is None
    assert [(row.distance, row.pairs, row.steps_per_cell is None) for row in rows[1:]] == [
        ("1", 2, False), ("2–3", 2, False), ("no path", 2, True),
    ]  # fmt: skip


def test_all_with_a_path_leaves_out_what_all_of_the_luck_gap_includes() -> None:
    """By hand: a pair without a path has the value 1, all others 0.5 and the return 0.5."""
    distances = np.array([[0, 1, -1], [1, 0, 2], [-1, 2, 0]])
    values = np.where(distances < 0, 1.0, 0.5)
    whole = distance.value_against_distance(values, distances, None, GAMMA)[0]
    assert (whole.group, whole.distance, whole.pairs, whole.value) == ("all", ALL_WITH_PATH, 4, 0.5)
    row = luck.luck_gap(values.ravel(), np.full(9, 0.5), distances.ravel())[0]
    assert (row.distance, row.states, row.gap) == ("all", 9, pytest.approx(2 * 0.5 / 9))


def corridor_section(values: np.ndarray) -> tuple[sections.Section, bool | None]:
    """The section for values (seeds, 4, 4) in a corridor of four cells, and whether they order its states."""
    maze = Maze(np.array([[0] * 6, [0, 1, 1, 1, 1, 0], [0] * 6], bool), 4.0, 4.0)
    section = distance.distance_section(values, maze, None, GAMMA, is_return=True)
    return section, distance.orders_states(values, distance.pair_distances(maze))


def test_seeds_whose_values_are_the_same_everywhere_are_found() -> None:
    """One seed is perfect, one wrong where it matters most, and one constant, which counts as 0."""
    steps = np.abs(np.subtract.outer(range(4), range(4)))
    perfect, constant = GAMMA**steps, np.full((4, 4), 0.9)
    mixed = np.where(steps == 1, 0.5, GAMMA**steps)
    off_diagonal = steps > 0
    ranks = [rankdata(values[off_diagonal]) for values in (mixed, -steps)]
    correlation = np.corrcoef(*ranks)[0, 1]

    section, orders = corridor_section(np.stack([perfect, constant, mixed]))
    assert section.rows[0][-1] == pytest.approx((1 + correlation) / 2)
    assert section.finding.startswith(
        "The values of 1 of 3 seeds are the same everywhere; rank correlation of value and nearness for the others "
        f"{(1 + correlation) / 2:.2f}"
    )
    assert orders is False
    assert (1 + correlation) / 3 < distance.MIN_CORRELATION < 1 / 2
    assert corridor_section(np.stack([perfect, constant]))[1] is True
    section, orders = corridor_section(np.stack([constant, constant]))
    assert (section.rows[0][-1], section.finding, orders) == (None, "The values are the same everywhere.", False)
    section, orders = corridor_section(np.stack([perfect, perfect]))
    assert section.finding == "Rank correlation of value and nearness 1.00."
    assert orders is True


@pytest.mark.parametrize(
    ("orders_states", "any_success", "clause"),
    [
        (True, True, ""),
        (None, None, ""),
        (False, True, ", but the critic does not order states by distance, so this says little"),
        (False, False, ", but the critic does not order states by distance, so this says little"),
        (True, False, ", but no episode succeeded, so the critic may be wrong"),
        (None, False, ", but no episode succeeded, so the critic may be wrong"),
    ],
)
def test_findings_about_a_bad_critic_are_qualified(
    orders_states: bool | None, any_success: bool | None, clause: str
) -> None:
    section = sections.Section("policy", "", "", (), [], "The policy raises the critic.")
    found = sections.qualified(section, orders_states, any_success)
    assert found
    assert found.finding == f"The policy raises the critic{clause}."
    assert sections.qualified(None, orders_states, any_success) is None


def test_connected_cells_by_hand() -> None:
    """One trajectory A, B, C and one C, A: C is before A, and B before C, but neither C nor A is before B again."""
    maze = Maze(np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]], bool), 4.0, 4.0)
    a, b, c = maze.xy(maze.cells)
    positions, ends = np.array([a, b, c, c, a]), np.array([2, 2, 2, 4, 4])
    found = distance.connected_cells(maze, positions, positions, ends)
    np.testing.assert_array_equal(found, [[False, True, True], [False, False, True], [True, False, False]])
    # A teleporter moved the agent from B to A: the goal of that row is A.
    goals = np.array([a, a, c, c, a])
    found = distance.connected_cells(maze, positions, goals, ends)
    np.testing.assert_array_equal(found, [[True, False, True], [False, False, True], [True, False, False]])


# --- the whole pipeline, with a critic that is known ---


@pytest.fixture(scope="module")
def exact_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Run]:
    """Runs of a method whose critic is V* or V_DC, by maze and critic."""
    folder, runs = tmp_path_factory.mktemp("exact"), {}
    for thing in (cell_maze.TableMethod, *TASKS.values()):
        gtrl.register(thing)
    for name, critic in (("plain", "optimal"), ("teleport", "optimal"), ("teleport", "lucky")):
        file = folder / f"{name}.npz"
        if not file.exists():
            cell_maze.write_data(file, name)
        method = make("tables", gamma=GAMMA, maze=name, critic=critic)
        runs[name, critic] = gtrl.train(
            method, file, task=TASKS[name], out=folder / f"{name}-{critic}", seeds=0, **SMALL_FIELDS
        )
    return runs


def section_of(content: dict[str, Any], name: str) -> dict[str, Any]:
    return next(section for section in content["sections"] if section["name"] == name)


def gaps_of(content: dict[str, Any]) -> dict[str, list[float]]:
    return {row[0]: row[1:] for row in section_of(content, "luck-gap")["rows"]}


def simulated_gaps(name: str, critic: str, episodes: int) -> dict[int, list[tuple[float, float]]]:
    """(value, return) of every state of the policy's episodes by its distance, simulated with the tables alone."""
    values, actions = tables(name, critic)
    cells = [tuple(cell) for cell in MAZES[name].cells.tolist()]
    env: Any = make_environment(TASKS[name]).unwrapped
    walls = env.maze_map
    free = [(i, j) for i, j in np.ndindex(walls.shape) if not walls[i, j]]
    adjacent = [[abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1 for b in free] for a in free]
    steps = shortest_path(np.array(adjacent), unweighted=True)
    episode_env = GoalEpisodes(TASKS[name], IsolatedEnv(make_environment(TASKS[name])))
    found = defaultdict(list)
    for number, goal in np.ndindex(episodes, len(env.task_infos)):
        episode_env.reset(Episode(goal + 1, number).seed(0), goal + 1)
        inner: Any = episode_env.env.env.unwrapped
        g, visited, ended, success = cells.index(inner.goal), [], False, False
        while not ended:
            visited.append(inner.cell)
            di, dj = cell_maze.FOUR_MOVES[actions[cells.index(inner.cell), g]]
            _, success, ended = episode_env.step(np.array([dj, di], np.float32))
        for t, cell in enumerate(visited):
            outcome = GAMMA ** (len(visited) - t) if success else 0.0
            found[int(steps[free.index(cell), free.index(inner.goal)])].append((values[cells.index(cell), g], outcome))
    return found


def test_diagnose_finds_no_gap_where_the_critic_is_v_star(exact_runs: dict[tuple[str, str], Run]) -> None:
    run = exact_runs["plain", "optimal"]
    content = diagnose(run, episodes=2, workers=1, show=False)
    assert content == json.loads((run.path / "diagnostics.json").read_text())
    assert {key: content[key] for key in ("step", "task", "method", "seeds", "notes")} == {
        "step": 2, "task": "cells-plain", "method": "tables", "seeds": [0], "notes": [],
    }  # fmt: skip
    gaps = gaps_of(content)
    expected = simulated_gaps("plain", "optimal", 2)
    assert gaps["all"][0] == sum(map(len, expected.values()))
    assert max(abs(row[-1]) for row in gaps.values()) < 1e-6
    assert section_of(content, "luck-gap")["finding"].startswith("The value agrees with the return")
    whole = section_of(content, "distance")["rows"][0]
    assert whole[:3] == ["all", ALL_WITH_PATH, 18 * 17]
    assert whole[4:] == pytest.approx([1, 1], abs=1e-4)


def test_diagnose_finds_the_luck_gap_where_the_critic_is_v_dc(exact_runs: dict[tuple[str, str], Run]) -> None:
    """The numbers equal those of a simulation of the same episodes; their mean is the exact gap, up to chance."""
    episodes = 300
    start_gaps = {}
    for critic in ("optimal", "lucky"):
        gaps = gaps_of(diagnose(exact_runs["teleport", critic], episodes=episodes, workers=1, show=False))
        simulated = simulated_gaps("teleport", critic, episodes)
        far = np.array([pair for steps, pairs in simulated.items() if 8 <= steps < 16 for pair in pairs])
        assert gaps["8–15"] == pytest.approx([len(far), *far.mean(0), far[:, 0].mean() - far[:, 1].mean()], abs=1e-6)
        everything = np.array([pair for pairs in simulated.values() for pair in pairs])
        assert gaps["all"][:3] == pytest.approx([len(everything), *everything.mean(0)], abs=1e-6)
        start_gaps[critic] = gaps["8–15"][-1]  # only the start, s, is 8 cells from the goal
    returns = 0.5 * GAMMA**2 / (1 - 0.5 * GAMMA**3)
    assert start_gaps["lucky"] == pytest.approx(GAMMA**2 - returns, abs=0.06)  # 0.17
    assert start_gaps["optimal"] == pytest.approx(0, abs=0.06)


@pytest.mark.parametrize(("name", "critic", "cell_count"), [("plain", "optimal", 18), ("teleport", "lucky", 11)])
def test_connected_pairs_and_policy_against_loops(
    exact_runs: dict[tuple[str, str], Run], name: str, critic: str, cell_count: int
) -> None:
    run = exact_runs[name, critic]
    content = diagnose(run, episodes=1, workers=1, show=False)
    data = np.load(run.config["data"]["source"])
    cells = [(round(y / 4) + 1, round(x / 4) + 1) for x, y in data["observations"].tolist()]
    starts = np.r_[0, np.flatnonzero(data["terminals"]) + 1]
    ahead = [(i, range(i + 1, end)) for first, end in pairwise(starts) for i in range(first, end - 1)]
    pairs = {(cells[i], cells[j]) for i, later in ahead for j in later if cells[i] != cells[j]}
    states, (values, actions) = [tuple(cell) for cell in MAZES[name].cells.tolist()], tables(name, critic)
    rows = {(row[0], row[1]): row[2:] for row in section_of(content, "distance")["rows"]}
    connected, unconnected = rows["connected", ALL_WITH_PATH], rows["unconnected", ALL_WITH_PATH]
    assert (connected[0], unconnected[0]) == (len(pairs), cell_count * (cell_count - 1) - len(pairs))
    mean = np.mean([values[states.index(s), states.index(g)] for s, g in pairs])
    assert connected[1] == pytest.approx(mean, abs=1e-6)

    # The exact share over all transitions and goals ahead. The stub's critic is the product of action and direction.
    critic_at_logged = []
    for i, later in ahead:
        best = [cell_maze.FOUR_MOVES[actions[states.index(cells[i]), states.index(cells[j])]] for j in later]
        products = np.array([np.dot(data["actions"][i], move[::-1]) for move in best])
        critic_at_logged.append((products.mean(), (products < 1).mean()))
    expected_logged, expected_share = np.mean(critic_at_logged, 0)
    (seed, chosen, logged, difference, share), = section_of(content, "policy")["rows"]  # fmt: skip
    assert (seed, chosen) == ("0", 1)
    assert logged == pytest.approx(expected_logged, abs=0.06)  # 4096 rows are drawn: a standard error of 0.012
    assert share == pytest.approx(expected_share, abs=0.04)
    assert difference == pytest.approx(chosen - logged, abs=1e-6)


def test_advantage_by_hand() -> None:
    found = policy.advantage(np.array([1.0, 2.0, 0.0, 3.0]), np.array([0.0, 2.0, 1.0, 1.0]))
    assert found == pytest.approx((1.5, 1.0, 0.5, 0.5))


# --- GTRL's targets and weights ---


def test_targets_over_training_by_hand() -> None:
    rows = [
        {"step": step, "seed": seed, "td_selected": step / 100 + seed / 10, "y_td": 0.5, "loss": 1.0}
        for step in (10, 20, 30, 40)
        for seed in (0, 1)
    ]
    found = targets.over_training(rows, 30)
    assert list(found) == [10, 20, 30]
    assert [row["td_selected"] for row in found.values()] == pytest.approx([0.15, 0.25, 0.35])
    assert list(found[10]) == ["td_selected", "y_td"]
    assert targets.over_training([{"step": 1, "seed": 0, "loss": 1.0}], 30) == {}
    assert targets.targets_section([{"step": 1, "seed": 0, "loss": 1.0}], 30) is None


def test_teleports_are_found_where_the_successor_is_random() -> None:
    """Rows as OGBench logs them: the row at the entrance still shows it, the next one shows the exit."""
    maze = Maze(np.ones((3, 9), bool), 4.0, 4.0)
    x = np.array([0.0, 0.2, 0.4, 20.0, 20.2, 4.0, 4.2])  # captured at 0.4; the last two rows are another trajectory
    dataset = make_dataset(np.stack([x, 0 * x], 1), np.zeros((7, 2)), np.isin(np.arange(7), [4, 6]))
    found = targets.teleport_transitions(dataset, maze)
    np.testing.assert_array_equal(np.asarray(dataset.transitions)[found], [2])


class Lookup(eqx.Module):
    """A critic of two members: logits of (s + g) / 10 and (s + g) / 20, for numbers s and g below 5."""

    scale: jax.Array

    def __call__(self, s: jax.Array, a: jax.Array, g: jax.Array) -> jax.Array:
        q = (s + g)[:, 0] / self.scale[:, None]
        return jnp.log(q / (1 - q))


def test_hindsight_weights_by_hand() -> None:
    """h = Q(s, a, g) / (gamma Q(s', a', g)), clipped to [1/(1+c), 1+c], on rows with m = 1 only."""
    states = np.arange(5.0)[:, None]
    dataset = make_dataset(states, np.zeros((5, 1)), np.arange(5) == 4)
    rows, goals = jnp.array([1, 1, 0, 2]), jnp.array([4, 3, 2, 0])
    batch = gather(dataset, rows, goals, rows, goals)
    algorithm: Any = make("gtrl", gamma=0.9, hindsight_clip=0.2)
    h = targets.hindsight_weights(algorithm, None, Lookup(jnp.array([10.0, 20.0])), batch)
    # (s, s', g): (1, 2, 4) gives 5/6, (1, 2, 3) 4/5, (0, 1, 2) 2/3, over gamma; m = 0 in the last row.
    expected = np.clip(np.array([5 / 6, 4 / 5, 2 / 3]) / 0.9, 1 / 1.2, 1.2)
    np.testing.assert_allclose(h, [expected, expected], rtol=1e-5)
    found = targets.spread(h, 0.2)
    assert (found.rows, found.clipped) == (3, pytest.approx(1 / 3))
    assert (found.mean, found.deviation) == pytest.approx((expected.mean(), expected.std()), rel=1e-5)


def test_hindsight_weights_of_densities_by_hand() -> None:
    """h = exp(f - f'), clipped, with both scores of a row from all the scores that training computes."""
    states = np.arange(5.0)[:, None]
    dataset = make_dataset(states, np.zeros((5, 1)), np.arange(5) == 4)
    rows, goals = jnp.array([1, 1, 0, 2]), jnp.array([4, 3, 2, 0])
    batch = gather(dataset, rows, goals, rows, goals)
    algorithm: Any = make("gtrl", hidden=(8,), density_hidden=(8,), hindsight_reads="densities", hindsight_clip=9.0)
    nets = algorithm.init(jax.random.key(0), dataset.spec)
    nets = jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.key(1), leaf.shape), nets)
    h = targets.hindsight_weights(algorithm, nets, None, batch)
    scores = nets.densities.contrast(batch.observation, batch.action, batch.next_observation, batch.value_goal)
    before, after = (np.diagonal(np.asarray(each, np.float64)) for each in scores)
    expected = np.clip(np.exp(before - after), 0.1, 10)[:3]  # m = 0 in the last row
    assert len(set(expected)) > 1
    np.testing.assert_allclose(h, [expected], rtol=1e-4)


# --- a real run ---


@pytest.fixture(scope="module")
def diagnosed(gtrl_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A copy of `gtrl_run`, diagnosed with one episode per goal, and with recorded paths."""
    run = Run(Path(shutil.copytree(gtrl_run.path, tmp_path_factory.mktemp("diagnosed") / "run")))
    walk = np.cumsum(np.full((400, 2), 0.05), 0)
    index = np.array([[0, 2, 0, 1, 0, 300], [3, 5, 0, 0, 300, 100]])
    write_npz(run.path / "rollouts.npz", {"step": 20, "positions": walk, "index": index, "goals": np.zeros((2, 2))})
    diagnose(run, episodes=1, workers=1, show=False)
    return run


def test_sections_of_a_gtrl_run(diagnosed: Run) -> None:
    content = json.loads((diagnosed.path / "diagnostics.json").read_text())
    names = [section["name"] for section in content["sections"]]
    assert names == ["luck-gap", "distance", "policy", "targets", "hindsight"]
    for section in content["sections"]:
        assert all(len(row) == len(section["columns"]) for row in section["rows"])
        assert all(section[name] for name in ("title", "explanation", "finding"))
    logged = [row for row in diagnosed.metrics() if row["step"] == 20]
    last = section_of(content, "targets")["rows"][-1]
    assert last[:2] == ["20", pytest.approx(np.mean([row["td_selected"] for row in logged]))]
    arrays = np.load(diagnosed.config["data"]["source"])
    moved = np.abs(arrays["observations"][:, :2] - arrays["qpos"][:, :2]).max(1) > 1e-3  # at the entrance
    (_, teleports, *_), (_, others, *_) = section_of(content, "hindsight")["rows"]
    assert teleports == (moved & ~arrays["terminals"]).sum() > 0
    assert teleports + others == (~arrays["terminals"]).sum()


def test_findings_of_an_untrained_run_say_that_they_say_little(diagnosed: Run) -> None:
    """Twenty steps teach nothing: no episode succeeds, and the values do not order the states."""
    content = json.loads((diagnosed.path / "diagnostics.json").read_text())
    assert section_of(content, "distance")["rows"][0][-1] < distance.MIN_CORRELATION
    assert "0 % successful" in section_of(content, "luck-gap")["title"]
    for section in content["sections"]:
        is_qualified = section["finding"].endswith(
            ", but the critic does not order states by distance, so this says little."
        )
        assert is_qualified == (section["name"] in ("policy", "hindsight")), section["name"]


def test_findings_of_a_right_critic_are_not_qualified(exact_runs: dict[tuple[str, str], Run]) -> None:
    content = diagnose(exact_runs["plain", "optimal"], episodes=1, workers=1, show=False)
    assert section_of(content, "policy")["finding"].endswith(" of the rows.")


def test_values_of_connected_pairs_against_loops(diagnosed: Run) -> None:
    """By trajectory: which cell is seen in `observations` before which in `qpos`, and the value of each such pair."""
    maze, arrays = maze_of(ogbench_task(MINI)), np.load(diagnosed.config["data"]["source"])
    assert maze is not None
    ends = np.r_[0, np.flatnonzero(arrays["terminals"]) + 1]
    pairs = set()
    for first, end in pairwise(ends):
        seen = set()
        for row in range(first, end):
            now = maze.cell_at(arrays["qpos"][row, :2])
            pairs |= {(before, now) for before in seen if before != now}
            seen.add(maze.cell_at(arrays["observations"][row, :2]))
    pairs = [(s, g) for s, g in pairs if maze.distances(g)[s] > 0]
    algorithm, nets = load_state(diagnosed, 20)
    states, goals = (jnp.asarray(maze.xy([pair[k] for pair in pairs]), jnp.float32) for k in (0, 1))
    value: Any = jax.vmap(algorithm.value, (0, None, None))
    content = json.loads((diagnosed.path / "diagnostics.json").read_text())
    row = next(row for row in section_of(content, "distance")["rows"] if row[:2] == ["connected", ALL_WITH_PATH])
    assert row[2:4] == [len(pairs), pytest.approx(float(value(nets, states, goals).mean()), abs=1e-6)]
    assert abs(row[3] - value(nets, goals, states).mean()) > 1e-4  # exchanging states and goals would show


def test_maps_are_the_values_and_actions_of_the_networks(diagnosed: Run) -> None:
    maps = np.load(diagnosed.path / "maps.npz")
    maze = maze_of(ogbench_task(MINI))
    assert maze is not None
    assert (int(maps["step"]), maps["seeds"].tolist(), float(maps["point_size"])) == (20, [0, 3], 0.8)
    np.testing.assert_array_equal(Maze.from_arrays(maps).free, maze.free)
    np.testing.assert_array_equal(maps["goal_points"], maze.xy(maze.cells))
    points, goals = maps["points"], maps["goal_points"]
    assert maps["values"].shape == (2, len(goals), len(points)) == (2, 22, 22 * 25)
    algorithm, nets = load_state(diagnosed, 20)
    rng = np.random.default_rng(0)
    p, g, a = (rng.integers(len(maps[name]), size=50) for name in ("points", "goal_points", "arrow_points"))
    value: Any = jax.vmap(algorithm.value, (0, None, None))(nets, jnp.asarray(points[p]), jnp.asarray(goals[g]))
    np.testing.assert_allclose(decode_values(maps["values"][:, g, p]), value, atol=1 / 255)
    act = jax.vmap(lambda nets, s, g: algorithm.act(nets, s, g, jax.random.key(0)), (0, None, None))
    action = act(nets, jnp.asarray(maps["arrow_points"][a]), jnp.asarray(goals[g]))
    np.testing.assert_allclose(maps["arrows"][:, g, a] / 127, action, atol=0.5 / 127 + 1e-5)


def test_recorded_paths_are_thinned(diagnosed: Run) -> None:
    maps, recorded = np.load(diagnosed.path / "maps.npz"), np.load(diagnosed.path / "rollouts.npz")
    np.testing.assert_array_equal(maps["path_index"], [[0, 2, 0, 1, 0, MAX_PATH_POINTS], [3, 5, 0, 0, 150, 100]])
    paths, walk = maps["paths"].astype(float), recorded["positions"]
    np.testing.assert_allclose(paths[[0, 149, 150, 249]], walk[[0, 299, 300, 399]], rtol=1e-3)
    assert paths.shape == (250, 2)


def test_other_steps_and_their_paths(diagnosed: Run) -> None:
    content = diagnose(diagnosed, step=10, episodes=1, workers=1, show=False)
    assert content["step"] == 10
    maps = np.load(diagnosed.path / "maps.npz")
    assert (int(maps["step"]), maps["path_index"].shape, maps["paths"].shape) == (10, (0, 6), (0, 2))
    with pytest.raises(RunError, match="no checkpoint and policies at step 15; it has both at 10, 20"):
        diagnose(diagnosed, step=15)
    with pytest.raises(ConfigError, match="episodes is 0"):
        diagnose(diagnosed, episodes=0)


def test_logged_policy_metrics_against_numpy(gtrl_run: Run, mini_file: Path) -> None:
    """The rows drawn at step 20, with the networks of its checkpoint evaluated by NumPy."""
    dataset = gtrl.load_dataset(mini_file, MINI).train
    algorithm, nets = load_state(gtrl_run, 20)
    rows = {row["seed"]: row for row in gtrl_run.metrics() if row["step"] == 20}
    for index, (seed, key) in enumerate(zip(gtrl_run.seeds, loop.seed_keys(gtrl_run.seeds), strict=True)):
        key = jax.random.fold_in(jax.random.fold_in(key, 2**32 - 3), 20)
        batch = jax.jit(Algorithm.sample, static_argnums=(0, 3))(algorithm, key, dataset, monitor.MEASURED_ROWS)
        s, a, g = map(np.asarray, (batch.observation, batch.action, batch.actor_goal))
        one_seed = jax.tree.map(lambda leaf, index=index: np.asarray(leaf[index]), nets)
        critic, actor = one_seed.oracle_critic.layers, one_seed.actor.layers
        chosen = np.clip(mlp.forward(actor, np.concatenate([s, g], -1), np), -1, 1)
        members = [jax.tree.map(lambda leaf, k=k: leaf[k], critic) for k in (0, 1)]
        q = [
            np.min([mlp.forward(member, np.concatenate([s, action, g], -1), np)[:, 0] for member in members], 0)
            for action in (chosen, a)
        ]
        assert rows[seed]["policy/advantage"] == pytest.approx((q[0] - q[1]).mean(), abs=1e-5)
        assert rows[seed]["policy/raises_critic"] == pytest.approx((q[0] > q[1]).mean(), abs=0.01)


def test_rollback_removes_the_diagnostics_of_later_steps(diagnosed: Run, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(diagnosed.path, tmp_path / "run")))
    run.forget_after(20)
    assert (run.path / "diagnostics.json").exists()
    run.forget_after(10)
    assert not {"diagnostics.json", "maps.npz"} & {path.name for path in run.path.iterdir()}


# --- what does not apply ---


def test_method_without_a_critic_gets_what_applies(mini_file: Path, tmp_path: Path) -> None:
    run = gtrl.train("bc", mini_file, task=MINI, out=tmp_path / "bc", seeds=0, **SMALL_FIELDS)
    content = diagnose(run, episodes=1, workers=1, show=False)
    section, = content["sections"]  # fmt: skip
    assert (section["name"], section["columns"]) == ("returns", ["distance", "states", "return"])
    assert section["rows"][0] == ["all", 5 * 100, 0]  # an untrained policy, every fourth of 400 states
    assert content["notes"] == ["the luck gap is left out: the value of BC does not exist."]
    assert not (run.path / "maps.npz").exists()


def test_data_without_a_task(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    dataset = make_dataset(rng.normal(size=(40, 3)), rng.uniform(-1, 1, (40, 2)), np.arange(40) % 10 == 9)
    run = gtrl.train("crl", dataset, out=tmp_path / "crl", seeds=0, latent=4, **SMALL_FIELDS)
    content = diagnose(run, workers=1, show=False)
    assert content["sections"] == []
    assert content["notes"] == [
        "the luck gap is left out: the data has no task, so there is no environment.",
        "what needs the dataset is left out: it was in memory; name the dataset with --data.",
    ]
    content = diagnose(run, data=gtrl.Data(dataset), workers=1, show=False)
    assert [section["name"] for section in content["sections"]] == ["policy"]


def test_command(diagnosed: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(diagnosed.path, tmp_path / "run"))
    change_config(run, ("data", "source"), str(tmp_path / "gone.npz"))
    words = ["diagnose", str(run), "--episodes", "1", "--workers", "1"]
    assert cli.main(words) == 0
    shown = capsys.readouterr()
    content = json.loads((run / "diagnostics.json").read_text())
    assert [section["name"] for section in content["sections"]] == ["luck-gap", "distance", "targets"]
    assert shown.out.startswith(f"GTRL on {MINI}, step 20, seeds 0, 3\n")
    for section in content["sections"]:
        assert section["title"] in shown.out
        assert f"→ {section['finding']}" in shown.out
    assert "gone.npz; name the dataset with --data." in shown.err
    assert len(shown.out.splitlines()) < 50
    for words, message in (
        ([str(tmp_path)], "is not a run directory"),
        ([str(run), "--step", "7"], "no checkpoint and policies at step 7"),
    ):
        assert cli.main(["diagnose", *words]) == 2
        assert message in capsys.readouterr().err


def change_config(run: Path, keys: tuple[str, ...], value: Any) -> None:
    """Sets a field of `config.json`."""
    config = json.loads((run / "config.json").read_text())
    part = config
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    (run / "config.json").write_text(json.dumps(config))


@pytest.fixture
def copied(diagnosed: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(diagnosed.path, tmp_path / "run"))


def test_dataset_that_cannot_be_used_is_an_error_before_any_episode(
    copied: Path, write_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(diagnose_module, "roll_out", lambda *_, **__: pytest.fail("an episode was run"))
    (tmp_path / "damaged.npz").write_text("no archive")
    for file, message in (
        (tmp_path / "nope.npz", "nope.npz"),
        (tmp_path / "damaged.npz", "damaged.npz"),
        (write_file("other.npz"), "other.npz is not the dataset that the run was trained on"),
    ):
        assert cli.main(["diagnose", str(copied), "--data", str(file)]) == 2
        shown = capsys.readouterr()
        assert (shown.out, len(shown.err.splitlines())) == ("", 1)
        assert message in shown.err


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("data",), None, "config.json is damaged: its 'data' is None"),
        (("data", "goal_dim"), "two", "config.json is damaged: its 'data.goal_dim' is 'two'"),
        (("algorithm",), [], "config.json is damaged: its 'algorithm' is []"),
        (("algorithm", "name"), 3, "config.json is damaged: its 'algorithm.name' is 3"),
        (("task",), {}, "config.json is damaged: its 'task' is {}"),
    ],
)
def test_damaged_config_is_one_line(
    keys: tuple[str, ...], value: Any, message: str, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_config(copied, keys, value)
    assert cli.main(["diagnose", str(copied)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_damaged_files_of_a_run_are_notes(copied: Path) -> None:
    """Whatever does not need them is measured and written."""
    change_config(copied, ("data", "source"), None)
    rollouts = dict(np.load(copied / "rollouts.npz"))
    write_npz(copied / "rollouts.npz", {name: array for name, array in rollouts.items() if name != "step"})
    metrics = (copied / "metrics.jsonl").read_text()
    (copied / "metrics.jsonl").write_text(metrics + json.dumps({"seed": 0, "td_selected": 0.5}) + "\n")
    content = diagnose(copied, episodes=1, workers=1, show=False)
    assert [section["name"] for section in content["sections"]] == ["luck-gap", "distance"]
    data, targets_note, paths = content["notes"]
    assert data == "what needs the dataset is left out: config.json does not name it; name the dataset with --data."
    assert targets_note.startswith("the section on targets is left out: ")
    assert "metrics.jsonl is damaged: " in targets_note
    assert paths.startswith("maps.npz has no paths: ")
    assert "rollouts.npz is damaged (it has no array 'step')" in paths
    assert np.load(copied / "maps.npz")["paths"].shape == (0, 2)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"step": np.array([20])}, "'step' has the shape"),
        ({"step": np.array("20")}, "'step' has the shape"),
        ({"index": np.zeros((2, 5), int)}, "'index' has the shape"),
        ({"index": np.array([[0, 2, 0, 1, 399, 2]])}, "points outside"),
        ({"positions": np.full((400, 2), np.nan)}, "not finite"),
    ],
)
def test_damaged_rollouts_are_named(changes: dict[str, np.ndarray], problem: str, diagnosed: Run, copied: Path) -> None:
    write_npz(copied / "rollouts.npz", {**np.load(diagnosed.path / "rollouts.npz"), **changes})
    with pytest.raises(RunError, match=rf"rollouts\.npz is damaged.*{problem}"):
        recorded_paths(Run(copied), 20)


@pytest.mark.parametrize("value", ["often", None, 10**400, math.inf], ids=["text", "null", "huge", "infinite"])
def test_target_metrics_that_are_no_numbers_are_named(value: Any) -> None:
    good = {"step": 10, "seed": 0, "td_selected": 0.5}
    for name in ("step", "td_selected"):
        with pytest.raises(RunError, match=f"metrics.jsonl is damaged: .*{name}"):
            targets.over_training([good, good | {name: value}], 30)


def test_default_number_of_episodes_is_one_constant() -> None:
    for function in (diagnose, diagnose_command):
        assert inspect.signature(function).parameters["episodes"].default is EPISODES


@pytest.mark.parametrize(
    ("returns", "finding"),
    [
        ({1: [0.5], 2: [0.52]}, "The value agrees with the return to within 0.05 at every distance."),
        ({1: [0.1], 2: [0.3]}, "The value is too optimistic: +0.30 on average, most at distance 1 (+0.40)."),
        (
            {1: [0.65] * 3, 2: [0.3]},
            "The value is too pessimistic: -0.06 on average, but too optimistic at distance 2–3 (+0.20).",
        ),
        ({1: [0.72], 2: [0.3]}, "The value agrees with the return on average (-0.01), but not at distance 1 (-0.22)."),
    ],
)
def test_finding_of_the_luck_gap(returns: dict[int, list[float]], finding: str) -> None:
    pairs = [(distance, value) for distance, values in returns.items() for value in values]
    distances, outcomes = map(np.array, zip(*pairs, strict=True))
    assert luck._finding(luck.luck_gap(np.full(len(pairs), 0.5), outcomes, distances)) == finding

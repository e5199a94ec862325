"""Policies as files, episodes decided by their seeds alone, evaluation's files, and exact values of a maze."""

import csv
import dataclasses
import itertools
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path

from gtrl import mlp
from gtrl.algorithms import Algorithm, make
from gtrl.environments import Isolated, make_environment
from gtrl.errors import ConfigError, RunError
from gtrl.evaluation import rollout
from gtrl.evaluation.evaluate import evaluate, summary
from gtrl.evaluation.policy import ROWS, Policy, load_policy, save_policy
from gtrl.evaluation.rollout import Episode, Job, Outcome, roll_out, run_episodes
from gtrl.networks import Spec
from gtrl.runs import Run
from gtrl.tasks import find_task
from gtrl.theory.maze import Grid, grid_of, optimal_values
from gtrl.training.run import load_state
from gtrl.workers import spread

MINI = "pointmaze-mini-navigate"
POINT = {"observation_dim": 2, "goal_dim": 2, "action_dim": 2, "algorithm": "mine", "task": MINI, "seed": 0, "step": 1}


# --- policies ---


def random_layers(*sizes: int) -> list[mlp.Layer]:
    """A network with random biases and norms, whose actions reach beyond -1 and 1."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    pairs = list(itertools.pairwise(sizes))
    hidden = [mlp.Layer(draw(a, b) / a**0.5, draw(b), 1 + draw(b) / 10, draw(b) / 10) for a, b in pairs[:-1]]
    return [*hidden, mlp.Layer(draw(*pairs[-1]) / pairs[-1][0] ** 0.5, draw(pairs[-1][1]))]


def random_policy(observation_dim: int, goal_dim: int, action_dim: int, hidden: Sequence[int]) -> Policy:
    header = {"observation_dim": observation_dim, "goal_dim": goal_dim, "action_dim": action_dim}
    return Policy(random_layers(observation_dim + goal_dim, *hidden, action_dim), header)


def queries(policy: Policy, count: int) -> tuple[np.ndarray, ...]:
    """Random observations and goals."""
    rng = np.random.default_rng(1)
    return tuple(rng.normal(size=(count, policy.header[f"{name}_dim"])) for name in ("observation", "goal"))


def jax_action(algorithm: Algorithm, nets: Any, rows: Sequence[np.ndarray]) -> np.ndarray:
    observation, goal = map(jax.numpy.asarray, rows)
    return np.asarray(algorithm.act(nets, observation, goal, jax.random.key(0)))


def test_numpy_policy_is_the_jax_actor(tmp_path: Path) -> None:
    algorithm, spec = make("bc", hidden=(32, 16)), Spec(observation_dim=5, action_dim=3, goal_dim=2)
    nets = jax.jit(algorithm.init, static_argnums=1)(jax.random.key(0), spec)
    nets = jax.tree.map(lambda leaf: 3 * leaf, nets)  # so that some actions are clipped
    save_policy(tmp_path / "policy.npz", algorithm.policy(nets).layers, spec._asdict())
    policy = load_policy(tmp_path / "policy.npz")
    rows = queries(policy, 40)
    expected = jax_action(algorithm, nets, rows)
    np.testing.assert_allclose(policy(*rows), expected, atol=1e-5)
    assert 0 < (np.abs(expected) == 1).mean() < 1


def test_a_runs_policy_is_the_actor_of_its_checkpoint(gtrl_run: Run) -> None:
    for step in (10, 20):
        algorithm, nets = load_state(gtrl_run, step)
        for index, seed in enumerate(gtrl_run.seeds):
            policy = load_policy(gtrl_run.policy_path(seed, step))
            rows = queries(policy, 20)
            mine = jax.tree.map(lambda leaf, index=index: leaf[index], nets)
            np.testing.assert_allclose(policy(*rows), jax_action(algorithm, mine, rows), atol=1e-5)


@pytest.mark.parametrize(
    ("dims", "hidden"), [((2, 2, 2), (8,)), ((29, 2, 8), (512, 512, 512)), ((83, 16, 5), (100, 30))]
)
def test_bits_of_a_row_do_not_depend_on_its_neighbours(dims: tuple[int, int, int], hidden: tuple[int, ...]) -> None:
    policy = random_policy(*dims, hidden)
    observations, goals = queries(policy, 3 * ROWS + 5)
    together = policy(observations, goals)
    for size in (1, 2, 3, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS + 3):
        for start in range(0, len(together) - size, 6):  # so a row stands at different places of its block
            rows = slice(start, start + size)
            np.testing.assert_array_equal(policy(observations[rows], goals[rows]), together[rows])
    shuffled = np.random.default_rng(2).permutation(len(together))
    np.testing.assert_array_equal(policy(observations[shuffled], goals[shuffled]), together[shuffled])


def test_shapes_a_policy_takes() -> None:
    policy = random_policy(3, 2, 4, (8,))
    observations, goals = queries(policy, 6)
    together = policy(observations, goals)
    assert together.dtype == np.float32
    np.testing.assert_array_equal(policy(observations[2], goals[2]), together[2])  # one state
    np.testing.assert_array_equal(policy(observations.tolist(), goals.tolist()), together)
    np.testing.assert_array_equal(policy(observations, goals[0])[0], together[0])  # one goal for all
    stacked = policy(observations.reshape(2, 3, 3), goals.reshape(2, 3, 2))
    np.testing.assert_array_equal(stacked.reshape(6, 4), together)
    assert policy(observations[:0], goals[:0]).shape == (0, 4)
    for wrong in ((observations[:, :2], goals), (observations, observations)):
        with pytest.raises(RunError, match="this policy takes a"):
            policy(*wrong)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_policy_file(dtype: str, tmp_path: Path) -> None:
    layers, path = random_layers(4, 16, 2), tmp_path / "deep" / "policy.npz"
    save_policy(path, layers, POINT, dtype)
    assert [file.name for file in path.parent.iterdir()] == ["policy.npz"]
    assert np.load(path)["weight0"].dtype == dtype
    loaded = load_policy(path)
    assert {key: loaded.header[key] for key in POINT} == POINT
    assert loaded.header["layers"] == 2
    for ours, theirs in zip(loaded.layers, layers, strict=True):
        for mine, written in zip(ours, theirs, strict=True):
            if written is None or mine is None:
                assert mine is written  # no layer norm in the last layer
                continue
            np.testing.assert_array_equal(mine, written.astype(dtype))
            assert mine.dtype == np.float32
    rows = queries(loaded, 50)
    full = Policy(layers, POINT)(*rows)
    np.testing.assert_allclose(loaded(*rows), full, atol=0 if dtype == "float32" else 2e-2)


def test_policy_files_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    with pytest.raises(RunError, match=r"there is no file .*policy\.npz\.$"):
        load_policy(path)
    save_policy(path, random_layers(4, 2), POINT)
    whole = path.read_bytes()
    for broken in (whole[:-100], b"", b"not an archive"):
        path.write_bytes(broken)
        with pytest.raises(RunError, match="is not a readable npz file"):
            load_policy(path)
    np.savez(path, observations=np.zeros(3))
    with pytest.raises(RunError, match="is not a policy file: it has no readable header"):
        load_policy(path)
    np.savez(path, header=np.array(json.dumps({"format": 99})))
    with pytest.raises(RunError, match=r"has policy format 99; this version reads format 1\.$"):
        load_policy(path)


# --- environments that share a process ---


def play(env: Isolated, seed: int, goal: int, actions: np.ndarray) -> Iterator[np.ndarray]:
    """Everything an episode shows, step by step: observation, then goal or simulator state."""
    observation, info = env.reset(np.random.SeedSequence(seed), {"task_id": goal})
    yield np.concatenate([observation, info["goal"]])
    for action in actions:
        observation, *_ = env.step(action)
        yield np.concatenate([observation, env.env.unwrapped.data.qpos])


def check_isolation(name: str, goal: int, actions: np.ndarray) -> list[list[np.ndarray]]:
    """Two environments interleaved, each alone, and each in the other's place; the caller's generator untouched."""
    first, second = (Isolated(make_environment(find_task(name))) for _ in range(2))
    np.random.seed(5)
    caller = []
    mixed: list[list[np.ndarray]] = [[], []]
    for one, two in zip(play(first, 1, goal, actions), play(second, 2, goal, actions), strict=True):
        mixed[0].append(one)
        mixed[1].append(two)
        caller.append(np.random.random())  # somebody else draws, too
    np.testing.assert_array_equal(caller, np.random.RandomState(5).random_sample(len(caller)))
    for env, seed in ((first, 1), (second, 2), (second, 1), (first, 2)):
        for row, expected in zip(play(env, seed, goal, actions), mixed[seed - 1], strict=True):
            np.testing.assert_array_equal(row, expected)
    return mixed


def into_the_teleporter(count: int) -> np.ndarray:
    """Goal 3 of the teleport maze starts right below a teleporter: go up, then anywhere."""
    anywhere = np.random.default_rng(0).uniform(-1, 1, (count, 2))
    return np.concatenate([np.tile([0.0, -1.0], (40, 1)), anywhere])


def test_teleport_mazes_do_not_disturb_each_other() -> None:
    name = "pointmaze-teleport-navigate"
    for episode in check_isolation(name, 3, into_the_teleporter(100)):
        rows = np.array(episode)[1:]
        assert np.linalg.norm(rows[:, :2] - rows[:, 2:], axis=-1).max() > 4  # it was teleported
    # The exit is luck, and the luck is the seed's.
    env, exits = Isolated(make_environment(find_task(name))), set()
    for seed in range(10):
        exits.add(tuple(list(play(env, seed, 3, into_the_teleporter(0)))[-1].round().tolist()))
    assert len(exits) > 1


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting", "ignore:.*DISPLAY environment variable")
def test_manipulation_environments_do_not_disturb_each_other() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 5))
    one, two = check_isolation("cube-single-play", 2, actions)
    assert not np.array_equal(one[0], two[0])


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting", "ignore:.*DISPLAY environment variable")
def test_random_actions_within_a_reset_follow_the_seed() -> None:
    """To settle the goal's scene a reset takes a few steps of `action_space.sample()`; they move the goal by a bit."""
    env, taken = Isolated(make_environment(find_task("scene-play"))), []
    scene = env.env.unwrapped
    step = scene.step

    def recorded(action: np.ndarray) -> Any:
        taken.append(action)
        return step(action)

    scene.step = recorded
    for seed in (1, 1, 2):
        env.reset(np.random.SeedSequence(seed), {"task_id": 1})
    first, again, other = np.split(np.array(taken), 3)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_an_environment_that_fails_gives_the_generator_back() -> None:
    env = Isolated(make_environment(find_task(MINI)))
    env.reset(np.random.SeedSequence(0), {"task_id": 1})
    np.random.seed(5)
    with pytest.raises(ValueError, match="broadcast"):
        env.step(np.zeros(3))
    assert np.random.random() == np.random.RandomState(5).random_sample()


# --- rollouts ---


def linear_policy(path: Path, weight: Any, bias: Any) -> Path:
    """action = clip((x, y, goal x, goal y) @ weight + bias)."""
    save_policy(path, [mlp.Layer(np.array(weight, np.float32), np.array(bias, np.float32))], POINT)
    return path


def by_episode(outcomes: Iterator[tuple[int, Outcome]]) -> dict[tuple[int, int, int], Outcome]:
    return {(policy, outcome.episode.goal, outcome.episode.number): outcome for policy, outcome in outcomes}


def facts(outcome: Outcome) -> tuple[Any, ...]:
    path = None if outcome.path is None else outcome.path.tobytes()
    return outcome.success, outcome.length, outcome.goal.tobytes(), path


def test_outcomes_do_not_depend_on_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = dataclasses.replace(find_task(MINI), episode_length=80)
    towards_the_goal = linear_policy(tmp_path / "a.npz", [[-1, 0], [0, -1], [1, 0], [0, 1]], [0, 0])
    to_the_right = linear_policy(tmp_path / "b.npz", np.zeros((4, 2)), [1, 0.1])
    policies = [towards_the_goal, to_the_right]
    counted: list[int] = []
    alone = by_episode(roll_out(policies, task, 3, workers=1, record=2, bar=counted.append))
    assert sum(counted) == len(alone) == 2 * 5 * 3
    assert all((outcome.path is not None) == (key[2] < 2) for key, outcome in alone.items())
    for workers in (2, 3):
        monkeypatch.setattr(rollout, "ROWS", 7 - 2 * workers)  # jobs of 3, then of 1: other neighbours each time
        together = by_episode(roll_out(policies, task, 3, workers=workers, record=2))
        assert {key: facts(outcome) for key, outcome in together.items()} == {
            key: facts(outcome) for key, outcome in alone.items()
        }
    # Both policies meet the same goals from the same starts, and each episode its own.
    for goal in range(1, 6):
        np.testing.assert_array_equal(alone[0, goal, 0].goal, alone[1, goal, 0].goal)
        np.testing.assert_array_equal(*(np.asarray(alone[policy, goal, 0].path)[0] for policy in (0, 1)))
        assert not np.array_equal(alone[0, goal, 0].goal, alone[0, goal, 1].goal)


def test_outcomes_of_a_policy_that_does_nothing(tmp_path: Path) -> None:
    task = dataclasses.replace(find_task(MINI), episode_length=25)
    still = load_policy(linear_policy(tmp_path / "still.npz", np.zeros((4, 2)), [0, 0]))
    episodes = tuple(Episode(goal, 0) for goal in range(1, 6))
    outcomes = run_episodes(still, Job("", task, episodes, base_seed=0, record=1))
    assert [(outcome.success, outcome.length) for outcome in outcomes] == [(False, 25)] * 5
    for outcome in outcomes:
        assert outcome.path is not None
        assert outcome.path.shape == (26, 2)
        assert np.abs(outcome.path - outcome.path[0]).max() < 0.5  # a wall may push a little
    others = run_episodes(still, Job("", task, episodes, base_seed=1, record=1))
    assert not np.array_equal(others[0].goal, outcomes[0].goal)


def test_outcomes_that_hang_on_luck_alone(tmp_path: Path) -> None:
    """Up where x < 28, down beyond: a policy whose success in the teleport maze is the teleporter's to decide.

    From the starts of goals 3 and 4 it walks into a teleporter. Of the exits, (6, 10) has the goal below it, (1, 7)
    is a dead end, and (6, 1) leads up into the other teleporter. The starts of goals 1 and 2 are corners.
    """
    task = find_task("pointmaze-teleport-navigate")
    policy = load_policy(linear_policy(tmp_path / "up.npz", [[0, 1], [0, 0], [0, 0], [0, 0]], [0, -28]))
    episodes = tuple(Episode(goal, number) for number in range(6) for goal in (3, 4, 1))
    outcomes = run_episodes(policy, Job("", task, episodes, base_seed=0, record=6))
    assert {outcome.episode for outcome in outcomes} == set(episodes)
    for outcome in outcomes:
        assert outcome.path is not None
        assert len(outcome.path) == outcome.length + 1
        lucky = (np.abs(outcome.path - [36, 20]).max(1) < 0.1).any()  # it left the exit in cell (6, 10)
        assert outcome.success == lucky
        assert outcome.length < task.episode_length if outcome.success else outcome.length == task.episode_length
        if outcome.episode.goal == 1:
            assert not outcome.success
    assert {outcome.success for outcome in outcomes if outcome.episode.goal == 3} == {True, False}


def test_workers_are_single_threaded_and_free_of_jax() -> None:
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    asked = [f"__import__('os').environ[{name!r}]" for name in names]
    asked.append("__import__('gtrl.evaluation.rollout') and 'jax' in __import__('sys').modules")
    assert dict(spread(eval, asked, workers=1)) == {0: "1", 1: "1", 2: "1", 3: False}
    with pytest.raises(ZeroDivisionError):
        list(spread(eval, ["1 / 0"], workers=1))


# --- evaluating a run ---


@pytest.fixture(scope="module")
def evaluated(gtrl_run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[dict[str, Any]]]:
    run = Run(tmp_path_factory.mktemp("evaluated") / "run")
    shutil.copytree(gtrl_run.path, run.path)
    return run, evaluate(run, episodes=2, workers=2, show=False)


def test_eval_csv(evaluated: tuple[Run, list[dict[str, Any]]]) -> None:
    run, rows = evaluated
    with (run.path / "eval.csv").open(newline="") as file:
        table = list(csv.reader(file))
    assert table[0] == ["algorithm", "task", "seed", "step", "goal", "episodes", "successes"]
    expected = [["gtrl", MINI, str(seed), "20", f"task{goal}", "2"] for seed in (0, 3) for goal in range(1, 6)]
    assert [line[:-1] for line in table[1:]] == expected
    assert all(0 <= int(line[-1]) <= 2 for line in table[1:])
    assert run.evaluations() == rows


def test_a_run_without_its_checkpoints_can_be_evaluated(gtrl_run: Run, tmp_path: Path) -> None:
    copy = shutil.copytree(gtrl_run.path, tmp_path / "copy", ignore=shutil.ignore_patterns("checkpoints", "values.npz"))
    assert len(evaluate(copy, episodes=1, workers=1, show=False)) == 2 * 5
    assert not (copy / "values.npz").exists()
    with pytest.raises(ConfigError, match=r"seed is -1 and must not be negative\.$"):
        evaluate(copy, base_seed=-1)


def test_rollouts_npz(evaluated: tuple[Run, list[dict[str, Any]]]) -> None:
    run, rows = evaluated
    maze = make_environment(find_task(MINI)).unwrapped
    file = np.load(run.path / "rollouts.npz")
    assert file["step"] == 20
    index = file["index"]
    seeds, goals, numbers, successes, starts, lengths = index.T
    assert index[:, :3].tolist() == [[s, g, n] for s in (0, 3) for g in range(1, 6) for n in range(2)]
    np.testing.assert_array_equal(starts, np.cumsum(lengths) - lengths)
    assert len(file["positions"]) == lengths.sum()
    assert lengths.max() <= find_task(MINI).episode_length + 1
    for row in rows:  # fewer episodes than are recorded, so every one is here
        mine = (seeds == row["seed"]) & (goals == int(row["goal"][-1]))
        assert successes[mine].sum() == row["successes"]
    for goal, number, start, xy in zip(goals, numbers, starts, file["goals"], strict=True):
        info = maze.task_infos[goal - 1]
        assert maze.xy_to_ij(file["positions"][start]) == info["init_ij"]
        assert maze.xy_to_ij(xy) == info["goal_ij"]
        assert number < 2


def test_values_npz(evaluated: tuple[Run, list[dict[str, Any]]]) -> None:
    run, _ = evaluated
    maze = make_environment(find_task(MINI)).unwrapped
    file = np.load(run.path / "values.npz")
    points, values = file["points"], file["values"]
    per_cell = points.shape[0] // maze.maze_map.shape[0]
    walls = maze.maze_map.repeat(per_cell, 0).repeat(per_cell, 1) == 1
    assert values.shape == (2, 5, *walls.shape)
    for found in (points[..., 0], *values.reshape(-1, *walls.shape)):
        np.testing.assert_array_equal(np.isnan(found), walls)
    for row, column in np.argwhere(~walls):
        assert maze.xy_to_ij(points[row, column]) == (row // per_cell, column // per_cell)
    _, nets = load_state(run, 20)
    row, column = np.argwhere(~walls)[7]
    for index, goal in enumerate(file["goals"]):
        assert maze.xy_to_ij(goal) == maze.task_infos[index]["goal_ij"]
        found = jax.vmap(lambda nets, goal=goal: nets.value(points[row, column][None], goal[None]))(nets)
        np.testing.assert_allclose(values[:, index, row, column], found[:, 0], rtol=1e-5)
    assert file["entrances"].shape == (len(maze._teleport_info["teleport_in_ijs"]), 2)
    assert file["exits"].shape == (len(maze._teleport_info["teleport_out_ijs"]), 2)


def test_evaluating_again_replaces_rows(evaluated: tuple[Run, list[dict[str, Any]]], tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    shutil.copytree(evaluated[0].path, run.path)
    before = run.evaluations()
    early = evaluate(run.path, episodes=1, step=10, workers=1, show=False)
    assert {row["step"] for row in early} == {10}
    assert run.evaluations() == [*early, *before]  # ordered by step
    again = evaluate(run.path, episodes=1, workers=1, show=False)
    assert {row["step"] for row in again} == {20}  # the last; 10 does not count for the score
    assert run.evaluations() == [*early, *again]
    assert {row["episodes"] for row in again} == {1}
    # Episode 0 is the same whether one is run or two, so it cannot win more alone.
    assert all(one["successes"] <= two["successes"] for one, two in zip(again, before, strict=True))


def test_evaluating_a_policy_file_writes_nothing(gtrl_run: Run, tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    shutil.copy(gtrl_run.policy_path(3), path)
    rows = evaluate(path, episodes=1, workers=1, show=False)
    assert [(row["seed"], row["step"], row["goal"]) for row in rows] == [(3, 20, f"task{k}") for k in range(1, 6)]
    assert list(tmp_path.iterdir()) == [path]
    assert summary(rows).row_count == 1  # a table with one line for its one seed


def test_what_cannot_be_evaluated(gtrl_run: Run, tmp_path: Path) -> None:
    for what in ({"episodes": 0}, {"workers": 0}):
        with pytest.raises(ConfigError, match="must be at least 1"):
            evaluate(gtrl_run, **what)  # pyright: ignore[reportArgumentType]
    with pytest.raises(RunError, match=r"has no policies at step 15; it has 10, 20\.$"):
        evaluate(gtrl_run, step=15)
    with pytest.raises(RunError, match=r"is not a run directory: it has no config\.json\.$"):
        evaluate(tmp_path)
    save_policy(tmp_path / "own.npz", random_layers(4, 2), POINT | {"task": None})
    with pytest.raises(RunError, match="without a task"):
        evaluate(tmp_path / "own.npz", episodes=1)
    assert not (gtrl_run.path / "eval.csv").exists()


# --- exact values of a maze ---

GAMMA = 0.9
NOWHERE = np.zeros((0, 2))


def maze_grid(*rows: str) -> Grid:
    """Cells of 4 by 4; the centre of cell (1, 1) is the origin, as in OGBench."""
    return grid_of(np.array([[int(symbol == "#") for symbol in row] for row in rows]), 4.0, 4.0)


def value_at(grid: Grid, values: np.ndarray, x: float, y: float) -> float:
    row, column = np.argwhere((np.abs(grid.points - [x, y]) < 1e-6).all(-1))[0]
    return float(values[row, column])


def test_free_points_keep_the_agents_radius_from_walls() -> None:
    grid = maze_grid("####", "#..#", "#.##", "####")
    for (x, y), free in zip(grid.points.reshape(-1, 2), grid.free.reshape(-1), strict=True):
        # An L of three cells, each 4 wide; its inner corner is at (2, 2).
        upper = -1.3 <= x <= 5.3 and -1.3 <= y <= 1.3
        lower = -1.3 <= x <= 1.3 and -1.3 <= y <= 5.3
        corner = 1.3 < x <= 2 and 1.3 < y <= 2 and np.hypot(2 - x, 2 - y) >= 0.7
        assert free == (upper or lower or corner), (x, y)


def test_values_of_a_corridor() -> None:
    """Without obstacles a point is max(|dx|, |dy|) / 0.2 steps away, as a step may be diagonal."""
    grid = maze_grid("#####", "#...#", "#####")
    goal = np.array([8.0, 0.0])
    values = optimal_values(grid, goal, GAMMA, NOWHERE, NOWHERE)
    steps = np.abs(grid.points - goal).max(-1) / 0.2
    np.testing.assert_allclose(values[grid.free], GAMMA ** steps[grid.free], atol=1e-7)
    assert np.isnan(values[~grid.free]).all()
    assert value_at(grid, values, 0, 0) == pytest.approx(GAMMA**40)


def test_values_around_a_corner() -> None:
    """A step goes to any of the eight neighbours that is free; SciPy finds the number of steps."""
    grid = maze_grid("####", "#..#", "#.##", "####")
    goal = np.array([0.0, 4.0])
    values = optimal_values(grid, goal, GAMMA, NOWHERE, NOWHERE)
    points = grid.points[grid.free]
    near = np.abs(points[:, None] - points[None]).max(-1) < 0.21
    target = int(np.argmin(np.linalg.norm(points - goal, axis=-1)))
    steps = shortest_path(near, unweighted=True, indices=target)
    np.testing.assert_allclose(values[grid.free], GAMMA**steps, atol=1e-7)
    assert value_at(grid, values, 4, 0) < GAMMA ** (4 / 0.2) - 1e-3  # longer than as the crow flies


def test_values_through_a_teleporter() -> None:
    """Three rooms: a teleporter in the first leads beside the goal in the second or into the third, a dead end."""
    grid = maze_grid("#########", "#..#..#.#", "#########")
    entrance, beside, dead_end = np.array([[4.0, 0.0]]), [12.0, 0.0], [24.0, 0.0]
    goal = np.array([16.0, 0.0])
    values = optimal_values(grid, goal, GAMMA, entrance, np.array([beside, dead_end]))
    assert value_at(grid, values, *beside) == pytest.approx(GAMMA**20)
    assert value_at(grid, values, *dead_end) == 0
    # The 13th step from the origin, to x = 2.6, comes within 1.5 of the entrance: half the luck, and on from there.
    assert value_at(grid, values, 0, 0) == pytest.approx(GAMMA**13 * (GAMMA**20 + 0) / 2)
    # With the goal in the first room nothing leads to it from elsewhere, nor back out of the teleporter.
    back = optimal_values(grid, np.array([0.0, 0.0]), GAMMA, entrance, np.array([beside, dead_end]))
    assert value_at(grid, back, *goal) == 0
    assert value_at(grid, back, 0.4, 0) == pytest.approx(GAMMA**2)


def test_luck_is_taken_only_where_it_is_better() -> None:
    """A teleporter between start and goal: it leads back to the start or right to the goal."""
    grid = maze_grid("#######", "#.....#", "#######")
    entrance, exits = np.array([[8.0, 0.0]]), np.array([[0.0, 0.0], [16.0, 0.0]])
    values = optimal_values(grid, np.array([16.0, 0.0]), GAMMA, entrance, exits)
    # There is no way around: v = gamma^33 (v + 1) / 2 for 33 steps from x = 0 to 6.6, within 1.5 of the entrance.
    start = (GAMMA**33 / 2) / (1 - GAMMA**33 / 2)
    assert value_at(grid, values, 0, 0) == pytest.approx(start)
    # Behind it, 20 steps from the goal, going back 13 steps to the teleporter is better; 15 steps from it, it is not.
    assert value_at(grid, values, 12, 0) == pytest.approx(GAMMA**13 * (start + 1) / 2)
    assert GAMMA**13 * (start + 1) / 2 > GAMMA**20
    assert value_at(grid, values, 13, 0) == pytest.approx(GAMMA**15)

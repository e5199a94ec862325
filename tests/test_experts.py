"""Expert policies as files, and the ant, humanoid and soccer data collected with them."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import expit
from test_data import is_one_sentence

from gtrl.cli import main
from gtrl.data.collect import files
from gtrl.data.collect.episode import Arrays
from gtrl.data.collect.expert import Expert, Experts, load_expert
from gtrl.data.collect.files import collect
from gtrl.data.collect.maze import MazeCollector
from gtrl.data.collect.soccer import Detours, SoccerCollector
from gtrl.errors import DataError
from gtrl.tasks import OGBenchTask, ogbench_task

HEADER = {"format": 1, "layers": 2, "activation": "tanh", "output": "tanh"}
ANT, HUMANOID, DRIBBLER = (29, 8), (69, 21), (42, 8)  # numbers in and out
MAZES = {"antmaze-teleport-navigate": ANT, "antmaze-large-stitch": ANT, "humanoidmaze-medium-stitch": HUMANOID}
SOCCER = ("antsoccer-arena-navigate", "antsoccer-arena-stitch")


def random_expert(ends: tuple[int, int], scale: float = 1.0, hidden: int = 6, **changes: Any) -> dict[str, Any]:
    """A small network of two layers, with the given changes."""
    rng = np.random.default_rng(4)
    arrays = {
        "weight0": rng.normal(size=(ends[0], hidden)) / ends[0] ** 0.5,
        "bias0": rng.normal(size=hidden),
        "weight1": scale * rng.normal(size=(hidden, ends[1])) / hidden**0.5,
        "bias1": scale * rng.normal(size=ends[1]),
        **HEADER,
    }
    return arrays | changes


def save(path: Path, expert: dict[str, Any]) -> Path:
    """Fields of the header by their names, arrays by theirs; None leaves one out."""
    given = {key: value for key, value in expert.items() if value is not None}
    header = {key: given.pop(key) for key in (*HEADER, "kind") if key in given}
    np.savez(path, **{"header": np.array(json.dumps(header)), **given})
    return path


def by_hand(arrays: dict[str, Any], inputs: np.ndarray) -> np.ndarray:
    """The output of an expert of two layers for one input row."""
    activations: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "relu": lambda x: np.where(x > 0, x, 0),
        "gelu": lambda x: x * expit(2 * (2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)),
        "silu": lambda x: x * expit(x),
        "tanh": lambda x: 2 * expit(2 * x) - 1,
    }
    inputs = (inputs - arrays.get("input_mean", 0)) / arrays.get("input_deviation", 1)
    hidden = activations[arrays["activation"]](np.einsum("i,io->o", inputs, arrays["weight0"]) + arrays["bias0"])
    if "scale0" in arrays:
        hidden = (hidden - hidden.mean()) / np.sqrt(hidden.var() + 1e-6) * arrays["scale0"] + arrays["shift0"]
    outputs = np.einsum("i,io->o", hidden, arrays["weight1"]) + arrays["bias1"]
    return np.tanh(outputs) if arrays["output"] == "tanh" else np.minimum(np.maximum(outputs, -1), 1)


# --- the file ---

_rng = np.random.default_rng(0)
NORM = {"scale0": _rng.normal(size=6), "shift0": _rng.normal(size=6)}
STANDARDISED = {"input_mean": _rng.normal(size=29), "input_deviation": _rng.uniform(0.5, 2, 29)}


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "tanh"])
@pytest.mark.parametrize("extra", [{}, NORM, STANDARDISED, NORM | STANDARDISED], ids=["plain", "norm", "std", "both"])
@pytest.mark.parametrize("output", ["tanh", "clip"])
def test_forward_pass(activation: str, extra: dict[str, Any], output: str, tmp_path: Path) -> None:
    arrays = random_expert(ANT, activation=activation, output=output, **extra)
    expert = Expert(save(tmp_path / "expert.npz", arrays))
    rng = np.random.default_rng(1)
    found, expected = [], []
    for _ in range(20):
        state, direction = 2 * rng.normal(size=27), rng.normal(size=2)
        found.append(expert(state, direction))
        expected.append(by_hand(arrays, np.concatenate([state, direction])))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(found).max() <= 1
    assert (np.abs(found).max() == 1) == (output == "clip")  # some are beyond 1 and so clipped
    assert np.abs(found).min() < 0.1


def test_a_deeper_expert_of_another_precision(tmp_path: Path) -> None:
    one, two = random_expert((29, 5)), random_expert((5, 8), hidden=7)
    x = np.linspace(-1, 1, 29)
    for dtype, gap in ((np.float32, 1e-6), (np.float16, 1e-2)):
        deeper = {"weight2": two["weight0"], "bias2": two["bias0"], "weight3": two["weight1"], "bias3": two["bias1"]}
        arrays = {key: value.astype(dtype) if key not in HEADER else value for key, value in (one | deeper).items()}
        expert = Expert(save(tmp_path / "a.npz", arrays | {"layers": 4}))
        assert expert(x).dtype == np.float32
        # The squashed output of the first two layers is a tanh, as is a hidden layer.
        np.testing.assert_allclose(expert(x), by_hand(two, by_hand(one, x)), atol=gap)


def test_the_defaults_of_a_header_are_a_policys(tmp_path: Path) -> None:
    arrays = random_expert(ANT, activation=None, output=None)
    x = np.linspace(-1, 1, 29)
    expected = by_hand(arrays | {"activation": "gelu", "output": "clip"}, x)
    np.testing.assert_allclose(Expert(save(tmp_path / "a.npz", arrays))(x), expected, atol=1e-6)


# changes to a valid file: the error message
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no weights": ({"weight0": None, "weight1": None}, "it has no array 'weight0'"),
    "first layer left out": ({"weight0": None}, "it has no array 'weight0'"),
    "no bias": ({"bias1": None}, "it has no array 'bias1'"),
    "no format": ({"format": None}, "has file format None; this version reads format 1"),
    "unknown activation": ({"activation": "sine"}, "its activation is 'sine', which is not one of relu, gelu, silu"),
    "activation of a list": ({"activation": ["relu"]}, r"its activation is \['relu'\], which is not one of relu"),
    "unknown output": ({"output": "softmax"}, "its output is 'softmax', which is not one of clip, tanh"),
    "one layer too many": ({"layers": 3}, "it has no array 'weight2'"),
    "one layer too few": ({"layers": 1}, "its array 'weight1' belongs to no layer"),
    "layers in words": ({"layers": "two"}, r"'layers' of its header is invalid \('two'\)"),
    "a flow": ({"kind": "flow"}, "it holds a policy of kind 'flow'"),
    "no chain": ({"weight1": np.zeros((5, 8))}, r"'weight1' has the shape \(5, 8\)"),
    "bias": ({"bias0": np.zeros(5)}, r"'weight0' has the shape \(29, 6\)"),
    "norm": (NORM | {"scale0": np.ones(5)}, r"'scale0' has the shape \(5,\)"),
    "flat weights": ({"weight0": np.zeros(29)}, r"'weight0' has the shape \(29,\)"),
    "a number for a matrix": ({"weight0": np.float64(3)}, r"'weight0' has the shape \(\)"),
    "mean of another width": ({"input_mean": np.zeros(28)}, r"'input_mean' has the shape \(28,\)"),
    "mean in two dimensions": ({"input_mean": np.zeros((3, 29))}, r"'input_mean' has the shape \(3, 29\)"),
    "inputs": ({"weight0": np.zeros((28, 6))}, "maps 28 numbers to 8, but an expert that can walk .* maps 29 to 8"),
    "outputs": ({"weight1": np.zeros((6, 7)), "bias1": np.zeros(7)}, "maps 29 numbers to 7, but .* maps 29 to 8"),
    "gap": ({"weight1": None, "weight2": np.zeros((6, 8))}, "it has no array 'weight1'"),
    "norm after the last layer": ({"scale1": np.ones(8), "shift1": np.ones(8)}, "'scale1' belongs to no layer"),
    "another network's": ({"log_std": np.zeros(8)}, "'log_std' belongs to no layer"),
    "NaN": ({"weight0": np.full((29, 6), np.nan)}, "'weight0' holds non-finite or non-numeric values"),
    "infinity": ({"bias1": np.full(8, np.inf)}, "'bias1' holds non-finite or non-numeric values"),
    "words": ({"weight0": np.full((29, 6), "left")}, "'weight0' holds non-finite or non-numeric values"),
    "scale without shift": ({"scale0": np.ones(6)}, "'scale0' and 'shift0' must be given together"),
    "shift without scale": ({"shift0": np.ones(6)}, "'scale0' and 'shift0' must be given together"),
    "mean alone": ({"input_mean": np.zeros(29)}, "'input_mean' and 'input_deviation' must be given together"),
    "deviation zero": (
        {"input_mean": np.zeros(29), "input_deviation": np.eye(29)[0]}, "'input_deviation' has values",
    ),
    "deviation that float32 takes for zero": (
        {"input_mean": np.zeros(29), "input_deviation": np.full(29, 1e-60)}, "'input_deviation' has values",
    ),
    "the layout before there was a header": (
        {"header": np.array(1), "activation": None, "output": None}, "it has no readable header",
    ),
    "objects": ({"weight0": np.full((29, 6), None)}, "not a readable npz file"),
}  # fmt: skip


def rejection(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        load_expert(path, ogbench_task("antmaze-large-stitch"), "walk")
    assert str(path) in str(caught.value)
    assert is_one_sentence(str(caught.value)), caught.value
    return str(caught.value)


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_malformed_experts_are_rejected_with_a_one_line_error(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    found = rejection(save(tmp_path / "expert.npz", random_expert(ANT) | changes))
    assert re.search(message, found), found


def test_expert_that_is_not_an_npz_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("weight0 = 3")
    (tmp_path / "folder.npz").mkdir()
    assert rejection(tmp_path / "none.npz").startswith("there is no file")
    for name in ("text.npz", "folder.npz"):
        assert "is not a readable npz file" in rejection(tmp_path / name)


# --- walking through mazes ---


class Call(NamedTuple):
    """One call of an expert, and the position of the goal at that step."""

    role: str
    inputs: np.ndarray
    goal: np.ndarray


def watch(collector: Any) -> list[Call]:
    """Records the calls of the collector's experts."""
    calls: list[Call] = []

    def keeping(role: str, expert: Any) -> Callable[..., np.ndarray]:
        def answer(*inputs: np.ndarray) -> np.ndarray:
            calls.append(Call(role, np.concatenate(inputs), np.array(collector.simulator.cur_goal_xy)))
            return expert(*inputs)

        return answer

    for attribute, role in (("expert", "walk"), ("walk_expert", "walk"), ("dribble_expert", "dribble")):
        if hasattr(collector, attribute):
            setattr(collector, attribute, keeping(role, getattr(collector, attribute)))
    return calls


def shortened(name: str, rows: int) -> OGBenchTask:
    return replace(ogbench_task(name), trajectory_length=rows - 1)


def seed_of(*words: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(list(words))


def way_to(maze: Any, here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """The unit vector to OGBench's subgoal; in soccer, whose arena has no walls inside, to the target itself."""
    subgoal = there if hasattr(maze, "get_agent_ball_xy") else maze.get_oracle_subgoal(here, there)[0]
    return (subgoal - here) / np.linalg.norm(subgoal - here)


def check_noise(noise: np.ndarray) -> None:
    """(rows, action): Gaussian, standard deviation 0.2, independent from row to row."""
    assert noise.mean() == pytest.approx(0, abs=0.015)
    assert noise.std() == pytest.approx(0.2, abs=0.01)
    assert np.mean(np.abs(noise) < 0.2) == pytest.approx(0.683, abs=0.04)
    assert abs(np.mean(noise[1:] * noise[:-1])) < 0.1 * 0.2**2
    np.testing.assert_allclose(noise.std(0), 0.2, atol=0.05)


@pytest.mark.parametrize("name", MAZES)
def test_expert_gets_the_direction_and_its_action_gets_noise(name: str, tmp_path: Path) -> None:
    arrays = random_expert(MAZES[name], scale=0.1)  # far from 1, so that nothing is clipped
    collector = MazeCollector(shortened(name, 301), Experts(save(tmp_path / "expert.npz", arrays)))
    calls = watch(collector)
    episode = collector.episode(seed_of(2))
    task = ogbench_task(name)
    assert episode["observations"].shape == (301, task.observation_dim)
    assert episode["actions"].shape == (301, task.action_dim)
    np.testing.assert_array_equal(np.flatnonzero(episode["terminals"]), [300])
    ways = [
        way_to(collector.simulator, *pair) for pair in zip(episode["qpos"][:, :2], (c.goal for c in calls), strict=True)
    ]
    inputs = np.concatenate([episode["observations"][:, 2:], ways], 1)
    np.testing.assert_allclose([call.inputs for call in calls], inputs, atol=1e-4)
    answers = np.array([by_hand(arrays, row) for row in inputs])
    assert answers.std() > 0.05
    assert np.abs(episode["actions"]).max() < 1
    check_noise(episode["actions"] - answers)


def test_actions_are_clipped_at_one(tmp_path: Path) -> None:
    certain = random_expert(ANT, bias1=np.full(8, 9.0))
    collector = MazeCollector(shortened("antmaze-large-stitch", 101), Experts(save(tmp_path / "expert.npz", certain)))
    actions = collector.episode(seed_of(0))["actions"]
    assert actions.max() == 1
    assert np.mean(actions == 1) == pytest.approx(0.5, abs=0.06)  # where the noise is positive


# --- soccer ---


@pytest.fixture(scope="module")
def lazy(tmp_path_factory: pytest.TempPathFactory) -> Experts:
    """Experts that do nothing: only the noise moves the ant."""
    folder = tmp_path_factory.mktemp("experts")
    nothing = {"weight1": np.zeros((6, 8)), "bias1": np.zeros(8)}
    ends = {"walk": ANT, "dribble": DRIBBLER}
    return Experts(*(save(folder / f"{role}.npz", random_expert(ends[role]) | nothing) for role in ends))


def soccer(name: str, rows: int, experts: Experts) -> tuple[SoccerCollector, list[Call]]:
    collector = SoccerCollector(shortened(name, rows), experts)
    return collector, watch(collector)


def placed(collector: SoccerCollector, agent: tuple[float, float], ball: tuple[float, float]) -> None:
    """Makes episodes start there."""
    reset = collector.env.reset

    def and_move(seed: np.random.SeedSequence, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        _, info = reset(seed, options)
        collector.simulator.set_agent_ball_xy(agent, ball)
        return collector.simulator.get_ob(), info

    collector.env.reset = and_move  # pyright: ignore[reportAttributeAccessIssue]


def check_inputs(maze: Any, calls: list[Call], episode: Arrays, *, to_goal: bool) -> None:
    """The inputs of the experts follow the protocol at each logged state; walks lead to the goal or to the ball."""
    for call, qpos, qvel in zip(calls, episode["qpos"], episode["qvel"], strict=True):
        observation = np.concatenate([qpos, qvel])
        agent, ball = qpos[:2], qpos[15:17]
        if call.role == "walk":
            expected = [observation[2:15], observation[22:36], way_to(maze, agent, call.goal if to_goal else ball)]
        else:
            away = call.goal - ball
            away = away if np.linalg.norm(away) <= 10 else 10 * away / np.linalg.norm(away)
            expected = [observation[2:15], observation[17:], ball - agent, away]
        np.testing.assert_allclose(call.inputs, np.concatenate(expected), atol=1e-4)


# The cell of these agents reaches from x = 6 to x = 10.
@pytest.mark.parametrize(("start", "apart"), [(8.5, 1.5), (8.5, 2.0), (8.5, 2.5), (6.6, 3.0)])
def test_navigate_walks_to_the_ball_and_dribbles_when_near(start: float, apart: float, lazy: Experts) -> None:
    collector, calls = soccer(SOCCER[0], 100, lazy)
    placed(collector, (start, 8), (start + apart, 8))
    episode = collector.episode(seed_of(3))
    assert episode["observations"].shape == (100, 42)
    far = np.linalg.norm(episode["qpos"][:, :2] - episode["qpos"][:, 15:17], axis=1) > 2
    assert [call.role for call in calls] == ["walk" if row else "dribble" for row in far]
    assert 0 < far.mean() < 1 if apart == 2 else far.all() == (apart > 2)
    check_inputs(collector.simulator, calls, episode, to_goal=False)
    assert np.abs(episode["actions"]).max() < 1
    check_noise(episode["actions"])


def test_dribbler_gets_a_goal_at_most_ten_away(lazy: Experts) -> None:
    collector, calls = soccer(SOCCER[0], 2, lazy)
    placed(collector, (0, 0), (1, 0))
    episodes = [collector.episode(seed_of(seed)) for seed in range(12)]
    check_inputs(collector.simulator, calls, joined(episodes), to_goal=False)
    distances = [np.linalg.norm(call.inputs[-2:]) for call in calls]
    assert {call.role for call in calls} == {"dribble"}
    assert max(distances) == pytest.approx(10, abs=1e-4)
    assert min(distances) < 9


@pytest.mark.parametrize("name", SOCCER)
def test_starts_are_distinct_cells(name: str, lazy: Experts) -> None:
    collector, calls = soccer(name, 2, lazy)
    roles = []
    for seed in range(30):
        calls.clear()
        qpos = collector.episode(seed_of(seed))["qpos"][0]
        agent, ball, goal = (collector.simulator.xy_to_ij(xy) for xy in (qpos[:2], qpos[15:17], calls[0].goal))
        roles.append(calls[0].role)
        assert goal not in (agent, ball)
        assert (ball == agent) == (roles[-1] == "dribble")  # in navigate a walk comes first
    assert 8 <= roles.count("walk") <= 22 if name.endswith("stitch") else set(roles) == {"walk"}


def test_stitch_either_walks_or_dribbles_to_its_goal(lazy: Experts, monkeypatch: pytest.MonkeyPatch) -> None:
    collector, calls = soccer(SOCCER[1], 60, lazy)
    monkeypatch.setattr(collector.simulator, "compute_success", lambda: True)  # which changes nothing
    seen = set()
    for seed in range(6):
        calls.clear()
        check_inputs(collector.simulator, calls, collector.episode(seed_of(seed)), to_goal=True)
        seen.add(frozenset(call.role for call in calls))
        assert len({tuple(call.goal) for call in calls}) == 1
    assert seen == {frozenset({"walk"}), frozenset({"dribble"})}


def test_navigate_goals_are_all_free_cells(lazy: Experts, monkeypatch: pytest.MonkeyPatch) -> None:
    collector, calls = soccer(SOCCER[0], 400, lazy)
    monkeypatch.setattr(collector.simulator, "compute_success", lambda: True)  # a new goal for each step
    collector.episode(seed_of(0))
    cells = [collector.simulator.xy_to_ij(call.goal) for call in calls]
    assert set(cells) == {(int(i), int(j)) for i, j in np.argwhere(collector.simulator.maze_map == 0)}
    off = [call.goal - collector.simulator.ij_to_xy(cell) for call, cell in zip(calls, cells, strict=True)]
    assert 0.9 < np.abs(off).max() <= 1


class Sent(SoccerCollector):
    """Records the targets it walked to."""

    def walk(self, observation: np.ndarray, target: np.ndarray) -> np.ndarray:
        self.targets = [*getattr(self, "targets", []), np.array(target)]
        return super().walk(observation, target)


def test_stuck_agent_gets_another_goal_after_150_steps(lazy: Experts) -> None:
    collector = Sent(shortened(SOCCER[0], 330), lazy)
    placed(collector, (0, 0), (8, 8))
    episode = collector.episode(seed_of(1))
    assert np.linalg.norm(episode["qpos"][:, :2] - episode["qpos"][0, :2], axis=1).max() < 1.9  # it stayed
    to_ball = np.linalg.norm(np.array(collector.targets) - episode["qpos"][:, 15:17], axis=1) < 1e-4
    assert to_ball[:149].all()
    assert not to_ball[150:].any()
    first, second = (np.array(collector.targets[rows]) for rows in (slice(150, 299), slice(300, None)))
    for places in (first, second):
        assert (places == places[0]).all()
        cell = collector.simulator.xy_to_ij(places[0])
        assert collector.simulator.maze_map[cell] == 0
        np.testing.assert_allclose(places[0], collector.simulator.ij_to_xy(cell))  # without noise
    assert (first[0] != second[0]).any()


def test_a_detour_ends_where_it_leads() -> None:
    class Nowhere:
        def random_place(self, _: np.random.Generator) -> np.ndarray:
            return np.array([20.0, 0.0])

    def place(x: float) -> float | None:
        found = detours.at(np.array([x, 0.0]))
        return None if found is None else float(found[0])

    collector: Any = Nowhere()
    detours = Detours(np.random.default_rng(0), collector)
    assert {place(0.02 * step) for step in range(400)} == {None}  # slow, but 3 in 150 steps
    detours = Detours(np.random.default_rng(0), collector)
    assert {place(0.01 * step) for step in range(149)} == {None}
    assert [place(x) for x in (1.5, 10, 18.1, 19.4)] == [20.0] * 4
    assert [place(x) for x in (19.6, 17, 1)] == [None] * 3  # within 0.5 of it; then back to the ball
    assert {place(0) for _ in range(140)} == {None}
    assert [place(0) for _ in range(20)][-1] == 20


# --- seeds and files ---


def joined(episodes: list[Arrays]) -> Arrays:
    return {key: np.concatenate([episode[key] for episode in episodes]) for key in episodes[0]}


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Experts:
    """Experts that move, as a maze and soccer need them."""
    folder = tmp_path_factory.mktemp("experts")
    return Experts(*(save(folder / f"{ends[0]}.npz", random_expert(ends)) for ends in (ANT, DRIBBLER)))


@pytest.mark.parametrize("name", ["antmaze-teleport-navigate", *SOCCER])
def test_episode_depends_on_the_seed_alone(name: str, busy: Experts) -> None:
    make = SoccerCollector if name in SOCCER else MazeCollector
    first, second = (make(shortened(name, 40), busy) for _ in range(2))
    np.random.seed(3)
    expected, other = first.episode(seed_of(0)), second.episode(seed_of(1))
    found = second.episode(seed_of(0))
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value)
        assert key in ("terminals", "arrivals") or not np.array_equal(other[key], value)
    assert np.random.random() == np.random.RandomState(3).random()


def test_worker_processes_collect_the_same_bytes(
    busy: Experts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(workers: int) -> list[bytes]:
        path = collect(task, tmp_path / f"{workers}.npz", episodes=3, workers=workers, experts=busy, show=False)
        return [path.read_bytes(), path.with_name(f"{workers}-val.npz").read_bytes()]

    task = shortened(SOCCER[1], 20)
    elsewhere = both(2)
    monkeypatch.setattr(files, "map_unordered", lambda function, jobs, _: enumerate(map(function, jobs)))
    assert both(1) == elsewhere


@pytest.mark.parametrize("role", ["walk", "dribble"])
def test_resuming_needs_the_same_experts(
    role: str, busy: Experts, lazy: Experts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(function: Callable[[Any], int], jobs: list[Any], _: int | None) -> Iterator[tuple[int, int]]:
        yield 0, function(jobs[0])
        raise KeyboardInterrupt

    def run(name: str, experts: Experts) -> Path:
        return collect(task, tmp_path / name, episodes=3, workers=1, experts=experts, show=False)

    task = shortened(SOCCER[0], 10)
    monkeypatch.setattr(files, "map_unordered", stopped)
    with pytest.raises(KeyboardInterrupt):
        run("a.npz", busy)
    monkeypatch.setattr(files, "map_unordered", lambda function, jobs, _: enumerate(map(function, jobs)))
    with pytest.raises(
        DataError, match=r"holds an interrupted collection with experts .*; use these settings"
    ) as caught:
        run("a.npz", busy._replace(**{role: getattr(lazy, role)}))
    assert is_one_sentence(str(caught.value)), caught.value
    copies = Experts(*(Path(shutil.copy(path, tmp_path / f"copy-{path.name}")) for path in busy if path))
    assert run("a.npz", copies).read_bytes() == run("b.npz", busy).read_bytes()  # their content counts, not their path


@pytest.mark.usefixtures("no_shipped_experts")
@pytest.mark.parametrize(
    ("name", "given", "role", "flag"),
    [
        ("antmaze-large-navigate", False, "walk", "--expert"),
        ("humanoidmaze-large-stitch", False, "walk", "--expert"),
        ("antsoccer-arena-stitch", False, "walk", "--expert"),
        ("antsoccer-arena-navigate", True, "dribble", "--dribble-expert"),
    ],
)
def test_a_missing_expert_is_named(
    name: str, given: bool, role: str, flag: str, busy: Experts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.npz"
    with pytest.raises(DataError) as caught:
        collect(name, out, experts=Experts(walk=busy.walk) if given else Experts())
    message = str(caught.value)
    assert (
        f"collecting {name} needs an expert that can {role}, and the package includes none: give {flag} FILE" in message
    )
    assert f"'gtrl data get {name}'" in message
    assert is_one_sentence(message)
    assert main(["data", "collect", name, "--out", str(out), *(["--expert", str(busy.walk)] if given else [])]) == 2
    assert capsys.readouterr() == ("", f"gtrl: {message}\n")
    assert not list(tmp_path.iterdir())

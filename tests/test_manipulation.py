"""The manipulation collector: rows in OGBench's layout, OGBench's oracles, episodes that depend on the seed alone."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ogbench
import pytest
from scipy import stats

from gtrl.data.collect import files, manipulation
from gtrl.data.collect.episode import Arrays
from gtrl.data.collect.manipulation import PlayCollector, out_of_sight
from gtrl.data.task_goals import task_goals
from gtrl.envs.isolation import IsolatedEnv, ignore_warnings
from gtrl.envs.make import make_environment
from gtrl.tasks import OGBenchTask, ogbench_task
from gtrl.tasks.ogbench import OGBENCH

# task: cubes, buttons
PLAY = {
    "cube-single-play": (1, 0),
    "cube-double-play": (2, 0),
    "scene-play": (1, 2),
    "puzzle-3x3-play": (0, 9),
    "puzzle-4x4-play": (0, 16),
}
WITH_BUTTONS = [name for name, (_, buttons) in PLAY.items() if buttons]
ROWS = 320
# Of two sizes of one family, `make test` collects the larger.
SMALLER = ("cube-single-play", "puzzle-3x3-play")


def tasks(names: Iterable[str]) -> pytest.MarkDecorator:
    marks = {name: pytest.mark.soak if name in SMALLER else () for name in names}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=mark) for name, mark in marks.items()])


every_task, every_task_with_buttons = tasks(PLAY), tasks(WITH_BUTTONS)


def shortened(name: str, rows: int) -> OGBenchTask:
    return replace(ogbench_task(name), trajectory_length=rows - 1)


def seed_of(*words: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(list(words))


def same(first: Arrays, second: Arrays) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


def after(thing: Any, name: str, note: Callable[..., object]) -> None:
    """Calls `note` with the result and arguments of each call of a method."""
    method = getattr(thing, name)

    def noted(*args: Any, **options: Any) -> Any:
        answer = method(*args, **options)
        note(answer, *args, **options)
        return answer

    setattr(thing, name, noted)


class Watched(PlayCollector):
    """Records the simulator's actions and observations, and the calls of the oracles, in order."""

    def __init__(self, task: OGBenchTask) -> None:
        super().__init__(task)
        self.steps: list[tuple[np.ndarray, np.ndarray]] = []  # action, what was observed after it
        self.log: list[tuple[str, str, Any]] = []
        after(self.simulator, "step", lambda answer, action: self.steps.append((action.copy(), answer[0])))
        after(self.simulator, "set_new_target", self.note_target)
        for name, oracle in self.oracles.items():
            after(oracle, "reset", partial(self.note_begin, name))
            after(oracle, "select_action", partial(self.note_action, name))

    def note_target(self, answer: Any, **options: Any) -> None:
        if answer is not None:  # at a reset OGBench sets one itself and asks for no answer
            self.log.append(("target", answer[1]["privileged/target_task"], options["p_stack"]))

    def note_begin(self, name: str, _: None, __: np.ndarray, info: dict[str, Any]) -> None:
        self.log.append(("begin", name, info["privileged/target_task"]))

    def note_action(self, name: str, *_: Any) -> None:
        self.log.append(("act", name, self.oracles[name].done))


class First(NamedTuple):
    """The first episode of a collector, and its records."""

    collector: Watched
    episode: Arrays
    steps: tuple[tuple[np.ndarray, np.ndarray], ...]
    log: tuple[tuple[str, str, Any], ...]


class Seen(dict[str, First]):
    """The first episode of each task, collected when it is first asked for."""

    def __missing__(self, name: str) -> First:
        collector = Watched(shortened(name, ROWS))
        self[name] = First(collector, collector.episode(seed_of(0)), tuple(collector.steps), tuple(collector.log))
        return self[name]


class Others(dict[str, PlayCollector]):
    """Another collector of each task, made when it is first asked for."""

    def __missing__(self, name: str) -> PlayCollector:
        self[name] = PlayCollector(shortened(name, ROWS))
        return self[name]


@pytest.fixture(scope="module")
def watched() -> Seen:
    return Seen()


@pytest.fixture(scope="module")
def others() -> Others:
    return Others()


# --- rows ---


@every_task
def test_shape_of_an_episode(name: str, watched: Seen) -> None:
    episode = watched[name].episode
    cubes, buttons = PLAY[name]
    slides = 2 if name == "scene-play" else 0  # drawer and window
    robot = 6 + 8  # joints of the arm and of the gripper
    widths = {
        "observations": 19 + 9 * cubes + 4 * buttons + 2 * slides,
        "actions": 5,
        "qpos": robot + 7 * cubes + buttons + slides,
        "qvel": robot + 6 * cubes + buttons + slides,
    }
    assert widths["observations"] == ogbench_task(name).observation_dim
    assert set(episode) == {*widths, "terminals"} | ({"button_states"} if buttons else set())
    for key, width in widths.items():
        assert episode[key].shape == (ROWS, width)
        assert episode[key].dtype == np.float32
    if buttons:
        assert episode["button_states"].shape == (ROWS, buttons)
        assert episode["button_states"].dtype == np.int64
    assert episode["terminals"].dtype == bool
    np.testing.assert_array_equal(np.flatnonzero(episode["terminals"]), [ROWS - 1])
    assert 0.5 < np.abs(episode["actions"]).max() <= 1


@every_task
def test_actions_lead_from_row_to_row(name: str, watched: Seen) -> None:
    """Played again, without oracles and new targets. Actions as they were: logged ones are rounded to float32."""
    _, episode, steps, _ = watched[name]
    actions, following = (np.array(column) for column in zip(*steps, strict=True))
    np.testing.assert_array_equal(episode["actions"], actions.astype(np.float32))
    np.testing.assert_array_equal(episode["observations"][1:], following[:-1].astype(np.float32))
    env = IsolatedEnv(make_environment(ogbench_task(name), mode="data_collection"))
    observation, _ = env.reset(np.random.SeedSequence([0], spawn_key=(0,)), {})  # the first attempt
    rows = []
    for action in actions:
        reached, _, _, _, info = env.step(action)
        rows.append((observation, info["prev_qpos"], info["prev_qvel"]))
        observation = reached
    for key, played in zip(("observations", "qpos", "qvel"), zip(*rows, strict=True), strict=True):
        np.testing.assert_array_equal(episode[key], np.array(played, np.float32))


@every_task_with_buttons
def test_button_states_are_those_observed(name: str, watched: Seen) -> None:
    episode = watched[name].episode
    cubes, buttons = PLAY[name]
    start, joint = 19 + 9 * cubes, 14 + 7 * cubes
    seen = episode["observations"][:, start : start + 4 * buttons].reshape(ROWS, buttons, 4)
    np.testing.assert_array_equal(seen[..., :2], np.eye(2)[episode["button_states"]])
    np.testing.assert_allclose(seen[..., 2], 120 * episode["qpos"][:, joint : joint + buttons], atol=1e-4)


@every_task_with_buttons
def test_press_toggles_a_button_and_in_puzzles_its_neighbours(name: str, watched: Seen) -> None:
    episode = watched[name].episode
    cubes, buttons = PLAY[name]
    place = np.stack(np.divmod(np.arange(buttons), round(buttons**0.5)), -1)
    apart = np.abs(place[:, None] - place).sum(-1)
    turns = (apart <= (0 if name == "scene-play" else 1)).astype(int)  # lights out: a cross, cut off at the edges
    joints = episode["qpos"][:, 14 + 7 * cubes :][:, :buttons]
    pressed = (joints[:-1] > -0.02) & (joints[1:] <= -0.02)
    assert pressed.sum() >= 3
    states = episode["button_states"]
    np.testing.assert_array_equal(states[1:], (states[:-1] + pressed @ turns) % 2)


@every_task
def test_oracles_move_cubes_and_press_buttons(name: str, watched: Seen) -> None:
    episode = watched[name].episode
    for cube in range(PLAY[name][0]):
        places = episode["qpos"][:, 14 + 7 * cube : 17 + 7 * cube]
        assert np.linalg.norm(places - places[0], axis=1).max() > 0.05
    if name in WITH_BUTTONS:
        assert (episode["button_states"] != episode["button_states"][0]).any()


# --- the protocol ---


@every_task
def test_settings_of_the_oracles(name: str, watched: Seen) -> None:
    collector, episode, *_ = watched[name]
    for oracle in collector.oracles.values():
        assert (oracle._noise, oracle._noise_smoothing) == (0.1, 0.5)
    puzzle = name.startswith("puzzle")
    assert collector.oracles["button"]._gripper_always_closed is puzzle
    opening = episode["observations"][20:, 17] / 3  # 1 is closed; it takes a moment from the start
    assert (opening.min() > 0.7) == puzzle
    assert collector.simulator._mode == "data_collection"


@every_task
def test_new_target_and_matching_oracle_when_the_oracle_is_done(name: str, watched: Seen) -> None:
    log = watched[name].log
    assert log[0][0] == "begin"
    for (what, which, fact), (following, which_next, _) in pairwise(log):
        if what == "act":
            assert following == ("target" if fact else "act")
        else:
            assert following == {"target": "begin", "begin": "act"}[what]
        if following != "target":
            assert which_next == which
    assert all(task == which for what, which, task in log if what == "begin")
    assert sum(what == "act" for what, _, _ in log) == ROWS
    targets = [which for what, which, _ in log if what == "target"]
    assert len(targets) >= 3
    assert (len(set(targets)) >= 3) == (name == "scene-play")


class Hasty:
    """An oracle that stands still and is done at once."""

    done = True

    def reset(self, *_: Any) -> None: ...

    def select_action(self, *_: Any) -> np.ndarray:
        return np.zeros(5)


def stack_probabilities(collector: Watched, episodes: int, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """(episodes, targets set in each)."""
    for name, value in {"rows": 2, "log": [], "oracles": dict.fromkeys(collector.oracles, Hasty())}.items():
        monkeypatch.setattr(collector, name, value)
    for seed in range(episodes):
        collector.episode(seed_of(seed))
    return np.array([fact for what, _, fact in collector.log if what == "target"]).reshape(episodes, 2)


@pytest.mark.parametrize(("name", "expected"), [("cube-single-play", 0), ("scene-play", 0.5)])
def test_stack_probability(name: str, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stack_probabilities(Watched(shortened(name, ROWS)), 5, monkeypatch)
    np.testing.assert_array_equal(found, np.full((5, 2), expected))


def test_stack_probability_of_two_cubes(watched: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = watched["cube-double-play"].collector
    found = stack_probabilities(collector, 150, monkeypatch)
    np.testing.assert_array_equal(found[:, 0], found[:, 1])  # drawn once for each episode, from its seed
    np.testing.assert_array_equal(stack_probabilities(collector, 3, monkeypatch), found[:3])
    assert stats.kstest(found[:, 0], stats.uniform(0, 0.25).cdf).pvalue > 0.05


# --- unhealthy episodes ---


@pytest.mark.parametrize(
    ("y", "z", "expected"),
    [
        (0.0, 0.02, False), (0.0, 0.5, False), (0.2899, 0.02, False), (0.29, 0.02, True), (0.29, 0.07, True),
        (0.5, 0.02, True), (-0.2999, 0.02, False), (-0.2999, 0.3, False), (-0.3, 0.02, True), (-0.3, 0.0599, True),
        (-0.3, 0.06, False), (-0.3, 0.07, False), (-0.3, 0.08, False), (-0.3, 0.0801, True), (-0.4, 0.07, False),
    ],
)  # fmt: skip
def test_out_of_sight(y: float, z: float, expected: bool) -> None:
    assert [out_of_sight(np.array([x, y, z])) for x in (-1.0, 0.425, 1.0)] == [expected] * 3


def losing_sight_twice(seen: list[np.ndarray]) -> Callable[[np.ndarray], bool]:
    """The cube is lost in the fourth row of the first attempt and in the first row of the second."""

    def lost(cube: np.ndarray) -> bool:
        seen.append(cube.astype(np.float32))
        return len(seen) in (4, 5)

    return lost


def test_unhealthy_scene_is_collected_again(watched: Seen, others: Others, monkeypatch: pytest.MonkeyPatch) -> None:
    collectors: list[PlayCollector] = [others["scene-play"], watched["scene-play"].collector]
    found = []
    for collector in collectors:
        monkeypatch.setattr(collector, "rows", 10)
        monkeypatch.setattr(manipulation, "out_of_sight", out_of_sight)
        healthy = collector.episode(seed_of(7))
        monkeypatch.setattr(manipulation, "out_of_sight", losing_sight_twice(seen := []))
        found.append(collector.episode(seed_of(7)))
        assert len(seen) == 4 + 1 + 10
        np.testing.assert_array_equal(seen[:4], healthy["qpos"][:4, 14:17])
        np.testing.assert_array_equal(seen[5:], found[-1]["qpos"][:, 14:17])  # whole, and of the third attempt alone
        assert len({tuple(seen[row]) for row in (0, 4, 5)}) == 3
        np.testing.assert_array_equal(np.flatnonzero(found[-1]["terminals"]), [9])
    assert same(*found)


def test_only_scenes_can_be_unhealthy(others: Others, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manipulation, "out_of_sight", lambda _: True)
    for name in ("cube-double-play", "puzzle-4x4-play"):
        monkeypatch.setattr(others[name], "rows", 3)
        assert others[name].attempt(seed_of(0)) is not None
    monkeypatch.setattr(others["scene-play"], "rows", 3)
    assert others["scene-play"].attempt(seed_of(0)) is None


# --- seeds and files ---


@every_task
def test_the_seed_alone_decides(name: str, watched: Seen, others: Others, monkeypatch: pytest.MonkeyPatch) -> None:
    collector, first = others[name], watched[name].episode
    np.random.seed(3)
    with monkeypatch.context() as context:
        context.setattr(collector, "rows", 20)
        other = collector.episode(seed_of(1))
    for key in ("observations", "actions", "qpos"):
        assert (other[key] != first[key][:20]).any(1).all()
    assert same(collector.episode(seed_of(0)), first)  # in another collector, after other episodes
    assert np.random.random() == np.random.RandomState(3).random()  # the global generator is unchanged


@pytest.fixture
def in_this_process(others: Others, monkeypatch: pytest.MonkeyPatch) -> Callable[[OGBenchTask], None]:
    """Runs the next collection in this process, with a used collector."""

    def prepare(task: OGBenchTask) -> None:
        monkeypatch.setattr(others[task.name], "rows", task.trajectory_length + 1)
        monkeypatch.setattr(files, "_collector", lambda *_: others[task.name])
        monkeypatch.setattr(files, "map_unordered", lambda function, jobs, _: enumerate(map(function, jobs)))

    return prepare


@every_task
def test_ogbench_reads_a_collected_file(
    name: str, in_this_process: Callable[[OGBenchTask], None], tmp_path: Path
) -> None:
    in_this_process(task := shortened(name, 8))
    path = files.collect(task, tmp_path / f"{task.dataset}.npz", episodes=3, workers=1, show=False)
    with ignore_warnings():
        name = str(task.environment).removeprefix(OGBENCH)
        datasets: Any = ogbench.make_env_and_datasets(name, dataset_path=str(path), add_info=True)
    for read, beside, episodes in zip(
        datasets[1:], (path, path.with_name(f"{path.stem}-val.npz")), (3, 1), strict=True
    ):
        arrays = dict(np.load(beside))
        kept = np.arange(8 * episodes).reshape(episodes, 8)[:, :-1].ravel()  # OGBench leaves out each last row
        np.testing.assert_array_equal(read["oracle_reps"], task_goals(arrays, task)[kept])
        np.testing.assert_array_equal(read["next_observations"], arrays["observations"][kept + 1])
        for key in arrays.keys() - {"terminals"}:
            np.testing.assert_array_equal(read[key], arrays[key][kept])


@pytest.mark.soak  # test_collect.py and test_experts.py have it for mazes and soccer
def test_worker_processes_collect_the_same_bytes(
    in_this_process: Callable[[OGBenchTask], None], tmp_path: Path
) -> None:
    def both(workers: int) -> list[bytes]:
        path = files.collect(task, tmp_path / f"{workers}.npz", episodes=3, workers=workers, seed=5, show=False)
        return [path.read_bytes(), path.with_name(f"{workers}-val.npz").read_bytes()]

    task = shortened("scene-play", 12)
    elsewhere = both(2)
    in_this_process(task)
    assert both(1) == elsewhere

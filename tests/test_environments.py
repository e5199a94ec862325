"""User-defined environments: both conventions, rejected ones, plugins, and machines without rendering."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from gtrl.envs.goals import GoalEpisodes
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment
from gtrl.envs.maze import maze_of
from gtrl.errors import ConfigError, EpisodeError, RunError
from gtrl.evaluation.evaluate import evaluate
from gtrl.evaluation.rollout import Episode, Job, run_episodes
from gtrl.io import mlp
from gtrl.io.mlp_file import MLP  # not the actor: workers import this file, and JAX takes them a second
from gtrl.runs.policy import load_policy, save_policy
from gtrl.runs.run import Run
from gtrl.tasks import Task, find_task, ogbench_task

PLACES = (3.0, -2.5, 0.5)  # the goals of task ids 1 to 3


class Line(gymnasium.Env):
    """A point on a line that starts at 0 and moves by its action; OGBench's convention. It never ends an episode."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float64)
        self.x = self.goal = 0.0

    def choose(self, options: dict[str, Any]) -> float:
        return PLACES[options["task_id"] - 1]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.goal = 0.0, self.choose(options or {})
        return self.observe(), {"goal": np.array([self.goal])}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x += float(action[0])
        return self.observe(), 0.0, False, False, self.report(abs(self.x - self.goal) < 0.1)

    def observe(self) -> Any:
        return np.array([self.x])

    def report(self, arrived: bool) -> dict[str, Any]:
        return {"success": float(arrived)}


class GoalLine(Line):
    """The same as a GoalEnv that draws its goal from the seed."""

    def choose(self, options: dict[str, Any]) -> float:
        assert not options
        return float(self.np_random.uniform(-5, 5))

    def observe(self) -> Any:
        return {"observation": super().observe(), "achieved_goal": [self.x], "desired_goal": [self.goal]}

    def report(self, arrived: bool) -> dict[str, Any]:
        return {"is_success": arrived}


class GivenLine(GoalLine):
    """A GoalEnv that takes a given goal."""

    def choose(self, options: dict[str, Any]) -> float:
        return float(options["goal"][0])


class SilentLine(Line):
    """Takes a goal and does not report it."""

    def choose(self, options: dict[str, Any]) -> float:
        return float(options["goal"][0])

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        return super().reset(**how)[0], {}


TOWARDS = mlp.Layer(np.array([[-1], [1]], np.float32), np.zeros(1, np.float32))  # action = clip(goal - position)


def policy(path: Path, **changes: Any) -> Path:
    header = {"kind": "gaussian", "algorithm": "custom", "task": None, "seed": 4, "step": 7}
    sizes = dict.fromkeys(("observation_dim", "goal_dim", "action_dim"), 1)
    save_policy(path, MLP([TOWARDS]), header | sizes | changes)
    return path


def outcomes(task: Task, path: Path, numbers: Sequence[int] = (0,)) -> list[tuple[str, bool, int, float]]:
    """(goal's name, success, length, goal) of episodes for all of a task's goals."""
    episodes = tuple(Episode(goal, k) for k in numbers for goal in range(1, len(task.goal_names) + 1))
    played = run_episodes(load_policy(path), Job(str(path), task, episodes, 0, record=0))
    order = {episode: place for place, episode in enumerate(episodes)}
    played.sort(key=lambda outcome: order[outcome.episode])
    return [(task.goal_names[o.episode.goal - 1], o.success, o.length, float(o.goal[0])) for o in played]


# --- both conventions ---


def test_task_ids(tmp_path: Path) -> None:
    """In steps of 1: 3 of them to 3, 3 to -2.5 and 1 to 0.5. Success ends an episode; this environment never does."""
    task = Task("line", Line, goals=3, episode_length=20)
    assert outcomes(task, policy(tmp_path / "p.npz")) == [
        ("task1", True, 3, 3.0),
        ("task2", True, 3, -2.5),
        ("task3", True, 1, 0.5),
    ]


def test_step_budget_ends_an_unsuccessful_episode(tmp_path: Path) -> None:
    assert outcomes(Task("line", Line, goals=1, episode_length=2), policy(tmp_path / "p.npz")) == [
        ("task1", False, 2, 3.0)
    ]


def test_a_goal_env_draws_its_goals_from_the_seed(tmp_path: Path) -> None:
    task, path = Task("line", GoalLine, episode_length=20), policy(tmp_path / "p.npz")
    found = outcomes(task, path, range(6))
    assert [(name, success) for name, success, _, _ in found] == [("random", True)] * 6
    for _, _, length, goal in found:
        assert length == int(np.ceil(abs(goal) - 0.1))  # in steps of 1 until it is nearer than 0.1
    assert len({goal for *_, goal in found}) == 6
    assert outcomes(task, path, range(6)) == found


@pytest.mark.parametrize("kind", [GivenLine, SilentLine])
def test_user_defined_goals(kind: type[Line], tmp_path: Path) -> None:
    task = Task("line", kind, goals=[[2.0], [-4.5]], episode_length=20)
    assert outcomes(task, policy(tmp_path / "p.npz")) == [("goal1", True, 2, 2.0), ("goal2", True, 5, -4.5)]


def test_user_defined_success(tmp_path: Path) -> None:
    class Reports(Line):
        def report(self, arrived: bool) -> dict[str, Any]:
            return {"success": not arrived, "left": abs(self.x - self.goal)}

    task = Task("line", Reports, goals=1, success=lambda info: info["left"] < 1.5, episode_length=9)
    assert outcomes(task, policy(tmp_path / "p.npz")) == [("task1", True, 2, 3.0)]


def test_success_may_be_reported_at_the_end_only(tmp_path: Path) -> None:
    class Ends(Line):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            observation, reward, _, _, info = super().step(action)
            ended = bool(info["success"])
            return observation, reward, ended, False, {"is_success": True} if ended else {}

    assert outcomes(Task("line", Ends, goals=1), policy(tmp_path / "p.npz")) == [("task1", True, 3, 3.0)]


# --- rejected environments and tasks ---


class Deaf(GoalLine):
    def choose(self, options: dict[str, Any]) -> float:
        return 1.25 + 0 * len(options)


class NoSuccess(Line):
    def report(self, arrived: bool) -> dict[str, Any]:
        return {"arrived": arrived}


class NoGoal(Line):
    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        return super().reset(**how)[0], {}


class Wide(Line):
    def observe(self) -> Any:
        return np.array([self.x, 0.0, 0.0])


class OtherDictionary(GoalLine):
    def observe(self) -> Any:
        return {"image": np.zeros(3), "desired_goal": [self.goal]}


class Breaks(Line):
    def step(self, action: Any) -> Any:
        raise ZeroDivisionError(f"no such number as {action[0]}")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Task("t", Deaf, goals=[[2.0]]), r"goal1, episode 0: .* was given the goal \[2\.0\] and reports \[1\.25\]"),
        (Task("t", NoSuccess, goals=1, episode_length=2), "task1, episode 0: the environment reports no success"),
        (Task("t", NoGoal, goals=2), "task1, episode 0: the environment reports no goal"),
        (Task("t", Wide, goals=1), r"task1, episode 0: the observation has the shape \(3,\), .* takes 1 numbers"),
        (Task("t", OtherDictionary), "random, episode 0: .* without 'observation': it has image, desired_goal"),
        (Task("t", Breaks, goals=1), "task1, episode 0: the environment raised ZeroDivisionError: no such number as 1"),
    ],
)  # fmt: skip
def test_environments_of_neither_convention_are_rejected(task: Task, message: str, tmp_path: Path) -> None:
    with pytest.raises(EpisodeError, match=rf"^t, {message}"):
        outcomes(task, policy(tmp_path / "p.npz"))


def failing() -> gymnasium.Env:
    raise FileNotFoundError("no simulator")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (None, "the task t has no environment"),
        ("no_such_package:Env-v0", "'no_such_package' of the environment .* cannot be imported: .*PYTHONPATH"),
        ("NoSuchEnvironment-v7", "no Gymnasium environment 'NoSuchEnvironment-v7' is registered .*my_package:NoSuch"),
        ("test_environments:nothing", "the module 'test_environments' has no 'nothing'"),
        (failing, "the environment of t cannot be made: FileNotFoundError: no simulator"),
        (dict, r"the environment of t is a dict, not a gymnasium\.Env"),
    ],
)
def test_environments_that_cannot_be_made_are_reported(environment: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_environment(Task("t", environment))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "a task's name is ''"),
        ({"name": "a:b"}, "a task's name is 'a:b'"),
        ({"name": 3}, "a task's name is 3"),
        ({"environment": ""}, "its environment must be a factory, a Gymnasium id or module:factory"),
        ({"environment": 3}, "its environment must be"),
        ({"goals": 0}, "goals is 0 and must be a positive number of task ids"),
        ({"goals": True}, "goals is True"),
        ({"goals": []}, r"goals is \(\)"),
        ({"goals": 2.5}, r"goals is 2\.5"),
        ({"goals": [1.0, 2.0]}, r"goal 1 is 1\.0 and must be a vector of finite numbers"),
        ({"goals": [[1.0, 2.0], [3.0]]}, "goal 2 has 1 numbers where goal 1 has 2"),
        ({"goals": [[1.0, float("nan")]]}, "goal 1 is .* and must be a vector of finite numbers"),
        ({"goals": [[1.0, 2.0]], "goal_dim": 3}, "its goals have 2 numbers where goal_dim is 3"),
        ({"goal": ()}, r"goal is \(\) and must be columns"),
        ({"goal": (0.5,)}, r"goal is \(0\.5,\) and must be columns"),
        ({"success": "info"}, "success must be a function"),
        ({"episode_length": 0}, "episode_length is 0 and must be a positive integer"),
        ({"observation_dim": 2.5}, r"observation_dim is 2\.5"),
        ({"defaults": [0.9]}, "defaults must be a dictionary"),
    ],
)
def test_invalid_tasks_are_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Task(**{"name": "t", **fields})  # pyright: ignore[reportArgumentType]


def test_arrays_and_lists_make_the_same_task() -> None:
    one = Task("t", Line, goals=np.array([[1.0, 2.0]]), goal=[0, 1])  # pyright: ignore[reportArgumentType]
    other = Task("t", Line, goals=[(1.0, 2.0)], goal=range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one.goal_names == ("goal1",)
    assert one.to_json()["environment"] == "test_environments:Line"


# --- through evaluate ---

LINE = Task("line", "test_environments:GivenLine", goals=[[2.0], [30.0]], episode_length=20)


@pytest.mark.parametrize("task", [LINE, "test_environments:LINE"])
def test_given_task_overrides_the_policys(task: Task | str, tmp_path: Path) -> None:
    path = policy(tmp_path / "p.npz", task="pointmaze-mini-navigate")
    rows = evaluate(path, task=task, episodes=3, base_seed=5, workers=2, show=False)
    who = {"algorithm": "custom", "task": "line", "seed": 4, "step": 7, "episodes": 3, "base_seed": 5}
    assert rows == [who | {"goal": "goal1", "successes": 3}, who | {"goal": "goal2", "successes": 0}]


def test_locally_defined_task_reaches_the_workers(tmp_path: Path) -> None:
    task = Task("lambda", lambda: GivenLine(), goals=[[1.0]], success=lambda info: info["is_success"], episode_length=9)
    rows = evaluate(policy(tmp_path / "p.npz"), task=task, episodes=2, workers=1, show=False)
    assert [(row["goal"], row["successes"]) for row in rows] == [("goal1", 2)]


def test_policy_for_an_unknown_task_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"trained for the task 'elsewhere', which is unknown here: name it with --task"):
        evaluate(policy(tmp_path / "p.npz", task="elsewhere"), episodes=1)


PLUGIN = """
from test_environments import GivenLine
import gtrl

def make():
    return GivenLine()

THEIRS = gtrl.Task("their-line", "their_plugin:make", goals=[[2.0]], episode_length=9)
"""


def test_plugins_of_a_run_define_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    run = Run(tmp_path / "run")
    run.save_config({"seeds": [4], "plugins": ["__main__", "their_plugin"]})
    policy(run.path / "policies/step-7/seed-4.npz", task="their-line")
    rows = evaluate(run, episodes=2, workers=1, show=False)
    assert [(row["task"], row["goal"], row["successes"]) for row in rows] == [("their-line", "goal1", 2)]
    assert [row["successes"] for row in run.evaluations()] == [2]
    assert not (run.path / "rollouts.npz").exists()  # it is not a maze
    assert find_task("their-line").goals == ((2.0,),)


# --- environments that share a process ---


def test_a_goal_env_depends_on_its_seed_alone() -> None:
    task = Task("umaze", "gymnasium_robotics:PointMaze_UMaze-v3")
    assert maze_of(task) is None  # a maze of another package, not of OGBench
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 2))

    def play(env: GoalEpisodes, seed: int) -> list[np.ndarray]:
        observation, goal = env.reset(np.random.SeedSequence(seed), 1)
        return [goal, observation, *(env.step(action).observation for action in actions)]

    one, other = (GoalEpisodes(task, IsolatedEnv(make_environment(task))) for _ in range(2))
    first, second = play(one, 1), play(other, 2)
    for env, seed, expected in ((other, 1, first), (one, 2, second), (one, 1, first)):
        np.testing.assert_array_equal(np.concatenate(play(env, seed)), np.concatenate(expected))
    assert first[0].shape == (2,)
    assert first[1].shape == (4,)
    assert not np.array_equal(first[0], second[0])


class Own(Line):
    """Keeps its action space behind a property, as some environments do."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.kept = gymnasium.spaces.Box(-1, 1, (1,))

    @property
    def action_space(self) -> Any:
        return self.kept

    @action_space.setter
    def action_space(self, space: Any) -> None:
        self.kept = space


def test_a_property_that_keeps_its_action_space_is_left_alone() -> None:
    env = Own()
    isolated = IsolatedEnv(env)
    assert type(env) is Own
    draws = []
    for seed in (1, 1, 2):
        isolated.reset(np.random.SeedSequence(seed), {"task_id": 1})
        draws.append(float(env.action_space.sample()[0]))
    assert draws[0] == draws[1] != draws[2]


# --- machines without rendering ---

WITHOUT_GL = """
import sys
from pathlib import Path
from gtrl.data.collect import make_collector
from gtrl.data.collect.expert import NO_EXPERTS
from gtrl.data.collect.files import collect
from gtrl.evaluation.evaluate import evaluate
from gtrl.envs.make import make_environment
from gtrl.tasks import ogbench_task

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    collect("pointmaze-mini-navigate", folder / "a.npz", episodes=1, workers=1, show=False)
    make_environment(ogbench_task("pointmaze-mini-navigate"))
    make_collector(ogbench_task("cube-single-play"), NO_EXPERTS)
    print(len(evaluate(folder / "p.npz", episodes=1, workers=1, show=False)))
"""


@pytest.mark.parametrize("backend", ["abacus", "osmesa"])
def test_collecting_and_evaluating_need_no_opengl(backend: str, tmp_path: Path) -> None:
    """`abacus` is not a backend; the OpenGL library of `osmesa` is hidden from the loader."""
    sizes = {"observation_dim": 2, "goal_dim": 2, "action_dim": 2}
    header = {"kind": "gaussian", "algorithm": "bc", "task": "pointmaze-mini-navigate", "seed": 0, "step": 1} | sizes
    layer = mlp.Layer(np.zeros((4, 2), np.float32), np.zeros(2, np.float32))
    save_policy(tmp_path / "p.npz", MLP([layer]), header)
    (tmp_path / "program.py").write_text(WITHOUT_GL)
    # A package named OpenGL that cannot be imported stands for a missing library.
    (tmp_path / "OpenGL").mkdir()
    (tmp_path / "OpenGL" / "__init__.py").write_text("raise ImportError('no library')")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "MUJOCO_GL": backend, "PYTHONPATH": paths}
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "5\n"


def test_working_opengl_backend_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def factory() -> gymnasium.Env:
        seen.append(os.environ.get("MUJOCO_GL"))
        return Line()

    monkeypatch.setenv("MUJOCO_GL", "egl")
    make_environment(Task("t", factory))
    assert seen == ["egl"]
    assert os.environ["MUJOCO_GL"] == "egl"
    make_environment(ogbench_task("pointmaze-mini-navigate"))
    assert os.environ["MUJOCO_GL"] == "egl"

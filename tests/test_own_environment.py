"""Evaluation in an environment of the user's own: outcomes known beforehand, goals files, the record in config.json."""

import json
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import own_line
import pytest
from own_line import LIMIT, NEAR, DictLine, Line, make_line

import gtrl
from gtrl import cli, console
from gtrl.envs.goals import GoalEpisodes
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import action_bounds, make_environment
from gtrl.errors import ConfigError, DataError, EpisodeError, GtrlError, RunError
from gtrl.evaluation.evaluate import evaluate
from gtrl.evaluation.rollout import Episode, Job, run_episodes
from gtrl.io import mlp, mlp_file
from gtrl.io.flatten import flatten, select
from gtrl.report.tables import comparison, summary
from gtrl.runs.policy import GaussianPolicy, load_policy, save_policy
from gtrl.runs.run import Run
from gtrl.tasks import OwnTask, Task, default_episodes, own_task, recorded_own_task

LINE = "own_line:Line-v0"
GOALS = (-25.0, -10.5, -3.0, 4.0, 9.0, 10.2, 11.5)  # far, in doubt (it depends on the start), and near
# action = clip(goal - position, -1, 1): each step goes up to 1 m towards the goal.
TOWARDS = mlp.Layer(np.array([[-1], [1]], np.float32), np.zeros(1, np.float32))
HEADER = {"kind": "gaussian", "algorithm": "custom", "task": None, "seed": 4, "step": 7}
SIZES = dict.fromkeys(("observation_dim", "goal_dim", "action_dim"), 1)


def write_policy(path: Path, **changes: Any) -> Path:
    save_policy(path, mlp_file.MLP((TOWARDS,)), HEADER | SIZES | changes)
    return path


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy") / "towards.npz")


@pytest.fixture
def goals_file(tmp_path: Path) -> Path:
    path = tmp_path / "goals.csv"
    path.write_text("x\n" + "".join(f"{goal}\n" for goal in GOALS))
    return path


def drawn(goal: int, number: int, base: int = 0) -> tuple[float, float]:
    """The start and the own goal of an episode, from the seeds that docs/evaluation.md promises."""
    env_seed = int(np.random.SeedSequence([base, goal, number]).generate_state(3)[1])
    rng = np.random.default_rng(env_seed)
    return float(rng.uniform(-1, 1)), float(rng.uniform(-own_line.FARTHEST, own_line.FARTHEST))


def reaches(start: float, goal: float) -> bool:
    """Ten steps of 1 m: what is left of the distance must be less than 0.1 m."""
    return abs(goal - start) - LIMIT < NEAR


def counts(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    return {row["goal"]: (row["successes"], row["episodes"]) for row in rows}


# --- outcomes known beforehand ---


@pytest.mark.usefixtures("in_process")
def test_success_for_each_goal_of_a_file(policy: Path, goals_file: Path) -> None:
    rows = evaluate(policy, make_env=LINE, goals=goals_file, show=False)
    episodes = 15  # the least that makes 100 over 7 goals
    expected = {
        f"goal{number}": (sum(reaches(drawn(number, k)[0], goal) for k in range(episodes)), episodes)
        for number, goal in enumerate(GOALS, start=1)
    }
    assert counts(rows) == expected
    assert [won for won, _ in expected.values()][::3] == [0, 15, 0]  # far, near, far
    assert 0 < expected["goal2"][0] < 15
    assert {row["task"] for row in rows} == {own_task(LINE, goals_file).name}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("env", [LINE, "own_line:make_line", make_line, lambda: make_line()])
def test_goals_of_the_environment(env: Any, policy: Path) -> None:
    rows = evaluate(policy, make_env=env, base_seed=3, show=False)
    expected = sum(reaches(*drawn(1, k, base=3)) for k in range(100))
    assert counts(rows) == {"random": (expected, 100)}
    assert 20 < expected < 80


def test_workers_killed_ones_and_closures(policy: Path, tmp_path: Path) -> None:
    """A factory that is a closure, in one process and in two, one of which dies once."""
    deaths = [tmp_path / "never", tmp_path / "once"]
    deaths[0].touch()
    found = []
    for count, mark in enumerate(deaths, start=1):

        class Fatal(Line):
            def step(self, action: Any, mark: Path = mark, main: int = os.getpid()) -> Any:
                if not mark.exists() and os.getpid() != main:
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().step(action)

        def make(kind: type[Line] = Fatal) -> Any:
            return gymnasium.wrappers.TimeLimit(kind(), LIMIT)

        found.append(evaluate(policy, make_env=make, goals=[[4.0], [10.5]], episodes=20, workers=count, show=False))
    assert deaths[1].exists()
    expected = [sum(reaches(drawn(number, k)[0], goal) for k in range(20)) for number, goal in ((1, 4.0), (2, 10.5))]
    for rows in found:
        assert counts(rows) == {"goal1": (expected[0], 20), "goal2": (expected[1], 20)}
    assert found[0] == found[1]


def test_a_factory_that_cannot_be_sent(policy: Path) -> None:
    lock = threading.Lock()

    def make() -> Any:
        with lock:
            return make_line()

    with pytest.raises(ConfigError, match=r"factory of make cannot be sent to worker processes \(TypeError: .*lock"):
        evaluate(policy, make_env=make, show=False)


def test_raw_actions_reach_the_environment() -> None:
    """A policy may return actions beyond -1 and 1: 5 m at a time, so 40 m take 8 or 9 steps."""

    class Raw(GaussianPolicy):
        def __call__(self, observation: Any, goal: Any, noise: Any = None) -> np.ndarray:
            del noise
            return np.clip(np.asarray(goal) - observation, -5, 5)

    arrays, header = mlp_file.MLP((TOWARDS,)).export()
    raw, task = Raw(arrays, header | HEADER | SIZES), own_task(LINE, [[40.0], [-51.5]])
    outcomes = run_episodes(raw, Job("", task, (Episode(1, 0), Episode(2, 0)), 0, record=0))
    found = {outcome.episode.goal: (outcome.success, outcome.length) for outcome in outcomes}
    starts = [drawn(number, 0)[0] for number in (1, 2)]
    assert found == {1: (True, int(np.ceil((40 - starts[0]) / 5))), 2: (False, LIMIT)}


# --- goals ---

VECTORS = [[1.5, -2.0], [0.0, 1e-3]]


@pytest.mark.parametrize(
    "text",
    [
        "1.5,-2\n0,1e-3\n",
        "x,y\n1.5,-2\n0,1e-3",
        "# x, y\n1.5, -2\n\n0, 0.001\n",
        "\ufeffx;y\r\n1.5;-2\r\n0;0.001\r\n",
        "1.5\t-2\n0\t0.001\n",
    ],
)
def test_goals_in_text_files(text: str, tmp_path: Path) -> None:
    (tmp_path / "goals.csv").write_text(text, encoding="utf-8", newline="")
    assert own_task(LINE, tmp_path / "goals.csv").goals == tuple(map(tuple, VECTORS))


def test_goals_in_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "goals.npy", np.array(VECTORS, np.float32))
    np.savez(tmp_path / "goals.npz", anything=np.array([[1, -2], [0, 3]]))
    rounded = tuple(tuple(float(np.float32(x)) for x in goal) for goal in VECTORS)
    assert own_task(LINE, str(tmp_path / "goals.npy")).goals == rounded
    assert own_task(LINE, tmp_path / "goals.npz").goals == ((1.0, -2.0), (0.0, 3.0))
    assert own_task(LINE, np.array(VECTORS)).goals == own_task(LINE, VECTORS).goals == tuple(map(tuple, VECTORS))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x,y\n1,2\n3\n", r"goals\.csv, line 3: there are 1 numbers where the first goal has 2; give one row"),
        ("1,2\n3,four\n", r"line 2: 'four' is not a number"),
        ("1,two\n3,4\n", r"line 1: 'two' is not a number"),
        ("1,\n", r"line 1: '' is not a number"),
        ("x,y\n", "has no goals"),
        ("", "has no goals"),
        ("1,2\n3,nan\n", r"goal 2 is \[3\.0, nan\], which is not finite"),
        (b"\xff\xfe\x00,\n", "cannot be read .*utf-8"),
        (np.zeros(3), r"goals\.npy has the shape \(3,\); give one row of numbers per goal"),
        (np.array([["a"]]), "is an array of type <U1; give numbers"),
        (np.array([[1, None]], object), r"cannot be read as an npy file \(Object arrays"),
        (
            {"a": np.zeros((1, 1)), "b": np.zeros(1)},
            r"goals\.npz has 2 arrays \(a, b\); the goals must be the only one",
        ),
        (np.zeros((10_001, 1)), "has 10,001 goals; at most 10,000"),
        (None, r"is not a file; give a CSV, npy or npz file with one row per goal"),
    ],
)
def test_bad_goals_files(content: Any, message: str, tmp_path: Path) -> None:
    suffix = ".npy" if isinstance(content, np.ndarray) else ".npz" if isinstance(content, dict) else ".csv"
    path = tmp_path / f"goals{suffix}"
    if isinstance(content, np.ndarray):
        np.save(path, content, allow_pickle=True)
    elif isinstance(content, dict):
        np.savez(path, **content)
    elif content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError, match=message):
        own_task(LINE, path)


def test_bad_goals_in_python(policy: Path) -> None:
    with pytest.raises(DataError, match="rows have different lengths"):
        own_task(LINE, [[1.0], [1.0, 2.0]])
    with pytest.raises(DataError, match=r"^goals: goal 1 is \[inf\]"):
        own_task(LINE, [[np.inf]])
    with pytest.raises(ConfigError, match=r"have 2 numbers, and the policy was trained on 1\.$"):
        evaluate(policy, make_env=LINE, goals=VECTORS)
    with pytest.raises(ConfigError, match="goals are given without an environment: name it with --env"):
        evaluate(policy, goals=[[1.0]])
    with pytest.raises(ConfigError, match="give a task, or an environment and goals"):
        evaluate(policy, task="scene-play", make_env=LINE)


# --- names and numbers of episodes ---


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("my_package:MyEnv-v0", "my_package.MyEnv-v0"),
        ("robots/Arm-v1", "robots-Arm-v1"),
        ("my_package.envs:make_arm", "my_package.envs.make_arm"),
        ("_private:robots/Arm-v1", "private.robots-Arm-v1"),
        (make_line, "own_line.make_line"),
        ("own_line:make_line", "own_line.make_line"),
        (Line, "own_line.Line"),
        (lambda: None, "own-environment"),
    ],
)
def test_name_of_an_own_task(env: Any, name: str) -> None:
    assert own_task(env).name == name
    one, other = own_task(env, [[1.0]]).name, own_task(env, [[2.0]]).name
    assert one != other  # rows of eval.csv for different goals are not mixed up
    assert own_task(env, [[1]]).name == one
    assert one.startswith(f"{name}-goals-")
    assert own_task(env, [[1.0]], name="chosen").name == "chosen"


def test_default_number_of_episodes() -> None:
    found = [default_episodes(own_task(LINE, np.zeros((count, 1)))) for count in (1, 3, 5, 60, 100, 200)]
    assert found == [100, 34, 20, 2, 1, 1]
    assert default_episodes(own_task(LINE)) == 100
    assert default_episodes(Task("t", make_line, goals=[[1.0]])) == 50


def test_builtin_names_are_rejected() -> None:
    with pytest.raises(ConfigError, match="is the name of a built-in task"):
        own_task("scene-play")


# --- bounds of actions ---


def test_action_bounds() -> None:
    low, high = action_bounds(own_task(LINE)) or (None, None)
    np.testing.assert_array_equal(low, [-5.0])  # pyright: ignore[reportArgumentType]
    np.testing.assert_array_equal(high, [5.0])  # pyright: ignore[reportArgumentType]
    env: Any = Line()
    for space, expected in (
        (gymnasium.spaces.Box(np.array([-2.0, 0.5]), np.array([3, 1]), dtype=np.float64), ([-2.0, 0.5], [3.0, 1.0])),
        (gymnasium.spaces.Box(-np.inf, np.inf, (2,)), None),
        (gymnasium.spaces.Box(np.array([-1.0, -np.inf]), np.array([1, 1]), dtype=np.float64), None),
        (gymnasium.spaces.Box(0.0, 0.0, (1,)), None),
        (gymnasium.spaces.Box(0.0, 1.0, (2, 2)), None),
        (gymnasium.spaces.Discrete(4), None),
    ):
        env.action_space = space
        found = action_bounds(env)
        assert (found and [bound.tolist() for bound in found]) == (expected and list(expected))


# --- dictionary observations ---


def test_flatten_by_hand() -> None:
    observed = {"b": np.array([[1, 2], [3, 4]]), "a": 5.5, "arm": {"q": [7.0, 8.0]}, "x[0]": [9.0], "n/m": [10.0]}
    names = ["b[3]", "a", "arm/q[1]", "b[0]", "a[0]", "arm.q[0]", "x[0]", "n/m[0]"]
    assert flatten(observed, names).tolist() == [4, 5.5, 8, 1, 5.5, 7, 9, 10]
    for name, message in (
        ("c[0]", r"^there is no 'c', which the policy was trained on; there are b, a, arm, x\[0\], n/m$"),
        ("b[4]", r"^'b' has 4 numbers, and the policy needs 'b\[4\]'$"),
        ("b", r"^'b' has 4 numbers where the policy's column 'b' is one$"),
        ("arm[0]", r"^'arm' is a dictionary where"),
        ("arm/p[0]", r"^there is no 'arm/p'"),
    ):
        with pytest.raises(KeyError, match=message):
            flatten(observed, [name])


def test_columns_of_an_array_observation() -> None:
    whole = np.array([10.0, 11.0, 12.0, 13.0])
    assert select(whole, ["state[3]", "state[1]"]).tolist() == [13, 11]
    for names in ((), ["x", "y", "z", "w"], ["a[0]", "b[0]"], ["state[1]", "state[4]"]):
        assert select(whole, names) is whole  # it cannot be the array that the columns were chosen from


@pytest.mark.usefixtures("in_process")
def test_dictionary_observations(policy: Path, tmp_path: Path) -> None:
    """The columns in the policy's header give the same episodes as the plain environment."""
    plain = evaluate(policy, make_env=LINE, show=False)
    columns = {"observation": ["state[1]"], "goal": ["state[1]"], "action": ["a"]}
    named = write_policy(tmp_path / "named.npz", columns=columns)
    assert counts(evaluate(named, make_env="own_line:DictLine-v0", show=False)) == counts(plain)
    assert counts(evaluate(named, make_env=LINE, show=False)) == counts(plain)
    other = write_policy(tmp_path / "other.npz", columns=columns | {"observation": ["velocity[0]"]})
    with pytest.raises(
        ConfigError, match=r"^own_line.DictLine-v0: .* there is no 'velocity', .*; there are pressure, state\.$"
    ):
        evaluate(other, make_env="own_line:DictLine-v0", show=False)
    with pytest.raises(ConfigError, match="it has pressure, state, and the policy does not say which"):
        evaluate(policy, make_env="own_line:DictLine-v0", show=False)


def test_goal_env_with_and_without_columns() -> None:
    class GoalLine(DictLine):
        def observe(self) -> Any:
            return {"observation": [self.x, 5.0], "achieved_goal": [self.x], "desired_goal": [self.goal]}

    for names, expected in (((), 2), (["achieved_goal[0]"], 1), (["qpos[0]", "qpos[1]"], 2), (["log[1]"], 1)):
        header = {"columns": {"observation": names}}
        env = GoalEpisodes(own_task(GoalLine, [[2.0]]), IsolatedEnv(GoalLine()), header)
        observation, goal = env.reset(np.random.SeedSequence(0), 1)
        assert (len(observation), goal.tolist()) == (expected, [2.0])
        assert (observation[0] == 5.0) == (names == ["log[1]"])


# --- what is wrong, in one sentence ---


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            "own_line:Lina-v0",
            r"^no Gymnasium environment 'Lina-v0' is registered in own_line \(.*\): register it there\.$",
        ),
        (
            "NoSuchLine-v0",
            r"^no Gymnasium environment .*: name the module that registers it, my_package:NoSuchLine-v0\.$",
        ),
        ("no_such_module:Line-v0", r"^the module 'no_such_module' .* cannot be imported: .*PYTHONPATH\)\.$"),
        ("own_line:make_nothing", r"^the module 'own_line' has no 'make_nothing'\.$"),
        (
            "own_line:make_broken",
            r"^the environment of own_line\.make_broken-goals-\w+ cannot be made: OSError: the simulator is not run",
        ),
        ("own_line:LIMIT", r"^the environment of own_line.LIMIT-goals-\w+ cannot be made: TypeError: .*not callable$"),
        ("own_line:WideLine-v0", r"takes actions of shape \(2,\), and the policy's have 1 numbers\.$"),
        ("own_line:ButtonLine-v0", r"action space is Discrete, and the policy's actions are vectors \(Box\)\.$"),
        ("own_line:StubbornLine-v0", r"was given the goal \[2\.0\] and reports .*must support reset\(options="),
        (
            "own_line:PickyLine-v0",
            r"does not accept the goal \[2\.0\]: reset\(.*\) raised ValueError: no such place\.$",
        ),
    ],
)
def test_environments_that_do_not_fit(
    env: str, message: str, policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GtrlError, match=message):
        evaluate(policy, make_env=env, goals=[[2.0]], show=False)
    (tmp_path / "g.csv").write_text("2.0\n")
    assert cli.main(["evaluate", str(policy), "--env", env, "--goals", str(tmp_path / "g.csv")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_environment_that_needs_a_goal(policy: Path) -> None:
    class Needy(Line):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed=seed, options={"goal": options["goal"]})

    message = r"^Needy: the environment's reset raised TypeError: 'NoneType' .*; if it draws no goals .* --goals"
    with pytest.raises(ConfigError, match=message):
        evaluate(policy, make_env=Needy, show=False)


def test_sizes_are_checked_in_a_tasks_episodes(policy: Path) -> None:
    task = Task("t", own_line.WideLine, goals=[[2.0]], episode_length=3)
    with pytest.raises(EpisodeError, match=r"^t, goal1, episode 0: the environment takes actions of shape \(2,\)"):
        run_episodes(load_policy(policy), Job("", task, (Episode(1, 0),), 0, record=0))


def test_how_to_name_an_environment(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", str(policy)]) == 2
    message = capsys.readouterr().err
    assert "without a task" in message
    assert "--env my_package:MyEnv-v0" in message


def test_step_limit_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    task = own_task(Line, name="endless")
    for _ in range(3):
        make_environment(task)
    assert [record.getMessage()[:24] for record in caplog.records] == ["endless has no step limi"]


# --- runs ---


def train(data: Path, **changes: Any) -> Run:
    """BC with a tiny network, for four steps unless `changes` say otherwise."""
    settings = {"seeds": [0, 3], "steps": 4, "batch_size": 8, "log_every": 4, "hidden": (4,), "show": False}
    return gtrl.train("bc", data, **{**settings, **changes})


@pytest.fixture(scope="module")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four episodes of the cart, ten rows each."""
    path = tmp_path_factory.mktemp("data") / "line.npz"
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (40, 1)).astype(np.float32)
    np.savez(path, observations=np.cumsum(actions, 0), actions=actions, terminals=np.arange(40) % 10 == 9)
    return path


def command_line(data: Path, out: Path, *more: str) -> list[str]:
    settings = "--seeds 0 3 --steps 4 --batch-size 8 --log-every 4 --hidden 4"
    return ["train", "bc", "--data", str(data), "--out", str(out), *settings.split(), *more]


@pytest.fixture(scope="module")
def trained(data_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    """A run from the command line with --env, --goals and --eval-during, and what was printed. The CSV is gone."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "goals.csv").write_text("x\n0.5\n30\n")
    words = ["--env", LINE, "--goals", str(folder / "goals.csv"), "--eval-during"]
    with pytest.MonkeyPatch.context() as patch, console.output.capture() as printed:
        from gtrl.evaluation import rollout

        patch.setattr(rollout, "map_unordered", lambda function, jobs, *_, **__: enumerate(map(function, jobs)))
        assert cli.main(command_line(data_file, folder / "run", *words)) == 0
    (folder / "goals.csv").unlink()
    return Run.open(folder / "run"), printed.get()


def test_run_records_environment_and_goals(trained: tuple[Run, str]) -> None:
    run, printed = trained
    name = own_task(LINE, [[0.5], [30.0]]).name
    record = {"name": name, "environment": LINE, "goals": [[0.5], [30.0]], "episode_length": None}
    assert (run.config["task"], run.config["environment"]) == (name, record)
    assert recorded_own_task(run.config) == own_task(LINE, [[0.5], [30.0]])
    assert f"next: gtrl evaluate {run.path}" in printed
    header = load_policy(run.policy_path(0)).header
    assert (header["task"], header["goal"]) == (name, "state")


@pytest.mark.usefixtures("in_process")
def test_evaluation_during_training_and_later(trained: tuple[Run, str], capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = trained
    during = run.evaluations()
    assert [(row["seed"], row["goal"], row["episodes"]) for row in during] == [
        (seed, goal, 50) for seed in (0, 3) for goal in ("goal1", "goal2")
    ]
    assert cli.main(["evaluate", str(run.path)]) == 0
    printed = capsys.readouterr().out
    assert f"evaluating in {run.config['task']}: 2 goals, 50 episodes each" in printed
    assert run.evaluations() == during
    others = evaluate(run, goals=[[0.1]], episodes=2, show=False)  # in the recorded environment
    assert [row["task"] for row in others] == [own_task(LINE, [[0.1]]).name] * 2
    assert len(run.evaluations()) == 6


@pytest.mark.usefixtures("in_process")
def test_resume_keeps_the_environment(trained: tuple[Run, str], tmp_path: Path, data_file: Path) -> None:
    record = trained[0].config["environment"]
    run = Run(shutil.copytree(trained[0].path, tmp_path / "run"))
    assert cli.main(["train", "--resume", "--out", str(run.path), "--steps", "6"]) == 0
    assert (run.config["environment"], run.policy_steps[-1]) == (record, 6)
    again = train(data_file, out=run.path, resume=True, steps=8)
    assert again.config["environment"] == record
    with pytest.raises(RunError, match=r"environment\.environment was .*Line-v0.* and is .*make_line"):
        train(data_file, env="own_line:make_line", out=run.path, resume=True, steps=9)


@pytest.mark.usefixtures("in_process")
def test_environment_without_a_name(data_file: Path, tmp_path: Path) -> None:
    """A lambda cannot be recorded: evaluating during training works, and later it has to be given again."""
    during = gtrl.EvaluateDuring(episodes=3)
    run = train(data_file, env=lambda: make_line(), out=tmp_path, callbacks=[during], checkpoint_every=4)
    assert run.config["environment"] == {
        "name": "own-environment", "environment": None, "goals": None, "episode_length": None,
    }  # fmt: skip
    assert [row["episodes"] for row in run.evaluations()] == [3, 3]
    with pytest.raises(RunError, match=r"cannot be imported by its name, so config\.json does not have it; .*--env"):
        evaluate(run)
    assert len(evaluate(run, make_env=make_line, episodes=1, show=False)) == 2
    # Another environment without a name: the rows of the first one are replaced, not taken for its own.
    won: Any = [{**row, "successes": row["episodes"]} for row in run.evaluations() if row["task"] == "own-environment"]
    run.add_evaluations(won, replace=True)
    again: Any = {"resume": True, "steps": 6, "checkpoint_every": 4, "callbacks": [gtrl.EvaluateDuring(episodes=2)]}
    train(data_file, env=lambda: make_lost(), out=run.path, **again)
    assert [
        (row["seed"], row["step"], row["episodes"], row["successes"])
        for row in run.evaluations()
        if row["task"] == "own-environment"
    ] == [(seed, step, 2, 0) for step in (4, 6) for seed in (0, 3)]


def make_lost() -> Any:
    class Lost(Line):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {"success": False})

    return gymnasium.wrappers.TimeLimit(Lost(), LIMIT)


def test_environment_is_checked_before_training(data_file: Path, tmp_path: Path, capsys: Any) -> None:
    for env, goals, message in (
        ("own_line:WideLine-v0", None, "takes actions of shape (2,)"),
        ("own_line:DictLine-v0", None, "it has pressure, state"),
        (LINE, "1,2\n", "have 2 numbers, and the policy's goals have 1."),
        (None, "1\n", "goals are given without an environment"),
    ):
        words = ["--env", env] if env else []
        if goals:
            (tmp_path / "goals.csv").write_text(goals)
            words += ["--goals", str(tmp_path / "goals.csv")]
        assert cli.main(command_line(data_file, tmp_path / "run", *words)) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "run").exists()
    assert cli.main(command_line(data_file, tmp_path / "run", "--task", "scene-play", "--env", LINE)) == 2
    assert "give --task, or --env and --goals" in capsys.readouterr().err
    assert cli.main(command_line(data_file, tmp_path / "run", "--eval-during")) == 2
    assert "name an environment with --env" in capsys.readouterr().err


def test_record_is_plain_json() -> None:
    for task in (own_task(LINE), own_task(make_line, [[1.0, 2.0]], episode_length=7), own_task(Line, name="x")):
        record = json.loads(json.dumps(task.record()))
        restored = OwnTask.restored(record)
        assert restored.record() == record
        assert (restored.goals, restored.name, restored.episode_length) == (task.goals, task.name, task.episode_length)
    assert own_task(make_line).record()["environment"] == "own_line:make_line"
    assert own_task(make_line().unwrapped.step).record()["environment"] is None


# --- tables of many goals ---


def many_rows(method: str, won: dict[int, list[int]]) -> list[dict[str, Any]]:
    """Rows of twelve goals with two episodes each; `won` has the goals that are not always reached, by seed."""
    common = {"algorithm": method, "task": "t", "step": 5, "episodes": 2}
    return [
        {**common, "seed": seed, "goal": f"goal{goal}", "successes": max(0, 2 - missed.count(goal))}
        for seed, missed in won.items()
        for goal in range(1, 13)
    ]


def cells_of(table: Any, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    console.print_table(table)
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]


def test_summary_of_many_goals_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    # Seed 0 misses 9 of 24 episodes: goals 12 and 3 twice, goals 2, 7, 8, 9 and 10 once. Seed 1 misses none.
    rows = many_rows("bc", {0: [12, 12, 3, 3, 2, 7, 8, 9, 10], 1: []})
    assert cells_of(summary(rows), capsys) == [
        ["0", "5", "12", "62.5", "goal3 0, goal12 0, goal2 50, goal7 50, goal8 50, and 2 more below 100"],
        ["1", "5", "12", "100.0", "none below 100"],
        ["mean", "5", "12", "81.2", "goal3 50, goal12 50, goal2 75, goal7 75, goal8 75, and 2 more below 100"],
    ]
    runs = {"a": rows, "b": many_rows("td", {0: [1, 1]})}
    assert cells_of(comparison("t", runs), capsys) == [  # sqrt(2 * 18.75^2) = 26.5; 22 of 24 is 91.7 %
        ["BC", "5", "2", "81.2 ± 26.5"],
        ["TD", "5", "1", "91.7"],
    ]

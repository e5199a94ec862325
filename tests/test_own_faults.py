"""Environments and goals files of the user's own with faults: each is found early, and reported in one sentence."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from own_line import LIMIT, Line, make_line

import gtrl
from gtrl import cli, workers
from gtrl.data.load import load_dataset
from gtrl.envs.goals import GoalEpisodes, check_environment
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment
from gtrl.errors import ConfigError, DataError, EpisodeError, GtrlError, RunError
from gtrl.evaluation import evaluate as evaluation
from gtrl.evaluation.evaluate import evaluate
from gtrl.evaluation.rollout import Episode, _batches
from gtrl.io import mlp, mlp_file
from gtrl.runs.policy import load_policy, save_policy
from gtrl.runs.run import Run
from gtrl.tasks import Task, own_task

FAR = 5_400_000.25  # a coordinate in metres, as in UTM: float32 has steps of 0.5 there
TOWARDS = mlp.Layer(np.array([[-1], [1]], np.float32), np.zeros(1, np.float32))  # action = clip(goal - position)
SIZES: dict[str, Any] = dict.fromkeys(("observation_dim", "goal_dim", "action_dim"), 1)
SEED = np.random.SeedSequence(0)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "towards.npz"
    columns = {"observation": ["place"], "goal": ["place"]}
    header = {"kind": "gaussian", "algorithm": "custom", "task": None, "seed": 4, "step": 7, "columns": columns}
    save_policy(path, mlp_file.MLP((TOWARDS,)), header | SIZES)
    return path


def limited(kind: Callable[[], Any], steps: int = LIMIT) -> Callable[[], Any]:
    return lambda: gymnasium.wrappers.TimeLimit(kind(), steps)


# --- goals are passed on and compared in float64 ---


def test_goals_keep_their_precision() -> None:
    class Changing(Line):
        reported: Any = None

        def reset(self, **how: Any) -> Any:
            observation, info = super().reset(**how)
            self.given = how["options"]["goal"]
            self.given += 1.0  # its own copy
            return observation, info if self.reported is None else {"goal": self.reported}

    env: Any = Changing()
    episodes = GoalEpisodes(own_task(Changing, [[FAR]]), IsolatedEnv(env), SIZES)
    for env.reported in (np.array([FAR]), np.array([FAR], np.float32), [FAR]):
        goal = episodes.reset(SEED, 1)[1]
        assert (goal.dtype, goal.tolist()) == (np.float64, [FAR])
        assert env.given.tolist() == [FAR + 1]
    for env.reported in ([FAR - 50], [FAR + 1], [np.nan], ["x"], [FAR, FAR]):
        with pytest.raises(EpisodeError, match=r"was given the goal \[5400000\.25\] and reports"):
            episodes.reset(SEED, 1)


def test_a_reported_goal_is_copied() -> None:
    class Moving(Line):
        def reset(self, **how: Any) -> Any:
            observation, _ = super().reset(**how)
            self.place = np.array([FAR])
            return observation, {"goal": self.place}

        def step(self, action: Any) -> Any:
            self.place += 1
            return super().step(action)

    episodes = GoalEpisodes(own_task(Moving), IsolatedEnv(Moving()))
    goal = episodes.reset(SEED, 1)[1]
    episodes.step(np.zeros(1))
    assert goal.tolist() == [FAR]


# --- goals files ---


def goals_of(text: str, path: Path, names: tuple[str, ...]) -> Any:
    path.write_text(text)
    return own_task("a:B-v0", path).with_goals_of(names).goals


@pytest.mark.parametrize(
    ("text", "names", "goals"),
    [
        ("tip_y,tip_x\n1,2\n3,4\n", ("tip_x", "tip_y"), ((2, 1), (4, 3))),
        (",tip_y,weight,tip_x\n0,1,9,2\n1,3,9,4\n", ("tip_x", "tip_y"), ((2, 1), (4, 3))),  # with pandas' index
        ("tip_y,tip_x\n1,2\n", (), ((1, 2),)),
        ("y;x\n1;2\n", ("tip_x", "tip_y"), ((1, 2),)),  # other names
        ("1,2\n", ("tip_x", "tip_y"), ((1, 2),)),
        ("# tip_y tip_x\n1.0e+00 2\n  3   4\n", ("tip_x", "tip_y"), ((2, 1), (4, 3))),  # np.savetxt
        ("goals of the robot, first day\n1 2\n", ("tip_x", "tip_y"), ((1, 2),)),
        ("tip position\n1\n2\n", ("tip",), ((1,), (2,))),
        ("0.0,1.0\n1,0\n", (), ((0, 1), (1, 0))),
    ],
)
def test_columns_of_goals_files(text: str, names: tuple[str, ...], goals: Any, tmp_path: Path) -> None:
    assert goals_of(text, tmp_path / "goals.csv", names) == goals


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tip_x,y\n1,2\n", r"have the columns tip_x, y, and the policy's goal also has tip_y: give tip_x, tip_y\.$"),
        ("0,1\n0.5,0.25\n", r"line 1: '0,1' numbers the columns: remove .* \(write 0\.0,1\.0 if it is a goal\)\.$"),
        ("1.0 2.0\n3.0 x\n", r"line 2: 'x' is not a number"),
        ("1 2\n3\n", r"line 2: there are 1 numbers where the first goal has 2"),
    ],
)
def test_goals_files_with_wrong_columns(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        goals_of(text, tmp_path / "goals.csv", ("tip_x", "tip_y"))


def test_names_of_a_pandas_table() -> None:
    class Table:
        columns = ("y", "x")

        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            return np.array([[1.0, 2.0], [3.0, 4.0]])

    table: Any = Table()
    task = own_task("a:B-v0", table).with_goals_of(("x", "y"))
    assert task == own_task("a:B-v0", [[2, 1], [4, 3]])  # its name too, which has a digest of the goals


@pytest.mark.parametrize(
    ("goals", "message"),
    [
        ([], r"^the argument goals has no goals; give"),
        ([[None]], r"^the argument goals is an array of type object; give numbers"),
        ([1.0], r"^the argument goals has the shape \(1,\); give"),
    ],
)
def test_sentences_about_goals_in_python(goals: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        own_task("a:B-v0", goals)


# --- environments that break the conventions ---


class Late(Line):
    """Returns something else from its third step on."""

    def observe(self) -> Any:
        self.count = getattr(self, "count", -1) + 1
        return self.wrong() if self.count > 2 else super().observe()

    def reset(self, **how: Any) -> Any:
        self.count = -1
        return super().reset(**how)

    def wrong(self) -> Any:
        raise NotImplementedError


class Longer(Late):
    def wrong(self) -> Any:
        return np.zeros(2)


class Column(Late):
    def wrong(self) -> Any:
        return np.zeros((1, 1))


class Text(Late):
    def wrong(self) -> Any:
        return np.array(["far"])


class Lost(Late):
    def wrong(self) -> Any:
        return np.array([np.nan])


class Exits(Late):
    def wrong(self) -> Any:
        sys.exit("the simulator\nends")


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Longer, r"the observation has the shape \(2,\) at step 3, and the policy takes 1 numbers \(place\): return"),
        (Column, r"the observation has the shape \(1, 1\) at step 3, and the policy takes 1 numbers \(place\): return"),
        (Text, r"the observation is an array of type <U3 at step 3, not of numbers\.$"),
        (Lost, r"the observation place is nan at step 3, which is not a finite number\.$"),
        (Exits, r"the environment raised SystemExit: the simulator ends$"),
    ],
)
def test_faults_within_an_episode(kind: type[Late], message: str, policy: Path) -> None:
    with pytest.raises(
        EpisodeError, match=rf"^test_own_faults\.{kind.__name__}-goals-\w+, goal1, episode 0: {message}"
    ):
        evaluate(policy, make_env=kind, goals=[[9.0]], episodes=1, show=False)


def at_reset(**info: Any) -> Any:
    class Kind(Line):
        def reset(self, **how: Any) -> Any:
            return super().reset(**how)[0], info

    return limited(Kind)


def at_step(change: Callable[[Any], Any]) -> Any:
    class Kind(Line):
        def step(self, action: Any) -> Any:
            return change(super().step(action))

    return limited(Kind)


def exits() -> Any:
    sys.exit("no licence")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (exits, "^the environment of .* cannot be made: SystemExit: no licence$"),
        (at_reset(goal=[np.nan]), "the goal place is nan, which is not a finite number"),
        (at_reset(goal={"x": 1.0}), "reports its goal as a dictionary: report a vector"),
        (at_reset(goal=["here"]), "the goal is an array of type <U4, not of numbers"),
        (
            at_step(lambda found: found[:4]),
            r"step raised ValueError: not enough values to unpack \(expected 5, got 4\)",
        ),
        (at_step(lambda found: (*found[:4], None)), "the info of the environment's step is of type NoneType, not a di"),
        (at_step(lambda found: (*found[:4], {"success": [0, 1]})), r"info\['success'\] has 2 values, and success must"),
        (at_step(lambda found: found / 0), "the environment's step raised TypeError: unsupported"),
        (at_step(lambda found: (*found[:2], True, False, {})), "the environment reports no success"),
    ],
)
def test_faults_that_the_first_step_shows(make: Any, message: str, policy: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluate(policy, make_env=make, show=False)


def test_the_action_of_the_check() -> None:
    class Strict(Line):
        taken: Any = ()

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            self.taken.append(action.tolist())
            return super().step(action)

    inf, largest = np.inf, float(np.finfo(np.float32).max)
    for (low, high), expected in (
        ((-5.0, 1.0), -2.0), ((0.5, inf), 0.5), ((-inf, inf), 0.0), ((-inf, -3.0), -3.0), ((-largest, largest), 0.0),
    ):  # fmt: skip
        env: Any = Strict()
        env.action_space, env.taken = gymnasium.spaces.Box(low, high, (1,), np.float64), []
        check_environment(own_task(lambda env=env: env), SIZES)
        assert env.taken == [[expected]]


def test_goals_too_large_for_a_policy(policy: Path) -> None:
    with pytest.raises(ConfigError, match=r"the goal place is 1e\+300, which is too large for float32\.$"):
        evaluate(policy, make_env=make_line, goals=[[1e300]], show=False)


def test_an_environment_that_does_not_report_its_goal(policy: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Silent(Line):
        def reset(self, **how: Any) -> Any:
            return super().reset(**how)[0], {}

        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {})

    for _ in range(2):
        check_environment(own_task(limited(Silent), [[1.0]], name="silent"), load_policy(policy).header)
    assert [message[:61] for message in caplog.messages] == [
        "silent does not report its goal, so it cannot be checked that",
        "silent reports no success at the first step: the info of the ",
    ]


def test_a_step_limit_that_is_only_an_attribute(caplog: pytest.LogCaptureFixture) -> None:
    class Endless(Line):
        _max_episode_steps = 7

    env = make_environment(own_task(Endless, episode_length=7))
    env.reset(seed=0)
    assert [env.step([0.0])[3] for _ in range(7)] == [False] * 6 + [True]
    make_environment(own_task(Endless, name="attribute"))
    make_environment(Task("attribute", Endless))
    own, task = caplog.messages
    assert own.endswith("steps; register it with max_episode_steps or wrap it in gymnasium.wrappers.TimeLimit.")
    assert "set Task(episode_length=...)" in task


# --- jobs, and environments that exist only once ---


def test_jobs_of_unknown_duration_begin_small() -> None:
    """Per round of two workers twice as long, up to 13: 100 episodes in about eight jobs of the same length."""
    todo = [Episode(1, number) for number in range(100)]
    batches = _batches(todo, workers=2, wanted=8, known_speed=False)
    assert [len(batch) for batch in batches] == [1, 1, 2, 2, 4, 4, 8, 8, *[13] * 5, 5]
    assert [episode for batch in batches for episode in batch] == todo
    assert [len(batch) for batch in _batches(todo, workers=2, wanted=8, known_speed=True)] == [16] * 6 + [4]
    patient = workers.HangDetector(patient=True)
    patient.longest_wait = 1.0
    assert patient.limit_seconds == workers.FIRST_PATIENCE_SECONDS > workers.HangDetector().factor * 10


@pytest.mark.usefixtures("in_process")
def test_an_environment_that_can_exist_only_once(policy: Path) -> None:
    open_now = []

    class Only(Line):
        def __init__(self) -> None:
            if open_now:
                raise OSError("the port is taken")
            open_now.append(self)
            super().__init__()

        def close(self) -> None:
            open_now.remove(self)

    task = own_task(limited(Only), name="only")
    rows = evaluate(policy, task=task, episodes=20, workers=1, show=False)
    assert rows[0]["episodes"] == 20
    with pytest.raises(ConfigError, match=r"^the environment of only cannot be made: OSError: the port is taken$"):
        evaluate(policy, task=task, episodes=20, show=False)  # that of the evaluation above is still open


# --- columns that were chosen by number or name ---


class Named(Line):
    """Returns the three columns of the log `named_log`."""

    def observe(self) -> Any:
        return np.array([101_325.0, self.x, 7.0])


@pytest.fixture
def named_log(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (40, 1))
    observations = np.column_stack([rng.normal(size=40), np.cumsum(actions), rng.normal(size=40)])
    names = '{"format": 1, "columns": {"observation": ["pressure", "place", "speed"]}}'
    terminals = np.arange(40) % 10 == 9
    np.savez(tmp_path / "log.npz", observations=observations, actions=actions, terminals=terminals, description=names)
    return tmp_path / "log.npz"


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("observation", [["speed", "place"], ["2", "1"], "1:3"])
def test_chosen_columns_are_found_in_the_environment(observation: Any, named_log: Path, tmp_path: Path) -> None:
    task = own_task(limited(Named))
    data = load_dataset(named_log, task, observation=observation, goal="place")
    indices = [1, 2] if observation == "1:3" else [2, 1]
    assert data.choice == {"observation_indices": indices, "log_observation_dim": 3}
    settings: Any = {"seeds": 0, "steps": 2, "batch_size": 8, "log_every": 2, "hidden": (4,), "show": False}
    run = gtrl.train("bc", data, out=tmp_path / "run", **settings)
    assert evaluate(run, make_env=limited(Named), episodes=1, show=False)
    header = load_policy(run.policy_path(0)).header
    env: Any = Named()
    observed, _ = GoalEpisodes(task, IsolatedEnv(env), header).reset(SEED, 1)
    assert observed.tolist() == [[101_325.0, env.x, 7.0][index] for index in indices]
    with pytest.raises(
        ConfigError, match=r"shape \(1,\), and the policy takes 2 numbers \(\w+, \w+\): return these col"
    ):
        evaluate(run, make_env=make_line, show=False)


def test_columns_that_are_not_chosen_have_no_places(named_log: Path) -> None:
    assert load_dataset(named_log).choice == load_dataset(named_log, goal="place").choice == {}


# --- rows of eval.csv ---


def test_new_rows_replace_old_ones_of_an_own_environment(tmp_path: Path) -> None:
    run = Run(tmp_path)
    row = {"algorithm": "bc", "task": "simA.make", "seed": 0, "step": 5, "goal": "random"}
    run.add_evaluations([{**row, "episodes": 8, "successes": 8}, {**row, "seed": 1, "episodes": 8, "successes": 8}])
    run.add_evaluations([{**row, "episodes": 4, "successes": 0}])
    assert [found["episodes"] for found in run.evaluations()] == [8, 8]
    run.add_evaluations([{**row, "episodes": 4, "successes": 0}], replace=True)
    assert [(found["episodes"], found["successes"]) for found in run.evaluations()] == [(4, 0), (8, 8)]


# --- the command line ---


def test_a_broken_environment_is_reported_once_before_the_data(tmp_path: Path, capsys: Any) -> None:
    words = ["train", "bc", "--data", str(tmp_path / "missing.npz"), "--out", str(tmp_path / "run")]
    assert cli.main([*words, "--env", "own_line:make_broken"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "gtrl: the environment of own_line.make_broken cannot be made: OSError: the simulator is not running"


def test_sys_exit_in_an_environment_is_an_error(policy: Path, capsys: Any) -> None:
    assert cli.main(["evaluate", str(policy), "--env", "test_own_faults:exits"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "gtrl: the environment of test_own_faults.exits cannot be made: SystemExit: no licence"
    ]


def test_a_video_without_a_camera_is_rejected_first(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise GtrlError("evaluated")

    monkeypatch.setattr(evaluation, "evaluate", fail)
    assert cli.main(["evaluate", str(policy), "--env", "own_line:make_line", "--video"]) == 2
    assert "there is no video of own_line.make_line: only OGBench's" in capsys.readouterr().err


def test_an_observation_of_another_size(policy: Path) -> None:
    with pytest.raises(RunError, match="this policy takes an observation of 1 numbers"):
        load_policy(policy)([1.0, 2.0], [1.0])
    with pytest.raises(RunError, match="this policy takes a goal of 1 numbers"):
        load_policy(policy)([1.0], [1.0, 2.0])


# --- goals whose columns have names, when a run is resumed ---


def plane_data(folder: Path) -> Path:
    """A log with named columns; the environment is not made, since the bounds of actions are known."""
    rng = np.random.default_rng(0)
    lines = [f"{row // 20},{rng.normal():.3f},{rng.normal():.3f},{rng.uniform(-1, 1):.3f}" for row in range(60)]
    path = folder / "log.csv"
    path.write_text("episode,obs_x,obs_y,action\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("text", ["obs_x,obs_y\n1,2\n", "obs_y,obs_x\n2,1\n", "a,b\n1,2\n", "obs_x, obs_y\n1 2\n"])
def test_goals_of_a_run_and_of_a_file_are_the_same_task(text: str, tmp_path: Path) -> None:
    goals = tmp_path / "goals.csv"
    goals.write_text(text)
    task = own_task("own_line:make_line", goals)
    data = load_dataset(plane_data(tmp_path), task, goal=["obs_x", "obs_y"], action_bounds=(-1, 1), scale=False)
    assert data.task == type(task).restored(own_task("own_line:make_line", [[1.0, 2.0]]).record())

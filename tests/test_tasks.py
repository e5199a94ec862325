"""The nineteen tasks against the paper's tables, entered a second time, and against the environments themselves."""

import dataclasses
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from gtrl import tasks
from gtrl.algorithms import ALGORITHMS, find_algorithm, make
from gtrl.cli import main
from gtrl.envs.make import make_environment
from gtrl.errors import UnknownNameError
from gtrl.tasks import EXTRA_TASKS, TASKS, OGBenchTask, find_task
from gtrl.training.config import Training

M = 1_000_000
COLUMNS = (
    "group", "transitions", "trajectories", "trajectory_length", "observation_dim", "goal_dim", "action_dim",
    "episode_length", "lambda", "alpha", "gamma",
)  # fmt: skip
# tab:datasets, then tab:hp-task.
PAPER = {
    "pointmaze-teleport-navigate": ("teleport", M, 1000, 1000, 2, 2, 2, 1000, 0.1, 0.1, 0.99),
    "pointmaze-teleport-stitch": ("teleport", M, 5000, 200, 2, 2, 2, 1000, 0.7, 10.0, 0.99),
    "antmaze-teleport-navigate": ("teleport", M, 1000, 1000, 29, 2, 8, 1000, 0.0, 0.25, 0.99),
    "antmaze-teleport-stitch": ("teleport", M, 5000, 200, 29, 2, 8, 1000, 0.0, 0.25, 0.99),
    "pointmaze-large-stitch": ("stitch", M, 5000, 200, 2, 2, 2, 1000, 0.7, 0.03, 0.99),
    "antmaze-large-stitch": ("stitch", M, 5000, 200, 29, 2, 8, 1000, 0.0, 0.25, 0.99),
    "humanoidmaze-medium-stitch": ("stitch", 2 * M, 5000, 400, 69, 2, 21, 2000, 0.0, 0.1, 0.995),
    "humanoidmaze-large-stitch": ("stitch", 2 * M, 5000, 400, 69, 2, 21, 2000, 0.0, 0.1, 0.995),
    "antsoccer-arena-stitch": ("stitch", M, 5000, 200, 42, 2, 8, 1000, 0.25, 0.1, 0.99),
    "pointmaze-large-navigate": ("deterministic", M, 1000, 1000, 2, 2, 2, 1000, 0.1, 0.1, 0.99),
    "antmaze-large-navigate": ("deterministic", M, 1000, 1000, 29, 2, 8, 1000, 0.0, 0.25, 0.99),
    "humanoidmaze-medium-navigate": ("deterministic", 2 * M, 1000, 2000, 69, 2, 21, 2000, 0.0, 0.1, 0.995),
    "humanoidmaze-large-navigate": ("deterministic", 2 * M, 1000, 2000, 69, 2, 21, 2000, 0.0, 0.1, 0.995),
    "antsoccer-arena-navigate": ("deterministic", M, 1000, 1000, 42, 2, 8, 1000, 0.5, 0.25, 0.99),
    "cube-single-play": ("deterministic", M, 1000, 1000, 28, 3, 5, 200, 0.4, 2.5, 0.99),
    "cube-double-play": ("deterministic", M, 1000, 1000, 37, 6, 5, 500, 0.0, 7.5, 0.99),
    "scene-play": ("deterministic", M, 1000, 1000, 40, 7, 5, 750, 0.7, 1.5, 0.99),
    "puzzle-3x3-play": ("deterministic", M, 1000, 1000, 55, 9, 5, 500, 0.4, 1.5, 0.99),
    "puzzle-4x4-play": ("deterministic", M, 1000, 1000, 83, 16, 5, 500, 0.1, 1.0, 0.99),
}
# TRL's public numbers.
TRL = {
    "scene-play": (1, 1),
    "cube-single-play": (0.7, 1),
    "cube-double-play": (1, 10),
    "puzzle-3x3-play": (0.5, 2),
    "puzzle-4x4-play": (2, 2),
    "antmaze-large-navigate": (0, 0.7),
    "antsoccer-arena-navigate": (0.5, 0.3),
    "humanoidmaze-medium-navigate": (0, 0.1),
    "humanoidmaze-large-navigate": (0.1, 0.1),
    "pointmaze-medium-navigate": (0.7, 10),
}
# alpha by the family of a task, published with OGBench.
FAMILIES = {
    "pointmaze": {"ivl": 10, "iql": 0.003, "qrl": 0.0003, "crl": 0.03},
    "antmaze": {"ivl": 10, "iql": 0.3, "qrl": 0.003, "crl": 0.1},
    "humanoidmaze": {"ivl": 10, "iql": 0.1, "qrl": 0.001, "crl": 0.1},
    "antsoccer": {"ivl": 10, "iql": 0.1, "qrl": 0.003, "crl": 0.3},
    "cube": {"ivl": 10, "iql": 1, "qrl": 0.3, "crl": 3},
    "scene": {"ivl": 10, "iql": 1, "qrl": 0.3, "crl": 3},
    "puzzle": {"ivl": 10, "iql": 1, "qrl": 0.3, "crl": 3},
}
HALF, AHEAD, RANDOM, MIXED = (0, 0.5, 0.5), (0, 1, 0), (0, 0, 1), (0.2, 0.5, 0.3)
# What a method is like on every task; BC and FBC learn no value, so they have no value goals.
METHODS: dict[str, dict[str, Any]] = {
    "gtrl": {"value_goals": HALF, "kappa": 0.7, "kappa_one_step": 0.5, "hindsight_clip": 1, "distill": True},
    "trl": {
        "value_goals": AHEAD, "kappa": 0.7, "distill": True, "rho_reads": "target", "target_from": "previous",
    },
    "bc": {"actor_layer_norm": False},
    "fbc": {"actor_geometric": True, "flow_steps": 10, "gamma": 0.999},
    "ivl": {"value_goals": MIXED, "kappa": 0.9, "actor_layer_norm": False},
    "iql": {"value_goals": MIXED, "kappa": 0.9},
    "td": {"value_goals": HALF, "n": 1, "kappa": 0.5},
    "td-n": {"value_goals": HALF, "kappa": 0.5},
    "crl": {"value_goals": AHEAD, "latent": None},
    "mc": {"value_goals": AHEAD},
    "qrl": {"value_goals": RANDOM, "slack": 0.05, "component": 8, "actor_layer_norm": False},
    "tdp": {"value_goals": HALF, "distill": True},
    "coe": {"value_goals": HALF, "distill": True},
}  # fmt: skip


@pytest.fixture(scope="module")
def printed() -> dict[str, dict[str, Any]]:
    """`gtrl tasks --json`, by name."""
    command = [sys.executable, "-m", "gtrl", "tasks", "--json"]
    rows = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return {row["name"]: row for row in rows}


def test_json_lists_the_papers_tasks_in_order_and_then_the_others(printed: dict[str, dict[str, Any]]) -> None:
    others = ["pointmaze-medium-navigate", "pointmaze-medium-stitch", "pointmaze-mini-navigate"]
    assert list(printed)[:22] == [*PAPER, *others]
    assert [name for name, row in printed.items() if row["paper"]] == list(PAPER)
    keys = {"name", "environment", "value_goals", "actor_goals", "paper", *COLUMNS}
    assert all(set(printed[name]) == keys for name in (*PAPER, *others))


@pytest.mark.parametrize("name", PAPER)
def test_numbers_of_the_tables(name: str, printed: dict[str, dict[str, Any]]) -> None:
    row = printed[name]
    assert tuple(row[column] for column in COLUMNS) == PAPER[name]
    assert row["environment"] == f"{name}-oraclerep-v0"
    assert row["value_goals"] == [0, 0.5, 0.5]
    assert row["actor_goals"] == ([0, 0.5, 0.5] if PAPER[name][0] == "stitch" else [0, 1, 0])


def test_actor_goals_follow_the_group_and_not_the_name() -> None:
    random = {task.name for task in TASKS.values() if task.defaults["actor_goals"] == (0, 0.5, 0.5)}
    assert random == {name for name, row in PAPER.items() if row[0] == "stitch"}
    assert len(random) == 5
    assert TASKS["pointmaze-teleport-stitch"].defaults["actor_goals"] == (0, 1, 0)


def test_shared_hyperparameters() -> None:
    """tab:hp-shared, as the defaults of a method and of training."""
    training = Training()
    assert (training.steps, training.batch_size, training.learning_rate) == (M, 1024, 3e-4)
    assert training.checkpoint_steps == [800_000, 900_000, M]
    gtrl: Any = make("gtrl", TASKS["antmaze-large-navigate"])
    assert gtrl.hidden == (512, 512, 512)
    assert gtrl.target_rate == 0.005
    assert (gtrl.kappa, gtrl.kappa_one_step, gtrl.hindsight_clip) == (0.7, 0.5, 1.0)
    assert (gtrl.value_geometric, gtrl.actor_geometric, gtrl.distill) == (True, False, True)
    assert (tasks.EPISODES_PER_GOAL, tasks.GOALS_PER_TASK) == (50, 5)


@pytest.mark.parametrize("name", [*TASKS, *EXTRA_TASKS])
def test_defaults_of_each_method(name: str) -> None:
    task = (TASKS | EXTRA_TASKS)[name]
    numbers = task.defaults
    gtrl, trl, bc = (find_algorithm(method).defaults(task) for method in ("gtrl", "trl", "bc"))
    assert (gtrl["lambda_"], gtrl["alpha"], gtrl["gamma"]) == (numbers["lambda_"], numbers["alpha"], numbers["gamma"])
    # Where no number of TRL's is public it takes GTRL's.
    assert (trl["lambda_"], trl["alpha"]) == TRL.get(name, (numbers["lambda_"], numbers["alpha"]))
    assert gtrl["actor_goals"] == trl["actor_goals"] == numbers["actor_goals"]
    assert make("gtrl", task).value_goals == (0, 0.5, 0.5)
    assert make("trl", task).value_goals == (0, 1, 0)
    assert make("bc", task).actor_goals == (0, 1, 0)
    assert {gtrl["gamma"], trl["gamma"], bc["gamma"]} == {numbers["gamma"]}


def expected_fields(method: str, name: str) -> dict[str, Any]:
    """Every field of a method that the paper or its sources give a number for, on a task of the paper."""
    family, (group, *_, lambda_, alpha, gamma) = name.split("-")[0], PAPER[name]
    fields = {"gamma": gamma, "hidden": (512, 512, 512), "target_rate": 0.005}
    fields |= {"value_geometric": True, "actor_geometric": False, "actor_layer_norm": True, "target_from": "updated"}
    # The paper's stitch group has five tasks; OGBench's four methods mix goals on its seven stitch datasets.
    mixes = name.endswith("-stitch") if method in FAMILIES[family] else group == "stitch"
    fields["actor_goals"] = HALF if mixes and method not in ("bc", "fbc") else AHEAD
    if method == "gtrl":
        fields |= {"lambda_": lambda_, "alpha": alpha}
    elif method == "trl":
        fields |= dict(zip(("lambda_", "alpha"), TRL.get(name, (lambda_, alpha)), strict=True))
    elif method in FAMILIES[family]:
        fields["alpha"] = FAMILIES[family][method]
    elif method not in ("bc", "fbc"):
        fields["alpha"] = alpha  # GTRL's: none is public
    if method == "td-n":
        fields["n"] = 50 if family == "humanoidmaze" else 25
    return fields | METHODS[method]


@pytest.mark.parametrize("method", METHODS)
def test_fields_of_each_method_on_each_task(method: str) -> None:
    for name in PAPER:
        expected = expected_fields(method, name)
        made = make(method, find_task(name))
        found = {field: getattr(made, field) for field in expected}
        assert found == expected, name
        assert made.lookahead == expected.get("n", 1), name
        assert hasattr(made, "alpha") == (method not in ("bc", "fbc"))
        given = make(method, find_task(name), gamma=0.5, actor_goals=MIXED)  # overrides the task's
        assert (given.gamma, given.actor_goals) == (0.5, MIXED), name


def test_every_method_has_defaults_for_every_task() -> None:
    assert list(ALGORITHMS) == list(METHODS)
    for method, kind in ALGORITHMS.items():
        fields = {field.name for field in dataclasses.fields(kind)}
        for task in (TASKS | EXTRA_TASKS).values():
            assert set(kind.defaults(task)) <= fields
        # The family decides alpha, on tasks that are not in the paper too.
        if method in FAMILIES["pointmaze"]:
            assert {kind.defaults(task)["alpha"] for task in EXTRA_TASKS.values()} == {FAMILIES["pointmaze"][method]}


# OGBench's manipulation environments warn about their own action space and about a missing screen.
@pytest.mark.filterwarnings("ignore:.*precision lowered by casting", "ignore:.*DISPLAY environment variable")
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_sizes_of_the_environments(task: OGBenchTask) -> None:
    env = make_environment(task)
    observation, info = env.reset(seed=0, options={"task_id": tasks.GOALS_PER_TASK})
    assert observation.shape == (task.observation_dim,)
    assert info["goal"].shape == (task.goal_dim,)
    assert env.action_space.shape == (task.action_dim,)
    assert env._max_episode_steps == task.episode_length  # of gymnasium's TimeLimit, the outermost wrapper
    assert len(env.unwrapped.task_infos) == tasks.GOALS_PER_TASK
    env.close()


def test_step_budget_ends_an_episode() -> None:
    task = EXTRA_TASKS["pointmaze-mini-navigate"]
    env = make_environment(task)
    env.reset(seed=0, options={"task_id": 1})
    ends = [env.step(np.zeros(2))[3] for _ in range(task.episode_length)]
    assert ends == [False] * (task.episode_length - 1) + [True]


@pytest.mark.parametrize("spelling", ["scene-play", "scene-play-v0", "scene-play-oraclerep-v0"])
def test_ogbench_spellings_are_understood(spelling: str) -> None:
    assert find_task(spelling) is TASKS["scene-play"]


def test_unknown_task_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"^unknown task 'scen-play': did you mean 'scene-play'\?$"):
        find_task("scen-play")
    with pytest.raises(UnknownNameError, match=r"choose from pointmaze-teleport-navigate, .*puzzle-4x4-play"):
        find_task("zzz")


def test_table_shows_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, row in PAPER.items():
        line = next(line for line in lines if f" {name} " in line)
        assert all(f" {number:g} " in line for number in row[-3:])
        assert " yes " in line
    for name in EXTRA_TASKS:
        assert " no " in next(line for line in lines if f" {name} " in line)

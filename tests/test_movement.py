"""How ants, humanoids and the ball move in a dataset, by hand; and which goals a collection reached."""

from pathlib import Path

import numpy as np
from test_experts import ANT, DRIBBLER, random_expert, save, seed_of, shortened

from gtrl.data.checks import Fact, check_file
from gtrl.data.collect.expert import Experts
from gtrl.data.collect.maze import MazeCollector
from gtrl.data.collect.soccer import SoccerCollector
from gtrl.data.movement import HUMANOID_HEAD, movement
from gtrl.report.dataset import examine
from gtrl.tasks import ogbench_task

ROWS = 8  # in two episodes of four
TERMINALS = np.arange(ROWS) % 4 == 3


def standing(columns: int) -> np.ndarray:
    """qpos of an ant that stands at the origin."""
    qpos = np.zeros((ROWS, columns), np.float32)
    qpos[:, 2], qpos[:, 3] = 0.6, 1
    return qpos


def found(facts: list[Fact]) -> dict[str, str]:
    return {fact.what: fact.found for fact in facts}


def test_an_ants_distance_falls_and_goals() -> None:
    qpos = standing(15)
    qpos[:4, 0] = (0, 0.1, 0.2, 0.3)
    qpos[4:, 1] = (50, 50.2, 50.4, 50.6)  # the jump between episodes is not a distance
    qpos[6, 2] = 0.1
    arrays = {"qpos": qpos, "terminals": TERMINALS}
    arrivals = np.array([0, 1, 0, 1, 0, 0, 1, 0], bool)
    facts = found(movement(arrays, ogbench_task("antmaze-large-navigate"), arrivals))
    assert facts == {
        "goals reached per episode": "1.50",
        "m covered per 100 steps": "15.00",
        "share of time fallen": "12.50%",
    }
    stays = np.array([0, 0, 1, 1, 0, 0, 0, 0], bool)
    stitch = ogbench_task("antmaze-large-stitch")
    assert found(movement(arrays, stitch, stays))["episodes that reach their goal"] == "50.0%"
    assert "episodes that reach their goal" not in found(movement(arrays, stitch))  # a downloaded file
    assert movement(arrays, ogbench_task("pointmaze-large-navigate")) == []


def test_the_ball() -> None:
    qpos = standing(22)
    qpos[:4, 15] = (1, 1.2, 1.4, 1.6)
    qpos[4:, 15] = 9
    facts = found(movement({"qpos": qpos, "terminals": TERMINALS}, ogbench_task("antsoccer-arena-navigate")))
    assert facts["episodes that move the ball by 0.5 m"] == "50.0%"
    assert facts["m of the ball per 100 steps"] == "10.00"


def test_a_humanoid_has_fallen_where_its_head_is_low() -> None:
    observations = np.ones((ROWS, 69))
    observations[:2, HUMANOID_HEAD] = 0.5
    arrays = {"qpos": np.zeros((ROWS, 28)), "observations": observations, "terminals": TERMINALS}
    assert found(movement(arrays, ogbench_task("humanoidmaze-medium-navigate")))["share of time fallen"] == "25.00%"


def test_collected_files_say_where_goals_were_reached(tmp_path: Path) -> None:
    """An ant that is at its goal, one that walks in place of dribbling, and one whose ball is at the goal."""
    idle = {"weight1": np.zeros((6, 8)), "bias1": np.zeros(8)}
    experts = Experts(*(save(tmp_path / f"{ends[0]}.npz", random_expert(ends) | idle) for ends in (ANT, DRIBBLER)))
    maze = MazeCollector(shortened("antmaze-large-stitch", 30), experts._replace(dribble=None))
    episode = maze.episode(seed_of(0))
    goal = np.array(maze.simulator.cur_goal_xy)
    np.testing.assert_array_equal(
        episode["arrivals"][:-1], np.linalg.norm(episode["qpos"][1:, :2] - goal, axis=1) <= maze.simulator._goal_tol
    )
    soccer = SoccerCollector(shortened("antsoccer-arena-stitch", 3), experts)
    soccer.simulator.set_agent_ball_xy((4, 4), (8, 8))
    for goal, walking, dribbling in (((4, 4), True, False), ((8, 8), False, True), ((0, 0), False, False)):
        soccer.simulator.cur_goal_xy = np.array(goal)
        assert (soccer.arrived(walking=True), soccer.arrived(walking=False)) == (walking, dribbling)


def test_own_arrays_with_that_name_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    rows = {"observations": np.random.default_rng(0).normal(size=(ROWS, 3)), "actions": np.zeros((ROWS, 2))}
    np.savez(path, **rows, terminals=TERMINALS, arrivals=np.array(["Bern", "Rome", "Oslo"]))
    assert check_file(path).problems == []
    assert "arrivals" not in examine(path, draw=False).shapes

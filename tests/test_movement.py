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
    """Ants that do nothing: in a maze whose goal counts as reached from some of the places where noise moves it."""
    idle = {"weight1": np.zeros((6, 8)), "bias1": np.zeros(8)}
    experts = Experts(*(save(tmp_path / f"{ends[0]}.npz", random_expert(ends) | idle) for ends in (ANT, DRIBBLER)))
    maze = MazeCollector(shortened("antmaze-large-stitch", 60), experts._replace(dribble=None))
    far = np.linalg.norm(maze.episode(seed_of(0))["qpos"][1:, :2] - maze.simulator.cur_goal_xy, axis=1)
    maze.simulator._goal_tol = np.median(far)
    arrivals = maze.episode(seed_of(0))["arrivals"]
    np.testing.assert_array_equal(arrivals[:-1], far <= np.median(far))
    assert 0 < arrivals.mean() < 1


def test_soccer_goals_are_the_balls_but_in_walking_episodes_the_agents(tmp_path: Path) -> None:
    idle = {"weight1": np.zeros((6, 8)), "bias1": np.zeros(8)}
    experts = Experts(*(save(tmp_path / f"{ends[0]}.npz", random_expert(ends) | idle) for ends in (ANT, DRIBBLER)))
    seen = set()
    for name in ("antsoccer-arena-navigate", "antsoccer-arena-stitch"):
        soccer = SoccerCollector(shortened(name, 3), experts)
        soccer.simulator.set_goal = lambda *_, **__: None  # the goal is set here
        for seed in range(6):
            for mover, columns in (("agent", slice(0, 2)), ("ball", slice(15, 17))):
                start = soccer.episode(seed_of(seed))["qpos"][0]
                soccer.simulator.cur_goal_xy = start[columns]
                episode = soccer.episode(seed_of(seed))
                together = np.linalg.norm(start[:2] - start[15:17]) < 3  # the ball starts at a dribbling agent
                walking = name.endswith("stitch") and not together
                if not together:
                    assert episode["arrivals"].all() == ((mover == "agent") == walking)
                    assert episode["arrivals"].any() == episode["arrivals"].all()
                    seen.add((name, mover, walking))
    assert len(seen) == 4


def test_own_arrays_with_that_name_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    rows = {"observations": np.random.default_rng(0).normal(size=(ROWS, 3)), "actions": np.zeros((ROWS, 2))}
    np.savez(path, **rows, terminals=TERMINALS, arrivals=np.array(["Bern", "Rome", "Oslo"]))
    assert check_file(path).problems == []
    assert "arrivals" not in examine(path, draw=False).shapes

"""What experts learn and how: simulators, symmetry, soft actor-critic, the replay buffer."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import mujoco as untyped_mujoco
import numpy as np
import pytest
from scipy.stats import norm

from gtrl.data.collect.maze import MazeCollector
from gtrl.envs.falls import ant_has_fallen, humanoid_has_fallen
from gtrl.envs.heading import Frame
from gtrl.envs.isolation import ignore_warnings
from gtrl.errors import ConfigError, UnknownNameError
from gtrl.experts import sac
from gtrl.experts.mirror import Reflection
from gtrl.experts.replay_files import ReplayFiles
from gtrl.experts.sac import Layout, Transitions
from gtrl.experts.settings import MAZE_SHARE, SAC, SKILL_NAMES, default_config
from gtrl.experts.simulation import Copies, Simulation
from gtrl.experts.skills import (
    ARRIVED,
    FLOOR_GAP,
    NOWHERE,
    SKILLS,
    STAND_HEIGHT,
    Humanoid,
    Physics,
    Skill,
    Walker,
    make_skill,
)
from gtrl.experts.train import Trainer
from gtrl.tasks import ogbench_task

mujoco: Any = untyped_mujoco
TINY = SAC(steps=1200, copies=4, updates=1, batch_size=16, hidden=(8,), warmup=200, replay=400, noise=0.1)


@cache
def skill_named(name: str, frame: Frame = "world") -> Skill:
    return make_skill(name, frame)


def one_copy(simulation: Simulation, state: np.ndarray, goal: np.ndarray) -> Copies:
    zero = np.zeros(1, int)
    sensors = simulation._sensors(state[None])
    return Copies(state[None], sensors, goal[None], np.array([NOWHERE]), zero, zero, np.zeros(1))


# --- the simulators ---


def ball_environment() -> Any:
    """OGBench's renders a picture when it is created, which fails on machines without OpenGL."""
    from ogbench.online_locomotion.ant_ball import AntBallEnv

    class WithoutPicture(AntBallEnv):
        def render(self) -> None:
            self.mujoco_renderer: Any = SimpleNamespace(viewer=SimpleNamespace(cam=SimpleNamespace(lookat=[0, 0])))

    with ignore_warnings():
        return WithoutPicture()


def ogbench_environment(name: str) -> Any:
    from ogbench.online_locomotion.ant import AntEnv
    from ogbench.online_locomotion.humanoid import HumanoidEnv
    from ogbench.online_locomotion.wrappers import DMCHumanoidXYWrapper, GymXYWrapper

    never = 10**9  # steps until the wrapper draws another direction
    if name == "dribble":
        return ball_environment()
    return GymXYWrapper(AntEnv(), never) if name == "ant" else DMCHumanoidXYWrapper(HumanoidEnv(), never)


@pytest.mark.parametrize("name", SKILLS)
def test_inputs_rewards_and_ends_are_those_of_ogbench(name: str) -> None:
    skill, env = skill_named(name), ogbench_environment(name)
    start = skill.start(np.random.SeedSequence(5), open_field=True)
    simulator: Any = env.unwrapped
    mujoco.mj_setState(simulator.model, simulator.data, start.state, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
    mujoco.mj_forward(simulator.model, simulator.data)
    if name == "dribble":
        simulator.cur_goal_xy = start.goal
    else:
        env.z, env.num_steps = start.goal, 0
    simulation = Simulation(skill, 1, 0)
    copies, rng = one_copy(simulation, start.state, start.goal), np.random.default_rng(0)
    for _ in range(40):
        action = rng.uniform(-1, 1, skill.model.nu)
        observation, reward, terminated, _, _ = env.step(action)
        copies, taken, _ = simulation.step(copies, action[None])
        np.testing.assert_allclose(taken.following[0], observation, atol=1e-5)
        assert taken.rewards[0] == pytest.approx(reward, abs=1e-5)
        assert taken.falls[0] == terminated
        assert copies.episodes[0] == 0


def test_a_humanoid_is_not_paid_for_sprinting() -> None:
    """A standing body that has moved by 1, 7 and 20 cm in the direction, and by 20 cm against it."""
    skill = skill_named("humanoid")
    assert isinstance(skill, Humanoid)
    state = skill.start(np.random.SeedSequence(0), open_field=True).state
    skill._lean(state[1 : 1 + skill.model.nq], 0.0, 0.0)
    before = np.tile(state, (4, 1))
    after = before.copy()
    after[:, 1] += [0.01, 0.07, 0.2, -0.2]
    simulation, goals = Simulation(skill, 1, 0), np.tile([1.0, 0.0], (4, 1))
    was, now = (Physics(states, simulation._sensors(states)) for states in (before, after))
    assert (skill.head_height(now) > STAND_HEIGHT).all()
    np.testing.assert_allclose(skill.rewards(was, now, goals), [2, 8, 8, -19], atol=1e-6)


@pytest.mark.parametrize(("name", "task"), [("ant", "antmaze-large-stitch"), ("humanoid", "humanoidmaze-large-stitch")])
def test_inputs_in_a_maze_are_what_the_collector_gives_an_expert(
    name: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among walls, and with the sensors of the humanoid, which OGBench's model does not have."""
    monkeypatch.setattr("gtrl.data.collect.maze.load_expert", lambda *_: None)
    collector, skill = MazeCollector(ogbench_task(task)), skill_named(name)
    collector.env.reset(np.random.SeedSequence(3), {"task_info": {"init_ij": (1, 1), "goal_ij": (1, 2)}})
    simulator = collector.simulator
    state = np.empty(1 + skill.model.nq + skill.model.nv)
    mujoco.mj_getState(simulator.model, simulator.data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
    state[1:3] = (-2.5, -2.5)  # against two walls
    mujoco.mj_setState(simulator.model, simulator.data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
    mujoco.mj_forward(simulator.model, simulator.data)
    simulation, goal = Simulation(skill, 1, 0), np.array([0.6, 0.8])
    copies, rng = one_copy(simulation, state, goal), np.random.default_rng(0)
    for _ in range(25):
        action = rng.uniform(-1, 1, skill.model.nu)
        observation = simulator.step(action)[0]
        copies, taken, _ = simulation.step(copies, action[None])
        if not copies.episodes[0]:
            np.testing.assert_allclose(taken.following[0], [*observation[2:], *goal], atol=1e-4)
            if name == "humanoid":  # an expert in the frame of the body
                collector.uses_body_frame = True
                inputs = skill_named(name, "body").inputs(copies.physics, goal[None])[0]
                np.testing.assert_allclose(collector.expert_input(observation, goal), inputs, atol=1e-4)
                assert np.abs(inputs[37:39] - observation[39:41]).max() > 1e-3
                collector.uses_body_frame = False


def turned(skill: Skill, states: np.ndarray, angle: float) -> np.ndarray:
    """States with the world turned about the vertical axis, by rotation matrices."""
    from scipy.spatial.transform import Rotation

    states, turn = states.copy(), Rotation.from_euler("z", angle)
    free = [0] + ([15] if skill.name == "dribble" else [])
    for number, start in enumerate(free):
        place, orientation = slice(1 + start, 4 + start), slice(4 + start, 8 + start)
        states[:, place] = turn.apply(states[:, place])
        w, x, y, z = states[:, orientation].T
        x, y, z, w = (turn * Rotation.from_quat(np.stack([x, y, z, w], -1))).as_quat().T
        sign = np.sign(states[:, 4 + start] * w)
        states[:, orientation] = np.stack([w, x, y, z], -1) * np.where(sign == 0, 1, sign)[:, None]
        velocity = 1 + skill.model.nq + (14 if number else 0)
        states[:, velocity : velocity + 3] = turn.apply(states[:, velocity : velocity + 3])
    return states


@pytest.mark.parametrize("name", SKILLS)
def test_turning_the_world_turns_inputs_and_keeps_rewards(name: str) -> None:
    """The simulator with a turned start, against `sac.turn` of what it says from the start as it was."""
    skill, angle = skill_named(name), 2.1
    simulation = Simulation(skill, 1, 0, measuring=True)
    starts = [skill.start(np.random.SeedSequence(k), open_field=True) for k in range(3)]
    states, goals = np.array([start.state for start in starts]), np.array([start.goal for start in starts])
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    layout = Layout(0, 0, 1.0, tuple(skill.vectors), tuple(skill.quaternions))
    both = [states, turned(skill, states, angle)]
    rng = np.random.default_rng(1)
    for _ in range(5):
        actions = rng.uniform(-1, 1, (3, skill.model.nu))
        before = [Physics(each, simulation._sensors(each)) for each in both]
        after = [simulation._advance(each, actions)[0] for each in before]
        aims = (goals, goals @ matrix.T)
        rewards = [skill.rewards(old, now, aim) for old, now, aim in zip(before, after, aims, strict=True)]
        inputs = [skill.inputs(now, aim) for now, aim in zip(after, aims, strict=True)]
        expected = np.array(sac.turn(jnp.asarray(inputs[0]), jnp.full(3, angle), layout))
        for start in skill.quaternions:  # q and -q are the same orientation
            sign = np.sign((expected[:, start : start + 4] * inputs[1][:, start : start + 4]).sum(-1, keepdims=True))
            expected[:, start : start + 4] *= sign
        np.testing.assert_allclose(inputs[1], expected, atol=2e-5)
        np.testing.assert_allclose(rewards[0], rewards[1], atol=1e-4)
        both = [now.states for now in after]


def test_the_frame_of_a_humanoids_body() -> None:
    """Vectors as the body sees them: by rotation matrices for a body that stands, and the same however it is turned."""
    from scipy.spatial.transform import Rotation

    skill, rng = skill_named("humanoid", "body"), np.random.default_rng(0)
    simulation = Simulation(skill, 1, 0)
    states = simulation.begin(20).states
    angle, goals = 2.2, rng.standard_normal((20, 2))
    goals_after = Rotation.from_euler("z", angle).apply(np.pad(goals, ((0, 0), (0, 1))))[:, :2]
    after = turned(skill, states, angle)
    assert np.abs(after - states).max() > 0.5
    found = [skill.inputs(Physics(s, simulation._sensors(s)), g) for s, g in ((states, goals), (after, goals_after))]
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    assert not skill.vectors

    heading = rng.uniform(-np.pi, np.pi, 20)
    states[:, 4:8] = np.roll(Rotation.from_euler("z", heading[:, None]).as_quat(), 1, axis=-1) * rng.choice(
        [-1, 1], (20, 1)
    )
    inputs = skill.inputs(Physics(states, simulation._sensors(states)), goals)
    for start, vectors in ((40, states[:, 1 + skill.model.nq :][:, :2]), (67, goals)):
        by_matrix = Rotation.from_euler("z", -heading[:, None]).apply(np.pad(vectors, ((0, 0), (0, 1))))[:, :2]
        np.testing.assert_allclose(inputs[:, start : start + 2], by_matrix, atol=1e-6)
    with pytest.raises(ConfigError, match="frame is 'body'"):
        make_skill("ant", "body")


@pytest.mark.parametrize("frame", ["world", "body"])
def test_the_reflection_of_a_humanoid(frame: Frame) -> None:
    """From a reflected start, with reflected actions, the simulator gives reflected inputs and the same rewards."""
    skill = skill_named("humanoid", frame)
    of_inputs, of_actions = skill.mirror() or pytest.fail("no reflection")
    simulation = Simulation(skill, 1, 0, measuring=True)
    joints = Reflection(of_inputs.sources[:21], of_inputs.signs[:21])
    starts = [skill.start(np.random.SeedSequence(k), open_field=True) for k in range(3)]
    states, goals = np.array([start.state for start in starts]), np.array([start.goal for start in starts])
    seen = states.copy()
    seen[:, [2, 5, 7]] *= -1  # y; what is turned about x and z
    seen[:, 8:29] = joints.of(states[:, 8:29])
    motion = 29 + np.array([1, 3, 5])  # along y, about x and z
    seen[:, motion] *= -1
    seen[:, 35:] = joints.of(states[:, 35:])
    rng, both, aims = np.random.default_rng(1), [states, seen], (goals, goals * [1, -1])
    for _ in range(5):
        actions = rng.uniform(-1, 1, (3, skill.model.nu))
        before = [Physics(each, simulation._sensors(each)) for each in both]
        moves = (actions, of_actions.of(actions))
        after = [simulation._advance(each, move)[0] for each, move in zip(before, moves, strict=True)]
        rewards = [skill.rewards(old, now, aim) for old, now, aim in zip(before, after, aims, strict=True)]
        inputs = [skill.inputs(now, aim) for now, aim in zip(after, aims, strict=True)]
        np.testing.assert_allclose(inputs[1], of_inputs.of(inputs[0]), atol=1e-3)
        np.testing.assert_allclose(rewards[0], rewards[1], atol=1e-3)
        both = [now.states for now in after]


def test_half_of_the_transitions_are_reflected() -> None:
    """Inputs, actions and following inputs are reflected together, or not at all."""
    reflection = Reflection((0, 2, 1), (-1, 1, 1)), Reflection((1, 0), (1, -1))
    layout = Layout(3, 2, 1.0, (), (), reflection)
    rng = np.random.default_rng(0)
    columns = [rng.standard_normal((400, size)).astype(np.float32) for size in (3, 2, 3)]
    steps = Transitions(columns[0], columns[1], jnp.arange(400), columns[2], jnp.zeros(400))
    found = sac.augmented(steps, jax.random.key(0), SAC(turn=False), layout)
    by_hand = [
        columns[0][:, [0, 2, 1]] * [-1, 1, 1],
        columns[1][:, [1, 0]] * [1, -1],
        columns[2][:, [0, 2, 1]] * [-1, 1, 1],
    ]
    changed: np.ndarray = np.any(np.asarray(found.inputs) != columns[0], axis=1)
    assert 150 < changed.sum() < 250
    for got, old, new in zip((found.inputs, found.actions, found.following), columns, by_hand, strict=True):
        np.testing.assert_array_equal(got, np.where(changed[:, None], new, old))
    np.testing.assert_array_equal(found.rewards, np.arange(400))
    same = sac.augmented(steps, jax.random.key(0), SAC(turn=False, mirror=False), layout)
    np.testing.assert_array_equal(same.inputs, columns[0])


def test_a_humanoid_starts_on_the_floor_between_lying_and_standing() -> None:
    """MuJoCo's own distances: the lowest part of three quarters of the bodies is just above the floor."""
    skill = skill_named("humanoid")
    assert isinstance(skill, Humanoid)
    simulation = Simulation(skill, 1, 0)
    copies, data = simulation.begin(60), simulation.data[0]
    floor, parts = skill.model.geom("floor").id, np.flatnonzero(skill.model.geom_bodyid)
    gaps = []
    for state in copies.states:
        mujoco.mj_setState(skill.model, data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
        mujoco.mj_forward(skill.model, data)
        gaps.append(min(mujoco.mj_geomDistance(skill.model, data, floor, part, 10.0, None) for part in parts))
    on_the_floor = np.isclose(gaps, FLOOR_GAP, atol=1e-6)
    assert 0.6 < on_the_floor.mean() < 0.9
    heads = skill.head_height(copies.physics)[on_the_floor]
    assert heads.max() > STAND_HEIGHT
    assert humanoid_has_fallen(heads).any()


def test_a_leaning_humanoid_is_tilted_less_than_its_random_pose() -> None:
    """For any heading and sign of the orientation, the tilt lies between that of the pose and none."""
    skill = skill_named("humanoid")
    assert isinstance(skill, Humanoid)
    rng = np.random.default_rng(0)
    for _ in range(40):
        qpos = skill.start(np.random.SeedSequence(int(rng.integers(1000))), open_field=True).state[
            1 : 1 + skill.model.nq
        ]
        qpos[3:7] *= rng.choice([-1, 1])
        tilts = []
        for share in (1.0, 0.5, 0.0):
            leaning = qpos.copy()
            skill._lean(leaning, share, rng.uniform(0, 2 * np.pi))
            _, x, y, _ = leaning[3:7]
            tilts.append(np.arccos(1 - 2 * (x * x + y * y)))
        assert tilts[0] >= tilts[1] - 1e-6 >= -1e-6
        assert tilts[2] == pytest.approx(0, abs=1e-6)


def test_a_humanoid_that_stays_on_the_floor_starts_again() -> None:
    """The episode is truncated: it counts as no fall, after which nothing would follow."""
    skill = skill_named("humanoid")
    simulation = Simulation(skill, 1, 0)
    copies = simulation.begin(12, spread=False)
    still = np.zeros((12, skill.model.nu), np.float32)
    assert skill.recovery_steps is not None
    for _ in range(skill.recovery_steps):
        assert (copies.episodes == 0).all()
        copies, taken, _ = simulation.step(copies, still)
        assert not taken.falls.any()
    again = copies.episodes == 1
    assert again.sum() >= 10  # without any action nearly all have collapsed
    assert (copies.ages[again] == 0).all()
    assert (copies.ages[~again] == skill.recovery_steps).all()


def test_copies_do_not_depend_on_threads() -> None:
    skill, found = skill_named("ant"), []
    for threads in (1, 2, 3):
        simulation, rng = Simulation(skill, threads, 4), np.random.default_rng(0)
        copies, arrays = simulation.begin(5), []
        for _ in range(8):
            copies, taken, _ = simulation.step(copies, rng.uniform(-1, 1, (5, 8)))
            arrays += taken
        found.append([*copies, *arrays])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_episodes_end_after_their_steps_or_a_fall_and_goals_are_redrawn() -> None:
    skill = skill_named("ant")
    simulation = Simulation(skill, 1, 0)
    copies = simulation.begin(4)
    outside = np.flatnonzero(copies.places == NOWHERE)
    assert 0 < len(outside) < 4
    np.testing.assert_array_equal(copies.ages, [0, 250, 500, 750])
    first = int(outside[0])
    copies.ages[:] = 99
    copies.states[3, 4:8] = (0, 1, 0, 0)  # on its back
    copies.episodes[:] = 7
    copies.returns[:] = 2.0
    after, taken, episodes = simulation.step(copies, np.zeros((4, 8)))
    assert taken.falls.tolist() == [False, False, False, True]
    assert [(episode.length, episode.fell) for episode in episodes] == [(100, True)]
    assert episodes[0].total == pytest.approx(2.0 + taken.rewards[3])
    assert (after.goals[first] != copies.goals[first]).any()  # drawn again after 100 steps
    np.testing.assert_array_equal(taken.following[first, -2:], np.float32(copies.goals[first]))
    assert (after.episodes[3], after.ages[3], after.returns[3]) == (8, 0, 0)
    assert not skill.fallen(after.physics)[3]
    after.ages[:] = skill.episode_steps - 1
    _, taken, episodes = simulation.step(after, np.zeros((4, 8)))
    assert not taken.falls.any()
    assert [episode.length for episode in episodes] == [skill.episode_steps] * 4


def test_walkers_in_a_maze_are_sent_along_shortest_paths() -> None:
    skill = skill_named("ant")
    assert isinstance(skill, Walker)
    starts = [skill.start(np.random.SeedSequence(k)) for k in range(60)]
    inside = [start for start in starts if start.place != NOWHERE]
    assert abs(len(inside) / 60 - MAZE_SHARE) < 0.2
    for start in inside:
        cell, goal = skill.maze.cell_at(start.state[1:3]), skill.maze.vertices[start.place]
        away = skill.maze.xy(tuple(skill.maze.towards(goal)[cell])) - start.state[1:3]
        np.testing.assert_allclose(start.goal, away / np.linalg.norm(away), atol=1e-9)
        assert skill.maze.free[cell]
    assert all(abs(start.state[1]) > 500 for start in starts if start.place == NOWHERE)
    simulation = Simulation(skill, 1, 0)
    copies = simulation.begin(8)
    copy = int(np.flatnonzero(copies.places != NOWHERE)[0])
    copies.states[copy, 1:3] = skill.places[copies.places[copy]] + (ARRIVED / 2, 0)
    assert simulation.step(copies, np.zeros((8, 8)))[0].places[copy] != copies.places[copy]


@pytest.mark.parametrize(("name", "expected"), [("ant", 1.0), ("humanoid", 1 / 25)])
def test_how_long_walkers_linger_at_a_place(name: str, expected: float) -> None:
    """Each copy is half a metre from its place; the share that is sent to another one, which may be the same."""
    skill = skill_named(name)
    assert isinstance(skill, Walker)
    simulation, count = Simulation(skill, 1, 0), 2000
    copies = Copies(*(np.repeat(column, count, axis=0) for column in simulation.begin(1)))
    copies.places[:], copies.ages[:] = 3, 7
    copies.states[:, 1:3] = skill.places[3] + [0.5, 0.0]
    simulation._direct(copies)
    sent_on = np.mean(copies.places != 3) / (1 - 1 / len(skill.places))
    assert sent_on == pytest.approx(expected, abs=0.02)
    stays = copies.places == 3
    np.testing.assert_allclose(copies.goals[stays], np.tile([-1.0, 0.0], (stays.sum(), 1)))


def test_an_unknown_skill_is_named() -> None:
    with pytest.raises(UnknownNameError, match="unknown skill 'cow': choose from ant, dribble, humanoid"):
        make_skill("cow")
    assert set(SKILL_NAMES) == set(SKILLS)


def test_a_simulation_that_breaks_down_ends_the_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo starts again from its initial state where velocities are absurd: such a step must not be learned."""
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes a log
    skill = skill_named("ant")
    simulation = Simulation(skill, 1, 0)
    copies = simulation.begin(3)
    copies.episodes[:] = 4
    copies.states[1, -14:] = 1e12
    after, taken, episodes = simulation.step(copies, np.zeros((3, 8)))
    assert taken.falls.tolist() == [False, True, False]
    assert taken.rewards[1] == 0
    np.testing.assert_array_equal(taken.following[1], taken.inputs[1])
    assert np.isfinite(after.states).all()
    assert after.episodes.tolist() == [4, 5, 4]
    assert [episode.fell for episode in episodes] == [True]


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("name", ["ant", "dribble", "humanoid"])
def test_the_share_of_episodes_in_a_maze(name: str, share: float) -> None:
    skill = make_skill(name, maze_share=share)
    starts = [skill.start(np.random.SeedSequence(k)) for k in range(8)]
    in_open_field = {bool(start.state[1] > 500) for start in starts}
    assert in_open_field == {share == 0}


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_0_to_1_is_rejected(share: float) -> None:
    with pytest.raises(ConfigError, match=r"maze_share.* must lie in \[0, 1\]"):
        default_config("ant", maze_share=share)


def test_dribbling_starts_in_the_arena_or_in_the_open_field() -> None:
    skill: Any = skill_named("dribble")
    starts = [skill.start(np.random.SeedSequence(k)) for k in range(200)]
    physics = Physics(np.array([start.state for start in starts]), np.zeros((200, 0)))
    ant, ball, goal = skill.xy(physics), skill.ball(physics), np.array([start.goal for start in starts])
    arena = ant[:, 0] < 500
    assert abs(arena.mean() - MAZE_SHARE) < 0.15
    for places, margin in ((ant, 1.0), (ball, 0.3), (goal, 0.3)):
        low, high = places[arena].min(0), places[arena].max(0)
        assert (low >= skill.low + margin - 1e-9).all()
        assert (high <= skill.high - margin + 1e-9).all()
        np.testing.assert_allclose([low - skill.low, skill.high - high], margin, atol=2.5)  # all of the arena
    assert np.abs(ant - ball)[arena].max() <= 2
    away = np.linalg.norm(goal - ball, axis=1)[arena]
    assert 9 < away.max() <= 10 + 1e-9
    for places, reach in ((ant, 1), (ball, 2), (goal, 12)):
        np.testing.assert_allclose(np.abs(places[~arena] - 1000).max(), reach, rtol=0.1)
        assert np.abs(places[~arena] - 1000).max() <= reach


def test_falls() -> None:
    on_its_feet, on_its_back, rolled = (1, 0, 0, 0), (0, 1, 0, 0), (np.cos(0.5), np.sin(0.5), 0, 0)
    rows = [(0.6, on_its_feet), (0.1, on_its_feet), (1.1, on_its_feet), (0.6, on_its_back), (0.6, rolled)]
    qpos = np.array([[0, 0, height, *orientation] for height, orientation in rows])
    assert ant_has_fallen(qpos).tolist() == [False, True, True, True, False]
    assert ant_has_fallen(np.full((1, 7), np.nan)).all()
    assert humanoid_has_fallen(np.array([1.4, 0.9, np.nan])).tolist() == [False, True, True]


# --- the learner ---


def test_moments_are_those_of_all_inputs() -> None:
    rows = np.random.default_rng(0).normal(5, [1, 20, 0.001], (90, 3)).astype(np.float32)
    moments = sac.init_learner(jax.random.key(0), TINY, Layout(3, 1, 1.0, (), ())).moments
    for part in np.split(rows, [10, 50]):
        moments = moments.including(jnp.asarray(part))
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-4)
    np.testing.assert_allclose(moments.deviation, [*rows.std(0)[:2], sac.MIN_DEVIATION], rtol=1e-3)


def test_turns_are_uniform_over_all_quaternions() -> None:
    """q and -q are the same orientation but different inputs: both halves of the circle are covered."""
    layout = Layout(4, 1, 1.0, (), (0,))
    upright = jnp.tile(jnp.array([1.0, 0, 0, 0]), (20_000, 1))
    turned = np.asarray(sac.turn(upright, sac.random_angles(jax.random.key(0), 20_000), layout))
    half_angles = np.arctan2(turned[:, 3], turned[:, 0])
    counts = np.histogram(half_angles, 8, (-np.pi, np.pi))[0]
    np.testing.assert_allclose(counts / 20_000, 1 / 8, atol=0.01)


def test_moments_are_those_of_turned_inputs() -> None:
    """As in batches: an ant that has only ever faced north still has inputs for all directions."""
    config, layout = SAC(**{**TINY.__dict__, "replay": 4000}), Layout(4, 1, 1.0, (), (0,))
    rows = np.tile(np.array([1, 0, 0, 0], np.float32), (4000, 1))
    zeros = np.zeros(4000, np.float32)
    taken = Transitions(rows, zeros[:, None], zeros, rows, zeros)
    learner, replay = sac.init_learner(jax.random.key(0), config, layout), sac.init_replay(config, layout)
    moments = sac.add_only(learner, replay, taken, config, layout)[0].moments
    np.testing.assert_allclose(moments.mean, np.zeros(4), atol=0.05)
    np.testing.assert_allclose(moments.deviation, [0.5**0.5, sac.MIN_DEVIATION, sac.MIN_DEVIATION, 0.5**0.5], atol=0.02)


def test_density_of_the_policy() -> None:
    layout = Layout(3, 2, 1.0, (), ())
    policy = sac.init_learner(jax.random.key(1), TINY, layout).nets.policy
    inputs = jax.random.normal(jax.random.key(2), (50, 3))
    action, density = policy.sample(inputs, jax.random.key(3))
    mean, log_deviation = policy.distribution(inputs)
    action = np.asarray(action, float)
    expected = norm.logpdf(np.arctanh(action), mean, np.exp(log_deviation)) - np.log(1 - action**2)
    np.testing.assert_allclose(density, expected.sum(-1), atol=2e-3)


def test_the_critic_fits_rewards_and_values_but_nothing_after_a_fall() -> None:
    """The loss against NumPy: targets r + gamma (1 - fall) (min Q' - temperature log pi)."""
    layout, key = Layout(3, 2, 0.5, (), ()), jax.random.key(7)
    learner = sac.init_learner(jax.random.key(1), TINY, layout)
    target = jax.tree.map(lambda leaf: leaf * 1.3, learner.target)
    rng = np.random.default_rng(0)
    columns = (rng.normal(size=shape).astype(np.float32) for shape in ((6, 3), (6, 2), (6,), (6, 3), (6,)))
    batch = Transitions(*columns)._replace(falls=np.array([0, 1, 0, 1, 0, 0], np.float32))
    _, metrics = sac.loss(learner.nets, target, learner.moments, batch, key, TINY, layout)
    deviation = np.asarray(learner.moments.deviation)
    following = jnp.asarray(batch.following / deviation)
    action, density = learner.nets.policy.sample(following, jax.random.split(key)[0])
    value = np.min(target(following, action), axis=0) - sac.INITIAL_TEMPERATURE * np.asarray(density)
    y = 0.5 * batch.rewards + 0.99 * np.where(batch.falls == 1, 0, value)
    q = np.asarray(learner.nets.critic(jnp.asarray(batch.inputs / deviation), jnp.asarray(batch.actions)))
    assert metrics["critic_loss"] == pytest.approx(np.mean((q - y) ** 2), rel=1e-4)


def test_each_loss_teaches_its_own_network() -> None:
    """Gradients: the critic's from the squared error, the policy's through the action, the temperature's by hand."""
    layout, key = Layout(3, 2, 1.0, (), ()), jax.random.key(7)
    learner, rng = sac.init_learner(jax.random.key(1), TINY, layout), np.random.default_rng(0)
    columns = (rng.normal(size=shape).astype(np.float32) for shape in ((6, 3), (6, 2), (6,), (6, 3), (6,)))
    batch, nets = Transitions(*columns), learner.nets
    gradient = jax.grad(sac.loss, has_aux=True)(nets, learner.target, learner.moments, batch, key, TINY, layout)[0]
    inputs = learner.moments.standardised(batch.inputs)
    temperature = jnp.exp(nets.log_temperature)

    def of_policy(policy: sac.Policy) -> Any:
        action, density = policy.sample(inputs, jax.random.split(key)[1])
        return (temperature * density - nets.critic(inputs, action).min(0)).mean()

    for found, expected in zip(
        jax.tree.leaves(gradient.policy), jax.tree.leaves(jax.grad(of_policy)(nets.policy)), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    density = nets.policy.sample(inputs, jax.random.split(key)[1])[1]
    excess = -float(density.mean()) - TINY.target_entropy * 2
    assert gradient.log_temperature == pytest.approx(float(temperature) * excess, rel=1e-4)
    assert excess > 0  # more entropy than wanted, so that the temperature falls
    falls = batch._replace(falls=np.ones(6, np.float32))

    def of_critic(critic: Any) -> Any:
        return jnp.square(critic(inputs, jnp.asarray(batch.actions)) - falls.rewards).mean()

    after_falls = jax.grad(sac.loss, has_aux=True)(nets, learner.target, learner.moments, falls, key, TINY, layout)[0]
    for found, expected in zip(
        jax.tree.leaves(after_falls.critic), jax.tree.leaves(jax.grad(of_critic)(nets.critic)), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_learns_the_best_action_of_a_known_problem() -> None:
    """One step, reward -(a - s / 2)^2: the best action is s / 2."""
    settings: dict[str, Any] = {"steps": 512, "copies": 512, "updates": 100, "batch_size": 64, "hidden": (32, 32)}
    config = SAC(**settings, lr=3e-3, turn=False, warmup=0, target_entropy=-2.0)
    layout, rng = Layout(1, 1, 1.0, (), ()), np.random.default_rng(0)
    inputs, actions = rng.uniform(-1, 1, (2, 512, 1)).astype(np.float32)
    rewards = -((actions - inputs / 2) ** 2)[:, 0]
    taken = Transitions(inputs, actions, rewards, inputs, np.ones(512, np.float32))
    learner, replay = sac.init_learner(jax.random.key(0), config, layout), sac.init_replay(config, layout)
    for _ in range(8):
        learner, replay, _ = sac.advance(learner, replay, taken, config, layout)
    states = np.linspace(-0.9, 0.9, 7, dtype=np.float32)[:, None]
    np.testing.assert_allclose(sac.mean_action(learner, jnp.asarray(states)), states / 2, atol=0.1)


def test_buffer_keeps_the_newest_steps() -> None:
    config, layout = SAC(copies=3, replay=7), Layout(1, 1, 1.0, (), ())
    replay, steps = sac.init_replay(config, layout), []
    for number in range(5):
        rows = np.arange(3, dtype=np.float32) + 3 * number
        replay = sac.add(replay, Transitions(rows[:, None], rows[:, None], rows, rows[:, None], rows))
        steps += rows.tolist()
        expected = sorted(steps[-7:]) if len(steps) >= 7 else sorted(steps + [0.0] * (7 - len(steps)))
        assert sorted(np.asarray(replay.steps.rewards).tolist()) == expected
    assert int(replay.added) == 15


def test_replay_files(tmp_path: Path) -> None:
    files = ReplayFiles(tmp_path)

    def steps(start: int, end: int) -> Transitions:
        rows = np.arange(start, end, dtype=np.float32)
        return Transitions(rows[:, None], rows[:, None], rows, rows[:, None], rows)

    for start, end in ((0, 4), (4, 10), (10, 12)):
        files.append(steps(start, start + 1))
        files.append(steps(start + 1, end))
        files.write(end)
    found = files.read(12, 5)
    assert found is not None
    assert found.rewards.tolist() == [7, 8, 9, 10, 11]
    assert found.inputs.shape == (5, 1)
    assert files.read(11, 1) is None  # no checkpoint was there
    assert files.read(12, 13) is None
    files.remove(before=4, after=10)
    assert [(start, end) for start, end, _ in files.files()] == [(4, 10)]


def test_noise_is_a_part_of_the_world(tmp_path: Path) -> None:
    """The simulators take noisy actions; the buffer has those of the policy, which are the same as without noise."""
    quiet, noisy = (
        Trainer(skill_named("ant"), replace(TINY, noise=noise), tmp_path / str(noise)) for noise in (0.0, 0.2)
    )
    for trainer in (quiet, noisy):
        trainer.begin()
    np.testing.assert_array_equal(quiet.pending.actions, noisy.pending.actions)
    assert np.abs(quiet.pending.following - noisy.pending.following).max() > 1e-3

    inputs = jnp.zeros((3000, 29))
    actions, taken = sac.explore(noisy.learner, inputs, jnp.uint32(7), 0.2)
    added = np.asarray(taken - actions)[np.abs(actions) < 0.2]
    assert added.std() == pytest.approx(0.2, abs=0.01)
    assert added.mean() == pytest.approx(0, abs=0.01)
    assert np.abs(taken).max() == 1

"""What an expert can learn: to walk in a given direction as an ant or a humanoid, or to dribble a ball to a place.

Observations and rewards are those of OGBench's training environments (`ogbench.online_locomotion`), computed here for
many copies of a simulator at once. OGBench trains in an open field only. Here half of the episodes are among the walls
of a task, because data is collected there, and an ant that is thrown on its back cannot get up.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gtrl.envs.falls import ant_has_fallen, humanoid_has_fallen
from gtrl.envs.heading import HUMANOID_VECTORS, Frame, in_body_frame
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment
from gtrl.envs.maze import Maze
from gtrl.errors import ConfigError
from gtrl.experts.mirror import (
    AXIAL,
    HORIZONTAL,
    SCALAR,
    VECTOR,
    Reflection,
    concatenated,
    joint_angles,
    opposite_indices,
    positions,
)
from gtrl.experts.settings import MAZE_SHARE, check_skill
from gtrl.tasks import ogbench_task

Array = np.ndarray
QUATERNION = slice(3, 7)  # of a free joint, in qpos
OPEN_FIELD = 1000.0  # m from the maze in x and y
ARRIVED = 1.0  # m from a place in the maze, where the walker is sent to another one
STEPS_PER_BALL = 200  # steps of an episode with the ball
ANT_RANGE, BALL_RANGE, BALL_GOAL_RANGE = 1.0, 2.0, 12.0  # m; first places in the open field, as in OGBench
ANT_MARGIN, BALL_MARGIN = 1.0, 0.3  # m from the walls of the arena, for first places
MAX_BALL_DISTANCE = 10.0  # m from ball to goal; data collection gives no farther ones
BALL_WEIGHT, BALL_SCALE = 2.5, 10.0  # reward: (ball's progress to the goal * weight + ant's to the ball) * scale
PROGRESS_SCALE = 100.0  # the humanoid's reward for a metre in the given direction
# m per step that are rewarded; OGBench has no limit. A sprint is faster, but every noisy action may end it with a fall.
MAX_PROGRESS = 0.07
STAND_HEIGHT, UPRIGHT = 1.4, 0.9  # of the head in m, and the torso's z axis: no reward is lost above these
LIMBS = ("left_hand", "left_foot", "right_hand", "right_foot")  # in the order of the observation
LEANING_SHARE = 0.75  # of the humanoid's episodes start between standing and a random pose, the others as in OGBench
FLOOR_GAP = 0.01  # m between the floor and a humanoid that starts between standing and a random pose
NOWHERE = -1  # the number of the place that a copy walks to, if it does not walk to any
LEANING_STREAM = 1  # a stream of random numbers of its own
TIME = 0  # index of the time in a state


def mujoco() -> Any:
    """Returns the module, which has no types and is an extra of the installation."""
    return import_module("mujoco")


class Physics(NamedTuple):
    """Copies of a simulator at one time, one row for each."""

    states: Array  # MuJoCo's full physics state: time, qpos, qvel
    sensors: Array


class Start(NamedTuple):
    """The start of an episode."""

    state: Array
    goal: Array
    place: int  # the number of the place in the maze that a walker is sent to, or NOWHERE


class Skill:
    """Something to learn. The methods take and return one row per copy of the simulator.

    Attributes:
        name: On the command line.
        input_size: The size of an expert's input.
        goal_steps: The number of steps after which a new goal is drawn; None if a goal lasts for an episode.
        episode_steps: The length of an episode.
        reward_scale: Rewards are multiplied by it for learning.
        ends_on_fall: Whether a fall ends the episode.
        recovery_steps: Every so many steps of an episode, a body that lies on the floor starts another one. The episode
            is truncated, not terminated: the learner bootstraps from its last state. None if it continues.
        steps_up: How many steps a body must have been up for a fall to count.
        vectors: Where horizontal vectors start in the input of an expert. Turning the world turns them.
        quaternions: Where orientations start in the input of an expert.
        reads_sensors: Whether observations need MuJoCo's sensors.
        maze_share: The share of episodes in a maze of the task, or the arena.
    """

    name: ClassVar[str]
    input_size: ClassVar[int]
    goal_steps: ClassVar[int | None] = None
    episode_steps: ClassVar[int] = 1000
    reward_scale: ClassVar[float] = 1.0
    ends_on_fall: ClassVar[bool] = True
    recovery_steps: ClassVar[int | None] = None
    steps_up: ClassVar[int] = 10
    vectors: Sequence[int]
    quaternions: ClassVar[Sequence[int]] = ()
    reads_sensors: ClassVar[bool] = False
    maze_share: float = MAZE_SHARE

    def __init__(self, env: Any) -> None:
        self.env = IsolatedEnv(env)
        self.simulator: Any = self.env.env.unwrapped
        self.model, self.substeps = self.simulator.model, self.simulator.frame_skip

    def mirror(self) -> tuple[Reflection, Reflection] | None:
        """Returns the left-right reflections of inputs and actions; None if the learner uses no such symmetry."""
        return None

    # --- episodes ---

    def start(self, seed: np.random.SeedSequence, open_field: bool = False) -> Start:
        """Returns the start of an episode, which depends only on the seed.

        With `open_field`, as for measuring, it is as in OGBench: in the open field, a humanoid in a random pose.
        """
        raise NotImplementedError

    def goal(self, rng: np.random.Generator) -> Array:
        """Draws a goal to replace the one of a copy."""
        raise NotImplementedError

    def state(self) -> Array:
        """Returns the state of the environment."""
        parts = mujoco().mjtState.mjSTATE_FULLPHYSICS.value
        state = np.empty(mujoco().mj_stateSize(self.model, parts))
        mujoco().mj_getState(self.simulator.model, self.simulator.data, state, parts)
        state[TIME] = 0.0
        return state

    # --- what the physics says ---

    def qpos(self, now: Physics) -> Array:
        """Returns the positions of all joints."""
        return now.states[:, 1 : 1 + self.model.nq]

    def qvel(self, now: Physics) -> Array:
        """Returns the velocities of all joints."""
        return now.states[:, 1 + self.model.nq : 1 + self.model.nq + self.model.nv]

    def xy(self, now: Physics) -> Array:
        """Returns where the body is."""
        return self.qpos(now)[:, :2]

    def inputs(self, now: Physics, goals: Array) -> Array:
        """Returns the input of an expert: observation, then goal."""
        raise NotImplementedError

    def rewards(self, before: Physics, after: Physics, goals: Array) -> Array:
        """Returns the rewards of a step."""
        raise NotImplementedError

    def fallen(self, now: Physics) -> Array:
        """Returns whether the body has fallen."""
        raise NotImplementedError


class Walker(Skill):
    """Walking in a given direction: in an open field one drawn at random, in a maze that to the next cell of a path."""

    task: ClassVar[str]  # in whose maze it walks
    linger_steps: ClassVar[int] = 1  # steps on average that it is kept at a place of the maze before it is sent on

    def __init__(self) -> None:
        super().__init__(make_environment(ogbench_task(self.task)))
        maze = Maze.from_env(self.simulator)
        assert maze is not None
        self.maze, self.places = maze, maze.xy(maze.vertices)
        # The place to head for from every cell (places, rows, columns, 2), on the way to each place.
        self.next_places = np.stack([maze.xy(maze.towards(cell)) for cell in maze.vertices])

    def start(self, seed: np.random.SeedSequence, open_field: bool = False) -> Start:
        rng = np.random.default_rng(seed)
        open_field |= rng.random() >= self.maze_share
        cell = self.maze.cells[rng.integers(len(self.maze.cells))]
        self.env.reset(seed, {"task_info": {"init_ij": cell, "goal_ij": cell}})
        state, place, goal = self.state(), int(rng.integers(len(self.places))), self.goal(rng)
        if open_field:
            state[1:3] += OPEN_FIELD
            return Start(state, goal, NOWHERE)
        return Start(state, self.directions(state[None, 1:3], np.array([place]))[0], place)

    def goal(self, rng: np.random.Generator) -> Array:
        """Draws a direction."""
        direction = rng.standard_normal(2)
        return direction / np.linalg.norm(direction)

    def directions(self, xy: Array, places: Array) -> Array:
        """Returns the directions in which to walk to places of the maze."""
        rows, columns = self.maze.cells_at(xy).T
        away = self.next_places[places, rows, columns] - xy
        return away / np.maximum(distance(away, 0.0), 1e-6)[:, None]

    def progress(self, before: Physics, after: Physics, goals: Array) -> Array:
        """Returns the distance covered in the direction of the goal."""
        return ((self.xy(after) - self.xy(before)) * goals).sum(-1)


def distance(one: Array, other: Array | float) -> Array:
    """Returns the distances between the rows of two arrays."""
    return np.linalg.norm(one - other, axis=-1)


class Ant(Walker):
    """Walking as an ant."""

    name = "ant"
    input_size = 29
    task = "antmaze-large-navigate"
    goal_steps = 100
    vectors = (13, 27)  # velocity, direction
    quaternions = (1,)

    def inputs(self, now: Physics, goals: Array) -> Array:
        return np.concatenate([self.qpos(now)[:, 2:], self.qvel(now), goals], -1)

    def rewards(self, before: Physics, after: Physics, goals: Array) -> Array:
        return self.progress(before, after, goals)

    def fallen(self, now: Physics) -> Array:
        return ant_has_fallen(self.qpos(now))


class Humanoid(Walker):
    """Walking as a humanoid, after getting up. A fall does not end an episode, but lying for too long truncates it.

    Its observation does not say where it faces. In the frame of the body, velocities and direction are relative to
    that.
    """

    name = "humanoid"
    input_size = 69
    task = "humanoidmaze-large-navigate"
    goal_steps = 200
    reward_scale = 0.1
    ends_on_fall = False
    recovery_steps = 100
    steps_up = 100
    linger_steps = 25  # there the direction turns round with every step past the place, as in data collection
    vectors = HUMANOID_VECTORS
    reads_sensors = True

    def __init__(self, frame: Frame = "world") -> None:
        super().__init__()
        self.model, self.frame = self.with_sensors(), frame
        if frame == "body":
            self.vectors = ()  # turning the world changes nothing that the body sees

    def with_sensors(self) -> Any:
        """Returns the model with sensors for the limbs and the head, whose places observations contain."""
        specification = mujoco().MjSpec.from_file(type(self.simulator).xml_file)
        model, box = self.simulator.model, mujoco().mjtGeom.mjGEOM_BOX
        for wall in np.flatnonzero((model.geom_type == box) & (model.geom_bodyid == 0)):
            names = ("pos", "size", "contype", "conaffinity")
            shape = {name: getattr(model, f"geom_{name}")[wall] for name in names}
            specification.worldbody.add_geom(type=box, **shape)
        body, place = mujoco().mjtObj.mjOBJ_XBODY, mujoco().mjtSensor.mjSENS_FRAMEPOS
        for limb in LIMBS:
            specification.add_sensor(
                name=f"{limb}_from_torso", type=place, objtype=body, objname=limb, reftype=body, refname="torso"
            )
        specification.add_sensor(name="head_place", type=place, objtype=body, objname="head")
        return specification.compile()

    def mirror(self) -> tuple[Reflection, Reflection]:
        joints = [self.model.joint(k).name for k in range(1, self.model.njnt)]
        motors = [self.model.actuator(k).name for k in range(self.model.nu)]
        angles = joint_angles(joints, self.model.jnt_axis[1:])
        actions = Reflection(opposite_indices(motors), tuple(angles.signs[joints.index(name)] for name in motors))
        velocities = VECTOR, VECTOR, AXIAL, angles  # of the centre of mass, the torso (linear, angular) and the joints
        return concatenated(angles, SCALAR, positions(LIMBS), VECTOR, *velocities, HORIZONTAL), actions

    def start(self, seed: np.random.SeedSequence, open_field: bool = False) -> Start:
        start = super().start(seed, open_field)
        rng = np.random.default_rng([*seed.generate_state(4), LEANING_STREAM])
        if not open_field and rng.random() < LEANING_SHARE:
            qpos = start.state[1 : 1 + self.model.nq]  # a view
            self._lean(qpos, rng.random(), rng.uniform(0, 2 * np.pi))
        return start

    def _lean(self, qpos: Array, share: float, heading: float) -> None:
        """Moves a random pose towards standing straight, keeping a `share` of it, and puts the body on the floor.

        Poses between the two are those of crouching and stumbling: a way from lying to standing up.
        """
        standing = np.array([np.cos(heading / 2), 0, 0, np.sin(heading / 2)])
        standing *= np.sign(standing @ qpos[QUATERNION]) or 1.0  # of q and -q, the nearer one
        mixed = share * qpos[QUATERNION] + (1 - share) * standing
        qpos[QUATERNION] = mixed / np.linalg.norm(mixed)
        qpos[7:] *= share
        data = self.simulator.data
        data.qpos[:] = qpos
        mujoco().mj_kinematics(self.simulator.model, data)
        model = self.simulator.model
        own = model.geom_bodyid > 0  # not the floor or a wall: capsules and spheres
        along = np.where(model.geom_type == mujoco().mjtGeom.mjGEOM_CAPSULE, model.geom_size[:, 1], 0.0)
        low = data.geom_xpos[:, 2] - model.geom_size[:, 0] - along * np.abs(data.geom_xmat[:, 8])
        qpos[2] += FLOOR_GAP - low[own].min()

    def head_height(self, now: Physics) -> Array:
        """Returns the height of the head."""
        return now.sensors[:, -1]

    def torso_vertical(self, now: Physics) -> Array:
        """Returns the vertical components of the torso's three axes."""
        w, x, y, z = self.qpos(now)[:, QUATERNION].T
        return np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)

    def inputs(self, now: Physics, goals: Array) -> Array:
        parts = [
            self.qpos(now)[:, 7:],
            self.head_height(now)[:, None],
            now.sensors[:, -3 * (len(LIMBS) + 1) : -3],
            self.torso_vertical(now),
            now.sensors[:, :3],  # velocity of the centre of mass
            self.qvel(now),
            goals,
        ]
        inputs = np.concatenate(parts, -1)
        if self.frame == "body":
            return in_body_frame(inputs, self.qpos(now)[:, QUATERNION], HUMANOID_VECTORS)
        return inputs

    def rewards(self, before: Physics, after: Physics, goals: Array) -> Array:
        below = np.maximum(STAND_HEIGHT - self.head_height(after), 0) / (STAND_HEIGHT / 4)
        standing = 0.1 ** (below**2)  # a Gaussian whose value is 0.1 where the head is a quarter too low
        leaning = np.maximum(UPRIGHT - self.torso_vertical(after)[:, 2], 0) / (1 + UPRIGHT)
        upright = np.maximum(1 - leaning, 0)
        progress = np.minimum(self.progress(before, after, goals), MAX_PROGRESS)
        return standing * upright * (1 + PROGRESS_SCALE * progress)

    def fallen(self, now: Physics) -> Array:
        return humanoid_has_fallen(self.head_height(now))


class Dribble(Skill):
    """Dribbling a ball to a place as an ant, in an open field or in the arena. The goal is that place."""

    name = "dribble"
    input_size = 42
    episode_steps = STEPS_PER_BALL
    reward_scale = 0.1
    vectors = (18, 32, 38, 40)  # velocities of ant and ball, from ant to ball, from ball to goal
    quaternions = (1, 14)

    def __init__(self) -> None:
        super().__init__(make_environment(ogbench_task("antsoccer-arena-navigate")))
        maze = Maze.from_env(self.simulator)
        assert maze is not None
        self.cell, centres, half = maze.cells[0], maze.xy(maze.cells), maze.unit / 2
        self.low, self.high = centres.min(0) - half, centres.max(0) + half  # inside the walls of the arena

    def start(self, seed: np.random.SeedSequence, open_field: bool = False) -> Start:
        rng = np.random.default_rng(seed)
        cells = dict.fromkeys(("agent_init_ij", "ball_init_ij", "goal_ij"), self.cell)
        self.env.reset(seed, {"task_info": cells})
        state = self.state()
        if open_field or rng.random() >= self.maze_share:
            places = [OPEN_FIELD + rng.uniform(-r, r, 2) for r in (ANT_RANGE, BALL_RANGE, BALL_GOAL_RANGE)]
        else:
            places = self._places_in_arena(rng)
        ant, ball, goal = places
        x = 1 + self.model.nq - 7  # of the ball in a state
        state[1:3], state[x : x + 2] = ant, ball
        return Start(state, goal, NOWHERE)

    def _places_in_arena(self, rng: np.random.Generator) -> list[Array]:
        """Draws the first places of ant and ball, near each other, and the goal."""
        ball = rng.uniform(self.low + BALL_MARGIN, self.high - BALL_MARGIN)
        ant = np.clip(ball + rng.uniform(-BALL_RANGE, BALL_RANGE, 2), self.low + ANT_MARGIN, self.high - ANT_MARGIN)
        way = rng.uniform(self.low + BALL_MARGIN, self.high - BALL_MARGIN) - ball
        return [ant, ball, ball + way * min(1.0, MAX_BALL_DISTANCE / np.linalg.norm(way))]

    def ball(self, now: Physics) -> Array:
        """Returns the ball's xy."""
        return self.qpos(now)[:, -7:-5]

    def progress(self, before: Physics, after: Physics, goals: Array) -> Array:
        """Returns by how much the ball has come closer to the goal."""
        return distance(self.ball(before), goals) - distance(self.ball(after), goals)

    def inputs(self, now: Physics, goals: Array) -> Array:
        qpos, ball = self.qpos(now), self.ball(now)
        return np.concatenate([qpos[:, 2:-7], qpos[:, -5:], self.qvel(now), ball - self.xy(now), goals - ball], -1)

    def rewards(self, before: Physics, after: Physics, goals: Array) -> Array:
        approach = distance(self.xy(before), self.ball(before)) - distance(self.xy(after), self.ball(after))
        return (BALL_WEIGHT * self.progress(before, after, goals) + approach) * BALL_SCALE

    def fallen(self, now: Physics) -> Array:
        return ant_has_fallen(self.qpos(now))


SKILLS: dict[str, Callable[[], Skill]] = {"ant": Ant, "humanoid": Humanoid, "dribble": Dribble}


def make_skill(name: str, frame: Frame = "world", maze_share: float = MAZE_SHARE) -> Skill:
    """Returns the skill of a name, with inputs in a frame; an unknown name is an error that lists the known ones."""
    if check_skill(name) != "humanoid" and frame != "world":
        raise ConfigError(f"frame is {frame!r}, which is for the humanoid; {name} sees where it faces.")
    skill = Humanoid(frame) if name == "humanoid" else SKILLS[name]()
    skill.maze_share = maze_share
    return skill

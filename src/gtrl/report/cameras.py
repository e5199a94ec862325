"""Cameras for OGBench's environments, and the choice of OpenGL on machines without a display."""

import math
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gtrl.envs.isolation import ignore_warnings
from gtrl.envs.maze import Maze, maze_of
from gtrl.envs.simulator import require_simulator
from gtrl.errors import VideoError, WorkerError
from gtrl.report.frames import Picture
from gtrl.tasks import Task
from gtrl.workers import map_unordered

PICTURE_WIDTH = 440  # pixels
OVERVIEW_HEIGHT = 206  # pixels: of the map and of the goal, one above the other beside a close-up
CLOSE_UP_DISTANCES = {"antmaze": 7.0, "antsoccer": 7.0, "humanoidmaze": 6.0}  # metres from camera to agent, by family


# --- OpenGL without a display ---


def find_gl() -> str:
    """Returns a value of MUJOCO_GL that MuJoCo can render with: the user's, else EGL, else OSMesa.

    Each is tried in its own process, since a broken driver may crash it. Raises a VideoError if none works, and a
    MissingPackageError without MuJoCo.
    """
    require_simulator("a video")
    if chosen := os.environ.get("MUJOCO_GL"):
        if reason := _failure(chosen):
            raise VideoError(
                f"MUJOCO_GL is '{chosen}', which does not work on this machine ({reason}). "
                "If it is not set, EGL and OSMesa are tried."
            )
        return chosen
    reasons = []
    for name in _candidates():
        reason = _failure(name)
        if not reason:
            return name
        reasons.append(f"{name or 'the default'}: {reason}")
    raise VideoError(
        "a video needs OpenGL, with or without a display: install EGL (libegl1 on Debian and Ubuntu, plus "
        f"libgl1-mesa-dri without a GPU) or OSMesa (libosmesa6). Tried: {'; '.join(reasons)}."
    )


def _candidates() -> tuple[str, ...]:
    if sys.platform != "linux":
        return ("",)  # on other systems MuJoCo's default needs no display
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return ("egl", "osmesa", "glfw") if display else ("egl", "osmesa")


def _failure(gl: str) -> str:
    """Why MuJoCo cannot render with a value of MUJOCO_GL; empty if it can."""
    try:
        return dict(map_unordered(_render_test, [gl], workers=1))[0]
    except WorkerError:
        return "it crashed"


def _render_test(gl: str) -> str:
    """In a worker: renders a lit sphere, and returns why that failed, if it did."""
    use_gl(gl)
    sphere = "<mujoco><worldbody><light pos='0 0 3'/><geom type='sphere' size='.3'/></worldbody></mujoco>"
    try:
        with ignore_warnings():
            mujoco = _mujoco()
            model = mujoco.MjModel.from_xml_string(sphere)
            data = mujoco.MjData(model)
            mujoco.mj_forward(model, data)
            renderer = mujoco.Renderer(model, 32, 32)
        renderer.update_scene(data)
        return "" if renderer.render().any() else "pictures are black"
    except Exception as error:  # drivers and their bindings raise many types
        return (str(error) or type(error).__name__).strip().splitlines()[0]


def use_gl(gl: str) -> None:
    """Sets MUJOCO_GL for this process; an empty value leaves it unset. Call it before MuJoCo is imported."""
    if gl:
        os.environ["MUJOCO_GL"] = gl


def _mujoco() -> Any:
    import mujoco

    return mujoco


# --- cameras ---


class Camera:
    """Renders an environment from one point of view; each call returns pixels (height, width, 3)."""

    def __init__(self, env: Any, size: tuple[int, int], view: Callable[[], Any]) -> None:
        self.env, self.size, self.view = env, size, view
        self.renderer: Any = None  # made at the first call: manipulation environments have no model before a reset

    def __call__(self) -> np.ndarray:
        if self.renderer is None:
            self.renderer = self._make_renderer(self.env.model)
        self.renderer.update_scene(self.env.data, camera=self.view())
        return self.renderer.render()

    def _make_renderer(self, model: Any) -> Any:
        width, height = self.size
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        # MuJoCo's defaults, 4096 and 4, take three times as long without a GPU.
        model.vis.quality.shadowsize, model.vis.quality.offsamples = 1024, 0
        return _mujoco().Renderer(model, height, width)


class Views(NamedTuple):
    """The cameras of a video: the whole scene and, for agents that are small in it, a close-up."""

    scene: Callable[[], np.ndarray]
    close_up: Callable[[], np.ndarray] | None = None

    def columns(self, goal: np.ndarray) -> list[list[Picture]]:
        """Renders the current state, and arranges it with a picture of the goal in columns of a frame."""
        goal_picture = Picture("goal", goal)
        if self.close_up is None:
            return [[Picture("episode", self.scene())], [goal_picture]]
        return [[Picture("episode", self.close_up())], [Picture("episode, from above", self.scene()), goal_picture]]


def require_camera(task: Task) -> None:
    """Raises a VideoError if there is no camera for the task's environment; makes it unless the task is built in."""
    if not task.family and maze_of(task) is None:
        raise _no_camera(task)


def _no_camera(task: Task) -> VideoError:
    return VideoError(f"there is no video of {task.name}: only OGBench's environments have a camera.")


def make_views(env: Any, task: Task) -> Views:
    """Returns the views of an unwrapped environment. Raises a VideoError where there is no camera for it."""
    if task.family in ("cube", "scene", "puzzle"):
        return Views(Camera(env, (PICTURE_WIDTH, PICTURE_WIDTH), lambda: "front"))
    maze = Maze.from_env(env)
    if maze is None:
        raise _no_camera(task)
    rows, columns = maze.free.shape
    if task.family not in CLOSE_UP_DISTANCES:
        return Views(_from_above(env, maze, PICTURE_WIDTH / (columns - 1)))
    return Views(_from_above(env, maze, OVERVIEW_HEIGHT / (rows - 1)), _following(env, CLOSE_UP_DISTANCES[task.family]))


def _from_above(env: Any, maze: Maze, pixels: float) -> Camera:
    """A camera on the whole maze with half of its outer walls, `pixels` per cell; x to the right and y up."""
    cells = np.array(maze.free.shape[::-1]) - 1
    camera = _mujoco().MjvCamera()
    camera.lookat[:2] = maze.unit * cells / 2 - maze.offset
    camera.elevation, camera.azimuth = -90, 90
    camera.distance = maze.unit * cells[1] / 2 / math.tan(math.radians(env.model.vis.global_.fovy) / 2)
    width, height = (round(count * pixels) for count in cells)
    return Camera(env, (width, height), lambda: camera)


def _following(env: Any, distance: float) -> Camera:
    """A camera that follows the agent: steep enough to see it over walls, and with the map's orientation."""
    camera = _mujoco().MjvCamera()
    camera.elevation, camera.azimuth, camera.distance = -55, 90, distance

    def view() -> Any:
        camera.lookat[:] = env.data.qpos[:3]
        return camera

    return Camera(env, (PICTURE_WIDTH, PICTURE_WIDTH), view)

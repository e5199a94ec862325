"""Cameras for OGBench's environments, and OpenGL for machines without a screen."""

import math
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gtrl.envs.isolation import ignore_warnings
from gtrl.envs.maze import Maze
from gtrl.errors import VideoError, WorkerError
from gtrl.report.film import Picture
from gtrl.tasks import Task
from gtrl.workers import map_unordered

WIDTH = 440  # pixels of a picture
BESIDE_HEIGHT = 206  # pixels of each of two pictures beside a close-up
WALKERS = {"antmaze": 7.0, "antsoccer": 7.0, "humanoidmaze": 6.0}  # how far away the close-up's camera is


# --- OpenGL without a screen ---


def find_gl() -> str:
    """What MuJoCo can render with here (a value of MUJOCO_GL): what the user says, else EGL, else OSMesa.

    Each is tried in a process of its own, which a broken driver may take with it.
    """
    if said := os.environ.get("MUJOCO_GL"):
        if why := _why_not(said):
            raise VideoError(f"MUJOCO_GL is '{said}', which does not work here ({why}): without it, others are tried.")
        return said
    reasons = []
    for name in _candidates():
        why = _why_not(name)
        if not why:
            return name
        reasons.append(f"{name or 'the default'}: {why}")
    raise VideoError(
        "a film needs OpenGL, with or without a screen: install EGL (Debian and Ubuntu call it libegl1, and "
        f"libgl1-mesa-dri where there is no GPU) or OSMesa (libosmesa6). Tried were {'; '.join(reasons)}."
    )


def _candidates() -> tuple[str, ...]:
    if sys.platform != "linux":
        return ("",)  # elsewhere MuJoCo's own choice needs no screen
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return ("egl", "osmesa", "glfw") if screen else ("egl", "osmesa")


def _why_not(gl: str) -> str:
    """Why MuJoCo does not render with it; empty where it does."""
    try:
        return dict(map_unordered(_try, [gl], workers=1))[0]
    except WorkerError:
        return "it crashed"


def _try(gl: str) -> str:
    """In a worker: render a lit sphere."""
    use(gl)
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
    except Exception as error:  # drivers and their bindings raise all sorts of things
        return (str(error) or type(error).__name__).strip().splitlines()[0]


def use(gl: str) -> None:
    """Has an effect before MuJoCo is imported, and none afterwards."""
    if gl:
        os.environ["MUJOCO_GL"] = gl


def _mujoco() -> Any:
    import mujoco

    return mujoco


# --- cameras ---


class Camera:
    """Pictures (height, width, 3) of an environment from one point of view."""

    def __init__(self, env: Any, size: tuple[int, int], view: Callable[[], Any]) -> None:
        self.env, self.size, self.view = env, size, view
        self.renderer: Any = None  # not yet: manipulation environments make their model at the first reset

    def __call__(self) -> np.ndarray:
        if self.renderer is None:
            self.renderer = self._make_renderer(self.env.model)
        self.renderer.update_scene(self.env.data, camera=self.view())
        return self.renderer.render()

    def _make_renderer(self, model: Any) -> Any:
        width, height = self.size
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        # MuJoCo's own choice, 4096 and 4, takes three times as long where there is no GPU.
        model.vis.quality.shadowsize, model.vis.quality.offsamples = 1024, 0
        return _mujoco().Renderer(model, height, width)


class Views(NamedTuple):
    """What a film shows: the whole scene and, of walkers, which are small in it, a close-up."""

    scene: Callable[[], np.ndarray]
    close_up: Callable[[], np.ndarray] | None = None

    def columns(self, goal: np.ndarray) -> list[list[Picture]]:
        beside = Picture("goal", goal)
        if self.close_up is None:
            return [[Picture("episode", self.scene())], [beside]]
        return [[Picture("episode", self.close_up())], [Picture("episode, from above", self.scene()), beside]]


def make_views(env: Any, task: Task) -> Views:
    """The views of an unwrapped environment."""
    if task.family in ("cube", "scene", "puzzle"):
        return Views(Camera(env, (WIDTH, WIDTH), lambda: "front"))
    maze = Maze.from_env(env)
    if maze is None:
        raise VideoError(f"{task.name} cannot be filmed: only OGBench's environments have a camera here.")
    rows, columns = maze.free.shape
    if task.family not in WALKERS:
        return Views(_from_above(env, maze, WIDTH / (columns - 1)))
    return Views(_from_above(env, maze, BESIDE_HEIGHT / (rows - 1)), _following(env, WALKERS[task.family]))


def _from_above(env: Any, maze: Maze, pixels: float) -> Camera:
    """The whole maze with half of its outer walls, so many pixels for each cell; x to the right and y up."""
    cells = np.array(maze.free.shape[::-1]) - 1
    camera = _mujoco().MjvCamera()
    camera.lookat[:2] = maze.unit * cells / 2 - maze.offset
    camera.elevation, camera.azimuth = -90, 90
    camera.distance = maze.unit * cells[1] / 2 / math.tan(math.radians(env.model.vis.global_.fovy) / 2)
    width, height = (round(count * pixels) for count in cells)
    return Camera(env, (width, height), lambda: camera)


def _following(env: Any, distance: float) -> Camera:
    """Behind and above a walker. Steep enough to see it over walls, and turned as the view from above is."""
    camera = _mujoco().MjvCamera()
    camera.elevation, camera.azimuth, camera.distance = -55, 90, distance

    def view() -> Any:
        camera.lookat[:] = env.data.qpos[:3]
        return camera

    return Camera(env, (WIDTH, WIDTH), view)

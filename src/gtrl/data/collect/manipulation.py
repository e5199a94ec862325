"""Data for the manipulation tasks, by OGBench's *play* protocol: scripted oracles and one random target after another.

The oracles come with OGBench. They plan a whole movement, with noise that is correlated in time, when they are
given a target, and follow it closed-loop; this module only tells them when and for what.
"""

from itertools import count
from typing import Any

import numpy as np

from gtrl.data.collect.episode import Arrays, Recorder, child_seed
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment
from gtrl.envs.ogbench import OBJECT_QPOS_START
from gtrl.tasks import OGBenchTask

NOISE, NOISE_SMOOTHING = 0.1, 0.5
# How often a cube is put on top of another: a range from which each episode draws.
STACK = {"cube-single-play": (0.0, 0.0), "cube-double-play": (0.0, 0.25), "scene-play": (0.5, 0.5)}


class PlayCollector:
    """Collects episodes of one manipulation task."""

    def __init__(self, task: OGBenchTask) -> None:
        options = {"mode": "data_collection", "terminate_at_goal": False, "visualize_info": False}
        # Before the oracles: what they import fails where MUJOCO_GL names a backend that is missing.
        self.env = IsolatedEnv(make_environment(task, **options))

        from ogbench.manipspace.oracles.plan.button_plan import ButtonPlanOracle
        from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle
        from ogbench.manipspace.oracles.plan.drawer_plan import DrawerPlanOracle
        from ogbench.manipspace.oracles.plan.window_plan import WindowPlanOracle

        self.simulator: Any = self.env.env.unwrapped
        self.rows = task.trajectory_length + 1
        self.stack = STACK.get(task.name, (0.0, 0.0))
        self.scene = task.family == "scene"
        how: dict[str, Any] = {"env": self.simulator, "noise": NOISE, "noise_smoothing": NOISE_SMOOTHING}
        self.oracles: dict[str, Any] = {
            "cube": CubePlanOracle(**how),
            "button": ButtonPlanOracle(gripper_always_closed=task.family == "puzzle", **how),
            "drawer": DrawerPlanOracle(**how),
            "window": WindowPlanOracle(**how),
        }

    def episode(self, seed: np.random.SeedSequence) -> Arrays:
        """One healthy episode; the seed alone decides it. An unhealthy one is thrown away and redone."""
        attempts = (self.attempt(child_seed(seed, number)) for number in count())
        return next(arrays for arrays in attempts if arrays is not None)

    def attempt(self, seed: np.random.SeedSequence) -> Arrays | None:
        """One episode, or None as soon as it is seen to be unhealthy."""
        stack = float(np.random.default_rng(child_seed(seed, 0)).uniform(*self.stack))
        observation, info = self.env.reset(seed, {})
        record = Recorder()
        with self.env.own_random_state():
            oracle = self.begin(observation, info)
            for _ in range(self.rows):
                action = oracle.select_action(observation, info)
                following, _, _, _, info = self.simulator.step(action)
                record.add(observation, action, info)
                if self.scene and out_of_sight(info["prev_qpos"][OBJECT_QPOS_START : OBJECT_QPOS_START + 3]):
                    return None
                observation = following
                if oracle.done:
                    oracle = self.begin(*self.simulator.set_new_target(p_stack=stack))
        return record.arrays()

    def begin(self, observation: np.ndarray, info: dict[str, Any]) -> Any:
        """The oracle for the target that is set, with its plan made."""
        oracle = self.oracles[info["privileged/target_task"]]
        oracle.reset(observation, info)
        return oracle


def out_of_sight(cube: np.ndarray) -> bool:
    """Whether the scene's cube (its xyz) has left the visible area; behind y = -0.3 there is only the drawer."""
    return bool(cube[1] >= 0.29 or (cube[1] <= -0.3 and not 0.06 <= cube[2] <= 0.08))

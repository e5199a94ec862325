"""Data collection for manipulation tasks, by OGBench's *play* protocol: scripted oracles with random targets.

The oracles are part of OGBench. Given a target, an oracle plans a whole movement with temporally correlated noise and
then follows it closed-loop. This module selects the oracle and the target.
"""

from itertools import count
from typing import Any

import numpy as np

from gtrl.data.collect.episode import Arrays, Recorder, child_seed
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment
from gtrl.envs.ogbench import OBJECT_QPOS_START
from gtrl.tasks import OGBenchTask

NOISE, NOISE_SMOOTHING = 0.1, 0.5  # of the oracles' plans
# Range from which each episode draws the probability that a cube is stacked on another.
STACK_PROBABILITIES = {"cube-single-play": (0.0, 0.0), "cube-double-play": (0.0, 0.25), "scene-play": (0.5, 0.5)}


class PlayCollector:
    """Collects episodes of one manipulation task."""

    def __init__(self, task: OGBenchTask) -> None:
        options = {"mode": "data_collection", "terminate_at_goal": False, "visualize_info": False}
        # Before importing the oracles, whose import fails if MUJOCO_GL names a backend that is not installed.
        self.env = IsolatedEnv(make_environment(task, **options))

        from ogbench.manipspace.oracles.plan.button_plan import ButtonPlanOracle
        from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle
        from ogbench.manipspace.oracles.plan.drawer_plan import DrawerPlanOracle
        from ogbench.manipspace.oracles.plan.window_plan import WindowPlanOracle

        self.simulator: Any = self.env.env.unwrapped
        self.rows = task.trajectory_length + 1
        self.stack = STACK_PROBABILITIES.get(task.name, (0.0, 0.0))
        self.scene = task.family == "scene"
        oracle_options: dict[str, Any] = {"env": self.simulator, "noise": NOISE, "noise_smoothing": NOISE_SMOOTHING}
        self.oracles: dict[str, Any] = {
            "cube": CubePlanOracle(**oracle_options),
            "button": ButtonPlanOracle(gripper_always_closed=task.family == "puzzle", **oracle_options),
            "drawer": DrawerPlanOracle(**oracle_options),
            "window": WindowPlanOracle(**oracle_options),
        }

    def episode(self, seed: np.random.SeedSequence) -> Arrays:
        """Returns one valid episode, which depends only on the seed. Invalid attempts are discarded and repeated."""
        attempts = (self.attempt(child_seed(seed, number)) for number in count())
        return next(arrays for arrays in attempts if arrays is not None)

    def attempt(self, seed: np.random.SeedSequence) -> Arrays | None:
        """Returns one episode, or None as soon as it is invalid: the cube of a scene has left the visible area."""
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
        """Returns the oracle for the current target, after it has planned its movement."""
        oracle = self.oracles[info["privileged/target_task"]]
        oracle.reset(observation, info)
        return oracle


def out_of_sight(cube: np.ndarray) -> bool:
    """Returns whether the scene's cube (xyz) is not visible; beyond y = -0.3 it is visible only in the drawer."""
    return bool(cube[1] >= 0.29 or (cube[1] <= -0.3 and not 0.06 <= cube[2] <= 0.08))

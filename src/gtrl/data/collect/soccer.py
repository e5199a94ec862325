"""Data collection for ant soccer in the arena, by OGBench's protocol: one expert walks, another dribbles the ball."""

from collections import deque
from typing import Any

import numpy as np

from gtrl.data.collect.episode import Arrays, Recorder, child_seed
from gtrl.data.collect.expert import Experts, load_expert
from gtrl.data.collect.maze import EXPERT_NOISE, maze_of_env, random_cell, unit_vector
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment
from gtrl.tasks import OGBenchTask

REACHED_DISTANCE = 2.0  # within which the ant has reached the ball, and starts to dribble
DETOUR_DISTANCE = 0.5  # within which the ant has reached the place of a detour; this and the others: OGBench's script
MAX_GOAL_DISTANCE = 10.0  # from the ball to the goal in the dribbling expert's input; farther goals are moved closer
STUCK_STEPS = 150  # steps within REACHED_DISTANCE of the current position after which the ant counts as stuck


class SoccerCollector:
    """Collects episodes: *navigate* (walk to the ball, then dribble it to a series of goals) or *stitch* (either)."""

    def __init__(self, task: OGBenchTask, experts: Experts) -> None:
        self.env = IsolatedEnv(make_environment(task))
        self.simulator: Any = self.env.env.unwrapped
        self.maze = maze_of_env(self.simulator)
        self.stitch = task.has_stitch_data
        self.shape = (task.trajectory_length + 1, task.action_dim)
        self.walk_expert = load_expert(experts.walk, task, "walk")
        self.dribble_expert = load_expert(experts.dribble, task, "dribble")

    def episode(self, seed: np.random.SeedSequence) -> Arrays:
        """Returns one episode, which depends only on the seed."""
        rng = np.random.default_rng(child_seed(seed, 0))
        agent, ball, goal = (self.maze.cells[k] for k in rng.permutation(len(self.maze.cells))[:3])
        dribbling = bool(rng.integers(2))
        if self.stitch and dribbling:
            ball = agent
        cells = {"agent_init_ij": agent, "ball_init_ij": ball, "goal_ij": goal}
        observation, _ = self.env.reset(seed, {"task_info": cells})
        record = Recorder()
        detours = Detours(rng, self)
        with self.env.own_random_state():
            for noise in EXPERT_NOISE * rng.standard_normal(self.shape):
                if self.stitch:
                    goal_xy = np.asarray(self.simulator.cur_goal_xy)
                    action = self.dribble(observation) if dribbling else self.walk(observation, goal_xy)
                else:
                    action = self.fetch(observation, detours)
                action = np.clip(action + noise, -1, 1)
                following, _, _, _, info = self.simulator.step(action)
                record.add(observation, action, info, self.arrived(walking=self.stitch and not dribbling))
                observation = following
                if info["success"] and not self.stitch:
                    self.simulator.set_goal(goal_xy=self.simulator.add_noise(self.random_place(rng)))
        return record.arrays()

    def fetch(self, observation: np.ndarray, detours: "Detours") -> np.ndarray:
        """Returns the action that walks to the ball or, near it, dribbles; if stuck, walks to a random place first."""
        agent, ball = self.simulator.get_agent_ball_xy()
        detour = detours.at(agent)
        if detour is not None:
            return self.walk(observation, detour)
        return (
            self.walk(observation, ball)
            if np.linalg.norm(agent - ball) > REACHED_DISTANCE
            else self.dribble(observation)
        )

    def walk(self, observation: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Returns the action to walk straight to a place: the arena has no walls inside."""
        agent, _ = self.simulator.get_agent_ball_xy()
        return self.walk_expert(observation[2:15], observation[22:36], unit_vector(target - agent))

    def dribble(self, observation: np.ndarray) -> np.ndarray:
        """Returns the action to dribble the ball to the goal, or to a nearer place in its direction."""
        agent, ball = self.simulator.get_agent_ball_xy()
        away = np.asarray(self.simulator.cur_goal_xy) - ball
        away = away * min(1.0, MAX_GOAL_DISTANCE / (np.linalg.norm(away) + 1e-6))
        return self.dribble_expert(observation[2:15], observation[17:], ball - agent, away)

    def arrived(self, walking: bool) -> bool:
        """Returns whether the ball is at the goal, or for `walking` the agent."""
        agent, ball = self.simulator.get_agent_ball_xy()
        away = np.linalg.norm((agent if walking else ball) - self.simulator.cur_goal_xy)
        return bool(away <= self.simulator._goal_tol)

    def random_place(self, rng: np.random.Generator) -> np.ndarray:
        """Draws a free cell and returns its centre."""
        return self.maze.xy(random_cell(rng, self.maze.cells))


class Detours:
    """Chooses a random place to walk to when the agent is stuck."""

    def __init__(self, rng: np.random.Generator, collector: SoccerCollector) -> None:
        self.rng, self.collector = rng, collector
        self.trail: deque[np.ndarray] = deque(maxlen=STUCK_STEPS)
        self.place: np.ndarray | None = None

    def at(self, agent: np.ndarray) -> np.ndarray | None:
        """Records the agent's position and returns the place of the current detour, or None."""
        self.trail.append(agent)
        stuck = (
            len(self.trail) == STUCK_STEPS
            and np.linalg.norm(np.array(self.trail) - agent, axis=1).max() <= REACHED_DISTANCE
        )
        if self.place is not None and np.linalg.norm(agent - self.place) <= DETOUR_DISTANCE:
            self.place = None
            self.trail.clear()
        elif stuck:
            self.place = self.collector.random_place(self.rng)
            self.trail.clear()
        return self.place

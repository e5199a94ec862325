"""Data for ant soccer, by OGBench's protocol: one expert walks, another dribbles the ball.

What the protocol leaves open is a reconstruction: how near a detour's cell counts as reached (REACH), and that
the walk goes from cell to cell by breadth-first search as in the mazes.
"""

from collections import deque
from typing import Any

import numpy as np

from gtrl.data.collect.episode import Arrays, Recorder, child_seed
from gtrl.data.collect.expert import Experts, load_expert
from gtrl.data.collect.maze import EXPERT_NOISE, maze_of_env, random_cell, unit_vector
from gtrl.envs.isolation import IsolatedEnv
from gtrl.envs.make import make_environment
from gtrl.tasks import OGBenchTask

REACH = 2.0  # as near to the ball the walker becomes a dribbler
FARTHEST_GOAL = 10.0  # the dribbler is never told of a goal farther from the ball
PATIENCE = 150  # steps within a radius of REACH after which the ant walks somewhere else first


class SoccerCollector:
    """Collects episodes: *navigate* (fetch the ball, bring it to one goal after another) or *stitch* (one of both)."""

    def __init__(self, task: OGBenchTask, experts: Experts) -> None:
        self.env = IsolatedEnv(make_environment(task))
        self.simulator: Any = self.env.env.unwrapped
        self.maze = maze_of_env(self.simulator)
        self.stitch = task.name.endswith("stitch")
        self.shape = (task.trajectory_length + 1, task.action_dim)
        self.walk_expert = load_expert(experts.walk, task, "walk")
        self.dribble_expert = load_expert(experts.dribble, task, "dribble")

    def episode(self, seed: np.random.SeedSequence) -> Arrays:
        """One episode; the seed alone decides it."""
        choices = np.random.default_rng(child_seed(seed, 0))
        agent, ball, goal = (self.maze.cells[k] for k in choices.permutation(len(self.maze.cells))[:3])
        dribbling = bool(choices.integers(2))
        if self.stitch and dribbling:
            ball = agent
        cells = {"agent_init_ij": agent, "ball_init_ij": ball, "goal_ij": goal}
        observation, _ = self.env.reset(seed, {"task_info": cells})
        record = Recorder()
        detours = Detours(choices, self)
        with self.env.own_random_state():
            for noise in EXPERT_NOISE * choices.standard_normal(self.shape):
                if self.stitch:
                    goal_xy = np.asarray(self.simulator.cur_goal_xy)
                    action = self.dribble(observation) if dribbling else self.walk(observation, goal_xy)
                else:
                    action = self.fetch(observation, detours)
                action = np.clip(action + noise, -1, 1)
                following, _, _, _, info = self.simulator.step(action)
                record.add(observation, action, info)
                observation = following
                if info["success"] and not self.stitch:
                    self.simulator.set_goal(goal_xy=self.random_place(choices))
        return record.arrays()

    def fetch(self, observation: np.ndarray, detours: "Detours") -> np.ndarray:
        """Walk to the ball when it is far, else dribble it to the goal; when stuck, walk somewhere else first."""
        agent, ball = self.simulator.get_agent_ball_xy()
        detour = detours.at(agent)
        if detour is not None:
            return self.walk(observation, detour)
        return self.walk(observation, ball) if np.linalg.norm(agent - ball) > REACH else self.dribble(observation)

    def walk(self, observation: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Towards a place: from cell to cell, and straight within its cell."""
        agent, _ = self.simulator.get_agent_ball_xy()
        here, there = self.maze.cell_at(agent), self.maze.cell_at(target)
        next_place = target if here == there else self.maze.xy(self.maze.towards(there)[here])
        return self.walk_expert(observation[2:15], observation[22:36], unit_vector(next_place - agent))

    def dribble(self, observation: np.ndarray) -> np.ndarray:
        """The ball towards the goal, or towards a nearer place on the way to it."""
        agent, ball = self.simulator.get_agent_ball_xy()
        away = np.asarray(self.simulator.cur_goal_xy) - ball
        away = away * min(1.0, FARTHEST_GOAL / (np.linalg.norm(away) + 1e-6))
        return self.dribble_expert(observation[2:15], observation[17:], ball - agent, away)

    def random_place(self, choices: np.random.Generator) -> np.ndarray:
        return np.asarray(self.simulator.add_noise(self.maze.xy(random_cell(choices, self.maze.cells))))


class Detours:
    """Where to walk first: a random place, once the agent has stayed within REACH for PATIENCE steps."""

    def __init__(self, choices: np.random.Generator, collector: SoccerCollector) -> None:
        self.choices, self.collector = choices, collector
        self.trail: deque[np.ndarray] = deque(maxlen=PATIENCE)
        self.place: np.ndarray | None = None

    def at(self, agent: np.ndarray) -> np.ndarray | None:
        """The place to walk to now, if any."""
        self.trail.append(agent)
        stuck = len(self.trail) == PATIENCE and np.linalg.norm(np.array(self.trail) - agent, axis=1).max() <= REACH
        if self.place is not None and np.linalg.norm(agent - self.place) <= REACH:
            self.place = None
            self.trail.clear()
        elif stuck:
            self.place = self.collector.random_place(self.choices)
            self.trail.clear()
        return self.place

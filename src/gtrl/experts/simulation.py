"""Many copies of a simulator, stepped together by MuJoCo's own threads.

All randomness comes from a seed and from counters, and each copy is computed by itself. So results do not depend on
the number of threads, and the arrays of `Copies` are everything that a checkpoint must keep.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from gtrl.experts.skills import ARRIVED, NOWHERE, TIME, Physics, Skill, Start, Walker, distance, mujoco

Array = np.ndarray


class Copies(NamedTuple):
    """The copies of a simulator; each array has one row per copy."""

    states: Array  # MuJoCo's full physics state
    sensors: Array
    goals: Array
    places: Array  # the numbers of the places that walkers in a maze are sent to
    ages: Array  # steps since the start of the episode
    episodes: Array  # the number of the episode
    returns: Array  # sum of the episode's rewards so far

    @property
    def physics(self) -> Physics:
        """What observations are computed from."""
        return Physics(self.states, self.sensors)


class Step(NamedTuple):
    """What happened in one step of each copy, as an expert sees it.

    The goal of `following` is that of `inputs`: a goal that is redrawn after the step changes later inputs only.
    """

    inputs: Array
    actions: Array
    rewards: Array
    following: Array
    falls: Array  # whether the episode ended with a fall, after which nothing follows


class Episode(NamedTuple):
    """An episode that has ended."""

    length: int
    total: float  # sum of its rewards
    fell: bool


class Simulation:
    """Steps copies of the simulator of a skill."""

    def __init__(self, skill: Skill, threads: int, seed: int, measuring: bool = False) -> None:
        """With `measuring`, all copies are in the open field, goals are never redrawn, and falls end no episode."""
        self.skill, self.seed, self.measuring = skill, seed, measuring
        self.data = [mujoco().MjData(skill.model) for _ in range(max(threads, 1))]
        self.pool: Any = import_module("mujoco.rollout").Rollout(nthread=threads if threads > 1 else 0)

    def begin(self, count: int, spread: bool = True) -> Copies:
        """Returns copies at the start of their first episodes.

        With `spread` their first episodes end at different times, so that later ones do not all start together.
        """
        starts = [self._start(copy, 0) for copy in range(count)]
        states, goals, places = (np.array(column) for column in zip(*starts, strict=True))
        ages = np.arange(count) * self.skill.episode_steps // count if spread else np.zeros(count, int)
        zero = np.zeros(count, int)
        return Copies(states, self._sensors(states), goals, places, ages, zero, np.zeros(count))

    def inputs(self, copies: Copies) -> Array:
        """Returns the inputs of an expert."""
        return self.skill.inputs(copies.physics, copies.goals).astype(np.float32)

    def step(self, copies: Copies, actions: Array) -> tuple[Copies, Step, list[Episode]]:
        """Takes a step in each copy. Where an episode ends, the copy starts the next one."""
        skill = self.skill
        now, broken = self._advance(copies.physics, actions)
        rewards = np.where(broken, 0.0, skill.rewards(copies.physics, now, copies.goals))
        falls = (broken | (skill.fallen(now) & skill.ends_on_fall)) & (not self.measuring)
        following = skill.inputs(now, copies.goals)
        inputs, actions, rewards, following = (
            np.asarray(column, np.float32) for column in (self.inputs(copies), actions, rewards, following)
        )
        taken = Step(inputs, actions, rewards, following, falls)
        kept = (copies.goals.copy(), copies.places.copy())
        after = Copies(*now, *kept, copies.ages + 1, copies.episodes.copy(), copies.returns + rewards)
        episodes = self._renew(after, falls, self._lying(after))
        self._direct(after)
        return after, taken, episodes

    def _lying(self, copies: Copies) -> Array:
        """Returns which bodies have not got up in time."""
        steps = self.skill.recovery_steps
        if steps is None or self.measuring:
            return np.zeros(len(copies.ages), bool)
        return (copies.ages % steps == 0) & self.skill.fallen(copies.physics)

    def _renew(self, copies: Copies, falls: Array, lying: Array) -> list[Episode]:
        """Starts new episodes where one has ended; changes `copies`."""
        ended = np.flatnonzero(falls | lying | (copies.ages >= self.skill.episode_steps))
        whole = [k for k in ended if copies.episodes[k] > 0]  # a copy's first episode may be shorter
        episodes = [Episode(int(copies.ages[k]), float(copies.returns[k]), bool(falls[k])) for k in whole]
        for copy in ended:
            copies.episodes[copy] += 1
            start = self._start(copy, copies.episodes[copy])
            copies.states[copy], copies.goals[copy], copies.places[copy] = start
        if ended.size:
            copies.ages[ended], copies.returns[ended] = 0, 0.0
            copies.sensors[ended] = self._sensors(copies.states[ended])
        return episodes

    def _direct(self, copies: Copies) -> None:
        """Draws new goals where they are due, and turns walkers in a maze to the next cell; changes `copies`."""
        skill = self.skill
        if self.measuring:
            return
        if skill.goal_steps:
            for copy in np.flatnonzero((copies.ages % skill.goal_steps == 0) & (copies.places == NOWHERE)):
                if copies.ages[copy]:
                    copies.goals[copy] = skill.goal(self._generator(copies, copy))
        inside = np.flatnonzero(copies.places != NOWHERE)
        if inside.size and isinstance(skill, Walker):
            xy = skill.xy(copies.physics)[inside]
            for copy in inside[distance(xy, skill.places[copies.places[inside]]) < ARRIVED]:
                rng = self._generator(copies, copy)
                if skill.linger_steps == 1 or rng.random() < 1 / skill.linger_steps:
                    copies.places[copy] = rng.integers(len(skill.places))
            copies.goals[inside] = skill.directions(xy, copies.places[inside])

    def _start(self, copy: Any, episode: Any) -> Start:
        return self.skill.start(self._seed(copy, episode), open_field=self.measuring)

    def _generator(self, copies: Copies, copy: Any) -> np.random.Generator:
        """Returns the generator of a copy at its current step."""
        return np.random.default_rng(self._seed(copy, copies.episodes[copy], copies.ages[copy]))

    def _seed(self, *numbers: Any) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=tuple(int(number) for number in numbers))

    def _advance(self, before: Physics, actions: Array) -> tuple[Physics, Array]:
        """Returns the copies after a step, and where the simulation broke down; there they stay as they were.

        MuJoCo computes sensors at the start of a step, so those after the last substep need another one. Where numbers
        grow too large it starts again from its initial state, so that time is not what it should be.
        """
        skill = self.skill
        count = skill.substeps + skill.reads_sensors
        controls = np.repeat(np.asarray(actions, float)[:, None], count, axis=1)
        states, sensors = self.pool.rollout(skill.model, self.data, before.states, controls)
        now = Physics(states[:, skill.substeps - 1].copy(), sensors[:, -1].copy())
        seconds = skill.substeps * skill.model.opt.timestep
        late = np.abs(now.states[:, TIME] - before.states[:, TIME] - seconds) > seconds / 2
        broken = late | ~np.isfinite(now.states).all(1) | ~np.isfinite(now.sensors).all(1)
        for column, old in zip(now, before, strict=True):
            column[broken] = old[broken]
        return now, broken

    def _sensors(self, states: Array) -> Array:
        controls = np.zeros((len(states), 1, self.skill.model.nu))
        return self.pool.rollout(self.skill.model, self.data, states, controls)[1][:, 0].copy()

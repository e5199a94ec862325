"""Diagnoses a run: measures why it fails and writes `diagnostics.json` and, for mazes, `maps.npz`."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gtrl import console
from gtrl.data.dataset import Data, Spec
from gtrl.data.load import as_data, load_shard
from gtrl.envs.make import DEFAULT_EPISODE_LENGTH, make_environment
from gtrl.envs.maze import Maze
from gtrl.errors import DataError, GtrlError, RunError
from gtrl.evaluation.diagnostics import EPISODES
from gtrl.evaluation.diagnostics.distance import connected_cells, distance_section, orders_states, pair_distances
from gtrl.evaluation.diagnostics.luck import luck_gap_section, returns_section
from gtrl.evaluation.diagnostics.policy import policy_section
from gtrl.evaluation.diagnostics.sections import Section, qualified
from gtrl.evaluation.diagnostics.targets import hindsight_section, targets_section
from gtrl.evaluation.evaluate import check_arguments, find_policies, navigation_maze
from gtrl.evaluation.maps import recorded_paths, thinned_paths, to_goal, write_maps
from gtrl.evaluation.rollout import Outcome, roll_out
from gtrl.evaluation.trained import TrainedNets
from gtrl.evaluation.values import states_at
from gtrl.io.atomic import write_text
from gtrl.runs import checkpoints
from gtrl.runs.run import DIAGNOSTICS, Run, display_name
from gtrl.tasks import Task, find_task, recorded_own_task
from gtrl.training.resume import data_digest

_WITHOUT_DATA = "what needs the dataset is left out"
STATES_PER_EPISODE = 100  # about how many states of a full-length episode are compared with its return


def diagnose(
    what: str | Path | Run,
    *,
    step: int | None = None,
    data: str | Path | Data | None = None,
    episodes: int = EPISODES,
    workers: int | None = None,
    base_seed: int = 0,
    show: bool = True,
) -> dict[str, Any]:
    """Measures why a run fails; returns the content of `diagnostics.json`, which it writes to the run directory.

    For mazes whose goals are positions of the agent, `maps.npz` is written too. Sections that do not apply to the
    method, the task or the available data are left out.

    Args:
        what: A run or its directory.
        step: The step to diagnose; by default the last one with a checkpoint and policies.
        data: The dataset that the run was trained on, if it is no longer where `config.json` says. If it cannot be
            used, a `DataError` is raised before any episode.
        episodes: Episodes per goal and seed.
        workers: Number of worker processes; by default one per core. The results do not depend on it.
        base_seed: Determines the randomness of the episodes and which rows of the data are drawn.
        show: Whether to show a progress bar.
    """
    check_arguments(episodes, workers, base_seed)
    run = Run.open(what)
    _check_config(run)
    step = _chosen_step(run, step)
    diagnosis = Diagnosis(run, TrainedNets(run, step), episodes, workers, base_seed, show)
    diagnosis.find_task()
    diagnosis.find_data(data)
    sections = [section for section in diagnosis.sections() if section]
    content = {
        "step": step,
        "task": run.config["task"] or "",
        "method": run.config["algorithm"]["name"],
        "seeds": run.seeds,
        "sections": [section.to_json() for section in sections],
        "notes": diagnosis.notes,
    }
    diagnosis.write_maps()
    write_text(run.path / DIAGNOSTICS, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return content


def _check_config(run: Run) -> None:
    """Raises `RunError` if a part of `config.json` that the diagnostics read is of another type."""
    config, path = run.config, run.path / "config.json"
    kinds: dict[str, type | tuple[type, ...]] = {"algorithm": dict, "data": dict, "task": (str, type(None))}
    parts = [(name, config[name], kind) for name, kind in kinds.items()]
    if isinstance(config["algorithm"], dict):
        parts.append(("algorithm.name", config["algorithm"]["name"], str))
    if isinstance(config["data"], dict):
        parts += [(f"data.{name}", config["data"][name], int) for name in Spec._fields]
    for name, value, kind in parts:
        if not isinstance(value, kind):
            raise RunError(f"{path} is damaged: its '{name}' is {value!r:.60}.")


def _chosen_step(run: Run, step: int | None) -> int:
    """The step to diagnose, which needs a checkpoint for the critic and policies to roll out."""
    usable = sorted(set(run.written_steps()) & set(checkpoints.steps(run.checkpoints)))
    if not usable:
        raise RunError(f"{run.path} has no step with both a checkpoint and policies: train to a checkpoint first.")
    if step is not None and step not in usable:
        found = ", ".join(map(str, usable))
        raise RunError(f"{run.path} has no checkpoint and policies at step {step}; it has both at {found}.")
    return usable[-1] if step is None else step


@dataclasses.dataclass
class Diagnosis:
    """What the sections are computed from. Parts that cannot be had are None, and `notes` says why."""

    run: Run
    trained: TrainedNets
    episodes: int
    workers: int | None
    base_seed: int
    show: bool
    task: Task | None = None
    env: Any = None
    maze: Maze | None = None  # whose goals are positions of the agent
    data: Data | None = None
    orders_states: bool | None = None  # whether nearer states have larger values; None if it is unknown
    any_success: bool | None = None  # None without episodes
    notes: list[str] = dataclasses.field(default_factory=list)

    def _note(self, consequence: str, reason: object) -> None:
        self.notes.append(f"{consequence}: {str(reason).rstrip('.')}.")

    def find_task(self) -> None:
        """Finds the task, its environment and its maze."""
        name = self.run.config["task"]
        if name is None:
            self._note("the luck gap is left out", "the data has no task, so there is no environment")
            return
        try:
            self.task = recorded_own_task(self.run.config) or find_task(name)
            self.env = make_environment(self.task)
            maze = navigation_maze(self.task)
        except GtrlError as error:
            self._note("what needs the environment is left out", error)
        else:
            self.maze = maze if self.run.config["data"]["goal_dim"] == 2 else None

    def find_data(self, given: str | Path | Data | None) -> None:
        """Loads the dataset that the run was trained on: `given`, or the one that `config.json` names.

        Raises `DataError` if `given` is not that dataset; if it is the one of `config.json`, adds a note.
        """
        recorded = self.run.config["data"]
        try:
            source = _existing(recorded["source"]) if given is None else given
            data = as_data(source, self.task, scale=self.run.scaling or False, **recorded.get("selection", {}))
            _check_digest(data, recorded["digest"])
        except DataError as error:
            if given is not None:
                raise
            self._note(_WITHOUT_DATA, error)
            return
        if data.train.spec != Spec(
            *(recorded[name] for name in Spec._fields)
        ):  # the task that defines goals is unknown
            self._note(_WITHOUT_DATA, "the goals of the run cannot be computed without its task")
        else:
            self.data = data

    def sections(self) -> Iterator[Section | None]:
        """Yields the sections in their order; None for those that do not apply."""
        trained, seeds = self.trained, self.run.seeds
        if self.task and self.env is not None:
            yield self._luck_gap(self.task)
        if trained.has_value and self.maze:
            yield self._distance(self.maze)
        if self.data:
            yield self._qualified(policy_section(trained, seeds, self.data.train, self.base_seed))
        yield self._targets()
        if self.data and self.maze and len(self.maze.entrances):
            yield self._qualified(hindsight_section(trained, seeds, self.data.train, self.maze, self.base_seed))

    def _qualified(self, section: Section | None) -> Section | None:
        """The section of something that relies on the critic, by what is known about the critic so far."""
        return qualified(section, self.orders_states, self.any_success)

    def _targets(self) -> Section | None:
        try:
            return targets_section(self.run.metrics(), self.trained.step)
        except RunError as error:
            self._note("the section on targets is left out", error)
            return None

    def _luck_gap(self, task: Task) -> Section | None:
        """The value against the return; the return alone where there is no such value."""
        keep_every = max(1, (task.episode_length or DEFAULT_EPISODE_LENGTH) // STATES_PER_EPISODE)
        try:
            outcomes = self._roll_out(task, keep_every)
        except GtrlError as error:
            self._note("the luck gap is left out", error)
            return None
        self.any_success = any(outcome.success for episodes in outcomes for outcome in episodes)
        algorithm = self.trained.algorithm
        if self.trained.has_value and algorithm.value_is_return:
            return luck_gap_section(self.trained, outcomes, keep_every, self.maze)
        kind = "ranks states, but is not E[γ^T]" if self.trained.has_value else "does not exist"
        self._note("the luck gap is left out", f"the value of {algorithm.title} {kind}")
        return returns_section(outcomes, keep_every, self.maze, algorithm.gamma)

    def _roll_out(self, task: Task, keep_every: int) -> list[list[Outcome]]:
        """Runs the episodes of every seed."""
        policies = find_policies(self.run, self.trained.step, task)
        outcomes: list[list[Outcome]] = [[] for _ in policies.paths]
        total = len(outcomes) * self.episodes * len(task.goal_names)
        name = display_name(self.run.config["algorithm"]["name"])
        with console.bar(f"{name} episodes", total, "episodes", self.show) as bar:
            for index, outcome in roll_out(
                policies.paths, task, self.episodes, workers=self.workers, base_seed=self.base_seed,
                keep_every=keep_every, plugins=policies.plugins, bar=bar,
            ):  # fmt: skip
                outcomes[index].append(outcome)
        return outcomes

    def _distance(self, maze: Maze) -> Section:
        centres = maze.xy(maze.cells).astype(np.float32)
        states = states_at(self.env, centres)
        by_seed = [
            np.stack([self.trained.values(index, *to_goal(states, goal)) for goal in centres], 1)
            for index in range(len(self.run.seeds))
        ]
        values, algorithm = np.stack(by_seed), self.trained.algorithm
        self.orders_states = orders_states(values, pair_distances(maze))
        return distance_section(values, maze, self._connected(maze), algorithm.gamma, algorithm.value_is_return)

    def _connected(self, maze: Maze) -> np.ndarray | None:
        """Which pairs of cells the data connects, over all shards; None without data."""
        if self.data is None:
            return None
        shards: Sequence[Path] = self.data.shards
        scaling = self.data.scaling
        datasets = [self.data.train]
        if len(shards) > 1:
            datasets = (load_shard(shard, self.task, scaling, shards[0].name).train for shard in shards)
        connected = np.zeros((len(maze.cells),) * 2, bool)
        for dataset in datasets:
            observations, goals, ends = map(np.asarray, (dataset.observations, dataset.goals, dataset.ends))
            if scaling:
                observations, goals = scaling.raw_observation(observations), scaling.raw_goal(goals)
            connected |= connected_cells(maze, observations[:, :2], goals, ends)
        return connected

    def write_maps(self) -> None:
        """Writes `maps.npz`, if the task is a maze and the method has a value."""
        if not self.maze or not self.trained.has_value:
            return
        try:
            paths = recorded_paths(self.run, self.trained.step)
        except RunError as error:
            self._note("maps.npz has no paths", error)
            paths = thinned_paths(None)
        write_maps(self.run, self.trained, self.env, self.maze, paths)


def _existing(source: Any) -> str:
    """The dataset that `config.json` names; raises `DataError` if it is no longer there."""
    if isinstance(source, str) and Path(source).exists():
        return source
    problem = f"there is no {source}" if isinstance(source, str) else "config.json does not name it"
    raise DataError(f"{'it was in memory' if source == 'memory' else problem}; name the dataset with --data.")


def _check_digest(data: Data, digest: Any) -> None:
    if data_digest(data) != digest:
        raise DataError(f"{data.source} is not the dataset that the run was trained on.")

"""Evaluates a run or a policy file by the paper's protocol: N episodes for each goal of a task, mean action."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gtrl import console
from gtrl.envs.goals import check_environment, column_names
from gtrl.envs.maze import Maze, maze_of
from gtrl.envs.simulator import require_simulator_of
from gtrl.errors import ConfigError, GtrlError, RunError, UnknownNameError
from gtrl.evaluation.rollout import Outcome, roll_out
from gtrl.io.npz import write_npz
from gtrl.registry import load_plugins
from gtrl.runs.events import EventFile, success_rates
from gtrl.runs.policy import POLICIES, load_policy
from gtrl.runs.run import Run, checkpoint_path, display_name
from gtrl.tasks import (
    SCORED_STEPS,
    OwnTask,
    Task,
    changed_task,
    default_episodes,
    find_task,
    recorded_own_task,
)
from gtrl.tasks.own import Environment, GoalVectors

if TYPE_CHECKING:
    from gtrl.training.session import Callback

log = logging.getLogger(__name__)
BACKGROUND_NICENESS = 10  # added to the niceness of background workers, so that training has priority
EVENTS = "evaluation"  # the folder of TensorBoard event files in a run directory
RECORDED_EPISODES = 3  # per goal: the paths of these episodes are written to `rollouts.npz`
Row = dict[str, Any]
Steps = int | Sequence[int] | Literal["all"] | None  # one step, several, all that are saved, or the default ones


def evaluate(
    what: str | Path | Run,
    *,
    task: str | Task | None = None,
    make_env: Environment | None = None,
    goals: GoalVectors | None = None,
    episodes: int | None = None,
    step: Steps = None,
    workers: int | None = None,
    base_seed: int = 0,
    show: bool = True,
    maps: bool = True,
    callbacks: "Sequence[Callback]" = (),
) -> list[Row]:
    """Evaluates the policies of a run, or one policy file, and returns the rows of `eval.csv`.

    For a run, results are also written to its directory: `eval.csv` (the rows of a policy as soon as its episodes are
    finished), a TensorBoard event file and, for mazes, `rollouts.npz` and `values.npz`. Episode k of a goal has the
    same initial state and environment randomness for every policy.

    Args:
        what: A run, its directory, or a policy file (`.npz`).
        task: A task, its name, or `module:NAME`; by default the task that the policies were trained for.
        make_env: Instead of a task, an environment of your own: a function or class that makes it, a Gymnasium id, or
            `module:factory`. By default the one that the run records.
        goals: The goals to evaluate in this environment, one row per goal: an array, or a CSV, npy or npz file. By
            default the environment chooses a goal at each reset.
        episodes: Episodes per goal; by default 50, and in an environment of your own at least 100 over all goals.
        step: The step whose policies are evaluated, several of them, or "all" for every step with policies; by default
            the steps that count for the score (800K, 900K and 1M, if saved) and the last one.
        workers: Number of worker processes; by default one per core. The results do not depend on it.
        base_seed: Determines the initial states and the randomness of all episodes.
        show: Whether to show a progress bar.
        maps: Whether to write `values.npz`.
        callbacks: Their `on_evaluation` is called for each step, when all episodes are finished; no other method is, so
            they may not need `on_start`.
    """
    check_arguments(episodes, workers, base_seed)
    _check_callbacks(callbacks)
    policies = find_policies(what, step, task, make_env, goals)
    require_simulator_of(policies.task)
    episodes = episodes or default_episodes(policies.task)
    if isinstance(policies.task, OwnTask):
        log.info("evaluating in %s", describe_episodes(policies.task, episodes))
    rows = _evaluate(policies, episodes, workers, base_seed, show, maps)
    by_step = {step: [row for row in rows if row["step"] == step] for step in sorted({row["step"] for row in rows})}
    if policies.run:
        _write_events(policies.run, by_step)
    for callback in callbacks:
        for evaluated, step_rows in by_step.items():
            callback.on_evaluation(evaluated, step_rows)
    return rows


def _check_callbacks(callbacks: "Sequence[Callback]") -> None:
    for callback in callbacks:
        if "on_start" in vars(type(callback)):
            name = type(callback).__name__
            raise ConfigError(f"{name} cannot be a callback of an evaluation: its on_start needs a training session.")


def _write_events(run: Run, rows_by_step: dict[int, list[Row]]) -> None:
    """Writes success rates to a TensorBoard event file.

    It is in a folder of its own, because TensorBoard follows only the newest file of a folder, and the run may still be
    trained.
    """
    folder = run.path / EVENTS
    folder.mkdir(exist_ok=True)
    events = EventFile(folder)
    for step, rows in rows_by_step.items():
        events.write(step, success_rates(rows))
    events.close()


def evaluate_in_background(
    run: Run, task: Task, step: int, episodes: int, workers: int, cancelled: threading.Event
) -> list[Row]:
    """Like `evaluate`, but at low priority and without progress bar and value maps.

    Setting `cancelled` stops it with a `WorkerError`.
    """
    policies = find_policies(run, step, task)
    return _evaluate(
        policies, episodes, workers, 0, show=False, maps=False, nice=BACKGROUND_NICENESS, cancelled=cancelled
    )


def _evaluate(
    policies: "PolicySet",
    episodes: int,
    workers: int | None,
    base_seed: int,
    show: bool,
    maps: bool,
    nice: int = 0,
    cancelled: threading.Event | None = None,
) -> list[Row]:
    run, task, headers = policies.run, policies.task, policies.headers
    maze = navigation_maze(task) if run else None
    outcomes: list[list[Outcome]] = [[] for _ in headers]
    per_policy = episodes * len(task.goal_names)
    with console.bar(
        f"{display_name(_method(headers[0]))} evaluation", len(headers) * per_policy, "episodes", show
    ) as bar:
        rollouts = roll_out(
            policies.paths, task, episodes, workers=workers, base_seed=base_seed,
            record=RECORDED_EPISODES if maze else 0, plugins=policies.plugins, nice=nice, cancelled=cancelled, bar=bar,
        )  # fmt: skip
        for index, outcome in rollouts:
            outcomes[index].append(outcome)
            if run and len(outcomes[index]) == per_policy:
                rows = _rows(headers[index], task, base_seed, outcomes[index])
                run.add_evaluations(rows, replace=isinstance(task, OwnTask))
    if run and maze:
        last_step = headers[-1]["step"]
        by_seed = {
            header["seed"]: finished
            for header, finished in zip(headers, outcomes, strict=True)
            if header["step"] == last_step
        }
        _write_rollouts(run, last_step, by_seed)
        if maps:
            write_value_maps(run, task, last_step)
    return [
        row
        for header, finished in zip(headers, outcomes, strict=True)
        for row in _rows(header, task, base_seed, finished)
    ]


def describe_episodes(task: Task, episodes: int) -> str:
    """Returns the task and what is evaluated in it, in words."""
    if task.goals is None:
        return f"{task.name}: {episodes} episodes, each with a goal of the environment's own"
    count = len(task.goal_names)
    goals = "1 goal" if count == 1 else f"{count} goals"
    return f"{task.name}: {goals}, {'1 episode' if episodes == 1 else f'{episodes} episodes'} each"


def check_arguments(episodes: int | None, workers: int | None, base_seed: int) -> None:
    """Raises `ConfigError` unless these are valid arguments of `evaluate`."""
    if episodes is not None and episodes < 1:
        raise ConfigError(f"episodes is {episodes} and must be at least 1.")
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers} and must be at least 1.")
    if base_seed < 0:
        raise ConfigError(f"seed is {base_seed} and must not be negative.")


def navigation_maze(task: Task) -> Maze | None:
    """Returns the maze of a task whose goals are positions of the agent, so that paths can be drawn in it; else None.

    The task must use the maze's own goals.
    """
    if not isinstance(task.goals, int):
        return None  # known without making the environment
    maze = maze_of(task)
    return maze if maze and maze.mover == "agent" and task.goals == len(maze.goals) else None


def write_value_maps(run: Run, task: Task, step: int) -> None:
    """Writes `values.npz` for a maze task, if the run has the checkpoint of this step.

    Only warns if the checkpoint is damaged or the method is not installed: `eval.csv` is complete without the maps.
    """
    if not checkpoint_path(run.checkpoints, step).exists() or navigation_maze(task) is None:
        return
    from gtrl.evaluation.values import write_values

    try:
        write_values(run, task, step)
    except GtrlError as error:
        log.warning("eval.csv is complete, but values.npz is not written: %s", error)


class PolicySet(NamedTuple):
    """The policies to evaluate, and the task to evaluate them in."""

    run: Run | None  # None for a policy file
    paths: list[Path]
    headers: list[dict[str, Any]]  # one per policy file
    plugins: tuple[str, ...]  # modules that define the kinds of these policies
    task: Task


def find_policies(
    what: str | Path | Run,
    step: Steps,
    task: str | Task | None = None,
    env: Environment | None = None,
    goals: GoalVectors | None = None,
) -> PolicySet:
    """Finds the policies of a run or policy file, their plugins and their task: a given one, or that of the training.

    An environment and goals of the user's own take the place of a task.

    Raises:
        RunError: If the run, the step or the task does not exist.
        ConfigError: If the goals of the task, or an environment of the user's own, do not fit the policies.
    """
    run = None if isinstance(what, (str, Path)) and str(what).endswith(".npz") else Run.open(what)
    _load_plugins(run)
    paths = _policy_paths(run, step) if run else [Path(str(what))]
    headers = [load_policy(path).header for path in paths]
    plugins = {POLICIES.module_of(header["kind"]) for header in headers}  # workers need no other plugins
    if "__main__" in plugins:
        raise RunError(
            "this kind of policy is defined in a script; define it in a module, which worker processes can import."
        )
    task = _choose_task(run, headers[0], task, env, goals)
    if isinstance(task, OwnTask):
        task = task.with_goals_of(column_names(headers[0], "goal"))
    if isinstance(task.goals, tuple) and len(task.goals[0]) != headers[0]["goal_dim"]:
        found, expected = len(task.goals[0]), headers[0]["goal_dim"]
        raise ConfigError(f"the goals of {task.name} have {found} numbers, and the policy was trained on {expected}.")
    if isinstance(task, OwnTask):
        check_environment(task, headers[0])
    return PolicySet(run, paths, headers, tuple(filter(None, plugins)), task)


def _load_plugins(run: Run | None) -> None:
    """Imports the plugins of a run. Only warns if one is missing: rolling out a policy does not need its method."""
    for module in run.plugins if run else ():
        try:
            load_plugins([module])
        except ConfigError as error:
            log.warning("%s", error)


def _policy_paths(run: Run, step: Steps) -> list[Path]:
    written = run.policy_steps
    if step is None:
        steps = [each for each in written if each in SCORED_STEPS or each == written[-1]]
    elif step == "all":
        steps = written
    else:
        steps = sorted({step} if isinstance(step, int) else set(step))
    if not all(isinstance(each, int) for each in steps):
        raise ConfigError(f"step is {step!r} and must be a step, several of them, or 'all'.")
    missing = [str(each) for each in steps if each not in written]
    if missing or not steps:
        known = ", ".join(map(str, written))
        raise RunError(f"{run.path} has no policies at step {', '.join(missing) or '()'}; it has {known}.")
    return [run.policy_path(seed, each) for each in steps for seed in run.seeds]


def _choose_task(
    run: Run | None,
    header: dict[str, Any],
    task: str | Task | None,
    env: Environment | None,
    goals: GoalVectors | None,
) -> Task:
    """Returns the given task, or that of an own environment and goals, or the one of the training."""
    if task is not None and (env is not None or goals is not None):
        raise ConfigError("a task has an environment and goals of its own: give a task, or an environment and goals.")
    recorded = recorded_own_task(run.config) if run else None
    if env is not None or goals is not None:
        return changed_task(recorded, env, goals)
    if task is not None:
        return find_task(task) if isinstance(task, str) else task
    if recorded and recorded.environment is None:
        raise RunError(
            "the environment of this run cannot be made again: it was given as a function that cannot be imported by "
            f"its name, so config.json does not have it; {NAME_AN_ENVIRONMENT}."
        )
    return recorded or _task_of(header)


NAME_AN_ENVIRONMENT = "name one with --env my_package:MyEnv-v0 (in Python, make_env=...)"


def _task_of(header: dict[str, Any]) -> Task:
    if not header.get("task"):
        raise RunError(
            "this policy was trained on data without a task, so there is no environment to evaluate it in; "
            f"{NAME_AN_ENVIRONMENT}."
        )
    try:
        return find_task(header["task"])
    except UnknownNameError as error:
        raise RunError(
            f"this policy was trained for the task '{header['task']}', which is unknown here: name it with "
            "--task my_module:TASK (in Python, task=...), or name an environment with --env (make_env=...)."
        ) from error


def _method(header: dict[str, Any]) -> str:
    return header.get("algorithm") or "policy"


def _rows(header: dict[str, Any], task: Task, base_seed: int, outcomes: Sequence[Outcome]) -> list[Row]:
    """The rows of `eval.csv` for one policy: one per goal."""
    policy = {
        "algorithm": _method(header),
        "task": task.name,
        "seed": header.get("seed", 0),
        "step": header.get("step", 0),
    }
    rows = []
    for number, goal in enumerate(task.goal_names, start=1):
        successes = [outcome.success for outcome in outcomes if outcome.episode.goal == number]
        counts = {"episodes": len(successes), "successes": sum(successes)}
        rows.append({**policy, "goal": goal, **counts, "base_seed": base_seed})
    return rows


def _write_rollouts(run: Run, step: int, outcomes: dict[int, list[Outcome]]) -> None:
    """Writes the recorded paths of each seed to `rollouts.npz`.

    The paths are concatenated. The index has one row per path: seed, goal, episode, success, first row, rows.
    """
    recorded = [
        (seed, outcome, outcome.path)
        for seed, finished in outcomes.items()
        for outcome in sorted(finished, key=lambda outcome: (outcome.episode.goal, outcome.episode.number))
        if outcome.path is not None
    ]
    lengths = [len(path) for _, _, path in recorded]
    starts = np.cumsum([0, *lengths[:-1]])
    index = [
        (seed, outcome.episode.goal, outcome.episode.number, outcome.success, start, length)
        for (seed, outcome, _), start, length in zip(recorded, starts, lengths, strict=True)
    ]
    arrays = {
        "step": step,
        "positions": np.concatenate([path for _, _, path in recorded]),
        "index": np.array(index, np.int64),
        "goals": np.stack([outcome.goal for _, outcome, _ in recorded]).astype(np.float32),
    }
    write_npz(run.path / "rollouts.npz", arrays)


def success_rate(rows: Sequence[Row]) -> float:
    """Returns the percentage of successful episodes among all episodes of these rows."""
    return 100 * sum(row["successes"] for row in rows) / sum(row["episodes"] for row in rows)

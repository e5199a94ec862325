"""Evaluating a run or a policy file by the paper's protocol: N episodes for each of a task's goals, mean action."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gtrl import console
from gtrl.envs.maze import Maze, maze_of
from gtrl.errors import ConfigError, GtrlError, RunError, UnknownNameError
from gtrl.evaluation.rollout import Outcome, roll_out
from gtrl.io.npz import write_npz
from gtrl.registry import load_plugins
from gtrl.runs.policy import POLICIES, load_policy
from gtrl.runs.run import Run, checkpoint_path, shown
from gtrl.tasks import EPISODES_PER_GOAL, SCORED_STEPS, Task, find_task

log = logging.getLogger(__name__)
NICENESS = 10  # of worker processes in the background: the cores are training's first
RECORDED = 3  # episodes a goal whose paths go into `rollouts.npz`
Row = dict[str, Any]


def evaluate(
    what: str | Path | Run,
    *,
    task: str | Task | None = None,
    episodes: int = EPISODES_PER_GOAL,
    step: int | None = None,
    workers: int | None = None,
    base_seed: int = 0,
    show: bool = True,
    maps: bool = True,
) -> list[Row]:
    """Roll out the policies of a run (or one policy file) and return the rows of `eval.csv`.

    Of a run: the policies at `step`, or else at the steps that count for its score (800K, 900K, 1M where
    they are there, and the last). Its directory gets `eval.csv`, a policy's rows as soon as it has played, and, for
    mazes, `rollouts.npz` and (unless `maps` is off) `values.npz`. Episode k of a goal starts the same for every policy.
    `task` (a task, its name, or `module:NAME`) takes the place of the one the policies were trained for.
    """
    _check(episodes, workers, base_seed)
    return _evaluate(look_up(what, step, task), episodes, workers, base_seed, show, maps)


def evaluate_in_background(
    run: Run, task: Task, step: int, episodes: int, workers: int, cancelled: threading.Event
) -> list[Row]:
    """The same without anything to look at, in processes that leave the cores to others; `cancelled` ends it."""
    subject = look_up(run, step, task)
    return _evaluate(subject, episodes, workers, 0, show=False, maps=False, nice=NICENESS, cancelled=cancelled)


def _evaluate(
    subject: "Subject",
    episodes: int,
    workers: int | None,
    base_seed: int,
    show: bool,
    maps: bool,
    nice: int = 0,
    cancelled: threading.Event | None = None,
) -> list[Row]:
    run, task, headers = subject.run, subject.task, subject.headers
    maze = walked_maze(task) if run else None
    outcomes: list[list[Outcome]] = [[] for _ in headers]
    each = episodes * len(task.goal_names)
    with console.bar(f"{shown(_method(headers[0]))} evaluation", len(headers) * each, "episodes", show) as bar:
        rollouts = roll_out(
            subject.policies, task, episodes, workers=workers, base_seed=base_seed, record=RECORDED if maze else 0,
            plugins=subject.plugins, nice=nice, cancelled=cancelled, bar=bar,
        )  # fmt: skip
        for index, outcome in rollouts:
            outcomes[index].append(outcome)
            if run and len(outcomes[index]) == each:
                run.add_evaluations(_rows(headers[index], task, base_seed, outcomes[index]))
    if run and maze:
        last = headers[-1]["step"]
        played = {h["seed"]: o for h, o in zip(headers, outcomes, strict=True) if h["step"] == last}
        _write_rollouts(run, last, played)
        if maps:
            write_maps(run, task, last)
    return [row for each in zip(headers, outcomes, strict=True) for row in _rows(each[0], task, base_seed, each[1])]


def _check(episodes: int, workers: int | None, base_seed: int) -> None:
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes} and must be at least 1.")
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers} and must be at least 1.")
    if base_seed < 0:
        raise ConfigError(f"seed is {base_seed} and must not be negative.")


def walked_maze(task: Task) -> Maze | None:
    """The maze whose own goals, positions of the agent, are evaluated: paths and values can be drawn on its map."""
    maze = maze_of(task)
    return maze if maze and maze.mover == "agent" and task.goals == len(maze.goals) else None


def write_maps(run: Run, task: Task, step: int) -> None:
    """`values.npz`, for mazes.

    A run may have been copied without its checkpoints, one may be damaged, and its method may not be installed here:
    the evaluation itself is complete without them.
    """
    if not checkpoint_path(run.checkpoints, step).exists() or walked_maze(task) is None:
        return
    from gtrl.evaluation.values import write_values

    try:
        write_values(run, task, step)
    except GtrlError as error:
        log.warning("eval.csv is complete, but values.npz is not written: %s", error)


class Subject(NamedTuple):
    """What to evaluate: policies of a run (None for a policy file), the plugins of their kinds, and in which task."""

    run: Run | None
    policies: list[Path]
    headers: list[dict[str, Any]]
    plugins: tuple[str, ...]
    task: Task


def look_up(what: str | Path | Run, step: int | None, task: str | Task | None = None) -> Subject:
    """A run or policy file with all that evaluating it needs; an error says what is missing."""
    run = None if isinstance(what, (str, Path)) and str(what).endswith(".npz") else Run.open(what)
    _load_plugins(run)
    chosen = _policies(run, step) if run else [Path(str(what))]
    headers = [load_policy(path).header for path in chosen]
    plugins = {POLICIES.module_of(header["kind"]) for header in headers}  # all that workers need of them
    if isinstance(task, str):
        task = find_task(task)
    if "__main__" in plugins:
        raise RunError("the kind of this policy is defined in a script: worker processes need it in a module.")
    task = task or _task_of(headers[0])
    if isinstance(task.goals, tuple) and len(task.goals[0]) != headers[0]["goal_dim"]:
        found, expected = len(task.goals[0]), headers[0]["goal_dim"]
        raise ConfigError(f"the goals of {task.name} have {found} numbers, and the policy was trained on {expected}.")
    return Subject(run, chosen, headers, tuple(filter(None, plugins)), task)


def _load_plugins(run: Run | None) -> None:
    """Episodes do not need a method that is not installed here; without the task there is an error later."""
    for module in run.plugins if run else ():
        try:
            load_plugins([module])
        except ConfigError as error:
            log.warning("%s", error)


def _policies(run: Run, step: int | None) -> list[Path]:
    written = run.policy_steps
    if step is not None and step not in written:
        raise RunError(f"{run.path} has no policies at step {step}; it has {', '.join(map(str, written))}.")
    steps = [step] if step is not None else [s for s in written if s in SCORED_STEPS or s == written[-1]]
    return [run.policy_path(seed, step) for step in steps for seed in run.seeds]


def _task_of(header: dict[str, Any]) -> Task:
    if not header.get("task"):
        raise RunError("this policy was trained on data without a task, so there is no environment to evaluate it in.")
    try:
        return find_task(header["task"])
    except UnknownNameError as error:
        raise RunError(
            f"this policy was trained for the task '{header['task']}', which is not known here: name it with "
            "--task my_module:TASK (in Python, task=...)."
        ) from error


def _method(header: dict[str, Any]) -> str:
    return header.get("algorithm") or "policy"


def _rows(header: dict[str, Any], task: Task, base_seed: int, outcomes: Sequence[Outcome]) -> list[Row]:
    who = {"algorithm": _method(header), "task": task.name} | {name: header.get(name, 0) for name in ("seed", "step")}
    rows = []
    for number, goal in enumerate(task.goal_names, start=1):
        won = [outcome.success for outcome in outcomes if outcome.episode.goal == number]
        rows.append({**who, "goal": goal, "episodes": len(won), "successes": sum(won), "base_seed": base_seed})
    return rows


def _write_rollouts(run: Run, step: int, outcomes: dict[int, list[Outcome]]) -> None:
    """The recorded paths, end to end, with an index: seed, goal, episode, success, first row, rows; and the goals."""
    recorded = [
        (seed, outcome, outcome.path)
        for seed, played in outcomes.items()
        for outcome in sorted(played, key=lambda outcome: (outcome.episode.goal, outcome.episode.number))
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
        "goals": np.stack([outcome.goal for _, outcome, _ in recorded]),
    }
    write_npz(run.path / "rollouts.npz", arrays)


def success_rate(rows: Sequence[Row]) -> float:
    """In percent, over all episodes of these rows."""
    return 100 * sum(row["successes"] for row in rows) / sum(row["episodes"] for row in rows)

"""Evaluating a run or a policy file by the paper's protocol: five goals, N episodes each, mean action."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gtrl import console
from gtrl.errors import ConfigError, RunError
from gtrl.evaluation.rollout import Outcome, roll_out
from gtrl.io.npz import write_npz
from gtrl.runs.policy import load_policy
from gtrl.runs.run import Run, checkpoint_path, shown
from gtrl.tasks import EPISODES_PER_GOAL, GOALS_PER_TASK, SCORED_STEPS, Task, find_task

log = logging.getLogger(__name__)
RECORDED = 3  # episodes a goal whose paths go into `rollouts.npz`
Row = dict[str, Any]


def evaluate(
    what: str | Path | Run,
    *,
    episodes: int = EPISODES_PER_GOAL,
    step: int | None = None,
    workers: int | None = None,
    base_seed: int = 0,
    show: bool = True,
    maps: bool = True,
    nice: int = 0,
    cancelled: threading.Event | None = None,
) -> list[Row]:
    """Roll out the policies of a run (or one policy file) and return the rows of `eval.csv`.

    Of a run: the policies at `step`, or else at the steps that count for its score (800K, 900K, 1M where
    they are there, and the last). Its directory gets `eval.csv`, a policy's rows as soon as it has played, and, for
    mazes, `rollouts.npz` and (unless `maps` is off) `values.npz`. Episode k of a goal starts the same for every policy.
    For work in the background, `nice` is that of the processes and `cancelled` ends it.
    """
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes} and must be at least 1.")
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers} and must be at least 1.")
    if base_seed < 0:
        raise ConfigError(f"seed is {base_seed} and must not be negative.")
    run, chosen, headers, task = look_up(what, step)
    maze = "maze" in task.family
    outcomes: list[list[Outcome]] = [[] for _ in chosen]
    title = f"{shown(headers[0].get('algorithm', 'policy'))} evaluation"
    each = episodes * GOALS_PER_TASK
    with console.bar(title, len(chosen) * each, "episodes", show) as bar:
        record = RECORDED if run and maze else 0
        rollouts = roll_out(
            chosen, task, episodes, workers=workers, base_seed=base_seed, record=record, nice=nice,
            cancelled=cancelled, bar=bar,
        )  # fmt: skip
        for index, outcome in rollouts:
            outcomes[index].append(outcome)
            if run and len(outcomes[index]) == each:
                run.add_evaluations(_rows(headers[index], task, outcomes[index]))
    if run and maze:
        last = headers[-1]["step"]
        played = {h["seed"]: o for h, o in zip(headers, outcomes, strict=True) if h["step"] == last}
        _write_rollouts(run, last, played)
        if maps:
            write_maps(run, task, last)
    return [row for header, played in zip(headers, outcomes, strict=True) for row in _rows(header, task, played)]


def write_maps(run: Run, task: Task, step: int) -> None:
    """`values.npz`; a run may have been copied without its checkpoints, and one may be damaged."""
    if not checkpoint_path(run.checkpoints, step).exists():
        return
    from gtrl.evaluation.values import write_values

    try:
        write_values(run, task, step)
    except RunError as error:
        log.warning(f"eval.csv is complete, but values.npz is not written: {error}")


def look_up(what: str | Path | Run, step: int | None) -> tuple[Run | None, list[Path], list[dict[str, Any]], Task]:
    """The run (None for a policy file), its policies to evaluate, their headers and task; or why there are none."""
    run = None if isinstance(what, (str, Path)) and str(what).endswith(".npz") else Run.open(what)
    chosen = _policies(run, step) if run else [Path(str(what))]
    headers = [load_policy(path).header for path in chosen]
    return run, chosen, headers, _task_of(headers[0])


def _policies(run: Run, step: int | None) -> list[Path]:
    written = run.policy_steps
    if step is not None and step not in written:
        raise RunError(f"{run.path} has no policies at step {step}; it has {', '.join(map(str, written))}.")
    steps = [step] if step is not None else [s for s in written if s in SCORED_STEPS or s == written[-1]]
    return [run.policy_path(seed, step) for step in steps for seed in run.seeds]


def _task_of(header: dict[str, Any]) -> Task:
    if not header.get("task"):
        raise RunError("this policy was trained on data without a task, so there is no environment to evaluate it in.")
    return find_task(header["task"])


def _rows(header: dict[str, Any], task: Task, outcomes: Sequence[Outcome]) -> list[Row]:
    who = {"algorithm": header["algorithm"], "task": task.name, "seed": header["seed"], "step": header["step"]}
    rows = []
    for goal in range(1, GOALS_PER_TASK + 1):
        won = [outcome.success for outcome in outcomes if outcome.episode.goal == goal]
        rows.append({**who, "goal": f"task{goal}", "episodes": len(won), "successes": sum(won)})
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

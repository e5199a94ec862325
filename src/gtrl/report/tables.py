"""Tables of success rates, for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gtrl import console
from gtrl.evaluation.evaluate import Row, success_rate
from gtrl.report.formats import number
from gtrl.report.result_tables import Entry, Table
from gtrl.runs.run import display_name
from gtrl.tasks import SCORED_STEPS

MAX_GOAL_COLUMNS = 10  # with more goals, a table has their number and the worst ones
WORST_GOALS = 5  # how many of them


def summary(rows: Sequence[Row]) -> Any:
    """Returns a table of one run: one line per seed and step, success in percent for each goal and overall.

    If there are many goals, it has their number and the worst of them instead.
    """
    goals = list(dict.fromkeys(row["goal"] for row in rows))
    if len(goals) > MAX_GOAL_COLUMNS:
        return _summary_of_many_goals(rows, goals)
    lines = []
    for step, seed in sorted({(row["step"], row["seed"]) for row in rows}):
        by_goal = {row["goal"]: row for row in rows if (row["step"], row["seed"]) == (step, seed)}
        rates = [100 * by_goal[goal]["successes"] / by_goal[goal]["episodes"] for goal in goals]
        lines.append([seed, f"{step:,}", *(f"{rate:.0f}" for rate in rates), f"{np.mean(rates):.1f}"])
    first = rows[0]
    title = f"{display_name(first['algorithm'])} on {first['task']}: % success, {_episodes(first)} per goal"
    return console.table(title, ["seed", "step", *goals, "overall"], lines, text=0)


def _summary_of_many_goals(rows: Sequence[Row], goals: Sequence[str]) -> Any:
    """Returns the table of `summary` for many goals; its last line is over all seeds, if there are several."""
    last, seeds = max(row["step"] for row in rows), {row["seed"] for row in rows}
    groups = [
        (str(seed), step, [row for row in rows if (row["step"], row["seed"]) == (step, seed)])
        for step, seed in sorted({(row["step"], row["seed"]) for row in rows})
    ]
    if len(seeds) > 1:
        groups.append(("mean", last, [row for row in rows if row["step"] == last]))
    lines = [
        [name, f"{step:,}", len(goals), f"{success_rate(group):.1f}", _worst_goals(group, goals)]
        for name, step, group in groups
    ]
    first = rows[0]
    title = f"{display_name(first['algorithm'])} on {first['task']}: % success, {_episodes(first)} per goal"
    return console.table(title, ["seed", "step", "goals", "overall", "worst goals"], lines, text=0)


def _episodes(row: Row) -> str:
    return f"{row['episodes']} episode{'' if row['episodes'] == 1 else 's'}"


def _worst_goals(rows: Sequence[Row], goals: Sequence[str]) -> str:
    """Returns the goals that are reached least, with their success in percent; without those that always are."""
    rates = {goal: success_rate([row for row in rows if row["goal"] == goal]) for goal in goals}
    worst = sorted(
        (goal for goal in goals if rates[goal] < 100), key=lambda goal: rates[goal]
    )  # stable: in their order
    more = f", and {len(worst) - WORST_GOALS} more below 100" if len(worst) > WORST_GOALS else ""
    return ", ".join(f"{goal} {rates[goal]:.0f}" for goal in worst[:WORST_GOALS]) + more or "none below 100"


def comparison(task: str, evaluations: Mapping[str, Sequence[Row]]) -> Any:
    """Returns a table of several runs on one task: success in percent, with the standard deviation over seeds.

    A run's score is the mean over the evaluated steps of the protocol (800K, 900K, 1M), or else that of the last step.
    The keys of `evaluations` are the runs' names, which the table shows if a method occurs twice.
    """
    goals = list(dict.fromkeys(row["goal"] for rows in evaluations.values() for row in rows))
    count, shown = len(goals), goals if len(goals) <= MAX_GOAL_COLUMNS else []
    methods = [rows[0]["algorithm"] for rows in evaluations.values()]
    show_names = len(set(methods)) < len(methods)
    lines = []
    for name, all_rows in evaluations.items():
        rows = _scored(all_rows)
        seeds = sorted({row["seed"] for row in rows})
        scores = [success_rate([row for row in rows if row["seed"] == seed]) for seed in seeds]
        by_goal = [success_rate([row for row in rows if row["goal"] == goal]) for goal in shown]
        steps = ", ".join(f"{step:,}" for step in sorted({row["step"] for row in rows}))
        cells = [steps, len(seeds), *(f"{rate:.0f}" for rate in by_goal)]
        lines.append(
            [display_name(rows[0]["algorithm"]), *([name] if show_names else []), *cells, mean_and_deviation(scores)]
        )
    title = f"{task}: success in %, mean and standard deviation over seeds"
    if not shown:
        title += f", {count} goals"
    columns = ["method", *(["run"] if show_names else []), "step", "seeds", *shown, "overall"]
    return console.table(title, columns, lines, text=2 if show_names else 1)


def _scored(rows: Sequence[Row]) -> list[Row]:
    """The rows of the steps that count for the score."""
    steps = {row["step"] for row in rows}
    scored = steps & set(SCORED_STEPS) or {max(steps)}
    return [row for row in rows if row["step"] in scored]


def mean_and_deviation(scores: Sequence[float]) -> str:
    """Returns `mean ± standard deviation` over seeds (n - 1 in the denominator); for one seed, the mean alone."""
    mean = f"{np.mean(scores):.1f}"
    return f"{mean} ± {np.std(scores, ddof=1):.1f}" if len(scores) > 1 else mean


def for_terminal(table: Table) -> Any:
    """Returns a table of a report for the terminal."""
    rows = [
        [*row.labels, *(number(entry) if isinstance(entry, Entry) else entry for entry in row.entries)]
        for row in table.rows
    ]
    return console.table(table.title, [*table.labels, *table.columns], rows, text=len(table.labels))

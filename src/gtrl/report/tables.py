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


def summary(rows: Sequence[Row]) -> Any:
    """Returns a table of one run: one line per seed and step, success in percent for each goal and overall."""
    goals = list(dict.fromkeys(row["goal"] for row in rows))
    lines = []
    for step, seed in sorted({(row["step"], row["seed"]) for row in rows}):
        by_goal = {row["goal"]: row for row in rows if (row["step"], row["seed"]) == (step, seed)}
        rates = [100 * by_goal[goal]["successes"] / by_goal[goal]["episodes"] for goal in goals]
        lines.append([seed, f"{step:,}", *(f"{rate:.0f}" for rate in rates), f"{np.mean(rates):.1f}"])
    first = rows[0]
    title = f"{display_name(first['algorithm'])} on {first['task']}: % success, {first['episodes']} episodes per goal"
    return console.table(title, ["seed", "step", *goals, "overall"], lines, text=0)


def comparison(task: str, evaluations: Mapping[str, Sequence[Row]]) -> Any:
    """Returns a table of several runs on one task: success in percent, with the standard deviation over seeds.

    A run's score is the mean over the evaluated steps of the protocol (800K, 900K, 1M), or else that of the last step.
    The keys of `evaluations` are the runs' names, which the table shows if a method occurs twice.
    """
    goals = list(dict.fromkeys(row["goal"] for rows in evaluations.values() for row in rows))
    methods = [rows[0]["algorithm"] for rows in evaluations.values()]
    show_names = len(set(methods)) < len(methods)
    lines = []
    for name, all_rows in evaluations.items():
        rows = _scored(all_rows)
        seeds = sorted({row["seed"] for row in rows})
        scores = [success_rate([row for row in rows if row["seed"] == seed]) for seed in seeds]
        by_goal = [success_rate([row for row in rows if row["goal"] == goal]) for goal in goals]
        steps = ", ".join(f"{step:,}" for step in sorted({row["step"] for row in rows}))
        cells = [steps, len(seeds), *(f"{rate:.0f}" for rate in by_goal)]
        lines.append(
            [display_name(rows[0]["algorithm"]), *([name] if show_names else []), *cells, mean_and_deviation(scores)]
        )
    title = f"{task}: success in %, mean and standard deviation over seeds"
    columns = ["method", *(["run"] if show_names else []), "step", "seeds", *goals, "overall"]
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

"""Tables of evaluations."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gtrl import console
from gtrl.evaluation.evaluate import Row, success_rate
from gtrl.runs.run import shown


def summary(rows: Sequence[Row]) -> Any:
    """A table: one line a seed and step, success in percent for each goal and overall."""
    goals = list(dict.fromkeys(row["goal"] for row in rows))
    lines = []
    for step, seed in sorted({(row["step"], row["seed"]) for row in rows}):
        mine = {row["goal"]: row for row in rows if (row["step"], row["seed"]) == (step, seed)}
        rates = [100 * mine[goal]["successes"] / mine[goal]["episodes"] for goal in goals]
        lines.append([seed, f"{step:,}", *(f"{rate:.0f}" for rate in rates), f"{np.mean(rates):.1f}"])
    first = rows[0]
    title = f"{shown(first['algorithm'])} on {first['task']}: success in %, {first['episodes']} episodes a goal"
    return console.table(title, ["seed", "step", *goals, "overall"], lines, text=0)


def comparison(task: str, evaluations: Mapping[str, Sequence[Row]]) -> Any:
    """A table of several runs on one task, by name: success in percent, and how far a run's seeds lie apart.

    A run's score is the mean over the steps it was evaluated at, as the paper averages its last checkpoints. Runs are
    named where methods alone do not tell them apart.
    """
    goals = list(dict.fromkeys(row["goal"] for rows in evaluations.values() for row in rows))
    methods = [rows[0]["algorithm"] for rows in evaluations.values()]
    named = len(set(methods)) < len(methods)
    lines = []
    for name, rows in evaluations.items():
        seeds = sorted({row["seed"] for row in rows})
        scores = [success_rate([row for row in rows if row["seed"] == seed]) for seed in seeds]
        by_goal = [success_rate([row for row in rows if row["goal"] == goal]) for goal in goals]
        steps = ", ".join(f"{step:,}" for step in sorted({row["step"] for row in rows}))
        cells = [steps, len(seeds), *(f"{rate:.0f}" for rate in by_goal)]
        lines.append([shown(rows[0]["algorithm"]), *([name] if named else []), *cells, mean_and_deviation(scores)])
    title = f"{task}: success in %, mean and standard deviation over seeds"
    columns = ["method", *(["run"] if named else []), "step", "seeds", *goals, "overall"]
    return console.table(title, columns, lines, text=2 if named else 1)


def mean_and_deviation(scores: Sequence[float]) -> str:
    """`mean ± standard deviation` of seeds, with n - 1 in the denominator; the mean alone where there is one seed."""
    mean = f"{np.mean(scores):.1f}"
    return f"{mean} ± {np.std(scores, ddof=1):.1f}" if len(scores) > 1 else mean

"""The tables of a report: ours beside the paper's, by group of tasks, by goal, aggregated, and for ablations.

A table holds numbers; `gtrl.report.formats` writes it as Markdown, LaTeX or CSV.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gtrl.report.cells import Cell, Score, method_order, task_order
from gtrl.report.paper import METHODS_OF_GROUP, OVERALL, PaperScore, paper_score
from gtrl.report.statistics import Estimate, interquartile_mean, probability_of_improvement, propagated_deviation
from gtrl.runs.run import display_name
from gtrl.tasks import TASKS
from gtrl.tasks.ablations import ABLATIONS

PAPER, OURS = "paper", "ours"
PAPER_DIGITS, OWN_DIGITS = 0, 1  # decimals: the paper rounds to whole percentages, except for averages
GROUP_TITLES = {"teleport": "Teleport", "stitch": "Stitch", "deterministic": "Standard"}
OTHER_TASKS = "other-tasks"  # the name of the table of tasks that are not in the paper
TABLE_NAMES = (
    "teleport-and-stitch", "standard", "aggregates", "ablations", OTHER_TASKS, "goals-teleport", "goals-stitch",
    "goals-deterministic", "cells",
)  # fmt: skip
_ABLATION_NAMES = {ablation.name for ablation in ABLATIONS}


@dataclass(frozen=True)
class Entry:
    """A number of a table; `mean` is None where it is missing."""

    mean: float | None = None
    deviation: float | None = None
    digits: int = OWN_DIGITS
    note: str = ""  # what the number falls short of
    rank: int = 0  # 1 for the best of a row, 2 for the second best
    interval: tuple[float, float] | None = None

    @property
    def printed(self) -> float | None:
        """The number as it is printed: ranks follow what the reader sees."""
        return None if self.mean is None else float(f"{self.mean:.{self.digits}f}")


@dataclass(frozen=True)
class Row:
    """A row: words, then one entry per column."""

    labels: tuple[str, ...]
    entries: tuple[Entry | str, ...]
    is_average: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a title. `labels` are the titles of the word columns, `columns` those of the entries."""

    name: str  # of its files
    title: str
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    remarks: tuple[str, ...] = field(default=())


def rank(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Marks the best and the second best printed numbers of a row; equal ones share their rank.

    A row with fewer than two numbers has no ranks.
    """
    values = [entry.printed for entry in entries if entry.printed is not None]
    if len(values) < 2:
        return tuple(entries)
    places: dict[float | None, int] = dict(zip(sorted(set(values), reverse=True), (1, 2), strict=False))
    return tuple(replace(entry, rank=places.get(entry.printed, 0)) for entry in entries)


def _of_paper(score: PaperScore | None) -> Entry:
    return Entry(score.mean, score.deviation, PAPER_DIGITS) if score else Entry(digits=PAPER_DIGITS)


def _of_score(score: Score | None, note: str = "") -> Entry:
    return Entry(score.mean, score.deviation, note=note) if score else Entry()


def _of_cell(cell: Cell | None, goal: str | None = None) -> Entry:
    return _of_score(cell.score(goal), ", ".join(cell.shortfalls)) if cell else Entry()


def average(entries: Sequence[Entry]) -> Entry:
    """Returns the average over tasks with its propagated deviation; missing if an entry is missing."""
    means = [entry.mean for entry in entries if entry.mean is not None]
    if not means or len(means) < len(entries):
        return Entry()
    note = _joint_note([entry.note for entry in entries])
    return Entry(float(np.mean(means)), propagated_deviation([entry.deviation for entry in entries]), note=note)


def _joint_note(notes: Iterable[str]) -> str:
    """The note of a number that is computed from several cells."""
    return "from runs below the protocol" if any(notes) else ""


# --- success by task ---


class Columns:
    """The measured cells by task and name, and the columns that a group of tasks has in a table."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self.cells = sorted(cells, key=method_order)
        self.by_place = {(cell.task, cell.name): cell for cell in self.cells}

    def find(self, task: str, name: str) -> Cell | None:
        """Returns the cell of a method or variant on a task, if it was measured."""
        return self.by_place.get((task, name))

    def names(self, tasks: Iterable[str], methods: Sequence[str] = ()) -> list[str]:
        """Returns `methods`, then what else was measured on these tasks; ablations have a table of their own."""
        chosen = set(tasks)
        measured = [cell.name for cell in self.cells if cell.task in chosen and cell.name not in _ABLATION_NAMES]
        return list(dict.fromkeys([*methods, *measured]))

    def title(self, name: str) -> str:
        """Returns the title of a column."""
        return next((cell.title for cell in self.cells if cell.name == name), display_name(name))


def tasks_of(group: str) -> list[str]:
    """Returns the names of the paper's tasks in a group."""
    return [task.name for task in TASKS.values() if task.group == group]


def group_rows(columns: Columns, group: str, names: Sequence[str]) -> list[Row]:
    """Returns two rows per task, the paper's and ours, and two rows with the averages."""
    tasks = tasks_of(group)
    entries = {
        PAPER: [[_of_paper(paper_score(task, name)) for name in names] for task in tasks],
        OURS: [[_of_cell(columns.find(task, name)) for name in names] for task in tasks],
    }
    rows = [
        Row((task, GROUP_TITLES[group], source), rank(entries[source][index]))
        for index, task in enumerate(tasks)
        for source in (PAPER, OURS)
    ]
    for source in (PAPER, OURS):
        averages = rank([average(column) for column in zip(*entries[source], strict=True)])
        rows.append(Row(("average", GROUP_TITLES[group], source), averages, is_average=True))
    return rows


def success_table(cells: Iterable[Cell], groups: Sequence[str], name: str, title: str) -> Table:
    """Returns one of the paper's two tables of success rates, with our numbers below the paper's."""
    columns = Columns(cells)
    tasks = [task for group in groups for task in tasks_of(group)]
    names = columns.names(tasks, METHODS_OF_GROUP[groups[0]])
    rows = [row for group in groups for row in group_rows(columns, group, names)]
    return Table(name, title, ("task", "group", "source"), tuple(map(columns.title, names)), tuple(rows))


def other_tasks_table(cells: Iterable[Cell]) -> Table | None:
    """Returns the table of measured tasks that are not in the paper; None if there are none."""
    columns = Columns(cells)
    tasks = sorted({cell.task for cell in columns.cells if cell.task not in TASKS and cell.rates}, key=task_order)
    if not tasks:
        return None
    names = columns.names(tasks)
    rows = [Row((task or "own data",), rank([_of_cell(columns.find(task, name)) for name in names])) for task in tasks]
    title = "Tasks that are not in the paper: success in %"
    return Table(OTHER_TASKS, title, ("task",), tuple(map(columns.title, names)), tuple(rows))


def goals_table(cells: Iterable[Cell], group: str) -> Table:
    """Returns success by goal: the paper's (which it reports for the standard tasks) and ours."""
    columns = Columns(cells)
    names = columns.names(tasks_of(group), METHODS_OF_GROUP[group])
    rows = []
    for task in tasks_of(group):
        for goal in (*TASKS[task].goal_names, OVERALL):
            of_paper = [_of_paper(paper_score(task, name, goal)) for name in names]
            key = None if goal == OVERALL else goal
            ours = [_of_cell(columns.find(task, name), key) for name in names]
            for source, entries in ((PAPER, of_paper), (OURS, ours)):
                if any(entry.mean is not None for entry in entries):
                    rows.append(Row((task, goal, source), rank(entries), is_average=goal == OVERALL))
    title = f"{GROUP_TITLES[group]} tasks: success in % for each evaluation goal"
    labels = ("task", "goal", "source")
    return Table(f"goals-{group}", title, labels, tuple(map(columns.title, names)), tuple(rows))


# --- aggregates ---


def aggregate_table(cells: Iterable[Cell]) -> Table:
    """Returns averages by group: the paper's, ours, interquartile mean, and how likely GTRL beats each method."""
    columns = Columns(cells)
    rows = [
        row
        for group in GROUP_TITLES
        for name in columns.names(tasks_of(group), METHODS_OF_GROUP[group])
        if (row := _aggregate_row(columns, group, name))
    ]
    remarks = (
        "average: over all tasks of the group; its deviation is √(Σσ²)/n, as in the paper.",
        "IQM: mean of the middle half of all (task, seed) scores on the measured tasks, with a 95 % stratified "
        "bootstrap interval.",
        "GTRL better: probability that a seed of our GTRL beats a seed of our run of the method on the same task, over "
        "the tasks that both were measured on, with a 95 % interval.",
    )
    return Table(
        "aggregates",
        "Averages by group of tasks",
        ("group", "method", "tasks"),
        ("paper: average", "ours: average", "ours: IQM", "GTRL better"),
        tuple(rows),
        remarks,
    )


def _aggregate_row(columns: Columns, group: str, name: str) -> Row | None:
    tasks = tasks_of(group)
    measured = {task: scores for task in tasks if len(scores := _seed_scores(columns.find(task, name)))}
    notes = {task: _of_cell(columns.find(task, name)).note for task in measured}
    of_paper = average([_of_paper(paper_score(task, name)) for task in tasks])
    if of_paper.mean is None and not measured:
        return None
    ours = average([_of_cell(columns.find(task, name)) for task in tasks])
    middle, better = Entry(), Entry()
    if measured:
        middle = _of_estimate(interquartile_mean(list(measured.values())), measured.values(), notes.values())
    if name != "gtrl":
        rivals = {task: _seed_scores(columns.find(task, "gtrl")) for task in measured}
        common = [task for task, scores in rivals.items() if len(scores)]
        if common:
            of_gtrl, of_method = ([scores[task] for task in common] for scores in (rivals, measured))
            both = [_of_cell(columns.find(task, each)).note for task in common for each in (name, "gtrl")]
            estimate = probability_of_improvement(of_gtrl, of_method)
            better = _of_estimate(estimate, [*of_gtrl, *of_method], both, digits=2)
    labels = (GROUP_TITLES[group], columns.title(name), f"{len(measured)} of {len(tasks)}")
    return Row(labels, (replace(of_paper, digits=1), ours, middle, better))


def _of_estimate(
    estimate: Estimate, scores: Iterable[np.ndarray], notes: Iterable[str], digits: int = OWN_DIGITS
) -> Entry:
    """The entry of an estimate. It has no interval if a task has only one seed, which says nothing about the spread."""
    interval = (estimate.low, estimate.high) if all(len(each) > 1 for each in scores) else None
    return Entry(estimate.value, digits=digits, note=_joint_note(notes), interval=interval)


def _seed_scores(cell: Cell | None) -> np.ndarray:
    return np.array(list(cell.seed_scores().values()) if cell else [])


# --- ablations ---


def ablation_table(cells: Iterable[Cell]) -> Table | None:
    """Returns GTRL, each measured ablation and the drop, beside the drops that the paper states."""
    columns = Columns(cells)
    rows: list[Row] = []
    for ablation in ABLATIONS:
        drops: dict[str, Entry] = {}
        for cell in columns.cells:
            full = columns.find(cell.task, "gtrl")
            if cell.name != ablation.name or not full or not cell.rates or not full.rates:
                continue
            entries = (_of_cell(full), _of_cell(cell))
            drops[cell.task] = difference(*entries)
            stated = next((drop.points for drop in ablation.drops if drop.task == cell.task), None)
            labels = (ablation.component, ablation.title, cell.task)
            rows.append(Row(labels, (*entries, drops[cell.task], Entry(stated))))
        rows += _stated_rows(ablation, drops)
    if not any(isinstance(row.entries[0], Entry) and row.entries[0].mean is not None for row in rows):
        return None
    remarks = ("The paper states no numbers for target selection, hindsight weighting and goal sampling.",)
    columns_of = ("GTRL", "ablation", "drop", "paper: drop")
    return Table(
        "ablations",
        "Ablations of GTRL: success in %, and the drop in points",
        ("component", "ablation", "task"),
        columns_of,
        tuple(rows),
        remarks,
    )


def difference(full: Entry, ablated: Entry) -> Entry:
    """Returns the drop from one score to another, with the deviation of a difference of independent means."""
    if full.mean is None or ablated.mean is None:
        return Entry()
    deviation = None
    if full.deviation is not None and ablated.deviation is not None:
        deviation = float(np.hypot(full.deviation, ablated.deviation))
    return Entry(full.mean - ablated.mean, deviation, note=_joint_note([full.note, ablated.note]))


def _stated_rows(ablation: Any, drops: Mapping[str, Entry]) -> list[Row]:
    """The drops that the paper states for a kind of task or for tasks that were not measured here."""
    rows = []
    for drop in ablation.drops:
        if drop.task in drops:
            continue
        ours = Entry()
        if drop.where.startswith("largest"):
            stochastic = "stochastic" in drop.where
            kinds = [task for task in drops if task in TASKS and (TASKS[task].group == "teleport") == stochastic]
            ours = max((drops[task] for task in kinds), key=lambda entry: entry.mean or 0.0, default=Entry())
        labels = (ablation.component, ablation.title, drop.where)
        rows.append(Row(labels, (Entry(), Entry(), ours, Entry(drop.points))))
    return rows


# --- the protocol ---


def completeness_table(cells: Iterable[Cell]) -> Table:
    """Returns what was measured for each cell, and where it falls short of the paper's protocol."""
    rows = []
    for cell in sorted(cells, key=lambda cell: (task_order(cell.task), method_order(cell))):
        steps = ", ".join(f"{step:,}" for step in cell.scored_steps) or "none"
        details = (
            steps,
            str(len(cell.seeds)),
            str(cell.episodes or "–"),
            str(cell.config["training"].get("precision", "")),
            ", ".join(cell.shortfalls) or "complete",
        )
        rows.append(Row((cell.task or "own data", cell.title), (_of_score(cell.score()), *details)))
    columns = ("success", "scored steps", "seeds", "episodes per goal", "precision", "protocol")
    return Table("cells", "What was measured", ("task", "method"), columns, tuple(rows))


def all_tables(cells: Sequence[Cell]) -> list[Table]:
    """Returns all tables for which there is something to show."""
    tables: list[Table | None] = [
        success_table(cells, ("teleport", "stitch"), "teleport-and-stitch", "Teleport and stitch tasks: success in %"),
        success_table(cells, ("deterministic",), "standard", "Standard deterministic tasks: success in %"),
        aggregate_table(cells),
        ablation_table(cells),
        other_tasks_table(cells),
        *(goals_table(cells, group) for group in GROUP_TITLES),
        completeness_table(cells),
    ]
    return [table for table in tables if table and table.rows]

"""The data of a report's page, as JSON: tables, learning curves, success by goal, configs, metrics and diagnostics."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.errors import RunError
from gtrl.evaluation.diagnostics.sections import finite
from gtrl.report.cells import Cell
from gtrl.report.formats import MISSING, number
from gtrl.report.page_maps import map_data
from gtrl.report.paper import paper_score
from gtrl.report.result_tables import (
    GROUP_TITLES,
    OTHER_TASKS,
    OWN_DIGITS,
    PAPER_DIGITS,
    Entry,
    Row,
    Table,
    all_tables,
)
from gtrl.runs.run import DIAGNOSTICS
from gtrl.tasks import TASKS

OTHER_GROUP = "Other"  # of tasks that are not in the paper
MAX_INTEGER = 2**53  # steps and seeds must be below: a browser reads larger integers inexactly
METRIC_POINTS = 100  # per metric and seed; more are thinned
RESULT_COLUMNS = (
    "Task", "Method", "Ours", "Paper", "Difference", "Seeds", "Steps", "Episodes per goal", "Protocol", "Group",
)  # fmt: skip
TEXT_COLUMNS = {"Task", "Group", "Method", "Protocol"}
Json = dict[str, Any]


def page_data(cells: Sequence[Cell]) -> Json:
    """Returns everything that the page shows. Missing numbers are None; there are no NaNs."""
    tables = all_tables(cells)
    return {
        "complete": sum(cell.is_complete for cell in cells),
        "groups": _groups(cells),
        "results": _results_table(cells),
        "tables": [_table_data(table) for table in tables],
        "open_table": _open_table(cells, tables),
        "runs": [_run_data(cell) for cell in cells],
    }


def _groups(cells: Sequence[Cell]) -> list[Json]:
    """How much of each group of tasks was measured."""
    found = []
    for title in (*GROUP_TITLES.values(), OTHER_GROUP):
        members = [cell for cell in cells if _group_of(cell) == title]
        known = sum(GROUP_TITLES[task.group] == title for task in TASKS.values())
        counts = {"runs": len(members), "complete": sum(cell.is_complete for cell in members)}
        found.append({"title": title, "tasks": len({cell.task for cell in members}), "of": known or None, **counts})
    return found


# --- tables: columns, and rows of texts with the value by which each one is sorted ---


def _results_table(cells: Sequence[Cell]) -> Json:
    columns = [{"title": title, "numeric": title not in TEXT_COLUMNS} for title in RESULT_COLUMNS]
    return {"title": "Results", "columns": columns, "rows": [_result_row(cell) for cell in cells], "remarks": []}


def _result_row(cell: Cell) -> Json:
    ours, paper = cell.score(), paper_score(cell.task, cell.name)
    difference = ours.mean - paper.mean if ours and paper else None
    return {
        "cells": [
            _text(_task_title(cell)),
            _text(cell.title),
            _entry(Entry(ours.mean, ours.deviation, OWN_DIGITS) if ours else Entry()),
            _entry(Entry(paper.mean, paper.deviation, PAPER_DIGITS) if paper else Entry()),
            {"text": MISSING if difference is None else f"{difference:+.1f}".replace("-", "−"), "value": difference},
            _count(len(cell.seeds) or None),
            _count(max(cell.scored_steps, default=None)),
            _count(cell.episodes),
            _text("complete" if cell.is_complete else f"below: {', '.join(cell.shortfalls)}"),
            _text(_group_of(cell)),
        ]
    }


def _table_data(table: Table) -> Json:
    columns = [{"title": title, "numeric": False} for title in table.labels]
    columns += [{"title": title, "numeric": True} for title in table.columns]
    return {
        "title": table.title,
        "columns": columns,
        "rows": [_row_data(row) for row in table.rows],
        "remarks": list(table.remarks),
    }


def _open_table(cells: Sequence[Cell], tables: Sequence[Table]) -> int:
    """The position of the table that is open at first: the paper's, unless only other tasks were measured."""
    if any(cell.task in TASKS and cell.rates for cell in cells):
        return 0
    return next((place for place, table in enumerate(tables) if table.name == OTHER_TASKS), 0)


def _row_data(row: Row) -> Json:
    entries = [_entry(each) if isinstance(each, Entry) else _text(each) for each in row.entries]
    return {"cells": [*map(_text, row.labels), *entries], "average": row.is_average}


def _entry(entry: Entry) -> Json:
    found: Json = {"text": number(entry), "value": finite(entry.mean)}
    if entry.rank:
        found["rank"] = entry.rank
    if entry.note and entry.mean is not None:
        found["note"] = entry.note
    return found


def _text(text: str) -> Json:
    """A text; one that is a number, such as 1,000,000, is sorted as such."""
    value = float(text.replace(",", "")) if re.fullmatch(r"\d[\d,]*(\.\d+)?", text) else None
    return {"text": text, "value": value}


def _count(count: int | None) -> Json:
    return {"text": MISSING if count is None else f"{count:,}", "value": count}


# --- runs ---


def _task_title(cell: Cell) -> str:
    return cell.task or "own data"


def _group_of(cell: Cell) -> str:
    return GROUP_TITLES[TASKS[cell.task].group] if cell.task in TASKS else OTHER_GROUP


def _run_data(cell: Cell) -> Json:
    paper = paper_score(cell.task, cell.name)
    return {
        "task": _task_title(cell),
        "group": _group_of(cell),
        "method": cell.title,
        "path": str(cell.run.path),
        "protocol": ", ".join(cell.shortfalls) or "complete",
        "paper": paper.mean if paper else None,
        "curve": _curve(cell),
        "goals": [_goal_data(cell, goal) for goal in cell.goals],
        "config": json.dumps(cell.config, indent=2, ensure_ascii=False),
        "metrics": _metrics(cell),
        "diagnostics": _diagnostics(cell.run.path / DIAGNOSTICS),
        "map": map_data(cell),
    }


def _curve(cell: Cell) -> Json:
    points = cell.curve()
    steps = [step for step, _ in points]
    return {
        "steps": steps,
        "minutes": [None if finite(seconds) is None else seconds / 60 for seconds in _seconds_at(cell, steps)],
        "means": [score.mean for _, score in points],
        "deviations": [score.deviation for _, score in points],
    }


def _seconds_at(cell: Cell, steps: Sequence[int]) -> list[float]:
    try:
        return cell.seconds_at(steps)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunError(f"{cell.run.path / 'timing.jsonl'} is damaged ({error!r}); repair or remove it.") from error


def _goal_data(cell: Cell, goal: str) -> Json:
    score, paper = cell.score(goal), paper_score(cell.task, cell.name, goal)
    return {
        "name": goal,
        "mean": score.mean if score else None,
        "deviation": score.deviation if score else None,
        "paper": paper.mean if paper else None,
    }


def _metrics(cell: Cell) -> Json:
    """The curves of all metrics of `metrics.jsonl`, by name: for each seed its steps and values.

    Rows without a seed or a step are left out, and so are values that are not finite.
    """
    rows: dict[int, list[Json]] = defaultdict(list)
    for row in cell.run.metrics():
        if _is_count(row.get("seed")) and _is_count(row.get("step")):
            rows[row["seed"]].append(row)
    seeds = sorted(rows)
    chosen = [_thinned(rows[seed]) for seed in seeds]
    names = sorted({name for each in chosen for row in each for name in row} - {"seed", "step"})
    series = {name: [[_rounded(row.get(name)) for row in each] for each in chosen] for name in names}
    return {
        "seeds": seeds,
        "steps": [[row["step"] for row in each] for each in chosen],
        "series": {name: each for name, each in series.items() if any(map(_has_numbers, each))},
    }


def _thinned(rows: Sequence[Json]) -> list[Json]:
    """At most METRIC_POINTS rows, evenly spaced, with the first and the last one."""
    places = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), METRIC_POINTS)).round().astype(int))
    return [rows[place] for place in places]


def _rounded(value: Any) -> float | None:
    """A number with four significant digits, which is what a plot shows."""
    known = finite(value)
    return None if known is None else finite(float(f"{known:.4g}"))  # the largest floats are rounded to infinity


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_INTEGER


def _has_numbers(values: Iterable[Any]) -> bool:
    return any(value is not None for value in values)


# --- diagnostics ---


def _diagnostics(path: Path) -> Json | None:
    """The content of `diagnostics.json`, with its sections as tables; None without such a file."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {
            "step": _checked_step(content["step"]),
            "sections": [_section(section) for section in content["sections"]],
        }
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is damaged ({error!r}); write it again with gtrl diagnose.") from error


def _checked_step(step: Any) -> int:
    if not _is_count(step):
        raise ValueError(f"its step is {step!r:.40}")
    return step


def _section(section: Json) -> Json:
    texts = {key: section[key] for key in ("title", "explanation", "finding")}
    titles, lists = section["columns"], section["rows"]
    if not all(isinstance(text, str) for text in (*texts.values(), *titles)) or not isinstance(titles, list):
        raise ValueError("the title, explanation, finding or columns of a section are not text")
    if not all(isinstance(row, list) and len(row) == len(titles) for row in lists):
        raise ValueError("a row has not as many values as there are columns")
    rows = [[_measured(value) for value in row] for row in lists]
    columns = [
        {"title": title, "numeric": any(row[place]["value"] is not None for row in rows)}
        for place, title in enumerate(titles)
    ]
    return {
        **texts,
        "columns": columns,
        "rows": [{"cells": row} for row in rows],
        "remarks": [],
    }


def _measured(value: Any) -> Json:
    """A cell of a section: a text, or a number with four significant digits.

    Null and numbers that are not finite are missing.
    """
    if isinstance(value, (list, dict)):
        raise TypeError("a value of a row is a list or an object")
    if isinstance(value, str):
        return {"text": value, "value": None}
    if isinstance(value, bool):
        return {"text": "yes" if value else "no", "value": None}
    known = finite(value)
    if known is None:
        return {"text": MISSING, "value": None}
    is_whole = float(known).is_integer() and abs(known) < 1e15
    size = f"{abs(int(known)):,}" if is_whole else f"{abs(known):.4g}"
    return {"text": f"−{size}" if known < 0 else size, "value": known}

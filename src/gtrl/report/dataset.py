"""`gtrl data check`: compares a file with its task, in a table and, for mazes, in a picture."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.table import Table

from gtrl import console
from gtrl.data.checks import Arrays, Fact, Report, check, check_file, task_of
from gtrl.data.columns import ColumnFacts
from gtrl.data.coverage import coverage, exits_taken
from gtrl.data.movement import movement
from gtrl.data.origin import files_of, read_origin
from gtrl.data.reading import NO_SELECTION, Selection, read
from gtrl.data.task_goals import task_goals
from gtrl.envs.maze import Maze, maze_of
from gtrl.errors import DataError, MissingPackageError
from gtrl.io.npz import read_npz
from gtrl.tasks import EXTRA_TASKS, TASKS, OGBenchTask, Task

MAX_SHOWN_COLUMNS = 40
SCALED = "(value - centre) / scale: actions from their bounds to ±1, all else to about 0 ± 1, at most ±10"


def examine(
    source: str | Path,
    task: Task | None = None,
    picture: Path | None = None,
    draw: bool = True,
    selection: Selection = NO_SELECTION,
) -> Report:
    """Checks a dataset file against its task, or a log of one's own, which is read as `load_dataset` reads it.

    For mazes, draws the data to `picture`, by default next to the file. Raises a DataError if a picture is asked for
    and the data is not that of a maze.
    """
    path = Path(source).expanduser()
    if task is None and not selection and path.suffix == ".npz":
        task = task_of(path) or _collected_for(path)
    arrays, description, _ = read(source, selection, task)
    report = check(path, arrays, task, description)
    try:
        maze = maze_of(task) if task and not report.problems else None
    except MissingPackageError as error:
        if picture:
            raise
        return replace(report, facts=[*report.facts, Fact("coverage of the maze", f"not checked: {error}")])
    if picture and not maze:
        raise DataError(f"there is nothing to draw: {path} is not the data of a maze.")
    if not isinstance(task, OGBenchTask) or report.problems:
        return report
    facts = coverage(arrays, task, maze) + movement(arrays, task, _arrivals(path, len(arrays["terminals"])))
    problems = [f"{fact.what}: only {fact.found}" for fact in facts if not fact.agrees]
    exits = None
    if maze and len(maze.entrances):
        exits = exits_taken(arrays, maze)
        facts += [_exits_fact(*each) for each in zip(maze.entrances, exits, strict=True)]
    report = replace(report, facts=[*report.facts, *facts], problems=problems)
    if not (maze and draw):
        return report
    drawn = picture or path.with_suffix(".check.png")
    try:
        _draw(drawn, arrays, task, maze, exits)
    except OSError as error:
        if picture:
            raise  # it was asked for
        return replace(report, facts=[*report.facts, Fact("picture", f"could not be written: {error}")])
    return replace(report, picture=drawn)


def _collected_for(path: Path) -> Task | None:
    """The task named by the origin file next to a dataset, if there is one."""
    training = path.with_name(f"{path.stem.removesuffix('-val')}.npz")
    return (TASKS | EXTRA_TASKS).get(read_origin(training).get("task", ""))


def _arrivals(path: Path, rows: int) -> np.ndarray | None:
    """The array of a collected file that says where a goal was reached, if there is one that fits."""
    arrivals = read_npz(path, DataError, ("arrivals",)).get("arrivals") if path.suffix == ".npz" else None
    return arrivals if arrivals is not None and arrivals.shape == (rows,) and arrivals.dtype == bool else None


def examine_folder(shards: Sequence[Path], task: Task | None = None) -> tuple[Table, bool]:
    """Checks a dataset in several files: a table with one line per file, and whether any file has problems."""
    files = [file for shard in shards for file in files_of(shard)]
    reports = [check_file(file, task or _collected_for(file)) for file in files]
    shapes = {key: shape[1:] for key, shape in reports[0].shapes.items()}
    first = reports[0].task
    wrong = []
    for report in reports:
        mixed = report.task is not first or {key: shape[1:] for key, shape in report.shapes.items()} != shapes
        wrong.append(report.problems or (["its task or its dimensions differ from the first file's"] if mixed else []))
    rows = [
        [report.path.name, f"{report.episodes:,}", f"{report.transitions:,}", problems[0] if problems else ""]
        for report, problems in zip(reports, wrong, strict=True)
    ]
    for name, validation in (("all training files", False), ("all validation files", True)):
        chosen = [report for report in reports if report.path.stem.endswith("-val") == validation]
        counts = (sum(report.episodes for report in chosen), sum(report.transitions for report in chosen))
        rows.append([name, *(f"{count:,}" for count in counts), ""])
    title = f"{first.name if first else 'own data'} in {len(shards)} shards; 'gtrl data check FILE' shows more of each"
    return console.table(title, ["file", "episodes", "transitions", "problem"], rows), any(wrong)


def _exits_fact(entrance: np.ndarray, counts: np.ndarray) -> Fact:
    """How often each exit was taken from an entrance, with a test against equal probabilities."""
    from scipy.stats import chisquare

    found = " / ".join(f"{count:,}" for count in counts)
    chance = f"equally often (p = {chisquare(counts).pvalue:.2g})" if counts.sum() else "equally often"
    return Fact(f"exits from ({entrance[0]:g}, {entrance[1]:g})", found, chance)


def _draw(picture: Path, arrays: Arrays, task: Task, maze: Maze, exits: np.ndarray | None) -> None:
    from gtrl.report.figures import data_picture

    picture.parent.mkdir(parents=True, exist_ok=True)
    ends = np.flatnonzero(arrays["terminals"])
    data_picture(picture, task_goals(arrays, task), ends, maze, exits, f"{task.name}: positions of the {maze.mover}")


def print_report(report: Report) -> None:
    """Prints a report for the terminal."""
    print(f"file         {report.path}")
    print(f"task         {report.task.name if report.task else 'none: own data'}")
    print(f"episodes     {report.episodes:,}, of {report.lengths[0]:,} to {report.lengths[1]:,} transitions")
    print(f"transitions  {report.transitions:,}")
    for key, shape in report.shapes.items():
        bounds = report.ranges.get(key)
        shown = f"from {bounds[0].min():.4g} to {bounds[1].max():.4g}" if bounds else ""
        print(f"{key:<13}{'×'.join(map(str, shape)):<12} {shown}".rstrip())
    if report.facts:
        rows = [[fact.what, fact.found, fact.expected, "" if fact.agrees else "differs"] for fact in report.facts]
        console.print_table(console.table("", ["", "this file", "the task", ""], rows, text=4))
    if report.columns:
        _print_columns(report.columns)
        print(f"scaling      {SCALED if report.scaling else 'none'}")
    for note in report.notes:
        print(f"note         {note}")
    for warning in report.warnings:
        print(f"warning      {warning}")
    for problem in report.problems:
        print(f"problem      {problem}")
    if report.picture:
        print(f"picture      {report.picture}")
    print("this file has problems" if report.problems else "no problems found")


def _print_columns(columns: Sequence[ColumnFacts]) -> None:
    """Prints the range and scale of each column; of many columns, the first ones and those with a note."""
    shown = [fact for index, fact in enumerate(columns) if index < MAX_SHOWN_COLUMNS or fact.note]
    rows = [
        [
            fact.role,
            fact.name,
            *(f"{number:.6g}" for number in (fact.low, fact.high, fact.center, fact.scale)),
            fact.note,
        ]
        for fact in shown
    ]
    heads = ["", "column", "minimum", "maximum", "centre", "scale", "note"]
    console.print_table(console.table("", heads, rows, text=2))
    if len(shown) < len(columns):
        print(f"             {len(columns) - len(shown)} more columns without a note")

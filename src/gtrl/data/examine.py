"""`gtrl data check`: a file beside its task, in a table and, for mazes, in a picture."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from gtrl import console
from gtrl.data.check import Arrays, Fact, Report, check, oracle_goals, read_arrays, task_of
from gtrl.data.coverage import Maze, coverage, exits_taken, maze_of
from gtrl.errors import DataError
from gtrl.tasks import Task


def examine(path: Path, task: Task | None = None, picture: Path | None = None, draw: bool = True) -> Report:
    """All there is to say about a file; a maze's data is drawn to `picture`, by default beside the file."""
    arrays = read_arrays(path)
    task = task or task_of(path)
    report = check(path, arrays, task)
    maze = maze_of(task) if task and not report.problems else None
    if picture and not maze:
        raise DataError(f"there is nothing to draw: {path} is not the data of a maze.")
    if task is None or report.problems:
        return report
    facts = coverage(arrays, task, maze)
    problems = [f"{fact.what}: only {fact.found}" for fact in facts if not fact.agrees]
    exits = None
    if maze and len(maze.entrances):
        exits = exits_taken(arrays, maze)
        facts += [_exits_fact(*each) for each in zip(maze.entrances, exits, strict=True)]
    report = replace(report, facts=[*report.facts, *facts], problems=problems)
    if not (maze and draw):
        return report
    drawn = picture or path.with_suffix(".png")
    try:
        _draw(drawn, arrays, task, maze, exits)
    except OSError as error:
        if picture:
            raise
        return replace(report, facts=[*report.facts, Fact("picture", f"could not be written: {error}")])
    return replace(report, picture=drawn)


def _exits_fact(entrance: np.ndarray, counts: np.ndarray) -> Fact:
    from scipy.stats import chisquare

    told = " / ".join(f"{count:,}" for count in counts)
    chance = f"equally often (p = {chisquare(counts).pvalue:.2g})" if counts.sum() else "equally often"
    return Fact(f"exits from ({entrance[0]:g}, {entrance[1]:g})", told, chance)


def _draw(picture: Path, arrays: Arrays, task: Task, maze: Maze, exits: np.ndarray | None) -> None:
    from gtrl.report.figures import data_picture

    picture.parent.mkdir(parents=True, exist_ok=True)
    ends = np.flatnonzero(arrays["terminals"])
    whose = "the ball" if task.family == "antsoccer" else "the agent"
    data_picture(picture, oracle_goals(arrays, task), ends, maze, exits, f"{task.name}: where {whose} goes")


def print_report(report: Report) -> None:
    """What a person reads."""
    print(f"file         {report.path}")
    print(f"task         {report.task.name if report.task else 'none: own data'}")
    print(f"episodes     {report.episodes:,}, of {report.lengths[0]:,} to {report.lengths[1]:,} transitions")
    print(f"transitions  {report.transitions:,}")
    for key, shape in report.shapes.items():
        bounds = report.ranges.get(key)
        told = f"from {bounds[0].min():.4g} to {bounds[1].max():.4g}" if bounds else ""
        print(f"{key:<12} {'×'.join(map(str, shape)):<12} {told}".rstrip())
    if report.facts:
        rows = [[fact.what, fact.found, fact.expected, "" if fact.agrees else "differs"] for fact in report.facts]
        console.print_wide(console.table("", ["", "this file", "the task", ""], rows, text=4))
    for problem in report.problems:
        print(f"problem      {problem}")
    if report.picture:
        print(f"picture      {report.picture}")
    print("this file has problems" if report.problems else "nothing wrong")

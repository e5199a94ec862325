"""The figures of a report: averages by group, ablations, learning curves, success by goal, success against time.

Readable in grey: methods differ in lightness and hatch or marker, the paper's bars are outlines beside ours.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gtrl.report import style
from gtrl.report.cells import Cell, task_order
from gtrl.report.paper import METHODS_OF_GROUP, paper_score
from gtrl.report.result_tables import GROUP_TITLES, OURS, PAPER, Columns, Entry, group_rows
from gtrl.tasks.ablations import ABLATIONS

PANELS_PER_ROW = 3
PANEL_HEIGHT, WIDE_PANEL_HEIGHT = 2.3, 1.7  # inches
CROWDED = 3  # methods; with more of them, bars by goal need the whole width
# One colour, dash and marker per method or variant, in the order of appearance; colours differ in lightness too.
_COLOURS = (
    "#1b4f8a", "#d1603d", "#7d858c", "#22303c", "#2e7d5b", "#b8860b", "#7d4a9c", "#5f9bd1", "#8a2f1d", "#94b89e",
    "#c05a94", "#6b5b3e", "#e0a98a", "#3fa7a0",
)  # fmt: skip
_DASHES = ("-", "--", "-.", ":")
_MARKERS = "os^Dv<>Ph*XpdH"
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "ooo", "---")


def _order(cells: Sequence[Cell]) -> list[str]:
    """The titles of the methods, GTRL and TRL first: they have the same looks in every figure."""
    titles = dict.fromkeys(cell.title for cell in cells)
    return list(dict.fromkeys(["GTRL", "TRL", *titles]))


def _plain(text: str) -> str:
    """A text of a run as Matplotlib shows it as it is: without formulas."""
    return text.replace("$", r"\$")


def _look(names: Sequence[str], name: str) -> dict[str, Any]:
    place = names.index(name)
    return {
        "color": _COLOURS[place % len(_COLOURS)],
        "linestyle": _DASHES[(place + place // len(_COLOURS)) % len(_DASHES)],
        "marker": _MARKERS[place % len(_MARKERS)],
    }


def _shown(cells: Sequence[Cell]) -> list[Cell]:
    """The evaluated cells except ablations, which have a figure of their own."""
    ablations = {ablation.name for ablation in ABLATIONS}
    return [cell for cell in cells if cell.rates and cell.name not in ablations]


def _panels(count: int, legend_rows: int = 1, per_row: int = PANELS_PER_ROW) -> tuple[Figure, list[Any]]:
    """A figure with `count` panels, and room for a legend below them."""
    columns = min(per_row, count)
    rows = -(-count // columns)
    figure = style.new_figure(rows * (PANEL_HEIGHT if per_row > 1 else WIDE_PANEL_HEIGHT) + 0.3 + 0.2 * legend_rows)
    axes = list(np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).flat)
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


# --- averages by group ---


def groups_figure(cells: Sequence[Cell]) -> Figure:
    """Draws the average of each method in each group of tasks: the paper's, and ours where all tasks are measured.

    Error bars are the propagated deviations, √(Σσ²)/n.
    """
    columns = Columns(cells)
    figure = style.new_figure(7.2)
    for axis, group in zip(figure.subplots(len(GROUP_TITLES), 1), GROUP_TITLES, strict=True):
        names = columns.names((), METHODS_OF_GROUP[group])
        averages = {row.labels[-1]: row.entries for row in group_rows(columns, group, names) if row.is_average}
        places = np.arange(len(names))
        for source, shift in ((PAPER, -0.2), (OURS, 0.2)):
            entries = [entry for entry in averages[source] if isinstance(entry, Entry)]
            _draw_bars(axis, places + shift, entries, 0.38, **_SOURCE_LOOKS[source])
        for place, entry in zip(places, averages[OURS], strict=True):
            if isinstance(entry, Entry) and entry.mean is None:
                words = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": style.SMALL, "color": style.GREY}
                axis.text(place + 0.2, 2, "not measured", **words)
        axis.set_xticks(places, [_plain(columns.title(name)) for name in names])
        axis.set(title=f"{GROUP_TITLES[group]} tasks", ylabel="success in %", ylim=(0, 100))
    handles = [Patch(label=source, **_SOURCE_LOOKS[source]) for source in (PAPER, OURS)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


_SOURCE_LOOKS: dict[str, dict[str, Any]] = {
    PAPER: {"facecolor": "white", "edgecolor": style.INK, "hatch": "////"},
    OURS: {"facecolor": "#1b4f8a", "edgecolor": style.INK},
}


def _draw_bars(axis: Any, places: np.ndarray, entries: Sequence[Entry], width: float, **look: Any) -> None:
    """Bars with error bars; missing entries have none."""
    for place, entry in zip(places, entries, strict=True):
        if entry.mean is not None:
            axis.bar(
                place, entry.mean, width, yerr=entry.deviation, capsize=1.5, linewidth=0.6, **_error_look(), **look
            )


def _error_look() -> dict[str, Any]:
    return {"error_kw": {"elinewidth": 0.9, "ecolor": style.INK}}


# --- ablations ---


def ablations_figure(cells: Sequence[Cell]) -> Figure | None:
    """Draws GTRL beside its measured ablations, one panel per component; None if none was measured."""
    columns = Columns(cells)
    panels = {
        ablation.name: [cell for cell in columns.cells if cell.name == ablation.name and cell.rates]
        for ablation in ABLATIONS
    }
    panels = {
        name: [cell for cell in found if (full := columns.find(cell.task, "gtrl")) and full.rates]
        for name, found in panels.items()
    }
    panels = {name: found for name, found in panels.items() if found}
    if not panels:
        return None
    figure, axes = _panels(len(panels))
    titles = {ablation.name: f"{ablation.component}:\n{ablation.title}" for ablation in ABLATIONS}
    looks: tuple[dict[str, Any], ...] = (
        {"facecolor": "#1b4f8a", "edgecolor": style.INK},
        {"facecolor": "white", "edgecolor": style.INK, "hatch": "////"},
    )
    for axis, (name, found) in zip(axes, panels.items(), strict=True):
        found = sorted(found, key=lambda cell: task_order(cell.task))
        for shift, look, chosen in zip(
            (-0.2, 0.2), looks, ([columns.find(cell.task, "gtrl") for cell in found], found), strict=True
        ):
            scores = [cell.score() if cell else None for cell in chosen]
            entries = [Entry(score.mean, score.deviation) if score else Entry() for score in scores]
            _draw_bars(axis, np.arange(len(found)) + shift, entries, 0.38, **look)
        axis.set_xticks(
            range(len(found)), [_plain(cell.task.replace("-", "-\n")) for cell in found], fontsize=style.SMALL
        )
        axis.set(title=titles[name], ylim=(0, 100), ylabel="success in %")
    handles = [Patch(label=label, **look) for label, look in zip(("GTRL", "ablation"), looks, strict=True)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


# --- curves ---


def curves_figure(cells: Sequence[Cell]) -> Figure | None:
    """Draws success against gradient steps: mean and standard deviation over seeds, one panel per task."""
    return _by_task(cells, "gradient steps", lambda _, steps: list(map(float, steps)))


def time_figure(cells: Sequence[Cell]) -> Figure | None:
    """Draws success against the time of training, from `timing.jsonl`; None without any times."""
    minutes = lambda cell, steps: [seconds / 60 for seconds in cell.seconds_at(steps)]  # noqa: E731
    timed = [cell for cell in cells if np.isfinite(minutes(cell, cell.steps)).any()]
    return _by_task(timed, "minutes of training, all seeds together", minutes)


def _by_task(
    cells: Sequence[Cell], label: str, x_of: Callable[[Cell, Sequence[int]], Sequence[float]]
) -> Figure | None:
    cells = _shown(cells)
    if not cells:
        return None
    names = _order(cells)
    tasks = sorted({cell.task for cell in cells}, key=task_order)
    figure, axes = _panels(len(tasks), legend_rows=-(-len(names) // 6))
    handles: dict[str, Any] = {}
    for axis, task in zip(axes, tasks, strict=True):
        for cell in (cell for cell in cells if cell.task == task):
            look = _look(names, cell.title)
            points = cell.curve()
            xs = np.array(x_of(cell, [step for step, _ in points]))
            means = np.array([score.mean for _, score in points])
            spread = np.array([score.deviation or 0.0 for _, score in points])
            axis.fill_between(xs, means - spread, means + spread, color=look["color"], alpha=0.15, linewidth=0)
            (handles[_plain(cell.title)],) = axis.plot(xs, means, markersize=3.5, linewidth=1.3, **look)
            paper = paper_score(task, cell.method)
            if paper and not cell.is_variant:
                axis.axhline(paper.mean, color=look["color"], linewidth=0.8, linestyle=(0, (1, 2)))
        axis.set(title=_plain(task or "own data"), ylim=(-2, 102), xlabel=label, ylabel="success in %")
        axis.ticklabel_format(axis="x", style="sci", scilimits=(-3, 5))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(6, len(names)))
    return figure


# --- success by goal ---


def goals_figure(cells: Sequence[Cell]) -> Figure | None:
    """Draws the success of each method for each goal, one panel per task; short lines are the paper's numbers."""
    cells = _shown(cells)
    if not cells:
        return None
    names = _order(cells)
    tasks = sorted({cell.task for cell in cells}, key=task_order)
    most = max(sum(cell.task == task for cell in cells) for task in tasks)
    figure, axes = _panels(len(tasks), -(-len(names) // 6), 1 if most > CROWDED else PANELS_PER_ROW)
    handles: dict[str, Any] = {}
    for axis, task in zip(axes, tasks, strict=True):
        chosen = [cell for cell in cells if cell.task == task]
        width = 0.8 / len(chosen)
        for index, cell in enumerate(chosen):
            place = names.index(cell.title)
            look: dict[str, Any] = {
                "facecolor": _COLOURS[place % len(_COLOURS)],
                "hatch": _HATCHES[place % len(_HATCHES)],
                "edgecolor": "white",
            }
            places = np.arange(len(cell.goals)) - 0.4 + width * (index + 0.5)
            scores = [cell.score(goal) for goal in cell.goals]
            entries = [Entry(score.mean, score.deviation) if score else Entry() for score in scores]
            _draw_bars(axis, places, entries, width, **look)
            handles[cell.title] = Patch(label=_plain(cell.title), **look)
            for goal, x in zip(cell.goals, places, strict=True):
                if (paper := paper_score(task, cell.method, goal)) and not cell.is_variant:
                    axis.plot([x - width / 2, x + width / 2], [paper.mean] * 2, color=style.INK, linewidth=2)
        goals = chosen[0].goals
        axis.set_xticks(range(len(goals)), list(map(_plain, goals)))
        axis.set(title=_plain(task or "own data"), ylim=(0, 102), ylabel="success in %")
    figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=min(6, len(names)))
    return figure


def all_figures(cells: Sequence[Cell]) -> Iterable[tuple[str, str, Callable[[], Figure | None]]]:
    """Returns the name, the title and the drawing function of each figure."""
    return [
        ("groups", "Average by group of tasks; error bars are propagated from the deviations of the tasks",
         lambda: groups_figure(cells)),
        ("ablations", "GTRL and its ablations", lambda: ablations_figure(cells)),
        ("curves", "Learning curves: mean and standard deviation over seeds; dotted: the paper at 1M steps",
         lambda: curves_figure(cells)),
        ("goals", "Success by goal; horizontal lines: the paper", lambda: goals_figure(cells)),
        ("time", "Success against training time", lambda: time_figure(cells)),
    ]  # fmt: skip

"""`gtrl report`: writes the tables, figures and the page of a set of runs to a folder."""

import logging
from collections.abc import Sequence
from pathlib import Path

from gtrl.io.atomic import write_text
from gtrl.report import formats, style
from gtrl.report.cells import INDEX, Cell, find_cells
from gtrl.report.charts import all_figures
from gtrl.report.page import require_plotly, write_page
from gtrl.report.result_tables import TABLE_NAMES, Table, all_tables
from gtrl.report.results import check_results
from gtrl.report.value_maps import TITLE, value_maps_figures

log = logging.getLogger(__name__)
FIGURE_FORMATS = ("png", "pdf")
TABLE_FORMATS = {"md": formats.to_markdown, "tex": formats.to_latex, "csv": formats.to_csv}


def write_report(paths: Sequence[str | Path], out: Path, page: bool = True) -> list[Path]:
    """Writes a report of run directories, or of all runs below folders, and returns the files that were written.

    `report.md` has all tables and figures; `tables/` has each table as Markdown, LaTeX and CSV; `figures/` has PNG and
    PDF files; `index.html` is a page that opens from disk.
    """
    if page:
        require_plotly()
    cells = find_cells(paths)
    for path in map(Path, paths):
        if (path / INDEX).exists():
            for problem in check_results(path):
                log.warning("%s", problem)
    _remove_earlier_report(out)
    tables = all_tables(cells)
    written = _write_tables(tables, out / "tables")
    figures = _draw_figures(cells, out / "figures")
    write_text(out / "report.md", _summary(cells, tables, figures))
    written += [out / "figures" / f"{name}.{ending}" for name in figures for ending in FIGURE_FORMATS]
    written.append(out / "report.md")
    if page:
        write_page(out / "index.html", cells)
        written.append(out / "index.html")
    return written


def _remove_earlier_report(out: Path) -> None:
    """Removes the files of an earlier report, some of which this one may not have."""
    names = ["report.md", "index.html"]
    names += [f"tables/{name}.{ending}" for name in TABLE_NAMES for ending in TABLE_FORMATS]
    names += [f"figures/{name}.{ending}" for name, _, _ in all_figures(()) for ending in FIGURE_FORMATS]
    for path in [*(out / name for name in names), *(out / "figures").glob("values-*.p[nd][gf]")]:
        path.unlink(missing_ok=True)


def _write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        for ending, write in TABLE_FORMATS.items():
            path = folder / f"{table.name}.{ending}"
            write_text(path, write(table))
            written.append(path)
    return written


@style.applied()
def _draw_figures(cells: Sequence[Cell], folder: Path) -> dict[str, str]:
    """Draws all figures that there is data for; returns their titles by name."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {name: (title, figure) for name, title, draw in all_figures(cells) if (figure := draw()) is not None}
    drawn |= {f"values-{task}": (f"{task}. {TITLE}", figure) for task, figure in value_maps_figures(cells)}
    for name, (_, figure) in drawn.items():
        for ending in FIGURE_FORMATS:
            style.save(figure, folder / f"{name}.{ending}")
    return {name: title for name, (title, _) in drawn.items()}


def _summary(cells: Sequence[Cell], tables: Sequence[Table], figures: dict[str, str]) -> str:
    """The content of `report.md`."""
    complete = sum(cell.is_complete for cell in cells)
    parts = [
        "# Results",
        f"{len(cells)} runs, {complete} of them measured by the paper's full protocol (1M steps, four seeds, the last "
        "three checkpoints, 50 episodes for each goal). Success in %, mean ± standard deviation over seeds (n − 1). "
        "The best of a row is bold, the second best underlined; – means not measured. Letters mark numbers below the "
        "protocol.",
    ]
    parts += [formats.to_markdown(table) for table in tables]
    parts += [f"![{title}](figures/{name}.png)\n\n*{title}.*" for name, title in figures.items()]
    return "\n\n".join(parts) + "\n"

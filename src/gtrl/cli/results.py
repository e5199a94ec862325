"""`gtrl results add`, `gtrl results index` and `gtrl results check`: the folder of published results."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gtrl import console
from gtrl.cli.outputs import check_output_folder

Folder = Annotated[Positional[Path], arg(metavar="[DIR]")]


def add_command(
    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]")],
    *,
    results: Path = Path("results"),
    name: str | None = None,
    replace: bool = False,
) -> None:
    """Add the small files of evaluated runs to the results; runs of different seeds of one cell are joined.

    Args:
        runs: Run directories, or folders with run directories below them.
        results: The folder of the results.
        name: The name of the cell, such as gtrl-my-variant; by default the method's.
        replace: Replace a cell that exists, instead of joining other seeds with it.
    """
    from gtrl.errors import RunError
    from gtrl.report.results import add_results

    if not runs:
        raise RunError("nothing to add: name a run directory.")
    for path in add_results(runs, check_output_folder(results, "--results"), name, replace):
        console.echo(f"written: {path}")


def index_command(folder: Folder = Path("results")) -> None:
    """Write index.csv, the list of all cells with their scores, from the files of the cells.

    Args:
        folder: The folder of the results.
    """
    from gtrl.report.results import write_index

    console.echo(f"written: {write_index(folder)}")


def check_command(folder: Folder = Path("results")) -> int:
    """Check the results: every folder is a cell, the index is up to date. The exit status is 2 if there are problems.

    Args:
        folder: The folder of the results.
    """
    from gtrl.report.cells import find_cells
    from gtrl.report.result_tables import completeness_table
    from gtrl.report.results import check_results
    from gtrl.report.tables import for_terminal

    console.print_table(for_terminal(completeness_table(find_cells([folder]))))
    problems = check_results(folder)
    for problem in problems:
        console.warn(problem)
    return 2 if problems else 0

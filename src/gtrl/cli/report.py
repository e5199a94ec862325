"""`gtrl report`: tables, figures and a page of measured runs, beside the paper's numbers."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gtrl import console
from gtrl.cli.outputs import check_output_folder


def report_command(
    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="[RUN ...]")] = (Path("results"),),
    *,
    out: Path = Path("report"),
    page: bool = True,
) -> None:
    """Write tables, figures and a page of runs, with the paper's numbers beside them.

    Args:
        runs: Run directories, or folders with run directories below them; by default results/.
        out: The folder for the report.
        page: Also write index.html, a page that opens from disk (needs Plotly: pip install 'gtrl[report]').
    """
    from gtrl.report.report import write_report

    folder = check_output_folder(out)
    for path in write_report(runs or (Path("results"),), folder, page):
        console.echo(f"written: {path}")

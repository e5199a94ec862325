"""What a person sees: progress bars and tables, on stderr and stdout."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

Bar = Callable[[int], None]  # called with how many more are done
errors = Console(stderr=True)
output = Console()


def no_bar(done: int) -> None:
    """Progress that nobody watches."""


def progress_bar() -> Progress:
    """Bars with a percentage, a free text and the time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),  # all of it fits into 80 columns
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=errors,
    )


@contextmanager
def bar(description: str, total: int, unit: str, show: bool = True) -> Iterator[Bar]:
    """A progress bar with its rate."""
    if not show:
        yield no_bar
        return
    with progress_bar() as progress:
        task = progress.add_task(description, total=total, note="")

        def advance(done: int) -> None:
            progress.advance(task, done)
            speed = progress.tasks[0].speed
            progress.update(task, note=f"{speed:,.0f} {unit}/s" if speed else "")

        yield advance


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], text: int = 1) -> Table:
    """A table whose first `text` columns are words and the rest numbers."""
    result = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        result.add_column(column, justify="left" if index < text else "right", no_wrap=True)
    for row in rows:
        result.add_row(*map(str, row))
    return result

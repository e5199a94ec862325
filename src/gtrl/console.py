"""What a person sees: progress bars and tables, on stderr and stdout."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

errors = Console(stderr=True)
output = Console()


def progress_bar(show: bool = True) -> Progress:
    """Bars with a percentage, a free text and the time left; nothing at all unless shown."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),  # all of it fits into 80 columns
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=errors,
        disable=not show,
    )


class Bar:
    """Progress of one piece of work, with its rate; silent where nobody watches."""

    def __init__(self, progress: Progress, task: TaskID, unit: str) -> None:
        self.progress, self.task, self.unit = progress, task, unit

    def begin(self, done: float, total: float | None) -> None:
        """So much was done before, of so much in all."""
        self.progress.reset(self.task, total=total, note="")
        self.progress.update(self.task, completed=done)
        self.progress.start()

    def __call__(self, done: float, note: str = "") -> None:
        """So much more is done; a note takes the place of the rate."""
        self.progress.advance(self.task, done)
        speed = self.progress.tasks[0].speed
        self.progress.update(self.task, note=note or (f"{speed:,.0f} {self.unit}/s" if speed else ""))


@contextmanager
def bar(description: str, total: float | None, unit: str, show: bool = True, done: int = 0) -> Iterator[Bar]:
    """A progress bar; `done` of the total were done before. Without a total it is not seen until it `begin`s."""
    progress = progress_bar(show)
    task = progress.add_task(description, total=total, completed=done, note="")
    if total is not None:
        progress.start()
    try:
        yield Bar(progress, task, unit)
    finally:
        if progress.live.is_started:
            progress.stop()


def say(text: str) -> None:
    """A line as it is: paths are neither wrapped nor read as markup."""
    output.print(text, soft_wrap=True, highlight=False, markup=False)


def warn(text: str) -> None:
    """A line for whoever watches, above any progress bar."""
    errors.print(f"gtrl: {text}", soft_wrap=True, highlight=False, markup=False)


@contextmanager
def saying_how_to_go_on() -> Iterator[None]:
    """For work that nothing is lost of: Ctrl-C says so."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command goes on from here") from None


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], text: int = 1) -> Table:
    """A table whose first `text` columns are words and the rest numbers."""
    result = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        result.add_column(column, justify="left" if index < text else "right", no_wrap=True)
    for row in rows:
        result.add_row(*map(str, row))
    return result


def print_wide(table: Table) -> None:
    """A table in full: a narrow terminal wraps its lines rather than losing its columns."""
    Console(width=max(400, output.width)).print(table)

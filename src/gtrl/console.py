"""What a person sees: progress bars, tables and messages, on stderr and stdout."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

UNLIMITED_WIDTH = 100_000  # columns: no table is that wide


class _Console(Console):
    """A console that leaves a closed pipe to its caller; rich's own would exit the process with status 1."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich is handling


errors = _Console(stderr=True)
output = _Console()


# --- messages ---


def echo(text: str) -> None:
    """Print a line as it is: paths are neither wrapped nor read as markup."""
    output.print(text, soft_wrap=True, highlight=False, markup=False)


def warn(text: str) -> None:
    """Print a line on stderr, above any progress bar."""
    errors.print(f"gtrl: {text}", soft_wrap=True, highlight=False, markup=False)


class ConsoleHandler(logging.Handler):
    """Shows what the package logs: infos as plain lines on stdout, warnings and errors on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        show = warn if record.levelno >= logging.WARNING else echo
        show(self.format(record))


@contextmanager
def log_to_console() -> Iterator[None]:
    """Show what the package logs, from infos up, as the command line does."""
    logger, handler = logging.getLogger("gtrl"), ConsoleHandler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


@contextmanager
def resume_hint() -> Iterator[None]:
    """For work of which nothing is lost: an interruption says that the same command continues it."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command goes on from here") from None


# --- progress ---


def progress_bar(show: bool = True) -> Progress:
    """Bars with a percentage, a note and the time left; nothing at all unless shown."""
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
    """Progress of one piece of work, with its rate."""

    def __init__(self, progress: Progress, task: TaskID, unit: str) -> None:
        self.progress, self.task, self.unit = progress, task, unit

    def begin(self, done: float, total: float | None) -> None:
        """Start with `done` of `total` already complete."""
        self.progress.reset(self.task, total=total, note="")
        self.progress.update(self.task, completed=done)
        self.progress.start()

    def __call__(self, done: float, note: str = "") -> None:
        """Advance by `done`; a note takes the place of the rate."""
        self.progress.advance(self.task, done)
        speed = self.progress.tasks[0].speed
        self.progress.update(self.task, note=note or (f"{speed:,.0f} {self.unit}/s" if speed else ""))


@contextmanager
def bar(description: str, total: float | None, unit: str, show: bool = True, done: int = 0) -> Iterator[Bar]:
    """A progress bar, `done` of its total already complete. Without a total it is hidden until it `begin`s."""
    progress = progress_bar(show)
    task = progress.add_task(description, total=total, completed=done, note="")
    if total is not None:
        progress.start()
    try:
        yield Bar(progress, task, unit)
    finally:
        if progress.live.is_started:
            progress.stop()


# --- tables ---


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], text: int = 1) -> Table:
    """A table whose first `text` columns are words, which may wrap, and the rest numbers, which may not."""
    result = Table(title=escape(title), title_justify="left")
    for index, column in enumerate(columns):
        words = index < text
        result.add_column(column, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for row in rows:
        result.add_row(*(escape(str(cell)) for cell in row))
    return result


def print_table(table: Table) -> None:
    """Print a table without cutting anything.

    A file or a pipe gets every row on one line. A terminal (or the width in COLUMNS) that is too narrow gets its words
    wrapped and, where the numbers do not fit either, a list of records.
    """
    screen = _Console()
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen = _Console(width=UNLIMITED_WIDTH)
    needed = screen.measure(table, options=screen.options.update(width=UNLIMITED_WIDTH)).minimum
    if needed <= screen.width:
        screen.print(table)
    else:
        _print_records(screen, table)


def _print_records(screen: Console, table: Table) -> None:
    """One block of "column  value" lines for each row."""
    if table.title:
        screen.print(table.title)
    for row in zip(*(column.cells for column in table.columns), strict=True):
        record = Table.grid(padding=(0, 2))
        record.add_column(no_wrap=True)
        record.add_column(overflow="fold")
        for column, cell in zip(table.columns, row, strict=True):
            record.add_row(column.header, cell)
        screen.print()
        screen.print(record)

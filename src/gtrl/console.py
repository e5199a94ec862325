"""Terminal output: messages, progress bars and tables."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

UNLIMITED_WIDTH = 100_000  # columns; wider than any table


class _Console(Console):
    """A console that raises `BrokenPipeError` when a pipe is closed; rich's exits the process with status 1."""

    def on_broken_pipe(self) -> None:
        raise  # re-raises the BrokenPipeError that rich is handling


errors = _Console(stderr=True)
output = _Console()


# --- messages ---


def echo(text: str) -> None:
    """Prints a line on stdout, without wrapping it or interpreting markup in it."""
    output.print(text, soft_wrap=True, highlight=False, markup=False)


def warn(text: str) -> None:
    """Prints a warning or error on stderr, above any progress bar."""
    errors.print(f"gtrl: {text}", soft_wrap=True, highlight=False, markup=False)


class ConsoleHandler(logging.Handler):
    """Logging handler that prints warnings and errors on stderr and everything else on stdout."""

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a log record as one line, on stderr from warnings up, else on stdout."""
        write = warn if record.levelno >= logging.WARNING else echo
        write(self.format(record))


@contextmanager
def log_to_console() -> Iterator[None]:
    """Prints the package's log records of level INFO and above while the context is active."""
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
    """Adds to a `KeyboardInterrupt` the hint that running the same command again resumes the work."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("run the same command again to resume") from None


# --- progress ---


def progress_bar(show: bool = True) -> Progress:
    """Creates progress bars with percentage, note and remaining time. With `show=False` they print nothing."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),  # so that the whole line fits into 80 columns
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=errors,
        disable=not show,
    )


class Bar:
    """Handle that updates one progress bar and shows its rate in `unit` per second."""

    def __init__(self, progress: Progress, task: TaskID, unit: str) -> None:
        self.progress, self.task, self.unit = progress, task, unit

    def begin(self, done: float, total: float | None) -> None:
        """Shows the bar from the beginning, with `done` of `total` already complete."""
        self.progress.reset(self.task, total=total, note="")
        self.progress.update(self.task, completed=done)
        self.progress.start()

    def __call__(self, done: float, note: str = "") -> None:
        """Advances by `done`. A note is shown instead of the rate."""
        self.progress.advance(self.task, done)
        speed = self.progress.tasks[0].speed
        self.progress.update(self.task, note=note or (f"{speed:,.0f} {self.unit}/s" if speed else ""))


@contextmanager
def bar(description: str, total: float | None, unit: str, show: bool = True, done: int = 0) -> Iterator[Bar]:
    """Shows a progress bar, with `done` of `total` already complete. Without a total it is hidden until `begin`."""
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
    """Builds a table. The first `text` columns hold words, which may wrap; the others hold numbers, which never do."""
    result = Table(title=escape(title), title_justify="left")
    for index, column in enumerate(columns):
        is_text = index < text
        result.add_column(column, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for row in rows:
        result.add_row(*(escape(str(cell)) for cell in row))
    return result


def print_table(table: Table) -> None:
    """Prints a table without truncating any cell.

    In a file or a pipe each row is one line. In a terminal (or within the width given by COLUMNS) words are wrapped;
    where the numbers still do not fit, each row is printed as a block of "column  value" lines.
    """
    stdout = _Console()
    if not stdout.is_terminal and "COLUMNS" not in os.environ:
        stdout = _Console(width=UNLIMITED_WIDTH)
    needed = stdout.measure(table, options=stdout.options.update(width=UNLIMITED_WIDTH)).minimum
    if needed <= stdout.width:
        stdout.print(table)
    else:
        _print_records(stdout, table)


def _print_records(stdout: Console, table: Table) -> None:
    """Prints each row as a block of "column  value" lines."""
    if table.title:
        stdout.print(table.title)
    for row in zip(*(column.cells for column in table.columns), strict=True):
        record = Table.grid(padding=(0, 2))
        record.add_column(no_wrap=True)
        record.add_column(overflow="fold")
        for column, cell in zip(table.columns, row, strict=True):
            record.add_row(column.header, cell)
        stdout.print()
        stdout.print(record)

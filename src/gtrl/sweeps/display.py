"""The table of runs: live in a terminal, lines of changes elsewhere."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from gtrl import console
from gtrl.sweeps.status import Status, clock, duration

COLUMNS = ("run", "state", "step", "steps/s", "left", "success")
# The states in the order in which rows are kept where a terminal has too few lines for all of them.
IMPORTANCE = (
    "training", "evaluating", "starting", "failed", "damaged", "no data", "elsewhere", "stopped", "trained",
    "waiting", "finished",
)  # fmt: skip
COLOURS = {"training": "cyan", "evaluating": "blue", "finished": "green", "failed": "red", "damaged": "red"}
LINES_BESIDE_ROWS = 6  # title, header and what follows the table


def runs_table(statuses: Sequence[Status], title: str = "") -> Table:
    """Returns the table of runs; it fits into 80 columns, where the names of runs may take two lines."""
    table = Table(title=escape(title), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if index < 2 else "right", no_wrap=index > 0, overflow="fold")
    for status in statuses:
        colour = COLOURS.get(status.state)
        state = f"[{colour}]{status.state}[/]" if colour else status.state
        table.add_row(escape(words(status.key)), state, *_numbers(status))
    return table


def words(key: str) -> str:
    """Returns the path of a run as words, so that a narrow table can break it between them."""
    return printable(key.replace("/", " "))


def printable(text: str) -> str:
    """Returns a text from a file without characters that would control the terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _numbers(status: Status) -> list[str]:
    rate, left = status.steps_per_second, status.seconds_left
    return [
        f"{short(status.step)}/{short(status.steps)}" if status.steps else "",
        "" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}",
        "" if left is None else duration(left),
        "" if status.success is None else f"{status.success:.1f} %",
    ]


def short(number: int | None) -> str:
    """Returns a number of steps as it is shown: 950, 12.5K, 800K, 1M."""
    for size, letter in ((1_000_000, "M"), (1_000, "K")):
        if number is not None and number >= size:
            return f"{number / size:.4g}{letter}" if number < 1000 * size else f"{number / size:,.0f}{letter}"
    return "" if number is None else str(number)


def summary_of(statuses: Sequence[Status]) -> str:
    """Returns a line with the number of runs in each state: 2 training, 3 waiting, 5 of 10 finished."""
    counts = Counter(status.state for status in statuses)
    parts = [f"{counts[state]} {state}" for state in IMPORTANCE if counts[state] and state != "finished"]
    return ", ".join([f"{counts['finished']} of {len(statuses)} finished", *parts])


def fitting(statuses: Sequence[Status], lines: int) -> tuple[list[Status], int]:
    """Returns the most important runs that fit into so many lines, in their order, and how many are left out.

    A row may take two lines, because the names are long.
    """
    if len(statuses) <= lines:
        return list(statuses), 0
    kept = sorted(range(len(statuses)), key=lambda index: IMPORTANCE.index(statuses[index].state))[: max(1, lines)]
    return [statuses[index] for index in sorted(kept)], len(statuses) - len(kept)


class Screen:
    """Shows the runs: a live table in a terminal; elsewhere one line for each change of a state."""

    def __init__(self, title: str, live: Live | None) -> None:
        self.title, self.live = title, live
        self.shown: dict[str, str] = {}  # the state of each run

    def update(self, statuses: Sequence[Status]) -> None:
        """Shows the current states."""
        if self.live:
            self.live.update(self._picture(statuses), refresh=True)
        else:
            self._print_changes(statuses)

    def _picture(self, statuses: Sequence[Status]) -> Any:
        assert self.live
        lines = self.live.console.height - LINES_BESIDE_ROWS
        rows_take = 2 if self.live.console.width < 110 else 1
        rows, hidden = fitting(statuses, lines // rows_take)
        more = f"and {hidden} more; " if hidden else ""
        return Group(runs_table(rows, self.title), f"{more}{summary_of(statuses)}")

    def _print_changes(self, statuses: Sequence[Status]) -> None:
        for status in statuses:
            if self.shown.get(status.key, "waiting") != status.state:
                console.echo(printable(f"{clock()} {status.key}: {_sentence(status)}"))
            self.shown[status.key] = status.state


def _sentence(status: Status) -> str:
    parts = [status.state]
    if status.state in ("training", "stopped") and status.steps:
        parts.append(f"step {status.step:,} of {status.steps:,}")
    if status.state == "finished" and status.success is not None:
        parts.append(f"success {status.success:.1f} %")
    return ", ".join([*parts, *([status.message] if status.message else [])])


@contextlib.contextmanager
def screen(title: str, show: bool = True) -> Iterator[Screen]:
    """Opens a live table on stdout if that is a terminal. With `show=False` nothing is printed."""
    if not show:
        yield _Silent(title, None)
    elif console.output.is_terminal:
        with Live(console=console.output, auto_refresh=False, transient=False, vertical_overflow="crop") as live:
            yield Screen(title, live)
    else:
        yield Screen(title, None)


class _Silent(Screen):
    def update(self, statuses: Sequence[Status]) -> None:
        pass

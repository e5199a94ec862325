"""`gtrl watch`: the state of all runs in a folder."""

import time
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gtrl import console
from gtrl.errors import ConfigError

SECONDS = 2.0  # between two looks at the files, by default
MAX_SECONDS = 24 * 3600


def watch_command(
    folder: Annotated[Positional[Path], arg(metavar="[DIR]")] = Path("runs"),
    *,
    once: bool = False,
    seconds: float = SECONDS,
) -> None:
    """Show running and finished runs, live: step, speed, remaining time and success.

    Args:
        folder: A folder with run directories in it or below it.
        once: Print the table once and exit.
        seconds: The time between two looks at the files.
    """
    from gtrl.sweeps.display import runs_table, screen, summary_of
    from gtrl.sweeps.watch import find_statuses

    if not 0 < seconds < MAX_SECONDS:
        raise ConfigError(f"--seconds is {seconds} and must be more than 0 and less than a day.")
    statuses = find_statuses(folder)  # a folder without runs is an error before anything is shown
    if once:
        console.print_table(runs_table(statuses, str(folder)))
        console.echo(summary_of(statuses))
        return
    with screen(str(folder)) as view:
        while True:
            view.update(find_statuses(folder))
            time.sleep(seconds)

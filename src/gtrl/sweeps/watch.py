"""The runs in a folder and their states, for `gtrl watch`."""

from pathlib import Path

from gtrl.errors import RunError
from gtrl.report.cells import runs_below
from gtrl.sweeps.status import Status, read_status


def find_statuses(folder: Path) -> list[Status]:
    """Returns the status of every run directory in a folder or below it; raises `RunError` if there is none."""
    folder = folder.expanduser()
    found = [read_status(run.path) for run in runs_below(folder)]
    if not found:
        raise RunError(f"{folder} holds no run: there is no config.json in it or below it.")
    return found

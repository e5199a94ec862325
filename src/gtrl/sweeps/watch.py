"""The runs in a folder and their states, for `gtrl watch`."""

from dataclasses import replace
from pathlib import Path

from gtrl.errors import RunError
from gtrl.report.cells import runs_below
from gtrl.sweeps.status import Status, read_status


def find_statuses(folder: Path) -> list[Status]:
    """Returns the status of every run directory in a folder or below it; raises `RunError` if there is none.

    Runs below the folder are named by their paths in it, which differ even where tasks and methods are the same.
    """
    folder = folder.expanduser()
    found = []
    for run in runs_below(folder):
        path = "" if run.path == folder else str(run.path.relative_to(folder))
        found.append(replace(read_status(run.path), path=path))
    if not found:
        raise RunError(f"{folder} holds no run: there is no config.json in it or below it.")
    return found

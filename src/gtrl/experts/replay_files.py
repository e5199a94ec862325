"""The replay buffer on disk: each step of the simulator is written once, in the file of the checkpoint that follows."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gtrl.errors import RunError
from gtrl.experts.sac import Transitions
from gtrl.io.npz import read_npz, write_npz


class ReplayFiles:
    """Files `<start>-<end>.npz` with the steps of a run, numbered from its start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unsaved: list[Transitions] = []

    def append(self, steps: Transitions) -> None:
        """Keeps steps for the next file."""
        self.unsaved.append(steps)

    def write(self, end: int) -> None:
        """Writes the steps since the last file, of which `end` is the number of the one after."""
        if self.unsaved:
            steps = join(self.unsaved)
            path = self.folder / f"{end - len(steps.rewards):012}-{end:012}.npz"
            write_npz(path, steps._asdict(), compress=False)
            self.unsaved = []

    def read(self, end: int, count: int) -> Transitions | None:
        """Returns the `count` steps before `end`; None if any of them is missing."""
        parts, left = [], count
        files = {stop: (start, path) for start, stop, path in self.files()}
        while left > 0:
            if end not in files:
                return None
            end, path = files[end]
            arrays = read_npz(path, RunError)
            part = Transitions(*(arrays[name][-left:] for name in Transitions._fields))
            parts.insert(0, part)
            left -= len(part.rewards)
        return join(parts) if parts else None

    def remove(self, before: int, after: int) -> None:
        """Removes files whose steps are all before the one step or after the other."""
        for start, end, path in list(self.files()):
            if end <= before or start >= after:
                path.unlink()

    def files(self) -> Iterator[tuple[int, int, Path]]:
        """Yields the first step of each file, the step after its last one, and its path."""
        for path in sorted(self.folder.glob("*-*.npz")):
            start, _, end = path.stem.partition("-")
            if start.isdigit() and end.isdigit():
                yield int(start), int(end), path


def join(parts: list[Transitions]) -> Transitions:
    """Concatenates steps."""
    return Transitions(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

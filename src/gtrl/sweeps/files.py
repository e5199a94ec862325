"""Copies of a run directory on another machine: which files have changed there, and writing them here."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from gtrl.data.origin import digest_of, files_of, origin_path, shards_of
from gtrl.errors import DataError
from gtrl.io.atomic import PARTIAL_SUFFIX, atomic_write
from gtrl.runs.run import LOCK, Run, parse_evaluation

LOCKS = (LOCK, "eval.lock")
EVALUATIONS = "eval.csv"
Signature = tuple[int, int]  # of a file: its time of change and its size


class Update(NamedTuple):
    """What has changed in a run directory since the last update."""

    changed: dict[str, bytes]  # content by path in the directory; checkpoints last
    removed: list[str]


def run_files(folder: Path) -> list[Path]:
    """Returns the files of a run directory, without locks and files that are being written.

    The compiled programs of a run on a GPU belong to it: with others, a resumed run would not be the same in bits.
    """
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix != PARTIAL_SUFFIX]
    return sorted(path for path in found if path.name not in LOCKS)


class Snapshot:
    """Finds the files of a run directory that have changed since the last update that was committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known = self.found = self._signatures()

    def _signatures(self) -> dict[str, Signature]:
        signatures = {}
        for path in run_files(self.folder):
            try:
                stat = path.stat()
            except FileNotFoundError:  # removed meanwhile, such as an old checkpoint
                continue
            signatures[str(path.relative_to(self.folder))] = (stat.st_mtime_ns, stat.st_size)
        return signatures

    def update(self) -> Update:
        """Returns what has changed; it is returned again until `commit` is called.

        Checkpoints are read first: a log that is read later has all rows up to the checkpoint, and a resumed run drops
        those after it.
        """
        signatures = self._signatures()
        names = [name for name, signature in signatures.items() if self.known.get(name) != signature]
        changed = {}
        for name in sorted(names, key=lambda name: not is_checkpoint(name)):
            try:
                changed[name] = (self.folder / name).read_bytes()
            except FileNotFoundError:
                del signatures[name]
        removed = [name for name in self.known if name not in signatures]
        self.found = signatures
        return Update(changed, removed)

    def commit(self) -> None:
        """Remembers the last update as one that has arrived."""
        self.known = self.found


def is_checkpoint(name: str) -> bool:
    """Returns whether a path in a run directory is a checkpoint's."""
    return name.startswith("checkpoints/")


def write_update(folder: Path, update: Update) -> None:
    """Writes changed files to a run directory, each atomically and checkpoints last, then removes those to be removed.

    Rows of `eval.csv` are added to those that are there: several jobs may evaluate one run.
    """
    for name in sorted(update.changed, key=is_checkpoint):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == EVALUATIONS and path.exists():
            _merge_evaluations(Run(folder), update.changed[name])
            continue
        with atomic_write(path) as file:
            file.write(update.changed[name])
    for name in update.removed:
        (folder / name).unlink(missing_ok=True)


def _merge_evaluations(run: Run, content: bytes) -> None:
    run.add_evaluations(map(parse_evaluation, csv.DictReader(content.decode().splitlines())))


def read_files(folder: Path, skipped: Iterable[str] = ()) -> dict[str, bytes]:
    """Returns the content of all files of a run directory by path in it, without some of its folders."""
    skipped = set(skipped)
    paths = {str(path.relative_to(folder)): path for path in run_files(folder)}
    return {name: path.read_bytes() for name, path in paths.items() if name.partition("/")[0] not in skipped}


def dataset_digests(path: Path) -> dict[str, str]:
    """Returns the digests of all files of a dataset by name: training, validation, and the record of their origin.

    Raises `DataError` if there is no dataset.
    """
    if not path.exists():
        raise DataError(f"there is no data at {path}.")
    files = [file for shard in shards_of(path) for file in (*files_of(shard), origin_path(shard)) if file.exists()]
    return {file.name: digest_of(file) for file in files}


def dataset_folder(path: Path) -> Path:
    """Returns the folder of a dataset's files: the dataset itself if it has several shards."""
    return path if path.is_dir() else path.parent


def is_same_dataset(path: Path, digests: Mapping[str, str]) -> bool:
    """Returns whether the dataset at `path` on this machine has exactly these files."""
    try:
        return dataset_digests(path) == digests
    except (DataError, OSError):
        return False

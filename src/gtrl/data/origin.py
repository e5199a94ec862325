"""Which files a dataset is, and where it came from: `<name>.origin.json`, written by what fetched or made it."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gtrl.errors import DataError
from gtrl.io.atomic import read_json, write_text


def validation_path(path: Path) -> Path:
    """OGBench's name for the validation file beside a training file."""
    return path.with_name(f"{path.stem}-val.npz")


def files_of(path: Path) -> list[Path]:
    """A training file and, where there is one, its validation file."""
    return [file for file in (path, validation_path(path)) if file.exists() or file == path]


def shards_of(path: Path) -> tuple[Path, ...]:
    """The training files of a dataset: the file itself, or all in a folder, by name."""
    if not path.is_dir():
        return (path,)
    shards = tuple(sorted(file for file in path.glob("*.npz") if not file.stem.endswith("-val")))
    if not shards:
        raise DataError(f"there is no dataset file (.npz) in the folder {path}.")
    return shards


def digest_of(path: Path) -> str:
    """SHA-256 of a file, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def combined_digest(digests: Sequence[str]) -> str:
    """One digest for several files in order; a single file's is its own."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def origin_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}.origin.json")


def record_origin(path: Path, digests: dict[str, str], **facts: Any) -> None:
    """Write down where a training file and its validation file came from; `digests` by file name."""
    write_text(origin_path(path), json.dumps({**facts, "sha256": digests}, indent=2) + "\n")


def read_origin(path: Path) -> dict[str, Any]:
    """What the note beside a training file says, whether or not the file is still the same."""
    return read_json(origin_path(path))


def origin_of(path: Path, digests: dict[str, str]) -> dict[str, Any]:
    """What was written down, if the files are still the same; else all that is known is that they are files."""
    facts = read_origin(path)
    if facts.pop("sha256", None) != digests or not isinstance(facts.get("from"), str):
        return {"from": "file"}
    return facts

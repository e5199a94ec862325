"""The files of a dataset, and the record of where they came from: `<name>.origin.json`."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gtrl.errors import DataError
from gtrl.io.atomic import read_json, write_text


def validation_path(path: Path) -> Path:
    """Returns the path of the validation file that belongs to a training file, by OGBench's convention."""
    return path.with_name(f"{path.stem}-val.npz")


def files_of(path: Path) -> list[Path]:
    """Returns a training file and, if it exists, its validation file."""
    return [file for file in (path, validation_path(path)) if file.exists() or file == path]


def shards_of(path: Path) -> tuple[Path, ...]:
    """Returns the training files of a dataset: the file itself, or all in a folder, sorted by name."""
    if not path.is_dir():
        return (path,)
    shards = tuple(sorted(file for file in path.glob("*.npz") if not file.stem.endswith("-val")))
    if not shards:
        raise DataError(f"there is no dataset file (.npz) in the folder {path}.")
    return shards


def digest_of(path: Path) -> str:
    """Returns the SHA-256 digest of a file, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def combined_digest(digests: Sequence[str]) -> str:
    """Returns one digest for several files in order; for a single file, its own digest."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def origin_path(path: Path) -> Path:
    """Returns the path of the record that belongs to a training file."""
    return path.with_name(f"{path.stem}.origin.json")


def record_origin(path: Path, digests: dict[str, str], **facts: Any) -> None:
    """Records where a training file and its validation file came from; `digests` are by file name."""
    write_text(origin_path(path), json.dumps({**facts, "sha256": digests}, indent=2) + "\n")


def read_origin(path: Path) -> dict[str, Any]:
    """Reads the record of a training file, without checking that the file is unchanged."""
    return read_json(origin_path(path))


def origin_of(path: Path, digests: dict[str, str]) -> dict[str, Any]:
    """Returns the recorded origin if the digests still match; otherwise `{"from": "file"}`."""
    facts = read_origin(path)
    if facts.pop("sha256", None) != digests or not isinstance(facts.get("from"), str):
        return {"from": "file"}
    return facts

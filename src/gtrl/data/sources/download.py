"""Downloading a task's dataset: from OGBench's own host, then from a mirror.

A file streams into `<name>.<host>.download` beside its final place. A broken transfer is resumed, at once or by the
next command; the file is moved into place once it is complete, readable and what the task expects.
"""

import glob
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from gtrl import console
from gtrl.console import Bar, resume_hint
from gtrl.data.checks import check_file
from gtrl.data.origin import digest_of, origin_path, record_origin, validation_path
from gtrl.envs.isolation import ignore_warnings
from gtrl.errors import ConfigError, DataError, DownloadError
from gtrl.io.atomic import read_json, write_text
from gtrl.io.locks import locked
from gtrl.tasks import OGBenchTask

MIRROR_VARIABLE = "GTRL_MIRROR"  # the environment variable
TIMEOUT_SECONDS = 20.0  # seconds without an answer
MAX_STALLED_ATTEMPTS = 5  # times a transfer is resumed without a byte of progress
FIRST_RETRY_SECONDS = 1.0  # seconds before the first of them; twice as long before each next
BLOCK_BYTES = 1 << 18  # bytes read at a time
BYTES_PER_MB = 1e6


class TransferError(Exception):
    """The connection ended before the file did."""


def sources(mirror: str | None = None) -> list[str]:
    """Addresses to try, in order: OGBench's own, then the mirror given here or in the environment."""
    with ignore_warnings():
        from ogbench.utils import DATASET_URL
    given = mirror or os.environ.get(MIRROR_VARIABLE)
    if given and not _is_address(given):
        raise ConfigError(f"the mirror '{given}' is not an address such as https://host/folder.")
    return [DATASET_URL, *([given.rstrip("/")] if given else [])]


def _is_address(text: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(text)
        return text.isascii() and parts.scheme in ("http", "https") and bool((parts.hostname or "").encode("idna"))
    except ValueError:
        return False


def download(task: OGBenchTask, path: Path, *, mirror: str | None = None, show: bool = True) -> str:
    """Fetch a task's training file to `path` and its validation file beside it. The address they came from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    lock = path.with_name(f"{path.name}.download.lock")
    with resume_hint(), locked(lock, f"downloading {path.name}"):
        for base in sources(mirror):
            try:
                _download_both(task, path, base, show)
            except DownloadError as failure:
                failures.append(f"{urllib.parse.urlsplit(base).netloc} {failure}")
            else:
                return base
    raise DownloadError("; ".join(failures))


def _download_both(task: OGBenchTask, path: Path, base: str, show: bool) -> None:
    files = (validation_path(path), path)
    remote = (f"{task.dataset}-val.npz", f"{task.dataset}.npz")
    partials = [_partial(file, base) for file in files]
    for partial, name in zip(partials, remote, strict=True):
        _fetch(f"{base}/{name}", partial, show)
        try:
            problems = check_file(partial, task, validation="-val" in name, public=True).problems
        except DataError as error:
            problems = [str(error).rstrip(".").replace(str(partial), "it")]
        if problems:
            _discard(partial)
            raise DownloadError(f"sent a wrong or broken {name}, which was thrown away: {problems[0]}")
    digests = {file.name: digest_of(partial) for file, partial in zip(files, partials, strict=True)}
    record_origin(path, dict(reversed(digests.items())), **{"from": "downloaded", "address": base})
    for file, partial in zip(files, partials, strict=True):  # the training file last: where it is, both are
        os.replace(partial, file)
    discard_partials(path)


def _partial(file: Path, base: str) -> Path:
    """Where the part of a file that came from one server is kept; another server's file may differ."""
    host = re.sub(r"[^\w.]+", "-", urllib.parse.urlsplit(base).netloc)
    return file.with_name(f"{file.name}.{host}.download")


def discard_partials(path: Path) -> None:
    """Remove unfinished downloads of a training file and its validation file."""
    for file in (path, validation_path(path)):
        for partial in file.parent.glob(f"{glob.escape(file.name)}.*.download"):
            _discard(partial)
        for note in file.parent.glob(f"{glob.escape(file.name)}.*.download.json*"):
            note.unlink()
    for unfinished in path.parent.glob(f"{glob.escape(origin_path(path).name)}.*.partial"):
        unfinished.unlink()


def _note(partial: Path) -> Path:
    """The file that records what a partial file is a part of: its address and the server's tag for that version."""
    return partial.with_name(f"{partial.name}.json")


def _discard(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    _note(partial).unlink(missing_ok=True)


def _fetch(url: str, partial: Path, show: bool) -> None:
    """Fetch all of a file, resuming the transfer where it broke."""
    name = url.rsplit("/", 1)[-1]
    with console.bar(f"downloading {name}", None, "MB", show) as bar:
        failures, farthest = 0, _size(partial)
        while True:
            try:
                _transfer(url, partial, bar)
            except TransferError as error:
                failures = 1 if _size(partial) > farthest else failures + 1
                farthest = max(farthest, _size(partial))
                if failures >= MAX_STALLED_ATTEMPTS:
                    came = f"{_size(partial) / BYTES_PER_MB:,.1f} MB"
                    message = f"broke off {name} after {came} ({error}); the same command goes on from there"
                    raise DownloadError(message) from error
                time.sleep(FIRST_RETRY_SECONDS * 2 ** (failures - 1))
            else:
                return


def _size(partial: Path) -> int:
    return partial.stat().st_size if partial.exists() else 0


def _transfer(url: str, partial: Path, bar: Bar) -> None:
    """One connection: what is left of the file, or all of it where the server or the file is not the same as before."""
    known = read_json(_note(partial))
    have = _size(partial) if known.get("url") == url else 0
    if have and have == known.get("size"):
        return
    headers = {"User-Agent": "gtrl", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        headers |= {"If-Range": known["tag"]} if known.get("tag") else {}
    with _open(urllib.request.Request(url, headers=headers), partial) as answer:  # noqa: S310, http or https
        start, size = _span(answer, have, partial)
        if not start:
            _discard(partial)  # before the note describes another file
        tag = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
        write_text(_note(partial), json.dumps({"url": url, "tag": "" if tag.startswith("W/") else tag, "size": size}))
        with partial.open("ab") as file:
            bar.begin(start / BYTES_PER_MB, size / BYTES_PER_MB if size else None)
            while block := _read(answer):
                file.write(block)
                bar(len(block) / BYTES_PER_MB)
            done = file.tell()
    if size is not None and done < size:
        raise TransferError(f"{done / BYTES_PER_MB:,.1f} of {size / BYTES_PER_MB:,.1f} MB came")


def _span(answer: Any, have: int, partial: Path) -> tuple[int, int | None]:
    """(where what the server sends begins, the size of the whole file)."""
    if answer.status == http.client.PARTIAL_CONTENT:
        with suppress(ValueError):  # "bytes 100-199/200"
            unit, rest = answer.headers.get("Content-Range", "").split(" ")
            first, total = rest.split("-")[0], rest.split("/")[1]
            if unit == "bytes" and int(first) == have:
                return have, int(total) if total != "*" else None
        _discard(partial)  # the next try asks for all of it
        raise TransferError("another piece of the file came than was asked for")
    if "html" in answer.headers.get("Content-Type", ""):
        raise DownloadError("sent a web page instead of the file")
    length = answer.headers.get("Content-Length") or ""
    return 0, int(length) if length.isdecimal() else None


def _open(request: urllib.request.Request, partial: Path) -> Any:
    name = request.full_url.rsplit("/", 1)[-1]
    failure = TransferError if request.has_header("Range") else DownloadError  # a partial file is worth another attempt
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)  # noqa: S310, http or https
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            _discard(partial)  # the file is another one by now: all of it again
            raise TransferError("the file has changed") from error
        answers = {401: "wants a password for", 403: "refuses", 404: "has no file", 410: "has no more file"}
        if error.code >= 500 or error.code == http.client.TOO_MANY_REQUESTS:
            raise failure(f"is out of order just now ({error.code} {error.reason})") from error
        raise DownloadError(f"{answers.get(error.code, 'does not give')} {name} ({error.code})") from error
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise failure(f"did not answer within {TIMEOUT_SECONDS:g} s") from error
        raise failure(f"cannot be reached ({reason})") from error


def _read(answer: Any) -> bytes:
    try:
        return answer.read1(BLOCK_BYTES)
    except TimeoutError as error:
        raise TransferError(f"nothing came for {TIMEOUT_SECONDS:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise TransferError(str(error) or type(error).__name__) from error

"""Download of a task's dataset, from OGBench's server or else from a mirror.

A file is downloaded to `<name>.<host>.download` next to its final place. An interrupted transfer is resumed, either
immediately or by the next command. The file is renamed once it is complete and has passed the checks.
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
from gtrl.errors import ConfigError, DataError, DownloadError
from gtrl.io.atomic import read_json, write_text
from gtrl.io.locks import locked
from gtrl.tasks import OGBenchTask

DATASET_URL = "https://rail.eecs.berkeley.edu/datasets/ogbench"  # as in `ogbench.utils`, which need not be installed
MIRROR_VARIABLE = "GTRL_MIRROR"  # environment variable with the address of a mirror
TIMEOUT_SECONDS = 20.0  # without a response
MAX_STALLED_ATTEMPTS = 5  # consecutive attempts to resume a transfer that make no progress
FIRST_RETRY_SECONDS = 1.0  # before the first attempt to resume; doubled for each further one
BLOCK_BYTES = 1 << 18  # read at a time
BYTES_PER_MB = 1e6


class TransferError(Exception):
    """A transfer that failed in a way that resuming it can fix."""


def sources(mirror: str | None = None) -> list[str]:
    """Returns the addresses to try: OGBench's, then the given mirror or that of the environment variable."""
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
    """Downloads a task's training file to `path`, and its validation file next to it. Returns the address used."""
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
    """Downloads, checks and renames both files from one address."""
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
            raise DownloadError(f"sent a wrong or damaged {name}, which was discarded: {problems[0]}")
    digests = {file.name: digest_of(partial) for file, partial in zip(files, partials, strict=True)}
    record_origin(path, dict(reversed(digests.items())), **{"from": "downloaded", "address": base})
    for file, partial in zip(files, partials, strict=True):  # the training file last: where it exists, both exist
        os.replace(partial, file)
    discard_partials(path)


def _partial(file: Path, base: str) -> Path:
    """Returns the path of the partial file from one server; another server's file may differ."""
    host = re.sub(r"[^\w.]+", "-", urllib.parse.urlsplit(base).netloc)
    return file.with_name(f"{file.name}.{host}.download")


def discard_partials(path: Path) -> None:
    """Removes unfinished downloads of a training file and its validation file."""
    for file in (path, validation_path(path)):
        for partial in file.parent.glob(f"{glob.escape(file.name)}.*.download"):
            _discard(partial)
        for note in file.parent.glob(f"{glob.escape(file.name)}.*.download.json*"):
            note.unlink()
    for unfinished in path.parent.glob(f"{glob.escape(origin_path(path).name)}.*.partial"):
        unfinished.unlink()


def _note(partial: Path) -> Path:
    """Returns the path of the record of a partial file: its address, size and the server's version tag."""
    return partial.with_name(f"{partial.name}.json")


def _discard(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    _note(partial).unlink(missing_ok=True)


def _fetch(url: str, partial: Path, show: bool) -> None:
    """Downloads a whole file, resuming the transfer after failures."""
    name = url.rsplit("/", 1)[-1]
    with console.bar(f"downloading {name}", None, "MB", show) as bar:
        failures, largest_size = 0, _size(partial)
        while True:
            try:
                _transfer(url, partial, bar)
            except TransferError as error:
                failures = 1 if _size(partial) > largest_size else failures + 1
                largest_size = max(largest_size, _size(partial))
                if failures >= MAX_STALLED_ATTEMPTS:
                    received = f"{_size(partial) / BYTES_PER_MB:,.1f} MB"
                    message = f"stopped sending {name} after {received} ({error}); run the same command again to resume"
                    raise DownloadError(message) from error
                time.sleep(FIRST_RETRY_SECONDS * 2 ** (failures - 1))
            else:
                return


def _size(partial: Path) -> int:
    return partial.stat().st_size if partial.exists() else 0


def _transfer(url: str, partial: Path, bar: Bar) -> None:
    """Downloads the rest of a file over one connection, or all of it if the server or its file has changed."""
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
            _discard(partial)  # before the record is overwritten with that of another file
        tag = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
        write_text(_note(partial), json.dumps({"url": url, "tag": "" if tag.startswith("W/") else tag, "size": size}))
        with partial.open("ab") as file:
            bar.begin(start / BYTES_PER_MB, size / BYTES_PER_MB if size else None)
            while block := _read(answer):
                file.write(block)
                bar(len(block) / BYTES_PER_MB)
            done = file.tell()
    if size is not None and done < size:
        raise TransferError(f"received {done / BYTES_PER_MB:,.1f} of {size / BYTES_PER_MB:,.1f} MB")


def _span(answer: Any, have: int, partial: Path) -> tuple[int, int | None]:
    """Returns (first byte that the server sends, size of the whole file or None if unknown)."""
    if answer.status == http.client.PARTIAL_CONTENT:
        with suppress(ValueError):  # "bytes 100-199/200"
            unit, rest = answer.headers.get("Content-Range", "").split(" ")
            first, total = rest.split("-")[0], rest.split("/")[1]
            if unit == "bytes" and int(first) == have:
                return have, int(total) if total != "*" else None
        _discard(partial)  # the next attempt requests the whole file
        raise TransferError("the server sent another part of the file than requested")
    if "html" in answer.headers.get("Content-Type", ""):
        raise DownloadError("sent a web page instead of the file")
    length = answer.headers.get("Content-Length") or ""
    return 0, int(length) if length.isdecimal() else None


def _open(request: urllib.request.Request, partial: Path) -> Any:
    name = request.full_url.rsplit("/", 1)[-1]
    failure = TransferError if request.has_header("Range") else DownloadError  # with a partial file, try to resume
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)  # noqa: S310, http or https
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            _discard(partial)  # the file on the server has changed: download all of it again
            raise TransferError("the file has changed") from error
        answers = {401: "requires a password for", 403: "denies access to", 404: "has no file", 410: "no longer has"}
        if error.code >= 500 or error.code == http.client.TOO_MANY_REQUESTS:
            raise failure(f"is temporarily unavailable ({error.code} {error.reason})") from error
        raise DownloadError(f"{answers.get(error.code, 'does not send')} {name} ({error.code})") from error
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise failure(f"did not respond within {TIMEOUT_SECONDS:g} s") from error
        raise failure(f"cannot be reached ({reason})") from error


def _read(answer: Any) -> bytes:
    try:
        return answer.read1(BLOCK_BYTES)
    except TimeoutError as error:
        raise TransferError(f"no data for {TIMEOUT_SECONDS:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise TransferError(str(error) or type(error).__name__) from error

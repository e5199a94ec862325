"""The folder `results/`: the small files of measured runs, one folder per cell, and an index of them.

`results/<task>/<name>/` has `config.json`, `eval.csv`, a thinned `metrics.jsonl` and `timing.jsonl`, and, if the run
has them, `diagnostics.json` and `maps.npz`. Runs that trained different seeds of a cell are joined. `index.csv` lists
all cells with their score and where they fall short of the protocol.
"""

import csv
import io
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gtrl.errors import ConfigError, RunError
from gtrl.io.atomic import write_text
from gtrl.report.cells import INDEX, Cell, find_cells, is_cell_name
from gtrl.runs.run import DIAGNOSTICS, MAPS, Run, check_folder_name, is_folder_name

INDEX_COLUMNS = ("task", "name", "success", "deviation", "seeds", "scored_steps", "episodes", "precision", "protocol")
OPTIONAL_FILES = (DIAGNOSTICS, MAPS)
CELL_FILES = ("config.json", "eval.csv", "metrics.jsonl", "timing.jsonl", *OPTIONAL_FILES)
MAX_FILE_BYTES = 2 * 2**20  # of a file of a cell, so that results can be committed
METRIC_STEPS = 50  # about how many logged steps of `metrics.jsonl` are kept
# Parts of a config that must be the same in the runs that are joined.
JOINED_PARTS = ("task", "algorithm", "training", "data.digest")


def add_results(
    paths: Sequence[str | Path], folder: Path, name: str | None = None, replace: bool = False
) -> list[Path]:
    """Adds runs to the results and returns the folders of their cells.

    Args:
        paths: Run directories, or folders of them.
        folder: The folder of the results.
        name: The name of the cell, for runs of one cell; by default the method, or the name of the run's folder if that
            is in a folder named after the task.
        replace: Replace cells that exist. Otherwise runs with other seeds are joined with them.
    """
    cells = find_cells(paths)
    parts: dict[Path, list[Run]] = {}
    for cell in cells:
        cell_name = check_folder_name(name or _plain_name(cell), "cell (--name)")
        if not is_cell_name(cell_name, cell.method):
            raise ConfigError(f"a cell of {cell.method} cannot be named '{cell_name}'; use {cell.method}-VARIANT.")
        parts.setdefault(folder / check_folder_name(cell.task, "task") / cell_name, []).append(cell.run)
    if name and len(parts) > 1:
        raise ConfigError(f"--name is for the runs of one cell, but these runs are of {len(parts)} tasks.")
    contents = [
        _read_cell(target, runs, replace) for target, runs in parts.items()
    ]  # all are checked before one is written
    for content in contents:
        _write_cell(content)
    write_index(folder)
    return list(parts)


def _plain_name(cell: Cell) -> str:
    """The cell's name without the path that tells apart several runs of one cell."""
    return cell.name.removesuffix(f" ({cell.run.path})")


# --- one cell ---


class _Content(NamedTuple):
    """What the folder of a cell will hold."""

    target: Path
    is_replaced: bool  # whether what the folder holds now is removed
    config: dict[str, Any]
    evaluations: list[dict[str, Any]]
    lines: dict[str, list[dict[str, Any]]]  # of JSON-lines files
    copies: dict[str, Path]  # files that are copied as they are


def _read_cell(target: Path, added: Sequence[Run], replace: bool) -> _Content:
    """Reads the runs of a cell, and the cell itself if it exists and is not replaced."""
    for run in added:
        if run.path.resolve() == target.resolve():
            raise ConfigError(f"{run.path} is in the results already.")
        if not run.evaluations():
            raise RunError(f"{run.path} was not evaluated yet: gtrl evaluate {run.path}")
    exists = Run(target).exists
    runs = [*([Run(target)] if exists and not replace else []), *added]
    metrics = [row for run in runs for row in _thinned(list(run.metrics()))]
    return _Content(
        target,
        exists and replace,
        _joined_config(runs),
        [row for run in runs for row in run.evaluations()],
        {
            "metrics.jsonl": sorted(metrics, key=lambda row: (row["step"], row["seed"])),
            "timing.jsonl": [row for run in runs for row in _thinned(list(run.timing()))],
        },
        {name: run.path / name for run in reversed(added) for name in OPTIONAL_FILES if (run.path / name).exists()},
    )


def _write_cell(content: _Content) -> None:
    target = content.target
    if content.is_replaced:
        shutil.rmtree(target)
    cell = Run(target)
    cell.save_config(content.config)
    cell.add_evaluations(content.evaluations)
    for name, lines in content.lines.items():
        write_text(target / name, "".join(json.dumps(line) + "\n" for line in lines))
    for name, source in content.copies.items():
        shutil.copyfile(source, target / name)
    if DIAGNOSTICS in content.copies:
        diagnostics = json.loads((target / DIAGNOSTICS).read_text())
        diagnostics.pop("notes", None)  # they may have paths of the machine
        write_text(target / DIAGNOSTICS, json.dumps(diagnostics, indent=1) + "\n")


def _thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keeps about `METRIC_STEPS` steps, evenly spaced, and the last one.

    Of `timing.jsonl`, also the first row of each start of the run and the one before it, between which time does not
    count.
    """
    steps = sorted({row["step"] for row in rows})
    kept = {*steps[:: max(1, len(steps) // METRIC_STEPS)], *steps[-1:]}
    starts = {place for place, row in enumerate(rows) if "start_up_seconds" in row}
    return [row for place, row in enumerate(rows) if row["step"] in kept or place in starts or place + 1 in starts]


def _joined_config(runs: Sequence[Run]) -> dict[str, Any]:
    """The config of a cell: that of its runs with all of their seeds, and without paths of the machine."""
    configs = [run.config for run in runs]
    for run, config in zip(runs, configs, strict=True):
        for part in JOINED_PARTS:
            if _part(config, part) != _part(configs[0], part):
                raise ConfigError(
                    f"{run.path} and {runs[0].path} cannot be joined: they differ in '{part}' of config.json. "
                    "Give one of them another --name."
                )
    seeds = [seed for run in runs for seed in run.seeds]
    repeated = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if repeated:
        paths = " and ".join(str(run.path) for run in runs if repeated[0] in run.seeds)
        raise ConfigError(f"seed {repeated[0]} is in {paths}; --replace replaces a cell that exists.")
    source = configs[0]["data"].get("source")
    joined = configs[0] | {
        "seeds": sorted(seeds),
        "data": configs[0]["data"] | {"source": source and Path(source).name},
    }
    if len(runs) > 1:
        parts = [config.get("joined") or [_part_of_cell(config)] for config in configs]
        joined["joined"] = [part for group in parts for part in group]
    return joined


def _part(config: dict[str, Any], path: str) -> Any:
    for key in path.split("."):
        config = config[key]
    return config


def _part_of_cell(config: dict[str, Any]) -> dict[str, Any]:
    return {key: config.get(key) for key in ("seeds", "gtrl", "versions", "device")}


# --- the index ---


def write_index(folder: Path) -> Path:
    """Writes `index.csv`, which lists all cells below the folder, and returns its path."""
    path = folder / INDEX
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder.")
    path.touch()  # marks the folder as one of results, which may be empty
    write_text(path, _index(find_cells([folder])))
    return path


def _index(cells: Iterable[Cell]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(INDEX_COLUMNS)
    for cell in cells:
        score = cell.score()
        deviation = "" if score is None or score.deviation is None else f"{score.deviation:.2f}"
        writer.writerow([
            cell.task, cell.name, f"{score.mean:.2f}" if score else "", deviation, len(cell.seeds),
            " ".join(map(str, cell.scored_steps)), cell.episodes or 0, cell.config["training"].get("precision"),
            ", ".join(cell.shortfalls) or "complete",
        ])  # fmt: skip
    return text.getvalue()


def check_results(folder: Path) -> list[str]:
    """Returns what is wrong with a folder of results, in words; an empty list if nothing is.

    Every folder must be a cell in its place, `<task>/<name>`, and the index must be up to date.
    """
    cells = find_cells([folder])
    problems = [problem for cell in cells for problem in _problems(cell, folder)]
    known = {(cell.run.path / name).resolve() for cell in cells for name in CELL_FILES}
    allowed = {(folder / name).resolve() for name in (INDEX, "README.md")}
    problems += [
        f"{file} does not belong to a cell"
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.resolve() not in known | allowed
    ]
    index = folder / INDEX
    if not index.exists() or index.read_text() != _index(cells):
        problems.append(f"{index} is not up to date: run 'gtrl results index {folder}'")
    return problems


def _problems(cell: Cell, folder: Path) -> Iterator[str]:
    """Yields what is wrong with one cell."""
    path, config = cell.run.path, cell.config
    place = path.relative_to(folder).parts
    if len(place) != 2 or place[0] != cell.task or not is_folder_name(place[1]):
        yield f"{path} is not at {folder}/{cell.task}/NAME"
    elif not is_cell_name(place[1], cell.method):
        yield f"{path} is a run of {cell.method}, so it must be named {cell.method} or {cell.method}-VARIANT"
    if not cell.rates:
        yield f"{path} has no complete evaluation"
    for column, allowed in (("seed", cell.run.seeds), ("algorithm", [cell.method])):
        other = sorted({row[column] for row in cell.run.evaluations()} - set(allowed))
        if other:
            yield f"{path}/eval.csv has rows of {column} {other[0]}, which config.json does not have"
    source = str(config["data"].get("source") or "")
    if source.startswith("/"):
        yield f"{path}/config.json has a path of the machine: {source}"
    for name in CELL_FILES:
        if (path / name).exists() and (path / name).stat().st_size > MAX_FILE_BYTES:
            yield f"{path}/{name} is larger than {MAX_FILE_BYTES // 2**20} MiB"

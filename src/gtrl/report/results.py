"""The folder `results/`: the small files of measured runs, one folder per cell, and an index of them.

`results/<task>/<name>/` has `config.json`, `eval.csv`, a thinned `metrics.jsonl` and `timing.jsonl`, and, if the run
has them, `diagnostics.json` and `maps.npz`. Runs that trained different seeds of a cell are joined. `index.csv` lists
all cells with their score and where they fall short of the protocol.
"""

import csv
import io
import json
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gtrl.errors import ConfigError, RunError
from gtrl.io.atomic import write_text
from gtrl.io.jsonl import read_rows
from gtrl.report.cells import INDEX, Cell, find_cells
from gtrl.runs.run import Run

INDEX_COLUMNS = ("task", "name", "success", "deviation", "seeds", "scored_steps", "episodes", "precision", "protocol")
OPTIONAL_FILES = ("diagnostics.json", "maps.npz")
METRIC_STEPS = 50  # about how many logged steps of `metrics.jsonl` are kept
# Parts of a config that must be the same in the runs that are joined.
JOINED_PARTS = ("task", "algorithm", "training", "data.digest")
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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
        parts.setdefault(folder / _safe(cell.task, "task") / _safe(name or _plain_name(cell), "cell"), []).append(
            cell.run
        )
    if name and len(parts) > 1:
        raise ConfigError(f"--name is for the runs of one cell, but these runs are of {len(parts)} tasks.")
    for target, runs in parts.items():
        existing = [Run(target)] if Run(target).exists and not replace else []
        _write_cell(target, [*existing, *runs])
    write_index(folder)
    return list(parts)


def _plain_name(cell: Cell) -> str:
    """The cell's name without the path that tells apart several runs of one cell."""
    return cell.name.removesuffix(f" ({cell.run.path})")


def _safe(name: str, what: str) -> str:
    """Returns a name if it can be the name of a folder on any system; raises a ConfigError otherwise."""
    if not _SAFE_NAME.fullmatch(name):
        raise ConfigError(f"the name of the {what} is {name!r}; use letters, digits, '.', '_' and '-' (--name).")
    return name


# --- one cell ---


def _write_cell(target: Path, runs: Sequence[Run]) -> None:
    """Writes the files of one or several runs to the folder of a cell."""
    rows = [row for run in runs for row in run.evaluations()]
    if not rows:
        raise RunError(f"{runs[0].path} was not evaluated yet: gtrl evaluate {runs[0].path}")
    config = _joined_config(runs)
    metrics = [row for run in runs for row in _thinned(list(run.metrics()))]
    timing = [row for run in runs for row in _thinned(list(read_rows(run.path / "timing.jsonl")))]
    optional = {
        name: run.path / name for run in reversed(runs) for name in OPTIONAL_FILES if (run.path / name).exists()
    }
    for name, source in optional.items():
        target.mkdir(parents=True, exist_ok=True)
        if source != target / name:
            shutil.copyfile(source, target / name)
    cell = Run(target)
    (target / "eval.csv").unlink(missing_ok=True)  # all its rows are in `rows`, unless it is replaced
    cell.save_config(config)
    cell.add_evaluations(rows)
    metrics.sort(key=lambda row: (row["step"], row["seed"]))
    for name, lines in (("metrics.jsonl", metrics), ("timing.jsonl", timing)):
        write_text(target / name, "".join(json.dumps(line) + "\n" for line in lines))


def _thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keeps about `METRIC_STEPS` steps, evenly spaced, the last one, and all rows that record a start."""
    steps = sorted({row["step"] for row in rows})
    kept = {*steps[:: max(1, len(steps) // METRIC_STEPS)], *steps[-1:]}
    return [row for row in rows if row["step"] in kept or "start_up_seconds" in row]


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
        episodes = [row["episodes"] for row in cell.rows if row["step"] in cell.scored_steps]
        deviation = "" if score is None or score.deviation is None else f"{score.deviation:.2f}"
        writer.writerow([
            cell.task, cell.name, f"{score.mean:.2f}" if score else "", deviation, len(cell.seeds),
            " ".join(map(str, cell.scored_steps)), min(episodes, default=0), cell.config["training"].get("precision"),
            ", ".join(cell.shortfalls) or "complete",
        ])  # fmt: skip
    return text.getvalue()


def check_results(folder: Path) -> list[str]:
    """Returns what is wrong with a folder of results, in words; an empty list if nothing is.

    Every folder must be a cell in its place, `<task>/<name>`, and the index must be up to date.
    """
    cells = find_cells([folder])
    problems = []
    for cell in cells:
        place = cell.run.path.relative_to(folder).parts
        if len(place) != 2 or place[0] != cell.task or not _SAFE_NAME.fullmatch(place[1]):
            problems.append(f"{cell.run.path} is not at {folder}/{cell.task}/NAME")
        if not cell.rates:
            problems.append(f"{cell.run.path} has no complete evaluation")
        source = str(cell.config["data"].get("source") or "")
        if source.startswith("/"):
            problems.append(f"{cell.run.path}/config.json has a path of the machine: {source}")
    known = {file.resolve() for cell in cells for file in cell.run.path.rglob("*")}
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

"""Cells: a method, or a variant of it, on a task, as measured by one run; what tables and figures are made of.

A cell is read from a run directory, or from `results/<task>/<name>/`, which holds the small files of one. Its score is
that of the paper's protocol: success over all goals, averaged over the last three checkpoints, then mean and standard
deviation over seeds. A shorter run is scored at the last step at which all of its seeds were evaluated.

Of several evaluations of one policy, those with different base seeds are pooled, since their episodes differ. (Of those
with the same base seed `eval.csv` keeps the longest, which contains the episodes of the others.)
"""

import json
import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gtrl.errors import RunError, UnknownNameError
from gtrl.runs.run import Run, display_name
from gtrl.tasks import EPISODES_PER_GOAL, EXTRA_TASKS, GRADIENT_STEPS, SCORED_STEPS, TASKS
from gtrl.tasks.ablations import ABLATIONS
from gtrl.tasks.beyond import BEYOND

log = logging.getLogger(__name__)
PROTOCOL_SEEDS = 4  # of the paper
INDEX = "index.csv"  # lists the cells of a folder of results
# Fields of training that do not change what is learned, or that tables show by themselves.
_FREE_FIELDS = {
    "steps", "precision", "fast", "devices", "log_every", "shard_steps", "checkpoints", "checkpoint_every",
    "checkpoint_minutes", "keep",
}  # fmt: skip


class Score(NamedTuple):
    """Success in percent: mean and standard deviation over seeds."""

    mean: float
    deviation: float | None  # with n - 1 in the denominator; None for one seed
    seeds: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Score | None":
        """Returns the score of a list with one value per seed; None if it is empty."""
        values = list(values)
        if not values:
            return None
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Cell:
    """The measurements of one run, scored by the protocol."""

    run: Run
    name: str  # the method, or the method and a variant: gtrl, gtrl-dc

    # --- what was run ---

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of `config.json`."""
        return self.run.config

    @cached_property
    def task(self) -> str:
        """The name of the task that was evaluated, or else of the task that was trained on; may be empty."""
        tasks = sorted({row["task"] for row in self.run.evaluations()})
        trained = self.config.get("task") or ""
        return trained if trained in tasks or not tasks else tasks[0]

    @property
    def method(self) -> str:
        """The name of the method."""
        return str(self.config["algorithm"]["name"])

    @property
    def gamma(self) -> float | None:
        """The discount of the method's values; None if it has none."""
        gamma = self.config["algorithm"].get("gamma")
        return gamma if isinstance(gamma, float) and 0 < gamma < 1 else None

    @property
    def title(self) -> str:
        """The name in tables and figures: GTRL, TD-n, GTRL-dc."""
        method = self.method
        if self.name == method:
            return display_name(method)
        suffix = self.name.removeprefix(f"{method}-")
        return f"{display_name(method)}-{suffix}" if suffix != self.name else self.name

    @property
    def is_variant(self) -> bool:
        """Whether it is a variant of its method, such as an ablation."""
        return self.name != self.method

    # --- success ---

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of `eval.csv` for the task, one per seed, step and goal: rows of different base seeds are pooled."""
        pooled: dict[tuple[int, int, str], list[int]] = defaultdict(lambda: [0, 0])
        for row in self.run.evaluations():
            if row["task"] == self.task and row["episodes"] > 0:
                counts = pooled[row["seed"], row["step"], row["goal"]]
                counts[0] += row["episodes"]
                counts[1] += row["successes"]
        return [
            {"seed": seed, "step": step, "goal": goal, "episodes": episodes, "successes": successes}
            for (seed, step, goal), (episodes, successes) in sorted(pooled.items())
        ]

    @cached_property
    def goals(self) -> list[str]:
        """The names of the goals that were evaluated."""
        return sorted({row["goal"] for row in self.rows}, key=lambda goal: (len(goal), goal))

    @cached_property
    def rates(self) -> dict[tuple[int, int], dict[str, float]]:
        """Success in percent of each goal, by (seed, step). Policies that lack a goal are left out."""
        rates: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
        for row in self.rows:
            rates[row["seed"], row["step"]][row["goal"]] = 100 * row["successes"] / row["episodes"]
        return {policy: by_goal for policy, by_goal in rates.items() if len(by_goal) == len(self.goals)}

    @cached_property
    def steps(self) -> list[int]:
        """The steps that were evaluated."""
        return sorted({step for _, step in self.rates})

    @cached_property
    def scored_steps(self) -> list[int]:
        """The steps that count for the score: those of the protocol, or else the last one that all seeds have."""
        of_protocol = [step for step in self.steps if step in SCORED_STEPS]
        seeds = {seed for seed, _ in self.rates}
        common = [step for step in self.steps if all((seed, step) in self.rates for seed in seeds)]
        return of_protocol or (common or self.steps)[-1:]

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds that have a score."""
        return sorted({seed for seed, step in self.rates if step in self.scored_steps})

    @property
    def episodes(self) -> int | None:
        """The smallest number of episodes behind a goal's score; None without a score."""
        return min((row["episodes"] for row in self.rows if row["step"] in self.scored_steps), default=None)

    def seed_scores(self, goal: str | None = None) -> dict[int, float]:
        """Returns the score of each seed: success over all goals, or for one, averaged over the scored steps."""
        scores = {}
        for seed in self.seeds:
            chosen = [self.rates[seed, step] for step in self.scored_steps if (seed, step) in self.rates]
            values = [np.mean(list(by_goal.values())) if goal is None else by_goal.get(goal) for by_goal in chosen]
            if values and None not in values:
                scores[seed] = float(np.mean(np.array(values, float)))
        return scores

    def score(self, goal: str | None = None) -> Score | None:
        """Returns mean and standard deviation over seeds; None if nothing was evaluated."""
        return Score.of(self.seed_scores(goal).values())

    def curve(self) -> list[tuple[int, Score]]:
        """Returns (step, score) of each evaluated step."""
        points = []
        for step in self.steps:
            values = [np.mean(list(by_goal.values())) for (_, other), by_goal in self.rates.items() if other == step]
            score = Score.of(map(float, values))
            if score:
                points.append((step, score))
        return points

    # --- the protocol ---

    @cached_property
    def shortfalls(self) -> list[str]:
        """Where the run has less than the paper's protocol, in words; empty if it is complete."""
        if not self.rates:
            return ["not evaluated"]
        found = []
        last = min(self.config["training"]["steps"], self.scored_steps[-1])
        if last < GRADIENT_STEPS:
            found.append(f"{last:,} steps")
        checkpoints = min(sum((seed, step) in self.rates for step in SCORED_STEPS) for seed in self.seeds)
        if checkpoints < len(SCORED_STEPS) and not found:
            found.append(f"{checkpoints} of {len(SCORED_STEPS)} checkpoints")
        if len(self.seeds) < PROTOCOL_SEEDS:
            found.append(f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}")
        if (self.episodes or 0) < EPISODES_PER_GOAL:
            found.append(f"{self.episodes} episode{'s' if self.episodes != 1 else ''} per goal")
        expected = TASKS[self.task].goals if self.task in TASKS else None
        if isinstance(expected, int) and len(self.goals) < expected:
            found.append(f"{len(self.goals)} of {expected} goals")
        if other := self._other_settings:
            found.append(f"other settings: {', '.join(other)}")
        return found

    @property
    def _other_settings(self) -> list[str]:
        """The changed fields that the name does not stand for; any may belong to a variant of the user's own."""
        of_variant = _VARIANTS.get(self.name)
        if self.is_variant and of_variant is None:
            return []
        return [name for name in self.changed_fields if name not in (of_variant or {})]

    @cached_property
    def changed_fields(self) -> list[str]:
        """The fields of the method and of training whose values are not the defaults for this task."""
        from gtrl.algorithms import make
        from gtrl.training.config import Training

        try:
            method = make(self.method, self.task if self.task in TASKS | EXTRA_TASKS else None)
        except UnknownNameError:
            return []  # a method of a plugin, which is not imported to read its results
        changed = []
        for part, defaults in (("algorithm", method), ("training", Training())):
            known = json.loads(json.dumps(asdict(defaults)))
            given = {name: value for name, value in self.config[part].items() if name in known}
            changed += [name for name, value in given.items() if value != known[name] and name not in _FREE_FIELDS]
        return changed

    @property
    def is_complete(self) -> bool:
        """Whether it was measured by the paper's protocol: 1M steps, four seeds, three checkpoints, 50 episodes."""
        return not self.shortfalls

    # --- time ---

    def seconds_at(self, steps: Sequence[int]) -> list[float]:
        """Returns the training time in seconds at each step, from `timing.jsonl`; NaN where it is not recorded.

        Pauses between two starts of a run do not count.
        """
        known, spent = [0.0], [0.0]
        previous = None
        for row in self.run.timing():
            if "start_up_seconds" in row:  # the run was started or resumed
                previous = row["time"] - row["start_up_seconds"]
            if previous is not None and row["step"] > known[-1]:
                known.append(float(row["step"]))
                spent.append(spent[-1] + max(0.0, row["time"] - previous))
            previous = row["time"]
        return [float(np.interp(step, known, spent)) if 0 < step <= known[-1] else math.nan for step in steps]


# --- finding cells ---


def find_cells(paths: Iterable[str | Path]) -> list[Cell]:
    """Returns the cells of run directories, and of all run directories below other folders, in a fixed order.

    Raises `RunError` for a path without any, unless it is a folder of results that is still empty.
    """
    runs: dict[Path, Run] = {}
    for path in paths:
        folder = Path(path).expanduser()
        found = list(runs_below(folder))
        if not found and not (folder / INDEX).exists():
            raise RunError(f"{path} holds no run: there is no config.json in it or below it.")
        runs |= {run.path.resolve(): run for run in found}
    cells = [Cell(run, _name_of(run)) for run in runs.values()]
    return sorted(_with_distinct_names(cells), key=lambda cell: (task_order(cell.task), method_order(cell)))


def runs_below(folder: Path) -> Iterator[Run]:
    """Yields the run in a folder, or else the runs in its subfolders; hidden folders are left out."""
    return _runs_below(folder, set())


def _runs_below(folder: Path, visited: set[Path]) -> Iterator[Run]:
    if folder.resolve() in visited:  # by a symbolic link
        return
    visited.add(folder.resolve())
    if Run(folder).exists:
        yield Run(folder)
    elif folder.is_dir():
        for child in sorted(folder.iterdir()):
            if child.is_dir() and not child.name.startswith("."):
                yield from _runs_below(child, visited)


def _name_of(run: Run) -> str:
    """The name of a run's cell.

    It is the name of the folder, if that is in a folder of the task and named after the method, as in `results/`. Else
    it is the name of the variant whose fields the run has, or of the method.
    """
    check_config(run)
    cell = Cell(run, "")
    folder = run.path.resolve()
    if folder.parent.name == cell.task and is_cell_name(folder.name, cell.method):
        return folder.name
    fields = run.config["algorithm"]
    matching = [
        variant
        for variant, changed in _VARIANTS.items()
        if cell.method == "gtrl" and all(_same(fields.get(name), value) for name, value in changed.items())
    ]
    return max(matching, key=lambda variant: len(_VARIANTS[variant])) if matching else cell.method


def _same(saved: Any, value: Any) -> bool:
    """Whether a value of `config.json` is that of a field; JSON has lists for tuples."""
    return saved == (list(value) if isinstance(value, tuple) else value)


def is_cell_name(name: str, method: str) -> bool:
    """Returns whether a cell of a method may have this name: the method's, or `<method>-<variant>`."""
    return name == method or (name.startswith(f"{method}-") and name not in _METHODS)


def check_config(run: Run) -> None:
    """Raises `RunError` if the parts of `config.json` that reports read have other types."""
    config = run.config
    parts = {"algorithm": dict, "training": dict, "data": dict, "algorithm.name": str, "training.steps": int}
    for path, kind in parts.items():
        value: Any = config
        for key in path.split("."):
            value = value[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise RunError(f"{run.path}/config.json is damaged: '{path}' is {value!r:.60}.")
    if not isinstance(config.get("task"), str | None):
        raise RunError(f"{run.path}/config.json is damaged: 'task' is {config['task']!r:.60}.")
    _ = run.seeds  # checks them


def _with_distinct_names(cells: Sequence[Cell]) -> list[Cell]:
    """Adds the run's path to names that occur twice on a task."""
    places: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        places[cell.task, cell.name].append(cell)
    for (task, _), same in places.items():
        if len(same) > 1:
            log.warning(
                "there are %s runs of %s on %s, so none of them is in its column: join their seeds with 'gtrl results "
                "add', or rename the folder of one to %s/%s-VARIANT.",
                len(same), same[0].title, task or "own data", task, same[0].method,
            )  # fmt: skip
    return [
        Cell(cell.run, f"{cell.name} ({cell.run.path})") if len(places[cell.task, cell.name]) > 1 else cell
        for cell in cells
    ]


_METHODS = ("bc", "fbc", "ivl", "iql", "td", "td-n", "crl", "mc", "qrl", "tdp", "coe", "trl", "gtrl")
# The fields that each variant of GTRL changes.
_VARIANTS = {**{ablation.name: ablation.fields for ablation in ABLATIONS}, **BEYOND}


def task_order(task: str) -> tuple[int, str]:
    """Returns a sort key: the paper's tasks in its order, then others by name."""
    return (list(TASKS).index(task) if task in TASKS else len(TASKS), task)


def method_order(cell: Cell) -> tuple[int, int, str]:
    """Returns a sort key: the paper's methods in its order, each followed by its variants, then others by name."""
    place = _METHODS.index(cell.method) if cell.method in _METHODS else len(_METHODS)
    variant = [*_VARIANTS, cell.name].index(cell.name)
    return (place, variant if cell.is_variant else -1, cell.name)

"""Cells: a method, or a variant of it, on a task, as measured by one run; what tables and figures are made of.

A cell is read from a run directory, or from `results/<task>/<name>/`, which holds the small files of one. Its score is
that of the paper's protocol: success over all goals, averaged over the last three checkpoints, then mean and standard
deviation over seeds.

Of several evaluations of one policy, those with different base seeds are pooled, since their episodes differ. (Of those
with the same base seed `eval.csv` keeps the longest, which contains the episodes of the others.)
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gtrl.errors import RunError
from gtrl.io.jsonl import read_rows
from gtrl.runs.run import Run, display_name
from gtrl.tasks import EPISODES_PER_GOAL, GRADIENT_STEPS, SCORED_STEPS, TASKS
from gtrl.tasks.ablations import ABLATIONS

PROTOCOL_SEEDS = 4  # of the paper
INDEX = "index.csv"  # lists the cells of a folder of results


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
    def seeds(self) -> list[int]:
        """The seeds that were evaluated."""
        return sorted({seed for seed, _ in self.rates})

    @cached_property
    def steps(self) -> list[int]:
        """The steps that were evaluated."""
        return sorted({step for _, step in self.rates})

    @cached_property
    def scored_steps(self) -> list[int]:
        """The steps that count for the score: those of the protocol that were evaluated, or else the last one."""
        return [step for step in self.steps if step in SCORED_STEPS] or self.steps[-1:]

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
            values = [
                np.mean(list(self.rates[seed, step].values())) for seed in self.seeds if (seed, step) in self.rates
            ]
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
        steps, episodes = self.config["training"]["steps"], min(row["episodes"] for row in self._scored_rows)
        found = []
        if steps < GRADIENT_STEPS or self.steps[-1] < GRADIENT_STEPS:
            found.append(f"{min(steps, self.steps[-1]):,} steps")
        missing = [step for step in SCORED_STEPS if any((seed, step) not in self.rates for seed in self.seeds)]
        if missing and not found:
            found.append(f"{len(SCORED_STEPS) - len(missing)} of {len(SCORED_STEPS)} checkpoints")
        if len(self.seeds) < PROTOCOL_SEEDS:
            found.append(f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}")
        if episodes < EPISODES_PER_GOAL:
            found.append(f"{episodes} episode{'s' if episodes > 1 else ''} per goal")
        expected = TASKS[self.task].goals if self.task in TASKS else None
        if isinstance(expected, int) and len(self.goals) < expected:
            found.append(f"{len(self.goals)} of {expected} goals")
        return found

    @property
    def _scored_rows(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["step"] in self.scored_steps]

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
        for row in read_rows(self.run.path / "timing.jsonl"):
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
    if Run(folder).exists:
        yield Run(folder)
    elif folder.is_dir():
        for child in sorted(folder.iterdir()):
            if child.is_dir() and not child.name.startswith("."):
                yield from runs_below(child)


def _name_of(run: Run) -> str:
    """The folder's name if the run is in a folder of its task, as in `results/`; else the name of its method."""
    method = str(run.config["algorithm"]["name"])
    folder = run.path.resolve()
    in_task_folder = folder.parent.name == run.config.get("task")
    return folder.name if in_task_folder and folder.name.startswith(method) else method


def _with_distinct_names(cells: Sequence[Cell]) -> list[Cell]:
    """Adds the run's path to names that occur twice on a task."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for cell in cells:
        counts[cell.task, cell.name] += 1
    return [
        Cell(cell.run, f"{cell.name} ({cell.run.path})") if counts[cell.task, cell.name] > 1 else cell for cell in cells
    ]


_METHODS = ("bc", "fbc", "ivl", "iql", "td", "td-n", "crl", "mc", "qrl", "tdp", "coe", "trl", "gtrl")
_VARIANTS = [ablation.name for ablation in ABLATIONS]


def task_order(task: str) -> tuple[int, str]:
    """Returns a sort key: the paper's tasks in its order, then others by name."""
    return (list(TASKS).index(task) if task in TASKS else len(TASKS), task)


def method_order(cell: Cell) -> tuple[int, int, str]:
    """Returns a sort key: the paper's methods in its order, each followed by its variants, then others by name."""
    place = _METHODS.index(cell.method) if cell.method in _METHODS else len(_METHODS)
    variant = _VARIANTS.index(cell.name) if cell.name in _VARIANTS else len(_VARIANTS)
    return (place, variant if cell.is_variant else -1, cell.name)

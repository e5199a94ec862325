"""The card of an expert: how it was trained and how good it is."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from gtrl import console
from gtrl.data.collect import make_collector
from gtrl.data.collect.expert import Expert, Experts, shipped_expert
from gtrl.data.collect.maze import EXPERT_NOISE
from gtrl.envs.falls import ANT_TORSO_HEIGHTS, HUMANOID_HEAD_HEIGHT
from gtrl.errors import DataError
from gtrl.experts.measure import MIN_DISTANCE, WINDOW, Figures, measure
from gtrl.experts.settings import SKILL_NAMES
from gtrl.experts.skills import make_skill
from gtrl.io import mlp
from gtrl.tasks import OGBenchTask, ogbench_task

DIRECTIONS = 20
EPISODES_PER_TASK_EPISODE = 10  # episodes in the open field for each one of the task, whose simulator is slower
TASKS = {"ant": "antmaze-large-stitch", "humanoid": "humanoidmaze-large-stitch", "dribble": "antsoccer-arena-navigate"}
COLUMNS = ("mean action", f"noise {EXPERT_NOISE}")
_FALLEN = {
    "ant": f"its torso is outside {ANT_TORSO_HEIGHTS[0]} to {ANT_TORSO_HEIGHTS[1]} m, or upside down",
    "humanoid": f"its head is below {HUMANOID_HEAD_HEIGHT} m",
}


def skill_of_file(expert: Expert, path: Path, skill: str | None) -> str:
    """Returns what an expert has learned: as the user says, or as its file says."""
    found = skill or expert.header.get("skill")
    if not isinstance(found, str) or found not in SKILL_NAMES:
        raise DataError(f"{path} does not say what it has learned: give --skill {' | '.join(SKILL_NAMES)}.")
    return found


def figures_of(
    path: Path, skill: str | None = None, *, episodes: int = 50, threads: int = 1, seed: int = 0, show: bool = True
) -> dict[str, Figures]:
    """Measures an expert with and without the noise of data collection; `episodes` in each of 20 directions."""
    expert = Expert(path)
    name = skill_of_file(expert, path, skill)
    chosen, act = make_skill(name, expert.frame), jax.jit(partial(_act, expert.network))
    found = (expert.network.widths[0], expert.network.widths[-1])
    if found != (chosen.input_size, chosen.model.nu):
        needed = f"{name} needs {chosen.input_size} to {chosen.model.nu}"
        raise DataError(f"{path} maps {found[0]} numbers to {found[1]}, but {needed}.")
    task, count = ogbench_task(TASKS[name]), max(1, DIRECTIONS * episodes // EPISODES_PER_TASK_EPISODE)
    field_steps = DIRECTIONS * episodes * (chosen.episode_steps - 1)
    total = len(COLUMNS) * field_steps + count * (task.trajectory_length + 1)
    with console.bar(f"measuring: {name}", total, "steps", show) as bar:
        options: dict[str, Any] = {"directions": DIRECTIONS, "episodes": episodes, "threads": threads, "seed": seed}
        figures = {
            column: measure(chosen, act, noise=noise, progress=bar, **options)
            for column, noise in zip(COLUMNS, (0.0, EXPERT_NOISE), strict=True)
        }
        figures[COLUMNS[1]] |= in_task(path, task, name, count, seed, bar)
    return figures


def _act(network: Any, inputs: jax.Array) -> jax.Array:
    """The expert's action for many inputs at once."""
    if network.input_mean is not None:
        inputs = (inputs - network.input_mean) / network.input_deviation
    output = mlp.forward(network.layers, inputs, jnp, network.activation)
    return jnp.tanh(output) if network.output == "tanh" else jnp.clip(output, -1, 1)


def in_task(
    path: Path, task: OGBenchTask, skill: str, episodes: int, seed: int = 0, progress: Any = lambda _: None
) -> Figures:
    """Returns how well an expert collects data: how often it reaches its goals in a task, with noise."""
    experts = Experts(walk=path)
    if skill == "dribble":
        if shipped_expert(task, "walk") is None:
            return {}
        experts = Experts(dribble=path)
    collector, counts = make_collector(task, experts.for_task(task)), []
    for episode in range(episodes):
        counts.append(collector.episode(np.random.SeedSequence([seed, episode]))["arrivals"].sum())
        progress(task.trajectory_length + 1)
    if skill == "dribble":
        return {f"goals reached per episode of {task.name}": float(np.mean(counts))}
    return {f"goals reached, 4 cells away within {task.trajectory_length} steps": float(np.mean(np.array(counts) > 0))}


def figures_table(title: str, figures: Mapping[str, Figures]) -> Table:
    """Returns the figures as a table for the terminal."""
    return console.table(title, ["", *figures], _rows(figures))


def _rows(figures: Mapping[str, Figures]) -> list[list[str]]:
    names = dict.fromkeys(name for column in figures.values() for name in column)
    return [[name, *(_shown(name, column.get(name)) for column in figures.values())] for name in names]


def card_text(path: Path, figures: Mapping[str, Figures], skill: str | None = None) -> str:
    """Returns the text of a card, in Markdown."""
    expert = Expert(path)
    name, header = skill_of_file(expert, path, skill), expert.header
    lines = [f"# Expert: {name}", ""]
    training, step = header.get("training"), header.get("step")
    if header.get("skill") == name and isinstance(training, dict) and isinstance(step, int):
        lines += [
            f"Trained with `gtrl expert train {name}`, gtrl {header.get('version')}: {step:,} simulator steps.",
            "",
        ]
    how = "with the ant of the package walking to the ball" if name == "dribble" else "with noise"
    body = "humanoid" if name == "humanoid" else "ant"
    lines += [
        f"| | {' | '.join(figures)} |",
        f"|---|{'---:|' * len(figures)}",
        *(f"| {' | '.join(row)} |" for row in _rows(figures)),
        "",
        f"Measured with `gtrl expert measure` in an open field; goals reached are those of {TASKS[name]},",
        f"{how}. The {body} has fallen",
        f"where {_FALLEN[body]}.",
    ]
    if name != "dribble":
        lines += [
            f"Directions are those of {WINDOW} steps; where these cover less than {MIN_DISTANCE} m it stands still."
        ]
    if isinstance(training, dict):
        settings = [f"- {str(key).replace('_', ' ')}: {value}" for key, value in training.items()]
        lines += ["", "Settings of the training:", "", *settings]
    return "\n".join(lines) + "\n"


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name.startswith(("episodes with", "episodes in", "share", "goals reached,", "ball within")):
        return f"{value:.2%}"
    return f"{value:,.0f}" if name == "episodes" else f"{value:.3g}"

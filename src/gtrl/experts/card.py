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
from gtrl.data.collect.expert import Expert, Experts
from gtrl.data.collect.maze import EXPERT_NOISE, MazeCollector
from gtrl.errors import DataError
from gtrl.experts.measure import Figures, measure
from gtrl.experts.skills import SKILLS, make_skill
from gtrl.io import mlp
from gtrl.tasks import ogbench_task

DIRECTIONS = 20
MAZE_TASKS = {"ant": "antmaze-large-stitch", "humanoid": "humanoidmaze-large-stitch"}
COLUMNS = ("mean action", f"noise {EXPERT_NOISE}")


def skill_of_file(expert: Expert, path: Path, skill: str | None) -> str:
    """Returns what an expert has learned: as the user says, or as its file says."""
    found = skill or expert.header.get("skill")
    if found not in SKILLS:
        raise DataError(f"{path} does not say what it has learned: give --skill {' | '.join(SKILLS)}.")
    return found


def figures_of(
    path: Path, skill: str | None = None, *, episodes: int = 50, threads: int = 1, seed: int = 0
) -> dict[str, Figures]:
    """Measures an expert with and without the noise of data collection; `episodes` in each of 20 directions."""
    expert = Expert(path)
    name = skill_of_file(expert, path, skill)
    chosen, act = make_skill(name), jax.jit(partial(_act, expert.network))
    found = (expert.network.widths[0], expert.network.widths[-1])
    if found != (chosen.input_size, chosen.model.nu):
        needed = f"{name} needs {chosen.input_size} to {chosen.model.nu}"
        raise DataError(f"{path} maps {found[0]} numbers to {found[1]}, but {needed}.")
    options = {"directions": DIRECTIONS, "episodes": episodes, "threads": threads, "seed": seed}
    figures = {
        column: measure(chosen, act, noise=noise, **options)
        for column, noise in zip(COLUMNS, (0.0, EXPERT_NOISE), strict=True)
    }
    if name in MAZE_TASKS:
        figures[COLUMNS[1]] |= in_maze(path, MAZE_TASKS[name], DIRECTIONS * episodes // 10, seed)
    return figures


def _act(network: Any, inputs: jax.Array) -> jax.Array:
    """The expert's action for many inputs at once."""
    if network.input_mean is not None:
        inputs = (inputs - network.input_mean) / network.input_deviation
    output = mlp.forward(network.layers, inputs, jnp, network.activation)
    return jnp.tanh(output) if network.output == "tanh" else jnp.clip(output, -1, 1)


def in_maze(path: Path, task: str, episodes: int, seed: int = 0) -> Figures:
    """Returns how often an expert with noise reaches a goal four cells away, within an episode of stitch data."""
    chosen = ogbench_task(task)
    collector = MazeCollector(chosen, Experts(walk=path))
    seeds = [np.random.SeedSequence([seed, episode]) for episode in range(episodes)]
    reached = np.mean([collector.episode(each)["arrivals"].any() for each in seeds])
    return {f"goals reached, 4 cells away within {chosen.trajectory_length} steps": float(reached)}


def figures_table(title: str, figures: Mapping[str, Figures]) -> Table:
    """Returns the figures as a table for the terminal."""
    return console.table(title, ["", *figures], _rows(figures))


def _rows(figures: Mapping[str, Figures]) -> list[list[str]]:
    names = dict.fromkeys(name for column in figures.values() for name in column)
    return [[name, *(_shown(name, column.get(name)) for column in figures.values())] for name in names]


def card_text(path: Path, figures: Mapping[str, Figures]) -> str:
    """Returns the text of a card, in Markdown."""
    header = Expert(path).header
    trained = [f"- {key.replace('_', ' ')}: {value}" for key, value in (header.get("training") or {}).items()]
    lines = [
        f"# Expert: {header.get('skill')}",
        "",
        f"Trained with `gtrl expert train {header.get('skill')}`, gtrl {header.get('version')}, "
        f"{header.get('step', 0):,} simulator steps. Measured with `gtrl expert measure`.",
        "",
        f"| | {' | '.join(figures)} |",
        f"|---|{'---:|' * len(figures)}",
        *(f"| {' | '.join(row)} |" for row in _rows(figures)),
        "",
        "Settings of the training:",
        "",
        *trained,
    ]
    return "\n".join(lines) + "\n"


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name.startswith(("episodes with", "share", "goals reached", "ball within")):
        return f"{value:.2%}"
    return f"{value:,.0f}" if name == "episodes" else f"{value:.3g}"

"""The luck gap: how far the value lies above or below the return that its own policy gets."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gtrl.envs.maze import Maze
from gtrl.evaluation.diagnostics.sections import (
    ALL,
    CELL_EDGES,
    NO_PATH,
    STEP_EDGES,
    Section,
    bins,
    implied_steps,
    mean_over_seeds,
)
from gtrl.evaluation.rollout import Outcome
from gtrl.evaluation.trained import TrainedNets

SMALL_GAP = 0.05  # gaps below this are called small


class GapRow(NamedTuple):
    """The states in one bin of distances: their number, and means over them."""

    distance: str
    states: int
    value: float
    outcome: float  # the return
    gap: float  # value minus return: positive where the value is too optimistic


class Visits(NamedTuple):
    """States along episodes, with what their policy got from there on."""

    seeds: np.ndarray  # (N,) position of the seed
    observations: np.ndarray  # (N, observation_dim)
    goals: np.ndarray  # (N, goal_dim)
    returns: np.ndarray  # (N,) gamma^(T - t) if the episode succeeded after T steps, else 0


def luck_gap(
    values: np.ndarray,
    returns: np.ndarray,
    distances: np.ndarray,
    edges: Sequence[int] = CELL_EDGES,
    seeds: np.ndarray | None = None,
) -> list[GapRow]:
    """Returns the mean value, return and gap of all states, then of each bin of distances that is not empty.

    Args:
        values: (N,) V(s, g) of each state.
        returns: (N,) the return from that state, in the same units.
        distances: (N,) from the state to the goal; negative if there is no path.
        edges: The lower ends of the bins.
        seeds: (N,) the seed of each state: means are over seeds, each of which counts the same. By default one seed.
    """
    seeds = np.zeros(len(values), int) if seeds is None else seeds
    rows = []
    for label, mask in [(ALL, np.ones(len(values), bool)), *bins(distances, edges)]:
        value, outcome = (mean_over_seeds(numbers[mask], seeds[mask]) for numbers in (values, returns))
        rows.append(GapRow(label, int(mask.sum()), value, outcome, value - outcome))
    return rows


def visits(outcomes: Sequence[Sequence[Outcome]], keep_every: int, gamma: float) -> Visits:
    """Returns the kept states of all episodes; `outcomes` has the episodes of each seed."""
    parts = []
    for seed, episodes in enumerate(outcomes):
        # In the order of the episodes, not in that in which the workers finished.
        for outcome in sorted(episodes, key=lambda outcome: (outcome.episode.goal, outcome.episode.number)):
            assert outcome.observations is not None, "every episode has a first observation"
            count = len(outcome.observations)
            left = outcome.length - keep_every * np.arange(count)
            returns = gamma**left if outcome.success else np.zeros(count)
            goals = np.repeat(outcome.goal[None], count, 0)
            parts.append(Visits(np.full(count, seed), outcome.observations, goals, returns))
    return Visits(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def cell_distances(maze: Maze, positions: np.ndarray, goals: np.ndarray) -> np.ndarray:
    """Returns the shortest path, in cells, from each position to its goal, (N,); -1 without a path."""
    cells, goal_cells = maze.cells_at(positions), maze.cells_at(goals)
    distances = np.empty(len(cells), int)
    for goal in np.unique(goal_cells, axis=0):
        rows = (goal_cells == goal).all(1)
        distances[rows] = maze.distances((int(goal[0]), int(goal[1])))[tuple(cells[rows].T)]
    return distances


def luck_gap_section(
    trained: TrainedNets, outcomes: Sequence[Sequence[Outcome]], keep_every: int, maze: Maze | None
) -> Section:
    """Returns the section of the luck gap; distances are in cells of the maze, else in steps that the value implies."""
    gamma = trained.algorithm.gamma
    found = visits(outcomes, keep_every, gamma)
    values = np.empty(len(found.returns))
    for seed in range(len(outcomes)):
        rows = found.seeds == seed
        values[rows] = trained.values(seed, found.observations[rows], found.goals[rows])
    if maze:
        distances, edges = cell_distances(maze, found.observations[:, :2], found.goals), CELL_EDGES
        unit = "cells, shortest path without teleporters"
    else:
        distances, edges, unit = implied_steps(values, gamma), STEP_EDGES, "steps that the value implies"
    rows = luck_gap(values, found.returns, distances, edges, found.seeds)
    return Section(
        "luck-gap",
        f"Luck gap: value minus return, γ = {gamma:g}, {_described(outcomes)}",
        "The value V(s, g) at states along the policy's own episodes, and the return from there: γ to the power of the "
        "remaining steps if the episode succeeds, else 0. A positive gap means that the value is too optimistic. "
        f"Distances are in {unit}.",
        ("distance", "states", "value", "return", "gap"),
        [list(row) for row in rows],
        _finding(rows),
    )


def returns_section(outcomes: Sequence[Sequence[Outcome]], keep_every: int, maze: Maze | None, gamma: float) -> Section:
    """Returns the section for methods without a value to compare: the returns alone, by distance in a maze."""
    found = visits(outcomes, keep_every, gamma)
    distances = np.zeros(len(found.returns))
    if maze:
        distances = cell_distances(maze, found.observations[:, :2], found.goals)
    rows = luck_gap(found.returns, found.returns, distances, CELL_EDGES, found.seeds)
    return Section(
        "returns",
        f"Return, γ = {gamma:g}, {_described(outcomes)}",
        "The return from states along the policy's own episodes: γ to the power of the remaining steps if the episode "
        "succeeds, else 0. The method has no value that could be compared with it.",
        ("distance", "states", "return"),
        [[row.distance, row.states, row.outcome] for row in (rows if maze else rows[:1])],
    )


def _described(outcomes: Sequence[Sequence[Outcome]]) -> str:
    """The number of episodes and how many of them succeeded."""
    successes = [outcome.success for episodes in outcomes for outcome in episodes]
    return f"{len(successes)} episodes, {100 * np.mean(successes):.0f} % successful"


def _finding(rows: Sequence[GapRow]) -> str:
    overall, parts = rows[0], rows[1:]
    worst = max(parts, key=lambda row: abs(row.gap))
    where = "where there is no path" if worst.distance == NO_PATH else f"at distance {worst.distance}"
    where = f"{where} ({worst.gap:+.2f})"
    if abs(worst.gap) < SMALL_GAP:
        return f"The value agrees with the return to within {SMALL_GAP} at every distance."
    if abs(overall.gap) < SMALL_GAP:
        return f"The value agrees with the return on average ({overall.gap:+.2f}), but not {where}."
    kind, opposite = ("too optimistic", "too pessimistic")[:: 1 if overall.gap > 0 else -1]
    most = f"most {where}" if worst.gap * overall.gap > 0 else f"but {opposite} {where}"
    return f"The value is {kind}: {overall.gap:+.2f} on average, {most}."

#!/usr/bin/env python3
"""Exact values of a maze of more than 2,000 states: how long they take, and how much longer plain NumPy would.

    python benchmarks/theory.py

The comparison is made in a smaller maze, for NumPy takes minutes in the large one. Compilation counts in "seconds".
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gtrl import console
from gtrl.theory import examples
from gtrl.theory.maze import maze
from gtrl.theory.process import Process, uniform
from gtrl.theory.transitive import base_cases, iterates, transitive
from gtrl.theory.values import behaviour_values, divide_and_conquer_values, optimal_values

GAMMA = 0.99
LARGE, SMALL = 7, 3  # how often the teleport maze is magnified


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def magnified(factor: int) -> Process:
    return maze(examples.magnified(examples.TELEPORT_MAZE, factor)).process


def numpy_optimal_values(process: Process) -> np.ndarray:
    """Value iteration, an array operation for each action and outcome."""
    v = np.eye(process.states)
    while True:
        q = np.zeros_like(v)
        for a in range(process.actions):
            chance, to = process.probabilities[:, a], process.successors[:, a]
            q = np.maximum(q, sum(chance[:, k, None] * v[to[:, k]] for k in range(to.shape[1])))
        before, v = v, GAMMA * q
        np.fill_diagonal(v, 1)
        if np.abs(v - before).max() < 1e-13:
            return v


def numpy_transitive(v: np.ndarray, base: np.ndarray) -> np.ndarray:
    """The update one row at a time."""
    return np.where(base > 0, base, np.stack([(row[:, None] * v).max(0) for row in v]))


def main() -> None:
    process = magnified(LARGE)
    beta = uniform(process)
    rows = [
        [name, f"{timed(work)[1]:.2f}", f"{timed(work)[1]:.2f}"]
        for name, work in {
            "V*, every goal": lambda: optimal_values(process, GAMMA),
            "V_DC": lambda: divide_and_conquer_values(process, GAMMA),
            "V^β, every goal": lambda: behaviour_values(process, beta, GAMMA),
            "transitive updates until V_DC": lambda: list(iterates(process, GAMMA)),
        }.items()
    ]
    title = f"{process.states:,} states, {process.actions} actions, float64"
    console.print_table(console.table(title, ["", "seconds", "once compiled"], rows))

    process = magnified(SMALL)
    base = base_cases(process, GAMMA)
    rows = []
    for name, ours, plain in (
        ("V*, every goal", lambda: optimal_values(process, GAMMA), lambda: numpy_optimal_values(process)),
        ("one transitive update", lambda: transitive(base, base), lambda: numpy_transitive(base, base)),
    ):
        result, _ = timed(ours)
        took = min(timed(ours)[1] for _ in range(3))
        expected, numpy_took = timed(plain)
        np.testing.assert_allclose(result, expected, atol=1e-9)
        rows.append([name, f"{took:.3f}", f"{numpy_took:.3f}", f"{numpy_took / took:.1f} x"])
    title = f"{process.states:,} states"
    console.print_table(console.table(title, ["", "seconds, once compiled", "NumPy", "ratio"], rows))


if __name__ == "__main__":
    main()

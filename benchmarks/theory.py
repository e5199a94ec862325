#!/usr/bin/env python3
"""Times the exact values of a maze with more than 2,000 states, and compares them with plain NumPy.

    python benchmarks/theory.py

The comparison uses a smaller maze, because NumPy takes minutes in the large one. The column "seconds" includes
compilation.
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
LARGE_FACTOR, SMALL_FACTOR = 7, 3  # by which the teleport maze is magnified, per side


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Returns the result of a function and the seconds it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def magnified(factor: int) -> Process:
    """The process of the teleport maze with every cell replaced by factor x factor cells."""
    return maze(examples.magnified(examples.TELEPORT_MAZE, factor)).process


def numpy_optimal_values(process: Process) -> np.ndarray:
    """V* by value iteration, with one array operation per action and outcome."""
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
    """The transitive update, one row at a time."""
    return np.where(base > 0, base, np.stack([(row[:, None] * v).max(0) for row in v]))


def main() -> None:
    process = magnified(LARGE_FACTOR)
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

    process = magnified(SMALL_FACTOR)
    base = base_cases(process, GAMMA)
    rows = []
    for name, compiled, plain in (
        ("V*, every goal", lambda: optimal_values(process, GAMMA), lambda: numpy_optimal_values(process)),
        ("one transitive update", lambda: transitive(base, base), lambda: numpy_transitive(base, base)),
    ):
        result, _ = timed(compiled)
        seconds = min(timed(compiled)[1] for _ in range(3))
        expected, numpy_seconds = timed(plain)
        np.testing.assert_allclose(result, expected, atol=1e-9)
        rows.append([name, f"{seconds:.3f}", f"{numpy_seconds:.3f}", f"{numpy_seconds / seconds:.1f} x"])
    title = f"{process.states:,} states"
    console.print_table(console.table(title, ["", "seconds, once compiled", "NumPy", "ratio"], rows))


if __name__ == "__main__":
    main()

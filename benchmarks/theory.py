#!/usr/bin/env python3
"""Exact values of a maze of about 2,000 states, and what JAX saves over plain NumPy: `python benchmarks/theory.py`."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gtrl import console
from gtrl.theory import examples
from gtrl.theory.maze import maze
from gtrl.theory.process import Process, uniform
from gtrl.theory.transitive import base_cases, iterates, max_product
from gtrl.theory.values import behaviour_values, divide_and_conquer_values, optimal_values

GAMMA = 0.99
MAGNIFIED = 7


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


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


def numpy_max_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The largest left[s, w] right[w, g] over w, one row of the result at a time."""
    return np.stack([(row[:, None] * right).max(0) for row in left])


def main() -> None:
    process = maze(examples.magnified(examples.TELEPORT_MAZE, MAGNIFIED)).process
    base = base_cases(process, GAMMA)
    work: dict[str, Callable[[], Any]] = {
        "V*, every goal": lambda: optimal_values(process, GAMMA),
        "V_DC": lambda: divide_and_conquer_values(process, GAMMA),
        "V^β, every goal": lambda: behaviour_values(process, uniform(process), GAMMA),
        "one transitive update": lambda: max_product(base, base),
        "transitive updates to the end": lambda: list(iterates(process, GAMMA)),
    }
    plain: dict[str, Callable[[], Any]] = {
        "V*, every goal": lambda: numpy_optimal_values(process),
        "one transitive update": lambda: numpy_max_product(base, base),
    }
    rows = []
    for name, run in work.items():
        result, first = timed(run)
        _, again = timed(run)
        ratio = ""
        if name in plain:
            expected, took = timed(plain[name])
            np.testing.assert_allclose(result, expected, atol=1e-9)
            ratio = f"{took / again:.1f} x"
        rows.append([name, f"{first:.2f}", f"{again:.2f}", ratio])
    title = f"{process.states:,} states, {process.actions} actions, float64"
    console.print_wide(console.table(title, ["", "seconds", "once compiled", "faster than NumPy"], rows))


if __name__ == "__main__":
    main()

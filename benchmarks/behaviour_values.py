#!/usr/bin/env python3
"""Compares learned values of a point maze with what one-step backups of the behaviour policy converge to.

    python benchmarks/behaviour_values.py DATASET CELL...

For goals that no trajectory connects with a state, GTRL's only target is the one-step target, gamma Q(s', a', g) with
the logged a', averaged over the data (kappa = 0.5). Here this average is solved exactly, on a process that is counted
from the data: a state is one of 5 x 5 squares of a cell and one of 8 headings of the logged action. Where trajectories
connect the pair, the learned value is taken as given. So the question is: given the learned values near the goal, are
those far away what the target says?

If rho is read from the target, it weights outcomes: those with larger targets count more. Its fixed point is iterated.

CELL is a folder with `config.json` and `maps.npz`, such as results/pointmaze-large-stitch/gtrl-300k.
"""

import json
import sys
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from gtrl import console
from gtrl.envs.maze import Maze
from gtrl.evaluation.diagnostics.distance import connected_cells, pair_distances
from gtrl.evaluation.diagnostics.sections import bins, implied_steps
from gtrl.evaluation.maps import POINTS_PER_CELL, decode_values

HEADINGS = 8
MIN_COUNT = 20  # visits from which a heading of a square counts when the best one is chosen
ITERATIONS = 3000
EDGES = (4, 8, 16)  # cells; beyond, values are below what `maps.npz` can hold


class Chain:
    """The process that is counted from the data: how often (square, heading) follows (square, heading)."""

    def __init__(self, positions: np.ndarray, actions: np.ndarray, last: np.ndarray, maze: Maze) -> None:
        grid = maze.grid(POINTS_PER_CELL)
        numbers = np.full(grid.free.shape, -1)
        numbers[grid.free] = np.arange(grid.free.sum())
        step = maze.unit / POINTS_PER_CELL
        low = np.array([maze.extent[0], maze.extent[2]])
        column, row = np.clip(((positions - low) / step).astype(int), 0, np.array(grid.free.shape[::-1]) - 1).T
        heading = ((np.arctan2(actions[:, 1], actions[:, 0]) / (2 * np.pi) + 1) * HEADINGS).round().astype(int)
        state = numbers[row, column] * HEADINGS + heading % HEADINGS
        self.squares = int(grid.free.sum())
        kept = ~last[:-1] & (numbers[row, column][:-1] >= 0) & (numbers[row, column][1:] >= 0)
        size = self.squares * HEADINGS
        ones = np.ones(kept.sum())
        self.counts = csr_matrix((ones, (state[:-1][kept], state[1:][kept])), (size, size))
        self.visits = np.asarray(self.counts.sum(1)).ravel()

    def fixed_point(self, given: np.ndarray, gamma: float, exponent: float) -> np.ndarray:
        """Iterates Q = mean of gamma Q' over the outcomes, weighted by rho of the target with this exponent.

        `given` is (squares, goals): known values, NaN where they are to be found. Returns the value of each square's
        best heading; NaN where no heading was seen often enough.
        """
        known = np.repeat(given, HEADINGS, 0)
        q = np.where(np.isnan(known), 1e-9, known)
        for _ in range(ITERATIONS):
            y = gamma * q
            weight = (1 + np.log(np.maximum(y, 1e-12)) / np.log(gamma)) ** -exponent
            total = self.counts @ weight
            q = np.where(np.isnan(known), (self.counts @ (weight * y)) / np.where(total > 0, total, 1), known)
            q = np.maximum(q, 1e-12)
        seen = np.where(self.visits[:, None] >= MIN_COUNT, q, np.nan).reshape(self.squares, HEADINGS, -1)
        return np.where(np.isnan(given), np.nanmax(np.where(np.isnan(seen), -1, seen), 1), given)


def main(dataset: str, *cells: str) -> None:
    with np.load(dataset) as file:
        positions, actions, last = file["qpos"][:, :2], file["actions"], file["terminals"]
    ends = np.flatnonzero(last)[np.cumsum(last) - last]  # the last row of each row's trajectory
    rows = []
    for cell in map(Path, cells):
        config = json.loads((cell / "config.json").read_text())["algorithm"]
        gamma, reads = config["gamma"], config["rho_reads"]
        with np.load(cell / "maps.npz") as file:
            arrays = dict(file)
        maze = Maze.from_arrays(arrays)
        chain = Chain(positions, actions, last, maze)
        distance = pair_distances(maze)
        connected = connected_cells(maze, positions, positions, ends)
        learned = decode_values(arrays["values"]).mean(0).T  # (squares, goals), mean over seeds
        index = {place: number for number, place in enumerate(maze.cells)}
        of_square = np.array([index[maze.cell_at(xy)] for xy in arrays["points"]])
        given = np.where(connected[of_square] | np.eye(len(maze.cells), dtype=bool)[of_square], learned, np.nan)
        centre = [int(np.linalg.norm(arrays["points"] - xy, axis=-1).argmin()) for xy in maze.xy(maze.cells)]
        unweighted = chain.fixed_point(given, gamma, 0.0)
        weighted = chain.fixed_point(given, gamma, config["lambda_"]) if reads == "target" else unweighted
        apart = np.where(connected | (distance >= EDGES[-1]), 0, distance)
        for label, mask in bins(apart, EDGES):
            found = [implied_steps(v[centre][mask], gamma).mean() / distance[mask].mean()
                     for v in (learned, weighted, unweighted)]  # fmt: skip
            rows.append([cell.name, reads, label, int(mask.sum()), *(f"{each:.1f}" for each in found)])
    columns = ["run", "rho reads", "distance", "pairs", "learned", "fixed point", "without weights"]
    console.print_table(
        console.table("Steps per cell that values imply, for pairs that no trajectory connects", columns, rows, text=3)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

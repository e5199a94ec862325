"""Sweeps: grids of tasks × methods × fields, run on this machine or on a Ray cluster, and watched while they run.

Example:
    sweep = make_sweep({"tasks": ["scene-play"], "methods": ["gtrl", "trl"], "steps": 100_000})
    run_sweep(sweep, "runs/comparison")
"""

from gtrl.sweeps.plan import PRESETS, Sweep, make_sweep, read_sweep
from gtrl.sweeps.sweep import run_sweep

__all__ = ["PRESETS", "Sweep", "make_sweep", "read_sweep", "run_sweep"]

"""Diagnostics of a trained run: numbers that show why it fails, as `gtrl diagnose` prints them.

- `sections`: a section of the result, bins of distances, means over seeds.
- `luck`: the value against the return of the policy's own episodes.
- `distance`: the value against the shortest distance in a maze.
- `policy`: whether the policy's action raises the critic.
- `targets`: which target won, and the hindsight weight at teleporters.
- `diagnose`: all of them for a run directory.

This module does not import JAX, so that the command line can use the default below.
"""

EPISODES = 5  # per goal and seed, by default
